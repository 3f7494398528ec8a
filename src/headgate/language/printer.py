"""Tree → text: the canonical spelling of a tree in the grammar of the dialect `rabbitmq`.

Parsing the text of an unbound tree gives that tree again; binding the parsed text of a bound tree gives the bound tree.
Exceptions, which only property filters yield: a test of existence, and keys and patterns that the grammar cannot spell.
"""

from __future__ import annotations

import re

from headgate.language.dialect import Level
from headgate.language.like import like_text
from headgate.language.rabbitmq import RABBITMQ
from headgate.language.tree import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Compare,
    Constant,
    Exists,
    Field,
    HasSimple,
    In,
    IsNull,
    Like,
    LikeText,
    Name,
    Node,
    Not,
    Now,
    Or,
    Sign,
)
from headgate.language.values import Value
from headgate.message import AmqpValue
from headgate.message.fields import HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, Section

_ARITHMETIC_LEVELS = {
    ArithmeticOperator.ADD: Level.SUM,
    ArithmeticOperator.SUBTRACT: Level.SUM,
    ArithmeticOperator.MULTIPLY: Level.PRODUCT,
    ArithmeticOperator.DIVIDE: Level.PRODUCT,
    ArithmeticOperator.MODULO: Level.PRODUCT,
}
_REGULAR = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def print_tree(node: Node) -> str:
    """The text of a tree."""
    return _Printer().text(node, Level.OR)


class _Printer:
    def text(self, node: Node, minimum: Level) -> str:
        level, text = self._spelled(node)
        return text if level >= minimum else f"({text})"

    def _spelled(self, node: Node) -> tuple[Level, str]:
        text = self.text
        match node:
            case Constant(value):
                spelled = constant_text(value)
                return (Level.SIGN if spelled.startswith("-") else Level.PRIMARY), spelled
            case Name(section, name):
                return Level.NAME, name_text(section, name)
            case Field(reference):
                return Level.NAME, field_text(reference)
            case Now():
                return Level.PRIMARY, "UTC()"
            case And(operands):
                return Level.AND, " AND ".join(text(operand, Level.NOT) for operand in operands)
            case Or(operands):
                return Level.OR, " OR ".join(text(operand, Level.AND) for operand in operands)
            case Not(operand):
                return Level.NOT, f"NOT {text(operand, Level.NOT)}"
            case Compare(operator, left, right):
                return Level.COMPARISON, f"{text(left, Level.SUM)} {operator.value} {text(right, Level.SUM)}"
            case In(subject, members, negated):
                listed = ", ".join(text(member, Level.SUM) for member in members)
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}IN ({listed})"
            case LikeText(subject, pattern, escape, negated):
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}{_like(pattern, escape)}"
            case Like(subject, compiled, negated):
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}{_like(*like_text(compiled))}"
            case IsNull(operand, negated):
                return Level.COMPARISON, f"{text(operand, Level.NAME)} IS {_not(negated)}NULL"
            case Exists(operand) | HasSimple(operand):
                return Level.PRIMARY, f"EXISTS({text(operand, Level.NAME)})"
            case Arithmetic(operator, left, right):
                level = _ARITHMETIC_LEVELS[operator]
                return level, f"{text(left, level)} {operator.value} {text(right, Level(level + 1))}"
            case Sign(negative, operand):
                return Level.SIGN, ("-" if negative else "+") + text(operand, Level.PRIMARY)


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _like(pattern: str, escape: str | None) -> str:
    return f"LIKE {_quoted(pattern)}" + (f" ESCAPE {_quoted(escape)}" if escape is not None else "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def constant_text(value: Value) -> str:
    """A constant: bytes as a string where they are UTF-8, else in hexadecimal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case AmqpValue():
            return f"{value.type.value} {value.value}"
        case bytes():
            try:
                return _quoted(value.decode())
            except UnicodeDecodeError:
                return "0x" + value.hex().upper()
        case float():
            mantissa, exponent, power = repr(value).partition("e")
            return mantissa + ("" if "." in mantissa else ".0") + ("E" + power if exponent else "")
        case _:
            return str(value)


def name_text(section: str | None, name: str) -> str:
    """A name: in brackets where it is no regular identifier."""
    if section is not None:
        return f"{section}.{name}"
    if _REGULAR.fullmatch(name) and name.lower() not in RABBITMQ.reserved:
        return name
    return "[" + name.replace("[", "[[").replace("]", "]]") + "]"


def field_text(reference: FieldReference) -> str:
    """The shortest name of a field."""
    match reference.section:
        case Section.HEADER | Section.PROPERTIES:
            fields = HEADER_FIELDS if reference.section is Section.HEADER else PROPERTIES_FIELDS
            position = reference.position if reference.position is not None else 0
            return ("h." if reference.section is Section.HEADER else "p.") + fields[position].replace("-", "_")
        case Section.APPLICATION_PROPERTIES:
            return name_text(None, (reference.key or b"").decode(errors="replace"))
        case section:
            key = (reference.key or b"").decode(errors="replace")
            return f"{section.name.lower()}.[{key}]"
