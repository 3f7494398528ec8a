"""Forwarding: what a copy keeps on its way, how far it comes, and what becomes of it where its target takes none."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import stored
from headgate.broker import DeadLetterReason, sequence_number
from headgate.errors import LogError, PreconditionFailedError
from headgate.ledger import Ledger
from headgate.ledger import ledger as ledger_module
from headgate.message import AmqpType, AmqpValue, Message
from headgate.topic import (
    MAX_HOPS,
    AddRule,
    ChangeLimits,
    ChangeSubscription,
    ChangeTopic,
    CreateSubscription,
    RemoveSubscription,
    RuleDefinition,
    SubscriptionSettings,
    TopicLimits,
    TopicSettings,
    TopicStatus,
)
from log_streams import FailingFiles, Killed, killed_process, quick_folder
from topic_lab import BLUE, RED, RED_ONLY, Lab

EVERY = RuleDefinition("All", sql="1=1")
SEND_DISABLED = ChangeTopic(TopicSettings(status=TopicStatus.SEND_DISABLED))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.broker.close()


def target(lab: Lab, name: str = "paid", forward_to: str | None = None) -> None:
    """A topic with one subscription, `all`."""
    lab.session.create_topic(name)
    lab.change(CreateSubscription("all", forward_to=forward_to), AddRule("all", EVERY), topic=name)


def forwarding(lab: Lab, to: str = "paid") -> None:
    """The topic `orders`, whose subscription `on` forwards what is red."""
    lab.topic(CreateSubscription("on", forward_to=to), AddRule("on", RuleDefinition("Red", sql="color = 'red'")))


def values(section: dict[str, AmqpValue] | None) -> dict[str, object]:
    return {name: value.value for name, value in (section or {}).items()}


def reasons(lab: Lab, name: str) -> list[object]:
    """Why the dead letters of a subscription are that."""
    dead = lab.link(f"{name}/$DeadLetterQueue", want=10)
    found = [values(Message.decode(each.message).application_properties) for each in dead.deliveries]
    dead.receiver.close()
    return [each.get("DeadLetterReason") for each in found]


def test_a_forwarded_copy_keeps_the_number_that_it_had_first(lab: Lab) -> None:
    target(lab, "last")
    target(lab, "paid", "last")
    forwarding(lab)
    lab.publish(BLUE, RED)
    link = lab.link("last/Subscriptions/all", want=1)
    (copy,) = lab.broker.topics.get("orders").browser.copies("on", 0, 10)[0]
    annotations = values(Message.decode(link.deliveries[0].message).message_annotations)
    assert annotations == {"x-opt-enqueue-sequence-number": sequence_number(copy.copy), "x-headgate-hops": 2}
    assert (link.offsets, link.deliveries[0].attempt) == ([0], 1)


def test_a_message_is_forwarded_four_times_and_is_a_dead_letter_then(lab: Lab) -> None:
    names = [f"hop{number}" for number in range(MAX_HOPS + 1)]
    following = dict(itertools.pairwise(names))
    for name in reversed(names):
        target(lab, name, following.get(name))
    forwarding(lab, "hop0")
    # From `orders` it is one hop more than from `hop0`.
    lab.publish(RED)
    lab.turn(after_ms=100)
    assert stored(lab.root, "hop4") == []
    assert reasons(lab, "hop3/Subscriptions/all") == ["MaxTransferHopCountExceeded"]
    lab.session.create_topic("end")
    lab.change(ChangeSubscription("all"), topic="hop3")
    link = lab.link("hop3/Subscriptions/all", want=10)
    lab.publish(RED)
    lab.turn(after_ms=100)
    assert len(link.deliveries) == 1


def test_a_dead_letter_says_where_it_became_one(lab: Lab) -> None:
    target(lab)
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(forward_dead_letters_to="paid")))
    link = lab.link(want=10)
    lab.publish(RED)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("NoStock"))
    lab.turn()
    letter = Message.decode(lab.link("paid/Subscriptions/all", want=1).deliveries[0].message)
    assert values(letter.message_annotations)["x-opt-deadletter-source"] == "orders/Subscriptions/red"
    assert values(letter.application_properties)["DeadLetterReason"] == "NoStock"


def test_a_rule_of_the_target_sees_where_a_copy_comes_from(lab: Lab) -> None:
    target(lab)
    sql = "sys.EnqueuedSequenceNumber > 1 AND sys.DeadLetterSource IS NULL"
    later = AddRule("later", RuleDefinition("Later", sql=sql))
    lab.change(CreateSubscription("later"), later, topic="paid")
    forwarding(lab)
    lab.publish(RED, RED)
    assert lab.link("paid/Subscriptions/later", want=10).offsets == [1]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("deleted", "TransferDestinationNotFound"),
        ("disabled", "TransferDestinationDisabled"),
        ("full", "TransferDestinationFull"),
    ],
)
def test_what_a_target_does_not_take_becomes_a_dead_letter(lab: Lab, broken: str, reason: str) -> None:
    target(lab)
    forwarding(lab)
    lab.publish(RED)
    if broken == "deleted":
        lab.broker.streams.delete(lab.broker.catalogue.get("paid"))
    elif broken == "disabled":
        lab.change(SEND_DISABLED, topic="paid")
    else:
        lab.change(ChangeLimits(TopicLimits(unsettled_bytes=1)), topic="paid")
        lab.turn(after_ms=1_000)
    lab.publish(RED, RED)
    assert lab.counts("on") == (0, 0, 0, 2)
    assert reasons(lab, "orders/Subscriptions/on") == [reason, reason]
    if broken == "disabled":
        lab.change(ChangeTopic(TopicSettings()), topic="paid")
        lab.publish(RED)
        assert len(stored(lab.root, "paid")) == 2


def test_a_dead_letter_that_its_target_does_not_take_stays_with_its_reason(lab: Lab) -> None:
    target(lab)
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(forward_dead_letters_to="paid")))
    lab.change(SEND_DISABLED, topic="paid")
    link = lab.link(want=10)
    lab.publish(RED)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("NoStock"))
    lab.turn()
    assert reasons(lab, "orders/Subscriptions/red") == ["NoStock"]


def test_a_target_that_is_closed_after_it_was_known_is_asked_again(lab: Lab) -> None:
    target(lab)
    lab.change(SEND_DISABLED, topic="paid")
    forwarding(lab)
    lab.restart()
    lab.publish(RED)
    assert lab.counts("on") == (0, 0, 0, 1)
    assert stored(lab.root, "paid") == []


def test_copies_that_come_back_are_forwarded_too(lab: Lab) -> None:
    target(lab)
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED, RED)
    link.receiver.settler.release(link.tokens[:1], counts=True)
    link.receiver.want(0)
    lab.turn()
    lab.change(ChangeSubscription("red", forward_to="paid"))
    (ended,) = link.ends
    assert isinstance(ended, PreconditionFailedError)
    assert len(stored(lab.root, "paid")) == 1
    lab.turn(after_ms=61_000)
    assert len(stored(lab.root, "paid")) == 2
    lab.change(ChangeSubscription("red"))
    lab.publish(RED)
    assert (len(stored(lab.root, "paid")), lab.counts()) == (2, (1, 0, 0, 0))


def test_few_copies_wait_in_memory_for_a_target_that_cannot_be_written(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    target(lab)
    forwarding(lab)
    paid = lab.broker.catalogue.get("paid")
    paid.is_writing = True
    monkeypatch.setattr("headgate.broker.topics.dispatcher.COPIES_A_TURN", 3)
    monkeypatch.setattr("headgate.broker.topics.copy_mover.COPIES_A_TURN", 3)
    for _ in range(5):
        lab.publish(RED, RED)
    info = lab.broker.topics.get("orders").subscriptions.info("on")
    assert (info.forwarding, info.counts.active) == (4, 6)
    assert lab.broker.entities.find("orders").subscription("on").counts().transfer == 4
    paid.is_writing = False
    lab.turn(after_ms=100)
    assert len(stored(lab.root, "paid")) == 10
    assert lab.broker.topics.get("orders").subscriptions.info("on").forwarding == 0


def test_a_copy_on_its_way_outlives_its_subscription(lab: Lab) -> None:
    target(lab)
    forwarding(lab)
    paid = lab.broker.catalogue.get("paid")
    paid.is_writing = True
    lab.publish(RED)
    lab.change(RemoveSubscription("on"))
    paid.is_writing = False
    lab.turn(after_ms=100)
    assert len(stored(lab.root, "paid")) == 1


def test_one_whose_subscription_and_target_are_gone_is_over(lab: Lab) -> None:
    target(lab)
    forwarding(lab)
    lab.broker.catalogue.get("paid").is_writing = True
    lab.publish(RED)
    lab.change(RemoveSubscription("on"))
    lab.broker.catalogue.get("paid").is_writing = False
    lab.broker.streams.delete(lab.broker.catalogue.get("paid"))
    lab.turn(after_ms=100)
    assert lab.broker.topics.get("orders").consumption.ledger.moves() == {}


def test_what_was_appended_before_a_crash_is_no_dead_letter_after_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    target(lab)
    forwarding(lab)

    def dies(*_: object, **__: object) -> None:
        raise LogError("the process dies before it notes what it appended", path=lab.root)

    with monkeypatch.context() as patched:
        patched.setattr(ledger_module.Ledger, "moved", dies)
        lab.publish(RED)
    assert len(stored(lab.root, "paid")) == 1
    lab.restart()
    lab.broker.topics.get("paid")
    lab.change(SEND_DISABLED, topic="paid")
    lab.broker.topics.get("orders")
    lab.turn(after_ms=2_000)
    assert lab.counts("on") == (0, 0, 0, 0)
    assert len(stored(lab.root, "paid")) == 1


def test_a_copy_that_says_a_later_time_waits_with_the_messages_of_its_target(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    target(lab)
    forwarding(lab)
    annotations = {"x-opt-scheduled-enqueue-time": AmqpValue(AmqpType.TIMESTAMP, lab.clock.now + 5_000)}
    later = Message(b"l", application_properties={"color": "red"}, message_annotations=annotations).encode()
    lab.publish(RED, later, RED, later)
    lab.turn(after_ms=100)
    lab.turn(after_ms=100)
    paid = lab.broker.topics.get("paid")
    assert (len(stored(lab.root, "paid")), paid.scheduled.count, lab.counts("on")) == (2, 2, (0, 0, 0, 0))

    moved = ledger_module.Ledger.moved

    def dies(ledger: Ledger, target: str, sequence: int) -> None:
        if target.startswith("waiting/"):
            raise LogError("the process dies before it notes what it appended", path=lab.root)
        moved(ledger, target, sequence)

    with monkeypatch.context() as patched:
        patched.setattr(ledger_module.Ledger, "moved", dies)
        lab.publish(later)
    lab.restart()
    lab.broker.topics.get("orders")
    lab.turn(after_ms=2_000)
    lab.turn(after_ms=100)
    assert lab.broker.topics.get("paid").scheduled.count == 3
    lab.turn(after_ms=5_000)
    lab.turn(after_ms=100)
    bodies = [Message.decode(each).body.octets() for each in stored(lab.root, "paid")]
    assert bodies == [b"b", b"b", b"l", b"l", b"l"]
    lab.change(SEND_DISABLED, topic="paid")
    lab.publish(later)
    assert lab.counts("on") == (0, 0, 0, 1)


def later(lab: Lab, due_ms: int) -> bytes:
    """A message whose property says when its copy is to be scheduled for."""
    due = AmqpValue(AmqpType.TIMESTAMP, due_ms)
    return Message(b"b", application_properties={"color": "red", "due": due}).encode()


def scheduling(lab: Lab) -> None:
    """The topic `orders`, whose action schedules copies: those of `here` stay, those of `on` are forwarded."""
    rule = RuleDefinition("Later", sql="color = 'red'", action="SET sys.ScheduledEnqueueTimeUtc = due")
    on, here = CreateSubscription("on", forward_to="paid"), CreateSubscription("here")
    lab.topic(on, AddRule("on", rule), here, AddRule("here", rule))


def test_a_copy_that_is_scheduled_by_an_action_waits_where_it_is_forwarded_to(lab: Lab) -> None:
    target(lab)
    scheduling(lab)
    due_ms = lab.clock.now + 5_000
    here, there = lab.link("orders/Subscriptions/here", want=9), lab.link("paid/Subscriptions/all", want=9)
    lab.publish(later(lab, due_ms), later(lab, 1), later(lab, due_ms + 1))
    assert len(here.deliveries) == 3, "where it is made, the time is ignored"
    assert len(there.deliveries) == 1
    paid = lab.broker.topics.get("paid")
    assert paid.scheduled.count == 2 and lab.counts("on") == (0, 0, 0, 0)
    lab.restart()
    there = lab.link("paid/Subscriptions/all", want=9)
    lab.turn(after_ms=5_000)
    (one,) = there.deliveries
    assert one.timestamp_ms == due_ms
    lab.turn(after_ms=100)
    assert [values(Message.decode(each.message).application_properties)["due"] for each in there.deliveries] == [
        due_ms, due_ms + 1,
    ]  # fmt: skip
    assert lab.broker.topics.get("paid").scheduled.count == 0


def test_a_copy_for_later_waits_once_whenever_the_process_dies(lab: Lab) -> None:
    with quick_folder() as name:
        root = Path(name) / "root"
        first = Lab(root)
        target(first)
        scheduling(first)
        due_ms = first.clock.now + 5_000
        first.broker.close()
        budget, is_done = 0, False
        while not is_done:
            copy = shutil.copytree(root, Path(name) / "copy")
            confirmed = False
            with killed_process():
                killed = Lab(copy, open_file=FailingFiles(Killed(), budget=budget))
                killed.publish(later(killed, due_ms), later(killed, due_ms))
                confirmed = True
                killed.turn(after_ms=100)
                is_done = True
            found = Lab(shutil.copytree(copy, Path(name) / "found"))
            for _ in range(3):
                found.broker.topics.get("paid")
                found.broker.topics.get("orders")
                found.turn(after_ms=3_000)
            came = len(stored(found.root, "paid"))
            assert came == len(stored(found.root, "orders")) == 2 if confirmed else came in (0, 2)
            found.broker.close()
            for each in ("copy", "found"):
                shutil.rmtree(Path(name) / each)
            budget += 97
