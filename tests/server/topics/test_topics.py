"""Topics over HTTP."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate import Message
from headgate.broker import ConsumerOptions, EntityDeclaration
from headgate.broker.topics.dispatcher import BYTES_A_TURN
from headgate.log import OffsetSpecification, Writer
from headgate.server.topics import requests as topic_requests
from server.running import RunningServer, running_server
from waiting import LIMIT_S, eventually

GUEST = ("guest", "guest")
ANNA = ("anna", "secret")
BEN = ("ben", "secret")
CORA = ("cora", "secret")
TOPIC = "/api/topics/shop%2Forders"
RED = f"{TOPIC}/subscriptions/red"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    users = [
        {"name": "anna", "password": "secret", "permissions": {"read": "^shop/orders$"}},
        {"name": "ben", "password": "secret", "permissions": {"read": "^shop/orders/Subscriptions/red$"}},
    ]
    with running_server(tmp_path, handlers={}, user=users) as running:
        yield running


@pytest.fixture
def topic(running: RunningServer) -> RunningServer:
    """A topic `shop/orders` whose subscription `red` halves quantities of what is red, with ten messages, five red."""
    assert ask(running, "PUT", TOPIC)[0] == 201
    rule = {"name": "halved", "sql": "color = 'red'", "action": "SET quantity = quantity / 2"}
    assert ask(running, "PUT", RED, {"rules": [rule], "settings": {"lock_ms": 30_000, "max_delivery_count": 2}}) == (
        201,
        {"in_force_from": 0},
    )
    publish(running, 10)
    return running


def publish(running: RunningServer, count: int) -> None:
    messages = [
        Message(
            b"%d" % number, application_properties={"color": ("red", "blue")[number % 2], "quantity": number}
        ).encode()
        for number in range(count)
    ]
    append(running, messages)


def append(running: RunningServer, messages: list[bytes]) -> None:
    def write() -> None:
        stream = running.context.broker.catalogue.get("shop/orders")
        writer = stream.open_writer(now_ms=1)
        assert isinstance(writer, Writer)
        writer.append([(message, None) for message in messages], now_ms=1)
        stream.refresh()

    running.call(write)


def ask(
    running: RunningServer, method: str, path: str, body: Any = None, *, user: tuple[str, str] = GUEST
) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{running.ports['http']}{path}", data=data, method=method)
    asked.add_header("Authorization", "Basic " + base64.b64encode(":".join(user).encode()).decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=LIMIT_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def received(running: RunningServer, path: str = RED, **body: Any) -> list[Any]:
    status, rows = ask(running, "POST", f"{path}/receive", {"count": 100, "wait_s": 5, **body})
    assert status == 200, rows
    return list(rows)


def counts(running: RunningServer) -> dict[str, int]:
    row = ask(running, "GET", RED)[1]
    return {name: row[name] for name in ("active", "locked", "waiting", "dead_lettered", "deferred")}


def test_a_topic_is_made_shown_and_made_a_stream_again(topic: RunningServer) -> None:
    (row,) = ask(topic, "GET", "/api/topics")[1]
    assert (row["name"], row["subscriptions"], row["sql_filters"], row["next_offset"]) == ("shop/orders", 1, 1, 10)
    shown = ask(topic, "GET", TOPIC)[1]
    (red,) = shown["subscriptions"]
    assert shown["limits"]["sql_filters"] == 2000
    assert (red["name"], red["settings"]["lock_ms"], red["rules"][0]["sql"]) == ("red", 30_000, "color = 'red'")
    assert red["held_back_bytes"] > 0 and red["pins"] == 0
    topic.until(lambda: topic.context.broker.topics.get("shop/orders").is_decided)
    in_lists = ask(topic, "GET", RED)[1]["rules"] + ask(topic, "GET", "/api/rules")[1]
    assert [rule["matched"] for rule in in_lists] == [5, 5]
    assert ask(topic, "PUT", f"{TOPIC}?only=new")[0] == 409
    assert ask(topic, "PUT", TOPIC, {"limits": {"sql_filters": 5}}) == (200, {"in_force_from": 10})
    assert ask(topic, "GET", TOPIC)[1]["limits"]["sql_filters"] == 5
    assert ask(topic, "PUT", TOPIC, {"limits": {"sql": 5}})[0] == 400
    assert ask(topic, "DELETE", TOPIC)[0] == 200
    assert ask(topic, "GET", TOPIC)[0] == 404
    assert ask(topic, "GET", "/api/streams/shop%2Forders")[1]["messages"] == 10


def test_what_a_topic_had_is_gone_when_it_is_made_again(topic: RunningServer) -> None:
    tokens = [row["token"] for row in received(topic)]
    assert ask(topic, "POST", f"{RED}/settle", {"outcome": "complete", "tokens": tokens})[1] == {"settled": [True] * 5}
    assert ask(topic, "DELETE", TOPIC)[0] == 200
    assert ask(topic, "PUT", TOPIC)[0] == ask(topic, "PUT", RED)[0] == 201
    publish(topic, 4)
    assert [row["offset"] for row in received(topic)] == [10, 11, 12, 13]


def test_rules_and_subscriptions_are_made_changed_and_removed(topic: RunningServer) -> None:
    rule = f"{RED}/rules/big%20one"
    assert ask(topic, "PUT", rule, {"sql": "quantity > 5"}) == (201, {"in_force_from": 10})
    assert ask(topic, "PUT", f"{rule}?only=new", {"sql": "quantity > 5"})[0] == 409
    assert ask(topic, "PUT", rule, {"sql": "quantity > 6"}) == (200, {"in_force_from": 10})
    assert ask(topic, "PUT", f"{RED}/rules/none?only=existing", {"sql": "1=1"})[0] == 404
    rules = ask(topic, "GET", "/api/rules")[1]
    assert [(row["name"], row["filter"]) for row in rules] == [("halved", "color = 'red'"), ("big one", "quantity > 6")]
    assert ask(topic, "DELETE", rule)[0] == 200
    assert ask(topic, "DELETE", rule)[0] == 404
    history = ask(topic, "GET", f"{TOPIC}/history")[1]
    assert {(row["subscription"], row["name"]) for row in history} >= {("red", "halved")}
    assert ask(topic, "PUT", RED, {"settings": {"lock_ms": 5000}})[0] == 200
    settings = ask(topic, "GET", RED)[1]["settings"]
    assert (settings["lock_ms"], settings["max_delivery_count"]) == (5000, 2)
    assert ask(topic, "PUT", f"{RED}?only=new")[0] == 409
    assert ask(topic, "PUT", f"{TOPIC}/subscriptions/blue?only=existing")[0] == 404
    assert ask(topic, "DELETE", RED)[0] == 200
    assert ask(topic, "GET", "/api/subscriptions")[1] == []


def test_a_topic_may_have_a_longer_name_than_a_queue_of_rabbitmq(running: RunningServer) -> None:
    assert ask(running, "PUT", "/api/topics/" + "x" * 260)[0] == 201
    assert ask(running, "PUT", "/api/topics/" + "x" * 261)[0] == 400
    assert ask(running, "PUT", "/api/topics/amq.x")[0] == 400


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        (f"{RED}/rules/r", {"sql": "color = "}, 400, "^"),
        (f"{RED}/rules/r", {"sqll": "x"}, 400, "sqll"),
        (f"{RED}/rules/r", {"name": "q", "sql": "1=1"}, 400, "'q'"),
        (f"{TOPIC}/subscriptions/none/rules/r", {"sql": "1=1"}, 404, "'none'"),
        (RED, {"colour": "red"}, 400, "colour"),
        (RED, {"rules": []}, 400, "rules"),
        (f"{TOPIC}/subscriptions/s", {"forward_to": 5}, 400, "forward_to"),
        (f"{TOPIC}/subscriptions/s", {"forward_to": "nowhere"}, 404, "nowhere"),
        (f"{TOPIC}/subscriptions/s", {"settings": {"lock_ms": 1}}, 400, "lock_ms"),
        ("/api/topics/none/subscriptions/s", {}, 404, "none"),
        ("/api/topics/shop/orders", {}, 404, "%2F"),
        (f"{RED}?only=maybe", {}, 400, "maybe"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    topic: RunningServer, path: str, body: Any, status: int, named: str
) -> None:
    before = ask(topic, "GET", TOPIC)[1]
    found, answer = ask(topic, "PUT", path, body)
    assert (found, named in answer["error"]) == (status, True), answer
    assert ask(topic, "GET", TOPIC)[1] == before


def test_a_wrong_filter_is_answered_with_its_place(topic: RunningServer) -> None:
    status, answer = ask(topic, "PUT", f"{RED}/rules/r", {"sql": "color = "})
    assert (status, answer["text"], answer["span"]) == (400, "color = ", [8, 8])


def test_copies_are_received_and_settled_each_in_its_way(topic: RunningServer) -> None:
    rows = received(topic)
    assert [(row["offset"], row["rule"], row["attempt"]) for row in rows] == [(n, 1, 1) for n in (0, 2, 4, 6, 8)]
    assert rows[1]["message"]["application_properties"] == {"color": "red", "quantity": 1, "RuleName": "halved"}
    assert received(topic, wait_s=0) == []
    tokens = [row["token"] for row in rows]

    def settle(outcome: str, *places: int, **more: Any) -> Any:
        body = {"outcome": outcome, "tokens": [tokens[place] for place in places], **more}
        status, answer = ask(topic, "POST", f"{RED}/settle", body)
        assert status == 200, answer
        return answer

    assert settle("complete", 0) == {"settled": [True]}
    assert settle("complete", 0) == {"settled": [False]}
    assert settle("abandon", 1) == {"settled": [True]}
    assert settle("defer", 2) == {"settled": [True]}
    assert settle("dead-letter", 3, reason="broken", description="no size") == {"settled": [True]}
    renewed = settle("renew", 4)
    assert renewed["settled"] == [True] and renewed["locked_until_ms"] >= rows[4]["locked_until_ms"]
    assert counts(topic) == {"active": 1, "locked": 1, "waiting": 0, "dead_lettered": 1, "deferred": 1}
    (again,) = received(topic)
    assert (again["offset"], again["attempt"]) == (2, 2)
    (letter,) = received(topic, f"{RED}/dead-letters")
    assert letter["message"]["application_properties"]["DeadLetterReason"] == "broken"
    assert ask(topic, "POST", f"{RED}/dead-letters/settle", {"outcome": "complete", "tokens": [letter["token"]]})[
        1
    ] == {"settled": [True]}
    assert counts(topic)["dead_lettered"] == 0
    counted = ask(topic, "GET", RED)[1]["counters"]
    assert {name: counted[name] for name in counted if name != "delivered_bytes"} == {
        "decided": 5,
        "delivered": 6,
        "completed": 1,
        "released": 1,
        "dead_lettered": 1,
        "deferred": 1,
        "expired": 0,
        "outlived": 0,
    }


def test_peeking_pages_through_what_is_not_settled_and_copies_through_all(topic: RunningServer) -> None:
    (first, *_) = received(topic, count=2)
    assert ask(topic, "POST", f"{RED}/settle", {"outcome": "complete", "tokens": [first["token"]]})[0] == 200
    assert [row["offset"] for row in ask(topic, "GET", f"{RED}/messages?limit=3")[1]] == [2, 4, 6]
    assert [row["offset"] for row in ask(topic, "GET", f"{RED}/messages?from=6&rule=2")[1]] == [8]
    (encoded,) = ask(topic, "GET", f"{RED}/messages?from=8&encoded=true")[1]
    properties = Message.decode(base64.b64decode(encoded["encoded"])).application_properties
    assert properties is not None and properties["quantity"].value == 4
    page = ask(topic, "GET", f"{RED}/copies?limit=2")[1]
    assert ([row["offset"] for row in page["messages"]], page["from"], page["rule"]) == ([0, 2], 2, 2)
    rest = ask(topic, "GET", f"{RED}/copies?from=2&rule=2")[1]
    assert [row["offset"] for row in rest["messages"]] == [4, 6, 8]
    assert (rest["from"], rest["next_offset"]) == (10, 10)
    for query in ("from=-1", "from=x", "limit=0", "limit=5000", "rule=9999999"):
        assert ask(topic, "GET", f"{RED}/messages?{query}")[0] == 400


def test_pages_of_large_copies_end_before_the_limit_and_leave_nothing_out(topic: RunningServer) -> None:
    body = b"x" * (BYTES_A_TURN // 2)
    message = Message(body, application_properties={"color": "red", "quantity": 1}).encode()
    append(topic, [message] * 12)
    found: list[int] = []
    offset, rule, pages = 10, 0, 0
    while True:
        page = ask(topic, "GET", f"{RED}/copies?from={offset}&rule={rule}&limit=50")[1]
        if not page["messages"]:
            break
        found += [row["offset"] for row in page["messages"]]
        offset, rule, pages = page["from"], page["rule"], pages + 1
    assert (found, pages > 1) == (list(range(10, 22)), True)


def test_purging_settles_everything(topic: RunningServer) -> None:
    received(topic, count=2)
    assert ask(topic, "DELETE", f"{RED}/messages") == (200, {"purged": 5})
    assert counts(topic) == {"active": 0, "locked": 0, "waiting": 0, "dead_lettered": 0, "deferred": 0}
    assert ask(topic, "GET", RED)[1]["pins"] is None


def test_a_request_waits_for_what_is_published_meanwhile(topic: RunningServer) -> None:
    ask(topic, "DELETE", f"{RED}/messages")

    def waits() -> bool:
        found = topic.context.broker.topics.get("shop/orders").subscriptions.info("red")
        return found.receivers == 1

    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.extend(received(topic, wait_s=20)))
    asking.start()
    topic.until(waits)
    publish(topic, 2)
    asking.join(LIMIT_S)
    assert [row["offset"] for row in answers] == [10]
    eventually(lambda: ask(topic, "GET", RED)[1]["receivers"] == 0)


def test_one_who_waits_is_told_that_the_subscription_is_gone(topic: RunningServer) -> None:
    ask(topic, "DELETE", f"{RED}/messages")
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(ask(topic, "POST", f"{RED}/receive", {"wait_s": 20})))
    asking.start()
    topic.until(lambda: topic.context.broker.topics.get("shop/orders").subscriptions.info("red").receivers == 1)
    assert ask(topic, "DELETE", RED)[0] == 200
    asking.join(LIMIT_S)
    assert answers[0][0] == 404


def test_a_rule_is_tried_before_it_is_there(topic: RunningServer) -> None:
    rule = {"sql": "quantity > 5", "action": "SET quantity = quantity * 2; REMOVE color"}
    status, found = ask(topic, "POST", f"{RED}/rules/new/dry-run", {"rule": rule, "last": 6, "samples": 2})
    assert status == 200, found
    assert (found["start"], found["stop"], found["messages"], found["matched"]) == (4, 10, 6, 4)
    assert [sample["offset"] for sample in found["samples"]] == [6, 7]
    assert found["changes"][0]["changes"] == [
        {"field": "application_properties.RuleName", "before": None, "after": "new"},
        {"field": "application_properties.color", "before": "red", "after": None},
        {"field": "application_properties.quantity", "before": 6, "after": 12},
    ]
    (before,) = ask(topic, "GET", RED)[1]["rules"]
    assert found["overlaps"] == [{"rule": before["name"], "messages": 2, "first_offset": 6}]
    # Tried under its own name it takes the place of the rule that is there.
    assert ask(topic, "POST", f"{RED}/rules/{before['name']}/dry-run", {"rule": rule})[1]["overlaps"] == []
    assert ask(topic, "POST", f"{RED}/rules/new/dry-run", {"rule": {"sql": "quantity >"}})[0] == 400
    assert len(ask(topic, "GET", RED)[1]["rules"]) == 1


def test_users_do_what_they_may(topic: RunningServer) -> None:
    assert [row["name"] for row in ask(topic, "GET", "/api/topics", user=ANNA)[1]] == ["shop/orders"]
    assert [ask(topic, "GET", RED, user=user)[0] for user in (ANNA, BEN)] == [200, 200]
    assert ask(topic, "GET", "/api/topics", user=BEN)[1] == ask(topic, "GET", "/api/subscriptions", user=BEN)[1] == []
    for method, path, body, may in (
        ("GET", TOPIC, None, "anna"),
        ("PUT", TOPIC, {}, ""),
        ("DELETE", TOPIC, None, ""),
        ("PUT", RED, {}, ""),
        ("PUT", f"{RED}/rules/r", {"sql": "1=1"}, ""),
        ("POST", f"{RED}/rules/r/dry-run", {"rule": {"sql": "1=1"}}, "anna"),
        ("GET", f"{RED}/messages", None, "ben"),
        ("GET", f"{RED}/copies", None, "ben"),
        ("POST", f"{RED}/receive", {}, "ben"),
        ("POST", f"{RED}/settle", {"outcome": "complete", "tokens": []}, "ben"),
        ("GET", f"{RED}/dead-letters/messages", None, ""),
        ("DELETE", f"{RED}/messages", None, "ben"),
    ):
        for user in (ANNA, BEN):
            assert ask(topic, method, path, body, user=user)[0] == (200 if may == user[0] else 403), (path, user)


def test_other_paths_and_methods_are_refused(topic: RunningServer) -> None:
    assert ask(topic, "POST", TOPIC)[0] == ask(topic, "DELETE", "/api/topics")[0] == 405
    assert ask(topic, "GET", f"{RED}/nothing")[0] == 404
    assert ask(topic, "POST", f"{RED}/settle", {"outcome": "eat", "tokens": []})[0] == 400
    for wrong in ("xyz", "ab", "é" * 32):
        status, answer = ask(topic, "POST", f"{RED}/settle", {"outcome": "complete", "tokens": [wrong]})
        assert status == 400 and wrong in answer["error"] and "32 hexadecimal digits" in answer["error"]
    for body in ({"count": 0}, {"count": topic_requests.MOST_COPIES + 1}, {"wait_s": -1}, {"wait_s": 1e9}):
        assert ask(topic, "POST", f"{RED}/receive", body)[0] == 400


def test_metrics_count_what_became_of_copies(topic: RunningServer) -> None:
    (first, *_) = received(topic, count=2)
    ask(topic, "POST", f"{RED}/settle", {"outcome": "complete", "tokens": [first["token"]]})
    append(topic, [Message(application_properties={"color": "red", "quantity": "ten"}).encode()])
    topic.until(lambda: topic.context.broker.topics.get("shop/orders").is_decided)
    in_lists = ask(topic, "GET", RED)[1]["rules"] + ask(topic, "GET", "/api/rules")[1]
    counted = [(row["matched"], row["errors"], row["failed_actions"], row["last_failure_offset"]) for row in in_lists]
    assert counted == [(6, 0, 1, 10)] * 2
    assert all("string" in row["last_failure_reason"] for row in in_lists)
    address = f"http://127.0.0.1:{topic.ports['http']}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    found = [opener.open(f"{address}{path}", timeout=LIMIT_S).read().decode() for path in ("", "/per-object")]
    of_topic, of_red = '{topic="shop/orders"}', '{subscription="red",topic="shop/orders"}'
    of_halved = '{rule="halved",subscription="red",topic="shop/orders"}'
    for line in (
        f"headgate_topic_subscriptions{of_topic} 1.0",
        f"headgate_topic_active{of_topic} 3.0",
        f"headgate_topic_messages_decided_total{of_topic} 11.0",
    ):
        assert line in found[0].splitlines()
    assert "headgate_subscription" not in found[0]
    for line in (
        f"headgate_subscription_active{of_red} 3.0",
        f"headgate_subscription_locked{of_red} 1.0",
        f"headgate_subscription_delivered_total{of_red} 2.0",
        f"headgate_subscription_completed_total{of_red} 1.0",
        f"headgate_subscription_decided_total{of_red} 5.0",
        f"headgate_subscription_dead_lettered{of_red} 0.0",
        f"headgate_rule_matched_total{of_halved} 6.0",
        f"headgate_rule_errors_total{of_halved} 0.0",
        f"headgate_rule_failed_actions_total{of_halved} 1.0",
        f"headgate_rule_last_failure_offset{of_halved} 10.0",
    ):
        assert line in found[1].splitlines()


def test_entities_are_declared_all_in_one_and_listed_for_who_may_read_them(running: RunningServer) -> None:
    rule = {"name": "Red", "sql": "color = 'red'"}
    settings: dict[str, object] = {"user_metadata": "ours"}
    declared = {"subscriptions": [{"name": "red", "rules": [rule]}], "settings": settings}
    settings["authorization_rules"] = [{"name": "app", "rights": ["Send"], "primary_key": "hidden"}]
    path = "/api/entities/shop%2Forders"
    assert ask(running, "PUT", path, declared, user=ANNA)[0] == 403
    assert ask(running, "PUT", path, declared) == (200, {"name": "shop/orders"})
    assert ask(running, "PUT", "/api/entities/jobs", {"settings": {"kind": "queue"}})[0] == 200
    told = [EntityDeclaration.of(row) for row in ask(running, "GET", "/api/entities")[1]]
    assert told[0] == EntityDeclaration.of({"name": "jobs", "max_size_megabytes": 1024, "settings": {"kind": "queue"}})
    assert told[1] == EntityDeclaration.of({"name": "shop/orders", "max_size_megabytes": 1024, **declared})
    (row,) = ask(running, "GET", "/api/entities", user=ANNA)[1]
    assert (row["name"], row["settings"]) == ("shop/orders", {"user_metadata": "ours"})
    for wrong in ({"settings": {"kind": "queue"}}, {"name": "other"}, {"delivery": {"lock_ms": 1_000}}, {"x": 1}):
        assert ask(running, "PUT", path, wrong)[0] == 400
    assert ask(running, "PUT", "/api/entities/JOBS", {})[0] == 400
    assert ask(running, "DELETE", path)[0] == 405


def test_a_stream_that_a_topic_forwards_to_is_deleted_by_force_only(topic: RunningServer) -> None:
    assert ask(topic, "PUT", "/api/topics/paid")[0] == 201
    assert ask(topic, "PUT", f"{TOPIC}/subscriptions/on", {"forward_to": "paid"})[0] == 201
    status, refused = ask(topic, "DELETE", "/api/streams/paid")
    assert (status, "in use by topic 'shop/orders', which forwards to it" in refused["error"]) == (409, True)
    assert (
        ask(topic, "PUT", "/api/users/cora", {"password": "secret", "permissions": {"configure": "^paid$"}})[0] == 201
    )
    refused = ask(topic, "DELETE", "/api/streams/paid", user=CORA)[1]
    assert "in use by a topic, which forwards to it" in refused["error"]

    def consume() -> None:
        session = topic.context.broker.open_session("guest", protocol="test", connection="10.0.0.7:5")
        session.message_consumer("paid", ConsumerOptions(start=OffsetSpecification.first(), name="hidden"))

    topic.call(consume)
    assert "consumer 'hidden' of user 'guest'" in ask(topic, "DELETE", "/api/streams/paid")[1]["error"]
    refused = ask(topic, "DELETE", "/api/streams/paid", user=CORA)[1]
    assert "in use by 1 consumer, a topic" in refused["error"] and "hidden" not in refused["error"]
    assert ask(topic, "DELETE", "/api/streams/paid?force=true")[0] == 200


def test_who_may_not_read_does_not_learn_what_there_is(topic: RunningServer) -> None:
    there = f"{RED}/dead-letters"
    missing = (f"{TOPIC}/subscriptions/blue/dead-letters", "/api/topics/gone/subscriptions/red/dead-letters")
    for method, path, body in (("GET", "messages", None), ("DELETE", "messages", None), ("POST", "receive", {})):
        answers = [ask(topic, method, f"{each}/{path}", body, user=ANNA)[0] for each in (there, *missing)]
        assert answers == [403, 403, 403], path
    assert [ask(topic, "GET", f"{each}/messages")[0] for each in (there, *missing)] == [200, 404, 404]
