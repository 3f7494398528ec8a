"""Values of other types than their property is declared with: what is converted exactly, and what is not."""

from __future__ import annotations

import math
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message
from headgate.message.arrow import Mismatches, columns_of
from headgate.message.decimals import decimal_of

INF = math.inf


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


def decimal64(coefficient: int, exponent: int = 0) -> AmqpValue:
    """A decimal64 of few digits."""
    return of("decimal64", ((exponent + 398) << 53 | coefficient).to_bytes(8, "big"))


def cast(value: object, kind: str) -> object:
    """What becomes of a value in a column of that type; times as text."""
    message = Message(application_properties={"v": value}).encode()
    left = Mismatches()
    columns = columns_of(
        EncodedMessages.of([message]), ["application_properties"], f"v {kind}", cast=True, mismatches=left
    )
    cell = columns["application_properties"].to_pylist()[0]["v"]
    assert left.count == (cell is None)
    return cell.isoformat() if kind == "timestamp" and cell is not None else cell


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("int", "7", 7),
        ("int", 3.0, 3),
        ("int", 3.5, None),
        ("int", 99_999_999_999, None),
        ("int", "two", None),
        ("int", "+7.00", 7),
        ("int", "1e3", 1000),
        ("int", "1e9999", None),
        ("int", "7" * 1000, None),
        ("int", " 7", None),
        ("int", "\u0667", None),
        ("int", "", None),
        ("int", of("char", ord("7")), 7),
        ("int", of("symbol", "-7"), -7),
        ("int", True, None),
        ("int", of("timestamp", 7), None),
        ("int", math.nan, None),
        ("int", INF, None),
        ("int", decimal64(7), 7),
        ("int", decimal64(7, -1), None),
        ("tinyint", "128", None),
        ("tinyint", "-128", -128),
        ("bigint", 2.0**63, None),
        ("bigint", -(2.0**63), -(2**63)),
        ("decimal(20,0)", "12345678901234567890", Decimal(12345678901234567890)),
        ("decimal(3,0)", "1000", None),
        ("double", "3.5", 3.5),
        ("double", "0.1", 0.1),
        ("double", "0.10", 0.1),
        ("double", "0.10000000000000001", None),
        ("double", "1e400", None),
        ("double", "NaN", None),
        ("double", of("long", 2**60), 2.0**60),
        ("double", of("long", 2**60 + 1), None),
        ("double", decimal64(1, -1), 0.1),
        ("double", decimal64(1, 300), 1e300),
        ("double", decimal64(1, 360), None),
        ("float", 0.5, 0.5),
        ("float", 0.1, None),
        ("float", 1e300, None),
        ("float", INF, INF),
        ("float", -0.0, -0.0),
        ("float", "0.5", 0.5),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", "yes", None),
        ("boolean", 1, None),
        ("string", 7, "7"),
        ("string", True, "true"),
        ("string", 0.1, "0.1"),
        ("string", of("float", 0.1), "0.1"),
        ("string", math.nan, None),
        ("string", decimal64(12, -1), "1.2"),
        ("string", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("string", b"text", "text"),
        ("string", b"\xff", None),
        ("string", of("timestamp", 1_767_225_600_123), "2026-01-01T00:00:00.123Z"),
        ("string", of("timestamp", 2**62), None),
        ("binary", "caf\u00e9", "caf\u00e9".encode()),
        ("binary", uuid.UUID(int=1), uuid.UUID(int=1).bytes),
        ("binary", 1, None),
        ("timestamp", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00"),
        ("timestamp", "2026-01-01 01:00:00.000001+01:00", "2026-01-01T00:00:00.000001+00:00"),
        ("timestamp", "2026-01-01T00:00:00", None),
        ("timestamp", "2026-13-01T00:00:00Z", None),
        ("timestamp", "2026-01-01T00:00:00.0000001Z", None),
        ("timestamp", 1_767_225_600_000, None),
    ],
    ids=repr,
)
def test_exact_conversions_are_made_and_no_others(kind: str, value: object, wanted: object) -> None:
    found = cast(value, kind)
    assert (type(found), repr(found)) == (type(wanted), repr(wanted))


def test_lists_and_described_values_are_converted_to_nothing() -> None:
    listed = AmqpValue(AmqpType.LIST, (of("int", 1),))
    for kind in ("string", "binary", "boolean", "int", "double", "timestamp", "decimal(10,0)"):
        assert cast(listed, kind) is None


@given(st.integers(-(2**70), 2**70))
def test_an_integer_in_a_text_or_a_decimal_is_that_integer_or_null(number: int) -> None:
    wanted = number if -(2**63) <= number < 2**63 else None
    assert cast(str(number), "bigint") == wanted
    if number >= 0:
        encoded = decimal_of(AmqpType.DECIMAL128, number)
        assert encoded is not None
        assert cast(encoded, "bigint") == wanted
        assert cast(encoded, "string") == str(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_goes_through_a_text_and_back(number: float) -> None:
    text = cast(number, "string")
    assert isinstance(text, str)
    assert cast(text, "double") == number
