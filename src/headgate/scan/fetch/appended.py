"""Chunks on their way from a writer to readers that wait for them: nobody reads them back from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.log import decode_headers
from headgate.message.batch import SLACK_BYTES
from headgate.scan.decide import ChunksInMemory
from headgate.scan.fetch.window import LoadedRows, Outline, SharedChunks
from headgate.scan.reading import Window


@dataclass(frozen=True, slots=True)
class AppendedChunks:
    """Chunks as a writer has just written them, headers and all: chunk i lies at `positions[i]` of `data`.

    `positions` is `(chunks,)` int64; nobody writes to `data` again. `folder` is that of the stream.
    """

    data: NDArray[np.uint8]
    positions: NDArray[np.int64]
    folder: Path

    def shared(self) -> SharedChunks:
        """The chunks, copied, to be decided once for all readers that wait for them."""
        data = np.empty(len(self.data) + SLACK_BYTES, dtype=np.uint8)
        data[: len(self.data)] = self.data
        headers = decode_headers(data, self.positions)
        sizes = headers.size_bytes
        chunks = ChunksInMemory.of(headers, headers.bloom_positions + headers.bloom_length)
        outline = Outline(headers, sizes, chunks.record_counts, chunks.chunk_ids)
        window = Window(self.folder, self.positions, headers.records, chunks)
        return SharedChunks(LoadedRows(window, sizes), outline, are_checked=True)
