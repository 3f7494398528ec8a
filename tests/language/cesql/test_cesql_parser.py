"""The dialect cesql: what it takes, how it reads it, what it refuses with which place and reason, and its warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cesql_strategies
from headgate.errors import FilterConversionError, FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.evaluate import Filter
from headgate.language import bind, parse, spelled, warnings_of
from headgate.language.tree import Node
from spans import without_spans


def bound(text: str) -> Node:
    return bind(parse(text, "cesql"), "cesql", text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a=1", "a = 1"),
        ("A = 'x' and Exists B", "a = 'x' AND EXISTS b"),
        ("a = 1 OR b = 2 AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("a = 1 AND b = 2 OR c = 3", "(a = 1 AND b = 2) OR c = 3"),
        ("a AND b AND c", "BOOL(a) AND BOOL(b) AND BOOL(c)"),
        ("a AND (b AND c)", "BOOL(a) AND (BOOL(b) AND BOOL(c))"),
        ("a XOR b = 1", "BOOL(a) <> (b = 1)"),
        ("NOT a = 'x'", "NOT BOOL(a) = 'x'"),
        ("NOT (a = 'x')", "NOT (a = 'x')"),
        ("not not -a", "NOT NOT BOOL(-a)"),
        ("NOT a LIKE 'x'", "NOT BOOL(a) LIKE 'x'"),
        ("a + 1 IN (5)", "a + 1 IN (5)"),
        ("(a + 1) IN (5)", "(a + 1) IN (5)"),
        ("a * b LIKE 'x%' IN (TRUE)", "a * b LIKE 'x%' IN (TRUE)"),
        ("a < b = c", "a < b = c"),
        ("a < (b = c)", "a < (b = c)"),
        ("a - (b - c)", "a - (b - c)"),
        ("--5", "5"),
        ("-(-a)", "- -a"),
        ("- -2147483648", "- -2147483648"),
        ("5 -3", "2"),
        ("int(a) + Length('é')", "INT(a) + LENGTH('é')"),
        ("CONCAT()", "CONCAT()"),
        ("left = right", "left = right"),
        ("a IN (b + 1, c OR d)", "a IN (b + 1, BOOL(c) OR BOOL(d))"),
        (r"a LIKE 'x\%\y\_%'", r"a LIKE 'x\%\y\_%'"),
        (r"'it\'s' = a", '"it\'s" = a'),
        (r"""'\'"' = a""", r"""'\'"' = a"""),
        (r"'a\\' = a", r"'a\\' = a"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    tree = bound(text)
    assert spelled(tree, "cesql") == canonical
    assert without_spans(bound(canonical)) == without_spans(tree)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a = 'x", "'", "a string begins here and is not closed"),
        ("a = 'x''y'", "'y'", "found string 'y'"),
        ("a LIKE b", "b", "the pattern of LIKE, a string constant"),
        ("a IN ()", ")", "expected a value or a name"),
        ("a = 2147483648", "2147483648", "beyond the range of an integer of 32 bits"),
        ("a = - 2147483648", "2147483648", "beyond the range of an integer of 32 bits"),
        ("a = 99999999999", "99999999999", "beyond the range of an integer of 32 bits"),
        ("a = +b", "+", "the sign of an integer"),
        ("a = 1.5", ".", "numbers are integers"),
        ("EXISTS 'a'", "'a'", "the name of an attribute"),
        ("EXISTS LEFT(a, 1)", "LEFT(a, 1)", "found a function"),
        ("a IS NULL", "IS", "expected an operator"),
        ("(a", "", "expected ')'"),
        ("a ]", "]", "begins no token of cesql"),
    ],
)
def test_refused(text: str, place: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError, match="cesql filter refused") as refused:
        bound(text)
    assert (text[slice(*refused.value.span)], reason in refused.value.reason) == (place, True), refused.value.reason


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("foo(1)", "foo", "there is no function foo"),
        ("lenght(a) = 2", "lenght", "there is no function lenght; did you mean 'LENGTH'"),
        ("1 + ABS()", "ABS()", "there is no function ABS of 0 arguments"),
        ("LEFT(a)", "LEFT(a)", "there is no function LEFT of 1 argument"),
        ("my_name = 1", "my_name", "letters and digits only"),
        ("a = Data", "Data", "the data of an event is no attribute"),
    ],
)
def test_names_that_nothing_has_are_refused(text: str, place: str, reason: str) -> None:
    with pytest.raises(FilterTypeError) as refused:
        bound(text)
    assert (text[slice(*refused.value.span)], reason in refused.value.reason) == (place, True), refused.value.reason


def test_limits() -> None:
    bound(" AND ".join(["a = 1"] * 5000))
    bound("(" * 1000 + "a" + ")" * 1000)
    for text in ("(" * 1001 + "a" + ")" * 1001, "-" * 300 + "a", "a + (" * 300 + "1" + ")" * 300, "a" * 262_145):
        with pytest.raises(FilterLimitError):
            bound(text)


@given(st.one_of(cesql_strategies.token_soups, cesql_strategies.expressions, st.text(max_size=20)))
def test_any_text_is_a_filter_that_prints_as_itself_or_is_refused(text: str) -> None:
    try:
        tree = bound(text)
    except FilterError as refused:
        start, stop = refused.span
        assert 0 <= start <= stop <= len(text)
        return
    assert without_spans(bound(spelled(tree, "cesql"))) == without_spans(tree)
    warnings_of(text, tree, "cesql")


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("a = 'x' AND (NOT b) = c", []),
        ("NOT a = 'x'", [("NOT a", "NOT binds tighter than what follows: this is (NOT a) = 'x'")]),
        ("b AND NOT a IN (1)", [("NOT a", "NOT binds tighter than what follows: this is (NOT a) IN (1)")]),
        ("NOT EXISTS a", []),
        ("a OR b AND c", [("a OR b AND c", "OR and AND bind alike")]),
        ("a XOR b AND c", [("a XOR b AND c", "XOR and AND bind alike")]),
        ("a AND b XOR c", [("a AND b XOR c", "AND and XOR bind alike")]),
        ("(a OR b) AND c", []),
        ("(a) OR (b) AND (c)", [("(a) OR (b) AND (c)", "OR and AND bind alike")]),
        ("a OR (b AND c)", []),
        ("(a = ')' OR b) AND c", []),
        (r"(a = '\')' OR b) AND c", []),
        ("a <> b AND c", []),
        ("a AND b AND c", []),
        ("a XOR b XOR c", []),
        ("1 + a", [("1 + a", "gives a value of type Integer")]),
    ],
)
def test_warnings(text: str, warned: list[tuple[str, str]]) -> None:
    found = [(text[slice(*each.span)], each.reason) for each in warnings_of(text, bound(text), "cesql")]
    assert [place for place, _ in found] == [place for place, _ in warned]
    for (_, reason), (_, expected) in zip(found, warned, strict=True):
        assert reason.startswith(expected) or expected in reason


def test_filters_of_events_are_not_converted() -> None:
    for source, target in (("cesql", "amqp"), ("amqp", "cesql")):
        with pytest.raises(FilterConversionError, match="no filter that is true for the same messages"):
            Filter.parse("a = 'x'", source).convert(target)
    assert Filter.parse("1 = 1", "cesql").convert("amqp").text == "TRUE"
    assert Filter.parse("TRUE", "amqp").convert("cesql").text == "TRUE"
