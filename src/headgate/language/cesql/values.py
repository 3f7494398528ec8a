"""The values of CloudEvents SQL: strings (bytes of UTF-8), integers of 32 bits, booleans; casts, operators, errors.

Source: CloudEvents SQL 1.0.0, sections 3.1, 3.3, 3.4 and 3.7. There is no null: what has no value is an error. An
operator that is given an error is that error (the fail-fast mode of section 4.1); an operator or function that fails
itself has a result beside its error, which `Failure` carries.
"""

from __future__ import annotations

import enum
import re
from typing import TypeAlias

from headgate.language.tree import ArithmeticOperator, CompareOperator
from headgate.language.values import EvaluationFailed, Value

EventValue: TypeAlias = bool | int | bytes
"""A value of the language."""

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1


class ValueType(enum.Enum):
    """The types of values, by their names in the specification."""

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"

    @property
    def zero(self) -> EventValue:
        """The result of what fails, where nothing else is said."""
        return _ZEROS[self]


_ZEROS: dict[ValueType, EventValue] = {ValueType.STRING: b"", ValueType.INTEGER: 0, ValueType.BOOLEAN: False}


class ErrorKind(enum.Enum):
    """The errors of an evaluation, by their names in the conformance kit."""

    MATH = "math"
    CAST = "cast"
    MISSING_ATTRIBUTE = "missingAttribute"
    FUNCTION_EVALUATION = "functionEvaluation"
    GENERIC = "generic"


class Failure(EvaluationFailed):
    """An error of the language; `result` is what the operator or function that failed gives beside it."""

    def __init__(self, kind: ErrorKind, reason: str, result: EventValue) -> None:
        super().__init__(reason)
        self.kind = kind
        self.result = result


_INTEGER = re.compile(rb"[+-]?0*([0-9]{1,10})")


def type_of(value: Value) -> ValueType:
    """The type of a value of the language."""
    if isinstance(value, bool):
        return ValueType.BOOLEAN
    return ValueType.INTEGER if isinstance(value, int) else ValueType.STRING


def cast(value: Value, wanted: ValueType, result: EventValue | None = None) -> EventValue:
    """The value as another type, section 3.7. Raises Failure with `result`, or the zero of the type."""
    assert isinstance(value, bool | int | bytes)
    if type_of(value) is wanted:
        return value
    found: EventValue | None
    match wanted:
        case ValueType.STRING:
            found = (str(value).lower() if isinstance(value, bool) else str(value)).encode()
        case ValueType.INTEGER if isinstance(value, bytes):
            found = _integer(value)
        case ValueType.INTEGER:
            found = int(value)
        case ValueType.BOOLEAN if isinstance(value, bytes):
            found = _BOOLEANS.get(value.lower())
        case ValueType.BOOLEAN:
            found = value != 0
    if found is None:
        reason = f"{_shown(value)} is no {wanted.value}"
        raise Failure(ErrorKind.CAST, reason, wanted.zero if result is None else result)
    return found


_BOOLEANS = {b"true": True, b"false": False}


def _integer(text: bytes) -> int | None:
    # Ten digits behind zeros hold 32 bits; of more, none is turned into a number.
    found = _INTEGER.fullmatch(text)
    number = None if found is None else int(found.group(1)) * (-1 if text.startswith(b"-") else 1)
    return number if number is not None and INTEGER_MIN <= number <= INTEGER_MAX else None


def _shown(value: EventValue) -> str:
    shown = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return repr(shown if len(shown) <= 40 else shown[:39] + "…")


def compare(operator: CompareOperator, left: Value, right: Value) -> bool:
    """A comparison: `=` and `<>` in the type of the right side, an order of integers. Raises Failure."""
    wanted = type_of(right) if operator.is_equality else ValueType.INTEGER
    return bool(operator.apply(cast(left, wanted, False), cast(right, wanted, False)))


def arithmetic(operator: ArithmeticOperator, left: Value, right: Value) -> int:
    """Arithmetic of integers, rounded towards 0; beyond 32 bits, and by 0, an error. Raises Failure."""
    first, second = int(cast(left, ValueType.INTEGER)), int(cast(right, ValueType.INTEGER))
    match operator:
        case ArithmeticOperator.ADD:
            result = first + second
        case ArithmeticOperator.SUBTRACT:
            result = first - second
        case ArithmeticOperator.MULTIPLY:
            result = first * second
        case ArithmeticOperator.DIVIDE | ArithmeticOperator.MODULO if second == 0:
            raise Failure(ErrorKind.MATH, f"{first} {operator.value} 0 has no value", 0)
        case ArithmeticOperator.DIVIDE:
            result = _quotient(first, second)
        case ArithmeticOperator.MODULO:
            result = first - second * _quotient(first, second)
    return in_range(result, f"{first} {operator.value} {second}")


def _quotient(first: int, second: int) -> int:
    magnitude = abs(first) // abs(second)
    return magnitude if (first < 0) is (second < 0) else -magnitude


def signed(negative: bool, value: Value) -> int:
    """Unary minus of an integer. Raises Failure."""
    number = int(cast(value, ValueType.INTEGER))
    return in_range(-number, f"-({number})") if negative else number


def in_range(result: int, what: str, otherwise: int = 0) -> int:
    """The result, if it is an integer of 32 bits. Raises Failure, with `otherwise` as its result."""
    if not INTEGER_MIN <= result <= INTEGER_MAX:
        raise Failure(ErrorKind.MATH, f"{what} is beyond 32 bits", otherwise)
    return result
