"""Large writes to a socket, made in a thread: the kernel copies them while the loop goes on.

A transport of the loop writes in the loop's thread and holds the interpreter meanwhile: 0.25 ms for a chunk of 800 KB,
in which no connection is served. `sendmsg` releases the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

import numpy as np

from headgate.log import memory_of
from headgate.server.transport import Buffer

RunInThread = Callable[[Callable[[], bool], Callable[[bool | BaseException], None]], None]

MOST_BYTES = 3 << 20
"""Limit: unsent bytes, if the last buffers lie in memory. Beyond it the sender takes no more."""
MOST_MAPPED_BYTES = 16 << 20
"""Limit: unsent bytes, if the last buffers lie in a mapped file: they cost no memory, and the loop wakes less often."""
_BUFFERS_AT_ONCE = 512
"""Limit: buffers per `sendmsg`, below IOV_MAX of every system."""
_JOINED_BUFFERS = 32
"""From this many buffers on, no more are joined to them: sixteen large chunks are some 13 MB."""


class Sender:
    """Sends on one connected socket, in order, one thread at a time; all calls are made in the loop's thread.

    It has a descriptor of its own, so that a thread never writes to another connection that reuses a closed one's
    number.
    """

    def __init__(
        self,
        descriptor: int,
        loop: asyncio.AbstractEventLoop,
        run_in_thread: RunInThread,
        *,
        moved: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`moved` is called when there is room again, or everything is sent; `failed` with the error of `sendmsg`.

        Neither of them is called after `close`.
        """
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._loop = loop
        self._run_in_thread = run_in_thread
        self._moved = moved
        self._failed = failed
        self._queue: deque[list[Buffer]] = deque()
        # The first is counted by the loop, the second by the thread that sends.
        self._given_bytes = self._sent_bytes = 0
        self._most_bytes = MOST_BYTES
        self._owes_moved = False
        self._is_closed = False
        self._is_sending = False
        self.has_room = True
        """Whether the sender takes more; if not, `moved` is called when it does again."""
        self.is_busy = False
        """Whether something is to be sent, or was just sent: later output goes after it."""

    def send(self, buffers: list[Buffer], count: int) -> None:
        """Send this many bytes after everything given before; the buffers must not change afterwards."""
        self._queue.append(buffers)
        self._given_bytes += count
        self._most_bytes = MOST_MAPPED_BYTES if _is_mapped(max(buffers, key=len)) else MOST_BYTES
        if self._given_bytes - self._sent_bytes >= self._most_bytes:
            self.has_room = False
            self._owes_moved = True
        if not self.is_busy:
            self._start()

    def close(self) -> None:
        """Send nothing more; the socket is closed when the thread has ended."""
        self._is_closed = True
        self._queue.clear()
        if not self._is_sending:
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        else:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _start(self) -> None:
        self.is_busy = self._is_sending = True
        self._run_in_thread(self._send_queued, self._ended)

    def _send_queued(self) -> bool:
        """In the thread: send the queued buffers; returns whether the system took them all."""
        while not self._is_closed and (buffers := self._next()):
            while buffers:
                try:
                    sent = self._socket.sendmsg(buffers[:_BUFFERS_AT_ONCE])
                except BlockingIOError:
                    self._queue.appendleft(buffers)
                    return False
                self._sent_bytes += sent
                buffers = _behind(buffers, sent)
            # The thread goes on with the rest until more buffers have come.
            if self._owes_moved and self._given_bytes - self._sent_bytes < self._most_bytes // 2:
                self._owes_moved = False
                self._loop.call_soon_threadsafe(self._has_moved)
        return True

    def _next(self) -> list[Buffer]:
        """The buffers of several turns of the loop, for one call: each call ends by waiting for the interpreter."""
        buffers: list[Buffer] = []
        while self._queue and len(buffers) < _JOINED_BUFFERS:
            buffers += self._queue.popleft()
        return buffers

    def _has_moved(self) -> None:
        if not self._is_closed:
            self.has_room = True
            self._moved()

    def _ended(self, all_taken: bool | BaseException) -> None:
        self._is_sending = False
        if self._is_closed:
            self._socket.close()
        elif isinstance(all_taken, BaseException):
            self._failed(all_taken)
        elif not all_taken:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        elif self._queue:
            self._start()
        else:
            self.is_busy = False
            self._has_moved()

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._start()


def _is_mapped(buffer: Buffer) -> bool:
    return isinstance(buffer, memoryview) and isinstance(buffer.obj, np.ndarray) and memory_of(buffer.obj) is None


def _behind(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """The rest of buffers of which `sent` bytes were sent."""
    for number, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[number + 1 :]]
        sent -= len(buffer)
    return []
