"""One topic at work: it decides messages behind the writer, gives out their copies, and records how each is settled.

append ──► decide ──► claim ──► commit ──► deliver          one turn of the loop, where little is to be decided
             └─ much: in a worker, step by step; the topic's copies are given out between the steps
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.broker.damage import is_damage
from headgate.broker.delivery import Consumption, MovedCopies, Movement, TargetKind
from headgate.broker.duplicates import RecentIds
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.auto_delete import AutoDelete, IdleSubscription
from headgate.broker.topics.browser import Browser
from headgate.broker.topics.copy_mover import CopyMover, TopicCopies
from headgate.broker.topics.dead_letters import DeadLetterDispatcher
from headgate.broker.topics.dispatcher import Dispatcher
from headgate.broker.topics.expiry_sweep import ExpirySweep
from headgate.broker.topics.receivers import Receivers
from headgate.broker.topics.retention_pin import RetentionPin, needed_at_opening, wanted_pin
from headgate.broker.topics.rule_change import Changed, ChangeTopic, RuleChange
from headgate.broker.topics.rule_failures import RuleFailures
from headgate.broker.topics.scheduled_messages import ScheduledMessages
from headgate.broker.topics.scheduler import Scheduler
from headgate.broker.topics.subqueue import Subqueue
from headgate.broker.topics.subqueues import Subqueues
from headgate.broker.topics.subscriptions import BrokerSubscriptions
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.errors import EntityDisabledError, HeadgateError
from headgate.ledger import Ledger, copy_number, offset_of
from headgate.log import Pin
from headgate.scan.fetch import AppendedChunks
from headgate.topic import Change, RemoveSubscription, RuleHistory, TopicEditor, TopicSettings
from headgate.topic.decisions import Decider, Step


@dataclass(slots=True)
class TopicCounters:
    """Counters of a topic, since the broker opened it."""

    messages_decided: int = 0
    rule_failures: int = 0
    """Filters and actions that failed, one for each rule and message."""
    rule_changes: int = 0
    bodies_sampled: int = 0
    """Bodies that were looked at because a rule has paths into bodies: at most one of each batch."""
    bodies_unreadable: int = 0
    """Those of them that are no JSON, or not of the stream's schema."""
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
        self.consumption = Consumption(
            ledger, environment.wake, stream.guarded, environment.workers.commits, environment.delivered_of(stream)
        )
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
        self.scheduler = scheduler
        self.consumption.mover = self._mover = self._mover_of(ledger, TopicCopies(stream, self._topic_decider))
        self._subqueues = Subqueues(stream, environment, self._mover_of)
        self.subscriptions = BrokerSubscriptions(
            stream, self.consumption, self._topic_decider, self._subqueues, environment
        )
        self.browser = Browser(stream, self.subscriptions, self._subqueues, self._topic_decider, scheduler)
        self.receivers = Receivers(
            stream, self.subscriptions, self._subqueues, self._topic_decider, self.consumption, environment
        )
        self.rule_failures = RuleFailures(stream, self._topic_decider, self.subscriptions)
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
        self.subscriptions.sweep_removed()
        self.rule_failures.sweep()

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

    @property
    def is_used(self) -> bool:
        """Whether the topic has a publisher, a reader or a receiver."""
        return bool(self.stream.publishers or self.stream.readers or self.subscriptions.are_received)

    # messages whose time has not come

    @property
    def scheduled(self) -> ScheduledMessages:
        """Its scheduled messages. Raises LogError."""
        return self.scheduler.of(self.stream)

    # dead letters

    def dead_letters(self, subscription: str) -> DeadLetterDispatcher | None:
        """The dead letters of a subscription; None where there never were any; ResourceNotFoundError, LogError."""
        return self._subqueues.get(TargetKind.DEAD_LETTERS, self.subscriptions.find(subscription)).dead_letters()

    # rules

    @property
    def history(self) -> RuleHistory:
        """The rules as the topic follows them, with every change that was confirmed."""
        return self.subscriptions.history

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
        self.subscriptions.follow(history)
        restrict_publishers(self.stream, history.settings)
        self._pin.look_soon()

    # the turn

    def appended(self, chunks: AppendedChunks | None) -> None:
        """The stream has new messages; `chunks` is as for `TopicDecider.appended`."""
        self.subscriptions.used_ms = self._now_ms()
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
                if self.subscriptions.forwarding:
                    self._forward_available(now_ms)
                if self._sweep.is_asked_for:
                    self._sweep.turn(now_ms)
            self.consumption.dispatch(now_ms)
        self.consumption.commit(now_ms)
        self.stream.stopped_by = self.subscriptions.damage
        if not self._topic_decider.is_busy:
            self.consumption.move(now_ms)
        if self.receivers.asked_deferred:
            self.receivers.give_deferred(now_ms)
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
            self.counters.rule_failures += selected.num_failures
            self.counters.bodies_sampled += selected.bodies.sampled
            self.counters.bodies_unreadable += selected.bodies.unreadable
            if len(selected.copies.offsets):
                arrived.update(selected.copies.per_subscription())
            if len(selected.sound):
                arrived.update(dict.fromkeys(selected.taking_all.tolist(), len(selected.sound)))
            if len(selected.failures.subscriptions) or len(selected.malformed):
                self.rule_failures.note(selected, step.start)
        start, stop = copy_number(step.start), copy_number(step.stop)
        for number, count in arrived.items():
            found = self.subscriptions.get(number)
            if found is not None:
                if found.dispatcher.follows:
                    found.source.decided(step, start, stop)
                found.dispatcher.arrived(count, start, stop)
        self.rule_failures.tell_first()
        # After the counting above: new subscriptions count their copies themselves.
        self._follow_decider()
        if self._changed:
            self._answer_changes()

    def _follow_decider(self) -> None:
        """Write the consequences of rules and new messages into the ledger; later, while the ledger takes nothing."""
        if self.consumption.trouble is None:
            history = self._topic_decider.decider.postings.history
            if history is not self.subscriptions.history:
                self._follow_rules(history)
            if self.rule_failures.failing:
                self.rule_failures.move()

    # moves

    def _forward_available(self, now_ms: int) -> None:
        """Move the available copies of forwarding subscriptions to their targets."""
        for found in self.subscriptions.forwarding:
            assert found.version.forward_to is not None
            target = TargetKind.STREAM.named(found.version.forward_to)
            if found.dispatcher.counts().active and self._mover.takes_more(target):
                movement = Movement(subscription=found.version.number, is_forward=True)
                if found.dispatcher.forward(target, movement, now_ms):
                    self._touch()

    def _receivable(self) -> list[Dispatcher]:
        """The dispatchers of subscriptions that do not forward."""
        return [each.dispatcher for each in self.subscriptions if each.version.forward_to is None]

    def _idle_subscriptions(self) -> list[IdleSubscription]:
        return [
            IdleSubscription(
                number,
                each.version.name,
                each.dispatcher,
                is_used=each.version.forward_to is not None or self._subqueues.is_received(number),
            )
            for number, each in self.subscriptions.items()
            if each.version.settings.auto_delete_on_idle_ms is not None
        ]

    def _mover_of(self, ledger: Ledger, copies: MovedCopies) -> CopyMover:
        """The mover for the moves of one of its ledgers."""
        return CopyMover(
            f"topic {self.stream.name!r}",
            ledger,
            copies,
            self._environment,
            self.scheduler,
            subqueue_of=self._subqueue_of,
            name_of=self._name_of,
        )

    def _subqueue_of(self, kind: TargetKind, number: int) -> Subqueue | None:
        found = self.subscriptions.get(number)
        if found is None:
            return None
        return self._subqueues.get(kind, found)

    def _name_of(self, number: int) -> str:
        """The name of a subscription for users; the topic's name where it was removed."""
        found = self.subscriptions.get(number)
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
        needed = self.pin if self.subscriptions else None
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
        needed = [each.needed_from(self._topic_decider.decided_until) for each in self.subscriptions]
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
