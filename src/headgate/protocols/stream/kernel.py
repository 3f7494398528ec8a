"""Kernels of the stream protocol: reading runs of Publish frames, writing Publish and Deliver frames.

All arguments are addresses of arrays (int64 unless said otherwise), places in them, and counts. Nothing is allocated
here: the callers in `publish_frames.py` and `deliver_frames.py` size the arrays, and hold the same work in plain
Python. Layouts: stream_protocol.md sections 5 (Publish) and 6 (Deliver).
"""

from __future__ import annotations

from headgate.kernels.compiler import kernel
from headgate.kernels.memory import (
    copy_bytes,
    load_be_i16,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i64,
    load_u8,
    store_be_i64,
    store_be_u16,
    store_be_u32,
    store_i64,
    store_u8,
)
from headgate.protocols.stream.layout import FRAME, FRAME_BYTES, MEASURED, PARSED

_PUBLISH = 2
_DELIVER = 8
_HEADER_BYTES = 48
_SUB_BATCH_HEAD_BYTES = 11
_LAST_COMPRESSION = 4


@kernel("int64(int64, int64, int64, int64, int64)")
def measure_publish(data: int, position: int, size: int, frame_max: int, measured: int) -> int:
    """How many complete Publish frames follow each other from `position` on; gives their number.

    `measured` is the address of a `MeasuredBlock`. The run ends before a frame of another kind, one above `frame_max`,
    and one too short for the entries it announces.
    """
    frames = 0
    entries = 0
    has_values = 0
    while size - position >= 13:
        length = load_be_u32(data + position)
        if length < 9 or length > frame_max or length > size - position - 4:
            break
        version = load_be_u16(data + position + 6)
        if load_be_u16(data + position + 4) != _PUBLISH or version < 1 or version > 2:
            break
        count = load_be_u32(data + position + 9)
        if count * (14 if version == 2 else 12) > length - 9:
            break
        if version == 2:
            has_values = 1
        entries += count
        frames += 1
        position += 4 + length
    store_i64(measured + MEASURED.entries, entries)
    store_i64(measured + MEASURED.stop, position)
    store_i64(measured + MEASURED.has_values, has_values)
    return frames


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def parse_publish(
    data: int,
    origin: int,
    frame_count: int,
    expansion_limit: int,
    ids: int,
    starts: int,
    lengths: int,
    records: int,
    value_starts: int,
    value_lengths: int,
    frames: int,
    parsed: int,
) -> int:
    """Read the frames that `measure_publish` found from `origin` on; gives how many of them are well formed.

    Per entry: publishing id, start and length (a sub-batch with its head), messages of a sub-batch or 0, and where
    `value_starts` is not 0 start and length of the filter value, length −1 for none. Starts count from `origin`.
    `frames` gets a `FrameBlock` each, `parsed` is the address of a `ParsedBlock`. At a malformed frame reading ends
    before it.
    """
    position = origin
    total = 0
    has_sub_batch = 0
    for frame in range(frame_count):
        end = position + 4 + load_be_u32(data + position)
        version = load_be_u16(data + position + 6)
        publisher = load_u8(data + position + 8)
        count = load_be_u32(data + position + 9)
        at = position + 13
        row = total << 3
        accepted = count
        is_malformed = False
        for entry in range(count):
            if end - at < 12:
                is_malformed = True
                break
            store_i64(ids + row, load_be_i64(data + at))
            at += 8
            message_count = 0
            if value_starts != 0:
                store_i64(value_starts + row, at - origin)
                store_i64(value_lengths + row, -1)
            if version == 2:
                value_length = load_be_i16(data + at)
                at += 2
                if value_length < -1 or end - at < 4:
                    is_malformed = True
                    break
                if value_length >= 0:
                    if value_length > end - at - 4:
                        is_malformed = True
                        break
                    store_i64(value_starts + row, at - origin)
                    store_i64(value_lengths + row, value_length)
                    at += value_length
            head = at
            length = load_be_u32(data + at)
            at += 4
            if length >= 0x80000000:
                if version == 2 or end - head < _SUB_BATCH_HEAD_BYTES:
                    is_malformed = True
                    break
                compression = (load_u8(data + head) >> 4) & 7
                message_count = load_be_u16(data + head + 1)
                expanded = load_be_u32(data + head + 3)
                length = load_be_u32(data + head + 7)
                at = head + _SUB_BATCH_HEAD_BYTES
                if length > end - at:
                    is_malformed = True
                    break
                has_sub_batch = 1
                if accepted == count and (
                    message_count == 0
                    or 4 * message_count > expanded
                    or compression > _LAST_COMPRESSION
                    or (length == 0 and compression != 0)
                    or expanded > expansion_limit
                ):
                    accepted = entry
                store_i64(starts + row, head - origin)
                store_i64(lengths + row, length + _SUB_BATCH_HEAD_BYTES)
            else:
                if length > end - at:
                    is_malformed = True
                    break
                store_i64(starts + row, at - origin)
                store_i64(lengths + row, length)
            store_i64(records + row, message_count)
            at += length
            row += 8
        if is_malformed or at != end:
            store_i64(parsed + PARSED.entries, total)
            store_i64(parsed + PARSED.has_sub_batch, has_sub_batch)
            return frame
        row = frames + FRAME_BYTES * frame
        store_i64(row + FRAME.publisher, publisher)
        store_i64(row + FRAME.first, total)
        store_i64(row + FRAME.accepted, accepted)
        store_i64(row + FRAME.entries, count)
        total += count
        position = end
    store_i64(parsed + PARSED.entries, total)
    store_i64(parsed + PARSED.has_sub_batch, has_sub_batch)
    return frame_count


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def encode_publish(
    data: int,
    starts: int,
    lengths: int,
    ids: int,
    count: int,
    values: int,
    value_starts: int,
    value_lengths: int,
    publisher: int,
    frame_bytes: int,
    frame_entries: int,
    has_heads: int,
    target: int,
) -> int:
    """Write `count` entries as Publish frames at `target`; gives the bytes written.

    `value_lengths` 0: version 1, else version 2 with a filter value per message, length −1 for none. A frame ends
    before it is larger than `frame_bytes` or has more than `frame_entries`; an entry too large for any frame has one of
    its own. `has_heads` not 0: the bytes of an entry begin with its length, or its head as a sub-batch.
    """
    version = 1 if value_lengths == 0 else 2
    at = target
    row = 0
    while row < count:
        frame = at
        at += 13
        first = row
        while row < count and row - first < frame_entries:
            length = load_i64(lengths + (row << 3))
            value_length = load_i64(value_lengths + (row << 3)) if version == 2 else -1
            size = 8 + length
            if has_heads == 0:
                size += 4
            if version == 2:
                size += 2
                if value_length > 0:
                    size += value_length
            if row > first and at + size - frame - 4 > frame_bytes:
                break
            store_be_i64(at, load_i64(ids + (row << 3)))
            at += 8
            if version == 2:
                store_be_u16(at, value_length if value_length >= 0 else 0xFFFF)
                at += 2
                if value_length > 0:
                    copy_bytes(at, values + load_i64(value_starts + (row << 3)), value_length)
                    at += value_length
            if has_heads == 0:
                store_be_u32(at, length)
                at += 4
            copy_bytes(at, data + load_i64(starts + (row << 3)), length)
            at += length
            row += 1
        store_be_u32(frame, at - frame - 4)
        store_be_u16(frame + 4, _PUBLISH)
        store_be_u16(frame + 6, version)
        store_u8(frame + 8, publisher)
        store_be_u32(frame + 9, row - first)
    return at - target


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def encode_deliver(
    data: int,
    header_starts: int,
    data_starts: int,
    data_lengths: int,
    count: int,
    subscription: int,
    version: int,
    committed_chunk_id: int,
    target: int,
) -> int:
    """Write a Deliver frame per chunk at `target`: its header of 48 bytes and its data; gives the bytes written."""
    at = target
    for chunk in range(count):
        length = load_i64(data_lengths + (chunk << 3))
        store_be_u16(at + 4, _DELIVER)
        store_be_u16(at + 6, version)
        store_u8(at + 8, subscription)
        head = 9
        if version == 2:
            store_be_i64(at + 9, committed_chunk_id)
            head = 17
        store_be_u32(at, head - 4 + _HEADER_BYTES + length)
        at += head
        copy_bytes(at, data + load_i64(header_starts + (chunk << 3)), _HEADER_BYTES)
        copy_bytes(at + _HEADER_BYTES, data + load_i64(data_starts + (chunk << 3)), length)
        at += _HEADER_BYTES + length
    return at - target
