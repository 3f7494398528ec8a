"""Browsing the copies of a topic's subscriptions: nothing is claimed, and nothing is settled."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from headgate.broker.delivery import ReadCopy, TargetKind
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.dispatcher import BYTES_A_TURN
from headgate.broker.topics.scheduler import Scheduler
from headgate.broker.topics.sessions import Found
from headgate.broker.topics.subqueues import Subqueues
from headgate.broker.topics.subscription import BrokerSubscription, QueueDepth
from headgate.broker.topics.subscriptions import BrokerSubscriptions
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.errors import HeadgateError, LogError
from headgate.ledger import NO_COPY
from headgate.topic import QUEUE_SUBSCRIPTION


class Browser:
    """Shows the copies of one topic; in the broker's thread only."""

    def __init__(
        self,
        stream: BrokerStream,
        subscriptions: BrokerSubscriptions,
        subqueues: Subqueues,
        decider: TopicDecider,
        scheduler: Scheduler,
    ) -> None:
        self._stream = stream
        self._subscriptions = subscriptions
        self._subqueues = subqueues
        self._topic_decider = decider
        self._scheduler = scheduler

    def depth(self, name: str, *, dead_letters: bool = False) -> QueueDepth:
        """A subscription, or its dead letters, as a queue; ResourceNotFoundError, LogError."""
        found = self._subscriptions.find(name)
        if dead_letters and not self._subqueues.exists(TargetKind.DEAD_LETTERS, found.version.number):
            return QueueDepth(0, 0)
        dispatcher = self._subscriptions.dispatcher(found, dead_letters=dead_letters)
        return QueueDepth(dispatcher.lag, len(dispatcher.receivers))

    def peek(self, subscription: str, from_copy: int, limit: int, *, dead_letters: bool = False) -> list[ReadCopy]:
        """At most `limit` unsettled copies, at or above a copy; claimed ones are included. Claims nothing.

        Deferred copies are included, and the scheduled messages of a queue. Raises ResourceNotFoundError; LogError
        where a copy is damaged, or where fewer than `limit` are decided and damage stops deciding the rest.
        """
        found = self._subscriptions.find(subscription)
        with self._stream.guarded():
            copies, stop = self._peek(found, from_copy, limit, dead_letters=dead_letters)
        if copies and len(copies) < limit and stop < NO_COPY:
            try:
                with self._stream.guarded():
                    self._peek(found, stop, 1, dead_letters=dead_letters)
            except LogError as error:
                error.advice += f"; {len(copies)} copies lie before this place: ask for no more to see them"
                raise
        damage = self._subscriptions.damage
        if damage is not None and len(copies) < limit and not dead_letters:
            raise damage
        return copies

    def _peek(
        self, found: BrokerSubscription, from_copy: int, limit: int, *, dead_letters: bool
    ) -> tuple[list[ReadCopy], int]:
        """The copies that `peek` gives, and the copy before which there are no others."""
        dispatcher = self._subscriptions.dispatcher(found, dead_letters=dead_letters)
        with self._topic_decider.step_lock:
            parts = [dispatcher.peek(from_copy, limit)]
        if not dead_letters:
            deferred = self._subqueues.get(TargetKind.DEFERRED, found).deferred()
            parts += [] if deferred is None else [deferred.peek(from_copy, limit)]
        if found.version.name == QUEUE_SUBSCRIPTION and not dead_letters:
            parts.append(self._scheduler.of(self._stream).peek(from_copy, limit))
        return _in_order(parts)[:limit], min(stop for _, stop in parts)

    def copies(self, subscription: str, from_copy: int, limit: int) -> tuple[Sequence[ReadCopy], int]:
        """At most `limit` decided copies of a subscription, settled or not, at or above a copy.

        Also the copy up to which there are no others. Raises ResourceNotFoundError, LogError.
        """
        source = self._subscriptions.find(subscription).source
        with self._stream.guarded(), self._topic_decider.step_lock:
            found = source.find(from_copy, source.end, limit)
            if not len(found.copies):
                return [], found.searched
            read = source.read(found.copies, max_bytes=BYTES_A_TURN)
        is_all = bool(read) and read[-1].copy == int(found.copies[-1])
        return read, found.searched if is_all or not read else read[-1].copy + 1

    # by session

    def sessions(self, subscription: str, then: Found[list[str]], *, set_after_ms: int | None = None) -> None:
        """The sessions of a subscription with unsettled copies, or with a state, sorted by name.

        With `set_after_ms` only sessions whose state was set after that time. `then` gets them once all decided copies
        are indexed by session, or LogError. Raises ResourceNotFoundError, PreconditionFailedError for a subscription
        without sessions.
        """
        found = self._subscriptions.find(subscription)
        self._subscriptions.by_session(found).sessions(then, set_after_ms=set_after_ms)

    def peek_session(
        self, subscription: str, session: str, from_copy: int, limit: int, then: Found[Sequence[ReadCopy]]
    ) -> None:
        """At most `limit` unsettled copies of a session, at or above a copy; claimed and deferred ones are included.

        `then` and errors are as for `sessions`.
        """
        found = self._subscriptions.find(subscription)

        def told(result: tuple[list[ReadCopy], int] | HeadgateError) -> None:
            try:
                if isinstance(result, HeadgateError):
                    raise result
                deferred = self._subqueues.get(TargetKind.DEFERRED, found).deferred()
                parts = [result] if deferred is None else [result, deferred.peek(from_copy, limit, session)]
                copies = _in_order(parts)[:limit]
            except HeadgateError as error:
                then(error)
            else:
                then(copies)

        self._subscriptions.by_session(found).peek_session(session, from_copy, limit, told)


def _in_order(parts: Sequence[tuple[list[ReadCopy], int]]) -> list[ReadCopy]:
    """Copies of several parts in one order, as far as all parts were searched."""
    stop = min(searched for _, searched in parts)
    return sorted((each for found, _ in parts for each in found if each.copy < stop), key=attrgetter("copy"))
