"""Connections of AMQP 1.0: the port's first bytes, who comes in, limits, silence, the end."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from headgate.protocols.amqp10.events import Ended, Opened, OutcomeReceived
from headgate.protocols.amqp10.frames import AMQP_HEADER, HEARTBEAT, SASL_HEADER, encode_frame
from headgate.protocols.amqp10.performatives import SENDER, Attach, Begin, Close, Flow, Open, SaslInit
from headgate.protocols.amqp10.terminus import Error, Source, Target
from headgate.server import flow_control
from headgate.server.amqp10 import Amqp10Handler, RabbitService
from headgate.server.transport import Peer
from server.amqp10_client import Management, client_of, rabbitmq_handler
from server.links import SetClock
from server.running import RunningServer, running_server
from waiting import LIMIT_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        tmp_path_factory.mktemp("server"),
        handlers={"amqp": rabbitmq_handler},
        limits={"sessions": 3, "links": 4, "connection_links": 5},
    ) as running:
        yield running


@contextlib.contextmanager
def _raw(server: RunningServer, said: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.ports["amqp"]), timeout=LIMIT_S) as connected:
        connected.sendall(said)
        yield connected


def _everything(connected: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    while data := connected.recv(65536):
        received += data
    return received


def test_the_server_says_what_clients_ask_for(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        opened = client.of(Opened)[0].open
        properties = {key.value: (key.type.value, value.value) for key, value in opened.properties.value}
        assert properties["product"] == ("symbol", "RabbitMQ")
        assert properties["version"] == ("symbol", "4.3.6")
        assert {"cluster_name", "node", "platform", "copyright", "information"} <= properties.keys()
        assert opened.offered_capabilities == ("LINK_PAIR_V1_0", "ANONYMOUS-RELAY")
        assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (262_144, 2, 30_000)


def test_a_client_may_say_everything_at_once(server: RunningServer) -> None:
    said = (
        SASL_HEADER
        + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest").encode(), kind=1)
        + AMQP_HEADER
        + encode_frame(0, Open("all at once").encode())
        + encode_frame(0, Begin(None, 0, 9, 9).encode())
        + encode_frame(0, Attach("l", 0, SENDER, source=Source(), target=Target(), initial_delivery_count=0).encode())
        + encode_frame(0, Close().encode())
    )
    with _raw(server, said) as connected:
        received = _everything(connected)
    assert received.startswith(SASL_HEADER) and AMQP_HEADER in received
    assert received.endswith(encode_frame(0, Close().encode()))
    assert received.count(b"\x00S\x12") == 1


@pytest.mark.parametrize("response", [b"\0guest\0wrong", b"\0nobody\0guest", b"nonsense", b""])
def test_a_wrong_login_is_refused(server: RunningServer, response: bytes) -> None:
    with client_of(server.ports["amqp"], response=response) as client:
        assert client.of(OutcomeReceived) == [OutcomeReceived(1)]
        assert client.socket.recv(100) == b""


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("ANONYMOUS", b"anybody"), ("AMQPLAIN", b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest")],
)
def test_other_mechanisms_are_taken(server: RunningServer, mechanism: str, response: bytes) -> None:
    with client_of(server.ports["amqp"], mechanism=mechanism, response=response) as client:
        assert client.of(Opened)


def test_an_unknown_mechanism_is_refused(server: RunningServer) -> None:
    with client_of(server.ports["amqp"], mechanism="SCRAM-SHA-256") as client:
        assert client.of(OutcomeReceived) == [OutcomeReceived(1)]


@pytest.mark.parametrize("hostname", ["localhost", None, "", "vhost:/", "any.name"])
def test_any_host_name_is_the_one_vhost(server: RunningServer, hostname: str | None) -> None:
    with client_of(server.ports["amqp"], hostname=hostname) as client:
        assert client.of(Opened)[0].open.container_id == "headgate@localhost"


def test_another_vhost_is_not_found(server: RunningServer) -> None:
    with client_of(server.ports["amqp"], hostname="vhost:other") as client:
        assert client.closed() == "amqp:not-found"


@pytest.mark.parametrize("head", [AMQP_HEADER, b"AMQP\x00\x01\x00\x01", b"\x00" * 8])
def test_a_peer_that_speaks_something_else_is_told_what_is_spoken(server: RunningServer, head: bytes) -> None:
    with _raw(server, head) as connected:
        assert _everything(connected) == SASL_HEADER


def test_more_sessions_than_allowed_are_a_fault_of_the_connection(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        for _ in range(3):
            client.connection.begin()
        client.connection.remote_channel_max = 9
        client.connection.begin()
        assert client.closed() == "amqp:connection:framing-error"


def test_more_links_than_allowed_are_a_fault_of_the_connection(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        Management(client).declare("s")
        for _ in range(2):
            assert client.sender("/queues/s").is_attached
        session = client.connection.sessions[0]
        session.send(Attach("more", 4, SENDER, target=Target(), initial_delivery_count=0))
        assert client.closed() == "amqp:connection:framing-error"


def test_more_links_in_all_sessions_than_allowed_end_the_session(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        Management(client).declare("s")
        for _ in range(2):
            assert client.sender("/queues/s").is_attached
        other = client.connection.begin()
        client.pump(lambda: other.is_mapped)
        for number in range(2):
            other.new_link(f"more {number}", SENDER).start(Attach("", 0, SENDER, target=Target()))
        client.pump(lambda: bool(client.of(Ended)))
        (ended,) = client.of(Ended)
        assert ended.error.condition == "amqp:resource-limit-exceeded"
        assert client.connection.is_opened and len(client.connection.sessions) == 1


def test_a_fault_in_a_session_leaves_the_others(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        good = Management(client)
        other = client.connection.begin()
        client.pump(lambda: other.is_mapped)
        other.send(Attach("no count", 0, SENDER, target=Target()))
        client.pump(lambda: bool(client.of(Ended)))
        assert client.of(Ended)[0].error.condition == "amqp:invalid-field"
        assert good.request("GET", "/queues/nothing")[0] == 404


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (b"\xff\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (encode_frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (encode_frame(0, Open("again").encode()), "amqp:illegal-state"),
    ],
)
def test_a_fault_of_the_connection_closes_it(server: RunningServer, frame: bytes, condition: str) -> None:
    with client_of(server.ports["amqp"]) as client:
        client.socket.sendall(frame)
        assert client.closed() == condition


def test_a_session_that_ends_ends_its_links(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        Management(client).declare("s")
        client.receiver("/queues/s", credit=5)
        broker = server.context.broker
        before = server.call(lambda: broker.counters.consumers_closed)
        session = client.connection.sessions[0]
        session.end()
        client.pump(lambda: bool(client.of(Ended)))
        assert server.call(lambda: broker.counters.consumers_closed) == before + 1


def test_a_connection_that_is_lost_leaves_nothing_at_the_broker(server: RunningServer) -> None:
    broker = server.context.broker
    before = server.call(lambda: set(broker.sessions))
    with client_of(server.ports["amqp"]) as client:
        Management(client).declare("s")
        client.sender("/queues/s")
        client.receiver("/queues/s", credit=5)
        (lost,) = server.call(lambda: set(broker.sessions)) - before
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
    with client_of(server.ports["amqp"]) as client:
        management = Management(client)
        server.until(lambda: lost not in broker.sessions)
        assert management.request("GET", "/queues/s")[1]["consumer_count"] == 0


def test_a_close_is_answered(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]) as client:
        client.connection.close()
        assert client.closed() is None
        assert client.socket.recv(10) == b""


class _Quiet:
    """A link that remembers what was written, for a handler without a network."""

    def __init__(self, peer: object) -> None:
        self.peer = peer
        self.written = b""
        self.is_closed = False
        self.is_writable = True
        self.calls: list = []

    def write(self, data: list[bytes]) -> None:
        self.written += b"".join(data)

    def close(self) -> None:
        self.is_closed = True

    def leave(self) -> None:
        self.is_closed = True

    def call_soon(self, call: object) -> None:
        self.calls.append(call)

    def pause_reading(self) -> None:
        self.calls.append("paused")

    def resume_reading(self) -> None:
        self.calls.append("resumed")


class _Context:
    """What a handler needs of the server, for one user and one moment."""

    def __init__(self, server: RunningServer) -> None:
        self.settings = server.context.settings
        self.broker = server.context.broker
        self.connections = server.context.connections
        self.clock = SetClock()
        self.authenticator = self
        self.then = None

    def mechanisms(self, link: object) -> tuple[str, ...]:
        return ("PLAIN",)

    def authenticate(self, link: object, credentials: object, then: object) -> None:
        self.then = then


def _opened(server: RunningServer) -> tuple[Amqp10Handler, _Quiet, _Context]:
    """A handler whose client has opened."""
    context = _Context(server)
    link = _Quiet(Peer("127.0.0.1", 1, is_loopback=True))
    handler = Amqp10Handler(link, context, (RabbitService,))
    said = SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest").encode(), kind=1)
    said += AMQP_HEADER + encode_frame(0, Open("c", idle_time_out=10_000).encode())
    handler.received(memoryview(said))
    assert link.calls == ["paused"] and AMQP_HEADER not in link.written
    context.then("guest")
    assert link.calls == ["paused", "resumed"]
    link.written = b""
    return handler, link, context


def test_both_sides_show_that_they_live(server: RunningServer) -> None:
    def run() -> None:
        handler, link, context = _opened(server)
        context.clock.seconds += 4
        handler.tick(0)
        assert link.written == b""
        context.clock.seconds += 1
        handler.tick(0)
        assert link.written == HEARTBEAT
        context.clock.seconds += 54
        handler.received(memoryview(HEARTBEAT))
        context.clock.seconds += 59
        handler.tick(0)
        assert not link.is_closed
        context.clock.seconds += 2
        handler.tick(0)
        assert link.is_closed and b"amqp:resource-limit-exceeded" in link.written
        handler.lost(None)

    server.call(run)


def test_a_client_that_does_not_take_its_answers_is_asked_for_no_more(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_control, "MAX_UNTAKEN_BYTES", 50_000)

    def run() -> None:
        handler, link, _ = _opened(server)
        handler.received(memoryview(encode_frame(0, Begin(None, 0, 1000, 1000).encode())))
        asked = memoryview(encode_frame(0, Flow(0, 1000, 0, 1000, echo=True).encode()) * 1000)
        link.is_writable, link.written = False, b""
        while link.calls[-1] != "paused":
            handler.received(asked)
            assert len(link.written) < 100_000
        assert len(link.written) > 50_000
        link.is_writable = True
        handler.writable()
        assert link.calls[-1] == "resumed"
        handler.lost(None)

    server.call(run)


def test_a_server_that_stops_says_so(server: RunningServer) -> None:
    def run() -> None:
        handler, link, _ = _opened(server)
        handler.shut_down()
        assert link.is_closed and link.written.endswith(
            Close(Error("amqp:connection:forced", "the server stops")).encode()
        )
        handler.lost(None)

    server.call(run)


def test_connections_are_listed_with_what_they_say_of_themselves(server: RunningServer) -> None:
    with client_of(server.ports["amqp"]):
        records = server.call(lambda: [record for record in server.context.connections if record.user])
        assert ("AMQP 1.0", "guest", "test") in [
            (record.protocol, record.user, record.client.get("container_id")) for record in records
        ]
