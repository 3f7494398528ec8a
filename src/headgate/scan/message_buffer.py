"""Messages that a reader collects until there are enough of them to decode, try or route at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.message import EncodedMessages
from headgate.message.lookup import MessageCollector
from headgate.scan.reading import ScanBatch

Int64Array = NDArray[np.int64]


class MessageBuffer:
    """Copies of the messages of some batches, in one buffer, with their offsets and times.

    `room_bytes` is the first size of the buffer.
    """

    def __init__(self, *, room_bytes: int = 0) -> None:
        self._collector = MessageCollector(room_bytes=room_bytes)
        self._offsets: list[Int64Array] = []
        self._timestamps_ms: list[Int64Array] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, batch: ScanBatch, *, with_bytes: bool = True) -> None:
        """Add a batch; `with_bytes` false: only its offsets and times."""
        if len(batch):
            if with_bytes:
                self._collector.add(batch.messages)
            self._offsets.append(np.array(batch.offsets))
            self._timestamps_ms.append(np.array(batch.timestamps_ms))
            self._count += len(batch)

    def reaches(self, messages: int, size_bytes: int) -> bool:
        """Whether there are at least this many messages or bytes."""
        return self._count >= messages or self._collector.size_bytes >= size_bytes

    def take(self) -> tuple[EncodedMessages, Int64Array, Int64Array]:
        """The messages added since the last call, at least one, with offsets and times `(messages,)`."""
        taken = self._collector.take(), np.concatenate(self._offsets), np.concatenate(self._timestamps_ms)
        self._offsets, self._timestamps_ms, self._count = [], [], 0
        return taken

    def reuse(self, messages: EncodedMessages) -> None:
        """Take back the buffer of messages that are not used any more."""
        self._collector.reuse(messages)
