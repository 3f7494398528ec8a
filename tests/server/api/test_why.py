"""`POST /api/why`: the answer of the files with what only the server knows, and what each user may ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from group_lab import GroupLab, message
from headgate.broker import ConsumerOptions
from headgate.cli import main
from headgate.client import Management
from headgate.derived.match_index import Announcement
from headgate.errors import AccessRefusedError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, Writer
from headgate.message import Message
from headgate.server.api import why
from headgate.topic import Rule, Subscription, TopicEditor, create_topic
from headgate.trace import Answer, Question
from log_streams import quick_folder
from server.http.test_endpoints import ask
from server.running import RunningServer, running_server

RED_ONLY = "^orders/Subscriptions/red$"
USERS = [
    {"name": "anna", "password": "secret", "permissions": {"read": "^orders$"}},
    {"name": "rosa", "password": "secret", "permissions": {"read": RED_ONLY}},
    {"name": "nobody", "password": "secret"},
]


def colored(identity: str, color: str) -> bytes:
    return Message(b"b", message_id=identity, application_properties={"color": color}).encode()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    root = tmp_path_factory.mktemp("why")
    topic = create_topic(root / "data", "orders", now_ms=0)
    with Writer.open(topic, now_ms=0) as writer:
        with TopicEditor(writer) as editor:
            editor.create_subscription(Subscription("red", (Rule("Red", "color = 'red'"),)), now_ms=0)
            editor.create_subscription(Subscription("all"), now_ms=0)
        writer.append([(colored("a-1", "red"), None), (colored("a-2", "blue"), None)], now_ms=0)
    with running_server(root, handlers={}, user=USERS, stream=[{"name": "hidden"}]) as running:
        yield running


def as_user(running: RunningServer, user: str = "guest", password: str = "secret") -> Management:
    return Management(f"http://127.0.0.1:{running.ports['http']}", user, password)


@pytest.fixture
def guest(running: RunningServer) -> Management:
    return as_user(running, password="guest")


def test_the_answer_has_the_message_and_the_clause(guest: Management) -> None:
    answer = guest.why({"name": "orders", "id": "a-2", "for": "red"})
    (consumer,) = answer["consumers"]
    assert (answer["message"]["offset"], consumer["fate"]) == (1, "filtered-out")
    assert consumer["decisions"][0]["clauses"]["note"] == "color is string 'blue'"
    assert [each["name"] for each in guest.why({"name": "orders", "offset": 0})["consumers"]] == ["red", "all"]


def test_the_command_line_asks_a_server_and_says_the_same(
    running: RunningServer, guest: Management, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--server", f"http://127.0.0.1:{running.ports['http']}", "--user", "guest", "--password", "guest")
    assert main(["why", "orders", "--id", "a-2", "--for", "red", *server]) == 0
    answer = Answer.of_dict(guest.why({"name": "orders", "id": "a-2", "for": "red"}))
    assert capsys.readouterr().out == f"{answer}\n"


def test_a_connected_consumer_is_known_with_its_filter_and_place(running: RunningServer, guest: Management) -> None:
    options = ConsumerOptions(
        start=OffsetSpecification.first(), filter=Filter.parse("color = 'blue'"), tag="t", name="reader"
    )

    late = ConsumerOptions(start=OffsetSpecification.next(), name="late")

    def consume() -> None:
        session = running.context.broker.open_session("guest", protocol="test", connection="10.0.0.7:5")
        for each in (options, late):
            session.message_consumer("orders", each)

    running.call(consume)
    (consumer,) = guest.why({"name": "orders", "offset": 0, "for": "reader"})["consumers"]
    assert (consumer["kind"], consumer["fate"]) == ("consumer", "filtered-out")
    assert "10.0.0.7:5" in consumer["steps"][2]["text"]
    assert guest.why({"name": "orders", "offset": 0, "for": "late"})["consumers"][0]["fate"] == "before"


def test_who_may_read_the_topic_may_ask_and_others_not(running: RunningServer) -> None:
    asked = {"name": "orders", "offset": 1, "for": "red"}
    assert as_user(running, "anna").why(asked)["consumers"][0]["decisions"]
    for user in ("nobody", "rosa"):
        with pytest.raises(AccessRefusedError):
            as_user(running, user).why({"name": "hidden", "offset": 0})
    with pytest.raises(AccessRefusedError):
        as_user(running, "nobody").why(asked)
    with pytest.raises(AccessRefusedError, match="why: orders: user 'nobody'"):
        as_user(running, "nobody").why({"name": "orders", "offset": 1})


def test_who_may_read_the_subscription_only_is_told_of_its_messages_only(running: RunningServer) -> None:
    rosa = as_user(running, "rosa")
    (own,) = rosa.why({"name": "orders", "id": "a-1", "for": "red"})["consumers"]
    assert (own["fate"], own["decisions"][0]["name"]) == ("available", "Red")
    other = rosa.why({"name": "orders/Subscriptions/red", "offset": 1})
    assert (other["consumers"][0]["fate"], other["consumers"][0]["decisions"]) == ("filtered-out", [])
    assert "blue" not in json.dumps(other) and "a-2" not in json.dumps(other)
    for refused in ({"offset": 0}, {"offset": 0, "for": "all"}, {"where": "color = 'blue'", "for": "red"}):
        with pytest.raises(AccessRefusedError):
            rosa.why({"name": "orders", **refused})


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"name": "orders"}, 400, "expected exactly one of id, offset and where"),
        ({"name": "orders", "where": "color ="}, 400, "color ="),
        ({"name": "orders", "id": "zzz"}, 404, "no message with the id 'zzz'"),
        ({"name": "orders", "where": "TRUE"}, 400, "2 messages have `TRUE`"),
        ({"name": "orders", "offset": 0, "for": "rad"}, 404, "did you mean 'red'"),
        ({"name": "order", "offset": 0}, 404, "did you mean 'orders'?"),
        ({"name": "/etc", "offset": 0}, 404, "no such stream"),
        ({"name": "orders", "offset": 0, "budget_ms": 1e9}, 400, "budget_ms"),
    ],
)
def test_what_is_wrong_in_a_question_is_said(running: RunningServer, body: Any, status: int, reason: str) -> None:
    found, _, text = ask(running, "POST", "/api/why", json.dumps(body).encode())
    assert (found, reason in json.loads(text)["detail"]) == (status, True), text


def test_a_long_filter_does_not_hold_up_the_loop(
    running: RunningServer, guest: Management, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def question(request: why.WhyRequest) -> Question:
        threads.append(threading.current_thread())
        return given(request)

    given = why.WhyRequest.question
    monkeypatch.setattr(why.WhyRequest, "question", question)
    guest.why({"name": "orders", "offset": 0, "filter": "color = 'red'"})
    assert threads and running.call(threading.current_thread) not in threads


def test_questions_at_a_time_are_limited(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "QUESTIONS", 0)
    assert ask(running, "POST", "/api/why", b'{"name": "orders", "offset": 0}')[0] == 503


def test_what_the_members_of_a_group_ask_for_is_a_fact() -> None:
    with quick_folder() as folder:
        lab = GroupLab(Path(folder))
        tags = Announcement("red || blue", "tags", 1)
        lab.broker.members.heartbeat("g", "m", {"q0": tags}, now_ms=lab.clock.now, changed=lambda: None)
        lab.publish([message(0)])
        lab.view()
        facts = why.facts_of(lab.broker, "guest", [lab.broker.catalogue.get("q0")])
        lab.broker.close()
    (reader,) = facts.readers
    assert (reader.name, reader.filter and reader.filter.text) == ("g", "red || blue")
