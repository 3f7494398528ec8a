"""Consumers of one stream let others come up to them, so that they read on together and are decided together.

Who comes a little later than the others is behind them, and wherever it comes everything was decided without it: a
hundred that come one after another would read as much as a hundred alone. So whoever is ahead waits, for a moment.
Nobody is waited for by readers with few filters, from far ahead, or longer than the one who waits may read afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.scan.shared import SharedLog

if TYPE_CHECKING:
    from headgate.broker.consumers import Consumer

NEAR_MESSAGES = 1 << 18
"""Whoever is further behind is not waited for."""

MOST_WAIT_MS = 500
"""So long a consumer waits at a time; then it reads on for as long without waiting."""

NEWCOMER_MS = 50
"""So long after a newcomer more may be on their way."""


@dataclass(slots=True)
class _Wait:
    """Since `since_ms`, until the last one at the offset `behind` has moved on, or until `scanning` has ended."""

    since_ms: int
    behind: int | None = None
    scanning: Consumer | None = None

    def is_over(self, latest_ms: int) -> bool:
        """Whether it began before `latest_ms`, or waits for nobody."""
        return self.since_ms <= latest_ms or (self.behind is None and self.scanning is None)


@dataclass(slots=True)
class _Newcomer:
    """Who asked for the first time, where, and when."""

    consumer: Consumer
    offset: int
    asked_ms: int


class Gathering:
    """Who waits for whom on one stream. In the broker's thread, but for `log`."""

    def __init__(self, log: SharedLog, *, time_ms: Callable[[], int]) -> None:
        self.log = log
        self._time_ms = time_ms
        self._waits: dict[Consumer, _Wait] = {}
        self._awaited: Counter[int] = Counter()
        self._free_until_ms: dict[Consumer, int] = {}
        self._newcomer: _Newcomer | None = None
        self._scanning: dict[int, Consumer] = {}

    def may_scan(self, consumer: Consumer, offset: int) -> bool:
        """Whether a consumer shall read on from an offset now; if not, `on_ready` is called when that may change."""
        if not self.log.filters.are_many:
            return True
        now_ms = self._time_ms()
        if consumer not in self._free_until_ms:
            self._newcomer = _Newcomer(consumer, offset, now_ms)
        if now_ms < self._free_until_ms.setdefault(consumer, now_ms):
            return True
        before = self._end_wait(consumer)
        since_ms = now_ms if before is None else before.since_ms
        if now_ms - since_ms < MOST_WAIT_MS:
            wait = self._wait(consumer, offset, now_ms)
            if wait is not None:
                wait.since_ms = since_ms
                self._waits[consumer] = wait
                if wait.behind is not None:
                    self._awaited[wait.behind] += 1
                return False
        self._free_until_ms[consumer] = 2 * now_ms - since_ms
        self._scanning[offset] = consumer
        return True

    def ended(self, consumer: Consumer) -> None:
        """A consumer's scan ended: whoever stands where it began finds the same place decided, perhaps."""
        ended = [offset for offset, other in self._scanning.items() if other is consumer]
        for offset in ended:
            del self._scanning[offset]
        if ended:
            self._wake([waiting for waiting, wait in self._waits.items() if wait.scanning is consumer])

    def moved(self, offset: int) -> None:
        """A consumer does not read from an offset now: if it was the last one, those who waited for it may go on."""
        if offset in self._awaited and not self.log.filters.is_anyone_at(offset):
            self._wake([consumer for consumer, wait in self._waits.items() if wait.behind == offset])

    def left(self, consumer: Consumer) -> None:
        """A consumer is gone; again is harmless."""
        self._end_wait(consumer)
        self._free_until_ms.pop(consumer, None)
        if self._newcomer is not None and self._newcomer.consumer is consumer:
            self._newcomer = None
        self.ended(consumer)

    def tick(self) -> None:
        """Time passed: whoever waited long enough, or waits for nothing but that, asks again."""
        latest_ms = self._time_ms() - MOST_WAIT_MS
        self._wake([consumer for consumer, wait in self._waits.items() if wait.is_over(latest_ms)])

    def _end_wait(self, consumer: Consumer) -> _Wait | None:
        wait = self._waits.pop(consumer, None)
        if wait is not None and wait.behind is not None:
            self._awaited[wait.behind] -= 1
            if not self._awaited[wait.behind]:
                del self._awaited[wait.behind]
        return wait

    def _wait(self, consumer: Consumer, offset: int, now_ms: int) -> _Wait | None:
        """What a consumer waits for: who is behind it, who may follow a newcomer, who scans what it would scan."""
        start = offset - NEAR_MESSAGES
        behind = self.log.filters.hindmost(start, offset)
        if behind is not None:
            return _Wait(now_ms, behind=behind)
        if self._may_be_followed(consumer, start, offset, now_ms):
            return _Wait(now_ms)
        other = self._scanning.get(offset)
        return None if other is None or other is consumer else _Wait(now_ms, scanning=other)

    def _may_be_followed(self, consumer: Consumer, start: int, offset: int, now_ms: int) -> bool:
        """Whether someone else, from `start` to `offset`, came so lately that more may come."""
        new = self._newcomer
        if new is None or new.consumer is consumer or not start <= new.offset <= offset:
            return False
        return now_ms - new.asked_ms < NEWCOMER_MS

    @staticmethod
    def _wake(consumers: Iterable[Consumer]) -> None:
        for consumer in consumers:
            consumer.on_ready()
