"""What became of a message for subscriptions and queues: each fate once, in the files of a broker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from brokers import START_MS, SetClock
from headgate.broker import DeadLetterReason, Resubmission
from headgate.broker.topics import ReceiverCalls
from headgate.broker.topics.copy_mover import CopyMover
from headgate.clock import shown_time
from headgate.errors import ResourceNotFoundError
from headgate.ledger import copy_number, offset_of, rule_of
from headgate.message import Message
from headgate.topic import (
    AddRule,
    Change,
    ChangeSubscription,
    CreateSubscription,
    RemoveSubscription,
    ReplaceRule,
    Rule,
    RuleDefinition,
    Subscription,
    SubscriptionName,
    SubscriptionSettings,
    SubscriptionStatus,
    TopicEditor,
    TopicKind,
    TopicSettings,
    topic_stream,
)
from headgate.trace import Answer, ConnectedConsumer, ConsumerAnswer, ConsumerKind, Facts, Fate, Stage, State
from log_streams import quick_folder
from questions import asked, asked_for
from topic_lab import BLUE, NO_MESSAGE, RED, RED_ONLY, Lab, Link
from topic_streams import editing, new_topic, publish

DEAD = "red/$DeadLetterQueue"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with quick_folder() as folder:
        lab = Lab(Path(folder))
        yield lab
        lab.broker.close()


def of(lab: Lab, offset: int = 0, consumer: str = "red", **more: object) -> ConsumerAnswer:
    return asked_for(lab.root, lab.clock, consumer, offset=offset, **more)


def received(lab: Lab, *changes: Change, message: bytes = RED, **settings: object) -> Link:
    """A link that was given the copy of one message of the subscription `red`."""
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(**settings)), *changes)
    link = lab.link(want=10)
    lab.publish(message)
    assert link.offsets == [0]
    return link


def test_a_message_that_no_rule_selects_is_explained_by_its_clause(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(BLUE)
    found = of(lab)
    assert (found.fate, found.stage, found.copies) == (Fate.FILTERED_OUT, Stage.RULES, ())
    (rule,) = found.decisions
    assert rule.clauses is not None
    assert (rule.name, rule.language, rule.verdict) == ("Red", "servicebus", "false")
    assert (rule.from_offset, rule.since_ms) == (0, START_MS)
    assert rule.clauses.note == "color is string 'blue'"
    assert [(step.step, step.state) for step in found.steps] == [
        ("stored", State.YES),
        ("confirmed", State.YES),
        ("in force", State.YES),
        ("decided", State.NO),
        ("fate", State.NO),
    ]


def test_a_copy_waits_is_claimed_comes_back_and_is_completed(lab: Lab) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(backoff_ms=(5_000,))))
    lab.publish(RED, RED)
    assert of(lab).fate is Fate.AVAILABLE
    assert "offset 0" in of(lab, 1).summary
    link = lab.link(want=2)
    claimed = of(lab)
    assert (claimed.fate, claimed.copies[0].attempts) == (Fate.CLAIMED, 1)
    assert claimed.copies[0].until_ms == START_MS + 60_000
    link.receiver.settler.release(link.tokens[:1], counts=True)
    link.receiver.settler.complete(link.tokens[1:])
    lab.turn()
    waits = of(lab)
    assert (waits.fate, waits.copies[0].until_ms) == (Fate.DELAYED, START_MS + 5_000)
    assert of(lab, 1).fate is Fate.COMPLETED
    lab.turn(after_ms=5_000)
    assert [event.kind for event in of(lab).copies[0].events] == ["claimed", "released"]
    assert of(lab).fate is Fate.AVAILABLE
    lab.restart()
    assert [event.kind for event in of(lab, 1).copies[0].events] == ["claimed", "settled"]


def test_who_has_it_is_said_as_far_as_a_server_knows(lab: Lab) -> None:
    received(lab)
    link = ConnectedConsumer("orders", "orders/Subscriptions/RED", user="ada", connection="10.0.0.7:5", credit=1)
    facts = Facts(is_known=True, receivers=(link,))
    assert "user 'ada'" in of(lab, facts=facts).summary
    assert "one of 2 receivers" in of(lab, facts=Facts(is_known=True, receivers=(link, link))).summary
    assert "'ada'" not in of(lab).summary


def test_a_lock_that_ended_gives_the_copy_back(lab: Lab) -> None:
    received(lab, lock_ms=1_000)
    lab.clock.now += 1_000
    assert of(lab).fate is Fate.AVAILABLE


def test_a_dead_letter_has_its_reason_and_its_place(lab: Lab) -> None:
    link = received(lab)
    assert of(lab, consumer=DEAD).fate is Fate.NO_DEAD_LETTER
    assert of(lab, consumer=DEAD).kind is ConsumerKind.DEAD_LETTERS
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("NoStock", "sold out"))
    lab.turn()
    found = of(lab)
    (copy,) = found.copies
    assert (found.fate, copy.reason, copy.description) == (Fate.DEAD_LETTERED, "NoStock", "sold out")
    assert (copy.target, copy.target_offset) == ("orders/Subscriptions/red/$DeadLetterQueue", 0)
    assert of(lab, consumer=DEAD).fate is Fate.AVAILABLE
    dead = lab.link("orders/Subscriptions/red/$DeadLetterQueue", want=1)
    assert of(lab, consumer=f"orders/Subscriptions/{DEAD}").fate is Fate.CLAIMED
    dead.receiver.settler.complete(dead.tokens)
    lab.turn()
    assert of(lab, consumer=DEAD).fate is Fate.COMPLETED
    assert of(lab).fate is Fate.DEAD_LETTERED


def test_dead_letters_that_go_elsewhere_are_found_there(lab: Lab) -> None:
    lab.session.declare_stream("graveyard", {})
    link = received(lab, forward_dead_letters_to="graveyard")
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("NoStock"))
    lab.turn()
    (copy,) = of(lab).copies
    assert (copy.fate, copy.reason, copy.target, copy.target_offset) == (
        Fate.DEAD_LETTERED,
        "NoStock",
        "graveyard",
        0,
    )


def test_a_message_that_a_rule_fails_on_says_which_rule(lab: Lab) -> None:
    failing = AddRule("strict", RuleDefinition("Fails", sql="color > 5"))
    lab.topic(CreateSubscription("strict", dead_letter_on_errors=True), failing)
    lab.publish(NO_MESSAGE, RED)
    for offset in (0, 1):
        found = of(lab, offset, "strict")
        assert (found.fate, found.decisions[0].verdict) == (Fate.DEAD_LETTERED, "error")
        assert found.copies[0].reason == "FilterEvaluationException"


def test_a_deferred_copy_says_how_it_is_asked_for(lab: Lab) -> None:
    link = received(lab)
    link.receiver.settler.defer(link.tokens)
    lab.turn()
    assert (of(lab).fate, str(copy_number(0) + 1) in of(lab).summary) == (Fate.DEFERRED, True)
    topic = lab.broker.topics.get("orders")
    topic.receivers.receive_deferred("red", [copy_number(0)], lambda _given: None, settles_first=True)
    lab.turn()
    assert of(lab).fate is Fate.COMPLETED


def test_a_copy_that_is_over_its_time_is_expired_before_and_after_it_is_dropped(lab: Lab) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(default_time_to_live_ms=60_000)))
    lab.publish(RED)
    lab.clock.now += 60_000
    assert (of(lab).fate, of(lab).copies[0].events) == (Fate.EXPIRED, ())
    lab.turn()
    assert (of(lab).fate, [each.kind for each in of(lab).copies[0].events]) == (Fate.EXPIRED, ["settled"])


def test_an_expired_copy_may_be_a_dead_letter(lab: Lab) -> None:
    settings = SubscriptionSettings(default_time_to_live_ms=60_000, dead_letter_on_expiration=True)
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=settings))
    lab.publish(RED)
    lab.turn(after_ms=61_000)
    assert (of(lab).fate, of(lab).copies[0].reason) == (Fate.DEAD_LETTERED, "TTLExpiredException")


def test_a_purged_copy_was_never_given_out(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    lab.broker.topics.get("orders").receivers.purge("red", lambda _count: None)
    lab.turn()
    assert of(lab).fate is Fate.PURGED


def test_a_forwarded_copy_is_found_in_its_target(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.topic(CreateSubscription("on", forward_to="paid"), AddRule("on", RuleDefinition("Red", sql="color = 'red'")))
    lab.publish(BLUE, RED)
    found = of(lab, 1, "on")
    assert (found.fate, found.copies[0].target, found.copies[0].target_offset) == (Fate.FORWARDED, "paid", 0)


def test_a_dead_letter_that_was_published_again_says_so(lab: Lab) -> None:
    link = received(lab)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("NoStock"))
    lab.turn()
    lab.session.resubmit(SubscriptionName("orders", "red", True), Resubmission(None))
    for _ in range(3):
        lab.turn(after_ms=100)
    assert "the dead letter was resubmitted to 'orders'" in of(lab, consumer=DEAD).summary
    assert of(lab, 1).fate is Fate.CLAIMED


def test_copies_that_several_forward_to_one_target_are_told_apart_where_they_differ(lab: Lab) -> None:
    lab.session.create_topic("paid")
    changes: list[Change] = []
    for name, action in (("one", None), ("two", None), ("other", "SET size = 7")):
        rule = RuleDefinition("Red", sql="color = 'red'", action=action)
        changes += [CreateSubscription(name, forward_to="paid"), AddRule(name, rule)]
    lab.topic(*changes)
    lab.publish(RED)
    found = {name: of(lab, 0, name).copies[0] for name in ("one", "two", "other")}
    assert found["one"].target_offset is found["two"].target_offset is None
    message = asked(lab.root, lab.clock, "paid", where="size = 7").message
    assert message is not None
    assert found["other"].target_offset == message.offset
    equal = sorted({0, 1, 2} - {message.offset})
    assert f"offset {equal[0]} or {equal[1]}, which are equal copies" in found["one"].text


def test_a_copy_and_the_dead_letter_of_a_failed_rule_have_names_of_their_own(lab: Lab) -> None:
    failing = AddRule("red", RuleDefinition("Fails", sql="color > 5"))
    lab.topic(*RED_ONLY, failing, ChangeSubscription("red", dead_letter_on_errors=True))
    lab.publish(RED)
    found = of(lab)
    assert found.fate is Fate.DEAD_LETTERED
    assert [step.text.partition(":")[0] for step in found.steps if step.step == "fate"] == [
        "the plain copy",
        "the dead letter of the rules that failed",
    ]
    assert "'Red' selected the message; a rule that fails makes a dead letter of the message: 'Fails'" in str(found)


def test_an_action_gives_a_copy_of_its_own_with_its_changes(lab: Lab) -> None:
    acting = AddRule("red", RuleDefinition("Acts", sql="color = 'red'", action="SET size = 7"))
    lab.topic(*RED_ONLY, acting)
    lab.publish(RED)
    found = of(lab)
    assert [(copy.rule, copy.rule_name, copy.fate) for copy in found.copies] == [
        (0, None, Fate.AVAILABLE),
        (2, "Acts", Fate.AVAILABLE),
    ]
    changes = {each.field: each.after for rule in found.decisions for each in rule.changes or ()}
    assert "application_properties.size" in changes
    text = str(asked(lab.root, lab.clock, offset=0, consumer="red"))
    assert "application_properties.size: nothing becomes " in text
    assert "{" not in text


def test_texts_that_are_no_utf_8_are_shown_by_escapes(lab: Lab) -> None:
    acting = AddRule("red", RuleDefinition("Acts", sql="color LIKE 'red%'", action="SET size = 7; REMOVE color"))
    lab.topic(CreateSubscription("red"), acting)
    message = Message(b"b", message_id="abcdefgh", application_properties={"color": "reddish!"}).encode()
    lab.publish(message.replace(b"cdef", b"\xed\xa0\x80\xff").replace(b"dish", b"\xed\xa0\x80\xff"))
    answer = asked(lab.root, lab.clock, offset=0)
    assert Answer.of_dict(msgspec.json.decode(msgspec.json.encode(answer.as_dict()))) == answer
    assert answer.message is not None and answer.message.id == "ab\\xed\\xa0\\x80\\xffgh"
    assert str(answer).encode()


def test_the_rule_that_was_in_force_then_decides_and_not_that_of_now(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(BLUE)
    lab.change(ReplaceRule("red", RuleDefinition("Red", sql="color = 'blue'")))
    lab.publish(BLUE)
    assert [of(lab, offset).fate for offset in (0, 1)] == [Fate.FILTERED_OUT, Fate.AVAILABLE]
    assert [of(lab, offset).decisions[0].from_offset for offset in (0, 1)] == [0, 1]


def test_a_subscription_that_came_later_or_was_removed_has_no_copy(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    lab.change(CreateSubscription("late"), RemoveSubscription("red"))
    lab.publish(RED)
    assert (of(lab, 0, "late").fate, "offset 1" in of(lab, 0, "late").summary) == (Fate.BEFORE, True)
    assert of(lab, 1).fate is Fate.BEFORE


def test_rules_that_are_pruned_are_not_guessed(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    lab.change(ReplaceRule("red", RuleDefinition("Red", sql="color = 'blue'")))
    lab.broker.close()
    with TopicEditor.open(topic_stream(lab.root, "orders"), now_ms=0) as editor:
        editor.prune(1)
    found = of(lab)
    assert (found.fate, found.decisions, found.steps[2].state) == (Fate.SETTLED, (), State.UNKNOWN)


def test_a_fall_through_names_who_took_the_message(lab: Lab) -> None:
    lab.topic(*RED_ONLY, CreateSubscription("rest", fall_through=True))
    lab.publish(RED, BLUE)
    assert (of(lab, 0, "rest").fate, "'red'" in of(lab, 0, "rest").summary) == (Fate.FILTERED_OUT, True)
    assert of(lab, 1, "rest").fate is Fate.AVAILABLE


def test_a_disabled_subscription_says_so(lab: Lab) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(status=SubscriptionStatus.DISABLED)))
    lab.publish(RED)
    assert "disabled" in of(lab).summary


def test_a_session_is_named_with_its_copy(lab: Lab) -> None:
    settings = SubscriptionSettings(requires_session=True)
    lab.topic(CreateSubscription("red", settings=settings), AddRule("red", RuleDefinition("All", sql="1=1")))
    lab.publish(Message(b"b", group_id="basket-1").encode())
    assert "session" in of(lab).summary
    lab.session.session_receiver(
        SubscriptionName("orders", "red"),
        None,
        ReceiverCalls(deliver=lambda _given: None, ended=lambda _error: None),
        accepted=lambda receiver: receiver.want(1),
    )
    lab.turn()
    found = of(lab)
    assert (found.fate, found.copies[0].session) == (Fate.CLAIMED, "basket-1")


def test_a_queue_is_asked_by_its_name(lab: Lab) -> None:
    lab.broker.topics.create("orders", settings=TopicSettings(kind=TopicKind.QUEUE))
    lab.publish(RED)
    found = of(lab, 0, "orders")
    assert (found.name, found.kind, found.fate) == ("orders", ConsumerKind.QUEUE, Fate.AVAILABLE)
    assert of(lab, 0, "orders/$DeadLetterQueue").kind is ConsumerKind.DEAD_LETTERS


def test_a_message_for_later_is_found_before_its_time(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    scheduled = lab.broker.topics.scheduler.of(lab.broker.catalogue.get("orders"))
    later = Message(b"b", message_id="later", application_properties={"color": "red"}).encode()
    scheduled.schedule([later], [START_MS + 5_000], lambda _numbers: None)
    lab.turn()
    answer = asked(lab.root, lab.clock, id="later", consumer="red")
    (found,) = answer.consumers
    assert (found.fate, answer.message) == (Fate.SCHEDULED, None)
    assert shown_time(START_MS + 5_000) in found.summary
    lab.turn(after_ms=5_000)
    assert of(lab).fate is Fate.AVAILABLE


def test_files_that_no_server_opened_have_copies_that_wait(tmp_path: Path) -> None:
    stream = new_topic(tmp_path)
    with editing(stream) as editor:
        editor.create_subscription(Subscription("all"), now_ms=0)
        failing = Subscription("strict", (Rule("Fails", "color > 5"),), dead_letter_on_errors=True)
        editor.create_subscription(failing, now_ms=0)
    publish(stream, RED)
    fates = {each.name: each.fate for each in asked(tmp_path, SetClock(), offset=0).consumers}
    assert fates == {"all": Fate.AVAILABLE, "strict": Fate.MOVING}


def test_a_move_that_its_target_does_not_take_yet_is_under_way(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.session.create_topic("paid")
    lab.topic(CreateSubscription("on", forward_to="paid"), AddRule("on", RuleDefinition("Red", sql="color = 'red'")))
    monkeypatch.setattr(CopyMover, "carry_out", lambda *_: False)
    lab.publish(RED)
    found = of(lab, 0, "on")
    assert (found.fate, found.copies[0].target) == (Fate.MOVING, "paid")


def test_everybody_is_answered_for_without_a_name(lab: Lab) -> None:
    lab.topic(*RED_ONLY, CreateSubscription("all"), AddRule("all", RuleDefinition("All", sql="1=1")))
    lab.publish(BLUE)
    answer = asked(lab.root, lab.clock, offset=0)
    assert [(each.name, each.fate) for each in answer.consumers] == [
        ("red", Fate.FILTERED_OUT),
        ("all", Fate.AVAILABLE),
    ]


def test_an_unknown_name_is_refused_with_near_ones(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED)
    with pytest.raises(ResourceNotFoundError, match="did you mean 'red'"):
        of(lab, 0, "rde")
    with pytest.raises(ResourceNotFoundError, match="there are: 'red'"):
        of(lab, 0, "nothing like it")


def test_answers_say_what_the_broker_gives(lab: Lab, seed: int) -> None:
    chance = random.Random(seed)
    colors, sizes = ("red", "blue", "green"), (None, 1, 5, 9)
    texts = ("color = 'red'", "size > 4", "color IN ('blue', 'green') AND size < 6", "size IS NULL", "color > 3")
    names = [f"s{number}" for number in range(4)]
    changes: list[Change] = []
    for name in names:
        changes.append(CreateSubscription(name))
        for number, text in enumerate(chance.sample(texts, 2)):
            action = "SET size = 0" if chance.random() < 0.3 else None
            changes.append(AddRule(name, RuleDefinition(f"r{number}", sql=text, action=action)))
    lab.topic(*changes)
    messages = [
        Message(b"b", application_properties={"color": chance.choice(colors), "size": chance.choice(sizes)}).encode()
        for _ in range(12)
    ]
    lab.publish(*messages, NO_MESSAGE)
    browser = lab.broker.topics.get("orders").browser
    for name in names:
        given = {(offset_of(each.copy), rule_of(each.copy)) for each in browser.copies(name, 0, 100)[0]}
        told = {(offset, copy.rule) for offset in range(len(messages) + 1) for copy in of(lab, offset, name).copies}
        assert told == given
