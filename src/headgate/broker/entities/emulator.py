"""The configuration of Microsoft's Service Bus emulator, a JSON file, read and written (servicebus_wire, section 10).

    {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": […], "Topics": [{"Name", "Properties",
     "Subscriptions": [{"Name", "Properties", "Rules": [{"Name", "Properties": {"FilterType", …}}]}]}]}]}}

Given rules replace `$Default`; a subscription without any has it. An unknown key or FilterType is an error, never left
out. Beyond the emulator's own keys, Status, AutoDeleteOnIdle, UserMetadata, MaxSizeInMegabytes and
DeadLetteringOnFilterEvaluationExceptions are read, and written unless they are the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from headgate.broker.entities.declaration import EntityDeclaration, SubscriptionDeclaration
from headgate.errors import ConfigError
from headgate.language.servicebus import duration_ms, duration_text
from headgate.message import from_plain_or_typed
from headgate.topic import (
    DEFAULT_RULES,
    DEFAULT_SETTINGS,
    RuleDefinition,
    SubscriptionSettings,
    SubscriptionStatus,
    TopicKind,
    TopicSettings,
    TopicStatus,
)

NAMESPACE = "sbemulatorns"
"""The one namespace that the emulator has."""

_STATUS_NAMES = {
    "active": "Active",
    "disabled": "Disabled",
    "send-disabled": "SendDisabled",
    "receive-disabled": "ReceiveDisabled",
}
_KINDS = TypeVar("_KINDS", TopicStatus, SubscriptionStatus)

_Duration = str | None


class _Object(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="pascal"
):
    """An object of the file; an unknown key is refused."""


class _CorrelationFilter(_Object, frozen=True):
    content_type: str | None = None
    correlation_id: str | None = None
    label: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    to: str | None = None
    properties: dict[str, Any] = {}


class _Expression(_Object, frozen=True):
    sql_expression: str


class _RuleProperties(_Object, frozen=True):
    filter_type: str
    correlation_filter: _CorrelationFilter | None = None
    sql_filter: _Expression | None = None
    action: _Expression | None = None


class _Rule(_Object, frozen=True):
    name: str
    properties: _RuleProperties


class _TopicProperties(_Object, frozen=True):
    default_message_time_to_live: _Duration = None
    duplicate_detection_history_time_window: _Duration = None
    requires_duplicate_detection: bool = False
    max_size_in_megabytes: Annotated[int, Meta(ge=1)] | None = None
    status: str | None = None
    auto_delete_on_idle: _Duration = None
    user_metadata: str = ""


class _SubscriptionProperties(_Object, frozen=True):
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    default_message_time_to_live: _Duration = None
    lock_duration: _Duration = None
    max_delivery_count: int | None = None
    forward_dead_lettered_messages_to: str | None = None
    forward_to: str | None = None
    requires_session: bool = False
    status: str | None = None
    auto_delete_on_idle: _Duration = None
    user_metadata: str = ""


class _QueueProperties(_TopicProperties, frozen=True):
    dead_lettering_on_message_expiration: bool = False
    lock_duration: _Duration = None
    max_delivery_count: int | None = None
    forward_dead_lettered_messages_to: str | None = None
    forward_to: str | None = None
    requires_session: bool = False


class _Subscription(_Object, frozen=True):
    name: str
    properties: _SubscriptionProperties = _SubscriptionProperties()
    rules: list[_Rule] | None = None


class _Topic(_Object, frozen=True):
    name: str
    properties: _TopicProperties = _TopicProperties()
    subscriptions: list[_Subscription] | None = None


class _Queue(_Object, frozen=True):
    name: str
    properties: _QueueProperties = _QueueProperties()


class _Namespace(_Object, frozen=True):
    name: str = NAMESPACE
    queues: list[_Queue] | None = None
    topics: list[_Topic] | None = None


class _UserConfig(_Object, frozen=True):
    namespaces: list[_Namespace]
    logging: dict[str, Any] = {}


class _File(_Object, frozen=True):
    user_config: _UserConfig


def from_emulator(text: bytes) -> list[EntityDeclaration]:
    """The queues and topics of an emulator's file, named as there. Raises ConfigError that names the wrong value."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not the configuration of the Service Bus emulator: {error}") from error
    if len(file.user_config.namespaces) != 1:
        found = len(file.user_config.namespaces)
        raise ConfigError(f"UserConfig.Namespaces: found {found}, expected one namespace")
    (namespace,) = file.user_config.namespaces
    made = [_queue(each) for each in namespace.queues or ()] + [_topic(each) for each in namespace.topics or ()]
    for each in made:
        each.check()
    return made


def _queue(given: _Queue) -> EntityDeclaration:
    place, properties = f"queue {given.name!r}", given.properties
    return EntityDeclaration(
        given.name,
        _topic_settings(properties, place, TopicKind.QUEUE),
        properties.max_size_in_megabytes,
        _delivery(properties, place),
        properties.forward_to or None,
    )


def _topic(given: _Topic) -> EntityDeclaration:
    place = f"topic {given.name!r}"
    return EntityDeclaration(
        given.name,
        _topic_settings(given.properties, place, TopicKind.TOPIC),
        given.properties.max_size_in_megabytes,
        subscriptions=tuple(_subscription(each, place) for each in given.subscriptions or ()),
    )


def _topic_settings(given: _TopicProperties, place: str, kind: TopicKind) -> TopicSettings:
    window_ms = _ms(given.duplicate_detection_history_time_window, place, "DuplicateDetectionHistoryTimeWindow")
    return TopicSettings(
        kind=kind,
        status=_status(given.status, TopicStatus, place),
        default_time_to_live_ms=_ms(given.default_message_time_to_live, place, "DefaultMessageTimeToLive"),
        auto_delete_on_idle_ms=_ms(given.auto_delete_on_idle, place, "AutoDeleteOnIdle"),
        requires_duplicate_detection=given.requires_duplicate_detection,
        duplicate_detection_window_ms=TopicSettings().duplicate_detection_window_ms if window_ms is None else window_ms,
        user_metadata=given.user_metadata,
    )


def _delivery(given: _QueueProperties | _SubscriptionProperties, place: str) -> SubscriptionSettings:
    """The delivery settings of a subscription or queue; a queue's other settings are its topic's."""
    lock_ms = _ms(given.lock_duration, place, "LockDuration")
    settings = SubscriptionSettings(
        lock_ms=DEFAULT_SETTINGS.lock_ms if lock_ms is None else lock_ms,
        max_delivery_count=given.max_delivery_count or DEFAULT_SETTINGS.max_delivery_count,
        requires_session=given.requires_session,
        dead_letter_on_expiration=given.dead_lettering_on_message_expiration,
        forward_dead_letters_to=given.forward_dead_lettered_messages_to or None,
    )
    if isinstance(given, _QueueProperties):
        return settings
    return msgspec.structs.replace(
        settings,
        status=_status(given.status, SubscriptionStatus, place),
        default_time_to_live_ms=_ms(given.default_message_time_to_live, place, "DefaultMessageTimeToLive"),
        auto_delete_on_idle_ms=_ms(given.auto_delete_on_idle, place, "AutoDeleteOnIdle"),
        user_metadata=given.user_metadata,
    )


def _subscription(given: _Subscription, place: str) -> SubscriptionDeclaration:
    place = f"{place}, subscription {given.name!r}"
    return SubscriptionDeclaration(
        given.name,
        settings=_delivery(given.properties, place),
        dead_letter_on_errors=given.properties.dead_lettering_on_filter_evaluation_exceptions,
        forward_to=given.properties.forward_to or None,
        rules=tuple(_rule(each, place) for each in given.rules) if given.rules else _DEFAULT_DEFINITIONS,
    )


_DEFAULT_DEFINITIONS = tuple(rule.definition for rule in DEFAULT_RULES)


def _rule(given: _Rule, place: str) -> RuleDefinition:
    place = f"{place}, rule {given.name!r}"
    properties = given.properties
    action = None if properties.action is None else properties.action.sql_expression
    match properties.filter_type.lower():
        case "sql":
            if properties.sql_filter is None or properties.correlation_filter is not None:
                raise ConfigError(f"{place}: FilterType is Sql; expected SqlFilter beside it, and no other")
            return RuleDefinition(given.name, sql=properties.sql_filter.sql_expression, action=action)
        case "correlation":
            if properties.correlation_filter is None or properties.sql_filter is not None:
                raise ConfigError(
                    f"{place}: FilterType is Correlation; expected CorrelationFilter beside it, and no other"
                )
            found = properties.correlation_filter
            values = {name: getattr(found, name) for name in found.__struct_fields__}
            correlation = {name: value for name, value in values.items() if value not in (None, {})}
            return RuleDefinition(given.name, correlation=correlation, action=action)
    raise ConfigError(f"{place}: found the FilterType {properties.filter_type!r}, expected Sql or Correlation")


def _ms(text: str | None, place: str, name: str) -> int | None:
    if not text:
        return None
    try:
        return duration_ms(text)
    except ConfigError as error:
        raise ConfigError(f"{place}, {name}: {error}") from error


def _status(text: str | None, kind: type[_KINDS], place: str) -> _KINDS:
    values = {_STATUS_NAMES[each.value]: each for each in kind}
    found = values.get(text or "Active")
    if found is None:
        raise ConfigError(f"{place}, Status: found {text!r}, expected one of {', '.join(values)}")
    return found


def to_emulator(declarations: Sequence[EntityDeclaration]) -> dict[str, Any]:
    """The emulator's file for these entities.

    Authorization rules, backoffs and properties that are only kept are left out. Raises ConfigError for settings that
    the file cannot express and that change who gets which messages: rules in other languages or with parameters,
    subscriptions without rules, and fall-through subscriptions.
    """
    queues = [_told_queue(each) for each in declarations if each.settings.kind is TopicKind.QUEUE]
    topics = [_told_topic(each) for each in declarations if each.settings.kind is TopicKind.TOPIC]
    namespace = _Namespace(name=NAMESPACE, queues=queues, topics=topics)
    file = _File(user_config=_UserConfig(namespaces=[namespace], logging={"Type": "File"}))
    told: dict[str, Any] = msgspec.to_builtins(file)
    told["UserConfig"]["Namespaces"][0] = {"Name": NAMESPACE} | told["UserConfig"]["Namespaces"][0]
    return told


def _told_queue(declared: EntityDeclaration) -> _Queue:
    delivery = declared.delivery
    return _Queue(
        name=declared.name,
        properties=_QueueProperties(
            **_told_of_topic(declared),
            **_told_delivery(delivery),
            forward_to=declared.forward_to,
        ),
    )


def _told_topic(declared: EntityDeclaration) -> _Topic:
    return _Topic(
        name=declared.name,
        properties=_TopicProperties(**_told_of_topic(declared)),
        subscriptions=[_told_subscription(each, declared.name) for each in declared.subscriptions],
    )


def _told_of_topic(declared: EntityDeclaration) -> dict[str, Any]:
    settings, default = declared.settings, TopicSettings()
    window_ms = settings.duplicate_detection_window_ms
    return {
        "default_message_time_to_live": _text(settings.default_time_to_live_ms),
        "duplicate_detection_history_time_window": (
            None if window_ms == default.duplicate_detection_window_ms else duration_text(window_ms)
        ),
        "requires_duplicate_detection": settings.requires_duplicate_detection,
        "max_size_in_megabytes": declared.max_size_megabytes,
        "status": _told_status(settings.status),
        "auto_delete_on_idle": _text(settings.auto_delete_on_idle_ms),
        "user_metadata": settings.user_metadata,
    }


def _told_delivery(settings: SubscriptionSettings) -> dict[str, Any]:
    return {
        "dead_lettering_on_message_expiration": settings.dead_letter_on_expiration,
        "lock_duration": duration_text(settings.lock_ms),
        "max_delivery_count": settings.max_delivery_count,
        "forward_dead_lettered_messages_to": settings.forward_dead_letters_to,
        "requires_session": settings.requires_session,
    }


def _told_subscription(declared: SubscriptionDeclaration, topic: str) -> _Subscription:
    settings = declared.settings
    place = f"topic {topic!r}, subscription {declared.name!r}"
    if not declared.rules:
        raise ConfigError(f"{place}: found no rules, which the emulator's file cannot say")
    return _Subscription(
        name=declared.name,
        properties=_SubscriptionProperties(
            **_told_delivery(settings),
            dead_lettering_on_filter_evaluation_exceptions=declared.dead_letter_on_errors,
            default_message_time_to_live=_text(settings.default_time_to_live_ms),
            forward_to=declared.forward_to,
            status=_told_status(settings.status),
            auto_delete_on_idle=_text(settings.auto_delete_on_idle_ms),
            user_metadata=settings.user_metadata,
        ),
        rules=None if declared.rules == _DEFAULT_DEFINITIONS else [_told_rule(each, place) for each in declared.rules],
    )


def _told_rule(rule: RuleDefinition, place: str) -> _Rule:
    place = f"{place}, rule {rule.name!r}"
    if rule.parameters:
        raise ConfigError(f"{place}: found parameters, which the emulator's file cannot say")
    action = None if rule.action is None else _Expression(sql_expression=rule.action)
    if rule.servicebus_sql is not None:
        expression = _Expression(sql_expression=rule.servicebus_sql)
        properties = _RuleProperties(filter_type="Sql", sql_filter=expression, action=action)
        return _Rule(name=rule.name, properties=properties)
    if rule.correlation is not None:
        conditions = dict(rule.correlation)
        conditions["properties"] = _plain(conditions.get("properties") or {}, place)
        return _Rule(
            name=rule.name,
            properties=_RuleProperties(
                filter_type="Correlation", correlation_filter=_CorrelationFilter(**conditions), action=action
            ),
        )
    raise ConfigError(f"{place}: found the filter {rule.filter_text}, which the emulator's file cannot say")


def _plain(values: dict[str, Any], place: str) -> dict[str, Any]:
    """The values of a correlation filter as plain JSON; typed ones only if JSON can express them."""
    plain = {}
    for name, value in values.items():
        found = from_plain_or_typed(value)
        found = getattr(found, "value", found)
        if not isinstance(found, str | int | float | bool):
            raise ConfigError(f"{place}: found a value of {name!r} which the emulator's file cannot say")
        plain[name] = found
    return plain


def _text(ms: int | None) -> str | None:
    return None if ms is None else duration_text(ms)


def _told_status(status: TopicStatus | SubscriptionStatus) -> str | None:
    return None if status == "active" else _STATUS_NAMES[status]
