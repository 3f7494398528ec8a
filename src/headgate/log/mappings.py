"""Mapped files. Pages that readers have passed are given back to the system.

A page of a mapped file counts as memory of the process from its first use on, although the system may take it away at
any time. So a reader of a long stream would seem to need as much memory as it has read. Therefore all readers of the
process report the bytes they use, and after each half of `MOST_USED_BYTES` all other pages are given back. They stay in
the system's cache, and the next use of such a page brings it back by a short fault.
"""

from __future__ import annotations

import mmap
import threading
import weakref

MOST_USED_BYTES = 128 << 20

_NOTHING = (0, 0)


class Mappings:
    """The mapped files of a process; for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: weakref.WeakKeyDictionary[mmap.mmap, tuple[int, int]] = weakref.WeakKeyDictionary()
        """The range of each mapping that was used since pages were last given back."""
        self._used_bytes = 0

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """Map the first bytes of a file for reading."""
        made = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        with self._lock:
            self._used[made] = _NOTHING
        return made

    def use(self, mapped: mmap.mmap, start: int, stop: int, count: int) -> None:
        """Note that `count` bytes in the part `start … stop` of a mapping are about to be read."""
        with self._lock:
            first, last = self._used[mapped]
            self._used[mapped] = (min(first, start), max(last, stop)) if last else (start, stop)
            self._used_bytes += count
            if self._used_bytes >= MOST_USED_BYTES // 2:
                self._used_bytes = 0
                self._give_back()

    def _give_back(self) -> None:
        for mapped, (first, last) in list(self._used.items()):
            self._used[mapped] = _NOTHING
            if last - first > MOST_USED_BYTES:
                # A reader reads here and there, and uses a small part of the bytes in between.
                first = last = 0
            for start, stop in ((0, first), (last, len(mapped))):
                start += -start % mmap.PAGESIZE
                if start < stop:
                    mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)


MAPPINGS = Mappings()
