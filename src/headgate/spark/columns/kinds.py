"""The kinds of values that a filter compares its fields with: a column for a field must be able to carry them."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from headgate.language import tree as t
from headgate.message import AmqpType, AmqpValue, FieldReference


class ValueKind(enum.Enum):
    """Kinds of values, as an error message calls them."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "truth value"
    TIME = "time"


_OF_TYPES: Mapping[AmqpType, ValueKind] = {
    **dict.fromkeys((AmqpType.UBYTE, AmqpType.USHORT, AmqpType.UINT, AmqpType.ULONG), ValueKind.NUMBER),
    **dict.fromkeys((AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT, AmqpType.LONG), ValueKind.NUMBER),
    **dict.fromkeys((AmqpType.FLOAT, AmqpType.DOUBLE), ValueKind.NUMBER),
    **dict.fromkeys((AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY), ValueKind.TEXT),
    AmqpType.BOOLEAN: ValueKind.BOOLEAN,
    AmqpType.TIMESTAMP: ValueKind.TIME,
}


def compared_kinds(tree: t.Node) -> dict[FieldReference, dict[ValueKind, str]]:
    """Per field the kinds that it is compared with or used as, each with one operand as an example for display.

    A field that is only tested for presence, or compared with another field, has none.
    """
    found: dict[FieldReference, dict[ValueKind, str]] = {}

    def note(node: t.Node, kind: ValueKind | None, shown: str) -> None:
        if isinstance(node, t.Field) and kind is not None:
            found.setdefault(node.reference, {}).setdefault(kind, shown)

    note(tree, ValueKind.BOOLEAN, "the filter itself")
    for node in t.walk(tree):
        match node:
            case t.And(operands) | t.Or(operands):
                for operand in operands:
                    note(operand, ValueKind.BOOLEAN, "an operand of AND and OR")
            case t.Not(operand):
                note(operand, ValueKind.BOOLEAN, "the operand of NOT")
            case t.Compare(_, left, right):
                note(left, *_kind_of(right))
                note(right, *_kind_of(left))
            case t.In(subject, members):
                for member in members:
                    note(subject, *_kind_of(member))
            case t.CompareSpecial(_, operand, number):
                note(operand, ValueKind.NUMBER, number.value)
            case t.Like(subject) | t.LikeValue(subject):
                note(subject, ValueKind.TEXT, "LIKE")
            case t.Arithmetic(operator, left, right):
                if _is_numeric(node):
                    note(left, ValueKind.NUMBER, f"an operand of {operator.value}")
                    note(right, ValueKind.NUMBER, f"an operand of {operator.value}")
            case t.Sign(_, operand):
                note(operand, ValueKind.NUMBER, "the operand of a sign")
            case _:
                pass
    return found


def _is_numeric(node: t.Arithmetic) -> bool:
    return node.operator is not t.ArithmeticOperator.ADD or node.rules is t.ValueRules.RABBITMQ


def _kind_of(node: t.Node) -> tuple[ValueKind | None, str]:
    match node:
        case t.Constant(value):
            return _constant_kind(value), repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
        case t.Arithmetic():
            return (ValueKind.NUMBER if _is_numeric(node) else None), "the result of arithmetic"
        case t.Sign() | t.Now():
            return ValueKind.NUMBER, "a calculated number"
        case _:
            return None, ""


def _constant_kind(value: object) -> ValueKind | None:
    match value:
        case bool():
            return ValueKind.BOOLEAN
        case int() | float():
            return ValueKind.NUMBER
        case bytes():
            return ValueKind.TEXT
        case AmqpValue():
            return _OF_TYPES.get(value.type)
        case _:
            return None
