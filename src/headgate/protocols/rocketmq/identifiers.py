"""Receipt handles, places of messages as one number, and message ids of the classic protocol.

    commit offset     1 << 62 | number << 45 | queue offset: names the queue's stream by its number
                      queue << 48 | queue offset: of a queue without one; whoever says it says the topic, too
    message id        address (4 or 16 bytes), port u32, commit offset u64: 32 or 56 upper-case hexadecimal digits
    receipt handle    base64url without padding: version u8 (1), queue u16, check u32, token

The check of a handle is a CRC32 of topic and group: a handle from another topic or group is refused. The original's
commit offsets are places in its log, and some of its clients ask for one without a topic. Source: rocketmq_wire, B2
and B5; `MessageDecoder.createMessageId` of RocketMQ 5.5.
"""

from __future__ import annotations

import base64
import binascii
import functools
import ipaddress
import struct
import zlib
from dataclasses import dataclass

from headgate.protocols.rocketmq.codes import Status, refused

MAX_QUEUES = 1 << 14
"""Limit: queues of a topic. With more, a commit offset would look as if it had a number."""

_QUEUE_BITS, _OFFSET_BITS = 48, 45
_NUMBERED = 1 << 62

NOWHERE = _NUMBERED
"""The commit offset of a message without a place: no queue has the number 0."""

_HANDLE = struct.Struct(">BHI")
_VERSION = 1


def first_place(number: int, queue: int) -> int:
    """The commit offset of the first message of a queue; that of queue offset n is n more, at most 2^45.

    `number` is that of its stream, 0 without one; then `queue` is which queue of its topic it is.
    """
    return _NUMBERED | number << _OFFSET_BITS if number else queue << _QUEUE_BITS


def numbered_place_of(commit_offset: int) -> tuple[int, int] | None:
    """Number of the queue's stream and queue offset; None for a commit offset that has no number."""
    if commit_offset < _NUMBERED:
        return None
    bits = commit_offset - _NUMBERED
    return bits >> _OFFSET_BITS, bits & ((1 << _OFFSET_BITS) - 1)


def place_of(commit_offset: int) -> tuple[int, int]:
    """Queue and queue offset of a commit offset that has no number."""
    return commit_offset >> _QUEUE_BITS, commit_offset & ((1 << _QUEUE_BITS) - 1)


def host_bytes(address: str, port: int) -> bytes:
    """An address as messages hold it: 4 or 16 bytes and the port as u32. Raises ValueError if it is no address."""
    return ipaddress.ip_address(address.partition("%")[0]).packed + port.to_bytes(4, "big")


def message_id(host: bytes, commit_offset: int) -> str:
    """The id of a message by its place; `host` are the `host_bytes` of the server."""
    return (host + commit_offset.to_bytes(8, "big", signed=True)).hex().upper()


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """The handle by which a client settles a delivery: the queue, and the ledger's token."""

    queue: int
    token: bytes

    def encode(self, topic: str, group: str) -> str:
        """The text for a client that received from this topic for this group."""
        return _base64(_HANDLE.pack(_VERSION, self.queue, _check(topic, group)) + self.token)

    @staticmethod
    def decode(text: str, topic: str, group: str) -> ReceiptHandle:
        """The handle of a text. Raises RemoteProtocolError, also if it is of another topic or group."""
        try:
            octets = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
            version, queue, check = _HANDLE.unpack_from(octets)
        except (binascii.Error, ValueError, struct.error):
            version, queue, check, octets = 0, 0, 0, b""
        if version != _VERSION or check != _check(topic, group):
            raise refused(Status.INVALID_RECEIPT_HANDLE, "this is no receipt handle of the topic and the group")
        return ReceiptHandle(queue, octets[_HANDLE.size :])


def receipt_handles(topic: str, group: str, queue: int, tokens: list[bytes]) -> list[str]:
    """The texts of many handles of one queue."""
    head = _HANDLE.pack(_VERSION, queue, _check(topic, group))
    return [_base64(head + token) for token in tokens]


def _base64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


@functools.lru_cache(maxsize=4096)
def _check(topic: str, group: str) -> int:
    return zlib.crc32(f"{topic}\0{group}".encode("utf-8", "replace"))
