"""Members of consumer groups: what they are given, how often, and what settles it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_lab import INVISIBLE_MS, GroupLab, message
from headgate.broker.consumer_groups import GroupSettings
from headgate.evaluate import Filter


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[GroupLab]:
    lab = GroupLab(tmp_path)
    yield lab
    lab.broker.close()


def numbers(first: int, count: int) -> list[bytes]:
    return [message(number, n=number) for number in range(first, first + count)]


def test_a_group_gets_each_message_once_and_settles_it(lab: GroupLab) -> None:
    lab.publish(numbers(0, 5))
    first = lab.ask(3)
    assert (first.offsets, first.attempts) == ([0, 1, 2], [1, 1, 1])
    assert lab.settle(first) == [True] * 3
    assert lab.settle(first) == [False] * 3
    assert lab.ask(10).offsets == [3, 4]
    assert lab.receive().messages == []
    other = lab.ask(10, group="other")
    assert other.offsets == [0, 1, 2, 3, 4], "groups are independent"


def test_a_request_waits_for_what_is_published(lab: GroupLab) -> None:
    asked = lab.ask()
    assert not asked.answers
    lab.publish(numbers(0, 2))
    assert asked.offsets == [0, 1]
    ended = lab.ask()
    ended.receiving.end()
    ended.receiving.end()
    assert ended.messages == []


def test_what_is_not_settled_comes_again(lab: GroupLab) -> None:
    lab.publish(numbers(0, 2))
    first = lab.ask(1)
    lab.turn(INVISIBLE_MS - 1)
    assert lab.receive(1).offsets == [1]
    lab.turn(1)
    again = lab.ask(5)
    assert (again.offsets, again.attempts) == ([0], [2])
    assert lab.settle(first) == [False], "the token of an earlier attempt"
    assert lab.settle(again) == [True]


def test_what_is_not_settled_comes_again_behind_a_restart(lab: GroupLab) -> None:
    lab.publish(numbers(0, 3))
    first = lab.ask(2)
    lab.settle(lab.ask(1))
    lab.restart()
    assert lab.receive().messages == []
    lab.turn(INVISIBLE_MS)
    again = lab.ask()
    assert (again.offsets, again.attempts) == ([0, 1], [2, 2])
    assert lab.settle(first) == [False, False]
    assert lab.settle(again) == [True, True]


def test_the_filter_of_the_request_counts_and_the_rest_is_consumed(lab: GroupLab) -> None:
    lab.publish(numbers(0, 20))
    asked = lab.ask(only=Filter.parse("n = 3 OR n = 5", "servicebus"))
    assert asked.offsets == [3, 5]
    assert lab.view().position == 20
    lab.publish(numbers(20, 1))
    rest = lab.receive(only=Filter.parse("n > 100", "servicebus"))
    assert rest.messages == []
    assert rest.answer.was_filtered
    lab.settle(asked)
    assert not lab.receive().answer.was_filtered
    lab.publish(numbers(21, 1))
    assert lab.receive().offsets == [21]


def test_too_many_attempts_make_a_dead_letter(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(max_attempts=2))
    lab.publish(numbers(0, 1))
    lab.ask()
    lab.turn(INVISIBLE_MS)
    assert lab.ask().attempts == [2]
    lab.turn(INVISIBLE_MS)
    assert lab.receive().messages == []
    assert lab.receive(streams=["%DLQ%g"], group="undertaker").offsets == [0]


def test_messages_of_a_message_group_wait_for_each_other(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(fifo=True))
    lab.publish([message(number, group="ab"[number % 2]) for number in range(6)])
    first = lab.ask(1)
    assert first.offsets == [0]
    second = lab.ask(2)
    assert second.offsets == [1, 3]
    assert lab.receive().messages == []
    lab.settle(first)
    third = lab.ask(10)
    assert third.offsets == [2, 4]
    lab.turn(INVISIBLE_MS)
    assert lab.ask(10).offsets == [1, 2, 3, 4, 5]
