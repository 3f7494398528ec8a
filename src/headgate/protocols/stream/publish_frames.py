"""Publish frames in bulk, and their answers: PublishConfirm and PublishError (stream_protocol.md section 5).

    Publish        u8 publisher id, u32 count, entries
      version 1    u64 publishing id, then a message (u32 length, bytes) or a sub-batch (11 bytes of head, data)
      version 2    u64 publishing id, i16 length and filter value (−1: none), u32 length, message

A server reads all complete Publish frames that follow each other at once, into columns; a client writes columns as
frames. Kernels do both at tens of millions of entries a second; for a handful of entries plain Python is faster.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import LocalProtocolError
from headgate.kernels import address_of
from headgate.log import Entries, FilterValues
from headgate.log.format import SLACK_BYTES, SUB_BATCH_HEAD_BYTES, Compression
from headgate.protocols.stream.codec import FRAME_HEAD
from headgate.protocols.stream.codes import Command
from headgate.protocols.stream.layout import FRAME, MEASURED, PARSED, MeasuredBlock, ParsedBlock
from headgate.protocols.stream.wire import Reader, malformed

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

DEFAULT_EXPANSION_LIMIT_BYTES = 64 << 20
"""Limit: announced bytes of an uncompressed sub-batch. Larger ones are refused."""

PUBLISH_HEAD_BYTES = 13
"""Of a frame, up to its first entry."""

_KERNEL = "headgate.protocols.stream.kernel"
_KERNEL_FROM_BYTES = 4096
_PUBLISH = int(Command.PUBLISH)
_PUBLISH_HEAD = struct.Struct(">IHHBI")
_ONE_CONFIRM = struct.Struct(">IHHBIQ")
_ENTRY = struct.Struct(">QI")
_VALUED_ENTRY = struct.Struct(">Qh")
_U32 = struct.Struct(">I")
_SUB_BATCH = struct.Struct(">BHII")
_SUB_BATCH_BIT = 0x80000000
_SLACK = bytes(SLACK_BYTES)
_NONE: UInt64Array = np.empty(0, dtype=np.uint64)
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)
_Row = tuple[int, bytes, int, bytes | None]
"""An entry: publishing id, its bytes, its records, its filter value."""
_ERRORS = np.dtype([("publishing_id", ">u8"), ("code", ">u2")])


class Publish(msgspec.Struct, frozen=True, eq=False):
    """Entries of one publisher, in the order they came, of all its frames in one run.

    `publishing_ids` `(entries,)`. `refused_ids` are publishing ids of entries that are not to be published: a sub-batch
    in their frame, at or before them, is wrong. The bytes belong to the event, with slack after them.
    """

    publisher_id: int
    publishing_ids: UInt64Array
    entries: Entries
    refused_ids: UInt64Array

    def rows(self) -> Iterator[tuple[int, bytes, bytes | None, int]]:
        """Publishing id, bytes, filter value and records of each entry; for tests and tools, not for bulk."""
        entries = self.entries
        for row in range(len(entries)):
            yield (
                int(self.publishing_ids[row]),
                entries.pieces[row],
                None if entries.filter_values is None else entries.filter_values.value(row),
                0 if entries.records is None else int(entries.records[row]),
            )


@dataclass(frozen=True, slots=True, eq=False)
class PublishConfirm:
    """The entries with these publishing ids, `(ids,)` uint64, are in the stream."""

    publisher_id: int
    publishing_ids: UInt64Array


@dataclass(frozen=True, slots=True)
class PublishError:
    """Entries that are not in the stream: pairs of publishing id and response code."""

    publisher_id: int
    errors: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Columns:
    """The entries of a run of frames; `frames`: a `FrameBlock` each."""

    ids: Int64Array
    starts: Int64Array
    lengths: Int64Array
    records: Int64Array
    value_starts: Int64Array | None
    value_lengths: Int64Array | None
    frames: Int64Array
    has_sub_batch: bool

    def take(self, rows: Int64Array) -> _Columns:
        """Some of the entries."""
        return _Columns(
            self.ids[rows],
            self.starts[rows],
            self.lengths[rows],
            self.records[rows],
            None if self.value_starts is None else self.value_starts[rows],
            None if self.value_lengths is None else self.value_lengths[rows],
            self.frames,
            self.has_sub_batch,
        )


def parse_publish_run(
    data: memoryview, position: int, *, frame_max: int, expansion_limit_bytes: int = DEFAULT_EXPANSION_LIMIT_BYTES
) -> tuple[list[Publish], int]:
    """All complete, well-formed Publish frames that follow each other from `position` on, and the place after them.

    The needed bytes of `data` are copied, once. The run ends before the first frame that is of another kind,
    incomplete, larger than `frame_max`, or malformed; the caller examines that frame.
    """
    kernel = kernels.load(_KERNEL) if len(data) - position >= _KERNEL_FROM_BYTES else None
    if kernel is None:
        return _parse_in_python(data, position, frame_max, expansion_limit_bytes)
    return _parse_in_kernel(kernel, data, position, frame_max, expansion_limit_bytes)


def _parse_in_kernel(
    kernel: ModuleType, data: memoryview, position: int, frame_max: int, expansion_limit: int
) -> tuple[list[Publish], int]:
    source = np.frombuffer(data, dtype=np.uint8)
    address = address_of(source)
    measured = np.empty(len(MEASURED), dtype=np.int64)
    frame_count = kernel.measure_publish(address, position, len(source), frame_max, address_of(measured))
    if frame_count == 0:
        return [], position
    entries, end, has_values = MeasuredBlock(*measured.tolist())
    words = np.empty((6 if has_values else 4, entries), dtype=np.int64)
    base, width = address_of(words), 8 * entries
    frames = np.empty((frame_count, len(FRAME)), dtype=np.int64)
    result = np.empty(len(PARSED), dtype=np.int64)
    parsed = kernel.parse_publish(
        address,
        position,
        frame_count,
        expansion_limit,
        base,
        base + width,
        base + 2 * width,
        base + 3 * width,
        base + 4 * width if has_values else 0,
        base + 5 * width if has_values else 0,
        address_of(frames),
        address_of(result),
    )
    found = ParsedBlock(*result.tolist())
    if parsed < frame_count:
        if parsed == 0:
            return [], position
        frames = frames[:parsed]
        entries = found.entries
        words = words[:, :entries]
        end = _place_behind(data, position, parsed)
    columns = _Columns(
        words[0],
        words[1],
        words[2],
        words[3],
        words[4] if has_values else None,
        words[5] if has_values else None,
        frames,
        bool(found.has_sub_batch),
    )
    published = _by_publisher(columns, _owned(data, position, end))
    return [publish for publish in published if len(publish.publishing_ids) or len(publish.refused_ids)], end


def _owned(data: memoryview, position: int, end: int) -> Bytes:
    """A copy of some bytes, with slack after them."""
    return np.frombuffer(b"".join((data[position:end], _SLACK)), dtype=np.uint8)


def _place_behind(data: memoryview, position: int, frame_count: int) -> int:
    for _ in range(frame_count):
        position += 4 + _U32.unpack_from(data, position)[0]
    return position


def _by_publisher(columns: _Columns, data: Bytes) -> Iterator[Publish]:
    publishers, firsts = columns.frames[:, FRAME.publisher // 8], columns.frames[:, FRAME.first // 8]
    accepted, counts = columns.frames[:, FRAME.accepted // 8], columns.frames[:, FRAME.entries // 8]
    first = int(publishers[0])
    if (publishers == first).all() and (accepted == counts).all():
        yield _publish(first, columns, data, _NONE)
        return
    for number in dict.fromkeys(publishers.tolist()):
        own = publishers == number
        refused = _ranges((firsts + accepted)[own], (counts - accepted)[own])
        yield _publish(
            number, columns.take(_ranges(firsts[own], accepted[own])), data, columns.ids[refused].view(np.uint64)
        )


def _ranges(firsts: Int64Array, counts: Int64Array) -> Int64Array:
    """The numbers firsts[i] … firsts[i] + counts[i], one range after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1])
    numbers: Int64Array = np.arange(total, dtype=np.int64) + np.repeat(firsts - (ends - counts), counts)
    return numbers


def _publish(number: int, columns: _Columns, data: Bytes, refused: UInt64Array) -> Publish:
    """The rows of one publisher."""
    starts, lengths = columns.value_starts, columns.value_lengths
    values = None
    if starts is not None and lengths is not None and bool((lengths > 0).any()):
        values = FilterValues(data, starts, lengths)
    records = columns.records if columns.has_sub_batch and columns.records.any() else None
    entries = Entries(data, columns.starts, columns.lengths, values, records)
    return Publish(number, columns.ids.view(np.uint64), entries, refused)


def _parse_in_python(
    data: memoryview, position: int, frame_max: int, expansion_limit: int
) -> tuple[list[Publish], int]:
    published: dict[int, tuple[list[_Row], list[_Row]]] = {}
    at, stop = position, len(data)
    while stop - at >= PUBLISH_HEAD_BYTES:
        length, key, version, publisher, count = _PUBLISH_HEAD.unpack_from(data, at)
        end = at + 4 + length
        if length < 9 or length > frame_max or end > stop or key != _PUBLISH or version not in (1, 2):
            break
        if count * (14 if version == 2 else 12) > length - 9:
            break
        rows: list[_Row] = []
        accepted = _parse_frame(data, at + PUBLISH_HEAD_BYTES, end, count, version == 2, expansion_limit, rows)
        if accepted < 0:
            break
        before = published.get(publisher)
        if before is None:
            published[publisher] = rows[:accepted], rows[accepted:]
        else:
            before[0].extend(rows[:accepted])
            before[1].extend(rows[accepted:])
        at = end
    if not published:
        return [], position
    return [_of_rows(number, *rows) for number, rows in published.items() if any(rows)], at


def _of_rows(number: int, accepted: list[_Row], refused: list[_Row]) -> Publish:
    ids, pieces, records, values = zip(*accepted, strict=True) if accepted else [()] * 4
    entries = Entries.of(
        pieces,
        FilterValues.of(values) if any(values) else None,
        np.array(records, _INT64) if any(records) else None,
    )
    return Publish(
        number, np.array(ids, _UINT64), entries, np.array([row[0] for row in refused], _UINT64) if refused else _NONE
    )


def _parse_frame(
    data: memoryview,
    at: int,
    end: int,
    count: int,
    is_valued: bool,
    expansion_limit: int,
    rows: list[_Row],
) -> int:
    """Append the entries of one frame to `rows`; gives how many come before the first refused one, −1 if malformed."""
    accepted = count
    for entry in range(count):
        if end - at < 12:
            return -1
        value = None
        if is_valued:
            publishing_id, announced = _VALUED_ENTRY.unpack_from(data, at)
            at += 10
            if announced < -1 or end - at < 4 + max(announced, 0):
                return -1
            if announced >= 0:
                value = bytes(data[at : at + announced])
                at += announced
            length = _U32.unpack_from(data, at)[0]
        else:
            publishing_id, length = _ENTRY.unpack_from(data, at)
            at += 8
        if length < _SUB_BATCH_BIT:
            at += 4
            if length > end - at:
                return -1
            rows.append((publishing_id, bytes(data[at : at + length]), 0, value))
            at += length
            continue
        if is_valued or end - at < SUB_BATCH_HEAD_BYTES:
            return -1
        head, records, expanded, length = _SUB_BATCH.unpack_from(data, at)
        if length > end - at - SUB_BATCH_HEAD_BYTES:
            return -1
        compression = head >> 4 & 7
        if accepted == count and (
            records == 0
            or 4 * records > expanded
            or compression > max(Compression)
            or (length == 0 and compression != Compression.NONE)
            or expanded > expansion_limit
        ):
            accepted = entry
        whole = SUB_BATCH_HEAD_BYTES + length
        rows.append((publishing_id, bytes(data[at : at + whole]), records, value))
        at += whole
    return accepted if at == end else -1


def encode_publish(
    publisher_id: int,
    publishing_ids: UInt64Array,
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    *,
    filter_values: FilterValues | None = None,
    entries_have_heads: bool = False,
    frame_bytes: int = 1 << 20,
    frame_entries: int = 4096,
) -> bytes:
    """Publish frames for entries side by side in `data`; all columns are `(entries,)`.

    Version 2 where there are filter values. `frame_bytes` is the largest frame that the server takes (0: no limit).
    With `entries_have_heads` the bytes of an entry begin with its length or the head of a sub-batch. LocalProtocolError
    for sub-batches with filter values, which the protocol cannot say, and for an entry larger than a frame.
    """
    count = len(starts)
    if count == 0:
        return b""
    if filter_values is not None and entries_have_heads:
        raise LocalProtocolError("a sub-batch has no filter value in the stream protocol")
    limit = frame_bytes or 2**31 - 1
    value_lengths = None if filter_values is None else np.ascontiguousarray(filter_values.lengths)
    # What a frame with this entry alone has, its size apart: its head, publishing id, filter value, length.
    sizes = lengths + (PUBLISH_HEAD_BYTES - 4 + 8 + (0 if entries_have_heads else 4))
    if value_lengths is not None:
        sizes += 2 + np.maximum(value_lengths, 0)
    largest = int(sizes.max())
    if largest > limit:
        raise LocalProtocolError(f"an entry needs a frame of {largest} bytes; the server takes {limit}")
    if value_lengths is not None and int(value_lengths.max()) > 2**15 - 1:
        raise LocalProtocolError(f"a filter value of {int(value_lengths.max())} bytes; the protocol has room for 32767")
    kernel = kernels.load(_KERNEL) if int(sizes.sum()) >= _KERNEL_FROM_BYTES else None
    if kernel is None:
        return _encode_in_python(
            publisher_id, publishing_ids, data, starts, lengths, filter_values, entries_have_heads, limit, frame_entries
        )
    columns = [np.ascontiguousarray(column) for column in (starts, lengths)]
    ids = np.ascontiguousarray(publishing_ids, dtype=np.uint64)
    bytes_of_entries = np.ascontiguousarray(data)
    value_starts = None if filter_values is None else np.ascontiguousarray(filter_values.starts)
    target = np.empty(int(sizes.sum()) + 4 * count, dtype=np.uint8)
    written = kernel.encode_publish(
        address_of(bytes_of_entries),
        address_of(columns[0]),
        address_of(columns[1]),
        address_of(ids),
        count,
        0 if filter_values is None else address_of(filter_values.data),
        0 if value_starts is None else address_of(value_starts),
        0 if value_lengths is None else address_of(value_lengths),
        publisher_id,
        limit,
        frame_entries,
        int(entries_have_heads),
        address_of(target),
    )
    return target[:written].tobytes()


def _encode_in_python(
    publisher_id: int,
    publishing_ids: UInt64Array,
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    filter_values: FilterValues | None,
    entries_have_heads: bool,
    limit: int,
    frame_entries: int,
) -> bytes:
    target = bytearray()
    frame = bytearray()
    count = 0
    version = 1 if filter_values is None else 2

    def end_frame() -> None:
        target.extend(
            _PUBLISH_HEAD.pack(PUBLISH_HEAD_BYTES - 4 + len(frame), Command.PUBLISH, version, publisher_id, count)
        )
        target.extend(frame)
        frame.clear()

    for row, (publishing_id, start, length) in enumerate(
        zip(publishing_ids.tolist(), starts.tolist(), lengths.tolist(), strict=True)
    ):
        entry = publishing_id.to_bytes(8, "big")
        if filter_values is not None:
            value = filter_values.value(row)
            entry += b"\xff\xff" if value is None else len(value).to_bytes(2, "big") + value
        if not entries_have_heads:
            entry += _U32.pack(length)
        entry += data[start : start + length].tobytes()
        if count and (count == frame_entries or PUBLISH_HEAD_BYTES - 4 + len(frame) + len(entry) > limit):
            end_frame()
            count = 0
        frame += entry
        count += 1
    end_frame()
    return bytes(target)


def encode_confirms(publisher_id: int, publishing_ids: UInt64Array, *, frame_max: int = 0) -> bytes:
    """PublishConfirm frames for the ids; one, unless `frame_max` (0: no limit) needs more."""
    if len(publishing_ids) == 1:
        return _ONE_CONFIRM.pack(17, Command.PUBLISH_CONFIRM, 1, publisher_id, 1, int(publishing_ids[0]))
    per_frame = max(1, (frame_max - 9) // 8 if frame_max else len(publishing_ids))
    parts = []
    for first in range(0, len(publishing_ids), per_frame):
        ids = publishing_ids[first : first + per_frame]
        head = _PUBLISH_HEAD.pack(9 + 8 * len(ids), Command.PUBLISH_CONFIRM, 1, publisher_id, len(ids))
        parts.append(head + ids.astype(">u8").tobytes())
    return b"".join(parts)


def encode_publish_errors(publisher_id: int, publishing_ids: UInt64Array, code: int, *, frame_max: int = 0) -> bytes:
    """PublishError frames that give every id the same code; one, unless `frame_max` needs more."""
    per_frame = max(1, (frame_max - 9) // 10 if frame_max else len(publishing_ids))
    parts = []
    for first in range(0, len(publishing_ids), per_frame):
        ids = publishing_ids[first : first + per_frame]
        rows = np.empty(len(ids), dtype=_ERRORS)
        rows["publishing_id"] = ids
        rows["code"] = code
        head = _PUBLISH_HEAD.pack(9 + 10 * len(ids), Command.PUBLISH_ERROR, 1, publisher_id, len(ids))
        parts.append(head + rows.tobytes())
    return b"".join(parts)


def decode_confirm(body: bytes) -> PublishConfirm:
    """A PublishConfirm frame, without its size."""
    publisher, count = _answer_head(body, 8)
    ids = np.frombuffer(body, dtype=">u8", count=count, offset=9)
    return PublishConfirm(publisher, ids.astype(np.uint64))


def decode_publish_error(body: bytes) -> PublishError:
    """A PublishError frame, without its size."""
    publisher, count = _answer_head(body, _ERRORS.itemsize)
    rows: Sequence[tuple[int, int]] = np.frombuffer(body, dtype=_ERRORS, count=count, offset=9).tolist()
    return PublishError(publisher, tuple(rows))


def _answer_head(body: bytes, item_bytes: int) -> tuple[int, int]:
    reader = Reader(body, FRAME_HEAD.size - 4)
    publisher = reader.take(1)[0]
    count = reader.number(_U32)
    if len(body) - 9 != count * item_bytes:
        malformed(f"{count} publishing ids announced, {len(body) - 9} bytes for them")
    return publisher, count
