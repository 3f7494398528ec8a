"""Areas of a derived file: plain bytes, one area after the other, with a CRC-32 for each piece of 64 KiB.

A piece is the unit of reading. A directory says where each area lies; positions count from the end of the directory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from headgate.errors import CorruptSidecarError

PIECE_BYTES = 1 << 16
"""Bytes of an area that share a checksum."""


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
