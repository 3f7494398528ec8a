"""An open segment that several readers use at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from headgate.log import ChunkTable, Segment


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment as it was at one look: its table, the byte and the offset behind the last chunk."""

    table: ChunkTable
    stop_position: int
    next_offset: int

    def row_of(self, offset: int) -> int:
        """The row of the chunk that holds an offset of this segment."""
        return int(np.searchsorted(self.table.chunk_id, offset, side="right")) - 1

    def offset_at(self, row: int) -> int:
        """The chunk id of a row, or the offset behind the last one."""
        return int(self.table.chunk_id[row]) if row < len(self.table) else self.next_offset

    def position_at(self, row: int) -> int:
        """The byte where the chunk of a row begins, or the one behind the last."""
        return int(self.table.position[row]) if row < len(self.table) else self.stop_position


class OpenSegment:
    """One open segment. `users` is counted under the lock of whoever holds it; all else is safe for several threads."""

    __slots__ = ("_lock", "reader", "segment", "used_at", "users", "view")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.reader = segment.open(shared=True)
        self.users = 0
        self.used_at = 0
        self._lock = threading.Lock()
        try:
            self.view = self._look(refresh=False)
        except BaseException:
            self.reader.close()
            raise

    def refresh(self) -> SegmentView:
        """Look for chunks that were added."""
        with self._lock:
            self.view = self._look(refresh=True)
        return self.view

    def _look(self, *, refresh: bool) -> SegmentView:
        table = self.reader.chunks(refresh=refresh)
        _, stop_position, next_offset = self.reader.extent(table)
        return SegmentView(table, stop_position, next_offset)
