"""Chunks on their way from a writer to readers that wait for them: nobody reads them back from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.log import decode_headers
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.message.batch import SLACK_BYTES
from headgate.scan.decide import ChunksInMemory
from headgate.scan.fetch.window import LoadedRows, Outline, SharedChunks
from headgate.scan.reading import Window

MOST_BYTES = 64 << 10
MOST_RECORDS = 1024
"""Limit: larger appends are read from the file."""


def appended_chunks(data: NDArray[np.uint8], positions: NDArray[np.int64], path: Path) -> SharedChunks:
    """Chunks that were just written, headers and all, decided once for all readers that wait for them.

    Chunk i lies at `positions[i]` of `data`; they are copied. `path` is the folder of the stream.
    """
    held = np.empty(len(data) + SLACK_BYTES, dtype=np.uint8)
    held[: len(data)] = data
    headers = decode_headers(held, positions)
    data_lengths, sizes = headers.data_length, headers.size_bytes
    chunks = ChunksInMemory(
        held,
        headers.bloom_positions + headers.bloom_length,
        data_lengths,
        headers.num_entries,
        headers.num_records,
        headers.chunk_id,
        headers.crc,
    )
    outline = Outline(headers, sizes, chunks.record_counts, chunks.chunk_ids)
    return SharedChunks(LoadedRows(Window(path, positions, headers.records, chunks), sizes), outline, are_checked=True)
