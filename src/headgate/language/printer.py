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
from headgate.message import HEADER_FIELDS, PROPERTIES_FIELDS, AmqpValue, FieldReference, Section

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
    return _Printer().text(node, Level.OR)


class _Printer:
    def text(self, node: t.Node, minimum: Level) -> str:
        level, text = self._spelled(node)
        return text if level >= minimum else f"({text})"

    def _spelled(self, node: t.Node) -> tuple[Level, str]:
        text = self.text
        match node:
            case t.Constant(value):
                spelled = constant_text(value)
                return (Level.SIGN if spelled.startswith("-") else Level.PRIMARY), spelled
            case t.Name(section, name, path=path):
                return Level.NAME, name_text(section, name) + path_text(path)
            case t.Special(number):
                return Level.SIGN if number is t.SpecialNumber.NEGATIVE_INFINITY else Level.NAME, number.value
            case t.Field(reference):
                return Level.NAME, field_text(reference)
            case t.Parameter(name):
                return Level.PRIMARY, f"@{name}"
            case t.PropertyOf(name):
                return Level.PRIMARY, f"property({text(name, Level.SUM)})"
            case t.NewId():
                return Level.PRIMARY, "newid()"
            case t.MessageSize():
                return Level.NAME, "sys.Size"
            case t.Now():
                return Level.PRIMARY, "UTC()"
            case t.And(operands):
                return Level.AND, " AND ".join(text(operand, Level.NOT) for operand in operands)
            case t.Or(operands):
                return Level.OR, " OR ".join(text(operand, Level.AND) for operand in operands)
            case t.Not(operand):
                return Level.NOT, f"NOT {text(operand, Level.NOT)}"
            case t.Compare(operator, left, right):
                return Level.COMPARISON, f"{text(left, Level.SUM)} {operator.value} {text(right, Level.SUM)}"
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
                quoted = constant_text(searched)
                return Level.COMPARISON, f"{text(subject, Level.SUM)} {_not(negated)}{kind.value} {quoted}"
            case t.BooleanCast(operand):
                return self._spelled(operand)
            case t.IsNull(operand, negated):
                return Level.COMPARISON, f"{text(operand, Level.NAME)} IS {_not(negated)}NULL"
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
            case t.Sign(negative, operand):
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
    """A name: in brackets where it is not a regular identifier."""
    prefix = "" if section is None else f"{section}."
    if _REGULAR.fullmatch(name) and (section is not None or name.lower() not in AMQP.reserved):
        return prefix + name
    return prefix + "[" + name.replace("[", "[[").replace("]", "]]") + "]"


def path_text(path: tuple[bytes | int, ...]) -> str:
    """The references after a name."""
    steps = (str(step) if isinstance(step, int) else _quoted(step.decode(errors="replace")) for step in path)
    return "".join(f"[{step}]" for step in steps)


def field_text(reference: FieldReference) -> str:
    """The shortest name of a field."""
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
