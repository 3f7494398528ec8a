"""What monitors of RabbitMQ read: the fields that KEDA's scaler, Telegraf, kbudde's exporter and Datadog decode."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers import batch
from headgate import Message
from headgate.server.management import Rates
from server.running import RunningServer, running_server
from server.test_http import GUEST, listed, request
from waiting import eventually

ANNA = ("anna", "secret")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^orders(/Subscriptions/red)?$"}}]
    with running_server(tmp_path, handlers={}, user=users, stream=[{"name": "orders"}, {"name": "hidden"}]) as running:
        yield running


def publish(running: RunningServer, stream: str, count: int) -> None:
    def published() -> None:
        session = running.context.broker.open_session("guest", protocol="AMQP 1.0", connection="")
        session.publisher(stream).publish(batch([Message(body=b"x").encode()] * count, lambda error: None))

    running.call(published)
    running.until(lambda: running.context.broker.catalogue.get(stream).messages_from(0) == count)


def with_subscriptions(running: RunningServer, *names: str) -> None:
    assert request(running, "/api/topics/orders", user=GUEST, method="PUT", body={})[0] in (200, 201)
    for name in names:
        path = f"/api/topics/orders/subscriptions/{name}"
        assert request(running, path, user=GUEST, method="PUT", body={})[0] == 201


def numbers(row: Any, *fields: str) -> tuple[Any, ...]:
    return tuple(row[field] for field in fields)


MESSAGES = ("messages", "messages_ready", "messages_unacknowledged")


def test_a_queue_is_read_as_a_scaler_reads_it(running: RunningServer) -> None:
    with_subscriptions(running, "red")
    publish(running, "orders", 3)
    eventually(lambda: listed(running, "topics/orders")["active"] == 3)
    for name, kind in (("orders", "stream"), ("orders%2FSubscriptions%2Fred", "quorum")):
        row = listed(running, f"queues/%2F/{name}", ANNA)
        assert numbers(row, *MESSAGES, "consumers") == (3, 3, 0, 0)
        assert row["type"] == row["arguments"]["x-queue-type"] == kind
        assert (row["vhost"], row["state"], row["message_stats"]["publish"]) == ("/", "running", 3)
        assert row["message_stats"]["publish_details"] == row["messages_details"] == {"rate": 0.0}
    body = {"count": 2}
    request(running, "/api/topics/orders/subscriptions/red/receive", user=ANNA, method="POST", body=body)
    row = listed(running, "queues/%2F/orders%2FSubscriptions%2Fred")
    assert numbers(row, *MESSAGES) == (3, 1, 2)
    assert row["message_stats"]["deliver_get"] == 2


def test_lists_hold_what_the_user_may_read(running: RunningServer) -> None:
    with_subscriptions(running, "red", "blue")
    every = ["hidden", "orders", "orders/Subscriptions/blue", "orders/Subscriptions/red"]
    for path in ("queues", "queues/%2F", "queues/"):
        assert [row["name"] for row in listed(running, path)] == every
    assert [row["name"] for row in listed(running, "queues", ANNA)] == ["orders", "orders/Subscriptions/red"]
    assert listed(running, "overview", ANNA)["object_totals"]["queues"] == 2
    assert listed(running, "exchanges", ANNA) == [] and listed(running, "exchanges/%2F/amq.default")["name"] == ""
    assert [row["destination"] for row in listed(running, "bindings", ANNA)] == ["orders"]
    for path, status in (
        ("queues/%2F/hidden", 403),
        ("queues/%2F/orders%2FSubscriptions%2Fblue", 403),
        ("queues/other", 404),
        ("queues/other/orders", 404),
        ("health/checks/nonsense", 404),
        ("vhosts/other", 404),
    ):
        assert request(running, f"/api/{path}", user=ANNA)[0] == status, path
    assert request(running, "/api/queues/%2F/orders%2FSubscriptions%2Fgreen", user=GUEST)[0] == 404
    assert request(running, "/api/queues")[0] == 401


def test_pages_are_those_of_the_names_asked_for(running: RunningServer) -> None:
    page = listed(running, "queues?page=1&use_regex=true&pagination=false&name=^HID&page_size=100")
    assert [row["name"] for row in page["items"]] == ["hidden"]
    counted = ("total_count", "filtered_count", "item_count", "page", "page_count", "page_size")
    assert numbers(page, *counted) == (2, 1, 1, 1, 1, 100)
    # Bindings have no name.
    assert listed(running, "bindings?page=1&name=")["filtered_count"] == len(listed(running, "bindings"))
    page = listed(running, "queues/%2F?page=2&page_size=1&name=D")
    assert [row["name"] for row in page["items"]] == ["orders"] and numbers(page, *counted) == (2, 2, 1, 2, 2, 1)
    for wrong in (
        "page=0",
        "page=3",
        "page=x",
        "page=1&page_size=501",
        "page=1&use_regex=true&name=(",
        "page=1&use_regex=true&name=)(",
    ):
        assert request(running, f"/api/queues?{wrong}", user=GUEST)[0] == 400, wrong


def test_the_server_is_an_overview_a_node_and_a_virtual_host(running: RunningServer) -> None:
    publish(running, "orders", 2)
    publish(running, "hidden", 1)
    overview = listed(running, "overview")
    assert numbers(overview["queue_totals"], *MESSAGES) == (3, 3, 0)
    assert overview["message_stats"]["publish"] == 3
    assert {"connections", "channels", "consumers", "exchanges", "queues"} == overview["object_totals"].keys()
    (http,) = overview["listeners"]
    assert numbers(http, "protocol", "port", "tls") == ("http", running.ports["http"], False)
    assert listed(running, "cluster-name") == {"name": overview["cluster_name"]}
    (node,) = listed(running, "nodes")
    assert node["name"] == overview["node"] and node["running"] and node["mem_used"] > 0 and node["fd_used"] > 0
    assert node["disk_free"] > node["disk_free_limit"] and not node["disk_free_alarm"]
    assert listed(running, f"nodes/{node['name']}")["os_pid"] == node["os_pid"]
    (host,) = listed(running, "vhosts")
    assert numbers(host, "name", *MESSAGES) == ("/", 3, 3, 0) and listed(running, "vhosts/%2F")["name"] == "/"
    assert listed(running, "whoami", ANNA)["name"] == "anna"
    assert listed(running, "aliveness-test/%2F") == {"status": "ok"}


def test_checks_of_health_say_what_is_wrong(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(check: str) -> tuple[int, Any]:
        status, text = request(running, f"/api/health/checks/{check}", user=ANNA)
        return status, json.loads(text)

    port = running.ports["http"]
    assert checked(f"port-listener/{port}") == (200, {"status": "ok", "port": port})
    assert checked("protocol-listener/HTTP")[0] == 200
    no_listener = {"status": "failed", "reason": "No active listener"}
    assert checked("port-listener/1") == (503, no_listener | {"missing": 1, "ports": [port]})
    assert checked("protocol-listener/amqp10") == (503, no_listener | {"missing": ["amqp10"], "protocols": ["http"]})
    assert checked("port-listener/http")[0] == checked(f"port-listener/{'9' * 5000}")[0] == 400
    for check in ("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical", "ready-to-serve-clients"):
        assert checked(check)[0] == 200
    running.context.is_started = False
    assert checked("ready-to-serve-clients")[0] == checked("is-in-service")[0] == 503
    monkeypatch.setattr(running.context.listeners, "ended", lambda: ["http"])
    assert checked(f"port-listener/{port}") == (503, no_listener | {"missing": port, "ports": []})
    assert checked("protocol-listener/http")[0] == 503
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(1 << 30, 1 << 30, 1000))
    status, answer = checked("alarms")
    assert status == 503 and [alarm["resource"] for alarm in answer["alarms"]] == ["disk"]
    assert listed(running, "nodes")[0]["disk_free_alarm"]


def test_a_queue_that_cannot_be_read_is_not_empty(running: RunningServer, tmp_path: Path) -> None:
    publish(running, "orders", 1)
    path = running.call(lambda: running.context.broker.catalogue.get("hidden").stream.path)
    running.call(lambda: running.context.broker.catalogue._opened.pop("hidden"))
    (path / "stream.json").write_text("{}")
    rows = {row["name"]: row for row in listed(running, "queues")}
    (name,) = set(rows) - {"orders"}
    assert rows[name]["state"] == "down" and rows[name]["error"] and "messages" not in rows[name]
    assert listed(running, "overview")["queue_totals"]["messages"] == 1


def test_rates_are_growth_a_second_since_an_earlier_request() -> None:
    now_s = 100.0
    rates = Rates(lambda: now_s)

    def rate(published: int, messages: int) -> tuple[float, float]:
        row = rates.with_details("stats", "orders", {"publish": published, "messages": messages})
        return row["publish_details"]["rate"], row["messages_details"]["rate"]

    assert rate(10, 10) == (0.0, 0.0)
    now_s = 110.0
    assert rate(60, 5) == (5.0, -0.5)
    now_s = 112.0  # Asked again soon, by somebody else: from the same request on.
    assert rate(70, 5) == (5.0, -5 / 12)
    now_s = 120.0
    assert rate(110, 5) == (5.0, 0.0)
    now_s = 130.0  # Deleted, and made again.
    assert rate(7, 5)[0] == 0.0
    now_s = 10_000.0
    rates.forget()
    assert rate(100, 100) == (0.0, 0.0)
