"""The properties of a message and the content header that carries them.

    class uint16 (60), weight uint16 (0), body size uint64, property flags uint16, the properties whose flag is set

Source: AMQP 0-9-1, section 4.2.6.1 and class basic.
"""

from __future__ import annotations

import struct

import msgspec

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091.codes import ReplyCode
from headgate.protocols.amqp091.fields import Table, decode_table, encode_table, encoded_table

BASIC_CLASS = 60
_HEADER = struct.Struct(">HHQH")
_TIMESTAMP = struct.Struct(">q")


class BasicProperties(msgspec.Struct):
    """The properties of a message, headers among them; None = not given.

    `timestamp` is in seconds, signed as in RabbitMQ; `expiration` is text in ms.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


PROPERTY_FLAGS = {name: 1 << (15 - number) for number, name in enumerate(BasicProperties.__struct_fields__)}
"""The flag of each property; they stand in the order of the flags, the highest first."""

_UNKNOWN_FLAGS = 0xFFFF & ~sum(PROPERTY_FLAGS.values())
_OCTETS = frozenset({"delivery_mode", "priority"})


def decode_content_header(payload: bytes) -> tuple[int, int]:
    """Body size and property flags of a header frame's payload; the properties begin at byte 14.

    Raises `RemoteProtocolError` (501) for another class than basic, or a payload that is too short.
    """
    if len(payload) < _HEADER.size:
        raise RemoteProtocolError(f"a content header of {len(payload)} bytes", code=ReplyCode.FRAME_ERROR)
    class_id, _, body_size, flags = _HEADER.unpack_from(payload)
    if class_id != BASIC_CLASS:
        raise RemoteProtocolError(f"a content header of class {class_id}", code=ReplyCode.FRAME_ERROR)
    return body_size, flags


def decode_properties(payload: bytes) -> BasicProperties:
    """The properties of a header frame's payload. Raises `RemoteProtocolError` (501 or 502) if they do not decode."""
    properties, table = split_properties(payload)
    if table is not None:
        properties.headers, _ = decode_table(table, 0, len(table))
    return properties


def with_reply_to(payload: bytes, reply_to: str) -> bytes:
    """A header frame's payload with another `reply_to`."""
    body_size, _ = decode_content_header(payload)
    properties = decode_properties(payload)
    properties.reply_to = reply_to
    return encode_content_header(properties, body_size)


def split_properties(payload: bytes) -> tuple[BasicProperties, bytes | None]:
    """The properties without headers, and the headers as they are encoded.

    Raises `RemoteProtocolError` (501 or 502) if they do not decode.
    """
    _, flags = decode_content_header(payload)
    if flags & _UNKNOWN_FLAGS:
        raise RemoteProtocolError(f"unknown property flags {flags:#06x}", code=ReplyCode.FRAME_ERROR)
    properties, table = BasicProperties(), None
    position, stop = _HEADER.size, len(payload)
    for name, flag in PROPERTY_FLAGS.items():
        if not flags & flag:
            continue
        if name == "headers":
            table = encoded_table(payload, position, stop)
            position += len(table)
            continue
        if position >= stop:
            raise _too_short(name)
        if name in _OCTETS:
            setattr(properties, name, payload[position])
            position += 1
        elif name == "timestamp":
            if stop - position < _TIMESTAMP.size:
                raise _too_short(name)
            properties.timestamp = _TIMESTAMP.unpack_from(payload, position)[0]
            position += _TIMESTAMP.size
        else:
            end = position + 1 + payload[position]
            if end > stop:
                raise _too_short(name)
            setattr(properties, name, payload[position + 1 : end].decode("utf-8", "surrogateescape"))
            position = end
    if position != stop:
        raise RemoteProtocolError(f"{stop - position} bytes behind the properties", code=ReplyCode.SYNTAX_ERROR)
    return properties, table


def _too_short(name: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the content header ends within {name}", code=ReplyCode.SYNTAX_ERROR)


def encode_content_header(properties: BasicProperties, body_size: int) -> bytes:
    """The payload of a header frame. Texts longer than 255 bytes raise ValueError."""
    flags = 0
    parts: list[bytes] = []
    for name, flag in PROPERTY_FLAGS.items():
        value = getattr(properties, name)
        if value is None:
            continue
        flags |= flag
        if name == "headers":
            parts.append(encode_table(value))
        elif name in _OCTETS:
            parts.append(bytes([value]))
        elif name == "timestamp":
            parts.append(_TIMESTAMP.pack(value))
        else:
            encoded = value.encode("utf-8", "surrogateescape")
            parts += (bytes([len(encoded)]), encoded)
    return _HEADER.pack(BASIC_CLASS, 0, body_size, flags) + b"".join(parts)
