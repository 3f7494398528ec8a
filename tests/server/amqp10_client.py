"""A client of AMQP 1.0 for tests: the protocol's core over a blocking socket, every wait with a limit."""

from __future__ import annotations

import contextlib
import itertools
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headgate.message import AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10 import Connection, ConnectionSettings, Session
from headgate.protocols.amqp10.events import (
    Closed,
    Deliveries,
    Detached,
    Ended,
    Event,
    HeadersExchanged,
    MechanismsOffered,
    Opened,
    OutcomeReceived,
    StateChanged,
)
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, Attach, Open
from headgate.protocols.amqp10.terminus import DeliveryState, RawEntry, Source, Target
from headgate.server.amqp10 import Amqp10Handler, RabbitService
from headgate.server.context import ServerContext
from headgate.server.transport import Transport
from waiting import LIMIT_S

PAIRED = AmqpValue(AmqpType.MAP, ((AmqpValue(AmqpType.SYMBOL, "paired"), AmqpValue(AmqpType.BOOLEAN, True)),))


@dataclass
class Received:
    """A message that came on a link."""

    link: str
    id: int
    data: bytes

    @property
    def message(self) -> Message:
        return Message.decode(self.data)

    @property
    def offset(self) -> int:
        return self.message.message_annotations["x-stream-offset"].value


@dataclass
class Client:
    """One connection; `messages`, `outcomes` and `events` hold what has come so far."""

    socket: socket.socket
    connection: Connection
    mechanism: str = "PLAIN"
    response: bytes = b"\0guest\0guest"
    hostname: str | None = "localhost"
    idle_time_out: int | None = None
    events: list[Event] = field(default_factory=list)
    messages: list[Received] = field(default_factory=list)
    outcomes: dict[int, DeliveryState | None] = field(default_factory=dict)
    is_over: bool = False
    _names: Iterator[int] = field(default_factory=itertools.count)

    def pump(self, until: Callable[[], bool]) -> None:
        """Read until something has happened."""
        self.flush()
        while not until():
            data = self.socket.recv(1 << 20)
            if not data:
                self.is_over = True
                if until():
                    return
                raise ConnectionError("the server closed the connection")
            for event in self.connection.receive(data):
                self._on(event)
            self.flush()

    def flush(self) -> None:
        self.socket.sendall(b"".join(self.connection.take_output()))

    def _on(self, event: Event) -> None:
        match event:
            case MechanismsOffered():
                self.connection.send_init(self.mechanism, self.response)
            case HeadersExchanged(is_sasl=False):
                self.connection.open(Open("test", hostname=self.hostname, idle_time_out=self.idle_time_out))
            case Deliveries():
                for delivery in event:
                    self.messages.append(Received(event.link.name, delivery.delivery_id, delivery.message))
                return
            case StateChanged(received=True, first=first, last=last, state=state):
                self.outcomes.update(dict.fromkeys(range(first, last + 1), state))
        self.events.append(event)

    def of(self, kind: type, link: Link | None = None) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind) and (link is None or event.link is link)]

    def begun(self) -> Session:
        """The session of all links."""
        if not self.connection.sessions:
            self.connection.begin()
        session = self.connection.sessions[0]
        self.pump(lambda: session.is_mapped or bool(self.of(Closed)))
        return session

    def attach(self, role: bool, **fields: Any) -> Link:
        """A link, attached or refused: look at its state."""
        session = self.begun()
        link = session.new_link(fields.pop("name", None) or f"link-{next(self._names)}", role)
        link.max_message_size = fields.pop("max_message_size", link.max_message_size)
        link.start(Attach(link.name, 0, role, **fields))
        self.pump(
            lambda: (
                (link.is_attached and (link.peer.target if role is SENDER else link.peer.source) is not None)
                or bool(self.of(Detached, link) or self.of(Ended) or self.of(Closed))
            )
        )
        return link

    def sender(self, address: str | None, **fields: Any) -> Link:
        """A link to publish on, with credit; or refused."""
        target = Target(None if address is None else amqp_value(address))
        link = self.attach(SENDER, target=fields.pop("target", target), source=Source(), **fields)
        self.pump(lambda: link.credit > 0 or not link.is_attached)
        return link

    def receiver(
        self, address: str, *, filters: tuple[RawEntry, ...] | None = None, credit: int = 0, **fields: Any
    ) -> Link:
        """A link to consume on; or refused."""
        source = fields.pop("source", None) or Source(amqp_value(address), filter=filters)
        link = self.attach(RECEIVER, source=source, target=Target(amqp_value("here")), **fields)
        if credit and link.is_attached:
            link.grant(credit)
            self.flush()
        return link

    def send(self, link: Link, *messages: Message | bytes, settled: bool = False) -> list[DeliveryState | None]:
        """Publish, and the outcomes; of settled messages there are none."""
        ids = [
            link.send(message if isinstance(message, bytes) else message.encode(), settled=settled)
            for message in messages
        ]
        if settled:
            self.flush()
            return []
        self.pump(lambda: all(number in self.outcomes for number in ids) or bool(self.of(Detached, link)))
        return [self.outcomes.get(number) for number in ids]

    def receive(self, link: Link, count: int) -> list[Received]:
        """The next messages of a link."""
        self.pump(lambda: sum(message.link == link.name for message in self.messages) >= count or not link.is_attached)
        taken = [message for message in self.messages if message.link == link.name]
        self.messages = [message for message in self.messages if message.link != link.name]
        return taken

    def drain(self, link: Link, credit: int = 1000) -> list[Received]:
        """All messages that there are up to the end of the stream."""
        link.grant(credit, drain=True)
        self.pump(lambda: link.credit == 0 or not link.is_attached)
        return self.receive(link, 0)

    def detached(self, link: Link) -> tuple[str, str | None]:
        """The condition and the description with which a link ended."""
        self.pump(lambda: bool(self.of(Detached, link)))
        error = self.of(Detached, link)[0].error
        return error.condition, error.description

    def closed(self) -> str | None:
        """The condition with which the connection ended."""
        self.pump(lambda: bool(self.of(Closed)))
        error = self.of(Closed)[0].error
        return None if error is None else error.condition


def rabbitmq_handler(transport: Transport, context: ServerContext) -> Amqp10Handler:
    """The handler of a connection that carries RabbitMQ's service alone."""
    return Amqp10Handler(transport, context, (RabbitService,))


@contextlib.contextmanager
def client_of(
    port: int, *, settings: ConnectionSettings | None = None, connected: socket.socket | None = None, **fields: Any
) -> Iterator[Client]:
    """A client that has opened, or was refused."""
    with connected or socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connected:
        client = Client(connected, Connection(is_server=False, settings=settings), **fields)
        client.pump(
            lambda: (
                bool(client.of(Opened) or client.of(Closed))
                or any(outcome.code for outcome in client.of(OutcomeReceived))
            )
        )
        yield client


class Management:
    """Requests over a pair of links."""

    def __init__(self, client: Client) -> None:
        self.client = client
        name = f"pair-{uuid.uuid4()}"
        self.requests = client.attach(
            SENDER, name=name, target=Target(amqp_value("/management")), source=Source(amqp_value("/management")),
            snd_settle_mode=1, properties=PAIRED,
        )  # fmt: skip
        self.responses = client.attach(
            RECEIVER, name=name, target=Target(amqp_value("/management")), source=Source(amqp_value("/management")),
            snd_settle_mode=1, properties=PAIRED,
        )  # fmt: skip
        self.responses.grant(100)
        client.pump(lambda: self.requests.credit > 0)

    def request(self, method: str, path: str, body: object = None, **fields: Any) -> tuple[int, Any]:
        """Status and body of the response."""
        identity = fields.pop("identity", uuid.uuid4())
        body = fields.pop("raw_body", None) or Body.value(body)
        properties = {"message-id": identity, "to": path, "subject": method, "reply-to": "$me", **fields}
        self.requests.send(Message(body, properties=properties).encode(), settled=True)
        (response,) = self.client.receive(self.responses, 1)
        found = response.message
        assert found.properties["correlation-id"] == amqp_value(identity)
        assert found.application_properties["http:response"].value == "1.1"
        return int(found.properties["subject"].value), plain(found.body.values()[0])

    def declare(self, name: str, **arguments: object) -> int:
        """The status of the declaration of a stream."""
        given = {"x-queue-type": "stream"} | {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.request("PUT", f"/queues/{name}", {"arguments": given})[0]


def plain(value: AmqpValue) -> Any:
    """A value as plain Python."""
    if value.type is AmqpType.MAP:
        return {plain(key): plain(member) for key, member in value.value}
    if value.type is AmqpType.LIST:
        return [plain(member) for member in value.value]
    if value.type is AmqpType.ARRAY:
        return [plain(member) for member in value.value.elements]
    return value.value
