"""Sequences of named publishers that were refused: nothing later is confirmed before they are stored.

A sequence that is not above the last one of its publisher counts as stored, in this process and in the next. If a later
message were stored before a refused one, the refused one would be lost, and yet confirmed. Therefore later sequences of
a publisher are refused until its refused ones are stored. A publisher that is declared again begins again, behind the
last stored sequence. So nothing has to be remembered over a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_RUNS = 4096
"""Limit: runs kept for a reference; above it the two lowest are joined, with all sequences between them."""

Sequences = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Run:
    """Refused sequences `low … high`, and how many publishers had been declared by then."""

    low: int
    high: int
    declared: int


class RefusedSequences:
    """The refused sequences of the publishers of one stream, by reference."""

    __slots__ = ("_declared", "_runs", "unchecked")

    def __init__(self) -> None:
        self._declared = 0
        self._runs: dict[bytes, list[_Run]] = {}
        self.unchecked: dict[bytes, list[_Run]] = {}
        """Refused sequences that may be stored nevertheless, see `check`."""

    def __bool__(self) -> bool:
        return bool(self._runs or self.unchecked)

    def declare(self) -> int:
        """A publisher is declared: gives a number that is higher than that of earlier ones."""
        self._declared += 1
        return self._declared

    def add(self, reference: bytes, sequences: Sequences) -> None:
        """Note refused sequences. Some may be stored nevertheless; `check` finds these."""
        for low, high in _runs_of(np.unique(sequences)):
            _put(self.unchecked, reference, _Run(low, high, self._declared))

    def check(self, last_sequence: Callable[[bytes], int | None]) -> None:
        """Drop stored sequences up to the last one: nothing was written since the last `add`."""
        unchecked, self.unchecked = self.unchecked, {}
        for reference, runs in unchecked.items():
            last = last_sequence(reference)
            for run in runs:
                low = run.low if last is None else max(run.low, last + 1)
                if low <= run.high:
                    _put(self._runs, reference, _Run(low, run.high, run.declared))

    def taken(self, reference: bytes, sequences: Sequences) -> None:
        """Drop rising sequences that are about to be stored; if that fails, they are added again."""
        if reference in self._runs:
            for low, high in _runs_of(sequences):
                _take(self._runs, reference, low, high)

    def holds_back(self, reference: bytes, declared: int) -> bool:
        """Whether any sequence was refused since the publisher with that number was declared."""
        return any(run.declared >= declared for run in self._of(reference, 0))

    def missing(self, reference: bytes, declared: int, last: int | None, sequences: Sequences) -> int | None:
        """The lowest refused sequence, if refused ones have to be stored before these; None: these may be stored.

        `sequences` rise, above `last`, the last one that is stored or about to be. `declared` is the number of their
        publisher.
        """
        behind = 0 if last is None else last + 1
        lowest = None
        is_held = False
        for run in self._of(reference, behind) if len(sequences) else ():
            if run.declared >= declared and run.low <= int(sequences[-1]):
                lowest = run.low if lowest is None else min(lowest, run.low)
                high = min(run.high, int(sequences[-1]))
                first = int(np.searchsorted(sequences, np.uint64(run.low), side="left"))
                stop = int(np.searchsorted(sequences, np.uint64(high), side="right"))
                is_held |= stop - first < high - run.low + 1
        return lowest if is_held else None

    def overtaken(self, reference: bytes, sequences: Sequences) -> bool:
        """Whether any of these sequences, none above the last one, is known to be missing in the stream."""
        return any(
            bool(((sequences >= np.uint64(run.low)) & (sequences <= np.uint64(run.high))).any())
            for run in self._runs.get(reference, ())
        )

    def _of(self, reference: bytes, behind: int) -> Iterator[_Run]:
        """All runs of a reference; unchecked runs only from the sequence `behind` on."""
        yield from self._runs.get(reference, ())
        for run in self.unchecked.get(reference, ()):
            if run.high >= behind:
                yield _Run(max(run.low, behind), run.high, run.declared)


def _runs_of(sequences: Sequences) -> list[tuple[int, int]]:
    """The runs of consecutive numbers among rising ones, first and last included."""
    if not len(sequences):
        return []
    ends = np.flatnonzero(np.diff(sequences) != 1)
    lows, highs = sequences[np.append(0, ends + 1)], sequences[np.append(ends, len(sequences) - 1)]
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _put(kept: dict[bytes, list[_Run]], reference: bytes, run: _Run) -> None:
    _take(kept, reference, run.low, run.high)
    runs = kept.setdefault(reference, [])
    if runs and runs[-1].high + 1 == run.low and runs[-1].declared == run.declared:
        # It continues the last refused run.
        runs[-1] = _Run(runs[-1].low, run.high, run.declared)
        return
    runs.append(run)
    if len(runs) > MAX_RUNS:
        one, other, *rest = sorted(runs, key=lambda each: each.low)
        merged = _Run(one.low, max(one.high, other.high), max(one.declared, other.declared))
        kept[reference] = [merged, *rest]


def _take(kept: dict[bytes, list[_Run]], reference: bytes, low: int, high: int) -> None:
    left: list[_Run] = []
    for run in kept.get(reference, ()):
        if run.high < low or run.low > high:
            left.append(run)
            continue
        if run.low < low:
            left.append(_Run(run.low, low - 1, run.declared))
        if run.high > high:
            left.append(_Run(high + 1, run.high, run.declared))
    if left:
        kept[reference] = left
    else:
        kept.pop(reference, None)
