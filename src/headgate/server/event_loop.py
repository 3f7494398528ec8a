"""The one event loop: its turns, and threads for long work.

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
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

from headgate.server.context import ServerContext
from headgate.server.transport import T

RECEIVE_BUFFER_BYTES = 1 << 20
WORKERS = 2
READERS = 32
"""Threads for requests over HTTP that read files: more than all limits on such requests allow, so that none waits for
others. asyncio's own number depends on the processors, and is 6 with two of them."""
STORAGE_READERS = 16
"""Threads for reads that may wait for object storage: they need little but time."""
TRANSFERS = 2
"""Threads that move segments to object storage."""
_BROKER_TICK_S = 0.05
_BACKGROUND_NICENESS = 10

logger = logging.getLogger("headgate.server")


class Output(Protocol):
    """The output of a connection, as the event loop sends it."""

    calls_due: int
    """How many calls of `call_soon` are still to be made: they may write more."""

    def flush(self) -> None:
        """Hand the output of this turn to the transport."""


class EventLoop:
    """Turns of the loop and threads beside it. All methods belong to the loop's thread.

    It is made before its context, because the broker needs `wake`; `start` gets the context.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.context: ServerContext
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._logins_s: deque[float] = deque()
        """When each unchecked login began to wait, in seconds; oldest first."""
        loop.set_default_executor(ThreadPoolExecutor(READERS, thread_name_prefix="headgate-reader"))
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="headgate-worker")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="headgate-background", initializer=_yield_to_others)
        self._storage = ThreadPoolExecutor(STORAGE_READERS, thread_name_prefix="headgate-storage")
        self._transfers = ThreadPoolExecutor(TRANSFERS, thread_name_prefix="headgate-transfer")
        self._login_thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-login")
        self._sender_thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-sender")
        self._turn_is_scheduled = False
        self._broker_is_woken = False
        self._calls: list[Callable[[], None]] = []
        self._unsent: list[Output] = []
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def start(self, context: ServerContext) -> None:
        """Begin the regular ticks of the broker."""
        self.context = context
        self.repeat(_BROKER_TICK_S, self._tick_broker)

    def repeat(self, interval_s: float, call: Callable[[], None]) -> None:
        """Make a call now, and at intervals until `close`."""
        self._timers[call] = self.loop.call_later(interval_s, self.repeat, interval_s, call)
        call()

    def close(self) -> None:
        """End threads and regular calls; the event loop's last call."""
        for timer in self._timers.values():
            timer.cancel()
        for pool in (self._workers, self._background, self._storage, self._transfers, self._login_thread):
            pool.shutdown(wait=True, cancel_futures=True)
        # Its last work closes the socket.
        self._sender_thread.shutdown(wait=True)

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

    def flush_later(self, output: Output) -> None:
        """Send the output of a connection at the end of this turn."""
        self._unsent.append(output)
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
                try:
                    self.context.broker.write_queued()
                except Exception:
                    logger.exception("the broker failed to write; the server goes on")
            calls, self._calls = self._calls, []
            if calls:
                self._send_answers()
            for call in calls:
                call()
            try:
                self.context.broker.end_turn()
            except Exception:
                logger.exception("topics failed at their turn; the server goes on")
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

    def run_in_storage(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, in threads that may wait for object storage: they delay no other reader."""
        self._run(self._storage, work, then)

    def run_transfer(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, in the threads that move segments to object storage."""
        self._run(self._transfers, work, then)

    def run_in_login_thread(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, in the one thread for hashes of passwords: a flood of logins delays no reader."""
        self._logins_s.append(self.context.clock.monotonic_s())

        def checked(result: T | BaseException) -> None:
            self._logins_s.popleft()
            then(result)

        self._run(self._login_thread, work, checked)

    def oldest_login_s(self, now_s: float) -> float:
        """How long the oldest unchecked login has waited; 0 without any."""
        return now_s - self._logins_s[0] if self._logins_s else 0

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
        try:
            self.context.broker.tick(self.context.clock.now_ms())
        except Exception:
            logger.exception("the broker failed at its regular work; the server goes on")


def _yield_to_others() -> None:
    """Lower the priority of this thread. Only Linux has a priority per thread; elsewhere it stays as it is."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICENESS)
