"""The unmodified clients of Service Bus for JavaScript, Java and Go: messaging, and rules changed at run time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from interop.entities import DEFAULT, connection_string, declare_queue, declare_topic
from interop.programs import GO_SERVICEBUS, JAVA_SERVICEBUS, NODE_SERVICEBUS, ClientError, Program, bodies, start
from interop.servers import Served


@pytest.fixture(scope="module", params=[NODE_SERVICEBUS, JAVA_SERVICEBUS, GO_SERVICEBUS], ids=str)
def client(request: pytest.FixtureRequest, served: Served) -> Iterator[Program]:
    if served.is_original:
        pytest.skip("RabbitMQ has no topics of Service Bus")
    program = start(request.param)
    program.ask("connect", connection_string=connection_string(served))
    yield program
    program.ask("close")
    program.stop()


def _but_go(reason: str) -> pytest.MarkDecorator:
    """The test is not for azservicebus (Go), which cannot be asked for it: `reason` says why."""
    assert reason
    return pytest.mark.parametrize("client", [NODE_SERVICEBUS, JAVA_SERVICEBUS], ids=str, indirect=True)


def _received(client: Program, count: int, **place: Any) -> list[dict[str, Any]]:
    """The next messages, received and deleted."""
    client.ask("open", id="all", deletes=True, **place)
    found: list[dict[str, Any]] = client.ask("receive", id="all", count=count)
    client.ask("shut", id="all")
    return found


def _of_sessions(sessions: str, count: int) -> list[dict[str, Any]]:
    """Messages of sessions, in turns: `a0`, `b0`, `a1` …"""
    return [_message(f"{each}{number}", session=each) for number in range(count) for each in sessions]


def _message(body: str, session: str | None = None, **properties: object) -> dict[str, Any]:
    return {"body": body, "properties": properties} | ({} if session is None else {"session": session})


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
    assert bodies(client.ask("peek", id="r", count=5)) == ["m3", "m4"]
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


def not_found(client: Program, command: str, **fields: Any) -> bool:
    """Whether a command finds no message: Java's client keeps that to itself."""
    try:
        return client.ask(command, **fields) in (None, [])
    except ClientError as error:
        return "no such message" in str(error) or "MessageNotFound" in str(error)


def test_deferred_messages(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name)
    client.ask("send", entity=name, messages=[_message(f"m{number}", n=number) for number in range(4)])
    client.ask("open", id="r", queue=name)
    found = client.ask("receive", id="r", count=4)
    numbers = [message["sequence_number"] for message in found]

    def settle(place: int, how: str, **more: object) -> None:
        client.ask("settle", id="r", number=numbers[place], how=how, **more)

    for place in range(4):
        settle(place, "defer", properties={"by": "a client"})
    peeked = client.ask("peek", id="r", count=9)
    assert [(each["sequence_number"], each["state"]) for each in peeked] == [(each, "deferred") for each in numbers]
    found = client.ask("receive_deferred", id="r", numbers=numbers)
    assert bodies(found) == ["m0", "m1", "m2", "m3"] and found[0]["state"] == "deferred"
    assert found[1]["properties"] == {"n": 1, "by": "a client"} and found[1]["sequence_number"] == numbers[1]
    settle(0, "complete")
    settle(1, "abandon", properties={"n": 7})
    settle(2, "dead_letter", reason="why", description="because")
    settle(3, "defer")
    assert bodies(client.ask("receive_deferred", id="r", numbers=numbers[3:])) == ["m3"]
    assert client.ask("renew", id="r", number=numbers[3]) > time.time() * 1000
    settle(3, "complete")
    (back,) = client.ask("receive_deferred", id="r", numbers=numbers[1:2])
    assert (back["properties"]["n"], back["delivery_count"]) == (7, 2)
    settle(1, "complete")
    assert not_found(client, "receive_deferred", id="r", numbers=numbers)
    assert client.ask("peek", id="r", count=9) == []
    client.ask("shut", id="r")
    (letter,) = _received(client, 1, queue=name, dead_letters=True)
    assert (letter["body"], letter["dead_letter_reason"]) == ("m2", "why")
    assert letter["enqueued_sequence_number"] == numbers[2]


def test_messages_for_later_and_with_a_time_to_live(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name, default_time_to_live_ms=60_000, dead_letter_on_expiration=True)
    now_ms = int(time.time() * 1000)
    messages = [_message(f"m{number}") for number in range(3)]
    numbers = client.ask("schedule", entity=name, messages=messages, due_ms=now_ms + 3_600_000)
    assert numbers == sorted(set(numbers)) and len(numbers) == 3
    short = {**_message("short"), "ttl_ms": 100}
    sent = [short, {**_message("soon"), "due_ms": now_ms + 1_000}, {**_message("late"), "due_ms": now_ms + 9_000_000}]
    client.ask("send", entity=name, messages=sent, batch=True)
    client.ask("cancel", entity=name, numbers=numbers[1:])
    assert not_found(client, "cancel", entity=name, numbers=numbers[:2])
    client.ask("open", id="r", queue=name)
    while "scheduled" in {each["state"] for each in client.ask("peek", id="r", count=9) if each["body"] == "soon"}:
        pass
    (soon,) = client.ask("receive", id="r", count=1)
    assert (soon["body"], soon["expires_after_ms"]) == ("soon", 60_000)
    client.ask("settle", id="r", number=soon["sequence_number"], how="complete")
    left = client.ask("peek", id="r", count=9)
    assert [(each["body"], each["state"]) for each in left] == [("m0", "scheduled"), ("late", "scheduled")]
    assert left[0]["sequence_number"] == numbers[0]
    client.ask("shut", id="r")
    (letter,) = _received(client, 1, queue=name, dead_letters=True)
    assert (letter["body"], letter["dead_letter_reason"]) == ("short", "TTLExpiredException")


def test_batches_and_queues(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name)
    client.ask("send", entity=name, batch=True, messages=[_message(str(number), n=number) for number in range(500)])
    found = _received(client, 500, queue=name)
    assert [(message["body"], message["properties"]) for message in found] == [
        (str(number), {"n": number}) for number in range(500)
    ]


@_but_go("has no rule manager")
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


@_but_go("has no rule manager")
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


def test_sessions(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name, requires_session=True)
    client.ask("send", entity=name, messages=_of_sessions("ab", 3))
    place = {"queue": name, "by_session": True}
    assert client.ask("open", id="a", session="a", **place) == "a"
    assert client.ask("open", id="next", **place) == "b"
    found = client.ask("receive", id="a", count=3)
    assert [(each["body"], each["session"]) for each in found] == [("a0", "a"), ("a1", "a"), ("a2", "a")]
    first, second, third = (each["sequence_number"] for each in found)
    assert client.ask("state", id="a") is None
    assert client.ask("state", id="a", set=True, state="half") == "half"
    assert client.ask("renew_session", id="a") > time.time() * 1000
    assert bodies(client.ask("peek", id="a", count=9)) == ["a0", "a1", "a2"]
    client.ask("settle", id="a", number=first, how="complete")
    client.ask("settle", id="a", number=second, how="abandon")
    client.ask("settle", id="a", number=third, how="dead_letter", reason="why", description="because")
    (again,) = client.ask("receive", id="a", count=1)
    assert (again["body"], again["delivery_count"]) == ("a1", 1)
    assert re.search("(?i)cannot-?be-?locked", client.ask("no_session", queue=name, session="a"))
    # Go's client waits as long as its caller does, and says nothing to the server.
    assert re.search("(?i)timeout|deadline", client.ask("no_session", queue=name, seconds=1))
    client.ask("shut", id="a")
    client.ask("open", id="a", deletes=True, session="a", **place)
    assert client.ask("state", id="a") == "half" and client.ask("state", id="a", set=True, state=None) is None
    (again,) = client.ask("receive", id="a", count=1)
    # Closing a session counts as no attempt.
    assert (again["body"], again["delivery_count"]) == ("a1", 1)
    for each in ("a", "next"):
        client.ask("shut", id=each)
    (letter,) = _received(client, 1, queue=name, dead_letters=True)
    assert (letter["body"], letter["session"]) == ("a2", "a")
    with pytest.raises(ClientError, match="SessionId was not set"):
        client.ask("send", entity=name, messages=[_message("none")])


@_but_go("has no processor")
def test_several_sessions_at_once(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name, requires_session=True)
    client.ask("send", entity=name, messages=_of_sessions("abc", 4))
    found = client.ask("process", queue=name, sessions=3, count=12)
    for session in "abc":
        own = [each["body"] for each in found if each["session"] == session]
        assert own == [f"{session}{number}" for number in range(4)]
    # Who only looks needs no session.
    client.ask("open", id="left", queue=name)
    assert client.ask("peek", id="left", count=9) == []
    client.ask("shut", id="left")


@_but_go("tries to settle again for a minute")
def test_a_session_lock_that_is_lost(client: Program, served: Served, name: str) -> None:
    declare_topic(served, name, s={"rules": DEFAULT, "settings": {"requires_session": True, "lock_ms": 1_000}})
    client.ask("send", entity=name, messages=[_message("m", session="x")])
    place = {"topic": name, "subscription": "s", "by_session": True}
    client.ask("open", id="first", session="x", **place)
    (message,) = client.ask("receive", id="first", count=1)
    assert client.ask("open", id="second", **place) == "x"
    # Java's client knows no reason yet where it settles while the end of its link is on the way to it.
    with pytest.raises(ClientError, match=r"(?i)session|due to receive link closure"):
        client.ask("settle", id="first", number=message["sequence_number"], how="complete")
    (again,) = client.ask("receive", id="second", count=1)
    assert (again["body"], again["delivery_count"]) == ("m", 1)
    client.ask("settle", id="second", number=again["sequence_number"], how="complete")
    for each in ("first", "second"):
        client.ask("shut", id=each)


@_but_go("passes over settling a message twice")
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
