"""The declaration of an entity, complete: for configuration, imports and exports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from headgate.broker.entities.entity import MEGABYTE
from headgate.errors import ConfigError
from headgate.topic import (
    DEFAULT_RULES,
    DEFAULT_SETTINGS,
    DEFAULT_TOPIC_SETTINGS,
    QUEUE_SUBSCRIPTION,
    Change,
    ChangeTopic,
    Rule,
    RuleDefinition,
    RuleHistory,
    Subscription,
    SubscriptionSettings,
    Topic,
    TopicKind,
    TopicLimits,
    TopicSettings,
    differences,
    folded,
)

if TYPE_CHECKING:
    from headgate.broker.entities.entity import Entity, EntitySubscription


class SubscriptionDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A subscription of a topic. `rules` are all its rules; None: a new one has `$Default`, another keeps its own."""

    name: str
    settings: SubscriptionSettings = DEFAULT_SETTINGS
    dead_letter_on_errors: bool = True
    forward_to: str | None = None
    rules: tuple[RuleDefinition, ...] | None = None

    @staticmethod
    def told(found: EntitySubscription) -> SubscriptionDeclaration:
        """A subscription as it is."""
        return SubscriptionDeclaration(
            found.name,
            settings=found.settings,
            dead_letter_on_errors=found.dead_letter_on_errors,
            forward_to=found.forward_to,
            rules=tuple(each.definition for each in found.rules),
        )


class EntityDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A topic, or with the kind QUEUE in its settings a queue.

    `delivery` and `forward_to` are for a queue, `subscriptions` for a topic; existing subscriptions that are not named
    stay.
    """

    name: str
    settings: TopicSettings = DEFAULT_TOPIC_SETTINGS
    max_size_megabytes: int | None = None
    delivery: SubscriptionSettings = DEFAULT_SETTINGS
    forward_to: str | None = None
    subscriptions: tuple[SubscriptionDeclaration, ...] = ()

    @staticmethod
    def of(value: object) -> EntityDeclaration:
        """The declaration in a JSON object. Raises ConfigError that names a wrong key or value."""
        try:
            found = msgspec.convert(value, EntityDeclaration)
        except msgspec.ValidationError as error:
            raise ConfigError(f"not a topic or queue: {error}") from error
        is_queue = found.settings.kind is TopicKind.QUEUE
        wrong = ("subscriptions",) if is_queue else ("delivery", "forward_to")
        for name in wrong:
            if getattr(found, name) != getattr(EntityDeclaration(""), name):
                raise ConfigError(f"{found.settings.kind} {found.name!r}: found {name}, which it does not have")
        return found

    @staticmethod
    def told(entity: Entity) -> EntityDeclaration:
        """An entity as it is."""
        queue = entity.queue if entity.kind is TopicKind.QUEUE else None
        return EntityDeclaration(
            entity.name,
            settings=entity.settings,
            max_size_megabytes=entity.max_size_megabytes,
            delivery=DEFAULT_SETTINGS if queue is None else queue.settings,
            forward_to=None if queue is None else queue.forward_to,
            subscriptions=tuple(map(SubscriptionDeclaration.told, entity.subscriptions)),
        )

    def check(self) -> None:
        """Raise RuleError for the first value that is wrong in itself, also in filters and actions; ConfigError."""
        self.settings.check(self.name)
        subscriptions = tuple(_with_rules(each, None) for each in self._subscriptions())
        Topic(self.name, subscriptions, self.limits).check()

    @property
    def forwards_to(self) -> set[str]:
        """The folded names of its forwarding targets, for comparisons."""
        targets = {
            name for each in self._subscriptions() for name in (each.forward_to, each.settings.forward_dead_letters_to)
        }
        return {folded(name) for name in targets if name}

    @property
    def bare(self) -> EntityDeclaration:
        """The same declaration without forwarding and subscriptions."""
        delivery = msgspec.structs.replace(self.delivery, forward_dead_letters_to=None)
        return msgspec.structs.replace(self, delivery=delivery, forward_to=None, subscriptions=())

    @property
    def limits(self) -> TopicLimits:
        """The limits of a new topic."""
        return self.limits_of(TopicLimits())

    def limits_of(self, limits: TopicLimits) -> TopicLimits:
        """Given limits with the declared size."""
        if self.max_size_megabytes is None:
            return limits
        return msgspec.structs.replace(limits, unsettled_bytes=self.max_size_megabytes * MEGABYTE)

    def changes(self, history: RuleHistory) -> Iterator[Change]:
        """The changes that turn a topic into this declaration. Raises RuleError for a rule that is wrong in itself."""
        if self.settings != history.settings:
            yield ChangeTopic(self.settings)
        current = history.current
        declared = list(self._subscriptions())
        names = {folded(each.name): each for each in current.subscriptions}
        wanted = [_with_rules(each, names.get(folded(each.name))) for each in declared]
        kept = names.keys() - {folded(each.name) for each in declared}
        wanted += [each for name, each in names.items() if name in kept]
        limits = self.limits_of(history.limits)
        yield from differences(history, Topic(current.name, tuple(wanted), limits))

    def _subscriptions(self) -> Iterator[SubscriptionDeclaration]:
        if self.settings.kind is TopicKind.QUEUE:
            yield SubscriptionDeclaration(
                QUEUE_SUBSCRIPTION, self.delivery, dead_letter_on_errors=False, forward_to=self.forward_to
            )
        yield from self.subscriptions


def in_steps(declarations: Sequence[EntityDeclaration], there: Iterable[str]) -> list[EntityDeclaration]:
    """The declarations in steps, so that targets of forwarding exist first; `there` are names of existing entities.

    Raises RuleError for the first declaration that is wrong in itself, ConfigError.
    """
    for each in declarations:
        each.check()
    needed = {target for each in declarations for target in each.forwards_to} - set(map(folded, there))
    return [each.bare for each in declarations if folded(each.name) in needed] + list(declarations)


def _with_rules(declared: SubscriptionDeclaration, found: Subscription | None) -> Subscription:
    if declared.rules is not None:
        rules = tuple(map(Rule.of, declared.rules))
    else:
        rules = DEFAULT_RULES if found is None else found.rules
    return Subscription(
        declared.name if found is None else found.name,
        rules,
        fall_through=found is not None and found.fall_through and not rules,
        dead_letter_on_errors=declared.dead_letter_on_errors,
        forward_to=declared.forward_to,
        settings=declared.settings,
    )
