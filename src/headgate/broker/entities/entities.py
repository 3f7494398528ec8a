"""All entities of a broker: finding them without case, and making, changing and removing them.

Whoever asks has checked the rights. Answers come in the broker's thread, at once or later; then what was asked for is
on disk, and receivers and publishers meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from headgate.broker.entities.entity import MEGABYTE, Entity
from headgate.broker.entities.names import check_new_name, spelled_alike
from headgate.errors import HeadgateError, ResourceNotFoundError
from headgate.log import StreamArguments
from headgate.topic import (
    DEFAULT_RULES,
    DEFAULT_SETTINGS,
    QUEUE_SUBSCRIPTION,
    AddRule,
    Change,
    ChangeLimits,
    ChangeSubscription,
    ChangeTopic,
    RemoveRule,
    RemoveSubscription,
    ReplaceRule,
    Rule,
    RuleDefinition,
    RuleHistory,
    Subscription,
    SubscriptionSettings,
    TopicKind,
    TopicLimits,
    TopicSettings,
    creation_of,
)

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

Answered = Callable[[Entity | HeadgateError], None]
"""Called once, in the broker's thread: the entity as it is now, or why nothing was changed."""

Removed = Callable[[HeadgateError | None], None]
"""Called once, in the broker's thread: None when the entity is no more, or why it is still there."""

_ARGUMENTS = StreamArguments(max_segment_size_bytes=64 * MEGABYTE, drops_settled=True)
"""Of the streams of entities: what every subscription settled goes, whole segments at a time."""


class Entities:
    """The topics and queues of one broker; in its thread only.

    Errors that answers bring: ResourceNotFoundError, RuleNotFoundError for what is not there; RuleExistsError for what
    is there already, also in another case; RuleLimitError and other kinds of RuleError for what is wrong, with the
    error of a filter or action as `cause`; StreamLockedError where another process writes the stream, LogError.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # finding

    def find(self, name: str) -> Entity:
        """The topic or queue of that name, without case. A stream that is no topic is none.

        Raises ResourceNotFoundError, StreamLockedError where another process has the topic, LogError. Cost: that of a
        dictionary for a name spelled as created, else a look at the folder with all streams.
        """
        for found in [name, *spelled_alike(self._broker.root, name)] if not self._is_topic(name) else [name]:
            if self._is_topic(found):
                return Entity(self._broker.topics.get(found))
        raise ResourceNotFoundError("no such topic or queue", subject=name)

    def names(self, kind: TopicKind) -> list[str]:
        """The names of all topics, or of all queues, in order, spelled as created. Cost: a file read for each."""
        return [name for name in self._broker.topics.names() if self._kind(name) is kind]

    def _is_topic(self, name: str) -> bool:
        stream = self._broker.catalogue.find(name)
        return stream is not None and self._broker.topics.is_topic(stream)

    def _kind(self, name: str) -> TopicKind | None:
        stream = self._broker.catalogue.find(name)
        history = None if stream is None else RuleHistory.find(stream.stream)
        return None if history is None else history.settings.kind

    # topics and queues

    def create_topic(
        self, name: str, settings: TopicSettings, then: Answered, *, max_size_megabytes: int | None = None
    ) -> None:
        """Make a topic without subscriptions."""
        self._create(name, settings, DEFAULT_SETTINGS, max_size_megabytes, then)

    def create_queue(
        self,
        name: str,
        settings: TopicSettings,
        queue: SubscriptionSettings,
        then: Answered,
        *,
        max_size_megabytes: int | None = None,
    ) -> None:
        """Make a queue; `settings` of kind QUEUE, `queue` says how its messages are delivered."""
        self._create(name, settings, queue, max_size_megabytes, then)

    def _create(
        self,
        name: str,
        settings: TopicSettings,
        queue: SubscriptionSettings,
        max_size_megabytes: int | None,
        then: Answered,
    ) -> None:
        limits = TopicLimits()
        if max_size_megabytes is not None:
            limits = TopicLimits(unsettled_bytes=max_size_megabytes * MEGABYTE)
        answer: Entity | HeadgateError
        try:
            check_new_name(self._broker.root, name)
            self._broker.create_topic(name, limits, settings=settings, queue=queue, arguments=_ARGUMENTS)
            answer = self.find(name)
        except HeadgateError as error:
            answer = error
        then(answer)

    def update_topic(
        self, name: str, settings: TopicSettings, then: Answered, *, max_size_megabytes: int | None = None
    ) -> None:
        """Give a topic other settings."""
        self._update(name, settings, None, max_size_megabytes, then)

    def update_queue(
        self,
        name: str,
        settings: TopicSettings,
        queue: SubscriptionSettings,
        then: Answered,
        *,
        max_size_megabytes: int | None = None,
    ) -> None:
        """Give a queue other settings, all in one change."""
        self._update(name, settings, queue, max_size_megabytes, then)

    def _update(
        self,
        name: str,
        settings: TopicSettings,
        queue: SubscriptionSettings | None,
        max_size_megabytes: int | None,
        then: Answered,
    ) -> None:
        changes: list[Change] = [ChangeTopic(settings)]
        if queue is not None:
            changes.append(ChangeSubscription(QUEUE_SUBSCRIPTION, settings=queue))
        try:
            if max_size_megabytes is not None:
                limits = self.find(name).limits
                changes.append(
                    ChangeLimits(msgspec.structs.replace(limits, unsettled_bytes=max_size_megabytes * MEGABYTE))
                )
        except HeadgateError as error:
            then(error)
            return
        self._change(name, changes, then)

    def delete(self, name: str, then: Removed) -> None:
        """Remove a topic or queue with all that is in it; its receivers and publishers end."""
        answer: HeadgateError | None = None
        try:
            self._broker.delete_stream(self.find(name).topic.stream)
        except HeadgateError as error:
            answer = error
        then(answer)

    # subscriptions and rules

    def create_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings,
        then: Answered,
        *,
        rules: Sequence[RuleDefinition] | None = None,
        dead_letter_on_errors: bool = True,
        forward_to: str | None = None,
    ) -> None:
        """Add a subscription with these rules; None: with the true rule `$Default`."""
        made = DEFAULT_RULES if rules is None else tuple(Rule.of(each) for each in rules)
        subscription = Subscription(
            name, made, settings=settings, dead_letter_on_errors=dead_letter_on_errors, forward_to=forward_to
        )
        self._change(topic, creation_of(subscription), then)

    def update_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings,
        then: Answered,
        *,
        dead_letter_on_errors: bool = True,
        forward_to: str | None = None,
    ) -> None:
        """Give a subscription other properties; its rules stay."""
        try:
            spelled = self.find(topic).subscription(name).name
        except HeadgateError as error:
            then(error)
            return
        change = ChangeSubscription(
            spelled, settings=settings, dead_letter_on_errors=dead_letter_on_errors, forward_to=forward_to
        )
        self._change(topic, [change], then)

    def delete_subscription(self, topic: str, name: str, then: Answered) -> None:
        """Remove a subscription with all that it has."""
        self._change(topic, [RemoveSubscription(name)], then)

    def add_rule(self, topic: str, subscription: str, rule: RuleDefinition, then: Answered) -> None:
        """Add a rule; it is in force for messages published from the answer on."""
        self._change(topic, [AddRule(subscription, rule)], then)

    def replace_rule(self, topic: str, subscription: str, rule: RuleDefinition, then: Answered) -> None:
        """Give the rule of that name another filter and action; no message is lost or doubled between."""
        self._change(topic, [ReplaceRule(subscription, rule)], then)

    def remove_rule(self, topic: str, subscription: str, name: str, then: Answered) -> None:
        """Remove a rule."""
        self._change(topic, [RemoveRule(subscription, name)], then)

    def _change(self, name: str, changes: Sequence[Change], then: Answered) -> None:
        def told(result: int | HeadgateError) -> None:
            if isinstance(result, HeadgateError):
                then(result)
                return
            try:
                answer: Entity | HeadgateError = self.find(name)
            except HeadgateError as error:
                answer = error
            then(answer)

        try:
            self._broker.change_topic(self.find(name).name, changes, told)
        except HeadgateError as error:
            then(error)
