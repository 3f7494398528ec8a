"""The clients' side of RocketMQ's classic protocol: reading stored messages and message ids, writing batches."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from headgate.protocols.rocketmq.stored_messages import BatchedMessage

_HEAD = struct.Struct(">IIIiiqqiq")
_BATCHED = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_MAGIC, _MAGIC_LONG_TOPIC = 0xDAA320A7, 0xDAA320AB
BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG = 1 << 4, 1 << 5


def parse_message_id(text: str) -> tuple[bytes, int]:
    """`host_bytes` and commit offset. Raises ValueError for another text."""
    octets = bytes.fromhex(text)
    if len(octets) not in (16, 28):
        raise ValueError(f"a message id is 32 or 56 hexadecimal digits, found {text[:80]!r}")
    return octets[:-8], int.from_bytes(octets[-8:], "big", signed=True)


def born_host_text(host: bytes) -> str:
    """`address:port` of `host_bytes`, as `RocketMessage.born_host` holds it."""
    address = ipaddress.ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@dataclass(slots=True)
class StoredMessage:
    """A stored message, decoded; hosts as `host_bytes`, properties as text."""

    queue: int
    flag: int
    offset: int
    commit_offset: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    body_crc: int
    body: bytes
    topic: str
    properties: bytes


def decode_stored(data: bytes) -> list[StoredMessage]:
    """The stored messages one behind the other. Raises ValueError for other bytes."""
    messages = []
    position = 0
    try:
        while position < len(data):
            message, behind = _decoded(data, position)
            messages.append(message)
            position = behind
    except (struct.error, IndexError):
        raise ValueError(f"no stored message at byte {position}") from None
    return messages


def _decoded(data: bytes, start: int) -> tuple[StoredMessage, int]:
    size, magic, crc, queue, flag, offset, commit, sys_flag, born_ms = _HEAD.unpack_from(data, start)
    if magic not in (_MAGIC, _MAGIC_LONG_TOPIC) or start + size > len(data):
        raise ValueError(f"no stored message at byte {start}")
    position = start + _HEAD.size
    born_host, position = _taken(data, position, 20 if sys_flag & BORN_HOST_V6_FLAG else 8)
    (stored_ms,) = struct.unpack_from(">q", data, position)
    store_host, position = _taken(data, position + 8, 20 if sys_flag & STORE_HOST_V6_FLAG else 8)
    reconsume_times, _, body_size = struct.unpack_from(">iqi", data, position)
    body, position = _taken(data, position + 16, body_size)
    width = 1 if magic == _MAGIC else 2
    topic_size, position = _taken(data, position, width)
    topic, position = _taken(data, position, int.from_bytes(topic_size, "big"))
    (text_size,) = _SHORT.unpack_from(data, position)
    text, position = _taken(data, position + 2, text_size)
    if position != start + size:
        raise ValueError(f"no stored message at byte {start}")
    message = StoredMessage(
        *(queue, flag, offset, commit, sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times, crc),
        body=body,
        topic=topic.decode("utf-8", "replace"),
        properties=text,
    )
    return message, position


def _taken(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    stop = position + size
    if size < 0 or stop > len(data):
        raise ValueError(f"no stored message at byte {position}")
    return data[position:stop], stop


def encode_batch(messages: list[BatchedMessage]) -> bytes:
    """The body that a batch is sent as. Property texts are at most 32767 bytes."""
    parts: list[bytes] = []
    for message in messages:
        size = _BATCHED.size + len(message.body) + 2 + len(message.properties)
        parts += (_BATCHED.pack(size, 0, 0, message.flag, len(message.body)), message.body)
        parts += (_SHORT.pack(len(message.properties)), message.properties)
    return b"".join(parts)
