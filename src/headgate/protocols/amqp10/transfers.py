"""Runs of transfers in a buffer of frames, and messages of a stream as transfers: whole batches, one kernel call each.

Frames that a kernel leaves open are handled one by one with the records of `performatives`, with the same result.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import total
from headgate.message import EncodedMessages
from headgate.protocols.amqp10.frames import FRAME_HEAD_BYTES, encode_frame
from headgate.protocols.amqp10.layout import RUN, SPANS, TaggedBlock, TransferBlock
from headgate.protocols.amqp10.messages import KERNEL, OFFSET, delivered_message, names, symbol, widths
from headgate.protocols.amqp10.performatives import Transfer

TAG = struct.Struct(">Q")
"""A delivery tag: the delivery count of its link."""

_MASK = 0xFFFFFFFF
_SIZE = struct.Struct(">I")
_ROOM_PER_MESSAGE = 96
_SMALLEST_FRAME_BYTES = 24
_MAX_RUN = 16_384
_BLOCK_WORDS = len(TransferBlock._fields)
_TAGGED_WORDS = len(TaggedBlock._fields)
_BLOCK = struct.Struct(f"={_BLOCK_WORDS}q")
_ACCEPTED = struct.Struct(">6sH8sIBI5s")
_ACCEPTED_HEAD = b"\x00\x00\x00\x1e\x02\x00"
_ACCEPTED_FIELDS = b"\x00\x53\x15\xc0\x11\x05\x41\x70"
_ACCEPTED_TAIL = b"\x41\x00\x53\x24\x45"

Int64Array = NDArray[np.int64]


class TransferRun(msgspec.Struct, eq=False):
    """Transfers that follow each other in a buffer, each with a whole message, on one link of the peer's `handle`.

    The columns are as in `Deliveries`.
    """

    handle: int
    data: NDArray[np.uint8]
    starts: Int64Array
    lengths: Int64Array
    ids: Int64Array
    settled: Int64Array

    def first(self, count: int) -> TransferRun:
        """The first of them."""
        columns = self.starts[:count], self.lengths[:count], self.ids[:count], self.settled[:count]
        return TransferRun(self.handle, self.data, *columns)


def parse_run(
    data: NDArray[np.uint8], position: int, max_frame_size: int, channel: int, *, skip_settled: bool
) -> tuple[TransferRun | None, int]:
    """The transfers on `channel` at `position`, and the position after them; None if there are none to take at once.

    With `skip_settled` dispositions by which a receiver settles are skipped. Always None without kernels.
    """
    kernel = kernels.load(KERNEL)
    if kernel is None:
        return None, position
    room = min(_MAX_RUN, (len(data) - position) // _SMALLEST_FRAME_BYTES + 1)
    words = np.empty(len(RUN) + 4 * room, dtype=np.int64)
    run = kernels.address_of(words)
    count = kernel.parse_transfers(
        kernels.address_of(data),
        position,
        len(data),
        max_frame_size,
        channel,
        int(skip_settled),
        run + 8 * len(RUN),
        room,
        run,
    )
    behind = words.item(RUN.stop // 8)
    if count == 0:
        return None, behind
    # Slices one by one cost half of what rows of a matrix do.
    start = len(RUN)
    starts, lengths = words[start : start + count], words[start + room : start + room + count]
    start += 2 * room
    ids, settled = words[start : start + count], words[start + room : start + room + count]
    return TransferRun(words.item(RUN.handle // 8), data, starts, lengths, ids, settled), behind


@dataclass(slots=True)
class TransferRoom:
    """Where messages go: the first delivery id and tag, and how large a frame the peer takes."""

    channel: int
    handle: int
    delivery_id: int
    tag: int
    settled: bool
    max_frame_size: int


def frame_messages(messages: EncodedMessages, offsets: Int64Array, room: TransferRoom) -> tuple[memoryview, int]:
    """Messages of a stream as frames of transfers, in a separate buffer, and the number of frames."""
    kernel = kernels.load(KERNEL)
    count = len(offsets)
    if kernel is None or room.handle > 0xFF:
        parts: list[bytes] = []
        for row in range(count):
            parts += _framed(messages, offsets, row, room)
        return memoryview(b"".join(parts)), len(parts)
    # One array for what the kernel is told, its scratch and the frames: each array costs as much as a message.
    target_at = _BLOCK_WORDS + len(SPANS)
    capacity = total(messages.lengths) + count * _ROOM_PER_MESSAGE
    words = np.empty(target_at + (capacity + 7) // 8, dtype=np.int64)
    # A memoryview is cut in a fifth of the time that an array takes.
    view, written = words.data.cast("B"), 8 * target_at
    rows = np.concatenate((messages.starts, messages.lengths, offsets))
    row, step, block = kernels.address_of(rows), 8 * count, kernels.address_of(words)
    data, tables = kernels.address_of(messages.data), _addresses_of_tables()
    pieces: list[bytes | memoryview] = []
    frames = done = 0
    while done < count:
        told = TransferBlock(
            *(data, row, row + step, row + 2 * step, done, count, room.channel),
            *(room.handle, (room.delivery_id + done) & _MASK, (room.tag + done) & _MASK, int(room.settled)),
            *(room.max_frame_size, *tables, block + written, block + 8 * _BLOCK_WORDS),
        )
        _BLOCK.pack_into(view, 0, *told)
        taken = kernel.frame_messages(block)
        size = words.item(_BLOCK_WORDS - 1)
        pieces.append(view[written : written + size])
        written, done, frames = written + size, done + taken, frames + taken
        if done < count:
            framed = _framed(messages, offsets, done, room)
            pieces += framed
            frames += len(framed)
            done += 1
    return _joined(pieces), frames


def frame_tagged(messages: EncodedMessages, tags: NDArray[np.uint8], room: TransferRoom) -> tuple[memoryview, int]:
    """Messages as frames of transfers with tags `(messages, bytes)`, in a separate buffer, and the number of frames.

    The tag of the room is not used.
    """
    kernel = kernels.load(KERNEL)
    count, tag_bytes = tags.shape
    tags = np.ascontiguousarray(tags)
    pieces: list[bytes | memoryview] = []
    frames = done = 0
    if kernel is not None and room.handle <= 0xFF:
        starts, lengths = np.ascontiguousarray(messages.starts), np.ascontiguousarray(messages.lengths)
        target = np.empty(total(lengths) + count * _ROOM_PER_MESSAGE + 8 * _TAGGED_WORDS, dtype=np.uint8)
        block = target[: 8 * _TAGGED_WORDS].view(np.int64)
        address = kernels.address_of
        written = 8 * _TAGGED_WORDS
    while done < count:
        if kernel is not None and room.handle <= 0xFF:
            told = TaggedBlock(
                *(address(messages.data), address(starts), address(lengths), done, count),
                *(room.channel, room.handle, (room.delivery_id + done) & _MASK, address(tags), tag_bytes),
                *(int(room.settled), room.max_frame_size, address(target) + written),
            )
            block[:] = list(told)
            taken = kernel.frame_tagged(address(block))
            size = int(block[_TAGGED_WORDS - 1])
            pieces.append(target[written : written + size].data)
            written, done, frames = written + size, done + taken, frames + taken
            if done == count:
                break
        transfer = Transfer(room.handle, (room.delivery_id + done) & _MASK, tags[done].tobytes(), 0, room.settled)
        split = split_message(room.channel, transfer, messages.message(done), room.max_frame_size)
        pieces += split
        frames += len(split)
        done += 1
    return _joined(pieces), frames


def _joined(pieces: list[bytes | memoryview]) -> memoryview:
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], memoryview) else memoryview(b"".join(pieces))


_OFFSET_KEY = np.frombuffer(symbol(OFFSET), dtype=np.uint8)


@functools.cache
def _addresses_of_tables() -> tuple[int, ...]:
    """Where the kernel finds the widths of constructors, the annotation that is replaced, and its key."""
    address = kernels.address_of
    return address(widths()), address(names(OFFSET)), address(_OFFSET_KEY)


def _framed(messages: EncodedMessages, offsets: Int64Array, row: int, room: TransferRoom) -> list[bytes]:
    transfer = Transfer(
        room.handle,
        (room.delivery_id + row) & _MASK,
        TAG.pack((room.tag + row) & _MASK),
        0,
        room.settled,
    )
    message = delivered_message(messages.message(row), int(offsets[row]))
    return split_message(room.channel, transfer, message, room.max_frame_size)


def split_message(channel: int, transfer: Transfer, message: bytes, max_frame_size: int) -> list[bytes]:
    """The frames of one delivery, as few as the peer's largest frame allows."""
    whole = transfer.encode()
    if FRAME_HEAD_BYTES + len(whole) + len(message) <= max_frame_size:
        return [encode_frame(channel, whole + message)]
    begun = replace(transfer, more=True).encode()
    frames = []
    position = 0
    while True:
        part = max_frame_size - FRAME_HEAD_BYTES - len(begun)
        if len(message) - position <= part:
            frames.append(encode_frame(channel, whole + message[position:]))
            return frames
        frames.append(encode_frame(channel, begun + message[position : position + part]))
        position += part


def encode_accepted(channel: int, first: int, last: int) -> bytes:
    """The frame of a disposition by which a receiver accepts and settles deliveries."""
    return _ACCEPTED.pack(_ACCEPTED_HEAD, channel, _ACCEPTED_FIELDS, first, 0x70, last, _ACCEPTED_TAIL)


def skip_frames(data: bytes | memoryview, count: int) -> int:
    """The position after the first `count` frames."""
    position = 0
    for _ in range(count):
        position += _SIZE.unpack_from(data, position)[0]
    return position
