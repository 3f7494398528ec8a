"""The mover of a topic: it appends moved copies to their targets.

small stream of a subscription   dead letters, deferred copies, each with its origin
stream of the root               as one of its publishers would; refused copies become dead letters
messages of a stream for later   forwarded copies with a time to come
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from headgate.broker.delivery import (
    MovedCopies,
    Movement,
    Mover,
    ReadCopy,
    Refused,
    TargetKind,
    append_to_stream,
)
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.dispatcher import BYTES_A_TURN, COPIES_A_TURN
from headgate.broker.topics.scheduled_messages import due_of
from headgate.broker.topics.scheduler import Scheduler
from headgate.broker.topics.sequence_numbers import sequence_number
from headgate.broker.topics.subqueue import Subqueue
from headgate.broker.topics.subscription_source import FAILED_RULES, SubscriptionSource
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.errors import LogError, MessageGivenUpError, StreamFullError
from headgate.ledger import Elsewhere, Ledger, Move, offset_of, redirect_moves, rule_of
from headgate.topic import Origin, forwarded, with_origin

Message = TypeVar("Message", bound=bytes | Elsewhere)

logger = logging.getLogger("headgate.broker")


class CopyMover(Mover):
    """Moves the copies that one ledger of a topic gives up.

    `name` is for logs; `copies` gives the moved copies; streams that `environment` finds know whether they take
    messages. `subqueue_of` gives a small stream by kind and number of the subscription, None where that was removed;
    `name_of` gives the name of a subscription for users.
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        copies: MovedCopies,
        environment: Environment,
        scheduler: Scheduler,
        *,
        subqueue_of: Callable[[TargetKind, int], Subqueue | None],
        name_of: Callable[[int], str],
    ) -> None:
        super().__init__(f"{name}: moves", ledger)
        self._copies = copies
        self._subqueue_of = subqueue_of
        self._name_of = name_of
        self._environment = environment
        self._scheduler = scheduler

    def takes_more(self, target: str) -> bool:
        """Whether few moves wait for a target; waiting moves are in memory."""
        return len(self._ledger.moves().get(target, ())) < COPIES_A_TURN

    def _carry_to(self, target: str, now_ms: int) -> int:
        kind, name = TargetKind.parse(target)
        try:
            if kind is TargetKind.STREAM:
                return self._forward(name, target, now_ms)
            if kind is TargetKind.WAITING:
                return self._forward_later(name, target)
            return self._keep(kind, int(name), target)
        finally:
            self._copies.forget()

    def _keep(self, kind: TargetKind, subscription: int, target: str) -> int:
        """Append moves to a small stream of a subscription."""
        ledger = self._ledger
        queue = self._subqueue_of(kind, subscription)
        if queue is None:
            # Its subscription was removed with all its copies.
            ledger.moved(target, ledger.moves()[target][-1].sequence)
            return 0
        self._copies.read_ahead(ledger.moves()[target])

        def kept(move: Move) -> tuple[bytes, None] | None:
            message = self._unless_given_up(move, self._kept)
            return None if message is None else (message, None)

        return queue.append(ledger, target, kept)

    def _forward(self, name: str, target: str, now_ms: int) -> int:
        """Append moves to another stream of the root, as a publisher would, or turn them into dead letters."""
        found = self._environment.find(name)
        if found is None:
            return self._redirect(target, Refused.MISSING, lambda _publisher: None)
        if found.is_writing:
            return 0
        self._environment.watch(found)

        def last_sequence(publisher: str) -> int | None:
            return found.last_sequence(publisher.encode())

        if found.refusal is not None:
            return self._redirect(target, Refused.DISABLED, last_sequence)
        if found.stopped_by is not None:
            raise found.stopped_by
        if not self._environment.know_ids(found):
            return 0
        self._copies.read_ahead(self._ledger.moves()[target])
        waits = TargetKind.WAITING.named(name)

        def made(move: Move) -> bytes | Elsewhere | None:
            message = self._unless_given_up(move, self._forwarded)
            if message is None or isinstance(message, Elsewhere) or due_of(message) <= now_ms:
                return message
            return Elsewhere(waits, move.change)

        try:
            return append_to_stream(found, self._ledger, target, made, ids=found.recent_ids, now_ms=now_ms)
        except StreamFullError:
            return self._redirect(target, Refused.FULL, last_sequence)

    def _forward_later(self, name: str, target: str) -> int:
        """Add moves to the scheduled messages of another stream, or turn them into dead letters."""
        found = self._environment.find(name)
        if found is None:
            return self._redirect(target, Refused.MISSING, lambda _publisher: None)
        waiting = self._scheduler.of(found)
        if found.refusal is not None:
            return self._redirect(target, Refused.DISABLED, waiting.last_sequence)
        self._copies.read_ahead(self._ledger.moves()[target])
        return waiting.take(self._ledger, target, lambda move: self._unless_given_up(move, self._forwarded))

    def _redirect(self, target: str, why: Refused, last_sequence: Callable[[str], int | None]) -> int:
        return redirect_moves(
            self._ledger, target, last_sequence=last_sequence, elsewhere=lambda move: _dead_letter(move, why)
        )

    def _unless_given_up(self, move: Move, made: Callable[[Move], Message]) -> Message | None:
        """The message of a move; None where it was damaged and given up, which ends the move."""
        try:
            return made(move)
        except MessageGivenUpError as error:
            logger.warning("%s to %s: nothing is moved: %s", self._name, move.target, error)
            return None

    def _kept(self, move: Move) -> bytes:
        """The message of a move to a small stream of a subscription, as it is stored there."""
        movement = Movement.decode(move.change)
        message, origin = self._copies.moved(move, movement)
        return with_origin(movement.marked(message), origin)

    def _forwarded(self, move: Move) -> bytes | Elsewhere:
        """The message of a move to a stream, as it is stored there; after too many hops, the dead letter instead."""
        movement = Movement.decode(move.change)
        if movement.is_resubmission:
            return movement.published_again(self._copies.moved(move, movement)[0])
        source = None if movement.is_forward else self._name_of(movement.subscription)
        message, origin = self._copies.moved(move, movement)
        made = forwarded(movement.marked(message), number=sequence_number(origin.copy), source=source)
        return _dead_letter(move, Refused.HOPS) if made is None else made


class TopicCopies:
    """The copies that moves take from the subscriptions of a topic; see `MovedCopies`."""

    def __init__(self, stream: BrokerStream, decider: TopicDecider) -> None:
        self._path = stream.stream.path
        self._topic_decider = decider
        self._read: dict[tuple[int, int], ReadCopy] = {}
        """Copies read ahead, by subscription and copy."""

    def read_ahead(self, moves: Sequence[Move]) -> None:
        """Read the first moves together; unreadable messages are found later, one by one."""
        copies: dict[int, list[int]] = defaultdict(list)
        for move in moves[:COPIES_A_TURN]:
            if rule_of(move.copy) != FAILED_RULES:
                copies[_subscription(move, Movement.decode(move.change))].append(move.copy)
        for number, own in copies.items():
            source = SubscriptionSource(number, self._topic_decider.decider, self._topic_decider.reader)
            with contextlib.suppress(LogError):
                for each in source.read(np.array(sorted(own), dtype=np.int64), max_bytes=BYTES_A_TURN):
                    self._read[number, each.copy] = each

    def forget(self) -> None:
        """Forget the copies that were read ahead."""
        self._read.clear()

    def moved(self, move: Move, movement: Movement) -> tuple[bytes, Origin]:
        """The message of a move, and its origin. Raises LogError."""
        number = _subscription(move, movement)
        decider, reader, offset = self._topic_decider.decider, self._topic_decider.reader, offset_of(move.copy)
        if rule_of(move.copy) == FAILED_RULES:
            if offset >= decider.next_offset:
                raise LogError(f"offset {offset} is to be decided again", path=self._path)
            failed = next(iter(decider.postings.failures(number, offset)), None)
            if failed is None:
                raise MessageGivenUpError(f"the message at offset {offset} is not there any more", path=self._path)
            rules = [rule for each, rule in failed.pairs() if each == offset]
            letter, arrived_ms = reader.dead_letter(number, offset, rules)
            return letter, Origin(move.copy, arrived_ms, 0)
        read = self._read.pop((number, move.copy), None)
        if read is None:
            source = SubscriptionSource(number, decider, reader)
            read = next(iter(source.read(np.array([move.copy], dtype=np.int64), max_bytes=1)), None)
        if read is None:
            raise MessageGivenUpError(f"the message at offset {offset} is not there any more", path=self._path)
        return read.message, Origin(move.copy, read.timestamp_ms, move.attempt)


def _subscription(move: Move, movement: Movement) -> int:
    """The number of the subscription whose copy a move takes."""
    kind, name = TargetKind.parse(move.target)
    return movement.subscription if kind.is_elsewhere else int(name)


def _dead_letter(move: Move, why: Refused) -> Elsewhere:
    """The new target of a copy that a stream does not take: the dead letters of the copy's subscription."""
    movement = Movement.decode(move.change)
    return Elsewhere(TargetKind.DEAD_LETTERS.named(movement.subscription), movement.refused(why).encode())


def transfers(ledger: Ledger, view: int) -> int:
    """How many copies of a view are on their way to streams. Cost: a look at each waiting move."""
    return sum(
        move.view == view
        for target, moves in ledger.moves().items()
        if TargetKind.parse(target)[0].is_elsewhere
        for move in moves
    )
