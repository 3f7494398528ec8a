"""Folders of streams go from RabbitMQ to Headgate and back, with everything that is in them.

Runs where a RabbitMQ may be started and stopped: HEADGATE_RABBITMQ_LAB has the commands for both, the folder of its
streams and its port, such as `start=/lab/up.sh,stop=/lab/down.sh,streams=/lab/data/stream,port=5552`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.client import Client
from headgate.message import Message
from interop.servers import ServerProcess

LAB = "HEADGATE_RABBITMQ_LAB"
VALUES = ("emea", "amer", "apac")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(LAB not in os.environ, reason=f"{LAB} does not say how to start a RabbitMQ"),
]


@dataclass(slots=True)
class Lab:
    """A RabbitMQ that is started and stopped as a test wants it."""

    start: str
    stop: str
    streams: str
    port: str
    is_running: bool = False

    def turn(self, *, on: bool) -> None:
        """Start it or stop it; again is harmless."""
        if on != self.is_running:
            command = self.start if on else self.stop
            subprocess.run([command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
            self.is_running = on

    def client(self) -> Client:
        return Client.connect(f"localhost:{self.port}", user="guest", password="guest")

    def folder(self, stream: str) -> Path:
        """Where RabbitMQ keeps a stream."""
        (found,) = Path(self.streams).glob(f"__{stream}_*")
        return found


@pytest.fixture
def lab() -> Iterator[Lab]:
    given = Lab(**dict(entry.split("=", 1) for entry in os.environ[LAB].split(",")))
    given.turn(on=True)
    yield given
    given.turn(on=False)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path)
    yield server
    server.close()


def ours(process: ServerProcess) -> Client:
    return Client.connect(f"localhost:{process.start().stream}", user="guest", password="guest")


def publish(client: Client, stream: str, first: int, count: int) -> None:
    """Messages `first` to `first + count`, by one name; every tenth ends a chunk."""
    with client.publisher(stream, name="producer") as publisher:
        for number in range(first, first + count, 10):
            value = VALUES[number // 10 % 3]
            for one in range(number, number + 10):
                publisher.send(Message(str(one).encode(), application_properties={"n": one}), filter_value=value)
            publisher.flush()


def read(client: Client, stream: str, last: int, **options: object) -> list[int]:
    """The messages up to the last one, in order; a chunk with a stored offset takes an offset, too."""
    numbers: list[int] = []
    before = -1
    with client.consumer(stream, start="first", **options) as consumer:  # type: ignore[arg-type]
        while not numbers or numbers[-1] != last:
            received = consumer.next(30)
            assert received is not None, numbers[-3:]
            offset, message = received
            assert message.body is not None
            numbers.append(int(b"".join(message.body.parts)))
            assert before < offset
            assert numbers[-1] <= offset
            before = offset
    return numbers


def check(client: Client, stream: str, messages: int) -> None:
    """Everything is there, filter values skip, the publisher's sequence and the stored offset are known."""
    assert read(client, stream, messages - 1) == list(range(messages))
    emea = [number for number in range(messages) if number // 10 % 3 == 0]
    assert read(client, stream, messages - 1, filter_values=["emea"]) == emea
    assert client.query_offset(stream, "reader") == 123
    publish(client, stream, messages, 10)
    assert read(client, stream, messages + 9) == list(range(messages + 10))


def test_a_folder_of_rabbitmq_goes_on_with_us(lab: Lab, process: ServerProcess) -> None:
    with lab.client() as client:
        if client.has_stream("to-us"):
            client.delete_stream("to-us")
        client.create_stream("to-us")
        publish(client, "to-us", 0, 310)
        client.store_offset("to-us", "reader", 123)
        sequence = client.last_sequence("to-us", "producer")
        assert client.query_offset("to-us", "reader") == 123
    lab.turn(on=False)
    copied = process.root / "streams" / "to-us"
    shutil.copytree(lab.folder("to-us"), copied)
    subprocess.run([sys.executable, "-m", "headgate.cli", "stream", "adopt", str(copied)], check=True)
    with ours(process) as client:
        assert client.last_sequence("to-us", "producer") == sequence
        check(client, "to-us", 310)


def test_a_folder_of_ours_goes_on_with_rabbitmq(lab: Lab, process: ServerProcess) -> None:
    with ours(process) as client:
        client.create_stream("from-us")
        publish(client, "from-us", 0, 310)
        client.store_offset("from-us", "reader", 123)
        sequence = client.last_sequence("from-us", "producer")
        assert client.query_offset("from-us", "reader") == 123
    assert process.stop() == 0
    with lab.client() as client:
        if client.has_stream("from-us"):
            client.delete_stream("from-us")
        client.create_stream("from-us")
    lab.turn(on=False)
    folder = lab.folder("from-us")
    owner = folder.stat()
    for file in [*folder.glob("*.segment"), *folder.glob("*.index")]:
        file.unlink()
    for file in sorted((process.root / "streams" / "from-us").glob("*")):
        if file.suffix in (".segment", ".index"):
            os.chown(shutil.copy(file, folder), owner.st_uid, owner.st_gid)
    lab.turn(on=True)
    with lab.client() as client:
        assert client.last_sequence("from-us", "producer") == sequence
        check(client, "from-us", 310)
