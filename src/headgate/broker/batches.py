"""What goes in and out of the broker in bulk: columns over buffers, no object per message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import HeadgateError
from headgate.log.build import FilterValues

Int64Array = NDArray[np.int64]

Written = Callable[[HeadgateError | None], None]
"""Called once, in the broker's thread: without an error everything of the batch is in the stream (or was there)."""


@dataclass(slots=True)
class PublishBatch:
    """Entries of one publisher, in their order.

    Entry i is `starts[i] … starts[i] + lengths[i]` of `data` `(bytes,)` uint8: an encoded message, or, where
    `sub_batch_records[i]` is above 0, a whole sub-batch in the form of a chunk's entry, its head included, with so
    many messages. `starts`, `lengths`, `sub_batch_records` `(entries,)` int64; None: there are only messages.
    `filter_values` None: no message has one. `sequences` `(entries,)` uint64, rising, are the publishing ids of a
    publisher with a reference; entries not above its last one are left out, and count as written. The batch owns its
    buffers: nobody writes into them any more.
    """

    data: NDArray[np.uint8]
    starts: Int64Array
    lengths: Int64Array
    written: Written
    filter_values: FilterValues | None = None
    sub_batch_records: Int64Array | None = None
    sequences: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.starts)


class PublishMessage(msgspec.Struct):
    """A message that came alone, from a publisher without a name; somebody waits for it, so it goes without columns.

    `written` as that of a batch.
    """

    message: bytes
    written: Written
    filter_value: bytes | None = None

    def __len__(self) -> int:
        return 1

    def in_columns(self) -> PublishBatch:
        """The same as a batch."""
        return PublishBatch(
            np.frombuffer(self.message, dtype=np.uint8),
            np.zeros(1, dtype=np.int64),
            np.array([len(self.message)], dtype=np.int64),
            self.written,
            None if self.filter_value is None else FilterValues.of([self.filter_value]),
        )


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
