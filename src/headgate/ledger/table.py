"""The known, unsettled copies of one view: four columns, sorted by copy.

    copy      the copy
    claim     the number of its claim; 0: it is not claimed
    attempt   how often it was claimed; −1: the row is settled and waits to be removed
    until     claimed: when the claim ends, IN_SESSION if with its session's lock;
              else: the time before which it is not available; 0: it is available

32 bytes a copy. Taking copies in order writes at the end of the columns, settling them in order moves their beginning;
the cost of both does not depend on the number of copies. Only taking a copy below known ones moves rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.ledger.copy_numbers import NO_COPY, Int64Array

IN_SESSION = 1 << 62
"""In `until` of a claimed copy: it stays claimed as long as the lock of its session."""

NEVER = (1 << 63) - 1
_SETTLED = -1
_COPY, _CLAIM, _ATTEMPT, _UNTIL = range(4)
_LEAST_ROWS = 8
_ROWS_PER_MS = 10_000
_LOOK_ROWS = 4096
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Rows:
    """Some rows as columns, `(rows,)` int64, ascending by copy; see the head of the module."""

    copies: Int64Array
    claims: Int64Array
    attempts: Int64Array
    untils: Int64Array

    def __len__(self) -> int:
        return len(self.copies)

    def take(self, rows: NDArray[np.bool_]) -> Rows:
        """The rows selected by a mask."""
        return Rows(self.copies[rows], self.claims[rows], self.attempts[rows], self.untils[rows])

    def stacked(self) -> NDArray[np.int64]:
        """The columns as one array, `(4, rows)`."""
        return np.stack((self.copies, self.claims, self.attempts, self.untils))


@dataclass(slots=True)
class RowCounts:
    """How many known copies are `claimed`, `waiting` for their time, and `available` again."""

    claimed: int = 0
    waiting: int = 0
    available: int = 0


_NO_COLUMNS = np.empty((4, 0), dtype=np.int64)
_NO_COPIES = _NO_COLUMNS[_COPY].data
"""Shared by all tables without rows: thousands of subscriptions may have no unsettled copy."""


class CopyTable:
    """See the head of the module. Copies in arguments are ascending, each once."""

    __slots__ = ("_columns", "_copies", "_start", "_stop", "live", "lowest_available", "next_due_ms")

    def __init__(self) -> None:
        self._columns, self._copies = _NO_COLUMNS, _NO_COPIES
        self._start = self._stop = 0
        self.live = 0
        """Number of copies in the table."""
        self.next_due_ms = NEVER
        """No claim and no wait ends before this time."""
        self.lowest_available = NO_COPY
        """No copy below it is available."""

    # reading

    @property
    def first(self) -> int:
        """The lowest copy; NO_COPY without one."""
        return self._copies[self._start] if self._start < self._stop else NO_COPY

    @property
    def last(self) -> int:
        """The highest copy that may be in the table; −1 without one."""
        return self._copies[self._stop - 1] if self._start < self._stop else -1

    def find(self, copies: Int64Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The place of each copy, and whether it is in the table; else its place is arbitrary. Any order."""
        if not self.live:
            return np.zeros(len(copies), dtype=np.intp), np.zeros(len(copies), dtype=np.bool_)
        places = self._places(copies)
        return places, (self._columns[_COPY, places] == copies) & (self._columns[_ATTEMPT, places] >= 0)

    def find_claimed(self, copies: Int64Array, claims: Int64Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The place of each copy, and whether it has this claim, which is not 0. As `find`."""
        if not self.live:
            return np.zeros(len(copies), dtype=np.intp), np.zeros(len(copies), dtype=np.bool_)
        places = self._places(copies)
        found = (self._columns[_COPY, places] == copies) & (self._columns[_CLAIM, places] == claims)
        return places, found & (claims > 0)

    def rows_at(self, places: NDArray[np.intp]) -> Rows:
        """The rows at places from `find`."""
        return Rows(*self._columns[:, places])

    def rows_between(self, start: int, stop: int) -> Rows:
        """The rows of all copies `start … stop`."""
        lo, hi = self._span(start, stop)
        window = self._columns[:, lo:hi]
        return Rows(*window[:, window[_ATTEMPT] >= 0])

    def rows_from(self, start: int, limit: int) -> tuple[Rows, int]:
        """At most `limit` rows from copy `start` on, and the copy of the next row; NO_COPY: there is none."""
        lo, _ = self._span(start, NO_COPY)
        hi = min(self._stop, lo + limit)
        window = self._columns[:, lo:hi]
        following = self._copies[hi] if hi < self._stop else NO_COPY
        return Rows(*window[:, window[_ATTEMPT] >= 0]), following

    def runs(self, places: NDArray[np.intp]) -> list[tuple[int, int]]:
        """Places from `find`, at least one, as runs (first copy, last copy) with no other copy in between."""
        if len(places) == 1:
            copy = self._copies[int(places[0])]
            return [(copy, copy)]
        places = np.sort(places)
        ends = np.flatnonzero(np.diff(places) > 1)
        if not len(ends):
            return [(self._copies[int(places[0])], self._copies[int(places[-1])])]
        firsts, lasts = np.r_[places[:1], places[ends + 1]], np.r_[places[ends], places[-1:]]
        column = self._columns[_COPY]
        return list(zip(column[firsts].tolist(), column[lasts].tolist(), strict=True))

    def available(self, after: int, limit: int) -> Int64Array:
        """The lowest available copies from `after` on, at most `limit`."""
        if self.lowest_available == NO_COPY:
            return _NOTHING
        found: list[Int64Array] = []
        missing = limit
        lo, _ = self._span(max(after, self.lowest_available), NO_COPY)
        while lo < self._stop and missing > 0:
            window = self._columns[:, lo : min(lo + _LOOK_ROWS, self._stop)]
            free = (window[_CLAIM] == 0) & (window[_UNTIL] == 0) & (window[_ATTEMPT] >= 0)
            found.append(window[_COPY, free][:missing])
            missing -= len(found[-1])
            lo += _LOOK_ROWS
        copies = np.concatenate([_NOTHING, *found])
        if after <= self.lowest_available:
            self.lowest_available = int(copies[0]) if len(copies) else NO_COPY
        return copies

    def counts(self) -> RowCounts:
        """The number of copies in each state. Cost: a few nanoseconds a copy."""
        window = self._columns[:, self._start : self._stop]
        claimed = int(np.count_nonzero(window[_CLAIM]))
        waiting = int(np.count_nonzero((window[_CLAIM] == 0) & (window[_UNTIL] != 0)))
        return RowCounts(claimed, waiting, self.live - claimed - waiting)

    # changing

    def put(self, rows: Rows) -> None:
        """Add rows, or replace the rows of the same copies."""
        if not len(rows.copies):
            return
        if int(rows.copies[0]) > self.last:
            self._append(rows)
        else:
            places, known = self.find(rows.copies)
            self._columns[:, places[known]] = rows.take(known).stacked()
            if not known.all():
                self._insert(rows.take(~known).stacked())
        self._note(rows)

    def set(self, places: NDArray[np.intp], *, claim: int | None = None, until_ms: int) -> None:
        """Change rows at places from `find`: their time, and with `claim` also their claim; 0 ends it."""
        if claim is not None:
            self._columns[_CLAIM, places] = claim
        self._columns[_UNTIL, places] = until_ms
        self._note(self.rows_at(places))

    def settle(self, start: int, stop: int) -> None:
        """Remove all copies `start … stop`."""
        lo, hi = self._span(start, stop)
        if lo == hi:
            return
        window = self._columns[:, lo:hi]
        self.live -= 1 if hi - lo == 1 and window[_ATTEMPT, 0] >= 0 else int(np.count_nonzero(window[_ATTEMPT] >= 0))
        window[_CLAIM:] = 0
        window[_ATTEMPT] = _SETTLED
        if lo == self._start:
            self._start = hi
            self._skip_settled()
        if hi == self._stop:
            self._stop = lo if lo > self._start else self._start
        if not self.live:
            self._empty()
        elif self._stop - self._start > 2 * self.live + _LEAST_ROWS:
            self._compact()

    def expire(self, now_ms: int) -> Rows:
        """Make copies available whose claim or wait ended by `now_ms`; gives their rows as they were before.

        It looks at every row, so for a large table it is not due again before 1 ms per 10 000 rows has passed: among a
        million copies, one may be found 0.1 s late.
        """
        window = self._columns[:, self._start : self._stop]
        untils = window[_UNTIL]
        due = (untils > 0) & (untils <= now_ms)
        before = Rows(*window[:, due])
        if len(before):
            window[_CLAIM, due] = 0
            untils[due] = 0
            self.lowest_available = min(self.lowest_available, int(before.copies[0]))
        later = untils[(untils > 0) & (untils < IN_SESSION)]
        least = int(later.min()) if len(later) else NEVER
        self.next_due_ms = max(least, now_ms + self.live // _ROWS_PER_MS) if least < NEVER else NEVER
        return before

    # inside

    def _note(self, rows: Rows) -> None:
        """Lower the bounds `next_due_ms` and `lowest_available` for changed rows."""
        if len(rows.copies) == 1:
            until, copy = int(rows.untils[0]), int(rows.copies[0])
            if until:
                self.next_due_ms = min(self.next_due_ms, until if until < IN_SESSION else NEVER)
            elif not rows.claims[0]:
                self.lowest_available = min(self.lowest_available, copy)
            return
        timed = rows.untils[rows.untils > 0]
        if len(timed):
            least = int(timed.min())
            if least < min(self.next_due_ms, IN_SESSION):
                self.next_due_ms = least
        if len(timed) < len(rows):
            free = rows.copies[(rows.claims == 0) & (rows.untils == 0)]
            if len(free):
                self.lowest_available = min(self.lowest_available, int(free.min()))

    def _places(self, copies: Int64Array) -> NDArray[np.intp]:
        if len(copies) == 1:
            # Finding a single copy so takes a tenth of the time.
            return np.array((bisect_left(self._copies, int(copies[0]), self._start, self._stop - 1),), dtype=np.intp)
        places = np.searchsorted(self._columns[_COPY, self._start : self._stop], copies)
        np.minimum(places, self._stop - self._start - 1, out=places)
        places += self._start
        return places

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        lo = self._start if start <= self.first else bisect_left(self._copies, start, self._start, self._stop)
        hi = self._stop if stop > self.last else bisect_left(self._copies, stop, lo, self._stop)
        return lo, hi

    def _empty(self) -> None:
        """Begin again at the front; frees the memory of many rows."""
        self._start = self._stop = 0
        if self._columns.shape[1] > _LOOK_ROWS:
            self._compact()

    def _skip_settled(self) -> None:
        """Let the window begin with an unsettled copy."""
        attempts = self._columns[_ATTEMPT]
        while self._start < self._stop and attempts[self._start] < 0:
            window = attempts[self._start : min(self._stop, self._start + _LOOK_ROWS)] >= 0
            self._start += int(window.argmax()) if window.any() else len(window)

    def _append(self, rows: Rows) -> None:
        count = len(rows.copies)
        if self._stop + count > self._columns.shape[1]:
            self._compact(spare=count)
        stop = self._stop + count
        for column, values in enumerate((rows.copies, rows.claims, rows.attempts, rows.untils)):
            self._columns[column, self._stop : stop] = values
        self._stop = stop
        self.live += count

    def _insert(self, new: NDArray[np.int64]) -> None:
        self._compact(spare=new.shape[1])
        stop = self.live + new.shape[1]
        places = np.searchsorted(self._columns[_COPY, : self.live], new[_COPY])
        self._columns[:, :stop] = np.insert(self._columns[:, : self.live], places, new, axis=1)
        self._stop = self.live = stop

    def _compact(self, *, spare: int = 0) -> None:
        """Remove settled rows, and make room for `spare` more."""
        window = self._columns[:, self._start : self._stop]
        kept = window[:, window[_ATTEMPT] >= 0]
        capacity = max(_LEAST_ROWS, 2 * self.live + spare)
        self._columns = np.empty((4, capacity), dtype=np.int64)
        self._columns[:, : self.live] = kept
        self._copies = self._columns[_COPY].data
        self._start, self._stop = 0, self.live
