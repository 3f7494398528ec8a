"""Making the sidecar of a segment: every registered filter over every chunk that is new to it, nothing twice.

Pure work on one segment at a time; who runs it, and where, is for others: the Spark job, a broker that writes, a test.
"""

from __future__ import annotations

import bisect
import zlib
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import (
    ConfigError,
    CorruptChunkError,
    CorruptSidecarError,
    FilterError,
    LogError,
    OffsetOutOfRangeError,
)
from headgate.evaluate import Filter
from headgate.log import (
    ENTRY_DTYPE,
    HEADER_BYTES_DTYPE,
    MATCH_SUFFIX,
    ChunkType,
    IndexedFilter,
    Segment,
    SegmentReader,
    Sidecar,
    SidecarContent,
    Stream,
    sidecar_path,
    write_sidecar,
)
from headgate.log.format import ENTRY_HEAD_BYTES
from headgate.message import EncodedMessages
from headgate.scan.decide import Decider
from headgate.scan.match_index.bit_map import BitMapParameters, bits_of, put_bits, set_positions
from headgate.scan.match_index.identity import FilterKey, key_of
from headgate.scan.match_index.lookup import parameters_name
from headgate.scan.match_index.registry import REGISTRY_NAME, FilterRegistry, Registration
from headgate.scan.match_index.settings import Layout
from headgate.scan.reading import WINDOW_BYTES, Window, open_window, read_window
from headgate.scan.request import OffsetRange, OnCorrupt, ScanCounters, ScanRequest

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

_HEADER_ROWS = 16_384
_HEADER_WORDS = HEADER_BYTES_DTYPE.itemsize // 8
_WRITE_ATTEMPTS = 3


@dataclass(slots=True)
class BuildCounters:
    """What a build did."""

    segments: int = 0
    segments_written: int = 0
    """Segments whose sidecar is new or replaced; the others had all that is asked for."""
    chunks: int = 0
    chunks_decided: int = 0
    """Chunks that were read, because they or a filter were new to the sidecar."""
    chunks_corrupt: int = 0
    """Chunks that do not check: readers find them without the index."""
    messages_decided: int = 0
    bytes_written: int = 0

    def add(self, other: BuildCounters) -> None:
        """Add what another build did."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


def build_index(stream: Stream, *, now_ms: int, full: bool = False, from_offset: int = 0) -> BuildCounters:
    """Bring the sidecars of a stream up to date, segment by segment, in this process.

    With `from_offset` only those of the segment that has it, and of later ones.

    Raises FilterError or ConfigError for a registered text that is no filter here, LogError for files that cannot be
    written. `full` computes everything anew.
    """
    registration = prepare_build(stream, now_ms=now_ms)
    done = BuildCounters()
    segments = stream.segments()
    first = bisect.bisect_right(segments, from_offset, key=lambda segment: segment.first_chunk_id) - 1
    for segment in segments[max(0, first) :]:
        done.add(build_segment(segment, registration, full=full))
    return done


def prepare_build(stream: Stream, *, now_ms: int) -> Registration:
    """What to build: the registered filters, all of them checked; removes what nobody needs any more.

    That are filters dead for a day, sidecars without a segment, and, without a filter, all sidecars. Raises LogError
    that names the registry for one that cannot be read, or that has a filter that cannot be used here.
    """
    registry = FilterRegistry(stream)
    with registry.changing() as change:
        change.clean(now_ms=now_ms)
        registration = change.registration
    for each in registration.filters:
        try:
            each.parsed()
        except (FilterError, ConfigError) as error:
            raise LogError(f"filter {each.id!r} cannot be used: {error}", path=stream.path / REGISTRY_NAME) from error
    wanted = {sidecar_path(segment.segment_path) for segment in stream.segments()} if registration.filters else set()
    for path in stream.path.glob(f"*.segment{MATCH_SUFFIX}"):
        if path not in wanted:
            path.unlink(missing_ok=True)
    return registration


def build_segment(segment: Segment, registration: Registration, *, full: bool = False) -> BuildCounters:
    """Bring the sidecar of one segment up to date.

    Memory: about twice the size of the sidecar (8 bytes per message, and a bit per filter or the bit array). A segment
    that retention deletes meanwhile is passed over.
    """
    done = BuildCounters(segments=1)
    try:
        with segment.open() as reader:
            done.chunks = len(reader.chunks())
            if not done.chunks or not registration.filters:
                return done
            building = _Building(reader, registration)
            if not full:
                building.take_over_what_is_there()
            building.decide_the_rest(done)
            if building.is_changed:
                done.bytes_written = _write(segment, building.content())
                done.segments_written = 1
    except OffsetOutOfRangeError:
        return done
    return done


def _write(segment: Segment, content: SidecarContent) -> int:
    """Write a sidecar; again if a writer starts just now, which removes files that are about to be renamed."""
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        try:
            return write_sidecar(segment, content)
        except LogError as error:
            if attempt == _WRITE_ATTEMPTS or not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise AssertionError("unreachable")


@dataclass(slots=True)
class _Column:
    """One filter while its results are put together: `covered` `(chunks,)`, `bits` one per offset or None."""

    id: str
    expression: Filter
    key: FilterKey
    covered: Mask
    bits: NDArray[np.uint8] | None
    positions: tuple[int, ...]


class _Building:
    """The sidecar of one segment, in memory."""

    def __init__(self, reader: SegmentReader, registration: Registration) -> None:
        table = reader.chunks()
        self._reader = reader
        self._chunk_ids = table.chunk_id
        self._next_ids = reader.next_chunk_ids()
        self._user = table.type == ChunkType.USER
        self._start = reader.segment.first_chunk_id
        count = reader.next_chunk_id - self._start
        self._headers = _headers(reader)
        self._indexed = np.zeros(len(table), dtype=np.bool_)
        """Chunks whose entries are known."""
        self._entries = np.zeros(count, dtype=ENTRY_DTYPE)
        self._bit_map: BitMapParameters | None = None
        if registration.settings.layout is Layout.BLOOM:
            self._bit_map = registration.settings.bit_map
        self._arrays: NDArray[np.uint8] | None = None
        if self._bit_map is not None:
            self._arrays = np.zeros((count, self._bit_map.byte_length), dtype=np.uint8)
        self._columns = [self._column(each.id, each.parsed()) for each in registration.filters]
        self.is_changed = True

    def _column(self, filter_id: str, expression: Filter) -> _Column:
        key = key_of(expression)
        assert key is not None, "the registry refuses filters without a key"
        return _Column(
            filter_id,
            expression,
            key,
            np.zeros(len(self._chunk_ids), dtype=np.bool_),
            bits_of(len(self._entries)) if self._bit_map is None else None,
            () if self._bit_map is None else self._bit_map.positions(filter_id),
        )

    @property
    def _parameters(self) -> str:
        return "" if self._bit_map is None else parameters_name(self._bit_map)

    def take_over_what_is_there(self) -> None:
        """Results of the sidecar that is there, for chunks that are still the same; nothing if it does not check."""
        try:
            sidecar = Sidecar.open(self._reader.segment)
            if sidecar is None:
                return
            with sidecar:
                self._take_over(sidecar)
        except CorruptSidecarError:
            # What was taken over by then was checked piece by piece, and counts only where `covered` says so.
            self._indexed[:] = False
            for column in self._columns:
                column.covered[:] = False
            if self._arrays is not None:
                self._arrays[:] = 0

    def _take_over(self, sidecar: Sidecar) -> None:
        old = sidecar.directory
        count = min(old.chunks, len(self._chunk_ids))
        if not count:
            return
        stop = min(old.stop, int(self._next_ids[count - 1]))
        known = sidecar.headers(0, count).view(np.uint64).reshape(-1, _HEADER_WORDS)
        now = self._headers[:count].view(np.uint64).reshape(-1, _HEADER_WORDS)
        same = np.zeros(len(self._chunk_ids), dtype=np.bool_)
        same[:count] = (known == now).all(axis=1) & known.any(axis=1) & (self._next_ids[:count] <= stop)
        self._indexed = same
        places = slice(0, stop - self._start)
        kept = self._offsets_mask(same)[places]
        self._entries[places][kept] = sidecar.entries(self._start, stop)[kept]
        if old.parameters == self._parameters:
            if self._arrays is not None:
                self._arrays[places][kept] = sidecar.arrays(self._start, stop)[kept]
            for column in self._columns:
                self._take_over_column(sidecar, column, same, stop)
        self.is_changed = (
            old.chunks != len(self._chunk_ids)
            or old.parameters != self._parameters
            or [(each.id, each.dialect, each.text_hash, each.evaluator) for each in old.filters]
            != [(each.id, each.key.dialect, each.key.text_hash, each.key.evaluator) for each in self._columns]
        )

    def _take_over_column(self, sidecar: Sidecar, column: _Column, same: Mask, stop: int) -> None:
        for each in sidecar.directory.filters:
            key = FilterKey(each.dialect, each.text_hash, each.evaluator)
            # Bit arrays are told apart by id, so there the results of another id are of no use.
            if key != column.key or (column.bits is None and each.id != column.id):
                continue
            covered = np.zeros(len(same), dtype=np.bool_)
            for first, behind in each.ranges:
                covered |= (self._chunk_ids >= first) & (self._next_ids <= behind)
            fresh = covered & same & ~column.covered
            if column.bits is not None and each.bits is not None:
                taken = np.flatnonzero(self._offsets_mask(fresh)[: stop - self._start])
                put_bits(column.bits, taken, sidecar.bits(each.bits, self._start, stop)[taken])
            column.covered |= fresh

    def _offsets_mask(self, chunks: Mask) -> Mask:
        """`(offsets,)`: those of some chunks. Offsets of a segment have no gaps."""
        return np.repeat(chunks, self._next_ids - self._chunk_ids)

    def decide_the_rest(self, done: BuildCounters) -> None:
        """Evaluate every filter over the chunks that it does not cover yet."""
        missing = ~self._indexed
        for column in self._columns:
            missing |= ~column.covered
        rows = np.flatnonzero(missing & self._user)
        self._cover(~self._user)
        if not len(rows):
            return
        self.is_changed = True
        table = self._reader.chunks()
        stops = self._reader.stop_positions()[rows]
        total = np.cumsum(stops - table.position[rows])
        request = ScanRequest(on_corrupt=OnCorrupt.SKIP)
        decider = Decider(request, OffsetRange(self._start, self._start + len(self._entries)))
        counters = ScanCounters()
        first = 0
        while first < len(rows):
            before = int(total[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(total, before + WINDOW_BYTES, side="right")))
            part = rows[first:stop]
            window = open_window(self._reader, table, part, stops[first:stop], counters)
            self._decide_window(part, window, decider, counters)
            first = stop
        done.chunks_decided += len(rows)
        done.chunks_corrupt += counters.chunks_corrupt
        done.messages_decided += counters.messages_evaluated

    def _decide_window(self, rows: Int64Array, window: Window, decider: Decider, counters: ScanCounters) -> None:
        headers = window.headers.records.view(HEADER_BYTES_DTYPE)
        shifts = window.positions - window.headers.starts
        present = np.searchsorted(self._chunk_ids, window.chunks.chunk_ids)
        decided = np.zeros(len(self._chunk_ids), dtype=np.bool_)
        for batch in read_window(window, decider, counters):
            if not len(batch):
                continue
            chunks = np.searchsorted(self._chunk_ids, batch.offsets, side="right") - 1
            decided[chunks] = True
            places = batch.offsets - self._start
            if batch.messages.data is window.chunks.data:
                shift = shifts[np.searchsorted(present, chunks)]
                self._note_entries(places, batch.messages, shift)
            else:
                self._entries[places] = np.zeros(1, dtype=ENTRY_DTYPE)
            for column in self._columns:
                self._decide(column, batch.messages, places, chunks)
        self._headers[rows] = np.zeros(1, dtype=HEADER_BYTES_DTYPE)
        self._headers[present] = headers
        self._headers[rows[~decided[rows]]] = np.zeros(1, dtype=HEADER_BYTES_DTYPE)
        self._indexed[rows] = decided[rows]
        for column in self._columns:
            column.covered[rows] = decided[rows]

    def _note_entries(self, places: Int64Array, messages: EncodedMessages, shifts: Int64Array) -> None:
        starts, sizes = messages.starts - ENTRY_HEAD_BYTES, messages.lengths + ENTRY_HEAD_BYTES
        self._entries["position"][places] = starts + shifts
        self._entries["crc"][places] = _checksums(messages.data, starts, sizes)

    def _decide(self, column: _Column, messages: EncodedMessages, places: Int64Array, chunks: Int64Array) -> None:
        open_rows = np.flatnonzero(~column.covered[chunks])
        if not len(open_rows):
            return
        part = messages if len(open_rows) == len(messages) else messages.take(open_rows)
        # A registered filter knows no time.
        matches = column.expression.mask(part, now_ms=0)
        if column.bits is not None:
            put_bits(column.bits, places[open_rows], matches)
        elif self._arrays is not None:
            set_positions(self._arrays, places[open_rows[matches]], column.positions)

    def _cover(self, chunks: Mask) -> None:
        """Chunks without messages: whatever is said of them is right, and ranges need not end there."""
        self._indexed |= chunks
        for column in self._columns:
            column.covered |= chunks

    def content(self) -> SidecarContent:
        """What is written."""
        columns = [
            (
                IndexedFilter(
                    each.id, each.key.dialect, each.key.text_hash, each.key.evaluator, self._ranges(each.covered)
                ),
                each.bits,
            )
            for each in self._columns
        ]
        identity = self._reader.segment.identity
        return SidecarContent(
            identity, self._start, self._headers, self._entries, columns, self._arrays, self._parameters
        )

    def _ranges(self, covered: Mask) -> tuple[tuple[int, int], ...]:
        borders = np.flatnonzero(np.diff(np.concatenate([[False], covered, [False]]).astype(np.int8)))
        begins, ends = borders[::2], borders[1::2] - 1
        return tuple(zip(self._chunk_ids[begins].tolist(), self._next_ids[ends].tolist(), strict=True))


def _headers(reader: SegmentReader) -> NDArray[np.void]:
    """The headers of all chunks now, `(chunks,)` of HEADER_BYTES_DTYPE; zeros near one that does not check."""
    count = len(reader.chunks())
    found = np.zeros(count, dtype=HEADER_BYTES_DTYPE)
    for first in range(0, count, _HEADER_ROWS):
        stop = min(first + _HEADER_ROWS, count)
        try:
            found[first:stop] = reader.headers(first, stop).records.view(HEADER_BYTES_DTYPE)
        except CorruptChunkError:
            continue
    return found


def _checksums(data: NDArray[np.uint8], starts: Int64Array, sizes: Int64Array) -> Int64Array:
    """CRC-32 of byte ranges of `data`, `(ranges,)`."""
    kernel, checksum = kernels.load("headgate.scan.match_index.kernel"), kernels.load("headgate.kernels.checksum")
    if kernel is not None and checksum is not None and checksum.HAS_CARRYLESS_MULTIPLY:
        columns = [np.ascontiguousarray(column, dtype=np.int64) for column in (starts, sizes)]
        found = np.empty(len(starts), dtype=np.int64)
        addresses = [kernels.address_of(array) for array in (*columns, found)]
        table = kernels.address_of(kernels.byte_table())
        kernel.checksums(kernels.address_of(data), *addresses, len(starts), table)
        return found
    view = data.data
    pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
    return np.array([zlib.crc32(view[start : start + size]) for start, size in pairs], dtype=np.int64)
