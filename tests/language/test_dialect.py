"""A language is data: a made-up one, with the habits in which other broker languages differ from RabbitMQ's.

NOT binds tighter than comparison, comparisons chain, keywords have any letter case, BETWEEN owns its AND, whatever
follows a complete expression is not looked at, and there is no limit of tokens.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from headgate.errors import ConfigError, FilterError, FilterLimitError
from headgate.language import DEFAULT_DIALECT, dialect_named
from headgate.language.amqp.dialect import AMQP
from headgate.language.amqp.rabbitmq import RABBITMQ, TOKENS
from headgate.language.dialect import Dialect, Infix, Level, Prefix, TokenKind, TokenRule
from headgate.language.lexer import Token
from headgate.language.parser import Parser, comparison, group, is_null, junction, negation, parse, sign
from headgate.language.printer import print_tree
from headgate.language.registry import BUILT_IN
from headgate.language.tree import And, Compare, CompareOperator, Node, Not, Or


def between(parser: Parser, left: Node, _token: Token, negated: bool) -> Node:
    lower = parser.expression(Level.SIGN)
    parser.expect("AND", "between the bounds")
    upper = parser.expression(Level.SIGN)
    low = Compare(CompareOperator.GREATER_OR_EQUAL, left, lower)
    both = And((low, Compare(CompareOperator.LESS_OR_EQUAL, left, upper)))
    return Not(both) if negated else both


TIGHT = dataclasses.replace(
    RABBITMQ,
    name="tight",
    tokens=(
        *(rule for rule in TOKENS if rule.kind is not TokenKind.BINARY),
        TokenRule(TokenKind.SKIPPED, re.compile(r"--[^\n]*\n"), lambda _text: None),
    ),
    keywords=frozenset({"AND", "OR", "NOT", "IS", "NULL", "BETWEEN"}),
    reserved=frozenset(),
    fold_keywords=str.upper,
    prefix={
        "(": Prefix(Level.PRIMARY, group),
        "NOT": Prefix(Level.SIGN, negation(Level.SIGN)),
        "-": Prefix(Level.SIGN, sign(Level.SIGN)),
    },
    infix={
        "OR": junction(Or, Level.OR),
        "AND": junction(And, Level.AND),
        "=": Infix(Level.EQUALITY, Level.EQUALITY, comparison(CompareOperator.EQUAL, Level.COMPARISON)),
        "IS": Infix(Level.EQUALITY, Level.EQUALITY, is_null),
        ">": Infix(Level.COMPARISON, Level.COMPARISON, comparison(CompareOperator.GREATER, Level.SIGN)),
        "BETWEEN": Infix(Level.COMPARISON, Level.COMPARISON, between, negatable=True),
    },
    max_tokens=None,
    max_code_points=None,
    max_depth=60,
    max_parentheses=60,
    ignores_trailing_input=True,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("NOT a = 'x'", "(NOT a) = 'x'"),
        ("not a is null", "(NOT a) IS NULL"),
        ("NOT (a = 'x')", "NOT a = 'x'"),
        ("a = b = c", "(a = b) = c"),
        ("a > b = c", "(a > b) = c"),
        ("a = b > c", "a = (b > c)"),
        ("- - a > 1", "-(-a) > 1"),
        ("a Or b aNd c", "a OR b AND c"),
        ("a BETWEEN 1 AND 5 AND b = 1", "(a >= 1 AND a <= 5) AND b = 1"),
        ("a NOT BETWEEN 1 AND 5", "NOT (a >= 1 AND a <= 5)"),
        ("a = 1 b = 2", "a = 1"),
        ("a = 1)", "a = 1"),
        ("a = 1 + 1 ; # whatever", "a = 1"),
        ("a -- a comment\n = 1", "a = 1"),
        ("upper", "[upper]"),
    ],
)
def test_a_made_up_language_parses_by_its_own_rules(text: str, canonical: str) -> None:
    assert print_tree(parse(text, TIGHT)) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = 1;", "found ';'"),
        ("a = 1 AND", "expected a value or a name"),
        ("a NOT = 1", "expected BETWEEN after NOT"),
        ("a = 1 NOT", "expected BETWEEN after NOT"),
        ("NOT a BETWEEN 1", "expected 'AND' between the bounds"),
        ("a + 1 = NOT", None),
    ],
)
def test_only_what_stands_directly_behind_an_expression_can_spoil_it(text: str, reason: str | None) -> None:
    if reason is None:
        assert print_tree(parse(text, TIGHT)) == "a"
        return
    with pytest.raises(FilterError) as refused:
        parse(text, TIGHT)
    assert reason in refused.value.reason
    assert refused.value.dialect == "tight"


@pytest.mark.parametrize("text", ["(" * 1000 + "a" + ")" * 1000, "NOT " * 1000 + "a", "- " * 1000 + "a"])
def test_nesting_beyond_the_limit_is_refused_without_recursion_failure(text: str) -> None:
    with pytest.raises(FilterLimitError, match="nested deeper than 60 levels"):
        parse(text, TIGHT)


def test_of_two_rules_that_match_equally_far_the_earlier_counts() -> None:
    blank_percent = TokenRule(TokenKind.SKIPPED, re.compile("%+"), lambda _text: None)
    earlier = dataclasses.replace(TIGHT, tokens=(blank_percent, *TIGHT.tokens), ignores_trailing_input=False)
    later = dataclasses.replace(TIGHT, tokens=(*TIGHT.tokens, blank_percent), ignores_trailing_input=False)
    assert print_tree(parse("a % = 1", earlier)) == "a = 1"
    assert print_tree(parse("a %% = 1", later)) == "a = 1"
    with pytest.raises(FilterError, match="found '%'"):
        parse("a % = 1", later)


def test_a_long_chain_of_one_operator_is_one_node() -> None:
    tree = parse(" OR ".join(["a"] * 5000), TIGHT)
    assert isinstance(tree, Or)
    assert len(tree.operands) == 5000


def test_dialects_are_found_by_name() -> None:
    assert dialect_named(DEFAULT_DIALECT) is AMQP
    assert dialect_named("rabbitmq") is RABBITMQ
    assert all(isinstance(dialect, Dialect) and dialect.name == name for name, dialect in BUILT_IN.items())
    with pytest.raises(ConfigError, match="found dialect 'RabbitMQ', expected one of rabbitmq"):
        dialect_named("RabbitMQ")
