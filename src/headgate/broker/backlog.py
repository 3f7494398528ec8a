"""What the publishers of one session have queued and nobody has answered yet: counted, so that it can be limited."""

from __future__ import annotations

from collections.abc import Callable


def _nobody() -> None:
    """Nobody asked to be told."""


class Backlog:
    """Entries and bytes between `Publisher.publish` and the answer, of all publishers of a session together.

    It is full from the moment one of its limits is passed until a quarter of both is left; without `limit` it never is.
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
        """Call `full` when there is more than that, and `room` when a quarter of both is left."""
        self._max_entries, self._max_bytes = entries, size_bytes
        self._full, self._room = full, room

    def forget(self) -> None:
        """Tell nobody any more."""
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
