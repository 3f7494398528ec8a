"""Runs: consecutive offsets whose messages give a subscription a copy by the same rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

NOTHING = np.empty(0, dtype=np.int64)

Runs = tuple[Int64Array, Int64Array]
"""First offsets of runs, and the offsets behind their last ones, `(runs,)` each."""


@dataclass(frozen=True, slots=True)
class CopyRuns:
    """Copies of one subscription: run i has the copies of the offsets `firsts[i] … stops[i]` by rule `rules[i]`.

    Rule 0 is the plain copy. All `(runs,)`, and the copies are in the order of offset, then rule.
    """

    firsts: Int64Array
    stops: Int64Array
    rules: Int64Array

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self.firsts)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """First offset, the offset behind the last one, and rule of each run."""
        return zip(self.firsts.tolist(), self.stops.tolist(), self.rules.tolist(), strict=True)

    @property
    def count(self) -> int:
        """How many copies there are."""
        return int((self.stops - self.firsts).sum())

    def pairs(self) -> list[tuple[int, int]]:
        """Offset and rule of each copy."""
        return [(offset, rule) for first, stop, rule in self for offset in range(first, stop)]

    def from_offset(self, offset: int) -> CopyRuns:
        """The runs of offsets at or above an offset."""
        place = int(np.searchsorted(self.stops, offset, side="right"))
        return CopyRuns(np.maximum(self.firsts[place:], offset), self.stops[place:], self.rules[place:])

    def below(self, offset: int) -> CopyRuns:
        """The runs of offsets below an offset."""
        place = int(np.searchsorted(self.firsts, offset))
        return CopyRuns(self.firsts[:place], np.minimum(self.stops[:place], offset), self.rules[:place])

    def columns(self) -> tuple[Int64Array, Int64Array]:
        """Offset and rule of each copy, `(copies,)` each."""
        lengths = self.stops - self.firsts
        offsets = np.repeat(self.firsts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
        return offsets, np.repeat(self.rules, lengths)

    @staticmethod
    def of_pairs(offsets: Int64Array, rules: Int64Array) -> CopyRuns:
        """Runs of copies that are in order of offset, then rule."""
        starts = run_starts(offsets, rules)
        return CopyRuns(offsets[starts], run_stops(offsets, starts), rules[starts])

    @staticmethod
    def ordered(firsts: Int64Array, stops: Int64Array, rules: Int64Array) -> CopyRuns:
        """Runs in any order, of which some may cover the same offsets by other rules."""
        order = np.lexsort((rules, firsts))
        firsts, stops, rules = firsts[order], stops[order], rules[order]
        if len(firsts) < 2 or (firsts[1:] >= stops[:-1]).all():
            return CopyRuns(firsts, stops, rules)
        offsets, every = CopyRuns(firsts, stops, rules).columns()
        order = np.lexsort((every, offsets))
        return CopyRuns.of_pairs(offsets[order], every[order])


def run_starts(offsets: Int64Array, *alike: Int64Array) -> NDArray[np.intp]:
    """The rows at which a run begins: the offset is not the next one, or one of the columns `alike` changes."""
    if not len(offsets):
        return np.empty(0, dtype=np.intp)
    breaks = offsets[1:] != offsets[:-1] + 1
    for column in alike:
        breaks |= column[1:] != column[:-1]
    return np.concatenate([np.zeros(1, dtype=np.intp), np.flatnonzero(breaks) + 1])


def run_stops(offsets: Int64Array, starts: NDArray[np.intp]) -> Int64Array:
    """The offset behind the last one of each run."""
    ends = np.append(starts[1:], len(offsets))[: len(starts)] - 1
    stops: Int64Array = offsets[ends] + 1
    return stops


def joined_runs(parts: list[Runs]) -> Runs:
    """Runs of several parts, each `(firsts, stops)` ascending and apart from the others, as few as possible."""
    if len(parts) == 1:
        return parts[0]
    firsts = np.concatenate([NOTHING, *[part[0] for part in parts]])
    stops = np.concatenate([NOTHING, *[part[1] for part in parts]])
    order = np.argsort(firsts, kind="stable")
    firsts, stops = firsts[order], stops[order]
    if not len(firsts):
        return firsts, stops
    apart = np.flatnonzero(firsts[1:] != stops[:-1]) + 1
    return firsts[np.append(0, apart)], stops[np.append(apart - 1, len(stops) - 1)]
