"""The settings of a topic, and of a subscription for the delivery of its copies: locks, attempts, lifetimes.

Settings of a subscription count when a copy is delivered, never when it is decided: with any settings, the subscription
has the same copies. So they have no history, and a change of settings counts for every existing copy. Where copies are
received by session their session ids are decided, too; receiving by session cannot be switched on or off later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from headgate.errors import ConfigError, RuleError, RuleLimitError

MAX_TIME_MS = 922_337_203_685_477
"""The longest time that Service Bus can write, some 29 000 years."""

MAX_METADATA_CHARACTERS = 1_024

_MAX_LOCK_MS = 43_200_000
_MAX_BACKOFFS = 32


class TopicKind(StrEnum):
    """Whether a topic has subscriptions, or is a queue: then it has the one that is implied."""

    TOPIC = "topic"
    QUEUE = "queue"


class TopicStatus(StrEnum):
    """Whether clients may send to a topic, and receive from its subscriptions."""

    ACTIVE = "active"
    SEND_DISABLED = "send-disabled"
    RECEIVE_DISABLED = "receive-disabled"
    DISABLED = "disabled"

    @property
    def takes_messages(self) -> bool:
        """Whether publishers are taken."""
        return self in (TopicStatus.ACTIVE, TopicStatus.RECEIVE_DISABLED)

    @property
    def gives_copies(self) -> bool:
        """Whether receivers are taken."""
        return self in (TopicStatus.ACTIVE, TopicStatus.SEND_DISABLED)


class AuthorizationRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An authorization rule of Service Bus's administration; it is stored, but grants no rights."""

    name: str
    rights: tuple[str, ...] = ()
    primary_key: str = ""
    secondary_key: str = ""
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    created_ms: int = 0
    updated_ms: int = 0


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of a topic or a queue; see [entities](entities.md#properties).

    They have no history: a change counts at once. How much may wait in the topic is a limit (`unsettled_bytes`); the
    delivery of a queue's copies is in the settings of its subscription.
    """

    kind: TopicKind = TopicKind.TOPIC
    """`queue`: it has the subscription `$queue` and no others; cannot be changed."""
    status: TopicStatus = TopicStatus.ACTIVE
    """Whether clients may send, and receive from any of its subscriptions."""
    default_time_to_live_ms: int | None = None
    """Milliseconds after which a message expires, 1 or more; it may say less itself. Default: never."""
    auto_delete_on_idle_ms: int | None = None
    """Milliseconds without use after which the topic is removed, 1 000 or more. Default: never."""
    requires_duplicate_detection: bool = False
    """Whether a message id counts once within the window; cannot be changed."""
    duplicate_detection_window_ms: int = 600_000
    """Milliseconds for which message ids are remembered, 20 000 to 604 800 000 (7 days)."""
    user_metadata: str = ""
    """Text of the user's, at most 1 024 characters."""
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    """Kept and given back."""
    kept: dict[str, str] = {}
    """Properties that nothing here uses, by their names in Service Bus; they are given back as they came."""

    @property
    def has_secrets(self) -> bool:
        """Whether keys of clients are among them."""
        return any(rule.primary_key or rule.secondary_key for rule in self.authorization_rules)

    def check(self, topic: str) -> None:
        """Raise RuleLimitError for the first setting that is out of its range."""
        check_ranges(
            [
                ("default_time_to_live_ms", self.default_time_to_live_ms, 1, MAX_TIME_MS),
                ("auto_delete_on_idle_ms", self.auto_delete_on_idle_ms, 1_000, MAX_TIME_MS),
                ("duplicate_detection_window_ms", self.duplicate_detection_window_ms, 20_000, 604_800_000),
                ("characters of user_metadata", len(self.user_metadata), 0, MAX_METADATA_CHARACTERS),
            ],
            topic=topic,
        )


class SubscriptionStatus(StrEnum):
    """Whether clients may receive from a subscription."""

    ACTIVE = "active"
    RECEIVE_DISABLED = "receive-disabled"
    DISABLED = "disabled"

    @property
    def gives_copies(self) -> bool:
        """Whether receivers are taken."""
        return self is SubscriptionStatus.ACTIVE


class SubscriptionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the copies of a subscription are delivered; see [settings](rules.md#settings-of-a-subscription)."""

    lock_ms: int = 60_000
    """Milliseconds for which a receiver holds a copy, 1 000 to 43 200 000 (12 hours)."""
    max_delivery_count: int = 10
    """Attempts, 1 to 2 000; a copy that fails the last one becomes a dead letter."""
    backoff_ms: tuple[int, ...] = ()
    """Milliseconds until a copy is available again after its first failed attempt, its second, and so on; the last one
    counts for all that follow. At most 32, each 0 to 43 200 000. Default: at once."""
    requires_session: bool = False
    """Whether copies are received by session, in order; cannot be changed."""
    default_time_to_live_ms: int | None = None
    """Milliseconds after which a copy expires, 1 or more; a message may say less itself. Default: never."""
    dead_letter_on_expiration: bool = False
    """Whether a copy that expires becomes a dead letter; else it is gone."""
    status: SubscriptionStatus = SubscriptionStatus.ACTIVE
    """`receive-disabled`: clients cannot receive, receivers end; `disabled`: nothing is forwarded either. Copies are
    made all the same."""
    auto_delete_on_idle_ms: int | None = None
    """Milliseconds without a receiver after which the subscription is removed, 1 000 or more. Default: never."""
    forward_dead_letters_to: str | None = None
    """The topic, or other stream, that its dead letters go to. Default: they stay with the subscription."""
    user_metadata: str = ""
    """Text of the user's, at most 1 024 characters."""
    kept: dict[str, str] = {}
    """Properties that nothing here uses, by their names in Service Bus; they are given back as they came."""

    @staticmethod
    def of(value: object) -> SubscriptionSettings:
        """The settings in a JSON object, by the names of the fields. Raises ConfigError that names a wrong one."""
        try:
            return msgspec.convert(value, SubscriptionSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(f"not the settings of a subscription: {error}") from error

    def json_object(self) -> dict[str, object]:
        """The JSON object with every field."""
        return {name: msgspec.to_builtins(getattr(self, name)) for name in self.__struct_fields__}

    def changed(self, given: Mapping[str, object]) -> SubscriptionSettings:
        """These settings, but for the fields of a JSON object. Raises ConfigError as `of`."""
        wanted = SubscriptionSettings.of(given)
        return msgspec.structs.replace(self, **{name: getattr(wanted, name) for name in given})

    def check(self, topic: str, subscription: str) -> None:
        """Raise RuleLimitError for the first number that is out of its range, RuleError for a wrong target."""
        ranges = [
            ("lock_ms", self.lock_ms, 1_000, _MAX_LOCK_MS),
            ("max_delivery_count", self.max_delivery_count, 1, 2_000),
            *((f"backoff_ms[{place}]", each, 0, _MAX_LOCK_MS) for place, each in enumerate(self.backoff_ms)),
            ("default_time_to_live_ms", self.default_time_to_live_ms, 1, MAX_TIME_MS),
            ("auto_delete_on_idle_ms", self.auto_delete_on_idle_ms, 1_000, MAX_TIME_MS),
            ("characters of user_metadata", len(self.user_metadata), 0, MAX_METADATA_CHARACTERS),
        ]
        check_ranges(ranges, topic=topic, subscription=subscription)
        if len(self.backoff_ms) > _MAX_BACKOFFS:
            raise RuleLimitError(
                f"backoff_ms has {len(self.backoff_ms)} entries; expected at most {_MAX_BACKOFFS}",
                topic=topic,
                subscription=subscription,
            )
        if self.forward_dead_letters_to == topic:
            raise RuleError(
                "forward_dead_letters_to is its own topic, where they would fail again",
                topic=topic,
                subscription=subscription,
            )


def check_ranges(
    ranges: Iterable[tuple[str, int | None, int, int]], *, topic: str, subscription: str | None = None
) -> None:
    """Raise RuleLimitError for the first number that is out of its range: names, numbers, least, most."""
    for name, found, least, most in ranges:
        if found is not None and not least <= found <= most:
            raise RuleLimitError(
                f"{name} is {found}; expected {least} to {most}", topic=topic, subscription=subscription
            )


DEFAULT_SETTINGS = SubscriptionSettings()
"""The settings of a subscription that is created without its own."""

DEFAULT_TOPIC_SETTINGS = TopicSettings()
"""The settings of a topic that is created without its own."""
