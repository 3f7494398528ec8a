"""All reading state of one stream: its readers, the next scan of each, and the results for each.

The engine starts no thread and reads no clock. It says which scan is due (`scan_due`); its owner runs the scan, here or
in another thread, and brings the result back (`end_scan`). A running scan changes no reader; only commands do, by the
table of `phases`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias

from headgate.errors import HeadgateError
from headgate.log import OffsetSpecification
from headgate.scan.counters import ScanCounters
from headgate.scan.engine.pending_results import Batch, Pending, PendingChunks, PendingMessages
from headgate.scan.engine.phases import Event, Phase, after
from headgate.scan.engine.waiting_policy import Gathering
from headgate.scan.fetch import (
    AppendedChunks,
    ChunkColumns,
    ChunkPortion,
    Fetcher,
    Portion,
    SharedLog,
    SharedResults,
    Takes,
)
from headgate.scan.offset_range import NO_END
from headgate.scan.reading import ScanBatch
from headgate.scan.request import ScanRequest


class Reader(Generic[Batch]):
    """One reader, which only its engine changes.

    `wanted` is how many messages or chunks it may be given. `on_ready` is called when there may be something to take or
    to scan; `takes_more` says whether the reader can send more now. `lost` counts offsets that retention deleted
    before the reader came to them; it goes on behind them, and `on_lost` is called. `passed_offsets` counts the offsets
    it looked at.
    """

    __slots__ = (
        "counters",
        "fetcher",
        "generation",
        "lost",
        "offset",
        "on_lost",
        "on_ready",
        "passed_offsets",
        "pending",
        "phase",
        "scan",
        "start",
        "takes_more",
        "used_ms",
        "wanted",
    )

    def __init__(
        self,
        log: SharedLog,
        request: ScanRequest,
        takes: Takes,
        pending: Pending[Batch],
        *,
        stop_offset: int,
        now_ms: int,
    ) -> None:
        self.phase = Phase.IDLE
        self.offset = 0
        self.start: OffsetSpecification | None = None
        """Where it begins, if its next scan has to find that out, because object storage has to be asked."""
        self.generation = 0
        self.wanted = 0
        self.pending = pending
        self.scan: Scan | None = None
        self.counters = ScanCounters()
        self.lost = self.passed_offsets = 0
        self.used_ms = now_ms
        self.on_ready: Callable[[], None] = _nothing
        self.on_lost: Callable[[int], None] | None = None
        self.takes_more: Callable[[], bool] = _always
        self.fetcher = Fetcher(log, self, request.over(log.stream.body_schema), takes, stop_offset=stop_offset)

    @property
    def is_active(self) -> bool:
        """Whether it has a place in the stream."""
        return self.phase is not Phase.IDLE and self.phase is not Phase.CLOSED

    @property
    def is_waiting(self) -> bool:
        """Whether it wants more and has a place in the stream."""
        return self.wanted > 0 and self.is_active

    @property
    def is_delivering(self) -> bool:
        """Whether it has pending messages or chunks, to be taken before it reads on."""
        return bool(self.pending)

    @property
    def next_offset(self) -> int:
        """The offset of the next message to take, or to look at."""
        return self.pending.next_offset if self.pending else self.offset

    @property
    def at_end(self) -> bool:
        """Whether nothing is pending and everything committed was looked at."""
        return self.phase is Phase.WAITING and not self.pending

    def wake(self) -> None:
        """Tell the reader's owner that there may be something to take or to scan."""
        self.on_ready()


AnyReader: TypeAlias = Reader[ScanBatch] | Reader[ChunkColumns]


class Scan:
    """A bounded look at the next messages for one reader: some mebibytes at most.

    `run` is called in any thread; everything else in the engine's. `error` is the error that ended the look.
    """

    __slots__ = ("_decided", "_engine", "end", "error", "generation", "offset", "portion", "reader", "start")

    def __init__(self, engine: ReadingEngine, reader: AnyReader) -> None:
        self.reader = reader
        self.generation = reader.generation
        self.offset = reader.offset
        self.start = reader.start
        self.end = engine.end
        self.portion: Portion | ChunkPortion | None = None
        self.error: HeadgateError | None = None
        self._engine = engine
        self._decided: SharedResults | None = None
        if self.start is None:
            self._decided = reader.fetcher.decided(reader.offset)

    @property
    def is_small(self) -> bool:
        """Whether it takes well under a millisecond: all is decided already, or little is left in the stream.

        Raises LogError, OSError where the end of the stream cannot be read.
        """
        if self._decided is not None:
            return True
        if self.start is not None:
            return False
        return self.reader.fetcher.is_compiled and self._engine.log.is_small(self.offset, self.end)

    @property
    def may_wait_for_storage(self) -> bool:
        """Whether it may wait for object storage, which may be slow."""
        return self.start is not None or self._engine.log.stream.may_be_remote(self.offset)

    def run(self, now_ms: int) -> None:
        """Look for the next messages; `now_ms` is the value of `UTC()`. Raises LogError, OSError."""
        if self.start is not None:
            self.offset = self._engine.log.attach(self.start, end=self.end, now_ms=now_ms)
        self.portion = self.reader.fetcher.fetch(self.offset, now_ms, self._decided)
        if self.portion is None and self._engine.damage is not None:
            raise self._engine.damage


class ReadingEngine:
    """The readers of one stream. For one thread, except `Scan.run`.

    `end` is the offset behind everything committed, `damage` the error that hides the end of the stream, `time_ms` the
    time of the last tick.
    """

    def __init__(self, log: SharedLog, *, end: int, now_ms: int = 0) -> None:
        self.log = log
        self.end = end
        self.damage: HeadgateError | None = None
        self.time_ms = now_ms
        self._readers: dict[AnyReader, None] = {}
        self._gathering = Gathering(log.filters)

    # readers

    def message_reader(self, request: ScanRequest, *, stop_offset: int = NO_END) -> Reader[ScanBatch]:
        """A reader that takes messages, without a place yet. With `stop_offset` it gets nothing from there on."""
        pending = PendingMessages()
        reader = Reader(self.log, request, Takes.MESSAGES, pending, stop_offset=stop_offset, now_ms=self.time_ms)
        self._readers[reader] = None
        return reader

    def chunk_reader(self, request: ScanRequest) -> Reader[ChunkColumns]:
        """A reader that takes whole chunks, or with a filter new chunks of the matching messages."""
        takes = Takes.CHUNKS if request.filter is None else Takes.MATCHING_CHUNKS
        reader = Reader(self.log, request, takes, PendingChunks(), stop_offset=NO_END, now_ms=self.time_ms)
        self._readers[reader] = None
        return reader

    def begin(self, reader: AnyReader, offset: int) -> None:
        """Read on from an offset."""
        self._place(reader, offset)
        if self._has_seen_all(reader):
            self._move(reader, Event.SAW_END)

    def begin_at(self, reader: AnyReader, start: OffsetSpecification) -> None:
        """Read on from a place that the next scan finds out."""
        self._place(reader, self.log.first_offset())
        reader.start = start

    def stop(self, reader: AnyReader) -> None:
        """Take the reader's place away."""
        self._leave(reader, Event.STOPPED)

    def close(self, reader: AnyReader) -> None:
        """Close a reader; closing twice is harmless. A scan under way still uses its files and buffers."""
        if reader.phase is Phase.CLOSED:
            return
        self._leave(reader, Event.CLOSE)
        reader.on_ready = _nothing
        self._gathering.left(reader)
        del self._readers[reader]
        if reader.scan is None:
            reader.fetcher.close()

    def want(self, reader: AnyReader, count: int) -> None:
        """Set how many messages or chunks the reader may be given from now on."""
        before, reader.wanted = reader.wanted, max(0, count)
        if not reader.wanted:
            if before:
                self._gathering.moved(reader.offset)
        elif not before:
            reader.wake()

    # scans

    def scan_due(self, reader: AnyReader) -> Scan | None:
        """The next scan, if the reader wants more, has little to take, and is not at the committed end; else None."""
        is_due = reader.phase is Phase.DUE or reader.phase is Phase.GATHERING
        if not is_due or reader.wanted <= 0 or reader.scan is not None or not reader.pending.is_low:
            return None
        return Scan(self, reader)

    def begin_scan(self, scan: Scan, *, may_wait: bool) -> bool:
        """Begin a scan, which is then run and ended; False where the reader first waits for others to come up to it.

        `on_ready` is called when they have come, or after some time.
        """
        reader = scan.reader
        may_gather = may_wait and reader.start is None
        if may_gather and reader.fetcher.is_shared and not self._gathering.may_scan(reader, self.time_ms):
            self._move(reader, Event.GATHER)
            return False
        self._move(reader, Event.SCAN)
        reader.scan = scan
        return True

    def end_scan(self, scan: Scan) -> HeadgateError | None:
        """Take over the result of a scan, unless the reader left its place meanwhile; gives its error."""
        reader = scan.reader
        reader.scan = None
        self._gathering.ended(reader)
        if reader.phase is Phase.CLOSED:
            reader.fetcher.close()
            return None
        if scan.generation != reader.generation:
            reader.wake()
            return None
        if scan.error is not None:
            self._move(reader, Event.FAILED)
            return scan.error
        if scan.start is not None:
            reader.start, reader.offset = None, scan.offset
        if scan.portion is not None:
            self._take_over(reader, scan.portion)
        saw_end = scan.end >= self.end if scan.portion is None else reader.offset >= self.end
        self._move(reader, Event.SAW_END if saw_end and self.damage is None else Event.FOUND)
        return None

    # what is found

    def take(self, reader: Reader[Batch], at_most: int, max_bytes: int) -> Batch | None:
        """The next messages or chunks that the reader wants; None if there are none now.

        At least one, otherwise within both limits. The bytes stay as they are while they are referenced.
        """
        # Only a reader that has a place has something pending.
        batch = reader.pending.take(min(at_most, reader.wanted), max_bytes) if reader.wanted > 0 else None
        if batch is None:
            return None
        reader.wanted -= len(batch)
        reader.used_ms = self.time_ms
        if not reader.wanted:
            self._gathering.moved(reader.offset)
        return batch

    def drop_unused(self, reader: AnyReader, used_before_ms: int) -> None:
        """Drop pending messages if none was taken since a time; they are read again when the reader goes on."""
        if reader.pending and reader.used_ms <= used_before_ms and reader.scan is None:
            self._place(reader, reader.pending.next_offset)

    # what happens to the stream

    def appended(self, end: int, chunks: AppendedChunks | None = None, *, now_ms: int = 0) -> None:
        """The stream grew: it ends at `end`. Readers that wait at its end are given `chunks` at once.

        `chunks` are all chunks appended since the last call, beside bookkeeping; the other readers read them from the
        file.
        """
        before, self.end = self.end, end
        for reader in list(self._readers):
            if reader.phase is not Phase.WAITING:
                continue
            takes_now = reader.offset == before and reader.wanted > 0 and not reader.pending and reader.takes_more()
            portion = reader.fetcher.fetch_appended(chunks, end, now_ms) if takes_now and chunks is not None else None
            if portion is None:
                self._move(reader, Event.GREW)
            else:
                # All is decided for it: it waits on.
                self._take_over(reader, portion)
            if reader.wanted > 0:
                reader.on_ready()

    def damaged(self, error: HeadgateError | None) -> None:
        """The end of the stream cannot be read (None: it can again): wakes the readers that wait for more."""
        self.damage = error
        if error is not None:
            self.appended(self.end)

    def tick(self, now_ms: int) -> None:
        """Set the time; ends waits that last too long."""
        self.time_ms = now_ms
        self._gathering.tick(now_ms)

    # inside

    def _take_over(self, reader: AnyReader, portion: Portion | ChunkPortion) -> None:
        before, reader.offset = reader.offset, portion.next_offset
        reader.counters.add(portion.counters)
        reader.passed_offsets += portion.next_offset - before
        reader.used_ms = self.time_ms
        reader.pending.add(portion)
        self._gathering.moved(before)
        if portion.lost:
            reader.lost += portion.lost
            if reader.on_lost is not None:
                reader.on_lost(portion.lost)

    def _has_seen_all(self, reader: Reader[Any]) -> bool:
        return reader.offset >= self.end and self.damage is None

    def _place(self, reader: Reader[Any], offset: int) -> None:
        self._leave(reader, Event.BEGUN)
        reader.offset = offset

    def _leave(self, reader: Reader[Any], event: Event) -> None:
        """The reader leaves its place: pending messages, and the result of a scan under way, are dropped."""
        self._move(reader, event)
        reader.start = None
        reader.generation += 1
        reader.pending.clear()
        self._gathering.moved(reader.offset)

    @staticmethod
    def _move(reader: Reader[Any], event: Event) -> None:
        reader.phase = after(reader.phase, event)


def _nothing() -> None:
    """The default of `on_ready`: does nothing."""


def _always() -> bool:
    return True
