"""STOMP on one connection: events of the core become commands of the broker, and the other way round."""

from __future__ import annotations

import itertools
import logging
import secrets

from headgate.broker import Session, is_damage
from headgate.errors import (
    AuthenticationError,
    BrokerError,
    FilterError,
    HeadgateError,
    LogError,
    PreconditionFailedError,
    RemoteProtocolError,
    UnsupportedError,
)
from headgate.protocols import sasl
from headgate.protocols.amqp091 import publication_of
from headgate.protocols.stomp import (
    ConnectionState,
    Destination,
    DestinationKind,
    ServerConnection,
    parse_destination,
    properties_of,
)
from headgate.protocols.stomp.events import (
    AckMode,
    Acknowledge,
    Connect,
    Disconnect,
    Event,
    Failed,
    Send,
    Subscribe,
    Unsubscribe,
)
from headgate.server.amqp091 import consumer_options
from headgate.server.context import ServerContext
from headgate.server.flow_control import FlowControl, Waiting
from headgate.server.identity import PRODUCT, VERSION
from headgate.server.outbox import Outbox
from headgate.server.pump import Pump
from headgate.server.stomp.options import (
    MAX_PREFETCH,
    PREFETCH_COUNT,
    consumer_arguments,
    declaration,
    number_of,
)
from headgate.server.stomp.subscription import Subscription
from headgate.server.transport import Transport
from headgate.server.unsettled_copies import refused_queue

VIRTUAL_HOST = "/"
MIN_HEART_BEAT_MS = 1000
"""Shortest heart-beat interval, for both sides."""

Ticket = tuple[int, str | None]
"""A message's number and its requested receipt."""

logger = logging.getLogger("headgate.server.stomp")


class StompHandler:
    """One connection. `core` is its protocol; `session`, its session at the broker, exists once the client is known."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self.settings = context.settings
        self.session: Session
        self.core = ServerConnection(max_body_bytes=self.settings.limits.message_size_bytes)
        self._transport = transport
        self._context = context
        self._pump = Pump(transport)
        self._session_id = f"session-{secrets.token_urlsafe(16)}"
        self._subscriptions: dict[str, Subscription] = {}
        self._last_tag = 0
        """The highest tag of subscriptions that have ended."""
        self._declared: set[str] = set()
        self._numbers = itertools.count(1)
        self._leaving: Disconnect | None = None
        self._heart_beat_ms = (0, 0)
        self._flow = FlowControl(transport, context.clock)
        self._outbox: Outbox[Ticket] = Outbox(context.clock, self.settings.limits, self._published)

    # what the transport calls

    def received(self, data: memoryview) -> None:
        """Bytes of the client."""
        self._flow.heard()
        self._receive(data)

    def _receive(self, data: bytes | memoryview) -> None:
        for event in self.core.receive(data):
            try:
                self._handle(event)
            except (BrokerError, LogError, FilterError, RemoteProtocolError) as error:
                receipt = getattr(event, "receipt", None)
                if is_damage(error):
                    self._refuse(error, receipt, event.id if isinstance(event, Subscribe) else None)
                else:
                    self._fail(error, receipt=receipt)
        self._outbox.flush()
        self._leave()
        self.flush()
        self._flow.limit_answers()
        if self.core.state is ConnectionState.CLOSED:
            self._end()
            self._transport.close()

    def writable(self) -> None:
        """The transport takes more."""
        self._flow.taken()
        self._pump.wake()

    def tick(self, now_ms: int) -> None:
        """Exchange heart-beats, and close unused publishers."""
        self._outbox.tick(now_ms)
        if self.core.state is not ConnectionState.OPEN:
            return
        send_ms, receive_ms = self._heart_beat_ms
        if receive_ms and self._flow.is_silent((2 * receive_ms + MIN_HEART_BEAT_MS) / 1000):
            logger.info("no heart-beat within twice %d ms", receive_ms)
            self._transport.abort()
        elif send_ms and self._flow.is_due(send_ms / 2000):
            self.core.heart_beat()
            self.flush()

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""
        self.core.finish()
        self._end()

    def shut_down(self) -> None:
        """The server stops."""
        self._fail(BrokerError("the broker is shutting down"))
        self.flush()
        self._transport.close()

    # events

    def _handle(self, event: Event) -> None:
        if isinstance(event, Send):
            self._send(event)
        elif isinstance(event, Acknowledge):
            self._acknowledge(event)
        elif isinstance(event, Subscribe):
            self._subscribe(event)
        elif isinstance(event, Unsubscribe):
            self._unsubscribe(event)
        elif isinstance(event, Connect):
            self._connect(event)
        elif isinstance(event, Disconnect):
            self._leaving = event
        elif isinstance(event, Failed):
            logger.warning("connection closed: %s", event.error.reason)

    def _connect(self, event: Connect) -> None:
        record = self._context.connections.of(self._transport)
        record.protocol = f"STOMP {self.core.version}"
        if event.host != VIRTUAL_HOST:
            raise RemoteProtocolError(f"Virtual host '{event.host[:200]}' access denied", code="Bad CONNECT")
        self._flow.wait(Waiting.LOGIN)
        self._context.authenticator.authenticate(
            self._transport, self._credentials(event), lambda result: self._authenticated(event, result)
        )

    def _credentials(self, event: Connect) -> sasl.Credentials:
        """The credentials: name and passcode; without a name the TLS certificate, or else anonymous."""
        if event.login is not None:
            return sasl.Plain(event.login, event.passcode or "")
        return sasl.Anonymous() if self._transport.peer.certificate_name is None else sasl.External("")

    def _authenticated(self, event: Connect, result: str | AuthenticationError) -> None:
        if self.core.state is not ConnectionState.AUTHENTICATING:
            return
        self._flow.go_on(Waiting.LOGIN)
        if isinstance(result, AuthenticationError):
            self._fail(RemoteProtocolError(f"Access refused for user '{event.login or ''}'", code="Bad CONNECT"))
            self.flush()
            self._transport.close()
            return
        name = self._context.connections.of(self._transport).name
        self.session = self._context.broker.open_session(result, protocol="STOMP", connection=name)
        self.session.on_stream_deleted = self._stream_deleted
        self._outbox.open(self.session)
        self._flow.limit_backlog(self.session.backlog, self.settings.limits)
        client_sends_ms, client_wants_ms = (
            interval and max(interval, MIN_HEART_BEAT_MS) for interval in event.heart_beat_ms
        )
        self._heart_beat_ms = (client_wants_ms, client_sends_ms)
        self.core.connected(session=self._session_id, server=f"{PRODUCT}/{VERSION}", heart_beat_ms=self._heart_beat_ms)
        self._receive(b"")

    # publishing

    def _send(self, event: Send) -> None:
        destination = parse_destination(event.destination)
        exchange, key = self._endpoint(destination, event.headers)
        properties = properties_of(event.headers)
        if properties.user_id is not None and properties.user_id != self.session.user:
            raise PreconditionFailedError(
                f"user_id property set to {properties.user_id!r} but authenticated user was {self.session.user!r}"
            )
        found = publication_of(exchange, key, properties)
        streams = self._outbox.route(exchange, key, found.routing_headers)
        if not streams and destination.kind is DestinationKind.QUEUE:
            # The stream was deleted since this connection declared it.
            self._declare(destination.name, event.headers)
            streams = self._outbox.route(exchange, key, found.routing_headers)
        if streams:
            ticket = (next(self._numbers), event.receipt)
            self._outbox.add(exchange, streams, found.stored(event.body), found.filter_value, ticket)
        else:
            # A message without a target stream is dropped: STOMP does not return messages.
            self._receipt(event.receipt)

    def _endpoint(self, destination: Destination, headers: dict[str, str]) -> tuple[str, str]:
        """Exchange and routing key of a destination; a stream is declared when the connection first names it."""
        if destination.kind is DestinationKind.EXCHANGE:
            return destination.name, destination.key
        if destination.kind is DestinationKind.QUEUE and destination.name not in self._declared:
            self._declare(destination.name, headers)
            self._declared.add(destination.name)
        return "", destination.name

    def _declare(self, name: str, headers: dict[str, str]) -> None:
        if headers.get("x-queue-type", "").strip() != "stream":
            raise refused_queue(self.session, name, "x-queue-type:stream (or /amq/queue/, once it is there)")
        self._outbox.flush()
        if self.core.state is ConnectionState.CLOSED:
            raise BrokerError("the connection ended with what was sent before")
        self.session.declare_stream(name, declaration(headers))

    def _published(self, tickets: list[Ticket], error: HeadgateError | None) -> None:
        if error is None:
            for _, receipt in tickets:
                self._receipt(receipt)
        else:
            logger.warning("%d messages were not kept: %s", len(tickets), error)
            self._not_kept([receipt for _, receipt in tickets if receipt is not None], error)
        self._leave()
        self.flush()
        if self.core.state is ConnectionState.CLOSED:
            self._transport.close()

    def _not_kept(self, receipts: list[str], error: HeadgateError) -> None:
        """Report messages that were not kept: damage for each requested receipt, or once without any; others once."""
        if is_damage(error):
            for receipt in receipts or (None,):
                self._refuse(error, receipt)
        else:
            self._fail(error, receipt=receipts[0] if receipts else None)

    # consuming

    def _subscribe(self, event: Subscribe) -> None:
        destination = parse_destination(event.destination)
        if destination.kind is DestinationKind.EXCHANGE:
            raise UnsupportedError(
                "subscriptions to exchanges are not served; subscribe to a stream", subject=event.destination
            )
        if event.key in self._subscriptions:
            raise RemoteProtocolError(
                f"A subscription identified by '{event.key}' already exists.", code="Duplicated subscription identifier"
            )
        limit = self.settings.limits.consumers
        if len(self._subscriptions) >= limit:
            raise RemoteProtocolError(f"reached maximum ({limit}) of subscriptions", code="not_allowed")
        if self.session.subscription_of(destination.name) is not None:
            reason = "a subscription of a topic is read over AMQP 1.0 or AMQP 0.9.1, not over STOMP"
            raise UnsupportedError(reason, subject=destination.name)
        self._endpoint(destination, event.headers)
        self.session.declare_stream(destination.name, {}, passive=True)
        prefetch = min(number_of(event.headers, PREFETCH_COUNT) if PREFETCH_COUNT in event.headers else 0, MAX_PREFETCH)
        if not prefetch:
            raise PreconditionFailedError("consumer prefetch count is not set", subject=destination.name)
        if event.ack_mode is AckMode.AUTO:
            raise UnsupportedError("automatic acknowledgement not supported by streams", subject=destination.name)
        options = consumer_options(consumer_arguments(event.headers), tag=event.key, settings=self.settings)
        subscription = Subscription(
            self.core,
            self.session.message_consumer(destination.name, options),
            event,
            self.flush,
            stream=destination.name,
            session=self._session_id,
            earlier_tags=self._last_tag,
        )
        self._subscriptions[event.key] = subscription
        self._receipt(event.receipt)
        subscription.consumer.want(prefetch)
        self._pump.add(
            subscription.consumer, subscription.deliver, lambda error: self._scan_failed(subscription, error)
        )

    def _unsubscribe(self, event: Unsubscribe) -> None:
        subscription = self._subscriptions.pop(event.key, None)
        if subscription is None:
            raise RemoteProtocolError(f"Subscription to '{event.key[2:202]}' not found.", code="No subscription found")
        self._end_subscription(subscription)
        self._receipt(event.receipt)

    def _acknowledge(self, event: Acknowledge) -> None:
        key, _, rest = event.message.partition(f"@@{self._session_id}@@")
        if not (rest.isascii() and rest.isdigit() and len(rest) <= 18):
            raise RemoteProtocolError("ACK must include a valid message id", code="Invalid header")
        subscription = self._subscriptions.get(key)
        # Messages of a subscription that has ended may still be acknowledged.
        if subscription is not None and not subscription.acknowledge(int(rest)):
            raise PreconditionFailedError(f"unknown delivery tag {rest}")
        self._receipt(event.receipt)

    def _scan_failed(self, subscription: Subscription, error: HeadgateError) -> None:
        if subscription.is_open:
            self._cancel(subscription, f" {error}")

    def _stream_deleted(self, stream: str) -> None:
        self._declared.discard(stream)
        for subscription in list(self._subscriptions.values()):
            if subscription.stream == stream and subscription.consumer.is_closed:
                self._cancel(subscription)

    def _cancel(self, subscription: Subscription, reason: str = "") -> None:
        """End a subscription, and tell the client; the connection goes on, as in RabbitMQ."""
        del self._subscriptions[subscription.request.key]
        self._end_subscription(subscription)
        self._refuse(_cancelled(subscription.stream, reason), None, subscription.request.id)
        self.flush()

    # ends

    def _receipt(self, receipt: str | None) -> None:
        if receipt is not None and self.core.state in (ConnectionState.OPEN, ConnectionState.LEAVING):
            self.core.receipt(receipt)

    def _leave(self) -> None:
        """Answer DISCONNECT once all messages before it are stored."""
        if self._leaving is None or self.core.state is not ConnectionState.LEAVING:
            return
        if not self.session.backlog.entries:
            self.core.disconnected(self._leaving.receipt)
            self.flush()
            self._transport.leave()

    def _fail(self, error: HeadgateError, *, receipt: str | None = None) -> None:
        if self.core.state is not ConnectionState.CLOSED:
            logger.warning("connection closed: %s", error)
        self.core.fail(error, receipt=receipt)
        self._end()

    def _refuse(self, error: HeadgateError, receipt: str | None, subscription: str | None = None) -> None:
        """Report an error of one stream; the connection goes on."""
        logger.info("%s: %s", self._context.connections.of(self._transport).name, error)
        self.core.refuse(error, receipt=receipt, headers=_naming(subscription))

    def _end_subscription(self, subscription: Subscription) -> None:
        self._pump.remove(subscription.consumer)
        self._last_tag = max(self._last_tag, subscription.last_tag)
        subscription.close()

    def _end(self) -> None:
        """End everything that the connection has in the broker; a second call is harmless."""
        for subscription in self._subscriptions.values():
            self._end_subscription(subscription)
        self._subscriptions.clear()
        self._outbox.end()

    def flush(self) -> None:
        """Send the queued frames."""
        self._flow.say(self.core.take_output())


def _cancelled(stream: str, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"The server has canceled a subscription. No more messages will be delivered for {stream!r}.{reason}",
        code="Server cancelled subscription",
    )


def _naming(subscription: str | None) -> list[tuple[str, str]]:
    return [] if subscription is None else [("subscription", subscription)]
