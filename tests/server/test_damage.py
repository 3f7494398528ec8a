"""Streams whose files are damaged: what each protocol says of it, and that everything else goes on."""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate import Message
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer, stream_folder
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES
from headgate.message import amqp_value
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.fields import long_string
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.terminus import Accepted, RawEntry, Rejected
from headgate.protocols.stomp.frames import Frame
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import ResponseCode
from log_streams import damage_chunk
from server import amqp091_client, amqp10_client, stomp_client
from server.entities import ServedEntities
from server.running import RunningServer, running_server
from server.servicebus_client import bodies as bodies_of
from server.servicebus_client import peek_lock
from server.test_http import listed, metrics, request
from stream_peer import StreamPeer

NOW_MS = 1_760_000_000_000
SERVICE_BUS: dict[str, Any] = {"mechanism": "ANONYMOUS", "response": b"\0RootManageSharedAccessKey"}


class Client(abc.ABC):
    """One connection that consumes streams and publishes to them."""

    @abc.abstractmethod
    def consume(self, stream: str, start: str = "first") -> None:
        """Consume a stream from its first or its last chunk on; one that is refused has ended."""

    @abc.abstractmethod
    def receive(self, stream: str, count: int) -> list[bytes]:
        """The bodies of the next messages."""

    @abc.abstractmethod
    def end_of(self, stream: str) -> str:
        """Waits until the client is told that it is given no more; what it is told."""

    @abc.abstractmethod
    def publish(self, stream: str, body: bytes) -> bool:
        """Whether a message is confirmed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Go away."""


class StreamClient(Client):
    def __init__(self, running: RunningServer) -> None:
        self.peer = StreamPeer(running.ports["stream"]).__enter__()
        self.numbers: dict[str, int] = {}

    def consume(self, stream: str, start: str = "first") -> None:
        number = self.numbers[stream] = len(self.numbers)
        place = OffsetSpecification.first() if start == "first" else OffsetSpecification.last()
        if self.peer.subscribe(stream, number=number, start=place) != ResponseCode.OK:
            self.peer.events.append(f.MetadataUpdate(ResponseCode.STREAM_NOT_AVAILABLE, stream))

    def receive(self, stream: str, count: int) -> list[bytes]:
        found = self.peer.messages(count, number=self.numbers[stream])
        return [body_of(Message.decode(message)) for _, message in found]

    def end_of(self, stream: str) -> str:
        update = self.peer.wait(f.MetadataUpdate, lambda update: update.stream == stream)
        assert update.code == ResponseCode.STREAM_NOT_AVAILABLE
        # The subscription is gone on both sides.
        assert self.peer.code(f.Unsubscribe(self.numbers[stream])) == ResponseCode.SUBSCRIPTION_ID_UNKNOWN
        return ""

    def publish(self, stream: str, body: bytes) -> bool:
        if self.peer.code(f.DeclarePublisher(9, None, stream)) != ResponseCode.OK:
            return False
        self.peer.publish([(0, Message(body).encode())], publisher_id=9)
        assert self.peer.confirmed(1) == [0]
        assert self.peer.code(f.DeletePublisher(9)) == ResponseCode.OK
        return True

    def close(self) -> None:
        self.peer.close()


class Amqp10Client(Client):
    def __init__(self, running: RunningServer) -> None:
        self.opened = amqp10_client.client_of(running.ports["amqp"])
        self.client = self.opened.__enter__()
        self.links: dict[str, Link] = {}

    def consume(self, stream: str, start: str = "first") -> None:
        place = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value(start))
        self.links[stream] = self.client.receiver(f"/queues/{stream}", filters=(place,), credit=100)

    def receive(self, stream: str, count: int) -> list[bytes]:
        return [body_of(received.message) for received in self.client.receive(self.links[stream], count)]

    def end_of(self, stream: str) -> str:
        condition, description = self.client.detached(self.links[stream])
        assert condition == "amqp:internal-error"
        return description or ""

    def publish(self, stream: str, body: bytes) -> bool:
        link = self.client.sender(f"/queues/{stream}")
        if not link.is_attached:
            assert self.client.detached(link)[0] == "amqp:internal-error"
            return False
        (outcome,) = self.client.send(link, Message(body))
        assert isinstance(outcome, Accepted | Rejected)
        return isinstance(outcome, Accepted)

    def close(self) -> None:
        self.client.socket.close()


class Amqp091Client(Client):
    def __init__(self, running: RunningServer) -> None:
        self.client = amqp091_client.Client(running.ports["amqp"]).open(1, 2)
        assert self.client.call(2, m.ConfirmSelect()) == m.ConfirmSelectOk()
        assert self.client.call(1, m.BasicQos(prefetch_count=100)) == m.BasicQosOk()
        self.came: list[amqp091_client.Received] = []

    def consume(self, stream: str, start: str = "first") -> None:
        place = {"x-stream-offset": long_string(start)}
        self.client.say(1, m.BasicConsume(queue=stream, consumer_tag=stream, arguments=place))
        self._next(m.BasicConsumeOk, stream)

    def receive(self, stream: str, count: int) -> list[bytes]:
        return [self._next(m.BasicDeliver, stream).body for _ in range(count)]

    def end_of(self, stream: str) -> str:
        self._next(m.BasicCancel, stream)
        return ""

    def _next(self, kind: type[m.Method], tag: str) -> amqp091_client.Received:
        while True:
            for received in self.came:
                if isinstance(received.method, kind) and received.method.consumer_tag == tag:
                    self.came.remove(received)
                    return received
            self.came.append(self.client.receive(1))

    def publish(self, stream: str, body: bytes) -> bool:
        self.client.publish(2, stream, body)
        answer = self.client.next(2)
        assert isinstance(answer, m.BasicAck | m.BasicNack)
        return isinstance(answer, m.BasicAck)

    def close(self) -> None:
        self.client.socket.close()


class StompClient(Client):
    def __init__(self, running: RunningServer) -> None:
        self.client = stomp_client.Client(running)

    def consume(self, stream: str, start: str = "first") -> None:
        self.client.say(
            f"SUBSCRIBE\nid:{stream}\ndestination:/amq/queue/{stream}\nack:client\nprefetch-count:100\n"
            f"x-stream-offset:{start}\n\n\0"
        )

    def receive(self, stream: str, count: int) -> list[bytes]:
        return [self._of(stream, "MESSAGE").body for _ in range(count)]

    def end_of(self, stream: str) -> str:
        error = self._of(stream, "ERROR")
        assert error.headers["message"] in ("Server cancelled subscription", "internal_error")
        return error.body.decode()

    def publish(self, stream: str, body: bytes) -> bool:
        self.client.say(f"SEND\ndestination:/amq/queue/{stream}\nreceipt:{stream}\n\n{body.decode()}\0")
        answer = self.client.wait(lambda frame: frame.headers.get("receipt-id") == stream)
        return answer.command == "RECEIPT"

    def _of(self, subscription: str, command: str) -> Frame:
        return self.client.wait(
            lambda frame: frame.command == command and frame.headers.get("subscription") == subscription
        )

    def close(self) -> None:
        self.client.socket.close()


PROTOCOLS = {"stream": StreamClient, "amqp10": Amqp10Client, "amqp091": Amqp091Client, "stomp": StompClient}
SAYS_WHY = ("amqp10", "stomp")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("damage")) as server:
        yield server
        assert server.context.connections.totals.failed == 0


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(running: RunningServer, protocol: str) -> Iterator[Callable[[], Client]]:
    """Makes connections that are closed behind the test."""
    opened: list[Client] = []

    def connected() -> Client:
        opened.append(PROTOCOLS[protocol](running))
        return opened[-1]

    yield connected
    for client in opened:
        client.close()


@pytest.fixture
def made(running: RunningServer, request: pytest.FixtureRequest) -> Callable[..., Stream]:
    """Makes a stream of nine chunks with the messages m0 … m8, written by nobody any more; gives it."""

    def make(what: str, **arguments: int) -> Stream:
        name = request.node.name.replace("[", "-").replace("]", "-")[-60:] + what
        return written(Path(running.context.settings.root), name, **arguments)

    return make


def written(root: Path, name: str, **arguments: int) -> Stream:
    stream = Stream.create(stream_folder(root, name), name=name, now_ms=NOW_MS, arguments=StreamArguments(**arguments))
    with Writer.open(stream, now_ms=NOW_MS) as writer:
        for number in range(9):
            writer.append([(Message(b"m%d" % number).encode(), None)], now_ms=NOW_MS)
    return stream


def body_of(message: Message) -> bytes:
    assert message.body is not None
    return message.body.octets() or b""


def bodies(*numbers: int) -> list[bytes]:
    return [b"m%d" % number for number in numbers]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def damage_header(stream: Stream, chunk: int) -> None:
    """Damages the header of the chunk of message `chunk`, wherever it lies."""
    for segment in stream.segments():
        with segment.open() as reader:
            table = reader.chunks()
        for chunk_id, position in zip(table.chunk_id.tolist(), table.position.tolist(), strict=True):
            if chunk_id == chunk:
                flip(segment.segment_path, position)
                return
    raise AssertionError("no such chunk")


def replace_by_folder(stream: Stream, chunk: int) -> None:
    """What the file system does not let anybody read: in place of the index of the segment that begins there."""
    segment = next(each for each in stream.segments() if each.first_chunk_id == chunk)
    segment.index_path.unlink()
    segment.index_path.mkdir()


def test_a_cut_chunk_is_recovered_before_the_first_reader(
    connect: Callable[[], Client], made: Callable[..., Stream]
) -> None:
    stream = made("")
    (segment,) = stream.segments()
    os.truncate(segment.segment_path, segment.segment_path.stat().st_size - 5)
    client = connect()
    client.consume(stream.name)
    assert client.receive(stream.name, 8) == bodies(*range(8))
    assert client.publish(stream.name, b"new")
    assert client.receive(stream.name, 1) == [b"new"]


@pytest.mark.parametrize("size_bytes", [0, FILE_HEAD_BYTES])
def test_an_index_that_lost_its_records_is_recovered_before_the_first_reader(
    connect: Callable[[], Client], made: Callable[..., Stream], size_bytes: int
) -> None:
    stream = made("")
    os.truncate(stream.segments()[0].index_path, size_bytes)
    client = connect()
    client.consume(stream.name, "last")
    assert client.publish(stream.name, b"new")
    assert client.receive(stream.name, 2) == [b"m8", b"new"]


@pytest.mark.parametrize(("damage", "before"), [(damage_header, 4), (replace_by_folder, 6)])
def test_damage_that_a_consumer_comes_to_ends_its_subscription_alone(
    running: RunningServer,
    connect: Callable[[], Client],
    protocol: str,
    made: Callable[..., Stream],
    damage: Callable[[Stream, int], None],
    before: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = made("good"), made("bad", max_segment_chunks=3)
    client, other = connect(), connect()
    for stream in (good, bad):
        # Before there is anything wrong that a writer would find.
        assert client.publish(stream.name, b"m9")
    client.consume(good.name)
    damage(bad, before)
    path = next(each for each in reversed(bad.segments()) if each.first_chunk_id <= before).folder
    with caplog.at_level(logging.ERROR):
        for one in (client, other):
            one.consume(bad.name)
            assert one.receive(bad.name, before) == bodies(*range(before))
            said = one.end_of(bad.name)
            assert (str(path) in said) is (protocol in SAYS_WHY)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and record.exc_info is None
    assert bad.name in record.getMessage() and str(path) in record.getMessage()
    assert client.publish(good.name, b"new")
    assert client.receive(good.name, 11) == [*bodies(*range(10)), b"new"]


def test_a_stream_that_no_writer_can_open_refuses_publishers_and_others_go_on(
    connect: Callable[[], Client], made: Callable[..., Stream]
) -> None:
    good, bad = made("good"), made("bad")
    flip(bad.segments()[0].index_path, FILE_HEAD_BYTES + 4 * INDEX_RECORD_BYTES)
    client = connect()
    client.consume(good.name)
    for number in range(2):
        assert not client.publish(bad.name, b"lost")
        assert client.publish(good.name, b"new%d" % number)
    assert client.receive(good.name, 11) == [*bodies(*range(9)), b"new0", b"new1"]


def test_a_client_that_hears_of_no_cancelled_consumer_loses_the_channel(
    running: RunningServer, made: Callable[..., Stream]
) -> None:
    bad = made("", max_segment_chunks=3)
    damage_header(bad, 4)
    with amqp091_client.Client(running.ports["amqp"], capabilities=()).open(1, 2) as client:
        client.consume(1, bad.name, stream_offset=long_string("first"))
        while isinstance(answer := client.next(1), m.BasicDeliver):
            pass
        assert isinstance(answer, m.ChannelClose) and answer.reply_code == 406
        assert str(bad.path)[:20] in answer.reply_text
        assert client.call(2, m.BasicQos(prefetch_count=1)) == m.BasicQosOk()


def test_other_subscriptions_of_the_stream_and_its_publishers_end_with_the_update(
    running: RunningServer, made: Callable[..., Stream]
) -> None:
    """A metadata update names a stream: the client forgets all that it has on it, and so does the server."""
    bad = made("", max_segment_chunks=3)
    with StreamPeer(running.ports["stream"]) as peer:
        assert peer.code(f.DeclarePublisher(1, None, bad.name)) == ResponseCode.OK
        assert peer.subscribe(bad.name, number=1, start=OffsetSpecification.next()) == ResponseCode.OK
        damage_header(bad, 4)
        assert peer.subscribe(bad.name, number=2) == ResponseCode.OK
        assert len(peer.messages(4, number=2)) == 4
        peer.wait(f.MetadataUpdate)
        assert peer.code(f.DeletePublisher(1)) == ResponseCode.PUBLISHER_DOES_NOT_EXIST
        for number in (1, 2):
            assert peer.code(f.Unsubscribe(number)) == ResponseCode.SUBSCRIPTION_ID_UNKNOWN


def test_lists_show_a_damaged_stream_with_its_error(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers={"amqp": amqp_handler()}, stream=[{"name": "good"}]) as running:
        root = Path(running.context.settings.root)
        foreign, tracked = written(root, "foreign"), written(root, "tracked")
        (foreign.path / "stream.json").unlink()
        damage_header(foreign, 8)
        with Writer.open(tracked, now_ms=NOW_MS) as writer:
            writer.store_offset("reader", 3)
            writer.append([(b"last", None)], now_ms=NOW_MS)
        segment = tracked.segments()[0].segment_path
        # The first byte of the trailer, a record of eight bytes with the name of the reader.
        flip(segment, segment.stat().st_size - (2 + len("reader") + 8))
        rows = {row["name"]: row for row in listed(running, "streams")}
        assert set(rows) == {"foreign", "good", "tracked"}
        assert f"{foreign.segments()[0].segment_path}, byte " in rows["foreign"]["error"]
        assert "error" not in rows["good"] and rows["good"]["messages"] == 0
        errors = {row["stream"]: row["error"] for row in listed(running, "offsets")}
        assert set(errors) == {"foreign", "tracked"}
        assert f"{segment}, byte " in errors["tracked"] and f"{foreign.path}/" in errors["foreign"]
        assert (
            "headgate stream repair tracked"
            in {row["name"]: row for row in listed(running, "streams")}["tracked"]["error"]
        )
        for path, expected in ("/health", 503), ("/health/ready", 200), ("/health/live", 200):
            status, text = request(running, path)
            assert status == expected
            if path != "/health/live":
                assert "'foreign' is damaged" in text and "'tracked' is damaged" in text and "good" not in text
        assert metrics(running)["headgate_damaged_streams"] == 2
        assert 'headgate_stream_next_offset{stream="good"}' in metrics(running)
        with amqp10_client.client_of(running.ports["amqp"]) as client:
            management = amqp10_client.Management(client)
            status, said = management.request("GET", "/queues/foreign")
            assert status == 500 and str(foreign.path) in said
            assert management.request("GET", "/queues/good")[0] == 200


def test_a_damaged_stream_of_the_configuration_keeps_no_server_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = written(tmp_path / "data", "bad")
    (bad.path / "stream.json").write_bytes(b"{")
    with running_server(tmp_path, handlers={}, stream=[{"name": "bad"}, {"name": "good"}]) as running:
        rows = {row["name"]: row for row in listed(running, "streams")}
        assert "stream.json" in rows["bad"]["error"] and rows["good"]["messages"] == 0
    assert [record.levelno for record in caplog.records if "bad" in record.getMessage()] == [logging.ERROR]


def amqp_handler() -> type:
    from headgate.server.amqp import AmqpHandler

    return AmqpHandler


def test_a_damaged_queue_is_told_to_its_receiver_its_sender_and_in_every_list(tmp_path: Path) -> None:
    with running_server(tmp_path) as running:
        entities = ServedEntities(running)
        for name in ("bad", "good"):
            entities.queue(name)
            with amqp10_client.client_of(running.ports["amqp"], **SERVICE_BUS) as client:
                for number in range(4):
                    assert isinstance(client.send(client.sender(name), Message(b"%d" % number))[0], Accepted)
    damage_chunk(Stream.open(stream_folder(tmp_path / "data", "bad")), 2, 60)
    with running_server(tmp_path) as running:
        with amqp10_client.client_of(running.ports["amqp"], **SERVICE_BUS) as client:
            good, bad = peek_lock(client, "good"), peek_lock(client, "bad")
            assert bodies_of(client, good, 4) == [b"0", b"1", b"2", b"3"]
            assert bodies_of(client, bad, 2) == [b"0", b"1"]
            condition, said = client.detached(bad)
            assert condition == "amqp:internal-error" and "headgate stream repair bad" in (said or "")
            assert client.detached(client.sender("bad"))[0] == "amqp:internal-error"
            assert isinstance(client.send(client.sender("good"), Message(b"4"))[0], Accepted)
        for what, key in ("streams", "name"), ("topics", "name"), ("subscriptions", "topic"):
            errors = {row[key]: row.get("error") for row in listed(running, what)}
            assert "headgate stream repair bad" in errors["bad"], what
            assert errors["good"] is None
        assert request(running, "/health")[0] == 503
