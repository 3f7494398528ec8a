"""Subscriptions that nobody uses: when they go, and what keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.broker import DeadLetterReason
from headgate.errors import ResourceNotFoundError
from headgate.log import Stream, Writer, stream_folder
from headgate.topic import AddRule, ChangeSubscription, CreateSubscription, RuleDefinition, SubscriptionSettings
from topic_lab import RED, RED_ONLY, Lab

MINUTE = SubscriptionSettings(auto_delete_on_idle_ms=60_000)
IDLE = (*RED_ONLY, ChangeSubscription("red", settings=MINUTE))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.broker.close()


def names(lab: Lab) -> list[str]:
    return [each.name for each in lab.broker.topics.get("orders").subscriptions.infos()]


def test_who_is_idle_for_its_time_goes_and_others_stay(lab: Lab) -> None:
    lab.topic(*IDLE, CreateSubscription("kept"), AddRule("kept", RuleDefinition("All", sql="1=1")))
    lab.publish(RED)
    lab.pass_time(59_000)
    assert names(lab) == ["red", "kept"]
    lab.pass_time(2_000)
    assert names(lab) == ["kept"]
    with pytest.raises(ResourceNotFoundError):
        lab.link()
    lab.restart()
    assert names(lab) == ["kept"]


def use(lab: Lab, how: str) -> None:
    topic = lab.broker.topics.get("orders")
    if how == "peek":
        topic.browser.peek("red", 0, 1)
    elif how == "purge":
        topic.receivers.purge("red", lambda _: None)
    elif how == "receive":
        lab.link(want=1).receiver.close()
    elif how == "change":
        lab.change(ChangeSubscription("red", settings=SubscriptionSettings(auto_delete_on_idle_ms=60_001)))
    elif how == "restart":
        lab.restart()
        lab.broker.topics.get("orders")
    lab.turn()


@pytest.mark.parametrize("how", ["peek", "purge", "receive", "change", "restart"])
def test_the_time_begins_anew_with_every_use(lab: Lab, how: str) -> None:
    lab.topic(*IDLE)
    lab.publish(RED)
    lab.pass_time(50_000)
    use(lab, how)
    lab.pass_time(59_000)
    assert names(lab) == ["red"]
    lab.pass_time(2_000)
    assert names(lab) == []


def test_settling_without_a_receiver_is_a_use(lab: Lab) -> None:
    lab.topic(*IDLE)
    lab.publish(RED)
    link = lab.link(want=1)
    link.receiver.close()
    lab.pass_time(50_000)
    link.receiver.settler.complete(link.tokens)
    lab.pass_time(50_000)
    assert names(lab) == ["red"]


@pytest.mark.parametrize("name", ["orders/Subscriptions/red", "orders/Subscriptions/red/$DeadLetterQueue"])
def test_a_receiver_that_is_given_nothing_keeps_it(lab: Lab, name: str) -> None:
    lab.topic(*IDLE)
    lab.publish(RED)
    link = lab.link(want=1)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason())
    lab.turn()
    waiting = lab.link(name)
    link.receiver.close()
    for _ in range(3):
        lab.pass_time(50_000)
    assert names(lab) == ["red"]
    waiting.receiver.close()
    lab.pass_time(50_000)
    assert names(lab) == ["red"]
    lab.pass_time(12_000)
    assert names(lab) == []


def test_one_that_forwards_is_not_idle(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.topic(CreateSubscription("on", forward_to="paid", settings=MINUTE))
    for _ in range(3):
        lab.pass_time(50_000)
    assert names(lab) == ["on"]


def test_it_goes_later_where_another_process_writes_the_stream(lab: Lab) -> None:
    lab.topic(*IDLE)
    lab.pass_time(20_000)
    lab.pass_time(20_000)
    lab.pass_time(19_000)
    with Writer.open(Stream.open(stream_folder(lab.root, "orders")), now_ms=0):
        for _ in range(3):
            lab.pass_time(1_000)
        assert names(lab) == ["red"]
    lab.pass_time(1_000)
    assert names(lab) == []


def test_a_clock_that_jumps_forward_removes_nothing(lab: Lab) -> None:
    lab.topic(*IDLE)
    lab.turn(after_ms=1_000)
    for _ in range(3):
        lab.turn(after_ms=3_600_000)
    lab.pass_time(50_000)
    assert names(lab) == ["red"]
    lab.pass_time(8_000)
    assert names(lab) == []
