"""Deferred copies: received by their numbers only, settled like others, and never lost or doubled on their way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.broker import BrokerTopic, DeadLetterReason, Delivery
from headgate.broker.delivery.copies import CopyState
from headgate.broker.topics.subqueue import IDLE_MS
from headgate.errors import HeadgateError, ResourceNotFoundError
from headgate.ledger import copy_number
from headgate.message import AmqpType, AmqpValue, Message
from headgate.topic import (
    AddRule,
    ChangeSubscription,
    CreateSubscription,
    RuleDefinition,
    SubscriptionSettings,
    origin_of,
)
from log_streams import FailingFiles, Killed, killed_process, quick_folder
from topic_lab import Lab, Link

LOCK_MS = 10_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    settings = SubscriptionSettings(lock_ms=LOCK_MS, max_delivery_count=4, dead_letter_on_expiration=True)
    lab.topic(CreateSubscription("s", settings=settings), AddRule("s", RuleDefinition("All", sql="1=1")))
    yield lab
    lab.broker.close()


def topic(lab: Lab) -> BrokerTopic:
    return lab.broker.topics.get("orders")


def message(number: int, **header: AmqpValue) -> bytes:
    return Message(b"%d" % number, header=header, application_properties={"n": number}).encode()


def defer(lab: Lab, *numbers: int, **header: AmqpValue) -> Link:
    """A link whose messages with these numbers are deferred."""
    link = lab.link("orders/Subscriptions/s", want=100)
    lab.publish(*(message(number, **header) for number in range(max(numbers) + 1)))
    link.receiver.settler.defer([link.tokens[number] for number in numbers], link.answers.append)
    lab.turn()
    assert link.answers == [[True] * len(numbers)]
    return link


def ask(lab: Lab, *numbers: int, settles_first: bool = False) -> list[Delivery]:
    answers: list[list[Delivery] | HeadgateError] = []
    copies = [copy_number(number) for number in numbers]
    topic(lab).receivers.receive_deferred("s", copies, answers.append, settles_first=settles_first)
    lab.turn()
    (found,) = answers
    assert isinstance(found, list)
    return found


def settle(lab: Lab, how: str, *tokens: bytes, **more: object) -> object:
    answers: list[object] = []
    getattr(topic(lab).receivers.settler("s", deferred=True), how)(tokens, answers.append, **more)
    lab.turn()
    (answer,) = answers
    return answer


def properties(encoded: bytes) -> dict[str, object]:
    return {name: value.value for name, value in (Message.decode(encoded).application_properties or {}).items()}


def letters(lab: Lab) -> list[dict[str, object]]:
    return [properties(each.message) for each in topic(lab).browser.peek("s", 0, 10, dead_letters=True)]


def deferred(lab: Lab) -> int | None:
    return topic(lab).subscriptions.info("s").deferred


def test_a_deferred_copy_is_received_by_the_number_that_it_has(lab: Lab) -> None:
    link = defer(lab, 1, 3)
    assert ask(lab, 0) == ask(lab, 7) == []
    found = ask(lab, 3, 7, 1, 1)
    assert [(each.copy, each.attempt) for each in found] == [(copy_number(3), 2), (copy_number(1), 2)]
    assert [properties(each.message)["n"] for each in found] == [3, 1]
    assert found[0].timestamp_ms == link.deliveries[3].timestamp_ms
    assert found[0].locked_until_ms == lab.clock.now + LOCK_MS
    assert ask(lab, 1, 3) == [], "somebody holds them"
    assert settle(lab, "complete", found[0].token) == [True]
    assert settle(lab, "complete", found[0].token) == [False]
    assert deferred(lab) == 1 and lab.counts("s") == (0, 2, 0, 0)


def test_tokens_of_deferred_copies_settle_no_others(lab: Lab) -> None:
    link = defer(lab, 1)
    (found,) = ask(lab, 1)
    link.receiver.settler.complete([found.token], link.answers.append)
    lab.turn()
    assert link.answers[-1] == [False]
    assert settle(lab, "complete", link.tokens[0]) == [False]


def test_received_and_deleted_it_is_gone(lab: Lab) -> None:
    defer(lab, 0)
    (found,) = ask(lab, 0, settles_first=True)
    assert found.token == b"" and ask(lab, 0) == [] and deferred(lab) == 0
    assert topic(lab).browser.peek("s", 0, 10) == []


def test_what_comes_back_stays_deferred_and_counts(lab: Lab) -> None:
    defer(lab, 0)
    (first,) = ask(lab, 0)
    assert settle(lab, "release", first.token, counts=True, properties={"n": 7, "more": "a"}) == [True]
    (second,) = ask(lab, 0)
    assert (second.attempt, properties(second.message)) == (3, {"n": 7, "more": "a"})
    lab.turn(LOCK_MS)
    assert settle(lab, "renew", second.token) == [False]
    (third,) = ask(lab, 0)
    assert third.attempt == 4 and lab.counts("s")[3] == 0
    lab.restart()
    lab.turn(LOCK_MS - 1)
    assert settle(lab, "renew", third.token) == [True]
    lab.turn(LOCK_MS - 1)
    assert settle(lab, "defer", third.token, properties={"more": "b"}) == [True]
    (fourth,) = ask(lab, 0)
    assert (fourth.attempt, properties(fourth.message)) == (5, {"n": 7, "more": "b"})
    # The fifth attempt of four.
    assert settle(lab, "release", fourth.token, counts=True) == [True]
    assert ask(lab, 0) == [] and deferred(lab) == 0
    (letter,) = letters(lab)
    assert letter["DeadLetterReason"] == "MaxDeliveryCountExceeded" and letter["more"] == "b"


def test_a_lock_that_ends_too_often_makes_a_dead_letter(lab: Lab) -> None:
    defer(lab, 0)
    for _ in range(3):
        assert len(ask(lab, 0)) == 1
        lab.turn(LOCK_MS)
    assert ask(lab, 0) == [] and deferred(lab) == 0
    assert [letter["DeadLetterReason"] for letter in letters(lab)] == ["MaxDeliveryCountExceeded"]


def test_a_dead_letter_says_where_it_was_before(lab: Lab) -> None:
    defer(lab, 2)
    (found,) = ask(lab, 2)
    why = DeadLetterReason("why", "because", {"extra": 1})
    assert settle(lab, "dead_letter", found.token, why=why) == [True]
    (letter,) = letters(lab)
    assert letter == {"n": 2, "DeadLetterReason": "why", "DeadLetterErrorDescription": "because", "extra": 1}
    (read,) = topic(lab).browser.peek("s", 0, 10, dead_letters=True)
    annotations = Message.decode(read.message).message_annotations or {}
    assert annotations["x-headgate-copy"].value == copy_number(2)
    assert annotations["x-headgate-attempts"].value == 2
    assert annotations["x-headgate-arrived"].value == found.timestamp_ms


def test_peeking_shows_them_at_their_place(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    link = defer(lab, 3, 1)
    link.receiver.settler.release(link.tokens[:1], counts=True)
    ask(lab, 1)
    lab.turn()
    found = topic(lab).browser.peek("s", 0, 10)
    active, put_aside = CopyState.ACTIVE, CopyState.DEFERRED
    assert [(each.copy >> 20, each.state, each.attempts) for each in found] == [
        (0, active, 2), (1, put_aside, 2), (2, active, 1), (3, put_aside, 1),
    ]  # fmt: skip
    assert [each.copy >> 20 for each in topic(lab).browser.peek("s", copy_number(1), 2)] == [1, 2]
    # However little is read at once, nothing is passed over.
    monkeypatch.setattr("headgate.broker.topics.dispatcher.BYTES_A_TURN", 1)
    monkeypatch.setattr("headgate.broker.topics.deferred_copies.BYTES_A_TURN", 1)
    numbers: list[int] = []
    while part := topic(lab).browser.peek("s", copy_number(numbers[-1] + 1) if numbers else 0, 10):
        numbers += [each.copy >> 20 for each in part]
    assert numbers == [0, 1, 2, 3]


def test_a_deferred_copy_outlives_its_time_as_others_do(lab: Lab) -> None:
    defer(lab, 0, ttl=AmqpValue(AmqpType.UINT, 60_000))
    lab.turn(59_999)
    (found,) = ask(lab, 0)
    assert settle(lab, "release", found.token, counts=False) == [True]
    lab.turn(1)
    assert ask(lab, 0) == [] and deferred(lab) == 0
    assert [letter["DeadLetterReason"] for letter in letters(lab)] == ["TTLExpiredException"]


def test_properties_that_a_copy_gets_stay_with_it_to_the_end(lab: Lab) -> None:
    link = lab.link("orders/Subscriptions/s", want=1)
    lab.publish(message(0))
    link.receiver.settler.release(link.tokens, link.answers.append, counts=True, properties={"n": 1, "a": "x"})
    lab.turn()
    link.receiver.want(1)
    lab.turn()
    link.receiver.settler.release(link.tokens[-1:], counts=True, properties={"b": True})
    lab.turn()
    lab.restart()
    (peeked,) = topic(lab).browser.peek("s", 0, 1)
    assert properties(peeked.message) == {"n": 1, "a": "x", "b": True} and peeked.attempts == 2
    link = lab.link("orders/Subscriptions/s", want=1)
    assert properties(link.deliveries[0].message) == {"n": 1, "a": "x", "b": True}
    link.receiver.settler.defer(link.tokens, properties={"a": "y"})
    lab.turn()
    (found,) = ask(lab, 0)
    assert properties(found.message) == {"n": 1, "a": "y", "b": True}
    settle(lab, "dead_letter", found.token, why=DeadLetterReason(properties={"n": 2}))
    assert letters(lab) == [{"n": 2, "a": "y", "b": True}]


def test_properties_of_a_copy_with_too_many_attempts_are_in_its_dead_letter(lab: Lab) -> None:
    link = lab.link("orders/Subscriptions/s", want=1)
    lab.publish(message(0))
    for number in range(4):
        link.receiver.settler.release(link.tokens[-1:], counts=True, properties={"last": number})
        link.receiver.want(1)
        lab.turn()
    (letter,) = letters(lab)
    assert letter["last"] == 3 and lab.counts("s") == (0, 0, 0, 1)


def test_files_are_closed_when_nobody_holds_one_and_opened_again(lab: Lab) -> None:
    defer(lab, 0, 1)
    (found,) = ask(lab, 0)
    for _ in range(2):
        lab.turn(IDLE_MS // 2)
        assert settle(lab, "renew", found.token) == [True]
    settle(lab, "complete", found.token)
    lab.turn(IDLE_MS)
    lab.turn(IDLE_MS)
    assert deferred(lab) == 1
    assert [each.copy for each in ask(lab, 0, 1)] == [copy_number(1)]


def test_who_asks_of_what_is_not_there_is_told(lab: Lab) -> None:
    assert ask(lab, 0) == []
    with pytest.raises(ResourceNotFoundError):
        topic(lab).receivers.receive_deferred("no", [1], print)
    defer(lab, 0)
    lab.change(ChangeSubscription("s", settings=SubscriptionSettings(lock_ms=5_000)))
    (found,) = ask(lab, 0)
    assert found.locked_until_ms == lab.clock.now + 5_000


def scenario(lab: Lab, told: list[str]) -> None:
    """Defer, receive, give back with a property, settle in each way; `told` is what was answered."""
    link = lab.link("orders/Subscriptions/s", want=9)
    lab.publish(*map(message, range(4)))
    link.receiver.settler.defer(link.tokens, lambda _: told.append("deferred"))
    lab.turn()
    found = ask(lab, 0, 1, 2)
    told.append("received")
    ways: list[tuple[str, dict[str, object]]] = [
        ("complete", {}),
        ("dead_letter", {"why": DeadLetterReason("R")}),
        ("release", {"counts": True, "properties": {"n": 7}}),
    ]
    for delivery, (how, more) in zip(found, ways, strict=True):
        settle(lab, how, delivery.token, **more)
        told.append(how)


@pytest.mark.slow
def test_a_broker_that_dies_at_any_byte_keeps_what_was_told_and_each_copy_once() -> None:
    with quick_folder() as name:
        root = Path(name) / "root"
        first = Lab(root)
        first.topic(CreateSubscription("s"), AddRule("s", RuleDefinition("All", sql="1=1")))
        first.broker.close()
        budget, is_done = 0, False
        while not is_done:
            copy = shutil.copytree(root, Path(name) / "copy")
            told: list[str] = []
            with killed_process():
                scenario(Lab(copy, open_file=FailingFiles(Killed(), budget=budget)), told)
                is_done = True
            # A dead process holds no locks: its files are taken as they are.
            found = shutil.copytree(copy, Path(name) / "found")
            check_what_is_left(found, told)
            for each in (copy, found):
                shutil.rmtree(each)
            budget += 61


def check_what_is_left(root: Path, told: list[str]) -> None:
    lab = Lab(root)
    lab.clock.now += 3_600_000
    for _ in range(4):
        topic(lab).subscriptions.info("s")
        lab.turn(100)
    active = {each.copy: each for each in topic(lab).browser.peek("s", 0, 10) if each.state is CopyState.ACTIVE}
    aside = {each.copy: each for each in topic(lab).browser.peek("s", 0, 10) if each.state is CopyState.DEFERRED}
    dead = [origin_of(each.message) for each in topic(lab).browser.peek("s", 0, 10, dead_letters=True)]
    numbers = [*active, *aside, *(each.copy for each in dead if each is not None)]
    assert len(numbers) == len(set(numbers)) and deferred(lab) == len(aside)
    zero, one, two, three = map(copy_number, range(4))
    if "deferred" in told:
        assert not active and three in aside and {one, two} <= set(numbers)
    if "complete" in told:
        assert zero not in numbers
    if "dead_letter" in told:
        assert one not in aside
    if "release" in told:
        assert aside[two].attempts == 2 and properties(aside[two].message)["n"] == 7
        assert [each.copy for each in ask(lab, 0, 1, 2, 3)] == [two, three]
    lab.broker.close()
