"""The order within message groups: which messages may be given out, while others of their message group are held.

A message group is free while nobody has a message of it. Of a free one the next messages may be given, in order and
together; the others wait until all of these are settled, or came back.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


class MessageGroups:
    """Every copy of a view that is known and not settled is here once: nobody has it, or somebody does."""

    __slots__ = ("_free", "_group_of", "_held", "_queued")

    def __init__(self) -> None:
        self._queued: dict[bytes, list[int]] = {}
        """Heaps of the copies that nobody has."""
        self._group_of: dict[int, bytes] = {}
        """Copies that somebody has."""
        self._held: dict[bytes, int] = {}
        """How many copies of a message group somebody has; others are free."""
        self._free: list[tuple[int, bytes]] = []
        """A heap of free message groups with their first copies; what is not so any more is left out."""

    def add(self, copies: Iterable[int], groups: Iterable[bytes]) -> None:
        """Copies that nobody has, with their message groups."""
        for copy, group in zip(copies, groups, strict=True):
            self._put(copy, group)

    def add_held(self, copy: int, group: bytes) -> None:
        """A copy that somebody has."""
        self._group_of[copy] = group
        self._held[group] = self._held.get(group, 0) + 1

    @property
    def has_free(self) -> bool:
        """Whether `take` may give something."""
        return bool(self._free)

    def take(self, limit: int) -> list[int]:
        """At most `limit` copies of free message groups, those with the lowest first copies; somebody has them now."""
        taken: list[int] = []
        while self._free and len(taken) < limit:
            first, group = heappop(self._free)
            queued = self._queued.get(group)
            if group in self._held or not queued or queued[0] != first:
                continue
            for _ in range(min(limit - len(taken), len(queued))):
                copy = heappop(queued)
                taken.append(copy)
                self.add_held(copy, group)
            if not queued:
                del self._queued[group]
        return sorted(taken)

    def back(self, copies: Iterable[int]) -> None:
        """Nobody has these any more, and they are not settled."""
        for copy in copies:
            group = self._group_of.get(copy)
            if group is not None:
                heappush(self._queued.setdefault(group, []), copy)
                self._leave(copy, group)

    def settled(self, copies: Iterable[int]) -> None:
        """These are settled; of those that nobody had `take` gives some still, and is told so again."""
        for copy in copies:
            group = self._group_of.get(copy)
            if group is not None:
                self._leave(copy, group)

    def held(self) -> list[int]:
        """The copies that somebody has."""
        return list(self._group_of)

    def _put(self, copy: int, group: bytes) -> None:
        queued = self._queued.setdefault(group, [])
        heappush(queued, copy)
        if queued[0] == copy and group not in self._held:
            heappush(self._free, (copy, group))

    def _leave(self, copy: int, group: bytes) -> None:
        del self._group_of[copy]
        left = self._held[group] - 1
        if left:
            self._held[group] = left
            return
        del self._held[group]
        queued = self._queued.get(group)
        if queued:
            heappush(self._free, (queued[0], group))
