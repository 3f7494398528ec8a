"""A fast publisher before a disk that does not follow: on every protocol it is not read until there is room again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate import Message
from headgate.broker.backlog import Backlog
from headgate.client import Client
from headgate.protocols.amqp10.terminus import Accepted
from server import amqp091_client, amqp10_client
from server.running import RunningServer, running_server
from waiting import LIMIT_S

LIMIT_BYTES = 1 << 20
BODY = bytes(200_000)
MESSAGES = 160
"""32 MB: more than the limit, what is being read, and the buffers of both sockets together hold."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    limits = {"unconfirmed_bytes": LIMIT_BYTES}
    with running_server(tmp_path, limits=limits, stream=[{"name": "orders"}]) as running:
        yield running


def by_stream_protocol(server: RunningServer) -> None:
    with (
        Client.connect(f"127.0.0.1:{server.ports['stream']}") as client,
        client.publisher("orders", most_unconfirmed=10 * MESSAGES) as publisher,
    ):
        for _ in range(MESSAGES):
            publisher.send(Message(BODY))
        publisher.flush()


def by_amqp10(server: RunningServer) -> None:
    with amqp10_client.client_of(server.ports["amqp"]) as client:
        link = client.sender("/queues/orders")
        assert client.send(link, *[Message(BODY)] * MESSAGES) == [Accepted()] * MESSAGES


def by_amqp091(server: RunningServer) -> None:
    with amqp091_client.Client(server.ports["amqp"]) as client:
        client.open(1)
        for _ in range(MESSAGES):
            client.publish(1, "orders", BODY)
        client.call(1, amqp091_client.m.ChannelClose(200, "", 0, 0))


def by_stomp(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.ports["stomp"]), timeout=LIMIT_S) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
        head = b"SEND\ndestination:/amq/queue/orders\ncontent-length:%d\n\n" % len(BODY)
        for _ in range(MESSAGES):
            client.sendall(head + BODY + b"\0")
        client.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
        answered = b""
        while b"receipt-id:bye" not in answered:
            data = client.recv(65_536)
            assert data, answered
            answered += data


@pytest.mark.parametrize("publish", [by_stream_protocol, by_amqp10, by_amqp091, by_stomp])
def test_a_publisher_is_read_only_as_far_as_its_messages_find_room(
    server: RunningServer, publish: Callable[[RunningServer], None]
) -> None:
    broker = server.context.broker
    write_queued = broker.write_queued

    def hold() -> None:
        broker.write_queued = lambda: None  # type: ignore[method-assign]

    def release() -> None:
        del broker.write_queued
        write_queued()

    def waiting() -> list[Backlog]:
        return [session.backlog for session in broker.sessions if session.backlog.is_full]

    server.call(hold)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            publish(server)
        except BaseException as error:
            failures.append(error)

    publishing = threading.Thread(target=run)
    publishing.start()
    try:
        server.until(waiting)
        server.until(lambda: not all(record.is_read for record in server.context.connections))
        (backlog,) = server.call(waiting)
        # What came with the read that passed the limit is taken, too.
        assert LIMIT_BYTES < server.call(lambda: backlog.size_bytes) < 4 * LIMIT_BYTES
        assert publishing.is_alive()
    finally:
        server.call(release)
    publishing.join(LIMIT_S)
    assert not failures and not publishing.is_alive()
    stream = broker.catalogue.get("orders")
    server.until(lambda: stream.next_offset == MESSAGES and not broker.sessions)
