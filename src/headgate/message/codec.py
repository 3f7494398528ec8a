"""Encoding and decoding of AMQP 1.0 values (part 1, section 1.6); constructor bytes are in `constructors`.

Decoding takes every encoding of the standard and is bounded: nesting by `MAX_DEPTH`, counts by the present bytes, array
elements without bytes of their own by `MAX_ZERO_WIDTH_ELEMENTS`. Encoding writes the smallest encoding.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import ConfigError, MessageError
from headgate.message.constructors import (
    CONSTRUCTOR_WIDTHS,
    CONSTRUCTORS,
    DESCRIBED,
    WIDTH_INVALID,
    WIDTH_SIZE8,
    AmqpType,
)
from headgate.message.framing import read_unsigned
from headgate.message.types import FALSE, NULL, TRUE, AmqpArray, AmqpValue, Described

MAX_DEPTH = 32
"""Compounds, arrays and descriptors inside each other; a value nested deeper is refused in both directions."""

MAX_ZERO_WIDTH_ELEMENTS = 65_536
"""Array elements that take no byte (null, true, uint 0 …) in one decoded message: twelve bytes may announce 2^32."""

_SIGNED = frozenset({AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT, AmqpType.LONG, AmqpType.TIMESTAMP})
_CONSTANTS = {
    0x40: NULL,
    0x41: TRUE,
    0x42: FALSE,
    0x43: AmqpValue(AmqpType.UINT, 0),
    0x44: AmqpValue(AmqpType.ULONG, 0),
    0x45: AmqpValue(AmqpType.LIST, ()),
}


class ValueDecoder:
    """Decodes values of one message; `data` are all its bytes, so that positions count from its start."""

    __slots__ = ("_data", "_zero_width_left")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._zero_width_left = MAX_ZERO_WIDTH_ELEMENTS

    def value(self, position: int, stop: int, *, depth: int = 0) -> tuple[AmqpValue, int]:
        """The value whose constructor is at `position` and the position after it, which is not beyond `stop`.

        Raises `MessageError` for anything that is not an AMQP value.
        """
        constructor = read_unsigned(self._data, position, 1, stop)
        if constructor != DESCRIBED:
            return self.plain(constructor, position + 1, stop, depth=depth)
        self._check_depth(depth, position)
        descriptor, position = self.value(position + 1, stop, depth=depth + 1)
        value, position = self.value(position, stop, depth=depth + 1)
        return AmqpValue(AmqpType.DESCRIBED, Described(descriptor, value)), position

    def values(self, position: int, stop: int, count: int, *, depth: int = 0) -> list[AmqpValue]:
        """`count` values from `position` on, which must end exactly at `stop`. Raises MessageError."""
        values = []
        for _ in range(count):
            value, position = self.value(position, stop, depth=depth)
            values.append(value)
        if position != stop:
            raise MessageError(f"{stop - position} bytes behind the last of {count} values", position=position)
        return values

    def plain(self, constructor: int, position: int, stop: int, *, depth: int = 0) -> tuple[AmqpValue, int]:
        """As `value`, for a plain value whose content is at `position`; its constructor may be elsewhere.

        Raises MessageError.
        """
        width = CONSTRUCTOR_WIDTHS[constructor]
        if width == WIDTH_INVALID:
            raise MessageError(f"unknown constructor {constructor:#04x}", position=position - 1)
        if width == 0:
            return _CONSTANTS[constructor], position
        size_width = 0
        if width < 0:
            size_width = 1 if width == WIDTH_SIZE8 else 4
            width = read_unsigned(self._data, position, size_width, stop)
            position += size_width
        if width > stop - position:
            raise MessageError(f"{width} bytes expected, {stop - position} left", position=position)
        kind = CONSTRUCTORS[constructor]
        end = position + width
        if kind in (AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY):
            return self._compound(kind, position, end, size_width, depth), end
        return AmqpValue(kind, _decoded(kind, self._data[position:end])), end

    def _compound(self, kind: AmqpType, position: int, stop: int, count_width: int, depth: int) -> AmqpValue:
        self._check_depth(depth, position)
        count = read_unsigned(self._data, position, count_width, stop)
        position += count_width
        if kind is AmqpType.ARRAY:
            return AmqpValue(kind, self._array(position, stop, count, depth + 1))
        if kind is AmqpType.MAP and count % 2:
            raise MessageError(f"a map of {count} keys and values", position=position)
        values = self.values(position, stop, count, depth=depth + 1)
        if kind is AmqpType.MAP:
            return AmqpValue(kind, tuple(zip(values[::2], values[1::2], strict=True)))
        return AmqpValue(kind, tuple(values))

    def _array(self, position: int, stop: int, count: int, depth: int) -> AmqpArray:
        start = position
        descriptor = None
        constructor = read_unsigned(self._data, position, 1, stop)
        if constructor == DESCRIBED:
            descriptor, position = self.value(position + 1, stop, depth=depth)
            constructor = read_unsigned(self._data, position, 1, stop)
            if constructor == DESCRIBED:
                raise MessageError("an array whose elements have two descriptors", position=position)
        kind = CONSTRUCTORS.get(constructor)
        if kind is None:
            raise MessageError(f"unknown constructor {constructor:#04x}", position=position)
        position += 1
        if CONSTRUCTOR_WIDTHS[constructor] == 0:
            if count > self._zero_width_left:
                raise MessageError(f"an array of {count} elements without bytes", position=start)
            self._zero_width_left -= count
        elements = []
        for _ in range(count):
            element, position = self.plain(constructor, position, stop, depth=depth)
            elements.append(element)
        if position != stop:
            raise MessageError(f"{stop - position} bytes behind the last of {count} elements", position=position)
        return AmqpArray(kind, tuple(elements), descriptor)

    @staticmethod
    def _check_depth(depth: int, position: int) -> None:
        if depth >= MAX_DEPTH:
            raise MessageError(f"values nested deeper than {MAX_DEPTH}", position=position)


def _decoded(kind: AmqpType, octets: bytes) -> object:
    match kind:
        case AmqpType.BOOLEAN:
            return octets != b"\0"
        case AmqpType.FLOAT:
            return struct.unpack(">f", octets)[0]
        case AmqpType.DOUBLE:
            return struct.unpack(">d", octets)[0]
        case AmqpType.STRING | AmqpType.SYMBOL:
            return octets.decode("utf-8", "surrogateescape")
        case AmqpType.UUID:
            return uuid.UUID(bytes=octets)
        case AmqpType.BINARY | AmqpType.DECIMAL32 | AmqpType.DECIMAL64 | AmqpType.DECIMAL128:
            return octets
        case _:
            return int.from_bytes(octets, "big", signed=kind in _SIGNED)


def decode_value(data: bytes | memoryview) -> AmqpValue:
    """The one value that the bytes are. Raises `MessageError` if they are not exactly one."""
    octets = bytes(data)
    value, stop = ValueDecoder(octets).value(0, len(octets))
    if stop != len(octets):
        raise MessageError(f"{len(octets) - stop} bytes behind the value", position=stop)
    return value


_FIXED_INTEGERS: dict[AmqpType, tuple[int, int]] = {
    AmqpType.UBYTE: (0x50, 1),
    AmqpType.BYTE: (0x51, 1),
    AmqpType.USHORT: (0x60, 2),
    AmqpType.SHORT: (0x61, 2),
    AmqpType.UINT: (0x70, 4),
    AmqpType.INT: (0x71, 4),
    AmqpType.CHAR: (0x73, 4),
    AmqpType.ULONG: (0x80, 8),
    AmqpType.LONG: (0x81, 8),
    AmqpType.TIMESTAMP: (0x83, 8),
}
"""Constructor and bytes of the full form."""

_SMALL_INTEGERS = {AmqpType.UINT: 0x52, AmqpType.ULONG: 0x53, AmqpType.INT: 0x54, AmqpType.LONG: 0x55}
"""Constructor of the form of one byte, for the types that have one besides the full form."""

_ZEROS = {AmqpType.UINT: b"\x43", AmqpType.ULONG: b"\x44"}
_FLOATS = {AmqpType.FLOAT: (0x72, ">f"), AmqpType.DOUBLE: (0x82, ">d")}
_OPAQUE = {AmqpType.DECIMAL32: 0x74, AmqpType.DECIMAL64: 0x84, AmqpType.DECIMAL128: 0x94}
_SIZED = {
    AmqpType.BINARY: 0xA0,
    AmqpType.STRING: 0xA1,
    AmqpType.SYMBOL: 0xA3,
    AmqpType.LIST: 0xC0,
    AmqpType.MAP: 0xC1,
    AmqpType.ARRAY: 0xE0,
}
"""Constructor with sizes of one byte; `_WIDE` more is the one with sizes of four."""

_WIDE = 0x10


def encode_value(value: AmqpValue) -> bytes:
    """The smallest encoding of the value.

    Raises `ConfigError` for values that `decode_value` would refuse: nesting beyond `MAX_DEPTH`, arrays of too many
    nulls.
    """
    return _encoded(value, 0)


def _encoded(value: AmqpValue, depth: int) -> bytes:
    kind = value.type
    if kind is AmqpType.NULL:
        return b"\x40"
    if kind is AmqpType.BOOLEAN:
        return b"\x41" if value.value else b"\x42"
    if value.value == 0 and kind in _ZEROS:
        return _ZEROS[kind]
    if kind is AmqpType.DESCRIBED:
        described = _inside(value, depth)
        return b"\0" + _encoded(described.descriptor, depth + 1) + _encoded(described.value, depth + 1)
    if kind in _SIZED:
        return _with_head(kind, _sized(value, depth))
    constructor, data = _alike([value])
    return bytes([constructor]) + data


def encode_compound(kind: AmqpType, elements: Sequence[bytes]) -> bytes:
    """A list or map of encoded elements (keys and values in turn), in its smallest form."""
    return _with_head(kind, _Sized(len(elements), b"".join(elements)))


def _with_head(kind: AmqpType, sized: _Sized) -> bytes:
    if sized.count == 0 and kind is AmqpType.LIST:
        return b"\x45"
    wide = sized.is_wide
    return bytes([_SIZED[kind] + (_WIDE if wide else 0)]) + sized.encoded(wide=wide)


def _alike(values: Sequence[AmqpValue]) -> tuple[int, bytes]:
    """The one constructor and the data of values of one type that is neither null nor sized nor described."""
    kind = values[0].type
    if kind is AmqpType.BOOLEAN:
        return 0x56, bytes(value.value for value in values)
    if kind is AmqpType.UUID:
        return 0x98, b"".join(value.value.bytes for value in values)
    if kind in _OPAQUE:
        return _OPAQUE[kind], b"".join(value.value for value in values)
    if kind in _FLOATS:
        constructor, packing = _FLOATS[kind]
        return constructor, b"".join(struct.pack(packing, value.value) for value in values)
    signed = kind in _SIGNED
    low, high = (-128, 127) if signed else (0, 255)
    constructor, width = _FIXED_INTEGERS[kind]
    if kind in _SMALL_INTEGERS and all(low <= value.value <= high for value in values):
        constructor, width = _SMALL_INTEGERS[kind], 1
    return constructor, b"".join(value.value.to_bytes(width, "big", signed=signed) for value in values)


@dataclass(slots=True)
class _Sized:
    """The content after the size field: a count (None where the type has none) and the rest."""

    count: int | None
    content: bytes

    @property
    def is_wide(self) -> bool:
        return max(self.count or 0, len(self.content) + (self.count is not None)) > 0xFF

    def encoded(self, *, wide: bool) -> bytes:
        width = 4 if wide else 1
        count = b"" if self.count is None else self.count.to_bytes(width, "big")
        return (len(count) + len(self.content)).to_bytes(width, "big") + count + self.content


def _sized(value: AmqpValue, depth: int) -> _Sized:
    octets = value.octets()
    if octets is not None:
        return _Sized(None, octets)
    held = _inside(value, depth)
    if value.type is AmqpType.ARRAY:
        return _Sized(len(held.elements), _array_content(held, depth + 1))
    members = held if value.type is AmqpType.LIST else [member for pair in held for member in pair]
    return _Sized(len(members), b"".join(_encoded(member, depth + 1) for member in members))


def _array_content(array: AmqpArray, depth: int) -> bytes:
    """Descriptor, constructor and data of an array; `depth` is that of its elements."""
    descriptor = b"" if array.descriptor is None else b"\0" + _encoded(array.descriptor, depth)
    if array.of is AmqpType.NULL:
        if len(array.elements) > MAX_ZERO_WIDTH_ELEMENTS:
            raise ConfigError(f"an array of {len(array.elements)} nulls; at most {MAX_ZERO_WIDTH_ELEMENTS}")
        return descriptor + b"\x40"
    if array.of in _SIZED:
        contents = [_sized(element, depth) for element in array.elements]
        wide = any(content.is_wide for content in contents)
        constructor = _SIZED[array.of] + (_WIDE if wide else 0)
        data = b"".join(content.encoded(wide=wide) for content in contents)
    elif array.elements:
        constructor, data = _alike(array.elements)
    else:
        constructor, data = _empty_array_constructor(array.of), b""
    return descriptor + bytes([constructor]) + data


def _empty_array_constructor(kind: AmqpType) -> int:
    return next(code for code, known in CONSTRUCTORS.items() if known is kind and CONSTRUCTOR_WIDTHS[code] > 0)


def _inside(value: AmqpValue, depth: int) -> Any:
    if value.value is None:
        raise ConfigError(f"a {value.type.value} that was not looked into cannot be encoded")
    if depth >= MAX_DEPTH:
        raise ConfigError(f"values nested deeper than {MAX_DEPTH}")
    return value.value
