"""Consuming one stream message by message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.client.subscription import Subscription
from headgate.errors import ConfigError
from headgate.message import Message
from headgate.scan import ScanBatch, ScanCounters


class Consumer:
    """Iterates over `(offset, message)` of a stream, in order, for ever; waits at the end for new messages.

    Not for several threads. Filtered-out messages are not given: the server skips chunks by filter values (stage 1) and
    evaluates the expression (stage 2), the client evaluates `post_filter` (stage 3). A message that is no AMQP 1.0
    message raises MessageError; the next call continues after it.
    """

    def __init__(self, subscription: Subscription, *, post_filter: Callable[[Message], bool] | None) -> None:
        self.next_offset: int | None = None
        """The offset after the last message that was handed out or left out here; None before the first."""
        self.messages_left_out = 0
        """Messages for which `post_filter` was false."""
        self._subscription = subscription
        self._post_filter = post_filter
        self._batch: ScanBatch | None = None
        self._row = 0

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._subscription.options.stream

    @property
    def counters(self) -> ScanCounters:
        """The client's counters: received messages, and evaluated ones where it filters itself."""
        return self._subscription.counters

    @property
    def is_active(self) -> bool:
        """Whether this is the member of its group that gets messages; without a group it is."""
        return self._subscription.is_active

    def __iter__(self) -> Iterator[tuple[int, Message]]:
        return self

    def __next__(self) -> tuple[int, Message]:
        received = self.next(None)
        if received is None:
            raise StopIteration
        return received

    def next(self, timeout_s: float | None = None) -> tuple[int, Message] | None:
        """The next message and its offset; None when none came in `timeout_s` (None: wait for ever)."""
        while True:
            while self._batch is not None and self._row < len(self._batch):
                row = self._row
                self._row += 1
                offset = int(self._batch.offsets[row])
                self.next_offset = offset + 1
                message = Message.decode(self._batch.messages.message(row))
                if self._post_filter is None or self._post_filter(message):
                    return offset, message
                self.messages_left_out += 1
            self._batch = self._subscription.read(timeout_s)
            self._row = 0
            if self._batch is None:
                return None

    @property
    def timestamp_ms(self) -> int | None:
        """When the chunk of the last message was written; None before the first."""
        return None if self._batch is None or self._row == 0 else int(self._batch.timestamps_ms[self._row - 1])

    def store_offset(self, offset: int | None = None) -> None:
        """Keep a bookmark under the consumer's name, by default the last message handed out.

        A consumer of that name without a `start` continues after it. Raises ConfigError.
        """
        if offset is None:
            if self.next_offset is None:
                raise ConfigError("no message was read yet: there is no offset to store")
            offset = self.next_offset - 1
        self._subscription.store_offset(offset)

    def close(self) -> None:
        """End the subscription."""
        self._subscription.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._subscription.abandon()
