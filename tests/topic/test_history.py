"""Rules in the order of the stream: what is in force where, what is refused, what is pruned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from headgate.errors import (
    ConfigError,
    LogError,
    OffsetOutOfRangeError,
    RuleError,
    RuleExistsError,
    RuleLimitError,
    RuleNotFoundError,
    StreamFullError,
    StreamLockedError,
    StreamReadOnlyError,
)
from headgate.log import Pin, Stream, Writer, read_pin, stream_folder
from headgate.log.lock import LOCK_NAME
from headgate.message import EncodedMessages, Message
from headgate.topic import (
    Router,
    Rule,
    RuleHistory,
    Subscription,
    Topic,
    TopicEditor,
    TopicLimits,
    create_topic,
    list_topics,
    remove_topic,
    state_folders,
    topic_stream,
)
from headgate.topic.journal import JOURNAL_NAME, encode_line, read_lines, write_head
from topic_streams import editing, new_topic, publish, shape, sql_rule, version_rule


@pytest.fixture
def topic(tmp_path: Path) -> Stream:
    """A topic with a rule that was replaced at offset 2 and removed at offset 4."""
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("red", (version_rule("r", 1),)), now_ms=1)
    publish(stream, b"0", b"1")
    with editing(stream) as editor:
        assert editor.replace_rule("RED", version_rule("R", 2), now_ms=2) == 2
    publish(stream, b"2", b"3")
    with editing(stream) as editor:
        assert editor.remove_rule("red", "r", now_ms=3) == 4
    publish(stream, b"4")
    return stream


def test_each_message_is_decided_by_the_rules_in_force_at_its_offset(topic: Stream) -> None:
    history = RuleHistory.load(topic)
    found = [shape(history.at(offset)) for offset in range(6)]
    old, new, none = {"red": {"r": "version = 1"}}, {"red": {"R": "version = 2"}}, {"red": dict[str, str]()}
    assert found == [old, old, new, new, none, none]
    assert history.current == history.at(5)


def test_offsets_fall_into_pieces_with_the_same_rules(topic: Stream) -> None:
    history = RuleHistory.load(topic)
    assert [(piece.start, piece.stop) for piece in history.ranges(1, 9)] == [(1, 2), (2, 4), (4, 9)]
    assert [(piece.start, piece.stop) for piece in history.ranges(2, 4)] == [(2, 4)]
    assert list(history.ranges(3, 3)) == []
    for piece in history.ranges(0, 9):
        assert all(history.at(offset) == history.at(piece.start) for offset in range(piece.start, piece.stop))


def test_a_replaced_rule_keeps_its_number_and_a_removed_one_does_not_give_it_back(topic: Stream) -> None:
    history = RuleHistory.load(topic)
    assert [history.at(offset).subscriptions[0].rules[0].number for offset in (0, 2)] == [1, 1]
    with editing(topic) as editor:
        editor.add_rule("red", version_rule("r", 3), now_ms=4)
        editor.add_rule("red", version_rule("s", 3), now_ms=4)
        assert [rule.number for rule in editor.topic.subscriptions[0].rules] == [2, 3]
        editor.remove_subscription("red", now_ms=5)
        editor.create_subscription(Subscription("red", ()), now_ms=5)
        assert editor.topic.subscriptions[0].number == 2
    assert [each.number for each in RuleHistory.load(topic).current.subscriptions] == [2]


def test_a_rule_is_compiled_once_however_often_it_is_asked_for(topic: Stream) -> None:
    history = RuleHistory.load(topic)
    assert history.at(2).subscriptions[0].rules[0] is history.at(3).subscriptions[0].rules[0]
    assert history.at(1).subscriptions[0].rules[0] is not history.at(2).subscriptions[0].rules[0]


def test_two_changes_at_one_offset_leave_the_last(topic: Stream) -> None:
    with editing(topic) as editor:
        editor.add_rule("red", version_rule("r", 3), now_ms=4)
        editor.replace_rule("red", version_rule("r", 4), now_ms=4)
        editor.add_rule("red", version_rule("gone", 1), now_ms=4)
        editor.remove_rule("red", "gone", now_ms=4)
    history = RuleHistory.load(topic)
    assert shape(history.current) == {"red": {"r": "version = 4"}}
    assert [
        (name, version.rule.sql, version.from_offset, version.to_offset) for name, version in history.versions()
    ] == [
        ("red", "version = 1", 0, 2),
        ("red", "version = 2", 2, 4),
        ("red", "version = 4", 5, None),
    ]


def test_several_changes_are_in_force_together_or_none_is(topic: Stream) -> None:
    before = (topic.path / JOURNAL_NAME).read_bytes()
    with editing(topic) as editor:
        rules = (version_rule("a", 1), version_rule("b", 1), version_rule("A", 2))
        with pytest.raises(RuleExistsError, match="'A'"):
            editor.create_subscription(Subscription("blue", rules), now_ms=5)
        assert shape(editor.topic) == {"red": {}}
        assert editor.create_subscription(Subscription("blue", rules[:2]), now_ms=5) == 5
    assert (topic.path / JOURNAL_NAME).read_bytes().count(b"\n") == before.count(b"\n") + 1


def test_a_refused_change_leaves_no_trace(topic: Stream) -> None:
    before = (topic.path / JOURNAL_NAME).read_bytes()
    with editing(topic) as editor:
        editor.history.limits = TopicLimits(sql_filters=0)
        for refused, error in (
            (lambda: editor.add_rule("red", version_rule("r", 1), now_ms=0), RuleLimitError),
            (lambda: editor.add_rule("blue", version_rule("r", 1), now_ms=0), RuleNotFoundError),
            (lambda: editor.replace_rule("red", version_rule("r", 1), now_ms=0), RuleNotFoundError),
            (lambda: editor.remove_rule("red", "r", now_ms=0), RuleNotFoundError),
            (lambda: editor.remove_subscription("blue", now_ms=0), RuleNotFoundError),
            (lambda: editor.change_subscription("blue", {}, now_ms=0), RuleNotFoundError),
            (lambda: editor.create_subscription(Subscription("Red"), now_ms=0), RuleExistsError),
            (lambda: editor.create_subscription(Subscription("a/b", ()), now_ms=0), RuleError),
            (lambda: editor.change_limits(TopicLimits(subscriptions=-1), now_ms=0), ConfigError),
        ):
            with pytest.raises(error):
                refused()
        assert shape(editor.topic) == {"red": {}}
    assert (topic.path / JOURNAL_NAME).read_bytes() == before


def test_a_limit_that_was_lowered_lets_go_and_stay_but_not_grow(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("s", (version_rule("a", 1), version_rule("b", 1))), now_ms=0)
        editor.change_limits(TopicLimits(sql_filters=1), now_ms=0)
        editor.replace_rule("s", version_rule("a", 2), now_ms=0)
        with pytest.raises(RuleLimitError, match="3 sql filters; its limit is 1"):
            editor.add_rule("s", version_rule("c", 1), now_ms=0)
        editor.remove_rule("s", "a", now_ms=0)
        with pytest.raises(RuleLimitError, match="2 sql filters"):
            editor.add_rule("s", version_rule("c", 1), now_ms=0)
        editor.replace_rule("s", version_rule("b", 2), now_ms=0)
    assert RuleHistory.load(stream).limits.sql_filters == 1


def test_what_may_wait_to_be_settled_follows_the_limits(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.change_limits(TopicLimits(unsettled_bytes=1000), now_ms=0)
    assert read_pin(stream.path) is None
    with Writer.open(stream, now_ms=0) as writer:
        writer.pin(Pin(0, 1000))
        writer.append([(bytes(2000), None)], now_ms=0)
        with pytest.raises(StreamFullError):
            writer.append([(b"m", None)], now_ms=0)
    with editing(stream) as editor:
        editor.change_limits(TopicLimits(unsettled_bytes=3000), now_ms=0)
    assert read_pin(stream.path) == Pin(0, 3000)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0)


def test_limits_are_in_force_from_their_offset(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        rule = Rule("r", "1=1", "SET sys.MessageId = 'abcdefgh'")
        editor.create_subscription(Subscription("s", (rule,), dead_letter_on_errors=True), now_ms=0)
        # Nothing was ever decided under these.
        editor.change_limits(TopicLimits(identifier_characters=1), now_ms=0)
        editor.change_limits(TopicLimits(), now_ms=0)
    publish(stream, *[b"x"] * 10)
    with editing(stream) as editor:
        assert editor.change_limits(TopicLimits(identifier_characters=4), now_ms=0) == 10
    publish(stream, *[b"x"] * 10)
    with editing(stream) as editor:
        editor.change_limits(TopicLimits(identifier_characters=5), now_ms=0)
    loaded = RuleHistory.load(stream)
    again = RuleHistory(loaded.head(pruned_below=0), loaded.path)
    for history in (loaded, again):
        limits = [history.at(offset).limits.identifier_characters for offset in (0, 9, 10, 19, 20)]
        assert limits == [TopicLimits().identifier_characters] * 2 + [4, 4, 5]
        made = [len(copies_at(history.at(offset))) for offset in (9, 10)]
        assert made == [1, 0]
        assert [(each.start, each.stop) for each in history.ranges(0, 25)] == [(0, 10), (10, 20), (20, 25)]
    kept = RuleHistory(loaded.head(pruned_below=15), loaded.path)
    assert [kept.at(offset).limits.identifier_characters for offset in (15, 19, 20)] == [4, 4, 5]


def copies_at(topic: Topic) -> Sequence[int]:
    """The rows of the copies of one message."""
    batch = EncodedMessages.of([Message(b"").encode()])
    return (
        Router(topic, stream="s").route(batch, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)).rows.tolist()
    )


def test_a_topic_made_in_python_has_its_own_limits() -> None:
    rule = Rule("r", "1=1", "SET sys.MessageId = 'abcdefgh'")
    for characters, copies in ((4, 0), (8, 1)):
        topic = Topic("t", (Subscription("s", (rule,)),), TopicLimits(identifier_characters=characters))
        assert len(copies_at(topic)) == copies


def test_the_fall_through_takes_no_rule_and_is_the_only_one(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("rest", fall_through=True), now_ms=0)
        with pytest.raises(RuleError, match="fall-through") as caught:
            editor.add_rule("rest", version_rule("r", 1), now_ms=0)
        assert caught.value.rule == "r"
        with pytest.raises(RuleError, match="'rest' is the fall-through"):
            editor.create_subscription(Subscription("other", fall_through=True), now_ms=0)
        editor.create_subscription(Subscription("red", (version_rule("r", 1),)), now_ms=0)
        editor.change_subscription("rest", {"fall_through": False}, now_ms=0)
        with pytest.raises(RuleError, match="no rules, found 1"):
            editor.change_subscription("red", {"fall_through": True}, now_ms=0)


def test_changed_properties_are_in_force_from_their_offset_and_keep_the_rules(topic: Stream) -> None:
    with editing(topic) as editor:
        editor.add_rule("red", version_rule("r", 3), now_ms=4)
    publish(topic, b"5")
    with editing(topic) as editor:
        editor.change_subscription("Red", {"dead_letter_on_errors": True}, now_ms=6)
        editor.add_rule("red", version_rule("s", 1), now_ms=6)
    history = RuleHistory.load(topic)
    before, after = history.at(5).subscriptions[0], history.at(6).subscriptions[0]
    assert (before.name, before.dead_letter_on_errors, after.name, after.dead_letter_on_errors) == (
        "red", False, "Red", True,
    )  # fmt: skip
    assert [rule.number for rule in after.rules] == [2, 3]
    assert before.number == after.number


def test_a_declared_topic_is_what_it_was_declared_to_be(topic: Stream) -> None:
    wanted = Topic(
        "orders",
        (
            Subscription("red", (version_rule("x", 1), version_rule("y", 1)), dead_letter_on_errors=True),
            Subscription("rest", fall_through=True),
        ),
        TopicLimits(subscriptions=5),
    )
    with editing(topic) as editor:
        assert editor.declare(wanted, now_ms=5) == 5
        assert editor.topic == wanted
        assert editor.declare(wanted, now_ms=6) is None
        # The fall-through is handed over, one rule is replaced, one goes, one comes, in one change.
        other = Topic(
            "orders",
            (
                Subscription("red", fall_through=True),
                Subscription("rest", (version_rule("x", 1),)),
                Subscription("blue", (version_rule("x", 2),)),
            ),
        )
        editor.declare(other, now_ms=7)
        assert editor.topic == other
        editor.declare(Topic("orders", (Subscription("blue", (version_rule("X", 3),)),)), now_ms=8)
        assert shape(editor.topic) == {"blue": {"X": "version = 3"}}
        with pytest.raises(RuleExistsError):
            editor.declare(
                Topic("orders", (Subscription("b", (version_rule("x", 1), version_rule("X", 1))),)), now_ms=9
            )
    assert shape(RuleHistory.load(topic).current) == {"blue": {"X": "version = 3"}}


def test_only_the_first_rules_of_a_topic_may_look_back(tmp_path: Path) -> None:
    Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=0)
    publish(Stream.open(stream_folder(tmp_path, "orders")), b"0", b"1", b"2")
    stream = new_topic(tmp_path)
    first = Topic("orders", (Subscription("red", (version_rule("r", 1),)),))
    with editing(stream) as editor:
        with pytest.raises(ConfigError, match="-1"):
            editor.declare(first, now_ms=0, in_force_from=-1)
        assert editor.declare(first, now_ms=0, in_force_from=1) == 1
        with pytest.raises(ConfigError, match="rules already"):
            editor.declare(Topic("orders"), now_ms=0, in_force_from=1)
        assert editor.declare(Topic("orders"), now_ms=0) == 3
    history = RuleHistory.load(stream)
    assert [len(history.at(offset).subscriptions) for offset in range(4)] == [0, 1, 1, 0]


def test_pruned_rules_are_said_to_be_pruned(topic: Stream) -> None:
    with editing(topic) as editor:
        editor.prune(2)
    history = RuleHistory.load(topic)
    with pytest.raises(OffsetOutOfRangeError, match="begins at offset 2"):
        history.at(1)
    with pytest.raises(OffsetOutOfRangeError):
        list(history.ranges(0, 5))
    assert shape(history.at(2)) == {"red": {"R": "version = 2"}}
    assert [(piece.start, piece.stop) for piece in history.ranges(2, 9)] == [(2, 4), (4, 9)]
    assert (topic.path / JOURNAL_NAME).read_bytes().count(b"version = 1") == 0
    with editing(topic) as editor:
        editor.prune(1000)
        editor.add_rule("red", version_rule("new", 1), now_ms=0)
        assert editor.topic.subscriptions[0].rules[0].number == 2
    assert shape(RuleHistory.load(topic).at(5)) == {"red": {"new": "version = 1"}}


def test_a_long_journal_gets_a_new_head_and_forgets_what_retention_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.topic.editor._REWRITE_AFTER", 5)
    stream = new_topic(tmp_path)
    with TopicEditor.open(stream, now_ms=0) as editor:
        editor.create_subscription(Subscription("s", (version_rule("r", 0),)), now_ms=0)
        for version in range(1, 20):
            editor.replace_rule("s", version_rule("r", version), now_ms=0)
    assert (stream.path / JOURNAL_NAME).read_bytes().count(b"\n") <= 6
    assert shape(RuleHistory.load(stream).current) == {"s": {"r": "version = 19"}}


def test_a_change_is_made_beside_a_writer_that_its_caller_holds(topic: Stream) -> None:
    with Writer.open(topic, now_ms=0) as writer:
        with pytest.raises(StreamLockedError):
            editing(topic)
        editor = TopicEditor(writer)
        assert editor.add_rule("red", version_rule("r", 3), now_ms=0) == 5
        writer.append([(b"5", None)], now_ms=0)
        assert editor.replace_rule("red", version_rule("r", 4), now_ms=0) == 6
        editor.close()
        writer.append([(b"6", None)], now_ms=0)
    history = RuleHistory.load(topic)
    assert [shape(history.at(offset))["red"].get("r") for offset in (4, 5, 6)] == [None, "version = 3", "version = 4"]


def test_a_stream_becomes_a_topic_once_and_a_plain_stream_again(tmp_path: Path) -> None:
    stream = new_topic(tmp_path, "shop/orders")
    with pytest.raises(RuleExistsError):
        create_topic(tmp_path, "shop/orders", now_ms=0)
    assert [history.topic_name for history in list_topics(tmp_path)] == ["shop/orders"]
    publish(stream, b"0")
    with Writer.open(stream, now_ms=0) as writer:
        writer.pin(Pin(0, 1))
    remove_topic(tmp_path, "shop/orders", now_ms=0)
    assert list_topics(tmp_path) == []
    assert read_pin(stream.path) is None
    assert Stream.open(stream.path).next_offset() == 1
    for gone in (lambda: topic_stream(tmp_path, "shop/orders"), lambda: topic_stream(tmp_path, "nope")):
        with pytest.raises(RuleNotFoundError):
            gone()
    with pytest.raises(RuleNotFoundError, match="topic create"):
        editing(stream)


def test_a_name_that_is_no_topics_makes_no_stream(tmp_path: Path) -> None:
    with pytest.raises(RuleError):
        create_topic(tmp_path, "a?", now_ms=0)
    with pytest.raises(ConfigError):
        create_topic(tmp_path, "a", now_ms=0, limits=TopicLimits(subscriptions=-1))
    assert not (tmp_path / "streams").exists()


def test_a_folder_of_rabbitmq_is_no_topic_until_it_is_adopted(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    for name in ("stream.json", JOURNAL_NAME, LOCK_NAME):
        (stream.path / name).unlink()
    with pytest.raises(StreamReadOnlyError, match="adopt"):
        create_topic(tmp_path, "orders", now_ms=0)


def test_forwarding_goes_to_a_topic_that_is_there_and_not_in_a_loop(tmp_path: Path) -> None:
    a, b, c = (new_topic(tmp_path, name) for name in "abc")
    for stream, target in ((a, "b"), (b, "c")):
        with editing(stream) as editor:
            editor.create_subscription(forwarding(target), now_ms=0)
    with editing(c) as editor:
        with pytest.raises(RuleNotFoundError, match="'z'"):
            editor.create_subscription(forwarding("z"), now_ms=0)
        with pytest.raises(RuleError, match=r"on → .*on → .*on → "):
            editor.create_subscription(forwarding("a"), now_ms=0)
        with pytest.raises(RuleError, match="own topic"):
            editor.create_subscription(forwarding("c"), now_ms=0)
        editor.create_subscription(Subscription("off", ()), now_ms=0)
        with pytest.raises(RuleError, match="loop"):
            editor.change_subscription("off", {"forward_to": "b"}, now_ms=0)
        # What is planned for the other topics counts, not what they are now.
        planned = {"a": Topic("a"), "b": Topic("b")}
        editor.declare(Topic("c", (forwarding("a"),)), now_ms=0, planned=planned)
    with pytest.raises(RuleError, match="'a' forwards to it"):
        remove_topic(tmp_path, "b", now_ms=0)


def forwarding(target: str) -> Subscription:
    return Subscription("on", (sql_rule("r"),), forward_to=target)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda raw: raw.replace(b"version = 1", b"version = 9"), "damaged line"),
        (lambda raw: raw[10:], "damaged line"),
        (lambda raw: b"", "no head"),
        (lambda raw: raw[:40], "no head"),
        (lambda raw: b"00000000 {}\n" + raw, "damaged line"),
        (lambda raw: raw[: raw.rindex(b"\n", 0, -1) + 1] + b"12345678 {}\n", "damaged line"),
    ],
)
def test_a_damaged_history_is_an_error_with_its_place(topic: Stream, damage: object, reason: str) -> None:
    path = topic.path / JOURNAL_NAME
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(LogError, match=reason) as caught:
        RuleHistory.load(topic)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{}", "not the rule history"),
        (b'{"offset":9,"at_ms":0,"changes":[{"change":"sing"}]}', "not the rule history"),
        (b'{"offset":9,"at_ms":0,"changes":[{"change":"remove rule","subscription":"red","rule":"x"}]}', "not there"),
        (b'{"offset":1,"at_ms":0,"changes":[]}', "behind one at 4"),
        (b"\xff", "not the rule history"),
    ],
)
def test_a_sound_line_that_makes_no_sense_is_an_error(topic: Stream, payload: bytes, reason: str) -> None:
    path = topic.path / JOURNAL_NAME
    found = read_lines(path)
    assert found is not None
    path.write_bytes(path.read_bytes() + encode_line(payload, before=found.end.crc))
    with pytest.raises(LogError, match=reason):
        RuleHistory.load(topic)


def test_a_history_of_a_later_format_is_refused(topic: Stream) -> None:
    head = b'{"topic":"orders","created_ms":0,"limits":{},"format":2}'
    write_head(topic.path / JOURNAL_NAME, head, is_private=False)
    with pytest.raises(LogError, match="format 2, expected 1"):
        RuleHistory.load(topic)


def test_what_subscriptions_did_goes_with_the_topic_also_where_that_was_interrupted(topic: Stream) -> None:
    root = topic.path.parents[1]

    def leave_state() -> None:
        for folder in state_folders(topic):
            (folder / "deep").mkdir(parents=True)
            (folder / "deep" / "file").write_bytes(b"x")

    leave_state()
    remove_topic(root, "orders", now_ms=4)
    assert not any(folder.exists() for folder in state_folders(topic))
    # As after a kill between the journal and the rest.
    leave_state()
    create_topic(root, "orders", now_ms=5)
    assert not any(folder.exists() for folder in state_folders(topic))
