"""A kernel whose loop is compiled into 128-bit arithmetic: where the helpers are missing, it does not survive."""

from __future__ import annotations

from headgate.kernels.compiler import kernel


@kernel("int64(int64, int64)")
def index_walk(position: int, end: int) -> int:
    """Count the 29-byte records between two positions."""
    count = 0
    while position + 29 <= end:
        count += 1
        position += 29
    return count
