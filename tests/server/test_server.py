from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate import Message
from headgate.client import ServerAddress
from headgate.client.connection import Connection, Event
from headgate.errors import ConfigError, ConnectionLostError
from headgate.log import Stream, lock_root, stream_folder
from headgate.message.batch import EncodedMessages
from headgate.protocols.stream import frames
from headgate.protocols.stream.publish_frames import PublishConfirm
from headgate.server.context import ServerContext
from headgate.server.listening_sockets import open_listeners
from headgate.server.settings import Listeners
from headgate.server.transport import Transport
from server.running import running_server
from waiting import LIMIT_S


class Echo:
    """Sends back what comes."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self.transport = transport
        context.connections.of(transport).user = "guest"

    def received(self, data: memoryview) -> None:
        self.transport.write(bytes(data))

    def writable(self) -> None: ...

    def tick(self, now_ms: int) -> None: ...

    def lost(self, reason: Exception | None) -> None: ...

    def shut_down(self) -> None:
        self.transport.close()


def test_a_started_server_accepts_and_is_ready_until_it_stops(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers={"stream": Echo}) as running:
        context = running.context
        assert context.is_ready and set(running.ports) == {"stream", "http"}
        with socket.create_connection(("127.0.0.1", running.ports["stream"]), 5) as client:
            client.sendall(b"hello")
            assert client.recv(10) == b"hello"
    assert not context.is_ready


def test_what_the_configuration_defines_is_there(tmp_path: Path) -> None:
    settings = {
        "user": [{"name": "anna", "password": "secret", "permissions": {"read": ".*"}}],
        "stream": [{"name": "orders", "arguments": {"max-age": "7D"}}],
        "super_stream": [{"name": "events", "partitions": 2}, {"name": "keyed", "binding_keys": ["emea", "amer"]}],
    }
    for _ in range(2):
        with running_server(tmp_path, handlers={"stream": Echo}, **settings) as running:
            broker = running.context.broker
            assert running.call(broker.catalogue.names) == [
                "events-0",
                "events-1",
                "keyed-amer",
                "keyed-emea",
                "orders",
            ]
            assert running.call(broker.exchanges.partitions, "keyed") == ["keyed-emea", "keyed-amer"]
            broker.users.authenticate("anna", "secret")
            assert broker.users.get("anna").permissions.read == ".*"
    changed = {"user": [{"name": "anna", "password": "other", "tags": ["monitoring"]}]}
    with running_server(tmp_path, handlers={"stream": Echo}, **changed) as running:
        running.context.broker.users.authenticate("anna", "other")
        assert running.context.broker.users.get("anna").tags == ("monitoring",)


def test_a_stream_that_is_there_with_other_arguments_is_named(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers={"stream": Echo}, stream=[{"name": "orders"}]):
        pass
    other = [{"name": "orders", "arguments": {"max-age": "1D"}}]
    with (
        pytest.raises(ConfigError, match=r"stream 'orders': .*max-age"),
        running_server(tmp_path, handlers={"stream": Echo}, stream=other),
    ):
        pass


ENTITIES: dict[str, Any] = {
    "topic": [
        {
            "name": "orders",
            "max_size_megabytes": 5,
            "settings": {"user_metadata": "ours"},
            "subscription": [
                {"name": "all"},
                {"name": "red", "rule": [{"name": "Red", "sql": "color = 'red'"}], "forward_to": "Jobs"},
            ],
        }
    ],
    "queue": [{"name": "jobs", "delivery": {"lock_ms": 5_000}}],
}


def test_topics_and_queues_of_the_configuration_are_there_and_become_what_it_says(tmp_path: Path) -> None:
    for lock_ms in (5_000, 7_000):
        ENTITIES["queue"][0]["delivery"]["lock_ms"] = lock_ms
        with running_server(tmp_path, handlers={}, **ENTITIES) as running:
            jobs, orders = running.call(running.context.broker.entities.declarations)
        assert (jobs.delivery.lock_ms, orders.max_size_megabytes) == (lock_ms, 5)
        assert orders.settings.user_metadata == "ours"
        assert [(each.name, each.forward_to) for each in orders.subscriptions] == [("all", None), ("red", "jobs")]


def test_message_topics_and_groups_of_the_configuration_are_there_and_what_is_not_said_stays(tmp_path: Path) -> None:
    rocketmq: dict[str, Any] = {
        "create_groups": False,
        "topic_queues": 2,
        "calculate_filter_bitmap": True,
        "topic": [{"name": "orders", "accepts": ["fifo"]}],
        "group": [{"name": "billing", "fifo": True}],
    }
    for queues, attempts in ((None, 17), (3, 5)):
        with running_server(tmp_path, handlers={}, rocketmq=rocketmq) as running:
            broker = running.context.broker
            topic = running.call(broker.message_topics.get, "orders")
            group = running.call(broker.consumer_groups.find, "billing")
        assert (len(topic.streams), {kind.value for kind in topic.accepts}) == (queues or 2, {"fifo"})
        assert group is not None and (group.fifo, group.max_attempts) == (True, attempts)
        rocketmq["topic"] = [{"name": "orders", "queues": 3}]
        rocketmq["group"] = [{"name": "billing", "max_attempts": 5}]
    settings = broker.settings
    assert not settings.create_groups and settings.match_index.calculate_filter_bitmap


def test_a_topic_of_the_configuration_that_cannot_be_made_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers={}, topic=[{"name": "orders"}]):
        pass
    with (
        pytest.raises(ConfigError, match=r"queue 'orders': .*kind cannot be changed"),
        running_server(tmp_path, handlers={}, queue=[{"name": "orders"}]),
    ):
        pass
    lock_root(tmp_path / "data", now_ms=0).release()


def test_a_port_that_is_taken_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"listeners.stream: .* port {port}: the port is taken"),
            running_server(tmp_path, handlers={"stream": Echo}, listeners={"stream": port}),
        ):
            pass
    assert not (tmp_path / "data").exists()


def test_two_listeners_with_one_port_are_both_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        pytest.raises(ConfigError, match=rf"listeners\.stomp: port {port} is that of listeners\.stream"),
        running_server(tmp_path, handlers={"stream": Echo}, listeners={"stream": port, "stomp": port}),
    ):
        pass
    assert not (tmp_path / "data").exists()


def test_a_second_server_on_a_root_is_told_who_has_it(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, handlers={"stream": Echo}),
        pytest.raises(ConfigError, match=r"data is in use, by process \d+ on "),
        running_server(tmp_path, handlers={"stream": Echo}),
    ):
        pass
    with running_server(tmp_path, handlers={"stream": Echo}) as running:
        assert running.context.is_ready


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_what_was_sent_before_the_stop_is_written_and_confirmed_and_clients_are_told(
    tmp_path: Path, durability: str
) -> None:
    settings = {"storage": {"durability": durability}, "stream": [{"name": "orders"}]}
    with running_server(tmp_path, **settings) as running:
        address = ServerAddress("127.0.0.1", running.ports["stream"])
        connection = Connection(address, timeout_s=LIMIT_S, heartbeat_s=0)
        connection.request(frames.DeclarePublisher(0, None, "orders"), "orders")
        messages = [Message(str(number).encode()).encode() for number in range(1000)]
        connection.publish(0, np.arange(1000, dtype=np.uint64), EncodedMessages.of(messages), None)
        confirmed: list[int] = []
        while not confirmed:
            confirmed += _confirmed(connection.events(LIMIT_S))
        running.stop()
        with contextlib.suppress(ConnectionLostError):
            while events := connection.events(LIMIT_S):
                confirmed += _confirmed(events)
        with pytest.raises(ConnectionLostError, match="stop"):
            connection.events(LIMIT_S)
        connection.close()
    assert sorted(confirmed) == list(range(1000))
    assert Stream.open(stream_folder(tmp_path / "data", "orders")).next_offset() == 1000


def _confirmed(events: list[Event]) -> list[int]:
    return [int(number) for event in events if isinstance(event, PublishConfirm) for number in event.publishing_ids]


@pytest.mark.parametrize("host", ["192.0.2.1", "n" * 64])
def test_a_host_that_is_not_this_machine_is_named_and_not_a_port(host: str) -> None:
    with pytest.raises(ConfigError, match=f"^listeners.host: cannot listen on '{host}': .*expected an address of this"):
        open_listeners(Listeners(host=host, amqp=0), encrypted=False)
