"""From sending one message to its answer at 200 messages a second: stream protocol and AMQP 1.0, servers in turn.

Headgate in a process of its own. With HEADGATE_RABBITMQ=host:port and
HEADGATE_RABBITMQ_AMQP=host:port the same against that RabbitMQ, and ratios are to it. What the client does with an
answer is not in the times.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

import broker_amqp10
import broker_stream
import numpy as np
from harness import Measurement, report
from messages import event_batch
from serving import served

from headgate.protocols.stream import frames as f
from headgate.protocols.stream.client import PublishConfirm
from headgate.protocols.stream.publishing import encode_publish

MESSAGES = 1000
PAUSE_S = 0.005
ROUNDS = 5

Address = tuple[str, int]


def stream_protocol(address: Address) -> list[float]:
    """Seconds from sending a message to its confirm."""
    peer = broker_stream.Peer(*address)
    stream = f"latency-{uuid.uuid4()}"
    peer.check(f.Create(stream))
    peer.check(f.DeclarePublisher(0, None, stream))
    body = broker_stream.message()
    one = encode_publish(
        0,
        np.zeros(1, dtype=np.uint64),
        np.frombuffer(body, dtype=np.uint8),
        np.zeros(1, dtype=np.int64),
        np.full(1, len(body), dtype=np.int64),
    )
    times = []
    for _ in range(MESSAGES):
        time.sleep(PAUSE_S)
        start = time.perf_counter()
        peer.socket.sendall(one)
        while True:
            count = peer.socket.recv_into(peer.buffer)
            end = time.perf_counter()
            events = peer.connection.receive(memoryview(peer.buffer)[:count])
            if any(isinstance(event, PublishConfirm) for event in events):
                break
        times.append(end - start)
    peer.check(f.Delete(stream))
    peer.socket.close()
    return times


def amqp10(address: Address) -> list[float]:
    """Seconds from sending a message to its outcome."""
    message = event_batch(1).message(0)
    stream = f"latency-{uuid.uuid4()}"
    with broker_amqp10.connected(address) as peer:
        peer.declare(stream)
    times = []
    with broker_amqp10.connected(address) as peer:
        link = peer.sender(stream)
        for _ in range(MESSAGES):
            time.sleep(PAUSE_S)
            before = peer.answered
            link.send(message)
            frames = b"".join(peer.connection.take_output())
            start = time.perf_counter()
            peer.socket.sendall(frames)
            while peer.answered == before:
                data = peer.socket.recv(1 << 16)
                end = time.perf_counter()
                for event in peer.connection.receive(data):
                    peer.on(event)
            peer.flush()
            times.append(end - start)
    return times


def measured(title: str, ask: Callable[[Address], list[float]], servers: dict[str, Address]) -> list[Measurement]:
    """p50 and p99 of each server, a round of each in turn."""
    rounds: dict[str, list[list[float]]] = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, address in servers.items():
            rounds[name].append(sorted(ask(address)))
    return [
        Measurement(f"{name}: {title}, {percentile}", 1, [times[place] for times in rounds[name]], unit="answers")
        for percentile, place in (("p50", MESSAGES // 2), ("p99", int(0.99 * MESSAGES)))
        for name in reversed(servers)
    ]


def main() -> None:
    results = []
    with served("stream", "amqp") as server:
        for title, listener, ask, variable in (
            ("publish to confirm", "stream", stream_protocol, broker_stream.ORIGINAL),
            ("publish to outcome", "amqp", amqp10, broker_amqp10.ORIGINAL),
        ):
            servers = {"Headgate": ("127.0.0.1", server.ports[listener])}
            original = os.environ.get(variable)
            if original:
                host, _, port = original.rpartition(":")
                servers["RabbitMQ"] = (host, int(port))
            results += measured(title, ask, servers)
    report("broker_latency", f"{1 / PAUSE_S:.0f} messages a second, each answered", results, baseline=results[0].name)


if __name__ == "__main__":
    main()
