"""Messages or chunks found for a reader and not taken yet: columns over shared buffers, given out piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.log import memory_of
from headgate.scan.fetch import ChunkColumns, ChunkPortion, Portion
from headgate.scan.reading import ScanBatch

Batch = TypeVar("Batch", bound=ScanBatch | ChunkColumns)


class Pending(ABC, Generic[Batch]):
    """The messages or chunks that a reader may take, in stream order; false if it is empty."""

    __slots__ = ()

    @abstractmethod
    def __bool__(self) -> bool: ...

    @property
    @abstractmethod
    def is_low(self) -> bool:
        """Whether little is left, so that more may be read."""

    @property
    @abstractmethod
    def next_offset(self) -> int:
        """The offset of the first one; not for an empty queue."""

    @property
    @abstractmethod
    def buffers(self) -> list[NDArray[np.uint8]]:
        """The buffers that hold them."""

    @abstractmethod
    def add(self, portion: Portion | ChunkPortion) -> None:
        """Append the result of a read."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all."""

    @abstractmethod
    def take(self, at_most: int, max_bytes: int) -> Batch | None:
        """The first ones, at least one; all lie in one buffer, so there may be fewer than asked for. None if empty."""


class PendingMessages(Pending[ScanBatch]):
    """Messages in stream order."""

    __slots__ = ("_at", "_batches")

    def __init__(self) -> None:
        self._batches: deque[ScanBatch] = deque()
        self._at = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def is_low(self) -> bool:
        """Whether more may be read: nothing is left."""
        return not self._batches

    @property
    def next_offset(self) -> int:
        """The offset of the first message; not for an empty queue."""
        return int(self._batches[0].offsets[self._at])

    @property
    def buffers(self) -> list[NDArray[np.uint8]]:
        """The buffers that hold the messages."""
        return [batch.messages.data for batch in self._batches]

    def add(self, portion: Portion | ChunkPortion) -> None:
        """Append messages."""
        assert isinstance(portion, Portion)
        self._batches.extend(portion.batches)

    def clear(self) -> None:
        """Forget all messages."""
        self._batches.clear()
        self._at = 0

    def take(self, at_most: int, max_bytes: int) -> ScanBatch | None:
        """The first messages, at least one; None if there are none."""
        if not self._batches:
            return None
        batch = self._batches[0]
        count, messages = len(batch.offsets), batch.messages
        # A buffer within the limit saves the sum.
        if (
            not self._at
            and count <= at_most
            and (len(messages.data) <= max_bytes or total(messages.lengths) <= max_bytes)
        ):
            return self._batches.popleft()
        part = _fitting(messages.lengths, self._at, at_most, max_bytes)
        self._at = part.stop
        if self._at == count:
            self._batches.popleft()
            self._at = 0
        return ScanBatch(messages.take(part), batch.offsets[part], batch.timestamps_ms[part])


class PendingChunks(Pending[ChunkColumns]):
    """Chunks in stream order."""

    __slots__ = ("_at", "_portions")

    def __init__(self) -> None:
        self._portions: deque[ChunkColumns] = deque()
        self._at = 0

    def __bool__(self) -> bool:
        return bool(self._portions)

    @property
    def is_low(self) -> bool:
        """Whether more may be read: at most half of the last portion is left, which is sent meanwhile."""
        return not self._portions or (len(self._portions) == 1 and 2 * self._at >= len(self._portions[0]))

    @property
    def next_offset(self) -> int:
        """The id of the first chunk; not for an empty queue."""
        return int(self._portions[0].chunk_ids[self._at])

    @property
    def buffers(self) -> list[NDArray[np.uint8]]:
        """The buffers that hold the chunks."""
        return [portion.data for portion in self._portions]

    def add(self, portion: Portion | ChunkPortion) -> None:
        """Append chunks."""
        assert isinstance(portion, ChunkPortion)
        if len(portion.chunks.chunk_ids):
            self._portions.append(portion.chunks)

    def clear(self) -> None:
        """Forget all chunks."""
        self._portions.clear()
        self._at = 0

    def take(self, at_most: int, max_bytes: int) -> ChunkColumns | None:
        """The first chunks, at least one; `max_bytes` counts data parts. None if there are none."""
        if not self._portions:
            return None
        portion = self._portions[0]
        count = len(portion.chunk_ids)
        # A buffer within the limit saves the sum.
        if (
            not self._at
            and count <= at_most
            and (len(portion.data) <= max_bytes or total(portion.data_lengths) <= max_bytes)
        ):
            return self._portions.popleft()
        part = _fitting(portion.data_lengths, self._at, at_most, max_bytes)
        self._at = part.stop
        if self._at == count:
            self._portions.popleft()
            self._at = 0
        return ChunkColumns(
            portion.data,
            portion.header_starts[part],
            portion.data_starts[part],
            portion.data_lengths[part],
            portion.chunk_ids[part],
            portion.num_records[part],
        )


def _fitting(lengths: NDArray[np.int64], first: int, at_most: int, max_bytes: int) -> slice:
    """The rows from `first` on that fit both limits, at least one."""
    ends = np.cumsum(lengths[first : first + at_most])
    return slice(first, first + max(1, int(np.searchsorted(ends, max_bytes, side="right"))))


def held_bytes(buffers: list[NDArray[np.uint8]]) -> dict[int, int]:
    """The memory behind some arrays: identity of each buffer → bytes; without mapped files."""
    owners = (memory_of(array) for array in buffers)
    return {id(owner): owner.nbytes for owner in owners if owner is not None}
