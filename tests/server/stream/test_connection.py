"""The course of a stream connection: heartbeats, time limits, wrong frames, the end from either side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from headgate.broker.broker import Broker
from headgate.errors import AuthenticationError
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.sasl import Credentials
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codec import decode_from_server, encode
from headgate.protocols.stream.codes import ResponseCode
from headgate.server import flow_control
from headgate.server.context import ServerContext
from headgate.server.settings import ServerSettings
from headgate.server.stream import StreamHandler
from headgate.server.transport import Transport
from server.links import FakeLink, SetClock
from server.running import running_server
from stream_frames import HANDSHAKE, publish
from stream_peer import StreamPeer, opened_peer


class Trusting:
    """Takes everybody, in the next turn."""

    def mechanisms(self, transport: Transport) -> tuple[str, ...]:
        return ("PLAIN",)

    def authenticate(
        self, transport: Transport, credentials: Credentials, then: Callable[[str | AuthenticationError], None]
    ) -> None:
        transport.call_soon(lambda: then("guest"))


class Connected:
    """A handler on a transport in memory, over a real broker."""

    def __init__(self, root: Path) -> None:
        self.clock = SetClock()
        self.broker = Broker(root, now_ms=self.clock.now_ms, wake=lambda: None)
        self.context = ServerContext(self.broker, ServerSettings(), self.clock, Trusting())
        self.transport = FakeLink()
        self.handler = StreamHandler(cast(Transport, self.transport), self.context)

    def send(self, *frames: f.Frame) -> list[f.Frame]:
        """What is answered to frames once everything has settled."""
        return self.send_bytes(b"".join(map(encode, frames)))

    def send_bytes(self, data: bytes) -> list[f.Frame]:
        self.handler.received(memoryview(data))
        return self.answers()

    def answers(self) -> list[f.Frame]:
        self.broker.write_queued()
        self.transport.turns()
        said = bytes(self.transport.written)
        self.transport.written.clear()
        found = []
        while said:
            size = int.from_bytes(said[:4], "big")
            found.append(decode_from_server(said[4 : 4 + size]))
            said = said[4 + size :]
        return found

    def after(self, seconds: float) -> list[f.Frame]:
        """What is said when so much time has passed."""
        self.clock.seconds += seconds
        self.handler.tick(self.clock.now_ms())
        return self.answers()


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    connection = Connected(tmp_path)
    yield connection
    connection.handler.lost(None)
    connection.broker.close()


@pytest.fixture
def opened(connected: Connected) -> Connected:
    for frame in HANDSHAKE:
        connected.send(frame)
    return connected


@pytest.mark.parametrize("steps", [0, 1, 3, 4])
def test_a_client_that_does_not_go_on_with_the_handshake_is_cut_off(connected: Connected, steps: int) -> None:
    for frame in HANDSHAKE[:steps]:
        connected.send(frame)
        connected.after(9)
    connected.after(0)
    assert not connected.transport.is_closed
    connected.after(10.5)
    assert connected.transport.is_closed


def test_an_idle_client_hears_heartbeats_and_one_that_is_silent_is_cut_off(opened: Connected) -> None:
    assert opened.after(0) == []
    assert opened.after(29) == []
    assert opened.after(1) == [f.Heartbeat()]
    opened.after(0)
    assert opened.after(29) == []
    assert opened.send(f.Heartbeat()) == []
    assert opened.after(1) == [f.Heartbeat()]
    for _ in range(3):
        opened.after(39)
        assert not opened.transport.is_closed or opened.clock.seconds >= 1000 + 59 + 120
    opened.after(4)
    assert opened.transport.is_closed


def test_without_a_heartbeat_agreed_silence_is_allowed(tmp_path: Path) -> None:
    connection = Connected(tmp_path)
    handshake = [f.Tune(1 << 20, 0) if isinstance(frame, f.Tune) else frame for frame in HANDSHAKE]
    connection.handler._connection.limits = type(connection.handler._connection.limits)(heartbeat_s=0)
    for frame in handshake:
        connection.send(frame)
    assert connection.after(10_000) == [] and not connection.transport.is_closed
    connection.handler.lost(None)
    connection.broker.close()


def test_an_unknown_frame_is_answered_with_close_and_the_reply_is_waited_for(opened: Connected) -> None:
    (close,) = opened.send_bytes(bytes.fromhex("0000000400630001"))
    assert close == f.Close(ResponseCode.UNKNOWN_FRAME, "unknown frame", correlation_id=1)
    opened.after(0)
    opened.after(9)
    assert not opened.transport.is_closed
    opened.send(f.CloseReply(correlation_id=1))
    assert opened.transport.is_closed


def test_a_client_that_does_not_answer_close_is_cut_off(opened: Connected) -> None:
    opened.send_bytes(bytes.fromhex("0000000400630001"))
    opened.after(0)
    opened.after(10.5)
    assert opened.transport.is_closed


def test_a_consumer_update_that_is_not_answered_ends_the_connection(opened: Connected) -> None:
    opened.send(f.Create("s", correlation_id=1))
    group = {"name": "g", "single-active-consumer": "true"}
    answers = opened.send(f.Subscribe(0, "s", OffsetSpecification.first(), 1, group, correlation_id=2))
    assert [type(frame) for frame in answers] == [f.SubscribeReply, f.ConsumerUpdate]
    opened.after(59)
    opened.send(f.Heartbeat())
    assert opened.after(2) == [
        f.Close(ResponseCode.INTERNAL_ERROR, "a consumer update was not answered", correlation_id=1)
    ]


def test_a_client_that_closes_is_answered_and_its_publishers_and_consumers_end(opened: Connected) -> None:
    opened.send(
        f.Create("s", correlation_id=1),
        f.DeclarePublisher(0, "anna", "s", correlation_id=2),
        f.Subscribe(0, "s", OffsetSpecification.next(), 1, {}, correlation_id=3),
    )
    assert opened.send(f.Close(1, "OK", correlation_id=4)) == [f.CloseReply(correlation_id=4)]
    assert opened.transport.is_closed
    (stream,) = opened.broker.catalogue
    assert list(stream.publishers) == [] and list(stream.readers) == []


def test_a_lost_connection_ends_its_publishers_and_consumers(opened: Connected) -> None:
    opened.send(
        f.Create("s", correlation_id=1),
        f.DeclarePublisher(0, "anna", "s", correlation_id=2),
        f.Subscribe(0, "s", OffsetSpecification.next(), 1, {}, correlation_id=3),
    )
    opened.handler.lost(ConnectionResetError())
    (stream,) = opened.broker.catalogue
    assert list(stream.publishers) == [] and list(stream.readers) == []
    assert len(opened.broker.sessions) == 0


def test_reading_stops_while_too_much_is_unconfirmed(opened: Connected) -> None:
    opened.send(f.Create("s", correlation_id=1), f.DeclarePublisher(0, None, "s", correlation_id=2))
    opened.handler.received(memoryview(publish([(number, b"x") for number in range(50_001)], frame_entries=100)))
    opened.transport.turn()
    assert not opened.transport.reads
    opened.clock.seconds += 1000
    opened.handler.tick(opened.clock.now_ms())
    assert not opened.transport.is_closed, "a client that is not read from cannot be silent"
    opened.transport.turns()
    opened.transport.written.clear()
    opened.broker.write_queued()
    opened.transport.turns()
    assert opened.transport.reads and bytes(opened.transport.written[4:8]) == bytes.fromhex("00030001")


def test_a_client_that_does_not_take_its_answers_is_asked_for_no_more(
    opened: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_control, "MAX_UNTAKEN_BYTES", 50_000)
    asked = memoryview(encode(f.QueryPublisherSequence("p", "s", correlation_id=1)) * 1000)
    opened.transport.is_writable = False
    while opened.transport.reads:
        opened.handler.received(asked)
        assert len(opened.transport.written) < 100_000
    assert len(opened.transport.written) > 50_000
    opened.transport.is_writable = True
    opened.handler.writable()
    assert opened.transport.reads


def test_a_server_that_stops_confirms_and_says_so(opened: Connected) -> None:
    opened.send(f.Create("s", correlation_id=1), f.DeclarePublisher(0, None, "s", correlation_id=2))
    opened.handler.received(memoryview(publish([(5, b"x")])))
    opened.handler.shut_down()
    assert not opened.transport.reads
    opened.broker.write_queued()
    opened.transport.turns()
    assert bytes(opened.transport.written).startswith(bytes.fromhex("0000001100030001"))
    opened.transport.written = opened.transport.written[21:]
    assert opened.answers() == [f.Close(ResponseCode.OK, "the server stops", correlation_id=1)]
    assert opened.transport.reads
    opened.send(f.CloseReply(correlation_id=1))
    assert opened.transport.is_closed


def test_a_server_that_stops_leaves_who_is_not_known_yet(connected: Connected) -> None:
    connected.handler.shut_down()
    assert connected.transport.is_closed


def test_a_stopping_server_tells_real_clients(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers={"stream": StreamHandler}) as server:
        peer = StreamPeer(server.ports["stream"])
        with peer:
            assert peer.code(f.Create("s")) == ResponseCode.OK
            waiting = threading.Thread(target=lambda: (peer.wait(f.Close), peer.wait_for_end()))
            waiting.start()
            server.call(server.context.broker.write_queued)
            for connection in tuple(server.server._acceptor._connections):
                server.call(connection.shut_down)
            waiting.join(20)
            assert not waiting.is_alive() and peer.is_ended


def test_what_is_unread_of_a_slow_client_is_not_kept_in_memory(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}) as server,
        opened_peer(server.ports["stream"]) as writer,
        opened_peer(server.ports["stream"]) as reader,
    ):
        assert writer.code(f.Create("s")) == ResponseCode.OK
        for _ in range(40):
            writer.put("s", [bytes(50_000) for _ in range(20)])
        assert reader.subscribe("s", credit=10_000) == ResponseCode.OK
        writer.put("s", [b"the last"])
        (consumer,) = [reader for stream in server.context.broker.catalogue for reader in stream.readers]
        assert consumer.lag > 0
        received = reader.messages(801)
        assert [offset for offset, _ in received] == list(range(801)) and received[-1][1] == b"the last"
