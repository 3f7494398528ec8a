"""The descriptions of topics, queues and subscriptions in administration, read from XML and written as XML.

A description has one field for each property; one table has the properties of each kind of entity, in the order of
responses. A property that a request leaves out has its default, also in an update: clients send all of them. Unknown
elements are kept as text and given back. Source: servicebus_wire, section 8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headgate.errors import ConfigError
from headgate.language.servicebus import duration_ms, duration_text
from headgate.protocols.servicebus.atom import XmlElement, described, element, read_boolean
from headgate.protocols.servicebus.dates import format_date, parse_date
from headgate.protocols.servicebus.rule_xml import read_rule_description
from headgate.protocols.servicebus.rules import RuleDescription

DEFAULT_RULE = "$Default"
"""The name of a default rule that is described without one."""

_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_MAX_KEPT = 32
_MAX_KEPT_CHARACTERS = 1_024


class DescriptionKind(Enum):
    """Which entities are described; the value is the name of the element."""

    TOPIC = "TopicDescription"
    QUEUE = "QueueDescription"
    SUBSCRIPTION = "SubscriptionDescription"


class EntityStatus(Enum):
    """Whether clients may send to an entity and receive from it, in the words of administration."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


@dataclass(frozen=True, slots=True)
class AuthorizationDescription:
    """An authorization rule of an entity, as it is kept."""

    key_name: str
    rights: tuple[str, ...] = ()
    primary_key: str = ""
    secondary_key: str = ""
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    created_ms: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class EntityDescription:
    """The properties of an entity; properties that its kind does not have keep their defaults.

    Times are milliseconds. `default_time_to_live_ms` and `auto_delete_on_idle_ms` are None for no end; the other
    properties that may be None are None where a request leaves them out. `kept`: other properties, by name.
    """

    kind: DescriptionKind
    status: EntityStatus = EntityStatus.ACTIVE
    default_time_to_live_ms: int | None = None
    auto_delete_on_idle_ms: int | None = None
    max_size_megabytes: int | None = None
    requires_duplicate_detection: bool | None = None
    duplicate_detection_window_ms: int | None = None
    lock_ms: int | None = None
    max_delivery_count: int | None = None
    requires_session: bool | None = None
    dead_letter_on_expiration: bool = False
    dead_letter_on_errors: bool = True
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str = ""
    default_rule: RuleDescription | None = None
    authorization_rules: tuple[AuthorizationDescription, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeDescription:
    """The state of an entity: times in milliseconds since 1970, and message counts."""

    created_ms: int
    updated_ms: int
    accessed_ms: int
    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    message_count: int = 0
    size_bytes: int = 0
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0


# Kinds of properties: how each is read, and how it is told


def _read_integer(text: str) -> int:
    if not re.fullmatch(r"\s*-?\d{1,18}\s*", text, re.ASCII):
        raise ConfigError(f"found {text!r}, expected a whole number")
    return int(text)


def _read_window(text: str) -> int:
    found = duration_ms(text)
    if found is None:
        raise ConfigError(f"found {text!r}, expected a duration that ends")
    return found


def _read_status(text: str) -> EntityStatus:
    for status in EntityStatus:
        if status.value.lower() == text.strip().lower():
            return status
    raise ConfigError(f"found {text!r}, expected one of {', '.join(each.value for each in EntityStatus)}")


def _read_target(text: str) -> str | None:
    return text.strip() or None


def _told_window(value: int | None) -> str | None:
    return None if value is None else duration_text(value)


def _told_boolean(value: bool | None) -> str:
    return "true" if value else "false"


def _told_status(value: EntityStatus) -> str:
    return value.value


@dataclass(frozen=True, slots=True)
class _Property:
    """A property: the field of the description that holds it, how it is read from a text, and how it becomes one."""

    field: str
    read: Callable[[str], Any]
    told: Callable[[Any], str | None]


def _told_text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


_PROPERTIES: Mapping[str, _Property] = {
    "LockDuration": _Property("lock_ms", _read_window, _told_window),
    "MaxSizeInMegabytes": _Property("max_size_megabytes", _read_integer, _told_text),
    "RequiresDuplicateDetection": _Property("requires_duplicate_detection", read_boolean, _told_boolean),
    "RequiresSession": _Property("requires_session", read_boolean, _told_boolean),
    "DefaultMessageTimeToLive": _Property("default_time_to_live_ms", duration_ms, duration_text),
    "DeadLetteringOnMessageExpiration": _Property("dead_letter_on_expiration", read_boolean, _told_boolean),
    "DeadLetteringOnFilterEvaluationExceptions": _Property("dead_letter_on_errors", read_boolean, _told_boolean),
    "DuplicateDetectionHistoryTimeWindow": _Property("duplicate_detection_window_ms", _read_window, _told_window),
    "MaxDeliveryCount": _Property("max_delivery_count", _read_integer, _told_text),
    "Status": _Property("status", _read_status, _told_status),
    "ForwardTo": _Property("forward_to", _read_target, _told_text),
    "UserMetadata": _Property("user_metadata", str, _told_text),
    "AutoDeleteOnIdle": _Property("auto_delete_on_idle_ms", duration_ms, duration_text),
    "ForwardDeadLetteredMessagesTo": _Property("forward_dead_letters_to", _read_target, _told_text),
}

_KEPT_DEFAULTS = {
    "EnableBatchedOperations": "true",
    "FilteringMessagesBeforePublishing": "false",
    "IsAnonymousAccessible": "false",
    "SupportOrdering": "true",
    "EnablePartitioning": "false",
    "EnableSubscriptionPartitioning": "false",
    "EnableExpress": "false",
}
"""Properties without effect in Headgate, and their values in responses where no request set them."""

_TOLD = {
    "MaxMessageSizeInKilobytes",
    "MessageCount",
    "CountDetails",
    "SizeInBytes",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "EntityAvailabilityStatus",
    "Name",
    "Path",
    "TopicPath",
}
"""Read-only elements of responses, which clients send back; ignored in requests."""

_ORDER: Mapping[DescriptionKind, tuple[str, ...]] = {
    DescriptionKind.TOPIC: (
        "DefaultMessageTimeToLive",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnableBatchedOperations",
        "SizeInBytes",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "UserMetadata",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableSubscriptionPartitioning",
        "EnableExpress",
        "MaxMessageSizeInKilobytes",
    ),
    DescriptionKind.QUEUE: (
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "ForwardTo",
        "UserMetadata",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "ForwardDeadLetteredMessagesTo",
        "EnableExpress",
        "MaxMessageSizeInKilobytes",
    ),
    DescriptionKind.SUBSCRIPTION: (
        "LockDuration",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DeadLetteringOnFilterEvaluationExceptions",
        "MessageCount",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "Status",
        "ForwardTo",
        "UserMetadata",
        "ForwardDeadLetteredMessagesTo",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "AutoDeleteOnIdle",
        "EntityAvailabilityStatus",
    ),
}
"""The properties of each kind, in the order of responses."""


# Reading


def read_description(content: XmlElement) -> EntityDescription:
    """The entity that the content of an entry describes. Raises ConfigError that names the property which is wrong."""
    kind = next((each for each in DescriptionKind if each.value == content.name), None)
    if kind is None:
        raise ConfigError(f"found {content.name}, expected one of {', '.join(each.value for each in DescriptionKind)}")
    given: dict[str, Any] = {}
    kept: dict[str, str] = {}
    for child in content.children:
        try:
            if child.name == "AuthorizationRules":
                given["authorization_rules"] = tuple(_read_authorization(each) for each in child.children)
            elif child.name == "DefaultRuleDescription" and kind is DescriptionKind.SUBSCRIPTION:
                given["default_rule"] = read_rule_description(child, child.child_text("Name") or DEFAULT_RULE)
            elif child.name in _TOLD:
                continue
            elif child.name in _PROPERTIES:
                known = _PROPERTIES[child.name]
                if child.name not in _ORDER[kind]:
                    raise ConfigError(f"{kind.value} has no such property")
                given[known.field] = known.read(child.text)
            else:
                kept[child.name] = _kept_text(child)
        except ConfigError as error:
            raise ConfigError(f"{child.name}: {error}") from error
    if len(kept) > _MAX_KEPT:
        raise ConfigError(f"{len(kept)} properties that are not known; expected at most {_MAX_KEPT}")
    return EntityDescription(kind, **given, kept=kept)


def _kept_text(given: XmlElement) -> str:
    if given.children or len(given.text) > _MAX_KEPT_CHARACTERS:
        raise ConfigError("no known property, and not a short text that could be kept")
    return given.text


def _read_authorization(given: XmlElement) -> AuthorizationDescription:
    rights = given.child("Rights")
    created, updated = given.child_text("CreatedTime"), given.child_text("ModifiedTime")
    return AuthorizationDescription(
        given.child_text("KeyName") or "",
        () if rights is None else tuple(each.text.strip() for each in rights.children),
        given.child_text("PrimaryKey") or "",
        given.child_text("SecondaryKey") or "",
        given.child_text("ClaimType") or "SharedAccessKey",
        given.child_text("ClaimValue") or "None",
        0 if created is None else parse_date(created),
        0 if updated is None else parse_date(updated),
    )


# Writing


def told_description(
    description: EntityDescription,
    runtime: RuntimeDescription,
    *,
    message_size_bytes: int,
    address: Callable[[str], str],
) -> str:
    """The description of an entity in responses, as XML; `address` gives the URL of a target of forwarding."""
    kept = {**_KEPT_DEFAULTS, **description.kept}
    parts: list[str] = []
    for name in _ORDER[description.kind]:
        if name in _PROPERTIES:
            value = getattr(description, _PROPERTIES[name].field)
            text = _PROPERTIES[name].told(value)
            if text is not None and name.startswith("Forward"):
                text = address(text)
            parts.append("" if text is None else element(name, text))
        elif name in kept:
            parts.append(element(name, kept.pop(name)))
        else:
            parts.append(_told_of_itself(name, description, runtime, message_size_bytes))
    others = (name for name in kept if name not in _KEPT_DEFAULTS and _XML_NAME.fullmatch(name))
    parts += [element(name, kept[name]) for name in others]
    return described(description.kind.value, "".join(parts))


def _told_of_itself(name: str, description: EntityDescription, runtime: RuntimeDescription, size_bytes: int) -> str:
    match name:
        case "AuthorizationRules":
            rules = "".join(_told_authorization(each) for each in description.authorization_rules)
            return f"<{name}>{rules}</{name}>" if rules else ""
        case "CountDetails":
            return _told_counts(runtime)
        case "EntityAvailabilityStatus":
            return element(name, "Available")
        case "MaxMessageSizeInKilobytes":
            return element(name, str(size_bytes // 1024))
        case "CreatedAt" | "UpdatedAt" | "AccessedAt":
            times = {
                "CreatedAt": runtime.created_ms,
                "UpdatedAt": runtime.updated_ms,
                "AccessedAt": runtime.accessed_ms,
            }
            return element(name, format_date(times[name]))
        case _:
            counts = {
                "MessageCount": runtime.message_count,
                "SizeInBytes": runtime.size_bytes,
                "SubscriptionCount": runtime.subscription_count,
                "SqlFilterCount": runtime.sql_filter_count,
                "CorrelationFilterCount": runtime.correlation_filter_count,
            }
            return element(name, str(counts[name]))


def _told_counts(runtime: RuntimeDescription) -> str:
    counts = {
        "ActiveMessageCount": runtime.active,
        "DeadLetterMessageCount": runtime.dead_letter,
        "ScheduledMessageCount": runtime.scheduled,
        "TransferMessageCount": runtime.transfer,
        "TransferDeadLetterMessageCount": runtime.transfer_dead_letter,
    }
    # Clients find the prefix by this element's attributes, of which it has one.
    told = "".join(element(f"d2p1:{name}", str(count)) for name, count in counts.items())
    return f'<CountDetails xmlns:d2p1="{_COUNTS}">{told}</CountDetails>'


def _told_authorization(rule: AuthorizationDescription) -> str:
    rights = "".join(element("AccessRights", right) for right in rule.rights)
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        f"{element('ClaimType', rule.claim_type)}{element('ClaimValue', rule.claim_value)}<Rights>{rights}</Rights>"
        f"{element('CreatedTime', format_date(rule.created_ms))}{element('ModifiedTime', format_date(rule.updated_ms))}"
        f"{element('KeyName', rule.key_name)}{element('PrimaryKey', rule.primary_key)}"
        f"{element('SecondaryKey', rule.secondary_key)}</AuthorizationRule>"
    )


def told_namespace(name: str, *, created_ms: int) -> str:
    """The description of the namespace in responses, as XML."""
    inner = (
        f"{element('Alias', '')}{element('CreatedTime', format_date(created_ms))}{element('MessagingSKU', 'Premium')}"
        f"{element('MessagingUnits', '1')}{element('ModifiedTime', format_date(created_ms))}{element('Name', name)}"
        f"{element('NamespaceType', 'Messaging')}"
    )
    return described("NamespaceInfo", inner)
