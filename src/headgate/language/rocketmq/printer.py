"""Tree → text in the language of RocketMQ: parsing and binding the text of a bound tree gives that tree again."""

from __future__ import annotations

import re

from headgate.language import printer
from headgate.language import tree as t
from headgate.language.dialect import Level, Unspellable
from headgate.language.printer import Printer, level_of, quoted
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


_NODES = (
    *(t.And, t.Or, t.Not, t.Compare, t.IsNull, t.In, t.TextTest),
    *(t.Constant, t.Name, t.Field, t.BooleanCast, t.Sign),
)


def print_tree(node: t.Node) -> str:
    """The text of a tree. Raises Unspellable for nodes, names and constants of other languages."""
    return _Printer().text(node, Level.OR)


class _Printer(Printer):
    negation = signed = Level.SIGN
    nullable = Level.EQUALITY
    searched = Level.COMPARISON

    def comparison(self, operator: t.CompareOperator) -> tuple[Level, Level, Level]:
        if operator.is_equality:
            return Level.EQUALITY, Level.EQUALITY, Level.COMPARISON
        return Level.COMPARISON, Level.COMPARISON, Level.SIGN

    def constant(self, value: Value) -> tuple[Level, str]:
        return level_of(constant_text(value))

    def name(self, node: t.Name | t.Parameter) -> str:
        return _name(node.name)

    def field(self, reference: FieldReference) -> str:
        return field_text(reference)

    def spelled(self, node: t.Node) -> tuple[Level, str]:
        if not isinstance(node, _NODES) or (isinstance(node, t.Sign) and not node.negative):
            raise Unspellable(f"{type(node).__name__} has no spelling in the language of RocketMQ")
        return super().spelled(node)


def constant_text(value: Value) -> str:
    """A constant as the language writes it. Raises Unspellable."""
    match value:
        case None | bool():
            return printer.constant_text(value)
        case bytes():
            try:
                return quoted(value.decode())
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
