"""One topic or queue as Service Bus describes it: its properties, its subscriptions and rules, its counts."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.broker.topics import BrokerTopic, SubscriptionInfo
from headgate.errors import ResourceNotFoundError
from headgate.topic import (
    QUEUE_SUBSCRIPTION,
    RuleDefinition,
    RuleHistory,
    RuleVersion,
    SubscriptionName,
    SubscriptionSettings,
    SubscriptionVersion,
    TopicKind,
    TopicLimits,
    TopicSettings,
)

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """The number of messages by state; exact when all published messages are decided.

    `active` ones wait for a receiver, or for a receiver to settle them. `transfer` ones are on their way to another
    entity.
    """

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    deferred: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return (
            self.active + self.dead_letter + self.scheduled + self.deferred + self.transfer + self.transfer_dead_letter
        )


@dataclass(frozen=True, slots=True)
class EntityRule:
    """A rule of a subscription, and when it got its present form."""

    definition: RuleDefinition
    created_ms: int

    @property
    def name(self) -> str:
        """Its name, as it was created."""
        return self.definition.name


class EntitySubscription:
    """A subscription of a topic; every property is read when it is asked for."""

    __slots__ = ("_topic", "_version")

    def __init__(self, topic: BrokerTopic, version: SubscriptionVersion) -> None:
        self._topic = topic
        self._version = version

    @property
    def name(self) -> str:
        """Its name, as it was created."""
        return self._version.name

    @property
    def settings(self) -> SubscriptionSettings:
        """How its copies are delivered."""
        return self._version.settings

    @property
    def time_to_live_ms(self) -> int | None:
        """How long copies live, by its settings and the topic's, unless their messages say less; None: for ever."""
        return self._topic.subscriptions.find(self.name).policy.settings.default_time_to_live_ms

    @property
    def dead_letter_on_errors(self) -> bool:
        """Whether messages for which its rules fail become dead letters."""
        return self._version.dead_letter_on_errors

    @property
    def forward_to(self) -> str | None:
        """The topic that its copies go to."""
        return self._version.forward_to

    @property
    def created_ms(self) -> int:
        """When it was made."""
        return self._version.created_ms

    @property
    def updated_ms(self) -> int:
        """When its properties were last changed."""
        return self._version.updated_ms

    @property
    def accessed_ms(self) -> int:
        """When it was last used or changed; at first, when the broker opened its topic."""
        return max(self._version.updated_ms, self._topic.subscriptions.find(self.name).dispatcher.used_ms)

    @property
    def rules(self) -> list[EntityRule]:
        """Its rules, in order of creation."""
        return [_rule(each) for each in self._topic.history.rules(self.name)]

    def rule(self, name: str) -> EntityRule:
        """One rule, by its name in any case. Raises RuleNotFoundError."""
        return _rule(self._topic.history.rule(self.name, name))

    def counts(self) -> EntityCounts:
        """How many copies it has. Raises LogError."""
        return _counts(self._topic.subscriptions.info(self.name))


class Entity:
    """One topic or queue, from `Entities.find`; every property is read when it is asked for."""

    __slots__ = ("_topic",)

    def __init__(self, topic: BrokerTopic) -> None:
        self._topic = topic

    @property
    def topic(self) -> BrokerTopic:
        """The topic at work."""
        return self._topic

    @property
    def name(self) -> str:
        """Its name, as it was created."""
        return self._topic.stream.name

    @property
    def history(self) -> RuleHistory:
        """Its rules and properties, with every change that was confirmed."""
        return self._topic.history

    @property
    def kind(self) -> TopicKind:
        """Whether it is a topic or a queue."""
        return self.settings.kind

    @property
    def settings(self) -> TopicSettings:
        """Its properties."""
        return self._topic.history.settings

    @property
    def limits(self) -> TopicLimits:
        """Its limits."""
        return self._topic.history.limits

    @property
    def max_size_megabytes(self) -> int:
        """The limit `unsettled_bytes`, in MiB: above this size of unsettled messages publishers are refused."""
        return self.limits.unsettled_bytes // MEGABYTE

    @property
    def size_bytes(self) -> int:
        """Bytes of its messages on disk. Raises LogError."""
        with self._topic.stream.guarded():
            return sum(segment.size_bytes() for segment in self._topic.stream.stream.segments())

    @property
    def created_ms(self) -> int:
        """When it was made."""
        return self._topic.history.created_ms

    @property
    def updated_ms(self) -> int:
        """When its properties were last changed."""
        return self._topic.history.updated_ms

    @property
    def accessed_ms(self) -> int:
        """When the last message, receiver or change came; at first, when the broker opened the topic."""
        return max(self.updated_ms, self._topic.subscriptions.used_ms)

    @property
    def subscriptions(self) -> list[EntitySubscription]:
        """The subscriptions of a topic, in order of creation; a queue has none."""
        if self.kind is TopicKind.QUEUE:
            return []
        return [EntitySubscription(self._topic, each) for each in self._topic.history.subscriptions()]

    def subscription(self, name: str) -> EntitySubscription:
        """One subscription, by its name in any case. Raises ResourceNotFoundError; a queue has none."""
        history = self._topic.history
        if self.kind is TopicKind.QUEUE or not history.has_subscription(name):
            raise ResourceNotFoundError(
                f"{self.kind} {self.name!r} has no such subscription", subject=f"{self.name}/{name}"
            )
        return EntitySubscription(self._topic, history.subscription(name))

    @property
    def queue(self) -> EntitySubscription:
        """The implied subscription of a queue, which gives out its messages. ResourceNotFoundError for a topic."""
        if self.kind is not TopicKind.QUEUE:
            raise ResourceNotFoundError("a topic; its subscriptions give out messages", subject=self.name)
        return EntitySubscription(self._topic, self._topic.history.subscription(QUEUE_SUBSCRIPTION))

    def counts(self) -> EntityCounts:
        """The counts of a queue; for a topic only scheduled messages. Raises LogError."""
        scheduled = self._topic.scheduler.count(self._topic.stream)
        if self.kind is TopicKind.TOPIC:
            return EntityCounts(scheduled=scheduled)
        return _counts(self._topic.subscriptions.info(QUEUE_SUBSCRIPTION), scheduled=scheduled)

    def receivable(self, subscription: str | None = None, *, dead_letters: bool = False) -> SubscriptionName:
        """The name for `Session.receiver` and the like: of a subscription, or with None of the queue.

        Spelled as created. Raises ResourceNotFoundError for a subscription of a queue, or a topic without one.
        """
        found = self.queue if subscription is None else self.subscription(subscription)
        return SubscriptionName(self.name, found.name, dead_letters)


def _counts(info: SubscriptionInfo, *, scheduled: int = 0) -> EntityCounts:
    counts = info.counts
    return EntityCounts(
        active=counts.active + counts.locked + counts.waiting,
        dead_letter=info.dead_lettered or 0,
        scheduled=scheduled,
        deferred=info.deferred or 0,
        transfer=info.forwarding,
    )


def _rule(version: RuleVersion) -> EntityRule:
    return EntityRule(version.rule, version.at_ms)
