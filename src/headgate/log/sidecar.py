"""Sidecar of a segment, `<segment>.match`: precomputed results of filters. All integers are big endian.

    Head, 16 bytes
    +------+------+------+------+
    | HGMX | 0002 | D    | crc  |       magic, u32 format, u32 bytes of the directory, u32 CRC-32 of the directory
    +------+------+------+------+
    directory, D bytes                 JSON of `Directory`: which stream, chunks, filters, and where each area lies
    areas                              plain arrays, each with a CRC-32 per piece of 64 KiB in the directory

    headers    48 bytes per chunk      the chunk's header as it was when its messages were decided; zeros: not decided
    entries     8 bytes per offset     u32 position of the entry in the segment, u32 CRC-32 of the entry, head included;
                                       position 0: no entry of its own (in a sub-batch, or in a tracking chunk)
    bits        1 bit per offset       layout `exact`, one area per filter: its verdict is true; bit p is mask
                                       1 << p % 8 of byte p // 8
    arrays      b bytes per offset     layout `bloom`: the message's bit array (rocketmq_filters, section 8.3)

Chunks are those of the segment from its first on, offsets count from the segment's first chunk id. The file says which
results were computed over which bytes. A reader checks that they are still valid: it compares headers, which
hold the CRC of the data. This module knows bytes and names, but not filters.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptSidecarError
from headgate.log.areas import Area, AreaParts, read_area
from headgate.log.files import replace_file
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.log.pairs import MATCH_SUFFIX
from headgate.log.segment import Segment

SIDECAR_FORMAT = 2
MAGIC = b"HGMX"
ENTRY_DTYPE = np.dtype([("position", ">u4"), ("crc", ">u4")])
"""Position of the message of an offset, and its checksum when it was decided."""

HEADER_BYTES_DTYPE: np.dtype[np.void] = np.dtype(f"V{CHUNK_HEADER_BYTES}")
"""A chunk header as bytes, which are only compared."""

_HEAD = struct.Struct(">4sIII")
_MOST_DIRECTORY_BYTES = 1 << 26


class IndexedFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter whose results the file holds, over `ranges` of offsets that begin and end at chunks.

    `id`, `dialect`, `text_hash` and `evaluator` say which filter, in which state of the program that decided; they are
    names here. `bits` are there in the layout `exact`.
    """

    id: str
    dialect: str
    text_hash: str
    evaluator: str
    ranges: tuple[tuple[int, int], ...]
    bits: Area | None = None


class Directory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds: `chunks` chunks with the offsets `start … stop`; `array_bytes` is 0 in the layout `exact`.

    `identity` is that of the stream. `parameters` is a name of how bit arrays are made, empty without them.
    """

    identity: str
    start: int
    stop: int
    chunks: int
    filters: tuple[IndexedFilter, ...]
    headers: Area
    entries: Area
    array_bytes: int = 0
    parameters: str = ""
    arrays: Area | None = None


@dataclass(slots=True)
class SidecarContent:
    """What is written: `headers` `(chunks,)` of HEADER_BYTES_DTYPE, `entries` `(offsets,)` of ENTRY_DTYPE.

    `identity` is that of the stream. `filters` have their results beside them, as in the file; None in the layout
    `bloom`. `arrays` is `(offsets, array bytes)` uint8 in the layout `bloom`, else None;
    `parameters` names how they are made.
    """

    identity: str
    start: int
    headers: NDArray[np.void]
    entries: NDArray[np.void]
    filters: Sequence[tuple[IndexedFilter, NDArray[np.uint8] | None]]
    arrays: NDArray[np.uint8] | None = None
    parameters: str = ""


def sidecar_path(segment_path: Path) -> Path:
    """The sidecar of a segment file."""
    return segment_path.with_name(segment_path.name + MATCH_SUFFIX)


def write_sidecar(segment: Segment, content: SidecarContent) -> int:
    """Write the sidecar of a segment by rename; gives its size in bytes.

    If retention deleted the segment meanwhile, the sidecar is removed. Raises StorageFullError, StreamReadOnlyError or
    LogError; then the old sidecar stays.
    """
    encoded = encode_sidecar(content)
    path = sidecar_path(segment.segment_path)
    replace_file(path, encoded)
    # Retention deletes the index first and the sidecar last, so one of the two always notices the other.
    if not segment.index_path.exists():
        path.unlink(missing_ok=True)
    return len(encoded)


def encode_sidecar(content: SidecarContent) -> bytes:
    """The bytes of a sidecar."""
    areas = AreaParts()
    count = len(content.entries)
    headers = areas.add(content.headers.tobytes())
    entries = areas.add(content.entries.tobytes())
    filters = tuple(
        each if bits is None else msgspec.structs.replace(each, bits=areas.add(bits.tobytes()))
        for each, bits in content.filters
    )
    arrays = None if content.arrays is None else areas.add(content.arrays.tobytes())
    directory = Directory(
        content.identity,
        content.start,
        content.start + count,
        len(content.headers),
        filters,
        headers,
        entries,
        0 if content.arrays is None else content.arrays.shape[1],
        content.parameters,
        arrays,
    )
    encoded = msgspec.json.encode(directory)
    head = _HEAD.pack(MAGIC, SIDECAR_FORMAT, len(encoded), zlib.crc32(encoded))
    return b"".join([head, encoded, *areas.parts])


class Sidecar:
    """An open sidecar. Every piece is checked when it is read: reads raise CorruptSidecarError for damaged bytes.

    The file is only replaced by rename, so an open one never changes.
    """

    def __init__(self, path: Path, descriptor: int, directory: Directory, areas_at: int) -> None:
        self.path = path
        self.directory = directory
        self._descriptor = descriptor
        self._areas_at = areas_at

    @staticmethod
    def open(segment: Segment) -> Sidecar | None:
        """The sidecar of a segment, None without one. Raises CorruptSidecarError for a damaged file."""
        path = sidecar_path(segment.segment_path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptSidecarError(f"cannot be opened: {error.strerror}", path=path) from error
        try:
            try:
                directory, areas_at = _read_directory(path, descriptor)
            except OSError as error:
                raise CorruptSidecarError(f"cannot be read: {error.strerror}", path=path) from error
            if directory.identity != segment.identity:
                raise CorruptSidecarError(
                    f"of the stream with the identity {directory.identity}, this one has {segment.identity}", path=path
                )
            if directory.start != segment.first_chunk_id:
                raise CorruptSidecarError(f"of a segment that begins at offset {directory.start}", path=path)
        except BaseException:
            os.close(descriptor)
            raise
        return Sidecar(path, descriptor, directory, areas_at)

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._descriptor).st_size

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: while this file is open, another file under the same name has another identity."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    @staticmethod
    def identity_at(segment: Segment) -> tuple[int, int] | None:
        """Device and inode of the file that a segment has as its sidecar now, None for none."""
        try:
            found = os.stat(sidecar_path(segment.segment_path))
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def headers(self, start_row: int, stop_row: int) -> NDArray[np.void]:
        """The headers of chunks by their number in the segment: `(chunks,)` of HEADER_BYTES_DTYPE."""
        size = CHUNK_HEADER_BYTES
        data = self._read(self.directory.headers, start_row * size, stop_row * size)
        return np.frombuffer(data, dtype=HEADER_BYTES_DTYPE)

    def entries(self, start: int, stop: int) -> NDArray[np.void]:
        """Entries of the offsets `start … stop`: `(offsets,)` of ENTRY_DTYPE."""
        first, last = start - self.directory.start, stop - self.directory.start
        data = self._read(self.directory.entries, first * ENTRY_DTYPE.itemsize, last * ENTRY_DTYPE.itemsize)
        return np.frombuffer(data, dtype=ENTRY_DTYPE)

    def bits(self, area: Area, start: int, stop: int) -> NDArray[np.bool_]:
        """The verdicts of one filter for the offsets `start … stop`: `(offsets,)`."""
        first, last = start - self.directory.start, stop - self.directory.start
        data = np.frombuffer(self._read(area, first // 8, -(-last // 8)), dtype=np.uint8)
        bits = np.unpackbits(data, bitorder="little")[first % 8 : first % 8 + last - first]
        return bits.view(np.bool_)

    def arrays(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bit arrays of the offsets `start … stop`: `(offsets, bytes)`. Raises CorruptSidecarError without them."""
        area, width = self.directory.arrays, self.directory.array_bytes
        if area is None:
            raise CorruptSidecarError("no bit arrays in it", path=self.path)
        first, last = start - self.directory.start, stop - self.directory.start
        return np.frombuffer(self._read(area, first * width, last * width), dtype=np.uint8).reshape(-1, width)

    def _read(self, area: Area, start: int, stop: int) -> bytes:
        """Bytes of an area, from whole pieces that check."""
        return read_area(self._read_at, area, start, stop, path=self.path, areas_at=self._areas_at)

    def _read_at(self, position: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, position)


def _read_directory(path: Path, descriptor: int) -> tuple[Directory, int]:
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        raise CorruptSidecarError(f"{size} bytes, shorter than its head", path=path)
    magic, version, length, crc = _HEAD.unpack(head)
    if magic != MAGIC or version != SIDECAR_FORMAT:
        raise CorruptSidecarError(
            f"head is {head[:8].hex(' ')}, expected format {SIDECAR_FORMAT}", path=path, position=0
        )
    if length > min(_MOST_DIRECTORY_BYTES, size - _HEAD.size):
        raise CorruptSidecarError(f"a directory of {length} bytes in a file of {size}", path=path, position=8)
    encoded = os.pread(descriptor, length, _HEAD.size)
    if zlib.crc32(encoded) != crc:
        raise CorruptSidecarError("checksum of the directory does not match", path=path, position=_HEAD.size)
    try:
        directory = msgspec.json.decode(encoded, type=Directory)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptSidecarError(f"not a directory: {error}", path=path, position=_HEAD.size) from error
    _check_directory(path, directory, size - _HEAD.size - length)
    return directory, _HEAD.size + length


def _check_directory(path: Path, directory: Directory, room: int) -> None:
    """Every area has the size that goes with the counts, and lies inside the file."""
    count = directory.stop - directory.start
    if min(count, directory.chunks, directory.start, directory.array_bytes) < 0:
        raise CorruptSidecarError("a negative count", path=path)
    sizes: list[tuple[Area, int]] = [
        (directory.headers, directory.chunks * CHUNK_HEADER_BYTES),
        (directory.entries, count * ENTRY_DTYPE.itemsize),
    ]
    sizes += [(each.bits, -(-count // 8)) for each in directory.filters if each.bits is not None]
    if directory.arrays is not None:
        sizes.append((directory.arrays, count * directory.array_bytes))
    for area, expected in sizes:
        if not area.fits(expected, room):
            raise CorruptSidecarError(
                f"an area of {area.length} bytes at {area.position}, expected {expected} of {room}", path=path
            )
