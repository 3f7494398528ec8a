"""Text on the left, tree on the right: the grammar of `rabbitmq` (rabbitmq_filters, sections 2.1 to 2.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.language import bind
from headgate.language import parse as parse_text
from headgate.language.tree import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Compare,
    CompareOperator,
    Constant,
    Field,
    In,
    IsNull,
    LikeText,
    Name,
    Node,
    Not,
    Now,
    Or,
    Sign,
    walk,
)
from headgate.message import AmqpType
from headgate.message.fields import FieldReference, Section
from spans import without_spans
from strategies import expressions


def parse(text: str) -> Node:
    return parse_text(text, "rabbitmq")


def n(name: str, section: str | None = None) -> Name:
    return Name(section, name)


def c(value: bool | int | float | str | bytes) -> Constant:
    return Constant(value.encode() if isinstance(value, str) else value)


def eq(left: Node, right: Node) -> Compare:
    return Compare(CompareOperator.EQUAL, left, right)


def sums(symbol: str, left: Node, right: Node) -> Arithmetic:
    return Arithmetic(ArithmeticOperator(symbol), left, right)


A, B, C = n("x"), n("y"), n("z")

TREES: list[tuple[str, Node]] = [
    ("x", A),
    ("TRUE", c(True)),
    ("FALSE", c(False)),
    ("x = 5", eq(A, c(5))),
    ("x <> 5", Compare(CompareOperator.NOT_EQUAL, A, c(5))),
    ("x != 5", Compare(CompareOperator.NOT_EQUAL, A, c(5))),
    ("x < 5", Compare(CompareOperator.LESS, A, c(5))),
    ("x <= 5", Compare(CompareOperator.LESS_OR_EQUAL, A, c(5))),
    ("x > 5", Compare(CompareOperator.GREATER, A, c(5))),
    ("x >= 5", Compare(CompareOperator.GREATER_OR_EQUAL, A, c(5))),
    ("x=y", eq(A, B)),
    ("x OR y", Or((A, B))),
    ("x OR y OR z", Or((A, B, C))),
    ("x OR (y OR z)", Or((A, Or((B, C))))),
    ("(x OR y) OR z", Or((Or((A, B)), C))),
    ("x AND y AND z", And((A, B, C))),
    ("x OR y AND z", Or((A, And((B, C))))),
    ("(x OR y) AND z", And((Or((A, B)), C))),
    ("NOT x AND y", And((Not(A), B))),
    ("NOT x = y", Not(eq(A, B))),
    ("NOT NOT x", Not(Not(A))),
    ("x AND NOT y", And((A, Not(B)))),
    ("TRUE = (NOT FALSE)", eq(c(True), Not(c(False)))),
    ("x + y * z", sums("+", A, sums("*", B, C))),
    ("(x + y) * z", sums("*", sums("+", A, B), C)),
    ("x - y - z", sums("-", sums("-", A, B), C)),
    ("x - (y - z)", sums("-", A, sums("-", B, C))),
    ("x / y % z", sums("%", sums("/", A, B), C)),
    ("-x + y", sums("+", Sign(True, A), B)),
    ("- 1", Sign(True, c(1))),
    ("+x", Sign(False, A)),
    ("1 - -1", sums("-", c(1), Sign(True, c(1)))),
    ("-(-1)", Sign(True, Sign(True, c(1)))),
    ("x+1 = y*2", eq(sums("+", A, c(1)), sums("*", B, c(2)))),
    ("(x = y) = TRUE", eq(eq(A, B), c(True))),
    ("x IS NULL", IsNull(A)),
    ("x IS NOT NULL", IsNull(A, negated=True)),
    ("NOT x IS NULL", Not(IsNull(A))),
    ("p.subject IS NULL", IsNull(n("subject", "p"))),
    ("x LIKE 'a%'", LikeText(A, "a%", None)),
    ("x NOT LIKE 'a%'", LikeText(A, "a%", None, negated=True)),
    ("x LIKE 'a!%' ESCAPE '!'", LikeText(A, "a!%", "!")),
    ("x + 1 LIKE 'a'", LikeText(sums("+", A, c(1)), "a", None)),
    ("x IN (1)", In(A, (c(1),))),
    ("x NOT IN (1, y, 4+1)", In(A, (c(1), B, sums("+", c(4), c(1))), negated=True)),
    ("x IN ((y AND z))", In(A, (And((B, C)),))),
    ("UTC()", Now()),
    ("UTC ( ) - 5 < x", Compare(CompareOperator.LESS, sums("-", Now(), c(5)), A)),
    ("007", c(7)),
    ("1.5", c(1.5)),
    ("1.5E3", c(1500.0)),
    ("1.5E-3", c(0.0015)),
    ("1.0E-400", c(0.0)),
    ("'it''s'", c("it's")),
    ('"say ""hi"""', c('say "hi"')),
    ("'say \"hi\"'", c('say "hi"')),
    ("'line\nbreak\t\0'", c("line\nbreak\t\0")),
    ("''", c("")),
    ("'日本'", c("日本")),
    ("0x61FF", c(b"a\xff")),
    ("h.priority", n("priority", "h")),
    ("application_properties.AND", n("AND", "application_properties")),
    ("n-a.color", n("color", "n-a")),
    ("[a b]", n("a b")),
    ("[a]]b[[c]", n("a]b[c")),
    ("[]", n("")),
    ("[p.subject]", n("p.subject")),
    ("between", n("between")),
    ("NULLx", n("NULLx")),
    ("p", n("p")),
    ("\t\n\f\r x ", A),
]


@pytest.mark.parametrize(("text", "tree"), TREES, ids=[text for text, _ in TREES])
def test_a_text_parses_to_its_tree(text: str, tree: Node) -> None:
    assert without_spans(parse(text)) == tree


REFUSED: list[tuple[str, str, str]] = [
    ("", "", "found the end of the filter, expected a value or a name"),
    ("   ", "", "found the end of the filter"),
    ("x =", "", "found the end of the filter, expected a value or a name"),
    ("x = 5 5", "5", "found integer 5, expected an operator or the end"),
    ("x == 5", "=", "found '=', expected a value or a name"),
    ("x = 5 and y", "and", "and is reserved and cannot be a name; the keyword is AND"),
    ("Date = 1", "Date", "Date is reserved"),
    ("true", "true", "the keyword is TRUE"),
    ("1 = 1 = 1", "=", "found '=', expected an operator or the end"),
    ("1 < 2 < 3", "<", "found '<'"),
    ("TRUE = NOT FALSE", "NOT", "found keyword NOT, expected a value or a name; NOT … needs parentheses here"),
    ("--1", "-", "needs parentheses"),
    ("x = + +1", "+", "needs parentheses"),
    ("- +x", "+", "needs parentheses"),
    ("(x) IS NULL", "IS", "found keyword IS"),
    ("'a' IS NULL", "IS", "found keyword IS"),
    ("x + y IS NULL", "IS", "found keyword IS"),
    ("x IS 5", "5", "found integer 5, expected 'NULL' after IS"),
    ("x IS NOT TRUE", "TRUE", "expected 'NULL' after IS"),
    ("x = NULL", "NULL", "found keyword NULL, expected a value"),
    ("x IN ()", ")", "found ')', expected a value or a name"),
    ("x IN 5", "5", "expected '(' after IN"),
    ("x IN (1", "", "expected ')' or ','"),
    ("x IN (TRUE AND TRUE)", "AND", "expected ')' or ','"),
    ("x NOT 5", "5", "found integer 5, expected LIKE or IN after NOT"),
    ("x LIKE y", "y", "found name y, expected the pattern of LIKE"),
    ("x LIKE 'a' ESCAPE y", "y", "expected the escape character"),
    ("(x", "", "expected ')' or an operator"),
    ("x)", ")", "found ')', expected an operator or the end"),
    ("UTC", "", "expected '(' after UTC"),
    ("UTC(1)", "1", "expected ')'"),
    ("body.x.y = 5", ".", "no token of rabbitmq; paths into the body are in the language amqp"),
    ("x # 5", "#", "found '#', which begins no token of rabbitmq"),
    ("x = 5\u00a0", "\u00a0", "found character U+00A0"),
    ("x = 'abc", "'", "a string begins here and is not closed"),
    ("[a[b] = 1", "[", "a name in brackets begins here"),
    ("[a\tb] = 1", "[", "a name in brackets begins here"),
    ("x = 5.", ".", "found '.'"),
    ("x = 5E0", "E0", "found name E0, expected an operator"),
    ("x = 0x6", "x6", "found name x6"),
    ("x = 1.0E400", "1.0E400", "1.0E400 is beyond the range of a double"),
    ("a.[x] = 1", ".", "found '.'"),
    ("x = '\ud800'", "\ud800", "half of a surrogate pair"),
]


@pytest.mark.parametrize(("text", "found", "reason"), REFUSED, ids=[repr(text) for text, _, _ in REFUSED])
def test_a_wrong_text_is_refused_at_its_place(text: str, found: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        parse(text)
    start, stop = refused.value.span
    assert text[start:stop] == found
    assert reason in refused.value.reason
    assert refused.value.dialect == "rabbitmq"


def test_the_place_of_an_error_is_the_second_of_two_equal_tokens() -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        parse("1 = 1 = 1")
    assert refused.value.span == (6, 7)
    assert str(refused.value).splitlines()[1:] == ["  1 = 1 = 1", "        ^"]


UNBINDABLE: list[tuple[str, str, str]] = [
    ("x = 1 AND P.subject = 'a'", "P.subject", "found section 'P', expected one of a., application_properties., h."),
    ("body.x = 1", "body.x", "or no section; paths into the body are in the language amqp"),
    ("p.subjct = 'a'", "p.subjct", "did you mean p.subject?"),
    ("h.durable", "h.durable", "section 'h' has no field 'durable', expected one of priority"),
    ("x LIKE 'a!' ESCAPE '!'", "!", "the pattern ends with the escape character"),
    ("x LIKE 'a' ESCAPE 'ab'", "'ab'", "the escape has 2 characters, expected one"),
    ("x LIKE 'a' ESCAPE ''", "''", "the escape has 0 characters"),
    ("x LIKE 'it''s\x00!'", "\x00", "control character U+0000"),
    ("x LIKE 'a\x7f%'", "\x7f", "control character U+007F"),
]


@pytest.mark.parametrize(("text", "found", "reason"), UNBINDABLE, ids=[repr(text) for text, _, _ in UNBINDABLE])
def test_a_name_or_pattern_that_does_not_fit_is_refused_when_bound(text: str, found: str, reason: str) -> None:
    with pytest.raises(FilterError) as refused:
        bind(parse(text), "rabbitmq", text)
    start, stop = refused.value.span
    assert text[start:stop] == found
    assert reason in refused.value.reason
    assert isinstance(refused.value, FilterSyntaxError if "LIKE" in text else FilterTypeError)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("subject", FieldReference(Section.APPLICATION_PROPERTIES, key=b"subject")),
        ("a.null", FieldReference(Section.APPLICATION_PROPERTIES, key=b"null")),
        ("application_properties.x", FieldReference(Section.APPLICATION_PROPERTIES, key=b"x")),
        ("[größe]", FieldReference(Section.APPLICATION_PROPERTIES, key="größe".encode())),
        ("h.priority", FieldReference(Section.HEADER, position=1, default=4, only=AmqpType.UBYTE)),
        ("header.priority", FieldReference(Section.HEADER, position=1, default=4, only=AmqpType.UBYTE)),
        ("p.message_id", FieldReference(Section.PROPERTIES, position=0)),
        ("properties.creation_time", FieldReference(Section.PROPERTIES, position=9)),
        ("p.reply_to_group_id", FieldReference(Section.PROPERTIES, position=12)),
    ],
)
def test_a_name_binds_to_the_field_it_stands_for(text: str, reference: FieldReference) -> None:
    bound = bind(parse(text), "rabbitmq", text)
    assert isinstance(bound, Field)
    assert bound.reference == reference


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 + 2 * 3", 7), ("-5", -5), ("7 / 2", 3.5), ("6 / 2", 3.0), ("-7 % 3", -1), ("7 % -3", 1), ("1.5 - 1", 0.5)],
)
def test_constant_arithmetic_is_done_when_binding(text: str, value: float) -> None:
    bound = bind(parse(text), "rabbitmq", text)
    assert isinstance(bound, Constant)
    assert bound.value == value
    assert type(bound.value) is type(value)


@pytest.mark.parametrize("text", ["1.0E308 * 10", "1 / 0", "5 % 0.5", "'a' + 'b'", "-'a'", "1.5 + 1" + "0" * 330])
def test_constant_arithmetic_without_a_value_is_left_to_be_unknown(text: str) -> None:
    assert not isinstance(bind(parse(text), "rabbitmq", text), Constant)


def test_spans_of_nodes_are_their_places_in_the_text() -> None:
    text = "a.x = 5 AND (region LIKE 'A%' OR NOT -x IN (1, 2))"
    places = [text[slice(*node.span)] for node in walk(parse(text))]
    assert places == [
        text,
        "a.x = 5",
        "a.x",
        "5",
        "(region LIKE 'A%' OR NOT -x IN (1, 2))",
        "region LIKE 'A%'",
        "region",
        "NOT -x IN (1, 2)",
        "-x IN (1, 2)",
        "-x",
        "x",
        "1",
        "2",
    ]


def test_4096_characters_pass_and_one_more_does_not() -> None:
    head = "x <> '"
    parse(head + "日" * (4096 - len(head) - 1) + "'")
    with pytest.raises(FilterLimitError, match="4097 characters, rabbitmq allows 4096"):
        parse(head + "日" * (4096 - len(head)) + "'")


def test_200_tokens_pass_and_one_more_does_not() -> None:
    parse("NOT " * 199 + "TRUE")
    with pytest.raises(FilterLimitError, match="more than the 200 tokens"):
        parse("NOT " * 200 + "TRUE")
    parse("(" * 99 + "TRUE" + ")" * 99)
    with pytest.raises(FilterLimitError):
        parse("(" * 100 + "TRUE" + ")" * 100)
    parse("UTC() > 1 AND " * 33 + "NOT TRUE")
    with pytest.raises(FilterLimitError):
        parse("UTC() > 1 AND " * 33 + "NOT NOT TRUE")


def refusal(text: str) -> FilterError | None:
    try:
        bind(parse(text), "rabbitmq", text)
    except FilterError as refused:
        return refused
    return None


LIKELY_CHARACTERS = "xyANDORTUCnull ()'\"=<>+-*/%,.0159[]LIKESCAPE\n"


@given(st.one_of(st.text(max_size=200), st.text(alphabet=LIKELY_CHARACTERS, max_size=300)))
def test_any_text_parses_or_is_refused_with_a_span_inside_it(text: str) -> None:
    refused = refusal(text)
    if refused is not None:
        start, stop = refused.span
        assert 0 <= start <= stop <= len(text)
        assert str(refused)


@given(expressions, st.integers(0, 10_000), st.sampled_from("()'=,ANOT "))
def test_an_expression_with_one_character_more_parses_or_is_refused(text: str, place: int, character: str) -> None:
    place %= len(text) + 1
    refused = refusal(text[:place] + character + text[place:])
    assert refused is None or refused.reason
