"""Clients that speak another protocol than their port: one address for messages and administration; answers."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from headgate.protocols.amqp10 import SASL_HEADER
from server.amqp10_client import client_of
from server.entities import ServedEntities
from server.running import RunningServer, running_server
from server.servicebus_client import bodies, peek_lock
from waiting import LIMIT_S

REQUEST = b"GET /$Resources/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HELLO = bytes.fromhex("1603010005010000010303")
ALERT = bytes.fromhex("15030300020228")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("misdirected")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "server.pem")
    issued.private_key_pem.write_to_path(folder / "server.key")
    tls = {"certificate": str(folder / "server.pem"), "key": str(folder / "server.key")}
    with running_server(folder, tls=tls, listeners={"servicebus": 0, "servicebus_tls": 0}) as running:
        yield running


def _connected(running: RunningServer, listener: str, authority: trustme.CA | None = None) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", running.ports[listener]), LIMIT_S)
    if authority is None:
        return plain
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context.wrap_socket(plain, server_hostname="localhost")


def _answer(client: socket.socket, *said: bytes) -> bytes:
    """What comes until the server closes."""
    answer = b""
    with client:
        for piece in said:
            client.sendall(piece)
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            while piece := client.recv(1 << 16):
                answer += piece
    return answer


@pytest.mark.parametrize(
    ("listener", "encrypted"),
    [("amqp", False), ("amqps", True), ("servicebus", False), ("servicebus", True), ("servicebus_tls", True)],
)
def test_messages_and_administration_are_at_one_address(
    running: RunningServer, authority: trustme.CA, listener: str, encrypted: bool
) -> None:
    trust = authority if encrypted else None
    name = f"{listener}-{encrypted}"
    ServedEntities(running).queue(name)
    # Twice: the loop reads on after it changed hands.
    for said in ((REQUEST,), (REQUEST[:20], REQUEST[20:])):
        answer = _answer(_connected(running, listener, trust), *said)
        assert answer.startswith(b"HTTP/1.1 200") and name.encode() in answer
    connected = _connected(running, listener, trust)
    with client_of(running.ports[listener], connected=connected, mechanism="ANONYMOUS", response=b"") as client:
        client.send(client.sender(name), b"\x00\x53\x75\xa0\x04body")
        assert bodies(client, peek_lock(client, name), 1) == [b"body"]
    running.until(lambda: not len(running.context.connections))


def test_administration_that_is_off_is_off_at_the_ports_of_amqp_too(tmp_path: Path) -> None:
    with running_server(tmp_path, listeners={"servicebus": "off"}) as running:
        answer = _answer(_connected(running, "amqp"), REQUEST)
        assert answer.startswith(b"HTTP/1.1 400") and b"speaks amqp, found HTTP; the console is at port" in answer


@pytest.mark.parametrize(
    ("listener", "said", "answer", "reason"),
    [
        ("amqp", HELLO, ALERT, "speaks amqp, found TLS; with TLS it is port {amqps}"),
        ("stream", HELLO, ALERT, "speaks stream, found TLS; with TLS it is port {stream_tls}"),
        ("stomp", HELLO, ALERT, "speaks stomp, found TLS; with TLS it is port {stomp_tls}"),
        ("http", HELLO, ALERT, "speaks http, found TLS; with TLS it is port {https}"),
        ("http", SASL_HEADER, b"", "speaks http, found AMQP; AMQP is at port {amqp}"),
        ("stream", SASL_HEADER, b"", "speaks stream, found AMQP; AMQP is at port {amqp}"),
        ("stomp", REQUEST, b"HTTP/1.1 400", "speaks stomp, found HTTP; the console is at port {http}"),
        ("amqps", SASL_HEADER, b"AMQP\x02\x01\x00\x00", "speaks amqp with TLS, found AMQP without TLS"),
        (
            "https",
            REQUEST,
            b"HTTP/1.1 400",
            "speaks http with TLS, found HTTP without TLS; without TLS it is port {http}",
        ),
        ("servicebus_tls", REQUEST, b"HTTP/1.1 400", "without TLS it is port {servicebus}"),
        ("stream_tls", b"\x00\x00\x00\x02xy", b"", "speaks TLS, found something else"),
    ],
)
def test_others_are_answered_at_once_and_the_log_says_why(
    running: RunningServer, caplog: pytest.LogCaptureFixture, listener: str, said: bytes, answer: bytes, reason: str
) -> None:
    with caplog.at_level(logging.INFO, "headgate.server"):
        assert _answer(_connected(running, listener), said).startswith(answer)
    assert reason.format(**running.ports) in caplog.text
    running.until(lambda: not len(running.context.connections))
