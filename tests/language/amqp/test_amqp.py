"""The dialect `amqp`: what `rabbitmq` accepts is the same tree; the extensions, and where a wrong one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, reject

from amqp_strategies import amqp_expressions
from headgate.errors import FilterError, FilterLimitError
from headgate.language import DEFAULT_DIALECT, bind, parse
from headgate.language.printer import print_tree
from headgate.language.tree import (
    Arithmetic,
    ArithmeticOperator,
    Call,
    Compare,
    CompareOperator,
    CompareSpecial,
    Concatenate,
    Constant,
    Exists,
    Field,
    Function,
    IsNull,
    Name,
    Node,
    SpecialNumber,
    walk,
)
from headgate.message import AmqpType
from headgate.message.fields import FieldReference, Section
from spans import without_spans
from strategies import expressions

EQUAL, LESS, GREATER = CompareOperator.EQUAL, CompareOperator.LESS, CompareOperator.GREATER


def bound(text: str) -> Node:
    return bind(parse(text, "amqp"), "amqp", text)


def n(name: str, *path: bytes | int, section: str | None = None) -> Name:
    return Name(section, name, path=path)


def test_amqp_is_the_language_of_a_filter_whose_giver_names_none() -> None:
    assert DEFAULT_DIALECT == "amqp"
    assert parse("EXISTS(x)") == parse("EXISTS(x)", "amqp")


@given(expressions)
def test_what_rabbitmq_accepts_is_the_same_tree_spans_included(text: str) -> None:
    tree = parse(text, "amqp")
    assert tree == parse(text, "rabbitmq")
    assert bind(tree, "amqp", text) == bind(parse(text, "rabbitmq"), "rabbitmq", text)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1 AND[0] = 2",
        "NOT[x] = 1 OR['a] = 5",
        "x IN([x],[0])",
        "x = 1 AND['a] = ']'",
        "a.EXISTS = 1 AND a.INF = a.lower",
        "h.priority = 4",
    ],
)
def test_brackets_behind_anything_but_a_name_are_a_name_as_in_rabbitmq(text: str) -> None:
    assert parse(text, "amqp") == parse(text, "rabbitmq")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("tags[0]", n("tags", 0)),
        ("tags[007][2147483647]", n("tags", 7, 2147483647)),
        ("addr['geo'][\"l''at\"]", n("addr", b"geo", b"l''at")),
        ("addr['it''s']", n("addr", b"it's")),
        ("[my-list][0]", n("my-list", 0)),
        ("m.[x-opt-path][0]", n("x-opt-path", 0, section="m")),
        ("a.date['é']", n("date", "é".encode(), section="a")),
        ("f.[a[[b]]c]", n("a[b]c", section="f")),
        ("tags[0] IS NULL", IsNull(n("tags", 0))),
        ("EXISTS(tags[0])", Exists(n("tags", 0))),
        ("EXISTS ( x ) = TRUE", Compare(EQUAL, Exists(n("x")), Constant(True))),
        ("x || y || z", Concatenate(Concatenate(n("x"), n("y")), n("z"))),
        ("x || y * z", Concatenate(n("x"), Arithmetic(ArithmeticOperator.MULTIPLY, n("y"), n("z")))),
        ("x + y || z", Concatenate(Arithmetic(ArithmeticOperator.ADD, n("x"), n("y")), n("z"))),
        ("LOWER(x)", Call(Function.LOWER, (n("x"),))),
        ("SUBSTRING(x, 1, y)", Call(Function.SUBSTRING, (n("x"), Constant(1), n("y")))),
        ("x = INF", CompareSpecial(EQUAL, n("x"), SpecialNumber.INFINITY)),
        ("x[0] < -INF", CompareSpecial(LESS, n("x", 0), SpecialNumber.NEGATIVE_INFINITY)),
        ("+INF > x", CompareSpecial(LESS, n("x"), SpecialNumber.INFINITY)),
        ("NAN < x", CompareSpecial(GREATER, n("x"), SpecialNumber.NAN)),
    ],
)
def test_a_text_gives_this_tree(text: str, tree: Node) -> None:
    assert without_spans(parse(text, "amqp")) == tree
    assert without_spans(parse(print_tree(tree), "amqp")) == tree


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("h.durable", FieldReference(Section.HEADER, 0, default=False, only=AmqpType.BOOLEAN)),
        ("header.ttl", FieldReference(Section.HEADER, 2, only=AmqpType.UINT)),
        ("h.delivery_count", FieldReference(Section.HEADER, 4, default=0, only=AmqpType.UINT)),
        ("h.delivery_count[0]", FieldReference(Section.HEADER, 4, path=(0,))),
        ("m.[x-opt]", FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt")),
        ("delivery_annotations.x", FieldReference(Section.DELIVERY_ANNOTATIONS, key=b"x")),
        ("f.x['k']", FieldReference(Section.FOOTER, key=b"x", path=(b"k",))),
        ("a.[x y]", FieldReference(Section.APPLICATION_PROPERTIES, key=b"x y")),
    ],
)
def test_a_name_becomes_this_field(text: str, reference: FieldReference) -> None:
    assert without_spans(bound(text)) == Field(reference)


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("LOWER('ÄB' || 'C')", "äbc"),
        ("LEFT('abc', 3 - 1)", "ab"),
        ("SUBSTRING('abc', -(1), 3)", "a"),
        ("RIGHT('abc', 9)", "abc"),
        ("DATE('1970-01-01T00:00:01Z')", 1000),
        ("'a' || ('b' || 0x63)", "abc"),
    ],
)
def test_constants_are_computed_once(text: str, constant: str | int) -> None:
    tree = bound(text)
    assert isinstance(tree, Constant)
    assert tree.value == (constant.encode() if isinstance(constant, str) else constant)


def test_a_concatenation_of_constants_without_value_is_unknown_and_not_refused() -> None:
    assert isinstance(bound("'a' || 5"), Concatenate)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("x = INF + 1", "INF", "INF stands only on one side of a comparison whose other side is a name"),
        ("x = (-INF)", "(-INF)", "-INF stands only on one side"),
        ("5 < NAN", "NAN", "NAN stands only"),
        ("(x) = INF", "INF", "INF stands only"),
        ("INF IS NULL", "INF", "INF stands only"),
        ("EXISTS(x + 1)", "+", "expected ')'"),
        ("EXISTS((x))", "(", "expected the name of a field, which is all that EXISTS takes"),
        ("EXISTS(5)", "5", "expected the name of a field"),
        ("x[-1] = 5", "[-1]", "found '[-1]' behind a name, expected the number of an element, as in [0], or a key"),
        ("x[ 0] = 5", "[ 0]", "found '[ 0]' behind a name"),
        ("x[y", "[y", "found '[y' behind a name"),
        ("x [0] = 5", "[0]", "found name [0], expected an operator"),
        ("x[2147483648] = 5", "[2147483648]", "the number of an element is at most 2147483647"),
        ("addr.city = 'x'", "addr.city", "found section 'addr', expected one of"),
        ("addr.city = 'x'", "addr.city", "an entry of a map is addr['city']"),
        ("p.[subject] = 'x'", "p.[subject]", "the fields of p are named without brackets, as in p.subject"),
        ("h.Durable", "h.Durable", "did you mean h.durable?"),
        ("m . x = 1", ".", "a dot stands only between a section and a name"),
        ("x | y = 'z'", "|", "texts are joined by '||'"),
        ("lower(x) = 'a'", "lower", "lower is reserved and cannot be a name; the keyword is LOWER"),
        ("LEFT(x) = 'a'", "LEFT(x)", "LEFT takes 2 arguments, found 1"),
        ("LOWER() = 'a'", "LOWER()", "LOWER takes 1 argument, found 0"),
        ("SUBSTRING(x) = 'a'", "SUBSTRING(x)", "SUBSTRING takes 2 or 3 arguments, found 1"),
        ("UPPER(x = y) = 'a'", "=", "expected ')'"),
        ("LEFT(x, NOT y)", "NOT", "needs parentheses here"),
        ("UPPER(5) = '5'", "UPPER(5)", "UPPER has no value for these constants"),
        ("x = LEFT('a', -1)", "LEFT('a', -1)", "LEFT has no value"),
        ("LOWER(UPPER(TRUE)) = 'a'", "UPPER(TRUE)", "UPPER has no value"),
        ("DATE('2026-02-30') > 0", "DATE('2026-02-30')", "DATE has no value"),
    ],
)
def test_a_wrong_extension_is_refused_at_its_place(text: str, place: str, reason: str) -> None:
    with pytest.raises(FilterError) as refusal:
        bound(text)
    assert text[slice(*refusal.value.span)] == place
    assert reason in refusal.value.reason
    assert refusal.value.dialect == "amqp"
    with pytest.raises(FilterError):
        bind(parse(text, "rabbitmq"), "rabbitmq", text)


def test_a_name_with_its_section_and_each_reference_are_one_token() -> None:
    two_hundred = "m.[x-y]" + "[0]" * 197 + " IS NULL"
    parse(two_hundred, "amqp")
    with pytest.raises(FilterLimitError):
        parse(two_hundred.replace(" IS", "['k'] IS"), "amqp")
    parse("LEFT(x, 1) = 'a' AND " * 22 + "x", "amqp")
    with pytest.raises(FilterLimitError):
        parse("LEFT(x, 1) = 'a' AND " * 22 + "x = 1", "amqp")


@given(amqp_expressions)
def test_what_is_printed_parses_to_the_same_tree_bound_and_unbound(text: str) -> None:
    try:
        unbound = parse(text, "amqp")
    except FilterLimitError:
        # Some of the drawn texts have more tokens than a filter may have.
        reject()
    assert without_spans(parse(print_tree(unbound), "amqp")) == without_spans(unbound)
    try:
        tree = bind(unbound, "amqp", text)
    except FilterError:
        return
    printed = print_tree(tree)
    assert without_spans(bind(parse(printed, "amqp"), "amqp", printed)) == without_spans(tree)
    assert all(0 <= node.span[0] < node.span[1] <= len(text) for node in walk(tree))
