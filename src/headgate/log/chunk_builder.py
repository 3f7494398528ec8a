"""Building chunks from many encoded messages: entries, Bloom bytes, CRC, room for a publisher sequence.

Chunk id, timestamp and epoch stay zero until the writer knows the position in a stream. Kernels build
about ten million messages of 200 bytes a second and core; the fallback gives the same bytes. Compressed chunks are
built like the others and packed afterwards, at the speed of the codec. Layout: osiris_log.md sections 2, 3 and 5.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import FEW_ROWS, largest, side_by_side, smallest, total
from headgate.errors import ConfigError
from headgate.log import format as f
from headgate.log.bloom import DEFAULT_FILTER_SIZE_BYTES, bloom_bytes, check_filter_size
from headgate.log.compression import EXPANSION_LIMIT_BYTES, compress
from headgate.log.layout import HASHED
from headgate.log.tracking_records import TrackingKind, TrackingRecord, check_reference

MAX_MESSAGES = 4096
"""Limit: messages of a chunk."""

MAX_BYTES = 1 << 20
"""Limit: bytes of a chunk's data part, before compression; a single message may be larger."""

Bytes = NDArray[np.uint8]
Int64Array = NDArray[np.int64]


class FilterValues(msgspec.Struct, eq=False):
    """A filter value per message: `starts[i] … starts[i] + lengths[i]` of `data`, or none where the length is −1.

    `data` is `(bytes,)` uint8, the others `(messages,)` int64. An empty value counts as none. Values may overlap.
    """

    data: Bytes
    starts: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.starts)

    def value(self, row: int) -> bytes | None:
        """The value of one message."""
        start, length = int(self.starts[row]), int(self.lengths[row])
        return None if length < 0 else self.data[start : start + length].tobytes()

    def slice(self, first: int, end: int) -> FilterValues:
        """The values of the messages `first` … `end`, over the same bytes."""
        return FilterValues(self.data, self.starts[first:end], self.lengths[first:end])

    def copy(self) -> FilterValues:
        """The same values over a copy of their bytes only."""
        taken = np.maximum(self.lengths, 0)
        data = gather(self.data, self.starts, self.lengths)
        return FilterValues(data, np.cumsum(taken, dtype=np.int64) - taken, np.array(self.lengths, dtype=np.int64))

    @staticmethod
    def joined(parts: Sequence[FilterValues]) -> FilterValues:
        """The values of one or more parts, one after the other."""
        sizes = np.array([0] + [len(part.data) for part in parts[:-1]], dtype=np.int64)
        bases = np.cumsum(sizes)
        return FilterValues(
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.starts + base for part, base in zip(parts, bases.tolist(), strict=True)]),
            np.concatenate([part.lengths for part in parts]),
        )

    @staticmethod
    def of(values: Iterable[bytes | None]) -> FilterValues:
        """Values copied side by side."""
        parts = list(values)
        joined = np.frombuffer(b"".join(part for part in parts if part is not None), dtype=np.uint8)
        return FilterValues(joined, *side_by_side(parts))

    @staticmethod
    def same(value: bytes | None, count: int) -> FilterValues:
        """One value for `count` messages."""
        length = -1 if value is None else len(value)
        return FilterValues(
            np.frombuffer(value or b"", dtype=np.uint8), np.zeros(count, np.int64), np.full(count, length, np.int64)
        )


class BuiltChunks(msgspec.Struct, eq=False):
    """Chunks without gaps: `data` `(bytes,)`; per chunk its start and its number of messages, both int64."""

    data: Bytes
    positions: Int64Array
    num_records: Int64Array

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, first: int, stop: int) -> BuiltChunks:
        """The chunks `first` … `stop`, over the same bytes."""
        start = int(self.positions[first])
        end = int(self.positions[stop]) if stop < len(self) else len(self.data)
        return BuiltChunks(self.data[start:end], self.positions[first:stop] - start, self.num_records[first:stop])

    @property
    def message_count(self) -> int:
        """Messages in all chunks."""
        return total(self.num_records)


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Limits and contents of chunks: size, the stream's filter size, room for a publisher's sequence, compression.

    `publisher` is the reference for whose sequence each chunk's trailer has room; None = no trailer. `compression`
    other than NONE packs the messages of each chunk into a sub-batch (`pack_chunks`).
    """

    filter_size_bytes: int = DEFAULT_FILTER_SIZE_BYTES
    publisher: bytes | None = None
    max_messages: int = MAX_MESSAGES
    max_bytes: int = MAX_BYTES
    compression: f.Compression = f.Compression.NONE

    def __post_init__(self) -> None:
        check_filter_size(self.filter_size_bytes, option="filter_size_bytes")
        if not 1 <= self.max_messages <= f.MAX_CHUNK_ENTRIES:
            raise ConfigError(f"max_messages is {self.max_messages}; a chunk has 1 to {f.MAX_CHUNK_ENTRIES} messages")
        if not 1 <= self.max_bytes <= f.MAX_ENTRY_BYTES:
            raise ConfigError(f"max_bytes is {self.max_bytes}; expected 1 to {f.MAX_ENTRY_BYTES}")
        if self.publisher is not None:
            check_reference(self.publisher, what="publisher reference")

    @property
    def trailer(self) -> bytes:
        """The trailer of each chunk, its sequence still zero."""
        if self.publisher is None:
            return b""
        return TrackingRecord(TrackingKind.SEQUENCE, self.publisher, 0).encode()


def chunk_boundaries(lengths: Int64Array, limits: ChunkLimits) -> Int64Array:
    """First message of each chunk and, last, the number of messages: `(chunks + 1,)`; `[0]` for no messages."""
    if len(lengths) and not 0 <= smallest(lengths) <= largest(lengths) <= f.MAX_ENTRY_BYTES:
        raise ConfigError(f"a message of {int(lengths.max())} bytes does not fit an entry of {f.MAX_ENTRY_BYTES} bytes")
    if (
        0 < len(lengths) <= limits.max_messages
        and total(lengths) + f.ENTRY_HEAD_BYTES * len(lengths) <= limits.max_bytes
    ):
        return np.array([0, len(lengths)], dtype=np.int64)
    ends = np.cumsum(lengths + f.ENTRY_HEAD_BYTES, dtype=np.int64)
    boundaries = [0]
    written = 0
    while (first := boundaries[-1]) < len(lengths):
        fitting = int(np.searchsorted(ends, written + limits.max_bytes, side="right"))
        end = min(max(fitting, first + 1), first + limits.max_messages, len(lengths))
        boundaries.append(end)
        written = int(ends[end - 1])
    return np.array(boundaries, dtype=np.int64)


def build_chunks(
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    filter_values: FilterValues | None,
    limits: ChunkLimits,
    *,
    boundaries: Int64Array | None = None,
    target: Bytes | None = None,
) -> BuiltChunks:
    """The messages `starts[i] … starts[i] + lengths[i]` of `data` as chunks, in order.

    `filter_values` None: no message has one. `boundaries`, in the form of `chunk_boundaries`, replace those of the
    limits; no chunk may get more than MAX_CHUNK_ENTRIES messages. Chunks are built in `target` if it is large
    enough; then they are valid only until its owner writes to it. Raises ConfigError for a message longer than an
    entry can be, ValueError for messages outside `data` or another number of filter values than messages.
    """
    if boundaries is None:
        boundaries = chunk_boundaries(lengths, limits)
    check_ranges(data, starts, lengths)
    if filter_values is not None:
        if len(filter_values) != len(starts):
            raise ValueError(f"{len(filter_values)} filter values for {len(starts)} messages")
        check_ranges(filter_values.data, filter_values.starts, filter_values.lengths)
        if not len(filter_values) or int(filter_values.lengths.max()) <= 0:
            filter_values = None
    if has_kernels():
        built = _build_in_kernel(data, starts, lengths, filter_values, limits, boundaries, target)
    else:
        built = _build_in_python(data, starts, lengths, filter_values, limits, boundaries)
    return built if limits.compression is f.Compression.NONE else pack_chunks(built, limits.compression)


def pack_chunks(built: BuiltChunks, compression: f.Compression) -> BuiltChunks:
    """Pack the messages of each chunk of simple entries into one sub-batch; Bloom bytes and trailers stay as they are.

    So the filter values of the members set the bits of their chunk. A message beyond EXPANSION_LIMIT_BYTES, which is
    alone in its chunk, stays a simple entry: readers refuse to expand more.
    """
    view = built.data.data
    packed = bytearray()
    positions = []
    for start, num_records in zip(built.positions.tolist(), built.num_records.tolist(), strict=True):
        positions.append(len(packed))
        header = f.ChunkHeader.decode(view[start : start + f.CHUNK_HEADER_BYTES], path="chunk to pack", position=start)
        data_start = start + f.CHUNK_HEADER_BYTES + header.bloom_length
        data_stop = data_start + header.data_length
        stop = data_stop + header.trailer_length
        if header.data_length > EXPANSION_LIMIT_BYTES:
            packed += view[start:stop]
            continue
        body = compress(bytes(view[data_start:data_stop]), compression)
        head = f.encode_sub_batch_head(compression, num_records, header.data_length, len(body))
        header.num_entries = 1
        header.crc = zlib.crc32(body, zlib.crc32(head))
        header.data_length = len(head) + len(body)
        for part in (
            header.encode(),
            view[start + f.CHUNK_HEADER_BYTES : data_start],
            head,
            body,
            view[data_stop:stop],
        ):
            packed += part
    return BuiltChunks(np.frombuffer(packed, dtype=np.uint8), np.array(positions, dtype=np.int64), built.num_records)


def check_ranges(data: Bytes, starts: Int64Array, lengths: Int64Array, *, shortest: int = -1) -> int:
    """The sum of the lengths. Raises ValueError for byte ranges outside of `data`, or shorter than `shortest`.

    A length may be 0, or −1 for no range.
    """
    count, size_bytes = len(starts), len(data)
    if count != len(lengths):
        raise ValueError(f"{count} starts, {len(lengths)} lengths")
    if count <= FEW_ROWS:
        is_inside, sum_bytes = True, 0
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            is_inside = is_inside and start >= 0 and shortest <= length <= size_bytes - start
            sum_bytes += length
    else:
        is_inside = (
            int(starts.min()) >= 0 and int(lengths.min()) >= shortest and int((starts + lengths).max()) <= size_bytes
        )
        sum_bytes = int(lengths.sum())
    if not is_inside:
        raise ValueError("bytes outside the buffer")
    return sum_bytes


def _build_in_kernel(
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    filter_values: FilterValues | None,
    limits: ChunkLimits,
    boundaries: Int64Array,
    target: Bytes | None,
) -> BuiltChunks:
    chunk_count = len(boundaries) - 1
    bloom_size = 0 if filter_values is None else limits.filter_size_bytes
    fixed = f.CHUNK_HEADER_BYTES + bloom_size + len(limits.trailer)
    size = int(lengths.sum()) + f.ENTRY_HEAD_BYTES * len(lengths) + fixed * chunk_count
    if target is None or len(target) < size:
        target = np.empty(size, dtype=np.uint8)
    positions = np.empty(chunk_count, dtype=np.int64)
    # A column may have strides; the kernel reads adjacent words.
    columns = [np.ascontiguousarray(column, dtype=np.int64) for column in (starts, lengths, boundaries)]
    address = kernels.address_of
    values = (0, 0, 0, 0)
    if filter_values is not None:
        value_columns = [
            np.ascontiguousarray(column, dtype=np.int64) for column in (filter_values.starts, filter_values.lengths)
        ]
        values = (
            address(filter_values.data),
            address(value_columns[0]),
            address(value_columns[1]),
            address(columns[2]),
        )
    written = fill_chunks(
        address(data),
        address(columns[0]),
        address(columns[1]),
        0,
        address(columns[2]),
        chunk_count,
        values,
        limits,
        target,
        positions,
    )
    return BuiltChunks(target[:written], positions, np.diff(boundaries))


def has_kernels() -> bool:
    """Whether both kernels for building chunks can be used; each can be in the cache without the other."""
    return all(kernels.load(module) is not None for module in ("headgate.log.kernel", "headgate.kernels.checksum"))


def fill_chunks(
    data: int,
    starts: int,
    lengths: int,
    records: int,
    boundaries: int,
    chunk_count: int,
    values: tuple[int, int, int, int],
    limits: ChunkLimits,
    target: Bytes,
    positions: Int64Array,
) -> int:
    """`build_chunks` of the kernel, with CRCs, into `target`; returns the bytes written. Only if `has_kernels`.

    Integers are addresses of int64 columns, checked by the caller; `values` are the addresses of bytes, starts and
    lengths of filter values and of the first value of each chunk, zeros for none. `positions` gets the start of each
    chunk in `target`.
    """
    kernel = kernels.load("headgate.log.kernel")
    checksum = kernels.load("headgate.kernels.checksum")
    assert kernel is not None and checksum is not None
    address = kernels.address_of
    trailer = np.frombuffer(limits.trailer or b"\0", dtype=np.uint8)
    cache = np.full(kernel.CACHE_SLOTS * len(HASHED), -1, dtype=np.int64)
    table = address(kernels.byte_table()) if checksum.HAS_CARRYLESS_MULTIPLY else 0
    written: int = kernel.build_chunks(
        data,
        starts,
        lengths,
        records,
        boundaries,
        chunk_count,
        *values,
        limits.filter_size_bytes,
        address(trailer),
        len(limits.trailer),
        address(cache),
        table,
        address(target),
        address(positions),
    )
    if not table:
        _fill_checksums(target[:written], positions)
    return written


def _fill_checksums(data: Bytes, positions: Int64Array) -> None:
    view = data.data
    headers = f.decode_headers(data, positions)
    starts = positions + f.CHUNK_HEADER_BYTES + headers.bloom_length
    for header, start, size in zip(positions.tolist(), starts.tolist(), headers.data_length.tolist(), strict=True):
        view[header + 32 : header + 36] = zlib.crc32(view[start : start + size]).to_bytes(4, "big")


def _build_in_python(
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    filter_values: FilterValues | None,
    limits: ChunkLimits,
    boundaries: Int64Array,
) -> BuiltChunks:
    view = data.data
    written = bytearray()
    positions = []
    for first, end in zip(boundaries[:-1].tolist(), boundaries[1:].tolist(), strict=True):
        entries: list[bytes | memoryview] = []
        for start, length in zip(starts[first:end].tolist(), lengths[first:end].tolist(), strict=True):
            entries += (length.to_bytes(4, "big"), view[start : start + length])
        body = b"".join(entries)
        bloom = b""
        if filter_values is not None:
            bloom = bloom_bytes(
                {filter_values.value(row) or b"" for row in range(first, end)}, limits.filter_size_bytes
            )
        positions.append(len(written))
        written += f.assemble_chunk(
            body, num_entries=end - first, num_records=end - first, bloom=bloom, trailer=limits.trailer
        )[1]
    return BuiltChunks(np.frombuffer(written, dtype=np.uint8), np.array(positions, dtype=np.int64), np.diff(boundaries))


def stamp_sequences(data: Bytes, positions: Int64Array, sequences: NDArray[np.uint64]) -> None:
    """Write a publisher sequence into the trailer of each chunk at `positions`: `sequences` `(chunks,)`.

    The sequence is at the end of the trailer, as `ChunkLimits.trailer` builds it. `data` is changed in place.
    """
    ends = positions + f.decode_headers(data, positions).size_bytes
    f.windows(data, np.dtype([("sequence", ">u8")]))["sequence"][ends - 8] = sequences


class ChunkBuilder:
    """Collects messages over many batches and builds full chunks: only the last one is smaller than the limits.

    `take` is called with the finished chunks and owns their bytes. Messages that do not fill a chunk yet are copied, so
    the caller may reuse its buffers. Memory: at most one chunk's messages in addition to those of one `add`.
    """

    __slots__ = (
        "_limits",
        "_pending_bytes",
        "_pending_count",
        "_pending_lengths",
        "_pending_messages",
        "_pending_values",
        "_take",
    )

    def __init__(self, limits: ChunkLimits, take: Callable[[BuiltChunks], None]) -> None:
        self._limits = limits
        self._take = take
        self._pending_messages: list[Bytes] = []
        self._pending_lengths: list[Int64Array] = []
        self._pending_values: list[FilterValues] = []
        self._pending_count = 0
        self._pending_bytes = 0

    def add(
        self, data: Bytes, starts: Int64Array, lengths: Int64Array, filter_values: FilterValues | None = None
    ) -> None:
        """Add messages, with filter values if any message has one; arguments and errors as for `build_chunks`."""
        values = FilterValues.same(None, len(starts)) if filter_values is None else filter_values
        first = 0
        if self._pending_count:
            first = self._room_for(lengths)
            self._keep(data, starts[:first], lengths[:first], values.slice(0, first))
            if first == len(starts):
                return
            self.finish()
        boundaries = chunk_boundaries(lengths[first:], self._limits)
        if len(boundaries) > 2:
            end = first + int(boundaries[-2])
            part = slice(first, end)
            self._take(build_chunks(data, starts[part], lengths[part], values.slice(first, end), self._limits))
            first = end
        self._keep(data, starts[first:], lengths[first:], values.slice(first, len(starts)))

    def finish(self) -> None:
        """Build the last chunk from the remaining messages, if any."""
        if not self._pending_count:
            return
        lengths = np.concatenate(self._pending_lengths)
        data = np.concatenate(self._pending_messages)
        values = FilterValues.joined(self._pending_values)
        self._pending_messages, self._pending_lengths, self._pending_values = [], [], []
        self._pending_count = self._pending_bytes = 0
        self._take(build_chunks(data, np.cumsum(lengths) - lengths, lengths, values, self._limits))

    def _room_for(self, lengths: Int64Array) -> int:
        """The number of next messages that still fit the pending chunk."""
        count = min(len(lengths), self._limits.max_messages - self._pending_count)
        ends = np.cumsum(lengths[:count] + f.ENTRY_HEAD_BYTES, dtype=np.int64)
        return int(np.searchsorted(ends, self._limits.max_bytes - self._pending_bytes, side="right"))

    def _keep(self, data: Bytes, starts: Int64Array, lengths: Int64Array, values: FilterValues) -> None:
        if not len(starts):
            return
        self._pending_messages.append(gather(data, starts, lengths))
        self._pending_lengths.append(np.array(lengths, dtype=np.int64))
        self._pending_values.append(values.copy())
        self._pending_count += len(starts)
        self._pending_bytes += int(lengths.sum()) + f.ENTRY_HEAD_BYTES * len(lengths)


def gather(data: Bytes, starts: Int64Array, lengths: Int64Array) -> Bytes:
    """Byte ranges of `data` copied side by side into a new array; lengths ≤ 0 give nothing."""
    check_ranges(data, starts, lengths)
    target = np.empty(int(np.maximum(lengths, 0).sum()), dtype=np.uint8)
    kernel = kernels.load("headgate.log.kernel")
    begins = np.ascontiguousarray(starts, dtype=np.int64)
    sizes = np.ascontiguousarray(lengths, dtype=np.int64)
    if kernel is not None:
        address = kernels.address_of
        kernel.gather(address(data), address(begins), address(sizes), len(begins), address(target))
        return target
    position = 0
    for start, size in zip(begins.tolist(), sizes.tolist(), strict=True):
        if size > 0:
            target[position : position + size] = data[start : start + size]
            position += size
    return target
