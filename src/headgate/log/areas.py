"""The bytes of a derived file, or of a block of one: a head, a directory, and areas. All integers are big endian.

    +-------+--------+------+------+
    | magic | format | D    | crc  |    4 bytes, u32 format, u32 bytes of the directory, u32 CRC-32 of the directory
    +-------+--------+------+------+
    directory, D bytes                  JSON; says where each area lies, counted from the end of the directory
    areas                               plain bytes, one area after the other, a CRC-32 for each piece of 64 KiB

A piece is the unit of reading.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.errors import CorruptSidecarError

PIECE_BYTES = 1 << 16
"""Bytes of an area that share a checksum."""

_HEAD = struct.Struct(">4sIII")
_MOST_DIRECTORY_BYTES = 1 << 26

D = TypeVar("D", bound=msgspec.Struct)


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Bytes of the file: `position`, `length`, and the CRC-32 of each piece."""

    position: int
    length: int
    crcs: tuple[int, ...]

    def fits(self, expected: int, room: int) -> bool:
        """Whether it has `expected` bytes, a checksum for each piece, and lies within `room` bytes."""
        has_length = self.length == expected and len(self.crcs) == -(-expected // PIECE_BYTES)
        return has_length and self.position >= 0 and self.position + self.length <= room


class AreaParts:
    """Areas in the making: `parts` are their bytes, in order."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._position = 0

    def add(self, data: bytes) -> Area:
        """Add an area."""
        view = memoryview(data)
        crcs = tuple(zlib.crc32(view[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES))
        area = Area(self._position, len(data), crcs)
        self.parts.append(data)
        self._position += len(data)
        return area


ReadBytes = Callable[[int, int], bytes]
"""Gives bytes of the file: position, count; fewer where the file ends. Raises OSError."""


def encode_areas(magic: bytes, format_: int, directory: msgspec.Struct, areas: AreaParts) -> bytes:
    """The bytes of head, directory and areas."""
    encoded = msgspec.json.encode(directory)
    return b"".join([_HEAD.pack(magic, format_, len(encoded), zlib.crc32(encoded)), encoded, *areas.parts])


def read_directory(
    read: ReadBytes, kind: type[D], magic: bytes, format_: int, *, path: Path, position: int = 0
) -> tuple[D, int] | None:
    """The directory whose head is at `position` of a file, and where its areas begin; None if the file ends before.

    Raises CorruptSidecarError for damaged bytes, another format, and a file that cannot be read.
    """
    try:
        head = read(position, _HEAD.size)
        if len(head) < _HEAD.size:
            return None
        found_magic, found_format, length, crc = _HEAD.unpack(head)
        if found_magic != magic or found_format != format_:
            raise CorruptSidecarError(
                f"head is {head[:8].hex(' ')}, expected format {format_}", path=path, position=position
            )
        if length > _MOST_DIRECTORY_BYTES:
            raise CorruptSidecarError(f"a directory of {length} bytes", path=path, position=position + 8)
        encoded = read(position + _HEAD.size, length)
    except OSError as error:
        raise CorruptSidecarError(f"cannot be read: {error.strerror}", path=path, position=position) from error
    if len(encoded) < length:
        return None
    if zlib.crc32(encoded) != crc:
        raise CorruptSidecarError("checksum of the directory does not match", path=path, position=position)
    try:
        return msgspec.json.decode(encoded, type=kind), position + _HEAD.size + length
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptSidecarError(f"no directory of this version: {error}", path=path, position=position) from error


def read_area(read: ReadBytes, area: Area, start: int, stop: int, *, path: Path, areas_at: int) -> bytes:
    """Bytes of an area, from whole pieces whose checksums agree; `areas_at` is where areas begin in the file.

    Raises CorruptSidecarError for damaged bytes.
    """
    if not 0 <= start <= stop <= area.length:
        raise CorruptSidecarError(f"bytes {start} to {stop} of an area of {area.length}", path=path)
    first = start // PIECE_BYTES
    base = first * PIECE_BYTES
    end = min(area.length, -(-stop // PIECE_BYTES) * PIECE_BYTES)
    at = areas_at + area.position + base
    try:
        data = read(at, end - base)
    except OSError as error:
        raise CorruptSidecarError(f"cannot be read: {error.strerror}", path=path, position=at) from error
    if len(data) != end - base:
        raise CorruptSidecarError("the file ends inside an area", path=path, position=at + len(data))
    view = memoryview(data)
    for number, piece in enumerate(range(0, len(data), PIECE_BYTES), first):
        if zlib.crc32(view[piece : piece + PIECE_BYTES]) != area.crcs[number]:
            raise CorruptSidecarError("checksum does not match", path=path, position=at + piece)
    return data[start - base : stop - base]
