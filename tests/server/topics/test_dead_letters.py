"""Dead letters over HTTP: resubmitted as a job, tried, deleted, by those who may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers import publish
from headgate import Message
from headgate.broker.consumer_groups import Received, ReceiveRequest
from headgate.errors import HeadgateError
from server.running import RunningServer, running_server
from server.topics.test_topics import ANNA, GUEST, ask
from waiting import eventually

TOPIC = "/api/topics/orders"
LETTERS = f"{TOPIC}/subscriptions/red/dead-letters"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    """The topic `orders`, whose subscription `red` has four dead letters, and takes those with n below 2 now."""
    reader = {"name": "anna", "password": "secret", "permissions": {"read": ".*"}}
    with running_server(tmp_path, handlers={}, user=[reader], stream=[{"name": "plain"}]) as running:
        assert ask(running, "PUT", TOPIC)[0] == 201
        assert ask(running, "PUT", f"{TOPIC}/subscriptions/red")[0] == 201
        messages = [Message(b"b", application_properties={"n": number}).encode() for number in range(4)]
        running.call(write, running, messages)
        copies = ask(running, "POST", f"{TOPIC}/subscriptions/red/receive", {"count": 10, "wait_s": 5})[1]
        settled = {"outcome": "dead-letter", "tokens": [each["token"] for each in copies], "reason": "NoStock"}
        assert ask(running, "POST", f"{TOPIC}/subscriptions/red/settle", settled)[1] == {"settled": [True] * 4}
        assert ask(running, "DELETE", f"{TOPIC}/subscriptions/red/rules/$Default")[0] == 200
        assert ask(running, "PUT", f"{TOPIC}/subscriptions/red/rules/small", {"sql": "n < 2"})[0] == 201
        yield running


def write(running: RunningServer, messages: list[bytes]) -> None:
    broker = running.context.broker
    publish(broker, broker.open_session("guest", protocol="test", connection="test").publisher("orders"), messages)


def left(running: RunningServer) -> list[int]:
    rows = ask(running, "GET", f"{LETTERS}/messages")[1]
    return [row["message"]["application_properties"]["n"] for row in rows]


def ended(running: RunningServer, answer: tuple[int, Any]) -> Any:
    status, told = answer
    assert status == 202
    return ask(running, "GET", f"/api/jobs/{told['job']}?wait_s=10")[1]


def test_a_dry_run_says_which_rules_take_what_and_changes_nothing(running: RunningServer) -> None:
    status, told = ask(running, "POST", f"{LETTERS}/resubmissions", {"dry_run": True})
    assert (status, told) == (
        200,
        {
            "copies": 4,
            "taken": [{"subscription": "red", "rule": "small", "copies": 2}],
            "failing": [],
            "taken_by_none": [{"offset": 2, "rule": 0}, {"offset": 3, "rule": 0}],
            "num_taken_by_none": 2,
            "is_complete": True,
        },
    )
    assert left(running) == [0, 1, 2, 3]


def test_a_dry_run_tells_nobody_of_rules_that_he_may_not_read(running: RunningServer) -> None:
    mine = {"read": "^orders/Subscriptions/red/", "write": ".*"}
    assert ask(running, "PUT", "/api/users/dora", {"password": "secret", "permissions": mine})[0] == 201
    assert ask(running, "PUT", "/api/topics/other")[0] == 201
    assert ask(running, "PUT", "/api/topics/other/subscriptions/secret")[0] == 201
    for to in ("orders", "other"):
        body = {"dry_run": True, "to": to}
        status, told = ask(running, "POST", f"{LETTERS}/resubmissions", body, user=("dora", "secret"))
        assert (status, told["copies"], told["taken"], told["failing"]) == (200, 4, [], [])
        assert told["num_taken_by_none"] == (2 if to == "orders" else 0)
        assert ask(running, "POST", f"{LETTERS}/resubmissions", body)[1]["taken"]


def test_a_resubmission_is_a_job_that_its_user_sees(running: RunningServer) -> None:
    job = ended(running, ask(running, "POST", f"{LETTERS}/resubmissions", {"set": {"n": 1}, "copies": [{"offset": 3}]}))
    facts = ("kind", "user", "subject", "state", "done", "total", "failed", "error")
    name = "orders/Subscriptions/red/$DeadLetterQueue"
    assert tuple(job[each] for each in facts) == ("resubmission", "guest", name, "done", 1, 1, 0, None)
    assert left(running) == [0, 1, 2]
    (copy,) = ask(running, "GET", f"{TOPIC}/subscriptions/red/messages")[1]
    assert copy["message"]["application_properties"] == {"n": 1}
    assert ask(running, "GET", "/api/jobs")[1] == [job]
    job = ended(running, ask(running, "POST", f"{LETTERS}/resubmissions", {"to": "plain"}))
    assert (job["state"], job["done"], left(running)) == ("done", 3, [])


def test_what_nobody_takes_stays_unless_it_is_asked_for(running: RunningServer) -> None:
    job = ended(running, ask(running, "POST", f"{LETTERS}/resubmissions", {}))
    assert (job["done"], job["failed"], left(running)) == (2, 2, [2, 3])
    job = ended(running, ask(running, "POST", f"{LETTERS}/resubmissions", {"include_untaken": True}))
    assert (job["done"], job["failed"], left(running)) == (2, 0, [])


def test_a_slow_job_is_cancelled(running: RunningServer) -> None:
    body = {"to": "plain", "rate_per_s": 0.01}
    job = ask(running, "POST", f"{LETTERS}/resubmissions", body)[1]["job"]
    assert ask(running, "GET", f"/api/jobs/{job}")[1]["state"] == "running"
    assert ask(running, "DELETE", f"/api/jobs/{job}")[1]["state"] == "cancelled"
    assert ask(running, "GET", f"/api/jobs/{job}?wait_s=20")[1]["state"] == "cancelled"


REFUSED = [
    ({"to": "plain"}, ANNA, 403),
    ({"to": "plain", "dry_run": True}, ANNA, 403),
    ({"to": "missing"}, GUEST, 404),
    ({"to": "orders/Subscriptions/red"}, GUEST, 400),
    ({"set": {"n": [1]}}, GUEST, 400),
    ({"copies": [{"offset": 0, "rule": 1}]}, GUEST, 400),
    ({"copies": [{"offset": 0}] * 10_001}, GUEST, 400),
    ({"rate_per_s": 0}, GUEST, 400),
]


def test_a_wrong_request_is_refused_and_changes_nothing(running: RunningServer) -> None:
    for body, user, status in REFUSED:
        assert ask(running, "POST", f"{LETTERS}/resubmissions", body, user=user)[0] == status, body
    assert left(running) == [0, 1, 2, 3]


def test_dead_letters_are_deleted_chosen_or_all(running: RunningServer) -> None:
    chosen = {"copies": [{"offset": 1}, {"offset": 9}]}
    assert ask(running, "POST", f"{LETTERS}/delete", chosen) == (200, {"deleted": 1})
    assert left(running) == [0, 2, 3]
    assert ask(running, "POST", f"{LETTERS}/delete", {}) == (200, {"deleted": 3})
    assert left(running) == []


def test_dead_letters_of_a_group_go_back_to_their_queue(running: RunningServer) -> None:
    """By messages that a member of the group gave up."""
    group, letters = "/api/rocketmq/groups/billing", "/api/rocketmq/groups/billing/dead-letters"
    assert ask(running, "PUT", "/api/rocketmq/topics/payments", {"queues": 1})[0] == 201
    assert ask(running, "PUT", group, {"start": "first"})[0] == 201
    running.call(give_up, running, 3)
    shown = eventually_all(running, f"{letters}/messages", 3)
    assert [row["offset"] for row in shown] == [0, 1, 2]
    assert ask(running, "GET", f"{letters}/messages", user=ANNA)[0] == 200
    assert ask(running, "GET", group)[1]["dead_letters"] == 3
    tried = ask(running, "POST", f"{letters}/resubmissions", {"dry_run": True})[1]
    assert (tried["copies"], tried["num_taken_by_none"]) == (3, 0)
    assert ask(running, "POST", f"{letters}/resubmissions", {"to": "payments"}, user=ANNA)[0] == 403
    assert ask(running, "POST", f"{letters}/delete", {"copies": [{"offset": 1}]}) == (200, {"deleted": 1})
    job = ended(running, ask(running, "POST", f"{letters}/resubmissions", {}))
    assert (job["state"], job["done"], job["subject"]) == ("done", 2, "%DLQ%billing")
    assert ask(running, "GET", f"{letters}/messages")[1] == []
    assert ask(running, "GET", "/api/rocketmq/groups")[1][0]["dead_letters"] == 0
    (topic,) = [row for row in ask(running, "GET", "/api/rocketmq/topics")[1] if row["name"] == "payments"]
    assert topic["messages"] == 5
    assert ask(running, "GET", "/api/rocketmq/groups/biling/dead-letters/messages")[0] == 404


def give_up(running: RunningServer, count: int) -> None:
    broker = running.context.broker
    session = broker.open_session("guest", protocol="test", connection="test")
    publish(broker, session.publisher("payments"), [Message(b"b").encode()] * count)
    request = ReceiveRequest("billing", ("payments",), None, None, count, 60_000, lambda _: None)

    def dead_letter(given: Received | HeadgateError) -> None:
        assert isinstance(given, Received)
        broker.consumer_groups.view("payments", "billing").dead_letter([each.token for each in given.messages])

    request.then = dead_letter
    broker.consumer_groups.receive(request)


def eventually_all(running: RunningServer, path: str, count: int) -> list[Any]:
    eventually(lambda: len(ask(running, "GET", path)[1]) == count)
    rows: list[Any] = ask(running, "GET", path)[1]
    return rows
