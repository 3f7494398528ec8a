"""Topics in the broker: what receivers are given, what settling does, and what a restart finds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import Background, publish, stored
from headgate.broker import DeadLetterReason
from headgate.broker.topics.subqueue import IDLE_MS
from headgate.errors import PreconditionFailedError, ResourceNotFoundError, StreamFullError
from headgate.ledger import offset_of, rule_of
from headgate.log import Pin, Stream, read_pin, stream_folder
from headgate.message import Message
from headgate.topic import (
    AddRule,
    ChangeLimits,
    ChangeSubscription,
    CreateSubscription,
    RemoveRule,
    RemoveSubscription,
    ReplaceRule,
    RuleDefinition,
    SubscriptionSettings,
    TopicLimits,
    dead_letters_folder,
    postings_folder,
)
from topic_lab import BLUE, NO_MESSAGE, RED, RED_ONLY, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.broker.close()


def test_a_receiver_gets_the_copies_of_its_subscription_and_no_more_than_it_wants(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=2)
    lab.publish(RED, BLUE, RED, RED)
    assert link.offsets == [0, 2]
    assert [each.message for each in link.deliveries] == [RED, RED]
    assert lab.counts() == (1, 2, 0, 0)
    link.receiver.settler.complete(link.tokens, link.answers.append)
    link.receiver.want(5)
    assert link.answers == []
    lab.turn()
    assert link.answers == [[True, True]]
    assert link.offsets == [0, 2, 3]
    assert lab.counts() == (0, 1, 0, 0)


def test_actions_change_the_copy_and_rules_with_them_give_copies_of_their_own(lab: Lab) -> None:
    act = AddRule("red", RuleDefinition("Act", sql="color = 'red'", action="SET color = 'pink'"))
    lab.topic(*RED_ONLY, act)
    link = lab.link(want=10)
    lab.publish(BLUE, RED)
    assert [(offset_of(each.copy), rule_of(each.copy)) for each in link.deliveries] == [(1, 0), (1, 2)]
    changed = Message.decode(link.deliveries[1].message)
    assert changed.application_properties is not None
    assert changed.application_properties["color"].value == "pink"
    assert changed.application_properties["RuleName"].value == "Act"


def test_a_topic_says_how_many_bodies_its_rules_cannot_look_into(lab: Lab) -> None:
    rule = RuleDefinition("Large", sql="body.total > 100", dialect="amqp")
    lab.topic(*RED_ONLY, AddRule("red", rule))
    for body in (b'{"total": 200}', b"total: 200", b"\0\1"):
        lab.publish(Message(body).encode())
        lab.turn()
    counters = lab.broker.topics.get("orders").counters
    assert (counters.messages_decided, counters.bodies_sampled, counters.bodies_unreadable) == (3, 3, 2)


def test_receivers_of_one_subscription_share_its_copies(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    links = [lab.link(want=want) for want in (10, 2, 10)]
    lab.publish(*[RED] * 10)
    assert sorted(offset for link in links for offset in link.offsets) == list(range(10))
    assert len(links[1].offsets) == 2
    assert all(link.offsets == sorted(link.offsets) for link in links)


def test_what_is_completed_does_not_come_back_and_what_is_not_does(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED, RED, RED)
    link.receiver.settler.complete(link.tokens[1:2])
    lab.turn()
    lab.restart()
    again = lab.link(want=10)
    assert again.offsets == []
    lab.turn(after_ms=60_000)
    assert again.offsets == [0, 2]
    assert [each.attempt for each in again.deliveries] == [2, 2]
    again.receiver.settler.complete(link.tokens[:1], again.answers.append)
    lab.turn()
    assert again.answers == [[False]]


def test_a_token_settles_after_a_restart(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED)
    lab.restart()
    again = lab.link(want=10)
    again.receiver.settler.complete(link.tokens, again.answers.append)
    lab.turn(after_ms=60_000)
    assert again.answers == [[True]]
    assert again.offsets == []


def test_released_copies_come_back_and_those_of_a_closed_receiver_wait_for_their_time(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=2)
    lab.publish(RED, RED)
    link.receiver.settler.release(link.tokens[:1], counts=False)
    link.receiver.close()
    other = lab.link(want=5)
    assert other.offsets == [0]
    assert other.deliveries[0].attempt == 1
    lab.turn(after_ms=60_000)
    assert other.offsets == [0, 0, 1] or other.offsets == [0, 1, 0]


def test_deliveries_and_answers_wait_for_the_device_and_the_loop_does_not(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED, RED)
    worker = lab.restart_to_disk()
    link = lab.link(want=3)
    assert link.offsets == []
    worker.run_one()
    assert link.offsets == [0, 1, 2]
    for token in link.tokens:
        link.receiver.settler.complete([token], link.answers.append)
        lab.turn()
    assert link.answers == [] and len(worker.jobs) == 1
    worker.run_one()
    lab.turn()
    assert link.answers == [[True]] and len(worker.jobs) == 1
    lab.broker.close()
    assert link.answers == [[True]] * 3
    worker.run_one()
    lab.worker = None
    lab.opened()
    assert lab.counts() == (0, 0, 0, 0)


def test_what_came_while_nobody_wanted_it_is_given_to_who_asks(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=2)
    lab.publish(RED)
    link.receiver.want(0)
    lab.publish(RED)
    link.receiver.want(1)
    lab.turn()
    assert link.offsets == [0, 1]
    link.receiver.want(5)
    lab.turn()
    link.receiver.close()
    lab.turn(after_ms=60_000)
    assert lab.link(want=5).offsets == [0, 1]


def test_backoff_delays_what_failed(lab: Lab) -> None:
    settings = SubscriptionSettings(backoff_ms=(1_000, 5_000))
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=settings))
    link = lab.link(want=10)
    lab.publish(RED)
    for wait_ms in (1_000, 5_000, 5_000):
        link.receiver.settler.release(link.tokens[-1:], counts=True)
        before = len(link.offsets)
        lab.turn()
        assert lab.counts() == (0, 0, 1, 0)
        lab.turn(after_ms=wait_ms - 1)
        assert len(link.offsets) == before
        lab.turn(after_ms=1)
        assert len(link.offsets) == before + 1


@pytest.mark.parametrize("by", ["release", "expiry"])
def test_too_many_attempts_make_a_dead_letter(lab: Lab, by: str) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(max_delivery_count=2)))
    link = lab.link(want=10)
    lab.publish(RED)
    for _ in range(2):
        if by == "release":
            link.receiver.settler.release(link.tokens[-1:], counts=True)
            lab.turn()
        else:
            lab.turn(after_ms=60_000)
    assert len(link.deliveries) == 2
    assert lab.counts() == (0, 0, 0, 1)
    dead = lab.link("orders/Subscriptions/red/$DeadLetterQueue", want=10)
    (letter,) = dead.deliveries
    properties = Message.decode(letter.message).application_properties
    assert properties is not None and properties["DeadLetterReason"].value == "MaxDeliveryCountExceeded"


def test_dead_letters_keep_number_and_reason_and_are_settled_on_their_own(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(BLUE, RED, RED)
    why = DeadLetterReason("NoStock", "sold out", {"shop": 7})
    link.receiver.settler.dead_letter(link.tokens[1:], link.answers.append, why=why)
    lab.turn()
    assert link.answers == [[True]]
    assert lab.counts() == (0, 1, 0, 1)
    dead = lab.link("orders/Subscriptions/RED/$deadletterqueue", want=10)
    (letter,) = dead.deliveries
    message = Message.decode(letter.message)
    assert message.application_properties is not None and message.message_annotations is not None
    shown = {name: value.value for name, value in message.application_properties.items()}
    assert shown == {"color": "red", "DeadLetterReason": "NoStock", "DeadLetterErrorDescription": "sold out", "shop": 7}
    assert message.message_annotations["x-headgate-copy"].value == link.deliveries[1].copy
    assert message.message_annotations["x-headgate-arrived"].value == lab.clock.now
    dead.receiver.settler.dead_letter(dead.tokens, dead.answers.append, why=why)
    dead.receiver.settler.complete(dead.tokens, dead.answers.append)
    lab.turn()
    assert isinstance(dead.answers[0], PreconditionFailedError)
    assert dead.answers[1] == [True]
    assert lab.counts() == (0, 1, 0, 0)
    lab.restart()
    assert lab.counts() == (0, 1, 0, 0)


def test_dead_letters_may_go_to_another_stream(lab: Lab) -> None:
    lab.session.declare_stream("graveyard", {})
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(forward_dead_letters_to="graveyard")))
    link = lab.link(want=10)
    lab.publish(RED)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("NoStock"))
    lab.turn()
    (letter,) = stored(lab.root, "graveyard")
    properties = Message.decode(letter).application_properties
    assert properties is not None and properties["DeadLetterReason"].value == "NoStock"
    assert lab.counts() == (0, 0, 0, 0)


def test_messages_that_rules_fail_on_become_dead_letters_without_a_receiver(lab: Lab) -> None:
    failing = AddRule("strict", RuleDefinition("Fails", sql="color > 5"))
    lab.topic(CreateSubscription("strict", dead_letter_on_errors=True), failing)
    lab.publish(NO_MESSAGE, RED)
    assert lab.counts("strict") == (0, 0, 0, 2)
    lab.restart()
    assert lab.counts("strict") == (0, 0, 0, 2)
    dead = lab.link("orders/Subscriptions/strict/$DeadLetterQueue", want=10)
    assert len(dead.deliveries) == 2
    properties = Message.decode(dead.deliveries[1].message).application_properties
    assert properties is not None and "'Fails'" in str(properties["DeadLetterErrorDescription"].value)


def test_dead_letters_are_counted_without_their_files(lab: Lab) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(max_delivery_count=1)))

    def known() -> int | None:
        return lab.broker.topics.get("orders").subscriptions.known_infos()[0].dead_lettered

    assert known() == 0
    link = lab.link(want=10)
    lab.publish(RED, RED)
    link.receiver.settler.release(link.tokens, counts=True)
    lab.turn()
    assert known() == 2
    lab.turn(after_ms=2 * IDLE_MS)
    assert known() == 2
    dead = lab.link("orders/Subscriptions/red/$DeadLetterQueue", want=1)
    dead.receiver.settler.complete(dead.tokens)
    dead.receiver.close()
    lab.turn()
    lab.turn(after_ms=2 * IDLE_MS)
    assert known() == 1
    lab.restart()
    assert known() is None
    lab.turn()
    assert known() == 1


def test_settling_first_loses_what_a_peer_does_not_read(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10, settles_first=True)
    lab.publish(RED)
    assert link.tokens == [b""]
    assert lab.counts() == (0, 0, 0, 0)


def test_a_subscription_that_has_nothing_left_needs_nothing(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, BLUE)
    assert lab.broker.topics.get("orders").subscriptions.info("red").pins == 0
    link = lab.link(want=1)
    link.receiver.settler.complete(link.tokens, link.answers.append)
    lab.publish(BLUE, BLUE)
    assert lab.broker.topics.get("orders").subscriptions.info("red").pins is None


def test_a_new_subscription_gets_what_comes_after_it(lab: Lab) -> None:
    lab.topic()
    lab.publish(RED, RED)
    lab.change(CreateSubscription("late"), AddRule("late", RuleDefinition("All", sql="1=1")))
    lab.publish(BLUE)
    assert lab.link("orders/Subscriptions/late", want=10).offsets == [2]
    assert lab.counts("late") == (0, 1, 0, 0)


def test_nothing_is_decided_for_nobody_and_postings_of_what_is_settled_are_forgotten(lab: Lab) -> None:
    lab.topic()
    lab.publish(RED, RED)
    lab.restart()
    topic = lab.broker.topics.get("orders")
    assert topic.counters.messages_decided == 0
    lab.change(*RED_ONLY)
    lab.publish(RED)
    assert lab.link(want=5).offsets == [2]


def test_what_was_for_nobody_is_not_decided_again_for_who_gets_something_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    lab.topic(*RED_ONLY)
    lab.publish(*[BLUE] * 8)
    lab.restart()
    lab.broker.topics.get("orders")
    lab.turn()
    lab.publish(RED)
    lab.turn(after_ms=1_000)
    assert lab.counts() == (1, 0, 0, 0)
    assert [offset_of(each.copy) for each in lab.broker.topics.get("orders").browser.peek("red", 0, 10)] == [8]


def test_a_rule_change_counts_for_what_is_published_behind_its_answer(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(BLUE)
    lab.change(AddRule("red", RuleDefinition("Blue", sql="color = 'blue'")))
    lab.publish(BLUE)
    assert lab.link(want=10).offsets == [1]


def test_each_rule_counts_what_it_selected_since_the_topic_was_opened(lab: Lab) -> None:
    taking = AddRule("red", RuleDefinition("All", sql="1=1"))
    acting = AddRule("red", RuleDefinition("Marked", sql="color IS NOT NULL", action="SET seen = 1"))
    lab.topic(*RED_ONLY, AddRule("red", RuleDefinition("Not blue", sql="color <> 'blue'")), acting)
    lab.publish(RED, BLUE)

    def matched() -> dict[int, int | None]:
        counts = lab.broker.topics.get("orders").rule_failures.counts("red")
        return {number: each.matched for number, each in counts.items()}

    assert matched() == {1: 1, 2: 1, 3: 2}
    lab.change(ReplaceRule("red", RuleDefinition("Not blue", sql="color = 'blue'")), RemoveRule("red", "Marked"))
    lab.publish(BLUE, BLUE)
    assert matched() == {1: 1, 2: 2}
    lab.change(taking)
    lab.publish(RED, BLUE, NO_MESSAGE)
    assert matched() == {1: None, 2: None, 4: 2}
    lab.change(RemoveRule("red", "All"))
    lab.publish(RED)
    assert matched() == {1: 2, 2: 2}
    lab.restart()
    lab.publish(BLUE)
    assert matched() == {1: 2, 2: 3}


def test_each_rule_counts_what_it_failed_for_and_says_why_it_did_last(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic(
        CreateSubscription("red"),
        AddRule("red", RuleDefinition("Halved", sql="color = 'red'", action="SET quantity = quantity / 2")),
        AddRule("red", RuleDefinition("Large", sql="quantity > 5")),
        AddRule("red", RuleDefinition("Same", correlation={"properties": {"color": "red"}})),
    )
    ten = Message(application_properties={"color": "red", "quantity": "ten"}).encode()
    lab.publish(ten, RED, ten, BLUE)

    def counted() -> dict[int, tuple[int | None, int | None, int, int | None]]:
        counts = lab.broker.topics.get("orders").rule_failures.counts("red")
        return {key: (c.matched, c.errors, c.failed_actions, c.last_failure) for key, c in counts.items()}

    def reason(name: str, offset: int) -> str:
        topic = lab.broker.topics.get("orders")
        return topic.rule_failures.reason("red", topic.history.rule("red", name), offset)

    expected = {1: (3, 0, 2, 2), 2: (0, 2, 0, 2), 3: (3, 0, 0, None)}
    assert counted() == expected
    assert "'ten'" in reason("Halved", 2) or "string" in reason("Halved", 2)
    told = [record.message for record in caplog.records if "gives no copy" in record.message]
    assert len(told) == 2 and all("'red'" in each and "'orders'" in each for each in told)
    # What a rule counted stays through changes of others, and through bytes that are no message at all.
    lab.change(AddRule("red", RuleDefinition("All", sql="1=1")))
    lab.publish(NO_MESSAGE)
    assert counted() == {1: (3, 1, 2, 4), 2: (None, None, 0, None), 3: (None, None, 0, None), 4: (0, 1, 0, 4)}
    lab.change(RemoveRule("red", "All"))
    lab.publish(NO_MESSAGE)
    assert counted()[1] == (3, 2, 2, 5)
    assert len([record for record in caplog.records if "'Halved'" in record.message]) == 1
    # Of many rules only those find errors whose subscription keeps dead letters.
    monkeypatch.setattr("headgate.topic.router.ERRORS_COUNTED", 1)
    lab.restart()
    lab.publish(ten)
    assert {key: each[1] for key, each in counted().items()} == {1: None, 2: None, 3: None}


def test_receivers_of_a_removed_subscription_end(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason())
    lab.turn()
    lab.change(RemoveSubscription("red"))
    lab.turn()
    assert isinstance(link.ends[0], ResourceNotFoundError)
    with pytest.raises(ResourceNotFoundError):
        lab.link()
    lab.change(*RED_ONLY)
    assert lab.counts() == (0, 0, 0, 0)


def test_receivers_of_a_deleted_topic_end(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.session.delete_stream("orders")
    assert isinstance(link.ends[0], ResourceNotFoundError)


def test_peeking_claims_nothing_and_purging_settles_all(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, BLUE, RED, RED)
    link = lab.link(want=1)
    topic = lab.broker.topics.get("orders")
    assert [offset_of(each.copy) for each in topic.browser.peek("red", 0, 10)] == [0, 2, 3]
    assert [offset_of(each.copy) for each in topic.browser.peek("red", link.deliveries[0].copy + 1, 1)] == [2]
    assert lab.counts() == (2, 1, 0, 0)
    purged: list[object] = []
    topic.receivers.purge("red", purged.append)
    lab.turn()
    assert purged == [3]
    assert lab.counts() == (0, 0, 0, 0)
    lab.restart()
    assert lab.counts() == (0, 0, 0, 0)


def test_forwarded_copies_are_decided_by_the_other_topic(lab: Lab) -> None:
    lab.session.create_topic("paid")
    every = AddRule("all", RuleDefinition("All", sql="1=1"))
    lab.change(CreateSubscription("all"), every, topic="paid")
    lab.topic(
        CreateSubscription("on", forward_to="paid"),
        AddRule("on", RuleDefinition("R", sql="color = 'red'", action="SET n = 1")),
    )
    lab.publish(RED, BLUE, RED)
    link = lab.link("paid/Subscriptions/all", want=10)
    assert link.offsets == [0, 1]
    properties = Message.decode(link.deliveries[0].message).application_properties
    assert properties is not None and properties["n"].value == 1
    assert lab.counts("on") == (0, 0, 0, 0)
    with pytest.raises(PreconditionFailedError, match="forwards to 'paid'"):
        lab.link("orders/Subscriptions/on")


def test_retention_knows_what_is_needed_and_a_full_topic_takes_messages_again_when_it_is_settled(lab: Lab) -> None:
    small = ChangeLimits(TopicLimits(unsettled_bytes=1))
    lab.topic(*RED_ONLY, small)
    link = lab.link(want=10)
    publisher = lab.session.publisher("orders")
    lab.turn()
    assert read_pin(stream_folder(lab.root, "orders")) == Pin(0, 1)
    assert publish(lab.broker, publisher, [RED]) is None
    assert isinstance(publish(lab.broker, publisher, [RED]), StreamFullError)
    lab.turn()
    link.receiver.settler.complete(link.tokens)
    lab.turn(after_ms=1_000)
    lab.turn(after_ms=1_000)
    assert read_pin(stream_folder(lab.root, "orders")) == Pin(1, 1)
    assert publish(lab.broker, publisher, [RED]) is None
    lab.turn()
    assert link.offsets == [0, 1]


def test_the_pin_is_what_the_slowest_subscription_needs(lab: Lab) -> None:
    lab.topic(*RED_ONLY, CreateSubscription("blue"), AddRule("blue", RuleDefinition("B", sql="color = 'blue'")))
    lab.publish(BLUE, RED, BLUE, RED)
    topic = lab.broker.topics.get("orders")
    assert topic.pin == 0
    blue, red = lab.link("orders/Subscriptions/blue", want=10), lab.link(want=10)
    blue.receiver.settler.complete(blue.tokens)
    lab.turn()
    assert topic.pin == 1
    red.receiver.settler.complete(red.tokens)
    lab.turn()
    assert topic.pin == 4


def test_purging_what_is_empty_settles_nothing(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    purged: list[object] = []
    lab.broker.topics.get("orders").receivers.purge("red", purged.append)
    lab.turn()
    assert purged == [0]


def deleted(lab: Lab, limit: int, *, before_ms: int | None = None, dead_letters: bool = False) -> object:
    answers: list[object] = []
    topic = lab.broker.topics.get("orders")
    topic.receivers.delete("red", limit, answers.append, before_ms=before_ms, dead_letters=dead_letters)
    assert not answers
    lab.turn()
    return answers[0]


def test_the_oldest_copies_that_nobody_has_are_deleted(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, BLUE, RED)
    before_ms = lab.clock.now + 1_000
    link = lab.link(want=1)
    lab.turn(1_000)
    lab.publish(RED, BLUE, *[RED] * 3)
    assert deleted(lab, 4, before_ms=before_ms) == 1 and deleted(lab, 4, before_ms=before_ms) == 0
    assert lab.counts() == (4, 1, 0, 0)
    assert deleted(lab, 2) == 2
    lab.restart()
    lab.broker.topics.get("orders")
    lab.turn()
    assert [offset_of(each.copy) for each in lab.broker.topics.get("orders").browser.peek("red", 0, 9)] == [0, 6, 7]
    assert lab.counts() == (2, 1, 0, 0)
    assert deleted(lab, 4_000) == 2 and deleted(lab, 4_000) == 0
    again = lab.link()
    again.receiver.settler.complete(link.tokens, again.answers.append)
    lab.turn()
    assert again.answers == [[True]] and lab.counts() == (0, 0, 0, 0)


def test_dead_letters_are_deleted_by_the_time_at_which_their_messages_came(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED)
    lab.turn(1_000)
    lab.publish(RED, RED)
    link.receiver.settler.dead_letter([link.tokens[place] for place in (1, 0, 2)], why=DeadLetterReason())
    lab.turn(5_000)
    begin_ms = link.deliveries[0].timestamp_ms
    assert deleted(lab, 10, before_ms=begin_ms, dead_letters=True) == 0
    assert deleted(lab, 10, before_ms=begin_ms + 1, dead_letters=True) == 1
    assert lab.counts()[3] == 2
    assert deleted(lab, 1, dead_letters=True) == 1 and deleted(lab, 9, dead_letters=True) == 1
    assert lab.counts()[3] == 0


@pytest.mark.parametrize("is_idle_first", [False, True])
def test_files_of_dead_letters_that_are_settled_go(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, *, is_idle_first: bool
) -> None:
    monkeypatch.setattr("headgate.broker.topics.subqueue._SEGMENT_BYTES", 1_000)
    lab.topic(*RED_ONLY)
    link = lab.link(want=20)
    for _ in range(6):
        lab.publish(RED)
        link.receiver.settler.dead_letter(link.tokens[-1:], why=DeadLetterReason("x" * 900))
        lab.turn()
    if is_idle_first:
        lab.turn(IDLE_MS)
    folder = dead_letters_folder(lab.broker.topics.get("orders").stream.stream, 1)
    assert len(list(folder.glob("*.segment"))) > 3
    dead = lab.link("orders/Subscriptions/red/$DeadLetterQueue", want=9)
    dead.receiver.settler.complete(dead.tokens[:4])
    dead.receiver.close()
    # Its files are used until the locks of the others end.
    for _ in range(8):
        lab.turn(IDLE_MS)
    assert len(list(folder.glob("*.segment"))) == 2
    assert len(lab.broker.topics.get("orders").browser.peek("red", 0, 9, dead_letters=True)) == 2


def test_a_worker_decides_fewer_messages_at_once_while_that_takes_long(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(*[RED] * 40_000)
    worker = lab.worker = Background()
    lab.broker.close()
    shutil.rmtree(postings_folder(Stream.open(stream_folder(lab.root, "orders"))))
    lab.opened()
    decider = lab.broker.topics.get("orders")._topic_decider
    decider.decide(lab.clock.now, has_new_rules=False)
    steps: list[int] = []
    for took_ms in (1_000, 1_000, 1_000, 100, 10, 10):
        before = decider.decided_until
        lab.clock.now += took_ms
        worker.run_one()
        steps.append(decider.decided_until - before)
        decider.decide(lab.clock.now, has_new_rules=False)
    assert steps == [16_384, 4_096, 1_024, 256, 256, 1_024]


def test_retention_knows_a_change_of_subscriptions_with_the_next_tick(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    lab.turn(after_ms=1_000)
    assert read_pin(stream_folder(lab.root, "orders")) is not None
    lab.change(RemoveSubscription("red"))
    lab.turn()
    assert read_pin(stream_folder(lab.root, "orders")) is None
