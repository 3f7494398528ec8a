"""AMQP decimals: IEEE 754-2008 decimal32, decimal64 and decimal128 in the binary integer encoding.

Source: OASIS AMQP 1.0 part 1 (types), section 1.6.13 to 1.6.15; IEEE 754-2008, section 3.5.2.

    sign, exponent, coefficient                   the coefficient is a binary integer
    sign, 11, exponent, (100) coefficient         a coefficient whose first bits are 100: larger ones only
    sign, 1111 0 …, sign, 1111 1 …                infinity, NaN
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from headgate.message.constructors import AmqpType
from headgate.message.types import AmqpValue


@dataclass(frozen=True, slots=True)
class _Format:
    digits: int
    coefficient_bits: int
    bias: int


_FORMATS = {
    AmqpType.DECIMAL32: _Format(7, 23, 101),
    AmqpType.DECIMAL64: _Format(16, 53, 398),
    AmqpType.DECIMAL128: _Format(34, 113, 6176),
}


def decimal_value(decimal: AmqpValue) -> Fraction | float:
    """The number that a decimal is, exactly; a float for infinities and NaN. A coefficient of too many digits is 0."""
    form = _FORMATS[decimal.type]
    bits = int.from_bytes(decimal.value, "big")
    width = 8 * len(decimal.value)
    sign = -1 if bits >> (width - 1) else 1
    combination = bits >> (width - 6) & 0b11111
    if combination == 0b11111:
        return math.nan
    if combination == 0b11110:
        return sign * math.inf
    exponent_mask = (1 << (width - 1 - form.coefficient_bits)) - 1
    if combination >> 3 == 0b11:
        low_bits = form.coefficient_bits - 2
        coefficient = 0b100 << low_bits | bits & ((1 << low_bits) - 1)
        exponent = bits >> low_bits & exponent_mask
    else:
        coefficient = bits & ((1 << form.coefficient_bits) - 1)
        exponent = bits >> form.coefficient_bits & exponent_mask
    if coefficient >= 10**form.digits:
        coefficient = 0
    return sign * coefficient * Fraction(10) ** (exponent - form.bias)


def decimal_of(kind: AmqpType, number: int, exponent: int = 0) -> AmqpValue | None:
    """`number` · 10^`exponent` as a decimal of that type; None where that has more digits or another exponent."""
    form = _FORMATS[kind]
    width = {AmqpType.DECIMAL32: 32, AmqpType.DECIMAL64: 64, AmqpType.DECIMAL128: 128}[kind]
    biased = form.bias + exponent
    if abs(number) >= 10**form.digits or not 0 <= biased < 3 << (width - 3 - form.coefficient_bits):
        return None
    sign = int(number < 0) << (width - 1)
    coefficient = abs(number)
    if coefficient >> form.coefficient_bits:
        low_bits = form.coefficient_bits - 2
        bits = sign | 0b11 << (width - 3) | biased << low_bits | coefficient & ((1 << low_bits) - 1)
    else:
        bits = sign | biased << form.coefficient_bits | coefficient
    return AmqpValue(kind, bits.to_bytes(width // 8, "big"))


def holds_decimal(number: Decimal, held: float, *, is_double: bool = True) -> bool:
    """Whether a double (or float) stands for a decimal number: rounded to the number's digits, it gives the number.

    0.1 is held by the nearest double and the nearest float, 16777217 by a double only, 9007199254740993 by neither.
    """
    if number == held:
        return True
    if not math.isfinite(held) or held == 0:
        return False
    digits = Context(prec=max(1, len(number.as_tuple().digits)))
    if digits.create_decimal_from_float(held) == number:
        return True
    # At powers of two a notation of so few digits may read back as the number without being the nearest to it.
    return Decimal(repr(held) if is_double else str(np.float32(held))) == number
