"""The dialect `rocketmq`: the SQL92 filter expressions of RocketMQ 5.5, with their habits.

NOT binds tighter than comparison, comparisons chain, text after a complete expression is ignored except for one token,
and some comparisons of literals are refused with the texts of the original (as the reason of the error).
Source: rocketmq_filters, sections 3 to 5.

Limits, of which the original states none (it accepts 1000 parentheses one in another and overflows its stack from 2000
on): 262,144 characters, 1000 parentheses that open one directly after the other, 200 operators one in another. Chains
of AND and of OR may have any length.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from headgate.errors import FilterError, FilterTypeError
from headgate.language import tree as t
from headgate.language.dialect import Dialect, Infix, InfixForm, Level, Prefix, TokenKind, TokenRefused, TokenRule
from headgate.language.lexer import Token
from headgate.language.like import compile_like
from headgate.language.parser import Parser, constant, group, is_null
from headgate.language.rocketmq.printer import KEYWORDS, print_tree
from headgate.language.rocketmq.text import expression_text, plain_text
from headgate.language.rocketmq.values import compare, signed
from headgate.language.rocketmq.warnings import warnings
from headgate.language.values import EvaluationFailed
from headgate.message import INTEGER_RANGES, SYSTEM_PROPERTIES, AmqpValue, Section
from headgate.message.constructors import AmqpType

_SMALLEST_DOUBLE, _LARGEST_DOUBLE = "4.9E-324", "1.7976931348623157E308"
_DIGITS_OF_A_LONG = 19


def _integer(text: str) -> AmqpValue:
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) <= _DIGITS_OF_A_LONG else 2**63
    for kind in (AmqpType.INT, AmqpType.LONG):
        if value <= INTEGER_RANGES[kind][1]:
            return AmqpValue(kind, value)
    raise TokenRefused(f"{digits[:40]} does not fit into a long, 64 bits with sign")


def _float(text: str) -> AmqpValue:
    value = float(text)
    if math.isinf(value):
        raise TokenRefused(f"{text} is greater than {_LARGEST_DOUBLE}")
    if value == 0:
        raise TokenRefused(f"{text} is less than {_SMALLEST_DOUBLE}")
    return AmqpValue(AmqpType.DOUBLE, value)


_EXPONENT = "[eE][+-]?[0-9]+"
TOKENS = (
    TokenRule(TokenKind.SKIPPED, re.compile(r"[ \t\n\r\f]+"), lambda _text: None),
    TokenRule(TokenKind.SKIPPED, re.compile(r"--[^\n\r]*[\n\r]"), lambda _text: None, ends_with="\n\r"),
    TokenRule(TokenKind.SKIPPED, re.compile(r"/\*.*?\*/", re.DOTALL), lambda _text: None),
    TokenRule(TokenKind.OPERATOR, re.compile(r"<>|>=|<=|[=<>(),+\-]"), lambda _text: None),
    TokenRule(TokenKind.INTEGER, re.compile(r"0|[1-9][0-9]*[lL]?"), _integer),
    TokenRule(
        TokenKind.FLOAT,
        re.compile(rf"[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT}"),
        _float,
    ),
    TokenRule(TokenKind.STRING, re.compile(r"'[^']*(?:''[^']*)*'"), lambda text: text[1:-1].replace("''", "'")),
    TokenRule(TokenKind.WORD, re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*"), lambda text: (None, text)),
)


def _refused(parser: Parser, reason: str, node: t.Node) -> FilterError:
    """The error of a check; `{}` in the reason is the expression, which is no higher than a filter may be."""
    parser.check_height(node)
    return parser.error(reason.format(expression_text(node)), node.span, FilterTypeError)


def _is_boolean(node: t.Node) -> bool:
    """Whether an expression has a truth value, as the original's parser sees it; a property has not."""
    if isinstance(node, t.Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, t.Name | t.Sign)


def _condition(parser: Parser, node: t.Node) -> t.Node:
    """An operand of AND, OR and NOT, or the whole filter: a bare property becomes a cast."""
    if isinstance(node, t.Name):
        return t.BooleanCast(node, node.span)
    if not _is_boolean(node):
        raise _refused(parser, "Expression will not result in a boolean value: {}", node)
    return node


def _junction(kind: type[t.And] | type[t.Or], level: Level) -> Infix:
    """AND or OR at `level`; a chain becomes one node, read in a loop; the first two operands are checked together."""

    def form(parser: Parser, left: t.Node, token: Token, _negated: bool) -> t.Node:
        right = parser.expression(Level(level + 1))
        operands = [_condition(parser, left), _condition(parser, right)]
        while parser.accept(token.symbol):
            operands.append(_condition(parser, parser.expression(Level(level + 1))))
        return kind(tuple(operands), (left.span[0], parser.position))

    return Infix(level, level, form)


def _negation(parser: Parser, token: Token) -> t.Node:
    starts = parser.repeated(token, parser.dialect.max_depth)
    inner = _condition(parser, parser.expression(Level.SIGN))
    for start in reversed(starts):
        inner = t.Not(inner, (start, parser.position))
    return inner


def _sign(parser: Parser, token: Token) -> t.Node:
    """A sign: minus is an operator; plus leaves its operand as it is, a property a property."""
    inner = parser.expression(Level.SIGN)
    span = (token.span[0], parser.position)
    return t.Sign(True, inner, t.ValueRules.ROCKETMQ, span) if token.symbol == "-" else replace(inner, span=span)


def _equality(operator: t.CompareOperator) -> InfixForm:
    """`=` and `<>`: NULL is no operand, and TRUE and FALSE on the left meet no other literal."""

    def form(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
        right = parser.expression(Level.COMPARISON)
        for side in (left, right):
            if isinstance(side, t.Constant) and side.value is None:
                raise parser.error("'NULL' cannot be compared.", side.span, FilterTypeError)
        span = (left.span[0], parser.position)
        literals = isinstance(left, t.Constant) and isinstance(right, t.Constant)
        if literals and _is_boolean(left) and not _is_boolean(right):
            reason = f"'{expression_text(left)}' cannot be compared with '{expression_text(right)}'"
            raise parser.error(reason, span, FilterTypeError)
        return t.Compare(operator, left, right, t.ValueRules.ROCKETMQ, span)

    return form


def _ordered(parser: Parser, operator: t.CompareOperator, left: t.Node, right: t.Node, span: t.Span) -> t.Compare:
    """A comparison by order: each side a number, a property, or a negated value."""
    for side in (left, right):
        is_number = isinstance(side, t.Constant) and isinstance(side.value, AmqpValue)
        if not is_number and (isinstance(side, t.Constant) or _is_boolean(side)):
            raise _refused(parser, "Value '{}' cannot be compared.", side)
    return t.Compare(operator, left, right, t.ValueRules.ROCKETMQ, span)


def _order(operator: t.CompareOperator) -> InfixForm:
    def form(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
        right = parser.expression(Level.SIGN)
        return _ordered(parser, operator, left, right, (left.span[0], parser.position))

    return form


def _between(parser: Parser, left: t.Node, _token: Token, negated: bool) -> t.Node:
    """`[NOT] BETWEEN low AND high`: two comparisons under AND, or under OR; literal bounds must be in order."""
    low = parser.expression(Level.SIGN)
    parser.expect("AND", "between the bounds")
    high = parser.expression(Level.SIGN)
    span = (left.span[0], parser.position)
    if negated:
        below = _ordered(parser, t.CompareOperator.LESS, left, low, span)
        return t.Or((below, _ordered(parser, t.CompareOperator.GREATER, left, high, span)), span)
    if isinstance(low, t.Constant) and isinstance(high, t.Constant):
        _check_bounds(parser, low, high)
    above = _ordered(parser, t.CompareOperator.GREATER_OR_EQUAL, left, low, span)
    return t.And((above, _ordered(parser, t.CompareOperator.LESS_OR_EQUAL, left, high, span)), span)


def _check_bounds(parser: Parser, low: t.Constant, high: t.Constant) -> None:
    span = (low.span[0], high.span[1])
    if low.value is None or high.value is None:
        raise parser.error("Illegal values of between, values can not be null!", span, FilterTypeError)
    try:
        in_order = compare(high.value, low.value) >= 0
    except EvaluationFailed as failed:
        raise parser.error(str(failed), span, FilterTypeError) from None
    if not in_order:
        reason = (
            f"Illegal values of between, left value({_java_text(low)}) must less than or equal to "
            f"right value({_java_text(high)})"
        )
        raise parser.error(reason, span, FilterTypeError)


def _java_text(bound: t.Constant) -> str:
    return str(bound.value).lower() if isinstance(bound.value, bool) else plain_text(bound.value)


def _in(parser: Parser, left: t.Node, _token: Token, negated: bool) -> t.Node:
    """`[NOT] IN ( string {, string} )` on a property."""
    parser.expect("(", "after IN")
    members = [_string(parser)]
    while parser.accept(","):
        members.append(_string(parser))
    parser.expect(")", "or ',' after a member of IN")
    if not isinstance(left, t.Name):
        raise _refused(parser, "Expected a property for In expression, got: {}", left)
    return t.In(left, tuple(members), negated, t.ValueRules.ROCKETMQ, (left.span[0], parser.position))


def _string(parser: Parser) -> t.Constant:
    text, span = parser.expect_string("a string constant")
    return t.Constant(text.encode(), span)


def _text_test(kind: t.TextTestKind) -> InfixForm:
    def form(parser: Parser, left: t.Node, token: Token, negated: bool) -> t.Node:
        text, _ = parser.expect_string(f"a string constant after {token.text}")
        return t.TextTest(kind, left, text.encode(), negated, (left.span[0], parser.position))

    return form


ROCKETMQ: Dialect = Dialect(
    name="rocketmq",
    title="RocketMQ",
    page="languages/rocketmq/",
    example="TAGS IS NOT NULL AND TAGS IN ('created', 'paid') AND price BETWEEN 10 AND 20",
    tokens=TOKENS,
    keywords=KEYWORDS,
    fold_keywords=str.upper,
    unclosed={
        "'": "a string begins here and is not closed",
        "/": "found '/', which begins no token of rocketmq but a comment /* … */",
    },
    prefix={
        "(": Prefix(Level.PRIMARY, group),
        "TRUE": Prefix(Level.PRIMARY, constant(True)),
        "FALSE": Prefix(Level.PRIMARY, constant(False)),
        "NULL": Prefix(Level.PRIMARY, constant(None)),
        "+": Prefix(Level.SIGN, _sign),
        "-": Prefix(Level.SIGN, _sign),
        "NOT": Prefix(Level.SIGN, _negation),
    },
    infix={
        "OR": _junction(t.Or, Level.OR),
        "AND": _junction(t.And, Level.AND),
        "=": Infix(Level.EQUALITY, Level.EQUALITY, _equality(t.CompareOperator.EQUAL)),
        "<>": Infix(Level.EQUALITY, Level.EQUALITY, _equality(t.CompareOperator.NOT_EQUAL)),
        "IS": Infix(Level.EQUALITY, Level.EQUALITY, is_null),
        **{
            operator.value: Infix(Level.COMPARISON, Level.COMPARISON, _order(operator))
            for operator in t.CompareOperator
            if not operator.is_equality
        },
        "BETWEEN": Infix(Level.COMPARISON, Level.COMPARISON, _between, negatable=True),
        "IN": Infix(Level.COMPARISON, Level.COMPARISON, _in, negatable=True),
        **{
            kind.value: Infix(Level.COMPARISON, Level.COMPARISON, _text_test(kind), negatable=True)
            for kind in t.TextTestKind
        },
    },
    sections={None: Section.APPLICATION_PROPERTIES},
    fields={},
    compile_like=compile_like,
    rules=t.ValueRules.ROCKETMQ,
    max_code_points=256 * 1024,
    max_depth=200,
    max_parentheses=1000,
    ignores_trailing_input=True,
    names=SYSTEM_PROPERTIES,
    complete=_condition,
    signed=signed,
    warnings=warnings,
    print_tree=print_tree,
)

ROCKETMQ_MAP = replace(ROCKETMQ, rules=t.ValueRules.ROCKETMQ_MAP)
"""The same language over property maps that were never stored, where an empty value is no NULL."""
