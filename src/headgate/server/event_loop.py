"""The one event loop: its turns, threads for long work, and the connections of all listeners.

Each turn of the loop ends in this order: the broker writes the published messages, connections without a due call get
their confirms, the calls that handlers asked for are made, topics decide, settle and deliver, and the output of the
other connections is sent. So all messages of one round of reading are written to their streams at once, confirmed and
delivered in the same turn, with one system call per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from headgate.server.connection import Connection
from headgate.server.connections import ConnectionRecord
from headgate.server.context import HandlerFactory, ServerContext
from headgate.server.listener_watch import Listener, SocketListener
from headgate.server.mixed_listener import MixedListener
from headgate.server.transport import T
from headgate.server.wrong_protocol import WrongProtocolClient

RECEIVE_BUFFER_BYTES = 1 << 20
WORKERS = 2
_BROKER_TICK_S = 0.05
_HANDLER_TICK_S = 0.5
_BACKLOG = 1024
_BACKGROUND_NICENESS = 10
_ABORT_S = 1.0
"""After this time the event loop stops waiting for aborted connections."""

logger = logging.getLogger("headgate.server")


class EventLoop:
    """Serves the connections of its listeners. All methods belong to the loop's thread.

    It is made before its context, because the broker needs `wake`; `start` gets the context.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.context: ServerContext
        self.administration: Callable[[], asyncio.Protocol] | None = None
        """Makes the protocol for HTTP clients at the ports of AMQP: programs have one address for both."""
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._connections: dict[Connection, float] = {}
        """Connection → when it was accepted, in seconds."""
        self._logins_s: deque[float] = deque()
        """When each unchecked login began to wait, in seconds; oldest first."""
        self._listeners: list[Listener] = []
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="headgate-worker")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="headgate-background", initializer=_yield_to_others)
        self._login_thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-login")
        self._sender_thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-sender")
        self._turn_is_scheduled = False
        self._broker_is_woken = False
        self._calls: list[Callable[[], None]] = []
        self._unsent: list[Connection] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._all_gone: asyncio.Event | None = None

    def start(self, context: ServerContext) -> None:
        """Begin the regular ticks of the broker and the handlers."""
        self.context = context
        self._tick_broker()
        self._tick_handlers()

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
            settings = self.context.settings
            mixed = MixedListener(
                listening,
                lambda: self.connection(name, factory),
                tls,
                settings.timeouts.handshake_s,
                make_plain=None if takes_plain else lambda: WrongProtocolClient(name, self.context.ports),
                most=settings.limits.connections,
            )
            self._listeners.append(mixed)
            return mixed
        server = await self.loop.create_server(lambda: self.connection(name, factory), sock=listening, backlog=_BACKLOG)
        listener = SocketListener(server, listening)
        self._listeners.append(listener)
        return listener

    def connection(self, name: str, factory: HandlerFactory) -> Connection:
        """The protocol for a client of a listener; the event loop counts it once it has its transport."""
        return Connection(self, name, factory)

    def stop_accepting(self) -> None:
        """Close the listeners; open connections stay."""
        for listener in self._listeners:
            listener.close()
        self._all_gone = asyncio.Event()

    async def end_connections(self) -> None:
        """Let every handler say good-bye, and close remaining connections after `timeouts.shutdown_s`."""
        for connection in tuple(self._connections):
            connection.shut_down()
        await self._wait_until_gone(self.context.settings.timeouts.shutdown_s)
        self.abort_connections()
        await self._wait_until_gone(_ABORT_S)

    def abort_connections(self) -> None:
        """End all connections at once."""
        for connection in tuple(self._connections):
            connection.abort()

    def close(self) -> None:
        """End threads and regular calls; the event loop's last call."""
        for timer in self._timers.values():
            timer.cancel()
        for pool in (self._workers, self._background, self._login_thread):
            pool.shutdown(wait=True, cancel_futures=True)
        # Its last work closes the socket.
        self._sender_thread.shutdown(wait=True)

    async def _wait_until_gone(self, limit_s: float) -> None:
        if self._connections and self._all_gone is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), limit_s)

    # The turn of the loop.

    def wake(self) -> None:
        """The broker has something to write, which happens at the end of this turn."""
        self._broker_is_woken = True
        if not self._turn_is_scheduled:
            self._schedule_turn()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call at the end of this turn, or of the next when this one is ending."""
        self._calls.append(call)
        if not self._turn_is_scheduled:
            self._schedule_turn()

    def flush_later(self, connection: Connection) -> None:
        """Send the output of a connection at the end of this turn."""
        self._unsent.append(connection)
        if not self._turn_is_scheduled:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        self._turn_is_scheduled = True
        self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        # Until the turn is over it counts as scheduled: its own effects schedule no other turn.
        try:
            is_woken, self._broker_is_woken = self._broker_is_woken, False
            if is_woken:
                self._guarded("the broker failed to write", self.context.broker.write_queued)
            calls, self._calls = self._calls, []
            if calls:
                self._send_answers()
            for call in calls:
                call()
            self._guarded("topics failed at their turn", self.context.broker.end_turn)
            unsent, self._unsent = self._unsent, []
            for connection in unsent:
                connection.flush()
        finally:
            self._turn_is_scheduled = False
            if self._broker_is_woken:
                # Parts of the broker that asked before their place in this turn have had it.
                self._broker_is_woken = self.context.broker.is_asked
            if self._calls or self._unsent or self._broker_is_woken:
                self._schedule_turn()

    def _send_answers(self) -> None:
        """Send the output of connections without a due call: their confirms do not wait for deliveries to others."""
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            if connection.calls_due:
                self._unsent.append(connection)
            else:
                connection.flush()

    # Threads and time.

    def run_in_worker(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """Run `work` in a thread of the pool; `then` gets its result or its error in the loop's thread."""
        self._run(self._workers, work, then)

    def run_in_background(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, in one thread of low priority, for work that can wait."""
        self._run(self._background, work, then)

    def run_in_login_thread(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, in the one thread for hashes of passwords: a flood of logins delays no reader."""
        self._logins_s.append(self.context.clock.monotonic_s())

        def checked(result: T | BaseException) -> None:
            self._logins_s.popleft()
            then(result)

        self._run(self._login_thread, work, checked)

    def run_in_sender_thread(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, in the one thread for large writes, which never wait: no scan delays them."""
        self._run(self._sender_thread, work, then)

    def _run(self, pool: Executor, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        def run() -> None:
            result: T | BaseException
            try:
                result = work()
            except BaseException as error:
                result = error
            # The loop is closed only after a stop that ran out of time.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(then, result)

        pool.submit(run)

    def _tick_broker(self) -> None:
        self._timers["broker"] = self.loop.call_later(_BROKER_TICK_S, self._tick_broker)
        self._guarded("the broker failed at its regular work", self.context.broker.tick, self.context.clock.now_ms())

    def _tick_handlers(self) -> None:
        self._timers["handlers"] = self.loop.call_later(_HANDLER_TICK_S, self._tick_handlers)
        now_ms, now_s = self.context.clock.now_ms(), self.context.clock.monotonic_s()
        limit_s = self.context.settings.timeouts.handshake_s
        if self._logins_s:
            # A client whose login is still being checked is not too late: the oldest pending check extends the limit.
            limit_s += now_s - self._logins_s[0]
        for connection, opened_s in tuple(self._connections.items()):
            record = connection.record
            if record.user is None and now_s - opened_s > limit_s and not connection.is_closing:
                logger.info("%s: not known in time, the connection is closed", record.name)
                self.context.connections.totals.timed_out += 1
                connection.abort()
            else:
                connection.tick(now_ms)

    def _guarded(self, what: str, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            logger.exception("%s; the server goes on", what)

    # Connections as they come and go.

    def admits(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        if len(self._connections) < self.context.settings.limits.connections and self._all_gone is None:
            return True
        if self.context.connections.totals.refused % 100 == 0:
            logger.warning(
                "%s: refused, %d connections are the limit (limits.connections)",
                connection.peer.host,
                self.context.settings.limits.connections,
            )
        self.context.connections.totals.refused += 1
        return False

    def opened(self, connection: Connection, listener: str) -> ConnectionRecord:
        """A connection was accepted."""
        self._connections[connection] = self.context.clock.monotonic_s()
        return self.context.connections.opened(connection, listener=listener, now_ms=self.context.clock.now_ms())

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)
        self.context.connections.closed(connection)
        if not self._connections and self._all_gone is not None:
            self._all_gone.set()


def _yield_to_others() -> None:
    """Lower the priority of this thread. Only Linux has a priority per thread; elsewhere it stays as it is."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICENESS)
