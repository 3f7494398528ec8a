"""Frames of AMQP 1.0: their heads, and the headers that begin each layer of a connection.

    size u32 | data offset u8, in units of 4 bytes | type u8 | channel u16 | extended header | performative | payload

Type 0 is AMQP, 1 is SASL (the channel is ignored there). A frame of 8 bytes is empty: a heartbeat.
Source: OASIS AMQP 1.0 part 2 (transport), sections 2.2 and 2.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp10.codes import Condition

FRAME_HEAD_BYTES = 8
MIN_MAX_FRAME_SIZE = 512
"""Every peer takes frames of that size."""

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

AMQP_FRAME, SASL_FRAME = 0, 1

HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""The empty frame."""

_HEAD = struct.Struct(">IBBH")


@dataclass(slots=True)
class Frame:
    """One frame in a buffer: its body lies at `body` … `stop`."""

    type: int
    channel: int
    body: int
    stop: int


def read_frame(data: memoryview, position: int, max_frame_size: int) -> Frame | None:
    """The frame at `position`; None while it is not all there. Raises RemoteProtocolError for a head that is wrong."""
    if len(data) - position < FRAME_HEAD_BYTES:
        return None
    size, data_offset, kind, channel = _HEAD.unpack_from(data, position)
    if size < FRAME_HEAD_BYTES or not 2 <= data_offset <= size // 4:
        raise _refused(f"a frame of {size} bytes whose body begins at {4 * data_offset}")
    if size > max_frame_size:
        raise _refused(f"a frame of {size} bytes; at most {max_frame_size} were agreed")
    if kind not in (AMQP_FRAME, SASL_FRAME):
        raise _refused(f"no frame has the type {kind}")
    if len(data) - position < size:
        return None
    return Frame(kind, channel, position + 4 * data_offset, position + size)


def encode_frame(channel: int, body: bytes, *, kind: int = AMQP_FRAME) -> bytes:
    """A frame around a performative and its payload."""
    return _HEAD.pack(FRAME_HEAD_BYTES + len(body), 2, kind, channel) + body


def _refused(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(reason, code=Condition.FRAMING_ERROR)
