"""Java's numbers and strings (rocketmq_filters, sections 6.4 and 7); expected values are those of Java 17."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.language.rocketmq.java import (
    NumberFormat,
    double_text,
    parse_double,
    parse_float,
    parse_integer,
    string_hash,
    to_float,
    trimmed,
    units,
)
from headgate.message import AmqpType


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", AmqpType.INT, 5),
        ("+5", AmqpType.INT, 5),
        ("-0", AmqpType.INT, 0),
        ("0005", AmqpType.INT, 5),
        ("0" * 5000 + "7", AmqpType.INT, 7),
        ("\u0663\u0664", AmqpType.INT, 34),
        ("-\uff15", AmqpType.INT, -5),
        ("2147483647", AmqpType.INT, 2**31 - 1),
        ("-2147483648", AmqpType.INT, -(2**31)),
        ("9223372036854775807", AmqpType.LONG, 2**63 - 1),
        ("-9223372036854775808", AmqpType.LONG, -(2**63)),
        ("-128", AmqpType.BYTE, -128),
        ("32767", AmqpType.SHORT, 32767),
    ],
)
def test_an_integer_is_a_sign_and_digits_of_any_script(text: str, kind: AmqpType, value: int) -> None:
    assert parse_integer(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", AmqpType.INT),
        ("+", AmqpType.INT),
        ("--5", AmqpType.INT),
        ("+-5", AmqpType.INT),
        (" 5", AmqpType.INT),
        ("5 ", AmqpType.INT),
        ("5.0", AmqpType.INT),
        ("5L", AmqpType.LONG),
        ("1_000", AmqpType.INT),
        ("\u00b2", AmqpType.INT),
        ("\U0001d7d3", AmqpType.INT),
        ("2147483648", AmqpType.INT),
        ("-2147483649", AmqpType.INT),
        ("9223372036854775808", AmqpType.LONG),
        ("9" * 5000, AmqpType.LONG),
        ("128", AmqpType.BYTE),
        ("-32769", AmqpType.SHORT),
    ],
)
def test_anything_else_is_no_integer(text: str, kind: AmqpType) -> None:
    with pytest.raises(NumberFormat) as wrong:
        parse_integer(text, kind)
    assert str(wrong.value) == f'For input string: "{text}"'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("+.5e+1D", 5.0),
        ("1e3", 1000.0),
        ("2f", 2.0),
        ("\t 7.5\x00\n", 7.5),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("1e-400", 0.0),
        ("2.4e-324", 0.0),
        ("2.5e-324", 5e-324),
        ("0x1p3", 8.0),
        ("0X.8P-2f", 0.125),
        ("-0x1.8p1", -3.0),
        ("0x1.p1", 2.0),
        ("0x1p99999999999999999999", math.inf),
        ("-0x1p-99999999999999999999", -0.0),
        ("0x0p99999999999999999999", 0.0),
        ("0x1p0000000000000000000000003", 8.0),
    ],
)
def test_a_double_is_decimal_or_hexadecimal_with_blanks_around_it(text: str, value: float) -> None:
    found = parse_double(text)
    assert (found, math.copysign(1, found)) == (value, math.copysign(1, value))


def test_not_a_number_is_a_double() -> None:
    assert math.isnan(parse_double(" +NaN "))


@pytest.mark.parametrize(
    "text",
    [
        "e5",
        "1e",
        ".",
        "-",
        "1_0",
        "nan",
        "inf",
        "INFINITY",
        "NaNd",
        "0x5",
        "0x1p",
        "0xp1",
        "\u0665",
        "1,0",
        "5\xa0",
        "1ff",
    ],
)
def test_anything_else_is_no_double(text: str) -> None:
    with pytest.raises(NumberFormat, match="For input string"):
        parse_double(text)


def test_blanks_alone_are_an_empty_string() -> None:
    with pytest.raises(NumberFormat, match="empty String"):
        parse_double(" \t")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.10000000149011612),
        ("16777217", 16777216.0),
        ("1.000000059604644775390625", 1.0),
        ("1.0000000596046447753906250000001", 1.0000001192092896),
        ("1.0000000596046447753906249999999", 1.0),
        ("-1.0000000596046447753906250000001", -1.0000001192092896),
        ("0x1.0000010000000000000001p0", 1.0000001192092896),
        ("0x1.000001p0f", 1.0),
        ("3.4028235677973365e38", 3.4028234663852886e38),
        ("3.4028235677973366e38", 3.4028234663852886e38),
        ("340282356779733661637539395458142568447", 3.4028234663852886e38),
        ("340282356779733661637539395458142568448", math.inf),
        ("7.006492321624085e-46", 0.0),
        ("7.006492321624085354618e-46", 0.0),
        ("7.006492321624085354619e-46", 1.401298464324817e-45),
        ("1e400", math.inf),
        ("1.000000059604644775390625" + "0" * 9000 + "1", 1.0000001192092896),
        ("0." + "0" * 9000 + "1000000059604644775390625e9001", 1.0),
        ("0x1.000001p" + "0" * 9000 + "1", 2.0),
        ("-0x1.000001" + "0" * 9000 + "1p0D", -1.0000001192092896),
    ],
)
def test_a_float_is_rounded_once(text: str, value: float) -> None:
    assert parse_float(text) == value


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (2**24 + 1, 2.0**24),
        (2**24 + 3, 2.0**24 + 4),
        (2**62 + 2**38, 2.0**62),
        (2**62 + 2**38 + 1, 2.0**62 + 2.0**39),
        (-(2**62) - 2**38 - 1, -(2.0**62) - 2.0**39),
        (2**63 - 1, 2.0**63),
        (0, 0.0),
        (1e300, math.inf),
        (0.1, 0.10000000149011612),
    ],
)
def test_a_long_becomes_a_float_in_one_rounding(number: float, value: float) -> None:
    assert to_float(number) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_other_float_is_nearer_to_a_long(number: int) -> None:
    found = to_float(number)
    step = 2.0 ** max(0, abs(number).bit_length() - 24)
    distance = abs(Fraction(found) - number)
    assert distance <= abs(Fraction(found + step) - number)
    assert distance <= abs(Fraction(found - step) - number)


@given(st.floats(allow_nan=False, width=32))
def test_a_float_survives_its_digits(number: float) -> None:
    assert parse_float(repr(number).replace("inf", "Infinity")) == number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (10.0, "10.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (-2.5e-10, "-2.5E-10"),
        (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"),
        (1e23, "1.0E23"),
        (5.960464477539063e-08, "5.960464477539063E-8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_a_double_prints_as_in_java(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(allow_nan=False))
def test_the_printed_double_reads_back(value: float) -> None:
    assert parse_double(double_text(value)) == value


def test_a_hash_is_of_utf_16_units_in_32_bits() -> None:
    assert [string_hash(text) for text in ("", "a", "Aa", "BB", "\U0001f600", "polygenelubricants")] == [
        0, 97, 2112, 2112, 1772899, -(2**31),
    ]  # fmt: skip


def test_strings_are_ordered_by_units_and_not_by_characters() -> None:
    assert units("\U0001f600") < units("\uff21")


def test_trimming_takes_control_characters_and_no_other_blanks() -> None:
    assert trimmed("\x00 \t a b\x1f\n") == "a b"
    assert trimmed("\xa0a\u2003") == "\xa0a\u2003"
