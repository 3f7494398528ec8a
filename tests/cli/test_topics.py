"""`headgate topic`, `subscription` and `rule`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Run
from headgate.log import Stream


@pytest.fixture
def topic(run: Run) -> Run:
    """A topic `orders` with a subscription `red` without rules."""
    assert run("topic", "create", "orders").status == 0
    assert run("subscription", "create", "orders", "red", "--no-rules").status == 0
    return run


def publish(run: Run, *bodies: str) -> None:
    assert run("publish", "orders", stdin="".join(json.dumps({"body": body}) + "\n" for body in bodies)).status == 0


def test_a_created_topic_is_a_stream_with_limits_of_its_own(run: Run, tmp_path: Path) -> None:
    shown = run("topic", "create", "shop/orders", "--limit", "sql_filters=7", "--limit", "subscriptions=3")
    assert shown.status == 0
    assert Stream.open(shown.out.strip()).name == "shop/orders"
    (found,) = run("topic", "show", "shop/orders", "--json").json
    assert (found["limits"]["sql_filters"], found["limits"]["subscriptions"]) == (7, 3)
    assert found["limits"]["correlation_filters"] == 100_000
    assert run("topic", "create", "shop/orders").status == 1


@pytest.mark.parametrize("limit", ["sql_filters", "sql_filters=-1", "sql=5", "rule_name_characters=0"])
def test_a_wrong_limit_is_named_and_makes_nothing(run: Run, tmp_path: Path, limit: str) -> None:
    shown = run("topic", "create", "orders", "--limit", limit)
    assert shown.status == 2
    assert limit.partition("=")[0] in shown.err
    assert not (tmp_path / "root" / "streams").exists()


def test_listing_no_topics_says_how_to_make_one(run: Run) -> None:
    run("stream", "create", "plain")
    shown = run("topic", "ls")
    assert (shown.status, shown.out) == (0, "")
    assert "topic create" in shown.err


def test_topics_and_subscriptions_are_listed_with_what_they_have(topic: Run) -> None:
    topic("topic", "create", "billing")
    topic("subscription", "create", "orders", "rest", "--fall-through")
    topic("subscription", "create", "orders", "on", "--forward-to", "billing", "--dead-letter-on-errors")
    assert [(row["name"], row["subscriptions"]) for row in topic("topic", "ls", "--json").json] == [
        ("billing", 0),
        ("orders", 3),
    ]
    rows = topic("subscription", "ls", "orders", "--json").json
    assert [(row["name"], row["rules"], row["fall_through"], row["forward_to"]) for row in rows] == [
        ("red", 0, False, None),
        ("rest", 0, True, None),
        ("on", 1, False, "billing"),
    ]
    assert [row["dead_letter_on_errors"] for row in rows] == [False, False, True]
    assert [line.split("\t")[:4] for line in topic("subscription", "ls", "orders").lines][2] == [
        "rest",
        "0",
        "yes",
        "no",
    ]
    assert "no subscriptions" in topic("subscription", "ls", "billing").err
    assert "red" in topic("topic", "show", "orders").out
    refused = topic("topic", "rm", "billing")
    assert (refused.status, "'orders' forwards" in refused.err) == (1, True)


def test_a_subscription_takes_its_rules_at_once(topic: Run) -> None:
    rules = ['{"name": "a", "sql": "x = 1"}', '{"name": "b", "tags": "t", "action": "REMOVE x"}']
    assert topic("subscription", "create", "orders", "s", "--rule", rules[0], "--rule", rules[1]).status == 0
    found = topic("rule", "ls", "orders", "s", "--json").json
    assert [(row["name"], row["number"], row.get("action")) for row in found] == [("a", 1, None), ("b", 2, "REMOVE x")]
    assert topic("subscription", "create", "orders", "all").status == 0
    assert [row["name"] for row in topic("rule", "ls", "orders", "all", "--json").json] == ["$Default"]


@pytest.mark.parametrize(
    ("rule", "status", "named"),
    [
        ("{", 2, "--rule"),
        ('{"name": "r", "sqll": "x"}', 2, "sqll"),
        ('{"name": "r", "sql": "x >"}', 1, "'r': servicebus filter refused"),
        ('{"name": "r", "sql": "x > 1", "action": "SET sys.Size = 1"}', 1, "Size"),
    ],
)
def test_a_subscription_with_a_wrong_rule_is_not_made(topic: Run, rule: str, status: int, named: str) -> None:
    shown = topic("subscription", "create", "orders", "s", "--rule", rule)
    assert (shown.status, named in shown.err) == (status, True)
    assert [row["name"] for row in topic("subscription", "ls", "orders", "--json").json] == ["red"]


def test_a_rule_is_added_shown_replaced_and_removed_at_the_offsets_of_its_time(topic: Run) -> None:
    added = topic(
        "rule", "add", "orders", "red", "big", "--sql", "quantity > @most", "--parameter", "most=5",
        "--action", "SET quantity = quantity / 2",
    )  # fmt: skip
    assert (added.status, added.err) == (0, "in force from offset 0\n")
    shown = topic("rule", "show", "orders", "red", "BIG").out
    for part in ("quantity > @most", "SET quantity = quantity / 2", '{"most":5}'):
        assert part in shown
    publish(topic, "one", "two")
    assert topic("rule", "replace", "orders", "red", "big", "--sql", "x = 1", "--dialect", "rocketmq").err.endswith(
        "2\n"
    )
    publish(topic, "three")
    assert topic("rule", "rm", "orders", "red", "big").err == "gone from offset 3 on\n"
    found = topic("rule", "history", "orders", "--json").json
    assert [(row["subscription"], row["sql"], row["from_offset"], row["to_offset"]) for row in found] == [
        ("red", "quantity > @most", 0, 2),
        ("red", "x = 1", 2, 3),
    ]
    table = topic("rule", "history", "orders", "red").lines
    assert table[0].split("\t")[:4] == ["subscription", "rule", "number", "from_offset"]
    assert table[2].split("\t")[6] == "rocketmq: x = 1"
    assert topic("rule", "history", "orders", "--prune-below", "2", "--json").json[0]["sql"] == "x = 1"
    assert "rule add" in topic("rule", "ls", "orders", "red").err


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (
            ["--correlation", '{"label": "x", "properties": {"n": 1}}'],
            'correlation: {"label":"x","properties":{"n":1}}',
        ),
        (["--tags", "a || b"], "tags: a || b"),
        (
            ["--properties", '{"subject": "x"}', "--application-properties", '{"n": 1}'],
            'properties: {"subject":"x"}; application_properties: {"n":1}',
        ),
    ],
)
def test_every_kind_of_filter_can_be_added(topic: Run, options: list[str], shown: str) -> None:
    assert topic("rule", "add", "orders", "red", "r", *options).status == 0
    assert topic("rule", "ls", "orders", "red").lines[1].split("\t")[3] == shown


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        ([], 1, "found no filter"),
        (["--sql", "x = 1", "--tags", "a"], 1, "sql and tags"),
        (["--sql", "x = "], 1, "subscription 'red', rule 'r'"),
        (["--sql", "x = @q"], 1, "q"),
        (["--sql", "x = @q", "--parameter", "q"], 2, "NAME=JSON"),
        (["--sql", "x = @q", "--parameter", "q=red"], 2, "--parameter q"),
        (["--correlation", "[]"], 2, "--correlation"),
        (["--correlation", "{"], 2, "--correlation"),
        (["--correlation", "{}"], 1, "condition"),
        (["--sql", "x = 1", "--action", "SET x"], 1, "SET x"),
    ],
)
def test_a_wrong_rule_is_refused_and_leaves_no_trace(topic: Run, options: list[str], status: int, named: str) -> None:
    shown = topic("rule", "add", "orders", "red", "r", *options)
    assert (shown.status, named in shown.err) == (status, True)
    assert topic("rule", "history", "orders", "--json").json == []


def test_what_is_not_there_is_named(topic: Run) -> None:
    for arguments, named in (
        (("topic", "show", "nope"), "topic 'nope'"),
        (("topic", "rm", "nope"), "topic 'nope'"),
        (("subscription", "rm", "orders", "nope"), "subscription 'nope'"),
        (("rule", "ls", "orders", "nope"), "subscription 'nope'"),
        (("rule", "show", "orders", "red", "nope"), "rule 'nope'"),
        (("rule", "rm", "orders", "red", "nope"), "rule 'nope'"),
        (("rule", "replace", "orders", "red", "nope", "--sql", "1=1"), "rule 'nope'"),
    ):
        shown = topic(*arguments)
        assert (shown.status, named in shown.err) == (1, True)


def test_a_subscription_is_changed_and_removed(topic: Run) -> None:
    assert topic("subscription", "change", "orders", "RED", "--dead-letter-on-errors").status == 0
    (found,) = topic("subscription", "ls", "orders", "--json").json
    assert (found["name"], found["dead_letter_on_errors"]) == ("RED", True)
    publish(topic, "one")
    assert topic("subscription", "rm", "orders", "red").err == "gone from offset 1 on\n"
    assert topic("subscription", "ls", "orders", "--json").json == []
    both = topic("subscription", "create", "orders", "s", "--no-rules", "--rule", '{"name": "r", "sql": "1=1"}')
    assert (both.status, "--no-rules" in both.err) == (2, True)


SETTINGS = {
    "lock_ms": 30_000,
    "max_delivery_count": 3,
    "backoff_ms": [1_000, 5_000, 600_000],
    "requires_session": True,
    "default_time_to_live_ms": 604_800_000,
    "dead_letter_on_expiration": True,
    "status": "receive-disabled",
    "auto_delete_on_idle_ms": 3_600_000,
    "forward_dead_letters_to": "audit",
    "user_metadata": "owned by billing",
    "kept": {},
}


def test_a_subscription_has_settings_of_which_what_is_given_changes(topic: Run) -> None:
    topic("stream", "create", "audit")
    made = topic(
        "subscription", "create", "orders", "s", "--lock", "30s", "--max-delivery-count", "3", "--backoff",
        "1s,5s,10m", "--sessions", "--time-to-live", "7d", "--dead-letter-on-expiration", "--status",
        "receive-disabled", "--auto-delete-on-idle", "1h", "--forward-dead-letters-to", "audit", "--user-metadata",
        "owned by billing",
    )  # fmt: skip
    assert made.status == 0, made.err

    def settings() -> dict[str, object]:
        (found,) = topic("subscription", "show", "orders", "S", "--json").json
        assert topic("subscription", "ls", "orders", "--json").json[1] == found
        return dict(found["settings"])

    assert settings() == SETTINGS
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in topic("subscription", "show", "orders", "s").lines}
    assert (shown["backoff_ms"], shown["requires_session"], shown["forward_to"]) == ("1000, 5000, 600000", "yes", "–")
    publish(topic, "one")
    changed = topic("subscription", "change", "orders", "s", "--lock", "1m", "--no-dead-letter-on-expiration")
    assert (changed.status, changed.err) == (0, "in force for every copy\n")
    assert settings() == {**SETTINGS, "lock_ms": 60_000, "dead_letter_on_expiration": False}
    topic("subscription", "change", "orders", "s", "--time-to-live", "never", "--auto-delete-on-idle", "never")
    topic(
        "subscription", "change", "orders", "s", "--backoff", "", "--forward-dead-letters-to", "", "--status", "active",
        "--user-metadata", "",
    )  # fmt: skip
    assert topic("subscription", "change", "orders", "s", "--dead-letter-on-errors").err == "in force from offset 1\n"
    assert settings() == {
        **dict.fromkeys(SETTINGS), "lock_ms": 60_000, "max_delivery_count": 3, "backoff_ms": [],
        "requires_session": True, "dead_letter_on_expiration": False, "status": "active",
        "user_metadata": "", "kept": {},
    }  # fmt: skip
    assert topic("subscription", "ls", "orders").lines[2].split("\t")[:7] == ["s", "1", "no", "yes", "", "1", "active"]


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        (["--lock", "1"], 2, "--lock: found '1', expected a duration"),
        (["--lock", "13h"], 2, "lock_ms is 46800000; expected 1000 to 43200000"),
        (["--backoff", "1s,x"], 2, "--backoff: found 'x'"),
        (["--lock", "never"], 2, "--lock: found 'never'"),
        (["--max-delivery-count", "0"], 2, "--max-delivery-count: topic 'orders'"),
        (["--status", "off"], 2, "receive-disabled"),
        (["--sessions"], 1, "requires_session cannot be changed"),
        (["--forward-dead-letters-to", "nowhere"], 1, "'nowhere'"),
        ([], 2, "found nothing to change"),
    ],
)
def test_wrong_settings_are_refused_and_change_nothing(topic: Run, options: list[str], status: int, named: str) -> None:
    before = topic("subscription", "show", "orders", "red", "--json").json
    shown = topic("subscription", "change", "orders", "red", *options)
    assert (shown.status, named in shown.err) == (status, True), shown.err
    assert topic("subscription", "show", "orders", "red", "--json").json == before


def test_a_removed_topic_is_a_plain_stream_with_its_messages(topic: Run) -> None:
    publish(topic, "one")
    assert topic("topic", "rm", "orders").status == 0
    assert topic("topic", "ls").out == ""
    assert [row["next_offset"] for row in topic("stream", "ls", "--json").json] == [1]


def test_messages_of_a_back_test_do_not_begin_behind_the_end(orders: Run) -> None:
    for options in (["--from", "31"], ["--from", "8", "--until", "5"]):
        shown = orders("rule", "test", "orders", "--rule", "dear=price > 1", *options)
        assert shown.status == 2
        assert "--from: found" in shown.err


def test_a_topic_that_is_not_there_brings_up_names_like_it(orders: Run) -> None:
    shown = orders("topic", "show", "ordesr")
    assert shown.status == 1
    assert "there is no such topic; did you mean 'orders'?" in shown.err
