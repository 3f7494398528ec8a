"""The topics of a broker: opened when they are first used, looked after at every tick, with one turn for all."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headgate.broker.damage import is_damage
from headgate.broker.environment import Environment
from headgate.broker.startup import Startup
from headgate.broker.stream import BrokerStream
from headgate.broker.stream_writes import StreamWrites
from headgate.broker.targets import CheckTarget, any_target, check_targets
from headgate.broker.topics.rule_change import Changed
from headgate.broker.topics.scheduler import Scheduler
from headgate.broker.topics.topic import BrokerTopic, restrict_publishers
from headgate.broker.turns import Turns
from headgate.errors import HeadgateError, LogError, ResourceNotFoundError
from headgate.log import StreamArguments
from headgate.topic import (
    DEFAULT_SETTINGS,
    DEFAULT_TOPIC_SETTINGS,
    JOURNAL_NAME,
    Change,
    RuleHistory,
    SubscriptionName,
    SubscriptionSettings,
    TopicKind,
    TopicLimits,
    TopicSettings,
    check_removable,
    create_topic,
    remove_topic,
)

_OPENED_A_TICK = 1
"""Topics opened per tick after a start, so that moves go on and claims end without a client."""

logger = logging.getLogger("headgate.broker")


class Topics:
    """All topics of one broker; in its thread only."""

    def __init__(self, environment: Environment, writes: StreamWrites) -> None:
        self._environment = environment
        self._writes = writes
        self._now_ms = environment.now_ms
        self.scheduler = Scheduler(environment, self.know_status)
        """The scheduled messages of all streams."""
        self._topics: dict[BrokerStream, BrokerTopic] = {}
        self.turns: Turns[BrokerStream] = Turns(environment.wake)
        self._startup = Startup(
            environment.root, JOURNAL_NAME, self._open_named, _OPENED_A_TICK, "topic %r cannot be opened"
        )

    def __iter__(self) -> Iterator[BrokerTopic]:
        """The open topics."""
        return iter(list(self._topics.values()))

    def is_topic(self, stream: BrokerStream) -> bool:
        """Whether a stream has rules. Cost: a `stat`, where it is not open."""
        return stream in self._topics or (stream.stream.path / JOURNAL_NAME).exists()

    def kind_of(self, name: str) -> TopicKind | None:
        """Whether a stream is a topic or a queue of Service Bus; None if it is neither, or missing. Raises LogError."""
        stream = self._environment.find(name)
        if stream is None or not self.is_topic(stream):
            return None
        return self._opened(stream).history.settings.kind

    def subscription_of(self, queue: str) -> SubscriptionName | None:
        """The subscription, or its dead letters, that a queue's name means; None if it means none.

        A stream of that name takes precedence. The topic exists; the subscription may not. Raises LogError.
        """
        name = SubscriptionName.parse(queue)
        if name is None or self._environment.find(queue) is not None:
            return None
        topic = self._environment.find(name.topic)
        return name if topic is not None and self.is_topic(topic) else None

    def get(self, name: str) -> BrokerTopic:
        """The topic of that name, opened if needed.

        Raises ResourceNotFoundError, StreamLockedError that names the holder of its ledger or its postings, LogError.
        """
        return self._opened(self._found(name))

    def _found(self, name: str) -> BrokerStream:
        stream = self._environment.find(name)
        if stream is None or not self.is_topic(stream):
            raise ResourceNotFoundError("no such topic", subject=name)
        return stream

    def names(self) -> list[str]:
        """The names of all topics, in order."""
        return self._startup.names()

    def create(
        self,
        name: str,
        limits: TopicLimits | None = None,
        *,
        settings: TopicSettings = DEFAULT_TOPIC_SETTINGS,
        queue: SubscriptionSettings = DEFAULT_SETTINGS,
        arguments: StreamArguments | None = None,
    ) -> None:
        """Make a stream a topic; a missing one is made with `arguments`. `queue` as for `headgate.topic.create_topic`.

        Raises RuleExistsError if it is a topic already, RuleError for its name or settings, LogError.
        """
        stream = self._environment.find(name)
        if stream is not None:
            self._writes.write_all(stream)
            stream.close_writer()
        create_topic(
            self._environment.root,
            name,
            now_ms=self._now_ms(),
            limits=limits or TopicLimits(),
            settings=settings,
            queue=queue,
            arguments=arguments,
        )

    def remove(self, name: str) -> None:
        """Make a topic a plain stream again: its receivers end, its subscriptions are deleted, its messages stay.

        Raises ResourceNotFoundError, RuleError if another topic forwards to it, StreamLockedError, LogError.
        """
        stream = self._found(name)
        check_removable(self._environment.root, name)
        self._writes.write_all(stream)
        stream.close_writer()
        self.forget(stream, ResourceNotFoundError("the topic was removed", subject=name))
        stream.recent_ids = None
        remove_topic(self._environment.root, name, now_ms=self._now_ms())

    def change(self, name: str, changes: Sequence[Change], then: Changed, *, check_target: CheckTarget) -> None:
        """Change subscriptions and rules of a topic; `then` gets the offset from which the change is in force.

        `check_target` checks whether the caller may send copies to a target that the changes name.

        Messages published before are written first, and decided by the old rules; later ones wait for the change.
        `then` also gets RuleError and its kinds, StreamLockedError where another process writes the stream, LogError.
        Raises ResourceNotFoundError, AccessRefusedError for a target, LogError.
        """
        topic = self.get(name)
        check_targets(topic.history, changes, check_target)
        self._writes.write_all(topic.stream)
        self._environment.watch(topic.stream)
        try:
            change = topic.begin_change(changes, then)
        except HeadgateError as error:
            then(error)
            return
        self._writes.run(topic.stream, change, in_worker=True)

    def _change_freely(self, name: str, changes: Sequence[Change], then: Changed) -> None:
        """The same as the operator."""
        self.change(name, changes, then, check_target=any_target)

    def _opened(self, stream: BrokerStream) -> BrokerTopic:
        topic = self._topics.get(stream)
        if topic is None:
            touch = functools.partial(self.turns.ask, stream)
            try:
                around = replace(self._environment, wake=touch, find=self._target)
                topic = BrokerTopic.open(stream, around, self.scheduler, self._change_freely)
            except LogError as error:
                # A topic with a damaged ledger gives out no copies, so it takes no messages.
                stream.stopped_by = error if is_damage(error) else None
                raise
            self._topics[stream] = topic
            stream.stopped_by = None
            stream.on_appended = topic.appended
            self._environment.watch(stream)
            touch()
        return topic

    def _target(self, name: str) -> BrokerStream | None:
        """A stream that copies are moved to, with the status of its topic known."""
        stream = self._environment.find(name)
        if stream is not None:
            self.know_status(stream)
        return stream

    def know_status(self, stream: BrokerStream) -> None:
        """Before a publish: let the stream know from its topic whether it takes messages and detects duplicates.

        Raises LogError for a topic that cannot be read.
        """
        if stream not in self._topics and self.is_topic(stream):
            self._startup.open(stream.name)
            if stream not in self._topics:
                # Another process has it; its settings count all the same.
                restrict_publishers(stream, RuleHistory.load(stream.stream).settings)

    def writing(self, stream: BrokerStream) -> None:
        """A publisher comes: renew the pin, as the topic may need fewer messages than the stream's writer knows."""
        topic = self._topics.get(stream)
        if topic is not None:
            topic.keep_pinned(self._now_ms())

    def keep_pinned(self, stream: BrokerStream) -> bool:
        """The needed messages of a stream changed: a topic renews its pin; whether the stream is a topic."""
        topic = self._topics.get(stream)
        if topic is not None:
            topic.keep_pinned(self._now_ms())
        return self.is_topic(stream)

    def turn(self) -> None:
        """Give a turn to each topic with work; at the end of the loop's turn, before output is sent."""
        self.scheduler.turn()
        self.turns.take(self._turn)

    def _turn(self, stream: BrokerStream) -> None:
        topic = self._topics.get(stream)
        if topic is not None:
            topic.turn(self._now_ms())
            if (error := topic.consumption.broken_by) is not None:
                self._open_again(stream, error)

    def tick(self, now_ms: int) -> None:
        """Look after the open topics; opens the unused ones, one at a time."""
        for topic in self:
            topic.tick(now_ms)
        self.scheduler.tick(now_ms)
        self._startup.tick()

    def _open_named(self, name: str) -> None:
        stream = self._environment.find(name)
        if stream is not None and self.is_topic(stream):
            self._opened(stream)

    def _open_again(self, stream: BrokerStream, error: HeadgateError) -> None:
        """Close a topic with a broken ledger: its receivers end, and the next tick opens it again from disk."""
        logger.error("topic %r is opened again: %s", stream.name, error)
        self.forget(stream, error)
        self._startup.again(stream.name)

    def forget(self, stream: BrokerStream, error: HeadgateError) -> None:
        """A stream is deleted, or its ledger cannot be used any more: its topic ends."""
        self.turns.forget(stream)
        topic = self._topics.pop(stream, None)
        if topic is not None:
            stream.on_appended = stream.refusal = stream.stopped_by = None
            topic.end(error)

    def close(self) -> None:
        """Close all of them."""
        for stream, topic in list(self._topics.items()):
            stream.on_appended = None
            topic.close()
        self.scheduler.close()
        self._topics.clear()
