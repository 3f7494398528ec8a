"""The calls of RocketMQ's gRPC service: identifying the client, refusing calls, choosing the part that answers.

Requests and answers are bytes. A request is read once its client is known and there is room for it. A refusal is a
status within an answer; only the stream of settings ends with an error of gRPC.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from headgate.errors import AuthenticationError, HeadgateError
from headgate.protocols.grpc import StatusCode
from headgate.protocols.rocketmq import Status, refused
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc import parsed, status_of
from headgate.server.context import ServerContext
from headgate.server.event_loop import EventLoop
from headgate.server.rocketmq.grpc.access import identify
from headgate.server.rocketmq.grpc.calls import CallRefusedError, GrpcCall, GrpcHandler
from headgate.server.rocketmq.grpc.clients import Clients, GrpcClient
from headgate.server.rocketmq.grpc.filters import GroupFilters
from headgate.server.rocketmq.grpc.receive_calls import ReceiveCalls
from headgate.server.rocketmq.grpc.resources import Resources
from headgate.server.rocketmq.grpc.send_calls import SendCalls
from headgate.server.rocketmq.grpc.settlement_calls import SettlementCalls
from headgate.server.rocketmq.grpc.telemetry import Telemetry
from headgate.server.transport import Transport

Serve: TypeAlias = Callable[[GrpcClient, Any], Awaitable[Any]]

_CLIENT_ID = "x-mq-client-id"
_CLIENT_ID_CHARACTERS = 255
_TICK_S = 1.0

logger = logging.getLogger("headgate.server.rocketmq")


class Servicer:
    """Serves the calls of one server, on all its connections."""

    def __init__(self, context: ServerContext, event_loop: EventLoop) -> None:
        self._context = context
        self._event_loop = event_loop
        self._calls = 0
        self.clients = Clients(context)
        resources, filters = Resources(context), GroupFilters(context.settings)
        self._send_calls = SendCalls(context, event_loop, resources)
        self._receive_calls = ReceiveCalls(context, resources, filters)
        self._settlement_calls = SettlementCalls(context, resources)
        self._telemetry = Telemetry(context, resources, filters, self.clients)
        served: Mapping[str, Serve] = {
            "QueryRoute": self._telemetry.query_route,
            "QueryAssignment": self._telemetry.query_assignment,
            "Heartbeat": self._telemetry.heartbeat,
            "NotifyClientTermination": self._telemetry.end_client,
            "SendMessage": self._send_calls.send,
            "RecallMessage": self._send_calls.recall,
            "AckMessage": self._settlement_calls.acknowledge,
            "ChangeInvisibleDuration": self._settlement_calls.change_invisible,
            "ForwardMessageToDeadLetterQueue": self._settlement_calls.dead_letter,
        }
        self._methods: dict[str, Callable[[GrpcCall], Awaitable[bytes | None]]] = {}
        for method in pb.METHODS:
            if method.takes_stream:
                serve: Callable[[GrpcCall], Awaitable[bytes | None]] = self._stream
            elif method.name == "ReceiveMessage":
                serve = self._receive
            elif method.gives_stream:
                serve = functools.partial(self._refuse_stream, method)
            else:
                serve = functools.partial(self._unary, method, served.get(method.name, _not_served))
            self._methods[f"/{pb.SERVICE}/{method.name}"] = serve
        self._timer = event_loop.loop.call_later(_TICK_S, self._tick)

    def connection(self, transport: Transport, context: ServerContext) -> GrpcHandler:
        """The handler of an accepted connection."""
        return GrpcHandler(transport, context, self._serve)

    def stop(self) -> None:
        """Answer waiting receives and end streams, so that no call lasts longer than its answer takes."""
        self._receive_calls.stop()
        for client in self.clients:
            for stream in client.streams:
                stream.set()

    def close(self) -> None:
        """The connections are gone."""
        self._timer.cancel()
        self.clients.close()

    def _tick(self) -> None:
        self._timer = self._event_loop.loop.call_later(_TICK_S, self._tick)
        self.clients.tick()

    # calls

    async def _serve(self, call: GrpcCall) -> bytes | None:
        serve = self._methods.get(call.path)
        if serve is None:
            raise CallRefusedError(StatusCode.UNIMPLEMENTED, "there is no such method")
        return await serve(call)

    async def _unary(self, method: pb.Method, serve: Serve, call: GrpcCall) -> bytes:
        client: GrpcClient | None = None
        self._calls += 1
        try:
            client = self._client(call)
            if serve == self._send_calls.send:
                await client.room_to_send()
                try:
                    request = await _request(method, client, call)
                finally:
                    client.read()
            else:
                request = await _request(method, client, call)
            response = await serve(client, request)
        except Exception as error:
            response = method.response(status=_status(error, method.name, client))
        finally:
            self._over(client)
        answer: bytes = response.SerializeToString()
        if client is not None:
            client.record.bytes_sent += len(answer)
        return answer

    async def _receive(self, call: GrpcCall) -> None:
        client: GrpcClient | None = None
        self._calls += 1
        try:
            client = self._client(call)
            request = await _request(_RECEIVE, client, call)
            pieces = self._receive_calls.receive(client, request, call.time_remaining())
            async with contextlib.aclosing(pieces):
                async for answer in pieces:
                    client.record.bytes_sent += len(answer)
                    await call.write(answer)
        except Exception as error:
            status = _status(error, _RECEIVE.name, client)
            for response in self._receive_calls.refusal(status):
                await call.write(response)
        finally:
            self._over(client)

    async def _refuse_stream(self, method: pb.Method, _call: GrpcCall) -> bytes:
        status = pb.Status(code=Status.NOT_IMPLEMENTED, message=_NOT_SERVED)
        answer: bytes = method.response(status=status).SerializeToString()
        return answer

    async def _stream(self, call: GrpcCall) -> None:
        client: GrpcClient | None = None
        self._calls += 1
        try:
            client = self._client(call)
            reason = await self._telemetry.serve(client, call)
        except HeadgateError as error:
            status = status_of(error)
            who = call.peer.host if client is None else client.record.name
            logger.info("%s: its settings are refused: %s", who, status.message)
            code = _CODES.get(status.code, StatusCode.INVALID_ARGUMENT)
            raise CallRefusedError(code, f"process client telemetryCommand failed. {status.message}") from error
        finally:
            self._over(client)
        if reason:
            raise CallRefusedError(StatusCode.UNAVAILABLE, reason)

    # clients

    def _client(self, call: GrpcCall) -> GrpcClient:
        """The client of a call that began. Raises HeadgateError for one that is not served."""
        if self._calls > self._context.settings.rocketmq.calls:
            raise refused(Status.TOO_MANY_REQUESTS, "too many calls at once (rocketmq.calls)")
        headers = call.headers
        client_id = headers.get(_CLIENT_ID, "")
        if not client_id.strip():
            raise refused(Status.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if len(client_id) > _CLIENT_ID_CHARACTERS:
            raise refused(Status.CLIENT_ID_REQUIRED, f"a client id has at most {_CLIENT_ID_CHARACTERS} characters")
        try:
            identity = identify(self._context, call.peer, headers)
        except AuthenticationError:
            self._context.connections.totals.logins_failed += 1
            raise
        call.is_of(identity.name)
        client = self.clients.get(client_id, identity)
        if client is None:
            client = self.clients.begin(client_id, identity, call.peer, headers)
        client.calls += 1
        return client

    def _over(self, client: GrpcClient | None) -> None:
        self._calls -= 1
        if client is not None:
            client.calls -= 1
            client.seen_s = self._context.clock.monotonic_s()


_RECEIVE = next(method for method in pb.METHODS if method.name == "ReceiveMessage")
_NOT_SERVED = "this call is not served"
_CODES: Mapping[int, StatusCode] = {
    Status.UNAUTHORIZED: StatusCode.UNAUTHENTICATED,
    Status.FORBIDDEN: StatusCode.PERMISSION_DENIED,
    Status.TOO_MANY_REQUESTS: StatusCode.RESOURCE_EXHAUSTED,
}
"""How the stream of settings ends, by the status of the refusal; with INVALID_ARGUMENT for all others."""


async def _not_served(_client: GrpcClient, _request: Any) -> Any:
    raise refused(Status.NOT_IMPLEMENTED, _NOT_SERVED)


async def _request(method: pb.Method, client: GrpcClient, call: GrpcCall) -> Any:
    data = await call.read()
    if data is None:
        raise refused(Status.BAD_REQUEST, "the call has no request")
    client.record.bytes_received += len(data)
    return parsed(method.request, data)


def _status(error: Exception, method: str, client: GrpcClient | None) -> pb.Status:
    if isinstance(error, HeadgateError):
        return status_of(error)
    who = "a client" if client is None else client.record.name
    logger.error("%s: %s failed", who, method, exc_info=error)
    return pb.Status(code=Status.INTERNAL_SERVER_ERROR, message="an error of the server; its log has it")
