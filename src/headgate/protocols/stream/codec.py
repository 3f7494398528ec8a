"""Frames to bytes and back, by the declarations in `frames`; a frame is a size of four bytes, key, version, fields."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, get_type_hints

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.stream.codes import REPLY_BIT, ResponseCode
from headgate.protocols.stream.frames import FROM_CLIENT, FROM_SERVER, Credit, Frame, Reply, Request
from headgate.protocols.stream.wire import Reader, WireType, malformed

FRAME_HEAD = struct.Struct(">IHH")
"""Size (without the size field itself), key, version."""

_KEY = struct.Struct(">HH")
_CORRELATION = struct.Struct(">I")
_CODE = struct.Struct(">H")
_VERSION = 1
_CREDIT = struct.Struct(">HHBh")
_CREDIT_HEAD = _KEY.pack(Credit.command, _VERSION)


class _Layout:
    """How frames of one class lie on the wire."""

    __slots__ = ("defaults", "fields", "has_code", "has_correlation", "key", "kind")

    def __init__(self, kind: type[Frame]) -> None:
        self.kind = kind
        self.key = kind.command | (REPLY_BIT if kind.is_reply else 0)
        self.has_code = issubclass(kind, Reply)
        self.has_correlation = self.has_code or issubclass(kind, Request)
        head = {"correlation_id"} if self.has_correlation else set()
        head |= {"code"} if self.has_code else set()
        hints = get_type_hints(kind, include_extras=True)
        self.fields: list[tuple[str, WireType[Any]]] = [
            (name, hints[name].__metadata__[0]) for name in kind.__struct_fields__ if name not in head
        ]
        without_head = [name for name in kind.__struct_fields__ if name not in head]
        optional = len(kind.__struct_defaults__) - len(head)
        self.defaults = set(without_head[len(without_head) - optional :])


def _tables(kinds: Iterable[type[Frame]]) -> dict[int, _Layout]:
    return {_LAYOUTS[kind].key: _LAYOUTS[kind] for kind in kinds}


_LAYOUTS = {kind: _Layout(kind) for kind in {*FROM_CLIENT, *FROM_SERVER}}
_FROM_CLIENT = _tables(FROM_CLIENT)
_FROM_SERVER = _tables(FROM_SERVER)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame, its size included; LocalProtocolError for a value that has no room on the wire."""
    layout = _LAYOUTS.get(type(frame))
    if layout is None:
        raise LocalProtocolError(f"{type(frame).__name__} is no frame of the stream protocol")
    target = bytearray(FRAME_HEAD.pack(0, layout.key, _VERSION))
    if isinstance(frame, Reply):
        target += _CORRELATION.pack(frame.correlation_id)
        target += _CODE.pack(frame.code)
        if frame.code != ResponseCode.OK and not frame.is_always_full:
            return _with_size(target)
    elif isinstance(frame, Request):
        target += _CORRELATION.pack(frame.correlation_id)
    for name, wire_type in layout.fields:
        wire_type.write(target, getattr(frame, name))
    return _with_size(target)


def decode_from_client(body: bytes) -> Frame:
    """The frame of a client, from its bytes without the size; `Publish` is not read here.

    Raises RemoteProtocolError (unknown frame) for an unknown key or version, and for malformed fields.
    """
    if len(body) == _CREDIT.size and body.startswith(_CREDIT_HEAD):
        # What a consumer says for each chunk.
        return Credit(*_CREDIT.unpack(body)[2:])
    return _decode(body, _FROM_CLIENT)


def decode_from_server(body: bytes) -> Frame:
    """The frame of a server; PublishConfirm, PublishError and Deliver are not read here. Errors as above."""
    return _decode(body, _FROM_SERVER)


def _with_size(target: bytearray) -> bytes:
    struct.pack_into(">I", target, 0, len(target) - 4)
    return bytes(target)


def _decode(body: bytes, table: dict[int, _Layout]) -> Frame:
    if len(body) < _KEY.size:
        malformed(f"{len(body)} bytes")
    key, version = _KEY.unpack_from(body)
    layout = table.get(key)
    if layout is None or version != _VERSION:
        raise RemoteProtocolError(f"unknown frame: key 0x{key:04x}, version {version}", code=ResponseCode.UNKNOWN_FRAME)
    reader = Reader(body, _KEY.size)
    values: dict[str, Any] = {}
    if layout.has_correlation:
        values["correlation_id"] = reader.number(_CORRELATION)
    if layout.has_code:
        values["code"] = reader.number(_CODE)
    for name, wire_type in layout.fields:
        if name in layout.defaults and reader.is_at_end:
            break
        values[name] = wire_type.read(reader)
    if not reader.is_at_end and not layout.kind.ignores_trailing_bytes:
        malformed(f"{reader.end - reader.at} bytes behind the fields of {layout.kind.__name__}")
    return layout.kind(**values)
