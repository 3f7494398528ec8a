"""A reader far behind, one at the tail and one that does not read, on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate import Message
from headgate.client import Client, ServerAddress
from headgate.client.connection import Connection
from headgate.log import OffsetSpecification
from headgate.protocols.stream import frames
from headgate.server.metrics import resident_bytes
from server.running import RunningServer, running_server
from waiting import LIMIT_S

MESSAGES = 30_000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, stream=[{"name": "orders"}]) as running:
        with connect(running) as client, client.publisher("orders") as publisher:
            publisher.send_many(
                Message(bytes(200), application_properties={"number": number}) for number in range(MESSAGES)
            )
        yield running


def connect(running: RunningServer) -> Client:
    return Client.connect(f"127.0.0.1:{running.ports['stream']}")


def test_a_reader_far_behind_and_one_at_the_tail_get_what_is_theirs(running: RunningServer) -> None:
    found: list[int] = []
    rounds = 0
    stop = threading.Event()

    def read_all_again_and_again() -> None:
        nonlocal rounds
        with connect(running) as client:
            while not stop.is_set():
                reader = client.consumer("orders", start="first", filter="number >= 29900")
                with reader:
                    found[:] = [reader.next(LIMIT_S)[0] for _ in range(100)]  # type: ignore[index]
                rounds += 1

    reading = threading.Thread(target=read_all_again_and_again)
    with connect(running) as client, client.publisher("orders") as publisher:
        tail = client.consumer("orders", start="next")
        publisher.send(Message(b"first"))
        assert tail.next(LIMIT_S) is not None
        reading.start()
        for number in range(30):
            publisher.send(Message(str(number).encode()))
            publisher.flush()
            received = tail.next(LIMIT_S)
            assert received is not None and received[0] == MESSAGES + 1 + number
        stop.set()
        reading.join(LIMIT_S)
        tail.close()
    assert rounds > 0 and found == list(range(29_900, 30_000))


def test_a_reader_that_stops_reading_costs_no_memory_and_delays_nobody(running: RunningServer) -> None:
    address = ServerAddress("127.0.0.1", running.ports["stream"])
    before = resident_bytes()
    idle = [Connection(address, timeout_s=LIMIT_S, heartbeat_s=0) for _ in range(10)]
    for connection in idle:
        connection.ask(frames.Subscribe(0, "orders", offset=OffsetSpecification.first(), credit=60_000))
    with connect(running) as client:
        reader = client.consumer("orders", start="first")
        assert [reader.next(LIMIT_S)[0] for _ in range(MESSAGES)] == list(range(MESSAGES))  # type: ignore[index]
        reader.close()
    assert resident_bytes() - before < 64 * 1024 * 1024
    for connection in idle:
        connection.close()
