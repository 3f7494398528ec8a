"""Publishing to one stream: sent messages are kept until they are confirmed."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.client.codes import refusal
from headgate.errors import ConfigError, ConnectionLostError, HeadgateError, RemoteProtocolError, UnsupportedError
from headgate.log import MAX_BYTES, ChunkLimits, FilterValues, build_chunks
from headgate.log.format import CHUNK_HEADER_BYTES, Compression, decode_headers
from headgate.message import EncodedMessages, Message
from headgate.protocols.stream import PublishConfirm, PublishError
from headgate.protocols.stream.frames import DeclarePublisher, DeletePublisher, MetadataUpdate

if TYPE_CHECKING:
    from headgate.client.connection import Connection, Event
    from headgate.client.retry import Retry

MOST_UNCONFIRMED = 20_000
"""At most this many messages are unconfirmed; then sending waits for confirms."""

_MESSAGES_AT_ONCE = 4096
_PUBLISHER_ID = 0

FilterValueOf = Callable[[Message], str | bytes | None]
"""Gives the filter value of a message, or None for none."""


@dataclass(slots=True)
class _Block:
    """Entries that were sent together, and how many of their messages, of `count`, are not confirmed yet.

    `records` None: `entries` are messages. Otherwise each entry has its head and is a sub-batch of as many messages as
    `records` says; its publishing id in `ids` is the id of its last message.
    """

    ids: NDArray[np.uint64]
    entries: EncodedMessages
    values: FilterValues | None
    records: NDArray[np.int64] | None
    count: int
    left: int

    def messages_of(self, ids: NDArray[np.uint64]) -> int:
        """How many messages are confirmed with some of its publishing ids."""
        return len(ids) if self.records is None else int(self.records[np.searchsorted(self.ids, ids)].sum())


class Publisher:
    """Sends messages to one stream. Not for several threads.

    `send` and `send_many` return when the messages are on their way; `flush` when all of them are in the stream.
    Refusals of the server are raised by the next call of either, with their code.

    With a name, publishing ids rise over all runs of the program: the server drops messages it already has. So when the
    connection breaks, a named publisher connects again and repeats unconfirmed messages; each message is in the stream
    once. When the server refuses a message, it refuses the messages sent after it as well: the ids go on behind the
    last confirmed one (`next_publishing_id`), and the caller sends again from there. Without a name this is not
    possible, and ConnectionLostError says how many messages are in doubt.

    With a `compression`, the messages of one call are packed: at most 4096 messages or 1 MiB are one sub-batch, which
    the server confirms and drops as a whole. A message sent alone is packed alone, which saves nothing.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        stream: str,
        *,
        name: str | None,
        filter_value: FilterValueOf | None,
        compression: Compression,
        most_unconfirmed: int,
        timeout_s: float,
        retry: Retry,
        release: Callable[[Connection], None],
    ) -> None:
        if most_unconfirmed < 1:
            raise ConfigError(f"most_unconfirmed is {most_unconfirmed}; expected 1 or more")
        if filter_value is not None and compression is not Compression.NONE:
            raise _no_filter_values(stream)
        self.stream = stream
        self.name = name
        self.confirmed = 0
        self.last_sequence = 0
        """The highest publishing id of this name that was in the stream when the publisher began; 0 for none."""
        self._connect = connect
        self._release = release
        self._filter_value = filter_value
        self._compression = compression
        self._most_unconfirmed = most_unconfirmed
        self._timeout_s = timeout_s
        self._retry = retry
        self._blocks: deque[_Block] = deque()
        self._unconfirmed = 0
        self._refused: HeadgateError | None = None
        self._refused_count = 0
        self._confirmed_up_to = 0
        self._connection: Connection | None = retry.run(self._open)
        if name is not None:
            self.last_sequence = self._connection.last_sequence(name, stream)
        self._confirmed_up_to = self.last_sequence
        self._next_id = self.last_sequence + 1

    @property
    def unconfirmed(self) -> int:
        """Messages that are on their way."""
        return self._unconfirmed

    @property
    def next_publishing_id(self) -> int:
        """The publishing id of the next message."""
        return self._next_id

    def send(
        self,
        message: Message | bytes,
        *,
        filter_value: str | bytes | None = None,
        publishing_id: int | None = None,
    ) -> int:
        """Send one message at once; gives its publishing id.

        A `Message` without a body is sent as `Message.with_body` makes it; bytes are sent as they are. `filter_value`
        replaces the value of the publisher's function. `publishing_id` has to be above all earlier ones. Errors as for
        `send_encoded`.
        """
        encoded, value = self._encoded(message)
        value = value if filter_value is None else _octets(filter_value)
        first = self._next_id if publishing_id is None else publishing_id
        values = FilterValues.of([value]) if value else None
        self.send_encoded(EncodedMessages.of([encoded]), values, ids=np.array([first], dtype=np.uint64))
        return first

    def send_many(self, messages: Iterable[Message | bytes]) -> int:
        """Send messages, thousands in a frame; gives their number."""
        count = 0
        part: list[tuple[bytes, bytes | None]] = []
        for message in messages:
            part.append(self._encoded(message))
            if len(part) == _MESSAGES_AT_ONCE:
                count += self._send_part(part)
                part = []
        return count + (self._send_part(part) if part else 0)

    def send_encoded(
        self, messages: EncodedMessages, values: FilterValues | None = None, *, ids: NDArray[np.uint64] | None = None
    ) -> None:
        """Send many encoded messages with their filter values; `ids` `(messages,)` rise, above all earlier ones.

        The buffers belong to the publisher until the messages are confirmed. Raises earlier refusals of the server,
        UnsupportedError for filter values with a server that does not know them or with compression,
        ConnectionLostError, ConfigError for ids.
        """
        self._raise_refused()
        count = len(messages)
        if count == 0:
            return
        if ids is None:
            ids = np.arange(self._next_id, self._next_id + count, dtype=np.uint64)
        elif int(ids[0]) < self._next_id or (count > 1 and not bool((ids[1:] > ids[:-1]).all())):
            raise ConfigError(f"publishing ids have to rise, and the next one is {self._next_id}")
        self._next_id = int(ids[-1]) + 1
        if values is not None and not bool((values.lengths > 0).any()):
            values = None
        if values is not None and self._compression is not Compression.NONE:
            raise _no_filter_values(self.stream)
        for first in range(0, count, _MESSAGES_AT_ONCE):
            rows = slice(first, first + _MESSAGES_AT_ONCE)
            part = messages.take(rows)
            block = self._block(ids[rows], part, None if values is None else values.slice(rows.start, rows.stop))
            # A connection that broke while nothing was on its way is noticed here, when nothing is in doubt yet.
            self._guarded(partial(self._take, timeout_s=0.0))
            self._wait_until_at_most(max(0, self._most_unconfirmed - len(part)), self._timeout_s)
            self._check_values(values)
            self._blocks.append(block)
            self._unconfirmed += len(part)
            self._guarded(partial(self._write, block=block))

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything sent is in the stream; raises refusals of the server.

        ConnectionLostError after `timeout_s` (default: the client's) without a confirm.
        """
        self._wait_until_at_most(0, self._timeout_s if timeout_s is None else timeout_s)
        self._raise_refused()

    def close(self) -> None:
        """Flush, and give the connection back."""
        if self._connection is None:
            return
        try:
            self.flush()
            # Everything is confirmed: a connection that is lost now took nothing along.
            with contextlib.suppress(ConnectionLostError):
                self._connection.request(DeletePublisher(_PUBLISHER_ID), self.stream)
                connection, self._connection = self._connection, None
                self._release(connection)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the connection, even with unconfirmed messages."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _encoded(self, message: Message | bytes) -> tuple[bytes, bytes | None]:
        if self._filter_value is None:
            return (message if isinstance(message, bytes) else message.with_body().encode()), None
        decoded = Message.decode(message) if isinstance(message, bytes) else message.with_body()
        value = self._filter_value(decoded)
        return decoded.encode(), None if value is None else _octets(value)

    def _send_part(self, part: list[tuple[bytes, bytes | None]]) -> int:
        values = FilterValues.of(value for _, value in part) if self._filter_value is not None else None
        self.send_encoded(EncodedMessages.of(encoded for encoded, _ in part), values)
        return len(part)

    def _open(self) -> Connection:
        connection = self._connect()
        try:
            # RabbitMQ takes an empty reference for none, and does not understand null.
            connection.request(DeclarePublisher(_PUBLISHER_ID, self.name or "", self.stream), self.stream)
        except BaseException:
            connection.close()
            raise
        return connection

    def _block(self, ids: NDArray[np.uint64], messages: EncodedMessages, values: FilterValues | None) -> _Block:
        count = len(messages)
        if self._compression is Compression.NONE:
            return _Block(ids, messages, values, None, count, count)
        limits = ChunkLimits(max_bytes=self._sub_batch_bytes(), compression=self._compression)
        # The data part of this chunk is one entry, its head included.
        built = build_chunks(messages.data, messages.starts, messages.lengths, None, limits)
        lengths = decode_headers(built.data, built.positions).data_length
        entries = EncodedMessages(built.data, built.positions + CHUNK_HEADER_BYTES, lengths)
        return _Block(ids[np.cumsum(built.num_records) - 1], entries, None, built.num_records, count, count)

    def _sub_batch_bytes(self) -> int:
        """At most this many bytes are packed together: they fit a frame of the server even if packing saves nothing."""
        frame_bytes = self._open_connection().frame_max
        return min(MAX_BYTES, max(1, frame_bytes * 15 // 16 - 128)) if frame_bytes else MAX_BYTES

    def _check_values(self, values: FilterValues | None) -> None:
        if values is not None and not self._open_connection().has_filter_values:
            raise UnsupportedError("the server knows no filter values", subject=self.stream)

    @staticmethod
    def _write(connection: Connection, block: _Block) -> None:
        connection.publish(
            _PUBLISHER_ID, block.ids, block.entries, block.values, entries_have_heads=block.records is not None
        )

    def _wait_until_at_most(self, unconfirmed: int, timeout_s: float) -> None:
        since = time.monotonic()
        before = self._unconfirmed
        while self._unconfirmed > unconfirmed:
            left_s = since + timeout_s - time.monotonic()
            if left_s <= 0:
                raise ConnectionLostError(
                    f"stream {self.stream!r}: {self._unconfirmed} messages are not confirmed after {timeout_s} s",
                    server=self._open_connection().server,
                )
            self._guarded(partial(self._take, timeout_s=left_s))
            if self._unconfirmed < before:
                since, before = time.monotonic(), self._unconfirmed

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise ConfigError(f"the publisher of stream {self.stream!r} is closed")
        return self._connection

    def _guarded(self, work: Callable[[Connection], None]) -> None:
        try:
            work(self._open_connection())
        except ConnectionLostError as error:
            self._reconnect(error)

    def _reconnect(self, error: ConnectionLostError) -> None:
        """Connect again and repeat unconfirmed messages, if that is safe."""
        if self.name is None and self._unconfirmed:
            self.abandon()
            raise ConnectionLostError(
                f"{error.reason}; {self._unconfirmed} messages to stream {self.stream!r} were not confirmed and may be "
                "there or not (a publisher with a name would repeat them)",
                server=error.server,
            ) from error

        def attempt() -> Connection:
            connection = self._open()
            try:
                for block in list(self._blocks):
                    self._unconfirmed += block.count - block.left
                    block.left = block.count
                    self._write(connection, block)
                    self._take(connection, timeout_s=0.0)
            except BaseException:
                connection.close()
                raise
            return connection

        self._open_connection().close()
        self._connection = self._retry.run(attempt)

    def _take(self, connection: Connection, *, timeout_s: float) -> None:
        """Handle the server's events; waits for the first one only."""
        for event in connection.events(timeout_s):
            self._handle(event, connection)

    def _handle(self, event: Event, connection: Connection) -> None:
        if isinstance(event, PublishConfirm):
            self.confirmed += self._settle(event.publishing_ids)
            self._confirmed_up_to = max(self._confirmed_up_to, int(event.publishing_ids.max(initial=0)))
        elif isinstance(event, PublishError):
            self._refused_count += self._settle(np.array([number for number, _ in event.errors], dtype=np.uint64))
            if self._refused is None and event.errors:
                number, code = event.errors[0]
                subject = f"stream {self.stream!r}, message with publishing id {number}"
                self._refused = refusal(code, subject, server=connection.server)
        elif isinstance(event, MetadataUpdate) and event.stream == self.stream:
            raise ConnectionLostError(f"stream {self.stream!r} was deleted or moved", server=connection.server)

    def _settle(self, ids: NDArray[np.uint64]) -> int:
        """Remove messages from the unconfirmed ones; gives their number."""
        ids = np.sort(ids)
        settled = messages = 0
        while settled < len(ids):
            number = int(ids[settled])
            block = next((block for block in self._blocks if number <= int(block.ids[-1])), None)
            behind = settled if block is None else int(np.searchsorted(ids, block.ids[-1], side="right"))
            count = 0 if block is None else block.messages_of(ids[settled:behind])
            if block is None or number < int(block.ids[0]) or count > block.left:
                raise RemoteProtocolError(f"the server confirms publishing id {number}, which is not on its way")
            block.left -= count
            if block.left == 0:
                self._blocks.remove(block)
            settled = behind
            messages += count
        self._unconfirmed -= messages
        return messages

    def _raise_refused(self) -> None:
        if self._refused is not None and self.name is not None:
            # What is on its way behind it is refused, too.
            self._wait_until_at_most(0, self._timeout_s)
            self._next_id = self._confirmed_up_to + 1
            self._refused.add_note(f"send again from publishing id {self._next_id} on")
        error, count = self._refused, self._refused_count
        self._refused, self._refused_count = None, 0
        if error is None:
            return
        if count > 1:
            error.add_note(f"{count} messages were refused, this one first")
        raise error


def _no_filter_values(stream: str) -> UnsupportedError:
    return UnsupportedError(
        "the stream protocol has no room for the filter values of compressed messages; send them uncompressed, or "
        "leave the values out (a Headgate fills them in from the filter source that the stream declares)",
        subject=stream,
    )


def _octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
