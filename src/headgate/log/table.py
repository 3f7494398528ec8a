"""The chunks of one segment as columns, from its index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.log.format import CHUNK_HEADER_BYTES, FILE_HEAD_BYTES, INDEX_RECORD_BYTES, ChunkType, IndexRecord
from headgate.log.segment_end import HELP


@dataclass(slots=True)
class ChunkTable:
    """The chunks of one segment, from its index: one row per chunk of any type, in order of position and chunk id.

    All `(chunks,)`: `chunk_id`, `timestamp_ms`, `epoch`, `position` (of the header in the segment file) int64, `type`
    uint8 (ChunkType).
    """

    chunk_id: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]
    epoch: NDArray[np.int64]
    position: NDArray[np.int64]
    type: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.chunk_id)

    @staticmethod
    def of(records: NDArray[np.void]) -> ChunkTable:
        """The table of index records (INDEX_DTYPE)."""
        names = ("chunk_id", "timestamp_ms", "epoch", "position")
        chunk_id, timestamp_ms, epoch, position = [records[name].astype(np.int64) for name in names]
        return ChunkTable(chunk_id, timestamp_ms, epoch, position, records["type"].copy())

    def record(self, row: int) -> IndexRecord:
        """The index record of a row."""
        columns = (self.chunk_id, self.timestamp_ms, self.epoch, self.position, self.type)
        return IndexRecord(*(int(column[row]) for column in columns))

    def check(self, first_row: int, least_id: int, least_position: int, *, segment_size: int, path: str | Path) -> None:
        """Raise CorruptChunkError for records out of order, or after the end of the segment.

        The records are the rows from `first_row` on of the index at `path`. Row 0 of the index must have exactly the
        least id and position, a later first row at least these.
        """
        if not len(self):
            return
        bad = self.position + CHUNK_HEADER_BYTES > segment_size
        bad |= self.type > ChunkType.TRACKING_SNAPSHOT
        if len(self) > 1:
            bad[1:] |= (np.diff(self.chunk_id) <= 0) | (np.diff(self.position) < CHUNK_HEADER_BYTES)
        place = int(self.chunk_id[0]), int(self.position[0])
        if first_row:
            bad[0] |= place[0] < least_id or place[1] < least_position
        else:
            bad[0] |= place != (least_id, least_position)
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptChunkError(
                f"index record {first_row + row} is out of order: chunk id {self.chunk_id[row]}, position "
                f"{self.position[row]}, type {self.type[row]}, in a segment of {segment_size} bytes; {HELP}",
                path=path,
                position=FILE_HEAD_BYTES + (first_row + row) * INDEX_RECORD_BYTES,
            )

    @staticmethod
    def room(rows: int) -> ChunkTable:
        """A table of this many rows, to be filled."""
        chunk_id, timestamp_ms, epoch, position = np.empty((4, rows), dtype=np.int64)
        return ChunkTable(chunk_id, timestamp_ms, epoch, position, np.empty(rows, dtype=np.uint8))

    def part(self, start: int, stop: int) -> ChunkTable:
        """The rows `start … stop`, over the same memory."""
        rows = slice(start, stop)
        return ChunkTable(
            self.chunk_id[rows], self.timestamp_ms[rows], self.epoch[rows], self.position[rows], self.type[rows]
        )

    def fill(self, start: int, rows: ChunkTable) -> None:
        """Write rows into the table from row `start` on."""
        into = self.part(start, start + len(rows))
        into.chunk_id[:] = rows.chunk_id
        into.timestamp_ms[:] = rows.timestamp_ms
        into.epoch[:] = rows.epoch
        into.position[:] = rows.position
        into.type[:] = rows.type


class GrowingTable:
    """A table that rows are added to: tables taken earlier do not change, and rows are rarely copied."""

    def __init__(self, table: ChunkTable | None = None) -> None:
        self.table = self._memory = ChunkTable.room(0) if table is None else table

    def extend(self, more: ChunkTable) -> None:
        """Add rows after the last one."""
        known = len(self.table)
        used = known + len(more)
        if used > len(self._memory):
            self._memory = ChunkTable.room(2 * used)
            self._memory.fill(0, self.table)
        self._memory.fill(known, more)
        self.table = self._memory.part(0, used)
