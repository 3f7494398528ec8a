"""Encoded messages side by side: the unit that kernels and evaluators take."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

SLACK_BYTES = 8
"""Readable bytes after the last message of every buffer given to a kernel, so that it may load eight bytes at once."""


class EncodedMessages(msgspec.Struct, eq=False):
    """`starts[i] … starts[i] + lengths[i]` of `data` are message i; `data` has `SLACK_BYTES` after the last.

    `data` is `(bytes,)` uint8, `starts` and `lengths` are `(messages,)` int64. The buffer may be reused by its owner:
    a consumer that keeps messages copies them.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def stop(self) -> int:
        """Where in `data` the last of the messages ends; 0 where there are none."""
        return int((self.starts + self.lengths).max(initial=0))

    def message(self, row: int) -> bytes:
        """The bytes of one message, copied."""
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    def all_bytes(self) -> list[bytes]:
        """The bytes of every message, copied: a third of the cost of asking for each."""
        data = self.data.data
        stops = (self.starts + self.lengths).tolist()
        return [data[start:stop].tobytes() for start, stop in zip(self.starts.tolist(), stops, strict=True)]

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> EncodedMessages:
        """The messages of `rows` (a slice, positions or a mask), over the same buffer."""
        return EncodedMessages(self.data, self.starts[rows], self.lengths[rows])

    @staticmethod
    def of(messages: Iterable[bytes]) -> EncodedMessages:
        """Messages copied into one new buffer."""
        parts = list(messages)
        lengths = np.fromiter((len(part) for part in parts), dtype=np.int64, count=len(parts))
        stops = np.cumsum(lengths, dtype=np.int64)
        data = np.frombuffer(b"".join(parts) + bytes(SLACK_BYTES), dtype=np.uint8).copy()
        return EncodedMessages(data, stops - lengths, lengths)


def outside_of_buffer(batch: EncodedMessages, row: int) -> ValueError:
    """The error of a message that does not lie within the buffer, which a kernel found."""
    place = f"it has {batch.lengths[row]} bytes from {batch.starts[row]} on"
    room = f"{len(batch.data) - SLACK_BYTES} bytes, and {SLACK_BYTES} of slack"
    return ValueError(f"message {row} is not within the buffer: {place}, the buffer {room}")
