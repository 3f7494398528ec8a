"""Frames of AMQP 0.9.1.

    type uint8 (1 method, 2 content header, 3 content body, 8 heartbeat), channel uint16, size uint32, payload, 0xCE

Source: AMQP 0-9-1, section 4.2.3.
"""

from __future__ import annotations

import enum
import struct

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
"""The first bytes of a client."""

FRAME_END = 0xCE
FRAME_HEAD = struct.Struct(">BHI")
FRAME_OVERHEAD_BYTES = 8
"""Head and end of a frame."""

MIN_FRAME_SIZE_BYTES = 8192
"""No side may ask for smaller frames; before limits are agreed on, frames are no larger."""

HEARTBEAT = FRAME_HEAD.pack(8, 0, 0) + bytes([FRAME_END])


class FrameType(enum.IntEnum):
    """The kinds of frames."""

    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8


def encode_frame(kind: FrameType, channel: int, payload: bytes) -> bytes:
    """A whole frame."""
    return b"%b%b\xce" % (FRAME_HEAD.pack(kind, channel, len(payload)), payload)


def encode_content(channel: int, method: bytes, header: bytes, body: bytes, max_frame_bytes: int) -> bytes:
    """The frames of a method with content; the body is cut to frames of at most `max_frame_bytes`."""
    size = len(body)
    max_payload = max_frame_bytes - FRAME_OVERHEAD_BYTES
    head = b"%b%b\xce%b%b\xce" % (
        FRAME_HEAD.pack(1, channel, len(method)),
        method,
        FRAME_HEAD.pack(2, channel, len(header)),
        header,
    )
    if size <= max_payload:
        return head if not size else b"%b%b%b\xce" % (head, FRAME_HEAD.pack(3, channel, size), body)
    parts = [encode_frame(FrameType.BODY, channel, body[at : at + max_payload]) for at in range(0, size, max_payload)]
    return head + b"".join(parts)
