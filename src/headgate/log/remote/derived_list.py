"""The derived files of a stream that lie in object storage, with the segments that they were made of.

It is a file of rows (`row_file.py`) with the magic `HGRD`, by segment and name:

    row:  i64 first offset of the segment, −1 for a declaration; u64 bytes; i64 time of the file that was sent (ns);
          40 bytes name, without the digits of the segment in front

The same bytes are the file `remote.derived` in the stream's folder and the object `derived` beside the segments. The
stream can be read without the files in it.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LogError
from headgate.log.files import replace_file
from headgate.log.remote.row_file import decode_rows, encode_rows, load_rows
from headgate.log.remote.storage import ObjectStorage

DERIVED_NAME = "remote.derived"
"""The list in a stream's folder."""

DERIVED_OBJECT = "derived"
DECLARATIONS = -1
"""In place of a first offset: declarations belong to no segment."""

_MAGIC = b"HGRD"
_NAME_BYTES = 40
_ROW_DTYPE = np.dtype([("first", ">i8"), ("size_bytes", ">i8"), ("mtime_ns", ">i8"), ("name", f"S{_NAME_BYTES}")])


@dataclass(frozen=True, slots=True, order=True)
class DerivedObject:
    """A derived file in object storage: name, bytes, and the time of the file that was sent.

    Other content has another name, time or size.
    """

    name: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class DerivedList:
    """The derived files of one stream: `rows` `(files,)`, by segment and name."""

    identity: str
    rows: NDArray[np.void]

    @staticmethod
    def of(identity: str, files: Mapping[int, Iterable[DerivedObject]]) -> DerivedList:
        """The list of some files, by first offset of their segment, or DECLARATIONS. Names fit if `may_be_listed`."""
        rows = [
            (first, each.size_bytes, each.mtime_ns, each.name.removeprefix(_digits(first)).encode())
            for first in sorted(files)
            for each in sorted(files[first])
        ]
        return DerivedList(identity, np.array(rows, dtype=_ROW_DTYPE))

    def files_of(self, first: int) -> tuple[DerivedObject, ...]:
        """The files of a segment by its first offset, or of DECLARATIONS."""
        # Not by numpy, which would convert the byte order of all rows at each call.
        firsts = self.rows["first"]
        start = bisect.bisect_left(firsts, first)
        stop = bisect.bisect_right(firsts, first, start)
        return tuple(map(_object_of, self.rows[start:stop].tolist()))

    def files(self) -> dict[int, list[DerivedObject]]:
        """All files, by first offset of their segment, or DECLARATIONS."""
        found: dict[int, list[DerivedObject]] = {}
        for row in self.rows.tolist():
            found.setdefault(row[0], []).append(_object_of(row))
        return found

    def ending_with(self, suffix: str) -> list[tuple[int, DerivedObject]]:
        """The files of segments whose names end with a suffix, each with the first offset of its segment."""
        is_wanted = np.char.endswith(self.rows["name"], suffix.encode()) & (self.rows["first"] != DECLARATIONS)
        return [(row[0], _object_of(row)) for row in self.rows[is_wanted].tolist()]

    def names(self) -> set[str]:
        """The names of all files."""
        return {_object_of(row).name for row in self.rows.tolist()}

    def names_without(self, segments: NDArray[np.int64]) -> set[str]:
        """The names of the files of other segments than those that begin at these offsets."""
        is_other = ~np.isin(self.rows["first"], segments) & (self.rows["first"] != DECLARATIONS)
        return {_object_of(row).name for row in self.rows[is_other].tolist()}

    def encode(self) -> bytes:
        """The bytes of the file."""
        return encode_rows(_MAGIC, self.identity, self.rows)

    @staticmethod
    def decode(raw: bytes, *, path: str | Path) -> DerivedList:
        """The list in a file's bytes. Raises LogError for damaged bytes."""
        return DerivedList(*decode_rows(raw, _MAGIC, _ROW_DTYPE, what="list of derived files", path=path))


def may_be_listed(first: int, name: str) -> bool:
    """Whether a list can have a file of this name."""
    rest = name.removeprefix(_digits(first))
    return rest.isascii() and 0 < len(rest) <= _NAME_BYTES and (first == DECLARATIONS or rest != name)


def load_derived(folder: Path) -> DerivedList | None:
    """The list in a stream's folder; None without one, or for a damaged one, which the next move fetches anew.

    Cost: as that of `load_catalogue`.
    """
    try:
        return load_rows(folder / DERIVED_NAME, DerivedList.decode)
    except LogError:
        return None


def stored_list(storage: ObjectStorage, identity: str) -> DerivedList:
    """The list of a stream as it is in object storage; an empty one if it is not there, damaged or another stream's."""
    raw = storage.read(DERIVED_OBJECT)
    if raw is not None:
        with contextlib.suppress(LogError):
            found = DerivedList.decode(raw, path=storage.url(DERIVED_OBJECT))
            if found.identity == identity:
                return found
    return DerivedList.of(identity, {})


def save_derived(folder: Path, found: DerivedList, *, flushed: bool = True) -> None:
    """Replace the list in a stream's folder. Raises LogError and its kinds."""
    replace_file(folder / DERIVED_NAME, found.encode(), flushed=flushed)


def _digits(first: int) -> str:
    return "" if first == DECLARATIONS else f"{first:020d}"


def _object_of(row: tuple[int, int, int, bytes]) -> DerivedObject:
    first, size_bytes, mtime_ns, name = row
    return DerivedObject(_digits(first) + name.decode(), size_bytes, mtime_ns)
