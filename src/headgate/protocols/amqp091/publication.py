"""Messages of AMQP 0.9.1, and of STOMP, in the stored form, AMQP 1.0. The way back is in `delivery`.

    0.9.1                               stored
    delivery-mode 2 / other             header.durable true / false
    priority, expiration                header.priority, header.ttl (at most 2^32 - 1 ms)
    message-id, correlation-id          properties, string; `urn:uuid:…` as uuid
    user-id, reply-to                   properties: binary, string `/queues/<percent-encoded>`
    content-type, content-encoding      properties, symbol
    timestamp, app-id                   properties.creation-time (ms), properties.group-id
    type                                annotation x-basic-type
    headers x-…, CC                     annotations of that name, x-cc
    other headers of simple types       application properties; arrays and tables are dropped
    exchange, routing key               annotations x-exchange, x-routing-key
    body                                one data section; of type `amqp-1.0`: the body sections that it is

Encodings are written directly instead of through `AmqpValue`: this runs once per published message, and, where all
properties or at least the headers repeat, once per distinct ones.

Source: RabbitMQ 4.3 (`mc_amqpl`), which filters on streams rely on.
"""

from __future__ import annotations

import functools
import struct
from urllib.parse import quote

import msgspec

from headgate.errors import MessageError, PreconditionFailedError
from headgate.message import Message, Section
from headgate.protocols.amqp091.fields import Field, FieldType, Table, decode_table, plain_value
from headgate.protocols.amqp091.properties import BasicProperties, split_properties

FILTER_VALUE_HEADER = "x-stream-filter-value"
SECTIONS_TYPE = "amqp-1.0"
"""The type of a message whose body is AMQP 1.0 sections instead of plain bytes."""

MAX_STRING_BYTES = 4096
"""A long string of more bytes is stored as binary."""

_MAX_TTL_MS = 2**32 - 1
"""At most this fits the header: 49 days. A longer time is stored as this; streams do not expire messages by it."""

_MAX_EXPIRATION_MS = 10 * 365 * 86_400_000
_CACHED_BYTES = 256
_DROPPED = frozenset({FieldType.ARRAY, FieldType.TABLE})


class Publication(msgspec.Struct, frozen=True):
    """Properties and headers of one published message, in the stored form.

    `sections` are the encoded sections before the body; `headers` are unchanged; `routing_keys` come from CC and BCC;
    `is_sections`: the message's type says that the body is AMQP 1.0 sections.
    """

    sections: bytes
    headers: Table
    filter_value: bytes | None
    routing_keys: tuple[str, ...]
    user_id: str | None
    reply_to: str | None
    is_sections: bool

    def stored(self, body: bytes) -> bytes:
        """The message as a stream keeps it."""
        if self.is_sections and _is_body(body):
            return self.sections + body
        size = len(body)
        if size <= 0xFF:
            return b"%b\x00\x53\x75\xa0%c%b" % (self.sections, size, body)
        return b"%b\x00\x53\x75\xb0%b%b" % (self.sections, size.to_bytes(4, "big"), body)

    def routing_headers(self) -> dict[str, object]:
        """The headers as headers exchanges compare them: plain values, times in milliseconds, bytes like texts.

        BCC is left out.
        """
        return {name: _routing_value(field) for name, field in self.headers.items() if name != "BCC"}


def _routing_value(field: Field) -> object:
    if field.type is FieldType.TIMESTAMP:
        return field.value * 1000
    value = plain_value(field)
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _is_body(body: bytes) -> bool:
    """Whether bytes are body sections, a footer behind them or not, and nothing else."""
    try:
        message = Message.decode(body)
        message.decode_all()
    except MessageError:
        return False
    return message.body is not None and body[:2] == b"\x00\x53" and body[2] >= Section.DATA


def read_publication(exchange: str, routing_key: str, header: bytes) -> Publication:
    """The stored form of a content header (a header frame's payload), for that exchange and routing key.

    Raises `RemoteProtocolError` if it does not decode, `PreconditionFailedError` for values that cannot be stored.
    """
    read = _cached_publication if len(header) <= _CACHED_BYTES else _publication
    return read(exchange, routing_key, header)


def _publication(exchange: str, routing_key: str, header: bytes) -> Publication:
    properties, table = split_properties(header)
    if table is None:
        return publication(exchange, routing_key, properties)
    # Messages with ids and times of their own have few different headers.
    read = _cached_headers if len(table) <= _CACHED_BYTES else _headers_of_table
    return _joined(properties, read(exchange, routing_key, properties.type, table))


_cached_publication = functools.lru_cache(maxsize=1024)(_publication)


def publication(exchange: str, routing_key: str, properties: BasicProperties) -> Publication:
    """The stored form of a message's properties. Raises `PreconditionFailedError` for values that cannot be stored."""
    return _joined(properties, _headers(exchange, routing_key, properties.type, properties.headers or {}))


class _Headers(msgspec.Struct, frozen=True):
    """The headers of a message as two sections, the second empty without entries; filter value and routing keys."""

    fields: Table
    annotations: bytes
    application: bytes
    filter_value: bytes | None
    routing_keys: tuple[str, ...]


def _headers(exchange: str, routing_key: str, kind: str | None, headers: Table) -> _Headers:
    annotations: dict[str, bytes] = {}
    application: list[bytes] = []
    for name, field in headers.items():
        if name.startswith("x-"):
            annotations[name] = _encoded_field(name, field)
        elif name == "CC" and field.type is FieldType.ARRAY:
            annotations["x-cc"] = _encoded_field(name, field)
        elif field.type not in _DROPPED:
            application += (_name_string(name), _encoded_field(name, field))
    annotations["x-exchange"] = _string(exchange)
    annotations["x-routing-key"] = _string(routing_key)
    if kind is not None:
        annotations["x-basic-type"] = _string(kind)
    entries = [part for name, value in annotations.items() for part in (_name_symbol(name), value)]
    return _Headers(
        headers,
        _section(Section.MESSAGE_ANNOTATIONS, _map(entries)),
        _section(Section.APPLICATION_PROPERTIES, _map(application)) if application else b"",
        _filter_value(headers.get(FILTER_VALUE_HEADER)),
        (*_routes("CC", headers), *_routes("BCC", headers)),
    )


def _headers_of_table(exchange: str, routing_key: str, kind: str | None, table: bytes) -> _Headers:
    return _headers(exchange, routing_key, kind, decode_table(table, 0, len(table))[0])


_cached_headers = functools.lru_cache(maxsize=1024)(_headers_of_table)


def _joined(properties: BasicProperties, headers: _Headers) -> Publication:
    header = _header_section(properties.delivery_mode == 2, properties.priority, properties.expiration)
    return Publication(
        sections=b"%b%b%b%b" % (header, headers.annotations, _properties_section(properties), headers.application),
        headers=headers.fields,
        filter_value=headers.filter_value,
        routing_keys=headers.routing_keys,
        user_id=properties.user_id,
        reply_to=properties.reply_to,
        is_sections=properties.type == SECTIONS_TYPE,
    )


def _filter_value(field: Field | None) -> bytes | None:
    if field is None:
        return None
    if field.type is not FieldType.LONG_STRING:
        raise PreconditionFailedError(f"a filter value is a long string, found {field.type.name.lower()}")
    value: bytes = field.value
    return value


def _routes(name: str, headers: Table) -> list[str]:
    field = headers.get(name)
    if field is None:
        return []
    if field.type is not FieldType.ARRAY or any(route.type is not FieldType.LONG_STRING for route in field.value):
        raise PreconditionFailedError(f"unsupported value of the header {name}: expected an array of long strings")
    return [route.value.decode("utf-8", "surrogateescape") for route in field.value]


_NULL = b"\x40"
_EMPTY_LIST = b"\x45"


@functools.lru_cache(maxsize=1024)
def _header_section(is_durable: bool, priority: int | None, expiration: str | None) -> bytes:
    fields = [b"\x41" if is_durable else b"\x42", _NULL, _NULL]
    if priority is not None:
        fields[1] = b"\x50%c" % priority
    if expiration is not None:
        if not (expiration.isascii() and expiration.isdigit() and int(expiration) <= _MAX_EXPIRATION_MS):
            raise PreconditionFailedError(
                f"invalid expiration {expiration!r}: expected 0 to {_MAX_EXPIRATION_MS} milliseconds"
            )
        fields[2] = _unsigned_int(min(int(expiration), _MAX_TTL_MS))
    return _section(Section.HEADER, _list(fields))


def _properties_section(given: BasicProperties) -> bytes:
    fields = [
        _NULL if given.message_id is None else _message_id(given.message_id),
        _NULL if given.user_id is None else _octets(0xA0, given.user_id.encode("utf-8", "surrogateescape")),
        _NULL,
        _NULL,
        _NULL if given.reply_to is None else _reply_to(given.reply_to),
        _NULL if given.correlation_id is None else _message_id(given.correlation_id),
        _NULL if given.content_type is None else _name_symbol(given.content_type),
        _NULL if given.content_encoding is None else _name_symbol(given.content_encoding),
        _NULL,
        _NULL if given.timestamp is None else _timestamp("timestamp", given.timestamp),
        _NULL if given.app_id is None else _string(given.app_id),
    ]
    encoded = _list(fields)
    return b"" if encoded == _EMPTY_LIST else _section(Section.PROPERTIES, encoded)


def _message_id(text: str) -> bytes:
    urn = _uuid_of_urn(text)
    return _string(text) if urn is None else b"\x98" + urn


def _uuid_of_urn(text: str) -> bytes | None:
    """The sixteen bytes of `urn:uuid:8-4-4-4-12`, digits in any case; None for anything else."""
    if not (len(text) == 45 and text.startswith("urn:uuid:") and text.isascii()):
        return None
    groups = text[9:].split("-")
    if [len(group) for group in groups] != [8, 4, 4, 4, 12]:
        return None
    try:
        return bytes.fromhex("".join(groups)) if all(group.isalnum() for group in groups) else None
    except ValueError:
        return None


def _reply_to(text: str) -> bytes:
    return _string("/queues/" + quote(text.encode("utf-8", "surrogateescape"), safe=""))


def _timestamp(name: str, seconds: int) -> bytes:
    if not -(2**63) <= seconds * 1000 < 2**63:
        raise PreconditionFailedError(f"{name} {seconds} is beyond all timestamps in milliseconds")
    return b"\x83" + (seconds * 1000).to_bytes(8, "big", signed=True)


def _unsigned_int(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return b"\x52%c" % value if value <= 0xFF else b"\x70" + value.to_bytes(4, "big")


def _octets(constructor: int, octets: bytes) -> bytes:
    size = len(octets)
    if size <= 0xFF:
        return b"%c%c%b" % (constructor, size, octets)
    return b"%c%b%b" % (constructor + 0x10, size.to_bytes(4, "big"), octets)


def _string(text: str) -> bytes:
    return _octets(0xA1, text.encode("utf-8", "surrogateescape"))


def _symbol(text: str) -> bytes:
    return _octets(0xA3, text.encode("utf-8", "surrogateescape"))


# Names repeat from message to message, and are short; so do content types.
_name_string = functools.lru_cache(maxsize=1024)(_string)
_name_symbol = functools.lru_cache(maxsize=1024)(_symbol)


def _section(section: Section, value: bytes) -> bytes:
    return b"\x00\x53%c%b" % (section, value)


def _list(members: list[bytes]) -> bytes:
    """A list, nulls at its end left out."""
    count = len(members)
    while count and members[count - 1] == _NULL:
        count -= 1
    return _compound(0xC0, members[:count]) if count else _EMPTY_LIST


def _map(members: list[bytes]) -> bytes:
    return _compound(0xC1, members)


def _compound(constructor: int, members: list[bytes]) -> bytes:
    content = b"".join(members)
    if len(content) < 0xFF and len(members) <= 0xFF:
        return b"%c%c%c%b" % (constructor, len(content) + 1, len(members), content)
    return b"%c%b%b" % (constructor + 0x10, struct.pack(">II", len(content) + 4, len(members)), content)


_NUMBERS: dict[FieldType, tuple[int, struct.Struct]] = {
    FieldType.BYTE: (0x51, struct.Struct(">Bb")),
    FieldType.UNSIGNED_BYTE: (0x50, struct.Struct(">BB")),
    FieldType.SHORT: (0x61, struct.Struct(">Bh")),
    FieldType.UNSIGNED_SHORT: (0x60, struct.Struct(">BH")),
    FieldType.INT: (0x71, struct.Struct(">Bi")),
    FieldType.LONG: (0x81, struct.Struct(">Bq")),
    FieldType.FLOAT: (0x72, struct.Struct(">Bf")),
    FieldType.DOUBLE: (0x82, struct.Struct(">Bd")),
}
"""Constructor and layout of numbers."""

_SMALL = {FieldType.INT: 0x54, FieldType.LONG: 0x55}
"""Constructors of numbers that fit one byte."""


def _encoded_field(name: str, field: Field) -> bytes:
    kind, value = field.type, field.value
    if kind is FieldType.LONG_STRING:
        return _octets(0xA1 if _is_text(value) else 0xA0, value)
    if kind in _SMALL and -128 <= value <= 127:
        return struct.pack(">Bb", _SMALL[kind], value)
    if kind in _NUMBERS:
        constructor, numbers = _NUMBERS[kind]
        return numbers.pack(constructor, value)
    if kind is FieldType.UNSIGNED_INT:
        return _unsigned_int(value)
    if kind is FieldType.BOOLEAN:
        return b"\x41" if value else b"\x42"
    if kind is FieldType.TIMESTAMP:
        return _timestamp(name, value)
    if kind is FieldType.BINARY:
        return _octets(0xA0, value)
    if kind is FieldType.VOID:
        return _NULL
    if kind is FieldType.ARRAY:
        members = [_encoded_field(name, member) for member in value]
        return _compound(0xC0, members) if members else _EMPTY_LIST
    if kind is FieldType.TABLE:
        return _map([part for key, member in value.items() for part in (_symbol(key), _encoded_field(name, member))])
    raise PreconditionFailedError(
        f"the header {name!r} is a decimal, which cannot be stored; send a string or a double"
    )


def _is_text(value: bytes) -> bool:
    if len(value) > MAX_STRING_BYTES or b"\0" in value:
        return False
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
