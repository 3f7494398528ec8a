"""A server as a program sees it: its streams, and publishers and consumers of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from headgate.client.address import ServerAddress, Tls
from headgate.client.codes import refusal
from headgate.client.connection import Connection, StreamStatistics
from headgate.client.connection_pool import KEPT, ConnectionPool
from headgate.client.consumer import Consumer
from headgate.client.publisher import MOST_UNCONFIRMED, FilterValueOf, Publisher
from headgate.client.retry import Retry
from headgate.client.subscription import DEFAULT_CREDIT, ServedFilter, Subscription, SubscriptionOptions
from headgate.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    ResourceExistsError,
    UnsupportedError,
    did_you_mean,
)
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import OffsetKind, OffsetSpecification, parse_compression
from headgate.message import Message
from headgate.protocols.stream import ResponseCode
from headgate.protocols.stream import frames as f
from headgate.scan import ScanBatch

T = TypeVar("T")

_CHUNK_PATIENCE_S = 30.0


class Client:
    """One user at one server, over the stream protocol. Not for several threads.

    Publishers and consumers have connections of their own, to the server that leads their stream. Commands raise the
    BrokerError that the answer of the server stands for; after a lost connection they are made once more. With `kept`
    connections are taken from there and given back as soon as nothing is going on, so one may serve all.
    """

    def __init__(
        self,
        address: ServerAddress,
        *,
        timeout_s: float,
        heartbeat_s: int,
        retry: Retry,
        kept: ConnectionPool | None = None,
        tracing: bool = False,
    ) -> None:
        self.address = address
        self.retry = retry
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._kept = kept
        self._publisher: type[Publisher] = Publisher
        self._subscription: type[Subscription] = Subscription
        if tracing:
            self._publisher, self._subscription = _traced()
        self._connection: Connection | None = None
        self._is_closed = False
        # Made at once: a server that is not there, or refuses the user, is an error now.
        self._do(lambda connection: None)

    @classmethod
    def connect(
        cls,
        server: str | ServerAddress,
        *,
        user: str | None = None,
        password: str | None = None,
        tls: Tls | None = None,
        timeout_s: float = 10.0,
        heartbeat_s: int = 60,
        retry: Retry | None = None,
        keep: bool = False,
        tracing: bool = False,
    ) -> Client:
        """A client of the server at `host:port` or `headgate-stream://user:password@host:port`.

        `timeout_s` is the longest wait for an answer, `heartbeat_s` the interval of heartbeats while a side waits,
        `retry` how a lost connection is made again. With `keep` connections stay open for the next client of this
        process that has the same address and `keep`: see `headgate.client.connection_pool`. With `tracing` publishers
        and consumers of streams tell OpenTelemetry of each batch (`headgate[otel]`). Raises ConnectionLostError where
        no server answers, AuthenticationError, ConfigError for the address.
        """
        if isinstance(server, str):
            server = ServerAddress.parse(server, user=user, password=password, tls=tls)
        elif (user, password, tls) != (None, None, None):
            raise ConfigError("user, password and tls stand in the address that is given")
        kept = KEPT if keep else None
        return cls(
            server, timeout_s=timeout_s, heartbeat_s=heartbeat_s, retry=retry or Retry(), kept=kept, tracing=tracing
        )

    def close(self) -> None:
        """Give the connection back; publishers and consumers have their own."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server_properties(self) -> Mapping[str, str]:
        """The server's properties: `product`, `version`, …"""
        return self._do(lambda connection: connection.properties)

    @property
    def is_headgate(self) -> bool:
        """Whether the server is a Headgate: it evaluates filter expressions."""
        return self._do(lambda connection: connection.is_headgate)

    @property
    def can_resolve_offsets(self) -> bool:
        """Whether the server can resolve an offset specification."""
        return self._do(lambda connection: connection.can_resolve_offsets)

    def create_stream(self, name: str, arguments: Mapping[str, object] | None = None) -> bool:
        """Make a stream; False if it exists already with the same arguments.

        `arguments` are RabbitMQ's without `x-`: `max-length-bytes`, `max-age`, `stream-max-segment-size-bytes`,
        `stream-filter-size-bytes`. Raises PreconditionFailedError for wrong arguments, or an existing stream with
        others.
        """
        texts = {key: str(value) for key, value in (arguments or {}).items()}
        try:
            self._do(lambda connection: connection.request(f.Create(name, texts), name))
        except ResourceExistsError:
            return False
        return True

    def delete_stream(self, name: str) -> None:
        """Delete a stream and all that is in it."""
        self._do(lambda connection: connection.request(f.Delete(name), name))

    def create_super_stream(
        self, name: str, keys: Sequence[str], arguments: Mapping[str, object] | None = None
    ) -> list[str]:
        """Make a super stream with a partition `name-key` for each binding key; gives the names of the partitions."""
        partitions = [f"{name}-{key}" for key in keys]
        texts = {key: str(value) for key, value in (arguments or {}).items()}
        frame = f.CreateSuperStream(name, partitions, tuple(keys), texts)
        self._do(lambda connection: connection.request(frame, name))
        return partitions

    def delete_super_stream(self, name: str) -> None:
        """Delete a super stream and its partitions."""
        self._do(lambda connection: connection.request(f.DeleteSuperStream(name), name))

    def partitions(self, super_stream: str) -> list[str]:
        """The streams that a super stream is made of, in order."""
        reply = self._do(lambda connection: connection.request(f.Partitions(super_stream), super_stream))
        assert isinstance(reply, f.PartitionsReply)
        return list(reply.streams)

    def route(self, super_stream: str, routing_key: str) -> list[str]:
        """The partitions that are bound with exactly that key."""
        reply = self._do(lambda connection: connection.request(f.Route(routing_key, super_stream), super_stream))
        assert isinstance(reply, f.RouteReply)
        return list(reply.streams)

    def has_stream(self, name: str) -> bool:
        """Whether there is a stream of that name."""
        return self._place_of(name)[1] != ResponseCode.STREAM_DOES_NOT_EXIST

    def streams(self) -> list[str]:
        """The names of the streams that the user may read. Only a Headgate tells them: UnsupportedError."""
        if not self.is_headgate:
            raise UnsupportedError("the server lists no streams over this protocol", subject=self.address.place)
        reply = self._do(lambda connection: connection.metadata())
        return [name for name, code, _, _ in reply.streams if code == ResponseCode.OK]

    def near_streams(self, name: str) -> str:
        """`; did you mean …?` with names similar to a missing stream; empty if the server does not list streams."""
        try:
            streams = self.streams()
        except (BrokerError, ConnectionLostError):
            return ""
        return "" if name in streams else did_you_mean(name, streams)

    def statistics(self, stream: str) -> StreamStatistics:
        """Which chunks a stream has."""
        return self._do(lambda connection: connection.statistics(stream))

    def resolve_offset(self, stream: str, place: OffsetSpecification) -> int:
        """The offset that a place is now: `next` is the one that the next message gets, an offset is itself.

        From a server without a command for it, chunks are requested instead.
        """
        if place.kind is OffsetKind.OFFSET:
            return place.value
        place = place.resolve(time.time_ns() // 1_000_000)
        if self.can_resolve_offsets:
            return self._do(lambda connection: connection.resolve_offset(stream, place))
        return _resolved_by_reading(self, stream, place)

    def store_offset(self, stream: str, name: str, offset: int) -> None:
        """Keep the offset of the last message that was processed as the bookmark of a name."""
        self._do(lambda connection: connection.send(f.StoreOffset(name, stream, offset)))

    def query_offset(self, stream: str, name: str) -> int | None:
        """The stored offset of a name; None without one."""
        return self._do(lambda connection: connection.stored_offset(name, stream))

    def last_sequence(self, stream: str, name: str) -> int:
        """The highest publishing id of a named publisher that is in the stream; 0 for none."""
        return self._do(lambda connection: connection.last_sequence(name, stream))

    def publisher(
        self,
        stream: str,
        *,
        name: str | None = None,
        filter_value: FilterValueOf | None = None,
        compression: str = "none",
        most_unconfirmed: int = MOST_UNCONFIRMED,
    ) -> Publisher:
        """A publisher of a stream; with a name, messages published before are not published again.

        `filter_value` gives the filter value of a message. `compression` (`gzip`, `snappy`, `lz4`, `zstd`) packs
        messages into sub-batches, which RabbitMQ's AMQP consumers do not see; the protocol has no filter values for
        them: UnsupportedError for both. ConfigError for another compression.
        """
        return self._publisher(
            partial(self.connect_to_leader, stream),
            stream,
            name=name,
            filter_value=filter_value,
            compression=parse_compression(compression),
            most_unconfirmed=most_unconfirmed,
            timeout_s=self._timeout_s,
            retry=self.retry,
            release=self._give_back,
        )

    def consumer(
        self,
        stream: str,
        *,
        start: str | int | OffsetSpecification | None = None,
        filter_values: Sequence[str | bytes] | None = None,
        match_unfiltered: bool = False,
        filter: str | None = None,
        dialect: str | None = None,
        post_filter: Callable[[Message], bool] | None = None,
        name: str | None = None,
        single_active: bool = False,
        super_stream: str | None = None,
        credit: int = DEFAULT_CREDIT,
        on_active: Callable[[bool], None] | None = None,
    ) -> Consumer:
        """A consumer of a stream, from `start` on: `first`, `last`, `next`, an offset, an interval, a time.

        Without `start` it continues after the bookmark of its `name` if there is one, else with `next`. `filter_values`
        and `match_unfiltered` skip chunks (stage 1), `filter` in its `dialect` leaves messages out on the server (stage
        2), `post_filter` here (stage 3). A filter that the server would not apply is an UnsupportedError, a wrong one a
        FilterError: none is ever dropped. With `single_active` only one consumer of the same `name` gets messages at a
        time; `on_active` is told when that changes. `credit` chunks may be on their way.
        """
        options = SubscriptionOptions(
            stream,
            start=self._start(stream, start, name),
            filter_values=_wanted(filter_values),
            match_unfiltered=match_unfiltered,
            served=_served(filter, dialect),
            name=name,
            single_active=single_active,
            super_stream=super_stream,
            credit=credit,
        )
        subscription = self.subscription(options)
        subscription.on_active = on_active
        return Consumer(subscription, post_filter=post_filter)

    def subscription(self, options: SubscriptionOptions) -> Subscription:
        """A subscription, which reads whole batches of encoded messages; consumers use it."""
        connect = partial(self.connect_to_leader, options.stream)
        return self._subscription(connect, options, retry=self.retry, release=self._give_back)

    def connect_to_leader(self, stream: str) -> Connection:
        """A connection to the server that leads a stream, or to this one if that cannot be reached.

        Servers behind a proxy often advertise a place that only they know.
        """
        place, code = self._place_of(stream)
        if code != ResponseCode.OK:
            raise refusal(code, stream, server=self.address.place)
        if place is not None and place != (self.address.host, self.address.port):
            try:
                return self._taken(self.address.at(*place))
            except ConnectionLostError:
                pass
        return self._taken(self.address)

    def _place_of(self, stream: str) -> tuple[tuple[str, int] | None, int]:
        reply = self._do(lambda connection: connection.metadata(stream))
        brokers = {number: (host, port) for number, host, port in reply.brokers}
        for name, code, leader, _replicas in reply.streams:
            if name == stream:
                return brokers.get(leader), code
        return None, ResponseCode.STREAM_DOES_NOT_EXIST

    def _start(
        self, stream: str, start: str | int | OffsetSpecification | None, name: str | None
    ) -> OffsetSpecification:
        if isinstance(start, int):
            return OffsetSpecification.offset(start)
        if isinstance(start, str):
            return OffsetSpecification.parse(start)
        if start is not None:
            return start
        stored = None if name is None else self.query_offset(stream, name)
        return OffsetSpecification.next() if stored is None else OffsetSpecification.offset(stored + 1)

    def _connect(self, address: ServerAddress) -> Connection:
        return Connection(address, timeout_s=self._timeout_s, heartbeat_s=self._heartbeat_s)

    def _taken(self, address: ServerAddress) -> Connection:
        """A connection for a publisher or a subscription."""
        if self._kept is None:
            return self._connect(address)
        return self._kept.take(address, partial(self._connect, address))

    def _give_back(self, connection: Connection) -> None:
        """Take back an idle connection."""
        if self._kept is None or not connection.is_open:
            connection.close()
        else:
            self._kept.give_back(connection.address, connection)

    def _do(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`; repeated once over a new connection if this one is lost."""
        if self._is_closed:
            raise ConfigError(f"the client of {self.address.place} is closed")
        connection = self._connection or self._taken(self.address)
        self._connection = connection
        try:
            try:
                return work(connection)
            except ConnectionLostError:
                connection.close()
                self._connection = connection = self._connect(self.address)
                return work(connection)
        finally:
            if self._kept is not None:
                self._connection = None
                self._give_back(connection)


def _traced() -> tuple[type[Publisher], type[Subscription]]:
    """Publisher and subscription with spans, imported here because nobody else needs OpenTelemetry."""
    from headgate.client.tracing import traced

    return traced()


def _wanted(values: Sequence[str | bytes] | None) -> tuple[bytes, ...]:
    if values is None:
        return ()
    if isinstance(values, str | bytes) or not values:
        raise ConfigError(f"filter_values: found {values!r}, expected a list of one value or more")
    return tuple(value.encode() if isinstance(value, str) else value for value in values)


def _served(text: str | None, dialect: str | None) -> ServedFilter | None:
    if text is None:
        if dialect is not None:
            raise ConfigError("a dialect without a filter says nothing")
        return None
    # Parsed here too: the server says that it refuses a filter, but has no room to say where and why.
    parsed = Filter.parse(text, dialect or DEFAULT_DIALECT)
    return ServedFilter(text, parsed.dialect or DEFAULT_DIALECT)


def _resolved_by_reading(client: Client, stream: str, place: OffsetSpecification) -> int:
    """The offset that `place` (first, last, next or a time) is now; reads one chunk or two."""
    first = client.statistics(stream).first_chunk_id
    if first is None:
        return 0
    if place.kind is OffsetKind.FIRST:
        return first
    last, behind = _chunk_at(client, stream, OffsetSpecification.last())
    if place.kind is OffsetKind.LAST:
        return int(last.offsets[0])
    if place.kind is OffsetKind.NEXT or place.value > int(last.timestamps_ms[0]):
        return behind
    return int(_chunk_at(client, stream, place)[0].offsets[0])


def _chunk_at(client: Client, stream: str, place: OffsetSpecification) -> tuple[ScanBatch, int]:
    """The messages of the first chunk from a place on, and the offset after them."""
    subscription = client.subscription(SubscriptionOptions(stream, place, credit=1))
    try:
        batch = subscription.read(_CHUNK_PATIENCE_S)
        if batch is None or not len(batch):
            raise ConnectionLostError(
                f"stream {stream!r}: no chunk came within {_CHUNK_PATIENCE_S} s", server=client.address.place
            )
        subscription.close()
        return batch, int(batch.offsets[-1]) + 1
    finally:
        subscription.abandon()
