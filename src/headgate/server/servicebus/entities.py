"""Conversion of entities between the broker's settings and the descriptions of administration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from headgate.broker import Entity, EntityCounts, EntityDeclaration, EntitySubscription
from headgate.errors import ConfigError, RuleLimitError
from headgate.protocols.servicebus import (
    AuthorizationDescription,
    DescriptionKind,
    EntityDescription,
    EntityStatus,
    RuntimeDescription,
    relative,
)
from headgate.topic import (
    DEFAULT_SETTINGS,
    DEFAULT_TOPIC_SETTINGS,
    AuthorizationRule,
    SubscriptionSettings,
    SubscriptionStatus,
    TopicKind,
    TopicSettings,
    TopicStatus,
)

_TOPIC_STATUS = {
    EntityStatus.ACTIVE: TopicStatus.ACTIVE,
    EntityStatus.DISABLED: TopicStatus.DISABLED,
    EntityStatus.SEND_DISABLED: TopicStatus.SEND_DISABLED,
    EntityStatus.RECEIVE_DISABLED: TopicStatus.RECEIVE_DISABLED,
}
_SUBSCRIPTION_STATUS = {
    EntityStatus.ACTIVE: SubscriptionStatus.ACTIVE,
    EntityStatus.DISABLED: SubscriptionStatus.DISABLED,
    EntityStatus.RECEIVE_DISABLED: SubscriptionStatus.RECEIVE_DISABLED,
}
_STATUS: Mapping[StrEnum, EntityStatus] = {
    **{ours: theirs for theirs, ours in _TOPIC_STATUS.items()},
    **{ours: theirs for theirs, ours in _SUBSCRIPTION_STATUS.items()},
}
_PARTITIONED = ("EnablePartitioning", "EnableSubscriptionPartitioning")


def declaration_of(name: str, described: EntityDescription, found: Entity | None, *, now_ms: int) -> EntityDeclaration:
    """The declaration of a described topic or queue, a new one or an existing one.

    Raises ConfigError that names a property that is not supported.
    """
    _check_served(described, is_new=found is None)
    before = None if found is None else found.settings
    is_queue = described.kind is DescriptionKind.QUEUE
    settings = TopicSettings(
        kind=TopicKind.QUEUE if is_queue else TopicKind.TOPIC,
        status=_TOPIC_STATUS[described.status],
        default_time_to_live_ms=described.default_time_to_live_ms,
        auto_delete_on_idle_ms=described.auto_delete_on_idle_ms,
        requires_duplicate_detection=_unchanged(
            "RequiresDuplicateDetection",
            described,
            described.requires_duplicate_detection,
            None if before is None else before.requires_duplicate_detection,
        ),
        duplicate_detection_window_ms=_given(
            described.duplicate_detection_window_ms, DEFAULT_TOPIC_SETTINGS.duplicate_detection_window_ms
        ),
        user_metadata=described.user_metadata,
        authorization_rules=tuple(_authorization(each, now_ms) for each in described.authorization_rules),
        kept=dict(described.kept),
    )
    delivery = DEFAULT_SETTINGS
    if is_queue:
        delivery = _delivery(described, None if found is None else found.queue.settings)
    if described.max_size_megabytes is not None and described.max_size_megabytes < 1:
        raise ConfigError(f"MaxSizeInMegabytes: found {described.max_size_megabytes}, expected 1 or more")
    try:
        settings.check(name)
        delivery.check(name, "$queue")
    except RuleLimitError as error:
        raise ConfigError(str(error)) from error
    return EntityDeclaration(
        name,
        settings,
        described.max_size_megabytes,
        delivery,
        _target(described.forward_to) if is_queue else None,
    )


@dataclass(frozen=True, slots=True)
class WantedSubscription:
    """The settings of a subscription in a description."""

    settings: SubscriptionSettings
    dead_letter_on_errors: bool
    forward_to: str | None

    @staticmethod
    def of(topic: str, name: str, described: EntityDescription, found: EntitySubscription | None) -> WantedSubscription:
        """For a new or an existing subscription. Raises ConfigError that names a property that is not supported."""
        _check_served(described, is_new=found is None)
        if described.status not in _SUBSCRIPTION_STATUS:
            raise ConfigError("Status: found SendDisabled, and nobody sends to a subscription")
        settings = msgspec.structs.replace(
            _delivery(described, None if found is None else found.settings),
            status=_SUBSCRIPTION_STATUS[described.status],
            default_time_to_live_ms=described.default_time_to_live_ms,
            auto_delete_on_idle_ms=described.auto_delete_on_idle_ms,
            user_metadata=described.user_metadata,
            kept=dict(described.kept),
        )
        try:
            settings.check(topic, name)
        except RuleLimitError as error:
            raise ConfigError(str(error)) from error
        return WantedSubscription(settings, described.dead_letter_on_errors, _target(described.forward_to))


def _check_served(described: EntityDescription, *, is_new: bool) -> None:
    for name in _PARTITIONED:
        if described.kept.get(name, "false").strip().lower() in ("true", "1"):
            if not is_new:
                raise ConfigError("Partitioning cannot be changed for Queue/Topic.")
            raise ConfigError(
                f"{name}: partitioned queues and topics are not supported in the Premium messaging tier, which is what "
                "the namespace says that it is"
            )


def _delivery(described: EntityDescription, before: SubscriptionSettings | None) -> SubscriptionSettings:
    """The settings of delivery; settings that Service Bus does not know stay as they were."""
    return msgspec.structs.replace(
        before or DEFAULT_SETTINGS,
        lock_ms=_given(described.lock_ms, DEFAULT_SETTINGS.lock_ms),
        max_delivery_count=_given(described.max_delivery_count, DEFAULT_SETTINGS.max_delivery_count),
        requires_session=_unchanged(
            "RequiresSession",
            described,
            described.requires_session,
            None if before is None else before.requires_session,
        ),
        dead_letter_on_expiration=described.dead_letter_on_expiration,
        forward_dead_letters_to=_target(described.forward_dead_letters_to),
    )


def _given(described: int | None, default: int) -> int:
    return default if described is None else described


def _unchanged(name: str, described: EntityDescription, wanted: bool | None, before: bool | None) -> bool:
    if before is None:
        return bool(wanted)
    if wanted is not None and wanted != before:
        kind = described.kind.value.removesuffix("Description")
        raise ConfigError(f"The value for the {name} property of an existing {kind} cannot be changed.")
    return before


def _target(given: str | None) -> str | None:
    """The entity in a forwarding target, which clients send as a URL."""
    return None if given is None else relative(given)


def _authorization(given: AuthorizationDescription, now_ms: int) -> AuthorizationRule:
    return AuthorizationRule(
        given.key_name,
        given.rights,
        given.primary_key,
        given.secondary_key,
        given.claim_type,
        given.claim_value,
        given.created_ms or now_ms,
        now_ms,
    )


# Descriptions for clients


def entity_description(entity: Entity) -> tuple[EntityDescription, RuntimeDescription]:
    """The description of a topic or a queue for clients. Raises LogError."""
    settings = entity.settings
    delivery, forward_to = DEFAULT_SETTINGS, None
    if entity.kind is TopicKind.QUEUE:
        delivery, forward_to = entity.queue.settings, entity.queue.forward_to
    described = EntityDescription(
        DescriptionKind.QUEUE if entity.kind is TopicKind.QUEUE else DescriptionKind.TOPIC,
        status=_STATUS[settings.status],
        default_time_to_live_ms=settings.default_time_to_live_ms,
        auto_delete_on_idle_ms=settings.auto_delete_on_idle_ms,
        max_size_megabytes=entity.max_size_megabytes,
        requires_duplicate_detection=settings.requires_duplicate_detection,
        duplicate_detection_window_ms=settings.duplicate_detection_window_ms,
        lock_ms=delivery.lock_ms,
        max_delivery_count=delivery.max_delivery_count,
        requires_session=delivery.requires_session,
        dead_letter_on_expiration=delivery.dead_letter_on_expiration,
        forward_to=forward_to,
        forward_dead_letters_to=delivery.forward_dead_letters_to,
        user_metadata=settings.user_metadata,
        authorization_rules=tuple(
            AuthorizationDescription(
                rule.name,
                rule.rights,
                rule.primary_key,
                rule.secondary_key,
                rule.claim_type,
                rule.claim_value,
                rule.created_ms,
                rule.updated_ms,
            )
            for rule in settings.authorization_rules
        ),
        kept=settings.kept,
    )
    filters = entity.topic.history.counts
    runtime = _runtime(
        entity,
        size_bytes=entity.size_bytes,
        subscription_count=len(entity.subscriptions),
        sql_filter_count=filters.sql,
        correlation_filter_count=filters.correlation,
    )
    return described, runtime


def subscription_description(found: EntitySubscription) -> tuple[EntityDescription, RuntimeDescription]:
    """The description of a subscription for clients. Raises LogError."""
    settings = found.settings
    described = EntityDescription(
        DescriptionKind.SUBSCRIPTION,
        status=_STATUS[settings.status],
        default_time_to_live_ms=settings.default_time_to_live_ms,
        auto_delete_on_idle_ms=settings.auto_delete_on_idle_ms,
        lock_ms=settings.lock_ms,
        max_delivery_count=settings.max_delivery_count,
        requires_session=settings.requires_session,
        dead_letter_on_expiration=settings.dead_letter_on_expiration,
        dead_letter_on_errors=found.dead_letter_on_errors,
        forward_to=found.forward_to,
        forward_dead_letters_to=settings.forward_dead_letters_to,
        user_metadata=settings.user_metadata,
        kept=settings.kept,
    )
    return described, _runtime(found)


def dead_letters_description(
    found: EntitySubscription, *, of_transfer: bool
) -> tuple[EntityDescription, RuntimeDescription]:
    """The dead letters of a queue or a subscription, described as a queue; of a transfer there are never any.

    Raises LogError.
    """
    count = 0 if of_transfer else found.counts().dead_letter
    runtime = RuntimeDescription(
        found.created_ms, found.updated_ms, found.accessed_ms, active=count, message_count=count
    )
    described = EntityDescription(
        DescriptionKind.QUEUE,
        duplicate_detection_window_ms=DEFAULT_TOPIC_SETTINGS.duplicate_detection_window_ms,
        lock_ms=DEFAULT_SETTINGS.lock_ms,
        max_delivery_count=found.settings.max_delivery_count,
    )
    return described, runtime


def _runtime(
    found: Entity | EntitySubscription,
    *,
    size_bytes: int = 0,
    subscription_count: int = 0,
    sql_filter_count: int = 0,
    correlation_filter_count: int = 0,
) -> RuntimeDescription:
    counts: EntityCounts = found.counts()
    return RuntimeDescription(
        found.created_ms,
        found.updated_ms,
        found.accessed_ms,
        counts.active,
        counts.dead_letter,
        counts.scheduled,
        counts.transfer,
        counts.transfer_dead_letter,
        # The total includes deferred messages; none of the parts does.
        counts.total,
        size_bytes,
        subscription_count,
        sql_filter_count,
        correlation_filter_count,
    )
