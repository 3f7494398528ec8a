"""The match index of a stream that is being written: new chunks first, step by step; other missing results later.

A step decides the chunks that came since the last one, and appends a block to the sidecar of the growing segment. When
no chunk is new it fills in: it decides the segment's older chunks for filters registered later. A file of many blocks,
or of a full segment, is written anew as one block. The state of a file is read from it when the segment is opened, and
when another process replaced it. Nothing is flushed: under heavy writes that takes seconds, and the checksums show what
a power loss damaged.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence

from headgate.derived.match_index.build import (
    BuildCounters,
    Building,
    WantedFilter,
    opened_sidecar,
    replace_sidecar,
    wanted_filters,
)
from headgate.derived.match_index.identity import FilterKey
from headgate.derived.match_index.registry import REGISTRY_NAME, FilterRegistry
from headgate.errors import OffsetOutOfRangeError
from headgate.log import BlockContent, Segment, SegmentReader, Sidecar, Stream, append_block

STEP_BYTES = 64 << 20
"""Limit: bytes of chunks that a step decides; they take a tenth or two of a second."""

MOST_BLOCKS = 256
"""Limit: blocks of a file; with more it is written anew as one block."""

_MOST_UNFINISHED = 4
"""Limit: full segments that are still filled in for filters registered later; older ones are left to a build."""

_ATTEMPTS = 3

Rows = tuple[int, int]


class GrowingIndex:
    """The match index of one stream, from an offset on. One step at a time, in any thread.

    `is_wanted`: a filter is registered, and the settings let the broker calculate.
    """

    def __init__(self, stream: Stream, offset: int) -> None:
        self.is_wanted = False
        self.offset = offset
        """The offset behind the chunks that were indexed, or that were there at the start."""
        self.done = BuildCounters()
        self._stream = stream
        self._registry_seen: tuple[int, int, int] | None = None
        self._wanted: list[WantedFilter] = []
        self._segments: list[_GrowingSegment] = []

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        while self._segments:
            self._segments.pop().close()

    @property
    def has_news(self) -> bool:
        """Whether the registry changed since the last step. Cost: a `stat`."""
        return self._registry_state() != self._registry_seen

    def step(self, stop: int) -> bool:
        """Index some new chunks before the offset `stop`, or fill in; gives whether more is to be done.

        Raises FilterError, ConfigError for a registered text that is not a valid filter, LogError for files that are
        wrong or cannot be written. The next step repeats work that was not written.
        """
        self._follow_registry()
        if not self.is_wanted:
            self.close()
            self.offset = max(self.offset, stop)
            return False
        before = self.offset
        try:
            if before < stop:
                self._index_new(stop)
            else:
                if not self._segments:
                    self._next_segment()
                self._fill_in()
        except BaseException:
            self.close()
            raise
        is_behind = before < self.offset < stop
        return is_behind or any(segment.is_unfinished for segment in self._segments)

    def _registry_state(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._stream.path / REGISTRY_NAME)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _follow_registry(self) -> None:
        seen = self._registry_state()
        if seen is not None and seen == self._registry_seen:
            return
        registration = FilterRegistry(self._stream).read()
        self._wanted = wanted_filters(registration)
        self.is_wanted = bool(self._wanted) and registration.settings.calculate_filter_bitmap
        self._registry_seen = seen
        for segment in self._segments:
            segment.want(self._wanted)

    def _index_new(self, stop: int) -> None:
        current = self._segments[-1] if self._segments else None
        if current is None or self.offset >= current.next_offset:
            if current is not None:
                current.look()
            if current is None or self.offset >= current.next_offset:
                current = self._next_segment()
                if current is None:
                    return
        self.offset = current.index_new(self.offset, stop, self.done)

    def _next_segment(self) -> _GrowingSegment | None:
        """The segment that holds the next offset; the one before is full, and only filled in from now on."""
        listed = self._stream.segments()
        segments = listed[listed.num_remote :]
        if self._segments and segments and segments[-1].first_chunk_id == self._segments[-1].first_offset:
            return None
        at = max(0, bisect.bisect_right(segments, self.offset, key=lambda segment: segment.first_chunk_id) - 1)
        for segment in segments[at:]:
            try:
                opened = _GrowingSegment(segment, self.offset, self._wanted)
            except OffsetOutOfRangeError:
                continue  # retention was faster
            if self._segments:
                self._segments[-1].is_full = True
            self._segments.append(opened)
            while len(self._segments) > 1 + _MOST_UNFINISHED:
                self._segments.pop(0).close()
            self.offset = max(self.offset, segment.first_chunk_id)
            return opened
        return None

    def _fill_in(self) -> None:
        for segment in self._segments:
            if segment.is_unfinished:
                segment.fill_in(self.done)
                break
        for segment in [each for each in self._segments if each.is_full and not each.is_unfinished]:
            self._segments.remove(segment)
            segment.close()


class _GrowingSegment:
    """One segment, with the rows that its sidecar lacks for each filter; `is_full` when no more chunks come."""

    def __init__(self, segment: Segment, offset: int, wanted: Sequence[WantedFilter]) -> None:
        """New chunks begin at `offset`; earlier chunks are filled in."""
        self.is_full = False
        self._segment = segment
        self._reader: SegmentReader = segment.open()
        self._wanted = wanted
        self._sidecar: Sidecar | None = None
        self._merged = 1
        """The number of blocks that the file has after a merge."""
        self._missing: dict[FilterKey, list[Rows]] = {}
        self._row = int(self._reader.chunks().chunk_id.searchsorted(offset, side="left"))
        try:
            self._learn()
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        self._reader.close()

    @property
    def first_offset(self) -> int:
        """The segment's name."""
        return self._segment.first_chunk_id

    @property
    def next_offset(self) -> int:
        """The offset behind the chunks of the last look."""
        return self._reader.next_chunk_id

    @property
    def is_unfinished(self) -> bool:
        """Whether results are to be filled in, or the file is to be written anew."""
        if not self._segment.index_path.exists():
            # Retention deleted it.
            return False
        appended = 0 if self._sidecar is None else len(self._sidecar.blocks) - self._merged
        return any(self._missing.values()) or appended > (0 if self.is_full else MOST_BLOCKS)

    def look(self) -> None:
        """Look for chunks that were added."""
        self._reader.chunks(refresh=True)

    def want(self, wanted: Sequence[WantedFilter]) -> None:
        """Take other filters."""
        self._wanted = wanted
        self._learn()

    def _learn(self) -> None:
        """Sort the results for chunks that are not new: found in the sidecar, and missing."""
        self._sidecar = opened_sidecar(self._segment)
        self._merged, self._missing = 1, {}
        if self._row:
            building = Building(self._reader, self._wanted, 0, self._row)
            building.take_over(self._sidecar)
            self._missing = {each.key: building.missing(each.key) for each in self._wanted}

    def index_new(self, offset: int, stop: int, done: BuildCounters) -> int:
        """Index some new chunks before the offset `stop`; gives the offset behind them."""
        self.look()
        table = self._reader.chunks()
        if self._row > len(table):
            # A recovery cut the segment.
            self._row = int(table.chunk_id.searchsorted(offset, side="left"))
            self._learn()
        limit = min(len(table), int(table.chunk_id.searchsorted(stop, side="left")))
        stop_row = self._cut(self._row, limit)
        if stop_row > self._row:
            building = Building(self._reader, self._wanted, self._row, stop_row)
            if building.decide(done):
                self._put(building.blocks(), done)
                self._row = stop_row
            # Bookkeeping alone is left to the block of the next messages.
        return self.next_offset if stop_row >= len(table) else int(table.chunk_id[stop_row])

    def fill_in(self, done: BuildCounters) -> None:
        """Index some of the missing rows, or write the file anew."""
        first = next((ranges[0] for ranges in self._missing.values() if ranges), None)
        if first is None:
            self._merge(done)
            return
        rows = (first[0], self._cut(*first))
        wanted = [each for each in self._wanted if _holds(self._missing[each.key], rows)]
        building = Building(self._reader, wanted, *rows)
        building.decide(done)
        self._put(building.blocks(), done)
        for each in wanted:
            # Damaged chunks stay without results: readers find them.
            self._missing[each.key] = _without(self._missing[each.key], rows)

    def _cut(self, first: int, stop: int) -> int:
        """The row behind the chunks, from a row on, that one step decides."""
        position = self._reader.chunks().position
        if first >= stop:
            return first
        behind = int(position.searchsorted(position[first] + STEP_BYTES, side="left"))
        return min(stop, max(first + 1, behind))

    def _merge(self, done: BuildCounters) -> None:
        """Write the file anew as one block, or few."""
        building = Building(self._reader, self._wanted, 0, self._row)
        building.take_over(self._sidecar)
        done.bytes_written += replace_sidecar(self._segment, building.blocks(), flushed=False)
        done.segments_written += 1
        self._sidecar = opened_sidecar(self._segment)
        self._merged = max(1, 0 if self._sidecar is None else len(self._sidecar.blocks))

    def _put(self, blocks: Sequence[BlockContent], done: BuildCounters) -> None:
        """Append blocks to the file, or begin one."""
        for block in blocks:
            for _ in range(_ATTEMPTS):
                if self._sidecar is not None:
                    written = append_block(self._segment, self._sidecar, block)
                    if written:
                        self._sidecar.refresh()
                else:
                    written = replace_sidecar(self._segment, [block], flushed=False)
                    self._learn()
                done.bytes_written += written
                if written:
                    break
                # Another process replaced it, or removed it.
                self._learn()


def _holds(ranges: Sequence[Rows], rows: Rows) -> bool:
    return any(first <= rows[0] and rows[1] <= stop for first, stop in ranges)


def _without(ranges: Sequence[Rows], rows: Rows) -> list[Rows]:
    left = [part for first, stop in ranges for part in ((first, min(stop, rows[0])), (max(first, rows[1]), stop))]
    return [(first, stop) for first, stop in left if first < stop]
