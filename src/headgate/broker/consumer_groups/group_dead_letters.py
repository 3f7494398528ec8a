"""The dead letters of one consumer group: the messages of its stream that were neither resubmitted nor deleted.

The stream keeps its messages for whoever consumes it. A view of its ledger, which is no group's, has what became of
each as a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import Consumption, Movement, ReadCopy, StreamSource, whole_offsets
from headgate.errors import HeadgateError, LogError
from headgate.ledger import View, rule_of

RESUBMITTED_VIEW = "$resubmitted"
"""The key of that view; no group can have this name."""

_BYTES_A_PAGE = 512 << 10
_MOST_RUNS = 1 << 20


class GroupDeadLetters:
    """The dead letters of one group; get it anew for each use, as its stream's ledger is closed when unused."""

    def __init__(self, view: View, source: StreamSource, consumption: Consumption) -> None:
        self._view = view
        self._source = source
        self._consumption = consumption

    @property
    def stop(self) -> int:
        """The copy behind all dead letters that there are now."""
        return self._source.end

    @property
    def unsettled(self) -> int:
        """How many there are."""
        runs = self._view.available(limit=_MOST_RUNS)
        return sum(self._source.count(start, min(stop, self.stop)) for start, stop in runs if start < self.stop)

    def peek(self, from_copy: int, limit: int) -> tuple[list[ReadCopy], int]:
        """At most `limit` dead letters, at or above a copy, and the copy before which there are no others."""
        found: list[NDArray[np.int64]] = []
        left = limit
        for start, stop in self._view.available(from_copy, limit=_MOST_RUNS):
            if not left:
                break
            found.append(self._source.find(max(start, from_copy), stop, left).copies)
            left -= len(found[-1])
        copies = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
        read = self._read(copies)
        if read and (not left or read[-1].copy < copies[-1]):
            return read, read[-1].copy + 1
        return read, self.stop

    def read(self, copies: Sequence[int]) -> list[ReadCopy]:
        """The first of some dead letters, ascending, that are there; at least one if there is any."""
        return self._read(self._unsettled(copies))

    def _read(self, copies: NDArray[np.int64]) -> list[ReadCopy]:
        if not len(copies):
            return []
        with self._consumption.guarded():
            return list(self._source.read(copies, max_bytes=_BYTES_A_PAGE))

    def _unsettled(self, copies: Sequence[int]) -> NDArray[np.int64]:
        here = np.array([copy for copy in copies if 0 <= copy < self.stop and not rule_of(copy)], dtype=np.int64)
        left: NDArray[np.int64] = here[self._view.unseen(here)]
        return left

    def resubmit(
        self, copies: Sequence[int], target: str, movement: Movement, then: Callable[[list[int] | HeadgateError], None]
    ) -> None:
        """Move some dead letters, ascending, to a stream; `then` gets those that were there."""
        self._take(copies, then, lambda left: self._view.move_available(left, target, movement.encode()))

    def delete_chosen(self, copies: Sequence[int], then: Callable[[list[int] | HeadgateError], None]) -> None:
        """Settle some dead letters, ascending; `then` gets those that were there."""
        self._take(copies, then, lambda left: self._view.complete_ranges([(copy, copy + 1) for copy in left.tolist()]))

    def delete_all(self, then: Callable[[int | HeadgateError], None]) -> None:
        """Settle all that there are now; `then` gets how many."""
        count = self.unsettled
        try:
            self._view.complete_ranges([(0, self.stop)] if self.stop else [])
        except LogError as error:
            then(error)
            return
        self._consumption.tell(then, count)

    def _take(
        self,
        copies: Sequence[int],
        then: Callable[[list[int] | HeadgateError], None],
        take: Callable[[NDArray[np.int64]], None],
    ) -> None:
        try:
            left = self._unsettled(copies)
            take(left)
            self._view.postpone((), 0, covered=whole_offsets(left))
        except LogError as error:
            then(error)
            return
        self._consumption.tell(then, left.tolist())

    def waiting_moves(self, target: str) -> int:
        """How many dead letters are on their way to a target."""
        return len(self._consumption.ledger.moves().get(target, ()))
