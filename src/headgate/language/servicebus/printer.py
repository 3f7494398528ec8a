"""Tree → text in the language of Service Bus: parsing and binding the text of a bound tree gives that tree again."""

from __future__ import annotations

import math
import re

from headgate.language import tree as t
from headgate.language.dialect import Level, Unspellable
from headgate.language.like import like_text
from headgate.language.servicebus.system_properties import system_name
from headgate.language.servicebus.values import INTEGER_LIMIT, INTEGER_MIN, kind_of, text_of
from headgate.language.values import EvaluationFailed, Value
from headgate.message import FieldReference, Section

KEYWORDS = frozenset({"AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE"})
"""Reserved words, in any letter case."""

_ACTION_KEYWORDS = KEYWORDS | {"SET", "REMOVE"}
_REGULAR = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LEVELS = {
    t.ArithmeticOperator.ADD: Level.SUM,
    t.ArithmeticOperator.SUBTRACT: Level.SUM,
    t.ArithmeticOperator.MULTIPLY: Level.PRODUCT,
    t.ArithmeticOperator.DIVIDE: Level.PRODUCT,
    t.ArithmeticOperator.MODULO: Level.PRODUCT,
}


def print_tree(node: t.Node) -> str:
    """The text of a filter. Raises Unspellable for nodes, fields and constants that the language cannot write."""
    return _condition(node, Level.OR)


def _condition(node: t.Node, minimum: Level) -> str:
    level, text = _spelled_condition(node)
    return text if level >= minimum else f"({text})"


def _value(node: t.Node, minimum: Level) -> str:
    level, text = _spelled_value(node)
    return text if level >= minimum else f"({text})"


def _spelled_condition(node: t.Node) -> tuple[Level, str]:
    match node:
        case t.And(operands):
            return Level.AND, " AND ".join(_condition(operand, Level.NOT) for operand in operands)
        case t.Or(operands):
            return Level.OR, " OR ".join(_condition(operand, Level.AND) for operand in operands)
        case t.Not(operand):
            return Level.NOT, f"NOT {_condition(operand, Level.NOT)}"
        case t.Constant(bool() as value):
            return Level.COMPARISON, "1 = 1" if value else "1 = 0"
        case t.Compare(operator, left, right):
            return Level.COMPARISON, f"{_value(left, Level.SUM)} {operator.value} {_value(right, Level.SUM)}"
        case t.In(subject, members, negated):
            listed = ", ".join(_value(member, Level.SUM) for member in members)
            return Level.COMPARISON, f"{_value(subject, Level.SUM)} {_not(negated)}IN ({listed})"
        case t.Like(subject, compiled, negated):
            pattern, escape = like_text(compiled)
            behind = "" if escape is None else f" ESCAPE {_quoted(escape)}"
            return Level.COMPARISON, f"{_value(subject, Level.SUM)} {_not(negated)}LIKE {_quoted(pattern)}{behind}"
        case t.LikeValue(subject, wanted, wanted_escape, negated):
            behind = "" if wanted_escape is None else f" ESCAPE {_value(wanted_escape, Level.SUM)}"
            spelled = f"{_not(negated)}LIKE {_value(wanted, Level.SUM)}{behind}"
            return Level.COMPARISON, f"{_value(subject, Level.SUM)} {spelled}"
        case t.IsNull(operand, negated):
            return Level.COMPARISON, f"{_value(operand, Level.NAME)} IS {_not(negated)}NULL"
        case t.Exists(operand):
            return Level.COMPARISON, f"EXISTS({_value(operand, Level.NAME)})"
        case _:
            raise Unspellable(f"no condition of Service Bus is a {type(node).__name__}")


def _spelled_value(node: t.Node) -> tuple[Level, str]:
    match node:
        case t.Constant(value):
            return _spelled_constant(value)
        case t.Name(section, name):
            return Level.NAME, ("" if section is None else f"{section}.") + property_text(name)
        case t.Parameter(name):
            return Level.PRIMARY, "@" + (name if re.fullmatch(r"\w+", name) else property_text(name))
        case t.Field(reference):
            return Level.NAME, field_text(reference)
        case t.MessageSize():
            return Level.NAME, "sys.Size"
        case t.PropertyOf(name):
            return Level.PRIMARY, f"property({_value(name, Level.SUM)})"
        case t.NewId():
            return Level.PRIMARY, "newid()"
        case t.Arithmetic(operator, left, right):
            level = _LEVELS[operator]
            return level, f"{_value(left, level)} {operator.value} {_value(right, Level(level + 1))}"
        case t.Sign(negative, operand):
            spelled = _value(operand, Level.SIGN)
            # Two minuses side by side begin a comment elsewhere.
            return Level.SIGN, ("-" if negative else "+") + (" " if spelled.startswith(("-", "+")) else "") + spelled
        case _:
            raise Unspellable(f"no value of Service Bus is a {type(node).__name__}")


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def field_text(reference: FieldReference) -> str:
    """The name of a property as the language has it; raises Unspellable for a field that has none."""
    if reference.section is Section.APPLICATION_PROPERTIES and reference.key is not None and not reference.path:
        try:
            return property_text(reference.key.decode())
        except UnicodeDecodeError:
            raise Unspellable(f"no name of Service Bus is {reference.key!r}") from None
    name = system_name(reference)
    if name is None:
        raise Unspellable(f"Service Bus sees no {reference.section.name.lower()} of that name")
    return f"sys.{name}"


def property_text(name: str) -> str:
    """The name of an application property: in brackets where it is not a regular identifier."""
    if _REGULAR.fullmatch(name) and name.upper() not in _ACTION_KEYWORDS:
        return name
    return "[" + name.replace("]", "]]") + "]"


def _spelled_constant(value: Value) -> tuple[Level, str]:
    """A constant, or the arithmetic that gives it where the language has no constant of that value."""
    match value:
        case float() if math.isnan(value):
            return Level.PRODUCT, "0.0 / 0.0"
        case float() if math.isinf(value):
            return Level.PRODUCT, "1.0 / 0.0" if value > 0 else "-1.0 / 0.0"
        case int() if value == INTEGER_MIN:
            return Level.SUM, f"{INTEGER_MIN + 1} - 1"
        case int() if not INTEGER_MIN <= value < INTEGER_LIMIT:
            raise Unspellable(f"no constant of Service Bus is {value}")
        case None | bool() | int() | float() | bytes():
            text = constant_text(value)
            return (Level.SIGN if text.startswith("-") else Level.PRIMARY), text
        case _:
            raise Unspellable(f"Service Bus has no constant that is a {kind_of(value).value}")


def constant_text(value: Value) -> str:
    """A value for showing: as the language has it, else its kind and text."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case float() if math.isfinite(value):
            mantissa, exponent, power = repr(value).partition("e")
            return mantissa + ("" if "." in mantissa else ".0") + ("E" + power if exponent else "")
        case int() | float():
            return str(value)
        case bytes():
            return _quoted(value.decode(errors="replace"))
        case _:
            try:
                return f"{kind_of(value).value} {text_of(value).decode(errors='replace')}"
            except EvaluationFailed:
                return kind_of(value).value
