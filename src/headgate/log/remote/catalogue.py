"""The catalogue of a stream: its segments in object storage, oldest first. All integers are big endian.

    +------+------+----------+-------+------------+------+
    | HGRC | 0001 | identity | n     | n x 56     | crc  |
    +------+------+----------+-------+------------+------+
    magic, u32 format, 64 bytes identity of the stream in UTF-8 (zeros behind it), u32 number of rows, rows, u32 CRC-32
    row:  u64 first offset, u64 offset behind the last, u64 bytes of the segment, u64 bytes of its summary,
          i64 time of the first chunk, i64 time of the last chunk (ms), u32 CRC-32 of the segment,
          u32 chunks without messages

The same bytes are the file `remote.catalogue` in the stream's folder and the object `catalogue` beside the segments. A
row is added when the objects of its segment are whole and checked, and removed before they are deleted: a segment in
the catalogue can be read.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LogError
from headgate.log.files import replace_file

CATALOGUE_NAME = "remote.catalogue"
"""The catalogue in a stream's folder."""

CATALOGUE_OBJECT = "catalogue"
CATALOGUE_FORMAT = 1
_MAGIC = b"HGRC"
_HEAD = struct.Struct(">4sI64sI")
_CRC = struct.Struct(">I")
_MOST_KEPT = 256

ROW_DTYPE = np.dtype(
    [
        ("first", ">i8"),
        ("stop", ">i8"),
        ("segment_bytes", ">i8"),
        ("summary_bytes", ">i8"),
        ("first_ms", ">i8"),
        ("last_ms", ">i8"),
        ("crc", ">u4"),
        ("num_tracking", ">u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The segments of one stream in object storage: `rows` `(segments,)` of ROW_DTYPE, by first offset, without gap."""

    identity: str
    rows: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def empty(identity: str) -> Catalogue:
        """A catalogue without a segment."""
        return Catalogue(identity, np.empty(0, dtype=ROW_DTYPE))

    @property
    def stop(self) -> int:
        """The offset behind the last segment; 0 without one."""
        return int(self.rows["stop"][-1]) if len(self.rows) else 0

    def before(self, offset: int) -> NDArray[np.void]:
        """The rows that lead up to an offset without a gap; none if the last of them does not end there."""
        count = int(np.searchsorted(self.rows["first"], offset))
        is_next = count > 0 and int(self.rows["stop"][count - 1]) == offset
        return self.rows[: count if is_next else 0]

    def first_before(self, offset: int) -> int:
        """The first offset of the rows that lead up to an offset; the offset itself without any."""
        rows = self.before(offset)
        return int(rows["first"][0]) if len(rows) else offset

    def moved_among(self, first_offsets: Sequence[int]) -> Sequence[int]:
        """The oldest of some segments, in a row, that are in the catalogue, by first offset."""
        known = set(self.rows["first"].tolist())
        return list(itertools.takewhile(known.__contains__, first_offsets))

    def with_row(self, row: NDArray[np.void]) -> Catalogue:
        """A catalogue with one more row, `(1,)`."""
        return Catalogue(self.identity, np.concatenate([self.rows, row]))

    def without(self, count: int) -> Catalogue:
        """A catalogue without the oldest rows."""
        return Catalogue(self.identity, self.rows[count:])

    def encode(self) -> bytes:
        """The bytes of the file."""
        head = _HEAD.pack(_MAGIC, CATALOGUE_FORMAT, self.identity.encode(), len(self.rows))
        # Arrays that numpy joined have the machine's byte order.
        content = head + self.rows.astype(ROW_DTYPE).tobytes()
        return content + _CRC.pack(zlib.crc32(content))

    @staticmethod
    def decode(raw: bytes, *, path: str | Path) -> Catalogue:
        """The catalogue in a file's bytes. Raises LogError for damaged bytes: without it segments would be missing."""
        content, crc = raw[: -_CRC.size], raw[-_CRC.size :]
        if len(content) < _HEAD.size or _CRC.pack(zlib.crc32(content)) != crc:
            raise LogError(
                f"no catalogue of remote segments: {len(raw)} bytes that do not have their checksum at the end; "
                "restore it from the other copy, which lies beside the segments or in the stream's folder",
                path=path,
            )
        magic, version, identity, count = _HEAD.unpack_from(content)
        if magic != _MAGIC or version != CATALOGUE_FORMAT or len(content) != _HEAD.size + count * ROW_DTYPE.itemsize:
            raise LogError(f"no catalogue of format {CATALOGUE_FORMAT} with {count} segments", path=path)
        rows = np.frombuffer(content, dtype=ROW_DTYPE, offset=_HEAD.size)
        return Catalogue(identity.rstrip(b"\0").decode(), rows)


_kept: dict[Path, tuple[Hashable, Catalogue]] = {}


def load_catalogue(folder: Path) -> Catalogue | None:
    """The catalogue in a stream's folder; None without one. Raises LogError for a damaged one.

    Cost: a `stat`; a catalogue that was replaced is read again.
    """
    path = folder / CATALOGUE_NAME
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    state = (found.st_ino, found.st_size, found.st_mtime_ns)
    kept = _kept.get(folder)
    if kept is not None and kept[0] == state:
        return kept[1]
    try:
        catalogue = Catalogue.decode(path.read_bytes(), path=path)
    except FileNotFoundError:
        return None
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[folder] = (state, catalogue)
    return catalogue


def catalogue_of(folder: Path) -> Catalogue:
    """The catalogue of a stream with a remote. Raises LogError for a missing or damaged one."""
    found = load_catalogue(folder)
    if found is None:
        raise LogError(
            "the catalogue of the stream's segments in object storage is gone; headgate stream move fetches its copy "
            "from there",
            path=folder / CATALOGUE_NAME,
        )
    return found


def save_catalogue(folder: Path, catalogue: Catalogue) -> None:
    """Replace the catalogue in a stream's folder; on the disk when this returns. Raises LogError and its kinds."""
    replace_file(folder / CATALOGUE_NAME, catalogue.encode())
