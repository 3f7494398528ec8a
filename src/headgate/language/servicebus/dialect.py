"""The dialect `servicebus`: the SQL filter of a Service Bus rule.

Source: servicebus_filters, section 2; its open points: docs/reference/servicebus-open-points.md. Keywords and names
have any letter case, a name in double quotes is a property, and conditions and values are two kinds of expression: a
value alone is not a filter, and a condition cannot be compared.
"""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Mapping

from headgate.errors import ConfigError
from headgate.language import tree as t
from headgate.language.amqp import COMPARISONS, quoted_text
from headgate.language.binder import parameter_key
from headgate.language.dialect import (
    Dialect,
    Infix,
    Level,
    NameRefused,
    Prefix,
    TokenKind,
    TokenRefused,
    TokenRule,
    path_hint,
)
from headgate.language.lexer import Token
from headgate.language.like import compile_any_like
from headgate.language.parser import (
    Parser,
    arithmetic,
    comparison,
    constant,
    group,
    in_list,
    is_null,
    junction,
    named_field,
    negation,
    sign,
)
from headgate.language.servicebus.limits import DEFAULT_LIMITS
from headgate.language.servicebus.printer import KEYWORDS, print_tree
from headgate.language.servicebus.system_properties import missing_system_property, system_property
from headgate.language.servicebus.values import INTEGER_LIMIT, TICKS_PER_MS, ValueKind, kind_of, time_span, value_of
from headgate.language.servicebus.values import arithmetic as calculated
from headgate.language.servicebus.values import compare as compared
from headgate.language.servicebus.values import signed as with_sign
from headgate.language.servicebus.warnings import warnings
from headgate.language.values import Value
from headgate.message import AmqpValue, FieldReference, Section, amqp_value

_CONDITIONS = (t.And, t.Or, t.Not, t.Compare, t.In, t.LikeValue, t.IsNull, t.Exists)


def _capitals(word: str) -> str:
    """A word with ASCII letters as capitals: no letter outside ASCII belongs to a keyword."""
    return word.upper() if word.isascii() else word


def _integer(text: str) -> int:
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(INTEGER_LIMIT)) or int(digits) >= INTEGER_LIMIT:
        raise TokenRefused(f"{text[:40]} is beyond the range of a 64-bit integer")
    return int(digits)


def _double(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise TokenRefused(f"{text[:40]} is beyond the range of a double")
    return value


def _regular(text: str, keywords: frozenset[str]) -> str:
    """A regular identifier: Unicode letters, decimal digits and `_`, a letter first, no reserved word."""
    for position, character in enumerate(text):
        category = unicodedata.category(character)
        if not (category.startswith("L") or (position and (category == "Nd" or character == "_"))):
            where = "in" if position else "at the start of"
            raise TokenRefused(f"found {character!r} {where} a name, which only a name in brackets may have")
    if _capitals(text) in keywords:
        raise TokenRefused(f"{text} is a reserved word; as a name it is written [{text}]")
    return text


def _any_name(text: str, keywords: frozenset[str]) -> str:
    if text[0] == "[":
        return text[1:-1].replace("]]", "]")
    return quoted_text(text) if text[0] == '"' else _regular(text, keywords)


def _scoped_name(text: str, keywords: frozenset[str]) -> tuple[str | None, str]:
    scope, _, name = text.partition(".")
    return scope.strip().lower(), _any_name(name.strip(), keywords)


def _no_comment(_text: str) -> None:
    raise TokenRefused("there are no comments; two signs in a row are written with a space between")


_BLANK = r"[ \t\n\v\f\r]"
_DELIMITED = r'\[(?:[^\]]|\]\])*\]|"(?:[^"]|"")*"'
_WORD = r"[^\W\d_]\w*"


def lexical_rules(keywords: frozenset[str], *, punctuation: str = "") -> tuple[TokenRule, ...]:
    """The lexical grammar of section 2.1 with these reserved words, and more characters that are tokens."""
    operators = re.compile(rf"<>|!=|>=|<=|[=<>+\-*/%(),{punctuation}]")
    scoped = re.compile(rf"{_WORD}{_BLANK}*\.{_BLANK}*(?:{_WORD}|{_DELIMITED})")
    parameter = re.compile(rf"@(?:\w+|{_DELIMITED})")
    return (
        TokenRule(TokenKind.SKIPPED, re.compile(f"{_BLANK}+"), lambda _text: None),
        TokenRule(TokenKind.OPERATOR, operators, lambda _text: None),
        TokenRule(TokenKind.FLOAT, re.compile(r"[0-9]+(?:\.[0-9]+(?:[Ee][+-]?[0-9]+)?|[Ee][+-]?[0-9]+)"), _double),
        TokenRule(TokenKind.INTEGER, re.compile(r"[0-9]+"), _integer),
        TokenRule(TokenKind.STRING, re.compile(r"'(?:[^']|'')*'"), quoted_text),
        TokenRule(TokenKind.WORD, re.compile(_WORD), lambda text: (None, _regular(text, keywords))),
        TokenRule(TokenKind.NAME, re.compile(_DELIMITED), lambda text: (None, _any_name(text, keywords))),
        TokenRule(TokenKind.NAME, scoped, lambda text: _scoped_name(text, keywords)),
        TokenRule(TokenKind.PARAMETER, parameter, lambda text: _any_name(text[1:], keywords)),
        # Two minuses that anything but a number or a parenthesis follows would be a comment elsewhere.
        TokenRule(TokenKind.OPERATOR, re.compile(r"--(?![0-9(.+-])"), _no_comment),
    )


def _like(parser: Parser, left: t.Node, _token: Token, negated: bool) -> t.Node:
    """`LIKE value [ESCAPE value]`."""
    pattern = parser.expression(Level.SUM)
    escape = parser.expression(Level.SUM) if parser.accept("ESCAPE") else None
    return t.LikeValue(left, pattern, escape, negated, parser.dialect.rules, (left.span[0], parser.position))


def _exists(parser: Parser, token: Token) -> t.Node:
    """`EXISTS ( property )`; a system property exists where it is set."""
    parser.expect("(", "after EXISTS")
    operand = property_name(parser)
    parser.expect(")")
    span = (token.span[0], parser.position)
    if operand.section == "sys":
        return t.IsNull(operand, True, span)
    return t.Exists(operand, span)


def property_name(parser: Parser) -> t.Name:
    """The name of a property; a function gives a value and is none."""
    operand = named_field(parser, "a property")
    if not isinstance(operand, t.Name):
        raise parser.error("found a function, expected the name of a property", operand.span)
    return operand


def _property(parser: Parser, token: Token) -> t.Node:
    """`property ( value )`."""
    parser.expect("(")
    name = parser.expression(Level.SUM)
    parser.expect(")", "behind the name of a property")
    return t.PropertyOf(name, parser.dialect.rules, (token.span[0], parser.position))


def _new_id(parser: Parser, token: Token) -> t.Node:
    """`newid ( )`."""
    parser.expect("(")
    parser.expect(")", "after newid(")
    return t.NewId(span=(token.span[0], parser.position))


def check_kinds(parser: Parser, tree: t.Node, *, is_condition: bool) -> None:
    """Raise FilterSyntaxError where a condition stands in place of a value, or a value in place of a condition."""
    stack = [(tree, is_condition)]
    while stack:
        node, wants_condition = stack.pop()
        if isinstance(node, _CONDITIONS) is not wants_condition:
            if wants_condition:
                reason = "found a value, expected a condition, such as a comparison: `flag = TRUE`"
            else:
                reason = "found a condition, expected a value: a condition has none"
            raise parser.error(reason, node.span)
        takes_conditions = isinstance(node, t.And | t.Or | t.Not)
        stack.extend((operand, takes_conditions) for operand in reversed(t.children(node)))


def _filter(parser: Parser, tree: t.Node) -> t.Node:
    if parser.peek.kind is not TokenKind.END:
        raise parser.unexpected("an operator or the end of the filter")
    check_kinds(parser, tree, is_condition=True)
    return tree


def _resolve(name: t.Name) -> t.Node:
    """`sys.` is a system property, `user.` and nothing the application property."""
    if name.section in (None, "user"):
        reference = FieldReference(Section.APPLICATION_PROPERTIES, key=name.name.encode(), ignore_case=True)
        return t.Field(reference, t.ValueRules.SERVICE_BUS, name.span)
    if name.section != "sys":
        raise NameRefused(f"found scope {name.section!r}, expected sys. or user. or none{path_hint(name.section)}")
    found = system_property(name.name)
    if found is None:
        raise NameRefused(missing_system_property(name.name))
    return found.node(name.span)


SERVICE_BUS: Dialect = Dialect(
    name="servicebus",
    title="Service Bus",
    page="languages/servicebus/",
    example="sys.Label LIKE 'order.%' AND region = 'EMEA' AND EXISTS(price)",
    tokens=lexical_rules(KEYWORDS),
    keywords=KEYWORDS,
    fold_keywords=_capitals,
    unclosed={
        "'": "a string begins here and is not closed",
        '"': "a name in double quotes begins here and is not closed",
        "[": "a name in brackets begins here and is not closed",
        "@": "found '@' without the name of a parameter",
        ";": "found ';', which no filter holds",
    },
    prefix={
        "(": Prefix(Level.PRIMARY, group),
        "TRUE": Prefix(Level.PRIMARY, constant(True)),
        "FALSE": Prefix(Level.PRIMARY, constant(False)),
        "NULL": Prefix(Level.PRIMARY, constant(None)),
        "EXISTS": Prefix(Level.COMPARISON, _exists),
        "+": Prefix(Level.SIGN, sign(Level.SIGN)),
        "-": Prefix(Level.SIGN, sign(Level.SIGN)),
        "NOT": Prefix(Level.NOT, negation(Level.NOT)),
    },
    functions={"NEWID": _new_id, "PROPERTY": _property, "P": _property},
    infix={
        "OR": junction(t.Or, Level.OR),
        "AND": junction(t.And, Level.AND),
        **{
            symbol: Infix(Level.COMPARISON, Level.SUM, comparison(operator, Level.SUM))
            for symbol, operator in COMPARISONS.items()
        },
        "LIKE": Infix(Level.COMPARISON, Level.SUM, _like, negatable=True),
        "IN": Infix(Level.COMPARISON, Level.SUM, in_list(Level.SUM), negatable=True),
        "IS": Infix(Level.COMPARISON, Level.NAME, is_null),
        "+": arithmetic(t.ArithmeticOperator.ADD, Level.SUM),
        "-": arithmetic(t.ArithmeticOperator.SUBTRACT, Level.SUM),
        "*": arithmetic(t.ArithmeticOperator.MULTIPLY, Level.PRODUCT),
        "/": arithmetic(t.ArithmeticOperator.DIVIDE, Level.PRODUCT),
        "%": arithmetic(t.ArithmeticOperator.MODULO, Level.PRODUCT),
    },
    sections={None: Section.APPLICATION_PROPERTIES, "user": Section.APPLICATION_PROPERTIES},
    fields={},
    resolve=_resolve,
    compile_like=compile_any_like,
    rules=t.ValueRules.SERVICE_BUS,
    complete=_filter,
    arithmetic=calculated,
    signed=with_sign,
    compare=compared,
    takes_parameters=True,
    print_tree=print_tree,
    warnings=warnings,
    max_code_points=DEFAULT_LIMITS.filter_characters,
    max_parentheses=DEFAULT_LIMITS.filter_characters,
)


def parameter_values(parameters: Mapping[str, object]) -> dict[str, t.Constant]:
    """Constants by `parameter_key` of the name without `@`, of plain Python values or `AmqpValue`.

    A `datetime.timedelta` is a time span. Raises `ConfigError` for a value that no parameter can have, and for names
    that are the same.
    """
    constants: dict[str, t.Constant] = {}
    for name, given in parameters.items():
        key = parameter_key(name.removeprefix("@"))
        if key in constants:
            raise ConfigError(f"parameter @{name.removeprefix('@')} is given twice")
        typed = typed_constant(given)
        constants[key] = t.Constant(_seen(typed), typed=typed)
    return constants


def constant_value(given: object) -> Value:
    """A plain Python value or `AmqpValue` as the language sees it. Raises `ConfigError`."""
    return _seen(typed_constant(given))


def typed_constant(given: object) -> AmqpValue:
    """A plain Python value with its AMQP type: a `datetime.timedelta` is a time span. Raises `ConfigError`."""
    if isinstance(given, datetime.timedelta):
        return time_span(given // datetime.timedelta(microseconds=1) * (TICKS_PER_MS // 1000))
    return amqp_value(given)


def _seen(typed: AmqpValue) -> Value:
    value = value_of(typed)
    if isinstance(value, AmqpValue) and kind_of(value) is ValueKind.OTHER:
        raise ConfigError(f"a {value.type.value} is no value of Service Bus")
    return value
