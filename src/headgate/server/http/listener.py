"""HTTP at a socket: connections with a time limit, plain or with TLS, or both at one port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from headgate.server.connection import Connection
from headgate.server.connections import ip_address
from headgate.server.listener_watch import is_listening
from headgate.server.mixed_listener import CONNECTIONS, MixedListener
from headgate.server.websocket import Upper, WebSocketTransport, answer_handshake, hand_up

_GRACE_S = 2


class _HttpConnection(H11Protocol):
    """An HTTP connection; it ends when its client owes a request, or does not take the answer, for `limit_s`.

    uvicorn has a limit only for clients that send nothing at all after an answer.
    """

    def __init__(
        self,
        server: uvicorn.Server,
        all_open: dict[_HttpConnection, None],
        limit_s: float,
        web_sockets: Mapping[str, Callable[[], Upper]],
        first: Callable[[bytes], Connection | bytes | None],
    ) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._web_sockets = web_sockets
        self._first: Callable[[bytes], Connection | bytes | None] | None = first
        self._all_open = all_open
        """Longest wait for a request first."""
        self._limit_s = limit_s
        self._limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepted; with TLS, after its handshake."""
        super().connection_made(transport)
        self._expect()
        if len(self._all_open) > CONNECTIONS:
            first = next(other for other in self._all_open if not other._is_ours_to_answer)
            # Its transport reports the loss only in the next turn.
            del self._all_open[first]
            first.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; the first ones show whether it speaks HTTP."""
        first, self._first = self._first, None
        other = None if first is None else first(data)
        if other is None:
            super().data_received(data)
        elif isinstance(other, bytes):
            self.transport.write(other)
            self.transport.close()
        else:
            self._leave()
            # The loop chooses how to read when reading begins.
            self.transport.pause_reading()
            self.transport.set_protocol(other)
            other.connection_made(self.transport)
            hand_up(other, data, self.transport)
            self.transport.resume_reading()

    def _leave(self) -> None:
        """The client does not speak HTTP from here on."""
        self._limit.cancel()
        self._all_open.pop(self, None)
        self.connections.discard(self)

    def on_response_complete(self) -> None:
        """An answer was handed to the transport."""
        if self in self._all_open:
            self._limit.cancel()
            self._expect()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport was closed."""
        self._limit.cancel()
        self._all_open.pop(self, None)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """The input is no HTTP. A request that is being answered learns that its client has gone.

        uvicorn would send both answers, and fail at the second.
        """
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == b"websocket" and self.scope["method"] == "GET" and self._upper is not None

    @property
    def _upper(self) -> Callable[[], Upper] | None:
        """Makes the protocol that is served over a WebSocket at the requested path; None if there is none."""
        return self._web_sockets.get(self.scope["path"].removesuffix("/").lower())

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """A client asks for a WebSocket."""
        upper = self._upper
        assert upper is not None
        is_loopback = self.client is not None and ip_address(self.client[0]).is_loopback
        connection, answer = answer_handshake(event, is_loopback=is_loopback)
        self.transport.write(answer)
        if connection is None:
            self.transport.close()
            return
        self._leave()
        web_socket = WebSocketTransport(self.transport, connection, upper())
        self.transport.set_protocol(web_socket)
        early, _ = self.conn.trailing_data
        if early:
            web_socket.data_received(early)

    @property
    def _is_ours_to_answer(self) -> bool:
        """Whether the whole request is here and its client takes the answer."""
        cycle = self.cycle
        # uvicorn has None for it until the first request.
        return cycle is not None and not cycle.more_body and not cycle.response_complete and not self.flow.write_paused

    def _expect(self) -> None:
        """Start the time limit of the client again."""
        self._all_open.pop(self, None)
        self._all_open[self] = None
        self._limit = self.loop.call_later(self._limit_s, self._reached_limit)

    def _reached_limit(self) -> None:
        if self._is_ours_to_answer:
            self._expect()
        else:
            self.transport.abort()


class HttpListener:
    """One listener of HTTP, from `start` to `stop`.

    Without `encryption` it is plain; with it, TLS is optional for clients, unless `make_plain` makes another protocol
    for clients without it. `limit_s` is the time for a handshake, for a whole request, and for taking its answer.
    `web_sockets` makes the protocol for clients that ask for a WebSocket, by path, in lower case and without a slash at
    its end. `first` gets the first bytes of each client: it returns None for HTTP, or else the answer before the client
    is closed, or the connection that serves it.
    """

    def __init__(
        self,
        application: ASGIApp,
        listening: socket.socket,
        *,
        limit_s: float,
        encryption: ssl.SSLContext | None = None,
        web_sockets: Mapping[str, Callable[[], Upper]] | None = None,
        first: Callable[[bytes], Connection | bytes | None] = lambda data: None,
        make_plain: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self._socket = listening
        self._limit_s = limit_s
        self._encryption = encryption
        self._web_sockets = web_sockets or {}
        self._first = first
        self._make_plain = make_plain
        self._all_open: dict[_HttpConnection, None] = {}
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=_HttpConnection,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept."""
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        self._server.servers = [await self._listener()]
        self._task = asyncio.create_task(self._server.main_loop())

    def connection(self) -> asyncio.Protocol:
        """The protocol for a client that was accepted elsewhere, from its first bytes on."""
        return _HttpConnection(self._server, self._all_open, self._limit_s, self._web_sockets, self._first)

    @property
    def is_accepting(self) -> bool:
        """Whether the listener accepts connections."""
        if self._task is None or self._task.done():
            return False
        return is_listening(self._socket) and all(_is_serving(server) for server in self._server.servers)

    def close(self) -> None:
        """Accept no more; connections stay until `stop`."""
        for server in self._server.servers:
            server.close()
        self._socket.close()

    async def _listener(self) -> asyncio.Server:
        if self._encryption is None:
            return await asyncio.get_running_loop().create_server(
                self.connection, sock=self._socket, backlog=self._server.config.backlog
            )
        mixed = MixedListener(
            self._socket, self.connection, self._encryption, self._limit_s, make_plain=self._make_plain
        )
        # uvicorn only closes it, and waits for that.
        return cast(asyncio.Server, mixed)

    async def stop(self) -> None:
        """End requests and close."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        state = self._server.server_state
        if state.connections or state.tasks:
            await self._server.shutdown(sockets=[self._socket])
            return
        # uvicorn would wait a tenth of a second, without any connection.
        self.close()
        for server in self._server.servers:
            await server.wait_closed()


def _is_serving(server: asyncio.Server | MixedListener) -> bool:
    return server.is_accepting if isinstance(server, MixedListener) else server.is_serving()
