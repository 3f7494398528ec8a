"""A socket whose bytes travel in a WebSocket, for tests: what is written over it and read from it is AMQP."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
)

from waiting import LIMIT_S

PATH = "/$servicebus/websocket"


def whole(data: bytes) -> Iterable[BytesMessage]:
    """One message for what is written at once."""
    return [BytesMessage(data)]


def single_bytes(data: bytes) -> Iterable[BytesMessage]:
    """A message for each byte."""
    return (BytesMessage(data[at : at + 1]) for at in range(len(data)))


def fragments(data: bytes) -> Iterable[BytesMessage]:
    """One message in fragments, some of them empty."""
    size = max(7, len(data) // 50)
    for at in range(0, len(data), size):
        yield BytesMessage(data[at : at + size], message_finished=False)
        yield BytesMessage(b"", message_finished=False)
    yield BytesMessage(b"")


class WebSocketClient:
    """Open, or refused with `refusal`; `sizes` of the messages that came, `closed` when the other end has said so."""

    def __init__(
        self,
        connected: socket.socket,
        *,
        path: str = PATH,
        subprotocols: Sequence[str] = ("AMQPWSB10",),
        headers: Sequence[tuple[bytes, bytes]] = (),
        cut: Callable[[bytes], Iterable[BytesMessage]] = whole,
    ) -> None:
        self.socket = connected
        self.connection = WSConnection(ConnectionType.CLIENT)
        self.subprotocol: str | None = None
        self.refusal: int | None = None
        self.closed: CloseConnection | None = None
        self.pongs: list[bytes] = []
        self.sizes: list[int] = []
        self._cut = cut
        self._received = bytearray()
        self._size = 0
        self.say(Request(host="localhost", target=path, subprotocols=list(subprotocols), extra_headers=list(headers)))
        while self.subprotocol is None and self.refusal is None:
            for event in self._events():
                self._on(event)

    def say(self, *events: Event) -> None:
        """Says something in the words of WebSockets."""
        self.socket.sendall(b"".join(self.connection.send(event) for event in events))

    def _events(self) -> list[Event]:
        data = self.socket.recv(1 << 18)
        self.connection.receive_data(data or None)
        return list(self.connection.events())

    def _on(self, event: Event) -> None:
        match event:
            case AcceptConnection():
                self.subprotocol = event.subprotocol or ""
            case RejectConnection():
                self.refusal = event.status_code
            case RejectData():
                pass
            case CloseConnection():
                self.closed = event
            case Ping():
                self.say(event.response())
            case BytesMessage():
                self._received += event.data
                self._size += len(event.data)
                if event.message_finished:
                    self.sizes.append(self._size)
                    self._size = 0
            case _:
                self.pongs.append(event.payload)  # type: ignore[attr-defined]

    # What a client of AMQP asks of a socket.

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def sendall(self, data: bytes) -> None:
        # Behind a close nothing may be said.
        if data and self.closed is None:
            self.say(*self._cut(data))

    def recv(self, size: int) -> bytes:
        """Bytes; none when the other end has closed."""
        while not self._received and self.closed is None:
            for event in self._events():
                self._on(event)
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def pong(self) -> bytes:
        """The answer to the next ping."""
        while not self.pongs and self.closed is None:
            for event in self._events():
                self._on(event)
        return self.pongs.pop(0)


def connect(port: int) -> socket.socket:
    """A socket that waits for a limited time."""
    return socket.create_connection(("127.0.0.1", port), LIMIT_S)
