"""gRPC calls on one connection: each is a task of the loop that reads requests and writes answers."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from headgate.protocols.grpc import (
    CallBegan,
    CallEnded,
    CallReadable,
    CallWritable,
    GrpcConnection,
    GrpcLimits,
    StatusCode,
    ViolationError,
    timeout_s,
)
from headgate.server.context import ServerContext
from headgate.server.transport import Peer, Transport

_REQUEST_ROOM = 4
"""Limit of a request, as a multiple of the largest body: a body slightly too large is refused with a reason."""

_PING_S, _PING_LIMIT_S = 30.0, 50.0
"""After the first time of silence the server pings the peer; after the second the peer counts as gone."""

_LEAST_RATE = 32_768
"""Least average bytes per second of a request, after the time allowed for its beginning."""

logger = logging.getLogger("headgate.server.rocketmq")


class CallRefusedError(Exception):
    """Ends a call with a status of gRPC."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class GrpcCall:
    """One call, as seen by the part of the service that answers it."""

    __slots__ = (
        "_deadline_s",
        "_handler",
        "_room",
        "_waiting",
        "headers",
        "is_stream",
        "number",
        "owes_since_s",
        "path",
    )

    def __init__(self, handler: GrpcHandler, began: CallBegan, deadline_s: float | None) -> None:
        self.number = began.call
        self.path = began.path
        self.headers: Mapping[str, str] = began.headers
        self.is_stream = False
        """Whether the client may pause between requests."""
        self.owes_since_s: float | None = None
        """Since when the server waits for a request of the call."""
        self._handler = handler
        self._deadline_s = deadline_s
        self._waiting: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def peer(self) -> Peer:
        """The peer that calls."""
        return self._handler.peer

    def time_remaining(self) -> float | None:
        """Seconds until the call's deadline; None: it has none."""
        return None if self._deadline_s is None else self._deadline_s - self._handler.now_s()

    def is_of(self, user: str) -> None:
        """Record the user or key that makes the call."""
        self._handler.is_known(user)

    async def read(self) -> bytes | None:
        """The next request; None after the last one."""
        connection = self._handler.connection
        while True:
            message = connection.take_message(self.number)
            self._handler.flush()
            if message is not None or connection.has_said_all(self.number):
                return message
            self.owes_since_s = self._handler.now_s()
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = self.owes_since_s = None

    async def write(self, message: bytes) -> None:
        """Answer; returns when the peer has room for more."""
        has_left = self._handler.connection.send(self.number, message)
        self._handler.flush()
        if not has_left:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        await self._handler.room()

    def readable(self) -> None:
        """`read` has something to look at."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def writable(self) -> None:
        """All that was written has left."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


Serve: TypeAlias = Callable[[GrpcCall], Awaitable[bytes | None]]
"""Answers a call, with a last message or none. Raises CallRefusedError."""


class GrpcHandler:
    """One connection. Lists show its clients, one by one, and not the connection itself."""

    def __init__(self, transport: Transport, context: ServerContext, serve: Serve) -> None:
        limits = context.settings.rocketmq
        self._transport = transport
        self._context = context
        self._serve = serve
        self._limit_s = context.settings.timeouts.handshake_s
        self._record = context.connections.unlisted(transport)
        self.connection = GrpcConnection(
            GrpcLimits(calls=limits.connection_calls, message_bytes=_REQUEST_ROOM * limits.message_size_bytes)
        )
        self._tasks: dict[int, tuple[GrpcCall, asyncio.Task[None]]] = {}
        self._heard_s = self._part_s = self.now_s()
        self._frames = 0
        self._has_pinged = False
        self._wants_room: list[asyncio.Future[None]] = []
        self.flush()

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._transport.peer

    def now_s(self) -> float:
        """A clock that never jumps."""
        return self._context.clock.monotonic_s()

    def is_known(self, user: str) -> None:
        """The user or key of a call is known: the connection may stay."""
        self._record.user = user

    def flush(self) -> None:
        """Send the pending output."""
        output = self.connection.take_output()
        if output:
            self._transport.write(output)

    async def room(self) -> None:
        """Wait until the transport takes more."""
        while not self._transport.is_writable:
            waiting = asyncio.get_running_loop().create_future()
            self._wants_room.append(waiting)
            await waiting

    # what the event loop calls

    def received(self, data: memoryview) -> None:
        """Bytes from the peer."""
        self._heard_s, self._has_pinged = self.now_s(), False
        try:
            events = self.connection.receive(data)
        except ViolationError as error:
            logger.info("%s: %s", self._record.name, error.reason)
            self.flush()
            self._end_calls()
            self._transport.close()
            return
        for event in events:
            match event:
                case CallBegan():
                    self._begin(event)
                case CallReadable(number) if number in self._tasks:
                    self._tasks[number][0].readable()
                case CallWritable(number) if number in self._tasks:
                    self._tasks[number][0].writable()
                case CallEnded(number) if number in self._tasks:
                    self._tasks[number][1].cancel()
        self.flush()
        if not self._transport.is_writable:
            # A peer that takes no answers is not read.
            self._transport.pause_reading()

    def writable(self) -> None:
        """The transport takes more again."""
        self._heard_s = self.now_s()
        self._transport.resume_reading()
        waiting, self._wants_room = self._wants_room, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def tick(self, now_ms: int) -> None:
        """Time passes: cut off a peer that sends too slowly or does not answer, ping a silent one."""
        now_s = self.now_s()
        self.connection.rest()
        if self.connection.frames != self._frames or not self.connection.has_part:
            self._frames, self._part_s = self.connection.frames, now_s
        if now_s - self._part_s > self._limit_s or any(self._is_late(call, now_s) for call, _ in self._tasks.values()):
            self._cut_off("sends too slowly")
        elif now_s - self._heard_s > _PING_LIMIT_S:
            self._cut_off("does not answer")
        elif now_s - self._heard_s > _PING_S and not self._has_pinged:
            self._has_pinged = True
            self.connection.ping()
            self.flush()

    def _is_late(self, call: GrpcCall, now_s: float) -> bool:
        """Whether the peer owes a request, and sends it too slowly."""
        if call.owes_since_s is None:
            return False
        received = self.connection.received(call.number)
        if received is None or (call.is_stream and not self.connection.has_part_of(call.number)):
            call.owes_since_s = now_s
            return False
        over_s = now_s - call.owes_since_s - self._limit_s
        return over_s > 0 and received < over_s * _LEAST_RATE

    def _cut_off(self, why: str) -> None:
        logger.info("%s: %s, the connection is closed", self._record.name, why)
        self._context.connections.totals.timed_out += 1
        self._transport.abort()

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""
        self._end_calls()

    def shut_down(self) -> None:
        """The server stops: current calls are answered, new ones are not accepted."""
        self.connection.leave()
        self.flush()
        self._close_if_done()

    def _end_calls(self) -> None:
        for _, task in self._tasks.values():
            task.cancel()

    def _close_if_done(self) -> None:
        if not self._tasks and self.connection.is_leaving:
            self._transport.close()

    # calls

    def _begin(self, began: CallBegan) -> None:
        limit_s = timeout_s(began.headers)
        call = GrpcCall(self, began, None if limit_s is None else self.now_s() + limit_s)
        task = asyncio.get_running_loop().create_task(self._run(call))
        self._tasks[call.number] = (call, task)
        expires = None
        if limit_s is not None:
            expires = self._transport.call_later(limit_s, functools.partial(self._expired, call))
        # A task that is canceled before it began runs nothing of itself.
        task.add_done_callback(functools.partial(self._over, call, expires))

    async def _run(self, call: GrpcCall) -> None:
        try:
            answer = await self._serve(call)
            if answer is not None:
                self.connection.send(call.number, answer)
            self.connection.finish(call.number)
        except CallRefusedError as error:
            self.connection.finish(call.number, error.code, str(error))
        except asyncio.CancelledError:
            # The peer, the server or the call's time has ended it.
            self.connection.cancel(call.number)
        except Exception:
            logger.exception("%s: %s failed", self._record.name, call.path)
            self.connection.finish(call.number, StatusCode.INTERNAL, "an error of the server; its log has it")
        self.flush()

    def _over(self, call: GrpcCall, expires: Callable[[], None] | None, _task: asyncio.Task[None]) -> None:
        if expires is not None:
            expires()
        del self._tasks[call.number]
        self._close_if_done()

    def _expired(self, call: GrpcCall) -> None:
        self.connection.finish(call.number, StatusCode.DEADLINE_EXCEEDED, "the time of the call is over")
        self._tasks[call.number][1].cancel()
