"""Clients with TLS and clients without it at one port.

The first byte shows whether a client speaks TLS: a TLS handshake begins with 0x16, but no method of HTTP does, and no
frame of RocketMQ's classic protocol: it would have 369 MB. The byte is only peeked at, so the protocol that serves the
client reads it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from headgate.server.listener_watch import is_listening

CONNECTIONS = 256
"""Limit: silent clients, and as many in a handshake; a listener may set another limit."""

GOODBYE_S = 0.5
"""How long a client with TLS that is gone, or does not read, can delay the end of the server."""

_HANDSHAKE = b"\x16"
_ACCEPTED_AT_ONCE = 64
_PAUSE_S = 1.0
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

logger = logging.getLogger("headgate.server")


class MixedListener:
    """Accepts clients with TLS and clients without it at one socket.

    `make_plain` makes the protocol for clients without TLS, if it is another one. `most` limits both the clients that
    have sent nothing yet and the open handshakes.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        encryption: ssl.SSLContext,
        limit_s: float,
        *,
        make_plain: Callable[[], asyncio.BaseProtocol] | None = None,
        most: int | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.socket = listening
        self._make = make
        self._make_plain = make_plain or make
        self._most = CONNECTIONS if most is None else most
        self._encryption = encryption
        self._limit_s = limit_s
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        """Clients that have sent nothing yet, longest wait first."""
        self._taking: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self.has_ended = False
        """Whether the listener accepts no more."""
        listening.setblocking(False)
        self._listen()

    @property
    def is_accepting(self) -> bool:
        """Whether the listener accepts, or will when there is room again."""
        return not self.has_ended and is_listening(self.socket)

    def close(self) -> None:
        """Accept no more, and close the clients that have sent nothing yet."""
        self.has_ended = True
        if self._pause is not None:
            self._pause.cancel()
        if self.socket.fileno() >= 0:
            self._loop.remove_reader(self.socket)
            self.socket.close()
        for client in tuple(self._silent):
            self._give_up(client)

    async def wait_closed(self) -> None:
        """Wait until the open handshakes are over."""
        await asyncio.gather(*self._taking)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self.socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.remove_reader(self.socket)
                if error.errno not in _NO_ROOM:
                    logger.error("no connection can be accepted any more: %s", error)
                    self.has_ended = True
                    return
                logger.error("no connection can be accepted for now: %s", error)
                self._pause = self._loop.call_later(_PAUSE_S, self._listen)
                return
            client.setblocking(False)
            if len(self._silent) >= self._most:
                self._give_up(next(iter(self._silent)))
            self._silent[client] = self._loop.call_later(self._limit_s, self._give_up, client)
            self._loop.add_reader(client, self._look, client)

    def _forget(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        self._loop.remove_reader(client)

    def _give_up(self, client: socket.socket) -> None:
        self._forget(client)
        client.close()

    def _look(self, client: socket.socket) -> None:
        try:
            first = client.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._forget(client)
        is_encrypted = first == _HANDSHAKE
        if not first or (is_encrypted and len(self._taking) >= self._most):
            client.close()
            return
        task = self._loop.create_task(self._take(client, is_encrypted=is_encrypted))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _take(self, client: socket.socket, *, is_encrypted: bool) -> None:
        # A handshake that fails, or is not over in time, has ended the connection.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._make if is_encrypted else self._make_plain,
                client,
                ssl=self._encryption if is_encrypted else None,
                ssl_handshake_timeout=self._limit_s if is_encrypted else None,
                ssl_shutdown_timeout=GOODBYE_S if is_encrypted else None,
            )
