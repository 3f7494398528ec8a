"""Sidecar of a segment, `<segment>.match`: precomputed results of filters, in blocks. All integers are big endian.

A block is as `areas` says: its directory, of which stream, chunks and filters it is, and these areas:

    headers    48 bytes per chunk      the chunk's header as it was when its messages were decided; zeros: not decided
    entries     8 bytes per offset     u32 position of the entry in the segment, u32 CRC-32 of the entry, head included;
                                       position 0: no entry of its own (in a sub-batch, or in a tracking chunk)
    bits        1 bit per offset       a row of whole bytes per filter: its verdict is true; bit p is mask 1 << p % 8
                                       of byte p // 8

Each block is about some chunks in a row, and some filters; a later block about the same replaces an earlier one. The
first block comes with the file, by rename; more are appended while the segment grows. Bytes behind the last whole block
do not count: they are from a write that did not end, and the next append overwrites them. A file does not change in any
other way, so a reader that has it open sees whole blocks, and later more of them.

Offsets count from the block's first one. The file says over which bytes the results were computed. A reader checks that
they are still valid: it compares headers, which hold the CRC of the data. This module knows bytes and names, but not
filters.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptSidecarError
from headgate.log.areas import Area, AreaParts, encode_areas, read_area, read_directory
from headgate.log.checksums import crcs_of_ranges
from headgate.log.files import replace_file, storage_error
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES
from headgate.log.pairs import MATCH_SUFFIX
from headgate.log.remote import make_derived_present
from headgate.log.segment import Segment

SIDECAR_FORMAT = 3
MAGIC = b"HGMX"
ENTRY_DTYPE: np.dtype[np.void] = np.dtype([("position", ">u4"), ("crc", ">u4")])
"""The position of an offset's entry, and its checksum when the message was decided."""

HEADER_BYTES_DTYPE: np.dtype[np.void] = np.dtype(f"V{CHUNK_HEADER_BYTES}")
"""A chunk header as plain bytes, which are only compared."""


class IndexedFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A filter whose results a block holds, over all its decided chunks.

    `id`, `dialect`, `text_hash` and `evaluator` name the filter, and the state of the program that decided it; they are
    plain names here.
    """

    id: str
    dialect: str
    text_hash: str
    evaluator: str


class Directory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The directory of a block about `chunks` chunks from number `first_chunk` on, with the offsets `start … stop`.

    `identity` is that of the stream, `segment` the first offset of the segment. `decided` is the number of messages
    with results. `filters` None: the same filters as in the block before.
    """

    identity: str
    segment: int
    first_chunk: int
    chunks: int
    start: int
    stop: int
    decided: int
    headers: Area
    entries: Area
    bits: Area
    filters: tuple[IndexedFilter, ...] | None = None

    @property
    def areas(self) -> tuple[Area, Area, Area]:
        """All areas of the block."""
        return self.headers, self.entries, self.bits


@dataclass(slots=True)
class BlockContent:
    """The content of one block: `headers` `(chunks,)` of HEADER_BYTES_DTYPE, `entries` `(offsets,)` of ENTRY_DTYPE.

    `first_chunk` is the number of the first chunk in the segment, `start` its offset. `filters` have their results in
    `bits`, `(filters, bytes)` uint8 as in the file.
    """

    first_chunk: int
    start: int
    decided: int
    headers: NDArray[np.void]
    entries: NDArray[np.void]
    filters: tuple[IndexedFilter, ...]
    bits: NDArray[np.uint8]


def noted_entries(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], shifts: NDArray[np.int64]
) -> NDArray[np.void]:
    """The entries of some messages, `(messages,)` of ENTRY_DTYPE, which lie at `starts` of `data`.

    `shifts` is how much farther on they lie in their segment.
    """
    starts = starts - ENTRY_HEAD_BYTES
    found = np.empty(len(starts), dtype=ENTRY_DTYPE)
    found["position"] = starts + shifts
    found["crc"] = crcs_of_ranges(data, starts, lengths + ENTRY_HEAD_BYTES)
    return found


def sidecar_path(segment: Segment) -> Path:
    """The sidecar of a segment, which may not exist; that of a remote one is read through the cache."""
    path = segment.segment_path.with_name(segment.segment_path.name + MATCH_SUFFIX)
    found = None if segment.remote is None else segment.remote.derived_file(path.name)
    return path if found is None else found


def write_sidecar(segment: Segment, blocks: Sequence[BlockContent], *, flushed: bool = True) -> int:
    """Write the sidecar of a segment by rename; gives its size in bytes.

    If it is not `flushed`, a power loss may damage it, which its checksums show. If retention deleted the segment
    meanwhile, the sidecar is removed. Raises StorageFullError, StreamReadOnlyError or LogError; then the old sidecar
    stays.
    """
    encoded = b"".join(encode_block(segment, block) for block in blocks)
    path = sidecar_path(segment)
    replace_file(path, encoded, flushed=flushed)
    _remove_orphan(segment, path)
    return len(encoded)


def append_block(segment: Segment, sidecar: Sidecar, content: BlockContent) -> int:
    """Write a block behind the last whole one of a sidecar, over any other bytes there; gives its size in bytes.

    0 where the sidecar is not the segment's any more: another process replaced it, or retention deleted it. Readers see
    the whole block or nothing of it. It is not flushed, as checksums show a block that a power loss damaged. Raises
    StorageFullError, StreamReadOnlyError or LogError; then the block was not appended.
    """
    path = sidecar_path(segment)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        # No limit on the wait: the lock is held for one write, and the kernel frees it at death.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _identity_of(os.fstat(descriptor)) != sidecar.identity or Sidecar.identity_at(segment) != sidecar.identity:
            return 0
        sidecar.refresh()
        position = sidecar.stop
        encoded = encode_block(segment, content, behind=sidecar.filters_of_last)
        os.ftruncate(descriptor, position)
        try:
            _write_all(descriptor, encoded, position)
        except OSError:
            with contextlib.suppress(OSError):  # bytes that stay are no whole block
                os.ftruncate(descriptor, position)
            raise
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        os.close(descriptor)
    _remove_orphan(segment, path)
    return len(encoded)


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest = rest[written:]
        position += written


def _remove_orphan(segment: Segment, path: Path) -> None:
    # Retention deletes the index first and the sidecar last, so one of the two always notices the other.
    if not segment.index_path.exists():
        path.unlink(missing_ok=True)


def encode_block(segment: Segment, content: BlockContent, *, behind: tuple[IndexedFilter, ...] | None = None) -> bytes:
    """The bytes of a block; `behind` are the filters of the block before it."""
    areas = AreaParts()
    headers = areas.add(content.headers.tobytes())
    entries = areas.add(content.entries.tobytes())
    directory = Directory(
        segment.identity,
        segment.first_chunk_id,
        content.first_chunk,
        len(content.headers),
        content.start,
        content.start + len(content.entries),
        content.decided,
        headers,
        entries,
        areas.add(content.bits.tobytes()),
        None if content.filters == behind else content.filters,
    )
    return encode_areas(MAGIC, SIDECAR_FORMAT, directory, areas)


class _OpenFile:
    """A descriptor that is closed with the last reference to it."""

    __slots__ = ("descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)

    def read(self, position: int, count: int) -> bytes:
        make_derived_present(self.path, position, position + count)
        return os.pread(self.descriptor, count, position)


class SidecarBlock:
    """One block. Every piece is checked when it is read: reads raise CorruptSidecarError for damaged bytes.

    `filters` are those whose results it holds. The file stays open as long as one of its blocks is referenced.
    """

    __slots__ = ("_areas_at", "_file", "_row_bytes", "directory", "filters", "path")

    def __init__(
        self, path: Path, file: _OpenFile, directory: Directory, areas_at: int, filters: tuple[IndexedFilter, ...]
    ) -> None:
        self.path = path
        self.directory = directory
        self.filters = filters
        self._file = file
        self._areas_at = areas_at
        self._row_bytes = -(-(directory.stop - directory.start) // 8)

    @property
    def stop_chunk(self) -> int:
        """The number in the segment of the chunk behind the last one."""
        return self.directory.first_chunk + self.directory.chunks

    def headers(self, start_chunk: int, stop_chunk: int) -> NDArray[np.void]:
        """The headers of chunks by their number in the segment: `(chunks,)` of HEADER_BYTES_DTYPE."""
        first, size = self.directory.first_chunk, CHUNK_HEADER_BYTES
        data = self._read(self.directory.headers, (start_chunk - first) * size, (stop_chunk - first) * size)
        return np.frombuffer(data, dtype=HEADER_BYTES_DTYPE)

    def entries(self, start: int, stop: int) -> NDArray[np.void]:
        """Entries of the offsets `start … stop`: `(offsets,)` of ENTRY_DTYPE."""
        first, last = start - self.directory.start, stop - self.directory.start
        data = self._read(self.directory.entries, first * ENTRY_DTYPE.itemsize, last * ENTRY_DTYPE.itemsize)
        return np.frombuffer(data, dtype=ENTRY_DTYPE)

    def bits(self, number: int, start: int, stop: int) -> NDArray[np.bool_]:
        """The verdicts of the filter with a number for the offsets `start … stop`: `(offsets,)`."""
        first, last = start - self.directory.start, stop - self.directory.start
        row = number * self._row_bytes
        data = np.frombuffer(self._read(self.directory.bits, row + first // 8, row + -(-last // 8)), dtype=np.uint8)
        bits = np.unpackbits(data, bitorder="little")[first % 8 : first % 8 + last - first]
        return bits.view(np.bool_)

    def _read(self, area: Area, start: int, stop: int) -> bytes:
        """Bytes of an area, from whole pieces whose checksums agree."""
        return read_area(self._file.read, area, start, stop, path=self.path, areas_at=self._areas_at)


class Sidecar:
    """The file of a segment as it was at the last look: its whole blocks, in order. For several threads.

    `stop` is the byte behind them. `damage` is the error of the bytes behind them; None if there are none, or only
    those of a write that did not end.
    """

    def __init__(self, segment: Segment, path: Path, file: _OpenFile) -> None:
        self.path = path
        self.blocks: tuple[SidecarBlock, ...] = ()
        self.stop = 0
        self.damage: CorruptSidecarError | None = None
        self.identity = _identity_of(os.fstat(file.descriptor))
        """Device and inode: while this file is open, another file under the same name has another identity."""
        self._segment = segment
        self._file = file
        self._lock = threading.Lock()
        self._seen_bytes = -1

    @staticmethod
    def open(segment: Segment) -> Sidecar | None:
        """The sidecar of a segment, None without one. Raises CorruptSidecarError for a file without a whole block."""
        path = sidecar_path(segment)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptSidecarError(f"cannot be opened: {error.strerror}", path=path) from error
        found = Sidecar(segment, path, _OpenFile(path, descriptor))
        found.refresh()
        if not found.blocks:
            raise found.damage or CorruptSidecarError(f"{found._seen_bytes} bytes, no whole block", path=path)
        return found

    @staticmethod
    def identity_at(segment: Segment) -> tuple[int, int] | None:
        """Device and inode of a segment's sidecar now; None without one."""
        try:
            found = os.stat(sidecar_path(segment))
        except OSError:
            return None
        return _identity_of(found)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file at the last look."""
        return self._seen_bytes

    @property
    def filters_of_last(self) -> tuple[IndexedFilter, ...] | None:
        """The filters of the last block."""
        return self.blocks[-1].filters if self.blocks else None

    def refresh(self) -> None:
        """Look for appended blocks. Cost: one `fstat` if there are none."""
        with self._lock:
            size = os.fstat(self._file.descriptor).st_size
            if size == self._seen_bytes:
                return
            self._seen_bytes, self.damage = size, None
            fresh: list[SidecarBlock] = []
            filters = self.filters_of_last
            try:
                while (block := self._next_block(size, filters)) is not None:
                    fresh.append(block)
                    filters = block.filters
            except CorruptSidecarError as error:
                self.damage = error
            self.blocks += tuple(fresh)

    def _next_block(self, size: int, behind: tuple[IndexedFilter, ...] | None) -> SidecarBlock | None:
        """The block behind the known ones; None if there is no whole one."""
        path, position = self.path, self.stop
        found = read_directory(self._file.read, Directory, MAGIC, SIDECAR_FORMAT, path=path, position=position)
        if found is None:
            return None
        directory, areas_at = found
        filters = behind if directory.filters is None else directory.filters
        if filters is None:
            raise CorruptSidecarError("a first block without filters", path=path, position=position)
        stop = areas_at + max(area.position + area.length for area in directory.areas)
        self._check(directory, len(filters), stop - areas_at)
        if stop > size:
            return None
        self.stop = stop
        return SidecarBlock(path, self._file, directory, areas_at, filters)

    def _check(self, directory: Directory, filters: int, room: int) -> None:
        """Raise CorruptSidecarError unless a block fits stream and segment, and its areas fit its counts."""
        path, segment = self.path, self._segment
        if directory.identity != segment.identity:
            raise CorruptSidecarError(
                f"of the stream with the identity {directory.identity}, this one has {segment.identity}", path=path
            )
        if directory.segment != segment.first_chunk_id:
            raise CorruptSidecarError(f"of a segment that begins at offset {directory.segment}", path=path)
        count = directory.stop - directory.start
        if min(count, directory.chunks, directory.first_chunk, directory.start - directory.segment) < 0:
            raise CorruptSidecarError("a negative count", path=path)
        expected = (directory.chunks * CHUNK_HEADER_BYTES, count * ENTRY_DTYPE.itemsize, filters * -(-count // 8))
        for area, length in zip(directory.areas, expected, strict=True):
            if not area.fits(length, room):
                found = f"an area of {area.length} bytes at {area.position}"
                raise CorruptSidecarError(f"{found}, expected {length} of {room}", path=path)


def _identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
