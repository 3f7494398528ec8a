"""Keeping messages beyond the life of the buffer they were read into: copied side by side, in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.message.batch import SLACK_BYTES, EncodedMessages


class MessageCollector:
    """A growing buffer of messages; `take` hands them over and starts again.

    `room_bytes` are set aside at once, which costs nothing until they are filled; growing beyond copies.
    """

    __slots__ = ("_data", "_lengths", "_starts", "size_bytes")

    def __init__(self, *, room_bytes: int = 0) -> None:
        self._data: NDArray[np.uint8] = np.empty(room_bytes, dtype=np.uint8)
        self._starts: list[NDArray[np.int64]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self.size_bytes = 0

    def add(self, messages: EncodedMessages) -> None:
        """Copy messages behind the collected ones."""
        added = int(messages.lengths.sum())
        self._reserve(self.size_bytes + added)
        target = self._data[self.size_bytes :]
        count = len(messages.starts)
        # The starts, the lengths, and the starts of the copies: one array, as each has an address to be asked for.
        rows = np.empty((3, count), dtype=np.int64)
        rows[0], rows[1] = messages.starts, messages.lengths
        lengths, starts = rows[1], rows[2]
        kernel = kernels.load("headgate.message.lookup.kernel")
        if kernel is not None and count:
            at, step = kernels.address_of(rows), 8 * count
            places = kernels.address_of(messages.data), at, at + step, count
            kernel.gather(*places, kernels.address_of(target), at + 2 * step)
        else:
            joined = b"".join(messages.message(row) for row in range(count))
            target[:added] = np.frombuffer(joined, dtype=np.uint8)
            starts = np.cumsum(lengths) - lengths
        self._starts.append(starts + self.size_bytes)
        self._lengths.append(lengths)
        self.size_bytes += added

    def take(self) -> EncodedMessages:
        """All messages added since the last call, in a buffer that is theirs."""
        if not self._starts:
            return EncodedMessages.of([])
        taken = EncodedMessages(self._data, np.concatenate(self._starts), np.concatenate(self._lengths))
        self._data = np.zeros(0, dtype=np.uint8)
        self._starts, self._lengths, self.size_bytes = [], [], 0
        return taken

    def reuse(self, taken: EncodedMessages) -> None:
        """Reuse the buffer that `take` returned with these messages; they must no longer be used.

        Memory fresh from the system costs more than the copy into it.
        """
        if not self._starts and len(taken.data) > len(self._data):
            self._data = taken.data

    def _reserve(self, size_bytes: int) -> None:
        if size_bytes + SLACK_BYTES > len(self._data):
            grown = np.zeros(max(1 << 16, size_bytes + SLACK_BYTES + size_bytes // 2), dtype=np.uint8)
            grown[: self.size_bytes] = self._data[: self.size_bytes]
            self._data = grown
