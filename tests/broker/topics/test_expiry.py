"""Copies that live for some time: what is not given out any more, and what counts say without a receiver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.message import Message
from headgate.topic import AddRule, ChangeSubscription, CreateSubscription, RuleDefinition, SubscriptionSettings
from topic_lab import BLUE, RED, RED_ONLY, Lab

DEAD = "orders/Subscriptions/red/$DeadLetterQueue"
MINUTE = SubscriptionSettings(default_time_to_live_ms=60_000)
KEPT = SubscriptionSettings(default_time_to_live_ms=60_000, dead_letter_on_expiration=True)


def red(ttl: int | None) -> bytes:
    return Message(b"b", header={} if ttl is None else {"ttl": ttl}, application_properties={"color": "red"}).encode()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.broker.close()


def test_a_copy_is_given_out_in_its_lifetime_only(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    long_header = Message(b"b", durable=True, ttl=500, delivery_count=3, application_properties={"color": "red"})
    lab.publish(red(1_000), red(None), red(0), long_header.encode(), red(5_000))
    lab.turn(after_ms=999)
    link = lab.link(want=1)
    assert link.offsets == [0]
    lab.turn(after_ms=1)
    link.receiver.settler.release(link.tokens, counts=True)
    link.receiver.want(10)
    lab.turn()
    assert link.offsets == [0, 1, 2, 4]
    assert lab.counts() == (0, 3, 0, 0)
    lab.restart()
    assert lab.counts() == (0, 3, 0, 0)


def test_many_copies_are_looked_at_together_as_each_alone(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    wide = Message(b"b", durable=True, ttl=500, delivery_count=3, application_properties={"color": "red"}).encode()
    with_priority = Message(b"b", header={"priority": 7, "ttl": 500}, application_properties={"color": "red"}).encode()
    headers = [red(None), red(500), red(0), RED, wide, with_priority, red(70_000), red(200), red(None)]
    lab.publish(*headers * 2)
    lab.turn(after_ms=500)
    assert lab.link(want=20).offsets == [0, 2, 3, 6, 8, 9, 11, 12, 15, 17]


def test_the_shorter_lifetime_counts_and_the_settings_of_the_moment_do(lab: Lab) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=MINUTE))
    lab.publish(red(70_000), red(50_000))
    lab.turn(after_ms=55_000)
    assert lab.link(want=1).offsets == [0]
    lab.publish(red(None))
    lab.change(ChangeSubscription("red", settings=SubscriptionSettings()))
    lab.turn(after_ms=60_000)
    assert lab.link(want=10).offsets == [2]


@pytest.mark.parametrize("is_read", [False, True])
def test_who_outlived_becomes_a_dead_letter_where_that_is_asked_for(lab: Lab, is_read: bool) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=KEPT))
    lab.publish(RED, BLUE, red(1_000))
    lab.turn(after_ms=59_000 if is_read else 60_000)
    if is_read:
        lab.clock.now += 1_000
        assert lab.link(want=10).offsets == []
        lab.turn()
    assert lab.counts() == (0, 0, 0, 2)
    dead = lab.link(DEAD, want=10)
    # Dead letters live on.
    assert len(dead.deliveries) == 2
    properties = Message.decode(dead.deliveries[1].message).application_properties
    assert properties is not None and properties["DeadLetterReason"].value == "TTLExpiredException"
    lab.restart()
    assert lab.counts() == (0, 0, 0, 2)


@pytest.mark.parametrize("settings", [MINUTE, KEPT])
def test_counts_become_right_without_a_receiver(
    lab: Lab, settings: SubscriptionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.broker.topics.dispatcher.COPIES_A_TURN", 2)
    act = AddRule("red", RuleDefinition("Act", sql="color = 'red'", action="SET n = 1"))
    lab.topic(*RED_ONLY, act, ChangeSubscription("red", settings=settings), CreateSubscription("all"))
    lab.change(AddRule("all", RuleDefinition("All", sql="1=1")))
    lab.publish(*[RED] * 5)
    held = lab.link(want=1)
    given_back = lab.link(want=2)
    given_back.receiver.want(0)
    given_back.receiver.settler.release(given_back.tokens, counts=False)
    given_back.receiver.close()
    held.receiver.settler.renew(held.tokens)
    lab.turn(after_ms=30_000)
    held.receiver.settler.renew(held.tokens)
    lab.publish(RED)
    lab.turn(after_ms=29_999)
    assert lab.counts() == (11, 1, 0, 0)
    lab.turn(after_ms=1_000)
    dead = 9 if settings is KEPT else 0
    # One is with its receiver, those of the last message are young.
    assert lab.counts() == (2, 1, 0, dead)
    assert lab.broker.topics.get("orders").subscriptions.info("red").counters.outlived == 9
    lab.restart()
    lab.broker.topics.get("orders")
    lab.turn()
    assert lab.counts() == (2, 1, 0, dead)
    assert lab.counts("all")[0] == 6
    lab.turn(after_ms=60_000)
    assert lab.counts() == (0, 0, 0, dead and 12)
