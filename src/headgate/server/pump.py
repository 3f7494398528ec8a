"""Fair delivery on one link: consumers take turns, what takes long is scanned in threads, a full link stops everything.

A consumer of the broker has something to take, something to scan, or waits. The pump asks each that has something to
take for a bounded amount, round robin, and lets scan each that has something to look at: at the tail at once, far
behind in a thread, one scan per consumer at a time. It makes no call while nobody has anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.server.transport import Transport

TURN_BYTES = 512 * 1024
"""What one link may write in one turn of the loop, so that others get theirs; at least one chunk."""
SHARE_BYTES = 64 * 1024
"""What one consumer may write before the next one of its link has its turn."""
_SMALL_SCANS_A_TURN = 64


class Pumped(Protocol):
    """What the pump needs of a consumer; `broker.consumers` has them."""

    on_ready: Callable[[], None]

    @property
    def needs_scan(self) -> bool:
        """It has credit, little to take, and something it has not looked at."""

    @property
    def scan_is_small(self) -> bool:
        """The next scan is cheap enough for the loop's thread."""

    def may_scan(self) -> bool:
        """Whether to make a scan now that is not small; if not, it is ready again when that may have changed."""

    def scan(self) -> None:
        """Look at a bounded amount; may run in another thread."""


Deliver = Callable[[int], int | None]
"""Takes up to so many bytes from a consumer and writes them to the link; gives how many, 0 or None for nothing now."""
Failed = Callable[[HeadgateError], None]
"""Gets what a consumer's scan raised; the consumer is not asked again until it is ready again.

What is no HeadgateError is an error in our own code, and ends the connection.
"""


class _Entry:
    __slots__ = ("consumer", "deliver", "failed", "is_queued", "is_scanned", "was_removed")

    def __init__(self, consumer: Pumped, deliver: Deliver, failed: Failed) -> None:
        self.consumer = consumer
        self.deliver = deliver
        self.failed = failed
        self.is_queued = False
        self.is_scanned = False
        self.was_removed = False


class Pump:
    """Moves messages of the consumers of one link. The handler calls `wake` when its link is writable again."""

    def __init__(self, link: Transport, *, turn_bytes: int = TURN_BYTES) -> None:
        """`turn_bytes`: what may be written in one turn of the loop; more where writing copies nothing."""
        self._link = link
        self._turn_bytes = turn_bytes
        self._entries: dict[Pumped, _Entry] = {}
        self._queue: deque[_Entry] = deque()
        self._is_scheduled = False

    def add(self, consumer: Pumped, deliver: Deliver, failed: Failed) -> None:
        """Serve a consumer from now on. Its `on_ready` is the pump's."""
        entry = _Entry(consumer, deliver, failed)
        self._entries[consumer] = entry
        consumer.on_ready = lambda: self._ready(entry)
        self._ready(entry)

    def remove(self, consumer: Pumped) -> None:
        """Serve it no more; a scan that still runs ends unheard. Unknown ones are passed over."""
        entry = self._entries.pop(consumer, None)
        if entry is not None:
            entry.was_removed = True
            consumer.on_ready = _nothing

    def wake(self) -> None:
        """The link takes more, or something that `deliver` waited for has come: ask everyone again."""
        for entry in self._entries.values():
            self._ready(entry)
        if self._queue:
            self._schedule()

    def _ready(self, entry: _Entry) -> None:
        if entry.is_queued or entry.was_removed:
            return
        entry.is_queued = True
        self._queue.append(entry)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._link.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        left = self._turn_bytes
        small_scans = _SMALL_SCANS_A_TURN
        while self._queue and self._link.is_writable:
            if left <= 0 or small_scans <= 0:
                self._schedule()
                return
            entry = self._queue.popleft()
            entry.is_queued = False
            if entry.was_removed:
                continue
            written = entry.deliver(min(left, SHARE_BYTES) if self._queue else left)
            if written:
                left -= written
                self._requeue(entry)
            if entry.is_scanned or entry.was_removed or not entry.consumer.needs_scan:
                continue
            if not entry.consumer.scan_is_small:
                # Also behind a delivery: what comes next is read while this is on its way.
                self._scan_in_worker(entry)
            elif not written:
                small_scans -= 1
                self._scan_here(entry)

    def _requeue(self, entry: _Entry) -> None:
        if not entry.is_queued and not entry.was_removed:
            entry.is_queued = True
            self._queue.append(entry)

    def _scan_here(self, entry: _Entry) -> None:
        try:
            entry.consumer.scan()
        except HeadgateError as error:
            entry.failed(error)
        else:
            self._requeue(entry)

    def _scan_in_worker(self, entry: _Entry) -> None:
        if not entry.consumer.may_scan():
            return
        entry.is_scanned = True
        self._link.run_in_worker(entry.consumer.scan, lambda result: self._scanned(entry, result))

    def _scanned(self, entry: _Entry, result: BaseException | None) -> None:
        entry.is_scanned = False
        if entry.was_removed:
            return
        if isinstance(result, HeadgateError):
            entry.failed(result)
        elif result is not None:
            raise result
        else:
            self._ready(entry)


def _nothing() -> None:
    """What a consumer that is served by nobody calls."""
