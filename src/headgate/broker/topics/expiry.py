"""Expiry of copies: the time to live of their subscription or that of their message, whichever is shorter.

A copy is checked by itself before it is given out. Copies that are not received are swept (`expiry_sweep`).
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import FEW_ROWS
from headgate.broker.delivery import ReadCopies
from headgate.broker.stream import BrokerStream
from headgate.errors import MessageError
from headgate.log.format import windows
from headgate.message import AmqpType, EncodedMessages, FieldReference, Message, Section

_TTL = FieldReference(Section.HEADER, position=2)
_WITHOUT_HEADER = tuple(bytes((0x00, 0x53, each)) for each in Section if each > Section.HEADER)
_SHORT_HEADER = bytes((0x00, 0x53, Section.HEADER, 0xC0))
_SHORT = int.from_bytes(_SHORT_HEADER, "big")
_DESCRIBED = 0x0053
_SIZE_AT, _COUNT_AT, _DURABLE_AT, _PRIORITY_AT = 4, 5, 6, 7
"""Places in a short header: the size and the number of its fields, and where the fields begin."""
_TTL_FIELDS = 3
"""A header with fewer fields has no time to live."""
_FIRST_BYTES = np.dtype((np.void, _PRIORITY_AT + 3))
_NULL, _UBYTE = 0x40, 0x50
_FOREVER_MS = (1 << 63) - 1


def outlived(copies: ReadCopies, default_ms: int | None, now_ms: int) -> NDArray[np.bool_] | None:
    """A mask of the expired copies, `(copies,)`; None without any. Cost: 0.5 µs a message with a time to live."""
    messages = copies.messages
    # A time to live of 0 means none.
    said_ms = {row: said for row in _saying(messages) if (said := _said_ms(messages.message(row)))}
    if not said_ms and not default_ms:
        return None
    lifetimes_ms = np.full(len(copies), default_ms or _FOREVER_MS, dtype=np.int64)
    for row, said in said_ms.items():
        lifetimes_ms[row] = min(said, lifetimes_ms[row])
    gone = now_ms - copies.timestamps_ms >= lifetimes_ms
    return gone if gone.any() else None


def _saying(messages: EncodedMessages) -> list[int]:
    """The rows that may have a time to live, with few that have none."""
    count = len(messages)
    if count <= FEW_ROWS:
        return list(range(count))
    first = windows(messages.data, _FIRST_BYTES)
    # A shorter message has no time to live.
    heads = first[np.minimum(messages.starts, len(first) - 1)].view(np.uint8).reshape(count, -1)
    begin = heads[:, :_SIZE_AT].copy().view(">u4")[:, 0]
    is_short = begin == _SHORT
    # A time to live lies behind durable, of one byte, and a priority, null or of two bytes.
    priority = heads[:, _PRIORITY_AT]
    behind = np.where(priority == _NULL, heads[:, _PRIORITY_AT + 1], heads[:, _PRIORITY_AT + 2])
    is_plain = (heads[:, _DURABLE_AT] - np.uint8(_NULL) <= 2) & ((priority == _NULL) | (priority == _UBYTE))
    is_none = (heads[:, _COUNT_AT] < _TTL_FIELDS) | (is_plain & (behind == _NULL))
    has_no_header = (begin >> 16 == _DESCRIBED) & ((begin >> 8 & 0xFF) > Section.HEADER)
    rows: list[int] = np.flatnonzero(~(has_no_header | (is_short & is_none))).tolist()
    return rows


def _said_ms(message: bytes) -> int:
    """The time to live in the header of a message; 0: none."""
    if message.startswith(_SHORT_HEADER) and len(message) > _SIZE_AT:
        return _said_in_header(message[: _SIZE_AT + 1 + message[_SIZE_AT]])
    return 0 if message.startswith(_WITHOUT_HEADER) else _decoded_ms(message)


def _decoded_ms(message: bytes) -> int:
    try:
        found = Message.decode(message).value(_TTL)
    except MessageError:
        return 0
    return int(found.value) if found is not None and found.type is AmqpType.UINT else 0


_said_in_header = functools.lru_cache(maxsize=1024)(_decoded_ms)
"""Messages have few different headers."""


def first_not_before(stream: BrokerStream, timestamp_ms: int) -> int:
    """The first offset of a stream at or after a time, among those that copies may need. Raises LogError."""
    with stream.guarded():
        # Segments with such messages stay in the folder, and this runs in the loop, which must not wait for storage.
        return stream.stream.offset_here_since(timestamp_ms)
