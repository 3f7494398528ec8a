"""Connections that outlive the client that made them: a program that asks again needs no new login.

A connection is kept per process and address: place, user, password, virtual host, TLS files. Only one that is open and
has neither publisher nor subscription is given back; taken again, it is examined first, so one of a server that was
restarted is made again. At most `MOST_KEPT` wait, each for `IDLE_S`, which is before the server misses heartbeats.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.client.address import ServerAddress
    from headgate.client.connection import Connection

MOST_KEPT = 8
"""At most this many idle connections per process; the one idle for longest is closed for another."""

IDLE_S = 30.0
"""A connection is closed after this time without use."""


class ConnectionPool:
    """Idle connections, safe for several threads. `idle_s`: see `IDLE_S`."""

    def __init__(self, *, idle_s: float = IDLE_S, most: int = MOST_KEPT) -> None:
        self._idle_s = idle_s
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[tuple[ServerAddress, Connection, float]] = []
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, address: ServerAddress, connect: Callable[[], Connection]) -> Connection:
        """A connection to an address: one that was kept and is still of use, else a new one."""
        while True:
            with self._lock:
                place = next((at for at, (kept, _, _) in enumerate(self._idle) if kept == address), None)
                if place is None:
                    break
                _, connection, _ = self._idle.pop(place)
            if connection.is_idle():
                return connection
            connection.close()
        return connect()

    def give_back(self, address: ServerAddress, connection: Connection) -> None:
        """Keep a connection that no longer has a publisher or subscription."""
        with self._lock:
            self._idle.append((address, connection, time.monotonic()))
            ousted = [self._idle.pop(0)] if len(self._idle) > self._most else []
            self._watch()
        for _, other, _ in ousted:
            other.close()

    def close(self) -> None:
        """Close all that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection, _ in idle:
            connection.close()

    def _watch(self) -> None:
        """Close connections that are idle too long, by a timer; the caller holds the lock."""
        if self._timer is None and self._idle:
            due_s = self._idle[0][2] + self._idle_s - time.monotonic()
            self._timer = threading.Timer(max(0.0, due_s), self._close_old)
            self._timer.daemon = True
            self._timer.start()

    def _close_old(self) -> None:
        with self._lock:
            self._timer = None
            since = time.monotonic() - self._idle_s
            old = [entry for entry in self._idle if entry[2] <= since]
            self._idle = [entry for entry in self._idle if entry[2] > since]
            self._watch()
        for _, connection, _ in old:
            connection.close()

    def after_fork(self) -> None:
        """In the child: the connections are the parent's, which continues with them."""
        # A thread that does not exist in the child may have held the lock.
        self._lock, self._timer = threading.Lock(), None
        inherited, self._idle = self._idle, []
        for _, connection, _ in inherited:
            connection.forsake()


KEPT = ConnectionPool()
"""The kept connections of this process."""

os.register_at_fork(after_in_child=KEPT.after_fork)
atexit.register(KEPT.close)
