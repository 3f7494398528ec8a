"""The unmodified clients of Service Bus for JavaScript and Java: messaging, and rules changed at run time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from interop.entities import DEFAULT, connection_string, declare_queue, declare_topic
from interop.programs import JAVA_SERVICEBUS, NODE_SERVICEBUS, ClientError, Program, bodies, start
from interop.servers import Served


@pytest.fixture(scope="module", params=[NODE_SERVICEBUS, JAVA_SERVICEBUS], ids=str)
def client(request: pytest.FixtureRequest, served: Served) -> Iterator[Program]:
    if served.is_original:
        pytest.skip("RabbitMQ has no topics of Service Bus")
    program = start(request.param)
    program.ask("connect", connection_string=connection_string(served))
    yield program
    program.ask("close")
    program.stop()


def _received(client: Program, count: int, **place: Any) -> list[dict[str, Any]]:
    """The next messages, received and deleted."""
    client.ask("open", id="all", deletes=True, **place)
    found: list[dict[str, Any]] = client.ask("receive", id="all", count=count)
    client.ask("shut", id="all")
    return found


def _message(body: str, **properties: object) -> dict[str, Any]:
    return {"body": body, "properties": properties}


def test_every_settlement(client: Program, served: Served, name: str) -> None:
    place = {"topic": declare_topic(served, name, s={"rules": DEFAULT, "settings": {"max_delivery_count": 2}})}
    place["subscription"] = "s"
    client.ask("send", entity=name, messages=[{"body": f"m{number}", "subject": "s"} for number in range(5)])
    client.ask("open", id="r", **place)
    found = client.ask("receive", id="r", count=5)
    assert bodies(found) == ["m0", "m1", "m2", "m3", "m4"] and found[0]["delivery_count"] == 0
    assert found[0]["subject"] == "s" and found[0]["message_id"]
    numbers = [message["sequence_number"] for message in found]
    assert numbers == sorted(numbers) and numbers[0] > 0

    def settle(number: int, how: str, **why: object) -> None:
        client.ask("settle", id="r", number=numbers[number], how=how, **why)

    settle(0, "complete")
    settle(1, "abandon")
    settle(2, "dead_letter", reason="why", description="because", properties={"more": "yes"})
    settle(3, "defer")
    assert client.ask("renew", id="r", number=numbers[4]) > time.time() * 1000
    (again,) = client.ask("receive", id="r", count=1)
    assert (again["body"], again["delivery_count"], again["sequence_number"]) == ("m1", 1, numbers[1])
    settle(1, "abandon")
    assert bodies(client.ask("peek", id="r", count=5)) == ["m4"]
    settle(4, "complete")
    client.ask("shut", id="r")
    client.ask("open", id="dead", dead_letters=True, **place)
    letters = client.ask("receive", id="dead", count=2)
    assert [(each["body"], each["dead_letter_reason"]) for each in letters] == [
        ("m2", "why"),
        ("m1", "MaxDeliveryCountExceeded"),
    ]
    assert letters[0]["dead_letter_description"] == "because" and letters[0]["properties"]["more"] == "yes"
    for letter in letters:
        client.ask("settle", id="dead", number=letter["sequence_number"], how="complete")
    assert client.ask("peek", id="dead", count=1) == []
    client.ask("shut", id="dead")


def test_batches_and_queues(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name)
    client.ask("send", entity=name, batch=True, messages=[_message(str(number), n=number) for number in range(500)])
    found = _received(client, 500, queue=name)
    assert [(message["body"], message["properties"]) for message in found] == [
        (str(number), {"n": number}) for number in range(500)
    ]


def test_rules_are_changed_at_run_time(client: Program, served: Served, name: str) -> None:
    place = {"topic": declare_topic(served, name, s=DEFAULT), "subscription": "s"}
    client.ask("add_rule", name="red", sql="color = 'red'", action="SET quantity = quantity / 2", **place)
    client.ask("add_rule", name="big", correlation={"label": "big", "properties": {"color": "blue"}}, **place)
    rules = {rule["name"]: rule for rule in client.ask("rules", **place)}
    assert list(rules) == ["$Default", "red", "big"]
    assert rules["$Default"]["sql"] == "1=1" and rules["$Default"]["action"] is None
    assert (rules["red"]["sql"], rules["red"]["action"]) == ("color = 'red'", "SET quantity = quantity / 2")
    assert (rules["big"]["label"], rules["big"]["properties"]) == ("big", {"color": "blue"})
    client.ask("remove_rule", name="$Default", **place)
    messages = [
        _message("1", color="red", quantity=10),
        _message("2", color="blue") | {"subject": "big"},
        _message("3", color="blue"),
        _message("4", color="red", quantity=7),
    ]
    client.ask("send", entity=name, messages=messages)
    found = _received(client, 3, **place)
    assert [(message["body"], message["properties"].get("quantity")) for message in found] == [
        ("1", 5),
        ("2", None),
        ("4", 3),
    ]
    assert [message["properties"].get("RuleName") for message in found] == ["red", None, "red"]


def test_rules_that_are_wrong_are_refused(client: Program, served: Served, name: str) -> None:
    place = {"topic": declare_topic(served, name, s=DEFAULT), "subscription": "s"}
    with pytest.raises(ClientError, match="already exists"):
        client.ask("add_rule", name="$Default", sql="1=1", **place)
    with pytest.raises(ClientError, match=r"Token line=1, column=\d+, Token in error"):
        client.ask("add_rule", name="r", sql="color ==", **place)
    with pytest.raises(ClientError, match="could not be found"):
        client.ask("remove_rule", name="no", **place)
    assert [rule["name"] for rule in client.ask("rules", **place)] == ["$Default"]


def test_what_is_not_there(client: Program, served: Served, name: str) -> None:
    with pytest.raises(ClientError, match=r"(?i)could not be found"):
        client.ask("send", entity=f"no-{name}", messages=[_message("m")])
    declare_topic(served, name, s=DEFAULT)
    client.ask("open", id="no", topic=name, subscription="no")
    with pytest.raises(ClientError, match=r"(?i)could not be found"):
        client.ask("receive", id="no", count=1)
    client.ask("shut", id="no")


def test_a_lock_that_is_lost(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name, lock_ms=1_000)
    client.ask("send", entity=name, messages=[_message("m")])
    client.ask("open", id="r", queue=name)
    (first,) = client.ask("receive", id="r", count=1)
    (again,) = client.ask("receive", id="r", count=1)
    assert again["delivery_count"] == 1
    # The client holds the message that came again under the number of the first.
    client.ask("settle", id="r", number=first["sequence_number"], how="complete")
    with pytest.raises(ClientError, match=r"(?i)lock|settled"):
        client.ask("settle", id="r", number=again["sequence_number"], how="complete")
    client.ask("shut", id="r")
