"""Tree → text: the canonical spelling of a tree in the grammar of the dialect `amqp`.

Parsing the text of an unbound tree gives that tree again; binding the parsed text of a bound tree gives the bound tree.
A tree of the dialect `rabbitmq` is spelled in that dialect. Exceptions, which only property filters yield: a key with
a simple value, and keys and patterns that the grammar cannot spell.
"""

from __future__ import annotations

import re

from headgate.language import tree as t
from headgate.language.amqp import AMQP
from headgate.language.dialect import Level
from headgate.language.like import like_text
from headgate.language.values import Value
from headgate.message import (
    HEADER_FIELDS,
    PROPERTIES_FIELDS,
    AmqpValue,
    FieldReference,
    Section,
    body_path_text,
    steps_text,
)

_ARITHMETIC_LEVELS = {
    t.ArithmeticOperator.ADD: Level.SUM,
    t.ArithmeticOperator.SUBTRACT: Level.SUM,
    t.ArithmeticOperator.MULTIPLY: Level.PRODUCT,
    t.ArithmeticOperator.DIVIDE: Level.PRODUCT,
    t.ArithmeticOperator.MODULO: Level.PRODUCT,
}
_REGULAR = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def print_tree(node: t.Node) -> str:
    """The text of a tree."""
    return Printer().text(node, Level.OR)


class Printer:
    """Spells trees by the levels of operators; a language overrides the levels and words in which it differs."""

    negation = Level.NOT
    """The level of NOT and of its operand."""
    signed = Level.PRIMARY
    """The level of the operand of a sign; then of IS NULL, and of text tests."""
    nullable = Level.NAME
    searched = Level.SUM

    def comparison(self, _operator: t.CompareOperator) -> tuple[Level, Level, Level]:
        """The levels of a comparison and of its two operands."""
        return Level.COMPARISON, Level.SUM, Level.SUM

    def condition(self, node: t.Node, minimum: Level) -> str:
        """A filter, or an operand of AND, OR and NOT, in parentheses unless it has at least a level."""
        return self.text(node, minimum)

    def text(self, node: t.Node, minimum: Level) -> str:
        """Any other operand, in parentheses unless it has at least a level."""
        level, text = self.spelled(node)
        return text if level >= minimum else f"({text})"

    def __init__(self) -> None:
        self._arrays: list[str] = []
        """The texts of the arrays whose elements the conditions around a node look at."""

    def constant(self, value: Value) -> tuple[Level, str]:
        """A constant and its level."""
        return level_of(constant_text(value))

    def name(self, node: t.Name | t.Parameter) -> str:
        """A name as a text has it."""
        if isinstance(node, t.Parameter):
            return f"@{node.name}"
        return name_text(node.section, node.name) + path_text(node.path)

    def field(self, reference: FieldReference) -> str:
        """The name of a field."""
        return field_text(reference)

    def spelled(self, node: t.Node) -> tuple[Level, str]:
        """The text of a tree and its level."""
        text = self.text
        match node:
            case t.Constant(value):
                return self.constant(value)
            case t.Name():
                return Level.NAME, self.name(node)
            case t.BodyPath(steps):
                return Level.NAME, body_path_text(steps)
            case t.Special(number):
                return Level.SIGN if number is t.SpecialNumber.NEGATIVE_INFINITY else Level.NAME, number.value
            case t.Field(reference):
                return Level.NAME, self.field(reference)
            case t.Element(path):
                return Level.NAME, self._arrays[-1] + steps_text(path)
            case t.AnyElement(array, condition):
                self._arrays.append(f"{self.spelled(array)[1]}[*]")
                level, found = self.spelled(condition)
                self._arrays.pop()
                return level, found
            case t.Parameter():
                return Level.PRIMARY, self.name(node)
            case t.PropertyOf(name):
                return Level.PRIMARY, f"property({text(name, Level.SUM)})"
            case t.NewId():
                return Level.PRIMARY, "newid()"
            case t.MessageSize():
                return Level.NAME, "sys.Size"
            case t.Now():
                return Level.PRIMARY, "UTC()"
            case t.And(operands):
                return Level.AND, " AND ".join(self.condition(operand, Level.NOT) for operand in operands)
            case t.Or(operands):
                return Level.OR, " OR ".join(self.condition(operand, Level.AND) for operand in operands)
            case t.Not(operand):
                return self.negation, f"NOT {self.condition(operand, self.negation)}"
            case t.Compare(operator, left, right):
                level, first, second = self.comparison(operator)
                return level, f"{text(left, first)} {operator.value} {text(right, second)}"
            case t.CompareSpecial(operator, operand, number):
                return Level.COMPARISON, f"{text(operand, Level.NAME)} {operator.value} {number.value}"
            case t.In(subject, members, negated):
                listed = ", ".join(text(member, Level.SUM) for member in members)
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}IN ({listed})"
            case t.LikeText(subject, pattern, escape, negated):
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}{_like(pattern, escape)}"
            case t.Like(subject, compiled, negated):
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}{_like(*like_text(compiled))}"
            case t.LikeValue(subject, wanted, escape, negated):
                behind = "" if escape is None else f" ESCAPE {text(escape, Level.SUM)}"
                spelled = f"{_not(negated)}LIKE {text(wanted, Level.SUM)}{behind}"
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {spelled}"
            case t.TextTest(kind, subject, searched, negated):
                wanted_text = self.constant(searched)[1]
                return Level.COMPARISON, f"{text(subject, self.searched)} {_not(negated)}{kind.value} {wanted_text}"
            case t.BooleanCast(operand):
                return self.spelled(operand)
            case t.IsNull(operand, negated):
                return self.comparison(t.CompareOperator.EQUAL)[
                    0
                ], f"{text(operand, self.nullable)} IS {_not(negated)}NULL"
            case t.Exists(operand) | t.HasSimple(operand):
                return Level.PRIMARY, f"EXISTS({text(operand, Level.NAME)})"
            case t.Arithmetic(operator, left, right):
                level = _ARITHMETIC_LEVELS[operator]
                return level, f"{text(left, level)} {operator.value} {text(right, Level(level + 1))}"
            case t.Concatenate(left, right):
                return Level.SUM, f"{text(left, Level.SUM)} || {text(right, Level.PRODUCT)}"
            case t.Call(function, arguments):
                listed = ", ".join(text(argument, Level.SUM) for argument in arguments)
                return Level.PRIMARY, f"{function.value}({listed})"
            case t.Attribute(name):
                return Level.NAME, name
            case t.Apply(called, arguments):
                return Level.PRIMARY, f"{called}({', '.join(text(argument, Level.OR) for argument in arguments)})"
            case t.Sign(negative, operand):
                spelled = text(operand, self.signed)
                # Two minuses side by side begin a comment in some languages.
                blank = " " if spelled.startswith(("-", "+")) else ""
                return Level.SIGN, f"{'-' if negative else '+'}{blank}{spelled}"


def level_of(constant: str) -> tuple[Level, str]:
    """The level of the text of a constant, and the text."""
    return (Level.SIGN if constant.startswith("-") else Level.PRIMARY), constant


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _like(pattern: str, escape: str | None) -> str:
    return f"LIKE {quoted(pattern)}" + (f" ESCAPE {quoted(escape)}" if escape is not None else "")


def quoted(text: str) -> str:
    """A string constant in single quotes."""
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
                return quoted(value.decode())
            except UnicodeDecodeError:
                return "0x" + value.hex().upper()
        case float():
            mantissa, exponent, power = repr(value).partition("e")
            return mantissa + ("" if "." in mantissa else ".0") + ("E" + power if exponent else "")
        case _:
            return str(value)


def name_text(section: str | None, name: str) -> str:
    """A name: in brackets where it is not a regular identifier."""
    prefix = "" if section is None else f"{section}."
    if _REGULAR.fullmatch(name) and (section is not None or name.lower() not in AMQP.reserved):
        return prefix + name
    return prefix + "[" + name.replace("[", "[[").replace("]", "]]") + "]"


def path_text(path: tuple[bytes | int, ...]) -> str:
    """The references after a name."""
    steps = (str(step) if isinstance(step, int) else quoted(step.decode(errors="replace")) for step in path)
    return "".join(f"[{step}]" for step in steps)


def field_text(reference: FieldReference) -> str:
    """The shortest name of a field."""
    if reference.section is Section.DATA:
        return body_path_text(reference.path)
    return _whole_field_text(reference) + path_text(reference.path)


def _whole_field_text(reference: FieldReference) -> str:
    match reference.section:
        case Section.HEADER | Section.PROPERTIES:
            fields = HEADER_FIELDS if reference.section is Section.HEADER else PROPERTIES_FIELDS
            position = reference.position if reference.position is not None else 0
            return ("h." if reference.section is Section.HEADER else "p.") + fields[position].replace("-", "_")
        case Section.APPLICATION_PROPERTIES:
            return name_text(None, (reference.key or b"").decode(errors="replace"))
        case section:
            return name_text(section.name[0].lower(), (reference.key or b"").decode(errors="replace"))
