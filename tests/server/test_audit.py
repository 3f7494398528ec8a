"""The audit stream through each protocol: who did what, and from where."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.broker import AUDIT_STREAM
from headgate.client import Client
from headgate.errors import AccessRefusedError
from headgate.server.api import api_groups
from server.amqp091_client import Client as Client091
from server.running import RunningServer, running_server
from server.servicebus.test_administration import Site, body
from server.topics.test_topics import ANNA, ask

USES_SESSION_COMMANDS = {
    "PUT streams/{stream}",
    "PUT topics/{topic}",
    "DELETE topics/{topic}",
    "PUT topics/{topic}/subscriptions/{subscription}",
    "DELETE topics/{topic}/subscriptions/{subscription}",
    "PUT topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    "DELETE topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    "DELETE topics/{topic}/subscriptions/{subscription}/messages",
    "DELETE topics/{topic}/subscriptions/{subscription}/dead-letters/messages",
    "POST topics/{topic}/subscriptions/{subscription}/dead-letters/resubmissions",
    "POST topics/{topic}/subscriptions/{subscription}/dead-letters/delete",
    "POST rocketmq/groups/{group}/dead-letters/resubmissions",
    "POST rocketmq/groups/{group}/dead-letters/delete",
}
"""Endpoints whose actions a command of the broker's session records, or for limits of a stream their handler."""

CHANGES_NO_OBJECT = {"POST session", "DELETE session", "PUT pipelines/{pipeline}"}
"""Logging in and out, and reports of jobs of Spark."""

USE_OF_COPIES = ("/receive", "/settle")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    anna = {"name": "anna", "password": "secret", "permissions": {"configure": "^a", "write": ".*", "read": ".*"}}
    definitions = {"topic": [{"name": "payments", "queues": 1}], "group": [{"name": "billing"}]}
    listeners = {"servicebus": 0, "stream": 0, "amqp": 0}
    with running_server(tmp_path, listeners=listeners, user=[anna], rocketmq=definitions) as running:
        yield running


def entries(running: RunningServer, query: str = "") -> list[dict[str, Any]]:
    status, rows = ask(running, "GET", f"/api/audit?limit=500{query}")
    assert status == 200, rows
    return list(rows)


def facts(rows: list[dict[str, Any]]) -> list[tuple[str, str, str, str, str]]:
    return [tuple(row[each] for each in ("user", "protocol", "action", "subject", "outcome")) for row in rows]  # type: ignore[misc]


def test_changes_over_http_are_recorded(running: RunningServer) -> None:
    new = {"password": "hush", "tags": ["monitoring"]}
    assert ask(running, "PUT", "/api/users/bob", new)[0] == 201
    assert ask(running, "PUT", "/api/topics/orders")[0] == 201
    assert ask(running, "PUT", "/api/topics/orders/subscriptions/red")[0] == 201
    assert ask(running, "PUT", "/api/topics/orders/subscriptions/red/rules/new", {"sql": "a = 1"})[0] == 201
    assert ask(running, "DELETE", "/api/topics/orders/subscriptions/red/messages")[0] == 200
    assert ask(running, "PUT", "/api/streams/orders", {"arguments": {"max-age": "7D"}})[0] == 200
    assert ask(running, "PUT", "/api/entities/q", {"settings": {"kind": "queue"}})[0] == 200
    assert ask(running, "POST", "/api/rocketmq/groups/billing/reset", {"topic": "payments", "to": "first"})[0] == 200
    assert ask(running, "DELETE", "/api/streams/orders", user=ANNA)[0] == 403
    subscription = "orders/Subscriptions/red"
    rows = entries(running)
    assert facts(rows) == [
        ("guest", "HTTP", "user.put", "bob", "done"),
        ("guest", "HTTP", "topic.create", "orders", "done"),
        ("guest", "HTTP", "subscription.create", subscription, "done"),
        ("guest", "HTTP", "rule.create", f"{subscription}/Rules/new", "done"),
        ("guest", "HTTP", "subscription.purge", subscription, "done"),
        ("guest", "HTTP", "stream.change", "orders", "done"),
        ("guest", "HTTP", "entity.put", "q", "done"),
        ("guest", "HTTP", "group.reset", "billing", "done"),
        ("anna", "HTTP", "stream.delete", "orders", "refused"),
    ]
    assert rows[0]["detail"]["body"]["password"] == "…"
    assert rows[5]["detail"]["body"] == {"arguments": {"max-age": "7D"}}
    assert all(row["connection"].startswith("127.0.0.1:") for row in rows)
    assert [row["offset"] for row in entries(running, "&action=rule&user=guest")] == [3]
    counts = ask(running, "GET", "/api/audit/counts")[1]
    assert counts == {"enabled": True, "written": 9, "lost": 0, "left_out": 0}


def test_what_a_request_made_is_the_subject(running: RunningServer) -> None:
    token = ask(running, "POST", "/api/tokens", {"description": "nightly"})[1]
    assert ask(running, "DELETE", f"/api/tokens/{token['id']}")[0] == 204
    rows = entries(running)
    assert facts(rows) == [
        ("guest", "HTTP", "token.create", token["id"], "done"),
        ("guest", "HTTP", "token.delete", token["id"], "done"),
    ]
    assert token["token"] not in str(rows)


def test_a_stream_is_recorded_once_and_only_if_it_was_made(running: RunningServer) -> None:
    for status in (201, 409):
        assert ask(running, "PUT", "/api/streams/new?only=new", {"arguments": {"max-age": "7D"}})[0] == status
    assert ask(running, "PUT", "/api/streams/new?only=new", {"arguments": {}})[0] == 409
    assert ask(running, "PUT", "/api/streams/none", {"arguments": {}})[0] == 404
    assert ask(running, "PUT", "/api/streams/bens?only=new", {"arguments": {}}, user=ANNA)[0] == 403
    assert facts(entries(running)) == [
        ("guest", "HTTP", "stream.create", "new", "done"),
        ("anna", "HTTP", "stream.create", "bens", "refused"),
    ]


def test_changes_over_other_protocols_are_recorded(running: RunningServer) -> None:
    server = f"127.0.0.1:{running.ports['stream']}"
    with Client.connect(server) as client:
        client.create_stream("plain", {})
    with Client091(running.ports["amqp"]).open(1) as rabbit:
        rabbit.declare(1, "other")
    site = Site(running)
    assert site.raw("PUT", "/queue", body("QueueDescription", ""))[0] == 201
    assert site.raw("DELETE", "/queue")[0] == 200
    rows = entries(running)
    assert facts(rows) == [
        ("guest", rows[0]["protocol"], "stream.create", "plain", "done"),
        ("guest", rows[1]["protocol"], "stream.create", "other", "done"),
        ("", "Service Bus administration", "entity.create", "queue", "done"),
        ("", "Service Bus administration", "entity.delete", "queue", "done"),
    ]
    assert len({row["protocol"] for row in rows}) == 3


def test_administrators_read_it_as_a_stream_and_lists_do_not_show_it(running: RunningServer) -> None:
    assert ask(running, "PUT", "/api/topics/orders")[0] == 201
    assert len(entries(running)) == 1
    for path in ("streams", "queues", "rocketmq/topics"):
        assert AUDIT_STREAM not in [row["name"] for row in ask(running, "GET", f"/api/{path}")[1]]
    assert ask(running, "GET", "/api/audit", user=ANNA)[0] == 403
    assert ask(running, "GET", "/api/audit/counts", user=ANNA)[0] == 403
    assert ask(running, "GET", f"/api/streams/{AUDIT_STREAM}", user=ANNA)[0] == 403
    assert ask(running, "DELETE", f"/api/streams/{AUDIT_STREAM}")[0] == 403
    server = f"127.0.0.1:{running.ports['stream']}"
    with Client.connect(server) as client, contextlib.closing(client.consumer(AUDIT_STREAM, start="first")) as entries_:
        _, entry = next(entries_)
        assert entry.application_properties["action"].value == "topic.create"
    with Client.connect(server, user="anna", password="secret") as client, pytest.raises(AccessRefusedError):
        client.consumer(AUDIT_STREAM, start="first")


def test_every_endpoint_that_changes_something_is_recorded(running: RunningServer) -> None:
    groups = running.call(lambda: api_groups(running.context, running.server._access))
    changing = {
        f"{each.method} {each.path}": each.action
        for group in groups
        for each in group.endpoints
        if each.changes and not each.path.endswith(USE_OF_COPIES)
    }
    assert {name for name, action in changing.items() if action is None} == USES_SESSION_COMMANDS | CHANGES_NO_OBJECT


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with running_server(tmp_path, handlers={}, audit={"enabled": False}) as running:
        assert ask(running, "PUT", "/api/topics/orders")[0] == 201
        assert entries(running) == []
        assert ask(running, "GET", "/api/audit/counts")[1]["enabled"] is False
        assert not (Path(running.context.settings.root) / "streams" / AUDIT_STREAM).exists()
