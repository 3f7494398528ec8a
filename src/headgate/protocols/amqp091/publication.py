"""Messages of AMQP 0.9.1 to the stored form, AMQP 1.0; those of STOMP go the same way. The way back is in `delivery`.

    0.9.1                               stored
    delivery-mode 2 / other             header.durable true / false
    priority, expiration                header.priority, header.ttl
    message-id, correlation-id          properties, string; `urn:uuid:…` as uuid
    user-id, reply-to                   properties: binary, string `/queues/<percent-encoded>`
    content-type, content-encoding      properties, symbol
    timestamp, app-id                   properties.creation-time (ms), properties.group-id
    type                                annotation x-basic-type
    headers x-…, CC                     annotations of that name, x-cc
    other headers of simple types       application properties; arrays and tables are dropped
    exchange, routing key               annotations x-exchange, x-routing-key
    body                                one data section; of type `amqp-1.0`: the body sections that it is

Encodings are written directly instead of through `AmqpValue`: this runs once per published message, and, where headers
repeat, once per distinct header.

Source: RabbitMQ 4.3 (`mc_amqpl`), which filters on streams rely on.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from headgate.errors import MessageError, PreconditionFailedError
from headgate.message import Message, Section
from headgate.protocols.amqp091.fields import Field, FieldType, Table
from headgate.protocols.amqp091.properties import BasicProperties, decode_properties

FILTER_VALUE_HEADER = "x-stream-filter-value"
SECTIONS_TYPE = "amqp-1.0"
"""The type of a message whose body is no bytes but AMQP 1.0 sections."""

MAX_STRING_BYTES = 4096
"""A long string of more bytes is stored as binary."""

_MAX_TTL_MS = 2**32 - 1
_CACHED_BYTES = 256
_DROPPED = frozenset({FieldType.ARRAY, FieldType.TABLE})


class Publication(msgspec.Struct, frozen=True):
    """What the headers of one published message say.

    `sections` are the encoded sections before the body; `routing_keys` what CC and BCC add; `is_sections`: the body is
    AMQP 1.0 sections by the message's own word.
    """

    sections: bytes
    filter_value: bytes | None
    routing_keys: tuple[str, ...]
    user_id: str | None
    is_sections: bool

    def stored(self, body: bytes) -> bytes:
        """The message as a stream keeps it."""
        if self.is_sections and _is_body(body):
            return self.sections + body
        size = len(body)
        if size <= 0xFF:
            return b"%b\x00\x53\x75\xa0%c%b" % (self.sections, size, body)
        return b"%b\x00\x53\x75\xb0%b%b" % (self.sections, size.to_bytes(4, "big"), body)


def _is_body(body: bytes) -> bool:
    """Whether bytes are body sections, a footer behind them or not, and nothing else."""
    try:
        message = Message.decode(body)
        message.decode_all()
    except MessageError:
        return False
    return message.body is not None and body[:2] == b"\x00\x53" and body[2] >= Section.DATA


def read_publication(exchange: str, routing_key: str, header: bytes) -> Publication:
    """What a content header (a header frame's payload) says of a message published to that place.

    Raises `RemoteProtocolError` if it does not decode, `PreconditionFailedError` for values that cannot be stored.
    """
    if len(header) <= _CACHED_BYTES:
        return _cached_publication(exchange, routing_key, header)
    return publication(exchange, routing_key, decode_properties(header))


@functools.lru_cache(maxsize=1024)
def _cached_publication(exchange: str, routing_key: str, header: bytes) -> Publication:
    return publication(exchange, routing_key, decode_properties(header))


def publication(exchange: str, routing_key: str, properties: BasicProperties) -> Publication:
    """The stored form of a message's properties. Raises `PreconditionFailedError` for values that cannot be stored."""
    headers = properties.headers or {}
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
    if properties.type is not None:
        annotations["x-basic-type"] = _string(properties.type)
    parts = [_section(Section.HEADER, _list(_header_fields(properties)))]
    parts.append(
        _section(
            Section.MESSAGE_ANNOTATIONS,
            _map([part for name, value in annotations.items() for part in (_name_symbol(name), value)]),
        )
    )
    fields = _list(_properties_fields(properties))
    if fields != _EMPTY_LIST:
        parts.append(_section(Section.PROPERTIES, fields))
    if application:
        parts.append(_section(Section.APPLICATION_PROPERTIES, _map(application)))
    return Publication(
        sections=b"".join(parts),
        filter_value=_filter_value(headers.get(FILTER_VALUE_HEADER)),
        routing_keys=(*_routes("CC", headers), *_routes("BCC", headers)),
        user_id=properties.user_id,
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
    """The routing keys of a header with further recipients."""
    field = headers.get(name)
    if field is None:
        return []
    if field.type is not FieldType.ARRAY or any(route.type is not FieldType.LONG_STRING for route in field.value):
        raise PreconditionFailedError(f"unsupported value of the header {name}: expected an array of long strings")
    return [route.value.decode("utf-8", "surrogateescape") for route in field.value]


_NULL = b"\x40"
_EMPTY_LIST = b"\x45"


def _header_fields(properties: BasicProperties) -> list[bytes]:
    fields = [b"\x41" if properties.delivery_mode == 2 else b"\x42", _NULL, _NULL]
    if properties.priority is not None:
        fields[1] = b"\x50%c" % properties.priority
    if properties.expiration is not None:
        expiration = properties.expiration
        if not (expiration.isascii() and expiration.isdigit() and int(expiration[:20]) <= _MAX_TTL_MS):
            raise PreconditionFailedError(
                f"invalid expiration {expiration!r}: expected 0 to {_MAX_TTL_MS} milliseconds"
            )
        fields[2] = _unsigned_int(int(expiration))
    return fields


def _properties_fields(properties: BasicProperties) -> list[bytes]:
    def optional(text: str | None, encode: Callable[[str], bytes]) -> bytes:
        return _NULL if text is None else encode(text)

    return [
        optional(properties.message_id, _message_id),
        optional(properties.user_id, lambda text: _octets(0xA0, text.encode("utf-8", "surrogateescape"))),
        _NULL,
        _NULL,
        optional(properties.reply_to, _reply_to),
        optional(properties.correlation_id, _message_id),
        optional(properties.content_type, _symbol),
        optional(properties.content_encoding, _symbol),
        _NULL,
        _NULL if properties.timestamp is None else _timestamp("timestamp", properties.timestamp),
        optional(properties.app_id, _string),
    ]


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
    if seconds >= 2**63 // 1000:
        raise PreconditionFailedError(f"{name} {seconds} is beyond all timestamps in milliseconds")
    return b"\x83" + (seconds * 1000).to_bytes(8, "big")


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


# Names repeat from message to message, and are short.
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


_NUMBERS: dict[FieldType, struct.Struct] = {
    FieldType.BYTE: struct.Struct(">Bb"),
    FieldType.UNSIGNED_BYTE: struct.Struct(">BB"),
    FieldType.SHORT: struct.Struct(">Bh"),
    FieldType.UNSIGNED_SHORT: struct.Struct(">BH"),
    FieldType.FLOAT: struct.Struct(">Bf"),
    FieldType.DOUBLE: struct.Struct(">Bd"),
}
_NUMBER_CONSTRUCTORS: dict[FieldType, int] = {
    FieldType.BYTE: 0x51,
    FieldType.UNSIGNED_BYTE: 0x50,
    FieldType.SHORT: 0x61,
    FieldType.UNSIGNED_SHORT: 0x60,
    FieldType.FLOAT: 0x72,
    FieldType.DOUBLE: 0x82,
}
_SIGNED: dict[FieldType, tuple[int, struct.Struct]] = {
    FieldType.INT: (0x54, struct.Struct(">Bi")),
    FieldType.LONG: (0x55, struct.Struct(">Bq")),
}


def _encoded_field(name: str, field: Field) -> bytes:
    kind, value = field.type, field.value
    if kind is FieldType.LONG_STRING:
        return _octets(0xA1 if _is_text(value) else 0xA0, value)
    if kind in _SIGNED:
        constructor, numbers = _SIGNED[kind]
        if -128 <= value <= 127:
            return struct.pack(">Bb", constructor, value)
        return numbers.pack(0x71 if kind is FieldType.INT else 0x81, value)
    if kind in _NUMBERS:
        return _NUMBERS[kind].pack(_NUMBER_CONSTRUCTORS[kind], value)
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
