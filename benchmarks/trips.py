"""Python calls of one message on its way through Headgate: calls, modules, and moves between modules.

Each trip is made a hundred times, one message at a time; the table has the trip with the median of calls. They are
counted by the interpreter's profiling hook in all threads of the server, and do not depend on the machine's speed, so
two commits can be compared by one run of each. Counted are functions of Headgate, each generator again when it
goes on; comprehensions are not, as newer versions of Python put them into their function. A move is a call
that comes from another module of Headgate, or from outside.

Clients are lean ones over the protocols' cores. Arguments: the trips to make (default: all).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType

from broker_amqp10 import Peer, connected, sql
from broker_stream import Peer as StreamPeer
from broker_topics import topic_with
from harness import report_table
from live_peers import CREDIT_CHUNKS, ENOUGH_CREDIT, Amqp10Publisher, StreamConsumer, StreamPublisher
from servicebus import EVERYTHING, client_of
from serving import Served, served

import headgate
from headgate.cli import main as main_of_headgate
from headgate.log import Stream, Writer, stream_folder
from headgate.log.offsets import OffsetSpecification
from headgate.message import Message
from headgate.protocols.amqp10.performatives import UNSETTLED
from headgate.protocols.rocketmq.remoting import Command, RemotingConnection, RequestCode
from headgate.protocols.stream import frames as f

COUNTED, WARM_UP = 100, 20
PACKAGE = f"{Path(headgate.__file__).parent}{os.sep}"
FILTER = "region = 'AMER'"
BODY = Message(b"twenty bytes of body", application_properties={"region": "AMER"}).encode()


Call = tuple[str, str, bool]
"""A module, a function of it, and whether the call came from another module."""


def counts_of(calls: Sequence[Call]) -> dict[str, int]:
    """The numbers of a trip."""
    modules = {module for module, _, _ in calls}
    return {"calls": len(calls), "modules": len(modules), "moves": sum(is_move for _, _, is_move in calls)}


class Counter:
    """Counts calls in the threads of a process from `install` on."""

    def __init__(self) -> None:
        self._modules: dict[CodeType, str | None] = {}
        self._calls: list[Call] = []

    def taken(self) -> list[Call]:
        """What was called since this was asked last."""
        calls, self._calls = self._calls, []
        return calls

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (module := self._module_of(frame.f_code)) is not None:
            self._calls.append((module, frame.f_code.co_qualname, self._caller(frame) != module))

    def _module_of(self, code: CodeType) -> str | None:
        """None outside of Headgate, and for comprehensions."""
        if code not in self._modules:
            path = code.co_filename
            is_counted = path.startswith(PACKAGE) and code.co_name not in ("<listcomp>", "<dictcomp>", "<setcomp>")
            self._modules[code] = path.removeprefix(PACKAGE) if is_counted else None
        return self._modules[code]

    def _caller(self, frame: FrameType) -> str | None:
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        return None if caller is None else caller.f_code.co_filename.removeprefix(PACKAGE)


class Traced:
    """A server that counts."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.address = "127.0.0.1", server.ports["amqp"]

    def calls_of(self, trip: Callable[[], object]) -> list[Call]:
        """The calls of a trip, which is over when it returns."""
        self._taken()
        trip()
        return self._taken()

    def _taken(self) -> list[Call]:
        os.kill(self.server.pid, signal.SIGUSR1)
        return json.loads(self.server.output.readline())


Trip = Iterator[Callable[[], object]]
"""Gives one action again and again, and may prepare the next one between; what the action does is counted."""


def sender_of(peer: Peer, body: bytes = BODY) -> Callable[[], None]:
    """Sends one message on the connection's only link."""
    publisher, numbers = Amqp10Publisher(peer), itertools.count()
    assert len(body) < 256

    def send() -> None:
        number = next(numbers)
        frame = publisher.message(number, body)
        # The publisher makes data sections; this is a whole message in its place.
        size = len(frame) - 5
        peer.socket.sendall(size.to_bytes(4, "big") + frame[4 : -5 - len(body)] + body)

    return send


def publish(traced: Traced) -> Trip:
    """AMQP 1.0: published, stored, accepted."""
    with connected(traced.address) as peer:
        peer.declare("published")
        peer.sender("published")
        send = sender_of(peer)
        while True:
            answered = peer.answered
            yield lambda: (send(), peer.pump(lambda: peer.answered > answered))  # noqa: B023


def live(traced: Traced) -> Trip:
    """AMQP 1.0: published, and delivered to a consumer with an SQL filter that waits, which settled the one before."""
    with connected(traced.address) as publisher, connected(traced.address) as consumer:
        publisher.declare("live")
        publisher.sender("live")
        send = sender_of(publisher)
        consumer.receiver("live", [sql(FILTER)], snd_settle_mode=UNSETTLED).grant(ENOUGH_CREDIT)
        while True:
            answered, received = publisher.answered, consumer.received
            yield lambda: (
                send(),
                publisher.pump(lambda: publisher.answered > answered),  # noqa: B023
                consumer.pump(lambda: consumer.received > received),  # noqa: B023
            )


def attach(traced: Traced) -> Trip:
    """AMQP 1.0: a link with an SQL filter attached to a stream on disk, up to its first message."""
    with connected(traced.address) as peer:
        while True:

            def first() -> None:
                received = peer.received
                peer.receiver("stored", [sql(FILTER)]).grant(1)
                peer.pump(lambda: peer.received > received)

            yield first


def stream_live(traced: Traced) -> Trip:
    """Stream protocol: credit for the chunk before; published, confirmed, and its chunk delivered to a consumer."""
    peers = [StreamPeer("127.0.0.1", traced.server.ports["stream"]) for _ in range(2)]
    with contextlib.closing(peers[0].socket) as sending, contextlib.closing(peers[1].socket) as taking:
        peers[0].check(f.Create("live-chunks"))
        peers[0].check(f.DeclarePublisher(0, None, "live-chunks"))
        peers[1].check(f.Subscribe(0, "live-chunks", OffsetSpecification.first(), CREDIT_CHUNKS, {}))
        publisher, consumer = StreamPublisher(peers[0]), StreamConsumer(peers[1])
        credit = consumer.CREDIT
        for number in itertools.count():

            def delivered() -> None:
                nonlocal credit
                taking.sendall(credit)
                sending.sendall(publisher.message(number, b"twenty bytes of body"))  # noqa: B023
                while not publisher.confirmed(sending.recv(1 << 16)):
                    pass
                bodies: list[bytes] = []
                while not bodies:
                    bodies, credit = consumer.delivered(taking.recv(1 << 16))

            yield delivered


def service_bus(traced: Traced, step: str) -> Trip:
    """A topic with one subscription without a filter: `send`, `receive` with a lock, or `complete`."""
    with client_of(traced.address) as sender, client_of(traced.address) as receiver:
        sender.sending("topic")
        send = sender_of(sender)
        link = receiver.receiving("topic/Subscriptions/s", deletes=False)
        for number in itertools.count():

            def sent() -> None:
                answered = sender.answered
                send()
                sender.pump(lambda: sender.answered > answered)

            def received() -> None:
                before = receiver.received
                link.grant(1)
                receiver.pump(lambda: receiver.received > before)

            def completed() -> None:
                settled = receiver.settled
                receiver.accept(number, number)  # noqa: B023
                receiver.pump(lambda: receiver.settled > settled)

            for name, action in (("send", sent), ("receive", received), ("complete", completed)):
                if name == step:
                    yield action
                else:
                    action()


def pull(traced: Traced) -> Trip:
    """RocketMQ's classic protocol: one message pulled by a group that takes everything."""
    port = traced.server.ports["rocketmq_classic"]
    with socket.create_connection(("127.0.0.1", port)) as opened:
        connection = RemotingConnection()
        numbers = itertools.count(1)

        def ask(code: int, fields: dict[str, object], body: bytes = b"") -> Command:
            texts = {name: str(value) for name, value in fields.items()}
            connection.send(Command(code=code, opaque=next(numbers), fields=texts, body=body))
            opened.sendall(b"".join(connection.take_output()))
            answers: list[Command] = []
            while not answers:
                # The server asks, too: it tells the members of a group of each other.
                answers += [each for each in connection.receive(opened.recv(1 << 20)) if each.is_response]
            if answers[0].code:
                raise SystemExit(f"{RequestCode(code).name}: {answers[0].remark}")
            return answers[0]

        subscription = {"topic": "pulled", "subString": "*", "expressionType": "TAG", "subVersion": 1}
        consumer = {
            "groupName": "group",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        beat = {"clientID": "client", "consumerDataSet": [consumer], "producerDataSet": []}
        sent = {"a": "producers", "b": "pulled", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "i": ""}
        pulled = {"consumerGroup": "group", "topic": "pulled", "queueId": 0, "maxMsgNums": 1, "sysFlag": 0}
        pulled |= {"commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 1, "maxMsgBytes": 262_144}
        ask(RequestCode.SEND_MESSAGE_V2, sent, b"body")
        ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
        for offset in itertools.count():
            ask(RequestCode.SEND_MESSAGE_V2, sent, b"body")
            yield functools.partial(ask, RequestCode.PULL_MESSAGE, pulled | {"queueOffset": offset})


TRIPS = {
    "AMQP 1.0: publish, stored, accepted": publish,
    "AMQP 1.0: publish, filter, delivered": live,
    "AMQP 1.0: attach with SQL, first message": attach,
    "Stream protocol: publish, confirmed, delivered": stream_live,
    "Service Bus: send": functools.partial(service_bus, step="send"),
    "Service Bus: receive": functools.partial(service_bus, step="receive"),
    "Service Bus: complete": functools.partial(service_bus, step="complete"),
    "RocketMQ: classic pull": pull,
}
SPARK = "Spark: a partition read, without the JVM"


def spark_partition(root: Path) -> list[Call]:
    """The calls in the worker that reads a partition with a filter, the second time in its process."""
    from headgate.spark.schema import stream_schema
    from headgate.spark.source import BatchReader

    options = {"stream": str(stream_folder(root, "stored")), "partitions": "1", "filter": FILTER}
    reader = BatchReader(stream_schema(("offset", "message"), ()), options)
    (partition,) = reader.partitions()
    counter = Counter()
    for _ in range(2):
        counter.taken()
        sys.setprofile(counter.profile)
        rows = sum(batch.num_rows for batch in reader.read(partition))
        sys.setprofile(None)
    assert rows
    return counter.taken()


def serve(arguments: Sequence[str]) -> None:
    """The server's process: counts, and writes what it counted as a line whenever it gets the signal."""
    counter = Counter()
    signal.signal(signal.SIGUSR1, lambda *_: print(json.dumps(counter.taken()), flush=True))
    threading.setprofile(counter.profile)
    sys.setprofile(counter.profile)
    sys.argv[1:] = arguments
    main_of_headgate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trips", nargs="*", default=[*TRIPS, SPARK], help="what to count (default: all)")
    parser.add_argument("--functions", action="store_true", help="name the functions that are called, in order")
    options = parser.parse_args()
    names = options.trips
    found: dict[str, list[Call]] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        root = Path(folder)
        topic_with(root, "topic", [EVERYTHING], None)
        stored = Stream.create(stream_folder(root, "stored"), name="stored", now_ms=0)
        with Writer.open(stored, now_ms=0) as writer:
            writer.append([(BODY, None)] * 1_000, now_ms=0)
        script = (str(Path(__file__).resolve()), "--serve")
        with served("amqp", "stream", "rocketmq_classic", root=root, program=script) as server:
            server.wait_for_children()
            for name in names:
                if name == SPARK:
                    continue
                traced = Traced(server)
                with contextlib.closing(TRIPS[name](traced)) as actions:
                    taken = [traced.calls_of(next(actions)) for _ in range(WARM_UP + COUNTED)][WARM_UP:]
                found[name] = sorted(taken, key=len)[COUNTED // 2]
        if SPARK in names:
            found[SPARK] = spark_partition(root)
    if options.functions:
        for name, calls in found.items():
            print(f"\n{name}")
            for module, function, is_move in calls:
                print(f"{'→' if is_move else ' '} {module} {function}")
    counted = {name: counts_of(calls) for name, calls in found.items()}
    header = ["trip", "Python calls", "modules", "moves between modules"]
    rows = [[name, *map(str, counts.values())] for name, counts in counted.items()]
    content = [{"name": name, **counts} for name, counts in counted.items()]
    report_table("trips", "One message through Headgate", header, rows, content)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2:])
    else:
        main()
