"""Members that read queues for themselves: places, what they send back, and who is given it again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from examples import examples
from group_lab import INVISIBLE_MS, GroupLab, message
from headgate.broker.consumer_groups import PullConsumers, PulledQueue, RetryQueue
from headgate.broker.consumer_groups.group_view import PULLED_MS
from headgate.broker.consumer_groups.pull_consumers import HELD_MS, WRITTEN_MS
from headgate.errors import HeadgateError, PreconditionFailedError

MINUTE_MS = 60_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[GroupLab]:
    lab = GroupLab(tmp_path)
    lab.publish([message(number) for number in range(6)])
    yield lab
    lab.broker.close()


def pulling(lab: GroupLab) -> PullConsumers:
    return lab.broker.consumer_groups.pull_consumers


def pull(lab: GroupLab, offset: int = 0, *, queue: int = 0) -> None:
    pulling(lab).pulled(lab.streams[queue], "g", offset)
    lab.turn()


def reads_all(stream: str) -> bool:
    return True


def done(lab: GroupLab, offset: int) -> None:
    told: list[list[bool] | HeadgateError] = []
    pulling(lab).done(lab.streams[0], "g", offset, told.append)
    lab.turn()
    assert told == [[True]]


def send_back(lab: GroupLab, offset: int, delay_ms: int | None = 1_000) -> int:
    """How often it came again before."""
    asked: list[int] = []
    told: list[list[bool] | HeadgateError] = []

    def delay(again: int) -> int | None:
        asked.append(again)
        return delay_ms

    pulling(lab).send_back(lab.streams[0], "g", offset, delay_ms=delay, then=told.append)
    lab.turn()
    assert told == [[True]]
    return asked[0]


def wait_for_retries(lab: GroupLab) -> RetryQueue:
    """A pull of what comes again."""
    retries = pulling(lab).retries("g")
    retries.wait(lab.streams, lambda: None)
    lab.turn()
    return retries


def offsets(retries: RetryQueue, number: int = 0) -> list[int]:
    return [each.message.offset for each in retries.from_number(number, 100, 1 << 20, reads_all)]


def test_a_place_is_where_reading_goes_on_and_survives_a_restart(lab: GroupLab) -> None:
    assert pulling(lab).place("q0", "g") is None
    assert pulling(lab).begins_at("q0", "g") == 0
    pull(lab, 2)
    assert pulling(lab).place("q0", "g") == 2
    done(lab, 4)
    done(lab, 3)
    assert pulling(lab).place("q0", "g") == 4
    pulling(lab).done("q0", "g", 5)
    assert pulling(lab).place("q0", "g") == 5
    lab.restart()
    assert pulling(lab).place("q0", "g") == 5, "a clean stop writes it down"
    pulling(lab).done("q0", "g", 6)
    lab.turn(WRITTEN_MS)
    assert PulledQueue(lab.view()).first_unseen == 6
    pulling(lab).done("q0", "g", 2**60)
    lab.turn(WRITTEN_MS)
    lab.publish([message(6)])
    assert lab.receive().offsets == [6], "nobody is behind what is not there"


def test_others_are_given_nothing_fresh_of_a_queue_that_a_member_reads(lab: GroupLab) -> None:
    pull(lab)
    assert lab.receive().messages == []
    lab.turn(PULLED_MS - 1)
    assert lab.receive().messages == []
    lab.turn(1)
    assert lab.receive(2).offsets == [0, 1]
    done(lab, 4)
    assert lab.receive().offsets == [4, 5], "what others have stays theirs"
    lab.turn(INVISIBLE_MS)
    assert lab.receive().offsets == [0, 1, 4, 5]


def test_what_is_sent_back_comes_again_to_anybody_after_its_time(lab: GroupLab) -> None:
    pull(lab)
    assert send_back(lab, 1) == 0
    assert send_back(lab, 1) == 0, "it waits already"
    assert PulledQueue(lab.view()).given(0, 6).tolist() == [1]
    lab.turn(999)
    assert lab.receive().messages == []
    lab.turn(1)
    again = lab.ask()
    assert (again.offsets, again.attempts) == ([1], [2])
    lab.settle(again)
    lab.turn(PULLED_MS)
    assert lab.receive().offsets == [0, 2, 3, 4, 5], "it is settled, and read over"
    with pytest.raises(PreconditionFailedError, match="look message by offset failed, 6"):
        send_back(lab, 6)


def test_what_was_settled_is_not_sent_back(lab: GroupLab) -> None:
    pull(lab)
    done(lab, 3)
    send_back(lab, 1)
    lab.turn(MINUTE_MS)
    assert lab.receive().offsets == [3, 4, 5]


def test_members_are_given_again_what_others_did_not_settle(lab: GroupLab) -> None:
    lab.ask(2)
    lab.turn(INVISIBLE_MS)
    retries = wait_for_retries(lab)
    assert offsets(retries) == [0, 1]
    assert [each.message.attempt for each in retries.from_number(0, 9, 1 << 20, reads_all)] == [2, 2]


def test_what_came_again_is_held_while_members_ask_and_settled_by_its_number(lab: GroupLab) -> None:
    pull(lab)
    send_back(lab, 0)
    send_back(lab, 2)
    lab.turn(1_000)
    retries = wait_for_retries(lab)
    first = retries.first_number
    assert offsets(retries) == [0, 2]
    assert offsets(retries, first + 1) == [2]
    for _ in range(6):
        lab.turn(HELD_MS // 3)
        pull(lab)
        wait_for_retries(lab)
    assert lab.receive().messages == [], "the claims are renewed"
    retries.complete_below(first + 1, reads_all)
    lab.turn()
    assert (offsets(retries), retries.first_number) == ([2], first + 1)
    for _ in range(4):
        lab.turn(MINUTE_MS)
    assert lab.receive(1).offsets == [2], "nobody asks any more"


def test_members_with_rights_of_their_own_are_given_and_settle_what_they_read(tmp_path: Path) -> None:
    lab = GroupLab(tmp_path, queues=2)
    try:
        for queue, stream in enumerate(lab.streams):
            lab.publish([message(0)], queue)
            pull(lab, queue=queue)
            pulling(lab).send_back(stream, "g", 0, delay_ms=lambda again: 1_000, then=lambda told: None)
        lab.turn()
        retries = pulling(lab).retries("g")
        told: list[str] = []
        for stream in lab.streams:
            retries.wait([stream], functools.partial(told.append, stream))
        lab.turn(1_000)
        assert told == list(lab.streams), "who asks second does not wait for the first one's"
        given = [retries.from_number(0, 1, 1, stream.__eq__) for stream in lab.streams]
        assert [[each.stream for each in part] for part in given] == [["q0"], ["q1"]]
        retries.complete_below(retries.next_number, "q1".__eq__)
        lab.turn()
        assert [each.stream for each in retries.from_number(0, 9, 1 << 20, reads_all)] == ["q0"]
    finally:
        lab.broker.close()


def test_what_came_again_is_sent_back_with_one_attempt_more_and_given_up(lab: GroupLab) -> None:
    pull(lab)
    send_back(lab, 0)
    lab.turn(1_000)
    retries = wait_for_retries(lab)
    number = retries.first_number
    assert send_back(lab, 0) == 1
    assert retries.first_number == number + 1
    lab.turn(1_000)
    assert offsets(wait_for_retries(lab)) == [0]
    assert send_back(lab, 0, None) == 2
    lab.turn()
    stream = lab.broker.catalogue.find("%DLQ%g")
    assert stream is not None and stream.next_offset == 1


def test_numbers_rise_over_restarts(lab: GroupLab) -> None:
    pull(lab)
    before = pulling(lab).retries("g").next_number
    lab.clock.now += 1
    lab.restart()
    assert pulling(lab).retries("g").first_number > before


def test_a_queue_that_a_group_begins_to_read_is_waited_at_at_once(lab: GroupLab) -> None:
    retries = wait_for_retries(lab)
    pull(lab)
    send_back(lab, 0)
    lab.turn(1_000)
    assert offsets(retries) == [0]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("done"), st.integers(1, 12)),
        st.tuples(st.just("back"), st.integers(0, 11)),
        st.tuples(st.just("ask"), st.integers(1, 4)),
        st.tuples(st.just("settle"), st.integers(0, 3)),
        st.tuples(st.just("retry"), st.integers(0, 3)),
        st.tuples(st.just("pass"), st.sampled_from([500, 11_000, 61_000])),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


@examples(0.25)
@given(ACTIONS)
def test_every_message_is_given_until_it_is_settled_and_never_again(
    tmp_path_factory: pytest.TempPathFactory, actions
) -> None:  # type: ignore[no-untyped-def]
    lab = GroupLab(tmp_path_factory.mktemp("mixed"))
    lab.publish([message(number) for number in range(12)])
    place, settled, waiting, held = 0, set(), set(), []

    def take(found: list[int]) -> None:
        assert not settled.intersection(found)
        waiting.update(found)

    pull(lab)
    for action, number in actions:
        if action == "done" and number > place:
            done(lab, number)
            # What somebody else has, or what comes again, is not the member's that says so.
            settled |= set(range(place, number)) - waiting
            place = number
        elif action == "back" and number >= place and number not in settled:
            send_back(lab, number)
            waiting.add(number)
        elif action == "ask":
            asked = lab.receive(number)
            take(asked.offsets)
            held.append(asked)
            place = max(place, PulledQueue(lab.view()).first_unseen)
        elif action == "settle" and number < len(held):
            asked = held.pop(number)
            for offset, is_held in zip(asked.offsets, lab.settle(asked), strict=True):
                if is_held:
                    settled.add(offset)
        elif action == "retry":
            retries = wait_for_retries(lab)
            found = retries.from_number(0, 100, 1 << 20, reads_all)
            take([each.message.offset for each in found])
            for each in found[:number]:
                if PulledQueue(lab.view()).attempts(each.message.offset) == each.message.attempt:
                    settled.add(each.message.offset)
            if found[:number]:
                retries.complete_below(found[:number][-1].number + 1, reads_all)
                lab.turn()
        elif action == "pass":
            lab.turn(number)
        elif action == "restart":
            lab.restart()
            held.clear()
    # In the end everything that is not settled is given to somebody.
    for _ in range(8):
        lab.turn(3 * MINUTE_MS)
        asked = lab.receive(100)
        take(asked.offsets)
        settled |= set(asked.offsets)
        lab.settle(asked)
    assert settled == set(range(12))
    lab.broker.close()
