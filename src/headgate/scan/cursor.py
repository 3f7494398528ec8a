"""A reader that follows one stream: the reading engine with one reader."""

from __future__ import annotations

from headgate.errors import LogError, OffsetOutOfRangeError
from headgate.log import OffsetSpecification, Stream
from headgate.scan.counters import ScanCounters
from headgate.scan.engine import ReadingEngine, Scan
from headgate.scan.fetch import SharedLog, SharedReads
from headgate.scan.offset_range import NO_END
from headgate.scan.reading import WINDOW_BYTES, ScanBatch
from headgate.scan.request import ScanRequest

_ALL = 1 << 62


class Cursor:
    """Reads a stream from an offset on, in order, past rollovers, beside its writer. Has no clock: the caller waits.

    Holds open files of a few segments; `close` releases them. Memory: that of `read_rows`.
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
        self._stream = stream
        self._stop_offset = NO_END if stop_offset is None else stop_offset
        offset = stream.offset_of(start, now_ms=now_ms)
        stream.check_is_there()
        self._log = SharedLog(stream, SharedReads(smallest_window_bytes=WINDOW_BYTES))
        self._engine = ReadingEngine(self._log, end=NO_END)
        self._reader = self._engine.message_reader(request, stop_offset=self._stop_offset)
        self._engine.want(self._reader, _ALL)
        self._engine.begin(self._reader, offset)
        self.at_end = False
        """Whether the last read gave nothing because there was nothing more then."""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the cursor gives nothing more."""
        self._engine.close(self._reader)
        self._log.close()

    def trim(self) -> None:
        """Free the memory of what was read before the last call: for readers that wait between reads."""
        self._log.reads.trim()

    @property
    def counters(self) -> ScanCounters:
        """Counts of examined, skipped and kept chunks and messages."""
        return self._reader.counters

    @property
    def next_offset(self) -> int:
        """From this offset on nothing was given yet; a new cursor that starts here loses nothing."""
        return self._reader.next_offset

    @property
    def is_finished(self) -> bool:
        """Whether everything before `stop_offset` was read."""
        return not self._reader.pending and self._reader.offset >= self._stop_offset

    def read(self, now_ms: int) -> ScanBatch | None:
        """The next batch of messages that pass; None when there is nothing more now.

        `now_ms` is the value of `UTC()` in chunks not begun yet. Raises OffsetOutOfRangeError when retention overtook
        the cursor, StreamNotFoundError when the stream was deleted, StreamReplacedError when it was also made again,
        CorruptChunkError as the request says.
        """
        while (batch := self.read_some(now_ms)) is None and not self.at_end:
            pass
        return batch

    def read_some(self, now_ms: int) -> ScanBatch | None:
        """As `read`, but None also after a look at some mebibytes without a message that passes: see `at_end`."""
        batch = self._engine.take(self._reader, _ALL, _ALL)
        self.at_end = False
        if batch is None and not self.is_finished:
            # The engine knows no end here: each look shows whether there is more.
            self._engine.appended(NO_END)
            scan = self._engine.scan_due(self._reader)
            if scan is not None:
                self._look(scan, now_ms)
            if scan is None or scan.portion is None:
                self.at_end = True
                return None
            batch = self._engine.take(self._reader, _ALL, _ALL)
        self.at_end = batch is None and self.is_finished
        return batch

    def _look(self, scan: Scan, now_ms: int) -> None:
        engine, reader = self._engine, self._reader
        engine.begin_scan(scan, may_wait=False)
        try:
            scan.run(now_ms)
            if scan.portion is None:
                self._stream.check_is_there()
        except LogError as error:
            scan.error = error
            # Once the stream was deleted or made again, errors of its files do not matter.
            self._stream.check_is_there()
            raise
        finally:
            engine.end_scan(scan)
        if reader.lost:
            found, reader.lost = reader.offset, 0
            engine.begin(reader, scan.offset)
            raise OffsetOutOfRangeError(
                f"offsets {scan.offset} to {found - 1} were deleted before they were read", path=self._stream.place
            )
