"""Batches into and out of the broker: columns over buffers, no object per message."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import HeadgateError
from headgate.log import Entries

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Answer = Callable[[HeadgateError | None], None]
"""Called once, in the broker's thread; without an error all entries of the batch are in the stream (or were before)."""


class PublishBatch(msgspec.Struct, eq=False):
    """Entries of one publisher, in order, and the call that answers them.

    An entry is an encoded message, or a whole sub-batch in the form of a chunk's entry with its head. `sequences`
    `(entries,)` uint64, rising, are the publishing ids of a publisher with a reference; entries not above its last one
    are left out, and count as written. The batch owns its buffers: they must not change any more. A caller that wants
    the offsets of the entries gives an empty `places`, which has them from the call of `written` on. `is_whole`: all
    entries are written or none, even across crashes; for messages of a publisher without a reference, at most as many
    as fit a chunk.
    """

    entries: Entries
    written: Answer
    sequences: NDArray[np.uint64] | None = None
    places: Written | None = None
    is_whole: bool = False


class Written:
    """The offsets of the entries of one batch, once it is written.

    A sub-batch has the offset of its first message; an entry that was left out as a duplicate has none. They are
    calculated when they are read, so the writer pays next to nothing.
    """

    __slots__ = ("_chunk_ids", "_first", "_kept", "_records", "_records_before", "_run")

    def __init__(self) -> None:
        self._chunk_ids: Int64Array | None = None
        self._run: range | None = None

    def fill_run(self, first: int, count: int) -> None:
        """Set the offsets of `count` entries of one message each, consecutive from an offset on."""
        self._run = range(first, first + count)

    def fill(
        self, chunk_ids: Int64Array, records_before: Int64Array, first: int, records: Int64Array, kept: BoolArray | None
    ) -> None:
        """Set the places of the entries within one append.

        `chunk_ids` and `records_before` `(chunks,)`: the id of each chunk, and how many messages the chunks before it
        have. `first` is how many messages of the append precede this batch; `records` `(entries,)` how many messages
        each written entry has; `kept` says which entries were written, None for all.
        """
        self._chunk_ids, self._records_before = chunk_ids, records_before
        self._first, self._records, self._kept = first, records, kept

    def as_list(self) -> list[int]:
        """The same as `offsets`; cheap for the few messages of one turn."""
        if self._run is not None:
            return list(self._run)
        offsets: list[int] = self.offsets().tolist()
        return offsets

    def offsets(self) -> Int64Array:
        """The offset of each entry, −1 for one that was left out: `(entries,)`. Raises ValueError until it is known."""
        if self._run is not None:
            return np.arange(self._run.start, self._run.stop, dtype=np.int64)
        if self._chunk_ids is None:
            raise ValueError("the batch is not written")
        numbers = np.cumsum(self._records) - self._records + self._first
        found: Int64Array
        if len(self._chunk_ids) == 1:
            found = numbers + self._chunk_ids
        else:
            chunks = np.searchsorted(self._records_before, numbers, side="right") - 1
            found = self._chunk_ids[chunks] + numbers - self._records_before[chunks]
        if self._kept is None:
            return found
        offsets = np.full(len(self._kept), -1, dtype=np.int64)
        offsets[self._kept] = found
        return offsets
