"""Values as RabbitMQ sees them, and exact arithmetic without exceptions, for folding and the reference evaluator.

Source: rabbitmq_filters, section 2.5. Numbers are Python ints (unbounded), finite floats and, from bodies, exact
decimals (docs/design/body-paths.md); None is unknown.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TypeAlias, TypeVar

from headgate.language.tree import ArithmeticOperator
from headgate.message import INTEGER_RANGES, AmqpValue
from headgate.message.constructors import AmqpType

Value: TypeAlias = bool | int | float | Decimal | bytes | AmqpValue | None
"""A value while evaluating: AmqpValue where a language asks for the exact type; None is unknown.

Decimal is a number of JSON that is written with a fraction or an exponent.
"""


class EvaluationFailed(Exception):  # noqa: N818 - no error of the user's tree: it ends as an ERROR verdict
    """An error of the language while a message was evaluated; the exception's text describes it."""


_Number = TypeVar("_Number", int, float)
_NO_NUMBERS = bool | bytes | AmqpValue | None


def is_number(value: Value) -> bool:
    """Whether the value is of the kind number (booleans are not)."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


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
    """`left operator right`; unknown on anything that is not a number, by zero, and on overflow of a double.

    A decimal is the double next to it.
    """
    if isinstance(left, _NO_NUMBERS) or isinstance(right, _NO_NUMBERS):
        return None
    if isinstance(left, int) and isinstance(right, int) and operator is not ArithmeticOperator.DIVIDE:
        return _remainder(left, right) if operator is ArithmeticOperator.MODULO else _result(operator, left, right)
    if operator is ArithmeticOperator.MODULO:
        return None
    try:
        first, second = float(left), float(right)
    except OverflowError:
        return None
    if not (math.isfinite(first) and math.isfinite(second)) or (operator is ArithmeticOperator.DIVIDE and second == 0):
        return None
    result = first / second if operator is ArithmeticOperator.DIVIDE else _result(operator, first, second)
    return result if math.isfinite(result) else None


def _result(operator: ArithmeticOperator, left: _Number, right: _Number) -> _Number:
    match operator:
        case ArithmeticOperator.ADD:
            return left + right
        case ArithmeticOperator.SUBTRACT:
            return left - right
        case _:
            return left * right


def _remainder(left: int, right: int) -> int | None:
    if right == 0:
        return None
    magnitude = abs(left) % abs(right)
    return -magnitude if left < 0 else magnitude


def signed(negative: bool, value: Value) -> int | float | Decimal | None:
    """Unary plus or minus; unknown on anything that is not a number."""
    if isinstance(value, _NO_NUMBERS):
        return None
    if isinstance(value, Decimal):
        # Python's operators round decimals.
        return value.copy_negate() if negative else value
    return -value if negative else value
