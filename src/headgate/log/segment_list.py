"""The segments of a stream, in its folder and in object storage, as they were listed."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from headgate.log.remote import Catalogue, DerivedList, RemoteSegment
from headgate.log.remote.catalogue import ROW_DTYPE
from headgate.log.segment import Segment

_NO_ROWS = np.empty(0, dtype=ROW_DTYPE)


class SegmentList(Sequence[Segment]):
    """The segments of a stream, oldest first, as they were listed; each is made when it is asked for.

    The oldest are those of the catalogue of remote segments, unless retention overtook them: of a segment that lies in
    both places the files in the folder are read.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        is_own: bool,
        ids: list[int],
        num_sealed: int,
        location: str | None,
        catalogue: Catalogue | None,
        derived: DerivedList | None = None,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._is_own = is_own
        self._ids = ids
        self._num_sealed = num_sealed
        self._location = location or ""
        self._derived = derived
        self._rows = _NO_ROWS
        self.remote_stop = 0 if catalogue is None else catalogue.stop
        """The offset behind the segments that are in object storage, or were before limits deleted them."""
        if catalogue is not None:
            # Offsets between the two parts, which are in neither, were deleted by limits.
            self._rows = catalogue.before(ids[0]) if ids else catalogue.rows

    def here(self) -> SegmentList:
        """Those whose files are in the stream's folder."""
        return SegmentList(self._folder, self._identity, self._is_own, self._ids, self._num_sealed, None, None)

    @property
    def num_remote(self) -> int:
        """The number of segments, the oldest ones, that are only in object storage."""
        return len(self._rows)

    @property
    def remote_rows(self) -> NDArray[np.void]:
        """The rows of the catalogue for the segments that are only in object storage."""
        return self._rows

    @property
    def first_offset(self) -> int:
        """The first chunk id that is kept; without a segment, the offset behind those that were deleted."""
        return self._segment(0).first_chunk_id if len(self) else self.remote_stop

    def size_bytes(self, *, but_newest: bool = False) -> int:
        """Bytes of segments and of what lies beside them: their index files, in object storage their summaries.

        Cost: two `stat` for each segment in the folder.
        """
        there = int(self._rows["segment_bytes"].sum() + self._rows["summary_bytes"].sum())
        stop = len(self) - 1 if but_newest else len(self)
        return there + sum(segment.size_bytes() for segment in self[len(self._rows) : stop])

    def __len__(self) -> int:
        return len(self._rows) + len(self._ids)

    @overload
    def __getitem__(self, row: int) -> Segment: ...

    @overload
    def __getitem__(self, row: slice) -> list[Segment]: ...

    def __getitem__(self, row: int | slice) -> Segment | list[Segment]:
        if isinstance(row, slice):
            return [self._segment(each) for each in range(*row.indices(len(self)))]
        at = row + len(self) if row < 0 else row
        if not 0 <= at < len(self):
            raise IndexError(row)
        return self._segment(at)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentList):
            return NotImplemented
        ours, theirs = self._state(), other._state()
        return ours == theirs and np.array_equal(self._rows, other._rows)

    __hash__ = None  # type: ignore[assignment]

    def _state(self) -> tuple[object, ...]:
        return self._folder, self._identity, self._ids, self._num_sealed, self._location

    def _segment(self, row: int) -> Segment:
        at = row - len(self._rows)
        if at >= 0:
            first, remote = self._ids[at], None
            stop = self._ids[at + 1] if at < self._num_sealed else None
        else:
            first, stop, segment_bytes, summary_bytes, _, _, crc, num_tracking = self._rows[row].item()
            sizes = segment_bytes, summary_bytes
            derived = () if self._derived is None else self._derived.files_of(first)
            remote = RemoteSegment(self._location, self._identity, first, *sizes, crc, num_tracking, derived)
        is_newest = row == len(self) - 1
        return Segment(self._folder, self._identity, first, is_newest, self._is_own, stop, remote)

    def row_of(self, offset: int) -> int:
        """The row of the segment with an offset: the last one that begins at or before it; -1 before the first."""
        at = bisect.bisect_right(self._ids, offset) - 1
        if at >= 0:
            return len(self._rows) + at
        # Not by numpy, which would convert the byte order of all rows at each call.
        return bisect.bisect_right(self._rows["first"], offset) - 1

    def beginning_at(self, offset: int) -> Segment | None:
        """The segment with that first offset."""
        row = self.row_of(offset)
        found = self._segment(row) if row >= 0 else None
        return found if found is not None and found.first_chunk_id == offset else None

    def last_remote_since(self, timestamp_ms: int) -> int:
        """The row of the newest remote segment whose first chunk is not newer than a time; -1 if there is none.

        Clocks may go back, so it is looked for among all of them.
        """
        rows = np.flatnonzero(self._rows["first_ms"] <= timestamp_ms)
        return int(rows[-1]) if len(rows) else -1
