"""Remote segments on this machine: files with holes, filled from object storage as their bytes are needed.

    <cache>/remote-<boot of the machine>/<identity>/<first offset>-<CRC-32>/
        <first offset>.segment          size and fronts of chunks as in the original, its data a hole that is filled
        <first offset>.index, .seal     whole, from the summary
        blocks                          one byte for each block of the segment: 1 when it is there

Readers use the files as any other pair: they map them, and first ask for the blocks with the data that they are about
to read. All processes of a machine share the files. A block is marked after it was written, so the crash of a process
leaves no wrong mark. The crash of the machine could, therefore each boot has a folder of its own.

The cache has at most `HEADGATE_REMOTE_CACHE_BYTES` (8 GiB); beyond that the segments that were opened longest ago are
removed. A reader that has one open goes on.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import secrets
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.cache_folders import CACHE_VARIABLE, cache_folders
from headgate.errors import ConfigError, CorruptChunkError, OffsetOutOfRangeError
from headgate.log import format as f
from headgate.log.files import storage_error
from headgate.log.pairs import seal_path
from headgate.log.remote.storage import RemoteObject, storage_at
from headgate.log.remote.summary import Summary

BLOCK_BYTES = 1 << 20
"""Bytes that are fetched at least."""

FOLDER_VARIABLE = "HEADGATE_REMOTE_CACHE"
"""Environment variable: the folder on this machine for remote segments; without it the cache of Headgate."""

SIZE_VARIABLE = "HEADGATE_REMOTE_CACHE_BYTES"
DEFAULT_CACHE_BYTES = 8 << 30

_FETCHED_AT_ONCE = 8
"""Limit: blocks of one request."""

_THREADS = 8
_FEWEST_AHEAD = 16
_MOST_AHEAD = 64
"""Limits: blocks that are fetched ahead of a reader that reads one after the other; doubled as long as it does."""

_BLOCKS_NAME = "blocks"
_FETCHED_BEFORE_SWEEP = 256 << 20
_ATTEMPTS = 5
_DEAD_AFTER_S = 7 * 86_400
"""After this time without a use, the folder of another boot is removed."""


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A sealed segment in object storage, by its row of the catalogue. Picklable, without a secret.

    `location` is that of its stream, `crc` the CRC-32 of the whole segment, `num_tracking` counts its chunks without
    messages.
    """

    location: str
    identity: str
    first_chunk_id: int
    segment_bytes: int
    summary_bytes: int
    crc: int
    num_tracking: int

    @property
    def folder(self) -> Path:
        """The folder of its files on this machine, which may not exist."""
        return cache_folder() / self.identity / f"{self.first_chunk_id:020d}-{self.crc:08x}"

    def open(self) -> RemoteFiles:
        """Its files on this machine, made from its summary if they are not there.

        Raises OffsetOutOfRangeError if retention deleted it, RemoteStorageError, CorruptSidecarError, LogError.
        """
        for _ in range(_ATTEMPTS):
            try:
                return RemoteFiles(self)
            except FileNotFoundError:
                self._make()
        return RemoteFiles(self)

    def forget(self) -> None:
        """Remove its files on this machine; readers that have them open go on."""
        _remove(self.folder)

    def _make(self) -> None:
        storage = storage_at(self.location)
        name = summary_name(self.first_chunk_id)
        raw = storage.read(name)
        if raw is None:
            raise OffsetOutOfRangeError("retention deleted the segment", path=storage.url(name))
        summary = Summary.decode(raw, url=storage.url(name))
        if summary.segment_bytes != self.segment_bytes:
            raise CorruptChunkError(
                f"the summary is of a segment of {summary.segment_bytes} bytes, the catalogue says "
                f"{self.segment_bytes}",
                path=storage.url(name),
            )
        made = self.folder.with_name(f".{secrets.token_hex(8)}")
        try:
            made.mkdir(parents=True)
            try:
                self._fill(made, summary)
                os.rename(made, self.folder)
            except OSError:
                # Another process may have made it meanwhile.
                if not self.folder.is_dir():
                    raise
            finally:
                shutil.rmtree(made, ignore_errors=True)
        except OSError as error:
            raise storage_error(error, made) from error

    def _fill(self, folder: Path, summary: Summary) -> None:
        segment = folder / f.segment_name(self.first_chunk_id)
        with open(segment, "xb+") as file:
            file.truncate(self.segment_bytes)
            with mmap.mmap(file.fileno(), self.segment_bytes) as mapped:
                # Without it the system makes pages around each front.
                mapped.madvise(mmap.MADV_RANDOM)
                summary.fill(np.frombuffer(mapped, dtype=np.uint8))
        (folder / f.index_name(self.first_chunk_id)).write_bytes(summary.index)
        if summary.seal:
            seal_path(segment).write_bytes(summary.seal)
        (folder / _BLOCKS_NAME).write_bytes(bytes(-(-self.segment_bytes // BLOCK_BYTES)))


def segment_object(first_chunk_id: int) -> str:
    """The name of the object with a segment."""
    return f.segment_name(first_chunk_id)


def summary_name(first_chunk_id: int) -> str:
    """The name of the object with the summary of a segment."""
    return f"{first_chunk_id:020d}.summary"


class RemoteFiles:
    """The open files of a remote segment: `index_fd` and `segment_fd`, which their user closes. For any thread.

    Raises FileNotFoundError if they are not there.
    """

    def __init__(self, segment: RemoteSegment) -> None:
        self.segment = segment
        folder = segment.folder
        # All files are opened in one folder: another of its name may be made when this one is removed.
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened: list[int] = []
        try:
            names = (f.index_name(segment.first_chunk_id), f.segment_name(segment.first_chunk_id), _BLOCKS_NAME)
            for name in names:
                mode = os.O_RDONLY if name == names[0] else os.O_RDWR
                opened.append(os.open(name, mode | os.O_CLOEXEC, dir_fd=folder_fd))
            self._mapped = mmap.mmap(opened[2], 0)
            with contextlib.suppress(OSError):
                # The time of the last use.
                os.utime(folder)
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        finally:
            os.close(folder_fd)
        os.close(opened[2])
        self.index_fd, self.segment_fd = opened[:2]
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
            if self._coming or self.index_fd < 0:
                return
            descriptors = self.index_fd, self.segment_fd
            self.index_fd = self.segment_fd = -1
        for descriptor in descriptors:
            os.close(descriptor)

    def make_present(self, start: int, stop: int) -> None:
        """Fetch the bytes `start … stop` of the segment, unless they are there. Raises RemoteStorageError, LogError."""
        if self._is_complete or stop <= start:
            return
        first, last = start // BLOCK_BYTES, (min(stop, self.segment.segment_bytes) - 1) // BLOCK_BYTES
        missing = np.flatnonzero(self._blocks[first : last + 1] == 0) + first
        ahead = self._to_read_ahead(first, last)
        if len(missing) or ahead:
            self._fetch(missing.tolist(), ahead)

    def make_ranges_present(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Fetch byte ranges of the segment, ascending, as `make_present` does."""
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
        segment = self.segment
        begin, end = first * BLOCK_BYTES, min(stop * BLOCK_BYTES, segment.segment_bytes)
        remote = self._object
        if remote is None:
            storage, name = storage_at(segment.location), segment_object(segment.first_chunk_id)
            remote = storage.open(name)
            if remote.size() != segment.segment_bytes:
                raise CorruptChunkError(
                    f"{remote.size()} bytes, the catalogue says {segment.segment_bytes}", path=storage.url(name)
                )
            self._object = remote
        content = memoryview(remote.read(begin, end))
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(self.segment_fd, content[done:], begin + done)
        except OSError as error:
            raise storage_error(error, segment.folder) from error
        self._blocks[first:stop] = 1
        _Sweeper.note(end - begin)


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


class _Sweeper:
    """Keeps the cache within its size: looks at it after so many bytes were fetched."""

    _lock = threading.Lock()
    _fetched = _FETCHED_BEFORE_SWEEP

    @classmethod
    def note(cls, count: int) -> None:
        with cls._lock:
            cls._fetched += count
            if cls._fetched < _FETCHED_BEFORE_SWEEP:
                return
            cls._fetched = 0
        with contextlib.suppress(OSError):
            sweep_cache(cache_folder(), most_bytes=cache_bytes())


def sweep_cache(folder: Path, *, most_bytes: int) -> int:
    """Remove the segments that were opened longest ago, until the others have at most four fifths of `most_bytes`.

    Nothing is removed from a smaller cache. Gives the number of bytes that were removed.
    """
    found = []
    for segment in folder.glob("*/*"):
        with contextlib.suppress(OSError):
            size = sum(entry.stat().st_blocks * 512 for entry in os.scandir(segment))
            found.append((segment.stat().st_mtime_ns, size, segment))
    total, removed = sum(size for _, size, _ in found), 0
    if total <= most_bytes:
        return 0
    for _, size, segment in sorted(found):
        if total - removed <= most_bytes * 4 // 5:
            break
        removed += size if _remove(segment) else 0
    return removed


def _remove(folder: Path) -> bool:
    """Remove the folder of a segment at once for those who come later."""
    gone = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        os.rename(folder, gone)
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def cache_bytes() -> int:
    """Limit: bytes of the cache of this machine."""
    given = os.environ.get(SIZE_VARIABLE, "")
    return int(given) if given.isdecimal() else DEFAULT_CACHE_BYTES


@functools.cache
def cache_folder() -> Path:
    """The cache of remote segments of this machine, since it was started. Raises ConfigError if there can be none."""
    parent = next(cache_folders(FOLDER_VARIABLE, CACHE_VARIABLE), None)
    if parent is None:
        raise ConfigError(f"no folder can be written for segments from object storage; let {FOLDER_VARIABLE} name one")
    mine = parent / f"remote-{_boot()}"
    mine.mkdir(exist_ok=True)
    # Its time is now; no clock is asked.
    os.utime(mine)
    for other in parent.glob("remote-*"):
        # Other machines may have the same home folder.
        with contextlib.suppress(OSError):
            if other != mine and mine.stat().st_mtime - other.stat().st_mtime > _DEAD_AFTER_S:
                shutil.rmtree(other, ignore_errors=True)
    return mine


def _boot() -> str:
    """What distinguishes this run of the machine from those before."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        # Systems without it: a folder for each process, which only costs more requests.
        return f"{os.getpid()}-{secrets.token_hex(4)}"
