"""Checksums of many byte ranges at once, for the entries that a match index lists."""

from __future__ import annotations

from headgate.kernels.checksum import crc32
from headgate.kernels.compiler import kernel
from headgate.kernels.memory import load_i64, store_i64


@kernel("void(int64, int64, int64, int64, int64, int64)")
def checksums(data: int, starts: int, sizes: int, found: int, count: int, table: int) -> None:
    """Write the CRC-32 of `count` byte ranges to `found`.

    `starts`, `sizes`, `found` are addresses of int64 arrays; starts count from `data`.
    """
    for number in range(count):
        at = number << 3
        store_i64(found + at, crc32(data + load_i64(starts + at), load_i64(sizes + at), table))
