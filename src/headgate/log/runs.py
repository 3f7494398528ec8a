"""Builds chunks of messages from several publishers, without copying them together first.

A run becomes separate chunks: the entries of all publishers without a name, or those of one publisher with a name,
whose chunks have its last sequence in their trailers. A chunk holds either messages or sub-batches: some clients decide
by a chunk's first entry (stream_protocol, section 6).
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import largest, side_by_side, total
from headgate.log.bloom import bloom_bytes
from headgate.log.chunk_builder import (
    BuiltChunks,
    Bytes,
    ChunkLimits,
    FilterValues,
    Int64Array,
    check_ranges,
    chunk_boundaries,
    fill_chunks,
    has_kernels,
    stamp_sequences,
)
from headgate.log.compression import EXPANSION_LIMIT_BYTES
from headgate.log.format import (
    CHUNK_HEADER_BYTES,
    ENTRY_HEAD_BYTES,
    MAX_ENTRY_BYTES,
    SUB_BATCH_HEAD_BYTES,
    assemble_chunk,
    decode_sub_batch_head,
)
from headgate.log.tracking_records import TrackingKind, TrackingRecord

_FEW_ENTRIES = 32
"""Up to this many entries plain Python is faster than preparing columns for the kernel."""

_VALUE_STRIDE = 256
"""From this many messages on, a run of one filter value gets separate chunks."""

_TRAILER_LENGTH_AT = 40
_U32 = struct.Struct(">I")
_NO_BYTES, _NO_ROWS = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)


class Entries:
    """Entries of one publisher, in order: `starts[i] … starts[i] + lengths[i]` of `data`.

    An entry is a message, or with `records[i]` above 0 a whole sub-batch of that many messages, with its head.
    `records` None: there are only messages. All columns `(entries,)` int64; `filter_values` as for `build_chunks`, one
    per entry, none for a sub-batch. `member_values` are the values of the messages in the sub-batches, in order,
    `records[i]` for entry i; None: unknown, and left out of Bloom filters.

    Kept as columns or as pieces, in the form in which they came; the other form is made at its first use. So a single
    message costs no array.
    """

    __slots__ = ("_columns", "_pieces", "count", "filter_values", "member_values", "records")

    def __init__(
        self,
        data: Bytes,
        starts: Int64Array,
        lengths: Int64Array,
        filter_values: FilterValues | None = None,
        records: Int64Array | None = None,
        member_values: FilterValues | None = None,
    ) -> None:
        self._columns: tuple[Bytes, Int64Array, Int64Array] | None = (data, starts, lengths)
        self._pieces: Sequence[bytes] | None = None
        self.count = len(starts)
        self.filter_values = filter_values
        self.records = records
        self.member_values = member_values

    @staticmethod
    def of(
        pieces: Sequence[bytes], filter_values: FilterValues | None = None, records: Int64Array | None = None
    ) -> Entries:
        """Entries that are byte strings, and stay as they are."""
        entries = Entries(_NO_BYTES, _NO_ROWS, _NO_ROWS, filter_values, records)
        entries._columns, entries._pieces, entries.count = None, pieces, len(pieces)
        return entries

    def __len__(self) -> int:
        return self.count

    @property
    def columns(self) -> tuple[Bytes, Int64Array, Int64Array]:
        """Data, starts and lengths."""
        if self._columns is None:
            assert self._pieces is not None
            self._columns = np.frombuffer(b"".join(self._pieces), dtype=np.uint8), *side_by_side(self._pieces)
        return self._columns

    @property
    def data(self) -> Bytes:
        """The buffer that holds the entries."""
        return self.columns[0]

    @property
    def starts(self) -> Int64Array:
        """The start of each entry."""
        return self.columns[1]

    @property
    def lengths(self) -> Int64Array:
        """Bytes of each entry."""
        return self.columns[2]

    @property
    def pieces(self) -> Sequence[bytes]:
        """The entries as byte strings: for few entries."""
        if self._pieces is None:
            data, starts, lengths = self.columns
            view = data.data
            self._pieces = [
                bytes(view[start : start + length])
                for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
            ]
        return self._pieces

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries together."""
        return total(self.lengths) if self._pieces is None else sum(map(len, self._pieces))

    @property
    def longest(self) -> int:
        """Bytes of the longest entry, of at least one."""
        return largest(self.lengths) if self._pieces is None else max(map(len, self._pieces))

    @property
    def record_counts(self) -> Int64Array:
        """The number of messages of each entry: `(entries,)`."""
        return np.ones(len(self), dtype=np.int64) if self.records is None else np.maximum(self.records, 1)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Entries:
        """The entries selected by a mask, or by their numbers, over the same bytes.

        Call it before the values of members are known.
        """
        assert self.member_values is None
        values = self.filter_values
        taken = None if values is None else FilterValues(values.data, values.starts[rows], values.lengths[rows])
        records = None if self.records is None else self.records[rows]
        return Entries(self.data, self.starts[rows], self.lengths[rows], taken, records)

    def check(self) -> int:
        """Check the entries; gives the sum of their bytes.

        Raises ValueError for entries outside of their buffer, or columns of different lengths or kinds.
        """
        if self._pieces is None:
            data, starts, lengths = self.columns
            _check_bytes(data)
            size_bytes = check_ranges(data, starts, lengths, shortest=0)
        else:
            size_bytes = sum(map(len, self._pieces))
        count = self.count
        if size_bytes > MAX_ENTRY_BYTES and self.longest > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of {self.longest} bytes")
        for values in (self.filter_values, self.member_values):
            if values is not None:
                _check_bytes(values.data)
                check_ranges(values.data, values.starts, values.lengths)
        for other in (self.filter_values, self.records):
            if other is not None and len(other) != count:
                raise ValueError(f"{len(other)} values for {count} entries")
        if self.records is not None and bool((self.lengths[self.records > 0] < SUB_BATCH_HEAD_BYTES).any()):
            raise ValueError(f"a sub-batch of fewer bytes than its head has, {SUB_BATCH_HEAD_BYTES}")
        if self.member_values is not None:
            members = 0 if self.records is None else total(self.records)
            if len(self.member_values) != members:
                raise ValueError(f"{len(self.member_values)} values for {members} messages in sub-batches")
        return size_bytes

    def value_counts(self) -> Int64Array:
        """The number of filter values of each entry in its chunk, counting empty ones: `(entries,)`."""
        counts = np.ones(len(self), dtype=np.int64)
        if self.records is not None:
            packed = self.records > 0
            counts[packed] = 0 if self.member_values is None else self.records[packed]
        return counts

    def expanded_lengths(self) -> Int64Array:
        """Bytes that each entry expands to, 0 for a message: `(entries,)`."""
        lengths = np.zeros(len(self), dtype=np.int64)
        if self.records is not None:
            view = self.data.data
            for row in np.flatnonzero(self.records > 0).tolist():
                lengths[row] = decode_sub_batch_head(view, int(self.starts[row]))[2]
        return lengths


def _check_bytes(data: Bytes) -> None:
    """Check the arrays of bytes: the kernel reads them by address."""
    if data.dtype != np.uint8 or not data.flags.c_contiguous:
        raise ValueError(f"bytes of entries are {data.dtype}; expected uint8, side by side")


class Run(msgspec.Struct, eq=False):
    """Entries that become separate chunks; `sequences` has a rising number per entry of a `publisher` with a name.

    `is_whole`: the messages become one chunk, so that after a crash either all of them exist or none.
    """

    parts: list[Entries]
    publisher: bytes | None = None
    sequences: list[NDArray[np.uint64]] | None = None
    is_whole: bool = False


def only_message(runs: Sequence[Run]) -> tuple[bytes, bytes | None] | None:
    """The message and its filter value if the runs hold only one, from a publisher without a name; else None."""
    if len(runs) != 1 or runs[0].publisher is not None or len(runs[0].parts) != 1:
        return None
    part = runs[0].parts[0]
    if part.count != 1 or (part.records is not None and part.records[0] > 0):
        return None
    values = part.filter_values
    return part.pieces[0], None if values is None else values.value(0)


def build_runs(
    runs: Sequence[Run], *, filter_size_bytes: int, max_messages: int, max_bytes: int, last_trailer: bytes = b""
) -> BuiltChunks:
    """All runs as chunks, one after the other; `last_trailer` is added to the trailer of the last chunk.

    Entries have been checked (`Entries.check`), and no run is empty. Raises ConfigError for an entry that is too long.
    """
    is_few = sum([part.count for run in runs for part in run.parts]) <= _FEW_ENTRIES
    build = _build_in_python if is_few or not has_kernels() else _build_in_kernel
    built = build(runs, filter_size_bytes, max_messages, max_bytes, len(last_trailer))
    if last_trailer:
        at = int(built.positions[-1]) + _TRAILER_LENGTH_AT
        (before,) = _U32.unpack_from(built.data.data, at)
        _U32.pack_into(built.data.data, at, before + len(last_trailer))
        built.data[-len(last_trailer) :] = np.frombuffer(last_trailer, dtype=np.uint8)
    return built


def _boundaries(run: Run, lengths: Int64Array, records: Int64Array | None, limits: ChunkLimits) -> Int64Array:
    """The first entry of each chunk and, last, the number of entries.

    A chunk ends where messages and sub-batches change, where a long run of another filter value begins, and before
    its sub-batches exceed the expansion limit of readers.
    """
    if run.is_whole:
        return np.array([0, len(lengths)], dtype=np.int64)
    changes = set(_value_changes(run))
    if records is not None:
        changes.update((np.flatnonzero(np.diff(records > 0)) + 1).tolist())
        changes.update(_expansion_cuts(np.concatenate([part.expanded_lengths() for part in run.parts])))
    if not changes:
        return chunk_boundaries(lengths, limits)
    parts = [np.zeros(1, dtype=np.int64)]
    for first, stop in itertools.pairwise([0, *sorted(changes), len(lengths)]):
        parts.append(chunk_boundaries(lengths[first:stop], limits)[1:] + first)
    return np.concatenate(parts)


def _expansion_cuts(expanded: Int64Array) -> list[int]:
    """The entries at which chunks end, so that none expands beyond EXPANSION_LIMIT_BYTES unless one sub-batch does."""
    ends = np.cumsum(expanded)
    cuts = []
    first, before = 0, 0
    while int(ends[-1]) - before > EXPANSION_LIMIT_BYTES:
        fitting = int(np.searchsorted(ends, before + EXPANSION_LIMIT_BYTES, side="right"))
        first = max(fitting, first + 1)
        if first == len(ends):
            break
        cuts.append(first)
        before = int(ends[first - 1])
    return cuts


def _value_changes(run: Run) -> list[int]:
    """The entries at which another filter value begins, if the values come in long runs.

    With chunks that end there a reader skips whole chunks of other values; a few messages of its value in them would
    prevent that. Only every `_VALUE_STRIDE`-th value is examined, so a short run may be missed, which only costs a
    reader bytes.
    """
    if all(part.filter_values is None for part in run.parts):
        return []
    firsts = list(itertools.accumulate((len(part) for part in run.parts), initial=0))

    def value(row: int) -> bytes | None:
        at = bisect.bisect_right(firsts, row) - 1
        values = run.parts[at].filter_values
        return None if values is None else values.value(row - firsts[at])

    rows = [*range(0, firsts[-1] - 1, _VALUE_STRIDE), firsts[-1] - 1]
    seen = [(row, value(row)) for row in rows]
    changed = [(row, before, after[0]) for (row, before), after in itertools.pairwise(seen) if before != after[1]]
    if 2 * len(changed) >= len(rows):
        return []
    found = []
    for start, before, stop in changed:
        while stop - start > 1:
            middle = (start + stop) // 2
            start, stop = (middle, stop) if value(middle) == before else (start, middle)
        found.append(stop)
    return found


def _columns(run: Run) -> tuple[Int64Array, Int64Array | None]:
    """Lengths and records of all entries of a run."""
    lengths = np.concatenate([part.lengths for part in run.parts], dtype=np.int64)
    if all(part.records is None for part in run.parts):
        return lengths, None
    records = [np.zeros(len(part), np.int64) if part.records is None else part.records for part in run.parts]
    joined = np.concatenate(records, dtype=np.int64)
    return lengths, joined if bool((joined > 0).any()) else None


def _build_in_kernel(
    runs: Sequence[Run], filter_size_bytes: int, max_messages: int, max_bytes: int, spare_bytes: int
) -> BuiltChunks:
    plans = []
    size_bytes = spare_bytes
    for run in runs:
        limits = ChunkLimits(filter_size_bytes, run.publisher, max_messages, max_bytes)
        lengths, records = _columns(run)
        boundaries = _boundaries(run, lengths, records, limits)
        fixed = CHUNK_HEADER_BYTES + filter_size_bytes + len(limits.trailer)
        size_bytes += int(lengths.sum()) + ENTRY_HEAD_BYTES * len(lengths) + fixed * (len(boundaries) - 1)
        plans.append((run, limits, lengths, records, boundaries))
    target = np.empty(size_bytes, dtype=np.uint8)
    written = 0
    positions, counts = [], []
    for run, limits, lengths, records, boundaries in plans:
        count = len(boundaries) - 1
        starts_of_chunks = np.empty(count, dtype=np.int64)
        size = _fill_run(run, limits, lengths, records, boundaries, target[written:], starts_of_chunks)
        if run.sequences is not None:
            stamp_sequences(
                target[written : written + size], starts_of_chunks, np.concatenate(run.sequences)[boundaries[1:] - 1]
            )
        positions.append(starts_of_chunks + written)
        counts.append(
            np.diff(boundaries) if records is None else np.add.reduceat(np.maximum(records, 1), boundaries[:-1])
        )
        written += size
    return BuiltChunks(target[: written + spare_bytes], np.concatenate(positions), np.concatenate(counts))


def _fill_run(
    run: Run,
    limits: ChunkLimits,
    lengths: Int64Array,
    records: Int64Array | None,
    boundaries: Int64Array,
    target: Bytes,
    positions: Int64Array,
) -> int:
    """Write the chunks of one run; the kernel finds the entries by address, in any number of buffers."""
    address = kernels.address_of
    starts = np.concatenate([part.starts + address(part.data) for part in run.parts], dtype=np.int64)
    boundaries = np.ascontiguousarray(boundaries)
    value_boundaries = boundaries
    value_starts, value_lengths = _value_columns(run)
    if value_starts is not None and records is not None:
        ends = np.cumsum(np.concatenate([part.value_counts() for part in run.parts]), dtype=np.int64)
        value_boundaries = np.concatenate([np.zeros(1, np.int64), ends])[boundaries]
    values = (0, 0, 0, 0)
    if value_starts is not None:
        values = (0, address(value_starts), address(value_lengths), address(value_boundaries))
    return fill_chunks(
        0,
        address(starts),
        address(lengths),
        0 if records is None else address(records),
        address(boundaries),
        len(positions),
        values,
        limits,
        target,
        positions,
    )


def _value_columns(run: Run) -> tuple[Int64Array | None, Int64Array]:
    """Addresses and lengths of a run's filter values, `value_counts` of them for each entry; None without any."""
    if all(part.filter_values is None and part.member_values is None for part in run.parts):
        return None, np.empty(0, np.int64)
    columns = [_values_of_messages(part) if part.records is None else _values_of_all(part) for part in run.parts]
    starts, lengths = zip(*columns, strict=True)
    return np.concatenate(starts, dtype=np.int64), np.concatenate(lengths, dtype=np.int64)


def _values_of_messages(part: Entries) -> tuple[Int64Array, Int64Array]:
    values = part.filter_values
    if values is None:
        return np.zeros(len(part), np.int64), np.full(len(part), -1, np.int64)
    return values.starts + kernels.address_of(values.data), values.lengths


def _values_of_all(part: Entries) -> tuple[Int64Array, Int64Array]:
    assert part.records is not None
    counts = part.value_counts()
    is_member = np.repeat(part.records > 0, counts)
    starts, lengths = np.zeros(len(is_member), np.int64), np.full(len(is_member), -1, np.int64)
    own_starts, own_lengths = _values_of_messages(part)
    starts[~is_member], lengths[~is_member] = own_starts[part.records == 0], own_lengths[part.records == 0]
    members = part.member_values
    if members is not None:
        starts[is_member], lengths[is_member] = members.starts + kernels.address_of(members.data), members.lengths
    return starts, lengths


def _build_in_python(
    runs: Sequence[Run], filter_size_bytes: int, max_messages: int, max_bytes: int, spare_bytes: int
) -> BuiltChunks:
    written = bytearray()
    positions, counts = [], []
    for run in runs:
        bodies: list[bytes] = []
        records: list[int] = []
        values: list[Sequence[bytes | None]] = []
        for part in run.parts:
            _add_rows(part, bodies, records, values)
        boundaries, sequences = [0, len(bodies)], None
        if len(bodies) > 1:
            limits = ChunkLimits(filter_size_bytes, run.publisher, max_messages, max_bytes)
            boundaries = _boundaries(run, *_columns(run), limits).tolist()
        if run.publisher is not None and run.sequences is not None:
            sequences = [number for part in run.sequences for number in part.tolist()]
        for first, stop in itertools.pairwise(boundaries):
            num_records = sum(records[first:stop])
            known = [value for each in values[first:stop] for value in each]
            trailer = b""
            if run.publisher is not None and sequences is not None:
                trailer = TrackingRecord(TrackingKind.SEQUENCE, run.publisher, sequences[stop - 1]).encode()
            _, chunk = assemble_chunk(
                b"".join(bodies[first:stop]),
                num_entries=stop - first,
                num_records=num_records,
                bloom=bloom_bytes(known, filter_size_bytes),
                trailer=trailer,
            )
            positions.append(len(written))
            counts.append(num_records)
            written += chunk
    written += bytes(spare_bytes)
    return BuiltChunks(np.frombuffer(written, np.uint8), np.array(positions, np.int64), np.array(counts, np.int64))


def _add_rows(part: Entries, bodies: list[bytes], records: list[int], values: list[Sequence[bytes | None]]) -> None:
    """Add entries as they are stored, their numbers of messages, and their known filter values."""
    pieces, own_values, members, member = part.pieces, part.filter_values, part.member_values, 0
    own_records = [0] * len(pieces) if part.records is None else part.records.tolist()
    for row, (piece, packed) in enumerate(zip(pieces, own_records, strict=True)):
        if packed > 0:
            bodies.append(piece)
            records.append(packed)
            values.append(() if members is None else [members.value(member + number) for number in range(packed)])
            member += packed
        else:
            bodies.append(_U32.pack(len(piece)) + piece)
            records.append(1)
            values.append((None if own_values is None else own_values.value(row),))
