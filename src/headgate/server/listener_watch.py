"""Watches the listeners: one that no longer accepts is started again at its port, and counted.

No input from a client should end a listener, but unknown faults may. So every listener is checked once a second, and
with every request for the health of the server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import ConfigError
from headgate.server.listening_sockets import open_listener

_LOOKED_S = 1.0

logger = logging.getLogger("headgate.server")


class Listener(Protocol):
    """A listener: it accepts the connections of one socket."""

    @property
    def is_accepting(self) -> bool:
        """Whether it does."""

    def close(self) -> None:
        """Accept no more, and give the port back; connections stay."""


Start = Callable[[socket.socket], Awaitable[Listener]]
"""Makes a listener of a bound socket."""


def is_listening(listening: socket.socket) -> bool:
    """Whether the system accepts connections for a socket."""
    try:
        return bool(listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


class SocketListener:
    """A server of the loop."""

    def __init__(self, server: asyncio.Server, listening: socket.socket) -> None:
        self._server = server
        self._socket = listening

    @property
    def is_accepting(self) -> bool:
        """Whether loop and system take connections."""
        return self._server.is_serving() and is_listening(self._socket)

    def close(self) -> None:
        """Accept no more."""
        self._server.close()
        self._socket.close()


@dataclass(slots=True)
class _Watched:
    listener: Listener
    start: Start
    host: str
    port: int


class Listeners:
    """All listeners of one server, by their keys in the configuration."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._restarting: asyncio.Task[None] | None = None
        self.restarts: Counter[str] = Counter()
        """How often each listener was started again."""

    async def open(self, name: str, listening: socket.socket, start: Start, *, host: str) -> None:
        """Accept at a bound socket; `host` is its address as in the configuration."""
        port = listening.getsockname()[1]
        self._watched[name] = _Watched(await start(listening), start, host, port)
        self.restarts[name] = 0
        if self._timer is None:
            self._look()

    def ended(self) -> list[str]:
        """The listeners that do not accept."""
        return [name for name, each in self._watched.items() if not each.listener.is_accepting]

    def close(self) -> None:
        """Stop watching; the server ends."""
        if self._timer is not None:
            self._timer.cancel()
        if self._restarting is not None:
            self._restarting.cancel()
        self._watched.clear()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOKED_S, self._look)
        names = self.ended()
        if names and (self._restarting is None or self._restarting.done()):
            self._restarting = asyncio.ensure_future(self._restart(names))

    async def _restart(self, names: list[str]) -> None:
        for name in names:
            watched = self._watched[name]
            try:
                watched.listener.close()
                watched.listener = await watched.start(open_listener(name, watched.host, watched.port))
            except (ConfigError, OSError) as error:
                logger.error("listener %s has ended, and cannot be started again: %s", name, error)
            else:
                self.restarts[name] += 1
                logger.error("listener %s had ended, and was started again", name)
