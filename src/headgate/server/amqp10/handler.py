"""One connection of AMQP 1.0: login, sessions and links, heartbeats, closing.

Source: amqp10_rabbit, sections 1 to 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headgate.broker import Check
from headgate.broker import Session as BrokerSession
from headgate.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    LogError,
    MessageError,
    RemoteProtocolError,
)
from headgate.message import AmqpType, AmqpValue
from headgate.protocols import sasl
from headgate.protocols.amqp10 import (
    Condition,
    Connection,
    ConnectionSettings,
    ConnectionState,
    Error,
    Link,
    SaslCode,
    Session,
    condition_of,
)
from headgate.protocols.amqp10.events import (
    Aborted,
    Attached,
    Began,
    Closed,
    CreditChanged,
    Deliveries,
    Detached,
    Ended,
    Event,
    HeadersExchanged,
    InitReceived,
    Opened,
    Outcomes,
    StateChanged,
    WindowOpened,
)
from headgate.protocols.amqp10.performatives import SENDER, Attach, Open
from headgate.server.amqp10.service import RefusedAttachError, ServedLink, ServiceFactory, address_of
from headgate.server.context import ServerContext
from headgate.server.flow_control import FlowControl, Waiting
from headgate.server.identity import NODE, PROPERTIES
from headgate.server.pump import Pump
from headgate.server.transport import Peer, Transport

CAPABILITIES = ("LINK_PAIR_V1_0", "ANONYMOUS-RELAY")

NOBODY = ""
"""The user name of a client that is no user: it has no permissions."""

_VHOST = "vhost:"
_PROTOCOL = "AMQP 1.0"

logger = logging.getLogger("headgate.server.amqp10")


class Amqp10Handler:
    """The handler of one connection; `broker` is its session there once the user is known.

    A link is served by the first service that claims its address; a link that no service claims goes to the first one,
    which refuses it.
    """

    def __init__(self, transport: Transport, context: ServerContext, services: Sequence[ServiceFactory]) -> None:
        self.context = context
        self.pump = Pump(transport)
        self.user = ""
        self._transport = transport
        limits = context.settings.limits
        self._connection = Connection(
            is_server=True,
            settings=ConnectionSettings(
                max_frame_size=limits.frame_size_bytes,
                channel_max=limits.sessions - 1,
                handle_max=limits.links - 1,
                max_links=limits.connection_links,
                max_message_size=limits.message_size_bytes,
                max_partial_bytes=max(64 << 20, limits.message_size_bytes),
            ),
        )
        self._broker: BrokerSession | None = None
        self._links: dict[Link, ServedLink] = {}
        self._is_ended = False
        self._logged_in_s: float | None = None
        self._flow = FlowControl(transport, context.clock)
        self._services = [service(self) for service in services]

    @property
    def peer(self) -> Peer:
        """The other end of the connection."""
        return self._transport.peer

    @property
    def broker(self) -> BrokerSession:
        """The user's session at the broker."""
        assert self._broker is not None
        return self._broker

    @property
    def is_writable(self) -> bool:
        """Whether the transport takes more; when it does again, `ServedLink.go_on` is called."""
        return self._transport.is_writable

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call at the end of the turn."""
        self._transport.call_soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        """Make a call in `delay_s`, unless the connection has ended by then; the returned handle cancels it."""
        return self._transport.call_later(delay_s, call)

    # What the event loop calls

    def received(self, data: memoryview) -> None:
        """Handle bytes from the peer; without any, go on with earlier ones. `data` is valid during the call only."""
        self._flow.heard()
        try:
            for event in self._connection.receive(data):
                self._on(event)
                if self._is_ended:
                    break
        except RemoteProtocolError as error:
            logger.info("%s: %s", self.name, error.reason)
            self._close(Error(str(error.code), error.reason))
        self.flush()
        self._flow.limit_answers()

    def writable(self) -> None:
        """The transport takes more again."""
        self._flow.taken()
        self._go_on()

    def _go_on(self) -> None:
        self.pump.wake()
        for served in list(self._links.values()):
            served.go_on()

    def tick(self, now_ms: int) -> None:
        """Send heartbeats, and end a connection whose peer is silent, or does not open it in time."""
        heartbeat_s = self.context.settings.timeouts.heartbeat_s
        if self._connection.is_opened:
            asked_ms = self._connection.remote_idle_time_out
            if asked_ms and self._flow.is_due(asked_ms / 2000 - 0.5):
                self._connection.heartbeat()
            if self._flow.is_silent(heartbeat_s):
                error = Error(Condition.RESOURCE_LIMIT_EXCEEDED, f"nothing was heard for {heartbeat_s} seconds")
                self._close(error)
            for served in list(self._links.values()):
                served.tick(now_ms)
            self.flush()
        elif self._logged_in_s is not None and not self._is_ended:
            waited_s = self.context.clock.monotonic_s() - self._logged_in_s
            if waited_s > self.context.settings.timeouts.handshake_s:
                logger.info("%s: logged in, but not opened in time", self.name)
                self._transport.abort()

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""
        self._end()

    def shut_down(self) -> None:
        """The server stops."""
        self._close(Error(Condition.CONNECTION_FORCED, "the server stops"))

    # What services and links call

    def open_session(self, check: Check) -> BrokerSession:
        """Another session at the broker, for a service that checks its clients' rights itself, and closes it."""
        record = self.context.connections.of(self._transport)
        session = self.context.broker.open_session(
            self.user, protocol=_PROTOCOL, connection=record.name, backlog=self.broker.backlog, check=check
        )
        session.on_stream_deleted = self._stream_deleted
        return session

    def flush(self) -> None:
        """Send the pending output."""
        output = self._connection.output
        if output:
            self._connection.output = []
            self._flow.say(output)

    def answer_attach(self, link: Link, answer: Attach) -> None:
        """Answer an attach in a later turn, if the link still exists."""
        served = self._links.get(link)
        if served is not None:
            link.start(answer)
            served.attached()
            self.flush()

    def refuse_attach(self, link: Link, error: Error, *, without_termini: bool) -> None:
        """Refuse an attach in a later turn, if the link still exists; see `Service.refuses_without_termini`."""
        if link in self._links:
            self._drop(link)
            self._refuse(link, error, without_termini=without_termini)
            self.flush()

    def detach(self, link: Link, error: Error) -> None:
        """End a link because of an error."""
        self._drop(link)
        if link.is_attached:
            link.detach(error)
        self.flush()

    # Events

    @property
    def name(self) -> str:
        """The connection's name, for logs."""
        return self.context.connections.of(self._transport).name

    def _on(self, event: Event) -> None:
        match event:
            case Deliveries():
                if (served := self._links.get(event.link)) is not None:
                    served.take(event)
            case Aborted():
                if (served := self._links.get(event.link)) is not None:
                    served.aborted()
            case CreditChanged():
                if (served := self._links.get(event.link)) is not None:
                    served.credit_changed()
            case Outcomes():
                if (served := self._links.get(event.link)) is not None:
                    served.decided(event)
            case WindowOpened():
                self._go_on()
            case StateChanged():
                if event.received and not event.settled and event.state is not None:
                    # A receiver that waits for the sender to settle first; no served link depends on it.
                    event.session.settle(event.first, event.last, event.state, role=SENDER)
            case Attached():
                self._on_attach(event.link, event.attach)
            case Detached():
                self._drop(event.link)
            case Ended():
                self._drop_session(event.session)
            case Began():
                event.session.start()
            case Opened():
                self._on_open(event.open)
            case Closed():
                self.flush()
                self._end()
                self._transport.leave()
            case HeadersExchanged():
                if event.is_sasl:
                    self._connection.offer_mechanisms(self._mechanisms())
            case InitReceived():
                self._on_init(event)

    def _mechanisms(self) -> list[str]:
        offered = self.context.authenticator.mechanisms(self._transport)
        return list(dict.fromkeys([*offered, *(each for service in self._services for each in service.mechanisms())]))

    def _on_init(self, init: InitReceived) -> None:
        try:
            credentials = sasl.parse_initial(init.mechanism, init.response)
        except RemoteProtocolError as error:
            logger.info("%s: %s", self.name, error.reason)
            self._refuse_login()
            return
        self._flow.wait(Waiting.LOGIN)
        authenticator = self.context.authenticator
        knowing = [service for service in self._services if service.knows(credentials)]
        is_user = isinstance(credentials, sasl.Anonymous) and authenticator.takes_anonymous(self._transport)
        if knowing and not is_user:
            self._transport.call_soon(lambda: self._authenticated(NOBODY))
        else:
            authenticator.authenticate(self._transport, credentials, self._authenticated)

    def _authenticated(self, user: str | AuthenticationError) -> None:
        if self._is_ended:
            return
        if isinstance(user, AuthenticationError):
            self._refuse_login()
            return
        # Also for a client that is no user: the event loop ends connections without a login in time.
        self.user = self.context.connections.of(self._transport).user = user
        self._logged_in_s = self.context.clock.monotonic_s()
        self._connection.send_outcome(SaslCode.OK)
        self._flow.go_on(Waiting.LOGIN)
        self.received(memoryview(b""))

    def _refuse_login(self) -> None:
        self._connection.send_outcome(SaslCode.AUTH)
        self.flush()
        self._end()
        self._transport.close()

    def _on_open(self, opened: Open) -> None:
        record = self.context.connections.of(self._transport)
        record.protocol = _PROTOCOL
        record.client = {"container_id": opened.container_id} | _texts(opened.properties)
        hostname = opened.hostname or ""
        vhost = hostname.removeprefix(_VHOST) if hostname.startswith(_VHOST) else "/"
        if vhost != "/":
            self._close(Error(Condition.NOT_FOUND, f"no vhost {vhost!r}; there is only /"))
            return
        self._broker = self.context.broker.open_session(self.user, protocol=_PROTOCOL, connection=record.name)
        self._broker.on_stream_deleted = self._stream_deleted
        self._flow.limit_backlog(self._broker.backlog, self.context.settings.limits)
        self._connection.open(
            Open(
                container_id=NODE,
                idle_time_out=self.context.settings.timeouts.heartbeat_s * 500,
                offered_capabilities=CAPABILITIES,
                properties=_server_properties(),
            )
        )

    def _on_attach(self, link: Link, attach: Attach) -> None:
        address = address_of(link, attach)
        service = next((service for service in self._services if service.claims(address)), self._services[0])
        self._connection.ignores_strays |= service.ignores_strays
        try:
            served, answer = service.serve(link, attach)
        except RefusedAttachError as refused:
            error = Error(refused.condition, refused.reason)
        except (BrokerError, LogError) as refused:
            error = Error(condition_of(refused), str(refused))
        except (ConfigError, MessageError) as refused:
            error = Error(Condition.INVALID_FIELD, str(refused))
        else:
            self._links[link] = served
            if answer is not None:
                link.start(answer)
                served.attached()
            return
        self._refuse(link, error, without_termini=service.refuses_without_termini)

    def _refuse(self, link: Link, error: Error, *, without_termini: bool) -> None:
        logger.info("%s: link %r refused: %s", self.name, link.name, error.description)
        link.refuse(error, without_termini=without_termini)

    # Ends

    def _stream_deleted(self, stream: str) -> None:
        error = Error(Condition.RESOURCE_DELETED, f"stream {stream!r} was deleted")
        for link, served in list(self._links.items()):
            if served.has_lost(stream):
                self.detach(link, error)

    def _drop(self, link: Link) -> None:
        served = self._links.pop(link, None)
        if served is not None:
            served.close()

    def _drop_session(self, session: Session) -> None:
        for link in [link for link in self._links if link.session is session]:
            self._drop(link)

    def _close(self, error: Error) -> None:
        if self._is_ended:
            return
        end = self._transport.leave if self._connection.is_opened else self._transport.close
        if self._connection.state is not ConnectionState.CLOSED:
            self._connection.close(error)
        self.flush()
        self._end()
        end()

    def _end(self) -> None:
        self._is_ended = True
        for link in list(self._links):
            self._drop(link)
        for service in self._services:
            service.close()
        if self._broker is not None:
            self._broker.close()


def _texts(properties: AmqpValue | None) -> dict[str, str]:
    """The entries of a map with text values."""
    if properties is None:
        return {}
    return {key.value: value.value for key, value in properties.value if isinstance(value.value, str)}


def _server_properties() -> AmqpValue:
    entries = {**PROPERTIES, "node": NODE}
    return AmqpValue(
        AmqpType.MAP,
        tuple((AmqpValue(AmqpType.SYMBOL, key), AmqpValue(AmqpType.STRING, value)) for key, value in entries.items()),
    )
