"""A client of the stream protocol for tests of the server: blocking, over the client's core, nothing by itself."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from headgate.log.entries import Entry, SimpleEntry, entries_of
from headgate.log.format import ChunkHeader
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.client import ClientConnection, ClientEvent, Opened
from headgate.protocols.stream.deliver_frames import Deliver
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.protocols.stream.publish_frames import PublishConfirm, PublishError
from stream_frames import publish
from waiting import LIMIT_S

E = TypeVar("E")


class StreamPeer:
    """One connection; `events` are those that nobody has waited for yet."""

    def __init__(
        self, port: int, *, host: str = "127.0.0.1", connected: socket.socket | None = None, **options: Any
    ) -> None:
        self.socket = connected or socket.create_connection((host, port), LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = ClientConnection(**options)
        self.events: list[ClientEvent] = []
        self.is_ended = False

    def __enter__(self) -> StreamPeer:
        try:
            self.wait(Opened)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def flush(self, more: bytes = b"") -> None:
        self.socket.sendall(self.connection.take_output() + more)

    def receive(self) -> None:
        """One read; sets `is_ended` at the end of the connection."""
        self.flush()
        data = self.socket.recv(1 << 20)
        self.is_ended = not data
        self.events += self.connection.receive(data)

    def wait(self, kind: type[E], that: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of a kind that fulfils a condition; what is before it stays."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and that(event):
                    self.events.remove(event)
                    return event
                assert not isinstance(event, ProtocolViolation) or kind is ProtocolViolation, event
            assert not self.is_ended, f"the server closed; waiting for {kind.__name__}"
            self.receive()

    def wait_for_end(self) -> None:
        """Until the server closes the socket."""
        while not self.is_ended:
            try:
                self.receive()
            except ConnectionResetError:
                self.is_ended = True

    def ask(self, request: f.Request) -> Any:
        """A request and its reply."""
        number = self.connection.request(request)
        return self.wait(f.Reply | f.MetadataReply, lambda reply: reply.correlation_id == number)  # type: ignore[arg-type]

    def code(self, request: f.Request) -> int:
        """The code of the reply to a request."""
        return int(self.ask(request).code)

    def say(self, frame: f.Frame) -> None:
        self.connection.send(frame)
        self.flush()

    def publish(self, entries: Iterable[tuple[int, bytes] | tuple[int, bytes, bytes | None]], **options: Any) -> None:
        self.flush(publish(entries, **options))

    def confirmed(self, count: int) -> list[int]:
        """The publishing ids of so many confirms."""
        found: list[int] = []
        while len(found) < count:
            found += self.wait(PublishConfirm).publishing_ids.tolist()
        return found

    def refused(self, count: int) -> list[tuple[int, int]]:
        """So many publishing ids with the codes of their errors."""
        found: list[tuple[int, int]] = []
        while len(found) < count:
            found += self.wait(PublishError).errors
        return found

    def put(self, stream: str, bodies: Iterable[bytes], *, values: Iterable[bytes | None] | None = None) -> None:
        """Publish messages in one go and wait for their confirms."""
        assert self.code(f.DeclarePublisher(200, None, stream)) == 1
        rows = list(bodies)
        if values is None:
            self.publish(list(enumerate(rows)), publisher_id=200)
        else:
            self.publish(
                [(n, row, value) for (n, row), value in zip(enumerate(rows), values, strict=True)], publisher_id=200
            )
        assert sorted(self.confirmed(len(rows))) == list(range(len(rows)))
        assert self.code(f.DeletePublisher(200)) == 1

    def subscribe(
        self,
        stream: str,
        *,
        number: int = 0,
        start: OffsetSpecification | None = None,
        credit: int = 10,
        **properties: str,
    ) -> int:
        """Subscribe from the beginning unless told otherwise; gives the code."""
        return self.code(f.Subscribe(number, stream, start or OffsetSpecification.first(), credit, properties))

    def chunk(self, number: int = 0) -> tuple[ChunkHeader, list[Entry]]:
        """The next chunk of a subscription."""
        return opened_chunk(self.wait(Deliver, lambda deliver: deliver.subscription_id == number))

    def messages(self, count: int, *, number: int = 0) -> list[tuple[int, bytes]]:
        """So many messages of a subscription with their offsets, one credit given for each chunk."""
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            header, entries = self.chunk(number)
            self.say(f.Credit(number, 1))
            assert all(isinstance(entry, SimpleEntry) for entry in entries)
            found += [(header.chunk_id + n, entry.body) for n, entry in enumerate(entries)]
        return found


def opened_chunk(deliver: Deliver) -> tuple[ChunkHeader, list[Entry]]:
    """Header and entries of a delivered chunk, checked."""
    header = ChunkHeader.decode(deliver.chunk[:48], path="", position=0)
    data = deliver.chunk[48:]
    assert len(data) == header.data_length and zlib.crc32(data) == header.crc
    return header, list(entries_of(data, header.num_entries, path="", position=0))


@contextmanager
def opened_peer(port: int, **options: Any) -> Iterator[StreamPeer]:
    """A connection whose handshake is over."""
    with StreamPeer(port, **options) as peer:
        yield peer
