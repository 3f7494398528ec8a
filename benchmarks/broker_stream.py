"""The stream protocol of the server, beside RabbitMQ where `HEADGATE_RABBITMQ` (host:port, stream listener) is set.

A lean client in a process of its own, over the client's core and a plain socket: frames of 100 messages of 200 bytes,
made before the time starts. Server and client share the machine, so ratios within one run say more than rates.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import time

import numpy as np
from harness import Measurement, report
from serving import served

from headgate.log.chunk_builder import FilterValues
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.client import ClientConnection, ClientEvent, Opened
from headgate.protocols.stream.codes import Command
from headgate.protocols.stream.deliver_frames import DELIVER_HEAD_BYTES
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.protocols.stream.publish_frames import PublishConfirm, PublishError, encode_publish

ORIGINAL = "HEADGATE_RABBITMQ"
MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "1000000"))
MESSAGE_BYTES = 200
FRAME_MESSAGES = 100
BLOCK_FRAMES = 100
MAX_UNCONFIRMED = 40_000
VALUES = [f"value-{number}".encode() for number in range(10)]
ROUNDS = 5
DELIVER = struct.Struct(">IHHB")
DELIVER_BYTES = max(DELIVER_HEAD_BYTES) + 48
RECORDS = struct.Struct(">I")
CHUNK_ID = struct.Struct(">Q")
CREDIT = struct.Struct(">IHHBH")
RUN_MESSAGES = 1000
WANTED = 3
SINGLES = MESSAGES // 20
"""Messages that are in a chunk each, as each is sent when the one before is confirmed."""


class Peer:
    """A blocking connection with what it has not examined yet."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = ClientConnection()
        self.buffer = bytearray(1 << 20)
        while not any(isinstance(event, Opened) for event in self.receive()):
            pass

    def receive(self) -> list[ClientEvent]:
        output = self.connection.take_output()
        if output:
            self.socket.sendall(output)
        count = self.socket.recv_into(self.buffer)
        events = self.connection.receive(memoryview(self.buffer)[:count])
        wrong = [event for event in events if isinstance(event, ProtocolViolation | PublishError | f.Close)]
        if wrong or not count:
            raise SystemExit(f"the server ended it: {wrong}")
        return events

    def ask(self, request: f.Request) -> int:
        number = self.connection.request(request)
        while True:
            for event in self.receive():
                if isinstance(event, f.Reply) and event.correlation_id == number:
                    return event.code

    def check(self, request: f.Request) -> None:
        code = self.ask(request)
        if code != 1:
            raise SystemExit(f"{request}: code {code}")


def message() -> bytes:
    """An AMQP 1.0 message: application properties and a body, 200 bytes in all."""
    from headgate import Message

    head = Message(application_properties={"region": "emea"}, body=b"").encode()
    return Message(application_properties={"region": "emea"}, body=bytes(MESSAGE_BYTES - len(head))).encode()


def block(publisher: int, value: list[bytes] | None) -> bytes:
    """Frames of some thousand messages; with values, each message has one, in turn."""
    body = message()
    count = FRAME_MESSAGES * BLOCK_FRAMES
    values = None if value is None else FilterValues.of([value[row % len(value)] for row in range(count)])
    return encode_publish(
        publisher,
        np.arange(count, dtype=np.uint64),
        np.frombuffer(body, dtype=np.uint8),
        np.zeros(count, dtype=np.int64),
        np.full(count, len(body), dtype=np.int64),
        filter_values=values,
        frame_entries=FRAME_MESSAGES,
    )


def publish(peer: Peer, blocks: list[bytes]) -> float:
    """Seconds until everything is confirmed; no more than `MAX_UNCONFIRMED` are on their way."""
    per_block = FRAME_MESSAGES * BLOCK_FRAMES
    total = per_block * len(blocks)
    sent = confirmed = 0
    waiting = memoryview(b"")
    following = iter(blocks)
    peer.socket.setblocking(False)
    start = time.perf_counter()
    while confirmed < total:
        if not waiting and sent < total and sent - confirmed <= MAX_UNCONFIRMED - per_block:
            waiting = memoryview(next(following))
            sent += per_block
        readable, writable, _ = select.select([peer.socket], [peer.socket] if waiting else [], [], 30)
        if writable:
            waiting = waiting[peer.socket.send(waiting) :]
        if readable:
            confirmed += sum(len(event.publishing_ids) for event in peer.receive() if isinstance(event, PublishConfirm))
    seconds = time.perf_counter() - start
    peer.socket.setblocking(True)
    return seconds


def publish_one_by_one(peer: Peer, count: int) -> None:
    """Each message when the one before it is confirmed."""
    body = np.frombuffer(message(), dtype=np.uint8)
    number, zero, size = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64), np.array([len(body)])
    frame = encode_publish(0, number, body, zero, size, filter_values=None, frame_entries=1)
    for _ in range(count):
        peer.socket.sendall(frame)
        while not any(isinstance(event, PublishConfirm) for event in peer.receive()):
            pass


def consume(peer: Peer, stream: str, end: int, **properties: str) -> tuple[float, int]:
    """Seconds until the chunk with the last message before the offset `end` came, and bytes of the chunks.

    Walks the frames where they were received and reads of each chunk its header: what is measured is the server.
    """
    size = behind = 0
    one_more = CREDIT.pack(7, Command.CREDIT, 1, 0, 1)
    start = time.perf_counter()
    # Without credit, so that no chunk comes along with the reply.
    peer.check(f.Subscribe(0, stream, OffsetSpecification.first(), 0, properties))
    peer.socket.sendall(CREDIT.pack(7, Command.CREDIT, 1, 0, 50))
    buffer = memoryview(peer.buffer)
    at = stop = 0
    left = 0  # of a frame whose chunk is counted already
    while behind < end:
        if left >= stop - at:
            left -= stop - at
            at, stop = 0, peer.socket.recv_into(buffer)
            if not stop:
                raise SystemExit("the server closed the connection")
            continue
        at += left
        left = 0
        if stop - at < DELIVER_BYTES:
            rest = bytes(buffer[at:stop])
            buffer[: len(rest)] = rest
            at, stop = 0, len(rest) + peer.socket.recv_into(buffer[len(rest) :])
            continue
        frame_bytes, command, version, _ = DELIVER.unpack_from(buffer, at)
        if command != Command.DELIVER:
            raise SystemExit(f"command {command:#x} where chunks are expected")
        chunk = at + DELIVER_HEAD_BYTES[version]
        records, chunk_id = RECORDS.unpack_from(buffer, chunk + 4)[0], CHUNK_ID.unpack_from(buffer, chunk + 24)[0]
        behind = chunk_id + records
        size += frame_bytes + 4 - DELIVER_HEAD_BYTES[version]
        left = frame_bytes + 4
        peer.socket.sendall(one_more)
    seconds = time.perf_counter() - start
    return seconds, size


def client(case: str, host: str, port: int) -> dict[str, float]:
    """One round of a case, in a process of its own."""
    peer = Peer(host, port)
    stream = f"bench-{case}"
    blocks = MESSAGES // (FRAME_MESSAGES * BLOCK_FRAMES)
    if case in ("publish", "publish-values"):
        peer.ask(f.Delete(stream))
        peer.check(f.Create(stream))
        peer.check(f.DeclarePublisher(0, None, stream))
        made = block(0, VALUES if case == "publish-values" else None)
        return {"seconds": publish(peer, [made] * blocks)}
    if case == "fill-runs":
        peer.ask(f.Delete("bench-runs"))
        peer.check(f.Create("bench-runs"))
        peer.check(f.DeclarePublisher(0, None, "bench-runs"))
        made = block(0, [value for value in VALUES for _ in range(RUN_MESSAGES)])
        return {"seconds": publish(peer, [made] * blocks)}
    if case == "fill-single":
        peer.ask(f.Delete("bench-single"))
        peer.check(f.Create("bench-single"))
        peer.check(f.DeclarePublisher(0, None, "bench-single"))
        publish_one_by_one(peer, SINGLES)
        return {}
    if case == "single":
        seconds, size = consume(peer, "bench-single", SINGLES)
    elif case == "bloom":
        end = MESSAGES - (len(VALUES) - 1 - WANTED) * RUN_MESSAGES
        seconds, size = consume(peer, "bench-runs", end, **{"filter.0": VALUES[WANTED].decode()})
    else:
        seconds, size = consume(peer, "bench-publish", MESSAGES)
    return {"seconds": seconds, "bytes": size}


def run_client(case: str, address: tuple[str, int]) -> dict[str, float]:
    command = [sys.executable, __file__, case, address[0], str(address[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{case}: {done.stderr}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


CASES = {
    "publish": "publish, frames of 100, confirmed",
    "publish-values": "publish, a filter value per message",
    "consume": "consume everything",
    "bloom": f"Bloom, one value of ten in runs of {RUN_MESSAGES}",
    "single": f"consume {SINGLES:,} chunks of one message",
}


def measure_all(servers: dict[str, tuple[str, int]]) -> list[Measurement]:
    """All cases, the servers in turn in each round; consuming reads what publishing left."""
    rounds: dict[tuple[str, str], list[dict[str, float]]] = {}
    for address in servers.values():
        run_client("fill-runs", address)
        run_client("fill-single", address)
    for case in CASES:
        for _ in range(ROUNDS):
            for name, address in servers.items():
                rounds.setdefault((case, name), []).append(run_client(case, address))
    measurements = []
    for case, title in CASES.items():
        for name in servers:
            results = rounds[case, name]
            size = int(results[0]["bytes"]) if "bytes" in results[0] else None
            seconds = [result["seconds"] for result in results]
            count = SINGLES if case == "single" else MESSAGES
            measurements.append(Measurement(f"{name}: {title}", count, seconds, work_bytes=size))
    return measurements


def main() -> None:
    original = os.environ.get(ORIGINAL)
    with served("stream") as server:
        servers = {"Headgate": ("127.0.0.1", server.ports["stream"])}
        if original:
            host, _, port = original.rpartition(":")
            servers["RabbitMQ"] = (host, int(port))
        measurements = measure_all(servers)
        memory = server.anonymous_bytes()
    baseline = next(one.name for one in measurements if one.name.startswith("RabbitMQ" if original else "Headgate"))
    title = f"Stream protocol, {MESSAGES} messages of {MESSAGE_BYTES} bytes"
    report("broker_stream", title, measurements, baseline=baseline)
    print(f"anonymous resident memory of Headgate afterwards: {memory >> 20} MiB")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(client(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    else:
        main()
