"""`headgate subscription peek|receive|settle|purge`, `tail --subscription` and `rule add --dry-run`, and all commands
on topics on a server: the same on files, through a server, and where a server has the root."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command_line import Outcome, Run
from headgate import Message
from headgate.cli import local_topics
from headgate.cli.topic import rule_failures
from headgate.client import Client
from headgate.log import Writer, resolve_stream
from headgate.log.root import lock_root
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from waiting import LIMIT_S

PLACES = ("files", "server", "http", "served")


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RunningServer]:
    users = [{"name": "anna", "password": "secret", "permissions": {"read": "^nothing$"}}]
    with running_server(tmp_path, handlers={"stream": StreamHandler}, user=users) as running:
        yield running


@dataclass(frozen=True)
class Place:
    """Options of commands on topics, and of `publish`: a server that has the root is who writes its streams."""

    options: list[str]
    publish: list[str]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Files that nobody serves; a server by either address; the files of a root that is served."""
    if request.param == "files":
        files = ["--root", str(tmp_path / "root")]
        return Place(files, files)
    running: RunningServer = request.getfixturevalue("real")
    server = ["--server", f"127.0.0.1:{running.ports['stream']}"]
    options = {
        "server": server,
        "http": ["--server", f"http://127.0.0.1:{running.ports['http']}"],
        "served": ["--root", str(running.context.settings.root)],
    }
    return Place(options[request.param], server)


@pytest.fixture
def there(run: Run, place: Place) -> Run:
    """Runs commands there: `shop/orders` has ten messages, and `red` halves the quantities of the five red ones."""

    def runs(*arguments: object, stdin: str = "") -> Outcome:
        return run(*arguments, *place.options, stdin=stdin)

    made = runs("topic", "create", "shop/orders")
    assert made.status == 0, made.err
    rule = {"name": "halved", "sql": "color = 'red'", "action": "SET quantity = quantity / 2"}
    options = ("--rule", json.dumps(rule), "--lock", "30s", "--max-delivery-count", "2")
    assert runs("subscription", "create", "shop/orders", "red", *options).err == "in force from offset 0\n"
    lines = [json.dumps({"body": f"{number}", "application_properties": properties(number)}) for number in range(10)]
    assert run("publish", "shop/orders", *place.publish, stdin="\n".join(lines)).status == 0
    return runs


def properties(number: int) -> dict[str, object]:
    return {"color": ("red", "blue")[number % 2], "quantity": number}


def row_of(there: Run) -> dict[str, Any]:
    (row,) = there("subscription", "ls", "shop/orders", "--json").json
    return dict(row)


def counts(there: Run) -> tuple[int, ...]:
    row = row_of(there)
    return tuple(row[name] for name in ("active", "locked", "waiting", "deferred", "dead_lettered"))


def test_copies_are_peeked_at_received_and_settled(there: Run) -> None:
    peeked = there("subscription", "peek", "shop/orders", "red", "-n", "3", "--json").json
    assert [(row["offset"], row["rule"], row["application_properties"]["quantity"]) for row in peeked] == [
        (0, 1, 0),
        (2, 1, 1),
        (4, 1, 2),
    ]
    assert [
        row["offset"] for row in there("subscription", "peek", "shop/orders", "red", "--from", "5", "--json").json
    ] == [6, 8]
    assert counts(there) == (5, 0, 0, 0, 0)
    row = row_of(there)
    assert (row["pins"], row["held_back_bytes"] > 0, row["rules"]) == (0, True, 1)

    received = there("subscription", "receive", "shop/orders", "red", "-n", "4", "--wait", "10s", "--json").json
    assert [(row["offset"], row["attempt"], row["body"]) for row in received] == [
        (offset, 1, {"data": str(offset)}) for offset in (0, 2, 4, 6)
    ]
    tokens = [row["token"] for row in received]
    assert counts(there) == (1, 4, 0, 0, 0)

    def settle(outcome: str, *given: str) -> Outcome:
        return there("subscription", "settle", "shop/orders", "red", outcome, *given)

    assert settle("complete", tokens[0]).err == "complete: 1 settled\n"
    again = settle("complete", *tokens[:2])
    assert again.status == 1 and tokens[0] in again.err and tokens[1] not in again.err
    assert settle("abandon", tokens[2]).status == 0
    assert settle("dead-letter", tokens[3], "--reason", "broken", "--description", "no size").status == 0
    assert counts(there) == (2, 0, 0, 0, 1)
    (letter,) = there("subscription", "peek", "shop/orders", "red", "--dead-letters", "--json").json
    assert letter["application_properties"]["DeadLetterReason"] == "broken"

    rest = there("subscription", "receive", "shop/orders", "red", "-n", "9", "--outcome", "complete", "--json")
    assert [(row["offset"], row["attempt"]) for row in rest.json] == [(4, 2), (8, 1)]
    assert rest.err == "complete: 2 settled\n"
    assert there("subscription", "purge", "shop/orders", "red", "--dead-letters").out == "1\n"
    assert counts(there) == (0, 0, 0, 0, 0)
    assert row_of(there)["pins"] is None
    assert there("subscription", "receive", "shop/orders", "red").out == ""


def test_dead_letters_are_tried_resubmitted_and_deleted(there: Run) -> None:
    received = there("subscription", "receive", "shop/orders", "red", "-n", "9", "--wait", "10s", "--json").json
    tokens = [row["token"] for row in received]
    assert there("subscription", "settle", "shop/orders", "red", "dead-letter", *tokens).status == 0

    def resubmit(*options: object) -> Outcome:
        return there("subscription", "resubmit", "shop/orders", "red", *options)

    tried = resubmit("--dry-run", "--set", 'color="blue"', "--offset", "1", "--json").json
    assert (tried[0]["copies"], tried[0]["taken"], tried[0]["taken_by_none"]) == (1, [], [{"offset": 1, "rule": 0}])
    shown = resubmit("--dry-run")
    assert shown.out.splitlines() == ["subscription\trule\teffect\tdead_letters", "red\thalved\ttakes\t5"]
    assert shown.err == "5 dead letters examined\n"
    assert "1 would stay, as no rule takes them: 1" in resubmit("--dry-run", "--remove", "color", "--offset", "1").err
    assert counts(there) == (0, 0, 0, 0, 5)

    stays = resubmit("--set", 'color="blue"', "--offset", "1")
    assert stays.status == 1 and "no rule of the target takes them" in stays.err
    done = resubmit("--offset", "0", "--offset", "1", "--set", "quantity=80", "--rate", "1000", "--json")
    assert (done.status, done.err) == (0, "2 dead letters resubmitted\n")
    assert (done.json[0]["state"], done.json[0]["done"]) == ("done", 2)
    assert counts(there) == (2, 0, 0, 0, 3)
    (first, _) = there("subscription", "peek", "shop/orders", "red", "--json").json
    assert first["application_properties"]["quantity"] == 40

    assert there("subscription", "purge", "shop/orders", "red", "--dead-letters", "--offset", "3").out == "1\n"
    assert counts(there) == (2, 0, 0, 0, 2)
    assert there("subscription", "purge", "shop/orders", "red", "--offset", "3").status == 2
    assert resubmit("--set", "color").status == 2
    assert resubmit("--to", "missing").status == 1


def test_on_files_it_is_waited_for_what_another_process_publishes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topic", "create", "orders").status == 0
    assert run("subscription", "create", "orders", "all").status == 0
    tick = local_topics._Asking._tick
    ticks: list[int] = []

    def tick_before_it_comes(asking: local_topics._Asking) -> None:
        tick(asking)
        ticks.append(0)
        if len(ticks) == 3:
            with Writer.open(resolve_stream("orders", tmp_path / "root"), now_ms=1) as writer:
                writer.append([(Message(b"late").encode(), None)], now_ms=1)

    monkeypatch.setattr(local_topics._Asking, "_tick", tick_before_it_comes)
    received = run("subscription", "receive", "orders", "all", "--wait", "20s", "--json").json
    assert [row["body"] for row in received] == [{"data": "late"}]


def test_tables_say_what_was_received(there: Run) -> None:
    lines = there("subscription", "receive", "shop/orders", "red", "-n", "2").lines
    assert lines[0].split("\t")[:5] == ["token", "offset", "rule", "timestamp", "attempt"]
    assert [line.split("\t")[1] for line in lines[1:]] == ["0", "2"]
    head, row = (line.split("\t") for line in there("subscription", "ls", "shop/orders").lines)
    shown = dict(zip(head, row, strict=True))
    assert (shown["active"], shown["locked"], shown["status"]) == ("3", "2", "active")
    assert "locked" in there("subscription", "show", "shop/orders", "red").out
    refused = there("subscription", "settle", "shop/orders", "red", "complete", "xyz")
    assert refused.status in (1, 2) and "tokens" in refused.err


def test_topics_are_shown_changed_and_removed(there: Run) -> None:
    assert [row["name"] for row in there("topic", "ls", "--json").json] == ["shop/orders"]
    (shown,) = there("topic", "show", "shop/orders", "--json").json
    assert (shown["sql_filters"], shown["limits"]["sql_filters"]) == (1, 2000)
    assert "1 of 2000" in there("topic", "show", "shop/orders").out
    assert there("topic", "create", "shop/orders").status == 1

    assert there("rule", "add", "shop/orders", "red", "big", "--sql", "quantity > 5").err == "in force from offset 10\n"
    assert there("rule", "replace", "shop/orders", "red", "big", "--sql", "quantity > 6").status == 0
    assert [line.split("\t")[-2:] for line in there("rule", "ls", "shop/orders", "red").lines[1:]] == [
        ["color = 'red'", "SET quantity = quantity / 2"],
        ["quantity > 6", ""],
    ]
    assert there("rule", "show", "shop/orders", "red", "BIG", "--json").json[0]["sql"] == "quantity > 6"
    history = there("rule", "history", "shop/orders", "red", "--json").json
    assert [(row["name"], row["from_offset"]) for row in history] == [("halved", 0), ("big", 10)]
    wrong = there("rule", "add", "shop/orders", "red", "r", "--sql", "quantity >")
    assert wrong.status == 1 and wrong.err.endswith("^\n")
    assert there("rule", "rm", "shop/orders", "red", "big").err == "gone from offset 10 on\n"
    assert there("rule", "rm", "shop/orders", "red", "big").status == 1

    assert there("subscription", "change", "shop/orders", "red", "--lock", "5s").err == "in force for every copy\n"
    assert row_of(there)["settings"]["lock_ms"] == 5000
    assert there("subscription", "rm", "shop/orders", "red").err == "gone from offset 10 on\n"
    assert there("topic", "rm", "shop/orders").status == 0
    assert there("topic", "ls", "--json").out == ""


def test_a_name_that_is_not_there_brings_up_those_like_it(there: Run) -> None:
    there("rocketmq", "topic", "create", "sales")
    there("rocketmq", "group", "create", "workers")
    for command, near in (
        (["topic", "show", "shop/order"], "'shop/orders'"),
        (["subscription", "ls", "shop/order"], "'shop/orders'"),
        (["subscription", "show", "shop/orders", "rad"], "'red'"),
        (["rule", "ls", "shop/orders", "rad"], "'red'"),
        (["rule", "show", "shop/orders", "red", "halve"], "'halved'"),
        (["rule", "rm", "shop/orders", "red", "halve"], "'halved'"),
        (["rocketmq", "topic", "show", "sale"], "'sales'"),
        (["rocketmq", "group", "show", "worker"], "'workers'"),
        (["rocketmq", "group", "rm", "worker"], "'workers'"),
    ):
        shown = there(*command)
        assert shown.status == 1 and f"; did you mean {near}?" in shown.err, (command, shown.err)


def test_what_a_rule_failed_for_is_shown_wherever_rules_are(run: Run, there: Run, place: Place) -> None:
    line = json.dumps({"body": "x", "application_properties": {"color": "red", "quantity": "ten"}})
    assert run("publish", "shop/orders", *place.publish, stdin=line).status == 0
    (row,) = there("subscription", "ls", "shop/orders", "--json").json
    (shown,) = there("subscription", "show", "shop/orders", "red", "--json").json
    assert row["rule_failures"] == shown["rule_failures"] == 1
    (listed,) = there("rule", "ls", "shop/orders", "red", "--json").json
    if place.options == place.publish and "--root" in place.options:
        # Nobody decides: a list of files says nothing about messages.
        assert "matched" not in listed
        return
    assert (listed["matched"], listed["errors"], listed["failed_actions"]) == (6, 0, 1)
    assert listed["last_failure_offset"] == 10 and "string" in listed["last_failure_reason"]
    (fact,) = [each for each in there("rule", "show", "shop/orders", "red", "halved").lines if "last_failure" in each]
    assert "offset 10: " in fact and "string" in fact


def test_a_filter_and_a_rule_of_a_topic_are_explained_in_their_own_language(run: Run) -> None:
    run("topic", "create", "orders")
    other = {"name": "low", "sql": "LOWER(color) = 'red'", "dialect": "amqp"}
    halved = {"name": "halved", "sql": "Color = 'red'", "action": "SET quantity = quantity / 2"}
    run("subscription", "create", "orders", "red", "--rule", json.dumps(halved), "--rule", json.dumps(other))
    lines = [json.dumps({"application_properties": {"color": "red", "quantity": each}}) for each in (4, "ten")]
    assert run("publish", "orders", stdin="\n".join(lines)).status == 0
    asked = run("filter", "explain", "Color = 'red'", "--stream", "orders", "--offset", "0")
    assert asked.lines[0].startswith("true") and "`servicebus`" in asked.err
    assert run("filter", "explain", "LOWER(color)  = 'red'", "--stream", "orders", "--offset", "0").status == 0
    given = run("filter", "explain", "Color = 'red'", "--stream", "orders", "--offset", "0", "--dialect", "amqp")
    assert given.lines[0].startswith("unknown") and not given.err
    results = [run("rule", "explain", "orders", "red", "Halved", "--offset", str(n), "--json").json[0] for n in (0, 1)]
    assert [each["verdict"] for each in results] == ["true", "true"]
    assert results[0]["result"] == "a copy that the action changes" and "action fails" in results[1]["result"]
    assert results[0]["failure"] is None and "string" in results[1]["failure"]
    of_json = run("rule", "explain", "orders", "red", "low", "--message", lines[0])
    assert of_json.lines[-1] == "gives the message as it is"
    refused = run("rule", "explain", "orders", "red", "halve", "--offset", "0")
    assert refused.status == 1 and "halved" in refused.err


def test_a_rule_is_tried_on_the_last_messages_and_changes_nothing(there: Run) -> None:
    options = ("--sql", "quantity > 5", "--action", "SET quantity = quantity * 2", "--dry-run", "--last", "6")
    (found,) = there("rule", "add", "shop/orders", "red", "doubled", *options, "--json").json
    assert (found["start"], found["messages"], found["matched"]) == (4, 6, 4)
    assert found["changes"][0]["changes"][-1] == {
        "field": "application_properties.quantity",
        "before": 6,
        "after": 12,
    }
    lines = there("rule", "add", "shop/orders", "red", "doubled", *options, "--samples", "1").lines
    assert lines[0].split() == ["messages", "6", "at", "offsets", "4", "to", "9"]
    assert "6\tapplication_properties.quantity\t6\t12" in lines
    assert [row["name"] for row in there("rule", "ls", "shop/orders", "red", "--json").json] == ["halved"]
    refused = there("rule", "add", "shop/orders", "none", "r", "--sql", "1=1", "--dry-run")
    assert refused.status == 1 and "none" in refused.err


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ([], [0, 2, 4, 6, 8]),
        (["--from", "3"], [4, 6, 8]),
        (["--from", "2", "--until", "7"], [2, 4, 6]),
        (["-n", "2"], [0, 2]),
        (["--from", "next"], []),
    ],
)
def test_tail_shows_the_copies_that_a_subscription_has_settled_or_not(
    there: Run, options: list[str], offsets: list[int]
) -> None:
    assert there("subscription", "receive", "shop/orders", "red", "-n", "2", "--outcome", "complete").status == 0
    shown = there("tail", "shop/orders", "--subscription", "red", "--json", *options)
    assert shown.status == 0, shown.err
    assert [(row["offset"], row["application_properties"]["quantity"]) for row in shown.json] == [
        (offset, offset // 2) for offset in offsets
    ]


def test_tail_counts_the_copies_that_a_server_gave(there: Run, place: Place) -> None:
    shown = there("tail", "shop/orders", "--subscription", "red", "--counters")
    said = "received: 5 messages (" if place.options[0] == "--server" else "stage 2: 10 messages evaluated"
    assert said in shown.err


def test_tail_shows_the_copies_of_the_subscription_that_is_there_now(there: Run) -> None:
    rule = json.dumps({"name": "blue", "sql": "color = 'blue'"})
    there("subscription", "rm", "shop/orders", "red")
    for name in ("all", "red"):
        there("subscription", "create", "shop/orders", name, *(("--rule", rule) if name == "red" else ()))
    assert there("tail", "shop/orders", "--subscription", "red").out == ""


def test_tail_of_a_subscription_takes_no_filter_and_names_what_is_not_there(there: Run) -> None:
    for arguments, status, named in (
        (("--subscription", "red", "--filter", "quantity > 1"), 2, "--subscription"),
        (("--subscription", "red", "--from", "99"), 2, "--from"),
        (("--subscription", "none"), 1, "none"),
    ):
        shown = there("tail", "shop/orders", *arguments)
        assert (shown.status, named in shown.err) == (status, True), shown.err


def test_tail_follows_a_subscription(there: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    message = Message(b"x", application_properties={"color": "red", "quantity": 8})
    published: list[threading.Thread] = []

    def append() -> None:
        if place.publish[0] == "--server":
            with Client.connect(place.publish[1]) as client, client.publisher("shop/orders") as publisher:
                publisher.send(message)
        else:
            with Writer.open(resolve_stream("shop/orders", place.publish[1]), now_ms=1) as writer:
                writer.append([(message.encode(), None)], now_ms=1)

    def wait(_seconds: float) -> None:
        # The read has nothing more to give: now it comes.
        if not published:
            published.append(threading.Thread(target=append))
            published[0].start()
            published[0].join(LIMIT_S)

    monkeypatch.setattr("headgate.cli.tail.time.sleep", wait)
    shown = there("tail", "shop/orders", "--subscription", "red", "--follow", "--from", "next", "-n", "1", "--json")
    assert [(row["offset"], row["application_properties"]["quantity"]) for row in shown.json] == [(10, 4)]


def test_a_served_root_is_asked_with_a_login_that_may(run: Run, real: RunningServer) -> None:
    root = str(real.context.settings.root)
    assert run("topic", "create", "orders", "--root", root).status == 0
    refused = run("topic", "rm", "orders", "--root", root, "--user", "anna", "--password", "secret")
    assert refused.status == 1
    assert f"http://127.0.0.1:{real.ports['http']}" in refused.err and "--user" in refused.err
    assert run("subscription", "create", "orders", "all", "--root", root).status == 0
    assert real.context.broker.topics.get("orders").subscriptions.info("all").number == 1


def test_a_root_that_something_else_holds_is_waited_for(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    held = lock_root(root, now_ms=1)
    refused = run("topic", "create", "orders", "--lock-timeout", "0.05")
    assert refused.status == 1 and "--server" in refused.err
    threading.Timer(0.1, held.release).start()
    assert run("topic", "create", "orders", "--lock-timeout", str(LIMIT_S)).status == 0


def test_commands_on_files_make_no_users_and_no_folders_for_what_is_not_there(run: Run, tmp_path: Path) -> None:
    assert run("subscription", "ls", "none").status == 1
    assert not (tmp_path / "root").exists()
    assert run("topic", "create", "orders").status == 0
    assert not (tmp_path / "root" / ".headgate" / "users.json").exists()


def test_all_rules_of_a_topic_are_explained_with_what_their_actions_change_or_why_they_fail(run: Run) -> None:
    run("topic", "create", "orders")
    dated = {"name": "dated", "sql": "n > 1", "action": "SET n = '12'; SET new = 'x'; REMOVE color"}
    wrong = {"name": "wrong", "sql": "n > 1", "action": "SET n = color / 2"}
    run("subscription", "create", "orders", "a", "--rule", json.dumps(dated), "--rule", json.dumps(wrong))
    run("subscription", "create", "orders", "b", "--rule", json.dumps({"name": "none", "sql": "n > 100"}))
    line = json.dumps({"application_properties": {"n": {"t": "int", "v": 5}, "color": "red"}})
    rows = run("rule", "explain", "orders", "--message", line, "--json").json
    assert [(row["subscription"], row["rule"], row["verdict"]) for row in rows] == [
        ("a", "dated", "true"),
        ("a", "wrong", "true"),
        ("b", "none", "false"),
    ]
    changes = {each["field"]: (each["before"], each["after"]) for each in rows[0]["changes"]}
    assert changes == {
        "application_properties.n": ({"t": "int", "v": 5}, {"t": "int", "v": 12}),
        "application_properties.new": (None, {"t": "string", "v": "x"}),
        "application_properties.color": ({"t": "string", "v": "red"}, None),
        "application_properties.RuleName": (None, {"t": "string", "v": "dated"}),
    }
    assert "string" in rows[1]["failure"]
    assert rows[1]["changes"] is None and rows[2]["changes"] is None
    shown = run("rule", "explain", "orders", "a", "--message", line).lines
    assert "a/dated: n > 1" in shown
    assert 'application_properties.n\t{"t":"int","v":5}\t{"t":"int","v":12}' in shown
    assert [each for each in shown if each.startswith("gives no copy by this rule: its action fails: ")]


def test_failures_that_are_not_counted_are_not_shown_as_none() -> None:
    uncounted, counted = {"errors": None, "failed_actions": 0}, {"errors": 0, "failed_actions": 0}
    failed = {"errors": None, "failed_actions": 2}
    assert rule_failures({"rules": [uncounted, counted]}) == {"rule_failures": None}
    assert rule_failures({"rules": [uncounted, failed]}) == {"rule_failures": 2}
    assert rule_failures({"rules": [counted]}) == {"rule_failures": 0}
