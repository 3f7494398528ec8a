"""The lookup table of CRC-32 for kernels: an array, made once."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0xEDB88320


@functools.cache
def byte_table() -> NDArray[np.int64]:
    """The 256 words that `crc32` of `kernels/checksum.py` looks up; it lives as long as the process."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ _POLYNOMIAL, table >> 1)
    return table
