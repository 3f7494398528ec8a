"""Property filters of an AMQP receiver: maps of wanted values → the same bound trees that filter texts give.

Source: rabbitmq_filters, section 3. All entries of a map must match. The equality of property filters is the `=` of the
dialect `rabbitmq`; an affix test compares bytes, and a null asks for the key alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from headgate.errors import ConfigError, FilterError, FilterLimitError, FilterTypeError
from headgate.language import tree as t
from headgate.language.values import value_of
from headgate.message import PROPERTIES_FIELDS, AmqpType, AmqpValue, FieldReference, Section, amqp_value, timestamp_ms

MAX_ENTRIES = 16
"""Entries of one map; none at all is refused too."""

Entries: TypeAlias = "Sequence[tuple[AmqpValue, AmqpValue]]"
"""Keys and values of a filter map, in order; a key may occur more than once."""

_IDENTIFIER = (AmqpType.STRING, AmqpType.ULONG, AmqpType.UUID, AmqpType.BINARY)
_TEXT = (AmqpType.STRING,)
_FIELD_TYPES: dict[str, tuple[AmqpType, ...]] = {
    "message-id": _IDENTIFIER,
    "user-id": (AmqpType.BINARY,),
    "to": _TEXT,
    "subject": _TEXT,
    "reply-to": _TEXT,
    "correlation-id": _IDENTIFIER,
    "content-type": (AmqpType.SYMBOL,),
    "content-encoding": (AmqpType.SYMBOL,),
    "absolute-expiry-time": (AmqpType.TIMESTAMP,),
    "creation-time": (AmqpType.TIMESTAMP,),
    "group-id": _TEXT,
    "group-sequence": (AmqpType.UINT,),
    "reply-to-group-id": _TEXT,
}


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """A map as a filter: `text` displays it, and the spans of `tree` are the places of its entries in `text`."""

    text: str
    tree: t.Node


def properties_filter(entries: Entries) -> PropertyFilter:
    """The filter of a properties-filter map: symbol keys, values of exactly the type of the field.

    Raises FilterTypeError and FilterLimitError; one bad entry refuses the map.
    """
    map_text = _MapText("properties", entries)
    return map_text.conjunction([_property_test(map_text, index) for index in range(len(entries))])


def application_properties_filter(entries: Entries) -> PropertyFilter:
    """The filter of an application-properties-filter map: string keys, values of any type; null asks for the key alone.

    Raises FilterTypeError and FilterLimitError; one bad entry refuses the map.
    """
    map_text = _MapText("application-properties", entries)
    return map_text.conjunction([_application_property_test(map_text, index) for index in range(len(entries))])


def joined(filters: Sequence[PropertyFilter]) -> tuple[str, t.Node]:
    """One or more property filters as one text and one tree, all required."""
    text = ""
    trees: list[t.Node] = []
    for part in filters:
        text += "; " if text else ""
        trees.append(t.shifted(part.tree, len(text)))
        text += part.text
    return text, trees[0] if len(trees) == 1 else t.And(tuple(trees), (0, len(text)))


def properties_entries(wanted: Mapping[str, object]) -> Entries:
    """A properties-filter map from plain Python values, given the type that the field has.

    Names may be spelled with underscores. An int is a ulong, uint or timestamp, a str a string or symbol, a datetime a
    timestamp; `AmqpValue` stays as it is. Raises ConfigError.
    """
    entries = []
    for given, value in wanted.items():
        name = given.replace("_", "-")
        types = _FIELD_TYPES.get(name)
        if types is None:
            raise ConfigError(f"found property {given!r}, expected one of {', '.join(_FIELD_TYPES)}")
        typed = value if isinstance(value, AmqpValue) else _typed(given, value, types)
        entries.append((AmqpValue(AmqpType.SYMBOL, name), typed))
    return entries


def application_properties_entries(wanted: Mapping[str, object]) -> Entries:
    """An application-properties-filter map from plain Python values or `AmqpValue`. Raises ConfigError."""
    return [(AmqpValue(AmqpType.STRING, name), amqp_value(value)) for name, value in wanted.items()]


_PLAIN_TYPES: tuple[tuple[type, tuple[AmqpType, ...]], ...] = (
    (str, (AmqpType.STRING, AmqpType.SYMBOL)),
    (bytes, (AmqpType.BINARY,)),
    (uuid.UUID, (AmqpType.UUID,)),
    (int, (AmqpType.ULONG, AmqpType.UINT, AmqpType.TIMESTAMP)),
)


def _typed(name: str, value: object, types: tuple[AmqpType, ...]) -> AmqpValue:
    plain = timestamp_ms(value) if isinstance(value, datetime) else value
    for kind, candidates in _PLAIN_TYPES:
        if isinstance(plain, kind) and not isinstance(plain, bool):
            for candidate in candidates:
                if candidate in types:
                    return AmqpValue(candidate, plain)
    raise ConfigError(f"property {name!r}: found {value!r}, expected a value of type {_listed(types)}")


class _MapText:
    """The display text of a map with the span of each entry, so that an error can point at one."""

    def __init__(self, kind: str, entries: Entries) -> None:
        self.kind = kind
        self.entries = entries
        self.text = ""
        self.spans: list[t.Span] = []
        for key, value in entries:
            self.text += ", " if self.text else ""
            start = len(self.text)
            self.text += f"{key.value}: {value.type.value} {value.value!r}"
            self.spans.append((start, len(self.text)))
        if not 1 <= len(entries) <= MAX_ENTRIES:
            reason = f"the map has {len(entries)} entries, expected 1 to {MAX_ENTRIES}"
            raise FilterLimitError(reason, dialect=kind, text=self.text, span=(0, len(self.text)))

    def error(self, index: int, reason: str) -> FilterError:
        return FilterTypeError(reason, dialect=self.kind, text=self.text, span=self.spans[index])

    def conjunction(self, tests: list[t.Node]) -> PropertyFilter:
        tree = tests[0] if len(tests) == 1 else t.And(tuple(tests), (0, len(self.text)))
        return PropertyFilter(self.text, tree)


def _property_test(map_text: _MapText, index: int) -> t.Node:
    key, value = map_text.entries[index]
    types = _FIELD_TYPES.get(key.value) if key.type is AmqpType.SYMBOL else None
    if types is None:
        raise map_text.error(index, f"found key {_shown(key)}, expected a symbol, one of {', '.join(_FIELD_TYPES)}")
    if value.type not in types:
        raise map_text.error(index, f"{key.value} is compared with {_listed(types)}, found {_shown(value)}")
    field = FieldReference(Section.PROPERTIES, position=PROPERTIES_FIELDS.index(key.value))
    return _test(map_text, index, field, value)


def _application_property_test(map_text: _MapText, index: int) -> t.Node:
    key, value = map_text.entries[index]
    octets = key.octets() if key.type is AmqpType.STRING else None
    if octets is None:
        raise map_text.error(index, f"found key {_shown(key)}, expected a string")
    field = FieldReference(Section.APPLICATION_PROPERTIES, key=octets)
    if value.type is AmqpType.NULL:
        return t.HasSimple(t.Field(field, span=map_text.spans[index]), map_text.spans[index])
    return _test(map_text, index, field, value)


def _test(map_text: _MapText, index: int, reference: FieldReference, value: AmqpValue) -> t.Node:
    span = map_text.spans[index]
    field = t.Field(reference, span=span)
    wanted = value_of(value)
    if wanted is None:
        return t.Constant(False, span)
    if value.type is AmqpType.STRING and isinstance(wanted, bytes) and wanted.startswith(b"&"):
        if wanted.startswith(b"&p:"):
            return t.Like(field, t.LikePattern(t.LikeShape.PREFIX, prefix=wanted[3:]), span=span)
        if wanted.startswith(b"&s:"):
            return t.Like(field, t.LikePattern(t.LikeShape.SUFFIX, suffix=wanted[3:]), span=span)
        if not wanted.startswith(b"&&"):
            raise map_text.error(index, f"found {value.value!r}, expected &p:…, &s:… or && behind a leading &")
        wanted = wanted[1:]
    return t.Compare(t.CompareOperator.EQUAL, field, t.Constant(wanted, span), span=span)


def _listed(types: tuple[AmqpType, ...]) -> str:
    return " or ".join(kind.value for kind in types)


def _shown(value: AmqpValue) -> str:
    return f"{value.type.value} {value.value!r}" if value.type is not AmqpType.NULL else "null"
