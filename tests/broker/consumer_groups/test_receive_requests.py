"""Members of consumer groups: what they are given, how often, and what settles it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from body_schemas import order_body, order_schema
from group_lab import INVISIBLE_MS, GroupLab, message
from headgate.broker import Permission
from headgate.broker.consumer_groups import GroupSettings, PulledQueue, Received, ReceiveRequest
from headgate.broker.message_topics import MessageKind, MessageTopic
from headgate.broker.settings import BrokerSettings
from headgate.errors import AccessRefusedError, ResourceNotFoundError
from headgate.evaluate import Filter
from headgate.message import Message


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


@pytest.mark.parametrize(("color", "given"), [("red", [3, 4]), ("blue", [])])
def test_a_request_whose_time_is_over_is_given_what_a_worker_finds(
    lab: GroupLab, monkeypatch: pytest.MonkeyPatch, color: str, given: list[int]
) -> None:
    monkeypatch.setattr("headgate.broker.consumers.MessageConsumer.is_small", lambda self, scan: False)
    lab.publish([*numbers(0, 3), *[message(number, color="red") for number in (3, 4)]])
    worker = lab.restart_to_disk()
    asked, left = (lab.ask(only=Filter.parse(f"color = '{color}'", "servicebus"), turns=False) for _ in range(2))
    left.receiving.end(at_once=True)
    asked.receiving.end()
    lab.turn()
    assert left.messages == []
    assert worker.jobs and not asked.answers
    while worker.jobs:
        worker.run_one()
        # Its time is over once more before the turn that gives it what was found.
        asked.receiving.end()
        lab.turn()
    assert asked.offsets == given
    assert asked.answer.was_filtered == (not given)


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


def test_a_claim_that_ended_does_not_come_back_with_an_earlier_time(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    lab.ask(1, invisible_ms=1_000)
    lab.turn(1_000)
    lab.clock.now -= 100_000
    PulledQueue(lab.view()).complete_below(0)
    lab.turn()
    assert lab.view().counts().claimed == 0
    # Nobody uses the ledger: it would be closed, and opened again.
    lab.turn(20_000)
    assert lab.view().counts().claimed == 0


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
    assert lab.view().counts().lag == 0, "nobody had to ask for it"
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


def test_queues_take_turns(tmp_path: Path) -> None:
    lab = GroupLab(tmp_path, queues=3)
    for queue in range(3):
        lab.publish(numbers(0, 40), queue=queue)
    assert [lab.ask(5).places[0][0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    some = lab.ask(64)
    assert [sum(queue == own for queue, _ in some.places) for own in range(3)] == [30, 30, 4], "several fill one answer"
    lab.broker.close()


def test_the_filter_of_who_waits_longest_counts_first(lab: GroupLab) -> None:
    """What the filter of who waits longest is not true for is consumed."""
    odd, even = (Filter.parse(f"n = {first} OR n = {first + 2}", "servicebus") for first in (1, 2))
    first, second = lab.ask(1, only=odd), lab.ask(1, only=even)
    lab.publish(numbers(0, 5))
    assert first.offsets == [1]
    assert second.offsets == [4]


def test_what_comes_again_has_a_filter_of_its_own(lab: GroupLab) -> None:
    lab.publish(numbers(0, 4))
    lab.ask(4)
    lab.turn(INVISIBLE_MS)
    never = Filter.parse("n > 100", "servicebus")
    only_two = Filter.parse("n = 2", "servicebus")
    assert lab.ask(1, only=never, again=only_two).offsets == [2]
    lab.turn(INVISIBLE_MS)
    assert lab.receive(again=never).messages == []
    assert lab.view().counts().lag == 0, "what is not wanted again is consumed"


def test_filters_decode_bodies_of_a_declared_schema_also_for_what_comes_again(tmp_path: Path) -> None:
    lab = GroupLab(tmp_path, body_schema=order_schema().text)
    lab.publish([Message(order_body(id=number)).encode() for number in (7, 8, 9)])
    assert lab.ask(only=Filter.parse("body.id > 7")).places == [(0, 1), (0, 2)]
    lab.turn(INVISIBLE_MS)
    assert lab.ask(again=Filter.parse("body.id = 9")).places == [(0, 2)]
    lab.broker.close()


def test_a_message_comes_again_when_its_invisible_time_is_changed(lab: GroupLab) -> None:
    lab.publish(numbers(0, 2))
    asked = lab.ask(2)
    lab.view().change_invisible(asked.tokens[:1], 0)
    lab.view().change_invisible(asked.tokens[1:], 1_000)
    again = lab.ask(5)
    assert (again.offsets, again.attempts) == ([0], [2])
    lab.turn(1_000)
    assert lab.receive(5).offsets == [1]


def test_a_message_that_is_claimed_again_has_another_token_and_no_attempt_more(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    asked = lab.ask(2)
    told: list[object] = []
    again = lab.view().claim_again(asked.tokens, 90_000, told.append)
    assert again != asked.tokens and not told, "its commit is not done"
    lab.turn()
    lab.restart()
    lab.view().complete(asked.tokens, told.append)
    lab.turn(INVISIBLE_MS)
    waits = lab.ask(1)
    assert told == [[True], [False]] and not waits.answers
    lab.view().change_invisible(again, 0)
    lab.turn()
    assert (waits.offsets, waits.attempts) == ([0], [2])
    assert lab.view().claim_again(again, 5_000, told.append) == again
    lab.turn()
    assert told[2:] == [[False]]


def test_what_is_taken_back_was_not_given(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(fifo=True, max_attempts=1))
    lab.publish([message(number, group="a") for number in range(3)])
    first = lab.ask(2)
    lab.view().complete(first.tokens[:1])
    lab.view().take_back(first.tokens)
    lab.turn()
    again = lab.ask(5)
    assert (again.offsets, again.attempts) == ([1, 2], [1, 1])


def test_few_messages_wait_behind_others_of_their_message_group(lab: GroupLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.broker.consumer_groups.group_view.LOOK_AHEAD", 4)
    lab.declare("g", GroupSettings(fifo=True))
    lab.publish([message(number, group="a") for number in range(8)] + [message(8, group="b")])
    first = lab.ask(1)
    assert first.offsets == [0]
    waits = lab.ask(1)
    assert not waits.answers, "the other message group lies too far behind"
    assert lab.view().counts().available <= 4
    lab.restart()
    waits = lab.ask(32)
    assert not waits.answers
    lab.settle(first)
    assert waits.offsets == [1, 2, 3, 4]
    lab.settle(waits)
    assert lab.ask(32).offsets == [5, 6, 7, 8]


def test_a_message_group_is_held_until_all_that_was_given_of_it_is_settled(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(fifo=True))
    lab.publish([message(number, group="a") for number in range(4)])
    first = lab.ask(3)
    assert first.offsets == [0, 1, 2]
    waits = lab.ask(3)
    lab.view().complete(first.tokens[1:])
    lab.turn()
    assert not waits.answers
    lab.view().change_invisible(first.tokens[:1], 0)
    lab.turn()
    assert (waits.offsets, waits.attempts) == ([0, 3], [2, 1])


def test_fewer_attempts_count_for_what_comes_again(lab: GroupLab) -> None:
    lab.publish(numbers(0, 2))
    lab.ask(1)
    lab.turn(INVISIBLE_MS)
    lab.declare("g", GroupSettings(max_attempts=1))
    assert lab.ask(5).offsets == [1]
    lab.turn()
    assert lab.receive(streams=["%DLQ%g"], group="undertaker").offsets == [0]


def test_messages_without_a_message_group_are_one(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(fifo=True))
    lab.publish([message(0), message(1), message(2, group="b")])
    assert lab.ask(1).offsets == [0]
    assert lab.ask(5).offsets == [2]


def test_a_message_that_was_given_back_holds_up_its_message_group(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(fifo=True))
    lab.publish([message(number, group="a") for number in range(3)])
    PulledQueue(lab.view()).send_back(1, 5_000, lambda _result: None)
    lab.turn()
    waits = lab.ask(5)
    assert not waits.answers
    lab.turn(5_000)
    assert waits.offsets == [0, 1, 2]
    assert waits.attempts == [1, 2, 1]


def test_a_dead_letter_says_where_it_comes_from(lab: GroupLab) -> None:
    lab.publish([message(0, group="a", n=1)])
    lab.view().dead_letter(lab.ask(1).tokens)
    lab.turn()
    (letter,) = lab.ask(1, streams=["%DLQ%g"], group="undertaker").messages
    found = Message.decode(letter.message)
    assert found.properties is not None and found.message_annotations is not None
    assert found.properties["group-id"].value == "a"
    assert found.message_annotations["x-opt-deadletter-source"].value == "q0"
    assert found.message_annotations["x-headgate-attempts"].value == 1


def test_a_dead_letter_that_dies_again_says_where_it_began(lab: GroupLab) -> None:
    def annotations(octets: bytes) -> dict[str, str]:
        found = Message.decode(octets).message_annotations
        assert found is not None
        prefix = "x-opt-rocketmq-"
        return {name.removeprefix(prefix): each.value for name, each in found.items() if name.startswith(prefix)}

    lab.broker.close()
    lab.settings = BrokerSettings(
        message_ids=lambda data, stream, identity, offset: (f"{stream} {offset}", f"{identity} {len(data)}")
    )
    lab.opened()
    killed = [Message(b"x", message_id="id").encode(), b"no message"]
    lab.publish([message(0), *killed])
    lab.view().dead_letter(lab.ask(3).tokens[1:])
    lab.turn()
    dead = lab.ask(5, streams=["%DLQ%g"], group="undertaker")
    first, broken = map(annotations, [each.message for each in dead.messages])
    said = {"RETRY_TOPIC": "q0", "WAIT": "false", "DELAY": "0", "RECONSUME_TIME": "1", "DLQ_ORIGIN_TOPIC": "q0"}
    seen = [f"{lab.broker.catalogue.get('q0').stream.identity} {len(each)}" for each in killed]
    assert first == {**said, "ORIGIN_MESSAGE_ID": "q0 1", "DLQ_ORIGIN_MESSAGE_ID": seen[0]}
    assert broken == {**said, "ORIGIN_MESSAGE_ID": "q0 2", "DLQ_ORIGIN_MESSAGE_ID": seen[1]}
    lab.broker.consumer_groups.view("%DLQ%g", "undertaker").dead_letter(dead.tokens[:1])
    lab.turn()
    (last,) = lab.ask(1, streams=["%DLQ%undertaker"], group="mourner").messages
    seen_there = f"{lab.broker.catalogue.get('%DLQ%g').stream.identity} {len(dead.messages[0].message)}"
    then = {"DLQ_ORIGIN_TOPIC": "%DLQ%g", "DLQ_ORIGIN_MESSAGE_ID": seen_there}
    assert annotations(last.message) == {**first, **then}


def test_a_session_receives_and_settles_with_permission_on_the_topic(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    topic = MessageTopic("q0", ("q0",), frozenset({MessageKind.NORMAL}))
    answers: list[object] = []
    request = ReceiveRequest("g", ["q0"], None, None, 5, INVISIBLE_MS, answers.append)
    lab.session.receive_from(topic, request)
    lab.turn()
    assert isinstance(answers[0], Received)
    lab.session.group_view(topic, 0, "g").complete([each.token for each in answers[0].messages], answers.append)
    lab.turn()
    assert answers[1] == [True]
    with pytest.raises(ResourceNotFoundError):
        lab.session.group_view(topic, 1, "g")
    request.streams = ["other"]
    with pytest.raises(ResourceNotFoundError):
        lab.session.receive_from(topic, request)
    waits = lab.session.receive_from(topic, ReceiveRequest("g", ["q0"], None, None, 5, INVISIBLE_MS, answers.append))
    lab.session.close()
    assert waits.is_done and len(answers) == 2

    def refuse(permission: Permission, resource: str) -> None:
        raise AccessRefusedError("no", subject=resource)

    stranger = lab.broker.open_session("guest", protocol="test", connection="c", check=refuse)
    for call in (lambda: stranger.receive_from(topic, request), lambda: stranger.group_view(topic, 0, "g")):
        with pytest.raises(AccessRefusedError):
            call()
