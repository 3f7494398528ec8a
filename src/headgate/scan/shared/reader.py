"""One reader's wishes over a shared log: the next messages or chunks from an offset on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, OffsetOutOfRangeError
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.log.sidecar import Sidecar
from headgate.scan.match_index.lookup import MatchIndex
from headgate.scan.reading import ScanBatch
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.rows import read_rows
from headgate.scan.shared.chunks import ChunkPortion, chunks_of
from headgate.scan.shared.window import LoadedRows, SharedWindow, decide_window, load_rows, row_of_error, user_rows
from headgate.scan.stage_one import ChunkSelector

if TYPE_CHECKING:
    from headgate.scan.shared.log import Place, SharedLog

Int64Array = NDArray[np.int64]

SMALLEST_WINDOW_BYTES = 1 << 20
LARGEST_WINDOW_BYTES = 4 << 20
"""Windows grow as long as little of them is kept, so that their fixed cost vanishes."""

_SPARSE = 4
"""Less than one byte in so many kept is little."""

_DENSE = 2
"""From one byte in so many wanted on, reading all chunks of a window for all readers is better than some for one."""

_CHUNKS_AT_ONCE = 4096
_NO_END = 2**63 - 1


@dataclass(slots=True)
class Portion:
    """What one read gave: messages in stream order, the offset to go on from, and what it cost.

    `lost` messages before it had been deleted when the reader came to them.
    """

    batches: list[ScanBatch]
    next_offset: int
    counters: ScanCounters
    lost: int = 0


@dataclass(slots=True)
class _Selection:
    """What stage 1 said of the chunks `start_row … stop_row` of a segment: `rows`, those that have to be read."""

    segment_id: int
    start_row: int
    stop_row: int
    rows: Int64Array


@dataclass(slots=True)
class _Step:
    """The chunks of one read: `rows`, what stage 1 left from the place on up to `stop_row`.

    With a `window` their bytes come from there; `is_whole`: all its chunks are wanted.
    """

    place: Place
    stop_row: int
    rows: Int64Array
    counters: ScanCounters
    window: SharedWindow | None = None
    is_whole: bool = False

    @property
    def next_offset(self) -> int:
        """The offset behind the step."""
        return self.place.view.offset_at(self.stop_row)

    def load(self) -> LoadedRows:
        """The bytes of the chunks. Raises CorruptChunkError only if the first one has no sound header.

        Before any other such chunk the step ends.
        """
        opened, view = self.place.opened, self.place.view
        while True:
            try:
                if self.window is not None:
                    return self.window.load(opened, view)
                return load_rows(opened, view, self.rows)
            except CorruptChunkError as error:
                if self.window is not None:
                    self.window = None
                    continue
                damaged = row_of_error(view.table.position[self.rows], error)
                if not damaged:
                    raise
                self.stop_row = int(self.rows[damaged])
                self.rows = self.rows[:damaged]


class SharedReader:
    """Reads on from any offset, one read at a time, in any thread. Memory between reads: a few hundred bytes.

    `offset` and `is_waiting` (has credit, and would read on) tell others which work is worth sharing.
    """

    def __init__(self, log: SharedLog, request: ScanRequest) -> None:
        self.offset = 0
        self.is_waiting = False
        self._log = log
        self._request = request
        self._selector = ChunkSelector(log.stream, request)
        self._index = MatchIndex(request)
        self._selection: _Selection | None = None
        self._window_bytes = SMALLEST_WINDOW_BYTES
        self._number = log.filters.add(self, request.filter)
        self._uses_time = request.filter is not None and request.filter.uses_time

    def close(self) -> None:
        """The reader reads nothing more; not while it reads."""
        self._log.filters.remove(self)
        self._index.close()

    def read(self, offset: int, now_ms: int) -> Portion | None:
        """The messages of the next chunks from an offset on that pass both stages; None when nothing is there now.

        Little may be in it, or nothing: the caller asks again. Raises CorruptChunkError at a chunk that does not check,
        once everything before was given, and other LogErrors.
        """
        self.offset = offset
        try:
            with self._log.place(offset) as place:
                return None if place is None else self._read(place, offset, now_ms)
        except OffsetOutOfRangeError:
            return Portion([], *self._behind_deleted(offset))

    def read_chunks(self, offset: int) -> ChunkPortion | None:
        """The next chunks, beginning with the one that holds an offset, that pass stage 1; as `read`.

        Their headers are checked, their data is not: whoever gets them does that.
        """
        self.offset = offset
        try:
            with self._log.place(offset) as place:
                return None if place is None else self._read_chunks(place)
        except OffsetOutOfRangeError:
            return ChunkPortion.empty(*self._behind_deleted(offset))

    def read_matching_chunks(self, offset: int, now_ms: int) -> ChunkPortion | None:
        """The messages that `read` gives as chunks, in which messages follow one another without a gap.

        Time and epoch are those of the chunk they lie in; there are neither Bloom bytes nor trailer.
        """
        self.offset = offset
        try:
            with self._log.place(offset) as place:
                if place is None:
                    return None
                portion = self._read(place, offset, now_ms)
                return chunks_of(portion.batches, place.view.table, portion.next_offset, portion.counters)
        except OffsetOutOfRangeError:
            return ChunkPortion.empty(*self._behind_deleted(offset))

    def _behind_deleted(self, offset: int) -> tuple[int, ScanCounters, int]:
        """Where to go on when retention was faster, and how much is lost."""
        first = self._log.first_offset()
        if first <= offset:
            raise
        return first, ScanCounters(), first - offset

    # messages

    def _read(self, place: Place, offset: int, now_ms: int) -> Portion:
        by_index = self._index.is_asked and Sidecar.identity_at(place.opened.segment) is not None
        step = self._step(place, share=not by_index)
        if not len(step.rows):
            return Portion([], step.next_offset, step.counters)
        request = self._request
        if self._uses_time:
            request = replace(request, now_ms=now_ms)
        within = OffsetRange(offset, _NO_END)
        portion = self._indexed(step, request, within) if by_index else None
        if portion is None:
            loaded = step.load()
            portion = None if step.window is None else self._shared(step, step.window, request, within)
            if portion is None:
                portion = self._alone(step, loaded, request, within)
        self._adapt(portion, place.view.position_at(step.stop_row) - place.view.position_at(place.row))
        return portion

    def _indexed(self, step: _Step, request: ScanRequest, within: OffsetRange) -> Portion | None:
        """A step with the match index; None at a damaged chunk, so that what lies before it is given first."""
        counters = replace(step.counters)
        reader = step.place.opened.reader
        try:
            found = list(read_rows(reader, step.rows, request, within, counters, self._index))
        except CorruptChunkError:
            return None
        if step.stop_row == len(step.place.view.table):
            # At the end of a stream, where readers wait, no file is held.
            self._index.close()
        return Portion([batch for batch in found if len(batch)], step.next_offset, counters)

    def _alone(self, step: _Step, loaded: LoadedRows, request: ScanRequest, within: OffsetRange) -> Portion:
        """A step that nobody shares."""
        counters = step.counters
        if step.window is not None:
            step.window = None
            loaded = step.load()
        batches, error = decide_window(loaded.content, request, within, self._log.reads.buffers, counters)
        next_offset = step.next_offset
        sizes = loaded.sizes
        if error is not None:
            damaged = row_of_error(loaded.content.positions, error)
            if not damaged:
                raise error
            next_offset, sizes = int(loaded.content.chunks.chunk_ids[damaged]), sizes[:damaged]
        counters.bytes_read += int(sizes.sum())
        return Portion(batches, next_offset, counters)

    def _shared(self, step: _Step, window: SharedWindow, request: ScanRequest, within: OffsetRange) -> Portion | None:
        """A step over a window; None if something in it is damaged: whom that concerns finds out alone."""
        verdict = window.verdict(request, self._number, self._log.filters)
        if verdict is None:
            return None
        counters = step.counters
        if step.is_whole and within.start <= window.first_offset:
            batches, chunks, hit = list(verdict.batches), window.chunk_count, verdict.chunks_hit
            counters.messages_evaluated += window.record_count
            counters.messages_matched += verdict.kept_messages
            counters.bytes_read += window.chunk_bytes
        else:
            part = window.part(step.place.view.table.chunk_id[step.rows], within.start, verdict)
            batches, chunks, hit = part.batches, len(step.rows), part.chunks_hit
            counters.messages_evaluated += part.record_count
            counters.messages_matched += sum(len(batch) for batch in batches)
            counters.bytes_read += part.chunk_bytes
        if request.filter is not None:
            counters.chunks_without_match += chunks - hit
        return Portion(batches, step.next_offset, counters)

    def _adapt(self, portion: Portion, size_bytes: int) -> None:
        """Larger steps as long as little is kept."""
        kept = sum(int(batch.messages.lengths.sum()) for batch in portion.batches)
        if kept * _SPARSE < size_bytes:
            self._window_bytes = min(2 * self._window_bytes, LARGEST_WINDOW_BYTES)
        else:
            self._window_bytes = SMALLEST_WINDOW_BYTES

    # chunks

    def _read_chunks(self, place: Place) -> ChunkPortion:
        step = self._step(place)
        if not len(step.rows):
            return ChunkPortion.empty(step.next_offset, step.counters)
        loaded = step.load()
        content, sizes = loaded.content, loaded.sizes
        chunks = content.chunks
        kept: slice | Int64Array = slice(None)
        if step.window is not None and not step.is_whole:
            kept = np.searchsorted(chunks.chunk_ids, step.place.view.table.chunk_id[step.rows])
        step.counters.bytes_read += int(sizes[kept].sum())
        starts = chunks.data_starts[kept]
        return ChunkPortion(
            chunks.data,
            starts - content.headers["bloom_length"][kept] - CHUNK_HEADER_BYTES,
            starts,
            chunks.data_lengths[kept],
            chunks.chunk_ids[kept],
            step.next_offset,
            step.counters,
        )

    # stage 1

    def _step(self, place: Place, *, share: bool = True) -> _Step:
        """The chunks to read next; `place` moves to the first of them."""
        counters = ScanCounters()
        share &= self._log.filters.reader_count > 1
        if not self._selector.tests_headers:
            return self._unselected(place, counters, share=share)
        selection = self._selected(place, counters)
        step = self._next_of(selection, place, counters, share=share)
        if step.stop_row == selection.stop_row:
            self._selection = None
        return step

    def _next_of(self, selection: _Selection, place: Place, counters: ScanCounters, *, share: bool) -> _Step:
        """The next step of what stage 1 left."""
        rows = selection.rows[np.searchsorted(selection.rows, place.row) :]
        if not len(rows):
            return _Step(place, selection.stop_row, rows, counters)
        place.row = int(rows[0])
        table, view = place.view.table, place.view
        stop_row = min(place.window_stop(self._window_bytes), selection.stop_row)
        sizes = np.append(table.position, view.stop_position)[rows + 1] - table.position[rows]
        span = view.position_at(stop_row) - view.position_at(place.row)
        if share and int(sizes[: np.searchsorted(rows, stop_row)].sum()) * _DENSE >= span:
            window = self._window(place)
            stop_row = min(window.stop_row, selection.stop_row)
            return _Step(place, stop_row, rows[: np.searchsorted(rows, stop_row)], counters, window)
        count = max(1, int(np.searchsorted(np.cumsum(sizes), self._window_bytes, side="right")))
        stop_row = int(rows[count]) if count < len(rows) else selection.stop_row
        return _Step(place, stop_row, rows[:count], counters)

    def _unselected(self, place: Place, counters: ScanCounters, *, share: bool) -> _Step:
        window = self._window(place) if share else None
        stop_row = place.window_stop(self._window_bytes) if window is None else window.stop_row
        rows = user_rows(place.view, place.row, stop_row)
        counters.chunks_examined += len(rows)
        return _Step(place, stop_row, rows, counters, window, window is not None and window.start_row == place.row)

    def _window(self, place: Place) -> SharedWindow:
        window = self._log.window(place, self._window_bytes)
        if window.stop_row > len(place.view.table):
            place.view = place.opened.refresh()
        return window

    def _selected(self, place: Place, counters: ScanCounters) -> _Selection:
        known = self._selection
        segment_id = place.opened.segment.first_chunk_id
        if known is not None and known.segment_id == segment_id and known.start_row <= place.row < known.stop_row:
            return known
        stop_row = min(place.row + _CHUNKS_AT_ONCE, len(place.view.table))
        rows = self._selector.select(place.opened.reader, place.row, stop_row, counters)
        self._selection = _Selection(segment_id, place.row, stop_row, rows)
        return self._selection
