"""From a message to the values of its columns, one at a time: the oracle of the kernels, and the decoder of rare rows.

A value that does not fit a column is null there, in every column the same way:

- bytes that are not an AMQP message: null in all columns but `message`;
- a section (or the body) that does not decode: null in its column;
- a field or declared property of another type than its column takes (the tables below): null in that field;
- text that is not UTF-8: null in a field, binary in a VARIANT.

`header` and `properties` take exactly the standard's types; the string fields of properties also take symbols and the
symbol fields also strings. An id (message_id, correlation_id) is text: a string as it is, uuid in canonical form, ulong
in decimal, binary in hexadecimal. A timestamp whose microseconds pass 64 bits is null.

| declared       | takes                                                                          |
| -------------- | ------------------------------------------------------------------------------ |
| string         | string, symbol, char                                                           |
| binary         | binary                                                                         |
| boolean        | boolean                                                                        |
| tinyint … bigint, decimal(p,0) | any integer type, when the value is in the column's range      |
| double         | double, float; integers up to ±2^53                                            |
| float          | float; integers up to ±2^24                                                    |
| timestamp      | timestamp                                                                      |

A value that a declared property does not take, and that is not the AMQP null, is a *mismatch*. `conversions` lists the
conversions on request; a value that is null all the same stays a mismatch.

Of equal keys the first counts. `body` is the data sections joined, or the bytes of a string, symbol or binary value;
null for another body and for none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from headgate.errors import MessageError
from headgate.message.arrow.decode.conversions import converted
from headgate.message.arrow.schema import (
    HEADER_TYPES,
    INTEGER_RANGES,
    PROPERTIES_TYPES,
    DeclaredColumn,
    DeclaredProperty,
    Mismatches,
    SparkType,
)
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section
from headgate.message.message import Message
from headgate.message.types import INTEGER_RANGES as AMQP_RANGES
from headgate.message.types import AmqpValue
from headgate.message.variant import HIGHEST_MILLISECOND, encode_variant

Cell = Any
"""A value as `pyarrow.array` takes it for the type of its column."""

_IDS = ("message_id", "correlation_id")
_INTEGERS = frozenset(AMQP_RANGES) - {AmqpType.CHAR, AmqpType.TIMESTAMP}

_FIELD_TYPES: dict[SparkType, tuple[AmqpType, ...]] = {
    SparkType.BOOLEAN: (AmqpType.BOOLEAN,),
    SparkType.SMALLINT: (AmqpType.UBYTE,),
    SparkType.BIGINT: (AmqpType.UINT,),
    SparkType.TIMESTAMP: (AmqpType.TIMESTAMP,),
    SparkType.BINARY: (AmqpType.BINARY,),
    SparkType.STRING: (AmqpType.STRING, AmqpType.SYMBOL),
}
"""The types that a field of header or properties takes, but for ids."""

_DECLARED_TYPES: dict[SparkType, tuple[AmqpType, ...]] = {
    SparkType.BOOLEAN: (AmqpType.BOOLEAN,),
    SparkType.TIMESTAMP: (AmqpType.TIMESTAMP,),
    SparkType.BINARY: (AmqpType.BINARY,),
    SparkType.STRING: (AmqpType.STRING, AmqpType.SYMBOL, AmqpType.CHAR),
}
"""The types that declared properties take, but for numbers."""


def column_values(
    messages: Iterable[bytes],
    column: str,
    properties: tuple[DeclaredProperty, ...] | None,
    *,
    cast: bool = False,
    mismatches: Mismatches | None = None,
) -> Iterator[Cell]:
    """The cells of one column; `cast` and `mismatches` as for `columns_of`."""
    noted = Mismatches() if mismatches is None else mismatches
    if column == "application_properties" and properties is not None:
        for row, data in enumerate(messages):
            cells, left = _declared(data, properties, cast=cast)
            noted.add(row, len(left))
            yield cells
        return
    read = _reader(column)
    for data in messages:
        try:
            yield read(data)
        except MessageError:
            yield None


def mismatches_in(
    message: bytes, properties: tuple[DeclaredProperty, ...], *, cast: bool = False
) -> list[tuple[DeclaredProperty, AmqpValue]]:
    """The declared properties of a message that are null because of the value they have, with that value."""
    return _declared(message, properties, cast=cast)[1]


def field_value(message: bytes, declared: DeclaredColumn) -> Cell:
    """The cell of a column that holds one field; keys of annotations are symbols."""
    try:
        if declared.section in (Section.HEADER, Section.PROPERTIES):
            kinds = HEADER_TYPES if declared.section is Section.HEADER else PROPERTIES_TYPES
            return (_fields(message, declared.section, kinds) or {}).get(declared.field)
        decoded = Message.decode(message).section(declared.section)
    except MessageError:
        return None
    if decoded is None:
        return None
    keys = AmqpType.SYMBOL if declared.section is Section.MESSAGE_ANNOTATIONS else AmqpType.STRING
    wanted = declared.field.encode()
    for key, value in decoded.value:
        if key.type is keys and key.octets() == wanted:
            return _taken(value, DeclaredProperty(declared.field, declared.kind, declared.precision))
    return None


def _reader(column: str) -> Callable[[bytes], Cell]:
    if column == "message":
        return bytes
    if column == "body":
        return _body
    if column == "header":
        return lambda data: _fields(data, Section.HEADER, HEADER_TYPES)
    if column == "properties":
        return lambda data: _fields(data, Section.PROPERTIES, PROPERTIES_TYPES)
    if column == "message_annotations":
        return lambda data: _variant(data, Section.MESSAGE_ANNOTATIONS)
    return lambda data: _variant(data, Section.APPLICATION_PROPERTIES)


def _body(data: bytes) -> bytes | None:
    body = Message.decode(data).body
    return None if body is None else body.octets()


def _variant(data: bytes, section: Section) -> dict[str, bytes] | None:
    decoded = Message.decode(data).section(section)
    if decoded is None:
        return None
    value, metadata = encode_variant(decoded.value)
    return {"value": value, "metadata": metadata}


def _fields(data: bytes, section: Section, kinds: dict[str, SparkType]) -> dict[str, Cell] | None:
    decoded = Message.decode(data).section(section)
    if decoded is None:
        return None
    return {
        name: _id_text(value) if name in _IDS else _plain(value, _FIELD_TYPES[kind])
        for (name, kind), value in zip(kinds.items(), decoded.value, strict=False)
    }


def _id_text(typed: AmqpValue) -> str | None:
    if typed.type is AmqpType.STRING:
        return typed.text()
    if typed.type is AmqpType.BINARY:
        return bytes(typed.value).hex()
    return str(typed.value) if typed.type in (AmqpType.UUID, AmqpType.ULONG) else None


def _declared(
    data: bytes, properties: tuple[DeclaredProperty, ...], *, cast: bool
) -> tuple[dict[str, Cell] | None, list[tuple[DeclaredProperty, AmqpValue]]]:
    """The cell of a message, and the mismatches in it."""
    try:
        decoded = Message.decode(data).section(Section.APPLICATION_PROPERTIES)
    except MessageError:
        decoded = None
    if decoded is None:
        return None, []
    values: dict[bytes | None, AmqpValue] = {}
    cells: dict[str, Cell] = {}
    left = []
    for key, value in decoded.value:
        if key.type is AmqpType.STRING:
            values.setdefault(key.octets(), value)
    for declared in properties:
        value = values.get(declared.name.encode())
        cell = None if value is None else _taken(value, declared)
        if value is not None and cell is None and value.type is not AmqpType.NULL:
            cell = converted(value, declared) if cast else None
            if cell is None:
                left.append((declared, value))
        cells[declared.name] = cell
    return cells, left


def _taken(typed: AmqpValue, declared: DeclaredProperty) -> Cell:
    kind = declared.kind
    if kind in _DECLARED_TYPES:
        return _plain(typed, _DECLARED_TYPES[kind])
    if kind in (SparkType.DOUBLE, SparkType.FLOAT):
        is_float = typed.type is AmqpType.FLOAT or (typed.type is AmqpType.DOUBLE and kind is SparkType.DOUBLE)
        if not is_float and (
            typed.type not in _INTEGERS or abs(typed.value) > (2**53 if kind is SparkType.DOUBLE else 2**24)
        ):
            return None
        return float(typed.value)
    if typed.type not in _INTEGERS:
        return None
    if kind is SparkType.DECIMAL:
        return Decimal(typed.value) if abs(typed.value) < 10**declared.precision else None
    low, high = INTEGER_RANGES[kind]
    return typed.value if low <= typed.value <= high else None


def _plain(typed: AmqpValue, accepted: tuple[AmqpType, ...]) -> Cell:
    if typed.type not in accepted:
        return None
    if typed.type is AmqpType.TIMESTAMP:
        return typed.value * 1000 if abs(typed.value) <= HIGHEST_MILLISECOND else None
    return typed.text() if typed.type in _DECLARED_TYPES[SparkType.STRING] else typed.value
