"""A server whose loop runs in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from headgate.broker import EntityDeclaration
from headgate.server import HandlerFactory, Server, ServerSettings, new_loop

LIMIT_S = 60.0
"""Starting and stopping take less; after this time a test fails instead of waiting."""


@dataclass
class ServerInThread:
    """A server that accepts."""

    server: Server
    loop: asyncio.AbstractEventLoop
    _stopped: Future[None] | None = None

    def stop(self) -> Future[None]:
        """Begins to stop; clients may answer while it does. The result is there when it has stopped."""
        if self._stopped is None:
            self._stopped = asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop)
        return self._stopped


@contextlib.contextmanager
def served(
    settings: ServerSettings,
    *,
    handlers: Mapping[str, HandlerFactory] | None = None,
    entities: Sequence[EntityDeclaration] = (),
) -> Iterator[ServerInThread]:
    """A server with these settings; at the end it has stopped, and its threads and sockets are gone.

    Raises what `Server.start` raises.
    """
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever, name="headgate-server")
    thread.start()

    async def start() -> Server:
        server = Server(settings, handlers=handlers, entities=entities)
        await server.start()
        return server

    try:
        running = ServerInThread(asyncio.run_coroutine_threadsafe(start(), loop).result(LIMIT_S), loop)
        try:
            yield running
        finally:
            running.stop().result(LIMIT_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()
