"""The constructor bytes of AMQP 1.0: which type a byte announces and how many bytes follow.

Source: OASIS AMQP 1.0 part 1 (types), section 1.6. A value is a constructor byte and its data:

    0x00                 described: two further values, the descriptor and the value
    0x4w                 nothing          null, true, false, uint 0, ulong 0, empty list
    0x5w 0x6w 0x7w       1, 2, 4 bytes
    0x8w 0x9w            8, 16 bytes
    0xaw 0xbw            size (1, 4 bytes), so many bytes                  binary, string, symbol
    0xcw 0xdw            size (1, 4), count (as wide), count values        list, map (count = keys + values)
    0xew 0xfw            size (1, 4), count (as wide), one constructor, data of count values     array

All integers are big-endian; `size` counts the bytes after the size field.
"""

from __future__ import annotations

import enum


class AmqpType(enum.Enum):
    """The types of the standard; the value is the name used in typed JSON."""

    NULL = "null"
    BOOLEAN = "boolean"
    UBYTE = "ubyte"
    USHORT = "ushort"
    UINT = "uint"
    ULONG = "ulong"
    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL32 = "decimal32"
    DECIMAL64 = "decimal64"
    DECIMAL128 = "decimal128"
    CHAR = "char"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    BINARY = "binary"
    STRING = "string"
    SYMBOL = "symbol"
    LIST = "list"
    MAP = "map"
    ARRAY = "array"
    DESCRIBED = "described"


DESCRIBED = 0x00
"""Constructor of a described value."""

CONSTRUCTORS: dict[int, AmqpType] = {
    0x40: AmqpType.NULL,
    0x41: AmqpType.BOOLEAN,
    0x42: AmqpType.BOOLEAN,
    0x43: AmqpType.UINT,
    0x44: AmqpType.ULONG,
    0x45: AmqpType.LIST,
    0x50: AmqpType.UBYTE,
    0x51: AmqpType.BYTE,
    0x52: AmqpType.UINT,
    0x53: AmqpType.ULONG,
    0x54: AmqpType.INT,
    0x55: AmqpType.LONG,
    0x56: AmqpType.BOOLEAN,
    0x60: AmqpType.USHORT,
    0x61: AmqpType.SHORT,
    0x70: AmqpType.UINT,
    0x71: AmqpType.INT,
    0x72: AmqpType.FLOAT,
    0x73: AmqpType.CHAR,
    0x74: AmqpType.DECIMAL32,
    0x80: AmqpType.ULONG,
    0x81: AmqpType.LONG,
    0x82: AmqpType.DOUBLE,
    0x83: AmqpType.TIMESTAMP,
    0x84: AmqpType.DECIMAL64,
    0x94: AmqpType.DECIMAL128,
    0x98: AmqpType.UUID,
    0xA0: AmqpType.BINARY,
    0xA1: AmqpType.STRING,
    0xA3: AmqpType.SYMBOL,
    0xB0: AmqpType.BINARY,
    0xB1: AmqpType.STRING,
    0xB3: AmqpType.SYMBOL,
    0xC0: AmqpType.LIST,
    0xC1: AmqpType.MAP,
    0xD0: AmqpType.LIST,
    0xD1: AmqpType.MAP,
    0xE0: AmqpType.ARRAY,
    0xF0: AmqpType.ARRAY,
}
"""Type by constructor byte; `DESCRIBED` and bytes that the standard does not define are missing."""

WIDTH_SIZE8 = -1
WIDTH_SIZE32 = -2
WIDTH_DESCRIBED = -3
WIDTH_INVALID = -4

_WIDTH_BY_CATEGORY = {
    0x4: 0,
    0x5: 1,
    0x6: 2,
    0x7: 4,
    0x8: 8,
    0x9: 16,
    0xA: WIDTH_SIZE8,
    0xB: WIDTH_SIZE32,
    0xC: WIDTH_SIZE8,
    0xD: WIDTH_SIZE32,
    0xE: WIDTH_SIZE8,
    0xF: WIDTH_SIZE32,
}


def _width(constructor: int) -> int:
    if constructor == DESCRIBED:
        return WIDTH_DESCRIBED
    if constructor not in CONSTRUCTORS:
        return WIDTH_INVALID
    return _WIDTH_BY_CATEGORY[constructor >> 4]


CONSTRUCTOR_WIDTHS: tuple[int, ...] = tuple(_width(constructor) for constructor in range(256))
"""Bytes behind each of the 256 constructor bytes: 0 … 16, or one of the `WIDTH_…` marks (all negative).

`WIDTH_SIZE8`, `WIDTH_SIZE32`: a size of one or four bytes, then that many bytes. `WIDTH_DESCRIBED`: two further values.
"""
