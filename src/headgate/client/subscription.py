"""One subscription: chunks by credit, decoded in batches, over new connections when one breaks."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.client.chunks import NO_END, ChunkReader
from headgate.client.retry import Losses, Retry
from headgate.errors import ConfigError, ConnectionLostError, UnsupportedError
from headgate.log import OffsetKind, OffsetSpecification
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.protocols.stream import Deliver, name_of_code
from headgate.protocols.stream import frames as f
from headgate.scan import OffsetRange, ScanBatch, ScanCounters, ScanRequest

if TYPE_CHECKING:
    from headgate.client.connection import Connection, Event

DEFAULT_CREDIT = 10

FILTER_PROPERTY = "x-headgate-sql"
DIALECT_PROPERTY = "x-headgate-dialect"
END_PROPERTY = "x-headgate-end"
"""Property of a subscription: requests an empty chunk once everything before this offset was examined.

Otherwise the client does not learn this with a filter, or where the last chunk before it has no messages.
"""


@dataclass(frozen=True, slots=True)
class ServedFilter:
    """A filter expression for the server to evaluate."""

    text: str
    dialect: str


@dataclass(frozen=True, slots=True)
class SubscriptionOptions:
    """The range and filters of a read of one stream.

    Reading begins at `start` and ends before the offset `stop` (None: never); `stop_is_written` says that the stream
    reaches it already. The server skips chunks by `filter_values` and `match_unfiltered` (stage 1) and messages by
    `served` (stage 2); `request` is for the client's part: checksums, and a filter that is evaluated here. Raises
    ConfigError.
    """

    stream: str
    start: OffsetSpecification
    stop: int | None = None
    stop_is_written: bool = True
    filter_values: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    served: ServedFilter | None = None
    request: ScanRequest = field(default_factory=ScanRequest)
    name: str | None = None
    single_active: bool = False
    super_stream: str | None = None
    credit: int = DEFAULT_CREDIT
    properties: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.match_unfiltered and not self.filter_values:
            raise ConfigError("match_unfiltered has no effect without filter_values")
        if self.single_active and self.name is None:
            raise ConfigError("a single active consumer needs a name: that of its group")
        if not 1 <= self.credit <= 32_767:
            raise ConfigError(f"credit is {self.credit}; expected 1 to 32767")


class Subscription:
    """Reads a stream in batches. Not for several threads.

    A broken connection is made again, and reading continues after the last chunk; it is given up when one connection
    after the other breaks before a chunk arrived. Memory: the chunks that credit allows, and as many that were taken
    from them.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        options: SubscriptionOptions,
        *,
        retry: Retry,
        release: Callable[[Connection], None],
    ) -> None:
        self.options = options
        self._release = release
        self._id = 0
        self.is_active = not options.single_active
        self.on_active: Callable[[bool], None] | None = None
        self.first_chunk_id: int | None = None
        """The stream's first chunk when the subscription was made; None where it had none."""
        self._connect = connect
        self._retry = retry
        self._start = options.start
        within = OffsetRange(0, NO_END if options.stop is None else options.stop)
        self._reader = ChunkReader(options.stream, options.request, within)
        self._chunks: deque[bytes] = deque()
        self._batches: Iterator[ScanBatch] = iter(())
        self._behind_end = False
        self._since_question = 0
        self._question: int | None = None
        self._losses = Losses(retry)
        self._connection: Connection | None = retry.run(self._open)

    @property
    def counters(self) -> ScanCounters:
        """The client's counters of received and evaluated messages."""
        return self._reader.counters

    @property
    def position(self) -> int | None:
        """The offset after everything that was read; None before the first chunk."""
        return self._reader.position

    @property
    def is_finished(self) -> bool:
        """Whether everything before the stop was read."""
        return self._behind_end or self._is_over

    def read(self, timeout_s: float | None = None) -> ScanBatch | None:
        """The next batch of messages, possibly empty; None when nothing came in time, or nothing more will come.

        `timeout_s` None: wait for ever. Raises CorruptChunkError, ResourceNotFoundError for a stream that was deleted,
        and ConnectionLostError when the server does not come back.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            batch = next(self._batches, None)
            if batch is not None:
                return batch
            chunks = self._next_chunks(until)
            if chunks is None:
                return None
            self._batches = self._reader.read(chunks)

    def read_chunks(self, timeout_s: float | None = None) -> list[bytes] | None:
        """The next chunks as they were delivered, in place of `read`: nothing of them is checked, None means the same.

        Some after the stop may be among them.
        """
        chunks = self._next_chunks(None if timeout_s is None else time.monotonic() + timeout_s)
        if chunks is not None:
            self._reader.pass_over(chunks)
        return chunks

    def _next_chunks(self, until: float | None) -> list[bytes] | None:
        """Delivered chunks that were not taken yet, waited for until a monotonic time; None as from `read`."""
        while True:
            if self._chunks and not self._is_over:
                return self._taken_chunks()
            if self.is_finished:
                return None
            left_s = None if until is None else until - time.monotonic()
            if left_s is not None and left_s < 0:
                return None
            self._guarded(left_s)

    def wait(self, timeout_s: float) -> None:
        """Return when the server said something, or the time is up; then `read` may have more."""
        if not self._chunks and not self.is_finished:
            self._guarded(timeout_s)

    def evaluate_at(self, now_ms: int) -> None:
        """Set the value of `UTC()` for the client's filter in chunks that are not begun yet."""
        self._reader.now(now_ms)

    def store_offset(self, offset: int) -> None:
        """Keep an offset as the bookmark of the subscription's name; nothing says that it has arrived.

        Raises ConfigError.
        """
        if self.options.name is None:
            raise ConfigError("a consumer without a name has no bookmark")
        self._open_connection().send(f.StoreOffset(self.options.name, self.options.stream, offset))

    def close(self) -> None:
        """End the subscription and give the connection back."""
        if self._connection is None:
            return
        try:
            # On a connection that is lost there is nothing to end.
            with contextlib.suppress(ConnectionLostError):
                self._connection.request(f.Unsubscribe(self._id), self.options.stream)
                connection, self._connection = self._connection, None
                self._release(connection)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the connection back at once."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise ConfigError(f"the consumer of stream {self.options.stream!r} is closed")
        return self._connection

    def _open(self) -> Connection:
        connection = self._connect()
        try:
            self._subscribe(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _subscribe(self, connection: Connection) -> None:
        options = self.options
        properties = self._properties(connection)
        start = self._start.resolve(time.time_ns() // 1_000_000)
        if self._reader.position is not None:
            start = OffsetSpecification.offset(self._reader.position)
        elif start.kind is OffsetKind.NEXT and connection.can_resolve_offsets:
            # As an offset it stays the same place when the connection has to be made again.
            start = OffsetSpecification.offset(connection.resolve_offset(options.stream, start))
        self._start = start
        if start.kind is OffsetKind.OFFSET:
            self._reader.begin_at(start.value)
        self._chunks.clear()
        self._question, self._since_question = None, 0
        # Chunks of a subscription that this connection had before do not count for this one.
        self._id = connection.uses % 256
        connection.uses += 1
        self._check_bodies(connection)
        connection.request(f.Subscribe(self._id, options.stream, start, options.credit, properties), options.stream)
        if options.stop is not None and self._reader.position is None:
            self.first_chunk_id = connection.statistics(options.stream).first_chunk_id

    def _check_bodies(self, connection: Connection) -> None:
        """Raise UnsupportedError for a filter of the client's that looks into bodies whose schema only a server has."""
        own, stream = self.options.request.filter, self.options.stream
        if own is None or not own.has_body_paths or not connection.is_headgate:
            return
        if connection.statistics(stream).has_body_schema:
            raise UnsupportedError(
                "the filter looks into bodies, which this stream has in a declared schema that only the server knows; "
                "but a filter that asks for the time or for chance, or that is read without the match index, is "
                "evaluated by the client. Leave that out, or read the stream's folder",
                subject=stream,
            )

    def _properties(self, connection: Connection) -> dict[str, str]:
        options = self.options
        properties = dict(options.properties)
        if options.filter_values:
            if not connection.has_filter_values:
                raise UnsupportedError(
                    f"{connection.product} knows no filter values: the filter would not be in force",
                    subject=options.stream,
                )
            for number, value in enumerate(options.filter_values):
                properties[f"filter.{number}"] = value.decode(errors="surrogateescape")
            if options.match_unfiltered:
                properties["match-unfiltered"] = "true"
        if options.served is not None:
            if not connection.is_headgate:
                raise UnsupportedError(
                    f"{connection.product} evaluates no filter expressions for this protocol: the filter would not be "
                    "in force",
                    subject=options.stream,
                )
            properties[FILTER_PROPERTY] = options.served.text
            properties[DIALECT_PROPERTY] = options.served.dialect
        if options.stop is not None and connection.is_headgate:
            properties[END_PROPERTY] = str(options.stop)
        if options.name is not None:
            properties["name"] = options.name
        if options.single_active:
            properties["single-active-consumer"] = "true"
        if options.super_stream is not None:
            properties["super-stream"] = options.super_stream
        return properties

    @property
    def _is_over(self) -> bool:
        """Whether a chunk after the stop, or the start itself, shows that nothing more is wanted."""
        begin = self._start.value if self._start.kind is OffsetKind.OFFSET else 0
        reached = begin if self.position is None else self.position
        return self.options.stop is not None and reached >= self.options.stop

    def _taken_chunks(self) -> list[bytes]:
        chunks = list(self._chunks)
        self._chunks.clear()
        self._losses.received()
        with contextlib.suppress(ConnectionLostError):
            # What was received counts all the same; the next wait finds the connection broken and makes it again.
            self._open_connection().send(f.Credit(self._id, len(chunks)))
        return chunks

    def _guarded(self, timeout_s: float | None) -> None:
        connection = self._open_connection()
        try:
            self._ask_for_end(connection)
            for event in connection.events(timeout_s):
                self._handle(event, connection)
        except ConnectionLostError as error:
            connection.close()
            if self._chunks:
                # They are read first, so that the next connection begins after them.
                return
            self._losses.lost(error)
            self._connection = self._retry.run(self._open)

    def _ask_for_end(self, connection: Connection) -> None:
        """Ask RabbitMQ whether everything before the stop was examined; it does not say so by itself.

        The last chunk before the stop may not be delivered: the filter leaves it out, or it has no messages. RabbitMQ
        handles one command after another, and each Credit by sending chunks until the credit or the stream ends
        (rabbit_stream_reader). So if all credit was given back before a question, and no chunk comes before its
        answer, everything was examined.
        """
        options = self.options
        if options.stop is None or not options.stop_is_written or connection.is_headgate or self._question is not None:
            return
        self._since_question = 0
        self._question = connection.ask(f.StreamStats(options.stream))

    def _handle(self, event: Event, connection: Connection) -> None:
        if isinstance(event, Deliver):
            if event.subscription_id != self._id:
                return
            self._since_question += 1
            if len(event.chunk) > CHUNK_HEADER_BYTES:
                self._chunks.append(event.chunk)
            else:
                self._behind_end = True
        elif isinstance(event, f.StreamStatsReply) and event.correlation_id == self._question:
            self._question = None
            self._behind_end = self._since_question == 0
        elif isinstance(event, f.ConsumerUpdate):
            self._set_active(event, connection)
        elif isinstance(event, f.MetadataUpdate) and event.stream == self.options.stream:
            raise ConnectionLostError(
                f"stream {event.stream!r} was deleted or moved, or cannot be read", server=connection.server
            )
        elif isinstance(event, f.CreditReply) and self.is_active:
            raise ConnectionLostError(f"credit refused: {name_of_code(event.code)}", server=connection.server)

    def _set_active(self, update: f.ConsumerUpdate, connection: Connection) -> None:
        """Answer where to go on: behind the bookmark of the group, else where this member was, else at the start."""
        self.is_active = bool(update.active)
        start = None
        if self.is_active and self.options.name is not None:
            stored = connection.stored_offset(self.options.name, self.options.stream)
            begin = self.position if stored is None else stored + 1
            if begin is not None:
                start = OffsetSpecification.offset(begin)
                self._reader.begin_at(begin)
        else:
            # The next active member begins after the bookmark, so it reads these again.
            self._chunks.clear()
        connection.send(f.ConsumerUpdateReply(offset=start, correlation_id=update.correlation_id))
        if self.on_active is not None:
            self.on_active(self.is_active)
