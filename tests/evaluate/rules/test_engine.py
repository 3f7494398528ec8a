"""The rule engine against every filter alone: the same pairs, whatever the filters share."""

from __future__ import annotations

import datetime
import json
import pickle
import uuid
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import amqp_strategies
import cesql_strategies
import kernel_strategies
import rocketmq_strategies
from examples import examples
from headgate.errors import FilterError
from headgate.evaluate import Filter, Verdict
from headgate.evaluate.rules import Matches, RuleSet, plan, rule_set
from headgate.evaluate.rules.engine import EnginePart
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.batch import EncodedMessages
from strategies import constants, damaged_messages, encoded_messages, expressions, names, section, string

PARAMETERS = {
    "time": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC),
    "span": datetime.timedelta(minutes=1),
    "guid": uuid.UUID(bytes=bytes(range(16))),
}

NOW_MS = 1_767_225_600_000

Pairs = set[tuple[int, int]]


def pairs(matches: Matches) -> tuple[Pairs, Pairs]:
    """Matches and errors as sets, after a look at their order."""
    for rows, rules in ((matches.rows, matches.rules), (matches.error_rows, matches.error_rules)):
        keys = list(zip(rows.tolist(), rules.tolist(), strict=True))
        assert keys == sorted(set(keys))
    return (
        set(zip(matches.rows.tolist(), matches.rules.tolist(), strict=True)),
        set(zip(matches.error_rows.tolist(), matches.error_rules.tolist(), strict=True)),
    )


def alone(filters: dict[int, Filter], exact_errors: set[int], batch: EncodedMessages) -> tuple[Pairs, Pairs]:
    """The same by the reference evaluator, one filter after the other."""
    matching: Pairs = set()
    failing: Pairs = set()
    messages = [batch.message(row) for row in range(len(batch))]
    for number, given_filter in filters.items():
        for row, message in enumerate(messages):
            verdict = given_filter.verdict(message, now_ms=NOW_MS)
            if verdict is Verdict.TRUE:
                matching.add((row, number))
            elif verdict is Verdict.ERROR and number in exact_errors:
                failing.add((row, number))
    return matching, failing


def shared(filters: list[Filter], exact_errors: set[int], index_from: int) -> RuleSet:
    """A set that evaluates even few filters together, and has an index where `index_from` constants are demanded."""
    with mock.patch.object(plan, "INDEX_FROM", index_from), mock.patch.object(rule_set, "_MOST_ALONE", 0):
        return RuleSet(filters, exact_errors=exact_errors)


index_from = st.sampled_from((1, 2, plan.INDEX_FROM))


def assert_as_alone(
    filters: list[Filter], messages: list[bytes], exact_errors: set[int], least: int = plan.INDEX_FROM
) -> None:
    batch = EncodedMessages.of(messages)
    rules = shared(filters, exact_errors, least)
    assert pairs(rules.match(batch, now_ms=NOW_MS)) == alone(dict(enumerate(filters)), exact_errors, batch)


texts = st.lists(expressions, min_size=4, max_size=14)


@given(texts, st.lists(st.one_of(encoded_messages(), damaged_messages()), min_size=1, max_size=6), st.data())
def test_a_rule_set_says_of_generated_messages_what_every_filter_says_alone(
    given_texts: list[str], messages: list[bytes], data: st.DataObject
) -> None:
    filters = [Filter.parse(text, "rabbitmq") for text in given_texts]
    exact = data.draw(st.sets(st.integers(0, len(filters) - 1)))
    assert_as_alone(filters, messages, exact, data.draw(index_from))


def parsed(text: str, dialect: str) -> Filter | None:
    """None for a text that the dialect refuses."""
    try:
        return (
            Filter.parse(text, dialect, parameters=PARAMETERS)
            if dialect == "servicebus"
            else Filter.parse(text, dialect)
        )
    except FilterError:
        return None


plain_values = st.one_of(
    st.sampled_from(("red", "5", "AMER", "", "abc")),
    st.sampled_from((0, 1, 5, 10, -1, 9000)),
    st.sampled_from((0.0, 0.5, 5.0, 19.99)),
    st.booleans(),
)
correlations = st.builds(
    lambda label, properties: Filter.from_correlation(label=label, properties=properties),
    st.sampled_from((None, "red", "AMER", "abc")),
    st.dictionaries(st.sampled_from(("a", "B", "price", "n", "s")), plain_values, min_size=1, max_size=3),
)
property_maps = st.builds(
    Filter.from_properties,
    st.sampled_from((None, {"subject": "abc"}, {"subject": "&p:a"})),
    st.dictionaries(st.sampled_from(("n", "s", "region", "price")), plain_values, min_size=1, max_size=3),
)
tags = st.sampled_from(("red", "red || Red", "*", "5||10")).map(Filter.from_tags)
any_filters = (
    st.one_of(
        st.tuples(expressions, st.just("rabbitmq")),
        st.tuples(amqp_strategies.amqp_expressions, st.just("amqp")),
        st.tuples(rocketmq_strategies.expressions, st.just("rocketmq")),
        st.tuples(kernel_strategies.servicebus_expressions, st.just("servicebus")),
        st.tuples(cesql_strategies.expressions, st.just("cesql")),
    )
    .map(lambda given_text: parsed(*given_text))
    .filter(lambda given_filter: given_filter is not None)
)
equalities = st.one_of(
    st.builds("{} = {} AND {}".format, names, constants, expressions).map(lambda text: parsed(text, "rabbitmq")),
    st.builds("{} = {}".format, names, constants).map(lambda text: parsed(text, "rabbitmq")),
    st.builds("{} IN ({}, {})".format, names, constants, constants).map(lambda text: parsed(text, "rabbitmq")),
    correlations,
    property_maps,
    tags,
)  # fmt: skip
filters_of_all_kinds = st.lists(st.one_of(any_filters, equalities), min_size=4, max_size=12)
any_messages = st.one_of(
    encoded_messages(),
    damaged_messages(),
    kernel_strategies.rocketmq_messages,
    kernel_strategies.servicebus_messages,
    amqp_strategies.amqp_messages(),
    cesql_strategies.messages(),
)


@given(filters_of_all_kinds, st.lists(any_messages, min_size=1, max_size=6), st.data())
def test_filters_of_all_languages_in_one_set_say_what_each_says_alone(
    filters: list[Filter], messages: list[bytes], data: st.DataObject
) -> None:
    exact = data.draw(st.sets(st.integers(0, len(filters) - 1)))
    assert_as_alone(filters, messages, exact, data.draw(index_from))


@given(st.lists(equalities, min_size=4, max_size=12), st.lists(any_messages, min_size=1, max_size=6), index_from)
def test_indexed_equalities_say_what_each_filter_says_alone(
    filters: list[Filter], messages: list[bytes], least: int
) -> None:
    assert_as_alone(filters, messages, set(), least)


def event(**values: object) -> bytes:
    return Message(b"x", application_properties=values).encode()


few_values = st.sampled_from(("1", "x", "1.0", "", 1, 2, 1.0, 0.5, True, AmqpValue(AmqpType.INT, 1)))
few_keys = st.sampled_from("abc")
few_events = st.dictionaries(few_keys, few_values, max_size=3).map(lambda values: event(**values))


_few_constants = st.sampled_from(("'1'", "'x'", "'1.0'", "1", "1.0", "0.5", "2", "TRUE"))
_demands = st.one_of(
    st.builds("{} = {}".format, few_keys, _few_constants),
    st.builds("{} IN ({}, {})".format, few_keys, _few_constants, _few_constants),
    st.builds("({} = {} OR {} = {})".format, few_keys, _few_constants, few_keys, _few_constants),
    st.builds("{} <> {}".format, few_keys, _few_constants),
)
few_equalities = st.one_of(
    st.tuples(
        st.lists(_demands, min_size=1, max_size=3).map(" AND ".join),
        st.sampled_from(("rabbitmq", "amqp", "rocketmq", "servicebus")),
    )
    .map(lambda given_text: parsed(*given_text))
    .filter(lambda given_filter: given_filter is not None),
    st.dictionaries(few_keys, few_values.filter(lambda value: not isinstance(value, AmqpValue)), min_size=1).map(
        lambda values: Filter.from_correlation(properties=values)
    ),
)


@given(st.lists(few_equalities, min_size=20, max_size=40), st.lists(few_events, min_size=10, max_size=30))
@examples(0.5)
def test_equalities_that_messages_often_fulfil_are_all_checked(filters: list[Filter], messages: list[bytes]) -> None:
    assert_as_alone(filters, messages, set(), 1)


few_letters = st.text("ab-ä\n", max_size=14)
_patterns = st.lists(st.one_of(st.sampled_from("%_"), st.text("ab-ä", min_size=1, max_size=10)), max_size=5).map(
    "".join
)
_text_demands = st.one_of(
    st.builds("{} LIKE '{}'".format, few_keys, _patterns),
    st.builds("{} NOT LIKE '{}'".format, few_keys, _patterns),
    st.builds("({} LIKE '{}' OR {} LIKE '{}%')".format, few_keys, _patterns, few_keys, few_letters.map(str.strip)),
    st.builds("({} LIKE '%{}' OR {} = 1)".format, few_keys, _patterns, few_keys),
    st.builds("{} {} '{}'".format, few_keys, st.sampled_from(("CONTAINS", "STARTSWITH", "ENDSWITH")), _patterns),
)
_bounds = st.sampled_from(
    ("0", "1", "1.5", "-0.5", "1E300", "9007199254740993", "9223372036854775807", "18446744073709551615")
)
_range_demands = st.one_of(
    st.builds("{} {} {}".format, few_keys, st.sampled_from((">", ">=", "<", "<=", "=")), _bounds),
    st.builds("{} BETWEEN {} AND {}".format, few_keys, _bounds, _bounds),
    st.builds("{0} > {1} AND {2} >= {0}".format, few_keys, _bounds, _bounds),
)
_numbers = (0, 1, 2, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0.5, 1.5, -0.0, 1e300, float("inf"), float("nan"))
_many_values = st.one_of(
    few_letters,
    few_letters.map(lambda text: AmqpValue(AmqpType.SYMBOL, "ab" + text.replace("ä", ""))),
    st.sampled_from(_numbers),
    st.sampled_from((AmqpValue(AmqpType.ULONG, 2**63), AmqpValue(AmqpType.ULONG, 2**64 - 1), True, b"ab", None)),
)
_many_events = st.dictionaries(few_keys, _many_values, max_size=3).map(lambda values: event(**values))


def parts_of(demands: st.SearchStrategy[str]) -> st.SearchStrategy[Filter]:
    """Filters of one or two demands, and perhaps an equality, in any dialect that takes them."""
    return (
        st.tuples(
            st.lists(st.one_of(demands, demands, _demands), min_size=1, max_size=3).map(" AND ".join),
            st.sampled_from(("rabbitmq", "amqp", "rocketmq", "servicebus")),
        )
        .map(lambda given_text: parsed(*given_text))
        .filter(lambda given_filter: given_filter is not None)
    )


@given(
    st.lists(parts_of(_text_demands), min_size=10, max_size=30),
    st.lists(_many_events, min_size=5, max_size=20),
)
@examples(0.5)
def test_parts_of_texts_in_the_index_say_what_each_pattern_says_alone(
    filters: list[Filter], messages: list[bytes]
) -> None:
    assert_as_alone(filters, messages, set(), 1)


@given(
    st.lists(parts_of(_range_demands), min_size=10, max_size=30),
    st.lists(_many_events, min_size=5, max_size=20),
)
@examples(0.5)
def test_ranges_in_the_index_say_what_each_comparison_says_alone(filters: list[Filter], messages: list[bytes]) -> None:
    with mock.patch.object(plan, "_NARROW", 1):
        assert_as_alone(filters, messages, set(), 1)


def test_a_text_with_a_window_everywhere_is_asked_once_for_each_message() -> None:
    filters = [Filter.parse(f"s LIKE '%{'ab' * length}%'", "amqp") for length in range(2, 60)]
    texts = ["ab" * length for length in (0, 1, 2, 50, 1200)]
    assert_as_alone(filters, [event(s=text) for text in (*texts, *texts)], set(), 1)


def test_more_keys_of_one_message_than_are_kept_at_once_are_all_found() -> None:
    texts = [f"{first}{second}{third}" for first in "abcd" for second in "abcd" for third in "abcd"]
    filters = [Filter.parse(f"s LIKE '%{text}%' AND n = {number % 2}", "amqp") for number, text in enumerate(texts)]
    messages = [event(s="".join(texts[number:] + texts[:number]) * 12, n=number % 2) for number in range(9)]
    assert_as_alone(filters, messages, set(), 1)


@pytest.mark.parametrize("dialect", ["amqp", "servicebus"])
def test_a_narrow_range_is_found_among_thousands(dialect: str) -> None:
    filters = [Filter.parse(f"n >= {number} AND n < {number + 1.5}", dialect) for number in range(2000)]
    rules = RuleSet(filters)
    part = rules._parts[0]
    assert isinstance(part, EnginePart) and not part._plan.filter_count
    batch = EncodedMessages.of([event(n=number) for number in (0, 0.25, 7, 7.5, 1999, 2000.25, 2000.5, -1, "7")])
    assert pairs(rules.match(batch, now_ms=0)) == alone(dict(enumerate(filters)), set(), batch)


def test_a_set_that_was_sent_asks_the_reference_for_single_filters() -> None:
    filters = [Filter.parse(f"s LIKE '%x{number}x%' AND t + 1 > 2", "rabbitmq") for number in range(600)]
    rules = pickle.loads(pickle.dumps(RuleSet(filters)))
    batch = EncodedMessages.of([event(s=f"-x{number}x-", t=AmqpValue(AmqpType.ULONG, 2**63)) for number in (3, 7, 599)])
    found = pairs(rules.match(batch, now_ms=0))
    assert found == alone(dict(enumerate(filters)), set(), batch)
    assert found[0] == {(0, 3), (1, 7), (2, 599)}


def test_conditions_on_bodies_behind_a_key_see_the_body_of_their_message() -> None:
    filters = [
        Filter.parse(f"body.k = 'k{number}' AND body.flags[*] = 'a\"{number % 3}' AND body.n > {number}", "amqp")
        for number in range(40)
    ]
    documents = [
        {"k": f"k{number % 40}", "flags": [f'a"{number % 4}', "x" * number, f'a"{number % 2}'], "n": number}
        for number in range(150)
    ]
    messages = [Message(json.dumps(document).encode()).encode() for document in documents]
    assert_as_alone(filters, messages, set(), 1)
    assert shared(filters, set(), 1).match(EncodedMessages.of(messages), now_ms=NOW_MS).rows.size > 20


@pytest.mark.parametrize(("columns", "predicates"), [(8, 256), (1, 5)])
def test_conditions_that_filters_behind_keys_share_are_decided_as_alone(columns: int, predicates: int) -> None:
    texts = [
        f"s = 'k{number % 10}' AND {'NOT' if number % 3 else ''} n > {number % 70} AND m <> '{number % 4}' AND t = TRUE"
        for number in range(280)
    ]
    filters = [Filter.parse(text, "servicebus") for text in texts]
    numbers = (0, 35, 69.5, float("inf"), -float("inf"), float("nan"), "35", True)
    messages = [
        event(s=f"k{which % 10}", n=number, m=f"{which % 5}", t=which % 7 > 0)
        for which, number in enumerate(numbers * 5)
    ]
    messages += [event(s="k0", t=True), event(s="k1", n=5, m=5, t=True)]
    with mock.patch.object(plan, "_MOST_COLUMNS", columns), mock.patch.object(plan, "_MOST_CLASSED", predicates):
        assert_as_alone(filters, messages, set(), 1)


class Changes(RuleBasedStateMachine):
    """Adding and removing filters, against a dictionary of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = RuleSet([])
        self.filters: dict[int, Filter] = {}
        self.exact: set[int] = set()
        self.earlier: list[tuple[RuleSet, dict[int, Filter]]] = []

    @rule(given_filter=st.one_of(any_filters, equalities), exact=st.booleans())
    def add(self, given_filter: Filter, exact: bool) -> None:
        number = self.rules.next_number
        self.earlier = [*self.earlier[-2:], (self.rules, dict(self.filters))]
        self.rules = self.rules.with_filter(given_filter, exact_errors=exact)
        self.filters[number] = given_filter
        if exact:
            self.exact.add(number)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.filters:
            number = data.draw(st.sampled_from(sorted(self.filters)))
            self.rules = self.rules.without(number)
            del self.filters[number]
            with pytest.raises(KeyError):
                self.rules.without(number)

    @rule()
    def send(self) -> None:
        self.rules = pickle.loads(pickle.dumps(self.rules))

    @rule(messages=st.lists(any_messages, min_size=1, max_size=4))
    def match(self, messages: list[bytes]) -> None:
        batch = EncodedMessages.of(messages)
        assert pairs(self.rules.match(batch, now_ms=NOW_MS)) == alone(self.filters, self.exact, batch)
        for rules, filters in self.earlier:
            assert pairs(rules.match(batch, now_ms=NOW_MS))[0] == alone(filters, set(), batch)[0]

    @invariant()
    def counts(self) -> None:
        assert len(self.rules) == len(self.filters)


Changes.TestCase.settings = examples(0.3)
TestAddingAndRemoving = Changes.TestCase


def numbered(texts: list[str]) -> list[Filter]:
    return [Filter.parse(text, "rabbitmq") for text in texts]


PREDICATES = [
    "n > 500", "n % 7 = 3", "s = 'b'", "s LIKE 'a%'", "NOT (n <= 100 OR s = 'c')", "n = 5 AND t = 'x'", "m IS NULL",
    "m = TRUE AND n >= 1020", "n IN (1, 1023, 1024, 1025, 2047, 2048)", "TRUE", "s > 'a'", "n < p.creation_time",
]  # fmt: skip


def test_pairs_are_right_on_both_sides_of_a_block() -> None:
    messages = [event(n=n, s="abc"[n % 3], **({"m": True} if n % 2 else {})) for n in range(2100)]
    assert_as_alone(numbered(PREDICATES), messages, set())


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1023, 1024, 1025])
def test_any_number_of_messages_is_decided(count: int) -> None:
    assert_as_alone(numbered(PREDICATES), [event(n=n, s="a") for n in range(count)], {0})


def test_filters_that_are_the_same_each_get_their_pairs() -> None:
    filters = numbered(["n > 3", "s = 'a' AND n > 3", "n > 3", "s = 'a' AND n > 3", "n>3", "n > 3.0"])
    assert_as_alone(filters, [event(n=n, s="a") for n in range(6)], {2})


def test_constants_that_python_takes_for_equal_stay_apart() -> None:
    filters = numbered(["m = TRUE", "m = 1", "m = 1.0", "m = FALSE", "m = 0", "m = '1'", "n IN (TRUE, 1)"])
    assert_as_alone(filters, [event(m=value, n=value) for value in (True, False, 1, 0, 1.0, 0.0, "1", b"1")], set())


def test_numbers_between_bounds_are_told_apart_from_the_bounds() -> None:
    limits = ["0", "0.5", "5", "5.0", "9007199254740992", "9007199254740993", "9223372036854775807", "1.0E300"]
    operators = ("=", "<>", "<", "<=", ">", ">=")
    filters = numbered(
        [f"n {operator} {sign}{limit}" for operator in operators for limit in limits for sign in ("", "-")]
    )
    numbers = [0, 1, 5, -5, 6, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63)]
    floats = [0.0, -0.0, 0.4999, 0.5, 0.5001, 5.0, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e300, 1.1e300]
    encoded = (string(b"n") + b"\x80" + number.to_bytes(8, "big") for number in (2**63, 2**63 + 1))
    large = [section(0x74, b"\xc1\x0d\x02" + pair) for pair in encoded]
    assert_as_alone(filters, [*(event(n=number) for number in (*numbers, *floats)), *large], set())


@pytest.mark.slow
def test_more_values_than_are_remembered_are_decided_all_the_same() -> None:
    filters = numbered(["s LIKE '%7'", "s LIKE '1%'", "s > '5'", "n * 2 > 9000 AND s LIKE '%3%'"])
    rules = shared(filters, set(), plan.INDEX_FROM)
    texts = [f"{number}{'-' * (number % 300)}{number}" for number in range(3000)]
    for start in range(0, 60_000, 3000):
        batch = EncodedMessages.of([event(s=f"{start}{text}", n=start) for text in texts])
        assert len(rules.match(batch, now_ms=NOW_MS)) == sum(
            int(given.mask(batch, now_ms=NOW_MS).sum()) for given in filters
        )


def test_many_pairs_make_room_for_themselves() -> None:
    filters = numbered(["n >= 0", "n > -1", "n < 10000", "n <> -5", "TRUE", "s IS NULL", "n = n"])
    batch = EncodedMessages.of([event(n=n) for n in range(5000)])
    matches = shared(filters, set(), 1).match(batch, now_ms=NOW_MS)
    assert np.array_equal(matches.rows, np.repeat(np.arange(5000), 7))
    assert np.array_equal(matches.rules, np.tile(np.arange(7), 5000))


def test_bytes_that_are_no_message_are_errors_to_whoever_asked() -> None:
    filters = numbered(PREDICATES)
    matches = shared(filters, {0, 3}, 1).match(EncodedMessages.of([b"\x00\x53\x74\xc1", event(n=600)]), now_ms=NOW_MS)
    assert matches.error_rows.tolist() == [0, 0]
    assert matches.error_rules.tolist() == [0, 3]
    assert 0 not in matches.rows


def test_a_message_with_symbols_as_descriptors_is_decided_by_the_reference() -> None:
    plain = event(n=5, t="x")
    assert plain.startswith(b"\x00\x53\x74")
    symbolic = b"\x00\xa3\x20amqp:application-properties:map" + plain[3:]
    assert_as_alone(numbered(PREDICATES), [plain, symbolic], {1}, 1)


def test_a_tree_too_deep_for_bitmaps_is_decided_by_the_reference() -> None:
    deep = "s = '1'"
    for number in range(130):
        deep = f"({deep} {'AND' if number % 2 else 'OR'} s <> '{number}')"
    filters = [Filter.parse(f"{deep} OR s = '{number}'", "rocketmq") for number in range(5)]
    assert_as_alone(filters, [event(s=str(n)) for n in range(4)], {0})


def test_a_member_of_another_kind_fails_before_the_one_that_is_equal() -> None:
    texts = ["a IN ('1', 1)", "a IN (1, '1')", "a IN (1, 2.0)", "a IN (TRUE, 1) AND b = 1", "b = 1 AND a IN (1, 1.0)"]
    filters = [Filter.parse(text, dialect) for text in texts for dialect in ("servicebus", "rabbitmq")]
    assert_as_alone(filters, [event(a=a, b=1) for a in (1, "1", 1.0, True, 2)], set(), 1)


def test_values_that_only_some_predicates_see_are_told_apart_one_by_one() -> None:
    texts = ["n = NAN", "n = INF", "n < INF", "n > -INF", "n <> INF AND n + 1 > 0", "list[0] = 5", "list[1] IS NULL"]
    lists = [AmqpValue(AmqpType.LIST, tuple(AmqpValue(AmqpType.INT, n) for n in range(5, last))) for last in (5, 6, 8)]
    numbers = [float("nan"), float("inf"), float("-inf"), 1.0, lists[0]]
    messages = [event(n=number, list=lists[place % 3]) for place, number in enumerate([*numbers, *reversed(numbers)])]
    assert_as_alone([Filter.parse(text, "amqp") for text in texts], messages, {0, 2})


def test_errors_follow_the_order_of_the_operands() -> None:
    texts = [
        "a > 1 AND b = 'x'", "b = 'x' AND a > 1", "a > 1 OR b = 'x'", "b = 'x' OR a > 1", "NOT (b = 'x' AND a > 1)",
        "c = 1 AND a > 1", "c = 1 OR a > 1", "(c = 1 OR a > 1) AND b = 'y'", "b = 'y' AND (c = 1 OR a > 1)",
    ]  # fmt: skip
    filters = [Filter.parse(text, dialect) for text in texts for dialect in ("servicebus", "rocketmq")]
    messages = [event(a="text", b="x"), event(a="text", b="y"), event(a="text"), event(b="x")]
    assert alone(dict(enumerate(filters)), set(range(len(filters))), EncodedMessages.of(messages))[1]
    assert_as_alone(filters, messages, set(range(len(filters))))


def test_where_kernels_are_off_the_reference_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.evaluate.rules.engine.load", lambda _module: None)
    assert_as_alone(numbered(PREDICATES), [event(n=n, s="abc"[n % 3]) for n in range(30)], {1}, 1)


def test_fields_beyond_one_program_are_spread_over_several() -> None:
    filters = numbered([f"k{number} = 'a' OR k{number + 1} = 'b'" for number in range(600)])
    messages = [event(**{f"k{number}": "ab"[number % 2]}) for number in range(0, 600, 37)]
    assert_as_alone(filters, messages, set(), 1)


def test_message_outside_the_buffer_is_refused_with_its_number() -> None:
    batch = EncodedMessages.of([event(n=1)] * 3)
    batch.starts[1] = 10_000
    with pytest.raises(ValueError, match="message 1 is not within"):
        shared(numbered(PREDICATES), set(), 1).match(batch, now_ms=NOW_MS)


def test_time_is_an_input_of_every_match() -> None:
    rules = shared(numbered(["p.creation_time > UTC()", "UTC() > 5", "UTC() = 5", "n = UTC()"]), set(), 1)
    batch = EncodedMessages.of([event(n=5)])
    assert rules.match(batch, now_ms=5).rules.tolist() == [2, 3]
    assert rules.match(batch, now_ms=6).rules.tolist() == [1]
    assert rules.match(batch, now_ms=2**70).rules.tolist() == [1]


def test_a_set_compiles_nothing_anew_for_what_is_removed() -> None:
    rules = RuleSet(numbered(PREDICATES))
    before = rules._parts
    assert rules.without(3)._parts is not None and rules.without(3)._parts[0] is before[0]


def test_the_greater_part_removed_is_forgotten() -> None:
    rules = RuleSet(numbered([f"n = {number}" for number in range(300)]))
    for number in range(250):
        rules = rules.without(number)
    assert sum(len(part) for part in rules._parts) < 150
    batch = EncodedMessages.of([event(n=n) for n in range(300)])
    assert rules.match(batch, now_ms=0).rules.tolist() == list(range(250, 300))


def test_added_filters_are_gathered_in_few_parts() -> None:
    rules = RuleSet([])
    for number in range(200):
        rules = rules.with_filter(Filter.parse(f"n = {number}", "rabbitmq"))
    assert len(rules._parts) <= 3
    batch = EncodedMessages.of([event(n=n) for n in range(200)])
    assert rules.match(batch, now_ms=0).rules.tolist() == list(range(200))


def test_filters_that_come_together_match_as_those_that_come_one_after_another() -> None:
    filters = [Filter.parse(f"n > {number} AND region = 'r{number % 3}'") for number in range(40)]
    messages = [Message(application_properties={"n": number, "region": f"r{number % 4}"}) for number in range(60)]
    batch = EncodedMessages.of([message.encode() for message in messages])
    together = RuleSet(filters[:5]).with_filters(filters[5:7]).with_filters(filters[7:])
    single = RuleSet(filters[:5])
    for each in filters[5:]:
        single = single.with_filter(each)
    assert together.next_number == single.next_number == len(together) == 40
    assert pairs(together.match(batch, now_ms=0)) == pairs(single.match(batch, now_ms=0))
    assert pairs(together.match(batch, now_ms=0)) == pairs(RuleSet(filters).match(batch, now_ms=0))
