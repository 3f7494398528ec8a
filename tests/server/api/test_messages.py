"""`GET /api/streams/NAME/messages`: what a page shows, to whom, and what it refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from headgate.log import Stream, Writer, stream_folder
from headgate.message import AmqpType, AmqpValue, Message, stored_message
from headgate.server.api import messages
from headgate.topic import create_topic
from log_streams import damage_chunk
from server.http.test_endpoints import ask
from server.running import RunningServer, running_server

USERS = [
    {"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}},
    {"name": "nobody", "password": "secret", "tags": ["monitoring"]},
]
HOSTILE = "ord/ers%<b>'\""
BIG = 2**60 + 1


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    root = tmp_path_factory.mktemp("messages")
    with Writer.open(create_topic(root / "data", "orders", now_ms=0), now_ms=0) as writer:
        for color in ("red", "blue"):
            properties = {"color": color, "big": AmqpValue(AmqpType.LONG, BIG)}
            writer.append([(Message(b"b", application_properties=properties).encode(), b"eu")], now_ms=5)
    for name in (HOSTILE, "damaged"):
        stream = create_topic(root / "data", name, now_ms=0)
        with Writer.open(stream, now_ms=0) as writer:
            for tag in ("TagA", "TagB", "TagC"):
                writer.append([(stored_message({"TAGS": tag}, b"\xff").encode(), None)], now_ms=0)
    damage_chunk(Stream.open(stream_folder(root / "data", "damaged")), 1, 60)
    queues = {"topic": [{"name": "payments", "queues": 2}]}
    with running_server(root, handlers={}, user=USERS, rocketmq=queues) as running:
        yield running


def page(running: RunningServer, stream: str, user: str = "guest:guest", **query: Any) -> tuple[int, Any]:
    login = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    asked = urlencode({name.rstrip("_"): value for name, value in query.items()}, doseq=True)
    path = f"/api/streams/{quote(stream, safe='')}/messages?{asked}"
    status, _, data = ask(running, "GET", path, headers=login)
    return status, json.loads(data)


def test_a_page_has_rows_counters_and_where_to_go_on(running: RunningServer) -> None:
    status, first = page(running, "orders", limit=1)
    assert (status, first["next_from"], first["is_end"], len(first["messages"])) == (200, 1, False, 1)
    assert first["messages"][0]["typed"]["application_properties"]["big"] == {"type": "long", "value": str(BIG)}
    _, rest = page(running, "orders", from_=first["next_from"])
    assert (rest["next_from"], rest["is_end"], [row["offset"] for row in rest["messages"]]) == (None, True, [1])
    _, red = page(running, "orders", filter="color = 'red'", language="amqp")
    assert [row["offset"] for row in red["messages"]] == [0] and red["counters"]["messages_kept"] == 1
    _, none = page(running, "orders", filter_value=["us", "asia"])
    assert none["messages"] == [] and none["counters"]["stage_1"]["chunks_skipped"] == 2


def test_looking_leaves_no_trace_of_a_consumer(running: RunningServer) -> None:
    page(running, "orders")
    stream = running.call(lambda: running.context.broker.catalogue.get("orders"))
    assert not stream.readers and not stream.offsets and stream.reading([]).consumers == 0


def test_tags_are_a_language_and_bytes_that_are_no_text_are_shown(running: RunningServer) -> None:
    status, found = page(running, HOSTILE, filter="TagB || TagD", language="tags")
    assert (status, [row["offset"] for row in found["messages"]]) == (200, [1])
    assert found["messages"][0]["body"]["text"] is None and found["messages"][0]["body"]["base64"] == "/w=="


def test_a_queue_of_a_message_topic_is_a_stream(running: RunningServer) -> None:
    queue = running.call(lambda: running.context.broker.message_topics.find("payments").streams[1])
    assert page(running, queue) == page(running, queue, from_="next", limit=5)


def test_only_who_may_read_the_stream_sees_its_messages(running: RunningServer) -> None:
    assert page(running, "orders", "anna:secret")[0] == 200
    for user, stream in (("nobody:secret", "orders"), ("anna:secret", HOSTILE), ("anna:secret", "none")):
        assert page(running, stream, user)[0] == 403
    assert page(running, "orders", "anna:wrong")[0] == 401


@pytest.mark.parametrize(
    ("stream", "query", "status", "reason"),
    [
        ("order", {}, 404, "did you mean 'orders'?"),
        ("orders", {"filter": "color = 'red", "language": "amqp"}, 400, "color = 'red"),
        ("orders", {"filter": "x = 1", "language": "klingon"}, 400, "klingon"),
        ("orders", {"from": "yesterday"}, 400, "'yesterday' is no offset specification"),
        ("orders", {"from": 3}, 400, "behind the end"),
        ("orders", {"limit": 501}, 400, "limit"),
        ("orders", {"budget_ms": 10_001}, 400, "budget_ms"),
        ("orders", {"match_unfiltered": "true"}, 400, "filter_values"),
        ("damaged", {"from": 1}, 500, "offset 1: "),
    ],
)
def test_what_cannot_be_shown_is_said(
    running: RunningServer, stream: str, query: dict[str, Any], status: int, reason: str
) -> None:
    found, problem = page(running, stream, **query)
    assert (found, reason in problem["detail"]) == (status, True), problem


def test_a_wrong_filter_is_marked_in_its_text(running: RunningServer) -> None:
    text = "color = = 'red'"
    _, problem = page(running, "orders", filter=text)
    begin, stop = problem["span"]
    assert problem["text"] == text and (begin, text[begin:stop]) == (8, "=")


def test_what_lies_before_and_behind_damage_is_shown(running: RunningServer) -> None:
    _, before = page(running, "damaged")
    assert [row["offset"] for row in before["messages"]] == [0] and before["next_from"] == 1
    assert before["error"].startswith("offset 1: ") and "headgate stream repair" in before["error"]
    status, passed = page(running, "damaged", from_=1, skip_damaged="true")
    assert (status, [row["offset"] for row in passed["messages"]]) == (200, [2])
    assert passed["is_end"] and passed["counters"]["stage_2"]["chunks_damaged"] == 1


def test_pages_at_a_time_are_limited(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "READS", 0)
    assert page(running, "orders")[0] == 503
