"""Follows a stream for somebody who looks on: every match is counted, a sample of many is shown."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np

from headgate.clock import Clock
from headgate.errors import OffsetOutOfRangeError
from headgate.log import OffsetSpecification, Stream, load_settings
from headgate.scan import Cursor, ScanBatch, ScanCounters, ScanRequest, check_start
from headgate.server.browsing.rows import Row, message_row

MOST_SHOWN = 100
"""Limit: messages of one turn that are shown."""
SHOWN_BYTES = 1 << 20
"""Limit: bytes of these messages; one is always shown."""


@dataclass(slots=True)
class Turn:
    """What one turn found. `matched` messages passed, of which `messages` are shown, evenly spread.

    `lost` offsets were deleted before they were read. `took_s` is how long it took.
    """

    matched: int = 0
    messages: list[Row] = field(default_factory=list)
    lost: int = 0
    next_offset: int = 0
    counters: ScanCounters = field(default_factory=ScanCounters)
    """Since the follower began."""
    took_s: float = 0.0


@dataclass(slots=True)
class _Sample:
    """Every `stride`-th of the matches so far, at most so many as are shown."""

    stride: int = 1
    matched: int = 0
    kept: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Offset, time and bytes."""

    def add(self, batch: ScanBatch) -> None:
        """Take of a batch what belongs to the sample; where that is too much, every other message is left out."""
        lengths = batch.messages.lengths
        while True:
            rows = np.arange(-self.matched % self.stride, len(batch), self.stride)
            count = len(self.kept) + len(rows)
            size = sum(len(encoded) for _, _, encoded in self.kept) + int(lengths[rows].sum())
            if count <= MOST_SHOWN and (size <= SHOWN_BYTES or count <= 1):
                break
            self.stride *= 2
            self.kept = self.kept[::2]
        self.matched += len(batch)
        for row in rows.tolist():
            self.kept.append((int(batch.offsets[row]), int(batch.timestamps_ms[row]), batch.messages.message(row)))


class Follower:
    """Reads a stream from a place on, in turns of bounded time; for any threads, one after the other."""

    def __init__(self, stream: Stream, request: ScanRequest, start: OffsetSpecification, *, now_ms: int) -> None:
        """Raises ConfigError for a place behind the end, LogError."""
        check_start(stream, start, now_ms=now_ms)
        self._stream = stream
        self._request = request
        self._cursor = Cursor(stream, request, start=start, now_ms=now_ms)
        self._earlier = ScanCounters()
        """Of cursors before this one."""
        self._lock = threading.Lock()

    def turn(self, clock: Clock, budget_s: float) -> Turn:
        """Read what is new, until the end or for a time; the look at some mebibytes that began is finished.

        Raises StreamNotFoundError, StreamReplacedError where the stream was deleted, CorruptChunkError, LogError.
        """
        with self._lock:
            turn, sample, begun_s = Turn(), _Sample(), time.perf_counter()
            while True:
                batch = self._read(clock.now_ms(), turn)
                if batch is not None:
                    sample.add(batch)
                if self._cursor.at_end or time.perf_counter() - begun_s >= budget_s:
                    break
            turn.next_offset = self._cursor.next_offset
            turn.counters = self._earlier.copy()
            turn.counters.add(self._cursor.counters)
            self._cursor.trim()
            self._renew(clock.now_ms())
            settings = self._stream.settings
            turn.matched = sample.matched
            turn.messages = [
                message_row(encoded, offset=offset, timestamp_ms=timestamp_ms, settings=settings)
                for offset, timestamp_ms, encoded in sample.kept
            ]
            turn.took_s = time.perf_counter() - begun_s
            return turn

    def _read(self, now_ms: int, turn: Turn) -> ScanBatch | None:
        before = self._cursor.next_offset
        try:
            return self._cursor.read_some(now_ms)
        except OffsetOutOfRangeError:
            lost = self._cursor.next_offset - before
            if lost <= 0:
                raise
            turn.lost += lost
            return None

    def _renew(self, now_ms: int) -> None:
        """Read on with what the stream declares by now: its source of filter values was known up to some offset."""
        known = self._stream.settings
        if known is None or known.filter_source is None:
            return
        if any(self._cursor.next_offset < declared.stop for declared in known.declared):
            return
        now = load_settings(self._stream.path)
        if now is None or now.declared == known.declared or now.identity != known.identity:
            return
        self._stream = Stream.open(self._stream.path)
        place = OffsetSpecification.offset(self._cursor.next_offset)
        renewed = Cursor(self._stream, self._request, start=place, now_ms=now_ms)
        self._earlier.add(self._cursor.counters)
        self._cursor.close()
        self._cursor = renewed

    def close(self) -> None:
        """Close the files; waits for the end of a turn that is going on."""
        with self._lock:
            self._cursor.close()
