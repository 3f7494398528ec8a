"""What is done from time to time, by a clock that may be set."""

from __future__ import annotations


def is_over(since_ms: int, lasts_ms: int, now_ms: int) -> bool:
    """Whether a time that began at `since_ms` is over.

    It is, too, where the clock went back to before it began: nothing waits until the clock is where it was.
    """
    return not since_ms <= now_ms < since_ms + lasts_ms
