"""Carrying out the moves of a topic's ledger, target by target; one that fails holds back what follows it there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headgate.broker.stream import BrokerStream
from headgate.broker.topics.following import Following
from headgate.broker.topics.moving import Movement, TargetKind, append_to_stream
from headgate.broker.topics.queue import Queue
from headgate.broker.topics.sources import FAILED_RULES, SubscriptionSource
from headgate.broker.topics.trouble import Trouble
from headgate.errors import HeadgateError, LogError, ResourceNotFoundError
from headgate.ledger import Ledger, Move, offset_of, rule_of
from headgate.topic import with_origin


class Carrier:
    """Appends moved copies to their targets.

    `queue_of` gives the small stream of a kind of a subscription, by its number, or None where that was removed; `find`
    a stream of the root; `watch` is told of a stream whose writer is taken.
    """

    def __init__(
        self,
        stream: BrokerStream,
        ledger: Ledger,
        following: Following,
        *,
        queue_of: Callable[[TargetKind, int], Queue | None],
        find: Callable[[str], BrokerStream | None],
        watch: Callable[[BrokerStream], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.moved = 0
        """How many copies are in their targets since the topic was opened."""
        self._stream = stream
        self._ledger = ledger
        self._following = following
        self._queue_of = queue_of
        self._find = find
        self._watch = watch
        self._now_ms = now_ms
        self._held: dict[str, Trouble] = {}
        """Targets that could not take their moves."""

    def is_due(self, now_ms: int) -> bool:
        """Whether moves are left that a target is to be offered now."""
        return any(self._may_try(target, now_ms) for target in self._ledger.moves())

    def _may_try(self, target: str, now_ms: int) -> bool:
        held = self._held.get(target)
        return held is None or now_ms >= held.not_before_ms

    def carry_out(self, now_ms: int) -> None:
        """Append what is committed to be moved; the ledger knows what is in its target, and is to be committed.

        What a target does not take now, because somebody else uses its writer, is left for the next tick.
        """
        for target in list(self._ledger.moves()):
            if not self._may_try(target, now_ms):
                continue
            try:
                self.moved += self._carry_to(target)
                self._held.pop(target, None)
            except HeadgateError as error:
                held = self._held.setdefault(target, Trouble())
                held.note(f"topic {self._stream.name!r}: moves to {target} wait", error, now_ms)

    def _carry_to(self, target: str) -> int:
        kind, name = TargetKind.parse(target)
        ledger = self._ledger
        if kind is TargetKind.STREAM:
            return self._forward(name, target)
        queue = self._queue_of(kind, int(name))
        if queue is None:
            # Its subscription was removed, and all it had with it.
            ledger.moved(target, ledger.moves()[target][-1].sequence)
            return 0
        return queue.append(ledger, target, lambda move: (self._made(move), None))

    def _forward(self, name: str, target: str) -> int:
        """Append moves to another stream of the root, as one of its publishers would."""
        found = self._find(name)
        if found is None:
            raise ResourceNotFoundError("there is no such stream to forward to", subject=name)
        if found.is_writing:
            return 0
        self._watch(found)
        return append_to_stream(found, self._ledger, target, self._made, now_ms=self._now_ms())

    def _made(self, move: Move) -> bytes:
        """The message of a move, as it lies in its target."""
        kind, name = TargetKind.parse(move.target)
        movement = Movement.decode(move.change)
        number = movement.subscription if kind is TargetKind.STREAM else int(name)
        message, arrived_ms, attempts = self._copy(move, number)
        message = movement.marked(message)
        if kind is not TargetKind.STREAM:
            message = with_origin(message, copy=move.copy, arrived_ms=arrived_ms, attempts=attempts)
        return message

    def _copy(self, move: Move, number: int) -> tuple[bytes, int, int]:
        """The copy that a move takes from the subscription with a number, its time of arrival, and its attempts."""
        decider, reader, offset = self._following.decider, self._following.reader, offset_of(move.copy)
        if rule_of(move.copy) == FAILED_RULES:
            if offset >= decider.next_offset:
                raise LogError(f"offset {offset} is to be decided again", path=self._stream.stream.path)
            failed = next(iter(decider.postings.failures(number, offset)))
            rules = [rule for each, rule in failed.pairs() if each == offset]
            return reader.dead_letter(number, offset, rules), 0, 0
        found = SubscriptionSource(number, decider, reader).read(np.array([move.copy], dtype=np.int64), max_bytes=1)
        if not found:
            raise LogError(f"the message at offset {offset} was deleted", path=self._stream.stream.path)
        return found[0].message, found[0].timestamp_ms, move.attempt
