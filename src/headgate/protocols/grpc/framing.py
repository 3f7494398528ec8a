"""The framing of gRPC in HTTP/2: lengths before messages, statuses behind them, the time of a call.

    compressed (1 byte), length (4 bytes), message

Source: "gRPC over HTTP2" of the gRPC project.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from enum import IntEnum

from headgate.protocols.grpc.frames import STATUS_200, field

PREFIX_BYTES = 5

_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_WINDOW_BITS = {"gzip": 31, "deflate": 15}
_SHOWN = frozenset(range(0x20, 0x7F)) - {ord("%")}


class StatusCode(IntEnum):
    """How a call ends."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


CONTENT_TYPE = field(b"content-type", b"application/grpc")
RESPONSE_FIELDS = STATUS_200 + CONTENT_TYPE
UNSUPPORTED_MEDIA_TYPE = field(b":status", b"415")


def trailer_fields(code: StatusCode, text: str) -> bytes:
    """The fields that end a call."""
    fields = field(b"grpc-status", b"%d" % code)
    if not text:
        return fields
    octets = text.encode("utf-8", "replace")
    shown = b"".join(bytes((octet,)) if octet in _SHOWN else b"%%%02X" % octet for octet in octets)
    return fields + field(b"grpc-message", shown)


def prefixed(message: bytes) -> bytes:
    """A message behind its length, not compressed."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def timeout_s(headers: Mapping[str, str]) -> float | None:
    """The time limit that a call sets itself, in seconds; None without one, or for a malformed one."""
    found = _TIMEOUT.fullmatch(headers.get("grpc-timeout", ""))
    return None if found is None else int(found[1]) * _UNITS_S[found[2]]


def is_known(encoding: str) -> bool:
    """Whether messages in this compression can be read."""
    return encoding in _WINDOW_BITS


def expanded(data: bytes, encoding: str, most_bytes: int) -> bytes | None:
    """The content of a compressed message; None if it does not decompress, or is longer than `most_bytes`."""
    decoder = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        message = decoder.decompress(data, most_bytes + 1)
    except zlib.error:
        return None
    return message if decoder.eof and len(message) <= most_bytes else None
