"""The records of a rule history on disk: versions with the offsets for which they are in force, and changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from headgate.errors import ConfigError
from headgate.topic.limits import TopicLimits
from headgate.topic.rule import RuleDefinition
from headgate.topic.settings import DEFAULT_SETTINGS, DEFAULT_TOPIC_SETTINGS, SubscriptionSettings, TopicSettings

HISTORY_FORMAT = 1


class SubscriptionVersion(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A subscription as it is, or was, in force for offsets `from_offset … to_offset`; None: still.

    `next_rule` is the number that its next rule gets. It, `settings` and the times of the subscription (`created_ms`,
    `updated_ms`) count in the version that is in force.
    """

    number: int
    name: str
    from_offset: int
    at_ms: int
    to_offset: int | None = None
    fall_through: bool = False
    dead_letter_on_errors: bool = False
    forward_to: str | None = None
    settings: SubscriptionSettings = DEFAULT_SETTINGS
    next_rule: int = 1
    created_ms: int = 0
    updated_ms: int = 0


class RuleVersion(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A rule of a subscription (by number) as it is, or was, in force for offsets `from_offset … to_offset`."""

    subscription: int
    number: int
    from_offset: int
    at_ms: int
    rule: RuleDefinition
    to_offset: int | None = None


class EarlierLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a topic that were in force up to `to_offset`, from the end of the limits before them."""

    to_offset: int
    limits: TopicLimits


class Head(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The first line of a journal: all versions that were known when it was written, in order of creation."""

    topic: str
    created_ms: int
    limits: TopicLimits
    updated_ms: int = 0
    settings: TopicSettings = DEFAULT_TOPIC_SETTINGS
    pruned_below: int = 0
    next_subscription: int = 1
    subscriptions: list[SubscriptionVersion] = []
    rules: list[RuleVersion] = []
    earlier_limits: list[EarlierLimits] = []
    format: int = HISTORY_FORMAT


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="change"):
    """One step of a change."""


class SubscriptionProperties(_Change, frozen=True):
    """The properties that a change gives a subscription."""

    name: str
    fall_through: bool = False
    dead_letter_on_errors: bool = False
    forward_to: str | None = None
    settings: SubscriptionSettings = DEFAULT_SETTINGS


SUBSCRIPTION_PROPERTIES = SubscriptionProperties.__struct_fields__[1:]
"""The names of a subscription's properties, without its name and its rules."""


class CreateSubscription(SubscriptionProperties, frozen=True, tag="create subscription"):
    """A new subscription, without rules."""


class ChangeSubscription(SubscriptionProperties, frozen=True, tag="change subscription"):
    """A subscription gets these properties; its rules stay."""

    @staticmethod
    def of(before: SubscriptionVersion, given: Mapping[str, object], *, name: str) -> ChangeSubscription:
        """The change that a JSON object of properties describes; properties and `settings` that it does not name stay.

        Raises ConfigError that names a wrong key or value.
        """
        settings = given.get("settings", {})
        if unknown := sorted(given.keys() - set(SUBSCRIPTION_PROPERTIES)):
            expected = ", ".join(SUBSCRIPTION_PROPERTIES)
            raise ConfigError(f"a subscription has no property {unknown[0]!r}; expected one of {expected}")
        if not isinstance(settings, Mapping):
            raise ConfigError(f"settings: found {settings!r}, expected an object")
        properties = {name: getattr(before, name) for name in SUBSCRIPTION_PROPERTIES}
        properties |= {**given, "settings": before.settings.changed(settings)}
        try:
            return msgspec.convert({"name": name, **properties}, ChangeSubscription)
        except msgspec.ValidationError as error:
            raise ConfigError(f"not the properties of a subscription: {error}") from error


class RemoveSubscription(_Change, frozen=True, tag="remove subscription"):
    """A subscription and its rules are no longer in force."""

    name: str


class AddRule(_Change, frozen=True, tag="add rule"):
    """A new rule of a subscription."""

    subscription: str
    rule: RuleDefinition


class ReplaceRule(_Change, frozen=True, tag="replace rule"):
    """The rule of that name gets another filter and action; it keeps its number."""

    subscription: str
    rule: RuleDefinition


class RemoveRule(_Change, frozen=True, tag="remove rule"):
    """A rule is no longer in force."""

    subscription: str
    rule: str


class ChangeLimits(_Change, frozen=True, tag="change limits"):
    """The topic gets other limits; existing subscriptions and rules stay."""

    limits: TopicLimits


class ChangeTopic(_Change, frozen=True, tag="change topic"):
    """The topic gets other settings; they count at once."""

    settings: TopicSettings


Change: TypeAlias = (
    CreateSubscription
    | ChangeSubscription
    | RemoveSubscription
    | AddRule
    | ReplaceRule
    | RemoveRule
    | ChangeLimits
    | ChangeTopic
)


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes that are in force together, from `offset` on; made at `at_ms`."""

    offset: int
    at_ms: int
    changes: tuple[Change, ...]
