"""Sorted ranges of copies that merge as they grow: the copies of a view that were seen."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from headgate.ledger.copy_numbers import NO_COPY, Int64Array


class Ranges:
    """Ranges `start … stop` of copies, ascending, neither touching nor empty. 16 bytes a range.

    Cost: finding is logarithmic; adding in the middle moves the ranges behind it.
    """

    __slots__ = ("starts", "stops")

    def __init__(self) -> None:
        self.starts = array("q")
        self.stops = array("q")

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.stops, strict=True)

    def __contains__(self, copy: int) -> bool:
        row = bisect_right(self.starts, copy) - 1
        return row >= 0 and copy < self.stops[row]

    def has_run(self, first: int, last: int) -> bool:
        """Whether one range holds both copies, and so all between them."""
        row = bisect_right(self.starts, first) - 1
        return row >= 0 and last < self.stops[row]

    @property
    def stop(self) -> int:
        """The copy behind the last range; 0 without one."""
        return self.stops[-1] if self.stops else 0

    def add(self, start: int, stop: int) -> None:
        """Add `start … stop`; an empty range adds nothing."""
        if start >= stop:
            return
        first, behind = bisect_left(self.stops, start), bisect_right(self.starts, stop)
        if first < behind:
            start, stop = min(start, self.starts[first]), max(stop, self.stops[behind - 1])
        self.starts[first:behind] = array("q", (start,))
        self.stops[first:behind] = array("q", (stop,))

    def add_copies(self, copies: Int64Array) -> None:
        """Add single copies, ascending."""
        for copy in copies.tolist():
            if copy not in self:
                self.add(copy, copy + 1)

    def row_of(self, copy: int) -> int:
        """The number of the range that holds a copy; one does."""
        return bisect_right(self.starts, copy) - 1

    def first_gap(self) -> int:
        """The lowest copy, from 0 on, in no range."""
        return self.stops[0] if self.starts and self.starts[0] == 0 else 0

    def gaps(self, after: int) -> Iterator[tuple[int, int]]:
        """The gaps between the ranges, from `after` on; the last gap ends at NO_COPY."""
        row = max(0, bisect_right(self.starts, after) - 1)
        for start, stop in zip(self.starts[row:], self.stops[row:], strict=True):
            if after < start:
                yield after, start
            after = max(after, stop)
        yield after, NO_COPY
