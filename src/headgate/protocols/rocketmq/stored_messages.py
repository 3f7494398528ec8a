"""Messages as the classic protocol carries them: as stored, in answers to pulls, and as sent in batches.

A stored message, big endian:

    size i32 (of all of it), magic 0xDAA320A7 i32, body CRC i32, queue i32, flag i32, queue offset i64,
    commit offset i64, sysFlag i32, born ms i64, born host (4 or 16 bytes, port i32), store ms i64,
    store host (as born host), reconsume times i32, prepared transaction offset i64,
    body size i32, body, topic size u8, topic, property text size i16, property text

A topic longer than 127 bytes has a size of 16 bits and the magic 0xDAA320AB. A message of a batch:

    size i32, magic i32 (0), body CRC i32 (0), flag i32, body size i32, body, property text size i16, property text

Source: rocketmq_wire, B3; `MessageDecoder` of RocketMQ 5.5.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import rows_of, total
from headgate.errors import RemoteProtocolError
from headgate.message import EncodedMessages
from headgate.protocols.rocketmq.bodies import body_crc
from headgate.protocols.rocketmq.codes import Status, refused
from headgate.protocols.rocketmq.identifiers import host_bytes
from headgate.protocols.rocketmq.layout import StoredBlock
from headgate.protocols.rocketmq.messages import KERNEL, RocketMessage, from_amqp, identity_digits
from headgate.protocols.rocketmq.names import system_names, widths
from headgate.protocols.rocketmq.properties import MAX_PROPERTIES_BYTES, property_text

Int64Array = NDArray[np.int64]
Buffer = bytes | memoryview

BORN_HOST_V6_FLAG = 1 << 4
STORE_HOST_V6_FLAG = 1 << 5
"""The bits of `sysFlag` that say that a host has 16 bytes."""

_MAGIC = 0xDAA320A7
_MAGIC_LONG_TOPIC = 0xDAA320AB
_LONG_TOPIC_BYTES = 127
_HEAD = struct.Struct(">IIIiiqqiq")
_NO_HOST = bytes(8)
_BATCHED = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_BLOCK_WORDS = len(StoredBlock._fields)
_ROOM_OF_MESSAGE = 256


@dataclass(frozen=True, slots=True)
class StoredFrom:
    """The values that all messages of one pull share: topic, queue, the server's `host_bytes`, the stream's identity.

    `first_place` is the commit offset of the queue's first message, `added` are properties that the broker sets on
    each message, replacing its own of these names.
    """

    topic: str
    queue: int
    first_place: int
    store_host: bytes
    identity: str
    added: Mapping[str, str]


class StoredMessages(NamedTuple):
    """Stored messages one behind the other, and where in `octets` each of them ends."""

    octets: memoryview
    stops: list[int]


def encode_stored(
    messages: EncodedMessages,
    *,
    offsets: Int64Array,
    timestamps_ms: Int64Array,
    reconsume_times: Int64Array | None,
    source: StoredFrom,
) -> StoredMessages:
    """Stored messages one behind the other, of AMQP messages of any protocol; columns are `(messages,)`.

    `timestamps_ms` is when each was stored; `reconsume_times` how often each was given to the group before, None: as
    the message says, which is 0 for most. Properties beyond 32767 bytes are left out.
    """
    count = len(messages)
    kernel = kernels.load(KERNEL)
    open_rows: Sequence[int] = range(count)
    pieces: list[Buffer] = [b""] * count
    if kernel is not None and count:
        written = _written(kernel, messages, offsets, timestamps_ms, reconsume_times, source)
        open_rows = rows_of(written.status)
        if not open_rows:
            return StoredMessages(written.octets, written.stops)
        pieces = written.pieces()
    for row in open_rows:
        offset = int(offsets[row])
        pieces[row] = encode_one(
            from_amqp(messages.message(row), identity=source.identity, offset=offset),
            offset=offset,
            stored_ms=int(timestamps_ms[row]),
            reconsume_times=None if reconsume_times is None else int(reconsume_times[row]),
            source=source,
        )
    return StoredMessages(memoryview(b"".join(pieces)), list(accumulate(map(len, pieces))))


@dataclass(slots=True)
class _Written:
    """The kernel's output: the place of each message, and which rows it left open."""

    octets: memoryview
    starts: Int64Array
    lengths: Int64Array
    status: Int64Array

    @property
    def stops(self) -> list[int]:
        stops: list[int] = (self.starts + self.lengths).tolist()
        return stops

    def pieces(self) -> list[Buffer]:
        return [self.octets[start:stop] for start, stop in zip(self.starts.tolist(), self.stops, strict=True)]


def _written(
    kernel: ModuleType,
    messages: EncodedMessages,
    offsets: Int64Array,
    timestamps_ms: Int64Array,
    reconsume_times: Int64Array | None,
    source: StoredFrom,
) -> _Written:
    count = len(messages)
    names = system_names()
    added = property_text(source.added)
    fixed = b"".join((source.topic.encode(), source.store_host, added, identity_digits(source.identity).encode()))
    room = total(messages.lengths) + count * (_ROOM_OF_MESSAGE + len(fixed)) + MAX_PROPERTIES_BYTES
    target = np.empty(room, dtype=np.uint8)
    words = np.empty(_BLOCK_WORDS + 3 * count + kernel.SCRATCH_BYTES // 8, dtype=np.int64)
    starts, lengths, status = words[_BLOCK_WORDS : _BLOCK_WORDS + 3 * count].reshape(3, count)
    columns = [
        np.ascontiguousarray(column, dtype=np.int64)
        for column in (messages.starts, messages.lengths, offsets, timestamps_ms)
    ]
    times = None if reconsume_times is None else np.ascontiguousarray(reconsume_times, dtype=np.int64)
    topic = kernels.address_of(np.frombuffer(fixed, dtype=np.uint8))
    host = topic + len(source.topic.encode())
    begin = kernels.address_of(words)
    out = begin + 8 * _BLOCK_WORDS
    place = kernels.address_of(target)
    told = StoredBlock(
        kernels.address_of(messages.data),
        kernels.address_of(columns[0]),
        kernels.address_of(columns[1]),
        count,
        kernels.address_of(widths()),
        *names.addresses(),
        0 if times is None else kernels.address_of(times),
        source.queue,
        topic,
        host - topic,
        host,
        len(source.store_host),
        host + len(source.store_host),
        len(added),
        names.bits(source.added),
        host + len(source.store_host) + len(added),
        kernels.address_of(kernels.byte_table()),
        kernels.address_of(columns[2]),
        kernels.address_of(columns[3]),
        place,
        place + room,
        *(out, out + 8 * count, out + 16 * count, out + 24 * count),
        source.first_place,
    )
    words[:_BLOCK_WORDS] = list(told)
    size = kernel.encode_stored(begin)
    return _Written(target.data[:size], starts, lengths, status)


def encode_one(
    message: RocketMessage, *, offset: int, stored_ms: int, reconsume_times: int | None, source: StoredFrom
) -> bytes:
    """One stored message; see `encode_stored`."""
    own = {name: value for name, value in message.system.items() if name not in source.added}
    text = property_text({**own, **source.added, **message.user})
    if reconsume_times is None:
        said = message.system.get("RECONSUME_TIME", "")
        reconsume_times = int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else 0
    born_host = _born_host(message.born_host)
    flags = (BORN_HOST_V6_FLAG if len(born_host) > 8 else 0) | (STORE_HOST_V6_FLAG if len(source.store_host) > 8 else 0)
    topic = source.topic.encode()
    is_long = len(topic) > _LONG_TOPIC_BYTES
    middle = b"%b%b%b%b%b" % (
        born_host,
        stored_ms.to_bytes(8, "big", signed=True),
        source.store_host,
        reconsume_times.to_bytes(4, "big"),
        bytes(8),
    )
    size = _HEAD.size + len(middle) + 4 + len(message.body) + (2 if is_long else 1) + len(topic) + 2 + len(text)
    head = _HEAD.pack(
        size,
        _MAGIC_LONG_TOPIC if is_long else _MAGIC,
        body_crc(message.body),
        source.queue,
        message.flag,
        offset,
        source.first_place + offset,
        flags,
        stored_ms if message.born_ms is None else message.born_ms,
    )
    topic_size = len(topic).to_bytes(2 if is_long else 1, "big")
    body_size = len(message.body).to_bytes(4, "big")
    return b"".join((head, middle, body_size, message.body, topic_size, topic, _SHORT.pack(len(text)), text))


@functools.lru_cache(maxsize=4096)
def _born_host(text: str) -> bytes:
    address, _, port = text.rpartition(":")
    try:
        return host_bytes(address.strip("[]"), int(port))
    except (ValueError, OverflowError):
        return _NO_HOST


def _taken(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    stop = position + size
    if size < 0 or stop > len(data):
        raise _corrupt("a message", position)
    return data[position:stop], stop


def _corrupt(what: str, position: int) -> RemoteProtocolError:
    return refused(Status.MESSAGE_CORRUPTED, f"{what} is not what it announces, at byte {position}")


@dataclass(slots=True)
class BatchedMessage:
    """A message of a batch: flag, body, and the property text."""

    flag: int
    body: bytes
    properties: bytes


def decode_batch(data: bytes) -> list[BatchedMessage]:
    """The messages of a batch. Raises RemoteProtocolError for other bytes, and for a batch without messages."""
    messages = []
    position, end = 0, len(data)
    while position < end:
        if position + _BATCHED.size > end:
            raise _corrupt("a batch", position)
        size, _, _, flag, body_size = _BATCHED.unpack_from(data, position)
        stop = position + size
        body, behind = _taken(data, position + _BATCHED.size, body_size)
        text_size, behind = _taken(data, behind, 2)
        properties, behind = _taken(data, behind, int.from_bytes(text_size, "big", signed=True))
        if behind != stop:
            raise _corrupt("a batch", position)
        messages.append(BatchedMessage(flag, body, properties))
        position = stop
    if not messages:
        raise refused(Status.MESSAGE_CORRUPTED, "a batch of no messages")
    return messages
