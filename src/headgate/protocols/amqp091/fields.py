"""Field tables of AMQP 0.9.1: named, typed values in the arguments of methods and in the headers of messages.

    table   size uint32, then per field: name (short string), type octet, value
    array   size uint32, then per value: type octet, value

What `Field.value` holds, by type: bool; int for integers and `timestamp` (seconds since 1970, signed as in RabbitMQ);
float; bytes for `longstr` and `binary`; (scale, unscaled) for `decimal`; None for `void`; a tuple of fields for
`array`, a `Table` for `table`. Names are text; bytes that are not UTF-8 are surrogate escapes. Decoding keeps the exact
types, so that values are delivered as they were published.

Source: AMQP 0-9-1, section 4.2.5, with the type octets that RabbitMQ has.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091.codes import ReplyCode

MAX_DEPTH = 30
"""Limit: nesting of tables and arrays; deeper ones are refused. Stored values stay below `message`'s limit."""


class FieldType(enum.IntEnum):
    """The types by their octet."""

    BOOLEAN = ord("t")
    BYTE = ord("b")
    UNSIGNED_BYTE = ord("B")
    SHORT = ord("s")
    UNSIGNED_SHORT = ord("u")
    INT = ord("I")
    UNSIGNED_INT = ord("i")
    LONG = ord("l")
    FLOAT = ord("f")
    DOUBLE = ord("d")
    DECIMAL = ord("D")
    TIMESTAMP = ord("T")
    LONG_STRING = ord("S")
    BINARY = ord("x")
    ARRAY = ord("A")
    TABLE = ord("F")
    VOID = ord("V")


class Field(msgspec.Struct, frozen=True):
    """One typed value; see the head of this module for what `value` holds."""

    type: FieldType
    value: Any


Table: TypeAlias = dict[str, Field]
"""Fields by name, in the order of the table; of equal names the first counts."""

INTEGERS = frozenset(
    {
        FieldType.BYTE,
        FieldType.UNSIGNED_BYTE,
        FieldType.SHORT,
        FieldType.UNSIGNED_SHORT,
        FieldType.INT,
        FieldType.UNSIGNED_INT,
        FieldType.LONG,
    }
)
"""Types that hold an integer; a timestamp does not count."""

_NUMBERS: dict[int, struct.Struct] = {
    FieldType.BYTE: struct.Struct(">b"),
    FieldType.UNSIGNED_BYTE: struct.Struct(">B"),
    FieldType.SHORT: struct.Struct(">h"),
    FieldType.UNSIGNED_SHORT: struct.Struct(">H"),
    FieldType.INT: struct.Struct(">i"),
    FieldType.UNSIGNED_INT: struct.Struct(">I"),
    FieldType.LONG: struct.Struct(">q"),
    FieldType.FLOAT: struct.Struct(">f"),
    FieldType.DOUBLE: struct.Struct(">d"),
    FieldType.TIMESTAMP: struct.Struct(">q"),
}
_DECIMAL = struct.Struct(">BI")
_TYPES: dict[int, FieldType] = {int(kind): kind for kind in FieldType} | {ord("L"): FieldType.LONG}
"""`L` is a second octet for the standard's `l`: py-amqp (kombu, Celery) writes it beyond 32 bits, RabbitMQ reads it."""
_SIZE = struct.Struct(">I")


def long_string(text: str | bytes) -> Field:
    """A text as a field of type long string."""
    return Field(FieldType.LONG_STRING, text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)


def boolean(value: bool) -> Field:
    """A truth value."""
    return Field(FieldType.BOOLEAN, value)


def long(value: int) -> Field:
    """An integer of 64 bits."""
    return Field(FieldType.LONG, value)


def table(fields: Mapping[str, Field]) -> Field:
    """A table as a value in another one."""
    return Field(FieldType.TABLE, dict(fields))


def plain_table(fields: Table) -> dict[str, object]:
    """Fields as plain values: texts, numbers, booleans, lists, dictionaries; bytes where they are no text."""
    return {name: plain_value(field) for name, field in fields.items()}


def plain_value(field: Field) -> object:
    """One field as a plain value."""
    value = field.value
    if field.type is FieldType.LONG_STRING:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if field.type is FieldType.TABLE:
        return plain_table(value)
    if field.type is FieldType.ARRAY:
        return [plain_value(member) for member in value]
    if field.type is FieldType.DECIMAL:
        scale, unscaled = value
        return unscaled / 10**scale
    return value


def decode_table(data: bytes, position: int, stop: int, *, depth: int = 0) -> tuple[Table, int]:
    """The table whose size is at `position`, and the position after it.

    Raises `RemoteProtocolError` (502) for bytes that are no table, or for tables nested deeper than `MAX_DEPTH`.
    """
    position, end = _sized(data, position, stop, depth)
    fields: Table = {}
    while position < end:
        name_end = position + 1 + data[position]
        if name_end >= end:
            raise _syntax_error("a field without value")
        name = data[position + 1 : name_end].decode("utf-8", "surrogateescape")
        value, position = _decode_field(data, name_end, end, depth)
        fields.setdefault(name, value)
    return fields, position


def encoded_table(data: bytes, position: int, stop: int) -> bytes:
    """The bytes of the table whose size is at `position`, its size included. Raises `RemoteProtocolError` (502)."""
    return data[position : _sized(data, position, stop, 0)[1]]


def _decode_field(data: bytes, position: int, stop: int, depth: int) -> tuple[Field, int]:
    octet = data[position]
    kind = _TYPES.get(octet)
    position += 1
    if kind is FieldType.LONG_STRING or kind is FieldType.BINARY:
        position, end = _sized(data, position, stop, depth)
        return Field(kind, data[position:end]), end
    if kind is None:
        raise _syntax_error(f"unknown field type {octet:#04x}")
    numbers = _NUMBERS.get(kind)
    if numbers is not None:
        end = _within(position, numbers.size, stop)
        return Field(kind, numbers.unpack_from(data, position)[0]), end
    if kind is FieldType.BOOLEAN:
        end = _within(position, 1, stop)
        return Field(kind, data[position] != 0), end
    if kind is FieldType.TABLE:
        fields, end = decode_table(data, position, stop, depth=depth + 1)
        return Field(kind, fields), end
    if kind is FieldType.ARRAY:
        position, end = _sized(data, position, stop, depth + 1)
        elements = []
        while position < end:
            element, position = _decode_field(data, position, end, depth + 1)
            elements.append(element)
        return Field(kind, tuple(elements)), end
    if kind is FieldType.DECIMAL:
        end = _within(position, _DECIMAL.size, stop)
        return Field(kind, _DECIMAL.unpack_from(data, position)), end
    return Field(kind, None), position


def _sized(data: bytes, position: int, stop: int, depth: int) -> tuple[int, int]:
    """Where the content after a size of four bytes begins and ends."""
    if depth > MAX_DEPTH:
        raise _syntax_error(f"tables and arrays nested deeper than {MAX_DEPTH}")
    begin = _within(position, _SIZE.size, stop)
    return begin, _within(begin, _SIZE.unpack_from(data, position)[0], stop)


def _within(position: int, length: int, stop: int) -> int:
    if length > stop - position:
        raise _syntax_error(f"{length} bytes expected, {stop - position} left")
    return position + length


def _syntax_error(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(reason, code=ReplyCode.SYNTAX_ERROR)


def encode_table(fields: Mapping[str, Field]) -> bytes:
    """The table with its size. Names longer than 255 bytes and values out of their type's range are errors of ours."""
    parts: list[bytes] = []
    for name, value in fields.items():
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (bytes([len(encoded)]), encoded, encode_field(value))
    content = b"".join(parts)
    return _SIZE.pack(len(content)) + content


def encode_field(field: Field) -> bytes:
    """The type octet and the value."""
    return bytes([field.type]) + _ENCODERS[field.type](field.value)


def _encode_octets(value: bytes) -> bytes:
    return _SIZE.pack(len(value)) + value


def _encode_array(value: tuple[Field, ...]) -> bytes:
    return _encode_octets(b"".join(encode_field(element) for element in value))


_ENCODERS: dict[FieldType, Callable[[Any], bytes]] = {
    **{_TYPES[octet]: numbers.pack for octet, numbers in _NUMBERS.items()},
    FieldType.BOOLEAN: lambda value: b"\1" if value else b"\0",
    FieldType.LONG_STRING: _encode_octets,
    FieldType.BINARY: _encode_octets,
    FieldType.DECIMAL: lambda value: _DECIMAL.pack(*value),
    FieldType.ARRAY: _encode_array,
    FieldType.TABLE: encode_table,
    FieldType.VOID: lambda value: b"",
}
