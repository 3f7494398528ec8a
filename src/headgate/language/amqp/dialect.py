"""The dialect `amqp`: `rabbitmq`, the parts of AMQP filter expressions that RabbitMQ leaves out, and paths into bodies.

An extension gives meaning only to text that `rabbitmq` refuses: a text that `rabbitmq` accepts has the same tree here.

Source: amqp_extensions (sections 1 to 7) on top of rabbitmq_filters, section 2. Paths into the JSON of a body are our
own (docs/design/body-paths.md).
"""

from __future__ import annotations

import dataclasses
import re

from headgate.language import tree as t
from headgate.language.amqp.rabbitmq import COMPARISONS, RABBITMQ, TOKENS, delimited_name, quoted_text
from headgate.language.dialect import (
    Dialect,
    Infix,
    InfixForm,
    Level,
    Prefix,
    PrefixForm,
    TokenKind,
    TokenRefused,
    TokenRule,
    TokenValue,
)
from headgate.language.lexer import Token
from headgate.language.parser import Parser, arguments, comparison, named_field, sign
from headgate.message import HEADER_FIELDS, FieldReference, Section
from headgate.message.constructors import AmqpType

MAX_ELEMENT_NUMBER = 2**31 - 1
"""Greatest number in a reference."""

_SECTIONS_OF_FIELDS = frozenset(
    prefix for prefix, section in RABBITMQ.sections.items() if section in RABBITMQ.fields and prefix is not None
)


def _delimited_in_section(text: str) -> TokenValue:
    section, _, name = text.partition(".")
    if section in _SECTIONS_OF_FIELDS:
        raise TokenRefused(f"the fields of {section} are named without brackets, as in {section}.{name[1:-1]}")
    return section, delimited_name(name)[1]


def _element(text: str) -> TokenValue:
    number = int(text[1:-1])
    if number > MAX_ELEMENT_NUMBER:
        raise TokenRefused(f"the number of an element is at most {MAX_ELEMENT_NUMBER}")
    return number


def _key(text: str) -> TokenValue:
    return quoted_text(text[1:-1]).encode()


def _no_reference(text: str) -> TokenValue:
    raise TokenRefused(
        f"found {text[:40]!r} behind a name, expected the number of an element, as in [0], or a key, as in ['key']"
    )


REFERENCES = (
    TokenRule(TokenKind.REFERENCE, re.compile(r"\[[0-9]+\]"), _element),
    TokenRule(TokenKind.REFERENCE, re.compile(r"\['(?:[^']|'')*'\]"), _key),
    TokenRule(TokenKind.REFERENCE, re.compile(r'\["(?:[^"]|"")*"\]'), _key),
    TokenRule(TokenKind.REFERENCE, re.compile(r"\[[^\]]*\]?"), _no_reference),
)


def _name_step(text: str) -> TokenValue:
    return text.partition(".")[2].encode()


def _quoted_step(text: str) -> TokenValue:
    return quoted_text(text.partition(".")[2]).encode()


def _bracketed_step(text: str) -> TokenValue:
    inner = text[text.index("[") :]
    return None if inner == "[*]" else _element(inner) if inner[1].isdigit() else _key(inner)


def _no_step(text: str) -> TokenValue:
    raise TokenRefused(
        f"found {text[:40]!r}, expected a step of a path: .name, .\"any name\", ['any name'], or of an array [0], [*]"
    )


def _step_rules(before_dot: str, before_bracket: str) -> tuple[TokenRule, ...]:
    bracketed = r"\[(?:[0-9]+|\*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")\]"
    rules = (
        (rf"{before_dot}\.[A-Za-z_][A-Za-z0-9_]*", _name_step),
        (rf'{before_dot}\."(?:[^"]|"")*"', _quoted_step),
        (before_bracket + bracketed, _bracketed_step),
        (rf"{before_bracket}\[[^\]]*\]?", _no_step),
        (rf"{before_dot}\.", _no_step),
    )
    return tuple(TokenRule(TokenKind.PATH, re.compile(pattern), read) for pattern, read in rules)


PATHS, STEPS = _step_rules("body", r"body\."), _step_rules("", "")
"""How a path into the body begins, and how it goes on."""

_SPECIAL_NUMBERS = {"INF": t.SpecialNumber.INFINITY, "NAN": t.SpecialNumber.NAN}


def _special(_parser: Parser, token: Token) -> t.Node:
    """`INF` or `NAN`."""
    return t.Special(_SPECIAL_NUMBERS[token.symbol], token.span)


def _sign(parser: Parser, token: Token) -> t.Node:
    """`+` or `-` before a primary or before INF, which the sign then belongs to."""
    signed = sign(Level.PRIMARY)(parser, token)
    assert isinstance(signed, t.Sign)
    if parser.level is Level.NAME and signed.operand == t.Special(t.SpecialNumber.INFINITY, signed.operand.span):
        number = t.SpecialNumber.NEGATIVE_INFINITY if signed.negative else t.SpecialNumber.INFINITY
        return t.Special(number, signed.span)
    return signed


def _comparison(operator: t.CompareOperator) -> InfixForm:
    """A comparison; between a bare name and a bare INF or NAN, in any order, it is a `CompareSpecial`."""
    plain = comparison(operator, Level.SUM)

    def form(parser: Parser, left: t.Node, token: Token, negated: bool) -> t.Node:
        left_level = parser.level
        compared = plain(parser, left, token, negated)
        assert isinstance(compared, t.Compare)
        right = compared.right
        if _is_bare(left, left_level) and _is_bare(right, parser.level):
            if isinstance(left, t.Name | t.BodyPath) and isinstance(right, t.Special):
                return t.CompareSpecial(operator, left, right.number, compared.span)
            if isinstance(left, t.Special) and isinstance(right, t.Name | t.BodyPath):
                return t.CompareSpecial(operator.mirrored, right, left.number, compared.span)
        return compared

    return form


def _is_bare(node: t.Node, level: Level) -> bool:
    """Whether an operand stands without parentheses; `-INF` has the level of a sign."""
    return level is Level.NAME or (level is Level.SIGN and isinstance(node, t.Special))


def _exists(parser: Parser, token: Token) -> t.Node:
    """`EXISTS ( name )`."""
    parser.expect("(", "after EXISTS")
    operand = named_field(parser, "the name of a field, which is all that EXISTS takes")
    parser.expect(")")
    return t.Exists(operand, (token.span[0], parser.position))


def _call(function: t.Function, least: int, most: int) -> PrefixForm:
    """A function of `least` to `most` arguments."""

    def form(parser: Parser, token: Token) -> t.Node:
        given = arguments(parser, token, Level.SUM)
        span = (token.span[0], parser.position)
        if not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} or {most}"
            plural = "" if wanted == "1" else "s"
            raise parser.error(f"{function.value} takes {wanted} argument{plural}, found {len(given)}", span)
        return t.Call(function, given, span)

    return form


def _concatenation(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
    right = parser.expression(Level.PRODUCT)
    return t.Concatenate(left, right, (left.span[0], parser.position))


_HEADER_TYPES: dict[str, tuple[AmqpType, bool | int | None]] = {
    "durable": (AmqpType.BOOLEAN, False),
    "ttl": (AmqpType.UINT, None),
    "first-acquirer": (AmqpType.BOOLEAN, False),
    "delivery-count": (AmqpType.UINT, 0),
}
"""Type and default of the header fields that `rabbitmq` cannot name (AMQP 1.0 part 3, section 3.2.1)."""

AMQP: Dialect = dataclasses.replace(
    RABBITMQ,
    name="amqp",
    title="AMQP SQL",
    page="languages/amqp/",
    example="LOWER(region) = 'emea' AND EXISTS(price) AND p.creation_time < UTC()",
    tokens=(
        *PATHS,
        *TOKENS,
        TokenRule(TokenKind.OPERATOR, re.compile(r"\|\|"), lambda _text: None),
        TokenRule(
            TokenKind.NAME,
            re.compile(r"[A-Za-z][A-Za-z_-]*\.\[(?:[^\[\]\x00-\x1f\x7f]|\[\[|\]\])*\]"),
            _delimited_in_section,
        ),
    ),
    references=REFERENCES,
    steps=STEPS,
    keywords=RABBITMQ.keywords | {function.value for function in t.Function} | {"EXISTS", "INF", "NAN"},
    unclosed={
        **RABBITMQ.unclosed,
        ".": "a dot stands only between a section and a name, without blanks, or in a number between digits",
        "|": "found a single '|'; texts are joined by '||'",
    },
    prefix={
        **RABBITMQ.prefix,
        "+": Prefix(Level.SIGN, _sign),
        "-": Prefix(Level.SIGN, _sign),
        "INF": Prefix(Level.NAME, _special),
        "NAN": Prefix(Level.NAME, _special),
        "EXISTS": Prefix(Level.PRIMARY, _exists),
        "LOWER": Prefix(Level.PRIMARY, _call(t.Function.LOWER, 1, 1)),
        "UPPER": Prefix(Level.PRIMARY, _call(t.Function.UPPER, 1, 1)),
        "LEFT": Prefix(Level.PRIMARY, _call(t.Function.LEFT, 2, 2)),
        "RIGHT": Prefix(Level.PRIMARY, _call(t.Function.RIGHT, 2, 2)),
        "SUBSTRING": Prefix(Level.PRIMARY, _call(t.Function.SUBSTRING, 2, 3)),
        "DATE": Prefix(Level.PRIMARY, _call(t.Function.DATE, 1, 1)),
    },
    infix={
        **RABBITMQ.infix,
        **{
            symbol: Infix(Level.COMPARISON, Level.SUM, _comparison(operator))
            for symbol, operator in COMPARISONS.items()
        },
        "||": Infix(Level.SUM, Level.SUM, _concatenation),
    },
    sections={
        **RABBITMQ.sections,
        "m": Section.MESSAGE_ANNOTATIONS,
        "message_annotations": Section.MESSAGE_ANNOTATIONS,
        "d": Section.DELIVERY_ANNOTATIONS,
        "delivery_annotations": Section.DELIVERY_ANNOTATIONS,
        "f": Section.FOOTER,
        "footer": Section.FOOTER,
    },
    fields={
        **RABBITMQ.fields,
        Section.HEADER: {
            **RABBITMQ.fields[Section.HEADER],
            **{
                name.replace("-", "_"): FieldReference(
                    Section.HEADER, position=HEADER_FIELDS.index(name), default=default, only=kind
                )
                for name, (kind, default) in _HEADER_TYPES.items()
            },
        },
    },
)
