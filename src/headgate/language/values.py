"""Values as RabbitMQ sees them, and exact arithmetic without exceptions, for folding and the reference evaluator.

Source: rabbitmq_filters, section 2.5. Numbers are Python ints (unbounded) and finite floats; None is unknown.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from headgate.language.tree import ArithmeticOperator
from headgate.message import INTEGER_RANGES, AmqpValue
from headgate.message.constructors import AmqpType

Value: TypeAlias = bool | int | float | bytes | AmqpValue | None
"""A value while evaluating: AmqpValue where a language asks for the exact type; None is unknown."""


class EvaluationFailed(Exception):  # noqa: N818 - no error of the user's tree: it ends as an ERROR verdict
    """An error of the language while a message was evaluated; the exception's text describes it."""


_NO_NUMBERS = bool | bytes | AmqpValue | None


def is_number(value: Value) -> bool:
    """Whether the value is of the kind number (booleans are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_utf8(octets: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def value_of(typed: AmqpValue) -> bool | int | float | bytes | None:
    """The value of a field that is there; None for NaN, infinities and types that have none."""
    if typed.type is AmqpType.BOOLEAN or typed.type in INTEGER_RANGES:
        number: bool | int = typed.value
        return number
    if typed.type in (AmqpType.FLOAT, AmqpType.DOUBLE):
        double: float = typed.value
        return double if math.isfinite(double) else None
    return typed.octets()


def arithmetic(operator: ArithmeticOperator, left: Value, right: Value) -> int | float | None:
    """`left operator right`; unknown on anything that is not a number, by zero, and on overflow of a double."""
    if isinstance(left, _NO_NUMBERS) or isinstance(right, _NO_NUMBERS):
        return None
    exact = isinstance(left, int) and isinstance(right, int)
    if operator is ArithmeticOperator.MODULO:
        return _remainder(left, right) if isinstance(left, int) and isinstance(right, int) else None
    if not exact or operator is ArithmeticOperator.DIVIDE:
        try:
            left, right = float(left), float(right)
        except OverflowError:
            return None
    match operator:
        case ArithmeticOperator.ADD:
            result = left + right
        case ArithmeticOperator.SUBTRACT:
            result = left - right
        case ArithmeticOperator.MULTIPLY:
            result = left * right
        case ArithmeticOperator.DIVIDE:
            if right == 0:
                return None
            result = left / right
    return result if isinstance(result, int) or math.isfinite(result) else None


def _remainder(left: int, right: int) -> int | None:
    if right == 0:
        return None
    magnitude = abs(left) % abs(right)
    return -magnitude if left < 0 else magnitude


def signed(negative: bool, value: Value) -> int | float | None:
    """Unary plus or minus; unknown on anything that is not a number."""
    if isinstance(value, _NO_NUMBERS):
        return None
    return -value if negative else value
