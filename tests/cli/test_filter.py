"""`headgate filter`: check, explain, test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Run

VECTORS = Path(__file__).parent.parent / "vectors"


def test_accepted_filter_is_shown_as_it_is_understood(run: Run) -> None:
    shown = run("filter", "check", "header.priority>4 AND region   IN ('AMER')")
    assert shown.status == 0
    assert "h.priority > 4 AND region IN ('AMER')" in shown.out


def test_refused_filter_shows_reason_and_caret(run: Run) -> None:
    shown = run("filter", "check", "price > > 5")
    assert (shown.status, shown.out) == (1, "")
    assert shown.err.splitlines()[1:] == ["  price > > 5", "          ^"]


def test_refusal_as_json_has_the_span(run: Run) -> None:
    shown = run("filter", "check", "price > > 5", "--json")
    assert shown.status == 1
    assert (shown.json[0]["accepted"], shown.json[0]["span"]) == (False, [8, 9])


def test_filter_that_begins_with_a_hyphen_is_a_filter(run: Run) -> None:
    assert run("filter", "check", "-1 < price").status == 0


def test_check_warns_of_what_is_accepted_but_hardly_meant(run: Run) -> None:
    shown = run("filter", "check", "NOT a = 'x' junk", "--dialect", "rocketmq")
    assert (shown.status, shown.lines[0]) == (0, "accepted as a filter in rocketmq: NOT a = 'x'")
    assert [line for line in shown.out.splitlines() if line.startswith(("warning", "  "))] == [
        "warning: NOT binds tighter than what follows: this is (NOT a) = 'x'; to negate all of it write NOT (a = 'x')",
        "  NOT a = 'x' junk",
        "  ^^^^^^^^^^^",
        "warning: the expression is complete before this, which is ignored",
        "  NOT a = 'x' junk",
        "              ^^^^",
    ]
    as_json = run("filter", "check", "a = '1')", "--dialect", "rocketmq", "--json").json[0]
    assert as_json["warnings"] == [
        {"reason": "the expression is complete before this, which is ignored", "span": [7, 8]}
    ]


def test_check_recommends_a_correlation_filter_where_there_are_only_equalities(run: Run) -> None:
    shown = run(
        "filter", "check", "color = 'red' AND sys.Label = @l", "--dialect", "servicebus", "--parameter", 'l="x"'
    )
    assert shown.lines[0] == "accepted as a filter in servicebus: color = 'red' AND sys.Label = 'x'"
    assert "the correlation filter properties.color = 'red', label = 'x' is much cheaper" in shown.lines[1]


def test_parameters_are_json_and_may_have_values_without_a_constant(run: Run) -> None:
    moment = '@t={"t": "timestamp", "v": 5}'
    shown = run("filter", "check", "a < @t", "--dialect", "servicebus", "--parameter", moment)
    assert shown.lines == ["accepted as a filter in servicebus: a < @t"]
    wrong = run("filter", "check", "a < @t", "--dialect", "servicebus", "--parameter", "t=x")
    assert wrong.status == 2 and "a text stands in double quotes" in wrong.err
    message = '{"application_properties": {"A": 7}}'
    explained = run(
        *("filter", "explain", "a > @t", "--dialect", "servicebus", "--parameter", "t=6", "--message", message)
    )
    assert explained.status == 0 and explained.lines[0].endswith("matches")


def test_a_parameter_is_given_once(run: Run) -> None:
    shown = run("filter", "check", "a = @x", "--dialect", "servicebus", "--parameter", "x=1", "--parameter", "x=2")
    assert (shown.status, shown.err) == (2, "headgate: --parameter x: given twice\n")


def test_an_empty_dialect_is_none(run: Run) -> None:
    for command in (["check", "a = 1"], ["explain", "a = 1", "--message", "{}"]):
        shown = run("filter", *command, "--dialect", "")
        assert shown.status == 2 and "found dialect ''" in shown.err


def test_a_message_to_explain_is_as_publish_takes_it(run: Run) -> None:
    shown = run("filter", "explain", "a = 1", "--message", '{"filter_value": []}')
    assert (shown.status, shown.err) == (2, "headgate: filter_value: found [], expected text or null\n")


def test_bytes_that_are_no_text_are_wrong_usage(run: Run) -> None:
    for command in (
        ("stream", "info", "a\udc80"),
        ("tail", "orders", "--filter-value", "\udc80"),
        ("filter", "explain", "a = 1", "--message", '{"subject": "\udc80"}'),
        ("filter", "convert", '{"label": "\udc80"}', "--from", "correlation", "--to", "servicebus"),
    ):
        shown = run(*command)
        assert shown.status == 2 and "no UTF-8" in shown.err and "\\udc80" in shown.err


def test_unknown_dialect_is_wrong_usage_that_lists_the_dialects(run: Run) -> None:
    shown = run("filter", "check", "a = 1", "--dialect", "sql")
    assert shown.status == 2
    assert "rabbitmq" in shown.err


def test_explain_shows_every_clause_and_the_reasons(run: Run) -> None:
    message = {"subject": "order.created", "application_properties": {"quantity": "12", "region": "APJ"}}
    shown = run("filter", "explain", "quantity > 10 AND region = 'AMER'", "--message", json.dumps(message))
    assert shown.status == 0
    assert shown.lines[0] == "false: the message does not match"
    assert any(
        line.split() == ["because", "`region", "=", "'AMER'`", "is", "false", "(region", "is", "string", "'APJ')"]
        for line in shown.lines
    )
    assert any(line.startswith("warning: `quantity` is a string here") for line in shown.lines)


def test_explain_shows_control_characters_of_a_message_as_escapes(run: Run) -> None:
    message = json.dumps({"properties": {"subject": "a\x1b[2J\nb"}, "body": '{"a": [1,\n"\x9b2J\u202e"]}'})
    shown = run("filter", "explain", "body.a = 'x' OR p.subject = 'x'", "--message", message).out
    assert all(line.isprintable() for line in shown.splitlines())
    assert r"body.a is the array [1,\n" in shown
    assert r"p.subject is string 'a\x1b[2J\nb'" in shown


def test_explain_of_a_stored_message_says_which_stage_decides(orders: Run) -> None:
    in_its_chunk = ["--stream", "orders", "--offset", "12", "--json"]
    wanted = orders("filter", "explain", "price = 20", *in_its_chunk, "--filter-value", "EMEA").json[0]
    assert (wanted["verdict"], wanted["stage"][:7]) == ("true", "stage 2")
    assert wanted["stage_1"]["chunks_skipped"] == 2
    unwanted = orders("filter", "explain", "price = 20", *in_its_chunk, "--filter-value", "AMER").json[0]
    assert (unwanted["verdict"], unwanted["stage"][:7]) == ("true", "stage 1")


def test_explain_warns_of_wanted_values_that_the_filter_does_not_imply(run: Run) -> None:
    run("stream", "create", "orders", "--filter-source", "application_properties.region")
    run("publish", "orders", stdin='{"application_properties": {"region": "AMER"}}')
    shown = run(
        "filter",
        "explain",
        "region IN ('AMER', 'APJ')",
        "--stream",
        "orders",
        "--offset",
        "0",
        "--filter-value",
        "AMER",
    )
    assert any("APJ" in line for line in shown.lines if line.startswith("warning"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--message"),
        (["--offset", "1"], "--stream"),
        (["--message", "{}", "--stream", "orders", "--offset", "1"], "--message"),
        (["--message", "{"], "--message"),
        (["--message", "[]"], "--message"),
        (["--message", '{"propertis": {}}'], "propertis"),
    ],
)
def test_explain_names_what_is_wrong_with_its_message(orders: Run, options: list[str], named: str) -> None:
    shown = orders("filter", "explain", "a = 1", *options)
    assert shown.status == 2
    assert named in shown.err


def test_explain_of_an_offset_that_holds_no_message_says_which_there_are(orders: Run) -> None:
    shown = orders("filter", "explain", "a = 1", "--stream", "orders", "--offset", "99")
    assert shown.status == 1
    assert "0 to 29" in shown.err


def test_recorded_tables_pass(run: Run) -> None:
    shown = run("filter", "test", VECTORS / "rabbitmq_sql.jsonl")
    assert shown.status == 0, shown.out[:2000]
    passed, failed = (int(word) for word in shown.lines[-1].replace(",", "").split() if word.isdigit())
    assert passed > 50
    assert failed == 0


def test_failing_case_is_printed_and_the_last_line_counts(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "mine.jsonl"
    messages = VECTORS / "rabbitmq_messages.jsonl"
    table.write_text(
        '{"id": "right", "sql": "TRUE = FALSE", "accepted": true, "matches": []}\n'
        '{"id": "wrong", "sql": "TRUE = FALSE", "accepted": true, "matches": [0]}\n'
        "not json\n"
    )
    shown = run("filter", "test", table, "--messages", messages)
    assert shown.status == 1
    assert shown.lines[-1] == "1 passed, 2 failed"
    assert "mine.jsonl:2 wrong" in shown.out
    assert "mine.jsonl:3" in shown.out


def test_table_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    shown = run("filter", "test", tmp_path / "nothing.jsonl")
    assert shown.status == 1
    assert "nothing.jsonl" in shown.err


def test_convert_prints_the_filter_and_says_what_it_takes_for_granted(run: Run) -> None:
    exact = run("filter", "convert", "region = 'EMEA'", "--from", "amqp", "--to", "rabbitmq")
    assert (exact.status, exact.out, exact.err) == (0, "region = 'EMEA'\n", "")
    assumed = run("filter", "convert", "region = 'EMEA'", "--from", "rabbitmq", "--to", "rocketmq", "--assume", "kinds")
    assert (assumed.status, assumed.out) == (0, "region = 'EMEA'\n")
    assert "assumed: region holds a string that is not empty, or nothing" in assumed.err


def test_convert_refuses_with_the_place_and_what_differs(run: Run) -> None:
    shown = run("filter", "convert", "a = 1 AND LEFT(b, 1) = 'x'", "--from", "amqp", "--to", "rabbitmq")
    assert (shown.status, shown.out) == (1, "")
    assert "conversion from amqp to rabbitmq refused: rabbitmq has no words for this" in shown.err
    assert shown.err.splitlines()[1:] == ["  a = 1 AND LEFT(b, 1) = 'x'", "            ^^^^^^^^^^"]


def test_convert_takes_maps_and_tags(run: Run) -> None:
    maps = '{"properties": {"subject": "&p:order."}, "application_properties": {"size": {"t": "int", "v": 5}}}'
    shown = run("filter", "convert", maps, "--from", "properties", "--to", "rabbitmq", "--json")
    assert shown.json == [
        {"text": "p.subject LIKE 'order.%' AND size = 5", "dialect": "rabbitmq", "assumed": [], "is_exact": True}
    ]
    correlation = run("filter", "convert", '{"label": "red"}', "--from", "correlation", "--to", "servicebus")
    assert correlation.lines == ["sys.Label = 'red'"]
    assert run("filter", "convert", "a||b", "--from", "tags", "--to", "rocketmq").lines == ["TAGS IN ('a', 'b')"]


@pytest.mark.parametrize(
    ("text", "source", "said"),
    [
        ("{", "properties", "--from properties"),
        ("[]", "correlation", "expected a JSON object"),
        ('{"subject": "x"}', "properties", "expected properties and application_properties"),
        ("a = 1", "jms", "expected one of"),
    ],
)
def test_convert_says_what_is_wrong_with_what_it_is_given(run: Run, text: str, source: str, said: str) -> None:
    shown = run("filter", "convert", text, "--from", source, "--to", "amqp")
    assert shown.status == 2
    assert said in shown.err
