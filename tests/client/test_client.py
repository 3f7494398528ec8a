"""Streams of a server: made, deleted, asked about; what a refusal becomes."""

from __future__ import annotations

import socket
import threading

import pytest

from headgate.client import Client, Retry, StreamStatistics
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    PreconditionFailedError,
    RemoteProtocolError,
    ResourceNotFoundError,
)
from headgate.log import OffsetSpecification
from headgate.protocols.stream.codes import SERVER_VERSIONS, Command, ResponseCode
from headgate.protocols.stream.frames import Create, Heartbeat
from waiting import eventually

from .conftest import SOON
from .fake_server import NOW_MS, FakeServer


def test_a_stream_is_made_once_and_deleted(client: Client, server: FakeServer) -> None:
    assert not client.has_stream("orders")
    assert client.create_stream("orders", {"max-length-bytes": 1000})
    assert not client.create_stream("orders", {"max-length-bytes": 1000})
    created = next(frame for frame in server.seen if isinstance(frame, Create))
    assert created.arguments == {"max-length-bytes": "1000"}
    assert client.has_stream("orders")
    client.delete_stream("orders")
    assert not client.has_stream("orders")
    with pytest.raises(ResourceNotFoundError, match=r"orders: .*stream does not exist \(0x02\)"):
        client.delete_stream("orders")


def test_statistics_of_an_empty_stream_are_none(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    assert client.statistics("orders") == StreamStatistics(None, None, None)
    server.append("orders", [b"one", b"two"], [None, None])
    server.append("orders", [b"three"], [None])
    assert client.statistics("orders") == StreamStatistics(0, 2, 2)


def test_a_bookmark_is_found_again(client: Client) -> None:
    client.create_stream("orders")
    assert client.query_offset("orders", "reader") is None
    client.store_offset("orders", "reader", 41)
    assert client.query_offset("orders", "reader") == 41


@pytest.mark.parametrize("asks", [True, False], ids=["command", "by reading"])
def test_places_of_a_stream_become_offsets(server: FakeServer, asks: bool) -> None:
    if not asks:
        server.versions = tuple(v for v in SERVER_VERSIONS if v[0] != Command.RESOLVE_OFFSET_SPECIFICATION)
    with Client.connect(server.address, retry=SOON) as client:
        client.create_stream("orders")
        assert client.resolve_offset("orders", OffsetSpecification.next()) == 0
        server.append("orders", [b"a", b"b", b"c"], [None] * 3)
        server.append("orders", [b"d", b"e"], [None] * 2)
        found = {
            place: client.resolve_offset("orders", place)
            for place in (
                OffsetSpecification.first(),
                OffsetSpecification.last(),
                OffsetSpecification.next(),
                OffsetSpecification.offset(4),
                OffsetSpecification.timestamp(NOW_MS - 1),
                OffsetSpecification.timestamp(NOW_MS + 1),
                OffsetSpecification.timestamp(NOW_MS + 10),
            )
        }
        assert list(found.values()) == [0, 3, 5, 4, 0, 3, 5]


def test_super_streams_are_made_routed_and_deleted(client: Client) -> None:
    assert client.create_super_stream("invoices", ["amer", "emea"]) == ["invoices-amer", "invoices-emea"]
    assert client.partitions("invoices") == ["invoices-amer", "invoices-emea"]
    assert client.route("invoices", "emea") == ["invoices-emea"]
    assert client.route("invoices", "apj") == []
    client.delete_super_stream("invoices")
    with pytest.raises(ResourceNotFoundError):
        client.partitions("invoices")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ResponseCode.PRECONDITION_FAILED, PreconditionFailedError),
        (ResponseCode.ACCESS_REFUSED, AccessRefusedError),
        (ResponseCode.INTERNAL_ERROR, BrokerError),
        (0x7777, BrokerError),
    ],
)
def test_a_refusal_is_raised_with_its_code(
    client: Client, server: FakeServer, code: int, error: type[BrokerError]
) -> None:
    server.refused[Command.CREATE] = code
    with pytest.raises(error, match=f"orders.*0x{code:02x}"):
        client.create_stream("orders")


def test_a_wrong_password_is_an_authentication_error_without_the_password(server: FakeServer) -> None:
    with pytest.raises(AuthenticationError, match=r"guest.*0x08") as raised:
        Client.connect(server.address, password="secret")
    assert "secret" not in str(raised.value)


def test_no_server_is_a_lost_connection_that_names_the_place(server: FakeServer) -> None:
    address = server.address
    server.close()
    with pytest.raises(ConnectionLostError, match=address):
        Client.connect(address)


def test_a_command_is_made_again_when_the_connection_was_lost(client: Client, server: FakeServer) -> None:
    server.drop_connections()
    assert client.create_stream("orders")


def test_a_server_that_says_nothing_is_a_lost_connection(server: FakeServer) -> None:
    client = Client.connect(server.address, timeout_s=0.2, retry=SOON)
    with server.lock, pytest.raises(ConnectionLostError, match="no answer within"):
        client.has_stream("orders")
    client.close()


def test_a_closed_client_says_so(server: FakeServer) -> None:
    client = Client.connect(server.address)
    client.close()
    with pytest.raises(ConfigError, match="closed"):
        client.has_stream("orders")


def test_an_advertised_place_that_nobody_reaches_is_passed_over(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.advertised = ("no-such-host.invalid", 5552)
    with client.publisher("orders") as publisher:
        publisher.send(b"one")
    assert server.streams["orders"].next_offset == 1


def test_retrying_gives_up_after_its_time() -> None:
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise ConnectionLostError("gone", server="here:1")

    with pytest.raises(ConnectionLostError):
        Retry(first_s=0.001, most_s=0.002, give_up_after_s=0.02).run(fail)
    assert len(attempts) > 3


@pytest.mark.slow
def test_a_side_that_waits_shows_that_it_is_there_and_misses_who_does_not(server: FakeServer) -> None:
    server.append("orders", [b"one"], [None])
    with (
        Client.connect(server.address, heartbeat_s=1, retry=SOON) as client,
        client.consumer("orders", start="next") as consumer,
    ):
        connections = server.connections
        eventually(lambda: consumer.next(0.05) or any(isinstance(frame, Heartbeat) for frame in server.seen))
        assert server.connections == connections
        # The server of this test never sends a heartbeat: after two of them it is taken for dead.
        eventually(lambda: consumer.next(0.05) or server.connections > connections)


def test_a_port_of_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"

        def answer() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                while accepted.recv(1000):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RemoteProtocolError, match=f"{place}: no opening, .*port of the stream protocol"):
            Client.connect(place)
        thread.join()
