"""Values of RocketMQ and their operators: comparison by the types of both sides, negation.

A value is None (NULL), a bool, bytes (a string, in UTF-8), or an `AmqpValue` of type byte, short, int, long, float or
double: the Java type decides how a string is parsed and which side is widened. Source: rocketmq_filters, sections 6.1
to 6.9.
"""

from __future__ import annotations

import contextlib
import math
import struct
from typing import TypeAlias

from headgate.language.rocketmq.java import NumberFormat, parse_double, parse_float, parse_integer, to_float, units
from headgate.language.tree import CompareOperator
from headgate.language.values import EvaluationFailed, Value
from headgate.message import AmqpValue
from headgate.message.constructors import AmqpType

_RANKS = {
    AmqpType.BYTE: 0,
    AmqpType.SHORT: 1,
    AmqpType.INT: 2,
    AmqpType.LONG: 3,
    AmqpType.FLOAT: 4,
    AmqpType.DOUBLE: 5,
}
NUMBERS = frozenset(_RANKS)
"""The types of numbers that RocketMQ's evaluator knows."""

_UNLIKE = -1
"""The order of two values that cannot be compared: `=` is false, `<` is true."""


def text_of(value: bytes) -> str:
    """A string as Java's characters; bytes that are not UTF-8 are lone surrogates, equal to nothing else."""
    return value.decode("utf-8", "surrogateescape")


def compared(operator: CompareOperator, left: Value, right: Value) -> bool | None:
    """A comparison of two values, NULL included. Raises EvaluationFailed."""
    if operator is CompareOperator.EQUAL:
        return equal(left, right)
    if operator is CompareOperator.NOT_EQUAL:
        found = equal(left, right)
        return None if found is None else not found
    if left is None or right is None:
        return None
    if isinstance(left, bytes) and isinstance(right, bytes):
        order = _order(_double_key(_parsed(AmqpType.DOUBLE, left)), _double_key(_parsed(AmqpType.DOUBLE, right)))
    else:
        order = compare(left, right)
    return bool(operator.apply(order, 0))


def equal(left: Value, right: Value) -> bool | None:
    """`left = right`: two NULLs are equal, NULL on the left alone is NULL, on the right alone false.

    Raises EvaluationFailed.
    """
    if left is None and right is None:
        return True
    if left is None:
        return None
    if right is None:
        return False
    return compare(left, right) == 0


def compare(left: Value, right: Value) -> int:
    """Below, equal to or above zero, as the two known values are ordered. Raises EvaluationFailed."""
    match left, right:
        case bool(), bool():
            return left - right
        case bool(), bytes():
            raise EvaluationFailed("class java.lang.String cannot be cast to class java.lang.Boolean")
        case bytes(), bytes():
            return _order(units(text_of(left)), units(text_of(right)))
        case bytes(), bool():
            return (text_of(left).lower() == "true") - right
        case bytes(), AmqpValue():
            return _compare_numbers(right.type, _parsed(right.type, left), right.value)
        case AmqpValue(), bytes():
            return _compare_numbers(left.type, left.value, _parsed(left.type, right))
        case AmqpValue(), AmqpValue():
            return _compare_typed(left, right)
        case _:
            return _UNLIKE


def _parsed(kind: AmqpType, text: bytes) -> int | float:
    try:
        match kind:
            case AmqpType.FLOAT:
                return parse_float(text_of(text))
            case AmqpType.DOUBLE:
                return parse_double(text_of(text))
            case _:
                return parse_integer(text_of(text), kind)
    except NumberFormat as wrong:
        raise EvaluationFailed(f"java.lang.NumberFormatException: {wrong}") from None


def numbers_of(text: bytes) -> frozenset[float]:
    """The numbers that a string can equal, parsed as each type of number; integers as the nearest double."""
    found: set[float] = set()
    for kind in NUMBERS:
        with contextlib.suppress(EvaluationFailed):
            found.add(float(_parsed(kind, text)))
    return frozenset(number for number in found if not math.isnan(number))


def _compare_typed(left: AmqpValue, right: AmqpValue) -> int:
    """Compare two numbers. The original widens the left one, or a right int or long; other pairs it does not know."""
    if left.type is right.type:
        return _compare_numbers(left.type, left.value, right.value)
    if left.type is AmqpType.DOUBLE and right.type is AmqpType.FLOAT:
        raise EvaluationFailed("class java.lang.Float cannot be cast to class java.lang.Double")
    widens_right = (left.type, right.type) in _WIDENED_RIGHT
    if not widens_right and _RANKS[left.type] > _RANKS[right.type]:
        return _UNLIKE
    kind = left.type if widens_right else right.type
    return _compare_numbers(kind, _widened(kind, left), _widened(kind, right))


_WIDENED_RIGHT = frozenset(
    {
        (AmqpType.LONG, AmqpType.INT),
        (AmqpType.FLOAT, AmqpType.INT),
        (AmqpType.FLOAT, AmqpType.LONG),
        (AmqpType.DOUBLE, AmqpType.INT),
        (AmqpType.DOUBLE, AmqpType.LONG),
    }
)


def _widened(kind: AmqpType, number: AmqpValue) -> int | float:
    value: int | float = number.value
    if kind is AmqpType.DOUBLE:
        return float(value)
    return to_float(value) if kind is AmqpType.FLOAT else value


def _compare_numbers(kind: AmqpType, left: int | float, right: int | float) -> int:
    if kind in (AmqpType.FLOAT, AmqpType.DOUBLE):
        return _order(_double_key(left), _double_key(right))
    return _order(left, right)


def _double_key(number: int | float) -> int:
    """An integer that orders doubles as `Double.compare` does: -0.0 below 0.0, NaN equal to itself and above all."""
    bits: int = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(number) else number))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF) - 1


_Ordered: TypeAlias = int | float | bytes


def _order(left: _Ordered, right: _Ordered) -> int:
    return (left > right) - (left < right)  # type: ignore[operator]


def signed(negative: bool, value: Value) -> Value:
    """Unary minus: int, long, float and double negated in their type, NULL for all else. Plus is the value itself.

    Raises EvaluationFailed for byte and short.
    """
    if not negative:
        return value
    if not isinstance(value, AmqpValue) or value.type not in NUMBERS:
        return None
    match value.type:
        case AmqpType.BYTE | AmqpType.SHORT:
            raise EvaluationFailed(f"Don't know how to negate: {value.value}")
        case AmqpType.INT:
            return AmqpValue(value.type, _wrapped(-value.value, 32))
        case AmqpType.LONG:
            return AmqpValue(value.type, _wrapped(-value.value, 64))
        case _:
            return AmqpValue(value.type, -value.value)


def _wrapped(number: int, bits: int) -> int:
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
