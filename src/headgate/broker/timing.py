"""What is done from time to time, by a clock that may be set."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

LONGEST_STEP_MS = 2_000
"""What passes between two looks counts as so much at most: the rest is a clock that jumped, or nobody ran."""


def is_over(since_ms: int, lasts_ms: int, now_ms: int) -> bool:
    """Whether a time that began at `since_ms` is over.

    It is, too, where the clock went back to before it began: nothing waits until the clock is where it was.
    """
    return not since_ms <= now_ms < since_ms + lasts_ms


class IdleTimes(Generic[K]):
    """How long each of some things was not used, of the time that was seen to pass."""

    def __init__(self) -> None:
        self._looked_ms: int | None = None
        self._known: dict[K, tuple[int, int]] = {}
        """When each was used last, and how long it was idle since."""

    def look(self, used_ms: Mapping[K, int], now_ms: int) -> dict[K, int]:
        """How long each is idle, from when each was used last; to be called every second at least."""
        passed_ms = 0 if self._looked_ms is None else min(max(now_ms - self._looked_ms, 0), LONGEST_STEP_MS)
        self._looked_ms = now_ms
        idle_ms: dict[K, int] = {}
        for key, used in used_ms.items():
            used_before, idle_before_ms = self._known.get(key, (None, 0))
            is_same = used == used_before
            idle_ms[key] = idle_before_ms + passed_ms if is_same else min(max(now_ms - used, 0), passed_ms)
        self._known = {key: (used, idle_ms[key]) for key, used in used_ms.items()}
        return idle_ms
