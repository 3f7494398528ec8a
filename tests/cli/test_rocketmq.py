"""`headgate rocketmq topic` and `headgate rocketmq group`, in a folder and at a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Outcome, Run
from server.running import running_server
from server.topics.test_dead_letters import give_up
from waiting import eventually


def publish(run: Run, stream: str, count: int) -> None:
    lines = [json.dumps({"body": f"{number}"}) for number in range(count)]
    assert run("publish", stream, stdin="\n".join(lines) + "\n").status == 0


@pytest.fixture(params=["folder", "server"])
def there(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Any:
    """Runs commands in a folder, and on it where a server has it."""
    if request.param == "folder":
        yield run
        return
    with running_server(tmp_path, handlers={}, root=str(tmp_path / "root")):
        yield run


def test_topics_are_made_changed_shown_and_removed(there: Run) -> None:
    assert there("rocketmq", "topic", "create", "orders").out == "orders\n"
    assert there("rocketmq", "topic", "create", "audit", "--queues", "1", "--accepts", "NORMAL").status == 0
    audit, orders = there("rocketmq", "topic", "ls", "--json").json
    assert (audit["name"], audit["queues"], audit["accepts"]) == ("audit", 1, ["normal"])
    assert (orders["name"], orders["queues"], orders["accepts"]) == ("orders", 4, ["normal", "fifo", "delay"])
    assert there("rocketmq", "topic", "change", "orders", "--queues", "5", "--accepts", "fifo,delay").status == 0
    (shown,) = there("rocketmq", "topic", "show", "orders", "--json").json
    assert [(each["queue"], each["stream"]) for each in shown["queues"]] == [(n, f"orders-{n}") for n in range(5)]
    assert shown["accepts"] == ["fifo", "delay"] and shown["groups"] == []
    for table in (there("rocketmq", "topic", "ls"), there("rocketmq", "topic", "show", "orders")):
        assert (table.status, table.err) == (0, "") and "fifo, delay" in table.out
    assert there("rocketmq", "topic", "rm", "orders").status == 0
    assert there("stream", "ls", "--json").json[0]["name"] == "audit"


def test_groups_are_declared_changed_shown_and_removed(there: Run) -> None:
    assert there("rocketmq", "group", "create", "billing", "--fifo", "--backoff", "1s,5s").out == "billing\n"
    assert there("rocketmq", "group", "change", "billing", "--max-attempts", "3", "--no-enabled").status == 0
    (row,) = there("rocketmq", "group", "ls", "--json").json
    wanted = {"name": "billing", "fifo": True, "max_attempts": 3, "backoff_ms": [1000, 5000], "enabled": False}
    assert row.items() >= wanted.items() and row["start"] is None
    shown = there("rocketmq", "group", "show", "billing").out.splitlines()
    assert ["backoff_s", "1,", "5"] in [line.split() for line in shown]
    assert "1, 5" in there("rocketmq", "group", "ls").out
    assert there("rocketmq", "group", "rm", "billing").status == 0
    assert "no consumer groups" in there("rocketmq", "group", "ls").err


def test_a_group_goes_on_where_it_is_told_to(run: Run) -> None:
    run("rocketmq", "topic", "create", "orders", "--queues", "2")
    publish(run, "orders-0", 10)
    run("rocketmq", "group", "create", "billing")
    reset = run("rocketmq", "group", "reset", "billing", "orders", "--to", "4")
    assert (reset.status, reset.err) == (0, "queue 0: from offset 4\nqueue 1: from offset 0\n")
    (shown,) = run("rocketmq", "group", "show", "billing", "--json").json
    places = [(each["topic"], each["queue"], each["committed_offset"], each["lag"]) for each in shown["places"]]
    assert places == [("orders", 0, 4, 6), ("orders", 1, 0, 0)] and shown["lag"] == 6
    assert run("rocketmq", "group", "reset", "billing", "orders", "--to", "next", "--queue", "0").status == 0
    assert run("rocketmq", "topic", "show", "orders", "--json").json[0]["groups"][0]["lag"] == 0
    assert "billing\t0\t10\t10\t10\t0" in run("rocketmq", "topic", "show", "orders").out
    assert "orders\t0\t10\t10\t10\t0" in run("rocketmq", "group", "show", "billing").out
    assert run("rocketmq", "group", "rm", "billing").status == 0
    assert run("rocketmq", "topic", "show", "orders", "--json").json[0]["groups"] == []


@pytest.fixture(params=["folder", "server"])
def given_up(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Iterator[Run]:
    """The same; the group `billing` gave up three messages of the topic `payments`."""
    with running_server(tmp_path, handlers={}, root=str(tmp_path / "root")) as running:
        assert run("rocketmq", "topic", "create", "payments", "--queues", "1").status == 0
        assert run("rocketmq", "group", "create", "billing", "--start", "first").status == 0
        running.call(give_up, running, 3)
        eventually(lambda: len(run("rocketmq", "dead-letters", "peek", "billing", "--json").json) == 3)
        if request.param == "server":
            yield run
            return
    yield run


def test_dead_letters_of_a_group_are_tried_resubmitted_and_deleted(given_up: Run) -> None:
    def letters(*words: object) -> Outcome:
        return given_up("rocketmq", "dead-letters", *words)

    first, _, last = letters("peek", "billing", "--json").json
    assert (first["offset"], last["offset"], first["body"]) == (0, 2, {"data": "b"})
    assert len(letters("peek", "billing", "--from", "1", "-n", "1").lines) == 2
    (tried,) = letters("resubmit", "billing", "--dry-run", "--offset", "1", "--json").json
    assert (tried["copies"], tried["num_taken_by_none"]) == (1, 0)
    assert letters("purge", "billing", "--offset", "1").out == "1\n"
    done = letters("resubmit", "billing", "--offset", "0", "--set", "again=true", "--json")
    assert (done.status, done.err, done.json[0]["done"]) == (0, "1 dead letter resubmitted\n", 1)
    assert letters("resubmit", "billing", "--to", "missing").status == 1
    assert [row["offset"] for row in letters("peek", "billing", "--json").json] == [2]
    assert letters("purge", "billing").out == "1\n"
    assert letters("peek", "billing").out == ""
    (topic,) = [row for row in given_up("rocketmq", "topic", "ls", "--json").json if row["name"] == "payments"]
    assert topic["messages"] == 4
    for words in (("peek",), ("purge",), ("resubmit",), ("resubmit", "--dry-run")):
        unknown = letters(words[0], "biling", *words[1:])
        assert (unknown.status, unknown.out) == (1, "")
        assert "biling: no such consumer group; did you mean 'billing'?" in unknown.err
    given_up("rocketmq", "group", "rm", "billing")
    assert (letters("peek", "billing").status, letters("peek", "billing").err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("topic", "create", "there"), 1, "it is there already"),
        (("topic", "create", "a.b"), 1, "illegal characters"),
        (("topic", "create", "TBW102"), 1, "system topic"),
        (("topic", "create", "a", "--queues", "0"), 1, "1 to 1024 queues"),
        (("topic", "change", "there", "--accepts", "lite"), 2, "lite"),
        (("topic", "change", "there"), 2, "nothing to change"),
        (("topic", "change", "missing", "--queues", "2"), 1, "there is none of that name"),
        (("topic", "show", "missing"), 1, "no such topic"),
        (("topic", "rm", "missing"), 1, "no such topic"),
        (("group", "create", "there"), 1, "it is there already"),
        (("group", "create", "a b"), 1, "illegal characters"),
        (("group", "create", "a", "--max-attempts", "0"), 2, "--max-attempts: "),
        (("group", "create", "a", "--backoff", "1"), 2, "--backoff"),
        (("group", "create", "a", "--start", "middle"), 2, "middle"),
        (("group", "change", "there"), 2, "nothing to change"),
        (("group", "change", "missing", "--fifo"), 1, "there is none of that name"),
        (("group", "show", "missing"), 1, "no such consumer group"),
        (("group", "rm", "missing"), 1, "no such consumer group"),
        (("group", "reset", "missing", "there", "--to", "first"), 1, "no such consumer group"),
        (("group", "reset", "there", "missing", "--to", "first"), 1, "no such topic"),
        (("group", "reset", "there", "there", "--to", "first", "--queue", "1"), 1, "no queue 1"),
        (("group", "reset", "there", "there", "--to", "somewhere"), 2, "somewhere"),
    ],
)
def test_what_cannot_be_is_named_and_changes_nothing(
    run: Run, arguments: tuple[str, ...], status: int, named: str
) -> None:
    run("rocketmq", "topic", "create", "there", "--queues", "1")
    run("rocketmq", "group", "create", "there")
    before = [run("rocketmq", what, "ls").out for what in ("topic", "group")]
    told = run("rocketmq", *arguments)
    assert told.status == status and named in told.err, told
    assert [run("rocketmq", what, "ls").out for what in ("topic", "group")] == before
