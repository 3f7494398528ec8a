"""AMQP over WebSockets: a layer between a socket and the connection that is served over it, like TLS.

    socket ── WebSocketTransport ── Connection ── handler

To the connection it is a transport like that of a socket; the framing is invisible above. The stream of AMQP lies in
binary messages whose borders mean nothing: they are handed up as their bytes come, so neither frames nor messages have
a size limit. Compression is not offered.

Source: RFC 6455; servicebus_wire, section 11.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol
from urllib.parse import urlsplit

import h11
from wsproto import WSConnection
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from headgate.server.connections import is_name_of_this_machine

SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""Service Bus's name for AMQP over WebSockets, and the standard's."""

_MESSAGE_BYTES = 256 * 1024
"""Largest WebSocket message: some clients refuse messages of several megabytes."""

logger = logging.getLogger("headgate.server.websocket")


class Upper(Protocol):
    """The protocol above a WebSocket: the loop's `BufferedProtocol`, which the layer can ask to end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """A buffer for the peer's next bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """The peer's next `nbytes` bytes are in that buffer."""

    def eof_received(self) -> bool:
        """No more will come."""

    def pause_writing(self) -> None:
        """The socket holds too much."""

    def resume_writing(self) -> None:
        """The socket takes more."""

    def connection_lost(self, reason: Exception | None) -> None:
        """The socket was closed."""

    def finish(self) -> None:
        """The peer has closed this layer: send the rest, close the transport, and abort it if that takes too long."""


def hand_up(upper: Upper, data: bytes | bytearray, transport: asyncio.BaseTransport) -> None:
    """Give bytes that came on a transport to the protocol above, as the loop would."""
    while data and not transport.is_closing():
        buffer = upper.get_buffer(len(data))
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        data = data[count:]
        upper.buffer_updated(count)


def answer_handshake(request: h11.Request, *, is_loopback: bool = False) -> tuple[WSConnection | None, bytes]:
    """The connection that a request opens, None if it is refused; and the answer.

    A page of another origin is refused: a browser lets any page open a WebSocket to any server, and a server on this
    machine may accept every client on it. So, of a page on this machine, is one whose host is no name of this machine:
    its site may have made its name mean 127.0.0.1.
    """
    connection = WSConnection(ConnectionType.SERVER)
    try:
        connection.initiate_upgrade_connection(list(request.headers), request.target)
        asked = next(connection.events())
        assert isinstance(asked, Request)
    except RemoteProtocolError as error:
        refusal = error.event_hint
        assert isinstance(refusal, RejectConnection)
        return None, connection.send(refusal)
    except (h11.ProtocolError, UnicodeError):
        return None, _refused(400)
    if not _is_own(asked.extra_headers, asked.host, is_loopback=is_loopback):
        return None, connection.send(RejectConnection(status_code=403))
    subprotocol = next((name for name in asked.subprotocols if name in SUBPROTOCOLS), None)
    if subprotocol is None:
        return None, connection.send(RejectConnection(status_code=400))
    return connection, connection.send(AcceptConnection(subprotocol=subprotocol))


def _refused(status: int) -> bytes:
    return b"HTTP/1.1 %d \r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status


def _is_own(headers: Iterable[tuple[bytes, bytes]], host: str, *, is_loopback: bool) -> bool:
    """Whether a request comes from no page, or from a page of this server."""
    origin = next((value for name, value in headers if name == b"origin"), None)
    if origin is None:
        return True
    if is_loopback and not is_name_of_this_machine(host):
        return False
    try:
        return urlsplit(origin.decode("ascii")).netloc.lower() == host.lower()
    except ValueError:  # also of what is no ASCII
        return False


class WebSocketTransport(asyncio.Transport, asyncio.Protocol):
    """The transport of `upper`, and the protocol of a socket whose handshake has been answered.

    When `upper` closes it, it sends a close frame, and closes the socket once the peer has answered; `upper` aborts it
    if that takes too long. Input from the peer is ignored meanwhile.
    """

    def __init__(self, socket: asyncio.Transport, connection: WSConnection, upper: Upper) -> None:
        super().__init__()
        self._socket = socket
        self._connection = connection
        self._upper = upper
        self._farewell = CloseConnection(CloseReason.NORMAL_CLOSURE)
        self._is_closing = False
        self._is_deaf = False
        """Whether the peer's input cannot be read any more, after an error."""
        self._is_full = False
        self._unanswered: Ping | None = None
        upper.connection_made(self)

    # What the loop calls, as the protocol of the socket.

    def data_received(self, data: bytes) -> None:
        """Bytes of frames."""
        if not self._hears:
            return
        self._connection.receive_data(data)
        for event in self._connection.events():
            match event:
                case BytesMessage():
                    hand_up(self._upper, event.data, self)
                case Ping():
                    self._answer(event)
                case TextMessage():
                    self._end(CloseConnection(CloseReason.UNSUPPORTED_DATA, "AMQP is binary"))
                case CloseConnection():
                    self._closed(event)
            if not self._hears:
                break

    @property
    def _hears(self) -> bool:
        return not self._is_deaf and self._connection.state is not ConnectionState.CLOSED

    def _answer(self, ping: Ping) -> None:
        """Answer a ping; while the peer takes no answers, only the last ping is kept, as the standard allows."""
        if self._connection.state is not ConnectionState.OPEN:
            return
        if self._is_full:
            self._unanswered = ping
        else:
            self._socket.write(self._connection.send(ping.response()))

    def _closed(self, said: CloseConnection) -> None:
        """The peer closes, has answered our close, or broke the protocol."""
        match self._connection.state:
            case ConnectionState.REMOTE_CLOSING:
                self._end(said.response())
            case ConnectionState.CLOSED:
                self._socket.close()
            case _:
                self._is_deaf = True
                self._end(said)

    def _end(self, farewell: CloseConnection) -> None:
        if not self._is_closing:
            logger.info("a WebSocket ends: %d %s", farewell.code, farewell.reason or "")
            self._farewell = farewell
            self._upper.finish()

    def eof_received(self) -> bool:
        """The peer sends no more."""
        self._upper.eof_received()
        return False

    def pause_writing(self) -> None:
        """The socket holds too much."""
        self._is_full = True
        self._upper.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._is_full = False
        ping, self._unanswered = self._unanswered, None
        if ping is not None:
            self._answer(ping)
        self._upper.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed."""
        self._is_closing = True
        self._upper.connection_lost(exc)

    # What `upper` calls, as its transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket's extra information, except the socket itself, so that all output goes into frames."""
        return default if name == "socket" else self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; they are dropped once either end closes."""
        with memoryview(data) as view:
            for start in range(0, len(view), _MESSAGE_BYTES):
                if self._connection.state is not ConnectionState.OPEN:
                    return
                message = BytesMessage(bytes(view[start : start + _MESSAGE_BYTES]))
                self._socket.write(self._connection.send(message))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send pieces."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """False: `close` announces the end."""
        return False

    def close(self) -> None:
        """Send a close frame, and close the socket when the peer has answered."""
        if self._is_closing:
            return
        self._is_closing = True
        self._socket.write(self._connection.send(self._farewell))
        if self._connection.state is ConnectionState.CLOSED:
            self._socket.close()
        elif self._is_deaf and self._socket.can_write_eof():
            self._socket.write_eof()
        self._socket.resume_reading()

    def abort(self) -> None:
        """Close the socket at once."""
        self._is_closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._is_closing or self._socket.is_closing()

    def pause_reading(self) -> None:
        """Take no more from the peer."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Take from the peer again."""
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which the socket holds too much."""
        self._socket.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._socket.get_write_buffer_size()
