"""Fair delivery on one link: consumers take turns, long scans run in threads, a full link stops everything.

A consumer of the broker has messages to take, a due scan, or waits. The pump takes a bounded amount from each consumer
with messages, in turn, and runs the due scans: small ones at once, others in a thread, one per consumer at a time. It
makes no call while no consumer has anything.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.scan.engine import Scan
from headgate.server.transport import Transport

TURN_BYTES = 512 * 1024
"""Limit: bytes that one link writes in one turn of the loop, so that others get their turns; at least one chunk."""
SHARE_BYTES = 64 * 1024
"""Limit: bytes that one consumer writes before the next consumer of its link has its turn."""
_SMALL_SCANS_A_TURN = 64
_IS_WRITABLE = operator.attrgetter("is_writable")


class Pumped(Protocol):
    """A consumer as the pump needs it; `broker.consumers` has them."""

    def listen(self, on_ready: Callable[[], None], takes_more: Callable[[], bool] = ...) -> None:
        """Call `on_ready` when there may be something to take or to scan."""

    @property
    def has_pending(self) -> bool:
        """Whether there is something to take as soon as the link can."""

    def scan_due(self) -> Scan | None:
        """The next scan, if one is due."""

    def is_small(self, scan: Scan) -> bool:
        """Whether a scan is cheap enough for the loop's thread."""

    def begin_scan(self, scan: Scan, *, may_wait: bool) -> bool:
        """Begin a scan; False if the consumer waits for others, and is ready again when that may have changed."""

    def run(self, scan: Scan) -> None:
        """Scan a bounded amount; in any thread."""

    def end_scan(self, scan: Scan) -> HeadgateError | None:
        """Take over the results of a scan; returns its error, if it failed."""


Deliver = Callable[[int], int | None]
"""Takes bytes from a consumer, up to its argument, and writes them to the link; returns how many, 0 or None for none.

It is called again while the consumer has something pending, or a scan has found something."""
Failed = Callable[[HeadgateError], None]
"""Gets the error of a consumer's scan; the consumer is not asked again until it is ready again."""


class _Entry:
    __slots__ = ("consumer", "deliver", "failed", "is_queued", "was_removed")

    def __init__(self, consumer: Pumped, deliver: Deliver, failed: Failed) -> None:
        self.consumer = consumer
        self.deliver = deliver
        self.failed = failed
        self.is_queued = False
        self.was_removed = False


class Pump:
    """Moves messages of the consumers of one link. The handler calls `wake` when its link is writable again."""

    def __init__(self, link: Transport, *, turn_bytes: int = TURN_BYTES) -> None:
        """`turn_bytes`: limit of bytes written in one turn of the loop; larger if writing copies nothing."""
        self._link = link
        self._turn_bytes = turn_bytes
        self._entries: dict[Pumped, _Entry] = {}
        self._queue: deque[_Entry] = deque()
        self._is_scheduled = False

    def add(self, consumer: Pumped, deliver: Deliver, failed: Failed) -> None:
        """Serve a consumer from now on."""
        entry = _Entry(consumer, deliver, failed)
        self._entries[consumer] = entry
        consumer.listen(functools.partial(self._ready, entry), functools.partial(_IS_WRITABLE, self._link))
        self._ready(entry)

    def remove(self, consumer: Pumped) -> None:
        """Serve a consumer no more; the result of a running scan is dropped. Unknown consumers are ignored."""
        entry = self._entries.pop(consumer, None)
        if entry is not None:
            entry.was_removed = True
            consumer.listen(_nothing)

    def wake(self) -> None:
        """The link takes more, or something that `deliver` waited for has come: ask all consumers again."""
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
            left -= written or 0
            if entry.was_removed:
                continue
            if written and entry.consumer.has_pending:
                self._requeue(entry)
            scan = entry.consumer.scan_due()
            if scan is None:
                continue
            if not entry.consumer.is_small(scan):
                # After a delivery as well: the next messages are read while these are on their way.
                self._scan_in_worker(entry, scan)
            elif written:
                self._requeue(entry)
            else:
                small_scans -= 1
                self._scan_here(entry, scan)

    def _requeue(self, entry: _Entry) -> None:
        if not entry.is_queued and not entry.was_removed:
            entry.is_queued = True
            self._queue.append(entry)

    def _scan_here(self, entry: _Entry, scan: Scan) -> None:
        consumer = entry.consumer
        consumer.begin_scan(scan, may_wait=False)
        consumer.run(scan)
        error = consumer.end_scan(scan)
        if error is not None:
            entry.failed(error)
        else:
            self._requeue(entry)

    def _scan_in_worker(self, entry: _Entry, scan: Scan) -> None:
        consumer = entry.consumer
        if not consumer.begin_scan(scan, may_wait=True):
            return

        def ended(result: BaseException | None) -> None:
            error = consumer.end_scan(scan)
            if result is not None:
                raise result
            if error is not None and not entry.was_removed:
                entry.failed(error)
            else:
                self._ready(entry)

        run = self._link.run_in_storage if scan.may_wait_for_storage else self._link.run_in_worker
        run(lambda: consumer.run(scan), ended)


def _nothing() -> None:
    """The callback of a consumer that is not served any more."""
