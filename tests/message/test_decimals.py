"""Decimals as numbers: the binary integer encoding of IEEE 754-2008."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.message import AmqpType, AmqpValue
from headgate.message.decimals import decimal_of, decimal_value

DECIMALS = (AmqpType.DECIMAL32, AmqpType.DECIMAL64, AmqpType.DECIMAL128)


@pytest.mark.parametrize(
    ("kind", "octets", "number"),
    [
        (AmqpType.DECIMAL32, "32800001", Fraction(1)),
        (AmqpType.DECIMAL32, "b2800001", Fraction(-1)),
        (AmqpType.DECIMAL32, "32000019", Fraction(25, 10)),
        (AmqpType.DECIMAL32, "6cb8967f", Fraction(9_999_999)),
        (AmqpType.DECIMAL32, "6cbfffff", Fraction(0)),
        (AmqpType.DECIMAL32, "77f8967f", 9_999_999 * Fraction(10) ** 90),
        (AmqpType.DECIMAL32, "00000001", Fraction(1, 10**101)),
        (AmqpType.DECIMAL64, "31c0000000000005", Fraction(5)),
        (AmqpType.DECIMAL64, "31a0000000000005", Fraction(1, 2)),
        (AmqpType.DECIMAL128, "30400000000000000000000000000007", Fraction(7)),
        (AmqpType.DECIMAL32, "78000000", math.inf),
        (AmqpType.DECIMAL64, "f800000000000000", -math.inf),
    ],
)
def test_a_decimal_is_the_number(kind: AmqpType, octets: str, number: Fraction | float) -> None:
    assert decimal_value(AmqpValue(kind, bytes.fromhex(octets))) == number


def test_a_decimal_that_is_no_number_is_nan() -> None:
    assert math.isnan(decimal_value(AmqpValue(AmqpType.DECIMAL128, b"\x7c" + bytes(15))))


@given(st.sampled_from(DECIMALS), st.integers(-(2**64), 2**64))
def test_an_integer_that_fits_survives_as_a_decimal(kind: AmqpType, number: int) -> None:
    decimal = decimal_of(kind, number)
    if decimal is None:
        assert abs(number) >= {AmqpType.DECIMAL32: 10**7, AmqpType.DECIMAL64: 10**16}[kind]
    else:
        assert decimal_value(decimal) == number


@given(st.sampled_from(DECIMALS), st.binary(min_size=16, max_size=16))
def test_any_bytes_are_a_decimal(kind: AmqpType, octets: bytes) -> None:
    size = {AmqpType.DECIMAL32: 4, AmqpType.DECIMAL64: 8, AmqpType.DECIMAL128: 16}[kind]
    assert isinstance(decimal_value(AmqpValue(kind, octets[:size])), Fraction | float)
