"""A whole server: listeners, driver, broker and HTTP put together, started and stopped."""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from collections.abc import Mapping
from pathlib import Path

from headgate.broker.broker import Broker
from headgate.server.authenticator import LoginAuthenticator
from headgate.server.connections import Connections
from headgate.server.context import Clock, HandlerFactory, ServerContext, SystemClock
from headgate.server.driver import Driver
from headgate.server.listeners import ENCRYPTED, open_listeners, protocol_of, tls_context
from headgate.server.settings import ServerSettings

HANDLERS = {
    "amqp": "headgate.server.amqp:AmqpHandler",
    "stream": "headgate.server.stream:StreamHandler",
    "stomp": "headgate.server.stomp:StompHandler",
}
"""Where the handler of each protocol is; imported when the server starts."""

logger = logging.getLogger("headgate.server")


class Server:
    """One broker over one root folder, served to clients; made and used in the thread of a running loop."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        clock: Clock | None = None,
        handlers: Mapping[str, HandlerFactory] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._handlers = handlers
        self._driver = Driver(asyncio.get_running_loop())
        self.context: ServerContext

    @property
    def ports(self) -> dict[str, int]:
        """The port of each open listener by its key in the configuration."""
        return self.context.ports

    async def start(self) -> None:
        """Listen, recover, declare what the configuration defines, accept. Raises ConfigError and others of Headgate.

        The ports are taken first: a second server is told so before it touches a file.
        """
        tls = None if self._settings.tls is None else tls_context(self._settings.tls)
        sockets = open_listeners(self._settings.listeners, encrypted=tls is not None)
        try:
            broker = Broker(Path(self._settings.root), now_ms=self._clock.now_ms, wake=self._driver.wake)
        except BaseException:
            _close(sockets)
            raise
        connections = Connections()
        authenticator = LoginAuthenticator(
            broker.users,
            self._settings,
            self._clock,
            connections=connections,
            run_in_thread=self._driver.run_in_login_thread,
        )
        self.context = ServerContext(broker, self._settings, self._clock, authenticator, connections)
        self.context.ports.update({name: listening.getsockname()[1] for name, listening in sockets.items()})
        self._driver.start(self.context)
        for name, listening in sockets.items():
            protocol = protocol_of(name)
            if protocol != "http":
                factory = self._handlers[protocol] if self._handlers else _handler(protocol)
                await self._driver.listen(name, listening, factory, tls if name in ENCRYPTED else None)

    async def stop(self) -> None:
        """Accept no more, say good-bye, write what is queued, give the locks back."""
        await self._driver.stop()
        self.context.broker.close()


def _handler(protocol: str) -> HandlerFactory:
    module, _, name = HANDLERS[protocol].partition(":")
    factory: HandlerFactory = getattr(importlib.import_module(module), name)
    return factory


def _close(sockets: Mapping[str, socket.socket]) -> None:
    for listening in sockets.values():
        listening.close()
