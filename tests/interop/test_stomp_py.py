"""stomp.py with streams, unmodified."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interop.servers import Served
from waiting import LIMIT_S

stomp = pytest.importorskip("stomp", reason="the Python clients are not installed: `make clients`")

CONNECTIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
DECLARATION = {"x-queue-type": "stream", "durable": "true", "auto-delete": "false"}
SUBSCRIPTION = {"prefetch-count": "10"}


class Listener(stomp.ConnectionListener):
    """Keeps what comes, kind by kind."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[Any] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.ends: queue.Queue[None] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_disconnected(self) -> None:
        self.ends.put(None)


class Client:
    """A connection of stomp.py that is logged in."""

    def __init__(self, served: Served, version: str = "1.2", **given: Any) -> None:
        kind = CONNECTIONS[version]
        host = {} if version == "1.0" else {"vhost": "/"}
        self.version = version
        self.connection = kind([(served.host, served.stomp)], **host, **given)
        self.heard = Listener()
        self.connection.set_listener("test", self.heard)
        self.connection.connect("guest", "guest", wait=True)

    def send(self, destination: str, *bodies: str | bytes, **headers: str) -> None:
        """Sends; each message is kept when this ends."""
        for number, body in enumerate(bodies):
            self.connection.send(destination, body, headers={**_dashed(headers), "receipt": f"r{number}"})
            assert self.heard.receipts.get(timeout=LIMIT_S) == f"r{number}"

    def subscribe(self, destination: str, *, ack: str = "client-individual", **headers: str) -> None:
        self.connection.subscribe(destination, id="7", ack=ack, headers={**SUBSCRIPTION, **_dashed(headers)})

    def message(self) -> Any:
        return self.heard.messages.get(timeout=LIMIT_S)

    def acknowledge(self, frame: Any, *, refuse: bool = False) -> None:
        act = self.connection.nack if refuse else self.connection.ack
        if self.version == "1.2":
            act(frame.headers["ack"])
        elif self.version == "1.1":
            act(frame.headers["message-id"], "7")
        else:
            act(frame.headers["message-id"])


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def connect(served: Served) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def opened(version: str = "1.2", **given: Any) -> Client:
        clients.append(Client(served, version, **given))
        return clients[-1]

    yield opened
    for client in clients:
        if client.connection.is_connected():
            client.connection.disconnect()


@pytest.mark.parametrize("version", list(CONNECTIONS))
def test_stomp_py_sends_and_subscribes_in_every_version(connect, name, served, version):
    client = connect(version)
    client.send(f"/queue/{name}", *(f"m{number}" for number in range(25)), region="emea", **DECLARATION)
    client.subscribe(f"/queue/{name}", x_stream_offset="first", **DECLARATION)
    for number in range(25):
        frame = client.message()
        assert frame.body == f"m{number}"
        assert frame.headers["x-stream-offset"] == str(number)
        assert frame.headers["destination"] == f"/queue/{name}"
        assert frame.headers["region"] == "emea"
        assert frame.headers["subscription"] == "7"
        client.acknowledge(frame, refuse=number % 2 == 1 and version != "1.0")
    served.delete(name)


def test_stomp_py_gets_the_properties_back(connect, stream):
    client = connect()
    headers = {
        "content-type": "text/plain",
        "content-encoding": "utf-8",
        "correlation-id": "c1",
        "reply-to": "/queue/answers",
        "amqp-message-id": "m1",
        "priority": "4",
        "expiration": "60000",
        "timestamp": "1700000000",
        "type": "order",
        "user-id": "guest",
        "app-id": "shop",
        "persistent": "true",
        "odd-value": "a\\b:c\nd",
    }
    client.connection.send(f"/amq/queue/{stream}", "body", headers={**headers, "receipt": "kept"})
    assert client.heard.receipts.get(timeout=LIMIT_S) == "kept"
    client.subscribe(f"/amq/queue/{stream}", x_stream_offset="offset=0")
    frame = client.message()
    assert {name: frame.headers.get(name) for name in headers} == headers


def test_stomp_py_filters_by_values(connect, stream):
    client = connect()
    for value in ("AMER", "EMEA", "APAC"):
        client.send(f"/amq/queue/{stream}", value, x_stream_filter_value=value)
    client.send(f"/amq/queue/{stream}", "none")
    client.subscribe(
        f"/amq/queue/{stream}", x_stream_offset="first", x_stream_filter="EMEA,APAC", x_stream_match_unfiltered="true"
    )
    assert [client.message().body for _ in range(3)] == ["EMEA", "APAC", "none"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_stomp_py_keeps_to_its_prefetch_count(connect, stream, ack):
    client = connect()
    client.send(f"/amq/queue/{stream}", *(f"m{number}" for number in range(6)))
    client.subscribe(f"/amq/queue/{stream}", ack=ack, x_stream_offset="first", prefetch_count="2")
    first, second = client.message(), client.message()
    client.send(f"/amq/queue/{stream}", "answered behind what was delivered")
    assert client.heard.messages.empty()
    client.acknowledge(second)
    third = client.message()
    assert third.body == "m2"
    if ack == "client":
        assert client.message().body == "m3"
    else:
        client.acknowledge(first)
        assert client.message().body == "m3"


def test_stomp_py_starts_at_times_and_with_what_comes(connect, stream):
    client = connect()
    client.send(f"/amq/queue/{stream}", "old")
    client.subscribe(f"/amq/queue/{stream}", x_stream_offset="timestamp=1600000000")
    assert client.message().body == "old"
    later = connect()
    later.subscribe(f"/amq/queue/{stream}", x_stream_offset="whenever", receipt="subscribed")
    assert later.heard.receipts.get(timeout=LIMIT_S) == "subscribed"
    client.send(f"/amq/queue/{stream}", "new")
    assert later.message().body == "new"


@pytest.mark.parametrize(
    ("destination", "headers", "message"),
    [
        ("/queue/{stream}", {}, "precondition_failed"),
        ("/queue/{stream}", {**DECLARATION, "x-max-age": "1h"}, "precondition_failed"),
        ("/amq/queue/nowhere", {}, "not_found"),
        ("/amq/queue/{stream}", {"prefetch-count": "0"}, "precondition_failed"),
        ("/amq/queue/{stream}", {"ack": "auto"}, None),
    ],
)
def test_stomp_py_gets_an_error_and_is_cut_off(connect, stream, destination, headers, message):
    client = connect()
    ack = headers.get("ack", "client")
    given = {**SUBSCRIPTION, **{name: value for name, value in headers.items() if name != "ack"}}
    client.connection.subscribe(destination.format(stream=stream), id="7", ack=ack, headers=given)
    error = client.heard.errors.get(timeout=LIMIT_S)
    assert message is None or error.headers["message"] == message
    client.heard.ends.get(timeout=LIMIT_S)


def test_stomp_py_is_told_when_its_stream_is_deleted(connect, served, stream):
    client = connect()
    client.subscribe(f"/amq/queue/{stream}", x_stream_offset="first", receipt="subscribed")
    client.heard.receipts.get(timeout=LIMIT_S)
    served.delete(stream)
    error = client.heard.errors.get(timeout=LIMIT_S)
    assert error.headers["message"] == "Server cancelled subscription"
    assert error.headers["subscription"] == "7"


def test_stomp_py_unsubscribes_and_leaves_with_a_receipt(connect, stream):
    client = connect()
    client.subscribe(f"/amq/queue/{stream}", x_stream_offset="next", receipt="subscribed")
    assert client.heard.receipts.get(timeout=LIMIT_S) == "subscribed"
    client.connection.unsubscribe("7", headers={"receipt": "unsubscribed"})
    assert client.heard.receipts.get(timeout=LIMIT_S) == "unsubscribed"
    client.send(f"/amq/queue/{stream}", "unheard")
    client.connection.disconnect(receipt="bye")
    assert client.heard.receipts.get(timeout=LIMIT_S) == "bye"
    assert client.heard.messages.empty()


def test_stomp_py_keeps_its_connection_by_heart_beats(connect, stream):
    client = connect(heartbeats=(1000, 1000), heart_beat_receive_scale=3.0)
    client.subscribe(f"/amq/queue/{stream}", x_stream_offset="next")
    # Longer than three intervals without a word but heart-beats: either side would have given up.
    with pytest.raises(queue.Empty):
        client.heard.ends.get(timeout=4)
    client.send(f"/amq/queue/{stream}", "still there")
    assert client.message().body == "still there"


def test_stomp_py_with_a_wrong_passcode_or_host_is_refused(served):
    for given, passcode in (({"vhost": "/"}, "wrong"), ({"vhost": "elsewhere"}, "guest")):
        connection = stomp.Connection12([(served.host, served.stomp)], reconnect_attempts_max=1, **given)
        heard = Listener()
        connection.set_listener("test", heard)
        with pytest.raises(stomp.exception.ConnectFailedException):
            connection.connect("guest", passcode, wait=True)
        assert heard.errors.get(timeout=LIMIT_S).headers["message"] == "Bad CONNECT"


def test_messages_of_one_protocol_are_seen_by_the_others(connect, served, stream):
    """Published with AMQP 0.9.1 and STOMP, read with both; a filter expression sees the properties of both."""
    client = connect()
    with served.channel() as channel:
        import pika

        properties = pika.BasicProperties(headers={"region": "emea", "n": 5}, message_id="m1", app_id="shop")
        channel.confirm_delivery()
        channel.basic_publish("", stream, b"from 0.9.1", properties)
        client.send(f"/amq/queue/{stream}", "from STOMP", region="emea", n="5", app_id="shop")
        channel.basic_qos(prefetch_count=10)
        client.subscribe(f"/amq/queue/{stream}", x_stream_offset="first")
        first, second = client.message(), client.message()
        assert [first.body, second.body] == ["from 0.9.1", "from STOMP"]
        assert (first.headers["n"], first.headers["amqp-message-id"], second.headers["n"]) == ("5", "m1", "5")
        if served.is_original:
            return
        text = connect()
        text.subscribe(
            f"/amq/queue/{stream}", x_stream_offset="first", x_headgate_sql="n = '5' AND p.group_id = 'shop'"
        )
        assert text.message().body == "from STOMP"
        number = connect()
        number.subscribe(f"/amq/queue/{stream}", x_stream_offset="first", x_headgate_sql="n = 5 AND region = 'emea'")
        assert number.message().body == "from 0.9.1"
        wrong = connect()
        wrong.subscribe(f"/amq/queue/{stream}", x_headgate_sql="n = = 5")
        error = wrong.heard.errors.get(timeout=LIMIT_S)
        assert error.headers["message"] == "precondition_failed"
        assert "^" in error.body
