"""Two sides of an AMQP 1.0 connection without a network, and a server side that accepts everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.message import EncodedMessages
from headgate.protocols.amqp10.codes import SaslCode
from headgate.protocols.amqp10.connection import Connection, ConnectionSettings
from headgate.protocols.amqp10.events import (
    Attached,
    Began,
    Deliveries,
    Event,
    HeadersExchanged,
    InitReceived,
    MechanismsOffered,
    Opened,
)
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, Attach, Open
from headgate.protocols.amqp10.session import Session


@dataclass
class Side:
    """A connection, and all that it told so far; deliveries are kept as tuples since their buffers are reused."""

    connection: Connection
    react: Callable[[Side, Event], None] = lambda side, event: None
    events: list[Event] = field(default_factory=list)
    messages: list[tuple[str, int, bytes, bool]] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        for event in self.connection.receive(data):
            self.note(event)
            self.react(self, event)

    def note(self, event: Event) -> None:
        if isinstance(event, Deliveries):
            for delivery in event:
                self.messages.append((event.link.name, delivery.delivery_id, delivery.message, delivery.settled))
        else:
            self.events.append(event)

    def output(self) -> bytes:
        return b"".join(self.connection.take_output())

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


def accept_all(side: Side, event: Event) -> None:
    """What an open-minded server answers; links that send to it get 1 000 credits."""
    connection = side.connection
    match event:
        case HeadersExchanged(is_sasl=True):
            connection.offer_mechanisms(["PLAIN", "ANONYMOUS"])
        case InitReceived():
            connection.send_outcome(SaslCode.OK)
        case Opened():
            connection.open(Open("server"))
        case Began(session=session):
            if session.state.name == "BEGIN_RECEIVED":
                session.start()
        case Attached(link=link, attach=attach):
            if link.state.name == "ATTACH_RECEIVED":
                link.start(replace(attach))
                if link.role is RECEIVER:
                    link.grant(1000)


def follow(side: Side, event: Event) -> None:
    """What a client says by itself."""
    match event:
        case MechanismsOffered():
            side.connection.send_init("PLAIN", b"\0guest\0guest")
        case HeadersExchanged(is_sasl=False):
            side.connection.open(Open("client"))


class Pair:
    """A client and a server that hear each other."""

    def __init__(
        self,
        *,
        client: ConnectionSettings | None = None,
        server: ConnectionSettings | None = None,
        react: Callable[[Side, Event], None] = accept_all,
    ) -> None:
        self.client = Side(Connection(is_server=False, settings=client), follow)
        self.server = Side(Connection(is_server=True, settings=server), react)
        self.exchange()
        assert self.client.connection.is_opened and self.server.connection.is_opened

    def exchange(self) -> None:
        """Carry bytes both ways until there are none."""
        while True:
            up = self.client.output()
            self.server.take(up)
            down = self.server.output()
            self.client.take(down)
            if not up and not down:
                return

    def session(self) -> Session:
        """A session of the client, mapped."""
        session = self.client.connection.begin()
        self.exchange()
        return session

    def link(self, session: Session, name: str, role: bool, **fields: object) -> Link:
        """A link of the client, attached."""
        link = session.new_link(name, role)
        link.start(Attach(name, 0, role, **fields))
        self.exchange()
        return link

    def sender(self, session: Session, name: str = "out", **fields: object) -> Link:
        return self.link(session, name, SENDER, **fields)

    def receiver(self, session: Session, name: str = "in", **fields: object) -> Link:
        return self.link(session, name, RECEIVER, **fields)

    def far(self, link: Link) -> Link:
        """The server's end of a link."""
        for session in self.server.connection.sessions:
            for other in session.links:
                if other.name == link.name and other.role is not link.role:
                    return other
        raise AssertionError(f"the server has no link {link.name}")


def send_tagged(link: Link, message: bytes, tag: bytes) -> int:
    """Send one message with a tag of the caller's own; gives its delivery id."""
    tags = np.frombuffer(tag, dtype=np.uint8)[np.newaxis]
    (number,) = link.send_tagged(EncodedMessages.of([message]), tags, settled=link.settled)
    return number
