"""Conversion of rules between the broker's definitions and the clients' descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.broker import EntityRule
from headgate.message import AmqpValue, amqp_value, from_plain_or_typed, to_json
from headgate.protocols.servicebus import CORRELATION_FIELDS, CorrelationDescription, RuleDescription
from headgate.topic import RuleDefinition


def rule_definition(rule: RuleDescription) -> RuleDefinition:
    """The definition of a described rule; values keep their types."""
    parameters = _written(rule.parameters) or None
    if isinstance(rule.filter, str):
        return RuleDefinition(rule.name, sql=rule.filter, action=rule.action, parameters=parameters)
    correlation: dict[str, Any] = {name.replace("-", "_"): text for name, text in rule.filter.fields.items()}
    if rule.filter.properties:
        correlation["properties"] = _written(rule.filter.properties)
    return RuleDefinition(rule.name, correlation=correlation, action=rule.action, parameters=parameters)


def rule_description(rule: EntityRule) -> RuleDescription:
    """The description of a rule for clients. Filters that Service Bus does not have are described by their text."""
    definition = rule.definition
    told: str | CorrelationDescription
    if definition.correlation is not None:
        fields = {name: definition.correlation.get(name.replace("-", "_")) for name in CORRELATION_FIELDS}
        told = CorrelationDescription(
            {name: text for name, text in fields.items() if text is not None},
            _values(definition.correlation.get("properties")),
        )
    else:
        told = definition.servicebus_sql or definition.filter_text
    return RuleDescription(
        definition.name, told, definition.action, _values(definition.parameters), created_ms=rule.created_ms
    )


def _written(values: Mapping[str, AmqpValue]) -> dict[str, Any]:
    return {name: to_json(value) for name, value in values.items()}


def _values(written: Mapping[str, Any] | None) -> dict[str, AmqpValue]:
    return {name: amqp_value(from_plain_or_typed(value)) for name, value in (written or {}).items()}
