"""A small server beside the server, whose clients publish while real ones pause."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headgate.broker.arguments import MAX_LENGTH, SEGMENT_SIZE
from headgate.broker.broker import Broker, BrokerSettings
from headgate.errors import AuthenticationError
from headgate.log.files import DiskFile, storage_error
from headgate.log.staging import PRIVATE_FOLDER
from headgate.protocols.sasl import Credentials, Mechanism
from headgate.server.connection import Connection
from headgate.server.connections import Connections
from headgate.server.context import Clock, HandlerFactory, ServerContext
from headgate.server.driver import Driver
from headgate.server.link import Buffer, Caller
from headgate.server.settings import ServerSettings
from headgate.server.warming.clients import Amqp10Client, StreamClient, WarmingClient

PAUSES = 50
"""So many pauses after a protocol's last message its way is kept warm no more."""

_NAME = "warming"
"""Of the folder, of the stream in it, and of the user who publishes to that."""
_SEGMENT_BYTES = 64 << 20
_SLATE_BYTES = 1 << 20
"""What a file of such a segment takes."""

_WARMED: dict[str, tuple[str, Callable[[str], WarmingClient]]] = {
    "stream": ("stream", StreamClient),
    "AMQP 1.0": ("amqp", Amqp10Client),
}
"""By the names that connections have of their protocols: the listener, and the client."""

logger = logging.getLogger("headgate.server")


class CacheWarming:
    """Keeps the way of a lone message through the server in the processor's caches while messages come one by one.

    When something was published and answered, a message that nobody sent goes the same way every
    `timeouts.cache_warming_s` in which nothing else did, a few times. Nothing of it is seen by the server that clients
    talk to. All methods belong to the loop's thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: ServerSettings,
        handlers: Mapping[str, HandlerFactory],
    ) -> None:
        """Make the small server under the root, and let its clients come; `handlers` by listeners. Raises LogError."""
        self._loop = loop
        self._clock = clock
        self._pause_s = settings.timeouts.cache_warming_s
        self._folder = Path(settings.root) / PRIVATE_FOLDER / _NAME
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise storage_error(error, self._folder) from error
        self._driver = Driver(loop)
        self._broker = Broker(
            self._folder,
            now_ms=clock.now_ms,
            settings=BrokerSettings(default_user=_NAME, default_has_password=False, open_file=_Slate),
            wake=self._driver.wake,
        )
        session = self._broker.open_session(_NAME, protocol="", connection="")
        session.declare_stream(_NAME, {MAX_LENGTH: 1, SEGMENT_SIZE: _SEGMENT_BYTES})
        connections = Connections()
        self._driver.context = ServerContext(self._broker, settings, clock, _Anyone(connections), connections)
        self._ways = {
            protocol: _Way(loop, self._driver, handlers[listener], client(_NAME))
            for protocol, (listener, client) in _WARMED.items()
            if listener in handlers
        }
        self._gone_s = float("-inf")
        """When a message went its way last."""
        self._timer: asyncio.TimerHandle | None = None

    def published(self, protocol: str) -> None:
        """A message of that protocol was written, and its publisher told so, just now."""
        way = self._ways.get(protocol)
        if way is None:
            return
        way.used_s = self._gone_s = self._clock.monotonic_s()
        if self._timer is None:
            self._timer = self._loop.call_later(self._pause_s, self._warm)

    def _warm(self) -> None:
        now_s = self._clock.monotonic_s()
        used = [way for way in self._ways.values() if now_s - way.used_s < PAUSES * self._pause_s]
        if not used:
            self._timer = None
            return
        if now_s - self._gone_s >= self._pause_s / 2:
            for way in used:
                way.warm()
            self._gone_s = now_s
        self._timer = self._loop.call_later(self._pause_s, self._warm)

    def confirmed(self, protocol: str) -> int:
        """Messages that nobody sent, and that were confirmed."""
        return self._ways[protocol].client.confirmed

    def close(self) -> None:
        """Warm no more, and take away what was made for it."""
        if self._timer is not None:
            self._timer.cancel()
        for way in self._ways.values():
            way.close()
        self._broker.close()
        self._driver.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Way:
    """One client, and its connection without a socket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, driver: Driver, handler: HandlerFactory, client: WarmingClient
    ) -> None:
        self.client = client
        self.used_s = float("-inf")
        """When a real message went this way last."""
        self._transport = _Transport(self._received, self._ended)
        self._loop = loop
        self._connection = Connection(driver, "", handler)
        self._connection.connection_made(self._transport)
        self._say(client.take_output())

    def warm(self) -> None:
        """Send a message."""
        if not self._transport.is_closing():
            self._say(self.client.message())

    def close(self) -> None:
        """End the connection."""
        self._connection.connection_lost(None)

    def _say(self, data: bytes) -> None:
        if data:
            self._connection.get_buffer(len(data))[: len(data)] = data
            self._connection.buffer_updated(len(data))

    def _received(self, data: bytes) -> None:
        self.client.received(data)
        answer = self.client.take_output()
        if answer:
            # Now the link is writing.
            self._loop.call_soon(self._say, answer)

    def _ended(self) -> None:
        logger.warning("a connection for cache warming ended: lone messages may take longer to their confirm")
        self._loop.call_soon(self._connection.connection_lost, None)


class _Transport(asyncio.Transport):
    """Hands over what is written, at once; never full."""

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 0), "sockname": ("127.0.0.1", 0)})
        self._received = received
        self._ended = ended
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is kept."""

    def get_write_buffer_size(self) -> int:
        """Nothing is kept."""
        return 0

    def write(self, data: Any) -> None:
        """To the client."""
        self._received(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """To the client."""
        self._received(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """The client says nothing unasked but messages, which are few."""

    def resume_reading(self) -> None:
        """The opposite."""

    def can_write_eof(self) -> bool:
        """Only all at once ends."""
        return False

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._is_closing

    def close(self) -> None:
        """The server ends the connection."""
        if not self._is_closing:
            self._is_closing = True
            self._ended()

    abort = close


class _Slate(DiskFile):
    """A file that is written from its start again and again: nobody reads it, and it never grows."""

    def write(self, data: Buffer, position: int) -> None:
        """Write `data` somewhere."""
        super().write(data, position % _SLATE_BYTES)


class _Anyone:
    """Lets everybody in."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def mechanisms(self, link: Caller) -> tuple[str, ...]:
        """The one that asks for nothing."""
        return (Mechanism.ANONYMOUS,)

    def authenticate(
        self, link: Caller, credentials: Credentials, then: Callable[[str | AuthenticationError], None]
    ) -> None:
        """Accept."""
        self._connections.of(link).user = _NAME
        link.call_soon(lambda: then(_NAME))
