"""An open segment that several readers use at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.log import ChunkHeaders, ChunkTable, Segment
from headgate.scan.answers import FilesOfSegment
from headgate.scan.fetch.buffers import BufferPool

BLOCK_ROWS = 1024
"""The number of chunks of a block of stage 1; the borders of blocks are the same for all readers."""

_FEW_ROWS = 32
_MOST_BLOCKS = 2
"""Limit: blocks of headers kept of a segment that is not mapped; a third of a megabyte each."""


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
        """The byte where the chunk of a row begins, or the byte behind the last chunk."""
        return int(self.table.position[row]) if row < len(self.table) else self.stop_position

    def stops(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The byte behind the chunk of each of some rows, ascending."""
        position = self.table.position
        if len(rows) and int(rows[-1]) + 1 == len(position):
            return np.append(position[rows[:-1] + 1], self.stop_position)
        return position[rows + 1]

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bytes of the chunk of each of some rows, ascending."""
        return self.stops(rows) - self.table.position[rows]


class OpenSegment:
    """One open segment. `users` is counted under the lock of its owner; all else is safe for several threads.

    `files` are its derived files.
    """

    __slots__ = ("_blocks", "_lock", "files", "reader", "segment", "used_at", "users", "view")

    def __init__(self, segment: Segment, buffers: BufferPool) -> None:
        self.segment = segment
        self.reader = segment.open(allocate=buffers.take)
        self.users = 0
        self.used_at = 0
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, ChunkHeaders] = OrderedDict()
        self.files = FilesOfSegment(self.reader)
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

    # what stage 1 asks

    def chunks(self) -> ChunkTable:
        """The table as it was at the last look."""
        return self.reader.chunks()

    def stop_positions(self, start_row: int, stop_row: int) -> NDArray[np.int64]:
        """Per row the byte behind the chunk."""
        return self.reader.stop_positions(start_row, stop_row)

    def headers(self, start_row: int, stop_row: int) -> ChunkHeaders:
        """Headers and Bloom bytes of rows, all of one block, read once for all readers. Raises CorruptChunkError."""
        first = start_row // BLOCK_ROWS * BLOCK_ROWS
        last = first + BLOCK_ROWS
        if self.segment.mappable or stop_row - start_row < _FEW_ROWS or stop_row > last:
            return self.reader.headers(start_row, stop_row)
        with self._lock:
            block = self._blocks.get(first)
            if block is None or len(block) < stop_row - first:
                block = self.reader.headers(first, min(last, len(self.view.table)))
                self._blocks[first] = block
            self._blocks.move_to_end(first)
            if len(self._blocks) > _MOST_BLOCKS:
                self._blocks.popitem(last=False)
        rows = slice(start_row - first, stop_row - first)
        return ChunkHeaders(block.records[rows], block.data, block.bloom_positions[rows])

    def _look(self, *, refresh: bool) -> SegmentView:
        table = self.reader.chunks(refresh=refresh)
        _, stop_position, next_offset = self.reader.extent(table)
        return SegmentView(table, stop_position, next_offset)
