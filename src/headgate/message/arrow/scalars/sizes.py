"""How long a value is, by its constructor: a table for kernels, in place of branches that no processor can predict."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

_FIXED = {4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}
"""Bytes of values of fixed width with their constructor, by the high half of that."""

_LENGTH_FOLLOWS = 0xFF00


@functools.cache
def size_table() -> NDArray[np.int32]:
    """The sizes of values by constructor; 0 for a constructor that is not a scalar in a common encoding.

    The lowest eight bits are the bytes of the value; the next eight are a mask of the byte behind the constructor,
    which is added. It lives as long as the process.
    """
    table = np.zeros(256, dtype=np.int32)
    for first, last in ((0x40, 0x44), (0x50, 0x56), (0x60, 0x61), (0x70, 0x73), (0x80, 0x83), (0x98, 0x98)):
        table[first : last + 1] = _FIXED[first >> 4]
    table[[0xA0, 0xA1, 0xA3]] = 2 | _LENGTH_FOLLOWS
    return table
