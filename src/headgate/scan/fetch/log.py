"""One stream as its readers share it: its open segments, where an offset lies in them, and windows of its chunks."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from headgate.errors import LogError, OffsetOutOfRangeError
from headgate.log import OffsetKind, OffsetSpecification, Segment, Stream
from headgate.scan.fetch.filters import SharedFilters
from headgate.scan.fetch.places import Place
from headgate.scan.fetch.reads import SharedReads
from headgate.scan.fetch.results import SharedResults
from headgate.scan.fetch.segments import OpenSegment
from headgate.scan.fetch.tiles import Tile, Tiles
from headgate.scan.fetch.window import SharedWindow

LARGEST_WINDOW_BYTES = 4 << 20
"""Windows grow as long as little of them is kept, so that their fixed cost vanishes."""

_MANY_READERS = 32
"""From this many readers on windows grow to twice that size: the fixed cost per reader counts more."""

LARGEST_RESULTS_BYTES = 64 << 20
"""Results may span this many bytes: only the messages that some filter keeps are in memory."""

SMALL_BYTES = 64 << 10
SMALL_RECORDS = 1024
"""The rest of a stream counts as small up to this many bytes and messages."""

_MAPPED_BYTES = 256 << 10
"""Fewer bytes are copied: that costs less than new pages of a mapping."""

_ATTEMPTS = 5

T = TypeVar("T", SharedWindow, SharedResults)


class SharedLog:
    """One stream, shared by all its readers. Safe for several threads. Raises LogError for errors of its files."""

    def __init__(self, stream: Stream, reads: SharedReads) -> None:
        self.stream = stream
        self.reads = reads
        self.filters = SharedFilters()
        self._segments: Sequence[Segment] = []
        self._opened: dict[int, OpenSegment] = {}
        self._windows: Tiles[SharedWindow] = Tiles()
        self._results: Tiles[SharedResults] = Tiles()
        self._small_from = (-1, 0)
        self._is_closed = False
        self._list()
        with reads.lock:
            reads.add_log(self)

    def close(self) -> None:
        """Release everything that no reader is using just now."""
        with self.reads.lock:
            self._is_closed = True
            self.reads.remove_log(self)
            for tile in (*self._windows, *self._results):
                self.reads.forget(tile)
            for opened in list(self._opened.values()):
                self.close_segment(opened)

    @property
    def largest_window_bytes(self) -> int:
        """Limit: bytes of a window."""
        return LARGEST_WINDOW_BYTES * (2 if self.filters.reader_count >= _MANY_READERS else 1)

    # places

    def attach(self, specification: OffsetSpecification, *, end: int, now_ms: int) -> int:
        """The offset that a specification means now; `end` is the one behind everything committed."""
        if specification.kind is OffsetKind.NEXT:
            return end
        if specification.kind is OffsetKind.FIRST:
            return self.first_offset()
        if specification.kind is OffsetKind.OFFSET:
            return min(max(specification.value, self.first_offset()), end)
        return self.stream.offset_of(specification, now_ms=now_ms)

    def may_wait_for_storage(self, specification: OffsetSpecification) -> bool:
        """Whether `attach` may have to ask object storage."""
        told = (OffsetKind.FIRST, OffsetKind.NEXT, OffsetKind.OFFSET)
        return specification.kind not in told and self.stream.segments().num_remote > 0

    def first_offset(self) -> int:
        """The first offset kept, as the folder is now."""
        return self._list()[0].first_chunk_id

    @contextmanager
    def place(self, offset: int) -> Iterator[Place | None]:
        """The place of an offset, None if it is behind the end; the segment stays open as long as the context lasts.

        Raises OffsetOutOfRangeError for an offset that was deleted.
        """
        found = self._find(offset)
        try:
            yield found
        finally:
            if found is not None:
                self._release(found.opened)

    def is_small(self, offset: int, end: int) -> bool:
        """Whether the stream from an offset to its end, `end`, is small. Looks at the index once for each `end`."""
        if end - offset > SMALL_RECORDS:
            return False
        known_end, small_from = self._small_from
        if known_end != end:
            with self.place(end - 1) as place:
                if place is None:
                    return True
                view = place.view
            row = int(np.searchsorted(view.table.position, view.stop_position - SMALL_BYTES, side="left"))
            small_from = view.offset_at(row)
            self._small_from = (end, small_from)
        return offset >= small_from

    def segment_at(self, offset: int) -> Segment | None:
        """The listed segment that an offset lies in or behind; None before the first."""
        at = bisect.bisect_right(self._segments, offset, key=_first_chunk_id) - 1
        return self._segments[at] if at >= 0 else None

    def _find(self, offset: int) -> Place | None:
        segments = self._segments
        for _ in range(_ATTEMPTS):
            at = bisect.bisect_right(segments, offset, key=_first_chunk_id) - 1
            if at < 0:
                segments = self._list()
                if offset < segments[0].first_chunk_id:
                    raise self._deleted(offset, segments[0].first_chunk_id)
                continue
            try:
                opened = self._acquire(segments[at])
            except OffsetOutOfRangeError:
                listed = self._list(at_once=True)
                if listed == segments:
                    # No retention took it: its object is gone.
                    raise
                segments = listed
                continue
            try:
                view = opened.view if offset < opened.view.next_offset else opened.refresh()
            except BaseException:
                self._release(opened)
                raise
            if offset < view.next_offset:
                return Place(opened, view, view.row_of(offset))
            self._release(opened)
            listed = self._list()
            if listed == segments:
                if at + 1 < len(segments):
                    raise self._deleted(offset, segments[at + 1].first_chunk_id)
                return None
            segments = listed
        return None

    def _deleted(self, offset: int, first: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offsets {offset} to {first - 1} were deleted before they were read", path=self.stream.place
        )

    def _list(self, *, at_once: bool = False) -> Sequence[Segment]:
        segments = self.stream.segments(at_once=at_once)
        if not segments:
            raise OffsetOutOfRangeError("no pair of log files is left here", path=self.stream.place)
        if segments != self._segments:
            self._segments = segments
            with self.reads.lock:
                for opened in list(self._opened.values()):
                    first = opened.segment.first_chunk_id
                    at = bisect.bisect_right(segments, first, key=_first_chunk_id) - 1
                    if at < 0 or segments[at].first_chunk_id != first:
                        self.close_segment(opened)
        return segments

    # open segments

    def _acquire(self, segment: Segment) -> OpenSegment:
        with self.reads.lock:
            opened = self._opened.get(segment.first_chunk_id)
            if opened is not None and opened.segment == segment:
                opened.users += 1
                opened.used_at = self.reads.next_use()
                return opened
        fresh = OpenSegment(segment, self.reads.pool)
        try:
            # In the folder of a deleted stream another one may have been made.
            self.stream.check_is_there()
        except LogError:
            fresh.reader.close()
            raise
        with self.reads.lock:
            opened = self._opened.get(segment.first_chunk_id)
            if opened is not None and opened.segment == segment:
                fresh.reader.close()
                fresh = opened
            elif opened is not None:
                self.close_segment(opened)
            if not self._is_closed:
                self._opened[segment.first_chunk_id] = fresh
            fresh.users += 1
            fresh.used_at = self.reads.next_use()
            self.reads.close_least_used()
            return fresh

    def _release(self, opened: OpenSegment) -> None:
        with self.reads.lock:
            opened.users -= 1
            if not opened.users and self._opened.get(opened.segment.first_chunk_id) is not opened:
                opened.reader.close()

    def open_segments(self) -> Iterable[OpenSegment]:
        """The segments that are open; under the lock of the reads."""
        return self._opened.values()

    def close_segment(self, opened: OpenSegment) -> None:
        """Close a segment, once no reader uses it any more; under the lock of the reads."""
        if self._opened.get(opened.segment.first_chunk_id) is opened:
            del self._opened[opened.segment.first_chunk_id]
            if not opened.users:
                opened.reader.close()

    def mapped_to(self, place: Place) -> int:
        """The byte up to which chunks from a place on may be views of the file; 0 where they should be copies."""
        view = place.view
        if view.stop_position - view.position_at(place.row) < _MAPPED_BYTES:
            return 0
        reached = place.opened.reader.map_to(view.stop_position)
        return reached if reached >= view.position_at(place.row + 1) else 0

    # windows and results

    def window(self, place: Place, window_bytes: int) -> SharedWindow:
        """The window that holds a place; made if there is none. Windows never overlap."""
        with self.reads.lock:
            return self._tile(self._windows, SharedWindow, place, place.window_stop(window_bytes))

    def results(self, place: Place, results_bytes: int) -> SharedResults:
        """The results that hold a place; if there are none, some that are not decided yet. Results never overlap."""
        with self.reads.lock:
            return self._tile(self._results, SharedResults, place, place.results_stop(results_bytes))

    def results_at(self, offset: int) -> SharedResults | None:
        """The results that hold an offset, if there are any; decided or not. Looks at no file."""
        with self.reads.lock:
            found = self._results.at(offset)
            if found is not None:
                self.reads.touch(found, self)
            return found

    def _tile(self, tiles: Tiles[T], kind: type[T], place: Place, stop_row: int) -> T:
        offset = place.view.offset_at(place.row)
        tile = tiles.at(offset)
        if tile is None:
            segment_id = place.opened.segment.first_chunk_id
            stop_row = tiles.stop_row(segment_id, offset, stop_row)
            tile = kind(segment_id, place.row, stop_row, place.view, self.reads)
            tiles.add(tile)
        self.reads.touch(tile, self)
        return tile

    def drop_tile(self, tile: Tile) -> None:
        """Drop a window or results; under the lock of the reads."""
        if isinstance(tile, SharedResults):
            self._results.remove(tile)
            if tile.numbers:
                self.filters.learn(tile.times_used)
        elif isinstance(tile, SharedWindow):
            self._windows.remove(tile)


def _first_chunk_id(segment: Segment) -> int:
    return segment.first_chunk_id
