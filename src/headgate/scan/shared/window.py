"""Some chunks in a row of one segment, in memory once, and what single filters keep of them."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.log import ChunkHeaders, ChunkType
from headgate.log.build import gather
from headgate.log.format import HEADER_DTYPE
from headgate.scan.decide import Decider
from headgate.scan.reading import ScanBatch, Window, open_window, read_window
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.shared.filters import NO_FILTER
from headgate.scan.shared.reads import SharedReads
from headgate.scan.shared.segments import OpenSegment, SegmentView
from headgate.scan.shared.tiles import Tile
from headgate.scan.stage_one import ChunkSelector

if TYPE_CHECKING:
    from headgate.scan.decide import DecideBuffers
    from headgate.scan.shared.log import Place

Int64Array = NDArray[np.int64]

DENSE = 2
"""From one byte in so many wanted on, reading all chunks of a window for all readers is better than some for one."""

EVERYWHERE = OffsetRange(0, 2**63 - 1)

_ROW_BYTES = 24
"""What a message in a batch takes beside its bytes."""

_WINDOW_BYTES = 4096
"""What a window takes beside its chunks."""


@dataclass(slots=True)
class LoadedRows:
    """Chunks in memory, their headers checked, and the bytes of each in the file, `(chunks,)` int64."""

    content: Window
    sizes: Int64Array


@dataclass(slots=True)
class Verdict:
    """The messages of a window that one filter keeps; `chunks_hit` is the number of chunks they lie in.

    `malformed` are the offsets, ascending, of what was found to be no AMQP message.
    """

    batches: tuple[ScanBatch, ...]
    chunks_hit: int
    kept_messages: int
    malformed: Int64Array

    @staticmethod
    def of(batches: list[ScanBatch], chunk_ids: Int64Array, malformed: Int64Array) -> Verdict:
        """The verdict of batches over the chunks of a window."""
        hit = sum(chunks_hit(chunk_ids, batch.offsets) for batch in batches)
        return Verdict(tuple(batches), hit, sum(len(batch) for batch in batches), malformed)


@dataclass(slots=True)
class Pick:
    """The chunks of a window that stage 1 leaves to a reader: `chunks`, numbers of them, ascending.

    `is_all`: none was left out. `counters` is what stage 1 counted; the chunks hold `record_count` messages and are
    `chunk_bytes` long.
    """

    chunks: Int64Array
    is_all: bool
    counters: ScanCounters
    record_count: int
    chunk_bytes: int

    @property
    def is_dense(self) -> bool:
        """Whether so much is left that reading with others pays."""
        return self.chunk_bytes * DENSE >= self.chunk_bytes + self.counters.bytes_skipped


@dataclass(slots=True)
class Outline:
    """What stage 1 needs of a window's chunks, without their data."""

    headers: ChunkHeaders
    sizes: Int64Array
    record_counts: Int64Array
    chunk_ids: Int64Array

    @staticmethod
    def of(loaded: LoadedRows) -> Outline:
        """Copied out of chunks in memory."""
        content = loaded.content
        lengths = content.headers["bloom_length"].astype(np.int64)
        blooms = gather(content.chunks.data, content.chunks.data_starts - lengths, lengths)
        headers = ChunkHeaders(content.headers, blooms, np.cumsum(lengths) - lengths)
        return Outline(headers, loaded.sizes, content.chunks.record_counts, content.chunks.chunk_ids)

    @staticmethod
    def joined(parts: Sequence[Outline]) -> Outline:
        """Those of chunks that follow one another, as one."""
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
        records = int(self.record_counts[kept].sum())
        return Pick(kept, len(kept) == len(self.sizes), counters, records, int(self.sizes[kept].sum()))


def _concatenated(columns: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([np.empty(0, dtype=np.int64), *columns])


def chunks_hit(chunk_ids: Int64Array, offsets: Int64Array) -> int:
    """In how many chunks some offsets, ascending, lie."""
    if not len(offsets):
        return 0
    rows = np.searchsorted(chunk_ids, offsets, side="right")
    return int(np.count_nonzero(rows[1:] != rows[:-1])) + 1


def row_of_error(positions: Int64Array, error: CorruptChunkError) -> int:
    """Which of some chunks, by their positions in the file, an error is about."""
    position = 0 if error.position is None else error.position
    return max(0, int(np.searchsorted(positions, position, side="right")) - 1)


def user_rows(view: SegmentView, start_row: int, stop_row: int) -> Int64Array:
    """The rows of chunks with messages."""
    return np.flatnonzero(view.table.type[start_row:stop_row] == ChunkType.USER) + start_row


def load_rows(opened: OpenSegment, view: SegmentView, rows: Int64Array) -> LoadedRows:
    """Bring the chunks of some rows into memory, their headers checked. Raises CorruptChunkError."""
    positions, stops = view.table.position[rows], view.stops(rows)
    content = open_window(opened.reader, view.table, rows, stops, None)
    return LoadedRows(content, stops - positions)


def decide_window(
    window: Window, request: ScanRequest, within: OffsetRange, buffers: DecideBuffers, counters: ScanCounters
) -> tuple[list[ScanBatch], Int64Array, CorruptChunkError | None]:
    """The messages of a window that a request keeps and the offsets of what is none, up to the first chunk that does
    not check, and its error.
    """
    found: list[ScanBatch] = []
    malformed: list[Int64Array] = []
    fault: CorruptChunkError | None = None
    try:
        for batch in read_window(window, Decider(request, within, buffers), counters):
            malformed.append(batch.malformed)
            if len(batch):
                found.append(batch)
    except CorruptChunkError as error:
        fault = error
    return found, _concatenated(malformed), fault


class SharedWindow(Tile):
    """The chunks of a tile for all readers. Safe for several threads.

    Whoever asks first reads and decides; others wait for that and take the result. Its chunks are numbered; those
    without messages do not count. All calls that are given a `place` in its segment raise CorruptChunkError for a
    header that is none.
    """

    __slots__ = (
        "_chunk_ids",
        "_is_damaged",
        "_is_sound",
        "_loaded",
        "_lock",
        "_outline",
        "_picks",
        "_reads",
        "_size_bytes",
        "_verdicts",
    )

    def __init__(self, segment_id: int, start_row: int, stop_row: int, view: SegmentView, reads: SharedReads) -> None:
        super().__init__(segment_id, start_row, stop_row, view)
        self._size_bytes = view.position_at(stop_row) - view.position_at(start_row)
        self._reads = reads
        self._lock = threading.Lock()
        self._loaded: LoadedRows | None = None
        self._outline: Outline | None = None
        self._chunk_ids = np.empty(0, dtype=np.int64)
        self._is_sound = self._is_damaged = False
        self._verdicts: dict[int, Verdict] = {}
        self._picks: dict[Hashable, Pick] = {}

    def load(self, place: Place) -> LoadedRows:
        """Its chunks with messages."""
        with self._lock:
            return self._load(place)

    def first_chunk(self, place: Place) -> int:
        """The number of the first chunk with messages from a place on."""
        with self._lock:
            if not len(self._chunk_ids):
                self._load(place)
            return int(np.searchsorted(self._chunk_ids, place.view.offset_at(place.row)))

    def chunk_id(self, chunk: int) -> int:
        """The id of a chunk by its number."""
        return int(self._chunk_ids[chunk])

    def pick(self, place: Place, selector: ChunkSelector, first_chunk: int) -> Pick:
        """The chunks from number `first_chunk` on that a reader has to look into; asked once for equal wishes."""
        with self._lock:
            found = None if first_chunk else self._picks.get(selector.key)
            if found is None:
                if self._outline is None:
                    self._load(place)
                assert self._outline is not None
                found = self._outline.pick(selector, first_chunk)
                if not first_chunk:
                    self._picks[selector.key] = found
            return found

    def verdict(self, place: Place, request: ScanRequest, number: int) -> Verdict | None:
        """What a request keeps, `number` being that of its filter; None if a chunk of the window is damaged."""
        with self._lock:
            if self._is_damaged:
                return None
            return self._verdicts.get(number) or self._alone(place, request, number)

    def part(self, verdict: Verdict, chunks: Int64Array, start: int) -> Verdict:
        """What a verdict keeps of some chunks from the offset `start` on."""
        return part_of(verdict, self._chunk_ids, chunks, start)

    def _load(self, place: Place) -> LoadedRows:
        if self._loaded is None:
            loaded = load_rows(place.opened, place.view, user_rows(place.view, self.start_row, self.stop_row))
            if self._outline is None:
                self._outline = Outline.of(loaded)
                self._chunk_ids = loaded.content.chunks.chunk_ids
            self._loaded = loaded
            self._charge(_WINDOW_BYTES + (0 if place.opened.segment.mappable else self._size_bytes))
        return self._loaded

    def _alone(self, place: Place, request: ScanRequest, number: int) -> Verdict | None:
        if self._is_sound and request.verify_checksums:
            request = replace(request, verify_checksums=False)
        content = self._load(place).content
        batches, malformed, error = decide_window(content, request, EVERYWHERE, self._reads.buffers, ScanCounters())
        if error is not None:
            self._is_damaged = True
            return None
        self._is_sound |= request.verify_checksums
        verdict = Verdict.of(batches, self._chunk_ids, malformed)
        if number >= NO_FILTER:
            self._verdicts[number] = verdict
            self._charge(_ROW_BYTES * verdict.kept_messages + malformed.nbytes)
        return verdict

    def _charge(self, size_bytes: int) -> None:
        with self._reads.lock:
            self._reads.charge(self, size_bytes)


def part_of(verdict: Verdict, chunk_ids: Int64Array, chunks: Int64Array, start: int) -> Verdict:
    """What a verdict over the chunks of these ids keeps of some of them, by number, from the offset `start` on."""
    wanted = np.zeros(len(chunk_ids), dtype=np.bool_)
    wanted[chunks] = True

    def are_wanted(offsets: Int64Array) -> NDArray[np.bool_]:
        within: NDArray[np.bool_] = wanted[np.searchsorted(chunk_ids, offsets, side="right") - 1] & (offsets >= start)
        return within

    batches = []
    for batch in verdict.batches:
        kept = are_wanted(batch.offsets)
        if kept.any():
            batches.append(ScanBatch(batch.messages.take(kept), batch.offsets[kept], batch.timestamps_ms[kept]))
    return Verdict.of(batches, chunk_ids, verdict.malformed[are_wanted(verdict.malformed)])
