"""Questions about columns, asked in the way that costs least for their length.

Many are often of one row, where a reduction of numpy costs microseconds all the same: a message that comes alone is
asked a dozen of them on its way into a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW_ROWS = 8
"""Up to this many rows plain Python costs less."""


def total(column: NDArray[Any]) -> int:
    """The sum of whole numbers."""
    return sum(column.tolist()) if len(column) <= FEW_ROWS else int(column.sum())


def smallest(column: NDArray[Any]) -> int:
    """The smallest of some whole numbers, at least one."""
    return min(column.tolist()) if len(column) <= FEW_ROWS else int(column.min())


def largest(column: NDArray[Any]) -> int:
    """The largest of some whole numbers, at least one."""
    return max(column.tolist()) if len(column) <= FEW_ROWS else int(column.max())


def side_by_side(parts: Sequence[bytes | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and lengths of byte strings that are joined; the length of None is −1, and takes no byte."""
    starts, lengths = [], []
    position = 0
    for part in parts:
        starts.append(position)
        if part is None:
            lengths.append(-1)
        else:
            lengths.append(len(part))
            position += len(part)
    return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)


def totals(column: NDArray[Any], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sums of the parts `bounds[i] … bounds[i + 1]` of whole numbers or truths; a part may be empty."""
    sums = np.zeros(len(bounds) - 1, dtype=np.int64)
    filled = np.flatnonzero(np.diff(bounds))
    if len(filled):
        sums[filled] = np.add.reduceat(column[: bounds[-1]], bounds[filled], dtype=np.int64)
    return sums


def order_of(numbers: NDArray[np.int64], *, below: int) -> NDArray[np.intp]:
    """The stable order of numbers from 0 to `below` - 1.

    Numbers of 16 bits are sorted by their digits, several times faster than wide ones.
    """
    return np.argsort(numbers.astype(np.uint16) if below <= 1 << 16 else numbers, kind="stable")


def rows_of(column: NDArray[Any]) -> list[int]:
    """The rows that are not zero, or true."""
    if len(column) <= FEW_ROWS:
        return [row for row, value in enumerate(column.tolist()) if value]
    return np.flatnonzero(column).tolist()
