"""Stored messages, AMQP 1.0, as AMQP 0.9.1 and STOMP see them; the way in, and most of the table, is in `publication`.

    stored                              0.9.1
    header                              delivery-mode 2 / 1, priority, expiration
    message-id, correlation-id          text of at most 255 bytes; uuid as `urn:uuid:…`; ulong in digits;
                                        binary or longer: header x-message-id, x-correlation-id
    user-id, reply-to, content-…        short strings where they are ones; `/queues/<q>` as `<q>`
    creation-time, group-id             timestamp (s), app-id
    application properties              headers
    annotations x-…                     headers, without those that the broker wrote; x-basic-type: type; x-cc: CC
    data sections                       body, joined; any other body: its sections, with the type `amqp-1.0`

The rest of the properties, the footer and delivery annotations have no place. Values without a type in 0.9.1: a ulong
becomes a signed integer of the same bits, a uuid its URN, a character its code point; decimals and described values are
left out.

The bytes of the content header are made from the encoded sections directly, most values by copying them: this runs once
per delivered message, and, where sections repeat, once per distinct ones.

Source: RabbitMQ 4.3 (`mc_amqpl`).
"""

from __future__ import annotations

import functools
import struct
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.message import (
    CONSTRUCTOR_WIDTHS,
    AmqpType,
    AmqpValue,
    EncodedMessages,
    Message,
    Section,
    ValueDecoder,
    section_spans,
    skip_value,
)
from headgate.message.constructors import WIDTH_SIZE8, WIDTH_SIZE32
from headgate.protocols.amqp091.fields import (
    MAX_DEPTH,
    Field,
    FieldType,
    Table,
    encode_field,
    encode_table,
    long_string,
)
from headgate.protocols.amqp091.properties import (
    BASIC_CLASS,
    PROPERTY_FLAGS,
    BasicProperties,
    decode_properties,
    split_properties,
)
from headgate.protocols.amqp091.publication import SECTIONS_TYPE

Int64Array = NDArray[np.int64]

OFFSET_HEADER = "x-stream-offset"
"""The header with a message's offset, on every delivery from a stream."""

_SHORT_STRING_BYTES = 255
_CACHED_BYTES = 256
_BROKER_ANNOTATIONS = frozenset({b"x-routing-key", b"x-exchange", b"x-death", b"x-basic-type", OFFSET_HEADER.encode()})
_DATA_SECTION = b"\x00\x53\x75"
_SECTION_SIZES = {0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
_OFFSET_FIELD = b"%c%bl" % (len(OFFSET_HEADER), OFFSET_HEADER.encode())
_OFFSET_BYTES = 4 + len(_OFFSET_FIELD)
"""The size of the table of headers, and the offset's field without its value."""

_HEADER_START = struct.pack(">HH", BASIC_CLASS, 0)


class Delivery(msgspec.Struct, frozen=True):
    """A stored message without its body; exchange and routing key are None if it was not published through one.

    `header_middle` and `header_end` are its content header around what differs by message: body size and offset.
    """

    exchange: str | None
    routing_key: str | None
    header_middle: bytes
    header_end: bytes

    def content_header(self, offset: int, body_size: int) -> bytes:
        """The payload of a header frame, with the offset as the first of the headers."""
        return b"%b%b%b%b%b" % (
            _HEADER_START,
            body_size.to_bytes(8, "big"),
            self.header_middle,
            offset.to_bytes(8, "big"),
            self.header_end,
        )

    def plain_header(self, headers: Table, body_size: int) -> bytes:
        """The payload of a header frame of a message outside streams: `headers` before its own, and no offset."""
        fields = encode_table(headers)[4:]
        flags, middle = int.from_bytes(self.header_middle[:2], "big"), self.header_middle[2:-_OFFSET_BYTES]
        own_bytes = int.from_bytes(self.header_middle[-_OFFSET_BYTES:][:4], "big") - _OFFSET_BYTES - 4
        size = len(fields) + own_bytes
        table = size.to_bytes(4, "big") + fields if size else b""
        flags = flags if size else flags & ~_HEADERS_FLAG
        return b"%b%b%b%b%b%b" % (
            _HEADER_START,
            body_size.to_bytes(8, "big"),
            flags.to_bytes(2, "big"),
            middle,
            table,
            self.header_end,
        )

    def split(self) -> tuple[BasicProperties, bytes]:
        """The properties without headers, and the encoded table of headers, in which the offset is 0."""
        properties, table = split_properties(self.content_header(0, 0))
        assert table is not None
        return properties, table

    @property
    def properties(self) -> BasicProperties:
        """The properties, the offset not among their headers."""
        properties = decode_properties(self.content_header(0, 0))
        if properties.headers is not None:
            del properties.headers[OFFSET_HEADER]
        return properties


def read_deliveries(messages: EncodedMessages, offsets: Int64Array) -> Iterator[tuple[Delivery, bytes, int]]:
    """Stored messages one by one, each with its body and its offset; see `read_delivery`."""
    data = messages.data.data
    for start, length, offset in zip(
        messages.starts.tolist(), messages.lengths.tolist(), offsets.tolist(), strict=True
    ):
        yield *read_delivery(bytes(data[start : start + length])), offset


def read_delivery(data: bytes) -> tuple[Delivery, bytes]:
    """A stored message and its body.

    Bytes that are not an AMQP 1.0 message (clients of the stream protocol may store any) are the body as they are.
    """
    try:
        position = _body_position(data)
        is_octets, body = _body(data, position)
        sections = data[:position]
        read = _cached_delivery if position <= _CACHED_BYTES else _delivery
        return read(sections, is_octets), body
    except MessageError:
        return _UNREADABLE, data


def _body_position(data: bytes) -> int:
    """Where the body begins; sections before it in their usual encoding are skipped unread."""
    position, end = 0, len(data)
    while position < end - 3 and data[position] == 0 and data[position + 1] == 0x53:
        if data[position + 2] >= Section.DATA:
            return position
        constructor = data[position + 3]
        width = _SECTION_SIZES.get(constructor)
        if width is None:
            position += 4 if constructor == 0x45 else end
        else:
            position += 4 + width + int.from_bytes(data[position + 4 : position + 4 + width], "big")
    return position if position == end else section_spans(data)[1]


def _body(data: bytes, position: int) -> tuple[bool, bytes]:
    """Whether the body is bytes, and it."""
    end = len(data)
    if data.startswith(_DATA_SECTION, position) and position + 4 < end:
        constructor = data[position + 3]
        width = 1 if constructor == 0xA0 else 4
        start = position + 4 + width
        if constructor in (0xA0, 0xB0) and start + int.from_bytes(data[position + 4 : start], "big") == end:
            return True, data[start:]
    body = Message.decode(data).body
    if body is None or body.section is Section.DATA:
        return True, b"" if body is None else body.octets() or b""
    return False, data[position:]


class _Headers:
    """The table of headers as it grows; of equal names the first counts."""

    __slots__ = ("names", "parts")

    def __init__(self) -> None:
        self.names = {OFFSET_HEADER.encode()}
        self.parts: list[bytes] = []

    def add(self, name: bytes, field: bytes | None) -> None:
        if field is not None and len(name) <= _SHORT_STRING_BYTES and name not in self.names:
            self.names.add(name)
            self.parts += (b"%c" % len(name), name, field)


class _Annotations(msgspec.Struct, frozen=True):
    """Message annotations, read: headers with the names that they take, and the values that the broker wrote."""

    names: frozenset[bytes]
    parts: list[bytes]
    exchange: bytes | None
    routing_key: bytes | None
    type: bytes | None


class _Envelope(msgspec.Struct, frozen=True):
    """All sections but the properties, read: encoded properties by name, headers and the names that they take."""

    exchange: str | None
    routing_key: str | None
    found: dict[str, bytes]
    names: frozenset[bytes]
    parts: list[bytes]


def _delivery(sections: bytes, is_octets: bool) -> Delivery:
    spans, begin = _spans(sections)
    span = spans.get(Section.PROPERTIES)
    if span is None:
        envelope = _envelope(sections, is_octets)
        return _composed(envelope, envelope.found, [])
    # Messages of a stream differ most in their ids and times.
    rest = sections[:begin] + sections[span[1] :]
    read = _cached_envelope if len(rest) <= _CACHED_BYTES else _envelope
    envelope = read(rest, is_octets)
    found = envelope.found.copy()
    parts = _read_properties(sections, _values(sections, *span), found, envelope.names)
    return _composed(envelope, found, parts)


def _envelope(sections: bytes, is_octets: bool) -> _Envelope:
    spans, _ = _spans(sections)
    headers = _Headers()
    exchange = routing_key = kind = None
    found: dict[str, bytes] = {}
    span = spans.get(Section.MESSAGE_ANNOTATIONS)
    if span is not None:
        start, stop, count = span
        read = _cached_annotations if stop - start <= _CACHED_BYTES else _annotations
        annotations = read(sections[start:stop], count)
        headers.names |= annotations.names
        headers.parts += annotations.parts
        exchange, routing_key, kind = annotations.exchange, annotations.routing_key, annotations.type
    span = spans.get(Section.APPLICATION_PROPERTIES)
    if span is not None:
        for is_symbol, name, position, stop in _entries(sections, *span):
            if not is_symbol:
                headers.add(name, _field_bytes(sections, position, stop))
    span = spans.get(Section.HEADER)
    if span is not None:
        _read_header(sections, _values(sections, *span), found)
    if not is_octets:
        kind = SECTIONS_TYPE.encode()
    if kind is not None:
        found["type"] = _short(kind)
    return _Envelope(_decoded(exchange), _decoded(routing_key), found, frozenset(headers.names), headers.parts)


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8", "surrogateescape")


_MAP_CODES = frozenset({Section.MESSAGE_ANNOTATIONS, Section.DELIVERY_ANNOTATIONS, Section.APPLICATION_PROPERTIES})


def _spans(data: bytes) -> tuple[dict[int, tuple[int, int, int]], int]:
    """By code: where the elements of a section begin and end, and their count; and where the properties begin.

    Raises MessageError for bytes that are not sections.
    """
    spans: dict[int, tuple[int, int, int]] = {}
    properties = 0
    position, end, previous = 0, len(data), 0
    while position < end - 5 and data[position] == 0 and data[position + 1] == 0x53:
        code, constructor = data[position + 2], data[position + 3]
        if not previous < code < Section.DATA or (constructor & 1) != (code in _MAP_CODES):
            break
        if constructor in (0xC0, 0xC1):
            start, stop, count = position + 6, position + 5 + data[position + 4], data[position + 5]
        elif constructor in (0xD0, 0xD1):
            start, stop = position + 12, position + 8 + int.from_bytes(data[position + 4 : position + 8], "big")
            count = int.from_bytes(data[position + 8 : position + 12], "big")
        else:
            break
        if not start <= stop <= end:
            break
        if code == Section.PROPERTIES:
            properties = position
        spans[code] = (start, stop, count)
        position, previous = stop, code
    if position == end:
        return spans, properties
    found = section_spans(data)[0]
    properties = max((span.stop for code, span in found.items() if code < Section.PROPERTIES), default=0)
    return {code: (span.elements, span.stop, span.count) for code, span in found.items()}, properties


def _annotations(data: bytes, count: int) -> _Annotations:
    headers = _Headers()
    exchange = routing_key = kind = None
    for is_symbol, name, position, stop in _entries(data, 0, len(data), count):
        if not is_symbol or not name.startswith(b"x-"):
            continue
        if name not in _BROKER_ANNOTATIONS:
            if not name.startswith(b"x-basic-"):
                headers.add(b"CC" if name == b"x-cc" else name, _field_bytes(data, position, stop))
        elif name == b"x-exchange":
            exchange = exchange or _short_string(data, position, stop)
        elif name == b"x-routing-key":
            routing_key = routing_key or _short_string(data, position, stop)
        elif name == b"x-basic-type":
            kind = kind or _short_string(data, position, stop)
    return _Annotations(frozenset(headers.names), headers.parts, exchange, routing_key, kind)


_cached_annotations = functools.lru_cache(maxsize=1024)(_annotations)
_cached_envelope = functools.lru_cache(maxsize=1024)(_envelope)
_cached_delivery = functools.lru_cache(maxsize=1024)(_delivery)


_HEADERS_FLAG = PROPERTY_FLAGS["headers"]
_BEFORE = tuple(name for name, flag in PROPERTY_FLAGS.items() if flag > _HEADERS_FLAG)
_BEHIND = tuple(name for name, flag in PROPERTY_FLAGS.items() if flag < _HEADERS_FLAG)
"""Properties before and after the headers, in their order."""


def _composed(envelope: _Envelope, found: dict[str, bytes], more_headers: list[bytes]) -> Delivery:
    """The content header from its encoded properties."""
    flags = _HEADERS_FLAG
    for name in found:
        flags |= PROPERTY_FLAGS[name]
    before = b"".join([found[name] for name in _BEFORE if name in found])
    behind = b"".join([found[name] for name in _BEHIND if name in found])
    content = b"".join(envelope.parts + more_headers)
    size = len(_OFFSET_FIELD) + 8 + len(content)
    return Delivery(
        envelope.exchange,
        envelope.routing_key,
        b"%b%b%b%b" % (flags.to_bytes(2, "big"), before, size.to_bytes(4, "big"), _OFFSET_FIELD),
        content + behind,
    )


def _values(data: bytes, position: int, stop: int, count: int) -> list[tuple[int, int]]:
    """Where each of `count` values begins and ends. Raises MessageError if they do not fit."""
    found = []
    for _ in range(count):
        begin = position
        if position >= stop:
            raise MessageError("a value is missing", position=position)
        width = CONSTRUCTOR_WIDTHS[data[position]]
        if width >= 0:
            position += 1 + width
        elif width == WIDTH_SIZE8 and position + 1 < stop:
            position += 2 + data[position + 1]
        elif width == WIDTH_SIZE32 and position + 4 < stop:
            position += 5 + int.from_bytes(data[position + 1 : position + 5], "big")
        else:
            position = skip_value(data, position, stop)
        if position > stop:
            raise MessageError(f"a value ends {position - stop} bytes behind its section", position=begin)
        found.append((begin, position))
    return found


def _entries(data: bytes, position: int, stop: int, count: int) -> list[tuple[bool, bytes, int, int]]:
    """The entries of a map with strings or symbols as keys: whether the key is a symbol, the key, the value's span."""
    places = _values(data, position, stop, count)
    entries = []
    for (key, value), (begin, end) in zip(places[::2], places[1::2], strict=False):
        constructor = data[key]
        if constructor in (0xA1, 0xA3):
            entries.append((constructor == 0xA3, data[key + 2 : value], begin, end))
        elif constructor in (0xB1, 0xB3):
            entries.append((constructor == 0xB3, data[key + 5 : value], begin, end))
    return entries


def _read_header(data: bytes, values: list[tuple[int, int]], found: dict[str, bytes]) -> None:
    for number, (begin, end) in enumerate(values[:3]):
        constructor = data[begin]
        if number == 0 and constructor in (0x41, 0x42, 0x56):
            is_durable = constructor == 0x41 or (constructor == 0x56 and data[begin + 1] != 0)
            found["delivery_mode"] = b"\2" if is_durable else b"\1"
        elif number == 1 and constructor == 0x50:
            found["priority"] = data[begin + 1 : end]
        elif number == 2 and constructor in (0x43, 0x52, 0x70):
            found["expiration"] = _short(b"%d" % int.from_bytes(data[begin + 1 : end], "big"))


_PROPERTIES = {
    4: "reply_to",
    6: "content_type",
    7: "content_encoding",
    10: "app_id",
}
"""Properties that are short strings in both, by position in the section."""

_IDS = {0: ("message_id", b"x-message-id"), 5: ("correlation_id", b"x-correlation-id")}
"""Positions of ids, and the header for an id that is no short string."""

_ID_HEADERS = {0xA0: b"x", 0xB0: b"x", 0xA1: b"S", 0xB1: b"S"}
"""The type octets of headers that hold an id, by the id's constructor."""


def _read_properties(
    data: bytes, values: list[tuple[int, int]], found: dict[str, bytes], names: frozenset[bytes]
) -> list[bytes]:
    """Add properties to `found`; give the headers for ids that are no short strings, unless the name is taken."""
    parts: list[bytes] = []
    for number, (begin, end) in enumerate(values):
        constructor = data[begin]
        if constructor == 0x40:
            continue
        if number in _IDS:
            name, header = _IDS[number]
            text = _id_text(data, begin, end)
            if text is not None:
                found[name] = _short(text)
            elif constructor in _ID_HEADERS and header not in names:
                parts += (b"%c" % len(header), header, _ID_HEADERS[constructor], _sized(_octets(data, begin, end)))
        elif number in _PROPERTIES:
            text = _reply_to(data, begin, end) if number == 4 else _short_string(data, begin, end)
            if text is not None:
                found[_PROPERTIES[number]] = _short(text)
        elif number == 1:
            octets = _octets(data, begin, end) if constructor in _OCTETS else None
            if octets is not None and _is_user_id(octets):
                found["user_id"] = _short(octets)
        elif number == 9 and constructor == 0x83:
            seconds = _seconds(int.from_bytes(data[begin + 1 : end], "big", signed=True))
            found["timestamp"] = seconds.to_bytes(8, "big", signed=True)
    return parts


_OCTETS = {0xA0: 2, 0xA1: 2, 0xA3: 2, 0xB0: 5, 0xB1: 5, 0xB3: 5}
"""Constructors of binaries, strings and symbols, and where their bytes begin after them."""

_TEXTS = frozenset({0xA1, 0xA3, 0xB1, 0xB3})


def _octets(data: bytes, begin: int, end: int) -> bytes:
    return data[begin + _OCTETS[data[begin]] : end]


def _short_string(data: bytes, begin: int, end: int) -> bytes | None:
    """The bytes of a string or symbol that fits a short string."""
    if data[begin] not in _TEXTS:
        return None
    octets = _octets(data, begin, end)
    return octets if len(octets) <= _SHORT_STRING_BYTES else None


def _reply_to(data: bytes, begin: int, end: int) -> bytes | None:
    """The queue behind `/queues/`, or the address as it is, where that fits a short string."""
    if data[begin] not in _TEXTS:
        return None
    octets = _octets(data, begin, end)
    if octets.startswith(b"/queues/"):
        octets = unquote_to_bytes(octets.removeprefix(b"/queues/"))
    return octets if len(octets) <= _SHORT_STRING_BYTES else None


def _id_text(data: bytes, begin: int, end: int) -> bytes | None:
    constructor = data[begin]
    if constructor == 0x98:
        return f"urn:uuid:{uuid.UUID(bytes=data[begin + 1 : end])}".encode()
    if constructor in (0x44, 0x53, 0x80):
        return b"%d" % int.from_bytes(data[begin + 1 : end], "big")
    return _short_string(data, begin, end)


def _seconds(milliseconds: int) -> int:
    """Towards 1970, as RabbitMQ: a time before it is negative, in 64 bits."""
    return milliseconds // 1000 if milliseconds >= 0 else -(-milliseconds // 1000)


def _is_user_id(octets: bytes) -> bool:
    if len(octets) > _SHORT_STRING_BYTES or b"\0" in octets:
        return False
    try:
        octets.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _short(octets: bytes) -> bytes:
    return b"%c%b" % (len(octets), octets)


def _sized(octets: bytes) -> bytes:
    return len(octets).to_bytes(4, "big") + octets


_COPIED = {
    0x50: b"B",
    0x51: b"b",
    0x60: b"u",
    0x61: b"s",
    0x70: b"i",
    0x71: b"I",
    0x72: b"f",
    0x73: b"i",
    0x81: b"l",
    0x82: b"d",
}
"""Type octets of values whose bytes are the same in both protocols, by constructor."""

_CONSTANTS = {0x40: b"V", 0x41: b"t\1", 0x42: b"t\0", 0x43: b"i" + bytes(4), 0x44: b"l" + bytes(8)}
_SMALL: dict[int, list[bytes]] = {
    0x52: [b"i" + value.to_bytes(4, "big") for value in range(256)],
    0x53: [b"l" + value.to_bytes(8, "big") for value in range(256)],
    0x54: [b"I" + struct.pack(">i", value - 256 * (value > 127)) for value in range(256)],
    0x55: [b"l" + struct.pack(">q", value - 256 * (value > 127)) for value in range(256)],
    0x56: [b"t\0"] + [b"t\1"] * 255,
}
"""Values of one byte, by constructor and byte."""


def _field_bytes(data: bytes, begin: int, end: int) -> bytes | None:
    """Type octet and value of a header; None for values that a table cannot hold."""
    constructor = data[begin]
    if constructor in _OCTETS:
        return b"S" + _sized(_octets(data, begin, end))
    if constructor in _COPIED:
        return _COPIED[constructor] + data[begin + 1 : end]
    if constructor in _SMALL:
        return _SMALL[constructor][data[begin + 1]]
    if constructor in _CONSTANTS:
        return _CONSTANTS[constructor]
    field = _field(ValueDecoder(data).value(begin, end)[0], 0)
    return None if field is None else encode_field(field)


_FIELD_TYPES: dict[AmqpType, FieldType] = {
    AmqpType.BOOLEAN: FieldType.BOOLEAN,
    AmqpType.BYTE: FieldType.BYTE,
    AmqpType.UBYTE: FieldType.UNSIGNED_BYTE,
    AmqpType.SHORT: FieldType.SHORT,
    AmqpType.USHORT: FieldType.UNSIGNED_SHORT,
    AmqpType.INT: FieldType.INT,
    AmqpType.UINT: FieldType.UNSIGNED_INT,
    AmqpType.CHAR: FieldType.UNSIGNED_INT,
    AmqpType.LONG: FieldType.LONG,
    AmqpType.FLOAT: FieldType.FLOAT,
    AmqpType.DOUBLE: FieldType.DOUBLE,
    AmqpType.NULL: FieldType.VOID,
}


def _field(value: AmqpValue, depth: int) -> Field | None:
    """The value of a header; None for values that a table cannot hold."""
    kind, held = value.type, value.value
    if kind in _FIELD_TYPES:
        return Field(_FIELD_TYPES[kind], held)
    if kind in (AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY):
        return long_string(held)
    if kind is AmqpType.ULONG:
        # Its 64 bits, as RabbitMQ: headers have no unsigned type for them, and a text would be another type.
        return Field(FieldType.LONG, held if held < 2**63 else held - 2**64)
    if kind is AmqpType.TIMESTAMP:
        return Field(FieldType.TIMESTAMP, _seconds(held))
    if kind is AmqpType.UUID:
        return long_string(f"urn:uuid:{held}")
    if depth >= MAX_DEPTH:
        return None
    if kind is AmqpType.LIST or kind is AmqpType.ARRAY:
        members = held if kind is AmqpType.LIST else held.elements
        fields = [_field(member, depth + 1) for member in members]
        return Field(FieldType.ARRAY, tuple(field for field in fields if field is not None))
    if kind is AmqpType.MAP:
        return Field(FieldType.TABLE, _table(held, depth + 1))
    return None


def _table(pairs: Any, depth: int) -> Table:
    found: Table = {}
    for key, value in pairs:
        field = _field(value, depth)
        octets = key.octets()
        if field is not None and octets is not None and len(octets) <= _SHORT_STRING_BYTES:
            found.setdefault(octets.decode("utf-8", "surrogateescape"), field)
    return found


_UNREADABLE = _composed(_Envelope(None, None, {}, frozenset(), []), {}, [])
