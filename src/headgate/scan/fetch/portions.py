"""Portions: the result of one read for a reader."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.scan.counters import ScanCounters
from headgate.scan.reading import ScanBatch

Int64Array = NDArray[np.int64]


class Portion(msgspec.Struct, eq=False):
    """Messages in stream order, the offset to go on from, and the counters of the read.

    `lost` messages before them were deleted before the reader came to them.
    """

    batches: list[ScanBatch]
    next_offset: int
    counters: ScanCounters
    lost: int = 0


class ChunkColumns(msgspec.Struct, eq=False):
    """Whole chunks in stream order, in one buffer.

    Chunk i: its header of 48 bytes at `header_starts[i]` of `data`, its data part at `data_starts[i]`, of
    `data_lengths[i]` bytes, and its number of messages; all `(chunks,)` int64.
    """

    data: NDArray[np.uint8]
    header_starts: Int64Array
    data_starts: Int64Array
    data_lengths: Int64Array
    chunk_ids: Int64Array
    num_records: Int64Array

    def __len__(self) -> int:
        return len(self.chunk_ids)


def _no_chunks() -> ChunkColumns:
    nothing = np.empty(0, dtype=np.int64)
    return ChunkColumns(np.empty(0, dtype=np.uint8), nothing, nothing, nothing, nothing, nothing)


class ChunkPortion(msgspec.Struct, eq=False):
    """Whole chunks; the other fields are those of `Portion`."""

    next_offset: int
    counters: ScanCounters
    chunks: ChunkColumns = msgspec.field(default_factory=_no_chunks)
    lost: int = 0
