"""One reader's wishes over a shared log: the next messages or chunks from an offset on."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, OffsetOutOfRangeError
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.scan.match_index.lookup import MatchIndex
from headgate.scan.reading import ScanBatch
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.rows import read_rows
from headgate.scan.shared.chunks import ChunkPortion, chunks_of
from headgate.scan.shared.filters import FEWEST_FILTERS
from headgate.scan.shared.log import (
    LARGEST_RESULTS_BYTES,
    LARGEST_WINDOW_BYTES,
    SMALLEST_WINDOW_BYTES,
    Place,
    SharedLog,
)
from headgate.scan.shared.results import SharedResults
from headgate.scan.shared.segments import BLOCK_ROWS
from headgate.scan.shared.window import (
    DENSE,
    LoadedRows,
    Pick,
    SharedWindow,
    decide_window,
    load_rows,
    row_of_error,
    user_rows,
)
from headgate.scan.stage_one import ChunkSelector

Int64Array = NDArray[np.int64]

_SPARSE = 4
"""Less than one message in so many kept is little."""

_GROWTH = 4
"""So many times larger is the next step then."""

_MOST_MAPPED_BYTES = 32 << 20
"""Views of a file take no memory, so whoever is far behind gets many chunks at once."""

_MOST_MAPPED_PARTS = 64
"""And those in as many parts of it at most."""

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
    counters: ScanCounters
    is_counted: bool = False


@dataclass(slots=True)
class _Step:
    """The chunks of one read that nobody shares: `rows`, what stage 1 left from the place on up to `stop_row`."""

    place: Place
    stop_row: int
    rows: Int64Array
    counters: ScanCounters

    @property
    def next_offset(self) -> int:
        """The offset behind the step."""
        return self.place.view.offset_at(self.stop_row)

    def make_present(self) -> None:
        """Bring what is mapped of the chunks into memory, where whoever sends them does not wait for it."""
        if not len(self.rows):
            return
        starts, stops = self.place.view.table.position[self.rows], self.place.view.stops(self.rows)
        begins = _parts(starts, stops)
        ends = np.append(begins[1:], len(stops)) - 1
        for start, stop in zip(starts[begins].tolist(), stops[ends].tolist(), strict=True):
            self.place.opened.reader.make_present(start, stop)

    def load(self) -> LoadedRows:
        """The bytes of the chunks. Raises CorruptChunkError only if the first one has no sound header.

        Before any other such chunk the step ends.
        """
        opened, view = self.place.opened, self.place.view
        while True:
            try:
                return load_rows(opened, view, self.rows)
            except CorruptChunkError as error:
                damaged = row_of_error(view.table.position[self.rows], error)
                if not damaged:
                    raise
                self.stop_row = int(self.rows[damaged])
                self.rows = self.rows[:damaged]


@dataclass(slots=True)
class _WindowStep:
    """The chunks of one read that others read, too."""

    place: Place
    window: SharedWindow
    pick: Pick
    counters: ScanCounters


class SharedReader:
    """Reads on from any offset, one read at a time, in any thread. Memory between reads: a few hundred bytes.

    `offset` and `is_waiting` (has credit, and would read on) tell others which work is worth sharing, `is_delivering`
    that what it read comes first.
    """

    def __init__(self, log: SharedLog, request: ScanRequest) -> None:
        self.offset = 0
        self.is_waiting = self.is_delivering = False
        self._log = log
        self._request = request
        self._selector = ChunkSelector(log.stream, request)
        self._index: MatchIndex | None = None
        self._selection: _Selection | None = None
        self._ready: SharedResults | None = None
        self._window_bytes = self._mapped_bytes = SMALLEST_WINDOW_BYTES
        self._number = log.filters.add(self, request.filter)
        self._is_dense = not self._selector.tests_headers
        self._uses_time = request.filter is not None and request.filter.uses_time

    def close(self) -> None:
        """The reader reads nothing more; not while it reads."""
        self._log.filters.remove(self)
        if self._index is not None:
            self._index.close()

    def read(self, offset: int, now_ms: int) -> Portion | None:
        """The messages of the next chunks from an offset on that pass both stages; None when nothing is there now.

        Little may be in it, or nothing: the caller asks again. Raises CorruptChunkError at a chunk that does not check,
        once everything before was given, and other LogErrors.
        """
        self.offset = offset
        portion = self._decided_portion(offset)
        if portion is None:
            try:
                with self._log.place(offset) as place:
                    portion = None if place is None else self._read(place, offset, now_ms)
            except OffsetOutOfRangeError:
                portion = Portion([], *self._behind_deleted(offset))
        if portion is not None:
            self.offset = portion.next_offset
        return portion

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
                self.offset = portion.next_offset
                return chunks_of(portion.batches, place.view.table, portion.next_offset, portion.counters)
        except OffsetOutOfRangeError:
            return ChunkPortion.empty(*self._behind_deleted(offset))

    @property
    def is_shared(self) -> bool:
        """Whether others can decide for it."""
        return self._number >= 0

    def is_decided(self, offset: int) -> bool:
        """Whether `read` from there has nothing to do but to give what is decided; that stays so for the next read."""
        self._ready = self._decided(offset)
        return self._ready is not None

    def _behind_deleted(self, offset: int) -> tuple[int, ScanCounters, int]:
        """Where to go on when retention was faster, and how much is lost."""
        first = self._log.first_offset()
        if first <= offset:
            raise
        return first, ScanCounters(), first - offset

    # messages

    def _read(self, place: Place, offset: int, now_ms: int) -> Portion:
        request = replace(self._request, now_ms=now_ms) if self._uses_time else self._request
        portion = self._read_somehow(place, request, OffsetRange(offset, _NO_END))
        self._adapt(portion, offset)
        return portion

    def _read_somehow(self, place: Place, request: ScanRequest, within: OffsetRange) -> Portion:
        """By the match index if there is one, by what is decided for all, a window that others use, too, or alone."""
        index = self._index_of(place)
        if index is None:
            results = self._results(place, within.start)
            if results is not None:
                return self._from_results(results, within.start)
            try:
                shared = self._window_step(place)
                portion = None if shared is None else self._shared(shared, request, within)
            except CorruptChunkError:
                portion = None
            if portion is not None:
                return portion
        step = self._step(place, min(self._window_bytes, LARGEST_WINDOW_BYTES))
        if not len(step.rows):
            return Portion([], step.next_offset, step.counters)
        portion = None if index is None else self._indexed(step, index, request, within)
        return self._alone(step, request, within) if portion is None else portion

    def _decided_portion(self, offset: int) -> Portion | None:
        """What is decided already from an offset on."""
        decided = self._take_decided(offset)
        if decided is None:
            return None
        portion = self._from_results(decided, offset)
        self._adapt(portion, offset)
        return portion

    def _take_decided(self, offset: int) -> SharedResults | None:
        """What `is_decided` found, or finds now."""
        decided, self._ready = self._ready, None
        if decided is not None and decided.first_offset <= offset < decided.next_offset:
            return decided
        return self._decided(offset)

    def _decided(self, offset: int) -> SharedResults | None:
        """What is decided for the filter from an offset on."""
        if self._number < 0 or not self._is_dense:
            return None
        found = self._log.results_at(offset)
        return found if found is not None and self._number in found.numbers else None

    def _results(self, place: Place, offset: int) -> SharedResults | None:
        """What is decided for the filter from a place on, decided now if enough readers will ask; None if too few."""
        decided = self._take_decided(offset)
        if decided is not None:
            return decided
        if self._number < 0 or not self._is_dense or self._log.filters.reader_count < FEWEST_FILTERS:
            return None
        while True:
            found = self._log.results_at(offset)
            if found is None:
                known: Collection[int] = ()
                stop = place.view.offset_at(place.results_stop(self._window_bytes))
                span = OffsetRange(place.view.offset_at(place.row), stop)
            else:
                known, span = found.numbers, OffsetRange(found.first_offset, found.next_offset)
            rules = self._log.filters.rules_for(span, self._number, known)
            if rules is None:
                return None
            found = self._log.results(place, self._window_bytes)
            if found.stop_row > len(place.view.table):
                place.view = place.opened.refresh()
            if not found.decide(place, rules, self._number):
                return None
            if offset < found.next_offset and self._number in found.numbers:
                return found

    def _from_results(self, results: SharedResults, offset: int) -> Portion:
        verdict, pick, records = results.read(self._number, self._selector, offset)
        counters = replace(pick.counters)
        if self._selector.tests_headers:
            self._is_dense = pick.is_dense
        counters.messages_evaluated = records
        counters.messages_matched = verdict.kept_messages
        counters.messages_malformed = len(verdict.malformed)
        counters.bytes_read = pick.chunk_bytes
        counters.chunks_without_match = len(pick.chunks) - verdict.chunks_hit
        return Portion(list(verdict.batches), results.next_offset, counters)

    def _shared(self, step: _WindowStep, request: ScanRequest, within: OffsetRange) -> Portion | None:
        """A step over a window; None if something in it is damaged: whom that concerns finds out alone."""
        window, pick, counters = step.window, step.pick, step.counters
        if not len(pick.chunks):
            return Portion([], window.next_offset, counters)
        verdict = window.verdict(step.place, request, self._number)
        if verdict is None:
            return None
        counters.messages_evaluated += pick.record_count
        if not pick.is_all or within.start > window.first_offset:
            verdict = window.part(verdict, pick.chunks, within.start)
            counters.messages_evaluated -= max(0, within.start - window.chunk_id(pick.chunks[0]))
        counters.messages_matched += verdict.kept_messages
        counters.messages_malformed += len(verdict.malformed)
        counters.bytes_read += pick.chunk_bytes
        if request.filter is not None:
            counters.chunks_without_match += len(pick.chunks) - verdict.chunks_hit
        return Portion(list(verdict.batches), window.next_offset, counters)

    def _alone(self, step: _Step, request: ScanRequest, within: OffsetRange) -> Portion:
        loaded, counters = step.load(), step.counters
        batches, _, error = decide_window(loaded.content, request, within, self._log.reads.buffers, counters)
        next_offset, sizes = step.next_offset, loaded.sizes
        if error is not None:
            damaged = row_of_error(loaded.content.positions, error)
            if not damaged:
                raise error
            next_offset, sizes = int(loaded.content.chunks.chunk_ids[damaged]), sizes[:damaged]
        counters.bytes_read += int(sizes.sum())
        return Portion(batches, next_offset, counters)

    def _index_of(self, place: Place) -> MatchIndex | None:
        """The match index, if it may say something of that segment. Made at its first use: it takes a while."""
        if self._request.filter is None or not place.opened.has_sidecar:
            return None
        if self._index is None:
            self._index = MatchIndex(self._request)
        return self._index if self._index.is_asked else None

    def _indexed(self, step: _Step, index: MatchIndex, request: ScanRequest, within: OffsetRange) -> Portion | None:
        """A step with the match index; None at a damaged chunk, so that what lies before it is given first."""
        counters = replace(step.counters)
        reader = step.place.opened.reader
        try:
            found = list(read_rows(reader, step.rows, request, within, counters, index))
        except CorruptChunkError:
            return None
        if step.stop_row == len(step.place.view.table):
            # At the end of a stream, where readers wait, no file is held.
            index.close()
        return Portion([batch for batch in found if len(batch)], step.next_offset, counters)

    def _adapt(self, portion: Portion, offset: int) -> None:
        """Larger steps as long as little is kept."""
        kept = sum(len(batch) for batch in portion.batches)
        if kept * _SPARSE < portion.next_offset - offset:
            self._window_bytes = min(_GROWTH * self._window_bytes, LARGEST_RESULTS_BYTES)
        else:
            self._window_bytes = SMALLEST_WINDOW_BYTES

    # chunks

    def _read_chunks(self, place: Place) -> ChunkPortion:
        mapped_to = self._log.mapped_to(place)
        if mapped_to:
            step = self._step(place, self._mapped_bytes, mapped_to)
            step.make_present()
            self._mapped_bytes = min(2 * self._mapped_bytes, _MOST_MAPPED_BYTES)
            return self._chunks_of_step(step)
        with contextlib.suppress(CorruptChunkError):  # whom it concerns finds it again alone
            shared = self._window_step(place)
            if shared is not None:
                loaded = shared.window.load(place)
                shared.counters.bytes_read += shared.pick.chunk_bytes
                return _portion(loaded, shared.pick.chunks, shared.window.next_offset, shared.counters)
        return self._chunks_of_step(self._step(place, min(self._window_bytes, LARGEST_WINDOW_BYTES)))

    def _chunks_of_step(self, step: _Step) -> ChunkPortion:
        if not len(step.rows):
            return ChunkPortion.empty(step.next_offset, step.counters)
        loaded = step.load()
        step.counters.bytes_read += int(loaded.sizes.sum())
        return _portion(loaded, slice(None), step.next_offset, step.counters)

    # which chunks are next

    def _window_step(self, place: Place) -> _WindowStep | None:
        """The next chunks out of a window for all; None if that does not pay. Raises CorruptChunkError."""
        if self._log.filters.reader_count < 2:
            return None
        if not self._is_dense:
            selection = self._selected(place)
            wanted = place.view.sizes(selection.rows[np.searchsorted(selection.rows, place.row) :])
            span = place.view.position_at(selection.stop_row) - place.view.position_at(place.row)
            if selection.is_counted or int(wanted.sum()) * DENSE < span:
                return None
            self._selection = None
        window = self._log.window(place, min(self._window_bytes, self._log.largest_window_bytes))
        if window.stop_row > len(place.view.table):
            place.view = place.opened.refresh()
        first_chunk = 0 if place.row == window.start_row else window.first_chunk(place)
        pick = window.pick(place, self._selector, first_chunk)
        if self._selector.tests_headers:
            self._is_dense = pick.is_dense
        return _WindowStep(place, window, pick, replace(pick.counters))

    def _step(self, place: Place, window_bytes: int, mapped_to: int | None = None) -> _Step:
        """The chunks to read next; `place` moves to the first of them.

        With `mapped_to` they end before that byte of the file, if the first one does, and lie in few parts of it.
        """
        counters = ScanCounters()
        view = place.view
        if not self._selector.tests_headers:
            if mapped_to is None:
                stop_row = place.window_stop(window_bytes)
            elif view.position_at(stop_row := place.mapped_stop(window_bytes)) > mapped_to:
                stop_row = max(place.row, int(np.searchsorted(view.table.position, mapped_to, side="right")) - 1)
            rows = user_rows(view, place.row, stop_row)
            counters.chunks_examined += len(rows)
            return _Step(place, stop_row, rows, counters)
        selection = self._selected(place)
        if not selection.is_counted:
            counters, selection.is_counted = selection.counters, True
        rows = selection.rows[np.searchsorted(selection.rows, place.row) :]
        stop_row = selection.stop_row
        if len(rows):
            place.row = int(rows[0])
            count = int(np.searchsorted(np.cumsum(view.sizes(rows)), window_bytes, side="right"))
            if mapped_to is not None:
                count = min(count, _mapped_count(view.table.position[rows], view.stops(rows), mapped_to))
            count = max(1, count)
            if count < len(rows):
                rows, stop_row = rows[:count], int(rows[count])
        if stop_row == selection.stop_row:
            self._selection = None
        return _Step(place, stop_row, rows, counters)

    def _selected(self, place: Place) -> _Selection:
        """What stage 1 says of the chunks from a place on, by their headers alone."""
        known = self._selection
        segment_id = place.opened.segment.first_chunk_id
        if known is not None and known.segment_id == segment_id and known.start_row <= place.row < known.stop_row:
            return known
        stop_row = min((place.row // BLOCK_ROWS + 1) * BLOCK_ROWS, len(place.view.table))
        counters = ScanCounters()
        rows = self._selector.select(place.opened, place.row, stop_row, counters)
        self._selection = _Selection(segment_id, place.row, stop_row, rows, counters)
        return self._selection


def _parts(starts: Int64Array, stops: Int64Array) -> Int64Array:
    """Which of some chunks, ascending, do not begin where the one before ends."""
    return np.flatnonzero(np.append(True, starts[1:] != stops[:-1])[: len(starts)])


def _mapped_count(starts: Int64Array, stops: Int64Array, mapped_to: int) -> int:
    """How many of some chunks, ascending, end before a byte of the file and lie in few parts of it."""
    count = int(np.searchsorted(stops, mapped_to, side="right"))
    begins = _parts(starts[:count], stops[:count])
    return count if len(begins) <= _MOST_MAPPED_PARTS else int(begins[_MOST_MAPPED_PARTS])


def _portion(loaded: LoadedRows, chunks: Int64Array | slice, next_offset: int, counters: ScanCounters) -> ChunkPortion:
    found, headers = loaded.content.chunks, loaded.content.headers
    starts = found.data_starts[chunks]
    return ChunkPortion(
        found.data,
        starts - headers["bloom_length"][chunks] - CHUNK_HEADER_BYTES,
        starts,
        found.data_lengths[chunks],
        found.chunk_ids[chunks],
        next_offset,
        counters,
    )
