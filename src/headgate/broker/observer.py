"""An observer of the broker's batches, for tracing. Without one, each batch costs a comparison with None."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.broker.publishers import Queued
from headgate.errors import HeadgateError
from headgate.message import EncodedMessages
from headgate.scan.fetch import ChunkColumns

Delivered = Callable[[str, int, Iterable[memoryview]], None]
"""`BatchObserver.delivered` of one stream."""


class BatchObserver(Protocol):
    """Told of each batch after it, in the broker's thread; must not wait, and must not raise.

    The bytes of messages are made when they are asked for, and are gone when the call ends.
    """

    def published(
        self, stream: str, count: int, messages: Iterable[memoryview], *, began_ms: int, error: HeadgateError | None
    ) -> None:
        """One write of a stream: what all publishers had queued for it, or the error that refused it."""

    def delivered(self, stream: str, reader: str, count: int, messages: Iterable[memoryview]) -> None:
        """Messages for one consumer, receiver or member of a group.

        `reader` is the name of its subscription, group or stored offsets; empty without one. Whole chunks count as one
        part of `messages`.
        """


def queued_parts(batches: Sequence[Queued]) -> Iterator[memoryview]:
    """The entries of queued batches."""
    for queued in batches:
        data, starts, lengths = queued.entries.columns
        yield from _parts(data, starts.tolist(), lengths.tolist())


def message_parts(messages: EncodedMessages) -> Iterator[memoryview]:
    """Encoded messages."""
    return _parts(messages.data, messages.starts.tolist(), messages.lengths.tolist())


def chunk_parts(chunks: ChunkColumns) -> Iterator[memoryview]:
    """The data of whole chunks."""
    return _parts(chunks.data, chunks.data_starts.tolist(), chunks.data_lengths.tolist())


def _parts(data: NDArray[np.uint8], starts: Iterable[int], lengths: Iterable[int]) -> Iterator[memoryview]:
    view = data.data
    return (view[start : start + length] for start, length in zip(starts, lengths, strict=True))
