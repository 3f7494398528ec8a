"""How copies leave a topic's subscriptions at the request of clients: receivers, deferred copies by number, purges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.broker.delivery import Consumption, TargetKind
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.deferred_copies import AskedCopies, ReceivedDeferred
from headgate.broker.topics.expiry import first_not_before
from headgate.broker.topics.receiver import Receiver, ReceiverCalls
from headgate.broker.topics.sessions import SessionReceiver
from headgate.broker.topics.settler import Settler
from headgate.broker.topics.subqueues import Subqueues
from headgate.broker.topics.subscription import BrokerSubscription
from headgate.broker.topics.subscriptions import BrokerSubscriptions
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.errors import HeadgateError, LogError, PreconditionFailedError
from headgate.ledger import NO_COPY, copy_number


class Receivers:
    """Opens the receivers of one topic, and takes copies without one; in the broker's thread only."""

    def __init__(
        self,
        stream: BrokerStream,
        subscriptions: BrokerSubscriptions,
        subqueues: Subqueues,
        decider: TopicDecider,
        consumption: Consumption,
        environment: Environment,
    ) -> None:
        self.asked_deferred: list[tuple[int, AskedCopies]] = []
        """Requests for deferred copies that wait for the next turn, with the number of the subscription."""
        self._stream = stream
        self._subscriptions = subscriptions
        self._subqueues = subqueues
        self._topic_decider = decider
        self._consumption = consumption
        self._touch = environment.wake

    def open(self, subscription: str, link: ReceiverCalls, *, dead_letters: bool = False) -> Receiver:
        """A receiver of a subscription, or of its dead letters.

        Raises ResourceNotFoundError, EntityDisabledError, PreconditionFailedError for a subscription that forwards its
        copies or gives them by session, LogError.
        """
        found = self._subscriptions.enabled(subscription)
        dispatcher = self._subscriptions.dispatcher(found, dead_letters=dead_letters)
        if not dead_letters:
            _check_receivable(found)
            _check_without_session(found)
        receiver = Receiver(dispatcher, link)
        dispatcher.add(receiver)
        return receiver

    def open_session(
        self,
        subscription: str,
        session: str | None,
        link: ReceiverCalls,
        accepted: Callable[[SessionReceiver], None],
    ) -> SessionReceiver:
        """A receiver of one session of a subscription: the session with that id, or else the next free one with copies.

        `accepted` is called when it has its session; without an id it waits until a session is free, and `close` ends
        the wait. Raises ResourceNotFoundError, EntityDisabledError, SessionLockedError where another receiver has the
        session, PreconditionFailedError for a subscription that forwards its copies or does not give them by session,
        LogError.
        """
        found = self._subscriptions.enabled(subscription)
        _check_receivable(found)
        dispatcher = self._subscriptions.by_session(found)
        receiver = SessionReceiver(dispatcher, link, accepted)
        if session is not None:
            dispatcher.lock(receiver, session)
        dispatcher.add(receiver)
        dispatcher.wake()
        return receiver

    # without a receiver

    def settler(self, subscription: str, *, dead_letters: bool = False, deferred: bool = False) -> Settler[Receiver]:
        """Settles copies of a subscription, its dead letters, or its deferred copies (`is_deferred`), by tokens.

        Raises ResourceNotFoundError, EntityDisabledError, LogError, PreconditionFailedError for a subscription that
        gives its copies by session: there the sessions' receivers settle.
        """
        found = self._subscriptions.enabled(subscription)
        if deferred and not dead_letters:
            return self._subqueues.get(TargetKind.DEFERRED, found).dispatcher()
        if not dead_letters:
            _check_without_session(found)
        return self._subscriptions.dispatcher(found, dead_letters=dead_letters)

    def purge(
        self, subscription: str, then: Callable[[int | HeadgateError], None], *, dead_letters: bool = False
    ) -> None:
        """Settle all current copies, claimed or not; `then` gets how many."""
        found = self._subscriptions.find(subscription)
        dispatcher = self._subscriptions.dispatcher(found, dead_letters=dead_letters)
        with self._stream.guarded(), self._topic_decider.step_lock:
            dispatcher.purge(then)

    def delete(
        self,
        subscription: str,
        limit: int,
        then: Callable[[int | HeadgateError], None],
        *,
        before_ms: int | None = None,
        dead_letters: bool = False,
    ) -> None:
        """Settle the first available copies, at most `limit`; `then` gets how many when that is on disk.

        With `before_ms` only copies of messages that arrived before. Raises ResourceNotFoundError,
        EntityDisabledError, LogError. Cost: dead letters are read where a time is given.
        """
        found = self._subscriptions.enabled(subscription)
        dispatcher = self._subscriptions.dispatcher(found, dead_letters=dead_letters)
        with self._topic_decider.step_lock:
            if dead_letters or before_ms is None:
                dispatcher.delete(limit, NO_COPY, then, before_ms=before_ms)
            else:
                dispatcher.delete(limit, copy_number(first_not_before(self._stream, before_ms)), then)

    # deferred copies

    def receive_deferred(
        self,
        subscription: str,
        copies: Sequence[int],
        then: ReceivedDeferred,
        *,
        settles_first: bool = False,
        session: str | None = None,
    ) -> None:
        """Receive deferred copies by their numbers; `then` gets the unclaimed ones, in that order, or LogError.

        They are claimed for the lock time of other copies; `settler` settles them by their tokens, and a copy that
        comes back is deferred again. Limit: 512 KiB of messages; the first may be larger. With `settles_first` copies
        are settled before `then` is called; with `session` copies of other sessions are left out. Raises
        ResourceNotFoundError, EntityDisabledError, PreconditionFailedError without a session where copies are given by
        session.
        """
        found = self._subscriptions.enabled(subscription)
        if session is None:
            _check_without_session(found)
        self.asked_deferred.append((found.version.number, AskedCopies(copies, settles_first, session, then)))
        self._touch()

    def give_deferred(self, now_ms: int) -> None:
        """Answer requests for deferred copies; a request waits while its copies are still being moved."""
        asked, self.asked_deferred = self.asked_deferred, []
        for number, each in asked:
            found = self._subscriptions.get(number)
            moves = self._consumption.ledger.moves().get(TargetKind.DEFERRED.named(number), ())
            if (
                found is not None
                and self._topic_decider.is_busy
                and not {move.copy for move in moves}.isdisjoint(each.copies)
            ):
                self.asked_deferred.append((number, each))
                continue
            try:
                queue = None if found is None else self._subqueues.get(TargetKind.DEFERRED, found)
                dispatcher = None if queue is None else queue.deferred()
            except LogError as error:
                each.then(error)
                continue
            if dispatcher is None:
                each.then([])
            else:
                dispatcher.receive(each, now_ms)


def _check_receivable(found: BrokerSubscription) -> None:
    """Raises PreconditionFailedError for a subscription that forwards its copies."""
    if found.version.forward_to is not None:
        raise found.refusal()


def _check_without_session(found: BrokerSubscription) -> None:
    """Raises PreconditionFailedError for a subscription that gives its copies by session."""
    if found.version.settings.requires_session:
        raise PreconditionFailedError("the copies are received by session", subject=found.dispatcher.name)
