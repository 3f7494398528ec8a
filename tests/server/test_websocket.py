"""AMQP over WebSockets: the same connection behind other borders, and peers that do not keep to the rules."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import h11
import pytest
from wsproto.events import BytesMessage, CloseConnection, Ping

from headgate.message import Message
from headgate.server.metrics import open_descriptors, resident_bytes
from headgate.server.websocket import WebSocketTransport, answer_handshake
from server.amqp10_client import client_of
from server.entities import ServedEntities
from server.running import RunningServer, running_server
from server.servicebus_client import bodies, peek_lock
from server.websocket_client import PATH, WebSocketClient, connect, fragments, single_bytes, whole
from waiting import LIMIT_S, until_closed

KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
ASKED = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
NAMED = b"Sec-WebSocket-Protocol: AMQPWSB10\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    listeners = {"servicebus": 0, "servicebus_tls": 0}
    timeouts = {"linger_s": 10 * LIMIT_S, "handshake_s": LIMIT_S}
    with running_server(tmp_path_factory.mktemp("server"), listeners=listeners, timeouts=timeouts) as running:
        yield running


@pytest.fixture
def port(server: RunningServer, caplog: pytest.LogCaptureFixture) -> Iterator[int]:
    with caplog.at_level(logging.WARNING):
        yield server.ports["servicebus"]
    server.until(lambda: len(server.context.connections) == 0)
    assert server.context.connections.totals.failed == 0 and not caplog.records, caplog.text


def good_bye(web_socket: Any) -> None:
    """The client, whose close was accepted, closes the WebSocket; the server answers, and closes the socket."""
    web_socket.say(CloseConnection(1000))
    assert web_socket.recv(1) == b"" and web_socket.closed.code == 1000
    assert until_closed(web_socket.socket) == b""


def exchange(port: int, connected: WebSocketClient, queue: str) -> None:
    """Messages to a queue and back, one of them larger than frames and messages of WebSockets."""
    sent = [b"small", b"large" * 120_000, b""]
    with client_of(port, mechanism="ANONYMOUS", response=b"", connected=cast(Any, connected)) as client:
        sender = client.sender(queue)
        client.send(sender, *map(Message, sent))
        link = peek_lock(client, queue)
        assert bodies(client, link, len(sent)) == sent
        client.connection.close()
        assert client.closed() is None
        good_bye(connected)


@pytest.mark.parametrize("cut", [whole, fragments])
def test_borders_of_messages_mean_nothing(
    server: RunningServer, port: int, cut: Callable[[bytes], Iterable[BytesMessage]]
) -> None:
    queue = ServedEntities(server).queue(f"queue-{cut.__name__}")
    client = WebSocketClient(connect(port), path=f"{PATH}/", cut=cut)
    assert client.subprotocol == "AMQPWSB10"
    exchange(port, client, queue)
    assert sum(client.sizes) > 600_000 and max(client.sizes) <= 256 * 1024


def test_a_message_for_each_byte(port: int) -> None:
    with client_of(port, mechanism="ANONYMOUS", response=b"",
                   connected=WebSocketClient(connect(port), subprotocols=["mqtt", "amqp"], cut=single_bytes),
    ) as client:  # fmt: skip
        assert client.socket.subprotocol == "amqp"  # type: ignore[attr-defined]
        client.connection.close()
        assert client.closed() is None


@pytest.mark.parametrize("listener", ["servicebus", "servicebus_tls"])
def test_with_tls(server: RunningServer, port: int, listener: str) -> None:
    queue = ServedEntities(server).queue(f"queue-{listener}")
    context = ssl.create_default_context()
    context.load_verify_locations(f"{server.context.settings.root}/.headgate/tls/authority.pem")
    connected = context.wrap_socket(connect(server.ports[listener]), server_hostname="localhost")
    web_socket = WebSocketClient(connected)
    (record,) = server.call(lambda: list(server.context.connections))
    assert record.listener == listener and record.peer.is_encrypted
    exchange(port, web_socket, queue)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + VERSION, 400),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + VERSION + b"Sec-WebSocket-Protocol: mqtt\r\n", 400),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + VERSION + b"Sec-WebSocket-Protocol: \xff\r\n", 400),
        (b"GET %s HTTP/1.1\r\nHost: \xff\r\n" + ASKED + KEY + VERSION + NAMED, 400),
        (b"GET %s HTTP/1.0\r\n" + ASKED + KEY + VERSION + NAMED, 400),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + VERSION + NAMED, 400),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + NAMED, 400),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + b"Sec-WebSocket-Version: 8\r\n" + NAMED, 426),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\nOrigin: http://example.com\r\n" + ASKED + KEY + VERSION + NAMED, 403),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n" + ASKED + KEY + VERSION + NAMED, 403),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\nOrigin: \xff\r\n" + ASKED + KEY + VERSION + NAMED, 403),
        (b"GET %s HTTP/1.1\r\nHost: a.test\r\nOrigin: http://a.test\r\n" + ASKED + KEY + VERSION + NAMED, 403),
        (b"GET %sx HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + VERSION + NAMED, 404),
        (b"POST %s HTTP/1.1\r\nHost: localhost\r\n" + ASKED + KEY + VERSION + NAMED, 404),
        (b"GET %s HTTP/1.1\r\nHost: localhost\r\n" + KEY + VERSION + NAMED, 404),
    ],
)
def test_handshakes_that_are_refused(port: int, request_: bytes, status: int) -> None:
    with connect(port) as client:
        client.sendall(request_ % PATH.encode() + b"\r\n")
        client.shutdown(socket.SHUT_WR)
        assert until_closed(client).startswith(b"HTTP/1.1 %d " % status)


def test_a_page_of_this_server_and_a_client_without_one_may_come(port: int) -> None:
    for headers in ([(b"Origin", b"https://LOCALHOST")], []):
        with WebSocketClient(connect(port), headers=headers) as client:
            assert client.subprotocol == "AMQPWSB10"


def frame(head: int, payload: bytes = b"", *, masked: bool = True) -> bytes:
    """A frame whose mask is zeros."""
    assert len(payload) < 126
    return bytes([head, len(payload) | (0x80 if masked else 0)]) + (bytes(4) if masked else b"") + payload


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame(0x81, b"AMQP"), 1003),
        (frame(0x01, b"AMQP"), 1003),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x82, b"AMQP", masked=False), 1002),
        (frame(0xC2, b"AMQP"), 1002),
        (frame(0x83, b"AMQP"), 1002),
        (frame(0x80, b"AMQP"), 1002),
        (frame(0x02, b"AMQP") + frame(0x82, b"AMQP"), 1002),
        (frame(0x09, b"ping"), 1002),
        (b"\x89\xfe\x00\x7e" + bytes(4 + 126), 1002),
        (b"\x82\xff" + b"\xff" * 8 + bytes(4), 1002),
        (frame(0x88, b"\x03"), 1002),
        (frame(0x88, struct.pack(">H", 1005)), 1002),
        (frame(0x88, struct.pack(">H", 1001) + b"bye"), 1001),
        (frame(0x88), 1000),
    ],
)
def test_what_ends_a_web_socket(port: int, said: bytes, code: int) -> None:
    client = WebSocketClient(connect(port))
    client.socket.sendall(said + b"and more behind it")
    with client:
        assert client.recv(1) == b"" and client.closed is not None
        assert client.closed.code == code or (code == 1000 and client.closed.code == 1005)
        client.socket.shutdown(socket.SHUT_WR)
        until_closed(client.socket)


def test_a_client_that_goes_without_a_word_and_one_that_says_no_more(port: int) -> None:
    WebSocketClient(connect(port)).socket.close()
    with WebSocketClient(connect(port)) as client:
        client.socket.shutdown(socket.SHUT_WR)
        until_closed(client.socket)


def test_pings_are_answered(port: int) -> None:
    with WebSocketClient(connect(port)) as client:
        client.say(Ping(b"first"), Ping(b"second"))
        assert (client.pong(), client.pong()) == (b"first", b"second")


class _Full:
    """A socket, and what is served over it, that keep what they are given."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.calls: list[str] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)


def test_of_pings_while_the_peer_takes_no_answers_only_the_last_is_answered() -> None:
    full: Any = _Full()
    request = h11.Request(method="GET", target=PATH, headers=[
        ("Host", "localhost"), ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Protocol", "amqp"),
    ])  # fmt: skip
    connection, _answer = answer_handshake(request)
    assert connection is not None
    layer = WebSocketTransport(full, connection, full)
    layer.pause_writing()
    for number in range(3):
        layer.data_received(frame(0x89, b"%d" % number))
    assert full.written == []
    layer.resume_writing()
    assert full.written == [frame(0x8A, b"2", masked=False)]
    assert full.calls == ["connection_made", "pause_writing", "resume_writing"]


def test_the_server_says_good_bye(server: RunningServer, port: int) -> None:
    web_socket: Any = WebSocketClient(connect(port))
    with client_of(port, mechanism="ANONYMOUS", response=b"", connected=web_socket) as client:
        (transport,) = server.call(lambda: list(server.server._acceptor._connections))
        server.call(transport.shut_down)
        assert client.closed() == "amqp:connection:forced"
        good_bye(web_socket)


def test_whoever_says_nothing_behind_the_handshake_is_cut_off_and_web_sockets_are_no_requests(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_server(
        tmp_path_factory.mktemp("silent"),
        listeners={"servicebus": 0},
        timeouts={"handshake_s": 0.5},
        limits={"connections": 2},
    ) as running:
        port = running.ports["servicebus"]
        with client_of(port, mechanism="ANONYMOUS", response=b"",
                       connected=WebSocketClient(connect(port))) as client:  # fmt: skip
            with WebSocketClient(connect(port)) as silent:
                # A third is one too many.
                with WebSocketClient(connect(port)) as refused, contextlib.suppress(ConnectionError):
                    assert until_closed(refused.socket) == b""
                until_closed(silent.socket)
            # Longer than a request may take; what has opened stays.
            client.connection.begin()
            client.pump(lambda: client.connection.sessions[0].is_mapped)


def test_garbage_leaves_nothing(server: RunningServer, port: int, seed: int) -> None:
    chance = random.Random(seed)

    def rounds(count: int) -> None:
        for _ in range(count):
            client = WebSocketClient(connect(port))
            heads = (0x82, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0x81, chance.randrange(256))
            pieces = [
                frame(chance.choice(heads), chance.randbytes(chance.randrange(126)), masked=chance.random() < 0.95)
                for _ in range(chance.choice((1, 3, 20)))
            ]
            data = b"".join(pieces) if chance.random() < 0.8 else chance.randbytes(chance.choice((1, 10, 5_000)))
            with client, contextlib.suppress(ConnectionError):
                client.socket.sendall(data[: chance.choice((len(data), chance.randrange(len(data) + 1)))])
                if chance.random() < 0.7:
                    client.socket.shutdown(socket.SHUT_WR)
                    until_closed(client.socket)
        server.until(lambda: len(server.context.connections) == 0)

    rounds(20)
    descriptors, memory = open_descriptors(), resident_bytes()
    rounds(150)
    server.until(lambda: open_descriptors() <= descriptors)
    assert resident_bytes() < memory + 16_000_000


def test_a_request_without_an_upgrade_is_answered(port: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://localhost:{port}{PATH}", timeout=LIMIT_S)
    assert error.value.code == 404
    error.value.close()
