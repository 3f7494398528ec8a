"""A small stream server in memory, one thread per connection, that can be told to misbehave.

Like RabbitMQ it handles one command after another, and each Credit by sending chunks at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from chunks import encode_chunk
from headgate.log import BloomMatcher, OffsetKind, OffsetSpecification
from headgate.log.entries import SubBatch, entries_of
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import SERVER_VERSIONS, Command, ResponseCode
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.protocols.stream.publish_frames import Publish
from headgate.protocols.stream.server import ServerConnection, ServerState
from waiting import LIMIT_S

NOW_MS = 1_750_000_000_000
RABBITMQ = {"product": "RabbitMQ", "version": "4.3.6"}
HEADGATE = {**RABBITMQ, "headgate": "0.1.0"}


@dataclass
class FakeStream:
    """Chunks as they lie in a file, one after another."""

    chunks: list[bytes] = field(default_factory=list)
    headers: list[ChunkHeader] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    unreadable: int | None = None
    """The number of a chunk that cannot be read: who comes to it is told that there is no stream any more."""

    @property
    def next_offset(self) -> int:
        return self.headers[-1].next_chunk_id if self.headers else 0

    def append(
        self,
        entries: list[bytes | SubBatch],
        values: list[bytes | None],
        *,
        chunk_type: ChunkType = ChunkType.USER,
    ) -> None:
        encoded = encode_chunk(entries, values, filter_size_bytes=16, trailer=b"trailer", chunk_type=chunk_type)
        header = ChunkHeader.decode(encoded, path="", position=0)
        header.chunk_id = self.next_offset
        header.timestamp_ms = NOW_MS + header.chunk_id
        self.headers.append(header)
        self.chunks.append(header.encode() + encoded[CHUNK_HEADER_BYTES:])

    def row_at(self, place: OffsetSpecification) -> int:
        """The number of the chunk that a place is in."""
        if place.kind is OffsetKind.FIRST:
            return 0
        if place.kind is OffsetKind.LAST:
            return max(0, len(self.chunks) - 1)
        if place.kind is OffsetKind.NEXT:
            return len(self.chunks)
        for row, header in enumerate(self.headers):
            reached = header.next_chunk_id > place.value
            if header.timestamp_ms >= place.value if place.kind is OffsetKind.TIMESTAMP else reached:
                return row
        return len(self.chunks)


@dataclass
class _Reader:
    stream: str
    row: int
    credit: int
    matcher: BloomMatcher | None
    end: int | None


class FakeServer:
    """Accepts on a free port of this machine until it is closed."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.streams: dict[str, FakeStream] = {}
        self.super_streams: dict[str, list[str]] = {}
        self.properties = properties or RABBITMQ
        self.versions = SERVER_VERSIONS
        self.password = "guest"
        self.refused: dict[Command, int] = {}
        """Answer these commands with a code."""
        self.refused_ids: dict[int, int] = {}
        """Refuse these publishing ids with a code."""
        self.confirms = True
        self.before: Callable[[object], None] = lambda event: None
        """Called in the connection's thread before an event is handled."""
        self.advertised: tuple[str, int] | None = None
        self.seen: list[object] = []
        self.connections = 0
        self.live: list[_Connection] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.lock = threading.Lock()
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def drop_connections(self) -> None:
        """Break what is connected now."""
        with self.lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def append(self, stream: str, entries: list[bytes | SubBatch], values: list[bytes | None]) -> None:
        """Write a chunk to a stream, and send it to who waits for it."""
        with self.lock:
            self.streams.setdefault(stream, FakeStream()).append(entries, values)
            self.wake(stream)

    def ask_consumers(self, *, active: bool) -> None:
        """Tell all subscriptions that they become active or inactive."""
        with self.lock:
            for connection in self.live:
                for number in connection.readers:
                    connection.core.ask_consumer(number, active=active)
                    connection.write()

    def wake(self, stream: str) -> None:
        for connection in self.live:
            for number, reader in connection.readers.items():
                if reader.stream == stream:
                    with contextlib.suppress(OSError):
                        connection.deliver(number)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self._sockets.append(accepted)
                self.connections += 1
            self._start(_Connection(self, accepted).run)


class _Connection:
    def __init__(self, server: FakeServer, accepted: socket.socket) -> None:
        self.server = server
        self.socket = accepted
        self.core = ServerConnection()
        self.publishers: dict[int, f.DeclarePublisher] = {}
        self.readers: dict[int, _Reader] = {}

    def run(self) -> None:
        with self.server.lock:
            self.server.live.append(self)
        try:
            self._serve()
        finally:
            with self.server.lock:
                self.server.live.remove(self)

    def _serve(self) -> None:
        with self.socket, contextlib.suppress(OSError):
            while self.core.state is not ServerState.CLOSED and (data := self.socket.recv(65536)):
                events = self.core.receive(data)
                while events:
                    for event in events:
                        self._handle(event)
                    events = self.core.go_on()

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        self.socket.sendall(b"".join([self.core.take_output(), *parts]))

    def _handle(self, event: object) -> None:
        server = self.server
        server.seen.append(event)
        server.before(event)
        with server.lock:
            if isinstance(event, f.Request) and event.command in server.refused:
                self.core.reply(event, server.refused[event.command])
            elif isinstance(event, ProtocolViolation):
                self.core.fail(event)
            elif isinstance(event, Publish):
                self._publish(event)
            else:
                self._answer(event)
            self.write()

    def _answer(self, event: object) -> None:
        server, core = self.server, self.core
        stream = server.streams.get(getattr(event, "stream", ""))
        match event:
            case f.PeerProperties(correlation_id=number):
                core.send(f.PeerPropertiesReply(server.properties, correlation_id=number))
            case f.SaslHandshake(correlation_id=number):
                core.send(f.SaslHandshakeReply(("PLAIN",), correlation_id=number))
            case f.SaslAuthenticate(data=data):
                known = data == f"\0guest\0{server.password}".encode()
                core.reply(event, ResponseCode.OK if known else ResponseCode.AUTHENTICATION_FAILURE)
            case f.Open(correlation_id=number):
                core.send(f.OpenReply({}, correlation_id=number))
            case f.ExchangeCommandVersions(correlation_id=number):
                core.send(f.ExchangeCommandVersionsReply(server.versions, correlation_id=number))
            case f.Close():
                core.reply(event)
            case f.Create(stream=name):
                core.reply(event, ResponseCode.STREAM_EXISTS if name in server.streams else ResponseCode.OK)
                server.streams.setdefault(name, FakeStream())
            case f.Metadata(streams=names, correlation_id=number):
                names = names or (tuple(sorted(server.streams)) if "headgate" in server.properties else ())
                broker = (0, *(server.advertised or ("127.0.0.1", server.port)))
                places = [(name, 1, 0, ()) if name in server.streams else (name, 2, 0xFFFF, ()) for name in names]
                core.send(f.MetadataReply((broker,), places, correlation_id=number))
            case f.Partitions(super_stream=name, correlation_id=number) if name in server.super_streams:
                core.send(f.PartitionsReply(server.super_streams[name], correlation_id=number))
            case f.Route(routing_key=key, super_stream=name, correlation_id=number) if name in server.super_streams:
                found = [each for each in server.super_streams[name] if each == f"{name}-{key}"]
                core.send(f.RouteReply(found, correlation_id=number))
            case f.CreateSuperStream(name=name, partitions=partitions):
                server.super_streams[name] = list(partitions)
                server.streams |= {each: FakeStream() for each in partitions}
                core.reply(event)
            case f.DeleteSuperStream(name=name) if name in server.super_streams:
                del server.super_streams[name]
                core.reply(event)
            case f.ConsumerUpdateReply() | f.Tune() | f.Heartbeat():
                pass
            case f.DeletePublisher(publisher_id=number):
                core.reply(event)
                self.publishers.pop(number)
            case f.Unsubscribe(subscription_id=number):
                core.reply(event)
                self.readers.pop(number)
            case f.Credit(subscription_id=number, credit=credit) if number in self.readers:
                self.readers[number].credit += credit
                self.deliver(number)
            case f.Credit(subscription_id=number):
                core.send(f.CreditReply(ResponseCode.SUBSCRIPTION_ID_UNKNOWN, number))
            case _ if stream is None:
                assert isinstance(event, f.Request)
                core.reply(event, ResponseCode.STREAM_DOES_NOT_EXIST)
            case _:
                self._answer_about(event, stream)

    def _answer_about(self, event: object, stream: FakeStream) -> None:
        server, core = self.server, self.core
        match event:
            case f.Delete(stream=name):
                core.reply(event)
                del server.streams[name]
                for connection in server.live:
                    connection.forget(name)
            case f.DeclarePublisher(publisher_id=number):
                self.publishers[number] = event
                core.reply(event)
            case f.QueryPublisherSequence(reference=reference, correlation_id=number):
                sequence = stream.sequences.get(reference, 0)
                core.send(f.QueryPublisherSequenceReply(sequence, correlation_id=number))
            case f.StoreOffset(reference=reference, offset=offset):
                stream.offsets[reference] = offset
            case f.QueryOffset(reference=reference, correlation_id=number):
                offset = stream.offsets.get(reference)
                code = ResponseCode.NO_OFFSET if offset is None else ResponseCode.OK
                core.send(f.QueryOffsetReply(offset or 0, correlation_id=number, code=code))
            case f.StreamStats(correlation_id=number):
                ids = [header.chunk_id for header in stream.headers] or [-1]
                figures = (("first_chunk_id", ids[0]), ("last_chunk_id", ids[-1]), ("committed_chunk_id", ids[-1]))
                core.send(f.StreamStatsReply(figures, correlation_id=number))
            case f.ResolveOffsetSpecification(offset=place, correlation_id=number):
                row = stream.row_at(place)
                found = stream.headers[row].chunk_id if row < len(stream.headers) else stream.next_offset
                resolved = OffsetSpecification.offset(found)
                core.send(f.ResolveOffsetSpecificationReply(resolved, correlation_id=number))
            case f.Subscribe(subscription_id=number, offset=place, properties=properties):
                core.reply(event)
                values = [v.encode() for key, v in properties.items() if key.startswith("filter.")]
                unfiltered = properties.get("match-unfiltered") == "true"
                matcher = BloomMatcher(values, match_unfiltered=unfiltered) if values else None
                end = int(properties["x-headgate-end"]) if "x-headgate-end" in properties else None
                self.readers[number] = _Reader(event.stream, stream.row_at(place), event.credit, matcher, end)
                if properties.get("single-active-consumer") == "true":
                    self.readers[number].credit = 0
                    core.ask_consumer(number, active=True)
                self.deliver(number)
            case _:
                raise AssertionError(f"no answer to {event}")

    def forget(self, stream: str) -> None:
        """The stream is gone: so are its publishers and subscriptions, and the client is told."""
        publishers = {number: each for number, each in self.publishers.items() if each.stream != stream}
        readers = {number: each for number, each in self.readers.items() if each.stream != stream}
        if (len(publishers), len(readers)) != (len(self.publishers), len(self.readers)):
            self.publishers, self.readers = publishers, readers
            self.core.send(f.MetadataUpdate(ResponseCode.STREAM_NOT_AVAILABLE, stream))
            self.write()

    def _publish(self, event: Publish) -> None:
        declared = self.publishers[event.publisher_id]
        stream = self.server.streams[declared.stream]
        entries: list[bytes | SubBatch] = []
        values: list[bytes | None] = []
        refused = [number for number in event.publishing_ids.tolist() if number in self.server.refused_ids]
        for number, entry, value, records in event.rows():
            last = stream.sequences.get(declared.reference or "", 0)
            if number in self.server.refused_ids or (declared.reference and number <= last):
                continue
            if declared.reference:
                stream.sequences[declared.reference] = number
            if records:
                (packed,) = entries_of(entry, 1, path=declared.stream, position=0)
                assert isinstance(packed, SubBatch)
                entries.append(packed)
            else:
                entries.append(entry)
                values.append(value)
        if entries:
            stream.append(entries, values)
        if self.server.confirms:
            confirmed = [number for number in event.publishing_ids.tolist() if number not in refused]
            self.core.confirm(event.publisher_id, np.array(confirmed, dtype=np.uint64))
            for number in refused:
                code = ResponseCode(self.server.refused_ids[number])
                self.core.refuse(event.publisher_id, np.array([number], dtype=np.uint64), code)
        self.write()
        self.server.wake(declared.stream)

    def deliver(self, number: int) -> None:
        if self.core.state is not ServerState.OPENED:
            # Its own thread is about to forget it.
            return
        reader = self.readers[number]
        stream = self.server.streams[reader.stream]
        while reader.credit and reader.row < len(stream.chunks):
            if reader.row == stream.unreadable:
                del self.readers[number]
                self.core.send(f.MetadataUpdate(ResponseCode.STREAM_NOT_AVAILABLE, reader.stream))
                self.write()
                return
            chunk, header = stream.chunks[reader.row], stream.headers[reader.row]
            reader.row += 1
            if header.chunk_type != ChunkType.USER:
                continue
            bloom = chunk[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + header.bloom_length]
            if reader.matcher is None or reader.matcher.matches(bloom):
                reader.credit -= 1
                self._send_chunk(number, chunk, header, stream)
        if reader.end is not None and reader.row == len(stream.chunks) and stream.next_offset >= reader.end:
            empty = ChunkHeader(0, 0, 0, NOW_MS, 1, reader.end, 0, 0, 0, 0)
            reader.end = None
            self._send_chunk(number, empty.encode(), empty, stream)

    def _send_chunk(self, number: int, chunk: bytes, header: ChunkHeader, stream: FakeStream) -> None:
        delivered = self.core.deliver(
            number,
            np.frombuffer(chunk, dtype=np.uint8),
            header_starts=np.array([0]),
            data_starts=np.array([CHUNK_HEADER_BYTES + header.bloom_length]),
            data_lengths=np.array([header.data_length]),
            committed_chunk_id=stream.headers[-1].chunk_id if stream.headers else 0,
        )
        self.write(b"".join(delivered))


@contextlib.contextmanager
def fake_server(properties: dict[str, str] | None = None) -> Iterator[FakeServer]:
    server = FakeServer(properties)
    try:
        yield server
    finally:
        server.close()
