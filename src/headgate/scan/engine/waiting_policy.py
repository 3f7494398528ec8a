"""The policy of waiting: readers with different filters let others come up to them, so that all are decided together.

A reader that comes a little later than the others stays behind them, and all it reads was decided without its filter: a
hundred that come one after another would read as much as a hundred alone. So a reader that is ahead waits for a moment.
With few filters no reader waits; none waits for readers that are far behind, or longer than it may read on afterwards.
An engine without this policy gives the same messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from headgate.scan.fetch import SharedFilters

NEAR_MESSAGES = 1 << 18
"""Limit: how far behind a reader may be, in messages, for others to wait for it."""

MOST_WAIT_MS = 500
"""A reader waits at most this long at a time; then it reads on for as long without waiting."""

NEWCOMER_MS = 50
"""How long after a newcomer more readers are expected."""


class GatheringReader(Protocol):
    """A reader that may have to wait."""

    @property
    def offset(self) -> int:
        """The offset at which it reads on."""

    def wake(self) -> None:
        """Tell the reader that it may be allowed to scan now."""


@dataclass(slots=True)
class _Wait:
    """A wait since `since_ms`, until the last reader at the offset `behind` moved on or `scanning` ended its scan."""

    since_ms: int
    behind: int | None = None
    scanning: GatheringReader | None = None

    def is_over(self, latest_ms: int) -> bool:
        """Whether it began by `latest_ms`, or waits only for time to pass."""
        return self.since_ms <= latest_ms or (self.behind is None and self.scanning is None)


@dataclass(slots=True)
class _Newcomer:
    """A reader that asked for the first time, with its offset and the time."""

    reader: GatheringReader
    offset: int
    asked_ms: int


class Gathering:
    """The readers of one stream that wait, and the reason of each wait."""

    def __init__(self, filters: SharedFilters) -> None:
        self._filters = filters
        self._waits: dict[GatheringReader, _Wait] = {}
        self._awaited: Counter[int] = Counter()
        self._free_until_ms: dict[GatheringReader, int] = {}
        self._newcomer: _Newcomer | None = None
        self._scanning: dict[int, GatheringReader] = {}

    def may_scan(self, reader: GatheringReader, now_ms: int) -> bool:
        """Whether a reader may scan now; if not, it is woken when that may have changed."""
        if not self._filters.are_many:
            return True
        if reader not in self._free_until_ms:
            self._newcomer = _Newcomer(reader, reader.offset, now_ms)
        if now_ms < self._free_until_ms.setdefault(reader, now_ms):
            return True
        before = self._end_wait(reader)
        since_ms = now_ms if before is None else before.since_ms
        if now_ms - since_ms < MOST_WAIT_MS:
            wait = self._wait(reader, now_ms)
            if wait is not None:
                wait.since_ms = since_ms
                self._waits[reader] = wait
                if wait.behind is not None:
                    self._awaited[wait.behind] += 1
                return False
        self._free_until_ms[reader] = 2 * now_ms - since_ms
        self._scanning[reader.offset] = reader
        return True

    def ended(self, reader: GatheringReader) -> None:
        """A reader's scan ended: wakes readers that waited for it, as their offset may be decided now."""
        ended = [offset for offset, other in self._scanning.items() if other is reader]
        for offset in ended:
            del self._scanning[offset]
        if ended:
            _wake([waiting for waiting, wait in self._waits.items() if wait.scanning is reader])

    def moved(self, offset: int) -> None:
        """A reader does not read from an offset any more: if it was the last one, wakes readers that waited for it."""
        if offset in self._awaited and not self._filters.is_anyone_at(offset):
            _wake([reader for reader, wait in self._waits.items() if wait.behind == offset])

    def left(self, reader: GatheringReader) -> None:
        """A reader is gone; calling this twice is harmless."""
        self._end_wait(reader)
        self._free_until_ms.pop(reader, None)
        if self._newcomer is not None and self._newcomer.reader is reader:
            self._newcomer = None
        self.ended(reader)

    def tick(self, now_ms: int) -> None:
        """Time passed: wakes readers that waited long enough, or only for time to pass."""
        latest_ms = now_ms - MOST_WAIT_MS
        _wake([reader for reader, wait in self._waits.items() if wait.is_over(latest_ms)])

    def _end_wait(self, reader: GatheringReader) -> _Wait | None:
        wait = self._waits.pop(reader, None)
        if wait is not None and wait.behind is not None:
            self._awaited[wait.behind] -= 1
            if not self._awaited[wait.behind]:
                del self._awaited[wait.behind]
        return wait

    def _wait(self, reader: GatheringReader, now_ms: int) -> _Wait | None:
        """The wait of a reader, or None: for readers behind it, for followers of a newcomer, or for the same scan."""
        start = reader.offset - NEAR_MESSAGES
        behind = self._filters.hindmost(start, reader.offset)
        if behind is not None:
            return _Wait(now_ms, behind=behind)
        if self._may_be_followed(reader, start, now_ms):
            return _Wait(now_ms)
        other = self._scanning.get(reader.offset)
        return None if other is None or other is reader else _Wait(now_ms, scanning=other)

    def _may_be_followed(self, reader: GatheringReader, start: int, now_ms: int) -> bool:
        """Whether a newcomer between `start` and this reader is so recent that more readers are expected."""
        new = self._newcomer
        if new is None or new.reader is reader or not start <= new.offset <= reader.offset:
            return False
        return now_ms - new.asked_ms < NEWCOMER_MS


def _wake(readers: list[GatheringReader]) -> None:
    for reader in readers:
        reader.wake()
