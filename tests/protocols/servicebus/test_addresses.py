"""Addresses: entities, subscriptions, dead letters, management; bare or as URIs, without case in the words."""

from __future__ import annotations

import pytest

from headgate.errors import ConfigError
from headgate.protocols.servicebus import Address, Part, covers, is_cbs, parse_address

DEAD, TRANSFER = Part.DEAD_LETTERS, Part.TRANSFER_DEAD_LETTERS


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("orders", Address("orders")),
        ("amqps://localhost:5672/orders", Address("orders")),
        ("sb://host/a/b~c", Address("a/b~c")),
        ("a%20b", Address("a b")),
        ("orders/Subscriptions/red", Address("orders", "red")),
        ("orders/subscriptions/red/$deadletterqueue", Address("orders", "red", DEAD)),
        ("a/b/Subscriptions/red/$management", Address("a/b", "red", is_management=True)),
        ("orders/$DeadLetterQueue/$management", Address("orders", None, DEAD, is_management=True)),
        ("orders/$Transfer/$DeadLetterQueue", Address("orders", None, TRANSFER)),
        ("subscriptions/subscriptions/subscriptions", Address("subscriptions", "subscriptions")),
        ("orders/subscriptions", Address("orders/subscriptions")),
    ],
)
def test_an_address_names_an_entity_and_a_part_of_it(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "sb://host", "$management", "a//b", "$cbs", "a/$other", "a/Subscriptions/$x"])
def test_other_addresses_name_nothing(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)


def test_an_address_is_shown_as_service_bus_writes_it() -> None:
    assert str(parse_address("o/SUBSCRIPTIONS/Red/$DEADLETTERQUEUE")) == "o/Subscriptions/Red/$DeadLetterQueue"


def test_the_node_for_tokens() -> None:
    assert is_cbs("$cbs") and is_cbs("amqps://localhost/$CBS") and not is_cbs("cbs")


@pytest.mark.parametrize(
    ("scope", "path", "counts"),
    [
        ("", "orders", True),
        ("Orders", "orders", True),
        ("orders", "orders/Subscriptions/red", True),
        ("orders/subscriptions/red/$management", "orders/Subscriptions/red", True),
        ("order", "orders", False),
        ("orders/Subscriptions/red", "orders", False),
    ],
)
def test_what_is_granted_counts_for_what_lies_below(scope: str, path: str, counts: bool) -> None:
    assert covers(scope, path) is counts
