"""Lookup files: from the values of a field to the blocks of a sealed segment. All integers little endian but the head.

    <segment, 20 digits>-<16 digits: stream, size, headers, field>.lookup

Head, directory and areas are as `headgate.log.areas` says. The directory has what the file was made of, and the shape;
the areas are:

    starts     u32 per bucket, and one more     where each bucket begins in the entries
    entries    u16                              see `table`
    any        u32                              the blocks that may hold any value, ascending

So every byte is covered. The directory names stream, segment, size and chunk headers, which hold the checksums of all
data; these are compared with the segment as it is now.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.derived.kind import LOOKUP_SUFFIX
from headgate.derived.lookup.table import Shape, Table, blocks_of
from headgate.derived.origin import SegmentOrigin, state_of
from headgate.errors import CorruptSidecarError
from headgate.log import (
    Area,
    AreaParts,
    OpenedFiles,
    Segment,
    derived_folder_of,
    derived_path,
    encode_areas,
    make_derived_present,
    read_area,
    read_directory,
)

LOOKUP_FORMAT = 1
"""Goes up also when a value gets another fingerprint."""

_MAGIC = b"HGLK"


class Origin(SegmentOrigin, frozen=True):
    """The origin of a file."""

    field: str

    @staticmethod
    def of(segment: Segment, field: str) -> Origin:
        """The origin that a file of a sealed segment must have now. Raises CorruptChunkError, OffsetOutOfRangeError."""
        return Origin(*state_of(segment), field)

    @property
    def name(self) -> str:
        """The name of the file."""
        digest = hashlib.sha256(msgspec.json.encode((self, LOOKUP_FORMAT))).hexdigest()
        return f"{self.segment:020d}-{digest[:16]}{LOOKUP_SUFFIX}"


class Directory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The directory of a file of `messages` messages; `block_messages` to `entries` are its shape."""

    origin: Origin
    messages: int
    block_messages: int
    blocks: int
    buckets: int
    entries: int
    starts_area: Area
    entries_area: Area
    any_area: Area

    @property
    def shape(self) -> Shape:
        """How values become entries."""
        return Shape(self.block_messages, self.blocks, self.buckets, self.entries)


def encode_file(origin: Origin, table: Table, messages: int) -> bytes:
    """The bytes of a file."""
    areas, shape = AreaParts(), table.shape
    directory = Directory(
        origin,
        messages,
        shape.block_messages,
        shape.blocks,
        shape.buckets,
        shape.entries,
        areas.add(table.all_starts.astype("<u4").tobytes()),
        areas.add(table.all_entries.astype("<u2").tobytes()),
        areas.add(table.any_blocks.astype("<u4").tobytes()),
    )
    return encode_areas(_MAGIC, LOOKUP_FORMAT, directory, areas)


@dataclass(frozen=True, slots=True)
class LookupFile:
    """A file with a checked directory; areas are checked whenever they are read. Holds no open file; for any thread."""

    path: Path
    directory: Directory
    size_bytes: int
    areas_at: int
    any_blocks: NDArray[np.int64]

    def blocks(self, fingerprints: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """`(blocks,)`: which may hold one of some values. Raises CorruptSidecarError."""
        with _Reading(self.path, self.directory, self.areas_at) as reading:
            return blocks_of(_Arrays(reading, self.any_blocks), fingerprints)

    def check(self) -> None:
        """Check all bytes. Raises CorruptSidecarError. Cost: reading the file."""
        with _Reading(self.path, self.directory, self.areas_at) as reading:
            for area in (self.directory.starts_area, self.directory.entries_area, self.directory.any_area):
                reading.area(area, 0, area.length)


class _Reading:
    """A file that is open for reading."""

    __slots__ = ("_areas_at", "_descriptor", "_path", "directory")

    def __init__(self, path: Path, directory: Directory, areas_at: int) -> None:
        self._path, self.directory, self._areas_at = path, directory, areas_at
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CorruptSidecarError(f"cannot be opened: {error.strerror}", path=path) from error

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def area(self, area: Area, start: int, stop: int) -> bytes:
        """Bytes of an area."""
        return read_area(self._read, area, start, stop, path=self._path, areas_at=self._areas_at)

    def _read(self, position: int, count: int) -> bytes:
        make_derived_present(self._path, position, position + count)
        return os.pread(self._descriptor, count, position)


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The arrays of a file, as `blocks_of` asks for them."""

    reading: _Reading
    any_blocks: NDArray[np.int64]

    @property
    def shape(self) -> Shape:
        return self.reading.directory.shape

    def starts(self, start: int, stop: int) -> NDArray[np.uint32]:
        return np.frombuffer(self.reading.area(self.reading.directory.starts_area, 4 * start, 4 * stop), dtype="<u4")

    def entries(self, start: int, stop: int) -> NDArray[np.uint16]:
        return np.frombuffer(self.reading.area(self.reading.directory.entries_area, 2 * start, 2 * stop), dtype="<u2")

    def open_blocks(self) -> NDArray[np.int64]:
        return self.any_blocks


_opened: OpenedFiles[LookupFile] = OpenedFiles()


def open_lookup_file(path: Path) -> LookupFile:
    """Open a file and check its directory; gives the same object while the file is the same.

    The caller checks whether it belongs to the segment. Raises FileNotFoundError, CorruptSidecarError.
    """
    try:
        return _opened.get(path, _open)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CorruptSidecarError(f"cannot be read: {error.strerror}", path=path) from error


def lookup_file_of(segment: Segment, field: str) -> LookupFile | None:
    """The believed file of a sealed segment and a field; None without one.

    Raises CorruptSidecarError for a file that cannot be believed; CorruptChunkError, OffsetOutOfRangeError of the
    segment. Cost: some 20 µs.
    """
    origin = Origin.of(segment, field)
    path = derived_path(segment, derived_folder_of(segment) / origin.name)
    try:
        file = open_lookup_file(path)
    except FileNotFoundError:
        return None
    if file.directory.origin != origin:
        raise CorruptSidecarError("a lookup file of another stream, segment or field", path=path)
    return file


def _open(path: Path, size: int) -> LookupFile:
    with path.open("rb") as file:

        def read(position: int, count: int) -> bytes:
            make_derived_present(path, position, position + count)
            return os.pread(file.fileno(), count, position)

        found = read_directory(read, Directory, _MAGIC, LOOKUP_FORMAT, path=path)
    if found is None:
        raise CorruptSidecarError(f"{size} bytes, shorter than its directory", path=path)
    directory, areas_at = found
    shape, room = directory.shape, size - areas_at
    fits = (
        shape.is_possible
        and directory.starts_area.fits(4 * (shape.buckets + 1), room)
        and directory.entries_area.fits(2 * shape.entries, room)
        and directory.any_area.fits(directory.any_area.length, room)
    )
    if not fits:
        raise CorruptSidecarError(f"areas that do not fit into {room} bytes, or are not of their shape", path=path)
    with _Reading(path, directory, areas_at) as reading:
        any_blocks = np.frombuffer(reading.area(directory.any_area, 0, directory.any_area.length // 4 * 4), dtype="<u4")
    if len(any_blocks) and int(any_blocks.max()) >= shape.blocks:
        raise CorruptSidecarError("a block that is not there", path=path)
    return LookupFile(path, directory, size, areas_at, any_blocks.astype(np.int64))
