"""Topics as clients of Service Bus use them, through the network: sending, receiving, settling, many subscriptions.

The server is `headgate serve` in a process of its own. The lean client is the protocol's core over one socket; the
Python client is `azure-servicebus`. Each figure stands beside one of the same run, its rounds in turn: the same load on
a plain stream by the same server's AMQP 1.0 addresses of RabbitMQ, or the same work without what is measured.
Arguments: the parts to measure (default: all).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import statistics
import struct
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from broker_amqp10 import Peer, connected, frames_of, publish, sql
from broker_live import WARM_UP_S, figures
from broker_topics import topic_with
from deciding import topics
from harness import report_table, short
from live_load import Window, run_load
from live_peers import ENOUGH_CREDIT, UNSETTLED, Address, Amqp10Consumer, Amqp10Publisher
from messages import event_batch
from serving import Served, served
from streams import RARE_FILTER

from headgate.message import EncodedMessages, amqp_value
from headgate.protocols.amqp10.events import Deliveries, Event, StateChanged
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, SETTLED
from headgate.protocols.amqp10.terminus import RawEntry, Source, Target
from headgate.topic import Rule, Subscription

MESSAGES = 200_000
A_BATCH = 500
BACKLOG = 1_000_000
MANY, READ = 1_000, 10
TO_MANY = 20_000
ONE_BY_ONE = 20_000
LONE_RATE, PYTHON_RATE = 1_000, 100
SECONDS = 3.0
BATCH_PREFIX = struct.Struct(">IHHIHBBBIHQBIB")
BATCH_FORMAT = 0x80013700
SETTLE = struct.Struct(">4sHH8sIBIB4s")
EVERYTHING = Subscription("s", (Rule("r", "1=1"),))


@dataclass(slots=True)
class Figure:
    """Rounds of one thing, messages a second or milliseconds, beside those of its baseline."""

    name: str
    beside: str
    unit: str
    wanted: str
    values: list[float] = field(default_factory=list)
    baseline: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        """What is shown of it."""
        median = statistics.median(self.values)
        base = statistics.median(self.baseline) if self.baseline else None
        spread = (max(self.values) - min(self.values)) / median
        return [
            self.name,
            self.beside,
            self._shown(median),
            f"{100 * spread:.0f} %",
            self.wanted,
            "" if base is None else self._shown(base),
            "" if base is None else f"{median / base:.3g}",
        ]

    def _shown(self, value: float) -> str:
        return f"{value:.2f} ms" if self.unit == "ms" else f"{short(value)}/s"


class Client(Peer):
    """A lean client; `take` receives everything that a link gives, and settles it."""

    def on(self, event: Event) -> None:
        match event:
            case Deliveries():
                self.received += len(event)
                self.given(event)
            case StateChanged(received=False, first=first, last=last):
                self.settled += last - first + 1
            case _:
                super().on(event)

    settled = 0
    in_a_range = 0
    """How many deliveries are settled together; 0: they are settled already."""
    unsettled: tuple[int, int] | None = None

    def given(self, deliveries: Deliveries) -> None:
        """Settle what came, in full ranges."""
        if not self.in_a_range:
            return
        first, last = int(deliveries.ids[0]), int(deliveries.ids[-1])
        if self.unsettled is not None:
            first = self.unsettled[0]
        while last - first + 1 >= self.in_a_range:
            self.accept(first, first + self.in_a_range - 1)
            first += self.in_a_range
        self.unsettled = (first, last) if first <= last else None

    def accept(self, first: int, last: int) -> None:
        """Ask to complete deliveries; the server answers when that is done."""
        self.connection.output.append(
            SETTLE.pack(
                b"\0\0\0\x1e", 0x0200, 0, b"\0\x53\x15\xc0\x11\5\x41\x70", first, 0x70, last, 0x42, b"\0\x53\x24\x45"
            )
        )

    def sending(self, address: str) -> Link:
        """A link to an entity."""
        link = self.attach(SENDER, target=Target(amqp_value(address)), source=Source())
        self.pump(lambda: link.credit > 0)
        return link

    def receiving(self, address: str, *, deletes: bool) -> Link:
        """A link from a subscription that gives out locked messages, or `deletes` what it gives."""
        source, target = Source(amqp_value(address)), Target(amqp_value("here"))
        if deletes:
            return self.attach(RECEIVER, source=source, target=target, snd_settle_mode=SETTLED)
        return self.attach(RECEIVER, source=source, target=target, snd_settle_mode=UNSETTLED, rcv_settle_mode=1)


@contextlib.contextmanager
def client_of(address: Address) -> Iterator[Client]:
    """A connection with a session."""
    with connected(address) as peer:
        yield Client(peer.socket, peer.connection, is_opened=True, session=peer.session)


def batches_of(messages: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    """Messages as batches, each one transfer on handle 0 of channel 0, and where each begins (and the end)."""
    pieces: list[bytes] = []
    starts = [0]
    for number, first in enumerate(range(0, len(messages), A_BATCH)):
        body = b"".join(
            b"\0\x53\x75\xb0%b%b" % (len(each).to_bytes(4, "big"), each) for each in messages[first : first + A_BATCH]
        )
        size = BATCH_PREFIX.size + len(body)
        pieces.append(
            BATCH_PREFIX.pack(
                size, 0x0200, 0, 0x005314C0, 0x1805, 0x52, 0, 0x70, number, 0xA008, number, 0x70, BATCH_FORMAT, 0x42
            )
        )
        pieces.append(body)
        starts.append(starts[-1] + size)
    return b"".join(pieces), np.array(starts)


def seconds_of(run: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# lone messages


def lone(server: Served, rounds: int) -> list[Figure]:
    """A message of 20 bytes at a time, confirmed, its copy settled; and the same to and from a plain stream."""
    amqp = "127.0.0.1", server.ports["amqp"]
    beside = "a stream"
    name = f"{LONE_RATE:,} messages/s, send to delivery"
    found = [Figure(f"{name}, p50", beside, "ms", "≤ 3 ms"), Figure(f"{name}, p99", beside, "ms", "≤ 15 ms")]
    for _ in range(rounds):
        for is_topic in (False, True):
            one = lone_round(server, amqp, is_topic=is_topic, rate=LONE_RATE)
            for figure, share in zip(found, ("delivery_p50_ms", "delivery_p99_ms"), strict=True):
                (figure.values if is_topic else figure.baseline).append(one[share])
    return found


def lone_round(server: Served, amqp: Address, *, is_topic: bool, rate: int) -> dict[str, float]:
    """What one round measured."""
    with contextlib.ExitStack() as stack:
        publisher, consumer = (stack.enter_context(client_of(amqp)) for _ in ("publisher", "consumer"))
        if is_topic:
            publisher.sending("lone")
            link = consumer.receiving("lone/Subscriptions/s", deletes=False)
        else:
            stream = f"lone-{uuid.uuid4()}"
            publisher.declare(stream)
            publisher.sender(stream)
            link = consumer.receiver(stream, (), snd_settle_mode=UNSETTLED)
        link.grant(ENOUGH_CREDIT)
        consumer.flush()
        publishers, consumers = [Amqp10Publisher(publisher)], [Amqp10Consumer(consumer)]
        window = Window(server.pid, os.getpid())
        return figures(run_load(publishers, consumers, rate=rate, seconds=SECONDS, warm_up_s=WARM_UP_S, window=window))


def python(server: Served, rounds: int) -> list[Figure]:
    """The Python client, both ends in this process, beside the lean one at the same rate."""
    amqp = "127.0.0.1", server.ports["amqp"]
    figure = Figure(f"Python client, {PYTHON_RATE} messages/s, p50", "the lean client", "ms", "≤ 5 ms")
    for _ in range(rounds):
        figure.baseline.append(lone_round(server, amqp, is_topic=True, rate=PYTHON_RATE)["delivery_p50_ms"])
        figure.values.append(statistics.median(python_round(amqp)))
    return [figure]


def python_round(amqp: Address) -> list[float]:
    """How long each message took from sending to the receiver, which completes it, in milliseconds."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    text = (
        f"Endpoint=sb://{amqp[0]}:{amqp[1]};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
    count = round(PYTHON_RATE * SECONDS)
    taken: list[float] = []
    is_ready = threading.Event()

    def receive() -> None:
        with (
            ServiceBusClient.from_connection_string(text) as client,
            client.get_subscription_receiver("lone", "s", prefetch_count=100) as receiver,
        ):
            is_ready.set()
            for message in receiver:
                taken.append((time.monotonic_ns() - int(str(message))) / 1e6)
                receiver.complete_message(message)
                if len(taken) == count:
                    break

    thread = threading.Thread(target=receive)
    thread.start()
    with ServiceBusClient.from_connection_string(text) as client, client.get_topic_sender("lone") as sender:
        is_ready.wait()
        due = time.monotonic()
        for _ in range(count):
            time.sleep(max(0.0, due - time.monotonic()))
            sender.send_messages(ServiceBusMessage(b"%020d" % time.monotonic_ns()))
            due += 1 / PYTHON_RATE
        thread.join()
    return taken[count // 10 :]


# much at once


def much(server: Served, batch: EncodedMessages, rounds: int) -> list[Figure]:
    """Many messages are sent in batches, received and settled, beside a stream that is published to and read."""
    amqp = "127.0.0.1", server.ports["amqp"]
    messages = batch.all_bytes()[:MESSAGES]
    frames, batches = frames_of(messages), batches_of(messages)
    singly = frames_of(messages[:ONE_BY_ONE])
    written, read = "published to a stream", "read of a stream"
    sent = Figure(f"sent in batches of {A_BATCH}", written, "rate", "≥ 200 k/s")
    alone = Figure("sent one by one", written, "rate", "")
    deleted = Figure("received and deleted", read, "rate", "≥ 200 k/s")
    ranges = Figure("locked and completed in ranges of 100", read, "rate", "≥ 50 k/s")
    single = Figure("locked and completed one by one", read, "rate", "≥ 5 k/s")
    for _ in range(rounds):
        stream = f"stream-{uuid.uuid4()}"
        with client_of(amqp) as client:
            client.declare(stream)
        with client_of(amqp) as client:
            link = client.sender(stream)
            published = len(messages) / seconds_of(lambda: publish(client, link, *frames))  # noqa: B023
        with client_of(amqp) as client:
            link = client.receiver(stream, ())
            everything = len(messages) / seconds_of(lambda: take(client, link, len(messages)))  # noqa: B023
        for figure in (sent, alone):
            figure.baseline.append(published)
        for figure in (deleted, ranges, single):
            figure.baseline.append(everything)
        for figure, (data, starts), count in (
            (sent, batches, len(messages)),
            (alone, frames, len(messages)),
            (sent, singly, 0),
        ):
            with client_of(amqp) as client:
                link = client.sending("much")
                seconds = seconds_of(lambda: publish(client, link, data, starts))  # noqa: B023
                if count:
                    figure.values.append(count / seconds)
        for figure, in_a_range, count in (
            (deleted, 0, len(messages)),
            (ranges, 100, len(messages)),
            (single, 1, len(singly[1]) - 1),
        ):
            with client_of(amqp) as client:
                client.in_a_range = in_a_range
                link = client.receiving("much/Subscriptions/s", deletes=not in_a_range)
                figure.values.append(count / seconds_of(lambda: take(client, link, count)))  # noqa: B023
    return [sent, alone, deleted, ranges, single]


def take(client: Client, link: Link, count: int) -> None:
    """Receive so many messages, and wait until they are settled where they are to be."""
    received, settled = client.received, client.settled
    granted = 0

    def is_over() -> bool:
        nonlocal granted
        got = client.received - received
        if granted < count and link.credit < 1_000:
            more = min(2_000, count - granted + link.credit)
            granted += more - link.credit
            link.grant(more)
            client.flush()
        return got >= count and (not client.in_a_range or client.settled - settled >= count)

    client.pump(is_over)


# many subscriptions, many rules


def subscriptions(server: Served, batch: EncodedMessages, rounds: int) -> list[Figure]:
    """Ten subscriptions are read while messages are sent, of a topic of a thousand and of one of these ten."""
    amqp = "127.0.0.1", server.ports["amqp"]
    data, starts = batches_of(batch.all_bytes()[:TO_MANY])
    figure = Figure(f"{READ} of {MANY:,} subscriptions are read", f"a topic of these {READ}", "rate", "≥ 0.9")

    def run(topic: str) -> float:
        with contextlib.ExitStack() as stack:
            sender = stack.enter_context(client_of(amqp))
            link = sender.sending(topic)
            readers = [stack.enter_context(client_of(amqp)) for _ in range(READ)]
            for number, reader in enumerate(readers):
                reader.receiving(f"{topic}/Subscriptions/s{number}", deletes=True).grant(TO_MANY)
                reader.flush()
            by_socket = {reader.socket: reader for reader in readers}

            def serve(wait_s: float | None) -> None:
                for ready in select.select(list(by_socket), [], [], wait_s)[0]:
                    reader = by_socket[ready]
                    for event in reader.connection.receive(ready.recv(1 << 20)):
                        reader.on(event)
                    reader.flush()

            def send_and_read() -> None:
                sending = threading.Thread(target=publish, args=(sender, link, data, starts))
                sending.start()
                while any(reader.received < TO_MANY for reader in readers):
                    serve(1.0)
                sending.join()

            return READ * TO_MANY / seconds_of(send_and_read)

    for _ in range(rounds):
        figure.baseline.append(run("ten"))
        figure.values.append(run("thousand"))
    return [figure]


def rules(server: Served, batch: EncodedMessages, rounds: int) -> list[Figure]:
    """Batches are sent to topics with many rules that nobody reads, beside a topic without any."""
    amqp = "127.0.0.1", server.ports["amqp"]
    data, starts = batches_of(batch.all_bytes()[:MESSAGES])
    found = [Figure(f"sent in batches: {name}", "no rules", "rate", "≥ 0.9") for name in RULES]

    def run(topic: str) -> float:
        with client_of(amqp) as client:
            link = client.sending(topic)
            return MESSAGES / seconds_of(lambda: publish(client, link, data, starts))

    for number in range(rounds + 1):
        base = run("none")
        for figure, topic in zip(found, RULES.values(), strict=True):
            value = run(topic)
            if number:
                figure.values.append(value)
                figure.baseline.append(base)
    return found


RULES = {"2,000 SQL rules": "sql", "100,000 correlation rules": "correlation"}


def backlog(server: Served, rounds: int) -> list[Figure]:
    """From attach to the first message of a long backlog, beside a filtered consumer of the stream."""
    amqp = "127.0.0.1", server.ports["amqp"]
    figure = Figure("first message of a backlog of 1 % of 1 M", "a filtered consumer", "ms", "< 100 ms")

    def first(attach: Callable[[Client], Link]) -> float:
        with client_of(amqp) as client:

            def run() -> None:
                attach(client).grant(1)
                client.pump(lambda: client.received == 1)

            return 1e3 * seconds_of(run)

    wanted: RawEntry = sql(RARE_FILTER)
    for number in range(rounds):
        figure.baseline.append(first(lambda client: client.receiver("backlog", (wanted,))))
        figure.values.append(
            first(lambda client: client.receiving(f"backlog/Subscriptions/rare{number}", deletes=False))  # noqa: B023
        )
    return [figure]


def prepared(root: Path, parts: Sequence[str], batch: EncodedMessages, rounds: int) -> None:
    """The topics that parts use."""
    if "lone" in parts or "python" in parts:
        topic_with(root, "lone", [EVERYTHING], None)
    if "much" in parts:
        topic_with(root, "much", [EVERYTHING], None)
    if "subscriptions" in parts:
        for name, count in (("ten", READ), ("thousand", MANY)):
            topic_with(root, name, [Subscription(f"s{number}", EVERYTHING.rules) for number in range(count)], None)
    if "rules" in parts:
        made = topics()
        topic_with(root, "none", [], None)
        for title, name in RULES.items():
            topic_with(root, name, made[title].subscriptions, None)
    if "backlog" in parts:
        rare = (Rule("r", RARE_FILTER, dialect="rabbitmq"),)
        topic_with(root, "backlog", [Subscription(f"rare{number}", rare) for number in range(rounds)], batch)


PARTS = ("lone", "python", "much", "subscriptions", "rules", "backlog")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    batch = event_batch(BACKLOG if "backlog" in options.parts else MESSAGES)
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        prepared(Path(folder), options.parts, batch, options.rounds)
        with served("amqp", root=Path(folder)) as server:
            server.wait_for_children()
            runs: dict[str, Callable[[], list[Figure]]] = {
                "lone": lambda: lone(server, options.rounds),
                "python": lambda: python(server, options.rounds),
                "much": lambda: much(server, batch, options.rounds),
                "subscriptions": lambda: subscriptions(server, batch, options.rounds),
                "rules": lambda: rules(server, batch, options.rounds),
                "backlog": lambda: backlog(server, options.rounds),
            }
            for part in options.parts:
                found += runs[part]()
    header = ["what", "beside", "median", "spread", "wanted", "beside it", "ratio"]
    rows = [{"name": each.name, "values": each.values, "baseline": each.baseline} for each in found]
    is_whole = tuple(options.parts) == PARTS
    subject = "servicebus" if is_whole else "servicebus_part"
    report_table(subject, "Service Bus through the network", header, [each.cells() for each in found], rows)


if __name__ == "__main__":
    main()
