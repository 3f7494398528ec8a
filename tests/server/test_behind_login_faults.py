"""Clients that have logged in and opened things, and then send what is broken: only they notice, and nothing stays."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.broker import broker
from headgate.protocols.stream import frames as f
from headgate.server.metrics import open_descriptors, resident_bytes
from server.garbage import CORPORA, HUGE, Corpus, answer, garbage, opened, throw
from server.running import RunningServer, running_server
from stream_peer import StreamPeer
from waiting import LIMIT_S, eventually

pytestmark = pytest.mark.faults

ROUNDS = 38
"""Broken clients of one protocol."""
LONG_ROUNDS = 4000
_MOST_ALLOCATED_BYTES = 1 << 30
_KEPT_BYTES = 32 << 20
_CLAIMED_BYTES = 8 << 20


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("garbage")
    timeouts = {"linger_s": 10 * LIMIT_S, "handshake_s": LIMIT_S}
    with pytest.MonkeyPatch.context() as patched:
        # Broken names make streams, whose writers are given back when nobody has used them for a while.
        patched.setattr(broker, "WRITER_IDLE_MS", 100)
        with running_server(
            folder,
            listeners={"servicebus": 0},
            timeouts=timeouts,
            limits={"login_failures_a_minute": 10**6},
            rocketmq={"client_silence_s": 0.1},
        ) as running:
            yield running


@pytest.fixture(params=list(CORPORA))
def corpus(request: pytest.FixtureRequest, running: RunningServer) -> Corpus:
    listener = "amqp" if request.param.startswith("amqp") else request.param
    return CORPORA[request.param](running.ports[listener])


class Bystander:
    """A client that does nothing wrong, on the server while others do: what it publishes comes back to it."""

    def __init__(self, running: RunningServer) -> None:
        self.peer = StreamPeer(running.ports["stream"]).__enter__()
        assert self.peer.code(f.Create("bystander")) in (1, 5)
        assert self.peer.code(f.DeclarePublisher(0, None, "bystander")) == 1
        assert self.peer.subscribe("bystander") == 1
        self.count = 0

    def goes_on(self) -> None:
        body = b"number %d" % self.count
        self.peer.publish([(self.count, body)])
        assert self.peer.confirmed(1) == [self.count]
        found = self.peer.messages(1)
        while found[-1][1] != body:
            found = self.peer.messages(1)
        self.count += 1


@pytest.fixture
def bystander(running: RunningServer) -> Iterator[Bystander]:
    bystander = Bystander(running)
    yield bystander
    bystander.peer.close()
    running.until(lambda: not len(running.context.connections))


def virtual_bytes(name: str) -> int:
    """`VmPeak` or `VmSize` of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


def held(corpus: Corpus) -> int:
    """Open descriptors; of sockets only where broken names make entities, which have files of their own."""
    if not corpus.is_http:
        return open_descriptors()
    links = (os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    return sum(link.startswith("socket:") for link in links)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def idles(running: RunningServer) -> bool:
    """Whether the server's thread uses almost no processor time for half a second."""
    before = running.call(time.thread_time)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.5), running.loop).result(LIMIT_S)
    return running.call(time.thread_time) - before < 0.05


def attack(
    running: RunningServer,
    corpus: Corpus,
    bystander: Bystander,
    caplog: pytest.LogCaptureFixture,
    seed: int,
    count: int,
) -> None:
    """So many broken clients one after another, each with a seed of its own."""
    port, totals = running.ports[corpus.listener], running.context.connections.totals
    failed = totals.failed
    for number in range(seed, seed + count):
        chance = random.Random(number)
        data = garbage(chance, corpus)
        reset = chance.random() < 0.1
        said = throw(port, corpus, data, reset=reset)
        case = f"seed {number} sends {data[:2000]!r}"
        assert not errors(caplog), f"{case}: {errors(caplog)}"
        assert totals.failed == failed, case
        assert reset or not corpus.torn(said), f"{case}; the answer ends in {corpus.torn(said)[:200]!r}"
        if number % 20 == 0:
            bystander.goes_on()
    running.until(lambda: len(running.context.connections) == len(running.context.broker.sessions) == 1)


def withstands(
    running: RunningServer,
    corpus: Corpus,
    bystander: Bystander,
    caplog: pytest.LogCaptureFixture,
    seed: int,
    rounds: int,
) -> None:
    caplog.set_level(logging.ERROR)
    attack(running, corpus, bystander, caplog, seed, rounds // 3)
    descriptors, memory, peak = held(corpus), resident_bytes(), virtual_bytes("VmPeak")
    attack(running, corpus, bystander, caplog, seed + rounds // 3, rounds - rounds // 3)
    assert virtual_bytes("VmPeak") < peak + _MOST_ALLOCATED_BYTES, f"seed {seed}: too much was allocated"
    assert resident_bytes() < memory + _KEPT_BYTES, f"seed {seed}: memory stays"
    running.until(lambda: held(corpus) <= descriptors)
    assert not running.call(running.context.listeners.ended)
    assert not running.context.listeners.restarts.total(), f"seed {seed}: {running.context.listeners.restarts}"
    eventually(lambda: idles(running), lambda: f"seed {seed}: the server is busy, and nobody asks anything")
    bystander.goes_on()
    opened(running.ports[corpus.listener], corpus)[0].close()


def test_broken_frames_end_their_connection_and_nothing_else(
    running: RunningServer, corpus: Corpus, bystander: Bystander, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    withstands(running, corpus, bystander, caplog, seed, ROUNDS)


@pytest.mark.long
def test_many_broken_frames_end_their_connection_and_nothing_else(
    running: RunningServer, corpus: Corpus, bystander: Bystander, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    withstands(running, corpus, bystander, caplog, seed, LONG_ROUNDS)


CLAIMS: dict[str, list[tuple[str, bytes]]] = {
    "stream": [
        (f"{what} of {size}", head + struct.pack(">I", size) + tail)
        for size in HUGE
        for what, head, tail in (
            ("a frame", b"", b"\x00\x02\x00\x01"),
            ("a list of messages", b"\x00\x00\x00\x09\x00\x02\x00\x01\x00", b""),
            ("a message", b"\x00\x00\x00\x15\x00\x02\x00\x01\x00\x00\x00\x00\x01" + bytes(8), b""),
            ("a list of streams", b"\x00\x00\x00\x0c\x00\x0f\x00\x01\x00\x00\x00\x63", b""),
            ("a list of arguments", b"\x00\x00\x00\x0f\x00\x0d\x00\x01\x00\x00\x00\x63\x00\x01z", b""),
            ("an answer to SASL", b"\x00\x00\x00\x13\x00\x13\x00\x01\x00\x00\x00\x63\x00\x05PLAIN", b""),
        )
    ],
    "amqp091": [
        (f"{what} of {size}", head + struct.pack(">I", size) + tail)
        for size in HUGE
        for what, head, tail in (
            ("a frame", b"\x01\x00\x01", b""),
            ("a table", b"\x01\x00\x01\x00\x00\x00\x10\x00\x32\x00\x0a\x00\x00\x04oths\x02", b"\xce"),
            ("a body", b"\x01\x00\x01\x00\x00\x00\x09\x00\x3c\x00\x28\x00\x00\x00\x00\x00\xce"
             b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00\x00\x00\x00\x00", b"\x00\x00\xce"),
        )
    ],
    "amqp10": [
        (f"{what} of {size}", struct.pack(">I", 8 + len(head) + 4 + len(tail)) + b"\x02\x00\x00\x00" + head
         + struct.pack(">I", size) + tail)
        for size in HUGE
        for what, head, tail in (
            ("a list of fields", b"\x00\x53\x12\xd0", b"\x00\x00\x00\x01\x40"),
            ("a list with so many fields", b"\x00\x53\x12\xd0\x00\x00\x00\x05", b"\x40"),
            ("a text", b"\x00\x53\x12\xc0\x07\x03\xb1", b""),
            ("a map", b"\x00\x53\x11\xc0\x11\x08\x40\x40\x40\x40\x40\x40\x40\xd1\x00\x00\x00\x04", b""),
            ("an array of so many nulls", b"\x00\x53\x11\xc0\x10\x06\x40\x40\x40\x40\x40\xf0\x00\x00\x00\x05", b"\x40"),
        )
    ]
    + [(f"a frame of {size}", struct.pack(">I", size) + b"\x02\x00\x00\x00") for size in HUGE],
    "stomp": [
        (f"a body of {size}", f"SEND\ndestination:/queue/x\ncontent-length:{size}\n\nx".encode())
        for size in (*HUGE, 10**17)
    ],
    "rocketmq_classic": [
        (f"a message of {what} of {size}", data)
        for size in HUGE
        for what, data in (
            ("a frame", struct.pack(">II", size, 10) + b"{}"),
            ("a header", struct.pack(">II", 40, min(size, 2**24 - 1)) + bytes(36)),
            ("a text", struct.pack(">II", 25, 1 << 24 | 21) + bytes(13) + struct.pack(">I", size) + bytes(4)),
            ("fields", struct.pack(">II", 25, 1 << 24 | 21) + bytes(17) + struct.pack(">I", size)),
        )
    ],
    "rocketmq": [
        (f"{what} of {size}", head + struct.pack(">I", size)[-width:] + tail)
        for size in HUGE
        for what, head, width, tail in (
            ("a frame", b"", 3, b"\x00\x01\x00\x00\x00\x03"),
            ("a window", b"\x00\x00\x04\x08\x00\x00\x00\x00\x00", 4, b""),
            ("frames", b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05", 4, b""),
        )
    ],
    **{
        name: [
            (f"{what} of {size}", f"PUT /{what} HTTP/1.1\r\nHost: x\r\n{field}: {size}\r\n\r\nx".encode())
            for size in (*HUGE, 10**25)
            for what, field in (("body", "Content-Length"), ("chunk", "Transfer-Encoding"))
        ]
        for name in ("http", "servicebus")
    },
}  # fmt: skip
TOLD = {
    "stream": lambda said: b"\x00\x16\x00\x01" in said[-60:],
    "amqp091": lambda said: b"\x00\x0a\x00\x32" in said or b"\x00\x14\x00\x28" in said,
    "amqp10": lambda said: b"amqp:" in said,
    "stomp": lambda said: b"ERROR" in said,
    "rocketmq_classic": lambda said: False,
    "rocketmq": lambda said: b"\x07\x00\x00\x00\x00\x00" in said,
    **dict.fromkeys(("http", "servicebus"), lambda said: b"HTTP/1.1 4" in said or b"HTTP/1.1 5" in said),
}
"""Whether an answer says what was wrong: Close as its last; connection.close or channel.close; a condition; ERROR; a
frame that goes away."""
_WITHOUT_A_WORD = ("a list of messages of", "a message of")
"""What the stream protocol and RocketMQ's classic one answer by closing, as the originals do."""


def test_a_claimed_length_is_answered_and_allocates_nothing(
    running: RunningServer, corpus: Corpus, bystander: Bystander, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    port, totals = running.ports[corpus.listener], running.context.connections.totals
    failed = totals.failed
    for what, data in CLAIMS[corpus.name]:
        client, _ = opened(port, corpus)
        with client:
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                silent = what.startswith(_WITHOUT_A_WORD)
                said = answer(client, data, says_more=silent)
                peak = tracemalloc.get_traced_memory()[1] - before
            finally:
                tracemalloc.stop()
        assert TOLD[corpus.name](said) is not silent, f"{what}: {said!r}"
        assert peak < _CLAIMED_BYTES, f"{what}: {peak} bytes were allocated"
        assert not errors(caplog) and totals.failed == failed, f"{what}: {errors(caplog)}"
    bystander.goes_on()
