"""CRCs of chunks: of many chunks at once, and of one chunk in a file."""

from __future__ import annotations

import os
import zlib

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader

_CRC_PIECE_BYTES = 1 << 20
_KERNEL = "headgate.kernels.checksum"


def first_mismatch(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    expected: NDArray[np.int64],
    *,
    only_loaded: bool = False,
) -> int | None:
    """The number of the first byte range of `data` whose CRC-32 is not the expected one; None when all are right.

    `starts`, `sizes` (bytes, inside `data`) and `expected` (unsigned) are `(ranges,)` int64. Cost: about 25 GB/s if the
    processor has carry-less multiplication, else the standard library's speed. With `only_loaded` kernels are used only
    if the process has loaded them: planning a read does not load them.
    """
    kernel = kernels.loaded(_KERNEL) if only_loaded else kernels.load(_KERNEL)
    if kernel is not None and kernel.HAS_CARRYLESS_MULTIPLY:
        arrays = [np.ascontiguousarray(array, dtype=np.int64) for array in (starts, sizes, expected)]
        addresses = [kernels.address_of(array) for array in arrays]
        table = kernels.byte_table()
        number = kernel.first_mismatch(kernels.address_of(data), *addresses, len(starts), kernels.address_of(table))
        return None if number == len(starts) else int(number)
    view = data.data
    for number, (start, size, crc) in enumerate(zip(starts.tolist(), sizes.tolist(), expected.tolist(), strict=True)):
        if zlib.crc32(view[start : start + size]) != crc:
            return number
    return None


def crcs_of_ranges(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The CRC-32 of each byte range of `data`, `(ranges,)` int64; by the kernel only if the process has loaded it."""
    kernel = kernels.loaded(_KERNEL)
    if kernel is not None and kernel.HAS_CARRYLESS_MULTIPLY:
        found = np.empty(len(starts), dtype=np.int64)
        begins, lengths = (np.ascontiguousarray(array, dtype=np.int64) for array in (starts, sizes))
        address = kernels.address_of
        kernel.checksums(
            address(data), address(begins), address(lengths), address(found), len(found), address(kernels.byte_table())
        )
        return found
    view = data.data
    ranges = zip(starts.tolist(), sizes.tolist(), strict=True)
    return np.fromiter((zlib.crc32(view[start : start + size]) for start, size in ranges), np.int64, len(starts))


def has_checksum(descriptor: int, position: int, header: ChunkHeader) -> bool:
    """Whether the data of the chunk at `position` of a file has the CRC-32 of its header; read piece by piece."""
    position += CHUNK_HEADER_BYTES + header.bloom_length
    count, crc = header.data_length, 0
    while count > 0:
        piece = os.pread(descriptor, min(count, _CRC_PIECE_BYTES), position)
        if not piece:
            break
        crc = zlib.crc32(piece, crc)
        position += len(piece)
        count -= len(piece)
    return crc == header.crc
