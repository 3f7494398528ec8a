"""Publishers, and the batches that they queue for a stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.broker.backlog import Backlog
from headgate.broker.batches import PublishBatch
from headgate.broker.refusals import RefusedSequences
from headgate.log import Entries


class Publisher:
    """One publisher of one stream, from `Session.publisher` to `close`; `reference` is the name that deduplicates.

    `stream` is the stream's name. `backlog` is its session's, which counts its queued batches. `declared` tells it from
    earlier and later publishers of its reference.
    """

    __slots__ = (
        "_closed",
        "_name",
        "_queue",
        "_refused",
        "backlog",
        "declared",
        "entries_confirmed",
        "entries_published",
        "entries_refused",
        "is_closed",
        "reference",
        "stream",
    )

    def __init__(
        self,
        stream: str,
        *,
        reference: str | None,
        backlog: Backlog,
        refused: RefusedSequences,
        queue: Callable[[Queued], None],
        closed: Callable[[Publisher], None],
    ) -> None:
        self.stream = stream
        self.reference = reference
        self.is_closed = False
        self.entries_published = self.entries_confirmed = self.entries_refused = 0
        self._name = None if reference is None else reference.encode("utf-8", "surrogatepass")
        self.backlog = backlog
        self._refused = refused
        self._queue = queue
        self._closed = closed
        self.declared = 0 if reference is None else refused.declare()

    def publish(self, batch: PublishBatch) -> None:
        """Queue a batch; its `written` is called once, later, or at once if the publisher is closed.

        Raises ValueError for columns that do not fit.
        """
        entries, sequences = batch.entries, batch.sequences
        size_bytes, count = entries.check(), entries.count
        if (self.reference is None) != (sequences is None):
            raise ValueError("a publisher with a reference gives sequences, another none")
        if sequences is not None and len(sequences) != count:
            raise ValueError(f"{len(sequences)} sequences for {count} entries")
        self.entries_published += count
        self.backlog.add(count, size_bytes)
        self._queue(Queued(self, self._name, batch, entries, count, size_bytes))

    @property
    def is_held_back(self) -> bool:
        """Whether refused entries of it are to be stored first; then each of its entries is checked by itself."""
        return self._name is not None and self._refused.holds_back(self._name, self.declared)

    def hold_back(self, sequences: NDArray[np.uint64]) -> None:
        """Note refused sequences: later ones are refused as well until these are stored."""
        if self._name is not None:
            self._refused.add(self._name, sequences)

    def close(self) -> None:
        """Stop publishing; queued batches are still written. Again is harmless."""
        if not self.is_closed:
            self.is_closed = True
            self._closed(self)


class Queued(msgspec.Struct, eq=False):
    """One queued batch of `count` entries; `entries` and `sequences` are the part still to be written."""

    publisher: Publisher
    reference: bytes | None
    batch: PublishBatch
    entries: Entries
    count: int
    size_bytes: int
    sequences: NDArray[np.uint64] | None = None
    kept: NDArray[np.bool_] | None = None
    """`(count,)`: which entries are left; None for all."""
