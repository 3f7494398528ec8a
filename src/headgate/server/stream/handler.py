"""The course of a connection: handshake, heartbeats, its end (stream_protocol.md section 3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from headgate.errors import AuthenticationError, RemoteProtocolError
from headgate.protocols.sasl import parse_initial
from headgate.protocols.stream import (
    ProtocolViolation,
    ResponseCode,
    ServerConnection,
    ServerEvent,
    ServerLimits,
    ServerState,
    response_code,
)
from headgate.protocols.stream import frames as f
from headgate.server.context import ServerContext
from headgate.server.flow_control import FlowControl
from headgate.server.identity import PROPERTIES
from headgate.server.stream.commands import Commands
from headgate.server.stream.outlet import Outlet
from headgate.server.transport import Transport
from headgate.version import __version__

PROTOCOL = "stream"

_VIRTUAL_HOST = "/"
_CLIENT_PROPERTIES = 20
_OURS_TO_ANSWER = (ServerState.AUTHENTICATING, ServerState.OPENING)

logger = logging.getLogger("headgate.server.stream")


class StreamHandler:
    """One connection of the stream protocol."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        settings = context.settings
        self._transport = transport
        self._context = context
        self._record = context.connections.of(transport)
        self._record.protocol = PROTOCOL
        self._connection = ServerConnection(
            ServerLimits(
                frame_max=settings.limits.stream_frame_size_bytes,
                heartbeat_s=settings.timeouts.heartbeat_s,
                expansion_limit_bytes=settings.limits.sub_batch_expansion_bytes,
            )
        )
        self._flow = FlowControl(transport, context.clock)
        self._outlet = Outlet(transport, self._flow, self._connection)
        self._commands: Commands | None = None
        self._user = ""
        self._mechanism = ""
        self._is_stopping = False
        self._is_left = False
        self._step_s = context.clock.monotonic_s()
        self._step = self._connection.state
        self._handlers: dict[type, Callable[[Any], None]] = {
            f.PeerProperties: self._peer_properties,
            f.SaslHandshake: self._sasl_handshake,
            f.SaslAuthenticate: self._sasl_authenticate,
            f.Open: self._open,
            f.Close: self._leave,
            ProtocolViolation: self._violated,
        }

    # What the event loop calls.

    def received(self, data: memoryview) -> None:
        """Bytes from the client."""
        self._flow.heard()
        self._handle(self._connection.receive(data))

    def writable(self) -> None:
        """The transport takes more: go on delivering."""
        self._flow.taken()
        if self._commands is not None:
            self._commands.writable()

    def tick(self, now_ms: int) -> None:
        """Heartbeats and time limits, by the clock that never jumps."""
        now_s = self._context.clock.monotonic_s()
        state = self._connection.state
        if state is not self._step:
            self._step, self._step_s = state, now_s
        if state is ServerState.OPENED:
            self._tick_open()
        elif now_s - self._step_s > self._context.settings.timeouts.handshake_s and state not in _OURS_TO_ANSWER:
            logger.info("%s: no answer in time while the connection is %s", self._record.name, state.value)
            self._transport.abort()

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""
        self._end_commands()

    def shut_down(self) -> None:
        """The server stops: published messages are confirmed, then the client is told."""
        if self._commands is None or self._connection.state is not ServerState.OPENED:
            self._transport.close()
        elif not self._is_stopping:
            self._is_stopping = True
            self._commands.when_confirmed(self._say_good_bye)

    # Events.

    def _handle(self, events: list[ServerEvent]) -> None:
        while events:
            for event in events:
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(event)
                elif self._commands is not None and not isinstance(event, ProtocolViolation):
                    self._commands.handle(event)
            events = self._connection.go_on()
        self._outlet.flush()
        self._flow.limit_answers()
        if self._connection.state is ServerState.CLOSED:
            self._end_commands()
            if self._is_left:
                self._transport.leave()
            else:
                self._transport.close()

    def _leave(self, request: f.Close) -> None:
        self._is_left = True
        self._connection.reply(request)

    def _peer_properties(self, request: f.PeerProperties) -> None:
        self._record.client.update(list(request.properties.items())[:_CLIENT_PROPERTIES])
        properties = {**PROPERTIES, "headgate": __version__}
        http = self._context.http_listener(self._transport.peer)
        if http is not None:
            properties["headgate-http"] = http
        self._connection.send(f.PeerPropertiesReply(properties, correlation_id=request.correlation_id))

    def _sasl_handshake(self, request: f.SaslHandshake) -> None:
        mechanisms = self._context.authenticator.mechanisms(self._transport)
        self._connection.send(f.SaslHandshakeReply(mechanisms, correlation_id=request.correlation_id))

    def _sasl_authenticate(self, request: f.SaslAuthenticate) -> None:
        if self._commands is not None and request.mechanism != self._mechanism:
            self._refuse_login(request, ResponseCode.SASL_MECHANISM_MAY_NOT_CHANGE)
            return
        if request.mechanism not in self._context.authenticator.mechanisms(self._transport):
            self._refuse_login(request, ResponseCode.SASL_MECHANISM_UNSUPPORTED)
            return
        try:
            credentials = parse_initial(request.mechanism, request.data or b"")
        except RemoteProtocolError as error:
            logger.info("%s: %s", self._record.name, error)
            self._refuse_login(request, ResponseCode.SASL_ERROR)
            return
        self._context.authenticator.authenticate(
            self._transport, credentials, lambda result: self._authenticated(request, result)
        )

    def _authenticated(self, request: f.SaslAuthenticate, result: str | AuthenticationError) -> None:
        if self._connection.state not in (ServerState.AUTHENTICATING, ServerState.OPENED):
            return
        if isinstance(result, AuthenticationError):
            self._refuse_login(request, response_code(result))
        elif self._commands is not None and result != self._user:
            self._refuse_login(request, ResponseCode.SASL_USER_MAY_NOT_CHANGE)
        else:
            self._user, self._mechanism = result, request.mechanism
            self._connection.reply(request)
        self._go_on()

    def _refuse_login(self, request: f.SaslAuthenticate, code: ResponseCode) -> None:
        """Refuse a login; an open connection whose credentials could not be renewed is closed as well."""
        self._connection.reply(request, code)
        if self._connection.state is ServerState.OPENED:
            self._connection.close(code, "the credentials were not renewed")

    def _open(self, request: f.Open) -> None:
        if request.virtual_host != _VIRTUAL_HOST:
            logger.warning("%s: there is no virtual host %r", self._record.name, request.virtual_host)
            delay_s = self._context.settings.timeouts.login_failure_s
            self._transport.call_later(delay_s, lambda: self._refuse_virtual_host(request))
            return
        session = self._context.broker.open_session(self._user, protocol=PROTOCOL, connection=self._record.name)
        self._commands = Commands(session, self._transport, self._context, self._flow, self._connection, self._outlet)
        host, port = self._context.advertised_address(self._transport.peer)
        properties = {"advertised_host": host, "advertised_port": str(port)}
        self._connection.send(f.OpenReply(properties, correlation_id=request.correlation_id))

    def _refuse_virtual_host(self, request: f.Open) -> None:
        if self._connection.state is ServerState.OPENING:
            self._connection.reply(request, ResponseCode.VIRTUAL_HOST_ACCESS_FAILURE)
            self._go_on()

    def _go_on(self) -> None:
        self._handle(self._connection.go_on())

    def _violated(self, violation: ProtocolViolation) -> None:
        logger.warning("%s: %s", self._record.name, violation.error)
        self._connection.fail(violation)
        self._end_commands()

    # Time and the end.

    def _tick_open(self) -> None:
        interval_s = self._connection.heartbeat_s
        if self._commands is not None and self._commands.is_overdue:
            logger.info("%s: a consumer update was not answered in time", self._record.name)
            self._close(ResponseCode.INTERNAL_ERROR, "a consumer update was not answered")
        elif interval_s and self._flow.is_silent(2 * interval_s):
            logger.info("%s: two heartbeats were missed", self._record.name)
            self._transport.abort()
        elif interval_s and self._flow.is_due(interval_s / 2) and self._transport.is_writable:
            self._outlet.send(f.Heartbeat())

    def _say_good_bye(self) -> None:
        if self._connection.state is ServerState.OPENED:
            self._close(ResponseCode.OK, "the server stops")
        self._flow.only_listen()

    def _close(self, code: ResponseCode, reason: str) -> None:
        self._connection.close(code, reason)
        self._outlet.flush()
        self._end_commands()

    def _end_commands(self) -> None:
        if self._commands is not None:
            self._commands.end()
            self._commands = None
