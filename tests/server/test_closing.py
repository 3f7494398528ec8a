"""Clean closes: the client, whose close was accepted, ends the connection; the server does after a time limit."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp10.connection import ConnectionState
from headgate.protocols.stream import frames as f
from server import amqp091_client, amqp10_client, stomp_client
from server.running import RunningServer, running_server
from stream_peer import opened_peer
from waiting import LIMIT_S


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that closes no connection by itself while a test lasts."""
    with running_server(tmp_path_factory.mktemp("patient"), timeouts={"linger_s": 10 * LIMIT_S}) as running:
        yield running


@contextlib.contextmanager
def closed_by_amqp091(server: RunningServer) -> Iterator[socket.socket]:
    with amqp091_client.Client(server.ports["amqp"]).open(1) as client:
        assert client.call(0, m.ConnectionClose(200, "bye", 0, 0)) == m.ConnectionCloseOk()
        yield client.socket


@contextlib.contextmanager
def closed_by_amqp10(server: RunningServer) -> Iterator[socket.socket]:
    with amqp10_client.client_of(server.ports["amqp"]) as client:
        client.connection.close()
        assert client.closed() is None
        assert client.connection.state is ConnectionState.CLOSED
        yield client.socket


@contextlib.contextmanager
def closed_by_stream_client(server: RunningServer) -> Iterator[socket.socket]:
    with opened_peer(server.ports["stream"]) as peer:
        assert peer.code(f.Close(1, "bye")) == 1
        yield peer.socket


@contextlib.contextmanager
def closed_by_stomp(server: RunningServer) -> Iterator[socket.socket]:
    client = stomp_client.Client(server)
    with client.socket:
        client.say("DISCONNECT\nreceipt:bye\n\n\0")
        assert client.next().command == "RECEIPT"
        yield client.socket


CLOSES = pytest.mark.parametrize(
    "closed", [closed_by_amqp091, closed_by_amqp10, closed_by_stream_client, closed_by_stomp]
)


@CLOSES
def test_the_client_closes_first_when_its_close_was_accepted(
    patient: RunningServer, closed: Callable[[RunningServer], contextlib.AbstractContextManager[socket.socket]]
) -> None:
    with closed(patient) as connected:
        # Whatever the turn that answered did has happened by then.
        patient.call(lambda: None)
        patient.call(lambda: None)
        connected.setblocking(False)
        with pytest.raises(BlockingIOError):
            connected.recv(1)
        connected.setblocking(True)
        connected.settimeout(LIMIT_S)
        connected.shutdown(socket.SHUT_WR)
        assert connected.recv(1) == b""


@CLOSES
def test_a_client_that_does_not_close_is_closed_in_time(
    tmp_path: Path, closed: Callable[[RunningServer], contextlib.AbstractContextManager[socket.socket]]
) -> None:
    with running_server(tmp_path, timeouts={"linger_s": 0.05}) as server, closed(server) as connected:
        assert connected.recv(1) == b""
