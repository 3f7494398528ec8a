"""Calls about the client itself, the stream that brings it its settings, routes and assignments."""

from __future__ import annotations

import asyncio

from headgate.broker import MessageTopic
from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import Limits, Status, refused
from headgate.protocols.rocketmq.grpc import (
    OK,
    ClientSettings,
    GrpcLimits,
    TopicRoute,
    assignment_response,
    full_name,
    parsed,
    reached_at,
    route_response,
    settings_answer,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.context import ServerContext
from headgate.server.rocketmq.grpc.calls import GrpcCall
from headgate.server.rocketmq.grpc.clients import Clients, GrpcClient
from headgate.server.rocketmq.grpc.filters import GroupFilters
from headgate.server.rocketmq.grpc.resources import Resources, accepted_types

BROKER_NAME = "headgate"
"""The server's name for clients; there is one broker."""


class Telemetry:
    """Serves calls about the client itself, and about the routes of topics."""

    def __init__(self, context: ServerContext, resources: Resources, filters: GroupFilters, clients: Clients) -> None:
        self._context = context
        self._resources = resources
        self._filters = filters
        self._clients = clients
        self._limits = GrpcLimits(Limits(body_bytes=context.settings.rocketmq.message_size_bytes))

    async def query_route(self, client: GrpcClient, request: pb.QueryRouteRequest) -> pb.QueryRouteResponse:
        """The queues of a topic."""
        is_producer = client.settings is not None and client.settings.is_producer
        topic = self._resources.topic(client, full_name(request.topic), for_producer=is_producer)
        return route_response(self._route(client, topic, request.topic, request.endpoints), OK)

    async def query_assignment(
        self, client: GrpcClient, request: pb.QueryAssignmentRequest
    ) -> pb.QueryAssignmentResponse:
        """The queues that a push consumer receives from."""
        topic = self._resources.topic(client, full_name(request.topic), for_producer=False)
        group = self._resources.group(full_name(request.group))
        route = self._route(client, topic, request.topic, request.endpoints)
        return assignment_response(route, OK, is_fifo=group.fifo)

    async def heartbeat(self, client: GrpcClient, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Record that the client is alive."""
        if client.settings is None:
            raise refused(Status.UNRECOGNIZED_CLIENT_TYPE, "the client has not sent its settings")
        if not client.settings.is_producer:
            self._resources.group(full_name(request.group))
        client.is_heard()
        return pb.HeartbeatResponse(status=OK)

    async def end_client(
        self, client: GrpcClient, _request: pb.NotifyClientTerminationRequest
    ) -> pb.NotifyClientTerminationResponse:
        """The client ends."""
        self._clients.end(client)
        return pb.NotifyClientTerminationResponse(status=OK)

    async def serve(self, client: GrpcClient, call: GrpcCall) -> str:
        """Answer settings until the client ends the stream; returns why the server ends it, or an empty text.

        Raises HeadgateError for refused settings: the stream ends with that error.
        """
        call.is_stream = True
        ends = asyncio.Event()
        client.streams.add(ends)
        ending = asyncio.ensure_future(ends.wait())
        reading: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                reading = asyncio.ensure_future(call.read())
                await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return "the server stops, or the client said that it ends"
                data = reading.result()
                if data is None:
                    return ""
                client.record.bytes_received += len(data)
                answer = self._answer(client, parsed(pb.TelemetryCommand, data))
                if answer is not None:
                    encoded = answer.SerializeToString()
                    client.record.bytes_sent += len(encoded)
                    await call.write(encoded)
        finally:
            ending.cancel()
            if reading is not None:
                reading.cancel()
            client.streams.discard(ends)

    def _answer(self, client: GrpcClient, command: pb.TelemetryCommand) -> pb.TelemetryCommand | None:
        if command.WhichOneof("command") != "settings":
            # An answer to a request that this server never sends.
            return None
        try:
            settings = ClientSettings.of(command.settings)
        except RemoteProtocolError as error:
            if error.code != Status.UNRECOGNIZED_CLIENT_TYPE:
                raise
            return pb.TelemetryCommand(status=pb.Status(code=int(error.code), message=error.reason))
        for kind, text in settings.filters.values():
            self._filters.check_settings(kind, text)
        if settings.group is None:
            answer = settings_answer(command.settings, fifo=False, max_attempts=0, backoff_ms=(), limits=self._limits)
        else:
            group = self._resources.group(settings.group)
            answer = settings_answer(
                command.settings,
                fifo=group.fifo,
                max_attempts=group.max_attempts,
                backoff_ms=group.backoff_ms,
                limits=self._limits,
            )
        client.set(settings)
        return pb.TelemetryCommand(status=OK, settings=answer)

    def _route(self, client: GrpcClient, topic: MessageTopic, told: pb.Resource, endpoints: pb.Endpoints) -> TopicRoute:
        listener = "rocketmq_tls" if client.peer.is_encrypted else "rocketmq"
        host = self._context.settings.advertised.host or "localhost"
        at = reached_at(endpoints, host, self._context.ports[listener])
        return TopicRoute(told, len(topic.streams), accepted_types(topic), BROKER_NAME, at)
