"""The dialect servicebus: what it takes, how it reads it, and what it refuses with which place and reason."""

from __future__ import annotations

import datetime
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import ConfigError, FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.language import Limits, bind, parse, spelled
from headgate.language.servicebus.system_properties import SYSTEM_PROPERTIES
from headgate.language.servicebus.values import time_span
from headgate.language.tree import Constant, Field, MessageSize, NewId, Node, walk
from headgate.message import AmqpType, AmqpValue
from headgate.message.fields import FieldReference, Section
from servicebus_filters import filters
from spans import without_spans


def bound(text: str, **parameters: object) -> Node:
    return bind(parse(text, "servicebus"), "servicebus", text, parameters=parameters)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a=1", "a = 1"),
        ("a = 1 or b = 2 and c = 3", "a = 1 OR b = 2 AND c = 3"),
        ("(a = 1 OR b = 2) AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("NOT a = 1 AND b = 2", "NOT a = 1 AND b = 2"),
        ("not not (a = 1)", "NOT NOT a = 1"),
        ("a != 1", "a <> 1"),
        ("a + b * c - d = 0", "a + b * c - d = 0"),
        ("(a + b) * c = 0", "(a + b) * c = 0"),
        ("a - (b - c) = 0", "a - (b - c) = 0"),
        ("-a * -3 = +b", "-a * -3 = +b"),
        ("n = --5", "n = 5"),
        ("n = - -x", "n = - -x"),
        ("n = -(-x)", "n = - -x"),
        ("n - -1 > 0", "n - -1 > 0"),
        ("a in (1, 'x', b + 1)", "a IN (1, 'x', b + 1)"),
        ("a NOT IN (1)", "a NOT IN (1)"),
        ("a LIKE 'x%'", "a LIKE 'x%'"),
        ("a NOT LIKE 'x!%%' ESCAPE '!'", "a NOT LIKE 'x!%%' ESCAPE '!'"),
        ("a LIKE 'x' + '%'", "a LIKE 'x%'"),
        ("a LIKE b ESCAPE c + ''", "a LIKE b ESCAPE c + ''"),
        ("a LIKE 'x\n%'", "a LIKE 'x\n%'"),
        ("a IS NULL OR b IS NOT NULL", "a IS NULL OR b IS NOT NULL"),
        ("EXISTS (a) AND NOT exists(user.b)", "EXISTS(a) AND NOT EXISTS(b)"),
        ("EXISTS(sys.Label)", "sys.Label IS NOT NULL"),
        ("user.a = sys.label", "a = sys.Label"),
        ("USER . a = SYS . LABEL", "a = sys.Label"),
        ("sys.Subject = 'x'", "sys.Label = 'x'"),
        ('"a""b" = [c]]d]', '[a"b] = [c]]d]'),
        ('user.[x y] = user."p.q"', "[x y] = [p.q]"),
        ("[like] = [Set]", "[like] = [Set]"),
        ("größe = 3", "[größe] = 3"),
        ("sys = user", "sys = user"),
        ("p = 1 AND property = 2 AND newid = 3", "p = 1 AND property = 2 AND newid = 3"),
        ("p('a') = PROPERTY ('b c')", "a = [b c]"),
        ("property(a) = property('x' + b)", "property(a) = property('x' + b)"),
        ("property(NULL) = a", "NULL = a"),
        ("NEWID() <> newid()", "newid() <> newid()"),
        ("a = 'O''Hara'", "a = 'O''Hara'"),
        ("a = 101.5E5", "a = 10150000.0"),
        ("a = 5e3 OR a = 1.5e-2", "a = 5000.0 OR a = 0.015"),
        ("a = 00012", "a = 12"),
        ("a = 9223372036854775807", "a = 9223372036854775807"),
        ("a = -9223372036854775807 - 1", "a = -9223372036854775807 - 1"),
        ("a = 2 * 3 + 1", "a = 7"),
        ("a = 1.0 / 0.0 OR a = 0.0 / 0.0 OR a = -1.0 / 0.0", "a = 1.0 / 0.0 OR a = 0.0 / 0.0 OR a = -1.0 / 0.0"),
        ("a = 1 / 0", "a = 1 / 0"),
        ("a = 9223372036854775807 + 1", "a = 9223372036854775807 + 1"),
        ("1=1", "1 = 1"),
        ("1=0", "1 = 0"),
        ("TRUE = FALSE", "1 = 0"),
        ("'a' > 1", "'a' > 1"),
        ("NULL = NULL", "NULL = NULL"),
        ("sys.Size > 1000", "sys.Size > 1000"),
        ("sys.DeliveryCount = 0", "1 = 1"),
        ("sys.LockToken IS NOT NULL", "1 = 0"),
        ("a\n=\t1", "a = 1"),
    ],
)
def test_a_filter_of_service_bus_reads_as(text: str, canonical: str) -> None:
    assert spelled(bound(text), "servicebus") == canonical


@pytest.mark.parametrize(
    ("text", "found", "reason"),
    [
        ("", "", "found the end of the filter, expected a value or a name"),
        ("color", "color", "found a value, expected a condition"),
        ("TRUE", "TRUE", "found a value, expected a condition"),
        ("(flag) AND a = 1", "(flag)", "found a value, expected a condition"),
        ("NOT flag", "flag", "found a value, expected a condition"),
        ("a = 1 OR 5 + 3", "5 + 3", "found a value, expected a condition"),
        ("a = (b = c)", "(b = c)", "found a condition, expected a value"),
        ("(a = 1) + 2 = 3", "(a = 1)", "found a condition, expected a value"),
        ("a IN (1, (b = 2))", "(b = 2)", "found a condition, expected a value"),
        ("property((a = 1)) = 2", "(a = 1)", "found a condition, expected a value"),
        ("a LIKE (b = 1)", "(b = 1)", "found a condition, expected a value"),
        ("a = b = c", "=", "found '=', expected an operator or the end"),
        ("a == 1", "=", "found '=', expected a value or a name"),
        ("a = 1;", ";", "found ';', which no filter holds"),
        ("a = 1 XOR b = 2", "XOR", "found name XOR, expected an operator or the end"),
        ("a BETWEEN 1 AND 2", "BETWEEN", "found name BETWEEN, expected an operator or the end"),
        ("a 'red'", "'red'", "expected an operator or the end"),
        ("(a = 1", "", "expected ')' or an operator"),
        ("AND a = 1", "AND", "found keyword AND, expected a value or a name"),
        ("a IN ()", ")", "found ')', expected a value or a name"),
        ("a IS 'red'", "'red'", "expected 'NULL' after IS"),
        ("(a) IS NULL", "IS", "found keyword IS"),
        ("5 IS NULL", "IS", "found keyword IS"),
        ("property('a') IS NULL", "IS", "found keyword IS"),
        ("EXISTS a", "a", "expected '(' after EXISTS"),
        ("EXISTS('a')", "'a'", "expected a property"),
        ("EXISTS(p('a'))", "p('a')", "found a function, expected the name of a property"),
        ("EXISTS(a + 1)", "+", "expected ')'"),
        ("property() = 1", ")", "expected a value or a name"),
        ("newid(1) = 1", "1", "expected ')' after newid("),
        ("_x = 1", "_", "begins no token"),
        ("1x = 1", "x", "found name x"),
        ("a² = 1", "a²", "found '²' in a name"),
        ("[a = 1", "[", "a name in brackets begins here and is not closed"),
        ('"a = 1', '"', "a name in double quotes begins here and is not closed"),
        ("a = 'x", "'", "a string begins here and is not closed"),
        ("user.LIKE = 1", "user.LIKE", "LIKE is a reserved word"),
        ("a = 0x1F", "x1F", "found name x1F"),
        ("a = N'x'", "'x'", "found string 'x'"),
        ("a = .5", ".", "begins no token"),
        ("a = 5.", ".", "begins no token"),
        ("a = 9223372036854775808", "9223372036854775808", "beyond the range of a 64-bit integer"),
        ("a = -9223372036854775808", "9223372036854775808", "beyond the range of a 64-bit integer"),
        ("a = 1e999", "1e999", "beyond the range of a double"),
        ("a = 1 -- comment", "--", "there are no comments"),
        ("a = 1 --b", "--", "there are no comments"),
        ("a = /* b */ 1", "/", "found '/'"),
        ("a = @", "@", "found '@' without the name"),
        ("a LIKE 'x' ESCAPE '!!'", "'!!'", "the escape has 2 characters, expected one"),
        ("a LIKE 'x' ESCAPE ''", "''", "the escape has 0 characters, expected one"),
        ("a LIKE 'x!' ESCAPE '!'", "'x!'", "the pattern ends with the escape character"),
        ("a NOT 1", "1", "expected LIKE or IN after NOT"),
    ],
)
def test_a_filter_that_does_not_fit_the_grammar_is_refused(text: str, found: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        bound(text)
    assert refused.value.token == found
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("text", "found", "reason"),
    [
        ("a = sys.Nope", "sys.Nope", "there is no system property 'Nope'"),
        ("a = sys.Lable", "sys.Lable", "did you mean sys.Label?"),
        ("sys.[Label x] = 1", "sys.[Label x]", "there is no system property"),
        ("other.a = 1", "other.a", "found scope 'other', expected sys. or user. or none\n"),
        ("body.a = 1", "body.a", "or none; paths into the body are in the language amqp\n"),
        ("a = @x", "@x", "no value is given for the parameter @x"),
        ("nosuchfn(1) = 1", "nosuchfn", "there is no function nosuchfn"),
        ("[newid]() = 1", "[newid]", "there is no function"),
    ],
)
def test_a_name_without_meaning_is_refused(text: str, found: str, reason: str) -> None:
    with pytest.raises(FilterTypeError, match=reason) as refused:
        bound(text)
    assert refused.value.token == found


def test_an_error_tells_line_column_and_token() -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        bound("color = 'red' AND\n  size = = 3")
    assert (refused.value.line, refused.value.column, refused.value.token) == (2, 10, "=")


def test_the_length_of_a_text_is_limited_and_the_limit_is_configuration() -> None:
    text = "a = '" + "x" * 1018 + "'"
    assert len(text) == 1024
    bound(text)
    with pytest.raises(FilterLimitError, match="1025 characters, servicebus allows 1024"):
        bound(text + " ")
    assert parse(text + " ", "servicebus", limits=Limits(filter_characters=2000)) == parse(text, "servicebus")
    with pytest.raises(ConfigError, match="limit property_bytes is 0"):
        Limits(property_bytes=0)


def test_deep_nesting_is_refused_and_parentheses_are_free() -> None:
    bound("(" * 500 + "a = 1" + ")" * 500)
    with pytest.raises(FilterLimitError, match="nested deeper"):
        bound("a = " + "(1+" * 250 + "x" + ")" * 250)
    with pytest.raises(FilterLimitError, match="nested deeper"):
        bound("a = " + "- " * 400 + "x")


def test_parameters_become_constants_of_their_type() -> None:
    moment = datetime.datetime(2024, 6, 1, tzinfo=datetime.UTC)
    identity = uuid.UUID(int=7)
    tree = bound(
        "a = @s AND b = @I AND c = @d AND e = @t AND f = @u AND g = @n AND h = @[x y]",
        **{
            "@s": "orders",
            "i": 5,
            "d": datetime.timedelta(seconds=1.5),
            "@T": moment,
            "u": identity,
            "n": None,
            "x y": AmqpValue(AmqpType.SYMBOL, "sym"),
        },
    )
    values = [node.value for node in walk(tree) if isinstance(node, Constant)]
    assert values == [
        b"orders",
        5,
        time_span(15_000_000),
        AmqpValue(AmqpType.TIMESTAMP, 1_717_200_000_000),
        AmqpValue(AmqpType.UUID, identity),
        None,
        b"sym",
    ]


def test_names_of_parameters_have_any_letter_case() -> None:
    assert bound("a = @Größe", GRÖSSE=1, größe=2) == bound("a = @GRÖßE", größe=2, GRÖSSE=1)
    assert bound("a = @straße", STRAßE=1) == bound("a = @STRAßE", straße=1)


@pytest.mark.parametrize("text", ["a = @1", "a = @_x", "a = @and"])
def test_what_is_no_name_is_no_parameter(text: str) -> None:
    with pytest.raises(FilterSyntaxError):
        bound(text, **{"1": 1, "_x": 1, "and": 1})
    assert bound("a = @[and]", **{"and": 1})


def test_parameters_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="parameter @A is given twice"):
        bound("b = @a", **{"a": 1, "@A": 2})
    with pytest.raises(ConfigError, match="a list is no value of Service Bus"):
        bound("b = @a", a=[1])
    with pytest.raises(ConfigError, match="dialect rabbitmq has none"):
        bind(parse("a = 1", "rabbitmq"), "rabbitmq", "a = 1", parameters={"x": 1})


def test_user_properties_are_looked_up_without_case_and_system_properties_where_they_lie() -> None:
    references = [node.reference for node in walk(bound("Color = sys.PartitionKey")) if isinstance(node, Field)]
    assert references == [
        FieldReference(Section.APPLICATION_PROPERTIES, key=b"Color", ignore_case=True),
        FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt-partition-key"),
    ]


def test_every_system_property_binds_under_each_of_its_names_in_any_case() -> None:
    for found in SYSTEM_PROPERTIES:
        for name in found.names:
            assert bound(f"a = sys.{name.upper()}") == bound(f"a = SYS.{name.lower()}")
    assert len({name.lower() for found in SYSTEM_PROPERTIES for name in found.names}) == 26
    assert any(isinstance(node, MessageSize) for node in walk(bound("a = sys.size")))


def test_calls_of_newid_are_counted_in_the_order_of_the_text() -> None:
    tree = bound("a = newid() OR b IN (newid(), property(newid()))")
    assert [node.occurrence for node in walk(tree) if isinstance(node, NewId)] == [0, 1, 2]


@given(filters())
@example("n = (- (0 / 0.0))")
def test_the_text_of_a_filter_gives_the_same_filter(text: str) -> None:
    tree = bound(text)
    # By what they show: a NaN that was folded is not equal to itself.
    assert repr(without_spans(bound(spelled(tree, "servicebus")))) == repr(without_spans(tree))


_WORDS = (
    "a sys.Label user.b 'x' 1 1.5 TRUE NULL ( ) , = <> + - * NOT AND OR LIKE ESCAPE IN IS EXISTS newid() p( @x [y] "
    '"z" ; -- .'
)
_SOUP = st.lists(st.sampled_from(_WORDS.split()), max_size=20).map(" ".join)


@given(st.one_of(_SOUP, st.text(max_size=40)))
def test_any_text_is_a_filter_of_service_bus_or_refused(text: str) -> None:
    try:
        tree = bound(text, x=1)
    except FilterError as refused:
        span = refused.span
        if not 0 <= span[0] <= span[1] <= len(text):
            raise AssertionError(f"a place outside of the text: {span}") from refused
    else:
        spelled(tree, "servicebus")
