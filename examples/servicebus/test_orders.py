"""Tests of the program beside this: each has a server of its own, with the entities that the marker names.

pytest examples/servicebus
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from orders import bodies, pack, send_orders

from headgate.testing import HeadgateServer

pytestmark = pytest.mark.headgate_entities("entities.toml")


@pytest.fixture
def client(headgate_server: HeadgateServer) -> Iterator[ServiceBusClient]:
    """The application's client: the connection string is all that it has to know."""
    with ServiceBusClient.from_connection_string(headgate_server.servicebus) as opened:
        yield opened


def test_red_orders_are_packed_and_empty_ones_are_dead_letters(client: ServiceBusClient) -> None:
    """The rule halves the quantity, the program decides."""
    send_orders(client)
    pack(client)
    assert bodies(client, queue="parcels") == ["5 for '10 red ones'"]
    assert bodies(client, subscription="red", dead=True) == ["0 red ones"]


@pytest.mark.headgate_entities(queue=[{"name": "returns"}])
def test_a_test_has_entities_of_its_own_and_nothing_of_the_test_before(client: ServiceBusClient) -> None:
    """Markers of test, class and module come together; what the test before left is not there."""
    with client.get_queue_sender("returns") as sender:
        sender.send_messages(ServiceBusMessage("a red one"))
    assert bodies(client, queue="returns") == ["a red one"]
    with client.get_subscription_receiver("orders", "all") as receiver:
        assert receiver.peek_messages(1, sequence_number=1) == []
