"""The order within message groups: while messages of a group are held, no others of it are given out.

A message group is free while no member has a message of it. Of a free one the next messages may be given, in order and
together; the others wait until all of these are settled, or came back.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


class MessageGroups:
    """Every known unsettled copy of a view is here once: queued, or held by a member."""

    __slots__ = ("_free", "_group_of", "_held", "_queued")

    def __init__(self) -> None:
        self._queued: dict[bytes, list[int]] = {}
        """Message group → a heap of its queued copies."""
        self._group_of: dict[int, bytes] = {}
        """Copy that a member has → its message group."""
        self._held: dict[bytes, int] = {}
        """Message group → how many of its copies members have; other groups are free."""
        self._free: list[tuple[int, bytes]] = []
        """A heap of free message groups with their first copies; outdated entries are passed over."""

    def add(self, copies: Iterable[int], groups: Iterable[bytes]) -> None:
        """Queue copies that no member has, with their message groups."""
        for copy, group in zip(copies, groups, strict=True):
            self._put(copy, group)

    def add_held(self, copy: int, group: bytes) -> None:
        """Add a copy that a member has."""
        self._group_of[copy] = group
        self._held[group] = self._held.get(group, 0) + 1

    @property
    def has_free(self) -> bool:
        """Whether `take` may give copies."""
        return bool(self._free)

    def take(self, limit: int) -> list[int]:
        """Take at most `limit` copies of free message groups, lowest first copies first; they are held from now on."""
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
        """Queue again copies that came back unsettled."""
        for copy in copies:
            group = self._group_of.get(copy)
            if group is not None:
                heappush(self._queued.setdefault(group, []), copy)
                self._leave(copy, group)

    def settled(self, copies: Iterable[int]) -> None:
        """Forget settled copies; queued ones stay: `take` may still give them, and they are reported again then."""
        for copy in copies:
            group = self._group_of.get(copy)
            if group is not None:
                self._leave(copy, group)

    def held(self) -> list[int]:
        """The copies that members have."""
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
