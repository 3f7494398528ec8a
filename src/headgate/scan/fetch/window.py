"""Windows: some chunks in a row of one segment, in memory once for all readers, with the results of single filters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.errors import CorruptChunkError
from headgate.evaluate import Filter
from headgate.log import ChunkHeaders, ChunkType, gather, memory_of
from headgate.log.format import HEADER_DTYPE
from headgate.scan.counters import ScanCounters
from headgate.scan.fetch.filters import NO_FILTER, SharedFilters
from headgate.scan.fetch.places import Place
from headgate.scan.fetch.portions import ChunkColumns, ChunkPortion, Portion
from headgate.scan.fetch.reads import SharedReads
from headgate.scan.fetch.segments import OpenSegment, SegmentView
from headgate.scan.fetch.tiles import Tile
from headgate.scan.offset_range import EVERYWHERE, OffsetRange
from headgate.scan.reading import ScanBatch, Window, open_window, read_window
from headgate.scan.request import ScanRequest
from headgate.scan.stage_one import ChunkSelector
from headgate.scan.stage_two import DecideBuffers, Decider

Int64Array = NDArray[np.int64]

DENSE = 2
"""Where at least one byte in this many is wanted, reading a whole window for all is better than parts for one."""

_ROW_BYTES = 24
"""Memory of a message in a batch beside its bytes."""

_MAPPED_BYTES = 256 << 10
"""Fewer bytes are copied: that costs less than new pages of a mapping."""

_WINDOW_BYTES = 4096
"""Memory of a window beside its chunks."""


@dataclass(slots=True)
class Kept:
    """The messages of a window that one filter keeps; `chunks_hit` is the number of chunks they lie in.

    `malformed` are the offsets, ascending, that were found to hold no AMQP message.
    """

    batches: tuple[ScanBatch, ...]
    chunks_hit: int
    message_count: int
    malformed: Int64Array
    share_ns: int = 0
    """The share of the deciding time that each of its readers bears."""

    @staticmethod
    def of(batches: list[ScanBatch], chunk_ids: Int64Array, malformed: Int64Array) -> Kept:
        """The messages of batches over chunks of these ids."""
        hit = sum(chunks_hit(chunk_ids, batch.offsets) for batch in batches)
        return Kept(tuple(batches), hit, sum(len(batch) for batch in batches), malformed)


@dataclass(slots=True)
class Pick:
    """The chunks of a window that stage 1 leaves to a reader: their numbers, `chunks`, ascending.

    `is_all`: no chunk was left out. `counters` are those of stage 1; the chunks hold `record_count` messages and are
    `chunk_bytes` long.
    """

    chunks: Int64Array
    is_all: bool
    counters: ScanCounters
    record_count: int
    chunk_bytes: int

    @property
    def is_dense(self) -> bool:
        """Whether enough is left for reading together with others to pay."""
        return self.chunk_bytes * DENSE >= self.chunk_bytes + self.counters.bytes_skipped


@dataclass(slots=True)
class Outline:
    """The headers of a window's chunks, for stage 1, without their data."""

    headers: ChunkHeaders
    sizes: Int64Array
    record_counts: Int64Array
    chunk_ids: Int64Array

    @staticmethod
    def of(window: Window, *, keeps_window: bool = False) -> Outline:
        """The outline of a window; a copy, unless it `keeps_window`: then it refers to the window's memory."""
        headers = window.headers
        if not keeps_window:
            lengths = headers.bloom_length
            blooms = gather(headers.data, headers.bloom_positions, lengths)
            headers = ChunkHeaders(headers.records, blooms, np.cumsum(lengths) - lengths)
        return Outline(headers, window.sizes, headers.num_records, headers.chunk_id)

    @staticmethod
    def joined(parts: Sequence[Outline]) -> Outline:
        """Outlines of chunks that follow one another, as one."""
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([len(part.headers.data) for part in parts]).tolist()
        begins = [end - len(part.headers.data) for part, end in zip(parts, ends, strict=True)]
        headers = ChunkHeaders(
            np.concatenate([np.empty(0, dtype=HEADER_DTYPE), *(part.headers.records for part in parts)]),
            np.concatenate([np.empty(0, dtype=np.uint8), *(part.headers.data for part in parts)]),
            _concatenated([part.headers.bloom_positions + begin for part, begin in zip(parts, begins, strict=True)]),
        )
        return Outline(
            headers,
            _concatenated([part.sizes for part in parts]),
            _concatenated([part.record_counts for part in parts]),
            _concatenated([part.chunk_ids for part in parts]),
        )

    def pick(self, selector: ChunkSelector, first_chunk: int) -> Pick:
        """The chunks from number `first_chunk` on that a selector keeps."""
        kept = np.arange(first_chunk, len(self.sizes))
        counters = ScanCounters(chunks_examined=len(kept))
        if selector.tests_headers:
            keep = selector.keep(self.headers)[first_chunk:]
            counters.chunks_skipped = int((~keep).sum())
            counters.bytes_skipped = int(self.sizes[first_chunk:][~keep].sum())
            kept = kept[keep]
        is_all = len(kept) == len(self.sizes)
        records, sizes = (each if is_all else each[kept] for each in (self.record_counts, self.sizes))
        return Pick(kept, is_all, counters, total(records), total(sizes))


def _concatenated(columns: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([np.empty(0, dtype=np.int64), *columns])


def chunks_hit(chunk_ids: Int64Array, offsets: Int64Array) -> int:
    """The number of chunks that some offsets, ascending, lie in."""
    if not len(offsets) or len(chunk_ids) == 1:
        return min(1, len(offsets))
    rows = np.searchsorted(chunk_ids, offsets, side="right")
    return int(np.count_nonzero(rows[1:] != rows[:-1])) + 1


def row_of_error(positions: Int64Array, error: CorruptChunkError) -> int:
    """The number of the chunk that an error is about, by the chunks' positions in the file."""
    position = 0 if error.position is None else error.position
    return max(0, int(np.searchsorted(positions, position, side="right")) - 1)


def user_rows(view: SegmentView, start_row: int, stop_row: int) -> Int64Array:
    """The rows of chunks with messages."""
    return np.flatnonzero(view.table.type[start_row:stop_row] == ChunkType.USER) + start_row


def load_rows(opened: OpenSegment, view: SegmentView, rows: Int64Array) -> Window:
    """Bring the chunks of some rows into memory, their headers checked. Raises CorruptChunkError.

    Many bytes are a view of the file: that costs less than a copy, and no memory.
    """
    stops = view.stops(rows)
    if len(rows) and int(stops[-1] - view.table.position[rows[0]]) >= _MAPPED_BYTES:
        opened.reader.map_to(int(stops[-1]))
    return open_window(opened.reader, view.table, rows, stops, None)


def columns_of(window: Window, numbers: Int64Array | None = None) -> ChunkColumns:
    """The chunks of a window as they are stored: all, or the ones with the given numbers."""
    headers = window.headers
    columns = [headers.starts, window.data_starts, headers.data_length, headers.chunk_id, headers.num_records]
    if numbers is not None:
        columns = [column[numbers] for column in columns]
    return ChunkColumns(headers.data, *columns)


def decide_window(
    window: Window, decider: Decider, counters: ScanCounters
) -> tuple[list[ScanBatch], Int64Array, CorruptChunkError | None]:
    """The kept messages and the malformed offsets of a window, up to the first damaged chunk, and its error."""
    found: list[ScanBatch] = []
    malformed: list[Int64Array] = []
    fault: CorruptChunkError | None = None
    try:
        for batch in read_window(window, decider, counters):
            malformed.append(batch.malformed)
            if len(batch):
                found.append(batch)
    except CorruptChunkError as error:
        fault = error
    return found, malformed[0] if len(malformed) == 1 else _concatenated(malformed), fault


class SharedChunks:
    """Some chunks in memory, with the results of stage 1 and of single filters. Safe for several threads.

    The first reader with a filter decides; others wait for it and take the result. Chunks are numbered; chunks without
    messages do not count. `charge` is called with the bytes of every result that is kept; `are_checked` says that the
    checksums were compared already.
    """

    __slots__ = ("_are_checked", "_charge", "_decided", "_is_damaged", "_lock", "_outline", "_picks", "_window")

    def __init__(
        self,
        window: Window,
        outline: Outline,
        *,
        charge: Callable[[int], None] = lambda _: None,
        are_checked: bool = False,
    ) -> None:
        self._window = window
        self._outline = outline
        self._charge = charge
        self._lock = threading.Lock()
        self._are_checked = are_checked
        self._is_damaged = False
        self._decided: dict[int, Kept] = {}
        self._picks: dict[Hashable, Pick] = {}

    @property
    def chunk_ids(self) -> Int64Array:
        """The ids of the chunks."""
        return self._outline.chunk_ids

    @property
    def epochs(self) -> Int64Array:
        """The epochs of their writers."""
        return self._outline.headers.epoch

    def pick(self, selector: ChunkSelector, first_chunk: int) -> Pick:
        """The chunks from number `first_chunk` on that a reader has to look into; found once for equal selectors."""
        if first_chunk:
            return self._outline.pick(selector, first_chunk)
        with self._lock:
            found = self._picks.get(selector.key)
            if found is None:
                found = self._picks[selector.key] = self._outline.pick(selector, 0)
            return found

    def portion(
        self,
        pick: Pick,
        request: ScanRequest,
        number: int,
        start: int,
        next_offset: int,
        reads: SharedReads,
        filters: SharedFilters,
    ) -> Portion | None:
        """The messages that a request keeps of picked chunks from the offset `start` on; `number` is its filter's.

        The counters have the reader's share of the deciding time, less the time that this call took for all. None if a
        chunk is damaged: then each reader reads alone.
        """
        if not len(pick.chunks):
            return Portion([], next_offset, pick.counters.copy())
        took_ns = 0
        with self._lock:
            if self._is_damaged:
                return None
            kept = self._decided.get(number)
            if kept is None:
                begun_ns = reads.cpu_ns()
                kept = self._decide(request, number, reads.buffers)
                if kept is None:
                    return None
                took_ns = reads.cpu_ns() - begun_ns
                kept.share_ns = took_ns
                if took_ns and number >= NO_FILTER:
                    kept.share_ns //= filters.sharers(OffsetRange(int(self.chunk_ids[0]), next_offset), (number,))
        portion = portion_of(kept, pick, self.chunk_ids, start, next_offset, request.filter)
        portion.counters.cpu_ns = kept.share_ns - took_ns
        return portion

    def whole(self, pick: Pick, next_offset: int) -> ChunkPortion:
        """The picked chunks as they are stored."""
        counters = pick.counters.copy()
        counters.bytes_read += pick.chunk_bytes
        return ChunkPortion(next_offset, counters, columns_of(self._window, None if pick.is_all else pick.chunks))

    def _decide(self, request: ScanRequest, number: int, buffers: DecideBuffers) -> Kept | None:
        decider = Decider(request, EVERYWHERE, buffers, self._are_checked)
        batches, malformed, error = decide_window(self._window, decider, ScanCounters())
        if error is not None:
            self._is_damaged = True
            return None
        self._are_checked |= request.verify_checksums
        kept = Kept.of(batches, self.chunk_ids, malformed)
        if number >= NO_FILTER:
            self._decided[number] = kept
            self._charge(_ROW_BYTES * kept.message_count + malformed.nbytes)
        return kept


class SharedWindow(Tile):
    """The chunks of a tile for all readers; the first one that asks reads them. Safe for several threads."""

    __slots__ = ("_chunks", "_lock", "_reads", "_share_ns", "_size_bytes")

    def __init__(self, segment_id: int, start_row: int, stop_row: int, view: SegmentView, reads: SharedReads) -> None:
        super().__init__(segment_id, start_row, stop_row, view)
        self._size_bytes = view.position_at(stop_row) - view.position_at(start_row)
        self._reads = reads
        self._lock = threading.Lock()
        self._chunks: SharedChunks | None = None
        self._share_ns = 0

    def chunks(self, place: Place, filters: SharedFilters) -> tuple[SharedChunks, int]:
        """Its chunks with messages, and the nanoseconds of loading them that the reader still owes.

        That is its share, less the time that this call took for all readers. Raises CorruptChunkError for an invalid
        header.
        """
        with self._lock:
            took_ns = 0
            if self._chunks is None:
                begun_ns = self._reads.cpu_ns()
                window = load_rows(place.opened, place.view, user_rows(place.view, self.start_row, self.stop_row))
                self._chunks = SharedChunks(window, Outline.of(window), charge=self._charge)
                is_view = memory_of(window.headers.data) is None
                self._charge(_WINDOW_BYTES + (0 if is_view else self._size_bytes))
                took_ns = self._reads.cpu_ns() - begun_ns
                if took_ns:
                    self._share_ns = took_ns // filters.sharers(OffsetRange(self.first_offset, self.next_offset))
            return self._chunks, self._share_ns - took_ns

    def _charge(self, size_bytes: int) -> None:
        with self._reads.lock:
            self._reads.charge(self, size_bytes)


def portion_of(
    kept: Kept, pick: Pick, chunk_ids: Int64Array, start: int, next_offset: int, wanted: Filter | None
) -> Portion:
    """The messages that a filter keeps of the picked chunks, at least one, from the offset `start` on."""
    counters = pick.counters.copy()
    counters.messages_evaluated = pick.record_count
    if not pick.is_all or start > chunk_ids[0]:
        kept = part_of(kept, chunk_ids, pick.chunks, start)
        counters.messages_evaluated -= max(0, start - int(chunk_ids[pick.chunks[0]]))
    counters.messages_matched = kept.message_count
    counters.messages_malformed = len(kept.malformed)
    counters.bytes_read = pick.chunk_bytes
    if wanted is not None:
        counters.chunks_without_match = len(pick.chunks) - kept.chunks_hit
    return Portion(list(kept.batches), next_offset, counters)


def part_of(kept: Kept, chunk_ids: Int64Array, chunks: Int64Array, start: int) -> Kept:
    """The kept messages of the chunks with these numbers, from the offset `start` on."""
    wanted = np.zeros(len(chunk_ids), dtype=np.bool_)
    wanted[chunks] = True

    def are_wanted(offsets: Int64Array) -> NDArray[np.bool_]:
        within: NDArray[np.bool_] = wanted[np.searchsorted(chunk_ids, offsets, side="right") - 1] & (offsets >= start)
        return within

    batches = []
    for batch in kept.batches:
        rows = are_wanted(batch.offsets)
        if rows.any():
            batches.append(ScanBatch(batch.messages.take(rows), batch.offsets[rows], batch.timestamps_ms[rows]))
    return Kept.of(batches, chunk_ids, kept.malformed[are_wanted(kept.malformed)])
