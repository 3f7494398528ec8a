"""`headgate why`: the answer as text and as JSON, from files; what is wrong in a question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Run
from headgate.clock import shown_time

TEXT = """\
message 1 of 'orders', id 'a-2', from {at}
found by id: 3 of 3 messages were read
subscription 'red': filtered-out
stored:    at offset 1 of 'orders' at {at}, in segment 0, chunk 0 (3 messages), in the stream's folder
confirmed: to its publisher: the index is complete up to offset 3
in force:  1 rule at offset 1: 'Red' (servicebus, since offset 0, {since})
decided:   rule 'Red' is false: `color = 'red'` is false (color is string 'blue')
  rule 'Red': color = 'red' AND size > 3
    false   color = 'red' AND size > 3
      false   color = 'red'   -- color is string 'blue'
      true    size > 3   -- size is long 7
fate:      'red' has no copy of it
decided by: rules
"""
MESSAGES = """\
{"properties": {"message_id": "a-1"}, "application_properties": {"color": "red", "size": 5}}
{"properties": {"message_id": "a-2"}, "application_properties": {"color": "blue", "size": 7}}
{"properties": {"message_id": "a-3"}, "application_properties": {"color": "red"}}
"""


@pytest.fixture
def topic(run: Run) -> Run:
    for command in (
        ("topic", "create", "orders"),
        ("subscription", "create", "orders", "red", "--no-rules"),
        ("subscription", "create", "orders", "all"),
        ("rule", "add", "orders", "red", "Red", "--sql", "color = 'red' AND size > 3"),
    ):
        outcome = run(*command)
        assert outcome.status == 0, outcome.err
    assert run("publish", "orders", stdin=MESSAGES).status == 0
    return run


def test_the_answer_as_text_and_as_json_is_the_same(topic: Run) -> None:
    asked = ("why", "orders", "--id", "a-2", "--for", "red")
    (answer,) = topic(*asked, "--json").json
    (consumer,) = answer["consumers"]
    since = consumer["decisions"][0]["since_ms"]
    assert topic(*asked).out == TEXT.format(at=shown_time(answer["message"]["timestamp_ms"]), since=shown_time(since))
    assert (consumer["fate"], consumer["stage"], consumer["kind"]) == ("filtered-out", "rules", "subscription")
    assert [step["step"] for step in consumer["steps"]] == ["stored", "confirmed", "in force", "decided", "fate"]
    clauses = consumer["decisions"][0]["clauses"]
    assert [(each["text"], each["verdict"]) for each in clauses["operands"]] == [
        ("color = 'red'", "false"),
        ("size > 3", "true"),
    ]


def test_the_answer_as_text_has_no_control_characters_of_the_message(topic: Run) -> None:
    color = "b\x1b[2J\nfate:      a forged line\x9b\u202e"
    line = json.dumps({"properties": {"message_id": "a-9\x9b"}, "application_properties": {"color": color}})
    assert topic("publish", "orders", stdin=line + "\n").status == 0
    shown = topic("why", "orders", "--offset", "3", "--for", "red").out
    assert all(each.isprintable() for each in shown.splitlines())
    assert r"(color is string 'b\x1b[2J\nfate:      a forged line\x9b\u202e')" in shown
    assert "\nfate:      'red' has no copy of it" in shown


def test_all_are_answered_for_in_a_line_each(topic: Run) -> None:
    lines = topic("why", "orders", "--where", "size IS NULL").lines
    assert lines[-2].startswith("subscription 'red': filtered-out: rule 'Red' is unknown: `size > 3` is unknown")
    assert lines[-1].startswith("subscription 'all': available")


def test_a_filter_is_asked_in_any_language(topic: Run) -> None:
    lines = topic("why", "orders", "--offset", 1, "--filter", "size BETWEEN 1 AND 7", "--language", "rocketmq").lines
    assert lines[1] == "filter 'size BETWEEN 1 AND 7': matches"
    assert lines[-1] == "decided by: expression"


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("--id", "zzz"), 1, "no message with the id 'zzz'; all offsets that are kept were searched, 3 from 0 on"),
        (("--where", "color = 'red'"), 1, "2 messages have"),
        (("--offset", 1, "--for", "rad"), 1, "did you mean 'red'?"),
        (("--offset", 1, "--id", "a-1"), 2, "expected exactly one of id, offset and where"),
        ((), 2, "found none of them"),
        (("--offset", 1, "--dialect", "amqp"), 2, "which are missing"),
        (("--where", "size >"), 1, "size >"),
    ],
)
def test_what_is_wrong_in_a_question_is_said(
    topic: Run, arguments: tuple[object, ...], status: int, reason: str
) -> None:
    outcome = topic("why", "orders", *arguments)
    assert (outcome.status, outcome.out) == (status, "")
    assert reason in outcome.err


def test_a_folder_of_rabbitmq_is_asked_by_its_path(run: Run, rabbitmq_streams: Path) -> None:
    folder = next(rabbitmq_streams.glob("__regional-events_*"))
    lines = run("why", folder, "--offset", 3, "--filter-value", "EMEA").lines
    assert lines[3].startswith("confirmed: RabbitMQ confirms a message when")
