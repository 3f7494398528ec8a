"""Payloads of method frames, read and written by the fields of `methods`.

    class uint16, method uint16, then the fields; bits that stand side by side share octets, the first lowest

Source: AMQP 0-9-1, section 4.2.4.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, get_args, get_type_hints

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091.codes import ReplyCode
from headgate.protocols.amqp091.fields import decode_table, encode_table
from headgate.protocols.amqp091.methods import METHODS, BasicAck, Domain, Method

_HEAD = struct.Struct(">HH")
_NUMBERS = {form: struct.Struct(form.value) for form in Domain if form.value.startswith(">")}


def _layout(method: type[Method]) -> tuple[tuple[str, Domain], ...]:
    hints = get_type_hints(method, include_extras=True)
    return tuple((name, get_args(hints[name])[1]) for name in method.__struct_fields__)


_LAYOUTS: dict[type[Method], tuple[tuple[str, Domain], ...]] = {method: _layout(method) for method in METHODS.values()}
_CACHED_BYTES = 128
_ACK = struct.Struct(">HHQB")


def decode_method(payload: bytes) -> Method:
    """The method of a method frame's payload.

    Raises `RemoteProtocolError`: 540 for a method that does not exist, 502 for fields that do not decode.
    """
    if len(payload) == _ACK.size and payload.startswith(b"\x00\x3c\x00\x50"):
        _, _, delivery_tag, bits = _ACK.unpack(payload)
        return BasicAck(delivery_tag, bool(bits & 1))
    # A publisher says the same again and again.
    if len(payload) <= _CACHED_BYTES and payload.startswith(b"\x00\x3c\x00\x28"):
        return _decode_cached(payload)
    return _decode(payload)


def _decode(payload: bytes) -> Method:
    stop = len(payload)
    if stop < _HEAD.size:
        raise RemoteProtocolError(f"a method frame of {stop} bytes", code=ReplyCode.FRAME_ERROR)
    method = METHODS.get(_HEAD.unpack_from(payload))
    if method is None:
        class_id, method_id = _HEAD.unpack_from(payload)
        raise RemoteProtocolError(f"no method {method_id} of class {class_id}", code=ReplyCode.NOT_IMPLEMENTED)
    position = _HEAD.size
    values: list[Any] = []
    bit = 8
    for _, form in _LAYOUTS[method]:
        if form is Domain.BIT:
            if bit == 8:
                position, bit = _within(method, position, 1, stop), 0
            values.append(bool(payload[position - 1] >> bit & 1))
            bit += 1
            continue
        bit = 8
        if form is Domain.TABLE:
            value, position = decode_table(payload, position, stop)
            values.append(value)
            continue
        if form is Domain.SHORT_STRING or form is Domain.LONG_STRING:
            width = 1 if form is Domain.SHORT_STRING else 4
            start = _within(method, position, width, stop)
            position = _within(method, start, int.from_bytes(payload[position:start], "big"), stop)
            octets = payload[start:position]
            values.append(octets if width == 4 else octets.decode("utf-8", "surrogateescape"))
            continue
        numbers = _NUMBERS[form]
        end = _within(method, position, numbers.size, stop)
        values.append(numbers.unpack_from(payload, position)[0])
        position = end
    if position != stop:
        raise RemoteProtocolError(
            f"{stop - position} bytes behind the fields of {method.__name__}", code=ReplyCode.SYNTAX_ERROR
        )
    return method(*values)


_decode_cached = functools.lru_cache(maxsize=1024)(_decode)


def _within(method: type[Method], position: int, length: int, stop: int) -> int:
    if length > stop - position:
        raise RemoteProtocolError(f"{method.__name__} ends within its fields", code=ReplyCode.SYNTAX_ERROR)
    return position + length


def encode_method(method: Method) -> bytes:
    """The payload of a method frame. A value that does not fit its field is an error of our own."""
    if isinstance(method, BasicAck):
        return _ACK.pack(*BasicAck.CODE, method.delivery_tag, method.multiple)
    parts = [_HEAD.pack(*method.CODE)]
    bits, count = 0, 0
    for name, form in _LAYOUTS[type(method)]:
        value = getattr(method, name)
        if form is Domain.BIT:
            bits |= value << count
            count += 1
            continue
        if count:
            parts.append(bytes([bits]))
            bits, count = 0, 0
        if form is Domain.TABLE:
            parts.append(encode_table(value))
        elif form is Domain.SHORT_STRING:
            parts.append(encode_short_string(value))
        elif form is Domain.LONG_STRING:
            parts += (len(value).to_bytes(4, "big"), value)
        else:
            parts.append(_NUMBERS[form].pack(value))
    if count:
        parts.append(bytes([bits]))
    return b"".join(parts)


def encode_short_string(text: str) -> bytes:
    """A text of at most 255 bytes with its length in front."""
    octets = text.encode("utf-8", "surrogateescape")
    return b"%c%b" % (len(octets), octets)
