"""What goes in and out of the broker in bulk: columns over buffers, no object per message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import HeadgateError
from headgate.log import Entries

Int64Array = NDArray[np.int64]

Written = Callable[[HeadgateError | None], None]
"""Called once, in the broker's thread: without an error everything of the batch is in the stream (or was there)."""


class PublishBatch(msgspec.Struct, eq=False):
    """Entries of one publisher, in their order, and who is told of them.

    An entry is an encoded message or a whole sub-batch in the form of a chunk's entry, its head included. `sequences`
    `(entries,)` uint64, rising, are the publishing ids of a publisher with a reference; entries not above its last one
    are left out, and count as written. The batch owns its buffers: nobody writes into them any more.
    """

    entries: Entries
    written: Written
    sequences: NDArray[np.uint64] | None = None


@dataclass(slots=True)
class ChunkBatch:
    """Chunks for a reader that takes them whole, in stream order, over a buffer of the consumer.

    Chunk i: its 48 bytes of header at `header_starts[i]`, its data part at `data_starts[i]`, `data_lengths[i]` bytes;
    all `(chunks,)` int64. `committed_chunk_id` is the stream's last chunk at that time. Valid until the consumer scans.
    """

    data: NDArray[np.uint8]
    header_starts: Int64Array
    data_starts: Int64Array
    data_lengths: Int64Array
    committed_chunk_id: int

    def __len__(self) -> int:
        return len(self.header_starts)
