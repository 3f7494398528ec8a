"""A file with holes on this machine, filled from an object as its bytes are needed.

    <folder>/<name>      the size of the object; a part that was not read yet is a hole
    <folder>/blocks      one byte for each block of the file: 1 when it is there

Readers map the file or read it as any other, and first ask for the bytes that they are about to read. All processes of
a machine share it. A block is marked after it was written, so the crash of a process leaves no wrong mark.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.log.files import storage_error
from headgate.log.remote.cache import note_fetched
from headgate.log.remote.storage import RemoteObject, storage_at

BLOCK_BYTES = 1 << 20
"""Bytes that are fetched at least."""

BLOCKS_NAME = "blocks"

_FETCHED_AT_ONCE = 8
"""Limit: blocks of one request."""

_THREADS = 8
_FEWEST_AHEAD = 16
_MOST_AHEAD = 64
"""Limits: blocks that are fetched ahead of a reader that reads one after the other; doubled as long as it does."""


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """The object that a file is filled from; `size_bytes` is its size, as it is listed."""

    location: str
    name: str
    size_bytes: int


def make_blocks(folder: Path, size_bytes: int) -> None:
    """Make the marks of a file of which nothing is there yet. Raises OSError."""
    (folder / BLOCKS_NAME).write_bytes(bytes(-(-size_bytes // BLOCK_BYTES)))


class PartialFile:
    """An open file with holes: its `descriptor`, and those of files `beside` it, which belong to it. For any thread.

    Raises FileNotFoundError if they are not there.
    """

    def __init__(self, folder: Path, name: str, source: ObjectSource, *, beside: Sequence[str] = ()) -> None:
        self._folder = folder
        self._source = source
        # All files are opened in one folder: another of its name may be made when this one is removed.
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened: list[int] = []
        try:
            for each, mode in [(name, os.O_RDWR), (BLOCKS_NAME, os.O_RDWR), *((each, os.O_RDONLY) for each in beside)]:
                opened.append(os.open(each, mode | os.O_CLOEXEC, dir_fd=folder_fd))
            self._mapped = mmap.mmap(opened[1], 0)
            with contextlib.suppress(OSError):
                # The time of the last use.
                os.utime(folder)
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        finally:
            os.close(folder_fd)
        os.close(opened.pop(1))
        self.descriptor = opened[0]
        self.beside = opened[1:]
        self._blocks = np.frombuffer(self._mapped, dtype=np.uint8)
        self._lock = threading.RLock()
        """Entered twice where a fetch is done before somebody waits for it."""
        self._coming: dict[int, Future[None]] = {}
        self._object: RemoteObject | None = None
        self._is_complete = False
        self._is_closed = False
        self._next = 0
        """The block after the last one that was asked for; who begins at the front is taken for one who reads all."""
        self._ahead = 0

    def close(self) -> None:
        """Close the files, at once or, where something is being read ahead, when that has ended."""
        with self._lock:
            self._is_closed = True
            coming = list(self._coming.values())
        for each in coming:
            each.cancel()
        self._close_unused()

    def _close_unused(self) -> None:
        with self._lock:
            if self._coming or self.descriptor < 0:
                return
            descriptors = self.descriptor, *self.beside
            self.descriptor = -1
        for descriptor in descriptors:
            os.close(descriptor)

    def make_present(self, start: int, stop: int) -> None:
        """Fetch the bytes `start … stop` of the file, unless they are there. Raises RemoteStorageError, LogError."""
        if self._is_complete or stop <= start:
            return
        first, last = start // BLOCK_BYTES, (min(stop, self._source.size_bytes) - 1) // BLOCK_BYTES
        missing = np.flatnonzero(self._blocks[first : last + 1] == 0) + first
        ahead = self._to_read_ahead(first, last)
        if len(missing) or ahead:
            self._fetch(missing.tolist(), ahead)

    def make_ranges_present(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Fetch byte ranges of the file, ascending, as `make_present` does."""
        if self._is_complete or not len(starts):
            return
        first, last = int(starts[0]) // BLOCK_BYTES, (int(stops[-1]) - 1) // BLOCK_BYTES
        count = last - first + 1
        # One more for each range that covers a block, one less behind it.
        steps = np.bincount(starts // BLOCK_BYTES - first, minlength=count + 1)
        steps -= np.bincount((stops - 1) // BLOCK_BYTES + 1 - first, minlength=count + 1)
        wanted = np.cumsum(steps)[:count] > 0
        missing = np.flatnonzero(wanted & (self._blocks[first : last + 1] == 0)) + first
        ahead = self._to_read_ahead(first, last) if wanted.all() else []
        if len(missing) or ahead:
            self._fetch(missing.tolist(), ahead)

    def _to_read_ahead(self, first: int, last: int) -> list[int]:
        """The blocks to fetch behind the wanted ones: the more, the longer a reader has read without a gap."""
        if last < self._next:
            return []
        is_next = first in (self._next - 1, self._next)
        self._next = last + 1
        self._ahead = min(_MOST_AHEAD, max(_FEWEST_AHEAD, 2 * self._ahead)) if is_next else 0
        behind = self._blocks[last + 1 : last + 1 + self._ahead]
        # As long as half of it is on its way, nothing more: requests are few and large.
        if not len(behind):
            return []
        lacking = [last + 1 + int(row) for row in np.flatnonzero(behind == 0)]
        with self._lock:
            lacking = [block for block in lacking if block not in self._coming]
        return lacking if 2 * len(lacking) >= len(behind) else []

    def _fetch(self, missing: list[int], ahead: list[int]) -> None:
        with self._lock:
            for blocks in (*_runs([each for each in missing if each not in self._coming]), *_runs(ahead)):
                future = _pool(os.getpid()).submit(self._fetch_run, blocks[0], blocks[-1] + 1)
                for block in blocks:
                    self._coming[block] = future
                future.add_done_callback(functools.partial(self._forget, blocks))
            waited = [self._coming[block] for block in missing if block in self._coming]
        for each in dict.fromkeys(waited):
            each.result()
        if not missing:
            return
        # One that failed for another reader's sake is tried again for this one.
        left = [block for block in missing if not self._blocks[block]]
        for blocks in _runs(left):
            self._fetch_run(blocks[0], blocks[-1] + 1)
        if self._blocks.all():
            self._is_complete = True

    def _forget(self, blocks: list[int], _done: Future[None]) -> None:
        with self._lock:
            for block in blocks:
                self._coming.pop(block, None)
            is_closed = self._is_closed
        if is_closed:
            self._close_unused()

    def _fetch_run(self, first: int, stop: int) -> None:
        source = self._source
        begin, end = first * BLOCK_BYTES, min(stop * BLOCK_BYTES, source.size_bytes)
        remote = self._object
        if remote is None:
            storage = storage_at(source.location)
            remote = storage.open(source.name)
            if remote.size() != source.size_bytes:
                raise CorruptChunkError(
                    f"{remote.size()} bytes, the catalogue says {source.size_bytes}", path=storage.url(source.name)
                )
            self._object = remote
        content = memoryview(remote.read(begin, end))
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(self.descriptor, content[done:], begin + done)
        except OSError as error:
            raise storage_error(error, self._folder) from error
        self._blocks[first:stop] = 1
        note_fetched(end - begin)


def _runs(blocks: Iterable[int]) -> list[list[int]]:
    """Blocks, ascending, as runs without a gap, of at most `_FETCHED_AT_ONCE`."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and runs[-1][-1] + 1 == block and len(runs[-1]) < _FETCHED_AT_ONCE:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


@functools.lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads that fetch; a forked process has its own."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="headgate-remote")
