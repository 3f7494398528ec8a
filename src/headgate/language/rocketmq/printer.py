"""Tree → text in the language of RocketMQ: parsing and binding the text of a bound tree gives that tree again."""

from __future__ import annotations

import re

from headgate.language import tree as t
from headgate.language.dialect import Level, Unspellable
from headgate.language.rocketmq.java import double_text
from headgate.language.values import Value
from headgate.message import SYSTEM_PROPERTIES, AmqpValue, FieldReference, Section
from headgate.message.constructors import AmqpType

KEYWORDS = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
"""Words that are not names, in any letter case."""

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_SYSTEM_NAMES = {reference: name for name, reference in SYSTEM_PROPERTIES.items()}


def print_tree(node: t.Node) -> str:
    """The text of a tree. Raises Unspellable for nodes, names and constants of other languages."""
    return _text(node, Level.OR)


def _text(node: t.Node, minimum: Level) -> str:
    level, text = _spelled(node)
    return text if level >= minimum else f"({text})"


def _spelled(node: t.Node) -> tuple[Level, str]:
    match node:
        case t.Constant(value):
            text = constant_text(value)
            return (Level.SIGN if text.startswith("-") else Level.PRIMARY), text
        case t.Name(None, name):
            return Level.NAME, _name(name)
        case t.Field(reference):
            return Level.NAME, field_text(reference)
        case t.BooleanCast(operand):
            return _spelled(operand)
        case t.And(operands):
            return Level.AND, " AND ".join(_text(operand, Level.NOT) for operand in operands)
        case t.Or(operands):
            return Level.OR, " OR ".join(_text(operand, Level.AND) for operand in operands)
        case t.Not(operand):
            return Level.SIGN, f"NOT {_text(operand, Level.SIGN)}"
        case t.Sign(True, operand):
            text = _text(operand, Level.SIGN)
            return Level.SIGN, f"- {text}" if text.startswith("-") else f"-{text}"
        case t.Compare(t.CompareOperator.EQUAL | t.CompareOperator.NOT_EQUAL as operator, left, right):
            return Level.EQUALITY, f"{_text(left, Level.EQUALITY)} {operator.value} {_text(right, Level.COMPARISON)}"
        case t.Compare(operator, left, right):
            return Level.COMPARISON, f"{_text(left, Level.COMPARISON)} {operator.value} {_text(right, Level.SIGN)}"
        case t.IsNull(operand, negated):
            return Level.EQUALITY, f"{_text(operand, Level.EQUALITY)} IS {_not(negated)}NULL"
        case t.In(subject, members, negated):
            listed = ", ".join(_text(member, Level.PRIMARY) for member in members)
            return Level.COMPARISON, f"{_text(subject, Level.COMPARISON)} {_not(negated)}IN ({listed})"
        case t.TextTest(kind, subject, searched, negated):
            quoted = constant_text(searched)
            return Level.COMPARISON, f"{_text(subject, Level.COMPARISON)} {_not(negated)}{kind.value} {quoted}"
        case _:
            raise Unspellable(f"{type(node).__name__} has no spelling in the language of RocketMQ")


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def constant_text(value: Value) -> str:
    """A constant as the language writes it. Raises Unspellable."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case bytes():
            try:
                return "'" + value.decode().replace("'", "''") + "'"
            except UnicodeDecodeError:
                raise Unspellable("a string here is UTF-8") from None
        case AmqpValue(AmqpType.INT | AmqpType.LONG, number):
            return str(number)
        case AmqpValue(AmqpType.DOUBLE, number):
            return double_text(number)
        case _:
            raise Unspellable(f"{value!r} is no constant of the language of RocketMQ")


def field_text(reference: FieldReference) -> str:
    """The name of a field. Raises Unspellable for fields that the language does not see."""
    if reference in _SYSTEM_NAMES:
        return _name(_SYSTEM_NAMES[reference])
    if reference.section is not Section.APPLICATION_PROPERTIES or reference.key is None or reference.path:
        raise Unspellable(f"the language of RocketMQ has no name for {reference}")
    name = reference.key.decode(errors="replace")
    if name in SYSTEM_PROPERTIES:
        raise Unspellable(f"{name} is a system property in the language of RocketMQ")
    return _name(name)


def _name(name: str) -> str:
    if not _NAME.fullmatch(name) or name.upper() in KEYWORDS:
        raise Unspellable(f"{name!r} is no name in the language of RocketMQ")
    return name
