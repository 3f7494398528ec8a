"""Copies of a batch: equal to the reference, message by message; errors, fall-through, identity, order."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cesql_events import binary_event
from headgate.errors import MessageError
from headgate.evaluate import Filter
from headgate.evaluate.rules import RuleSet
from headgate.evaluate.topic_reference import copies_of
from headgate.message import EncodedMessages, Message
from headgate.topic import Copies, Router, Rule, RuleDefinition, Subscription, Topic, copy_identity
from headgate.topic.copies import PLAIN

RED = Message(b"body", subject="x", application_properties={"color": "red", "quantity": 10, "zero": 0})
BLUE = Message(b"other", subject="y", application_properties={"color": "blue", "quantity": 3})
NO_MESSAGE = b"\x00\x53\x99 no message"


def batch_of(*messages: Message | bytes) -> EncodedMessages:
    """Messages side by side, with bytes of others before and between them."""
    parts = [each if isinstance(each, bytes) else each.encode() for each in messages]
    spaced = EncodedMessages.of([part for each in parts for part in (b"?" * 7, each)])
    return spaced.take(slice(1, None, 2))


def route(router: Router, *messages: Message | bytes, first: int = 100, times: Sequence[int] | None = None) -> Copies:
    count = len(messages)
    arrived = np.zeros(count, dtype=np.int64) if times is None else np.array(times, dtype=np.int64)
    return router.route(batch_of(*messages), np.arange(first, first + count, dtype=np.int64), arrived)


def seen(copies: Copies, subscription: int = 0) -> list[tuple[int, int, bytes]]:
    """Row, rule and bytes of a subscription's copies."""
    place, messages = copies.of(subscription), copies.messages(subscription)
    return [
        (int(row), int(rule), messages.message(at))
        for at, (row, rule) in enumerate(zip(copies.rows[place], copies.rules[place], strict=True))
    ]


def named(encoded: bytes, name: str) -> object:
    found = (Message.decode(encoded).application_properties or {}).get(name)
    return None if found is None else found.value


def five_rules() -> tuple[Rule, ...]:
    return (
        Rule("n1", "color = 'red'"),
        Rule("n2", "quantity > 1"),
        Rule("n3", correlation={"label": "x"}),
        Rule("a1", "color = 'red'", "SET quantity = quantity / 2"),
        Rule("a2", "1=1", "SET tag = 'a2'; REMOVE color"),
    )


def test_five_matching_rules_give_the_plain_copy_and_one_for_each_action() -> None:
    copies = route(Router(Topic("t", (Subscription("s", five_rules()),)), stream="t"), RED)
    found = seen(copies)
    assert [(row, rule) for row, rule, _ in found] == [(0, 0), (0, 4), (0, 5)]
    plain, halved, tagged = (encoded for _, _, encoded in found)
    assert plain == RED.encode()
    assert (named(halved, "quantity"), named(halved, "RuleName"), named(halved, "color")) == (5, "a1", "red")
    assert (named(tagged, "quantity"), named(tagged, "RuleName"), named(tagged, "color")) == (10, "a2", None)
    assert (named(tagged, "tag"), named(plain, "RuleName")) == ("a2", None)
    assert [counter.matched for counter in copies.counters] == [1, 1, 1, 1, 1]
    assert copies.plain_rows(0).tolist() == [0]
    assert copies.changed(0) == [(0, 4, halved), (0, 5, tagged)]


def test_changed_copies_take_the_room_of_earlier_ones() -> None:
    actions = (Rule("a1", "1=1", "SET quantity = quantity / 2"), Rule("a2", "1=1", "SET a = 1; SET b = a"))
    router = Router(Topic("t", (Subscription("s", (*actions, Rule("n", "1=1"))),)), stream="t")
    batch, zeros = batch_of(RED, BLUE, RED), np.zeros(3, dtype=np.int64)
    first = router.route(batch, zeros, zeros)
    expected = seen(first)
    for taken in (slice(0, 1), slice(0, 3)):
        again = router.route(batch.take(taken), zeros[taken], zeros[taken], room=np.full(5000, 0xFF, dtype=np.uint8))
        assert seen(again) == expected[: len(again)]
    assert len(expected) == 9
    alone = Router(Topic("t", (Subscription("s", actions[:1]),)), stream="t")
    room = np.empty(5000, dtype=np.uint8)
    assert alone.route(batch, zeros, zeros, room=room).room is room
    assert alone.route(batch, zeros, zeros, room=room[:20]).room is not room


def test_a_subscription_made_without_rules_gets_everything_as_it_is() -> None:
    copies = route(Router(Topic("t", (Subscription("all"), Subscription("none", ()))), stream="t"), RED, BLUE)
    assert [encoded for _, _, encoded in seen(copies, 0)] == [RED.encode(), BLUE.encode()]
    assert seen(copies, 1) == []


def test_plain_copies_alone_are_views_of_the_batch() -> None:
    batch = batch_of(RED, BLUE)
    router = Router(Topic("t", (Subscription("red", (Rule("r", "color = 'red'"),)),)), stream="t")
    copies = router.route(batch, np.arange(2), np.zeros(2, dtype=np.int64))
    assert copies.messages(0).data is batch.data


def test_copies_are_in_order_of_message_then_rule_whatever_is_changed() -> None:
    rules = (Rule("a", "1=1", "SET seen = 1"), Rule("p", "color = 'red'"))
    copies = route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), BLUE, RED, BLUE)
    assert [(row, rule) for row, rule, _ in seen(copies)] == [(0, 1), (1, 0), (1, 1), (2, 1)]
    assert seen(copies)[1][2] == RED.encode()


def test_rules_of_one_subscription_may_be_in_different_languages() -> None:
    rules = (
        Rule("rabbit", "application_properties.quantity > 5", dialect="rabbitmq"),
        Rule("rocket", "color = 'blue'", dialect="rocketmq"),
        Rule("properties", properties={"subject": "x"}),
        Rule("none", "color = 'green'"),
    )
    copies = route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), RED, BLUE)
    assert [row for row, _, _ in seen(copies)] == [0, 1]
    assert [counter.matched for counter in copies.counters] == [1, 1, 1, 0]


def test_a_rule_in_cloudevents_sql_fails_where_an_attribute_is_missing() -> None:
    rules = (
        Rule("paid", "type = 'paid'", "SET seen = 1", dialect="cesql"),
        Rule("any", "EXISTS specversion", dialect="cesql"),
    )
    event = binary_event({"specversion": "1.0", "type": "paid"})
    copies = route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), event, RED)
    assert [(row, rule) for row, rule, _ in seen(copies)] == [(0, 0), (0, 1)]
    assert [(counter.matched, counter.errors) for counter in copies.counters] == [(1, 1), (1, 0)]


def test_a_rule_looks_into_bodies() -> None:
    first, second = Message(b'{"k": [1, "x"], "n": 0.5}'), Message(b'{"k": ["y"], "n": 2e3}')
    rules = (Rule("any", "body.k[*] = 'x'", dialect="amqp"), Rule("large", "body.n > 100", dialect="amqp"))
    copies = route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), first, second, BLUE)
    assert [row for row, _, _ in seen(copies)] == [0, 1]
    assert [counter.matched for counter in copies.counters] == [1, 1]


def test_a_failing_rule_disturbs_no_other_and_gives_no_copy() -> None:
    rules = (Rule("bad", "quantity / zero = 1"), Rule("good", "color = 'red'"), Rule("act", "1=1", "SET x = 1 / zero"))
    subscriptions = (Subscription("s", rules), Subscription("t", (Rule("only", "quantity / zero = 1"),)))
    copies = route(Router(Topic("t", subscriptions), stream="t"), RED)
    assert [(row, rule) for row, rule, _ in seen(copies)] == [(0, 0)]
    assert seen(copies, 1) == []
    assert copies.dead_letters == []
    assert [counter.errors for counter in copies.counters] == [1, 0, 0, 1]
    assert [counter.failed_actions for counter in copies.counters] == [0, 0, 1, 0]


def test_a_message_that_rules_fail_on_is_one_dead_letter_that_names_them_all() -> None:
    rules = (Rule("bad", "quantity / zero = 1"), Rule("good", "color = 'red'"), Rule("act", "1=1", "SET x = 1 / zero"))
    subscriptions = (Subscription("off", rules), Subscription("on", rules, dead_letter_on_errors=True))
    copies = route(Router(Topic("t", subscriptions), stream="t"), BLUE, RED)
    (letter,) = copies.dead_letters
    assert (letter.subscription, letter.row) == (1, 1)
    assert named(letter.encoded, "DeadLetterReason") == "FilterEvaluationException"
    description = str(named(letter.encoded, "DeadLetterErrorDescription"))
    first, second = description.split("; ")
    assert first.startswith("rule 'bad': ") and second.startswith("rule 'act': ")
    assert "zero" in first and "zero" in second
    decoded = Message.decode(letter.encoded)
    assert decoded.body == RED.body and decoded.properties == RED.properties
    # Another rule of the subscription selects the message as well: both happen.
    assert [(row, rule) for row, rule, _ in seen(copies, 1)] == [(0, 3), (1, 0)]
    assert [counter.errors for counter in copies.counters] == [1, 0, 0, 1, 0, 0]


def test_a_correlation_fails_on_bytes_that_are_no_message_and_is_not_asked_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Sequence[int]] = []

    class Asked(RuleSet):
        def __init__(self, filters: Sequence[Filter], *, exact_errors: Sequence[int] = ()) -> None:
            asked.append(exact_errors)
            super().__init__(filters, exact_errors=exact_errors)

    monkeypatch.setattr("headgate.topic.router.RuleSet", Asked)
    monkeypatch.setattr("headgate.topic.router.ERRORS_COUNTED", 3)
    rules = (Rule("bad", "quantity / zero = 1"), Rule("label", correlation={"label": "x"}))
    subscriptions = (Subscription("off", rules), Subscription("on", rules, dead_letter_on_errors=True))
    copies = route(Router(Topic("t", subscriptions), stream="t"), NO_MESSAGE, RED)
    assert asked == [[2], []]
    assert [counter.errors for counter in copies.counters] == [None, None, 2, 1]
    of_bytes, of_red = (str(named(letter.encoded, "DeadLetterErrorDescription")) for letter in copies.dead_letters)
    assert [part.split("'")[1] for part in of_bytes.split("; rule")] == ["bad", "label"]
    assert of_red.startswith("rule 'bad': ") and "label" not in of_red


def test_bytes_that_are_no_message_go_to_dead_letters_and_to_the_fall_through() -> None:
    subscriptions = (
        Subscription("all", dead_letter_on_errors=True),
        Subscription("rest", fall_through=True),
    )
    copies = route(Router(Topic("t", subscriptions), stream="t"), NO_MESSAGE, RED)
    (letter,) = copies.dead_letters
    body = Message.decode(letter.encoded).body
    assert body is not None and body.octets() == NO_MESSAGE
    assert str(named(letter.encoded, "DeadLetterErrorDescription")).startswith("rule '$Default': malformed")
    assert [row for row, _, _ in seen(copies, 0)] == [1]
    assert seen(copies, 1) == [(0, 0, NO_MESSAGE)]


def test_the_fall_through_gets_what_no_other_subscription_has_a_copy_of() -> None:
    subscriptions = (
        Subscription("rest", fall_through=True),
        Subscription("red", (Rule("r", "color = 'red'", "SET a = 1"),)),
        Subscription("fails", (Rule("r", "1=1", "SET a = 1 / 0"),), dead_letter_on_errors=True),
    )
    copies = route(Router(Topic("t", subscriptions), stream="t"), RED, BLUE)
    assert [row for row, _, _ in seen(copies, 0)] == [1]
    assert len(copies.dead_letters) == 2


def test_new_ids_are_the_same_when_a_copy_is_made_again_and_different_between_copies() -> None:
    rules = (Rule("a", "1=1", "SET id = newid(); SET other = newid()"), Rule("b", "1=1", "SET id = newid()"))
    topic = Topic("t", (Subscription("s", rules), Subscription("u", rules)))
    first = route(Router(topic, stream="t"), RED, RED)
    # The second message comes in a batch of its own, in another process.
    again = route(pickle.loads(pickle.dumps(Router(topic, stream="t"))), RED, first=101)
    assert [found[1:] for found in seen(again)] == [found[1:] for found in seen(first) if found[0] == 1]
    ids = [named(encoded, name) for place in (0, 1) for _, _, encoded in seen(first, place) for name in ("id", "other")]
    given_ids = [found for found in ids if found is not None]
    assert all(isinstance(found, uuid.UUID) for found in given_ids)
    assert len(set(given_ids)) == len(given_ids) == 12
    other_stream = route(Router(topic, stream="other"), RED)
    assert named(seen(other_stream)[0][2], "id") not in given_ids


def test_the_rule_name_is_written_last_and_replaces_every_spelling_of_it() -> None:
    message = Message(application_properties={"rulename": "mine", "n": 1})
    rules = (Rule("Big one", "1=1", "SET RuleName = 'not me'"),)
    ((_, _, encoded),) = seen(route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), message))
    found = Message.decode(encoded).application_properties
    assert found is not None
    assert {key: value.value for key, value in found.items() if key.lower() == "rulename"} == {"RuleName": "Big one"}


def test_utc_is_the_time_at_which_the_message_arrived() -> None:
    rules = (Rule("late", "UTC() >= 500", dialect="rabbitmq"), Rule("red", "color = 'red'"))
    topic = Topic("t", (Subscription("s", rules[:1]), Subscription("u", rules[1:])))
    for exact in (False, True):
        copies = route(Router(topic, stream="t", exact=exact), RED, RED, BLUE, RED, times=[1, 500, 500, 2])
        assert [row for row, _, _ in seen(copies, 0)] == [1, 2]
        assert [row for row, _, _ in seen(copies, 1)] == [0, 1, 3]


def test_an_exact_router_counts_unknown_and_errors_of_every_rule() -> None:
    rules = (Rule("u", "missing <> 'x'"), Rule("e", "quantity / zero = 1"), Rule("t", "1=1"))
    copies = route(Router(Topic("t", (Subscription("s", rules),)), stream="t", exact=True), RED, BLUE, NO_MESSAGE)
    assert [(each.matched, each.unknown, each.errors) for each in copies.counters] == [(0, 2, 1), (0, 1, 2), (2, 0, 1)]


def test_no_messages_give_no_copies() -> None:
    rules = (*five_rules(), Rule("late", "UTC() >= 500", dialect="rabbitmq"))
    subscriptions = (Subscription("s", rules), Subscription("rest", fall_through=True))
    copies = route(Router(Topic("t", subscriptions), stream="t"))
    assert len(copies) == 0 and seen(copies, 0) == seen(copies, 1) == []
    assert len(route(Router(Topic("t"), stream="t"), RED)) == 0


def test_an_action_that_makes_an_illegal_message_is_an_error_of_that_copy() -> None:
    long = "x" * 300
    rules = (Rule("a", "1=1", f"SET sys.MessageId = '{long}'"), Rule("p", "1=1"))
    copies = route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), RED)
    assert [(row, rule) for row, rule, _ in seen(copies)] == [(0, 0)]
    assert copies.counters[0].failed_actions == 1


# against the reference

FILTERS = [
    "1=1",
    "1=0",
    "color = 'red'",
    "quantity > 4",
    "quantity / zero = 1",
    "missing = 1",
    "color = 'red' OR quantity / zero = 1",
    "color <> 'red' AND quantity % 2 = 0",
    "sys.Label = 'x'",
    "color > 5",
]
ACTIONS = [
    "SET quantity = quantity / 2",
    "SET bad = 1 / zero",
    "REMOVE color",
    "SET id = newid()",
    "SET color = 5 + 'x'",
]
RULES = st.builds(
    lambda text, action: (text, action),
    st.sampled_from(FILTERS),
    st.none() | st.none() | st.sampled_from(ACTIONS),
)
SUBSCRIPTIONS = st.lists(st.tuples(st.lists(RULES, max_size=4), st.booleans()), min_size=1, max_size=4)
MESSAGES = st.builds(
    lambda subject, properties: Message(b"b", subject=subject, application_properties=properties).encode(),
    st.sampled_from([None, "x", "y"]),
    st.fixed_dictionaries(
        {}, optional={"color": st.sampled_from(["red", "blue", 7]), "quantity": st.integers(0, 9), "zero": st.just(0)}
    ),
)


@given(
    described=SUBSCRIPTIONS,
    fall_through=st.none() | st.integers(0, 4),
    encoded=st.lists(MESSAGES | st.just(NO_MESSAGE), max_size=8),
    exact=st.booleans(),
)
def test_the_copies_of_a_batch_are_those_of_each_message_alone(
    described: list[tuple[list[tuple[str, str | None]], bool]],
    fall_through: int | None,
    encoded: list[bytes],
    exact: bool,
) -> None:
    subscriptions = [
        Subscription(
            f"s{place}",
            tuple(Rule(f"r{number}", text, action) for number, (text, action) in enumerate(rules)),
            dead_letter_on_errors=keeps,
        )
        for place, (rules, keeps) in enumerate(described)
    ]
    if fall_through is not None:
        subscriptions.insert(min(fall_through, len(subscriptions)), Subscription("rest", fall_through=True))
    topic = Topic("t", tuple(subscriptions)).numbered()
    copies = route(Router(topic, stream="t", exact=exact), *encoded)
    expected: dict[str, list[tuple[int, int, bytes]]] = {each.name: [] for each in topic.subscriptions}
    letters: list[tuple[int, int, list[str]]] = []
    for row, data in enumerate(encoded):
        taken = False
        for place, subscription in enumerate(topic.subscriptions):
            numbers = {rule.name: rule.number for rule in subscription.rules}
            failures = list(numbers)
            try:
                message = Message.decode(data)
            except MessageError:
                pass
            else:
                found = copies_of(
                    subscription.rules,
                    message,
                    now_ms=0,
                    identity_of=lambda rule, s=subscription, n=numbers, o=100 + row: copy_identity(  # type: ignore[misc]
                        "t", o, s.number, n[rule.name]
                    ),
                )
                for copy in found.copies:
                    number = 0 if copy.rule is None else numbers[copy.rule]
                    expected[subscription.name].append((row, number, copy.message.encode()))
                taken |= bool(found.copies)
                failures = [failure.rule for failure in found.failures]
            if subscription.dead_letter_on_errors and failures:
                letters.append((place, row, failures))
        if fall_through is not None and not taken:
            expected["rest"].append((row, 0, data))
    for place, subscription in enumerate(topic.subscriptions):
        assert seen(copies, place) == expected[subscription.name]
    assert [(letter.subscription, letter.row) for letter in copies.dead_letters] == sorted(
        (place, row) for place, row, _ in letters
    )
    for letter in copies.dead_letters:
        (failures,) = [each for place, row, each in letters if (place, row) == (letter.subscription, letter.row)]
        description = str(named(letter.encoded, "DeadLetterErrorDescription"))
        assert [part.split("'")[1] for part in description.split("; rule")] == failures


@pytest.mark.parametrize("count", [1, 3000])
def test_a_batch_larger_than_a_block_is_routed_row_by_row(count: int) -> None:
    messages = [RED if number % 3 else BLUE for number in range(count)]
    subscriptions = (Subscription("red", (Rule("r", "color = 'red'"), Rule("q", "quantity = 10"))), Subscription("all"))
    copies = route(Router(Topic("t", subscriptions), stream="t"), *messages)
    assert copies.plain_rows(0).tolist() == [number for number in range(count) if number % 3]
    assert copies.plain_rows(1).tolist() == list(range(count))


@given(
    steps=st.lists(SUBSCRIPTIONS, min_size=2, max_size=4),
    encoded=st.lists(MESSAGES | st.just(NO_MESSAGE), max_size=6),
    fall_through=st.booleans(),
)
def test_a_changed_router_gives_the_copies_of_a_new_one(
    steps: list[list[tuple[list[tuple[str, str | None]], bool]]], encoded: list[bytes], fall_through: bool
) -> None:
    router: Router | None = None
    for step in steps:
        subscriptions = [
            Subscription(
                f"s{place}",
                # A rule keeps its number however it is changed; some are not there in one step and again in the next.
                tuple(
                    Rule.of(RuleDefinition(f"r{number}", sql=text, action=action), number=number + 1)
                    for number, (text, action) in enumerate(rules)
                ),
                dead_letter_on_errors=keeps,
                number=len(rules) + 10 * place,
            )
            for place, (rules, keeps) in enumerate(step)
        ]
        if fall_through:
            subscriptions.append(Subscription("rest", fall_through=True))
        topic = Topic("t", tuple(subscriptions)).numbered()
        new = Router(topic, stream="t")
        router = new if router is None else router.changed(topic)
        expected, found = route(new, *encoded), route(router, *encoded)
        for place in range(len(subscriptions)):
            assert seen(found, place) == seen(expected, place)
        assert found.dead_letters == expected.dead_letters
        assert list(found.counters) == list(expected.counters)
        assert list(found.counters.nonzero()) == list(expected.counters.nonzero())
        made = Counter(
            (subscription.name, rule)
            for place, subscription in enumerate(subscriptions)
            for rule in found.rules[found.of(place)].tolist()
        )
        assert found.plain_counts().tolist() == [made[subscription.name, PLAIN] for subscription in subscriptions]
        of_rules = [
            made[subscription.name, rule.number] for subscription in subscriptions for rule in subscription.rules
        ]
        assert [counter.copies for counter in found.counters] == of_rules


def test_a_changed_router_takes_over_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topic.router._MOST_ADDED", 2)
    rules = tuple(
        Rule.of(RuleDefinition(f"r{number}", sql=f"quantity = {number}"), number=number) for number in range(1, 12)
    )
    router = Router(Topic("t", (Subscription("s", rules, number=1),)), stream="t")
    changed = Rule.of(RuleDefinition("r1", sql="color = 'red'"), number=1)
    one = router.changed(Topic("t", (Subscription("s", (changed, *rules[2:]), number=1),)))
    assert len(one._slots) == 12
    assert [row for row, _, _ in seen(route(one, RED, BLUE))] == [0, 1]
    assert [counter.rule for counter in route(one, RED, BLUE).counters] == [
        "r1",
        *(f"r{number}" for number in range(3, 12)),
    ]
    # The router from before still decides as before.
    assert [counter.matched for counter in route(router, BLUE).counters][2] == 1
    three = tuple(Rule.of(RuleDefinition(f"n{number}", sql="1=1"), number=20 + number) for number in range(3))
    assert len(one.changed(Topic("t", (Subscription("s", (*rules, *three), number=1),)))._slots) == 14


def test_a_rule_added_to_the_first_of_two_subscriptions_gives_no_second_plain_copy() -> None:
    one, two, three = (Rule.of(RuleDefinition("r", sql="1=1"), number=number) for number in (1, 1, 2))
    router = Router(Topic("t", (Subscription("a", (one,), number=1), Subscription("b", (two,), number=2))), stream="t")
    after = Topic("t", (Subscription("a", (one, three), number=1), Subscription("b", (two,), number=2)))
    copies = route(router.changed(after), RED, BLUE)
    assert [row for row, _, _ in seen(copies, 0)] == [row for row, _, _ in seen(copies, 1)] == [0, 1]


def test_counters_of_batches_add_up() -> None:
    router = Router(Topic("t", (Subscription("s", five_rules(), dead_letter_on_errors=True),)), stream="t", exact=True)
    many = Message(application_properties={"color": "red", "quantity": "many"})
    nothing = Message(b"body")
    together = route(router, RED, NO_MESSAGE, BLUE, many, nothing).counters
    first = route(router, RED).counters
    first.add(route(router, NO_MESSAGE, BLUE, many, nothing, first=101).counters)
    assert list(first) == list(together)
    assert [counter.copies for counter in together] == [0, 0, 0, 1, 4]


def test_counters_can_be_asked_for_by_place() -> None:
    rules = (Rule("a", "color = 'red'"), Rule("b", "color = 'green'"), Rule("c", "1=1"))
    counters = route(Router(Topic("t", (Subscription("s", rules),)), stream="t"), RED, BLUE).counters
    assert len(counters) == 3
    assert [each.matched for each in counters[1:]] == [0, 2]
    assert [each.rule for each in counters.nonzero()] == ["a", "c"]
