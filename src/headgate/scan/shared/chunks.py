"""Chunks for readers that take them whole: those of the stream, and new ones of the messages that match a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.log import ChunkTable
from headgate.log.build import MAX_BYTES, MAX_MESSAGES, ChunkLimits, build_chunks, chunk_boundaries
from headgate.log.format import CHUNK_HEADER_BYTES, HEADER_DTYPE, windows
from headgate.scan.reading import ScanBatch
from headgate.scan.request import ScanCounters

Int64Array = NDArray[np.int64]

_LIMITS = ChunkLimits()


@dataclass(slots=True)
class ChunkPortion:
    """Whole chunks that one read gave, and what `Portion` says.

    Chunk i: its header at `header_starts[i]` of `data`, its data part at `data_starts[i]`, of `data_lengths[i]` bytes;
    all `(chunks,)` int64.
    """

    data: NDArray[np.uint8]
    header_starts: Int64Array
    data_starts: Int64Array
    data_lengths: Int64Array
    chunk_ids: Int64Array
    next_offset: int
    counters: ScanCounters
    lost: int = 0

    @staticmethod
    def empty(next_offset: int, counters: ScanCounters, lost: int = 0) -> ChunkPortion:
        """A read that gave no chunk."""
        nothing = np.empty(0, dtype=np.int64)
        data = np.empty(0, dtype=np.uint8)
        return ChunkPortion(data, nothing, nothing, nothing, nothing, next_offset, counters, lost)


def chunks_of(
    batches: Sequence[ScanBatch], table: ChunkTable, next_offset: int, counters: ScanCounters
) -> ChunkPortion:
    """The messages of batches as new chunks: each holds messages of one chunk of the table that follow one another."""
    parts = [_chunks_of_batch(batch, table) for batch in batches]
    if not parts:
        return ChunkPortion.empty(next_offset, counters)
    bases = np.cumsum([0] + [len(part.data) for part in parts[:-1]])
    shifted = [part.header_starts + base for part, base in zip(parts, bases.tolist(), strict=True)]
    headers = np.concatenate(shifted)
    return ChunkPortion(
        np.concatenate([part.data for part in parts]) if len(parts) > 1 else parts[0].data,
        headers,
        headers + CHUNK_HEADER_BYTES,
        np.concatenate([part.data_lengths for part in parts]),
        np.concatenate([part.chunk_ids for part in parts]),
        next_offset,
        counters,
    )


@dataclass(slots=True)
class _BatchChunks:
    data: NDArray[np.uint8]
    header_starts: Int64Array
    data_lengths: Int64Array
    chunk_ids: Int64Array


def _chunks_of_batch(batch: ScanBatch, table: ChunkTable) -> _BatchChunks:
    messages, offsets = batch.messages, batch.offsets
    rows = np.searchsorted(table.chunk_id, offsets, side="right") - 1
    boundaries = _boundaries(rows, offsets, messages.lengths)
    built = build_chunks(messages.data, messages.starts, messages.lengths, None, _LIMITS, boundaries=boundaries)
    firsts = boundaries[:-1]
    headers = windows(built.data, HEADER_DTYPE)
    headers["chunk_id"][built.positions] = offsets[firsts]
    headers["timestamp_ms"][built.positions] = batch.timestamps_ms[firsts]
    headers["epoch"][built.positions] = table.epoch[rows[firsts]]
    lengths = headers["data_length"][built.positions].astype(np.int64)
    return _BatchChunks(built.data, built.positions, lengths, offsets[firsts])


def _boundaries(rows: Int64Array, offsets: Int64Array, lengths: Int64Array) -> Int64Array:
    """First message of each chunk and, last, their number."""
    breaks = (np.diff(rows) != 0) | (np.diff(offsets) != 1)
    found = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(offsets)]])
    sizes = np.add.reduceat(lengths, found[:-1])
    large = np.flatnonzero((np.diff(found) > MAX_MESSAGES) | (sizes > MAX_BYTES))
    cuts = [
        chunk_boundaries(lengths[found[run] : found[run + 1]], _LIMITS)[1:-1] + found[run] for run in large.tolist()
    ]
    return np.sort(np.concatenate([found, *cuts]))
