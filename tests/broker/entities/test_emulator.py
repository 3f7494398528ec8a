"""The configuration of Microsoft's emulator: what it says, and what is written of entities."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headgate.broker import EntityDeclaration, SubscriptionDeclaration, from_emulator, in_steps, to_emulator
from headgate.errors import ConfigError, RuleError
from headgate.topic import (
    RuleDefinition,
    SubscriptionSettings,
    SubscriptionStatus,
    TopicKind,
    TopicSettings,
    TopicStatus,
)

FILE: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "subscription.1",
                                "Properties": {
                                    "DeadLetteringOnMessageExpiration": True,
                                    "DefaultMessageTimeToLive": "PT1H",
                                    "LockDuration": "PT30S",
                                    "MaxDeliveryCount": 3,
                                    "ForwardDeadLetteredMessagesTo": "",
                                    "ForwardTo": "queue.1",
                                    "RequiresSession": False,
                                },
                                "Rules": [
                                    {
                                        "Name": "app-prop-filter-1",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "ReplyToSessionId": "sessionId",
                                                "Properties": {"prop1": "value1", "size": 2},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.MessageId = '1' AND user.a = 2"},
                                            "Action": {"SqlExpression": "SET sys.To = 'Entity'"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "subscription.2", "Properties": {"RequiresSession": True}},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def declared(file: dict[str, Any]) -> list[EntityDeclaration]:
    return from_emulator(msgspec.json.encode(file))


def changed(path: list[str | int], value: object) -> dict[str, Any]:
    """The file with one value changed, or added."""
    file: Any = msgspec.json.decode(msgspec.json.encode(FILE))
    at = file["UserConfig"]["Namespaces"][0]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return dict(file)


def test_a_file_says_what_entities_are() -> None:
    queue, topic = declared(FILE)
    assert queue == EntityDeclaration(
        "queue.1",
        TopicSettings(kind=TopicKind.QUEUE, default_time_to_live_ms=3_600_000, duplicate_detection_window_ms=20_000),
        delivery=SubscriptionSettings(max_delivery_count=3),
    )
    first, second = topic.subscriptions
    assert first.settings == SubscriptionSettings(
        lock_ms=30_000, max_delivery_count=3, default_time_to_live_ms=3_600_000, dead_letter_on_expiration=True
    )
    assert (first.forward_to, first.dead_letter_on_errors) == ("queue.1", True)
    assert first.rules == (
        RuleDefinition(
            "app-prop-filter-1",
            correlation={
                "content_type": "application/text",
                "reply_to_session_id": "sessionId",
                "properties": {"prop1": "value1", "size": 2},
            },
        ),
        RuleDefinition("sql", sql="sys.MessageId = '1' AND user.a = 2", action="SET sys.To = 'Entity'"),
    )
    assert second == SubscriptionDeclaration(
        "subscription.2", SubscriptionSettings(requires_session=True), rules=(RuleDefinition("$Default", sql="1=1"),)
    )


RULE = ["Topics", 0, "Subscriptions", 0, "Rules", 1, "Properties"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ([*RULE, "FilterType"], "Tag", "rule 'sql': found the FilterType 'Tag', expected Sql or Correlation"),
        ([*RULE, "FilterType"], "Correlation", "rule 'sql': FilterType is Correlation; expected CorrelationFilter"),
        ([*RULE, "SqlFilter"], None, "rule 'sql': FilterType is Sql; expected SqlFilter"),
        (["Queues", 0, "Properties", "LockTime"], "PT1M", "`LockTime`"),
        (["Queues", 0, "Properties", "LockDuration"], "1m", "queue 'queue.1', LockDuration: found '1m'"),
        (["Queues", 0, "Properties", "Status"], "Off", "queue 'queue.1', Status: found 'Off'"),
        (["Topics", 0, "Subscriptions", 1, "Properties"], {"Status": "SendDisabled"}, "found 'SendDisabled'"),
    ],
)
def test_what_is_not_known_is_an_error_that_names_it(path: list[str | int], value: object, named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        declared(changed(path, value))
    assert named in str(raised.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"UserConfig": {"Namespaces": []}}'])
def test_other_files_are_refused(text: bytes) -> None:
    with pytest.raises(ConfigError):
        from_emulator(text)


def test_a_filter_that_is_wrong_is_refused_with_its_place() -> None:
    with pytest.raises(RuleError) as raised:
        declared(changed([*RULE, "SqlFilter"], {"SqlExpression": "a ="}))
    assert (raised.value.topic, raised.value.subscription, raised.value.rule) == ("topic.1", "subscription.1", "sql")
    assert raised.value.cause is not None


def test_what_is_written_is_read_as_the_same() -> None:
    more = EntityDeclaration(
        "busy",
        TopicSettings(status=TopicStatus.SEND_DISABLED, user_metadata="ours", requires_duplicate_detection=True),
        max_size_megabytes=5,
        subscriptions=(
            SubscriptionDeclaration(
                "s",
                SubscriptionSettings(status=SubscriptionStatus.DISABLED, auto_delete_on_idle_ms=60_000),
                dead_letter_on_errors=False,
                rules=(RuleDefinition("typed", correlation={"label": "a", "properties": {"n": 2}}),),
            ),
        ),
    )
    every = [*declared(FILE), more]
    assert declared(to_emulator(every)) == every
    typed = RuleDefinition("typed", correlation={"label": "a", "properties": {"n": {"t": "int", "v": 2}}})
    assert to_emulator([with_rules(typed)]) == to_emulator([with_rules(*more.subscriptions[0].rules or ())])


def with_rules(*rules: RuleDefinition) -> EntityDeclaration:
    return EntityDeclaration("t", subscriptions=(SubscriptionDeclaration("s", rules=rules),))


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [RuleDefinition("r", tags="a || b")],
        [RuleDefinition("r", sql="a = 1", dialect="rabbitmq")],
        [RuleDefinition("r", sql="a = @x", parameters={"@x": 1})],
        [RuleDefinition("r", correlation={"properties": {"a": {"hex": "00"}}})],
    ],
)
def test_rules_without_words_in_the_file_are_an_error_and_not_left_out(rules: list[RuleDefinition]) -> None:
    with pytest.raises(ConfigError, match="topic 't', subscription 's'"):
        to_emulator([with_rules(*rules)])


def test_what_something_forwards_to_is_there_before_it() -> None:
    queue, topic = declared(FILE)
    assert in_steps([topic, queue], []) == [queue, topic, queue]
    assert in_steps([topic, queue], ["QUEUE.1"]) == [topic, queue]
