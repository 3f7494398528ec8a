"""`[[topic]]` of a pipeline: what is wrong is named before anything is made; what is right says where copies go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError, RuleError
from headgate.log import Stream, stream_folder
from headgate.spark.pipeline.configuration import check
from headgate.spark.pipeline.topics import RoutedTopic
from headgate.topic import DEFAULT_SETTINGS, SubscriptionSettings


def pipeline(root: Path, *topics: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"name": "routed", "root": str(root), "topic": list(topics), **more}


def topic(name: str, *subscriptions: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"name": name, "subscription": list(subscriptions), **more}


def test_copies_go_to_a_stream_per_subscription_unless_they_are_forwarded(tmp_path: Path) -> None:
    checked = check(
        pipeline(
            tmp_path,
            topic(
                "orders",
                {"name": "red", "rule": [{"name": "red", "sql": "color = 'red'"}], "dead_letter": "broken"},
                {"name": "big", "stream": "big-orders", "filter_source": "application_properties.region"},
                {"name": "money", "forward_to": "billing"},
            ),
            topic("billing", {"name": "all"}),
        )
    )
    orders, billing = checked.topics
    assert {name: options["stream"] for name, options in orders.outputs.items()} == {
        "copies:red": "orders.red",
        "dead letters:red": "broken",
        "copies:big": "big-orders",
        "copies:money": "billing",
    }
    assert orders.outputs["copies:big"]["filter_source"] == "application_properties.region"
    assert billing.outputs == {"copies:all": {"root": str(tmp_path), "stream": "billing.all"}}
    assert not any(tmp_path.iterdir())


def test_a_topic_runs_behind_what_writes_its_stream_and_before_what_reads_its_copies(tmp_path: Path) -> None:
    checked = check(
        pipeline(
            tmp_path,
            topic("second", {"name": "all"}),
            topic("first", {"name": "on", "forward_to": "second"}),
            source=[
                {"name": "events", "format": "rate"},
                {"name": "copies", "stream": "second.all"},
            ],
            sink=[
                {"name": "out", "input": "copies", "format": "noop"},
                {"name": "ingest", "input": "events", "stream": "first"},
            ],
        )
    )
    assert [job.name for job in checked.jobs] == ["ingest", "first", "second", "out"]


def test_settings_of_a_subscription_are_a_table_of_it(tmp_path: Path) -> None:
    given = {"lock_ms": 5_000, "backoff_ms": [1_000, 2_000], "status": "disabled"}
    checked = check(pipeline(tmp_path, topic("orders", {"name": "red", "settings": given}, {"name": "blue"})))
    declared = checked.topics[0].topic
    assert declared is not None
    assert [each.settings for each in declared.subscriptions] == [SubscriptionSettings.of(given), DEFAULT_SETTINGS]


def test_a_topic_without_subscriptions_in_the_file_needs_some_on_disk(tmp_path: Path) -> None:
    Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=1)
    with pytest.raises(ConfigError, match=r"no \[\[topic.subscription\]\], and none was made"):
        check(pipeline(tmp_path, {"name": "orders"}))


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        topic("orders", {"name": "red", "rule": [{"name": "r", "sql": "color = "}]}),
        RuleError,
        r"(?s)orders.*red.*'?r'?.*color = ",
    ),
    (
        topic("orders", {"name": "red", "rule": [{"name": "r", "sql": "1=1", "action": "SET sys.Size = 1"}]}),
        RuleError,
        r"(?s)orders.*red.*Size",
    ),
    (topic("orders", {"name": "a", "colour": "red"}), ConfigError, "colour"),
    (topic("orders", {"name": "a", "rule": [{"name": "r", "sql": "1=1", "acton": "x"}]}), ConfigError, "acton"),
    (topic("orders", {"name": "a"}, {"name": "A"}), RuleError, "there already"),
    (topic("orders", {"name": "a"}, {"name": "b", "stream": "orders.a"}), ConfigError, "each its own"),
    (topic("orders", {"name": "a", "stream": "orders"}), ConfigError, "never end"),
    (topic("orders", {"name": "a", "dead_letter": "orders"}), ConfigError, "never end"),
    (topic("orders", {"name": "a", "forward_to": "orders"}), RuleError, "forward"),
    (topic("orders", {"name": "a", "forward_to": "nowhere"}), RuleError, "nowhere"),
    (topic("orders", {"name": "a", "forward_to": "b", "stream": "x"}), ConfigError, "beside forward_to"),
    (topic("orders", {"name": "a", "filter_size_bytes": 5}), ConfigError, "filter_size_bytes"),
    (topic("orders", {"name": "a", "settings": {"lock": 5}}), ConfigError, "lock"),
    (topic("orders", {"name": "a", "settings": {"lock_ms": 5}}), RuleError, "lock_ms is 5; expected 1000"),
    (topic("orders", {"name": "a"}, start="yesterday"), ConfigError, "start"),
    (topic("orders", {"name": "a"}, max_messages_per_batch=0), ConfigError, "max_messages_per_batch"),
    (topic("orders", {"name": "a"}, limits={"subscriptions": 0}), RuleError, "limit"),
]


@pytest.mark.parametrize(("wrong", "kind", "reason"), WRONG)
def test_what_is_wrong_with_a_topic_is_named_and_nothing_is_made(
    tmp_path: Path, wrong: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        check(pipeline(tmp_path, wrong))
    assert not any(tmp_path.iterdir())


def test_topics_that_forward_in_a_loop_are_refused_with_the_path(tmp_path: Path) -> None:
    loop = [topic(name, {"name": "on", "forward_to": to}) for name, to in (("a", "b"), ("b", "c"), ("c", "a"))]
    with pytest.raises(RuleError, match=r"c/on → a/on → b/on → c"):
        check(pipeline(tmp_path, *loop))


def test_a_topic_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'orders' is given twice"):
        check(pipeline(tmp_path, topic("orders", {"name": "a"}), topic("orders", {"name": "b"})))


def test_jobs_are_sinks_and_topics(tmp_path: Path) -> None:
    checked = check(pipeline(tmp_path, topic("orders", {"name": "a"})))
    assert checked.sinks == () and all(isinstance(job, RoutedTopic) for job in checked.jobs)
