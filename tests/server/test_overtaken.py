"""Consumers that retention overtook: they are told with the next message, counted and shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers import batch
from headgate import Message
from headgate.protocols.amqp091 import long, long_string
from headgate.protocols.amqp091 import methods as m
from server import amqp091_client, stomp_client
from server.amqp10.test_consumer_link import _offset
from server.amqp10_client import client_of
from server.running import RunningServer, running_server
from server.test_http import listed, metrics

ARGUMENTS = {"stream-max-segment-size-bytes": 1000, "max-length-bytes": 2500, "stream-initial-offset": 3}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as running:
        running.call(lambda: running.context.broker.streams.declare("short", ARGUMENTS))
        publish(running, 20)
        yield running


def publish(server: RunningServer, count: int) -> int:
    """Publish messages, some of which are deleted; gives the first offset that is kept."""
    broker = server.context.broker
    stream = server.call(lambda: broker.catalogue.get("short"))
    until = stream.next_offset + count
    for _ in range(count):
        at = stream.next_offset

        def published() -> None:
            session = broker.open_session("guest", protocol="AMQP 1.0", connection="")
            session.publisher("short").publish(batch([Message(body=b"x" * 50).encode()], lambda error: None))

        server.call(published)
        server.until(lambda at=at: stream.next_offset > at)
    assert stream.next_offset == until
    return int(stream.first_offset)


def test_who_comes_back_with_an_offset_that_is_gone_is_told_with_the_first_message(server: RunningServer) -> None:
    first = publish(server, 100)
    lost = first - 5

    with client_of(server.ports["amqp"]) as client:
        received = client.receive(client.receiver("/queues/short", filters=(_offset(5),), credit=3), 3)
    annotations: list[Any] = [one.message.message_annotations for one in received]
    assert [one.offset for one in received] == [first, first + 1, first + 2]
    assert annotations[0]["x-headgate-lost"].value == lost
    assert all("x-headgate-lost" not in each for each in annotations[1:])

    with amqp091_client.Client(server.ports["amqp"]).open(1) as other:
        other.consume(1, "short", stream_offset=long(5))
        headers = [other.receive(1).properties.headers for _ in range(2)]
    assert headers[0] == {"x-stream-offset": long(first), "x-headgate-lost": long(lost)}
    assert headers[1] == {"x-stream-offset": long(first + 1)}

    stomp = stomp_client.Client(server)
    stomp.subscribe("short", "x-stream-offset:offset=5\n")
    frames = [stomp.next() for _ in range(2)]
    stomp.socket.close()
    assert [frame.headers["x-stream-offset"] for frame in frames] == [str(first), str(first + 1)]
    assert [frame.headers.get("x-headgate-lost") for frame in frames] == [str(lost), None]

    server.until(lambda: not any(session.consumers for session in server.context.broker.sessions))
    assert metrics(server)['headgate_messages_lost_total{stream="short"}'] == 3 * lost
    (row,) = listed(server, "streams")
    assert row["reading"]["messages_lost"] == 3 * lost


@pytest.mark.parametrize(
    ("start", "more"), [(long(0), 100), (long(2), 0), (long_string("first"), 100), (long_string("1h"), 100)]
)
def test_who_asks_for_the_beginning_has_lost_nothing(server: RunningServer, start: Any, more: int) -> None:
    # Nothing was ever before the initial offset.
    publish(server, more)
    with amqp091_client.Client(server.ports["amqp"]).open(1) as client:
        client.consume(1, "short", stream_offset=start)
        assert set(client.receive(1).properties.headers) == {"x-stream-offset"}


def test_who_is_overtaken_while_it_is_connected_is_told_behind_the_gap(server: RunningServer) -> None:
    with amqp091_client.Client(server.ports["amqp"]).open(1) as client:
        client.consume(1, "short", stream_offset=long_string("first"), prefetch=1)
        seen = client.receive(1)
        first = publish(server, 200)
        (row,) = listed(server, "consumers")
        assert row["lost"] == 0
        offset, lost = seen.properties.headers["x-stream-offset"].value, None
        while lost is None:
            client.say(1, m.BasicAck(seen.method.delivery_tag))
            seen = client.receive(1)
            headers = seen.properties.headers
            before, offset = offset, headers["x-stream-offset"].value
            lost = headers.get("x-headgate-lost")
            assert lost is not None or offset == before + 1
        assert offset == first and lost.value == offset - before - 1
        (row,) = listed(server, "consumers")
        assert row["lost"] == lost.value
        client.say(1, m.BasicAck(seen.method.delivery_tag))
        assert "x-headgate-lost" not in client.receive(1).properties.headers
