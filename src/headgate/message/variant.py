"""Maps of AMQP values as Variants (Parquet's encoding, Spark's type VARIANT) and back: the reference, without Arrow.

Source: apache/parquet-format, VariantEncoding.md, version 1. A Variant is two byte strings, all integers little-endian:

    metadata    head (version 1 | 0x10 sorted | width-1 << 6), count, count + 1 offsets, keys; count and offsets have
                `width` bytes
    value       head: two low bits the basic type (0 primitive, 1 short string, 2 object, 3 array), then
      primitive   type << 2, content
      short       length << 2 | 1, up to 63 bytes of UTF-8
      object      (large << 4 | id width-1 << 2 | offset width-1) << 2 | 2, count, ids, count + 1 offsets, values
      array       (large << 2 | offset width-1) << 2 | 3, count, count + 1 offsets, values
                  (the count has 1 byte, 4 if large)

Written Variants are canonical: keys of the dictionary sorted by bytes, each once; values of an object in that order;
the narrowest widths.

| AMQP                        | Variant               | and back                 |
| --------------------------- | --------------------- | ------------------------ |
| null, boolean               | null, true or false   | null, boolean            |
| byte, short, int, long      | int8, 16, 32, 64      | byte, short, int, long   |
| ubyte, ushort, uint         | int16, int32, int64   | short, int, long         |
| ulong                       | int64; above 2^63 - 1 decimal(20,0) | long; ulong  |
| float, double               | float, double         | float, double            |
| timestamp                   | timestamp (µs); int64 (ms) where its µs pass 64 bits | timestamp; long |
| string, symbol              | string                | string                   |
| char                        | string of one character; int64 if there is no such character | string; long |
| uuid                        | string, canonical text (Spark 4.3's Python knows no Variant uuid) | string |
| binary, decimals            | binary                | binary                   |
| list, array                 | array                 | list                     |
| map                         | object; keys that are not strings by their text, of equal keys the first | map |
| described                   | the value without its descriptor | the value     |

Text that is not UTF-8 becomes binary. Only in the other direction: a decimal without fraction within ulong or long is
one of these, any other the nearest double; date and timestamp without zone are timestamps at UTC; nanoseconds are cut
to milliseconds.
"""

from __future__ import annotations

import decimal
import itertools
import struct
import uuid
from collections.abc import Iterable, Sequence

from headgate.errors import ConfigError
from headgate.message.constructors import AmqpType
from headgate.message.decimals import holds_decimal
from headgate.message.types import AmqpArray, AmqpValue

HIGHEST_MILLISECOND = 9223372036854775
"""The largest number of milliseconds whose microseconds fit 64 bits."""

Entries = Sequence[tuple[AmqpValue, AmqpValue]]

_NULL, _TRUE, _FALSE = 0, 1, 2
_INT8, _INT16, _INT32, _INT64, _DOUBLE = 3, 4, 5, 6, 7
_DECIMAL4, _DECIMAL8, _DECIMAL16, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ = 8, 9, 10, 11, 12, 13
_FLOAT, _BINARY, _STRING, _TIMESTAMP_NS, _TIMESTAMP_NTZ_NS, _UUID = 14, 15, 16, 18, 19, 20
_DEEPEST = 128

_INTEGERS: dict[AmqpType, tuple[int, int]] = {
    AmqpType.BYTE: (_INT8, 1),
    AmqpType.UBYTE: (_INT16, 2),
    AmqpType.SHORT: (_INT16, 2),
    AmqpType.USHORT: (_INT32, 4),
    AmqpType.INT: (_INT32, 4),
    AmqpType.UINT: (_INT64, 8),
    AmqpType.LONG: (_INT64, 8),
    AmqpType.ULONG: (_INT64, 8),
}


def encode_variant(entries: Entries) -> tuple[bytes, bytes]:
    """`(value, metadata)` of a map: an object."""
    keys = sorted(set(_all_keys(entries)))
    ids = {key: position for position, key in enumerate(keys)}
    return _object(entries, ids), _metadata(keys)


def key_text(key: AmqpValue) -> str:
    """A map key as the name of an object's field; bytes that are not UTF-8 are replaced."""
    octets = key.octets()
    if key.type is AmqpType.UUID:
        return str(key.value)
    if key.type is AmqpType.BINARY:
        return bytes(key.value).hex()
    if octets is not None:
        return octets.decode("utf-8", "replace")
    if key.type is AmqpType.CHAR and (character := key.text()) is not None:
        return character
    if key.type is AmqpType.BOOLEAN:
        return "true" if key.value else "false"
    return "null" if key.value is None else str(key.value)


def _pairs(entries: Entries) -> dict[bytes, AmqpValue]:
    found: dict[bytes, AmqpValue] = {}
    for key, value in entries:
        found.setdefault(key_text(key).encode(), value)
    return found


def _all_keys(entries: Entries) -> Iterable[bytes]:
    for key, value in _pairs(entries).items():
        yield key
        yield from _keys_inside(value)


def _keys_inside(value: AmqpValue) -> Iterable[bytes]:
    if value.type is AmqpType.MAP:
        yield from _all_keys(value.value)
    elif value.type is AmqpType.DESCRIBED:
        yield from _keys_inside(value.value.value)
    elif value.type in (AmqpType.LIST, AmqpType.ARRAY):
        for element in _elements(value):
            yield from _keys_inside(element)


def _elements(value: AmqpValue) -> tuple[AmqpValue, ...]:
    held = value.value
    return held.elements if isinstance(held, AmqpArray) else held


def _width(largest: int) -> int:
    return 1 if largest <= 0xFF else 2 if largest <= 0xFFFF else 3 if largest <= 0xFFFFFF else 4


def _offsets(parts: Sequence[bytes], width: int) -> bytes:
    offset = 0
    written = [offset.to_bytes(width, "little")]
    for part in parts:
        offset += len(part)
        written.append(offset.to_bytes(width, "little"))
    return b"".join(written)


def _metadata(keys: Sequence[bytes]) -> bytes:
    text = b"".join(keys)
    width = _width(max(len(text), len(keys)))
    head = 0x11 | (width - 1) << 6
    return bytes([head]) + len(keys).to_bytes(width, "little") + _offsets(keys, width) + text


def _object(entries: Entries, ids: dict[bytes, int]) -> bytes:
    pairs = sorted(_pairs(entries).items())
    values = [_value(value, ids) for _, value in pairs]
    data = b"".join(values)
    large = len(pairs) > 0xFF
    id_width = _width(max(len(ids) - 1, 0))
    offset_width = _width(len(data))
    head = (large << 4 | (id_width - 1) << 2 | (offset_width - 1)) << 2 | 2
    count = len(pairs).to_bytes(4 if large else 1, "little")
    id_list = b"".join(ids[key].to_bytes(id_width, "little") for key, _ in pairs)
    return bytes([head]) + count + id_list + _offsets(values, offset_width) + data


def _array(elements: Sequence[AmqpValue], ids: dict[bytes, int]) -> bytes:
    values = [_value(element, ids) for element in elements]
    data = b"".join(values)
    large = len(values) > 0xFF
    width = _width(len(data))
    head = (large << 2 | (width - 1)) << 2 | 3
    return bytes([head]) + len(values).to_bytes(4 if large else 1, "little") + _offsets(values, width) + data


def _primitive(kind: int, content: bytes = b"") -> bytes:
    return bytes([kind << 2]) + content


def _text(octets: bytes) -> bytes:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return _primitive(_BINARY, len(octets).to_bytes(4, "little") + octets)
    if len(octets) <= 63:
        return bytes([len(octets) << 2 | 1]) + octets
    return _primitive(_STRING, len(octets).to_bytes(4, "little") + octets)


def _value(typed: AmqpValue, ids: dict[bytes, int]) -> bytes:
    kind, value = typed.type, typed.value
    if kind is AmqpType.NULL:
        return _primitive(_NULL)
    if kind is AmqpType.BOOLEAN:
        return _primitive(_TRUE if value else _FALSE)
    if kind is AmqpType.ULONG and value >= 2**63:
        return _primitive(_DECIMAL16, bytes(1) + value.to_bytes(16, "little"))
    if kind in _INTEGERS:
        code, width = _INTEGERS[kind]
        return _primitive(code, value.to_bytes(width, "little", signed=True))
    if kind is AmqpType.TIMESTAMP and abs(value) <= HIGHEST_MILLISECOND:
        return _primitive(_TIMESTAMP, (value * 1000).to_bytes(8, "little", signed=True))
    if kind is AmqpType.CHAR and (character := typed.text()) is not None:
        return _text(character.encode())
    if kind in (AmqpType.TIMESTAMP, AmqpType.CHAR):
        return _primitive(_INT64, value.to_bytes(8, "little", signed=True))
    if kind is AmqpType.FLOAT:
        return _primitive(_FLOAT, struct.pack("<f", value))
    if kind is AmqpType.DOUBLE:
        return _primitive(_DOUBLE, struct.pack("<d", value))
    if kind is AmqpType.UUID:
        return _text(str(value).encode())
    if kind in (AmqpType.STRING, AmqpType.SYMBOL):
        return _text(typed.octets() or b"")
    if kind is AmqpType.MAP:
        return _object(value, ids)
    if kind is AmqpType.DESCRIBED:
        return _value(value.value, ids)
    if kind in (AmqpType.LIST, AmqpType.ARRAY):
        return _array(_elements(typed), ids)
    return _primitive(_BINARY, len(value).to_bytes(4, "little") + value)


def decode_variant(value: bytes, metadata: bytes, *, exact: bool = False) -> AmqpValue:
    """The AMQP value of a Variant; object keys become strings.

    Raises ConfigError for a value that AMQP has no type for, and for bytes that are no Variant; with `exact` also for
    times between milliseconds and for decimals that no double stands for (`decimals.holds_decimal`).
    """
    try:
        return _Reader(value, metadata, exact).read(0, 0)
    except (IndexError, struct.error, UnicodeDecodeError, decimal.DecimalException, OverflowError) as error:
        raise ConfigError(f"the bytes are no Variant: {error}") from None


class _Reader:
    __slots__ = ("exact", "keys", "value")

    def __init__(self, value: bytes, metadata: bytes, exact: bool) -> None:
        self.value = value
        self.exact = exact
        self.keys = _dictionary(metadata)

    def _take(self, position: int, count: int) -> bytes:
        if position + count > len(self.value):
            raise IndexError(f"{count} bytes expected at {position}, the value has {len(self.value)}")
        return self.value[position : position + count]

    def _unsigned(self, position: int, width: int) -> int:
        return int.from_bytes(self._take(position, width), "little")

    def read(self, position: int, depth: int) -> AmqpValue:
        if depth > _DEEPEST:
            raise ConfigError(f"a Variant nested deeper than {_DEEPEST}")
        head = self._unsigned(position, 1)
        basic, info = head & 3, head >> 2
        if basic == 0:
            return self._primitive(info, position + 1)
        if basic == 1:
            return AmqpValue(AmqpType.STRING, self._take(position + 1, info).decode())
        offset_width = (info & 3) + 1
        id_width = (info >> 2 & 3) + 1 if basic == 2 else 0
        count_width = 4 if info >> (4 if basic == 2 else 2) & 1 else 1
        count = self._unsigned(position + 1, count_width)
        ids = position + 1 + count_width
        offsets = ids + count * id_width
        data = offsets + (count + 1) * offset_width
        self._take(position, data - position)
        elements = tuple(
            self.read(data + self._unsigned(offsets + offset_width * index, offset_width), depth + 1)
            for index in range(count)
        )
        if basic == 3:
            return AmqpValue(AmqpType.LIST, elements)
        keys = (self.keys[self._unsigned(ids + id_width * index, id_width)] for index in range(count))
        names = (AmqpValue(AmqpType.STRING, key) for key in keys)
        return AmqpValue(AmqpType.MAP, tuple(zip(names, elements, strict=True)))

    def _primitive(self, kind: int, position: int) -> AmqpValue:
        if kind in (_NULL, _TRUE, _FALSE):
            return AmqpValue(*((AmqpType.NULL, None), (AmqpType.BOOLEAN, True), (AmqpType.BOOLEAN, False))[kind])
        for amqp, (code, width) in _SIGNED.items():
            if kind == code:
                return AmqpValue(amqp, int.from_bytes(self._take(position, width), "little", signed=True))
        if kind in (_DECIMAL4, _DECIMAL8, _DECIMAL16):
            width = {_DECIMAL4: 4, _DECIMAL8: 8, _DECIMAL16: 16}[kind]
            unscaled = int.from_bytes(self._take(position + 1, width), "little", signed=True)
            return _of_decimal(unscaled, self._unsigned(position, 1), self.exact)
        if kind in _TIMES:
            width, numerator, divisor = _TIMES[kind]
            count = int.from_bytes(self._take(position, width), "little", signed=True)
            milliseconds, rest = divmod(count * numerator, divisor)
            if rest and self.exact:
                raise ConfigError(
                    f"found a time of {count} / {divisor} ms since 1970, expected whole milliseconds, or 'rounded'"
                )
            return AmqpValue(AmqpType.TIMESTAMP, milliseconds)
        if kind == _FLOAT:
            return AmqpValue(AmqpType.FLOAT, struct.unpack("<f", self._take(position, 4))[0])
        if kind == _DOUBLE:
            return AmqpValue(AmqpType.DOUBLE, struct.unpack("<d", self._take(position, 8))[0])
        if kind in (_BINARY, _STRING):
            content = self._take(position + 4, self._unsigned(position, 4))
            return (
                AmqpValue(AmqpType.BINARY, content) if kind == _BINARY else AmqpValue(AmqpType.STRING, content.decode())
            )
        if kind == _UUID:
            return AmqpValue(AmqpType.UUID, uuid.UUID(bytes=self._take(position, 16)))
        raise ConfigError(f"a Variant of primitive type {kind} has no AMQP type")


_SIGNED = {kind: _INTEGERS[kind] for kind in (AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT, AmqpType.LONG)}
_TIMES = {
    _DATE: (4, 86_400_000, 1),
    _TIMESTAMP: (8, 1, 1000),
    _TIMESTAMP_NTZ: (8, 1, 1000),
    _TIMESTAMP_NS: (8, 1, 1_000_000),
    _TIMESTAMP_NTZ_NS: (8, 1, 1_000_000),
}


def _of_decimal(unscaled: int, scale: int, exact: bool) -> AmqpValue:
    if scale == 0 and -(2**63) <= unscaled < 2**63:
        return AmqpValue(AmqpType.LONG, unscaled)
    if scale == 0 and 0 <= unscaled < 2**64:
        return AmqpValue(AmqpType.ULONG, unscaled)
    number = decimal.Decimal(unscaled).scaleb(-scale, _EXACT)
    if exact and not holds_decimal(number, float(number)):
        raise ConfigError(f"found the decimal {number}, expected one that a double stands for, or 'rounded'")
    return AmqpValue(AmqpType.DOUBLE, float(number))


_EXACT = decimal.Context(prec=60)


def _dictionary(metadata: bytes) -> list[str]:
    if not metadata or metadata[0] & 0x0F != 1:
        raise ConfigError("the metadata of a Variant begins with version 1")
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    text = 1 + (count + 2) * width
    if text > len(metadata):
        raise IndexError(f"a dictionary of {count} keys in {len(metadata)} bytes")
    offsets = [int.from_bytes(metadata[place : place + width], "little") for place in range(1 + width, text, width)]
    if sorted(offsets) != offsets or text + offsets[-1] > len(metadata):
        raise IndexError("the offsets of the dictionary pass its end")
    return [metadata[text + start : text + stop].decode() for start, stop in itertools.pairwise(offsets)]
