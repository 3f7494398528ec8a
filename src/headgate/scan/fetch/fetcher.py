"""Fetching the next messages or chunks of a reader: the ways to do it, and the choice among them."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, LogError, OffsetOutOfRangeError
from headgate.log import ChunkTable
from headgate.scan.answers import Answers, Purpose
from headgate.scan.counters import ScanCounters
from headgate.scan.fetch.appended_chunks import AppendedChunks
from headgate.scan.fetch.chunks import chunks_of
from headgate.scan.fetch.filters import FEWEST_FILTERS, FilteredReader
from headgate.scan.fetch.log import LARGEST_RESULTS_BYTES, LARGEST_WINDOW_BYTES, SharedLog
from headgate.scan.fetch.places import Place
from headgate.scan.fetch.portions import ChunkPortion, Portion
from headgate.scan.fetch.results import SharedResults
from headgate.scan.fetch.segments import BLOCK_ROWS
from headgate.scan.fetch.window import DENSE, Pick, SharedChunks, columns_of, load_rows, row_of_error, user_rows
from headgate.scan.offset_range import NO_END, OffsetRange
from headgate.scan.reading import Window
from headgate.scan.request import OnCorrupt, ScanRequest
from headgate.scan.rows import read_rows
from headgate.scan.segments import UNREADABLE, pass_over
from headgate.scan.stage_one import ChunkSelector

Int64Array = NDArray[np.int64]

_SPARSE = 4
"""The next step grows if less than one message in this many was kept."""

_GROWTH = 4
"""The factor by which the next step grows then."""

_MOST_MAPPED_BYTES = 32 << 20
"""Limit: bytes of chunks at a time for a reader that is far behind; views of a file take no memory."""

_MOST_MAPPED_PARTS = 64
"""Limit: parts of the file that these chunks lie in."""


class Takes(enum.Enum):
    """The form in which a reader is given messages."""

    MESSAGES = "messages"
    CHUNKS = "chunks"
    """Whole chunks as stored, beginning with the one that holds the offset. Their data is not checked; the receiver
    does that."""
    MATCHING_CHUNKS = "matching chunks"
    """New chunks of matching messages that follow one another without a gap, with time and epoch of their stored chunk,
    without Bloom bytes and trailer."""


@dataclass(slots=True)
class _Selection:
    """The `rows` that stage 1 leaves to be read, of the chunks `start_row … stop_row` of a segment."""

    segment_id: int
    start_row: int
    stop_row: int
    rows: Int64Array
    counters: ScanCounters
    is_counted: bool = False


@dataclass(slots=True)
class _Step:
    """The chunks of one read for a single reader: the `rows` that stage 1 left, from the place up to `stop_row`."""

    place: Place
    stop_row: int
    rows: Int64Array
    counters: ScanCounters

    @property
    def next_offset(self) -> int:
        """The offset behind the step."""
        return self.place.view.offset_at(self.stop_row)

    def make_present(self) -> None:
        """Load mapped chunks into memory, so that their sender does not wait for the file."""
        if not len(self.rows):
            return
        starts, stops = self.place.view.table.position[self.rows], self.place.view.stops(self.rows)
        begins = _parts(starts, stops)
        ends = np.append(begins[1:], len(stops)) - 1
        for start, stop in zip(starts[begins].tolist(), stops[ends].tolist(), strict=True):
            self.place.opened.reader.make_present(start, stop)

    def load(self) -> Window:
        """The bytes of the chunks. Raises CorruptChunkError only if the first one has no sound header.

        The step ends before any other chunk without a sound header.
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
    """The chunks of one read that is shared with other readers: from a window up to `next_offset`, picked by stage 1.

    `share_ns` is the reader's share of the time to load them, less the time that its own call took.
    """

    chunks: SharedChunks
    pick: Pick
    next_offset: int
    share_ns: int


class Fetcher:
    """Fetches for one reader, from any offset, one call at a time, in any thread.

    Between two calls it holds no file and only some hundred bytes. With `stop_offset` it gives nothing from there on.
    """

    def __init__(
        self,
        log: SharedLog,
        reader: FilteredReader,
        request: ScanRequest,
        takes: Takes,
        *,
        stop_offset: int = NO_END,
    ) -> None:
        self._log = log
        self._reader = reader
        self._request = request
        self._takes = takes
        self._stop_offset = stop_offset
        self._selector = ChunkSelector(log.stream, request)
        self._answers: Answers | None = None
        self._selection: _Selection | None = None
        self._window_bytes = self._mapped_bytes = log.reads.smallest_window_bytes
        self._shared_ns = 0
        """The part of the call's time that is shared among readers."""
        self._number = log.filters.add(reader, request.filter)
        self._is_dense = not self._selector.tests_headers
        self._uses_time = request.filter is not None and request.filter.uses_time
        # Shared results have no stop offset, and count neither skipped damaged chunks nor exact verdicts.
        self._is_alone = stop_offset < NO_END or request.exact or request.on_corrupt is OnCorrupt.SKIP
        self.is_compiled = request.filter is None or request.filter.program is not None
        """Whether no message needs the reference evaluator."""
        self._takes_lone = self._is_dense and not self._is_alone and takes is not Takes.MATCHING_CHUNKS

    def close(self) -> None:
        """Leave the stream's filters; not during a call."""
        self._log.filters.remove(self._reader)

    @property
    def is_shared(self) -> bool:
        """Whether its filter can be decided together with the filters of other readers."""
        return self._number >= 0

    @property
    def _uses_results(self) -> bool:
        return self._number >= 0 and self._is_dense and not self._is_alone

    def decided(self, offset: int) -> SharedResults | None:
        """Results for the reader's filter from an offset on, if they are decided already; looks at no file."""
        if not self._uses_results:
            return None
        found = self._log.results_at(offset)
        return found if found is not None and self._number in found.numbers else None

    def fetch(self, offset: int, now_ms: int, decided: SharedResults | None = None) -> Portion | ChunkPortion | None:
        """The messages or chunks of the next read from an offset on; None at the end of the stream.

        It may hold little or nothing: the caller asks again. `decided` is the result of `decided` for that offset.
        Raises CorruptChunkError at a damaged chunk, once everything before it was given, and other LogErrors.
        """
        cpu_ns = self._log.reads.cpu_ns
        begun_ns, self._shared_ns = cpu_ns(), 0
        portion = self._fetched(offset, now_ms, decided)
        if portion is not None:
            portion.counters.cpu_ns += cpu_ns() - begun_ns - self._shared_ns
        return portion

    def _fetched(self, offset: int, now_ms: int, decided: SharedResults | None) -> Portion | ChunkPortion | None:
        if decided is not None and self._takes is Takes.MESSAGES:
            return self._from_results(decided, offset)
        try:
            with self._log.place(offset) as place:
                if place is None:
                    return None
                if self._takes is Takes.CHUNKS:
                    return self._chunks(place)
                portion = self._messages(place, OffsetRange(offset, self._stop_offset), now_ms)
                return self._as_taken(portion, place.view.table.chunk_id, place.view.table.epoch)
        except UNREADABLE as error:
            first = self._log.first_offset()
            if not isinstance(error, OffsetOutOfRangeError) or first <= offset:
                return self._behind_unreadable(offset, error)
            empty = Portion([], first, ScanCounters(), first - offset)
            return empty if self._takes is Takes.MESSAGES else ChunkPortion(first, empty.counters, lost=empty.lost)

    def _behind_unreadable(self, offset: int, error: LogError) -> Portion:
        """Nothing, up to the next segment, if the request skips what is damaged; else raises the error."""
        segment = self._log.segment_at(offset)
        if self._request.on_corrupt is OnCorrupt.FAIL or segment is None or self._takes is not Takes.MESSAGES:
            raise error
        pass_over(segment, error)
        assert segment.stop_offset is not None
        return Portion([], segment.stop_offset, ScanCounters(chunks_corrupt=1))

    def fetch_appended(self, appended: AppendedChunks, next_offset: int, now_ms: int) -> Portion | ChunkPortion | None:
        """As `fetch`, for chunks just appended that end at `next_offset`; None where the file has to be read.

        The result equals that of `fetch`, counters included.
        """
        if self._is_alone or not self.is_compiled:
            return None
        reads = self._log.reads
        lone = appended.lone() if self._takes_lone else None
        if lone is not None and self._takes is Takes.CHUNKS:
            return lone.chunk(next_offset)
        if lone is not None and self._request.filter is None:
            return lone.message(next_offset)
        begun_ns = reads.cpu_ns()
        if lone is not None:
            found = lone.decided(self._request_at(now_ms), self._number, next_offset, reads, self._log.filters)
            found.counters.cpu_ns += reads.cpu_ns() - begun_ns
            return found
        chunks = appended.shared()
        pick = chunks.pick(self._selector, 0)
        if self._takes is Takes.CHUNKS:
            return chunks.whole(pick, next_offset)
        request, start = self._request_at(now_ms), int(chunks.chunk_ids[0])
        portion = chunks.portion(pick, request, self._number, start, next_offset, reads, self._log.filters)
        if portion is None:
            return None
        taken = self._as_taken(portion, chunks.chunk_ids, chunks.epochs)
        taken.counters.cpu_ns += reads.cpu_ns() - begun_ns
        return taken

    def _as_taken(self, portion: Portion, chunk_ids: Int64Array, epochs: Int64Array) -> Portion | ChunkPortion:
        """Messages in the form that the reader takes; `chunk_ids` and `epochs` cover all their chunks."""
        if self._takes is Takes.MESSAGES:
            return portion
        if not portion.batches:
            return ChunkPortion(portion.next_offset, portion.counters)
        return ChunkPortion(portion.next_offset, portion.counters, chunks_of(portion.batches, chunk_ids, epochs))

    def _request_at(self, now_ms: int) -> ScanRequest:
        return replace(self._request, now_ms=now_ms) if self._uses_time else self._request

    # messages

    def _messages(self, place: Place, within: OffsetRange, now_ms: int) -> Portion:
        """Read by derived files as far as they reach; else by results for all filters; a shared window; or alone."""
        answers = self._answers_of(place)
        try:
            return self._messages_by(answers, place, within, self._request_at(now_ms))
        finally:
            if answers is not None:
                answers.close()

    def _messages_by(self, answers: Answers | None, place: Place, within: OffsetRange, request: ScanRequest) -> Portion:
        known_row, known_stop = place.row, place.row
        if answers is not None:
            known_row, known_stop = answers.reach(place.opened.reader, place.row)
        if known_stop == place.row or self._is_far(place, known_row):
            answers = None
            results = self._results(place, within.start)
            if results is not None:
                return self._from_results(results, within.start)
            portion = self._from_window(place, within.start, request)
            if portion is not None:
                return self._adapted(portion, within.start)
        return self._adapted(self._alone(place, request, within, answers, known_stop), within.start)

    @staticmethod
    def _is_far(place: Place, row: int) -> bool:
        """Whether so much lies before a row that reading it together with others is better."""
        return place.view.position_at(row) - place.view.position_at(place.row) > LARGEST_WINDOW_BYTES

    def _from_results(self, results: SharedResults, offset: int) -> Portion:
        portion, pick = results.portion(self._number, self._request.filter, self._selector, offset)
        if self._selector.tests_headers:
            self._is_dense = pick.is_dense
        return self._adapted(portion, offset)

    def _results(self, place: Place, offset: int) -> SharedResults | None:
        """Results for the filter from a place on, decided now if enough readers will use them; None if too few."""
        decided = self.decided(offset)
        if decided is not None:
            if decided.stop_row > len(place.view.table):
                place.view = place.opened.refresh()
            return decided
        if not self._uses_results or self._log.filters.reader_count < FEWEST_FILTERS:
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
            took_ns = found.decide(place, rules, self._number, self._log.filters)
            if took_ns is None:
                return None
            self._shared_ns += took_ns
            if offset < found.next_offset and self._number in found.numbers:
                return found

    def _from_window(self, place: Place, offset: int, request: ScanRequest) -> Portion | None:
        """The portion from a shared window; None if that does not pay, or if a chunk in it is damaged."""
        try:
            step = self._window_step(place)
        except CorruptChunkError:
            return None
        if step is None:
            return None
        portion = step.chunks.portion(
            step.pick, request, self._number, offset, step.next_offset, self._log.reads, self._log.filters
        )
        if portion is not None:
            portion.counters.cpu_ns += step.share_ns
        return portion

    def _alone(
        self, place: Place, request: ScanRequest, within: OffsetRange, answers: Answers | None, known_stop: int
    ) -> Portion:
        """The portion of the next chunks, read for this reader alone, up to the first damaged one.

        With answers the chunks end before the row `known_stop`, behind which nothing is known.
        """
        # With answers little is read, as a view of the file; so a step may span much.
        is_light = answers is not None and place.opened.segment.is_own
        largest = LARGEST_RESULTS_BYTES if is_light else LARGEST_WINDOW_BYTES
        step = self._step(place, min(self._window_bytes, largest), stop_row=None if answers is None else known_stop)
        reader, rows = step.place.opened.reader, step.rows
        while True:
            counters = step.counters.copy()
            try:
                batches = list(read_rows(reader, rows, request, within, counters, answers, self._log.reads.buffers))
                break
            except CorruptChunkError as error:
                damaged = row_of_error(step.place.view.table.position[rows], error)
                if not damaged:
                    raise
                step.stop_row = int(rows[damaged])
                rows = rows[:damaged]
        return Portion([batch for batch in batches if len(batch)], step.next_offset, counters)

    def _answers_of(self, place: Place) -> Answers | None:
        """The answers of derived files, if the segment has any. Made at the first use, as that takes a while."""
        if self._request.filter is None or not place.opened.files.look(self._request.sources):
            return None
        if self._answers is None:
            is_shared = self._uses_time or self._log.filters.reader_count >= FEWEST_FILTERS
            self._answers = Answers(self._request, Purpose.SHARED if is_shared else Purpose.READING)
        self._answers.use(place.opened.files)
        return self._answers if self._answers.is_asked else None

    def _adapted(self, portion: Portion, offset: int) -> Portion:
        """The portion; the next step is larger as long as little is kept."""
        kept = sum(len(batch) for batch in portion.batches)
        if kept * _SPARSE < portion.next_offset - offset:
            self._window_bytes = min(_GROWTH * self._window_bytes, LARGEST_RESULTS_BYTES)
        else:
            self._window_bytes = self._log.reads.smallest_window_bytes
        return portion

    # chunks

    def _chunks(self, place: Place) -> ChunkPortion:
        """Whole chunks: views of the file if much is left; else from a shared window; or copies."""
        mapped_to = self._log.mapped_to(place)
        if mapped_to:
            step = self._step(place, self._mapped_bytes, mapped_to)
            step.make_present()
            self._mapped_bytes = min(2 * self._mapped_bytes, _MOST_MAPPED_BYTES)
            return self._whole(step)
        with contextlib.suppress(CorruptChunkError):  # affected readers find the damage again alone
            shared = self._window_step(place)
            if shared is not None:
                portion = shared.chunks.whole(shared.pick, shared.next_offset)
                portion.counters.cpu_ns = shared.share_ns
                return portion
        return self._whole(self._step(place, min(self._window_bytes, LARGEST_WINDOW_BYTES)))

    @staticmethod
    def _whole(step: _Step) -> ChunkPortion:
        if not len(step.rows):
            return ChunkPortion(step.next_offset, step.counters)
        window = step.load()
        step.counters.bytes_read += int(window.sizes.sum())
        return ChunkPortion(step.next_offset, step.counters, columns_of(window))

    # which chunks are next

    def _window_step(self, place: Place) -> _WindowStep | None:
        """The next chunks from a shared window; None if that does not pay. Raises CorruptChunkError."""
        if self._is_alone or self._log.filters.reader_count < 2:
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
        chunks, share_ns = window.chunks(place, self._log.filters)
        first_chunk = 0
        if place.row != window.start_row:
            first_chunk = int(np.searchsorted(chunks.chunk_ids, place.view.offset_at(place.row)))
        pick = chunks.pick(self._selector, first_chunk)
        if self._selector.tests_headers:
            self._is_dense = pick.is_dense
        return _WindowStep(chunks, pick, window.next_offset, share_ns)

    def _step(
        self, place: Place, window_bytes: int, mapped_to: int | None = None, *, stop_row: int | None = None
    ) -> _Step:
        """The chunks to read next; `place` moves to the first of them.

        With `stop_row` they end before that row, unless stage 1 chose them, which it does for many at a time. With
        `mapped_to` they end before that byte of the file, if the first one does, and lie in few parts of it.
        """
        counters = ScanCounters()
        view = place.view
        if not self._selector.tests_headers:
            end_row = self._end_row(view.table) if stop_row is None else min(stop_row, self._end_row(view.table))
            if mapped_to is None:
                stop_row = place.window_stop(window_bytes)
            elif view.position_at(stop_row := place.mapped_stop(window_bytes)) > mapped_to:
                stop_row = max(place.row, int(np.searchsorted(view.table.position, mapped_to, side="right")) - 1)
            stop_row = min(stop_row, end_row)
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

    def _end_row(self, table: ChunkTable) -> int:
        """The row behind the last chunk that holds an offset before the stop."""
        if self._stop_offset >= NO_END:
            return len(table)
        return int(np.searchsorted(table.chunk_id, self._stop_offset, side="left"))

    def _selected(self, place: Place) -> _Selection:
        """The selection of stage 1 among the chunks from a place on, by their headers alone."""
        known = self._selection
        segment_id = place.opened.segment.first_chunk_id
        if known is not None and known.segment_id == segment_id and known.start_row <= place.row < known.stop_row:
            return known
        stop_row = min((place.row // BLOCK_ROWS + 1) * BLOCK_ROWS, self._end_row(place.view.table))
        counters = ScanCounters()
        rows = self._selector.select(place.opened, place.row, stop_row, counters)
        self._selection = _Selection(segment_id, place.row, stop_row, rows, counters)
        return self._selection


def _parts(starts: Int64Array, stops: Int64Array) -> Int64Array:
    """The numbers of chunks that do not begin where the one before ends; the chunks are ascending."""
    return np.flatnonzero(np.append(True, starts[1:] != stops[:-1])[: len(starts)])


def _mapped_count(starts: Int64Array, stops: Int64Array, mapped_to: int) -> int:
    """The number of first chunks that end before a byte of the file and lie in few parts of it."""
    count = int(np.searchsorted(stops, mapped_to, side="right"))
    begins = _parts(starts[:count], stops[:count])
    return count if len(begins) <= _MOST_MAPPED_PARTS else int(begins[_MOST_MAPPED_PARTS])
