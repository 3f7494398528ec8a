"""The chunks of one segment as columns, from its index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
        return ChunkTable(
            records["chunk_id"].astype(np.int64),
            records["timestamp_ms"].astype(np.int64),
            records["epoch"].astype(np.int64),
            records["position"].astype(np.int64),
            records["type"].copy(),
        )

    @staticmethod
    def room(rows: int) -> ChunkTable:
        """A table of so many rows, to be filled."""
        chunk_id, timestamp_ms, epoch, position = np.empty((4, rows), dtype=np.int64)
        return ChunkTable(chunk_id, timestamp_ms, epoch, position, np.empty(rows, dtype=np.uint8))

    def part(self, start: int, stop: int) -> ChunkTable:
        """The rows `start … stop`, over the same memory."""
        rows = slice(start, stop)
        return ChunkTable(
            self.chunk_id[rows], self.timestamp_ms[rows], self.epoch[rows], self.position[rows], self.type[rows]
        )

    def fill(self, start: int, rows: ChunkTable) -> None:
        """Write rows into it from row `start` on."""
        into = self.part(start, start + len(rows))
        into.chunk_id[:] = rows.chunk_id
        into.timestamp_ms[:] = rows.timestamp_ms
        into.epoch[:] = rows.epoch
        into.position[:] = rows.position
        into.type[:] = rows.type


class GrowingTable:
    """Memory of a table that rows are added to: tables given before stay as they are, and rows are rarely copied."""

    def __init__(self, table: ChunkTable) -> None:
        self.table = self._memory = table

    def extend(self, more: ChunkTable) -> None:
        """Add rows behind the last one."""
        known = len(self.table)
        used = known + len(more)
        if used > len(self._memory):
            self._memory = ChunkTable.room(2 * used)
            self._memory.fill(0, self.table)
        self._memory.fill(known, more)
        self.table = self._memory.part(0, used)
