"""Rules in requests and in responses of Service Bus: servicebus_wire, section 7.

A client describes a rule by a map; a response has a list with a number as its descriptor, and so for filter and action
in it. True and false filters are sent as SQL, and come back as true and false filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.errors import ConfigError
from headgate.message import NULL, AmqpType, AmqpValue, Described
from headgate.protocols.servicebus.arguments import optional_map, optional_text, text

RULE, EMPTY_ACTION, SQL_ACTION = (0x137 << 32 | kind for kind in (4, 5, 6))
SQL_FILTER, TRUE_FILTER, FALSE_FILTER, CORRELATION_FILTER = (0x137 << 28 | kind for kind in (6, 7, 8, 9))
"""Descriptors; in descriptors of filters the vendor's part is four bits lower."""

CORRELATION_FIELDS = (
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "label",
    "session-id",
    "reply-to-session-id",
    "content-type",
)
"""The conditions of a correlation filter on system properties, in the order of responses."""

COMPATIBILITY_LEVEL = 20
"""The version of the language of filters and actions; there is one."""

_CONSTANT = {"1=1": TRUE_FILTER, "1=0": FALSE_FILTER}


@dataclass(frozen=True, slots=True)
class CorrelationDescription:
    """Conditions of a correlation filter: `fields` by the names of `CORRELATION_FIELDS`, `properties` with types."""

    fields: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, AmqpValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A rule: its filter is a text or conditions; `action` is None where it asks for the message as it is.

    `parameters` are the values of `@name` in both texts. `created_ms` is set in responses.
    """

    name: str
    filter: str | CorrelationDescription
    action: str | None = None
    parameters: Mapping[str, AmqpValue] = field(default_factory=dict)
    created_ms: int | None = None


def read_rule(name: str, described: Mapping[str, AmqpValue]) -> RuleDescription:
    """The rule that a map describes. Raises ConfigError for one without exactly one filter, and for wrong types."""
    sql, correlation = optional_map(described, "sql-filter"), optional_map(described, "correlation-filter")
    if (sql is None) is (correlation is None):
        raise ConfigError("a rule has one filter, sql-filter or correlation-filter")
    action = optional_map(described, "sql-rule-action")
    return RuleDescription(
        name,
        text(sql, "expression") if sql is not None else _read_correlation(correlation or {}),
        None if action is None else optional_text(action, "expression"),
    )


def _read_correlation(given: Mapping[str, AmqpValue]) -> CorrelationDescription:
    found = {name: optional_text(given, name) for name in CORRELATION_FIELDS}
    fields = {name: value for name, value in found.items() if value is not None}
    return CorrelationDescription(fields, optional_map(given, "properties") or {})


def told_rule(rule: RuleDescription) -> AmqpValue:
    """The description of a rule in responses."""
    fields = [_told_filter(rule.filter), _told_action(rule.action), AmqpValue(AmqpType.STRING, rule.name)]
    if rule.created_ms is not None:
        fields.append(AmqpValue(AmqpType.TIMESTAMP, rule.created_ms))
    return _described(RULE, *fields)


def _told_filter(given: str | CorrelationDescription) -> AmqpValue:
    if isinstance(given, str):
        constant = _CONSTANT.get("".join(given.split()))
        if constant is not None:
            return _described(constant)
        return _described(SQL_FILTER, AmqpValue(AmqpType.STRING, given), AmqpValue(AmqpType.INT, COMPATIBILITY_LEVEL))
    fields = [_string(given.fields.get(name)) for name in CORRELATION_FIELDS]
    properties = tuple((AmqpValue(AmqpType.STRING, name), value) for name, value in given.properties.items())
    return _described(CORRELATION_FILTER, *fields, AmqpValue(AmqpType.MAP, properties))


def _told_action(action: str | None) -> AmqpValue:
    if action is None:
        return _described(EMPTY_ACTION)
    level = AmqpValue(AmqpType.INT, COMPATIBILITY_LEVEL)
    return _described(SQL_ACTION, AmqpValue(AmqpType.STRING, action), level)


def _described(descriptor: int, *fields: AmqpValue) -> AmqpValue:
    return AmqpValue(
        AmqpType.DESCRIBED, Described(AmqpValue(AmqpType.ULONG, descriptor), AmqpValue(AmqpType.LIST, fields))
    )


def _string(value: str | None) -> AmqpValue:
    return NULL if value is None else AmqpValue(AmqpType.STRING, value)
