"""The place of an offset in a stream, and how far a read from there reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.scan.fetch.segments import OpenSegment, SegmentView

MOST_WINDOW_RECORDS = 1 << 16
"""Limit: messages of a window, unless a single chunk has more."""

_BYTES_PER_RECORD = 64
"""With smaller messages results hold fewer bytes."""

_MOST_RESULTS_CHUNKS = 1 << 14


@dataclass(slots=True)
class Place:
    """The place of an offset: an open segment, as it is now, and the row of the chunk that holds the offset."""

    opened: OpenSegment
    view: SegmentView
    row: int

    def window_stop(self, window_bytes: int, most_records: int = MOST_WINDOW_RECORDS) -> int:
        """The row behind a window from here on: windows end at the same bytes for all readers, so that they meet."""
        table = self.view.table
        border = (int(table.position[self.row]) // window_bytes + 1) * window_bytes
        by_bytes = int(np.searchsorted(table.position, border, side="left"))
        most = int(table.chunk_id[self.row]) + most_records
        by_records = int(np.searchsorted(table.chunk_id, most, side="left"))
        return max(self.row + 1, min(by_bytes, by_records))

    def mapped_stop(self, window_bytes: int) -> int:
        """The row behind some chunks that are not copied: any number of records costs the same."""
        stop = self.view.position_at(self.row) + window_bytes
        return max(self.row + 1, int(np.searchsorted(self.view.table.position, stop, side="left")))

    def results_stop(self, results_bytes: int) -> int:
        """The row behind results from here on."""
        most_records = max(MOST_WINDOW_RECORDS, results_bytes // _BYTES_PER_RECORD)
        return min(self.window_stop(results_bytes, most_records), self.row + _MOST_RESULTS_CHUNKS)
