"""The calls of RocketMQ's gRPC service: who calls, what is refused, which part of this package answers.

Requests are taken and answers given as bytes, and a request is read when it is known who sends it and that there is
room for it: methods with one request are served as streams of requests, which is the same to clients. What is refused
is told by the status within an answer; only the stream of settings ends with an error of gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from headgate.errors import AuthenticationError, HeadgateError
from headgate.protocols.rocketmq import Status, refused
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc import parsed, status_of
from headgate.server.connections import ip_address
from headgate.server.context import ServerContext
from headgate.server.driver import Driver
from headgate.server.rocketmq.grpc.access import identify
from headgate.server.rocketmq.grpc.clients import Clients, GrpcClient
from headgate.server.rocketmq.grpc.filters import GroupFilters
from headgate.server.rocketmq.grpc.receiving import Receiving
from headgate.server.rocketmq.grpc.routing import Routing
from headgate.server.rocketmq.grpc.sending import Sending
from headgate.server.rocketmq.grpc.settling import Settling
from headgate.server.rocketmq.grpc.telemetry import Telemetry
from headgate.server.transport import Peer

Call: TypeAlias = Any
"""A `grpc.aio.ServicerContext`: grpc has no types."""

Serve: TypeAlias = Callable[[GrpcClient, Any], Awaitable[Any]]

_CLIENT_ID = "x-mq-client-id"
_CLIENT_ID_CHARACTERS = 255

logger = logging.getLogger("headgate.server.rocketmq")


class Servicer:
    """Serves the calls of one server."""

    def __init__(self, context: ServerContext, driver: Driver) -> None:
        self._context = context
        self._calls = 0
        self.clients = Clients(context)
        routing, filters = Routing(context), GroupFilters(context.settings)
        self._sending = Sending(context, driver, routing)
        self._receiving = Receiving(context, routing, filters)
        self._settling = Settling(context, routing)
        self._telemetry = Telemetry(context, routing, filters, self.clients)

    def handler(self) -> Any:
        """What grpc asks for the methods."""
        served: Mapping[str, Serve] = {
            "QueryRoute": self._telemetry.query_route,
            "QueryAssignment": self._telemetry.query_assignment,
            "Heartbeat": self._telemetry.heartbeat,
            "NotifyClientTermination": self._telemetry.end_client,
            "SendMessage": self._sending.send,
            "RecallMessage": self._sending.recall,
            "AckMessage": self._settling.acknowledge,
            "ChangeInvisibleDuration": self._settling.change_invisible,
            "ForwardMessageToDeadLetterQueue": self._settling.dead_letter,
        }
        handlers = {}
        for method in pb.METHODS:
            if method.takes_stream:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(self._stream)
            elif method.name == "ReceiveMessage":
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(self._receive)
            elif method.gives_stream:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(
                    functools.partial(self._refuse_stream, method)
                )
            else:
                serve = served.get(method.name, _not_served)
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(
                    functools.partial(self._unary, method, serve)
                )
        return grpc.method_handlers_generic_handler(pb.SERVICE, handlers)

    def stop(self) -> None:
        """Answer what waits, end streams: no call lasts longer than its answer takes."""
        self._receiving.stop()
        for client in self.clients:
            for stream in client.streams:
                stream.set()

    # calls

    async def _unary(self, method: pb.Method, serve: Serve, _requests: AsyncIterator[bytes], call: Call) -> bytes:
        client: GrpcClient | None = None
        self._calls += 1
        try:
            client = self._client(call)
            if serve == self._sending.send:
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

    async def _receive(self, _requests: AsyncIterator[bytes], call: Call) -> None:
        client: GrpcClient | None = None
        self._calls += 1
        try:
            client = self._client(call)
            request = await _request(_RECEIVE, client, call)
            pieces = self._receiving.receive(client, request, call.time_remaining())
            async with contextlib.aclosing(pieces):
                async for answer in pieces:
                    client.record.bytes_sent += len(answer)
                    await call.write(answer)
        except Exception as error:
            status = _status(error, _RECEIVE.name, client)
            for response in self._receiving.refusal(status):
                await call.write(response)
        finally:
            self._over(client)

    async def _refuse_stream(self, method: pb.Method, _requests: AsyncIterator[bytes], call: Call) -> None:
        status = pb.Status(code=Status.NOT_IMPLEMENTED, message=_NOT_SERVED)
        await call.write(method.response(status=status).SerializeToString())

    async def _stream(self, _requests: AsyncIterator[bytes], call: Call) -> None:
        client: GrpcClient | None = None
        self._calls += 1
        try:
            try:
                client = self._client(call)
                reason = await self._telemetry.serve(client, call)
            except HeadgateError as error:
                code = grpc.StatusCode.INVALID_ARGUMENT
                status = status_of(error)
                if status.code == Status.UNAUTHORIZED:
                    code = grpc.StatusCode.UNAUTHENTICATED
                elif status.code == Status.FORBIDDEN:
                    code = grpc.StatusCode.PERMISSION_DENIED
                elif status.code == Status.TOO_MANY_REQUESTS:
                    code = grpc.StatusCode.RESOURCE_EXHAUSTED
                who = call.peer() if client is None else client.record.name
                logger.info("%s: its settings are refused: %s", who, status.message)
                await call.abort(code, f"process client telemetryCommand failed. {status.message}")
            if reason:
                await call.abort(grpc.StatusCode.UNAVAILABLE, reason)
        finally:
            self._over(client)

    # who calls

    def _client(self, call: Call) -> GrpcClient:
        """The client of a call that began. Raises HeadgateError for one that is not served."""
        if self._calls > self._context.settings.rocketmq.calls:
            raise refused(Status.TOO_MANY_REQUESTS, "too many calls at once (rocketmq.calls)")
        headers = {name: text for name, text in call.invocation_metadata() if isinstance(text, str)}
        client_id = headers.get(_CLIENT_ID, "")
        if not client_id.strip():
            raise refused(Status.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if len(client_id) > _CLIENT_ID_CHARACTERS:
            raise refused(Status.CLIENT_ID_REQUIRED, f"a client id has at most {_CLIENT_ID_CHARACTERS} characters")
        peer = _peer(call.peer())
        try:
            identity = identify(self._context, peer, headers)
        except AuthenticationError:
            self._context.connections.totals.logins_failed += 1
            raise
        client = self.clients.get(client_id, identity)
        if client is None:
            is_encrypted = call.auth_context().get("transport_security_type") == [b"ssl"]
            peer = dataclasses.replace(peer, is_encrypted=is_encrypted)
            client = self.clients.begin(client_id, identity, peer, headers)
        client.calls += 1
        return client

    def _over(self, client: GrpcClient | None) -> None:
        self._calls -= 1
        if client is not None:
            client.calls -= 1
            client.seen_s = self._context.clock.monotonic_s()


_RECEIVE = next(method for method in pb.METHODS if method.name == "ReceiveMessage")
_NOT_SERVED = "this call is not served"


async def _not_served(_client: GrpcClient, _request: Any) -> Any:
    raise refused(Status.NOT_IMPLEMENTED, _NOT_SERVED)


async def _request(method: pb.Method, client: GrpcClient, call: Call) -> Any:
    data = await call.read()
    if data is grpc.aio.EOF:
        raise refused(Status.BAD_REQUEST, "the call has no request")
    client.record.bytes_received += len(data)
    return parsed(method.request, data)


def _status(error: Exception, method: str, client: GrpcClient | None) -> pb.Status:
    if isinstance(error, HeadgateError):
        return status_of(error)
    if isinstance(error, grpc.aio.BaseError | asyncio.CancelledError):
        raise error
    who = "a client" if client is None else client.record.name
    logger.error("%s: %s failed", who, method, exc_info=error)
    return pb.Status(code=Status.INTERNAL_SERVER_ERROR, message="an error of the server; its log has it")


@functools.lru_cache(maxsize=4096)
def _peer(text: str) -> Peer:
    """The peer of a call, such as `ipv4:127.0.0.1:41234` and `ipv6:%5B::1%5D:41234`."""
    address, _, port = unquote(text).partition(":")[2].rpartition(":")
    try:
        host = ip_address(address.strip("[]"))
    except ValueError:
        return Peer(address, 0, is_loopback=False)
    return Peer(str(host), int(port), is_loopback=host.is_loopback)
