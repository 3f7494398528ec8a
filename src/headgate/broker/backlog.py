"""The backlog of one session: entries that its publishers queued and that are not answered, counted for limits."""

from __future__ import annotations

from collections.abc import Callable


def _nobody() -> None:
    """For a backlog without a limit."""


class Backlog:
    """Entries and bytes between `Publisher.publish` and the answer, of all publishers of a session together.

    It is full from passing one of its limits until at most a quarter of both is left; without `limit` it never is.
    """

    __slots__ = ("_full", "_max_bytes", "_max_entries", "_room", "entries", "is_full", "size_bytes")

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0
        self.is_full = False
        self._max_entries: float = float("inf")
        self._max_bytes: float = float("inf")
        self._full = self._room = _nobody

    def limit(self, *, entries: int, size_bytes: int, full: Callable[[], None], room: Callable[[], None]) -> None:
        """Call `full` when a limit is passed, and `room` when at most a quarter of both is left."""
        self._max_entries, self._max_bytes = entries, size_bytes
        self._full, self._room = full, room

    def forget(self) -> None:
        """Call nothing any more."""
        self._full = self._room = _nobody

    def add(self, entries: int, size_bytes: int) -> None:
        """A batch was queued."""
        self.entries += entries
        self.size_bytes += size_bytes
        if (self.entries > self._max_entries or self.size_bytes > self._max_bytes) and not self.is_full:
            self.is_full = True
            self._full()

    def remove(self, entries: int, size_bytes: int) -> None:
        """A batch is about to be answered."""
        self.entries -= entries
        self.size_bytes -= size_bytes
        if self.is_full and self.entries <= self._max_entries // 4 and self.size_bytes <= self._max_bytes // 4:
            self.is_full = False
            self._room()
