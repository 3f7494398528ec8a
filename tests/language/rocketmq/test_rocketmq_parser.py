"""Text on the left, the original's view of it on the right: the grammar of `rocketmq` (rocketmq_filters, 3 to 5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given

from headgate.errors import FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.evaluate import Filter
from headgate.language import bind, parse, spelled
from headgate.language.rocketmq.printer import Unspellable, print_tree
from headgate.language.rocketmq.text import expression_text
from headgate.language.tree import Arithmetic, ArithmeticOperator, Constant, Field, Node, Or, walk
from headgate.message import AmqpType, AmqpValue
from headgate.message.fields import FieldReference, Section
from rocketmq_strategies import expressions, token_soups
from spans import without_spans

VECTORS = Path(__file__).parents[2] / "vectors"


def understood(text: str) -> str:
    return expression_text(parse(text, "rocketmq"))


RECORDED = [
    case
    for table in ("rocketmq_sql.jsonl", "own/rocketmq_sql.jsonl")
    for line in (VECTORS / table).read_text().splitlines()
    if (case := json.loads(line)).get("tree") is not None
]


def test_every_recorded_expression_is_understood_as_the_original_understood_it() -> None:
    assert len(RECORDED) > 700
    assert [case["expr"] for case in RECORDED if understood(case["expr"]) != case["tree"]] == []


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("NOT a = 'x'", "((NOT a) == 'x')"),
        ("NOT NOT a", "(NOT (NOT a))"),
        ("not a is Null", "((NOT a) == NULL)"),
        ("a = b = c", "((a == b) == c)"),
        ("a > 5 = b < 6", "((a > 5) == (b < 6))"),
        ("a = b > c", "(a == (b > c))"),
        ("a AND b AND c", "((a && b) && c)"),
        ("a AND (b AND c)", "(a && (b && c))"),
        ("a OR b AND c", "(a || (b && c))"),
        ("a BETWEEN 1 AND 5 AND b", "(((a >= 1) && (a <= 5)) && b)"),
        ("a NOT BETWEEN 5 AND 1", "((a < 5) || (a > 1))"),
        ("a BETWEEN -1 AND -10", "((a >= (- 1)) && (a <= (- 10)))"),
        ("+(+a) IN ('x')", "a IN ( x )"),
        ("((a)) IN ('x')", "a IN ( x )"),
        ("- - a = 1", "((- (- a)) == 1)"),
        ("a IS NULL IS NOT NULL", "(NOT ((a == NULL) == NULL))"),
        ("a NOT STARTSWITH 'x' = TRUE", "((NOT STARTSWITH a) == TRUE)"),
        ("trueish = $x_1", "(trueish == $x_1)"),
        ("a = 2147483647", "(a == 2147483647)"),
        ("a = 9223372036854775807L", "(a == 9223372036854775807)"),
        ("a = 10l", "(a == 10)"),
        ("a = 010.5", "(a == 10.5)"),
        ("a = 5.", "(a == 5.0)"),
        ("a = .5e1", "(a == 5.0)"),
        ("a = 1e7", "(a == 1.0E7)"),
        ("a = 1E-4", "(a == 1.0E-4)"),
        ("a = 'it''s'", "(a == 'it''s')"),
        ("a = 'two\nlines'", "(a == 'two\nlines')"),
        ("a -- comment\n= /* another **/ 1", "(a == 1)"),
        ("a -- comment\r= 1", "(a == 1)"),
        ("a = 1 -- no line end", "(a == 1)"),
    ],
)
def test_a_text_is_understood_as_the_original_does(text: str, tree: str) -> None:
    assert understood(text) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = '1' b = '2'", "(a == '1')"),
        ("a = '1')", "(a == '1')"),
        ("a = 05", "(a == 0)"),
        ("a = 0L", "(a == 0)"),
        ("a = 1 + 1", "(a == 1)"),
        ("a-b = 1", "a"),
        ("a LIKE 'x%'", "a"),
        ("NOT a LIKE 'x'", "(NOT a)"),
        ("a IS NULL NOT x", "(a == NULL)"),
        ("a = 1 b !;", "(a == 1)"),
        ("a = 1 99999999999999999999", "(a == 1)"),
        ("a = 1 0.0", "(a == 1)"),
    ],
)
def test_what_follows_a_complete_expression_is_ignored(text: str, tree: str) -> None:
    assert understood(text) == tree


@pytest.mark.parametrize(
    ("text", "reason", "marked"),
    [
        ("color = NULL", "'NULL' cannot be compared.", "NULL"),
        ("NULL <> color", "'NULL' cannot be compared.", "NULL"),
        ("TRUE = 1", "'TRUE' cannot be compared with '1'", "TRUE = 1"),
        ("FALSE <> 'x'", "'FALSE' cannot be compared with ''x''", "FALSE <> 'x'"),
        ("a > 'x'", "Value ''x'' cannot be compared.", "'x'"),
        ("'it''s' < a", "Value ''it''s'' cannot be compared.", "'it''s'"),
        ("a < b < c", "Value '(a < b)' cannot be compared.", "a < b"),
        ("NOT a > 5", "Value '(NOT a)' cannot be compared.", "NOT a"),
        ("a > TRUE", "Value 'TRUE' cannot be compared.", "TRUE"),
        ("(a OR b) > 1", "Value '(a || b)' cannot be compared.", "(a OR b)"),
        ("a IN ('x') > 1", "Value 'a IN ( x )' cannot be compared.", "a IN ('x')"),
        ("a BETWEEN '\U0001f600' AND '\uff21'", "Value ''\U0001f600'' cannot be compared.", "'\U0001f600'"),
        ("a BETWEEN NULL AND 5", "Illegal values of between, values can not be null!", "NULL AND 5"),
        ("a BETWEEN 1 AND 'x'", 'java.lang.NumberFormatException: For input string: "x"', "1 AND 'x'"),
        ("a BETWEEN 1e0 AND ' '", "java.lang.NumberFormatException: empty String", "1e0 AND ' '"),
        ("a BETWEEN 'x' AND TRUE", "class java.lang.String cannot be cast to class java.lang.Boolean", "'x' AND TRUE"),
        ("a NOT BETWEEN NULL AND 5", "Value 'NULL' cannot be compared.", "NULL"),
        ("5 IN ('5')", "Expected a property for In expression, got: 5", "5"),
        ("NOT a IN ('5')", "Expected a property for In expression, got: (NOT a)", "NOT a"),
        ("-a IN ('5')", "Expected a property for In expression, got: (- a)", "-a"),
        ("'x'", "Expression will not result in a boolean value: 'x'", "'x'"),
        ("-a", "Expression will not result in a boolean value: (- a)", "-a"),
        ("TRUE AND 1", "Expression will not result in a boolean value: 1", "1"),
        ("1 OR 'x'", "Expression will not result in a boolean value: 1", "1"),
        ("NOT 1", "Expression will not result in a boolean value: 1", "1"),
        ("a = 0.0", "0.0 is less than 4.9E-324", "0.0"),
        ("a = 1e-400", "1e-400 is less than 4.9E-324", "1e-400"),
        ("a = 1e400", "1e400 is greater than 1.7976931348623157E308", "1e400"),
        ("a = -9223372036854775808", "9223372036854775808 does not fit into a long", "9223372036854775808"),
        ("'x' > -5 !", "Value ''x'' cannot be compared.", "'x'"),
        ("'x' > a ;", "Value ''x'' cannot be compared.", "'x'"),
    ],
)  # fmt: skip
def test_a_comparison_that_cannot_be_is_refused_with_the_text_of_the_original(
    text: str, reason: str, marked: str
) -> None:
    with pytest.raises(FilterError) as refused:
        Filter.parse(text, "rocketmq")
    start, stop = refused.value.span
    assert refused.value.reason.startswith(reason)
    assert text[start:stop] == marked
    assert refused.value.dialect == "rocketmq"


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ("10 AND 1", "10", "1"),
        ("1e1 AND 1", "10.0", "1"),
        ("3000000000 AND 1", "3000000000", "1"),
        ("'z' AND 'a'", "z", "a"),
        ("'\uff21' AND '\U0001f600'", "\uff21", "\U0001f600"),
        ("TRUE AND FALSE", "true", "false"),
        ("TRUE AND 5", "true", "5"),
        ("5 AND TRUE", "5", "true"),
    ],
)
def test_literal_bounds_out_of_order_are_refused(bounds: str, low: str, high: str) -> None:
    with pytest.raises(FilterTypeError) as refused:
        parse(f"a BETWEEN {bounds}", "rocketmq")
    expected = f"Illegal values of between, left value({low}) must less than or equal to right value({high})"
    assert refused.value.reason == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "found the end of the filter, expected a value or a name"),
        ("a = '1';", "found ';', which begins no token of rocketmq"),
        ("a != 1", "found '!'"),
        ("a\xa0= 1", "found character U+00A0"),
        ("a\x0b= 1", "found character U+000B"),
        ('"a" = 1', "found '\"'"),
        ("a.b = 1", "found '.', which begins no token of rocketmq"),
        ("a = 1 AND body.x > 1", "no token of rocketmq; paths into the body are in the language amqp"),
        ("a = 'abc", "a string begins here and is not closed"),
        ("a = 1 /* open", "which begins no token of rocketmq but a comment"),
        ("a = 1 AND", "expected a value or a name"),
        ("a = 1 NOT", "after NOT"),
        ("a NOT = 1", "after NOT"),
        ("a IS 1", "expected 'NULL' after IS"),
        ("a IN ()", "expected a string constant"),
        ("a IN (5)", "expected a string constant"),
        ("a IN ('x',)", "expected a string constant"),
        ("a CONTAINS ('x')", "expected a string constant after CONTAINS"),
        ("a BETWEEN 1 OR 5", "expected 'AND' between the bounds"),
        ("(a = 1", "expected ')'"),
        ("between = 1", "found keyword between"),
        ("a = '\ud800'", "half of a surrogate pair"),
    ],
)
def test_a_text_outside_the_grammar_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        parse(text, "rocketmq")
    assert reason in refused.value.reason


def test_long_lists_of_in_show_in_the_order_of_a_hash_set() -> None:
    with pytest.raises(FilterTypeError, match=r"got: x IN \( red, a, b, green, blue \)"):
        parse("x IN ('red', 'blue', 'green', 'a', 'b') IN ('y')", "rocketmq")


def constants(text: str) -> list[object]:
    tree = bind(parse(text, "rocketmq"), "rocketmq", text)
    return [node.value for node in walk(tree) if isinstance(node, Constant)]


@pytest.mark.parametrize(
    ("literal", "kind", "value"),
    [
        ("5", AmqpType.INT, 5),
        ("5L", AmqpType.INT, 5),
        ("2147483648", AmqpType.LONG, 2**31),
        ("-2147483648", AmqpType.LONG, -(2**31)),
        ("-5", AmqpType.INT, -5),
        ("-(-5)", AmqpType.INT, 5),
        ("5.0", AmqpType.DOUBLE, 5.0),
        ("-5e0", AmqpType.DOUBLE, -5.0),
    ],
)
def test_a_literal_has_the_type_of_java(literal: str, kind: AmqpType, value: float) -> None:
    assert constants(f"a = {literal}") == [AmqpValue(kind, value)]


def references(text: str) -> list[FieldReference]:
    tree = bind(parse(text, "rocketmq"), "rocketmq", text)
    return [node.reference for node in walk(tree) if isinstance(node, Field)]


def test_system_names_are_annotations_and_the_message_id_and_all_other_names_application_properties() -> None:
    def annotation(key: bytes) -> FieldReference:
        return FieldReference(Section.MESSAGE_ANNOTATIONS, key=key, only=AmqpType.STRING)

    assert references("TAGS AND KEYS AND UNIQ_KEY AND RECONSUME_TIME AND Tags AND color") == [
        annotation(b"x-opt-rocketmq-tag"),
        annotation(b"x-opt-rocketmq-keys"),
        FieldReference(Section.PROPERTIES, position=0, only=AmqpType.STRING),
        annotation(b"x-opt-rocketmq-RECONSUME_TIME"),
        FieldReference(Section.APPLICATION_PROPERTIES, key=b"Tags"),
        FieldReference(Section.APPLICATION_PROPERTIES, key=b"color"),
    ]


def test_a_thousand_parentheses_are_accepted_and_one_more_is_beyond_the_limit() -> None:
    assert understood("(" * 1000 + "a = 1" + ")" * 1000) == "(a == 1)"
    nested = "(" * 1000 + "a" + ") = b" * 150 + ")" * 850
    assert understood(nested).count("==") == 150
    with pytest.raises(FilterLimitError, match="nested deeper than 1000 levels"):
        parse("(" * 1001 + "a = 1" + ")" * 1001, "rocketmq")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "NOT " * 50_000 + "a",
        "- " * 50_000 + "a",
        "a" + " = b" * 5000,
        "a" + " IS NULL" * 5000,
        "(a" + " = b" * 5000 + ") > 1",
        "(" * 300 + "a" + ") = b" * 300,
        "a = (b AND " * 3000,
        "NOT (" * 3000 + "a",
    ],
)
def test_nesting_without_end_is_beyond_a_limit_and_no_recursion_failure(text: str) -> None:
    with pytest.raises(FilterLimitError, match="nested deeper than"):
        parse(text, "rocketmq")


def test_a_text_of_262144_characters_is_accepted_and_one_more_is_beyond_the_limit() -> None:
    assert understood("a = 1" + " " * (2**18 - 5)) == "(a == 1)"
    with pytest.raises(FilterLimitError, match="262145 characters"):
        parse("a = 1" + " " * (2**18 - 4), "rocketmq")


def test_a_chain_of_five_thousand_conditions_is_one_node() -> None:
    tree = parse(" OR ".join(["a = '1'"] * 5000), "rocketmq")
    assert isinstance(tree, Or)
    assert len(tree.operands) == 5000


def test_hyphens_without_a_line_end_behind_them_are_signs() -> None:
    text = " OR ".join(["--1 = a"] * 5_000)
    tree = parse(text, "rocketmq")
    assert isinstance(tree, Or)
    assert len(tree.operands) == 5_000


@given(token_soups)
def test_parsing_any_tokens_raises_filter_errors_only(text: str) -> None:
    try:
        tree = bind(parse(text, "rocketmq"), "rocketmq", text)
    except FilterError as refused:
        start, stop = refused.span
        assert 0 <= start <= stop <= len(text)
    else:
        assert spelled(tree, "rocketmq")


@given(expressions)
def test_the_printed_text_of_a_bound_tree_gives_the_tree_again(text: str) -> None:
    try:
        tree = bind(parse(text, "rocketmq"), "rocketmq", text)
    except FilterError:
        return
    printed = spelled(tree, "rocketmq")
    again = bind(parse(printed, "rocketmq"), "rocketmq", printed)
    assert without_spans(again) == without_spans(tree)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Arithmetic(ArithmeticOperator.ADD, Constant(1), Constant(2)), "Arithmetic has no spelling"),
        (Constant(b"\xff"), "is UTF-8"),
        (Constant(5), "no constant of the language"),
        (Field(FieldReference(Section.HEADER, position=1)), "has no name for"),
        (Field(FieldReference(Section.APPLICATION_PROPERTIES, key=b"TAGS")), "TAGS is a system property"),
        (Field(FieldReference(Section.APPLICATION_PROPERTIES, key=b"two words")), "'two words' is no name"),
        (Field(FieldReference(Section.APPLICATION_PROPERTIES, key=b"between")), "'between' is no name"),
    ],
)
def test_what_the_language_cannot_say_is_not_printed(node: Node, reason: str) -> None:
    with pytest.raises(Unspellable, match=reason):
        print_tree(node)
