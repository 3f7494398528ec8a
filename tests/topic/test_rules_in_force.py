"""The routers of a topic by offset: each message meets the rules of its offset, and nothing is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import RuleNotFoundError
from headgate.log import Stream
from headgate.topic import RoutersInForce, Subscription
from headgate.topic.rules_in_force import FollowedHistory
from topic_streams import editing, new_topic, publish, shape, version_rule


@pytest.fixture
def changed_topic(tmp_path: Path) -> Stream:
    """Version 1 decides offsets 0 and 1, version 2 those from 2 on."""
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("red", (version_rule("r", 1),)), now_ms=1)
    publish(stream, b"0", b"1")
    with editing(stream) as editor:
        editor.replace_rule("red", version_rule("r", 2), now_ms=2)
    publish(stream, b"2")
    return stream


def versions(routers: RoutersInForce, first: int, stop: int) -> list[tuple[int, dict[str, dict[str, str]]]]:
    return [(until, shape(router.topic)) for until, router in routers.within(first, stop)]


def test_offsets_meet_the_rules_that_were_in_force_there(changed_topic: Stream) -> None:
    routers = RoutersInForce.of(changed_topic.path)
    before, after = {"red": {"r": "version = 1"}}, {"red": {"r": "version = 2"}}
    assert versions(routers, 0, 3) == [(2, before), (3, after)]
    assert versions(routers, 1, 2) == [(2, before)]
    assert versions(routers, 2, 10) == [(10, after)]
    assert versions(routers, 2, 2) == []


def test_routers_are_made_once_until_the_journal_changes(changed_topic: Stream) -> None:
    folder = changed_topic.path
    routers = RoutersInForce.of(folder)
    made = [router for _, router in routers.within(0, 3)]
    assert RoutersInForce.of(folder) is routers
    assert all(one is other for one, (_, other) in zip(made, routers.within(0, 3), strict=True))
    followed = FollowedHistory(folder)
    history = followed.now()
    assert followed.now() is history
    with editing(changed_topic) as editor:
        editor.add_rule("red", version_rule("s", 3), now_ms=3)
    assert RoutersInForce.of(folder) is not routers
    assert followed.now().last_change == 3
    assert history.last_change == 2
    assert versions(RoutersInForce.of(folder), 3, 4) == [(4, {"red": {"r": "version = 2", "s": "version = 3"}})]


def test_a_change_compiles_only_what_is_new(changed_topic: Stream) -> None:
    followed = FollowedHistory(changed_topic.path)
    (before,) = followed.now().at(2).subscriptions[0].rules
    with editing(changed_topic) as editor:
        editor.add_rule("red", version_rule("s", 3), now_ms=3)
    kept, added = followed.now().at(3).subscriptions[0].rules
    assert kept is before and added.name == "s"
    with editing(changed_topic) as editor:
        editor.replace_rule("red", version_rule("r", 4), now_ms=3)
    replaced, _ = followed.now().at(3).subscriptions[0].rules
    assert replaced.definition.sql == "version = 4"


def test_a_stream_without_rules_is_named(tmp_path: Path) -> None:
    plain = Stream.create(tmp_path / "plain", name="plain", now_ms=0)
    with pytest.raises(RuleNotFoundError, match="no topic"):
        RoutersInForce.of(plain.path)
