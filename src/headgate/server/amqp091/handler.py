"""AMQP 0.9.1 on one connection: events of the core become commands of the broker, and the other way round."""

from __future__ import annotations

import logging

from headgate.errors import (
    AuthenticationError,
    BrokerError,
    FilterError,
    HeadgateError,
    LogError,
    RemoteProtocolError,
)
from headgate.protocols import sasl
from headgate.protocols.amqp091 import (
    Confirms,
    ConnectionLimits,
    ConnectionState,
    FieldType,
    ReplyCode,
    ServerConnection,
    Table,
    boolean,
    long_string,
    reply_code,
    table,
)
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.events import (
    Authenticate,
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionFailed,
    Event,
    MethodReceived,
    Published,
)
from headgate.server.amqp091.channel import Channel
from headgate.server.amqp091.options import shown_refusal
from headgate.server.amqp091.outlet import Outlet, Ticket
from headgate.server.context import ServerContext
from headgate.server.flow_control import FlowControl, Waiting
from headgate.server.identity import PROPERTIES
from headgate.server.outbox import Outbox
from headgate.server.transport import Transport

CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "exchange_exchange_bindings": True,
    "consumer_priorities": False,
    "direct_reply_to": True,
}
"""Capabilities that RabbitMQ announces, and whether they are served."""


_LOGIN_REFUSED = "Login was refused using authentication mechanism {}. For details see the broker logfile."
_CLIENT_PROPERTIES = ("product", "version", "platform", "connection_name")

logger = logging.getLogger("headgate.server.amqp091")


class Amqp091Handler:
    """One connection: its login, its channels, its end."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self._settings = context.settings
        self._core = ServerConnection(
            server_properties=_server_properties(),
            mechanisms=context.authenticator.mechanisms(transport),
            limits=ConnectionLimits(
                channel_max=self._settings.limits.channels,
                frame_max_bytes=self._settings.limits.frame_size_bytes_091,
                heartbeat_s=self._settings.timeouts.heartbeat_s,
                message_bytes=self._settings.limits.message_size_bytes,
                unfinished_bytes=4 * self._settings.limits.message_size_bytes,
            ),
        )
        self._transport = transport
        self._context = context
        self._channels: dict[int, Channel] = {}
        self._logged_in_s = 0.0
        self._flow = FlowControl(transport, context.clock)
        self._outbox: Outbox[Ticket] = Outbox(context.clock, self._settings.limits, self._published)
        self._outlet = Outlet(transport, self._settings, self._core, self._flow, self._outbox, self._failed)

    # what the transport calls

    def received(self, data: memoryview) -> None:
        """Bytes of the client."""
        self._flow.heard()
        self._receive(data)

    def _receive(self, data: bytes | memoryview) -> None:
        for event in self._core.receive(data):
            self._handle(event)
        self._outbox.flush()
        self._send_confirms()
        self._outlet.flush()
        self._flow.limit_answers()
        if self._core.state is ConnectionState.FINISHED:
            self._end()
            self._transport.close()

    def writable(self) -> None:
        """The transport takes more."""
        self._flow.taken()
        self._outlet.pump.wake()
        for channel in list(self._channels.values()):
            channel.go_on()

    def tick(self, now_ms: int) -> None:
        """Check the time limit of opening, exchange heartbeats, close unused publishers."""
        self._outbox.tick(now_ms)
        for channel in list(self._channels.values()):
            channel.tick(now_ms)
        if self._core.state in (ConnectionState.TUNING, ConnectionState.OPENING):
            if self._context.clock.monotonic_s() - self._logged_in_s > self._settings.timeouts.handshake_s:
                logger.info("%s: logged in, but not opened in time", self._context.connections.of(self._transport).name)
                self._transport.abort()
        elif self._core.state is ConnectionState.OPEN and self._core.heartbeat_s:
            self._tick_open(self._core.heartbeat_s)

    def _tick_open(self, interval_s: int) -> None:
        if self._flow.is_silent(2 * interval_s):
            logger.info("missed heartbeats from client, timeout: %ds", interval_s)
            self._transport.abort()
        elif self._flow.is_due(interval_s / 2):
            self._core.send_heartbeat()
            self._outlet.flush()

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""
        self._core.finish()
        self._end()

    def shut_down(self) -> None:
        """The server stops."""
        self._send_confirms()
        self._close(ReplyCode.CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'")
        self._outlet.flush()

    # events

    def _handle(self, event: Event) -> None:
        if isinstance(event, Published):
            channel = self._channels.get(event.channel)
            if channel is None:
                # The channel ended while earlier frames of the same read were handled.
                return
            try:
                channel.publish(event)
            except (BrokerError, LogError, RemoteProtocolError) as error:
                self._refuse(event.channel, error, event.method)
        elif isinstance(event, MethodReceived):
            self._method(event)
        elif isinstance(event, ChannelOpened):
            self._channels[event.channel] = Channel(self._outlet, event.channel)
        elif isinstance(event, ChannelClosed | ChannelFailed):
            self._drop_channel(event.channel)
            if isinstance(event, ChannelFailed):
                logger.warning("channel %d closed: %s", event.channel, event.error.reason)
        elif isinstance(event, Authenticate):
            self._authenticate(event)
        elif isinstance(event, ConnectionFailed):
            logger.warning("connection closed: %s", event.error.reason)
            self._closing()
        elif isinstance(event, ConnectionClosed):
            self._end()
            self._outlet.flush()
            self._transport.leave()

    def _method(self, event: MethodReceived) -> None:
        if event.channel == 0:
            reason = "connection.update-secret is not served: credentials do not expire"
            self._refuse(0, RemoteProtocolError(reason, code=ReplyCode.NOT_IMPLEMENTED), event.method)
            return
        try:
            # Earlier messages are published before the method takes effect.
            if not isinstance(event.method, m.BasicAck):
                self._outbox.flush()
            # That may have ended the channel.
            channel = self._channels.get(event.channel)
            if channel is not None:
                channel.handle(event.method)
        except (BrokerError, LogError, FilterError, RemoteProtocolError) as error:
            self._refuse(event.channel, error, event.method)

    def _authenticate(self, event: Authenticate) -> None:
        record = self._context.connections.of(self._transport)
        record.protocol = "AMQP 0.9.1"
        record.client = _texts(self._core.client_properties)
        if not sasl.is_known(event.mechanism) or event.mechanism not in self._context.authenticator.mechanisms(
            self._transport
        ):
            reason = f"unknown authentication mechanism '{event.mechanism[:40]}'"
            self._refuse(0, RemoteProtocolError(reason, code=ReplyCode.COMMAND_INVALID), None)
            return
        try:
            credentials = sasl.parse_initial(event.mechanism, event.response)
        except RemoteProtocolError as error:
            self._refuse(0, RemoteProtocolError(error.reason, code=ReplyCode.SYNTAX_ERROR), None)
            return
        self._flow.wait(Waiting.LOGIN)
        self._context.authenticator.authenticate(
            self._transport, credentials, lambda result: self._authenticated(event.mechanism, result)
        )

    def _authenticated(self, mechanism: str, result: str | AuthenticationError) -> None:
        if self._core.state is not ConnectionState.AUTHENTICATING:
            return
        self._flow.go_on(Waiting.LOGIN)
        if isinstance(result, AuthenticationError):
            if self._core.client_can("authentication_failure_close"):
                self._core.refuse(0, ReplyCode.ACCESS_REFUSED, _LOGIN_REFUSED.format(mechanism))
                self._closing()
                self._outlet.flush()
            else:
                self._transport.close()
            return
        name = self._context.connections.of(self._transport).name
        session = self._context.broker.open_session(result, protocol="AMQP 0.9.1", connection=name)
        self._outlet.session = session
        session.on_stream_deleted = self._stream_deleted
        self._logged_in_s = self._context.clock.monotonic_s()
        self._outbox.open(session)
        self._flow.limit_backlog(session.backlog, self._settings.limits)
        self._core.authenticated()
        self._receive(b"")

    def _stream_deleted(self, stream: str) -> None:
        notify = self._core.client_can("consumer_cancel_notify")
        for channel in self._channels.values():
            channel.cancel_consumers(stream, notify=notify)
        self._outlet.flush()

    # publishing

    def _published(self, tickets: list[Ticket], error: HeadgateError | None) -> None:
        by_channel: dict[tuple[int, Confirms | None], list[int]] = {}
        for channel, confirms, tag, _ in tickets:
            by_channel.setdefault((channel, confirms), []).append(tag)
        if error is not None:
            logger.warning("%d messages were not kept: %s", len(tickets), error)
        for (channel, confirms), tags in by_channel.items():
            if confirms is not None:
                confirms.settle([tag for tag in tags if tag], is_kept=error is None)
                self._outlet.confirming[channel] = None
            if error is not None and not all(tags) and self._core.is_open(channel):
                # Without confirms, the channel's end is the only way to report it.
                self._refuse(channel, error, None)
        self._send_confirms()
        self._outlet.flush()

    def _send_confirms(self) -> None:
        if not self._outlet.confirming:
            return
        confirming, self._outlet.confirming = self._outlet.confirming, {}
        for number in confirming:
            channel = self._channels.get(number)
            if channel is not None:
                channel.send_confirms()

    def _failed(self, channel: int, error: HeadgateError) -> None:
        """An unanswered request of a channel failed: the channel ends."""
        if self._core.is_open(channel):
            self._refuse(channel, error, None)
            self._outlet.flush()

    # ends

    def _refuse(self, channel: int, error: HeadgateError, cause: m.Method | None) -> None:
        """Report an error: the channel ends, or the connection with all channels."""
        if isinstance(error, RemoteProtocolError):
            code, reason = ReplyCode(int(error.code)), error.reason
        else:
            code, reason = reply_code(error), shown_refusal(error) if isinstance(error, FilterError) else str(error)
        logger.warning("channel %d refused, %s: %s", channel, code.name, error)
        self._core.refuse(channel, code, reason, cause=cause)
        if self._core.state is ConnectionState.CLOSING:
            self._closing()
        else:
            self._drop_channel(channel)

    def _close(self, code: ReplyCode, reason: str) -> None:
        self._core.close(code, reason)
        if self._core.state is ConnectionState.FINISHED:
            self._end()
            self._transport.close()
        else:
            self._closing()

    def _closing(self) -> None:
        """Close was sent; the client has `linger_s` to answer."""
        self._end()
        self._flow.only_listen()
        self._transport.call_later(self._settings.timeouts.linger_s, self._transport.close)

    def _drop_channel(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()

    def _end(self) -> None:
        """End everything that the connection has in the broker; a second call is harmless."""
        for number in list(self._channels):
            self._drop_channel(number)
        self._outbox.end()


def _server_properties() -> Table:
    return {
        "capabilities": table({name: boolean(served) for name, served in CAPABILITIES.items()}),
        **{name: long_string(text) for name, text in PROPERTIES.items()},
    }


def _texts(properties: Table) -> dict[str, str]:
    return {
        name: properties[name].value.decode("utf-8", "replace")
        for name in _CLIENT_PROPERTIES
        if name in properties and properties[name].type is FieldType.LONG_STRING
    }
