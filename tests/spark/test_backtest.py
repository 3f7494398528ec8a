"""Back-tests on Spark: the findings of one trial in one process, whatever the partitions; the command over them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from command_line import Outcome
from headgate.cli import main
from headgate.log import StreamArguments
from headgate.message import EncodedMessages
from headgate.spark.backtest import back_test
from headgate.topic import Rule, Subscription, Topic, TopicEditor, create_topic
from headgate.topic.trial import Trial, TrialReport, TrialRequest

from .conftest import NOW_MS, order, write_stream

pytestmark = pytest.mark.spark

COUNT = 600
RunRules = Callable[..., Outcome]

PARTITION = """
name = "parts"
root = "{root}"

[[topic]]
name = "orders"
[[topic.subscription]]
name = "west"
[[topic.subscription.rule]]
name = "AMER"
correlation = {{ properties = {{ region = "AMER" }} }}
[[topic.subscription]]
name = "east"
[[topic.subscription.rule]]
name = "EMEA"
sql = "{east}"
dialect = "rabbitmq"
[[topic.subscription]]
name = "elsewhere"
fall_through = true
"""


@pytest.fixture
def shop(root: Path) -> Path:
    """A root with a stream of orders over several segments."""
    limits = StreamArguments(max_segment_size_bytes=20_000)
    write_stream(root, "orders", [order(number) for number in range(COUNT)], arguments=limits)
    return root


@pytest.fixture
def rule_test(spark: SparkSession, shop: Path, capsys: pytest.CaptureFixture[str]) -> RunRules:
    """Runs `headgate rule test` in this process, with its session."""

    def run(*arguments: object) -> Outcome:
        given = [str(each) for each in arguments]
        status = main(["rule", "test", *given, "--root", str(shop)])
        shown = capsys.readouterr()
        return Outcome(status, shown.out, shown.err)

    return run


def test_the_findings_do_not_depend_on_how_the_range_is_shared_out(spark: SparkSession, shop: Path) -> None:
    late = Rule("late", "properties.creation_time < UTC()", dialect="rabbitmq")
    topic = Topic(
        "orders",
        (
            Subscription("cheap", (Rule("cheap", "price < 30 AND region <> 'APJ'", dialect="rabbitmq"),)),
            Subscription("any", (Rule("half", "price > 20", "SET price = price / 2"), late)),
            Subscription("rest", fall_through=True),
        ),
    )
    against = Topic("orders", (Subscription("any", (Rule("half", "price > 40", "SET price = price / 2"),)),))
    request = TrialRequest(topic, "orders", against=against, clauses=True, samples=2)
    stream = write_stream(shop, "orders", [])
    one, many = (
        back_test(spark, stream, request, start="75", end="520", partitions=partitions) for partitions in (1, 6)
    )
    assert one.as_dict() == many.as_dict()
    trial = Trial(request)
    offsets = np.arange(75, 520)
    trial.add(EncodedMessages.of([order(number) for number in range(75, 520)]), offsets, NOW_MS + offsets // 50 * 1000)
    assert many.as_dict() == TrialReport(request, trial.take(), 75, 520).as_dict()
    assert back_test(spark, stream, request, start="next").findings.messages == 0


def test_a_partition_is_checked_and_a_change_of_its_rules_compared(
    rule_test: RunRules, shop: Path, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(PARTITION.format(root=shop, east="region IN ('EMEA', 'APJ')"))
    bad.write_text(PARTITION.format(root=shop, east="region <> 'EMEA'"))
    shown = rule_test(good, "--partition")
    assert (shown.status, shown.err) == (0, "a partition: each of 600 messages gives exactly one copy\n")
    assert shown.lines[0] == "orders: 600 messages at offsets 0 to 599"
    assert "west\tAMER\t200\t33 %\t0\t0\t0" in shown.lines
    assert "elsewhere (fall-through)\t0\t0" in shown.lines

    shown = rule_test(bad, "--partition", "--against", good, "--samples", 1, "--clauses")
    assert (shown.status, shown.err) == (1, "no partition: 0 messages with no copy, 200 messages with several\n")
    assert "west\teast\t200\t0" in shown.lines
    assert "400 messages with other copies than before" in shown.lines
    assert "east\t200\t0\t200\t200" in shown.lines
    assert "east\tEMEA\t200\t200\t200" in shown.lines
    assert [line.split("\t")[:2] for line in shown.lines if line.startswith("east only")] == [
        ["east only before", "1"],
        ["east only now", "0"],
    ]
    shown = rule_test(bad, "--json", "--partition")
    (report,) = shown.json
    assert (shown.status, report["is_partition"], report["messages"]) == (1, False, COUNT)
    assert report["by_copies"] == {"none": 0, "one": 400, "several": 200}


def test_rules_come_from_a_topics_history_and_from_the_command_line(rule_test: RunRules, shop: Path) -> None:
    topic = create_topic(shop, "orders", now_ms=NOW_MS)
    with TopicEditor.open(topic, now_ms=NOW_MS) as editor:
        editor.create_subscription(Subscription("s", (Rule("r", "price < 50"),)), now_ms=NOW_MS)
    write_stream(shop, "orders", [order(number) for number in range(100)])
    with TopicEditor.open(topic, now_ms=NOW_MS) as editor:
        editor.replace_rule("s", Rule("r", "price < 25"), now_ms=NOW_MS)

    def matched(*arguments: object) -> list[tuple[str, int]]:
        (report,) = rule_test(*arguments, "--json").json
        return [(f"{rule['subscription']}/{rule['rule']}", rule["matched"]) for rule in report["rules"]]

    assert matched("orders") == [("s/r", 200)]
    assert matched("orders", "--at", COUNT, "--until", COUNT) == [("s/r", 200)]
    assert matched("orders", "--from", COUNT) == [("s/r", 100)]
    (report,) = rule_test("orders", "--at", COUNT + 100, "--against", f"@{COUNT}", "--until", COUNT, "--json").json
    assert report["against"]["rules"] == [
        {"subscription": "s", "rule": "r", "both": 100, "only_old": 100, "only_new": 0}
    ]
    assert matched("orders", "--rule", "one=price < 1", "--rule", "s/two=1=0 OR price < 2") == [
        ("one/one", 8),
        ("s/two", 16),
    ]
    given = json.dumps({"name": "tagged", "correlation": {"properties": {"region": "APJ"}}})
    assert matched("orders", "--rule", given, "--quick") == [("tagged/tagged", 233)]
    shown = rule_test(
        "orders",
        "--rule",
        "now=properties.creation_time < UTC()",
        "--dialect",
        "rabbitmq",
        "--as-of",
        "2025-06-15T15:06:40.100Z",
        "--until",
        COUNT,
        "--json",
    )
    assert shown.json[0]["rules"][0]["matched"] == 100


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["nowhere"], 1, "--stream"),
        (["orders"], 1, "the stream is no topic"),
        (["orders", "--rule", "r"], 2, "[SUBSCRIPTION/]NAME=SQL"),
        (["orders", "--rule", "r=price >"], 1, "rule 'r'"),
        (["orders", "--rule", '{"name": "r", "sq": "1=1"}'], 2, "sq"),
        (["orders", "--rule", "r=1=1", "--at", "5"], 2, "expected one"),
        (["orders", "--rule", "r=1=1", "--samples", "101"], 2, "samples"),
        (["orders", "--rule", "r=1=1", "--as-of", "noon"], 2, "ISO time"),
        (["orders", "--rule", "r=1=1", "--from", "noon"], 2, "noon"),
        (["orders", "--dialect", "rabbitmq"], 2, "--rule"),
        (["orders", "--topic", "orders"], 2, "--topic"),
        (["missing.toml"], 2, "missing.toml"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_the_reason(
    rule_test: RunRules, arguments: list[str], status: int, reason: str
) -> None:
    shown = rule_test(*arguments)
    assert (shown.status, shown.out) == (status, "")
    assert reason in shown.err


def test_a_pipeline_with_several_topics_needs_a_choice(rule_test: RunRules, shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    text = PARTITION.format(root=shop, east="region = 'EMEA'")
    file.write_text(text + '[[topic]]\nname = "other"\n[[topic.subscription]]\nname = "all"\n')
    shown = rule_test(file)
    assert shown.status == 2
    assert "orders, other; choose one with --topic" in shown.err
    assert "found no topic 'third'" in rule_test(file, "--topic", "third").err
    (report,) = rule_test(file, "--topic", "other", "--stream", "orders", "--json").json
    assert [(rule["subscription"], rule["matched"]) for rule in report["rules"]] == [("all", COUNT)]
