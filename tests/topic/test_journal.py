"""The journal of a topic as bytes: what is an unfinished last change, and what is damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import LogError
from headgate.log import Stream
from headgate.topic import (
    AuthorizationRule,
    ChangeTopic,
    RuleHistory,
    Subscription,
    TopicSettings,
    create_topic,
)
from headgate.topic.journal import JOURNAL_NAME, MARK_BYTES
from topic_streams import editing, new_topic, shape, version_rule

CHANGES = 4


@pytest.fixture
def topic(tmp_path: Path) -> Stream:
    """A topic whose one rule was replaced three times."""
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("red", (version_rule("r", 1),)), now_ms=1)
        for version in range(2, CHANGES + 1):
            editor.replace_rule("red", version_rule("r", version), now_ms=version)
    return stream


def _borders(raw: bytes) -> list[int]:
    """Where the lines of the changes begin, and where the last one ends."""
    ends = [at + 1 for at, byte in enumerate(raw) if byte == 0x0A]
    return ends[1:]


def _refused(topic: Stream, raw: bytes, reason: str) -> None:
    path = topic.path / JOURNAL_NAME
    path.write_bytes(raw)
    with pytest.raises(LogError, match=reason) as caught:
        RuleHistory.load(topic)
    assert caught.value.path == path
    with pytest.raises(LogError, match=reason):
        editing(topic)
    assert path.read_bytes() == raw


def test_a_journal_that_lost_a_confirmed_change_is_refused_wherever_it_is_cut(topic: Stream) -> None:
    raw = (topic.path / JOURNAL_NAME).read_bytes()
    head_end, *_ = borders = _borders(raw)
    assert len(borders) == CHANGES + 1
    for size in range(head_end, len(raw)):
        _refused(topic, raw[:size], f"ends at byte {max(end for end in borders if end <= size)}, .* {len(raw)} bytes")
        _refused(topic, raw[:size] + bytes(len(raw) - size), f"damaged line|ends at byte .* {len(raw)} bytes")


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines, *lines[2:]],
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
        lambda lines: [*lines[:2], *lines[3:], b"12345678 {}\n"],
        lambda lines: [*lines[:2], *lines[3:]],
    ],
    ids=["last doubled", "tail doubled", "swapped", "one replaced", "one taken out"],
)
def test_whole_lines_in_another_order_are_damage(topic: Stream, damage: Callable[[list[bytes]], list[bytes]]) -> None:
    raw = (topic.path / JOURNAL_NAME).read_bytes()
    lines = raw.splitlines(keepends=True)
    _refused(topic, b"".join(damage(lines)), "damaged line")


def test_a_change_that_was_not_confirmed_yet_is_there_or_not(topic: Stream) -> None:
    path = topic.path / JOURNAL_NAME
    before = path.read_bytes()
    with editing(topic) as editor:
        editor.replace_rule("red", version_rule("r", 9), now_ms=9)
    line = path.read_bytes()[len(before) :]
    for kept in range(len(line) + 1):
        for zeros in (0, 1, 4096):
            path.write_bytes(before + line[:kept] + bytes(zeros))
            version = 9 if kept == len(line) else CHANGES
            assert shape(RuleHistory.load(topic).current) == {"red": {"r": f"version = {version}"}}


@pytest.mark.parametrize("kept", [0, 1, 15, 16, 20, MARK_BYTES - 1])
def test_a_mark_that_was_being_written_says_nothing(topic: Stream, kept: int) -> None:
    path = topic.path / JOURNAL_NAME
    raw = path.read_bytes()
    path.write_bytes(raw[:kept] + bytes(MARK_BYTES - kept) + raw[MARK_BYTES:])
    assert shape(RuleHistory.load(topic).current) == {"red": {"r": f"version = {CHANGES}"}}
    with editing(topic) as editor:
        editor.replace_rule("red", version_rule("r", 7), now_ms=9)
    assert path.read_bytes()[:16] == b"%016x" % path.stat().st_size


def test_a_journal_with_secrets_of_clients_is_its_owners_alone(topic: Stream) -> None:
    path = topic.path / JOURNAL_NAME
    assert path.stat().st_mode & 0o077
    keyed = TopicSettings(authorization_rules=(AuthorizationRule("app", primary_key="secret"),))
    with editing(topic) as editor:
        editor.apply([ChangeTopic(keyed)], now_ms=9)
        assert not path.stat().st_mode & 0o077
        editor.replace_rule("red", version_rule("r", 9), now_ms=9)
    assert not path.stat().st_mode & 0o077
    made = create_topic(topic.path.parent, "keyed", now_ms=0, settings=keyed)
    assert not (made.path / JOURNAL_NAME).stat().st_mode & 0o077
    assert RuleHistory.load(topic).settings == keyed
