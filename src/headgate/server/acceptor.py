"""The connections of all listeners, from their acceptance within the limit to their end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from headgate.server.connection import Connection, ConnectionCalls
from headgate.server.connections import ConnectionRecord
from headgate.server.context import HandlerFactory
from headgate.server.event_loop import EventLoop
from headgate.server.listener_watch import Listener, SocketListener
from headgate.server.mixed_listener import MixedListener
from headgate.server.wrong_protocol import WrongProtocolClient

_TICK_S = 0.5
_BACKLOG = 1024
_ABORT_S = 1.0
"""After this time aborted connections are waited for no longer."""

logger = logging.getLogger("headgate.server")


class Acceptor:
    """Accepts the connections of an event loop. All methods belong to the loop's thread."""

    def __init__(self, event_loop: EventLoop) -> None:
        self.administration: Callable[[], asyncio.Protocol] | None = None
        """Makes the protocol for HTTP clients at the ports of AMQP: programs have one address for both."""
        self._event_loop = event_loop
        self._calls = ConnectionCalls(self._admits, self._opened, self._lost, lambda: self.administration)
        self._connections: dict[Connection, float] = {}
        """Connection → when it was accepted, in seconds."""
        self._listeners: list[Listener] = []
        self._all_gone: asyncio.Event | None = None

    def start(self) -> None:
        """Begin the regular ticks of the handlers; the event loop has its context."""
        self._event_loop.repeat(_TICK_S, self._tick)

    async def listen(
        self,
        name: str,
        listening: socket.socket,
        factory: HandlerFactory,
        tls: ssl.SSLContext | None = None,
        *,
        takes_plain: bool = False,
    ) -> Listener:
        """Accept connections of a bound socket for a protocol; `name` is the listener's key in the configuration.

        With `tls` clients must use TLS, and one without it is told so and closed; with `takes_plain` TLS is optional.
        """
        if tls is not None:
            context = self._event_loop.context
            mixed = MixedListener(
                listening,
                lambda: self.connection(name, factory),
                tls,
                context.settings.timeouts.handshake_s,
                make_plain=None if takes_plain else lambda: WrongProtocolClient(name, context.ports),
                most=context.settings.limits.connections,
            )
            self._listeners.append(mixed)
            return mixed
        server = await self._event_loop.loop.create_server(
            lambda: self.connection(name, factory), sock=listening, backlog=_BACKLOG
        )
        listener = SocketListener(server, listening)
        self._listeners.append(listener)
        return listener

    def connection(self, name: str, factory: HandlerFactory) -> Connection:
        """The protocol for a client of a listener; it counts once it has its transport."""
        return Connection(self._event_loop, self._calls, name, factory)

    # as they come and go

    def _admits(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        context = self._event_loop.context
        if len(self._connections) < context.settings.limits.connections and self._all_gone is None:
            return True
        if context.connections.totals.refused % 100 == 0:
            logger.warning(
                "%s: refused, %d connections are the limit (limits.connections)",
                connection.peer.host,
                context.settings.limits.connections,
            )
        context.connections.totals.refused += 1
        return False

    def _opened(self, connection: Connection, listener: str) -> ConnectionRecord:
        context = self._event_loop.context
        self._connections[connection] = context.clock.monotonic_s()
        return context.connections.opened(connection, listener=listener, now_ms=context.clock.now_ms())

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._event_loop.context.connections.closed(connection)
        if not self._connections and self._all_gone is not None:
            self._all_gone.set()

    def _tick(self) -> None:
        context = self._event_loop.context
        now_ms, now_s = context.clock.now_ms(), context.clock.monotonic_s()
        # A client whose login is still being checked is not too late: the oldest pending check extends the limit.
        limit_s = context.settings.timeouts.handshake_s + self._event_loop.oldest_login_s(now_s)
        for connection, opened_s in tuple(self._connections.items()):
            record = connection.record
            if record.user is None and now_s - opened_s > limit_s and not connection.is_closing:
                logger.info("%s: not known in time, the connection is closed", record.name)
                context.connections.totals.timed_out += 1
                connection.abort()
            else:
                connection.tick(now_ms)

    # ending

    def stop(self) -> None:
        """Close the listeners; open connections stay."""
        for listener in self._listeners:
            listener.close()
        self._all_gone = asyncio.Event()

    async def end_connections(self) -> None:
        """Let every handler say good-bye, and close remaining connections after `timeouts.shutdown_s`."""
        for connection in tuple(self._connections):
            connection.shut_down()
        await self._wait_until_gone(self._event_loop.context.settings.timeouts.shutdown_s)
        self.abort_connections()
        await self._wait_until_gone(_ABORT_S)

    def abort_connections(self) -> None:
        """End all connections at once."""
        for connection in tuple(self._connections):
            connection.abort()

    async def _wait_until_gone(self, limit_s: float) -> None:
        if self._connections and self._all_gone is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), limit_s)
