"""The copies of a view by session: which one is next in its session, and which session is next.

Each session has its copies that nobody has, in order. Those of a session that is not held are offered: the one whose
first copy is the lowest comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from headgate.ledger import Standing, View

Int64Array = NDArray[np.int64]


class SessionIndex:
    """Every copy is here once, from `add` until it is settled: in its session, or out with who has it.

    What the ledger says counts: copies that were settled meanwhile are left out when it comes to them.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._queued: dict[str, list[int]] = {}
        """Heaps of the copies that nobody has."""
        self._out: dict[int, str] = {}
        """Sessions of the copies that somebody has."""
        self._offers: list[tuple[int, str]] = []
        """A heap of sessions with their first copies; what is not so any more is left out."""
        self._held: set[str] = set()
        """Sessions that are not offered."""

    def add(self, copies: Int64Array, sessions: Iterable[str]) -> None:
        """Copies of a view that were never here, with their sessions."""
        standings = self._view.standings(copies).tolist()
        for copy, session, standing in zip(copies.tolist(), sessions, standings, strict=True):
            if standing == Standing.CLAIMED:
                self._out[copy] = session
            elif standing != Standing.SETTLED:
                self._put(copy, session)

    def changed(self, copies: Int64Array) -> None:
        """Something became of copies that were out: those that nobody has any more come back, settled ones do not."""
        for copy, standing in zip(copies.tolist(), self._view.standings(copies).tolist(), strict=True):
            if standing != Standing.CLAIMED:
                session = self._out.pop(copy, None)
                if session is not None and standing != Standing.SETTLED:
                    self._put(copy, session)

    def all_changed(self) -> None:
        """`changed` for all that are out."""
        self.changed(np.array(list(self._out), dtype=np.int64))

    def take(self, session: str, limit: int) -> Int64Array:
        """At most `limit` copies, the next ones of a session, up to one that waits; they are out."""
        queued = self._queued.get(session, [])
        taken: list[int] = []
        is_blocked = False
        while queued and len(taken) < limit and not is_blocked:
            part = [heappop(queued) for _ in range(min(limit - len(taken), len(queued)))]
            for copy, standing in zip(part, self._view.standings(np.array(part, dtype=np.int64)).tolist(), strict=True):
                is_blocked = is_blocked or standing in (Standing.WAITING, Standing.CLAIMED)
                if is_blocked:
                    heappush(queued, copy)
                elif standing == Standing.AVAILABLE:
                    taken.append(copy)
                    self._out[copy] = session
        if not queued:
            self._queued.pop(session, None)
        return np.array(taken, dtype=np.int64)

    def put_back(self, copies: Int64Array) -> None:
        """Copies that were taken, and not claimed."""
        for copy in copies.tolist():
            self._put(copy, self._out.pop(copy))

    def _put(self, copy: int, session: str) -> None:
        queued = self._queued.setdefault(session, [])
        heappush(queued, copy)
        if queued[0] == copy and session not in self._held:
            heappush(self._offers, (copy, session))

    # which session is next

    def next_session(self) -> str | None:
        """The session that is offered first, which is held from now on; None if none is."""
        while self._offers:
            copy, session = heappop(self._offers)
            queued = self._queued.get(session)
            if session in self._held or queued is None or queued[0] != copy:
                continue
            standing = int(self._view.standings(np.array([copy], dtype=np.int64))[0])
            if standing == Standing.SETTLED:
                heappop(queued)
                if queued:
                    heappush(self._offers, (queued[0], session))
                else:
                    del self._queued[session]
                continue
            self._held.add(session)
            if standing == Standing.AVAILABLE:
                return session
        return None

    def hold(self, session: str) -> None:
        """A session is not offered until `offer`."""
        self._held.add(session)

    def offer(self, session: str) -> None:
        """A session is free."""
        self._held.discard(session)
        queued = self._queued.get(session)
        if queued:
            heappush(self._offers, (queued[0], session))

    @property
    def held(self) -> frozenset[str]:
        """The sessions that are not offered."""
        return frozenset(self._held)

    def unsettled(self, session: str) -> Int64Array:
        """The copies of a session that are not settled, ascending, whoever has them. Cost: some 0.2 µs a copy."""
        out = [copy for copy, whose in self._out.items() if whose == session]
        copies: Int64Array = np.array(sorted([*self._queued.get(session, ()), *out]), dtype=np.int64)
        unsettled: Int64Array = copies[self._view.standings(copies) != Standing.SETTLED]
        return unsettled

    def sessions(self) -> set[str]:
        """The sessions with copies that are not settled. Cost: some 0.1 µs a copy."""
        for session, queued in list(self._queued.items()):
            copies = np.array(queued, dtype=np.int64)
            if not (self._view.standings(copies) != Standing.SETTLED).any():
                del self._queued[session]
        return {*self._queued, *self._out.values()}
