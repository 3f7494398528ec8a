"""Shared by the readers of all streams: the limits of memory for windows and of open files, and one lock."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.scan.fetch.buffers import BufferPool
from headgate.scan.stage_two import DecideBuffers

if TYPE_CHECKING:
    from headgate.scan.fetch.log import SharedLog
    from headgate.scan.fetch.tiles import Tile

MOST_OPEN_SEGMENTS = 64
WINDOWS_BYTES = 40 << 20

SMALLEST_WINDOW_BYTES = 1 << 20
"""The first window of a reader. Small, as many readers may keep the rest of a window that they were not given yet."""


CpuTime = Callable[[], int]
"""Nanoseconds of processor time that the calling thread took so far."""


def unmeasured() -> int:
    """A clock for readers whose owner has none: always 0."""
    return 0


class SharedReads:
    """Limits for all streams of a process; the least recently used windows and files go first.

    A reader looks at `smallest_window_bytes` of its stream at a time, and at more as long as it keeps little. `cpu_ns`
    is the clock of the readers. `lock` guards the bookkeeping of all logs; it is never held while something is read or
    decided.
    """

    def __init__(
        self,
        *,
        windows_bytes: int = WINDOWS_BYTES,
        most_open_segments: int = MOST_OPEN_SEGMENTS,
        smallest_window_bytes: int = SMALLEST_WINDOW_BYTES,
        cpu_ns: CpuTime = unmeasured,
    ) -> None:
        self.smallest_window_bytes = smallest_window_bytes
        self.cpu_ns = cpu_ns
        self.lock = threading.Lock()
        self.pool = BufferPool()
        self._windows_bytes = windows_bytes
        self._most_open = most_open_segments
        self._tiles: OrderedDict[Tile, SharedLog] = OrderedDict()
        self._bytes = 0
        self._logs: set[SharedLog] = set()
        self._tick = self._trimmed_at = 0
        self._threads = threading.local()

    @property
    def buffers(self) -> DecideBuffers:
        """The calling thread's buffers for deciding."""
        found: DecideBuffers | None = getattr(self._threads, "buffers", None)
        if found is None:
            found = self._threads.buffers = DecideBuffers()
        return found

    @property
    def bytes_held(self) -> int:
        """Bytes of memory of windows and results."""
        return self._bytes

    def trim(self) -> None:
        """Free windows and results that no reader used since the last call, and buffers kept for the next read."""
        with self.lock:
            for tile in [each for each in self._tiles if each.touched_at <= self._trimmed_at]:
                self.forget(tile)
            self._trimmed_at = self._tick
        self.pool.trim()

    # under the lock

    def add_log(self, log: SharedLog) -> None:
        """Add a log."""
        self._logs.add(log)

    def remove_log(self, log: SharedLog) -> None:
        """Remove a log."""
        self._logs.discard(log)

    def touch(self, tile: Tile, log: SharedLog) -> None:
        """Note that a tile is used, perhaps for the first time."""
        self._tiles[tile] = log
        self._tiles.move_to_end(tile)
        tile.touched_at = self.next_use()

    def charge(self, tile: Tile, size_bytes: int) -> None:
        """Count more memory for a tile; beyond the limit, other tiles are dropped."""
        if tile not in self._tiles:
            return
        tile.charged_bytes += size_bytes
        self._bytes += size_bytes
        while self._bytes > self._windows_bytes and len(self._tiles) > 1:
            oldest = next(iter(self._tiles))
            if oldest is tile:
                self._tiles.move_to_end(oldest)
                continue
            self.forget(oldest)

    def forget(self, tile: Tile) -> None:
        """Drop a tile; a reader that is using it keeps it until it is done."""
        log = self._tiles.pop(tile, None)
        if log is not None:
            self._bytes -= tile.charged_bytes
            log.drop_tile(tile)

    def next_use(self) -> int:
        """A number that grows with every use of a segment."""
        self._tick += 1
        return self._tick

    def close_least_used(self) -> None:
        """Close segments that no reader uses until there are few enough."""
        opened = [(each.used_at, log, each) for log in self._logs for each in log.open_segments()]
        excess = len(opened) - self._most_open
        if excess <= 0:
            return
        for _, log, each in sorted(opened, key=lambda entry: entry[0]):
            if excess > 0 and not each.users:
                log.close_segment(each)
                excess -= 1
