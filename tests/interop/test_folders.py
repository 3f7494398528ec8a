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

import numpy as np
import pytest

from headgate.client import Client
from headgate.clock import now_ms
from headgate.log import (
    FilterValues,
    GivenUp,
    OffsetSpecification,
    Output,
    StagedFile,
    Stream,
    StreamArguments,
    Writer,
    commit_batch,
    repair_stream,
    stream_folder,
)
from headgate.message import Message
from interop.servers import ServerProcess
from log_streams import damage_chunk, read_messages

LAB = "HEADGATE_RABBITMQ_LAB"
VALUES = ("emea", "amer", "apac")
BEGIN_MS = now_ms() - 3_600_000

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
    hand_over(lab, {"from-us": process.root / "streams" / "from-us"})
    with lab.client() as client:
        assert client.last_sequence("from-us", "producer") == sequence
        check(client, "from-us", 310)


def test_segments_that_were_staged_files_go_on_with_rabbitmq(lab: Lab, tmp_path: Path) -> None:
    """The room at their head is the trailer of a snapshot, which RabbitMQ has to pass over."""
    folder = stream_folder(tmp_path, "staged")
    arguments = StreamArguments(max_segment_size_bytes=2 << 20)
    stream = Stream.create(folder, name="staged", now_ms=BEGIN_MS, arguments=arguments)
    values = [VALUES[number // 10 % 3].encode() for number in range(310)]
    with Writer.open(stream, now_ms=BEGIN_MS) as writer:
        rows = [(padded(number), values[number]) for number in range(10)]
        writer.append(rows, now_ms=BEGIN_MS, publisher="producer", sequences=range(10))
        writer.store_offset("reader", 123)
        writer.flush_offsets(now_ms=BEGIN_MS)
    file = StagedFile(tmp_path, query="q", name="part", filter_size_bytes=16, max_messages=10, max_file_bytes=2 << 20)
    messages = [padded(number) for number in range(10, 310)]
    lengths = np.array([len(message) for message in messages])
    data = np.frombuffer(b"".join(messages), dtype=np.uint8)
    file.add(data, np.cumsum(lengths) - lengths, lengths, FilterValues.of(values[10:]))
    output = Output("streams/staged", stream.identity, file.finish(durable=False))
    commit_batch(tmp_path, query="q", batch=0, outputs=[output], now_ms=BEGIN_MS, durable=False)
    assert [segment.segment_path.stat().st_size > 1 << 20 for segment in stream.segments()] == [False, True, True]

    hand_over(lab, {"staged": folder})
    with lab.client() as client:
        assert client.last_sequence("staged", "producer") == 9
        check(client, "staged", 310)


def padded(number: int) -> bytes:
    """A message of twelve kilobytes."""
    return Message(b"%d" % number + b" " * 12_000, application_properties={"n": number}).encode()


def hand_over(lab: Lab, folders: dict[str, Path]) -> None:
    """Put the files of streams in place of RabbitMQ's, and start it again."""
    lab.turn(on=True)
    with lab.client() as client:
        for stream in folders:
            if client.has_stream(stream):
                client.delete_stream(stream)
            client.create_stream(stream)
    lab.turn(on=False)
    for stream, ours in folders.items():
        folder = lab.folder(stream)
        owner = folder.stat()
        for file in [*folder.glob("*.segment"), *folder.glob("*.index")]:
            file.unlink()
        for file in sorted(ours.glob("*")):
            if file.suffix in (".segment", ".index"):
                os.chown(shutil.copy(file, folder), owner.st_uid, owner.st_gid)
    lab.turn(on=True)


def written(folder: Path, *, size_bytes: int = 500_000_000, initial_offset: int = 0) -> Stream:
    """Thirty chunks of ten messages, a second apart; each message says its offset."""
    arguments = StreamArguments(max_segment_size_bytes=size_bytes, initial_offset=initial_offset)
    stream = Stream.create(folder, name=folder.name, now_ms=BEGIN_MS, arguments=arguments)
    with Writer.open(stream, now_ms=BEGIN_MS) as writer:
        for row in range(30):
            numbers = range(initial_offset + 10 * row, initial_offset + 10 * row + 10)
            writer.append(
                [(Message(b"%d" % number).encode(), None) for number in numbers], now_ms=BEGIN_MS + 1000 * row
            )
    return stream


def test_rabbitmq_reads_what_was_repaired_as_we_do(lab: Lab, tmp_path: Path) -> None:
    given_up = written(tmp_path / "given-up", size_bytes=4000)
    for segment_number in (0, -1):
        damage_chunk(given_up, 3, 100, segment_number=segment_number)
    repaired = repair_stream(given_up, now_ms=BEGIN_MS, skip_damaged=True)
    gaps = [each.first_offset for each in repaired if isinstance(each, GivenUp)]
    short = written(tmp_path / "short-index")
    (index,) = short.path.glob("*.index")
    whole = index.read_bytes()
    os.truncate(index, len(whole) // 2)
    Writer.open(short, now_ms=BEGIN_MS).close()
    assert index.read_bytes() == whole
    later = written(tmp_path / "begins-later", initial_offset=1000)
    hand_over(lab, {stream.path.name: stream.path for stream in (given_up, short, later)})

    for stream, first in ((given_up, 0), (short, 0), (later, 1000)):
        name = stream.path.name
        offsets = [offset for offset, _ in read_messages(stream)]
        missing = {number for gap in gaps for number in range(gap, gap + 10)} if stream is given_up else set()
        assert offsets == [number for number in range(first, first + 300) if number not in missing]
        with lab.client() as client:
            for start in [first, *(gap + inside for gap in gaps for inside in (-1, 0, 5, 10))]:
                there = [number for number in offsets if number >= start]
                assert taken(client, name, OffsetSpecification.offset(start), len(there)) == there
                since = OffsetSpecification.timestamp(BEGIN_MS + 1000 * ((start - first) // 10))
                there = [number for number in offsets if number >= start // 10 * 10]
                assert taken(client, name, since, len(there)) == there
            with client.publisher(name) as publisher:
                publisher.send(Message(b"%d" % (first + 300)))
            assert taken(client, name, OffsetSpecification.first(), len(offsets) + 1) == [*offsets, first + 300]


def taken(client: Client, stream: str, start: OffsetSpecification, count: int) -> list[int]:
    """The offsets of so many messages, each of which says its own."""
    found: list[int] = []
    with client.consumer(stream, start=start) as consumer:
        while len(found) < count:
            received = consumer.next(30)
            assert received is not None, found[-3:]
            offset, message = received
            assert message.body is not None
            assert int(b"".join(message.body.parts)) == offset
            found.append(offset)
    return found
