"""New chunks of the messages that match a filter, for readers that take whole chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.log import MAX_BYTES, MAX_MESSAGES, ChunkLimits, build_chunks, chunk_boundaries
from headgate.log.format import CHUNK_HEADER_BYTES, HEADER_DTYPE, windows
from headgate.scan.fetch.portions import ChunkColumns
from headgate.scan.reading import ScanBatch

Int64Array = NDArray[np.int64]

_LIMITS = ChunkLimits()


def chunks_of(batches: Sequence[ScanBatch], chunk_ids: Int64Array, epochs: Int64Array) -> ChunkColumns:
    """The messages of batches as new chunks: each holds messages that follow one another in one chunk of the stream.

    `chunk_ids`, ascending, and `epochs` are those of chunks of the stream, including all chunks of the messages.
    """
    parts = [_chunks_of_batch(batch, chunk_ids, epochs) for batch in batches]
    bases = np.cumsum([0] + [len(part.data) for part in parts[:-1]])
    headers = np.concatenate([part.header_starts + base for part, base in zip(parts, bases.tolist(), strict=True)])
    return ChunkColumns(
        np.concatenate([part.data for part in parts]) if len(parts) > 1 else parts[0].data,
        headers,
        headers + CHUNK_HEADER_BYTES,
        np.concatenate([part.data_lengths for part in parts]),
        np.concatenate([part.chunk_ids for part in parts]),
        np.concatenate([part.num_records for part in parts]),
    )


def _chunks_of_batch(batch: ScanBatch, chunk_ids: Int64Array, epochs: Int64Array) -> ChunkColumns:
    messages, offsets = batch.messages, batch.offsets
    rows = np.searchsorted(chunk_ids, offsets, side="right") - 1
    boundaries = _boundaries(rows, offsets, messages.lengths)
    built = build_chunks(messages.data, messages.starts, messages.lengths, None, _LIMITS, boundaries=boundaries)
    firsts = boundaries[:-1]
    headers = windows(built.data, HEADER_DTYPE)
    headers["chunk_id"][built.positions] = offsets[firsts]
    headers["timestamp_ms"][built.positions] = batch.timestamps_ms[firsts]
    headers["epoch"][built.positions] = epochs[rows[firsts]]
    lengths = headers["data_length"][built.positions].astype(np.int64)
    starts = built.positions
    return ChunkColumns(built.data, starts, starts + CHUNK_HEADER_BYTES, lengths, offsets[firsts], built.num_records)


def _boundaries(rows: Int64Array, offsets: Int64Array, lengths: Int64Array) -> Int64Array:
    """The first message of each chunk and, last, the number of messages."""
    breaks = (np.diff(rows) != 0) | (np.diff(offsets) != 1)
    found = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(offsets)]])
    sizes = np.add.reduceat(lengths, found[:-1])
    large = np.flatnonzero((np.diff(found) > MAX_MESSAGES) | (sizes > MAX_BYTES))
    cuts = [
        chunk_boundaries(lengths[found[run] : found[run + 1]], _LIMITS)[1:-1] + found[run] for run in large.tolist()
    ]
    return np.sort(np.concatenate([found, *cuts]))
