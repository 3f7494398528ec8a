"""The machine's time, for the command line, Spark and the server. The layers below are given it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

_PAUSE_S = 0.02


def now_ms() -> int:
    """The wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """The wall clock in milliseconds since 1970."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never jumps."""


class SystemClock:
    """The machine's time."""

    now_ms = staticmethod(now_ms)
    monotonic_s = staticmethod(time.monotonic)


def patient(limit_s: float) -> Callable[[int], bool]:
    """Wait for a lock of another process: try every 20 ms, for at most `limit_s`."""

    def wait(tries: int) -> bool:
        if tries * _PAUSE_S > limit_s:
            return False
        time.sleep(_PAUSE_S)
        return True

    return wait
