"""Large buffers that are reused: fresh memory from the system costs as much as reading into it."""

from __future__ import annotations

import sys
import threading

import numpy as np
from numpy.typing import NDArray

_SMALLEST_BYTES = 256 << 10
_MEBIBYTE = 1 << 20
_MOST_BYTES = 16 << 20
_UNUSED = 3
"""References to an unused buffer: the pool's list, the loop variable, the argument of `sys.getrefcount`."""


class BufferPool:
    """Gives buffers, and reuses a buffer once nothing refers to it any more: no view of it, no array over it.

    Buffers are not released by a call; the reference counts of CPython show when one is free. Safe for several threads.
    """

    def __init__(self, *, most_bytes: int = _MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._most_bytes = most_bytes
        self._buffers: list[NDArray[np.uint8]] = []

    def take(self, count: int) -> NDArray[np.uint8]:
        """A buffer of at least `count` bytes, with arbitrary content."""
        if count < _SMALLEST_BYTES:
            return np.empty(count, dtype=np.uint8)
        with self._lock:
            for buffer in self._buffers:
                if count <= len(buffer) <= 2 * count and sys.getrefcount(buffer) == _UNUSED:
                    return buffer
            fresh = np.empty(-(-count // _MEBIBYTE) * _MEBIBYTE, dtype=np.uint8)
            if self.bytes_held + len(fresh) > self._most_bytes:
                self._drop_unused()
            if self.bytes_held + len(fresh) <= self._most_bytes:
                self._buffers.append(fresh)
            return fresh

    @property
    def bytes_held(self) -> int:
        """Bytes of the buffers kept for reuse."""
        return sum(map(len, self._buffers))

    def trim(self) -> None:
        """Free the unused buffers."""
        with self._lock:
            self._drop_unused()

    def _drop_unused(self) -> None:
        kept = []
        for buffer in self._buffers:
            if sys.getrefcount(buffer) > _UNUSED:
                kept.append(buffer)
        self._buffers = kept
