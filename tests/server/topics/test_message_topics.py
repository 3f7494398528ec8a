"""Topics and consumer groups of RocketMQ over HTTP: rights, what is said of groups that are at work, metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headgate import Message
from headgate.broker import Session
from headgate.broker.consumer_groups import Received, ReceiveRequest
from headgate.errors import HeadgateError
from headgate.log import Stream, Writer, stream_folder
from log_streams import damage_chunk
from server.running import RunningServer, running_server

from .test_topics import ANNA, GUEST, ask

TOPICS, GROUPS = "/api/rocketmq/topics", "/api/rocketmq/groups"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^orders", "configure": "^anna"}}]
    definitions = {
        "topic": [{"name": "orders", "queues": 2}],
        "group": [{"name": "billing", "backoff_ms": [50]}, {"name": "orders-audit"}],
    }
    with running_server(tmp_path, handlers={}, user=users, rocketmq=definitions) as running:
        yield running


def test_users_see_and_change_what_their_patterns_say(running: RunningServer) -> None:
    assert [row["name"] for row in ask(running, "GET", TOPICS, user=ANNA)[1]] == ["orders"]
    assert [row["name"] for row in ask(running, "GET", GROUPS, user=ANNA)[1]] == ["orders-audit"]
    assert [row["name"] for row in ask(running, "GET", GROUPS, user=GUEST)[1]] == ["billing", "orders-audit"]
    assert ask(running, "GET", f"{GROUPS}/billing", user=ANNA)[0] == 403
    for method, path in (("PUT", TOPICS), ("DELETE", TOPICS), ("PUT", GROUPS), ("DELETE", GROUPS)):
        assert ask(running, method, f"{path}/orders-audit", {}, user=ANNA)[0] == 403
    assert ask(running, "POST", f"{GROUPS}/billing/reset", {"topic": "orders", "to": "first"}, user=ANNA)[0] == 403
    assert ask(running, "PUT", f"{TOPICS}/anna-1", {"queues": 1}, user=ANNA)[0] == 201
    assert ask(running, "PUT", f"{GROUPS}/anna-1", {"fifo": True}, user=ANNA)[0] == 201
    assert ask(running, "PUT", f"{GROUPS}/anna-1", {"max_attempts": 3}, user=ANNA)[0] == 200
    row = ask(running, "GET", f"{GROUPS}/anna-1")[1]
    assert (row["fifo"], row["max_attempts"]) == (True, 3)
    assert ask(running, "DELETE", f"{TOPICS}/anna-1", user=ANNA)[0] == 200
    assert ask(running, "DELETE", f"{GROUPS}/anna-1", user=ANNA)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", f"{TOPICS}/orders?only=new", {}, 409),
        ("PUT", f"{TOPICS}/more?only=existing", {}, 404),
        ("PUT", f"{TOPICS}/more", {"queue": 1}, 400),
        ("PUT", f"{TOPICS}/more", {"accepts": []}, 400),
        ("PUT", f"{TOPICS}/orders", {"queues": 1}, 400),
        ("PUT", f"{GROUPS}/more", {"fif": True}, 400),
        ("PUT", f"{GROUPS}/more", {"backoff_ms": []}, 400),
        ("POST", f"{GROUPS}/billing/reset", {"topic": "orders"}, 400),
        ("POST", f"{TOPICS}/orders", {}, 405),
        ("GET", "/api/rocketmq/other", None, 404),
    ],
)
def test_wrong_requests_are_told_so_and_change_nothing(
    running: RunningServer, method: str, path: str, body: object, status: int
) -> None:
    before = [ask(running, "GET", path)[1] for path in (TOPICS, GROUPS)]
    found, told = ask(running, method, path, body)
    assert found == status and told["error"]
    assert [ask(running, "GET", path)[1] for path in (TOPICS, GROUPS)] == before


def take(running: RunningServer, count: int) -> Session:
    """A member of `billing` that takes messages and does not acknowledge them."""
    broker, answers = running.context.broker, list[Received | HeadgateError]()

    def begin() -> Session:
        stream = broker.catalogue.get("orders-1")
        writer = stream.open_writer(now_ms=1)
        assert isinstance(writer, Writer)
        writer.append([(Message(b"x").encode(), None)] * 10, now_ms=1)
        stream.refresh()
        session = broker.open_session("guest", protocol="test", connection="1")
        topic = broker.message_topics.get("orders")
        session.receive_from(topic, ReceiveRequest("billing", topic.streams, None, None, count, 60_000, answers.append))
        return session

    session = running.call(begin)
    running.until(lambda: answers)
    return session


def test_lists_and_metrics_say_what_a_group_has_not_settled(running: RunningServer) -> None:
    session = take(running, 4)
    members = running.context.broker.members
    running.call(partial(members.heartbeat, "billing", "one", None, now_ms=1, changed=lambda: None))
    assert ask(running, "GET", f"{GROUPS}/billing")[1]["members"] == ["one"]
    assert [row["members"] for row in ask(running, "GET", GROUPS)[1]] == [1, 0]
    (topic,) = ask(running, "GET", TOPICS)[1]
    assert (topic["messages"], topic["queues"], topic["scheduled"]) == (10, 2, 0)
    row = ask(running, "GET", f"{GROUPS}/billing")[1]
    assert (row["lag"], row["claimed"], row["queues"], row["backoff_ms"]) == (10, 4, 2, [50])
    (_, place) = row["places"]
    assert (place["topic"], place["queue"], place["position"], place["committed_offset"]) == ("orders", 1, 4, 0)
    assert place["counters"]["delivered"] == 4
    assert place in ask(running, "GET", f"{TOPICS}/orders")[1]["groups"]
    url = f"http://127.0.0.1:{running.ports['http']}/metrics/per-object"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
        metrics = answer.read().decode().splitlines()
    labels = '{group="billing",queue="1",topic="orders"}'
    assert f"headgate_group_lag{labels} 10.0" in metrics
    assert f"headgate_group_delivered_total{labels} 4.0" in metrics
    status, row = ask(running, "POST", f"{GROUPS}/billing/reset", {"topic": "orders", "to": "7", "queue": 1})
    assert (status, row["lag"], row["claimed"]) == (200, 3, 0)
    running.call(session.close)
    running.call(partial(running.context.broker.consumer_groups.pull_consumers.pulled, "orders-1", "billing", 7))
    status, answer = ask(running, "POST", f"{GROUPS}/billing/reset", {"topic": "orders", "to": "first"})
    assert status == 400 and "stop it first" in answer["error"]


def test_a_ledger_of_groups_that_cannot_be_read_is_told_with_each_group(tmp_path: Path) -> None:
    definitions = {"topic": [{"name": "orders", "queues": 2}], "group": [{"name": "billing"}]}
    with running_server(tmp_path, handlers={}, rocketmq=definitions) as running:
        take(running, 4)
        take(running, 4)
    damage_chunk(Stream.open(stream_folder(tmp_path / "data", "orders-1") / "groups"), 0, 60)
    with running_server(tmp_path, handlers={}, rocketmq=definitions) as running:
        for row in ask(running, "GET", f"{GROUPS}/billing")[1], ask(running, "GET", GROUPS)[1][0]:
            assert "'orders-1'" in row["error"] and "/groups/" in row["error"]
        assert "headgate stream repair orders-1" in ask(running, "GET", TOPICS)[1][0]["error"]
