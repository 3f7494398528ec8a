"""Connections that are kept for the next client of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate.client import Client, ServerAddress, SubscriptionOptions
from headgate.client.connection import Connection
from headgate.client.connection_pool import KEPT, ConnectionPool
from headgate.errors import AuthenticationError
from headgate.log import OffsetSpecification
from headgate.protocols.stream.frames import Subscribe
from waiting import eventually

from .conftest import SOON
from .fake_server import FakeServer


@pytest.fixture(autouse=True)
def none_kept() -> Iterator[None]:
    """What a test keeps is not there for the next one."""
    KEPT.close()
    yield
    KEPT.close()


def keeping(server: FakeServer) -> Client:
    return Client.connect(server.address, retry=SOON, keep=True)


def read_all(client: Client, stream: str) -> list[int]:
    subscription = client.subscription(
        SubscriptionOptions(stream, OffsetSpecification.first(), stop=client.statistics(stream).committed_chunk_id)
    )
    offsets = []
    while not subscription.is_finished:
        batch = subscription.read(5.0)
        offsets += [] if batch is None else batch.offsets.tolist()
    subscription.close()
    return offsets


def test_one_connection_serves_all_clients_of_a_process_one_after_the_other(headgate: FakeServer) -> None:
    for number in range(3):
        with keeping(headgate) as client:
            client.create_stream("orders")
            with client.publisher("orders", name=f"publisher-{number}") as publisher:
                publisher.send(b"one")
                publisher.flush()
            headgate.append("orders", [b"two"], [None])
            assert read_all(client, "orders") == list(range(2 * number + 1))
    assert headgate.connections == 1
    ids = [frame.subscription_id for frame in headgate.seen if isinstance(frame, Subscribe)]
    assert len(set(ids)) == 3


def test_a_client_that_does_not_keep_has_connections_of_its_own(headgate: FakeServer) -> None:
    with keeping(headgate):
        pass
    with Client.connect(headgate.address, retry=SOON):
        pass
    assert headgate.connections == 2
    assert len(KEPT) == 1


def test_a_connection_that_the_server_closed_is_made_anew(headgate: FakeServer) -> None:
    with keeping(headgate) as client:
        client.create_stream("orders")
    headgate.drop_connections()
    with keeping(headgate) as client:
        assert client.has_stream("orders")
    assert headgate.connections == 2
    assert len(KEPT) == 1


def test_a_subscription_that_was_given_up_leaves_no_connection(headgate: FakeServer) -> None:
    with keeping(headgate) as client:
        client.create_stream("orders")
        headgate.append("orders", [b"one"], [None])
        subscription = client.subscription(SubscriptionOptions("orders", OffsetSpecification.first()))
        assert len(KEPT) == 0
        subscription.abandon()
        assert len(KEPT) == 0
        assert client.has_stream("orders")
    assert headgate.connections == 2


def test_only_the_whole_same_address_has_the_same_connection(headgate: FakeServer) -> None:
    place = ServerAddress.parse(headgate.address)
    for address in (place, replace(place, virtual_host="other"), place):
        with Client.connect(address, retry=SOON, keep=True) as client:
            assert not client.has_stream("orders")
    assert headgate.connections == 2
    with pytest.raises(AuthenticationError):
        Client.connect(replace(place, user="other"), retry=SOON, keep=True)


def connection(server: FakeServer, virtual_host: str) -> Connection:
    address = replace(ServerAddress.parse(server.address), virtual_host=virtual_host)
    return Connection(address, timeout_s=5.0, heartbeat_s=60)


def test_of_too_many_the_one_that_waits_longest_is_closed(headgate: FakeServer) -> None:
    kept = ConnectionPool(most=2)
    made = [connection(headgate, host) for host in "abc"]
    for each in made:
        kept.give_back(each.address, each)
    assert [each.is_open for each in made] == [False, True, True]
    assert kept.take(made[2].address, lambda: pytest.fail("there is one")) is made[2]
    kept.close()
    made[2].close()
    assert not any(each.is_open for each in made)


def test_a_connection_that_is_not_used_again_is_closed(headgate: FakeServer) -> None:
    kept = ConnectionPool(idle_s=0.01)
    made = [connection(headgate, host) for host in "ab"]
    for each in made:
        kept.give_back(each.address, each)
    eventually(lambda: not any(each.is_open for each in made))
    assert len(kept) == 0


def test_a_child_process_does_not_use_the_connections_of_its_parent(headgate: FakeServer) -> None:
    with keeping(headgate) as client:
        client.create_stream("orders")
        child = os.fork()
        if child == 0:
            os._exit(len(KEPT))
        assert os.waitpid(child, 0)[1] == 0
        assert client.has_stream("orders")
    assert headgate.connections == 1
