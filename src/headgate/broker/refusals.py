"""Sequences of named publishers that could not be written: they must not count as duplicates later."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

MAX_RANGES = 256
"""Ranges kept per reference; beyond it the two oldest become one that holds what lies between them, too."""


class RefusedSequences:
    """Per reference of a stream the ranges of sequences whose write failed, first and last included.

    A named publisher may go on with newer sequences after an error; then the refused ones lie below its last sequence
    without being in the stream. Kept while the broker runs.
    """

    __slots__ = ("_ranges", "_unchecked")

    def __init__(self) -> None:
        self._ranges: dict[bytes, list[tuple[int, int]]] = {}
        self._unchecked: dict[bytes, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, reference: bytes, sequences: NDArray[np.uint64], *, written: int | None) -> None:
        """A write of these rising sequences failed; those up to `written` are in the stream nevertheless."""
        failed = sequences if written is None else sequences[sequences > np.uint64(written)]
        if not len(failed):
            return
        _keep(self._ranges, reference, (int(failed[0]), int(failed[-1])))

    def add_unchecked(self, reference: bytes, sequences: NDArray[np.uint64]) -> None:
        """These were refused while nobody could look which of them are in the stream; `check` finds that out."""
        if len(sequences):
            _keep(self._unchecked, reference, (int(sequences.min()), int(sequences.max())))

    def check(self, last_sequence: Callable[[bytes], int | None]) -> None:
        """A writer is there again, and nothing was written since: what is behind its last sequences was refused."""
        if not self._unchecked:
            return
        unchecked, self._unchecked = self._unchecked, {}
        for reference, ranges in unchecked.items():
            written = last_sequence(reference)
            for low, high in ranges:
                if written is None or high > written:
                    _keep(self._ranges, reference, (low if written is None else max(low, written + 1), high))

    def written(self, reference: bytes, sequences: NDArray[np.uint64]) -> None:
        """These rising sequences are in the stream now. With holes among them, the ranges stay: they may be there."""
        ranges = self._ranges.get(reference)
        if not ranges or not len(sequences):
            return
        first, last = int(sequences[0]), int(sequences[-1])
        if last - first + 1 != len(sequences):
            return
        left = []
        for low, high in ranges:
            left += [(low, min(high, first - 1)), (max(low, last + 1), high)]
        left = [(low, high) for low, high in left if low <= high]
        if left:
            self._ranges[reference] = left
        else:
            del self._ranges[reference]

    def holds(self, reference: bytes, sequences: NDArray[np.uint64]) -> bool:
        """Whether any of the sequences was refused."""
        return any(
            bool(((sequences >= np.uint64(low)) & (sequences <= np.uint64(high))).any())
            for low, high in self._ranges.get(reference, ())
        )


def _keep(kept: dict[bytes, list[tuple[int, int]]], reference: bytes, found: tuple[int, int]) -> None:
    ranges = kept.setdefault(reference, [])
    ranges.append(found)
    if len(ranges) > MAX_RANGES:
        (first, last), (other_first, other_last) = ranges[:2]
        ranges[:2] = [(min(first, other_first), max(last, other_last))]
