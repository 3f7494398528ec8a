"""The dialect `rabbitmq`: exactly the SQL filter expressions that RabbitMQ 4.3 accepts on streams.

Source: rabbitmq_filters, sections 2.1 to 2.3.
"""

from __future__ import annotations

import math
import re

from headgate.language.dialect import Dialect, Infix, Level, Prefix, TokenKind, TokenRefused, TokenRule
from headgate.language.like import compile_like
from headgate.language.parser import (
    arithmetic,
    comparison,
    constant,
    group,
    in_list,
    is_null,
    junction,
    like,
    negation,
    now,
    sign,
)
from headgate.language.tree import And, ArithmeticOperator, CompareOperator, Or, ValueRules
from headgate.message import DEFAULT_PRIORITY, HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, Section
from headgate.message.constructors import AmqpType


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise TokenRefused(f"{text[:40]} is beyond the range of a double")
    return value


def quoted_text(text: str) -> str:
    """The text that a string constant, quotes included, stands for."""
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


def _section_name(text: str) -> tuple[str | None, str]:
    section, _, name = text.partition(".")
    return section, name


def delimited_name(text: str) -> tuple[str | None, str]:
    """Section (none) and name of a name in brackets."""
    return None, text[1:-1].replace("[[", "[").replace("]]", "]")


TOKENS = (
    TokenRule(TokenKind.SKIPPED, re.compile(r"[ \t\f\n\r]+"), lambda _text: None),
    TokenRule(TokenKind.OPERATOR, re.compile(r"<>|!=|>=|<=|[=<>+\-*/%(),]"), lambda _text: None),
    TokenRule(TokenKind.FLOAT, re.compile(r"[0-9]+\.[0-9]+(?:E[+-]?[0-9]+)?"), _float),
    TokenRule(TokenKind.INTEGER, re.compile(r"[0-9]+"), int),
    TokenRule(TokenKind.STRING, re.compile(r"'(?:[^']|'')*'"), quoted_text),
    TokenRule(TokenKind.STRING, re.compile(r'"(?:[^"]|"")*"'), quoted_text),
    TokenRule(TokenKind.BINARY, re.compile(r"0x(?:[0-9A-F]{2})+"), lambda text: bytes.fromhex(text[2:])),
    TokenRule(TokenKind.NAME, re.compile(r"[A-Za-z][A-Za-z_-]*\.[A-Za-z][A-Za-z0-9_]*"), _section_name),
    TokenRule(TokenKind.WORD, re.compile(r"[A-Za-z][A-Za-z0-9_]*"), lambda text: (None, text)),
    TokenRule(TokenKind.NAME, re.compile(r"\[(?:[^\[\]\x00-\x1f\x7f]|\[\[|\]\])*\]"), delimited_name),
)

COMPARISONS = {
    "=": CompareOperator.EQUAL,
    "<>": CompareOperator.NOT_EQUAL,
    "!=": CompareOperator.NOT_EQUAL,
    "<": CompareOperator.LESS,
    "<=": CompareOperator.LESS_OR_EQUAL,
    ">": CompareOperator.GREATER,
    ">=": CompareOperator.GREATER_OR_EQUAL,
}
"""The spellings of the comparison operators."""

RABBITMQ: Dialect = Dialect(
    name="rabbitmq",
    title="RabbitMQ SQL",
    page="languages/rabbitmq/",
    example="p.subject LIKE 'order.%' AND region IN ('EMEA', 'AMER') AND price > 100",
    tokens=TOKENS,
    keywords=frozenset({"AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "ESCAPE", "TRUE", "FALSE", "UTC"}),
    reserved=frozenset(
        {"and", "or", "not", "like", "in", "is", "null", "escape", "true", "false", "utc"}
        | {"exists", "nan", "inf", "lower", "upper", "left", "right", "substring", "date"}
    ),
    unclosed={
        "'": "a string begins here and is not closed",
        '"': "a string begins here and is not closed",
        "[": "a name in brackets begins here and is not closed, or holds a control character or a single '['",
    },
    prefix={
        "(": Prefix(Level.PRIMARY, group),
        "TRUE": Prefix(Level.PRIMARY, constant(True)),
        "FALSE": Prefix(Level.PRIMARY, constant(False)),
        "UTC": Prefix(Level.PRIMARY, now),
        "+": Prefix(Level.SIGN, sign(Level.PRIMARY)),
        "-": Prefix(Level.SIGN, sign(Level.PRIMARY)),
        "NOT": Prefix(Level.NOT, negation(Level.NOT)),
    },
    infix={
        "OR": junction(Or, Level.OR),
        "AND": junction(And, Level.AND),
        **{
            symbol: Infix(Level.COMPARISON, Level.SUM, comparison(operator, Level.SUM))
            for symbol, operator in COMPARISONS.items()
        },
        "LIKE": Infix(Level.COMPARISON, Level.SUM, like, negatable=True),
        "IN": Infix(Level.COMPARISON, Level.SUM, in_list(Level.SUM), negatable=True),
        "IS": Infix(Level.COMPARISON, Level.NAME, is_null),
        "+": arithmetic(ArithmeticOperator.ADD, Level.SUM),
        "-": arithmetic(ArithmeticOperator.SUBTRACT, Level.SUM),
        "*": arithmetic(ArithmeticOperator.MULTIPLY, Level.PRODUCT),
        "/": arithmetic(ArithmeticOperator.DIVIDE, Level.PRODUCT),
        "%": arithmetic(ArithmeticOperator.MODULO, Level.PRODUCT),
    },
    sections={
        None: Section.APPLICATION_PROPERTIES,
        "a": Section.APPLICATION_PROPERTIES,
        "application_properties": Section.APPLICATION_PROPERTIES,
        "h": Section.HEADER,
        "header": Section.HEADER,
        "p": Section.PROPERTIES,
        "properties": Section.PROPERTIES,
    },
    fields={
        Section.HEADER: {
            "priority": FieldReference(
                Section.HEADER,
                position=HEADER_FIELDS.index("priority"),
                default=DEFAULT_PRIORITY,
                only=AmqpType.UBYTE,
            )
        },
        Section.PROPERTIES: {
            name.replace("-", "_"): FieldReference(Section.PROPERTIES, position=position)
            for position, name in enumerate(PROPERTIES_FIELDS)
        },
    },
    compile_like=compile_like,
    rules=ValueRules.RABBITMQ,
    max_code_points=4096,
    max_tokens=200,
    max_depth=200,
)
