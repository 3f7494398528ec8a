"""Settings of subscriptions: what they may say, when they count, and that they have no history."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from headgate.errors import ConfigError, RuleError, RuleLimitError, RuleNotFoundError
from headgate.log import Stream, stream_folder
from headgate.topic import (
    DEFAULT_SETTINGS,
    RuleHistory,
    Subscription,
    SubscriptionSettings,
    SubscriptionStatus,
    Topic,
    remove_topic,
)
from headgate.topic.journal import JOURNAL_NAME, encode_line, encode_mark
from topic_streams import editing, new_topic, publish, version_rule

GIVEN = SubscriptionSettings(
    lock_ms=30_000,
    max_delivery_count=3,
    backoff_ms=(1_000, 5_000),
    default_time_to_live_ms=1,
    dead_letter_on_expiration=True,
    status=SubscriptionStatus.RECEIVE_DISABLED,
    auto_delete_on_idle_ms=60_000,
)


@pytest.fixture
def topic(tmp_path: Path) -> Stream:
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("red", (version_rule("r", 1),)), now_ms=0)
    return stream


def refused(settings: SubscriptionSettings) -> RuleError:
    with pytest.raises(RuleError) as caught:
        Topic("orders", (Subscription("red", settings=settings),)).check()
    assert (caught.value.topic, caught.value.subscription) == ("orders", "red")
    return caught.value


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("lock_ms", 1_000, 43_200_000),
        ("max_delivery_count", 1, 2_000),
        ("default_time_to_live_ms", 1, 922_337_203_685_477),
        ("auto_delete_on_idle_ms", 1_000, 922_337_203_685_477),
    ],
)
def test_a_number_out_of_its_range_is_named_with_the_range(name: str, least: int, most: int) -> None:
    for allowed in (least, most):
        Topic("orders", (Subscription("red", settings=DEFAULT_SETTINGS.changed({name: allowed})),)).check()
    for wrong in (least - 1, most + 1):
        error = refused(DEFAULT_SETTINGS.changed({name: wrong}))
        assert isinstance(error, RuleLimitError)
        assert error.reason == f"{name} is {wrong}; expected {least} to {most}"


def test_waits_after_failures_are_few_and_short() -> None:
    Topic("t", (Subscription("s", settings=SubscriptionSettings(backoff_ms=(0, 43_200_000) * 16)),)).check()
    for wrong, reason in (
        ((0, -1), "backoff_ms[1] is -1; expected 0 to 43200000"),
        ((43_200_001,), "backoff_ms[0] is 43200001; expected 0 to 43200000"),
        ((1,) * 33, "backoff_ms has 33 entries; expected at most 32"),
    ):
        error = refused(SubscriptionSettings(backoff_ms=wrong))
        assert isinstance(error, RuleLimitError) and error.reason == reason


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"lock": 1}, "`lock`"),
        ({"lock_ms": "1s"}, "lock_ms"),
        ({"lock_ms": None}, "lock_ms"),
        ({"backoff_ms": [1, "2s"]}, r"backoff_ms\[1\]"),
        ({"status": "off"}, "'off'"),
        ({"requires_session": 1}, "requires_session"),
        ([], "object"),
    ],
)
def test_a_wrong_json_form_is_refused_with_the_key(value: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SubscriptionSettings.of(value)


def test_settings_are_a_json_object() -> None:
    assert SubscriptionSettings.of(GIVEN.json_object()) == GIVEN
    assert DEFAULT_SETTINGS.changed(GIVEN.json_object()) == GIVEN
    assert GIVEN.changed({"default_time_to_live_ms": None, "status": "disabled"}) == SubscriptionSettings(
        lock_ms=30_000,
        max_delivery_count=3,
        backoff_ms=(1_000, 5_000),
        dead_letter_on_expiration=True,
        status=SubscriptionStatus.DISABLED,
        auto_delete_on_idle_ms=60_000,
    )


def test_settings_of_the_last_change_count_at_every_offset_and_make_no_boundary(topic: Stream) -> None:
    publish(topic, b"0", b"1")
    with editing(topic) as editor:
        editor.change_subscription("red", {"settings": {"lock_ms": 5_000}}, now_ms=1)
        publish_beside = editor.history.last_change
        editor.change_subscription("red", {"settings": {"max_delivery_count": 3}}, now_ms=2)
    publish(topic, b"2")
    history = RuleHistory.load(topic)
    assert (publish_beside, history.last_change) == (0, 0)
    assert [(piece.start, piece.stop, piece.since) for piece in history.ranges(0, 3)] == [(0, 3, 0)]
    expected = SubscriptionSettings(lock_ms=5_000, max_delivery_count=3)
    assert [history.at(offset).subscriptions[0].settings for offset in range(3)] == [expected] * 3
    assert history.subscription("red").from_offset == 0


def test_a_change_of_something_else_keeps_the_settings_and_is_a_boundary(topic: Stream) -> None:
    publish(topic, b"0")
    with editing(topic) as editor:
        editor.change_subscription("red", {"settings": GIVEN.json_object()}, now_ms=0)
        assert editor.change_subscription("red", {"dead_letter_on_errors": True}, now_ms=0) == 1
        editor.change_subscription("red", {"settings": {"lock_ms": 7_000}, "dead_letter_on_errors": False}, now_ms=0)
        editor.change_subscription("Red", {}, now_ms=0)
    publish(topic, b"1")
    with editing(topic) as editor:
        editor.change_subscription("red", {"dead_letter_on_errors": True}, now_ms=0)
        editor.prune(1)
    history = RuleHistory.load(topic)
    assert [(piece.start, piece.stop) for piece in history.ranges(1, 3)] == [(1, 2), (2, 3)]
    (found,) = history.current.subscriptions
    assert (found.name, found.dead_letter_on_errors) == ("red", True)
    assert found.settings == GIVEN.changed({"lock_ms": 7_000})


def test_a_wrong_change_is_refused_and_leaves_no_trace(topic: Stream) -> None:
    before = (topic.path / JOURNAL_NAME).read_bytes()
    with editing(topic) as editor:
        for given, error, reason in (
            ({"settings": {"lock_ms": 1}}, RuleLimitError, "lock_ms is 1; expected 1000 to 43200000"),
            ({"settings": {"lock": 1}}, ConfigError, "`lock`"),
            ({"settings": 5}, ConfigError, "settings: found 5"),
            ({"lock_ms": 5_000}, ConfigError, "no property 'lock_ms'; expected one of fall_through"),
            ({"name": "blue"}, ConfigError, "no property 'name'"),
            ({"fall_through": "yes"}, ConfigError, "fall_through"),
            ({"settings": {"requires_session": True}}, RuleError, "requires_session cannot be changed"),
            ({"settings": {"forward_dead_letters_to": "orders"}}, RuleError, "its own topic"),
            ({"settings": {"forward_dead_letters_to": "audit"}}, RuleNotFoundError, "no such topic or stream"),
        ):
            with pytest.raises(error, match=reason):
                editor.change_subscription("red", given, now_ms=0)
        assert editor.topic.subscriptions[0].settings == DEFAULT_SETTINGS
        with pytest.raises(RuleError, match="requires_session cannot be changed"):
            editor.declare(
                Topic("orders", (Subscription("red", settings=SubscriptionSettings(requires_session=True)),)), now_ms=0
            )
    assert (topic.path / JOURNAL_NAME).read_bytes() == before


def test_a_declared_topic_has_the_settings_that_it_was_declared_with(topic: Stream) -> None:
    wanted = Topic("orders", (Subscription("red", (version_rule("r", 1),), settings=GIVEN),))
    with editing(topic) as editor:
        assert editor.declare(wanted, now_ms=0) == 0
        assert editor.topic == wanted
        assert editor.declare(wanted, now_ms=0) is None


def test_dead_letters_go_to_a_topic_or_a_stream_that_is_there_and_not_in_a_circle(tmp_path: Path) -> None:
    a, b = new_topic(tmp_path, "a"), new_topic(tmp_path, "b")
    Stream.create(stream_folder(tmp_path, "audit"), name="audit", now_ms=0)

    def to(target: str) -> SubscriptionSettings:
        return SubscriptionSettings(forward_dead_letters_to=target)

    with editing(a) as editor:
        editor.create_subscription(Subscription("kept", settings=to("audit")), now_ms=0)
        editor.create_subscription(Subscription("s", settings=to("b")), now_ms=0)
    with editing(b) as editor:
        with pytest.raises(RuleError, match=r"loop: .*a/s"):
            editor.create_subscription(Subscription("back", forward_to="a"), now_ms=0)
        with pytest.raises(RuleError, match=r"loop: .*a/s"):
            editor.create_subscription(Subscription("back", settings=to("a")), now_ms=0)
    with pytest.raises(RuleError, match="'a' forwards to it"):
        remove_topic(tmp_path, "b", now_ms=0)


def test_a_journal_from_before_settings_is_read_and_default_settings_leave_no_mark(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    lines = [
        b'{"topic":"orders","created_ms":0,"limits":{},"next_subscription":2,'
        b'"subscriptions":[{"number":1,"name":"red","from_offset":0,"at_ms":0,"dead_letter_on_errors":true}]}',
        b'{"offset":0,"at_ms":0,"changes":[{"change":"create subscription","name":"blue"}]}',
    ]
    content = encode_line(lines[0], before=0) + encode_line(lines[1], before=zlib.crc32(lines[0]))
    path = stream.path / JOURNAL_NAME
    path.write_bytes(encode_mark(26 + len(content)) + content)
    with editing(stream) as editor:
        assert [each.settings for each in editor.topic.subscriptions] == [DEFAULT_SETTINGS] * 2
        editor.create_subscription(Subscription("green"), now_ms=0)
        editor.prune(0)
    assert b"settings" not in path.read_bytes()
