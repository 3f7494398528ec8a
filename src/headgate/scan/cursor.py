"""A reader that follows one stream: both stages and counters over what is committed, then waits to be asked again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.errors import LogError
from headgate.log import OffsetSpecification, SegmentReader, Stream
from headgate.scan.match_index.lookup import MatchIndex
from headgate.scan.plan import rows_within
from headgate.scan.reading import ScanBatch
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.rows import read_rows
from headgate.scan.stage_one import ChunkSelector

_CHUNKS_AT_ONCE = 4096
_NO_END = 2**63 - 1


class Cursor:
    """Reads a stream from a place on, in order, past rollovers, beside its writer. Has no clock: the caller waits.

    Holds the open files of one segment; `close` gives them back. Memory: that of `read_rows`.
    """

    def __init__(
        self,
        stream: Stream,
        request: ScanRequest,
        *,
        start: OffsetSpecification,
        now_ms: int,
        stop_offset: int | None = None,
    ) -> None:
        self.counters = ScanCounters()
        self._stream = stream
        self._request = request
        self._selector = ChunkSelector(stream, request)
        self._index = MatchIndex(request)
        place = stream.attach(start, now_ms=now_ms)
        self._within = OffsetRange(place.offset, _NO_END if stop_offset is None else stop_offset)
        self._reader: SegmentReader | None = place.segment.open()
        self._check_stream()
        self._row = place.row
        self._next_offset = place.offset
        self._batches: Iterator[ScanBatch] | None = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the open files back; the cursor gives nothing more."""
        self._batches = None
        self._index.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def next_offset(self) -> int:
        """The offset from which chunks have not been looked at yet; a new cursor there goes on without loss."""
        return self._next_offset

    @property
    def is_finished(self) -> bool:
        """Whether everything before `stop_offset` was read."""
        return self._batches is None and self._next_offset >= self._within.stop

    def read(self, now_ms: int) -> ScanBatch | None:
        """The next batch of messages that pass, empty where some chunks gave none; None when nothing more is there now.

        `now_ms` is what `UTC()` gives in chunks not begun yet. Raises OffsetOutOfRangeError when retention overtook
        the cursor, StreamNotFoundError when the stream was deleted, StreamReplacedError when it was also made again,
        CorruptChunkError as the request says.
        """
        while True:
            if self._batches is not None:
                batch = next(self._batches, None)
                if batch is not None:
                    return batch
                self._batches = None
            if self._reader is None or not self._advance(self._reader, now_ms):
                return None

    def _advance(self, reader: SegmentReader, now_ms: int) -> bool:
        """Take up the next chunks of the segment, or the next segment; False when there is none."""
        if self._next_offset >= self._within.stop:
            return False
        if self._take_rows(reader, now_ms):
            return True
        try:
            if self._stream.segment_after(reader.segment, _NO_END) is None:
                self._stream.check_is_there()
                return False
            # Chunks may have been added between the look at this segment and the appearance of the next.
            if self._take_rows(reader, now_ms):
                return True
            following = self._stream.segment_after(reader.segment, self._next_offset)
            if following is None:
                return False
            self._reader = following.open()
        except LogError:
            # What else is wrong with the files of a stream that was deleted or made again does not matter.
            self._stream.check_is_there()
            raise
        reader.close()
        self._row = 0
        self._check_stream()
        return True

    def _check_stream(self) -> None:
        """The segment just opened is one of this stream, and of no other that was made in its folder since."""
        try:
            self._stream.check_is_there()
        except LogError:
            self.close()
            raise

    def _take_rows(self, reader: SegmentReader, now_ms: int) -> bool:
        table = reader.chunks(refresh=True)
        stop_row = min(self._row + _CHUNKS_AT_ONCE, rows_within(table, self._within)[1])
        if stop_row <= self._row:
            return False
        rows = self._selector.select(reader, self._row, stop_row, self.counters)
        self._row = stop_row
        self._next_offset = int(table.chunk_id[stop_row]) if stop_row < len(table) else reader.next_chunk_id
        request = replace(self._request, now_ms=now_ms)
        self._batches = read_rows(reader, rows, request, self._within, self.counters, self._index)
        return True
