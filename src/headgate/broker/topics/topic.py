"""One topic at work: it decides messages behind the writer, gives out their copies, and records how each is settled.

append ──► decide ──► claim ──► commit ──► deliver          one turn of the loop, where little is to be decided
             └─ much: in a worker, step by step; the topic's copies are given out between the steps
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from headgate.broker.damage import is_damage
from headgate.broker.delivery import Consumption, MovedCopies, Movement, ReadCopy, TargetKind
from headgate.broker.duplicates import RecentIds
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.auto_delete import AutoDelete, IdleSubscription
from headgate.broker.topics.copy_mover import CopyMover, TopicCopies
from headgate.broker.topics.deferred_copies import AskedCopies, ReceivedDeferred
from headgate.broker.topics.dispatcher import BYTES_A_TURN, Dispatcher
from headgate.broker.topics.expiry import first_not_before
from headgate.broker.topics.expiry_sweep import ExpirySweep
from headgate.broker.topics.receiver import Receiver, ReceiverCalls
from headgate.broker.topics.retention_pin import RetentionPin, needed_at_opening, wanted_pin
from headgate.broker.topics.rule_change import Changed, ChangeTopic, RuleChange
from headgate.broker.topics.rule_failures import RuleFailures
from headgate.broker.topics.scheduled_messages import ScheduledMessages
from headgate.broker.topics.scheduler import Scheduler
from headgate.broker.topics.sessions import Found, SessionDispatcher, SessionReceiver
from headgate.broker.topics.settler import Settler
from headgate.broker.topics.subqueue import Subqueue
from headgate.broker.topics.subqueues import Subqueues
from headgate.broker.topics.subscription import BrokerSubscription, QueueDepth, SubscriptionInfo
from headgate.broker.topics.subscriptions import BrokerSubscriptions
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.errors import (
    EntityDisabledError,
    HeadgateError,
    LogError,
    PreconditionFailedError,
)
from headgate.ledger import NO_COPY, Ledger, copy_number, offset_of
from headgate.log import Pin
from headgate.scan.fetch import AppendedChunks
from headgate.topic import (
    QUEUE_SUBSCRIPTION,
    Change,
    RemoveSubscription,
    RuleHistory,
    RuleVersion,
    SubscriptionName,
    SubscriptionSettings,
    TopicEditor,
    TopicSettings,
)
from headgate.topic.decisions import Decider, RuleCounts, Step

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class TopicCounters:
    """Counters of a topic, since the broker opened it."""

    messages_decided: int = 0
    rule_changes: int = 0
    cpu_ns: int = 0
    """Processor time, in nanoseconds, of reading and deciding messages for all subscriptions together; 0 where it is
    not measured."""


class BrokerTopic:
    """One topic of a broker, from `open` to `close`; in the broker's thread only, but for the steps of a worker."""

    def __init__(
        self,
        stream: BrokerStream,
        ledger: Ledger,
        decider: Decider,
        environment: Environment,
        scheduler: Scheduler,
        change: ChangeTopic,
    ) -> None:
        self.stream = stream
        self.counters = TopicCounters()
        self.used_ms = environment.now_ms()
        """When the last message or receiver came; before the first one, when the topic was opened."""
        self.consumption = Consumption(ledger, environment.wake, stream.guarded, environment.workers.commits)
        self._environment = environment
        self._now_ms = environment.now_ms
        self._touch = environment.wake
        self._topic_decider = TopicDecider(
            stream,
            decider,
            environment,
            is_awaited=lambda: self.consumption.is_awaited,
            taken=self._take,
            failed=self._stopped,
        )
        self._scheduler = scheduler
        self.consumption.mover = self._mover = self._mover_of(ledger, TopicCopies(stream, self._topic_decider))
        self._subqueues = Subqueues(
            stream,
            environment,
            self._mover_of,
        )
        self._subscriptions = BrokerSubscriptions(
            stream, self.consumption, self._topic_decider, self._subqueues, environment
        )
        self._rule_failures = RuleFailures(stream, self._topic_decider, self._subscriptions)
        self._asked_deferred: list[tuple[int, AskedCopies]] = []
        """Requests for deferred copies, with the number of the subscription."""
        self._editor: TopicEditor | None = None
        self._changed: list[tuple[Changed, int]] = []
        """Changes that are written, and that the decider does not know yet."""
        self._is_closed = False
        self._pin = RetentionPin(stream)
        self._needless_below = 0
        """No subscription needs an offset below this, even where the floor of a view without copies there is lower."""
        self._sweep = ExpirySweep(stream, self._receivable, environment.wake)
        self._auto_delete = AutoDelete(
            self._idle_subscriptions, lambda name, then: change(stream.name, [RemoveSubscription(name)], then)
        )
        self._follow_rules(decider.postings.history)
        self._subscriptions.sweep_removed()
        self._rule_failures.sweep()

    @staticmethod
    def open(stream: BrokerStream, environment: Environment, scheduler: Scheduler, change: ChangeTopic) -> BrokerTopic:
        """Open the ledger and the postings of a topic; moves that were begun go on.

        The background worker decides messages. Streams that `environment` finds know whether they take messages;
        `scheduler` has the scheduled messages of all streams.

        Raises RuleNotFoundError for a stream that is no topic, StreamLockedError that names the holder, LogError.
        """
        storage, now_ms = stream.storage, environment.now_ms()
        with stream.guarded():
            ledger = storage.ledger(stream.stream, now_ms=now_ms)
            try:
                decider = Decider.open(
                    stream.stream,
                    now_ms=now_ms,
                    floor=needed_at_opening(stream, ledger),
                    open_file=storage.open_file,
                )
            except BaseException:
                ledger.close()
                raise
            try:
                return BrokerTopic(stream, ledger, decider, environment, scheduler, change)
            except BaseException:
                decider.close()
                ledger.close()
                raise

    # subscriptions

    def receiver(self, subscription: str, link: ReceiverCalls, *, dead_letters: bool = False) -> Receiver:
        """A receiver of a subscription, or of its dead letters.

        Raises ResourceNotFoundError, EntityDisabledError, PreconditionFailedError for a subscription that forwards its
        copies or gives them by session, LogError.
        """
        found = self._enabled(subscription)
        dispatcher = self._dispatcher(found, dead_letters=dead_letters)
        if not dead_letters:
            self._check_receivable(found)
        if not dead_letters and found.version.settings.requires_session:
            raise PreconditionFailedError("the copies are received by session", subject=dispatcher.name)
        receiver = Receiver(dispatcher, link)
        dispatcher.add(receiver)
        return receiver

    def session_receiver(
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
        found = self._enabled(subscription)
        self._check_receivable(found)
        dispatcher = self._by_session(found)
        receiver = SessionReceiver(dispatcher, link, accepted)
        if session is not None:
            dispatcher.lock(receiver, session)
        dispatcher.add(receiver)
        dispatcher.wake()
        return receiver

    def sessions(self, subscription: str, then: Found[list[str]], *, set_after_ms: int | None = None) -> None:
        """The sessions of a subscription with unsettled copies, or with a state, sorted by name.

        With `set_after_ms` only sessions whose state was set after that time. `then` gets them once all decided copies
        are indexed by session, or LogError. Raises ResourceNotFoundError, PreconditionFailedError for a subscription
        without sessions.
        """
        self._by_session(self._subscriptions.find(subscription)).sessions(then, set_after_ms=set_after_ms)

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

        self._by_session(found).peek_session(session, from_copy, limit, told)

    def _by_session(self, found: BrokerSubscription) -> SessionDispatcher:
        """The dispatcher that gives out its copies by session. Raises PreconditionFailedError."""
        if not isinstance(found.dispatcher, SessionDispatcher):
            raise PreconditionFailedError("the copies are not received by session", subject=found.dispatcher.name)
        return found.dispatcher

    def _enabled(self, name: str) -> BrokerSubscription:
        """The subscription for a new receiver. Raises ResourceNotFoundError, EntityDisabledError."""
        self.used_ms = self._now_ms()
        return self._subscriptions.enabled(name)

    def _check_receivable(self, found: BrokerSubscription) -> None:
        if found.version.forward_to is not None:
            raise found.refusal()

    def subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, in order of creation, with their counts. Raises LogError for damaged dead letters."""
        return [self._subscriptions.counted(each) for each in self._subscriptions]

    def known_subscriptions(self) -> list[SubscriptionInfo]:
        """The same without opening a file; counts that are unknown after a start are known some ticks later."""
        return [self._subscriptions.known(each) for each in self._subscriptions]

    def subscription(self, name: str) -> SubscriptionInfo:
        """One subscription; ResourceNotFoundError, LogError."""
        return self._subscriptions.counted(self._subscriptions.find(name))

    def _dispatcher(self, found: BrokerSubscription, *, dead_letters: bool) -> Dispatcher:
        """The dispatcher of a subscription's copies, or of its dead letters. Raises LogError."""
        if not dead_letters:
            return found.dispatcher
        return self._subqueues.get(TargetKind.DEAD_LETTERS, found).dispatcher()

    @property
    def is_used(self) -> bool:
        """Whether the topic has a publisher, a reader or a receiver."""
        return bool(
            self.stream.publishers
            or self.stream.readers
            or any(
                each.dispatcher.receivers or self._subqueues.is_received(number)
                for number, each in self._subscriptions.items()
            )
        )

    def received_ms(self, name: str) -> int:
        """When a subscription was last used, at first when the topic was opened; ResourceNotFoundError."""
        return self._subscriptions.find(name).dispatcher.used_ms

    def settings_in_force(self, name: str) -> SubscriptionSettings:
        """The delivery settings of a subscription, within the limits of its topic; ResourceNotFoundError."""
        return self._subscriptions.find(name).policy.settings

    def named(self, name: SubscriptionName) -> SubscriptionName:
        """The name of a subscription in the case in which it was created; ResourceNotFoundError."""
        subscription = self._subscriptions.find(name.subscription).version.name
        return SubscriptionName(self.stream.name, subscription, name.is_dead_letter)

    def depth(self, name: str, *, dead_letters: bool = False) -> QueueDepth:
        """A subscription, or its dead letters, as a queue; ResourceNotFoundError, LogError."""
        found = self._subscriptions.find(name)
        if dead_letters and not self._subqueues.exists(TargetKind.DEAD_LETTERS, found.version.number):
            return QueueDepth(0, 0)
        dispatcher = self._dispatcher(found, dead_letters=dead_letters)
        return QueueDepth(dispatcher.lag, len(dispatcher.receivers))

    def peek(self, subscription: str, from_copy: int, limit: int, *, dead_letters: bool = False) -> list[ReadCopy]:
        """At most `limit` unsettled copies, at or above a copy; claimed ones are included. Claims nothing.

        Deferred copies are included, and the scheduled messages of a queue. Raises ResourceNotFoundError; LogError
        where a copy is damaged, or where fewer than `limit` are decided and damage stops deciding the rest.
        """
        found = self._subscriptions.find(subscription)
        with self.stream.guarded():
            copies, stop = self._peek(found, from_copy, limit, dead_letters=dead_letters)
        if copies and len(copies) < limit and stop < NO_COPY:
            try:
                with self.stream.guarded():
                    self._peek(found, stop, 1, dead_letters=dead_letters)
            except LogError as error:
                error.advice += f"; {len(copies)} copies lie before this place: ask for no more to see them"
                raise
        if self._damage is not None and len(copies) < limit and not dead_letters:
            raise self._damage
        return copies

    def _peek(
        self, found: BrokerSubscription, from_copy: int, limit: int, *, dead_letters: bool
    ) -> tuple[list[ReadCopy], int]:
        """The copies that `peek` gives, and the copy before which there are no others."""
        dispatcher = self._dispatcher(found, dead_letters=dead_letters)
        with self._topic_decider.step_lock:
            parts = [dispatcher.peek(from_copy, limit)]
        if not dead_letters:
            deferred = self._subqueues.get(TargetKind.DEFERRED, found).deferred()
            parts += [] if deferred is None else [deferred.peek(from_copy, limit)]
        if found.version.name == QUEUE_SUBSCRIPTION and not dead_letters:
            parts.append(self.scheduled.peek(from_copy, limit))
        return _in_order(parts)[:limit], min(stop for _, stop in parts)

    def copies(self, subscription: str, from_copy: int, limit: int) -> tuple[Sequence[ReadCopy], int]:
        """At most `limit` decided copies of a subscription, settled or not, at or above a copy.

        Also the copy up to which there are no others. Raises ResourceNotFoundError, LogError.
        """
        source = self._subscriptions.find(subscription).source
        with self.stream.guarded(), self._topic_decider.step_lock:
            found = source.find(from_copy, source.end, limit)
            if not len(found.copies):
                return [], found.searched
            read = source.read(found.copies, max_bytes=BYTES_A_TURN)
        is_all = bool(read) and read[-1].copy == int(found.copies[-1])
        return read, found.searched if is_all or not read else read[-1].copy + 1

    def purge(
        self, subscription: str, then: Callable[[int | HeadgateError], None], *, dead_letters: bool = False
    ) -> None:
        """Settle all current copies, claimed or not; `then` gets how many."""
        found = self._subscriptions.find(subscription)
        dispatcher = self._dispatcher(found, dead_letters=dead_letters)
        with self.stream.guarded(), self._topic_decider.step_lock:
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
        found = self._enabled(subscription)
        dispatcher = self._dispatcher(found, dead_letters=dead_letters)
        with self._topic_decider.step_lock:
            if dead_letters or before_ms is None:
                dispatcher.delete(limit, NO_COPY, then, before_ms=before_ms)
            else:
                dispatcher.delete(limit, copy_number(first_not_before(self.stream, before_ms)), then)

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
        found = self._enabled(subscription)
        if session is None and found.version.settings.requires_session:
            raise PreconditionFailedError("the copies are received by session", subject=found.dispatcher.name)
        self._asked_deferred.append((found.version.number, AskedCopies(copies, settles_first, session, then)))
        self._touch()

    def _give_deferred(self, now_ms: int) -> None:
        """Answer requests for deferred copies; a request waits while its copies are still being moved."""
        asked, self._asked_deferred = self._asked_deferred, []
        for number, each in asked:
            found = self._subscriptions.get(number)
            moves = self.consumption.ledger.moves().get(TargetKind.DEFERRED.named(number), ())
            if (
                found is not None
                and self._topic_decider.is_busy
                and not {move.copy for move in moves}.isdisjoint(each.copies)
            ):
                self._asked_deferred.append((number, each))
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

    def settler(self, subscription: str, *, dead_letters: bool = False, deferred: bool = False) -> Settler[Receiver]:
        """Settles copies of a subscription, its dead letters, or its deferred copies (`is_deferred`), by tokens.

        Raises ResourceNotFoundError, EntityDisabledError, LogError, PreconditionFailedError for a subscription that
        gives its copies by session: there the sessions' receivers settle.
        """
        found = self._enabled(subscription)
        if deferred and not dead_letters:
            return self._subqueues.get(TargetKind.DEFERRED, found).dispatcher()
        if not dead_letters and found.version.settings.requires_session:
            raise PreconditionFailedError("the copies are received by session", subject=found.dispatcher.name)
        return self._dispatcher(found, dead_letters=dead_letters)

    # messages whose time has not come

    @property
    def scheduled(self) -> ScheduledMessages:
        """Its scheduled messages."""
        return self._scheduler.of(self.stream)

    @property
    def waiting_count(self) -> int:
        """How many scheduled messages wait for their time. Raises LogError."""
        return self._scheduler.count(self.stream)

    # rules

    @property
    def history(self) -> RuleHistory:
        """The rules as the topic follows them, with every change that was confirmed."""
        return self._subscriptions.history

    def rule_counts(self, subscription: str) -> dict[int, RuleCounts]:
        """The counts of each rule in force, by its number, for the messages decided since the topic was opened.

        A rule that was replaced counts anew. Raises ResourceNotFoundError.
        """
        return self._rule_failures.counts(subscription)

    def failure_reason(self, subscription: str, rule: RuleVersion, offset: int) -> str:
        """Why a rule in force failed for the message at an offset. The message is read again, the last answer is kept.

        Raises ResourceNotFoundError.
        """
        return self._rule_failures.reason(subscription, rule, offset)

    @property
    def next_offset(self) -> int:
        """The first offset that is not decided."""
        return self._topic_decider.decided_until

    def begin_change(self, changes: Sequence[Change], then: Changed) -> RuleChange:
        """A change of subscriptions and rules, to be run while nothing else uses the writer.

        `then` is called when new subscriptions can be received from. Raises StreamLockedError where another process
        writes the stream, LogError.
        """

        def finished(result: int | HeadgateError) -> None:
            self._editor = change.editor
            if isinstance(result, HeadgateError):
                then(result)
                return
            self.counters.rule_changes += 1
            self._changed.append((then, result))
            self._touch()
            if self._environment.workers.background is None:
                self._decide(self._now_ms())

        change = RuleChange(self.stream, self._editor, changes, finished, now_ms=self._now_ms())
        return change

    def _follow_rules(self, history: RuleHistory) -> None:
        self._subscriptions.follow(history)
        restrict_publishers(self.stream, history.settings)
        self._pin.look_soon()

    # the turn

    def appended(self, chunks: AppendedChunks | None) -> None:
        """The stream has new messages; `chunks` is as for `TopicDecider.appended`."""
        self.used_ms = self._now_ms()
        self._topic_decider.appended(chunks)

    def turn(self, now_ms: int) -> None:
        """Take back expired claims, decide messages, give out, commit, answer, move; then serve the small streams."""
        if self._is_closed:
            return
        self.consumption.expire(now_ms)
        self._decide(now_ms)
        if not self._topic_decider.is_busy:
            self._follow_decider()
            if self.consumption.takes_more:
                if self._subscriptions.forwarding:
                    self._forward_available(now_ms)
                if self._sweep.is_asked_for:
                    self._sweep.turn(now_ms)
            self.consumption.dispatch(now_ms)
        self.consumption.commit(now_ms)
        self.stream.stopped_by = self._damage
        if not self._topic_decider.is_busy:
            self.consumption.move(now_ms)
        if self._asked_deferred:
            self._give_deferred(now_ms)
        if self._subqueues.touched:
            self._subqueues.turn(now_ms)

    def _decide(self, now_ms: int) -> None:
        self._topic_decider.decide(now_ms, has_new_rules=bool(self._changed))

    def _stopped(self) -> None:
        """Deciding stopped: at damage, end the receivers that were given all copies decided before it."""
        self._answer_changes()
        error = self._topic_decider.stopped_by
        if error is not None and is_damage(error):
            for dispatcher in list(self.consumption.receiving):
                assert isinstance(dispatcher, Dispatcher)
                dispatcher.end_waiting(error)

    @property
    def _damage(self) -> LogError | None:
        """The damage that stops giving out copies; None without damage, or without subscriptions."""
        error = self._topic_decider.stopped_by or self.consumption.stuck_by
        return error if error is not None and is_damage(error) and len(self._subscriptions) else None

    def _answer_changes(self) -> None:
        changed, self._changed = self._changed, []
        for then, offset in changed:
            then(offset)

    def _take(self, step: Step) -> None:
        """Count the decided copies, wake the dispatchers that have some, note the subscriptions whose rules failed."""
        self.counters.messages_decided += step.stop - step.start
        self.counters.cpu_ns = self._topic_decider.took_ns
        arrived: Counter[int] = Counter()
        for selected in step.selected:
            if len(selected.copies.offsets):
                arrived.update(selected.copies.per_subscription())
            if len(selected.sound):
                arrived.update(dict.fromkeys(selected.taking_all.tolist(), len(selected.sound)))
            if len(selected.failures.subscriptions) or len(selected.malformed):
                self._rule_failures.note(selected, step.start)
        start, stop = copy_number(step.start), copy_number(step.stop)
        for number, count in arrived.items():
            found = self._subscriptions.get(number)
            if found is not None:
                if found.dispatcher.follows:
                    found.source.decided(step, start, stop)
                found.dispatcher.arrived(count, start, stop)
        self._rule_failures.tell_first()
        # After the counting above: new subscriptions count their copies themselves.
        self._follow_decider()
        if self._changed:
            self._answer_changes()

    def _follow_decider(self) -> None:
        """Write the consequences of rules and new messages into the ledger; later, while the ledger takes nothing."""
        if self.consumption.trouble is None:
            history = self._topic_decider.decider.postings.history
            if history is not self._subscriptions.history:
                self._follow_rules(history)
            if self._rule_failures.failing:
                self._rule_failures.move()

    # moves

    def _forward_available(self, now_ms: int) -> None:
        """Move the available copies of forwarding subscriptions to their targets."""
        for found in self._subscriptions.forwarding:
            assert found.version.forward_to is not None
            target = TargetKind.STREAM.named(found.version.forward_to)
            if found.dispatcher.counts().active and self._mover.takes_more(target):
                movement = Movement(subscription=found.version.number, is_forward=True)
                if found.dispatcher.forward(target, movement, now_ms):
                    self._touch()

    def _receivable(self) -> list[Dispatcher]:
        """The dispatchers of subscriptions that do not forward."""
        return [each.dispatcher for each in self._subscriptions if each.version.forward_to is None]

    def _idle_subscriptions(self) -> list[IdleSubscription]:
        return [
            IdleSubscription(
                number,
                each.version.name,
                each.dispatcher,
                is_used=each.version.forward_to is not None or self._subqueues.is_received(number),
            )
            for number, each in self._subscriptions.items()
            if each.version.settings.auto_delete_on_idle_ms is not None
        ]

    def _mover_of(self, ledger: Ledger, copies: MovedCopies) -> CopyMover:
        """The mover for the moves of one of its ledgers."""
        return CopyMover(
            f"topic {self.stream.name!r}",
            ledger,
            copies,
            self._environment,
            self._scheduler,
            subqueue_of=self._subqueue_of,
            name_of=self._name_of,
        )

    def _subqueue_of(self, kind: TargetKind, number: int) -> Subqueue | None:
        found = self._subscriptions.get(number)
        if found is None:
            return None
        return self._subqueues.get(kind, found)

    def _name_of(self, number: int) -> str:
        """The name of a subscription for users; the topic's name where it was removed."""
        found = self._subscriptions.get(number)
        return self.stream.name if found is None else found.dispatcher.name

    @property
    def moved(self) -> int:
        """How many copies were moved to their targets since the topic was opened."""
        return self._mover.moved

    # time

    @property
    def is_decided(self) -> bool:
        """Whether all messages are decided, and all rules in force are known."""
        return not (self._topic_decider.is_busy or self._topic_decider.is_behind or self._changed)

    def tick(self, now_ms: int) -> None:
        """Do the timed work, or ask for a turn for it; called about every 100 ms."""
        if self.consumption.is_due(now_ms) or self._topic_decider.is_behind:
            self._touch()
        self._sweep.tick(now_ms)
        if not self._changed and not self.stream.is_writing:
            self._auto_delete.tick(now_ms)
        self._keep_pinned_in_time(now_ms)
        self._subqueues.tick(now_ms)

    def keep_pinned(self, now_ms: int) -> None:
        """Tell the stream's retention which messages are needed, if that changed. Takes the writer for it."""
        self._pin.keep(self._wanted_pin, now_ms)

    def _wanted_pin(self, now_ms: int) -> Pin | None:
        needed = self.pin if self._subscriptions else None
        if self.stream.moved_from is not None:
            needed = self.stream.moved_from if needed is None else min(needed, self.stream.moved_from)
        return wanted_pin(self.stream, needed, self.history.limits.unsettled_bytes, now_ms=now_ms)

    def _keep_pinned_in_time(self, now_ms: int) -> None:
        """Keep the pin: at once after a change of subscriptions, else from time to time; a late pin costs only room."""
        if self._pin.is_due(now_ms):
            self.keep_pinned(now_ms)
            if not self._topic_decider.is_busy:
                self._needless_below = self.pin
                self._topic_decider.decider.move_floor(self._needless_below)

    @property
    def pin(self) -> int:
        """The lowest offset that a subscription, or a move on its way, needs; the next one if none is needed."""
        needed = [each.needed_from(self._topic_decider.decided_until) for each in self._subscriptions]
        needed += [offset_of(move.copy) for moves in self.consumption.ledger.moves().values() for move in moves]
        return max(min(needed, default=self._topic_decider.decided_until), self._needless_below)

    # ending

    def end(self, error: HeadgateError) -> None:
        """The stream is gone: end the receivers, close the files."""
        self.consumption.end(error)
        self._subqueues.end(error)
        self.close()

    def close(self) -> None:
        """Commit changes, and close all files; a worker's step ends first. Again is harmless."""
        if self._is_closed:
            return
        self.consumption.stop()
        self.consumption.commit(self._now_ms())
        self._subqueues.close()
        self.consumption.close()
        self._is_closed = True
        self._topic_decider.close()


def restrict_publishers(stream: BrokerStream, settings: TopicSettings) -> None:
    """Let a stream take messages, and find duplicates, as the settings of its topic say."""
    status = settings.status
    stream.refusal = None
    if not status.takes_messages:
        stream.refusal = EntityDisabledError(
            f"the topic takes no messages: its status is {status}", subject=stream.name
        )
    if not settings.requires_duplicate_detection:
        stream.recent_ids = None
    elif stream.recent_ids is None:
        stream.recent_ids = RecentIds(settings.duplicate_detection_window_ms)
    else:
        stream.recent_ids.set_window(settings.duplicate_detection_window_ms)


def _in_order(parts: Sequence[tuple[list[ReadCopy], int]]) -> list[ReadCopy]:
    """Copies of several parts in one order, as far as all parts were searched."""
    stop = min(searched for _, searched in parts)
    return sorted((each for found, _ in parts for each in found if each.copy < stop), key=attrgetter("copy"))
