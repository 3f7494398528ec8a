"""Timing of repeated work, by a clock that may be set."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

LONGEST_STEP_MS = 2_000
"""Limit: time that counts between two looks; more means that the clock jumped, or that the process stood still."""


def is_over(since_ms: int, lasts_ms: int, now_ms: int) -> bool:
    """Whether a time that began at `since_ms` is over.

    It is also over if the clock went back to before `since_ms`, so that nothing waits until the clock catches up.
    """
    return not since_ms <= now_ms < since_ms + lasts_ms


class IdleTimes(Generic[K]):
    """How long each of several keys was unused, counting only time that was seen to pass."""

    def __init__(self) -> None:
        self._looked_ms: int | None = None
        self._known: dict[K, tuple[int, int]] = {}
        """Key → when it was last used, and how long it has been idle since."""

    def look(self, used_ms: Mapping[K, int], now_ms: int) -> dict[K, int]:
        """How long each key is idle, from the times of last use; to be called at least every second."""
        passed_ms = 0 if self._looked_ms is None else min(max(now_ms - self._looked_ms, 0), LONGEST_STEP_MS)
        self._looked_ms = now_ms
        idle_ms: dict[K, int] = {}
        for key, used in used_ms.items():
            used_before, idle_before_ms = self._known.get(key, (None, 0))
            is_same = used == used_before
            idle_ms[key] = idle_before_ms + passed_ms if is_same else min(max(now_ms - used, 0), passed_ms)
        self._known = {key: (used, idle_ms[key]) for key, used in used_ms.items()}
        return idle_ms
