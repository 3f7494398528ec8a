"""All entities of a broker: finding them without case, and making, changing and removing them.

Callers have checked the rights on the entity. `check_target` is their check of the right on a target of forwarding; it
is called here, with names spelled as they were created. Answers come in the broker's thread, at once or later; by then
the change is on disk, and in force for receivers and publishers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from headgate.broker.entities.declaration import EntityDeclaration
from headgate.broker.entities.entity import MEGABYTE, Entity
from headgate.broker.entities.names import check_new_name, spelled_alike
from headgate.broker.environment import Environment
from headgate.broker.intervals import IdleTimes
from headgate.broker.streams import Streams
from headgate.broker.targets import CheckTarget, any_target
from headgate.broker.topics import BrokerTopic, Topics
from headgate.errors import HeadgateError, ResourceNotFoundError
from headgate.log import StreamArguments
from headgate.topic import (
    DEFAULT_RULES,
    AddRule,
    Change,
    ChangeSubscription,
    CreateSubscription,
    RemoveRule,
    RemoveSubscription,
    ReplaceRule,
    Rule,
    RuleDefinition,
    RuleHistory,
    Subscription,
    SubscriptionSettings,
    TopicKind,
    creation_of,
)

Answered = Callable[[Entity | HeadgateError], None]
"""Called once, in the broker's thread: the entity as it is now, or the error if nothing was changed."""

Removed = Callable[[HeadgateError | None], None]
"""Called once, in the broker's thread: None when the entity is removed, or the error for which it stays."""

logger = logging.getLogger("headgate.broker")

_ARGUMENTS = StreamArguments(max_segment_size_bytes=64 * MEGABYTE, drops_settled=True)
"""Arguments of the streams of entities: segments whose messages all subscriptions have settled are deleted."""


class Entities:
    """The topics and queues of one broker; in its thread only.

    Errors in answers: ResourceNotFoundError, RuleNotFoundError for missing entities and rules; RuleExistsError for
    existing ones, also in another case; RuleLimitError and other kinds of RuleError for wrong values, with the error of
    a filter or action as `cause`; AccessRefusedError for a target of forwarding; StreamLockedError where another
    process writes the stream, LogError.
    """

    def __init__(self, environment: Environment, topics: Topics, streams: Streams, *, most: int) -> None:
        """At most `most` entities are made."""
        self._root = environment.root
        self._find = environment.find
        self._topics = topics
        self._streams = streams
        self._most = most
        self._idle_times: IdleTimes[BrokerTopic] = IdleTimes()

    # finding

    def find(self, name: str) -> Entity:
        """The topic or queue of that name, in any case of letters; plain streams are not found.

        Raises ResourceNotFoundError, StreamLockedError where another process has the topic, LogError. Cost: that of a
        dictionary for a name spelled as created, else a look at the folder with all streams.
        """
        spelled = self._spelled(name)
        if spelled is None:
            raise ResourceNotFoundError("no such topic or queue", subject=name)
        return Entity(self._topics.get(spelled))

    def names(self, kind: TopicKind) -> list[str]:
        """The names of all topics, or of all queues, in order, spelled as created.

        Cost: a `stat` for each, and reading the rules of topics that were not used since the start.
        """
        known = {topic.stream.name: topic.history.settings.kind for topic in self._topics}
        return [name for name in self._topics.names() if (known.get(name) or self._kind(name)) is kind]

    def _spelled(self, name: str) -> str | None:
        """The name of an entity as it was created; None without one."""
        if self._is_topic(name):
            return name
        return next((found for found in spelled_alike(self._root, name) if self._is_topic(found)), None)

    def _is_topic(self, name: str) -> bool:
        stream = self._find(name)
        return stream is not None and self._topics.is_topic(stream)

    def _kind(self, name: str) -> TopicKind | None:
        stream = self._find(name)
        history = None if stream is None else RuleHistory.find(stream.stream)
        return None if history is None else history.settings.kind

    # topics and queues

    def create(self, declaration: EntityDeclaration, then: Answered, *, check_target: CheckTarget) -> None:
        """Make a topic or a queue; a plain stream of exactly that name becomes it."""
        name = declaration.name
        try:
            check_new_name(self._root, name, most=self._most)
            is_stream = self._find(name) is not None
            self._topics.create(
                name,
                declaration.limits,
                settings=declaration.settings,
                queue=declaration.delivery,
                arguments=_ARGUMENTS,
            )
        except HeadgateError as error:
            then(error)
            return

        def told(result: Entity | HeadgateError) -> None:
            if isinstance(result, HeadgateError):
                # It leaves no trace.
                if is_stream:
                    self._topics.remove(name)
                else:
                    self._streams.delete(self._streams.catalogue.get(name))
            then(result)

        self.update(declaration, told, check_target=check_target)

    def update(self, declaration: EntityDeclaration, then: Answered, *, check_target: CheckTarget) -> None:
        """Change an existing entity to its declaration, in one change; subscriptions that are not named stay."""
        try:
            found = self.find(declaration.name)
            changes = list(declaration.changes(found.topic.history))
        except HeadgateError as error:
            then(error)
            return
        if changes:
            self._change(found.name, changes, then, check_target)
        else:
            then(found)

    def declare(self, declaration: EntityDeclaration, then: Answered, *, check_target: CheckTarget) -> None:
        """Make a missing entity, or change an existing one to its declaration; in one change, or not at all."""
        try:
            is_there = self._spelled(declaration.name) is not None
        except HeadgateError as error:
            then(error)
            return
        (self.update if is_there else self.create)(declaration, then, check_target=check_target)

    def declarations(self) -> list[EntityDeclaration]:
        """All topics and queues as they are, by name. Raises StreamLockedError, LogError."""
        return [EntityDeclaration.told(self.find(name)) for name in self._topics.names()]

    def delete(self, name: str, then: Removed) -> None:
        """Remove a topic or queue with all its messages; its receivers and publishers end."""
        answer: HeadgateError | None = None
        try:
            self._streams.delete(self.find(name).topic.stream)
        except HeadgateError as error:
            answer = error
        then(answer)

    def tick(self, now_ms: int) -> None:
        """Remove entities that were idle for the time in their settings; called about every 100 ms."""
        mortal = [each for each in self._topics if each.history.settings.auto_delete_on_idle_ms is not None]
        idle_ms = self._idle_times.look({topic: topic.subscriptions.used_ms for topic in mortal}, now_ms)
        for topic in mortal:
            allowed_ms = topic.history.settings.auto_delete_on_idle_ms
            if allowed_ms is None or idle_ms[topic] < allowed_ms:
                continue
            if topic.is_used:
                topic.subscriptions.used_ms = now_ms
                continue
            try:
                self._streams.delete(topic.stream)
                logger.info("%r was removed: nobody used it for %d ms", topic.stream.name, allowed_ms)
            except HeadgateError as error:
                topic.subscriptions.used_ms = now_ms
                logger.warning("%r stays, which nobody used for %d ms: %s", topic.stream.name, allowed_ms, error)

    # subscriptions and rules

    def create_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings,
        then: Answered,
        *,
        check_target: CheckTarget,
        rules: Sequence[RuleDefinition] | None = None,
        dead_letter_on_errors: bool = True,
        forward_to: str | None = None,
    ) -> None:
        """Add a subscription with these rules; None: with the true rule `$Default`."""
        made = DEFAULT_RULES if rules is None else tuple(Rule.of(each) for each in rules)
        subscription = Subscription(
            name, made, settings=settings, dead_letter_on_errors=dead_letter_on_errors, forward_to=forward_to
        )
        self._change(topic, creation_of(subscription), then, check_target)

    def update_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings,
        then: Answered,
        *,
        check_target: CheckTarget,
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
        self._change(topic, [change], then, check_target)

    def delete_subscription(self, topic: str, name: str, then: Answered) -> None:
        """Remove a subscription with all its copies and rules."""
        self._change(topic, [RemoveSubscription(name)], then)

    def add_rule(self, topic: str, subscription: str, rule: RuleDefinition, then: Answered) -> None:
        """Add a rule; it is in force for messages published from the answer on."""
        self._change(topic, [AddRule(subscription, rule)], then)

    def replace_rule(self, topic: str, subscription: str, rule: RuleDefinition, then: Answered) -> None:
        """Replace filter and action of a rule; meanwhile no message is lost or doubled."""
        self._change(topic, [ReplaceRule(subscription, rule)], then)

    def remove_rule(self, topic: str, subscription: str, name: str, then: Answered) -> None:
        """Remove a rule."""
        self._change(topic, [RemoveRule(subscription, name)], then)

    def _change(
        self, name: str, changes: Sequence[Change], then: Answered, check_target: CheckTarget = any_target
    ) -> None:
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
            resolved = [self._resolved(each) for each in changes]
            self._topics.change(self.find(name).name, resolved, told, check_target=check_target)
        except HeadgateError as error:
            then(error)

    def _resolved(self, change: Change) -> Change:
        """The change with target names spelled as these were created."""
        if not isinstance(change, CreateSubscription | ChangeSubscription):
            return change
        forward_to, dead_letters = change.forward_to, change.settings.forward_dead_letters_to
        settings = msgspec.structs.replace(
            change.settings,
            forward_dead_letters_to=dead_letters and (self._spelled(dead_letters) or dead_letters),
        )
        return msgspec.structs.replace(
            change, settings=settings, forward_to=forward_to and (self._spelled(forward_to) or forward_to)
        )
