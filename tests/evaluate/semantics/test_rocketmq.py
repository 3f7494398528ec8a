"""What `rocketmq` makes of messages: strings, typed values, NULL and errors (rocketmq_filters, sections 6 and 13)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, FilterError
from headgate.evaluate import Filter, Verdict
from headgate.evaluate.filter import Engine
from headgate.evaluate.pruning import wanted_values
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message
from headgate.message.fields import FieldReference, Section
from headgate.message.rocketmq import SYSTEM_PROPERTIES, stored_message
from headgate.message.types import NULL
from rocketmq_strategies import expressions, string_maps, typed_maps

T, F, N, X = Verdict.TRUE, Verdict.FALSE, Verdict.UNKNOWN, Verdict.ERROR


def verdict(text: str, properties: dict[str, Any]) -> Verdict:
    """The verdict of the reference, which must be that of the kernel."""
    filter, message = Filter.parse(text, "rocketmq"), stored_message(properties)
    decided = filter.verdict(message, now_ms=0)
    batch = EncodedMessages.of([message.encode()])
    assert filter.verdicts(batch, now_ms=0, engine=Engine.KERNEL).tolist() == [decided]
    return decided


def number(kind: str, value: float) -> AmqpValue:
    return AmqpValue(AmqpType(kind), value)


@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        ("missing = 5", {}, N),
        ("5 = missing", {}, F),
        ("a <> missing", {"a": "x"}, T),
        ("missing <> a", {"a": "x"}, N),
        ("missing = other", {}, T),
        ("missing <> other", {}, F),
        ("a = b", {"a": "5", "b": "5.0"}, F),
        ("a >= b", {"a": "5", "b": "5.0"}, T),
        ("a < b", {"a": "10", "b": "9"}, F),
        ("a < b", {"a": "x", "b": "9"}, X),
        ("a < b", {"a": "0x1p3", "b": " Infinity "}, T),
        ("a >= b", {"a": "NaN", "b": "Infinity"}, T),
        ("a < b", {"a": "-0.0", "b": "0"}, T),
        ("price > 10", {"price": "19.99"}, X),
        ("price > 10.0", {"price": "19.99"}, T),
        ("price > 10", {"price": "11"}, T),
        ("count = 5", {"count": "3000000000"}, X),
        ("count = 3000000000", {"count": "3000000000"}, T),
        ("size = 3", {"size": "\u0663"}, T),
        ("size = 3.0", {"size": "\u0663"}, X),
        ("size = 5", {"size": " 5"}, X),
        ("size = 5.0", {"size": " 5"}, T),
        ("flag = TRUE", {"flag": "tRuE"}, T),
        ("flag = TRUE", {"flag": "yes"}, F),
        ("flag = FALSE", {"flag": "yes"}, T),
        ("TRUE = flag", {"flag": "true"}, X),
        ("flag", {"flag": "true"}, F),
        ("flag", {}, N),
        ("NOT flag", {"flag": "true"}, T),
        ("NOT flag", {}, N),
        ("NOT a = 'x'", {"a": "x"}, X),
        ("NOT a = 5", {"a": "5"}, F),
        ("NOT a IS NULL", {"a": "x"}, F),
        ("(a = 1) = (b = 2)", {"a": "1", "b": "2"}, T),
        ("(a = 1) IS NULL", {}, T),
        ("TRUE OR size > 5", {"size": "x"}, T),
        ("size > 5 OR TRUE", {"size": "x"}, X),
        ("FALSE AND size > 5", {"size": "x"}, F),
        ("missing = 1 AND size > 5", {"size": "x"}, X),
        ("missing = 1 AND FALSE", {}, F),
        ("NULL OR TRUE", {}, T),
        ("NULL", {}, N),
        ("-a > 1", {"a": "5"}, N),
        ("-a IS NULL", {"a": "5"}, T),
        ("+a = '5'", {"a": "5"}, T),
        ("a > -2147483648", {"a": "3000000000"}, T),
        ("a > -2147483647", {"a": "3000000000"}, X),
        ("a BETWEEN 1 AND 5", {"a": "5"}, T),
        ("a NOT BETWEEN 1 AND 5", {"a": "5"}, F),
        ("a BETWEEN 1 AND b", {"a": "7"}, N),
        ("a BETWEEN 10 AND b", {"a": "7"}, F),
        ("a BETWEEN b AND 1", {"a": "7"}, F),
        ("a IN ('5', 'x')", {"a": "5"}, T),
        ("a NOT IN ('5')", {}, N),
        ("a NOT IN ('5')", {"a": "05"}, T),
        ("a CONTAINS ''", {"a": "x"}, F),
        ("a NOT CONTAINS ''", {"a": "x"}, F),
        ("a NOT CONTAINS 'y'", {}, F),
        ("a NOT CONTAINS 'y'", {"a": "x"}, T),
        ("a STARTSWITH 'A'", {"a": "abc"}, F),
        ("a STARTSWITH 'ab'", {"a": "abc"}, T),
        ("a NOT STARTSWITH 'ab'", {"a": "abc"}, F),
        ("a ENDSWITH 'bc'", {"a": "abc"}, T),
        ("'abc' ENDSWITH 'c'", {}, T),
        ("5 CONTAINS '5'", {}, F),
        ("'x' = 1", {}, X),
        ("2 > 1", {}, T),
        ("1 = 1.0", {}, T),
    ],
)
def test_a_verdict_over_strings(text: str, properties: dict[str, str], expected: Verdict) -> None:
    assert verdict(text, properties) is expected


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (number("byte", 5), number("long", 6), -1),
        (number("byte", 5), number("double", 5.0), 0),
        (number("short", 5), number("float", 4.5), 1),
        (number("int", 16777217), number("float", 16777216.0), 0),
        (number("long", 2**62 + 2**38 + 1), number("float", 2.0**62 + 2.0**39), 0),
        (number("long", 2**53 + 1), number("double", 2.0**53), 0),
        (number("long", 5), number("int", 5), 0),
        (number("float", 5.0), number("int", 4), 1),
        (number("float", 16777216.0), number("long", 16777217), 0),
        (number("float", 0.1), number("double", 0.1), 1),
        (number("double", 5.0), number("long", 5), 0),
        (number("double", math.nan), number("double", math.nan), 0),
        (number("double", math.nan), number("double", math.inf), 1),
        (number("double", -0.0), number("double", 0.0), -1),
        (number("byte", 7), "7", 0),
        ("7", number("short", 6), 1),
        ("0.1", number("float", 0.1), 0),
        (number("double", 0.1), "0.1", 0),
        ("x", True, -1),
        (True, True, 0),
        (True, False, 1),
    ],
)
def test_typed_values_compare_by_the_wider_type(left: object, right: object, order: int) -> None:
    properties = {"l": left, "r": right}
    assert verdict("l = r", properties) is (T if order == 0 else F)
    assert verdict("l < r", properties) is (T if order < 0 else F)
    assert verdict("l >= r", properties) is (T if order >= 0 else F)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (number("int", 9), number("byte", 1)),
        (number("int", 9), number("short", 9)),
        (number("short", 9), number("byte", 1)),
        (number("long", 9), number("short", 1)),
        (number("float", 9.0), number("byte", 1)),
        (number("double", 9.0), number("short", 1)),
        (number("int", 9), True),
        (True, number("int", 0)),
    ],
)
def test_pairs_that_the_original_does_not_know_are_below_and_never_equal(left: object, right: object) -> None:
    properties = {"l": left, "r": right}
    assert [verdict(f"l {operator} r", properties) for operator in ("=", "<>", "<", ">")] == [F, T, T, F]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (number("double", 1.0), number("float", 1.0)),
        (True, "true"),
        (number("byte", 1), "128"),
        ("-32769", number("short", 1)),
        (number("int", 1), "1.0"),
        (number("float", 1.0), "x"),
    ],
)
def test_pairs_that_the_original_fails_on_are_errors(left: object, right: object) -> None:
    for operator in ("=", "<>", "<", ">="):
        assert verdict(f"l {operator} r", {"l": left, "r": right}) is X


def test_minus_keeps_the_type_wraps_and_fails_on_byte_and_short() -> None:
    assert verdict("-a = a", {"a": number("int", -(2**31))}) is T
    assert verdict("-a = a", {"a": number("long", -(2**63))}) is T
    assert verdict("-a = 5", {"a": number("long", -5)}) is T
    assert verdict("-a < 0", {"a": number("float", 5.0)}) is T
    assert verdict("-a IS NULL", {"a": True}) is T
    for kind in ("byte", "short"):
        assert verdict("-a = 5", {"a": number(kind, 5)}) is X


def test_an_order_looks_at_its_right_side_only_behind_a_known_left_one() -> None:
    failing = {"a": number("byte", 5)}
    assert verdict("missing < -a", failing) is N
    assert verdict("missing = -a", failing) is X
    assert verdict("-a CONTAINS ''", failing) is F
    assert verdict("-a CONTAINS 'x'", failing) is X


def test_a_boolean_property_is_a_condition() -> None:
    assert [verdict("flag", {"flag": value}) for value in (True, False)] == [T, F]
    assert [verdict("NOT flag", {"flag": value}) for value in (True, False)] == [F, T]
    assert verdict("flag", {"flag": number("int", 1)}) is F


def test_in_knows_strings_only() -> None:
    assert verdict("a IN ('5')", {"a": number("int", 5)}) is N
    assert verdict("a NOT IN ('5')", {"a": True}) is N


@pytest.mark.parametrize(
    "value",
    [
        "",
        NULL,
        number("ubyte", 5),
        number("ulong", 5),
        number("timestamp", 5),
        number("char", 5),
        AmqpValue(AmqpType.SYMBOL, "5"),
        b"5",
        AmqpValue(AmqpType.DECIMAL32, b"\x22\x50\x00\x05"),
        ["5"],
        {"5": "5"},
    ],
)
def test_empty_strings_and_types_that_rocketmq_does_not_have_are_null(value: object) -> None:
    assert verdict("a IS NULL", {"a": value}) is T
    assert verdict("a = 5", {"a": value}) is N
    assert verdict("a", {"a": value}) is N


def test_system_properties_are_read_where_they_are_stored() -> None:
    properties = {name: f"v-{name}" for name in SYSTEM_PROPERTIES if name != "__CRC32#" and name[0] != "1"}
    message = stored_message(properties | {"color": "red"}, b"body")
    for name, value in properties.items():
        assert Filter.parse(f"{name} = '{value}'", "rocketmq").matches(message, now_ms=0)
    assert message.application_properties == {"color": AmqpValue(AmqpType.STRING, "red")}
    assert message.properties == {"message-id": AmqpValue(AmqpType.STRING, "v-UNIQ_KEY")}
    assert message.message_annotations is not None
    assert {"x-opt-rocketmq-tag", "x-opt-rocketmq-keys", "x-opt-rocketmq-WAIT"} <= message.message_annotations.keys()
    assert message.body is not None
    assert message.body.octets() == b"body"


def test_application_properties_with_the_name_of_a_system_property_are_not_seen() -> None:
    message = Message(application_properties={"TAGS": "A", "UNIQ_KEY": "1"}, message_id=7)
    assert Filter.parse("TAGS IS NULL AND UNIQ_KEY IS NULL", "rocketmq").matches(message, now_ms=0)


def test_a_property_without_amqp_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="no AMQP type"):
        stored_message({"a": object()})


def test_a_chain_of_five_thousand_conditions_evaluates() -> None:
    text = " OR ".join(f"a = '{value}'" for value in range(5000))
    filter = Filter.parse(text, "rocketmq")
    assert filter.matches(stored_message({"a": "4999"}), now_ms=0)
    assert not filter.matches(stored_message({"a": "x"}), now_ms=0)


def test_the_highest_tree_that_is_accepted_evaluates() -> None:
    text = "(" * 198 + "a" + " = b)" * 198
    assert verdict(text, {"a": "x", "b": "x"}) in (X, F)
    with pytest.raises(FilterError, match="nested deeper"):
        Filter.parse("(" * 200 + "a" + " = b)" * 200, "rocketmq")


def test_bytes_that_are_no_utf_8_are_a_string_that_is_no_number() -> None:
    raw = bytearray(stored_message({"a": "xyz"}).encode())
    raw[raw.index(b"xyz") + 1] = 0xFF
    decided = [Filter.parse(text, "rocketmq").verdict(bytes(raw), now_ms=0) for text in ("a IS NOT NULL", "a > 5", "a")]
    assert decided == [T, X, F]


@given(expressions, st.lists(st.one_of(string_maps, typed_maps), min_size=1, max_size=4))
def test_evaluating_never_raises_and_both_engines_agree(text: str, maps: list[dict[str, Any]]) -> None:
    try:
        filter = Filter.parse(text, "rocketmq")
    except FilterError:
        return
    messages = [stored_message(properties) for properties in maps]
    alone = [filter.verdict(message, now_ms=0) for message in messages]
    batch = EncodedMessages.of(message.encode() for message in messages)
    assert filter.verdicts(batch, now_ms=0, engine=Engine.KERNEL).tolist() == alone
    assert filter.mask(batch, now_ms=0).tolist() == [each is T for each in alone]


@given(expressions, st.one_of(string_maps, typed_maps))
def test_no_match_lies_outside_the_filter_values_that_an_expression_implies(
    text: str, properties: dict[str, Any]
) -> None:
    try:
        filter = Filter.parse(text, "rocketmq")
    except FilterError:
        return
    message = stored_message(properties)
    source = FieldReference(Section.APPLICATION_PROPERTIES, key=b"a")
    wanted, typed = wanted_values(filter.tree, source), message.value(source)
    if wanted is not None and typed is not None and typed.octets() and filter.matches(message, now_ms=0):
        assert typed.octets() in wanted


@given(expressions, st.one_of(string_maps, typed_maps))
def test_explaining_never_raises_and_gives_the_verdict(text: str, properties: dict[str, Any]) -> None:
    try:
        filter = Filter.parse(text, "rocketmq")
    except FilterError:
        return
    message = stored_message(properties)
    assert filter.explain(message, now_ms=0).verdict is filter.verdict(message, now_ms=0)


def test_explaining_says_why_a_condition_is_an_error_and_what_is_null() -> None:
    filter = Filter.parse("price > 10 AND note IS NULL AND size > 1", "rocketmq")
    explanation = filter.explain(stored_message({"price": "19.99", "note": "", "size": 3}), now_ms=0)
    assert explanation.verdict is X
    assert explanation.reasons == (
        "`price > 10` is error (price is string '19.99'; java.lang.NumberFormatException: For input string: \"19.99\")",
    )
    assert explanation.warnings == ()
    assert explanation.clauses is not None
    assert [clause.note for clause in explanation.clauses.operands][1:] == [
        "note is an empty string, which is NULL",
        "size is long 3",
    ]
