"""Chunks on their way from a writer to readers that wait for them: nobody reads them back from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.log import decode_headers
from headgate.message import SLACK_BYTES
from headgate.scan.fetch.window import Outline, SharedChunks
from headgate.scan.reading import Window


@dataclass(slots=True)
class AppendedChunks:
    """Chunks as a writer has just written them, headers and all: chunk i lies at `positions[i]` of `data`, the next one

    right after it.

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
        sizes = np.empty(len(headers), dtype=np.int64)
        np.subtract(self.positions[1:], self.positions[:-1], out=sizes[:-1])
        sizes[-1] = len(self.data) - self.positions[-1]
        window = Window(self.folder, self.positions, sizes, headers, headers.bloom_positions + headers.bloom_length)
        return SharedChunks(window, Outline.of(window, keeps_window=True), are_checked=True)
