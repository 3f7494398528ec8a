"""The CRCs of chunks: of many at once, and of one in a file."""

from __future__ import annotations

import os
import zlib

import numpy as np
from numpy.typing import NDArray

from headgate import kernels

_CRC_PIECE_BYTES = 1 << 20


def first_mismatch(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], expected: NDArray[np.int64]
) -> int | None:
    """Number of the first byte range of `data` whose CRC-32 is not the expected one; None when all are right.

    `starts`, `sizes` (bytes, inside `data`) and `expected` (unsigned) are `(ranges,)` int64. Cost: about 25 GB/s where
    the processor multiplies without carries, else the standard library's speed.
    """
    kernel = kernels.load("headgate.kernels.checksum")
    if kernel is not None and kernel.HAS_CARRYLESS_MULTIPLY:
        arrays = [np.ascontiguousarray(array, dtype=np.int64) for array in (starts, sizes, expected)]
        addresses = [kernels.address_of(array) for array in arrays]
        table = kernel.byte_table()
        number = kernel.first_mismatch(kernels.address_of(data), *addresses, len(starts), kernels.address_of(table))
        return None if number == len(starts) else int(number)
    view = data.data
    for number, (start, size, crc) in enumerate(zip(starts.tolist(), sizes.tolist(), expected.tolist(), strict=True)):
        if zlib.crc32(view[start : start + size]) != crc:
            return number
    return None


def crc_of_range(descriptor: int, position: int, count: int) -> int:
    """CRC-32 of a range of a file, read piece by piece; of fewer bytes if the file ends before."""
    crc = 0
    while count > 0:
        piece = os.pread(descriptor, min(count, _CRC_PIECE_BYTES), position)
        if not piece:
            break
        crc = zlib.crc32(piece, crc)
        position += len(piece)
        count -= len(piece)
    return crc
