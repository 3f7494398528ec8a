"""The machine's time, and how people read one, for the command line, Spark and the server.

The layers below are given the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

_PAUSE_S = 0.02


def now_ms() -> int:
    """The wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def shown_time(timestamp_ms: int) -> str:
    """Milliseconds since 1970 as ISO time in UTC, `2026-11-21T08:00:00.123Z`; the number outside years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


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
