"""Some chunks in a row of one segment, in memory once, and what was decided about their messages."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.log import ChunkType
from headgate.scan.decide import Decider
from headgate.scan.reading import ScanBatch, Window, open_window, read_window
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.shared.filters import NO_FILTER, RuleMatches, SharedFilters, SharedRules
from headgate.scan.shared.reads import SharedReads
from headgate.scan.shared.segments import OpenSegment, SegmentView

if TYPE_CHECKING:
    from headgate.scan.decide import DecideBuffers

Int64Array = NDArray[np.int64]

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
    """The messages of a window that one filter keeps; `chunks_hit` is the number of chunks they lie in."""

    batches: tuple[ScanBatch, ...]
    chunks_hit: int
    kept_messages: int

    @staticmethod
    def of(batches: list[ScanBatch], chunk_ids: Int64Array) -> Verdict:
        """The verdict of batches over the chunks of a window."""
        hit = sum(chunks_hit(chunk_ids, batch.offsets) for batch in batches)
        return Verdict(tuple(batches), hit, sum(len(batch) for batch in batches))


@dataclass(slots=True)
class WindowPart:
    """What one reader takes of a window: the messages of some of its chunks, from an offset on."""

    batches: list[ScanBatch]
    chunks_hit: int
    record_count: int
    chunk_bytes: int


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
    table = view.table
    positions = table.position[rows]
    if len(rows) and rows[-1] + 1 == len(table):
        stops = np.append(table.position[rows[:-1] + 1], view.stop_position)
    else:
        stops = table.position[rows + 1]
    return LoadedRows(open_window(opened.reader, table.chunk_id[rows], positions, stops, None), stops - positions)


def decide_window(
    window: Window, request: ScanRequest, within: OffsetRange, buffers: DecideBuffers, counters: ScanCounters
) -> tuple[list[ScanBatch], CorruptChunkError | None]:
    """The messages of a window that a request keeps, up to the first chunk that does not check, and its error."""
    found: list[ScanBatch] = []
    try:
        for batch in read_window(window, Decider(request, within, buffers), counters):
            if len(batch):
                found.append(batch)
    except CorruptChunkError as error:
        return found, error
    return found, None


class SharedWindow:
    """The chunks `start_row … stop_row` of a segment for all readers. Safe for several threads; `load` it first.

    Whoever asks first reads and decides; others wait for that and take the result. Of its chunks those with messages
    count: `chunk_count`, `record_count`, `chunk_bytes`.
    """

    __slots__ = (
        "_is_damaged",
        "_is_sound",
        "_loaded",
        "_lock",
        "_matches",
        "_pieces",
        "_places",
        "_reads",
        "_size_bytes",
        "_verdicts",
        "charged_bytes",
        "chunk_bytes",
        "chunk_count",
        "first_offset",
        "next_offset",
        "record_count",
        "segment_id",
        "start_row",
        "stop_row",
    )

    def __init__(self, segment_id: int, start_row: int, stop_row: int, view: SegmentView, reads: SharedReads) -> None:
        self.segment_id = segment_id
        self.start_row = start_row
        self.stop_row = stop_row
        self.first_offset = view.offset_at(start_row)
        self.next_offset = view.offset_at(stop_row)
        self.chunk_count = self.record_count = self.chunk_bytes = 0
        self.charged_bytes = 0
        self._size_bytes = view.position_at(stop_row) - view.position_at(start_row)
        self._reads = reads
        self._lock = threading.Lock()
        self._loaded: LoadedRows | None = None
        self._is_sound = self._is_damaged = False
        self._verdicts: dict[int, Verdict] = {}
        self._places: dict[int, int] = {}
        self._pieces: tuple[ScanBatch, ...] = ()
        self._matches: list[RuleMatches] = []

    def load(self, opened: OpenSegment, view: SegmentView) -> LoadedRows:
        """Its chunks with messages, read at the first call. Raises CorruptChunkError for a header that is none."""
        with self._lock:
            if self._loaded is None:
                loaded = load_rows(opened, view, user_rows(view, self.start_row, self.stop_row))
                self.chunk_count = len(loaded.sizes)
                self.record_count = int(loaded.content.chunks.record_counts.sum())
                self.chunk_bytes = int(loaded.sizes.sum())
                self._loaded = loaded
                self._charge(_WINDOW_BYTES + (0 if opened.segment.mappable else self._size_bytes))
            return self._loaded

    def verdict(self, request: ScanRequest, number: int, filters: SharedFilters) -> Verdict | None:
        """What a request keeps, `number` being that of its filter; for all filters that come by, if they are many.

        None if a chunk of the window is damaged: nothing is decided for all then.
        """
        with self._lock:
            if self._is_damaged:
                return None
            found = self._known(number)
            if found is None:
                rules = filters.rules_for(self, number)
                if rules is not None and self._match(rules, request):
                    return self._known(number)
                return self._alone(request, number)
            return found

    def part(self, chunk_ids: Int64Array, start: int, verdict: Verdict) -> WindowPart:
        """What a verdict keeps of some chunks, ascending, from the offset `start` on."""
        assert self._loaded is not None
        chunks = self._loaded.content.chunks
        rows = np.searchsorted(chunks.chunk_ids, chunk_ids)
        wanted = np.zeros(len(chunks), dtype=np.bool_)
        wanted[rows] = True
        batches, hit = [], 0
        for batch in verdict.batches:
            kept = wanted[np.searchsorted(chunks.chunk_ids, batch.offsets, side="right") - 1] & (batch.offsets >= start)
            if kept.any():
                taken = ScanBatch(batch.messages.take(kept), batch.offsets[kept], batch.timestamps_ms[kept])
                hit += chunks_hit(chunks.chunk_ids, taken.offsets)
                batches.append(taken)
        passed_over = max(0, start - int(chunk_ids[0]))
        records = int(chunks.record_counts[rows].sum()) - passed_over
        return WindowPart(batches, hit, records, int(self._loaded.sizes[rows].sum()))

    def _known(self, number: int) -> Verdict | None:
        found = self._verdicts.get(number)
        if found is None and number in self._places:
            found = self._verdicts[number] = self._gathered(self._places[number])
        return found

    def _alone(self, request: ScanRequest, number: int) -> Verdict | None:
        assert self._loaded is not None
        if self._is_sound and request.verify_checksums:
            request = replace(request, verify_checksums=False)
        content = self._loaded.content
        batches, error = decide_window(content, request, EVERYWHERE, self._reads.buffers, ScanCounters())
        if error is not None:
            self._is_damaged = True
            return None
        self._is_sound |= request.verify_checksums
        verdict = Verdict.of(batches, content.chunks.chunk_ids)
        if number >= NO_FILTER:
            self._verdicts[number] = verdict
            self._charge(_ROW_BYTES * verdict.kept_messages)
        return verdict

    def _match(self, rules: SharedRules, request: ScanRequest) -> bool:
        everything = self._verdicts.get(NO_FILTER) or self._alone(replace(request, filter=None), NO_FILTER)
        if everything is None:
            return False
        self._pieces = everything.batches
        self._matches = [rules.match(piece.messages) for piece in self._pieces]
        self._places = rules.places
        self._charge(sum(matches.rows.nbytes for matches in self._matches))
        return True

    def _gathered(self, place: int) -> Verdict:
        """The verdict of the filter at a place of the rule set."""
        batches = []
        for piece, matches in zip(self._pieces, self._matches, strict=True):
            rows = matches.rows[matches.borders[place] : matches.borders[place + 1]]
            if len(rows):
                batches.append(ScanBatch(piece.messages.take(rows), piece.offsets[rows], piece.timestamps_ms[rows]))
        assert self._loaded is not None
        return Verdict.of(batches, self._loaded.content.chunks.chunk_ids)

    def _charge(self, size_bytes: int) -> None:
        with self._reads.lock:
            self._reads.charge(self, size_bytes)
