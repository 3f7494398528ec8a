"""Frames of HTTP/2, and the blocks of header fields that a server sends. Source: RFC 9113, RFC 7541.

    length (3 bytes), type, flags, stream (4 bytes, the highest bit is nothing), content

Header fields are sent "without indexing", so without the table of fields that both ends keep: each answer is the same
bytes and costs nothing to encode.
"""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
FRAME_BYTES = 16_384
"""Limit: bytes of a frame's content, which every peer takes."""
WINDOW_BYTES = 65_535
"""The initial window of a stream, and of a connection, in bytes."""
LARGEST_WINDOW = 2**31 - 1


class Frame(IntEnum):
    """Types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM = ACK = 0x01
END_HEADERS = 0x04
PADDED = 0x08
PRIORITIZED = 0x20


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """The settings of HTTP/2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


_HEADER = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")


def frame(kind: Frame, flags: int, stream: int, content: bytes = b"") -> bytes:
    """One frame."""
    size = len(content)
    return _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + content


def settings(values: dict[Setting, int]) -> bytes:
    """A frame that tells settings."""
    return frame(Frame.SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values.items()))


def window_update(stream: int, count: int) -> bytes:
    """A frame that lets the peer send `count` bytes more."""
    return frame(Frame.WINDOW_UPDATE, 0, stream, _NUMBER.pack(count))


def reset(stream: int, code: ErrorCode) -> bytes:
    """A frame that ends a stream."""
    return frame(Frame.RST_STREAM, 0, stream, _NUMBER.pack(code))


def go_away(last: int, code: ErrorCode, text: str = "") -> bytes:
    """A frame that says that streams behind `last` are not served."""
    return frame(Frame.GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + text.encode("ascii", "replace"))


def field(name: bytes, value: bytes) -> bytes:
    """A header field as it lies in a block, without indexing and without Huffman's code."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    octets, size = bytearray((127,)), size - 127
    while size >= 128:
        octets.append(size & 127 | 128)
        size >>= 7
    octets.append(size)
    return bytes(octets) + text


STATUS_200 = b"\x88"
"""The field `:status: 200`, which has a number of its own."""
