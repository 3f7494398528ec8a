"""AMQP 1.0 through the network: publish with outcomes, consume with filters, many consumers at once.

The broker is `headgate serve` in a process of its own; this process is the client, the protocol's core over one socket.
With HEADGATE_RABBITMQ_AMQP=host:port the same runs against that RabbitMQ, and ratios are to it. Arguments: the number
of messages (default 1 000 000).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from harness import Measurement, report, short
from messages import event_batch
from serving import Served, served
from streams import ORDER_FILTER, RARE_FILTER, subjects_of

from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, FieldReference, Message, Section, amqp_value
from headgate.protocols.amqp10 import Connection, ConnectionSettings
from headgate.protocols.amqp10.events import (
    Deliveries,
    Event,
    HeadersExchanged,
    MechanismsOffered,
    Opened,
    StateChanged,
)
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, SETTLED, Attach, Open
from headgate.protocols.amqp10.session import Session
from headgate.protocols.amqp10.terminus import RawEntry, Source, Target

PREFIX = struct.Struct(">IHHIHBBBIHQBB")
FILTER_VALUE = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")
WHOLE_STREAM = 100_000_000
CONSUMERS = 100
ORIGINAL = "HEADGATE_RABBITMQ_AMQP"


@dataclass
class Peer:
    """One connection with one session."""

    socket: socket.socket
    connection: Connection = field(
        default_factory=lambda: Connection(is_server=False, settings=ConnectionSettings(incoming_window=1_000_000))
    )
    received: int = 0
    answered: int = 0
    is_opened: bool = False
    session: Session | None = None

    def pump(self, until: Callable[[], bool]) -> None:
        self.flush()
        while not until():
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for event in self.connection.receive(data):
                self.on(event)
            self.flush()

    def flush(self) -> None:
        for data in self.connection.take_output():
            self.socket.sendall(data)

    def on(self, event: Event) -> None:
        match event:
            case Deliveries():
                self.received += len(event)
            case StateChanged(received=True, first=first, last=last):
                self.answered += last - first + 1
            case MechanismsOffered():
                self.connection.send_init("PLAIN", b"\0guest\0guest")
            case HeadersExchanged(is_sasl=False):
                self.connection.open(Open("benchmark", hostname="localhost"))
            case Opened():
                self.is_opened = True

    def attach(self, role: bool, **fields: object) -> Link:
        assert self.session is not None
        link = self.session.new_link(f"link-{uuid.uuid4()}", role)
        link.start(Attach(link.name, 0, role, **fields))
        self.pump(lambda: link.is_attached)
        return link

    def sender(self, stream: str) -> Link:
        link = self.attach(SENDER, target=Target(amqp_value(f"/queues/{stream}")), source=Source())
        self.pump(lambda: link.credit > 0)
        return link

    def receiver(self, stream: str, filters: Sequence[RawEntry], *, snd_settle_mode: int = SETTLED) -> Link:
        first = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value("first"))
        source = Source(amqp_value(f"/queues/{stream}"), filter=(first, *filters))
        link = self.attach(RECEIVER, source=source, target=Target(amqp_value("here")), snd_settle_mode=snd_settle_mode)
        in_force = link.attach.source.filter
        if in_force is None or len(in_force) != 1 + len(filters):
            raise RuntimeError(f"a filter of {filters} is not in force")
        return link

    def subscription(self, name: str, *, snd_settle_mode: int = SETTLED) -> Link:
        """A receiver of a subscription, by its name as a queue."""
        source = Source(amqp_value(f"/queues/{name}"))
        return self.attach(RECEIVER, source=source, target=Target(amqp_value("here")), snd_settle_mode=snd_settle_mode)

    def declare(self, stream: str) -> None:
        paired = AmqpValue(AmqpType.MAP, ((AmqpValue(AmqpType.SYMBOL, "paired"), AmqpValue(AmqpType.BOOLEAN, True)),))
        ends = {"source": Source(amqp_value("/management")), "target": Target(amqp_value("/management"))}
        assert self.session is not None
        links = []
        for role in (SENDER, RECEIVER):
            link = self.session.new_link("management", role)
            link.start(Attach(link.name, 0, role, snd_settle_mode=SETTLED, properties=paired, **ends))
            self.pump(lambda link=link: link.is_attached)
            links.append(link)
        links[1].grant(1)
        self.pump(lambda: links[0].credit > 0)
        request = Message(
            Body.value({"arguments": {"x-queue-type": "stream"}}),
            properties={"message-id": "1", "to": f"/queues/{stream}", "subject": "PUT", "reply-to": "$me"},
        )
        links[0].send(request.encode(), settled=True)
        before = self.received
        self.pump(lambda: self.received > before)
        for link in links:
            link.detach()
        self.pump(lambda: not any(link.state.name == "DETACH_SENT" for link in links))


@contextlib.contextmanager
def connected(address: tuple[str, int]) -> Iterator[Peer]:
    with socket.create_connection(address, timeout=600) as opened:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = Peer(opened)
        peer.pump(lambda: peer.is_opened)
        session = peer.session = peer.connection.begin()
        peer.pump(lambda: session.is_mapped)
        yield peer


def frames_of(messages: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    """Messages as transfers on handle 0 of channel 0, delivery ids from 0, and where each begins (and the end)."""
    pieces = []
    for number, message in enumerate(messages):
        size = PREFIX.size + len(message)
        pieces.append(
            PREFIX.pack(size, 0x0200, 0, 0x005314C0, 0x1405, 0x52, 0, 0x70, number, 0xA008, number, 0x43, 0x42)
        )
        pieces.append(message)
    sizes = np.array([PREFIX.size + len(message) for message in messages])
    return b"".join(pieces), np.concatenate(([0], np.cumsum(sizes)))


def publish(peer: Peer, link: Link, frames: bytes, starts: np.ndarray) -> None:
    """Send everything as credit and window allow, and wait for all outcomes."""
    session = link.session
    assert link.handle == 0 and session.next_delivery_id == 0
    view = memoryview(frames)
    sent, count = 0, len(starts) - 1
    answered = peer.answered + count
    while peer.answered < answered:
        room = min(link.credit, session.remote_incoming_window, count - sent, 2_000)
        if room > 0:
            link._count_sent(room)
            session.send_transfers(link, view[starts[sent] : starts[sent + room]], room)
            sent += room
            peer.flush()
            if not select.select([peer.socket], [], [], 0)[0]:
                continue
        for event in peer.connection.receive(peer.socket.recv(1 << 20)):
            peer.on(event)
        peer.flush()


def consume(address: tuple[str, int], stream: str, filters: Sequence[RawEntry]) -> int:
    """Everything that passes the filters, up to the end of the stream; gives how many."""
    with connected(address) as peer:
        link = peer.receiver(stream, filters)
        link.grant(WHOLE_STREAM, drain=True)
        peer.pump(lambda: link.credit == 0)
        return peer.received


def sql(text: str) -> RawEntry:
    return RawEntry.of("sql-filter", "amqp:sql-filter", amqp_value(text))


def shipped() -> RawEntry:
    """A property filter for about six per cent of the events."""
    wanted = AmqpValue(AmqpType.MAP, ((AmqpValue(AmqpType.SYMBOL, "subject"), amqp_value("&p:order.shi")),))
    return RawEntry.of("p", "amqp:properties-filter", wanted)


def cases(name: str, address: tuple[str, int], count: int, *, rounds: int) -> list[Measurement]:
    """All cases against one broker."""
    batch = event_batch(count)
    messages = [batch.message(row) for row in range(count)]
    runs = in_runs(batch, messages)
    everything, sorted_by_subject = f"all-{uuid.uuid4()}", f"runs-{uuid.uuid4()}"
    measured = []
    for stream, events in ((everything, messages), (sorted_by_subject, runs)):
        frames, starts = frames_of(events)
        with connected(address) as peer:
            peer.declare(stream)
        with connected(address) as peer:
            link = peer.sender(stream)
            start = time.perf_counter()
            publish(peer, link, frames, starts)
            label = "publish, accepted each" if stream == everything else "publish with filter values"
            measured.append(Measurement(f"{name}: {label}", count, [time.perf_counter() - start]))

    def timed(label: str, stream: str, *filters: RawEntry) -> None:
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            found = consume(address, stream, filters)
            seconds.append(time.perf_counter() - start)
        measured.append(Measurement(f"{name}: {label} ({100 * found / count:.1f} %)", count, seconds))

    timed("SQL filter", everything, sql(RARE_FILTER))
    timed("property filter", everything, shipped())
    bloom = RawEntry.of("b", "rabbitmq:stream-filter", amqp_value("order.created"))
    timed("Bloom and SQL filter", sorted_by_subject, bloom, sql(ORDER_FILTER))
    timed("everything", everything)
    return measured


def in_runs(batch: EncodedMessages, messages: Sequence[bytes]) -> list[bytes]:
    """The messages sorted by subject, which becomes the filter value."""
    subjects = subjects_of(batch)
    order = np.argsort(np.array(subjects, dtype=object), kind="stable").tolist()
    known: dict[bytes, bytes] = {}
    for message, subject in zip(messages, subjects, strict=True):
        if message not in known:
            changed = Message.decode(message).with_changes([(FILTER_VALUE, amqp_value(subject.decode()))])
            known[message] = changed.encode()
    return [known[messages[row]] for row in order]


def many_consumers(server: Served, count: int) -> None:
    """Processor time of a hundred consumers with different filters against that of one; together they take as much.

    Attaching, a link and a filter each, is counted apart: one consumer does it once, however long the stream.
    """
    address = ("127.0.0.1", server.ports["amqp"])
    stream = f"many-{uuid.uuid4()}"
    batch = event_batch(count)
    frames, starts = frames_of([batch.message(row) for row in range(count)])
    with connected(address) as peer:
        peer.declare(stream)
    with connected(address) as peer:
        publish(peer, peer.sender(stream), frames, starts)
    filters = [
        sql(f"{RARE_FILTER} AND customer_id > {number * 50_000} AND customer_id <= {(number + 1) * 50_000}")
        for number in range(CONSUMERS)
    ]
    attaching, reading = [], []
    for chosen in ([sql(RARE_FILTER)], filters):
        rounds = []
        for _ in range(3):
            with connected(address) as peer:
                before = server.cpu_s()
                links = [peer.receiver(stream, [text]) for text in chosen]
                attached = server.cpu_s()
                for link in links:
                    link.grant(WHOLE_STREAM, drain=True)
                peer.pump(lambda links=links: all(link.credit == 0 for link in links))
                rounds.append((attached - before, server.cpu_s() - attached))
        attaching.append(min(spent for spent, _ in rounds))
        reading.append(min(spent for _, spent in rounds))
    print(
        f"{CONSUMERS} consumers with different filters: {reading[1]:.2f} s of processor time, one: {reading[0]:.2f} s"
    )
    print(f"attaching them: {attaching[1]:.2f} s, one: {attaching[0]:.2f} s")
    everything = [spent + more for spent, more in zip(attaching, reading, strict=True)]
    print(f"ratio {reading[1] / reading[0]:.2f}, with attaching {everything[1] / everything[0]:.2f}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    measured: list[Measurement] = []
    with served("amqp") as server:
        measured += cases("Headgate", ("127.0.0.1", server.ports["amqp"]), count, rounds=3)
        many_consumers(server, count)
        print(f"anonymous memory of the broker: {short(server.anonymous_bytes())}B")
    baseline = measured[0].name
    other = os.environ.get(ORIGINAL)
    if other:
        host, _, port = other.rpartition(":")
        theirs = cases("RabbitMQ", (host, int(port)), count, rounds=1)
        for ours, their in zip(measured, theirs, strict=True):
            print(f"{ours.name}: {ours.rate / their.rate:.1f} times RabbitMQ")
        measured += theirs
    report("broker_amqp10", f"AMQP 1.0, {count:,} events", measured, baseline=baseline)


if __name__ == "__main__":
    main()
