"""Exact conversions of application properties to the types they are declared with (`on_mismatch = cast`).

A value is converted only if the column holds the same number, truth, time, text or bytes, and only between types in the
table. Texts are strings, symbols and chars.

| declared | converted, beside what the column takes anyway |
| --- | --- |
| tinyint … bigint, decimal(p,0) | float, double, decimals and texts of numbers that are whole and in range |
| double, float | integers, decimals, doubles and texts of numbers, where the column holds that number |
| boolean | the texts `true` and `false`, in any letter case |
| string | integers, float, double and decimals in decimal notation; boolean as `true`, `false`; uuid; timestamp as in \
`2026-01-01T00:00:00.000Z`; binary that is UTF-8 |
| binary | the UTF-8 bytes of a text; the 16 bytes of a uuid |
| timestamp | a text of date, time and zone as in `2026-01-01T00:00:00.000Z` or `2026-01-01 01:00:00+01:00` |

The text of a number is `-12`, `+3.50` or `1e3`, without spaces. A decimal or a text is held by a double if that is the
number exactly, or has it as its shortest notation: "0.1" is, "0.10000000000000001" is not. Numbers do not become
booleans or times: the meaning of 1 would be a guess. Infinities and NaN are converted between float and double only.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from headgate.message.arrow.schema import INTEGER_RANGES, DeclaredProperty, SparkType
from headgate.message.constructors import AmqpType
from headgate.message.decimals import decimal_value
from headgate.message.types import DECIMAL_SIZES, AmqpValue
from headgate.message.types import INTEGER_RANGES as AMQP_RANGES

_INTEGERS = frozenset(AMQP_RANGES) - {AmqpType.CHAR, AmqpType.TIMESTAMP}
_FLOATS = frozenset({AmqpType.FLOAT, AmqpType.DOUBLE})
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,4})?", re.ASCII)
_MOST_NUMBER_CHARACTERS = 400
"""Limit: longer texts are not numbers. The digits of the smallest double fit; longer texts would only cost time."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def converted(typed: AmqpValue, declared: DeclaredProperty) -> Any:
    """The cell for a value of another type; None if the conversion is not exact."""
    kind = declared.kind
    if kind is SparkType.BOOLEAN:
        return {"true": True, "false": False}.get((typed.text() or "").lower())
    if kind is SparkType.STRING:
        return _shown(typed)
    if kind is SparkType.BINARY:
        text = typed.text()
        return typed.value.bytes if isinstance(typed.value, uuid.UUID) else None if text is None else text.encode()
    if kind is SparkType.TIMESTAMP:
        return _microseconds(typed.text() or "")
    if kind in (SparkType.DOUBLE, SparkType.FLOAT):
        return _floating(typed, is_double=kind is SparkType.DOUBLE)
    number = _number(typed)
    if not isinstance(number, Fraction) or number.denominator != 1:
        return None
    if kind is SparkType.DECIMAL:
        return Decimal(int(number)) if abs(number) < 10**declared.precision else None
    low, high = INTEGER_RANGES[kind]
    return int(number) if low <= number <= high else None


def _number(typed: AmqpValue) -> Fraction | float | None:
    """The number that a value is or shows, exactly; a float for infinities and NaN."""
    if typed.type in _INTEGERS:
        return Fraction(typed.value)
    if typed.type in _FLOATS:
        return Fraction(typed.value) if math.isfinite(typed.value) else float(typed.value)
    if typed.type in DECIMAL_SIZES:
        return decimal_value(typed)
    text = typed.text()
    if text is None or len(text) > _MOST_NUMBER_CHARACTERS or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text)


def _floating(typed: AmqpValue, *, is_double: bool) -> float | None:
    number = _number(typed)
    if number is None:
        return None
    if not isinstance(number, Fraction):
        return number if typed.type in _FLOATS else None
    try:
        nearest = float(number)
    except OverflowError:
        return None
    shortest = repr(nearest)
    if not is_double:
        with np.errstate(over="ignore"):
            narrow = np.float32(nearest)
        nearest, shortest = float(narrow), str(narrow)
    if not math.isfinite(nearest):
        return None
    is_notation = typed.type not in _INTEGERS and typed.type not in _FLOATS
    if Fraction(nearest) != number and not (is_notation and Fraction(shortest) == number):
        return None
    return nearest if number or typed.type not in _FLOATS else float(typed.value)


def _shown(typed: AmqpValue) -> str | None:
    if typed.type is AmqpType.BOOLEAN:
        return "true" if typed.value else "false"
    if typed.type in _INTEGERS or typed.type is AmqpType.UUID:
        return str(typed.value)
    if typed.type is AmqpType.BINARY:
        try:
            return bytes(typed.value).decode()
        except UnicodeDecodeError:
            return None
    if typed.type in _FLOATS:
        # That of 32 bits has a shorter notation of its own.
        number = np.float32(typed.value) if typed.type is AmqpType.FLOAT else typed.value
        return str(number) if math.isfinite(typed.value) else None
    if typed.type is AmqpType.TIMESTAMP:
        return _time_text(typed.value)
    return _decimal_text(typed) if typed.type in DECIMAL_SIZES else None


def _decimal_text(typed: AmqpValue) -> str | None:
    number = decimal_value(typed)
    if not isinstance(number, Fraction):
        return None
    # The denominator is a power of ten, or of its factors; 34 digits and 6 176 places are the most there are.
    with decimal.localcontext(prec=40) as context:
        context.Emin, context.Emax = -7000, 7000
        return str(Decimal(number.numerator) / Decimal(number.denominator))


def _time_text(time_ms: int) -> str | None:
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _microseconds(text: str) -> int | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        return (datetime.datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
