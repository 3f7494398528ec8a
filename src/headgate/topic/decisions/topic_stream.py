"""The stream of a topic as its decider reads it: chunks with their messages, and their headers as of now."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, OffsetOutOfRangeError
from headgate.log import ChunkType, Segment, SegmentReader, Stream, noted_entries
from headgate.message import EncodedMessages
from headgate.scan import (
    WINDOW_BYTES,
    OffsetRange,
    ScanBatch,
    ScanCounters,
    ScanRequest,
    Window,
    open_windows,
    read_window,
    rows_within,
    segments_within,
)
from headgate.scan import Decider as ChunkDecider
from headgate.scan.fetch import AppendedChunks
from headgate.topic.decisions.block import chunks_of
from headgate.topic.decisions.entries import NO_ENTRIES, Entries
from headgate.topic.decisions.runs import Int64Array

_MAPPED_FROM_BYTES = 1 << 20
_RECENT_APPENDS, _RECENT_BYTES = 16, 64 << 10
"""Limit: appends of a topic in memory, and their bytes, so that a receiver some messages behind reads no files."""

_ALL = ScanRequest()


@dataclass(slots=True)
class TopicBatch:
    """Messages in order, with offsets and times `(messages,)`; their bytes lie in a buffer of the next batch, too.

    `window` are the chunks of their segment that they lie in, each with an entry of its own; None where they are not.
    """

    messages: EncodedMessages
    offsets: Int64Array
    timestamps_ms: Int64Array
    window: Window | None

    def take(self, part: slice) -> TopicBatch:
        """Some of the messages, in a row."""
        return TopicBatch(self.messages.take(part), self.offsets[part], self.timestamps_ms[part], self.window)

    def entries(self, offsets: Int64Array) -> Entries:
        """The places and checksums of the messages at some offsets, as far as they are known."""
        window = self.window
        if window is None or not len(offsets):
            return NO_ENTRIES
        first = int(self.offsets[0])
        is_asked = np.zeros(int(self.offsets[-1]) + 1 - first, dtype=np.bool_)
        is_asked[offsets - first] = True
        is_whole = len(is_asked) == len(self.offsets)
        rows = np.flatnonzero(is_asked if is_whole else is_asked[self.offsets - first])
        # Of each chunk the rows lie side by side, and as far from their place in the file as all of it.
        bounds = rows.searchsorted(np.append(self.offsets.searchsorted(window.chunks.chunk_ids), len(self.offsets)))
        shifts = np.repeat(window.positions - window.headers.starts, np.diff(bounds))
        found = noted_entries(self.messages.data, self.messages.starts[rows], self.messages.lengths[rows], shifts)
        return Entries(self.offsets[rows], found)


class TopicStream:
    """Reads the chunks of one stream beside its writer; keeps one segment open. Not for several threads at once."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.recent: deque[ScanBatch] = deque()
        """The messages that were appended last, ascending; empty where they came from a file."""
        self._recent_bytes = 0
        self.first_offset = 0
        self.next_offset = 0
        self._segments: Sequence[Segment] = []
        self._reader: SegmentReader | None = None
        self._appended: Window | None = None
        self._chunk_decider = ChunkDecider(_ALL, OffsetRange(0, 0))
        self._is_stale = False
        """Whether the files may have more chunks than are known."""

    def close(self) -> None:
        """Close the open segment."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def refresh(self) -> None:
        """Look where the stream begins and ends now. Raises StreamNotFoundError and its kinds, CorruptChunkError."""
        self._appended = None
        self.recent.clear()
        self._recent_bytes = 0
        for _ in range(3):
            with contextlib.suppress(OffsetOutOfRangeError):
                self._refresh()
                return
        self._refresh()

    def take(self, appended: AppendedChunks) -> bool:
        """Go on with chunks appended right behind the known ones, instead of `refresh`; False for other chunks."""
        window = appended.window()
        if int(window.chunks.chunk_ids[0]) != self.next_offset:
            return False
        self._appended = window
        self._is_stale, self.next_offset = True, appended.stop
        return True

    def _refresh(self) -> None:
        self._is_stale = False
        self._segments = self.stream.segments()
        if not self._segments:
            self.stream.check_is_there()
            return
        reader = self._open(self._segments[-1])
        reader.chunks(refresh=True)
        before = self.next_offset
        self.first_offset, self.next_offset = self._segments[0].first_chunk_id, reader.next_chunk_id
        if self.next_offset == before:
            self.stream.check_is_there()

    def chunks(self, start: int, stop: int) -> NDArray[np.void] | None:
        """The chunks that have messages of the offsets `start … stop` now, `(chunks,)` of CHUNK_DTYPE.

        None if one of them does not check.
        """
        found = bytearray()
        try:
            for reader, first, last in self._rows(start, stop):
                found += reader.headers(first, last).records.tobytes()
        except (CorruptChunkError, OffsetOutOfRangeError):
            return None
        return chunks_of(found)

    def read(self, start: int, stop: int) -> Iterator[TopicBatch | NDArray[np.void]]:
        """The messages of the offsets `start … stop`, and before them the headers of the chunks that they lie in.

        Raises CorruptChunkError with file and position, OffsetOutOfRangeError where retention deleted them meanwhile.
        """
        if self._appended is not None and start >= self._appended.chunks.chunk_ids[0]:
            yield from self._read_appended(self._appended, start, stop)
            return
        decider = self._decide(start, stop)
        for reader, first, last in self._rows(start, stop):
            for window in _windows(reader, first, last):
                yield window.headers.records
                for batch in read_window(window, decider, ScanCounters()):
                    if len(batch):
                        # Messages of a sub-batch lie in a buffer of their own.
                        own = window if batch.messages.data is window.chunks.data else None
                        yield TopicBatch(batch.messages, batch.offsets, batch.timestamps_ms, own)

    def check(self, start: int, stop: int) -> None:
        """Read messages for nothing but the errors of `read`."""
        for _ in self.read(start, stop):
            pass

    def sound_until(self, start: int, stop: int) -> int:
        """The first of some offsets, one of which is damaged, that cannot be read. Cost: reading them a few times."""
        while stop - start > 1:
            middle = (start + stop) // 2
            try:
                self.check(start, middle)
            except CorruptChunkError:
                stop = middle
            else:
                start = middle
        return start

    def _read_appended(self, window: Window, start: int, stop: int) -> Iterator[TopicBatch | NDArray[np.void]]:
        """The same from memory. The places of entries in the file are not known, as for messages in a sub-batch."""
        first, last = window.chunks.chunk_ids.searchsorted((start + 1, stop)).tolist()
        yield window.headers.records[first - 1 : last]
        for batch in read_window(window, self._decide(start, stop), ScanCounters()):
            if len(batch):
                self._keep(batch)
                yield TopicBatch(batch.messages, batch.offsets, batch.timestamps_ms, None)

    def _keep(self, batch: ScanBatch) -> None:
        """Keep messages in memory, and forget old ones."""
        self.recent.append(batch)
        self._recent_bytes += len(batch.messages.data)
        while len(self.recent) > 1 and (len(self.recent) > _RECENT_APPENDS or self._recent_bytes > _RECENT_BYTES):
            self._recent_bytes -= len(self.recent.popleft().messages.data)

    def _decide(self, start: int, stop: int) -> ChunkDecider:
        self._chunk_decider.within = OffsetRange(start, stop)
        return self._chunk_decider

    def _rows(self, start: int, stop: int) -> Iterator[tuple[SegmentReader, int, int]]:
        """The segments with chunks of some offsets, and the rows of these chunks in their tables."""
        if self._is_stale:
            self._refresh()
        within = OffsetRange(start, stop)
        for segment in segments_within(self._segments, within, next_offset=self.next_offset):
            reader = self._open(segment)
            first, last = rows_within(reader.chunks(), within)
            if last > first:
                yield reader, first, last

    def _open(self, segment: Segment) -> SegmentReader:
        if self._reader is None or self._reader.segment != segment:
            self.close()
            self._reader = segment.open()
        return self._reader


def _windows(reader: SegmentReader, first: int, last: int) -> Iterator[Window]:
    table = reader.chunks()
    rows = first + np.flatnonzero(table.type[first:last] == ChunkType.USER)
    if not len(rows):
        return
    stop = int(reader.stops_of(rows[-1:])[0])
    if stop - table.position[rows[0]] >= _MAPPED_FROM_BYTES:
        reader.map_to(stop)
    for _, window in open_windows(reader, rows, WINDOW_BYTES):
        yield window
