"""A server process that is killed under load, that finds no room, that many clients and wrong ones come to."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.client import Client, Retry
from headgate.errors import HeadgateError
from headgate.message import Message
from interop.servers import Served, ServerProcess
from waiting import LIMIT_S, eventually

pytestmark = pytest.mark.faults

STREAM = "orders"
RETRY = Retry(first_s=0.05, most_s=0.2, give_up_after_s=LIMIT_S)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path, {"timeouts": {"login_failure_s": 0.1, "linger_s": 1.0}})
    yield server
    server.close()


def connect(served: Served) -> Client:
    return Client.connect(f"127.0.0.1:{served.stream}", user="guest", password="guest", retry=RETRY)


def body_of(message: Message) -> bytes:
    assert message.body is not None
    return b"".join(message.body.parts)


def everything(served: Served, stream: str, last: bytes) -> list[bytes]:
    """The bodies of a stream up to one that is there."""
    bodies: list[bytes] = []
    with connect(served) as client, client.consumer(stream, start="first") as consumer:
        while not bodies or bodies[-1] != last:
            received = consumer.next(LIMIT_S)
            assert received is not None, f"after {bodies[-1:]} nothing came, {last!r} is missing"
            bodies.append(body_of(received[1]))
    return bodies


def kill_and_start_again(process: ServerProcess, served: Served, progress: Callable[[], int], *, times: int) -> None:
    """kill -9, each time after the load has moved on."""
    for _ in range(times):
        before = progress()
        eventually(lambda before=before: progress() > before + 2000, lambda: f"stuck at {progress()}")
        process.kill()
        assert process.start() == served


def test_our_publisher_and_consumer_go_on_after_kill_9(process: ServerProcess) -> None:
    """Every message once and in order, for the publisher that repeats and for the consumer that was there all along."""
    served = process.start()
    received: list[tuple[int, bytes]] = []
    sent = 0
    moved = threading.Condition()
    stop = threading.Event()
    failures: list[BaseException] = []

    def is_followed() -> bool:
        return sent <= len(received) + 5000 or stop.is_set()

    def publish() -> None:
        nonlocal sent
        with connect(served) as client, client.publisher(STREAM, name="producer") as publisher:
            while not stop.is_set():
                publisher.send_many(Message(str(number).encode()) for number in range(sent, sent + 100))
                sent += 100
                # The consumer is the slower one; what it has not seen is no better test for being more.
                with moved:
                    moved.wait_for(is_followed, LIMIT_S)
            publisher.send(Message(b"last"))
            publisher.flush()

    def consume() -> None:
        with connect(served) as client, client.consumer(STREAM, start="first") as consumer:
            while not received or received[-1][1] != b"last":
                found = consumer.next(LIMIT_S)
                assert found is not None, f"nothing came after {received[-1:]}"
                with moved:
                    received.append((found[0], body_of(found[1])))
                    moved.notify()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            raise

    with connect(served) as client:
        client.create_stream(STREAM)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in (publish, consume)]
    for thread in threads:
        thread.start()
    try:
        kill_and_start_again(process, served, lambda: len(received), times=2)
    finally:
        with moved:
            stop.set()
            moved.notify()
        for thread in threads:
            thread.join(LIMIT_S)
    assert failures == []
    expected = [str(number).encode() for number in range(sent)] + [b"last"]
    assert [body for _, body in received] == expected
    assert [offset for offset, _ in received] == list(range(len(expected)))
    assert everything(served, STREAM, b"last") == expected


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_named_producer_of_rstream_repeats_what_was_not_confirmed_after_kill_9(process: ServerProcess) -> None:
    from interop.named_producer import NamedProducer

    served = process.start()
    with connect(served) as client:
        client.create_stream(STREAM)
    producer = NamedProducer(served.stream, STREAM)
    try:
        kill_and_start_again(process, served, lambda: len(producer.confirmed), times=2)
    finally:
        producer.stop()
    assert everything(served, STREAM, producer.bodies[-1]) == producer.bodies


def test_a_full_disk_refuses_publishers_keeps_readers_and_is_recovered_from(tmp_path: Path) -> None:
    """The limit of the size of files stands for the disk: a write beyond it fails as on a full one."""
    room = 2_000_000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    process = ServerProcess(tmp_path, prepare=limit)
    served = process.start()
    try:
        body = b"x" * 10_000
        with connect(served) as client:
            client.create_stream(STREAM)
            publisher = client.publisher(STREAM)

            def fill() -> None:
                for _ in range(2 * room // len(body)):
                    publisher.send(Message(body))
                    publisher.flush()

            with pytest.raises(HeadgateError):
                fill()
            publisher.abandon()
            offsets = [offset for offset, _ in available(client)]
            assert offsets == list(range(len(offsets)))
            assert 0.8 * room < len(offsets) * len(body) < room
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            with client.publisher(STREAM) as again:
                again.send(Message(b"there is room again"))
                again.flush()
            received = list(available(client))
        assert [offset for offset, _ in received] == list(range(len(offsets) + 1))
        assert received[-1][1] == b"there is room again"
        assert process.stop() == 0
    finally:
        process.close()


def available(client: Client, stream: str = STREAM) -> Iterator[tuple[int, bytes]]:
    """What a stream has now."""
    statistics = client.statistics(stream)
    behind = client.resolve_offset(stream, _next())
    assert statistics.first_chunk_id == 0
    with client.consumer(stream, start="first") as consumer:
        for _ in range(behind):
            received = consumer.next(LIMIT_S)
            assert received is not None
            yield received[0], body_of(received[1])


def _next() -> Any:
    from headgate.log import OffsetSpecification

    return OffsetSpecification.next()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def anonymous_bytes(pid: int) -> int:
    """Memory that is the process's own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def test_a_thousand_idle_and_two_hundred_active_connections(process: ServerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip(f"the limit of descriptors here is {hard}, 3 000 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    served = process.start()
    with connect(served) as client:
        client.create_stream(STREAM)
        with client.publisher(STREAM) as publisher:
            publisher.send(Message(b"warm"))
        before, memory = descriptors(process.pid), anonymous_bytes(process.pid)
        with contextlib.ExitStack() as idle:
            for _ in range(1000):
                idle.enter_context(connect(served))
            with contextlib.ExitStack() as active:
                clients = [active.enter_context(connect(served)) for _ in range(100)]
                consumers = [active.enter_context(one.consumer(STREAM, start="next")) for one in clients]
                # A publisher and a consumer have a connection each, beside their client's own.
                publishers = [active.enter_context(one.publisher(STREAM)) for one in clients]
                for number, publisher in enumerate(publishers):
                    publisher.send(Message(str(number).encode()))
                for publisher in publishers:
                    publisher.flush()
                everyone = sorted(str(number).encode() for number in range(100))
                for consumer in consumers:
                    received = [consumer.next(LIMIT_S) for _ in publishers]
                    assert sorted(body_of(found[1]) for found in received if found is not None) == everyone
                assert descriptors(process.pid) < before + 1000 + 300 + 50
                assert anonymous_bytes(process.pid) - memory < 150_000_000
        eventually(lambda: descriptors(process.pid) <= before, lambda: f"{descriptors(process.pid)}, {before} before")


def test_a_low_first_limit_of_descriptors_is_no_limit_of_connections(process: ServerProcess) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    process.prepare = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    served = process.start()
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(connect(served)) for _ in range(100)]
        clients[-1].create_stream(STREAM)


BEGINNINGS = {
    "amqp": (
        b"",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00\x00\x00",
    ),
    "stream": (b"", b"\x00\x00\x00\x08\x00\x11\x00\x01", b"\x00\x10\x00\x00", b"\x7f\xff\xff\xff"),
    "stomp": (b"", b"CONNECT\naccept-version:1.2\nhost:/\n", b"STOMP\nlogin:guest\npasscode:guest\n\n\x00", b"SEND\n"),
}


def test_wrong_and_truncated_frames_on_every_port_leave_nothing_behind(process: ServerProcess) -> None:
    served = process.start()
    chance = random.Random(11)

    def throw(protocol: str) -> None:
        data = chance.choice(BEGINNINGS[protocol]) + chance.randbytes(chance.choice((0, 1, 9, 300, 50_000)))
        with (
            socket.create_connection(("127.0.0.1", served.ports[protocol]), LIMIT_S) as peer,
            contextlib.suppress(ConnectionError),
        ):
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass

    def rounds(count: int) -> None:
        for _ in range(count):
            for protocol in BEGINNINGS:
                throw(protocol)

    rounds(20)
    before, memory = descriptors(process.pid), anonymous_bytes(process.pid)
    rounds(100)
    eventually(lambda: descriptors(process.pid) <= before, lambda: f"{descriptors(process.pid)}, {before} before")
    assert anonymous_bytes(process.pid) < memory + 16_000_000
    with connect(served) as client:
        client.create_stream(STREAM)
        with client.publisher(STREAM) as publisher:
            publisher.send(Message(b"still served"))
    assert everything(served, STREAM, b"still served") == [b"still served"]
