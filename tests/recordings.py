"""The recorded cases of the original systems, under `tests/vectors`, as messages and filters."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.evaluate import Filter
from headgate.language.servicebus import system_property, time_span
from headgate.message import NULL, AmqpType, AmqpValue, FieldReference, Message, Section, stored_message, timestamp_ms

VECTORS = Path(__file__).parent / "vectors"

_TYPES = {
    "byte": AmqpType.BYTE,
    "short": AmqpType.SHORT,
    "int": AmqpType.INT,
    "long": AmqpType.LONG,
    "float": AmqpType.FLOAT,
    "double": AmqpType.DOUBLE,
    "bool": AmqpType.BOOLEAN,
    "string": AmqpType.STRING,
}


def lines_of(name: str) -> list[dict[str, Any]]:
    """The lines of a table."""
    with (VECTORS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(slots=True)
class PropertyMaps:
    """The property maps of a table of RocketMQ, as messages. Stored messages have no empty values; some maps have."""

    messages: list[bytes] = field(default_factory=list)
    has_empty_value: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[dict[str, Any]]) -> PropertyMaps:
        maps = cls()
        for row in (row for row in rows if row["kind"] == "map"):
            properties = row.get("props") or {name: _of_text(**given) for name, given in row.get("typed", {}).items()}
            maps.messages.append(stored_message(properties).encode())
            empty = ("", AmqpValue(AmqpType.STRING, ""))
            maps.has_empty_value.append(any(value in empty for value in properties.values()))
        return maps


def _of_text(t: str, v: str) -> AmqpValue:
    value: object = v
    if t == "bool":
        value = {"true": True, "false": False}[v]
    elif t != "string":
        value = float(v) if t in ("float", "double") else int(v)
    return AmqpValue(_TYPES[t], value)


def servicebus_message(row: dict[str, Any]) -> Message:
    """The message of a case of Service Bus."""
    message = Message(b"", application_properties={name: typed(given) for name, given in row["props"].items()})
    for name, text in row["sys"].items():
        kind = AmqpType.SYMBOL if name.lower() == "contenttype" else AmqpType.STRING
        message = message.with_changes([(system_field(name), AmqpValue(kind, text))])
    return message


def system_field(name: str) -> FieldReference:
    """Where a message has a system property of Service Bus."""
    found = system_property(name)
    assert found is not None and found.reference is not None
    return found.reference


def user_field(name: str) -> FieldReference:
    """Where a message has a property of a name in any letter case."""
    return FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode(), ignore_case=True)


def typed(given: dict[str, Any]) -> AmqpValue:
    """A property, a parameter or a condition: `{"t": type, "v": value}`."""
    value: Any = given.get("v")
    match given["t"]:
        case "null":
            return NULL
        case "guid":
            return AmqpValue(AmqpType.UUID, uuid.UUID(value))
        case "datetime":
            return AmqpValue(AmqpType.TIMESTAMP, timestamp_ms(datetime.datetime.fromisoformat(value)))
        case "timespan_seconds":
            return time_span(round(value * 10_000_000))
        case "double" | "float" as kind:
            return AmqpValue(_TYPES[kind], float(value))
        case kind:
            return AmqpValue(_TYPES[kind], value)


def servicebus_filter(row: dict[str, Any]) -> Filter:
    """The SQL filter or correlation filter of a case, or of a rule."""
    conditions = row.get("filter", row.get("correlation"))
    if conditions is None:
        text = row["expression"] if "expression" in row else row["sql"]
        parameters = {name: typed(given) for name, given in row.get("params", {}).items()}
        return Filter.parse(text, "servicebus", parameters=parameters)
    given = dict(conditions)
    if "properties" in given:
        given["properties"] = {name: typed(value) for name, value in given["properties"].items()}
    return Filter.from_correlation(**given)
