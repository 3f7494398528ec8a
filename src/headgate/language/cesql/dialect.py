r"""The dialect `cesql`: CloudEvents SQL 1.0, over events in the AMQP binding.

Source: CloudEvents SQL 1.0.0, sections 2 and 3; CloudEvents AMQP protocol binding 1.0, sections 3.1 and 3.2. Keywords
and names have any letter case. NOT and minus bind tighter than LIKE and IN, these tighter than arithmetic; AND, OR and
XOR bind alike, from left to right. A backslash is itself, except before the quote of its string, and in a pattern
before `%` and `_`.

What the language casts by itself is cast when a message comes, in the type of the other operand; only operands of AND,
OR, XOR and NOT get a node for it, `BOOL`.
"""

from __future__ import annotations

import re

from headgate.errors import FilterTypeError
from headgate.language import tree as t
from headgate.language.amqp import COMPARISONS
from headgate.language.cesql.functions import FUNCTIONS, result_type
from headgate.language.cesql.printer import KEYWORDS, STRINGS, print_tree, unquoted
from headgate.language.cesql.values import INTEGER_MAX, ValueType, arithmetic, compare, signed
from headgate.language.cesql.warnings import warnings
from headgate.language.dialect import (
    Dialect,
    Infix,
    Level,
    NameRefused,
    Prefix,
    PrefixForm,
    TokenKind,
    TokenRefused,
    TokenRule,
)
from headgate.language.lexer import Token
from headgate.language.like import compile_any_like
from headgate.language.parser import (
    Parser,
    arguments,
    comparison,
    constant,
    group,
    in_list,
    like,
    named_field,
)
from headgate.language.parser import arithmetic as arithmetic_form
from headgate.message import PROPERTIES_FIELDS, FieldReference, Section

_CONTENT_TYPE = FieldReference(Section.PROPERTIES, position=PROPERTIES_FIELDS.index("content-type"))
_PREFIXES = (b"cloudEvents_", b"cloudEvents:")
"""Of application properties that are attributes; the binding prefers the first, which counts where both are there."""


def _integer(text: str) -> int:
    digits = text.lstrip("0") or "0"
    # The least integer has one more without its sign; `_filter` refuses it elsewhere.
    if len(digits) > 10 or int(digits) > INTEGER_MAX + 1:
        raise TokenRefused(f"{text[:40]} is beyond the range of an integer of 32 bits")
    return int(digits)


TOKENS = (
    TokenRule(TokenKind.SKIPPED, re.compile(r"[ \t\r\n]+"), lambda _text: None),
    TokenRule(TokenKind.OPERATOR, re.compile(r"<>|!=|>=|<=|[=<>+\-*/%(),]"), lambda _text: None),
    TokenRule(TokenKind.INTEGER, re.compile(r"[0-9]+"), _integer),
    *(TokenRule(TokenKind.STRING, string, unquoted) for string in STRINGS),
    TokenRule(TokenKind.WORD, re.compile(r"[A-Za-z0-9]+"), lambda text: (None, text)),
    TokenRule(TokenKind.WORD, re.compile(r"[A-Za-z][A-Za-z_]*"), lambda text: (None, text)),
)


def _condition(node: t.Node) -> t.Node:
    """An operand of a logical operator, as a boolean."""
    return node if result_type(node) is ValueType.BOOLEAN else t.Apply("BOOL", (node,), node.span)


def _junction(kind: type[t.And] | type[t.Or]) -> Infix:
    """AND or OR; a chain becomes one node."""

    def form(parser: Parser, left: t.Node, token: Token, _negated: bool) -> t.Node:
        operands = [_condition(left), _condition(parser.expression(Level.AND))]
        while parser.accept(token.symbol):
            operands.append(_condition(parser.expression(Level.AND)))
        return kind(tuple(operands), (left.span[0], parser.position))

    return Infix(Level.OR, Level.OR, form)


def _exclusive(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
    """`left XOR right`: booleans that differ."""
    right = parser.expression(Level.AND)
    span = (left.span[0], parser.position)
    return t.Compare(t.CompareOperator.NOT_EQUAL, _condition(left), _condition(right), parser.dialect.rules, span)


def _negation(parser: Parser, token: Token) -> t.Node:
    starts = parser.repeated(token, parser.dialect.max_depth)
    inner = parser.expression(Level.SIGN)
    for start in reversed(starts):
        inner = t.Not(_condition(inner), (start, parser.position))
    return inner


def _signed_number(parser: Parser, token: Token) -> t.Constant | None:
    """The number that a sign belongs to: it stands directly behind it."""
    if parser.peek.kind is not TokenKind.INTEGER or parser.peek.span[0] != token.span[1]:
        return None
    number = parser.advance().value
    assert isinstance(number, int)
    return t.Constant(-number if token.symbol == "-" else number, (token.span[0], parser.position))


def _minus(parser: Parser, token: Token) -> t.Node:
    found = _signed_number(parser, token)
    if found is not None:
        return found
    inner = parser.expression(Level.SIGN)
    return t.Sign(True, inner, parser.dialect.rules, (token.span[0], parser.position))


def _plus(parser: Parser, token: Token) -> t.Node:
    found = _signed_number(parser, token)
    if found is None:
        raise parser.error("'+' before a value is the sign of an integer, directly before its digits", token.span)
    return found


def _exists(parser: Parser, token: Token) -> t.Node:
    """`EXISTS attribute`."""
    operand = named_field(parser, "the name of an attribute, which is all that EXISTS takes")
    if not isinstance(operand, t.Name):
        raise parser.error("found a function, expected the name of an attribute", operand.span)
    return t.Exists(operand, (token.span[0], parser.position))


def _call(name: str) -> PrefixForm:
    """A function before the parenthesis of its arguments."""
    function = FUNCTIONS[name]

    def form(parser: Parser, token: Token) -> t.Node:
        given = arguments(parser, token, Level.OR)
        span = (token.span[0], parser.position)
        if not function.takes(len(given)):
            plural = "" if len(given) == 1 else "s"
            raise parser.error(f"there is no function {name} of {len(given)} argument{plural}", span, FilterTypeError)
        return t.Apply(name, given, span)

    return form


def _compile_like(pattern: str, _escape: str | None) -> t.LikePattern:
    """A pattern in which a backslash escapes `%` and `_`, and is itself before anything else."""
    return compile_any_like(re.sub(r"\\(?![%_])", r"\\\\", pattern), "\\")


def _filter(parser: Parser, tree: t.Node) -> t.Node:
    for node in t.walk(tree):
        if isinstance(node, t.Constant) and node.value == INTEGER_MAX + 1:
            raise parser.error(f"{INTEGER_MAX + 1} is beyond the range of an integer of 32 bits", node.span)
    return tree


def _resolve(name: t.Name) -> t.Node:
    """The attribute of a name, which has small letters and digits in an event."""
    if "_" in name.name:
        raise NameRefused(f"found {name.name!r}, but the name of an attribute has letters and digits only")
    attribute = name.name.lower()
    if attribute == "data":
        raise NameRefused("the data of an event is no attribute: no filter of this language sees it")
    key = attribute.encode()
    content_type, member = _field(_CONTENT_TYPE, name), _field(FieldReference(Section.DATA, path=(key,)), name)
    if attribute == "datacontenttype":
        return t.Attribute(attribute, content_type, (content_type,), member, name.span)
    keys = [FieldReference(Section.APPLICATION_PROPERTIES, key=prefix + key) for prefix in _PREFIXES]
    return t.Attribute(attribute, content_type, tuple(_field(each, name) for each in keys), member, name.span)


def _field(reference: FieldReference, name: t.Name) -> t.Field:
    return t.Field(reference, t.ValueRules.CESQL, name.span)


CESQL: Dialect = Dialect(
    name="cesql",
    title="CloudEvents SQL",
    page="languages/cesql/",
    example="type LIKE 'com.example.order.%' AND EXISTS subject AND INT(priority) > 3",
    tokens=TOKENS,
    keywords=KEYWORDS,
    fold_keywords=str.upper,
    unclosed={
        "'": "a string begins here and is not closed; a quote inside is written \\'",
        '"': 'a string begins here and is not closed; a quote inside is written \\"',
        ".": "found '.', but numbers are integers, the name of an attribute has letters and digits only,"
        " and the data of an event is not seen",
    },
    prefix={
        "(": Prefix(Level.PRIMARY, group),
        "TRUE": Prefix(Level.PRIMARY, constant(True)),
        "FALSE": Prefix(Level.PRIMARY, constant(False)),
        "EXISTS": Prefix(Level.PRIMARY, _exists),
        "+": Prefix(Level.SIGN, _plus),
        "-": Prefix(Level.SIGN, _minus),
        "NOT": Prefix(Level.SIGN, _negation),
    },
    functions={name: _call(name) for name in FUNCTIONS},
    infix={
        "OR": _junction(t.Or),
        "AND": _junction(t.And),
        "XOR": Infix(Level.OR, Level.OR, _exclusive),
        **{
            symbol: Infix(Level.COMPARISON, Level.COMPARISON, comparison(operator, Level.SUM))
            for symbol, operator in COMPARISONS.items()
        },
        "+": arithmetic_form(t.ArithmeticOperator.ADD, Level.SUM),
        "-": arithmetic_form(t.ArithmeticOperator.SUBTRACT, Level.SUM),
        "*": arithmetic_form(t.ArithmeticOperator.MULTIPLY, Level.PRODUCT),
        "/": arithmetic_form(t.ArithmeticOperator.DIVIDE, Level.PRODUCT),
        "%": arithmetic_form(t.ArithmeticOperator.MODULO, Level.PRODUCT),
        "IN": Infix(Level.TEST, Level.TEST, in_list(Level.OR), negatable=True),
        "LIKE": Infix(Level.TEST, Level.TEST, like, negatable=True),
    },
    sections={None: Section.APPLICATION_PROPERTIES},
    fields={},
    resolve=_resolve,
    compile_like=_compile_like,
    rules=t.ValueRules.CESQL,
    complete=_filter,
    arithmetic=arithmetic,
    signed=signed,
    compare=compare,
    print_tree=print_tree,
    warnings=warnings,
    max_code_points=262_144,
    max_parentheses=1000,
)
