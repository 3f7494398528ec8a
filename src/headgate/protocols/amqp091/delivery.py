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
beyond 63 bits becomes its digits, a uuid its URN, a character its code point; decimals and described values are left
out.

Source: RabbitMQ 4.3 (`mc_amqpl`).
"""

from __future__ import annotations

import functools
import struct
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from headgate.errors import MessageError
from headgate.message import AmqpType, AmqpValue, Message, Section
from headgate.message.framing import section_spans
from headgate.protocols.amqp091.fields import MAX_DEPTH, Field, FieldType, Table, long_string
from headgate.protocols.amqp091.properties import BASIC_CLASS, BasicProperties, encode_content_header
from headgate.protocols.amqp091.publication import SECTIONS_TYPE

OFFSET_HEADER = "x-stream-offset"
"""The header with a message's offset, on every delivery from a stream."""

_SHORT_STRING_BYTES = 255
_CACHED_BYTES = 256
_BROKER_ANNOTATIONS = frozenset({"x-routing-key", "x-exchange", "x-death", OFFSET_HEADER})
_DATA_SECTION = b"\x00\x53\x75"
_SECTION_SIZES = {0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}


class Delivery(msgspec.Struct, frozen=True):
    """A stored message without its body; exchange and routing key are None if it was not published through one.

    A content header of it is `header_start`, the body size (uint64), `header_middle`, the offset (int64), `header_end`.
    """

    properties: BasicProperties
    exchange: str | None
    routing_key: str | None
    header_start: bytes
    header_middle: bytes
    header_end: bytes

    def content_header(self, offset: int, body_size: int) -> bytes:
        """The payload of a header frame, with the offset among the headers."""
        return b"".join(
            (
                self.header_start,
                body_size.to_bytes(8, "big"),
                self.header_middle,
                offset.to_bytes(8, "big"),
                self.header_end,
            )
        )


def read_delivery(data: bytes) -> tuple[Delivery, bytes]:
    """A stored message and its body.

    Bytes that are no AMQP 1.0 message (clients of the stream protocol may store any) are the body as they are.
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
    """Where the body begins; sections before it in their usual encoding are stepped over without being looked into."""
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


def _delivery(sections: bytes, is_octets: bool) -> Delivery:
    message = Message.decode(sections)
    header = message.header or {}
    properties = message.properties or {}
    annotations = message.message_annotations or {}
    headers: Table = {}
    for name, value in annotations.items():
        if name == "x-cc":
            _add(headers, "CC", value)
        elif name.startswith("x-") and name not in _BROKER_ANNOTATIONS and not name.startswith("x-basic-"):
            _add(headers, name, value)
    for name, value in (message.application_properties or {}).items():
        _add(headers, name, value)
    durable, priority, ttl = (header.get(name) for name in ("durable", "priority", "ttl"))
    created = properties.get("creation-time")
    found = BasicProperties(
        content_type=_short_string(properties.get("content-type")),
        content_encoding=_short_string(properties.get("content-encoding")),
        delivery_mode=(2 if durable.value else 1) if durable and durable.type is AmqpType.BOOLEAN else None,
        priority=priority.value if priority and priority.type is AmqpType.UBYTE else None,
        correlation_id=_message_id(properties.get("correlation-id"), "x-correlation-id", headers),
        reply_to=_reply_to(properties.get("reply-to")),
        expiration=str(ttl.value) if ttl and ttl.type is AmqpType.UINT else None,
        message_id=_message_id(properties.get("message-id"), "x-message-id", headers),
        timestamp=created.value // 1000
        if created and created.type is AmqpType.TIMESTAMP and created.value >= 0
        else None,
        type=_short_string(annotations.get("x-basic-type")) if is_octets else SECTIONS_TYPE,
        user_id=_user_id(properties.get("user-id")),
        app_id=_short_string(properties.get("group-id")),
    )
    found.headers = headers or None
    return _composed(
        found, _short_string(annotations.get("x-exchange")), _short_string(annotations.get("x-routing-key"))
    )


_cached_delivery = functools.lru_cache(maxsize=1024)(_delivery)


def _composed(properties: BasicProperties, exchange: str | None, routing_key: str | None) -> Delivery:
    """The content header with the offset as the first of the headers, cut at the places that differ by message."""
    marked = {OFFSET_HEADER: Field(FieldType.LONG, 0), **(properties.headers or {})}
    encoded = encode_content_header(msgspec.structs.replace(properties, headers=marked), 0)
    offset_name = b"%c%bl" % (len(OFFSET_HEADER), OFFSET_HEADER.encode())
    table = _position_of_headers(encoded)
    value = table + 4 + len(offset_name)
    return Delivery(
        properties=properties,
        exchange=exchange,
        routing_key=routing_key,
        header_start=struct.pack(">HH", BASIC_CLASS, 0),
        header_middle=encoded[12:value],
        header_end=encoded[value + 8 :],
    )


def _position_of_headers(encoded: bytes) -> int:
    """Where the table of headers begins in a content header: behind content type and content encoding."""
    position = 14
    for flag in (0x80, 0x40):
        if encoded[12] & flag:
            position += 1 + encoded[position]
    return position


def _add(headers: Table, name: str, value: AmqpValue) -> None:
    field = _field(value, 0)
    if field is not None and len(name.encode("utf-8", "surrogateescape")) <= _SHORT_STRING_BYTES:
        headers.setdefault(name, field)


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
    """The value of a header; None for what has no place in a table."""
    kind, held = value.type, value.value
    if kind in _FIELD_TYPES:
        return Field(_FIELD_TYPES[kind], held)
    if kind in (AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY):
        return long_string(held)
    if kind is AmqpType.ULONG:
        return Field(FieldType.LONG, held) if held < 2**63 else long_string(str(held))
    if kind is AmqpType.TIMESTAMP:
        return Field(FieldType.TIMESTAMP if held >= 0 else FieldType.LONG, held // 1000)
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


def _short_string(value: AmqpValue | None) -> str | None:
    """The text of a string or symbol that fits a short string."""
    if value is None or value.type not in (AmqpType.STRING, AmqpType.SYMBOL):
        return None
    text: str = value.value
    return text if len(text.encode("utf-8", "surrogateescape")) <= _SHORT_STRING_BYTES else None


def _user_id(value: AmqpValue | None) -> str | None:
    octets = None if value is None else value.octets()
    if octets is None or len(octets) > _SHORT_STRING_BYTES or b"\0" in octets:
        return None
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _reply_to(value: AmqpValue | None) -> str | None:
    text = _short_string(value)
    if text is None or not text.startswith("/queues/"):
        return text
    queue = unquote_to_bytes(text.removeprefix("/queues/").encode("utf-8", "surrogateescape"))
    return queue.decode("utf-8", "surrogateescape")


def _message_id(value: AmqpValue | None, header: str, headers: Table) -> str | None:
    """The id as text; where it cannot be one, it goes into `headers` under the name `header`."""
    if value is None:
        return None
    if value.type is AmqpType.ULONG:
        return str(value.value)
    if value.type is AmqpType.UUID:
        return f"urn:uuid:{value.value}"
    text = _short_string(value)
    if text is None and value.type is AmqpType.BINARY:
        headers.setdefault(header, Field(FieldType.BINARY, value.value))
    elif text is None and value.type is AmqpType.STRING:
        headers.setdefault(header, long_string(value.value))
    return text


_UNREADABLE = _composed(BasicProperties(), None, None)
