"""The catalogue of a stream: its segments in object storage, oldest first.

It is a file of rows (`row_file.py`) with the magic `HGRC`:

    row:  u64 first offset, u64 offset behind the last, u64 bytes of the segment, u64 bytes of its summary,
          i64 time of the first chunk, i64 time of the last chunk (ms), u32 CRC-32 of the segment,
          u32 chunks without messages

The same bytes are the file `remote.catalogue` in the stream's folder and the object `catalogue` beside the segments. A
row is added when the objects of its segment are whole and checked, and removed before they are deleted: a segment in
the catalogue can be read. Where limits removed all rows, one with 0 bytes stays, which is no segment: it has the offset
behind the last one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LogError
from headgate.log.files import replace_file
from headgate.log.remote.row_file import decode_rows, encode_rows, load_rows

CATALOGUE_NAME = "remote.catalogue"
"""The catalogue in a stream's folder."""

CATALOGUE_OBJECT = "catalogue"
_MAGIC = b"HGRC"

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
    """The segments of one stream in object storage: `rows` `(segments,)` of ROW_DTYPE, by first offset, without gap.

    Without any, `emptied_at` is the offset behind the last one that was there.
    """

    identity: str
    rows: NDArray[np.void]
    emptied_at: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def empty(identity: str) -> Catalogue:
        """A catalogue without a segment."""
        return Catalogue(identity, np.empty(0, dtype=ROW_DTYPE))

    @property
    def stop(self) -> int:
        """The offset behind the last segment, also one that limits removed; 0 if there never was one."""
        return int(self.rows["stop"][-1]) if len(self.rows) else self.emptied_at

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
        return Catalogue(self.identity, self.rows[count:], self.stop)

    def encode(self) -> bytes:
        """The bytes of the file."""
        rows = self.rows
        if not len(rows) and self.emptied_at:
            rows = np.zeros(1, dtype=ROW_DTYPE)
            rows["first"] = rows["stop"] = self.emptied_at
        # Arrays that numpy joined have the machine's byte order.
        return encode_rows(_MAGIC, self.identity, rows.astype(ROW_DTYPE))

    @staticmethod
    def decode(raw: bytes, *, path: str | Path) -> Catalogue:
        """The catalogue in a file's bytes. Raises LogError for damaged bytes: without it segments would be missing."""
        identity, rows = decode_rows(raw, _MAGIC, ROW_DTYPE, what="catalogue of remote segments", path=path)
        if len(rows) and not rows["segment_bytes"][-1]:
            return Catalogue(identity, rows[:0], int(rows["stop"][-1]))
        return Catalogue(identity, rows)


def load_catalogue(folder: Path) -> Catalogue | None:
    """The catalogue in a stream's folder; None without one. Raises LogError for a damaged one.

    Cost: a `stat`; a catalogue that was replaced is read again.
    """
    return load_rows(folder / CATALOGUE_NAME, Catalogue.decode)


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
