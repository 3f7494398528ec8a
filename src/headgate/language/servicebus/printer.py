"""Tree → text in the language of Service Bus: parsing and binding the text of a bound tree gives that tree again."""

from __future__ import annotations

import math
import re

from headgate.language import printer
from headgate.language import tree as t
from headgate.language.dialect import Level, Unspellable
from headgate.language.printer import Printer, level_of, quoted
from headgate.language.servicebus.system_properties import system_name
from headgate.language.servicebus.values import INTEGER_LIMIT, INTEGER_MIN, kind_of, text_of
from headgate.language.values import EvaluationFailed, Value
from headgate.message import AmqpValue, FieldReference, Section

KEYWORDS = frozenset({"AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE"})
"""Reserved words, in any letter case."""

_ACTION_KEYWORDS = KEYWORDS | {"SET", "REMOVE"}
_REGULAR = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_CONDITIONS = (t.And, t.Or, t.Not, t.Compare, t.In, t.Like, t.LikeValue, t.IsNull, t.Exists)
_VALUES = (
    *(t.Constant, t.Name, t.Parameter, t.Field, t.MessageSize, t.PropertyOf, t.NewId),
    *(t.Arithmetic, t.Sign),
)


def print_tree(node: t.Node) -> str:
    """The text of a filter. Raises Unspellable for nodes, fields and constants that the language cannot write."""
    return _Printer().condition(node, Level.OR)


class _Printer(Printer):
    signed = Level.SIGN

    def condition(self, node: t.Node, minimum: Level) -> str:
        if isinstance(node, t.Constant) and isinstance(node.value, bool):
            return "1 = 1" if node.value else "1 = 0"
        if not isinstance(node, _CONDITIONS):
            raise Unspellable(f"no condition of Service Bus is a {type(node).__name__}")
        return super().text(node, minimum)

    def text(self, node: t.Node, minimum: Level) -> str:
        if not isinstance(node, _VALUES):
            raise Unspellable(f"no value of Service Bus is a {type(node).__name__}")
        return super().text(node, minimum)

    def constant(self, value: Value) -> tuple[Level, str]:
        return _spelled_constant(value)

    def name(self, node: t.Name | t.Parameter) -> str:
        if isinstance(node, t.Parameter):
            return "@" + (node.name if re.fullmatch(r"\w+", node.name) else property_text(node.name))
        return ("" if node.section is None else f"{node.section}.") + property_text(node.name)

    def field(self, reference: FieldReference) -> str:
        return field_text(reference)


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
            return level_of(constant_text(value))
        case _:
            raise Unspellable(f"Service Bus has no constant that is a {kind_of(value).value}")


def constant_text(value: Value) -> str:
    """A value for showing: as the language has it, else its kind and text."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case bytes():
            return quoted(value.decode(errors="replace"))
        case AmqpValue():
            try:
                return f"{kind_of(value).value} {text_of(value).decode(errors='replace')}"
            except EvaluationFailed:
                return kind_of(value).value
        case _:
            return printer.constant_text(value)
