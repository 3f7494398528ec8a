"""Clients that are idle, silent, gone, or send garbage: the server has afterwards what it had before."""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.client import ServerAddress
from headgate.client.connection import Connection
from headgate.clock import SystemClock
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp10.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from headgate.protocols.amqp10.performatives import SaslInit, SaslOutcome
from headgate.protocols.grpc.frames import PREFACE, settings
from headgate.server.metrics import open_descriptors, resident_bytes
from server.amqp091_client import Client as Client091
from server.amqp10_client import client_of
from server.running import RunningServer, running_server
from waiting import LIMIT_S, until_closed

pytestmark = pytest.mark.faults

PREFIXES = {
    "amqp": (
        b"",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00\x00\x00\x00\x1e\x02\x01\x00\x00\x00\x53\x41\xc0\x11\x02\xa3\x05PLAIN",
        b"AMQP\x00\x00\x09\x01\x01\x00\x00\x7f\xff\xff\xff\x00\x0a",
    ),
    "stream": (
        b"",
        b"\x00\x00\x00\x10\x00\x11\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\x00\x00\x00\x10\x00\x11\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
    ),
    "stomp": (b"", b"CONNECT\n", b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\x00", b"SEND\n" * 50),
    "rocketmq": (
        b"",
        PREFACE,
        PREFACE + settings({}),
        PREFACE + settings({}) + b"\x00\x00\x10\x01\x04\x00\x00\x00\x01",
    ),
    "http": (
        b"",
        b"GET /",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /api/users/x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ),
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, timeouts={"linger_s": 10 * LIMIT_S, "handshake_s": LIMIT_S}) as running:
        yield running


def throw(port: int, data: bytes, *, reset: bool) -> None:
    """Sends bytes, reads what comes, and goes away, with a reset if asked."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client, contextlib.suppress(OSError):
        client.sendall(data)
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            return
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass


@pytest.mark.parametrize("protocol", list(PREFIXES))
def test_garbage_ends_connections_and_leaves_nothing(
    running: RunningServer, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(protocol)
    port = running.ports[protocol]

    def rounds(count: int) -> None:
        for _ in range(count):
            garbage = chance.randbytes(chance.choice((1, 7, 8, 40, 3000, 100_000)))
            throw(port, chance.choice(PREFIXES[protocol]) + garbage, reset=chance.random() < 0.3)
        running.until(lambda: len(running.context.connections) == 0)

    with caplog.at_level(logging.ERROR):
        rounds(30)
        descriptors, memory = open_descriptors(), resident_bytes()
        rounds(120)
    assert running.context.connections.totals.failed == 0, caplog.text
    running.until(lambda: open_descriptors() <= descriptors)
    assert resident_bytes() < memory + 16_000_000
    assert running.context.is_ready
    Connection(address(running), timeout_s=LIMIT_S, heartbeat_s=60).close()


def address(running: RunningServer) -> ServerAddress:
    return ServerAddress("127.0.0.1", running.ports["stream"])


def test_a_thousand_idle_connections_cost_little_and_are_given_back(running: RunningServer) -> None:
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * count + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"the limit of descriptors here is {hard}, {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    Connection(address(running), timeout_s=LIMIT_S, heartbeat_s=0).close()
    running.until(lambda: len(running.context.connections) == 0)
    descriptors, memory = open_descriptors(), resident_bytes()
    clients = [Connection(address(running), timeout_s=LIMIT_S, heartbeat_s=0) for _ in range(count)]
    try:
        running.until(lambda: len(running.context.connections) == count)
        # Both ends of each connection are in this process.
        assert open_descriptors() <= descriptors + 2 * count + count // 10
        assert resident_bytes() - memory < count * 100_000
        Connection(address(running), timeout_s=LIMIT_S, heartbeat_s=0).close()
    finally:
        for client in clients:
            client.close()
    running.until(lambda: len(running.context.connections) == 0)
    running.until(lambda: open_descriptors() <= descriptors)


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts the clocks of servers forward by so many seconds."""
    passed_s = 0.0

    def let_pass(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    monkeypatch.setattr(SystemClock, "monotonic_s", staticmethod(lambda: time.monotonic() + passed_s))
    return let_pass


LATE_S = 100.0
PATIENT = {"handshake_s": 60.0, "heartbeat_s": 1000}
"""Nobody is cut off before the clock is put forward by `LATE_S`."""


@pytest.mark.parametrize("protocol", ["amqp", "stream", "stomp", "rocketmq"])
def test_a_client_that_says_nothing_is_cut_off(tmp_path: Path, protocol: str) -> None:
    with running_server(tmp_path, timeouts={"handshake_s": 0.3}) as running:
        with socket.create_connection(("127.0.0.1", running.ports[protocol]), LIMIT_S) as client:
            until_closed(client)
        running.until(lambda: len(running.context.connections) == 0)


def log_in_only(port: int, upto: str) -> socket.socket:
    """A client whose login was answered, and that goes no further than that."""
    if upto.startswith("0.9.1"):
        client091 = Client091(port)
        assert isinstance(client091.log_in(), m.ConnectionTune)
        if upto == "0.9.1 tune-ok":
            client091.say(0, m.ConnectionTuneOk(0x7FF, 131_072, 0))
        return client091.socket
    connected = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    connected.sendall(SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest").encode(), kind=SASL_FRAME))
    said, accepted = b"", encode_frame(0, SaslOutcome(0).encode(), kind=SASL_FRAME)
    while not said.endswith(accepted):
        said += connected.recv(1000)
    if upto == "1.0 header":
        connected.sendall(AMQP_HEADER)
    return connected


@pytest.mark.parametrize("upto", ["1.0 outcome", "1.0 header", "0.9.1 start-ok", "0.9.1 tune-ok"])
def test_a_client_that_logs_in_and_does_not_open_is_cut_off(
    tmp_path: Path, let_pass: Callable[[float], None], upto: str
) -> None:
    with running_server(tmp_path, timeouts=PATIENT) as running:
        port = running.ports["amqp"]
        with (
            client_of(port) as opened10,
            client_of(port, mechanism="MSSBCBS", response=b"") as stranger,
            Client091(port) as opened091,
        ):
            opened091.open()
            with log_in_only(port, upto) as client:
                let_pass(LATE_S)
                until_closed(client)
            running.until(lambda: len(running.context.connections) == 3)
            # Who opened before stays, a user or not.
            for client10 in (opened10, stranger):
                client10.connection.begin()
                client10.pump(lambda client10=client10: client10.connection.sessions[0].is_mapped)
            assert opened091.call(1, m.ChannelOpen()) == m.ChannelOpenOk()


def test_a_login_that_is_being_checked_does_not_count_against_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, let_pass: Callable[[float], None]
) -> None:
    asked, may_answer = threading.Event(), threading.Event()
    with running_server(tmp_path, timeouts=PATIENT) as running, ExitStack() as stack:
        port = running.ports["amqp"]
        checked = stack.enter_context(Client091(port))
        given = running.context.broker.users.authenticate

        def authenticate(name: str, password: str) -> None:
            asked.set()
            assert may_answer.wait(LIMIT_S)
            given(name, password)

        # It opens after `checked`, so it is looked at later: when it is gone, that one was passed over.
        unopened = stack.enter_context(log_in_only(port, "0.9.1 start-ok"))
        monkeypatch.setattr(running.context.broker.users, "authenticate", authenticate)
        with ThreadPoolExecutor(1) as pool:
            try:
                opening = pool.submit(checked.open)
                assert asked.wait(LIMIT_S)
                let_pass(LATE_S)
                until_closed(unopened)
            finally:
                may_answer.set()
            opening.result(LIMIT_S)
        # And whoever says nothing gets no more time by it.
        silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), LIMIT_S))
        running.until(lambda: len(running.context.connections) == 2)
        let_pass(LATE_S)
        until_closed(silent)
        assert checked.call(1, m.ChannelOpen()) == m.ChannelOpenOk()
