"""Typed values: what each type holds, equality, plain Python values."""

from __future__ import annotations

import datetime
import uuid

import pytest

from headgate.errors import ConfigError
from headgate.message import AmqpArray, AmqpType, AmqpValue, Described, amqp_value

LONG_5 = AmqpValue(AmqpType.LONG, 5)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (AmqpType.NULL, 0),
        (AmqpType.BOOLEAN, 1),
        (AmqpType.UBYTE, 256),
        (AmqpType.UBYTE, -1),
        (AmqpType.UBYTE, True),
        (AmqpType.BYTE, 128),
        (AmqpType.SHORT, -32769),
        (AmqpType.USHORT, 65536),
        (AmqpType.INT, 2**31),
        (AmqpType.UINT, 2**32),
        (AmqpType.LONG, 2**63),
        (AmqpType.ULONG, 2**64),
        (AmqpType.LONG, 5.0),
        (AmqpType.TIMESTAMP, -(2**63) - 1),
        (AmqpType.CHAR, "a"),
        (AmqpType.DOUBLE, 5),
        (AmqpType.FLOAT, 1e39),
        (AmqpType.DECIMAL64, bytes(4)),
        (AmqpType.UUID, "01234567-89ab-cdef-0123-456789abcdef"),
        (AmqpType.BINARY, "abc"),
        (AmqpType.STRING, b"abc"),
        (AmqpType.STRING, "\ud800"),
        (AmqpType.SYMBOL, None),
        (AmqpType.LIST, (5,)),
        (AmqpType.LIST, [LONG_5]),
        (AmqpType.MAP, (LONG_5, LONG_5)),
        (AmqpType.MAP, ((LONG_5,),)),
        (AmqpType.ARRAY, (LONG_5,)),
        (AmqpType.DESCRIBED, LONG_5),
    ],
)
def test_a_type_refuses_what_it_cannot_hold(kind: AmqpType, value: object) -> None:
    with pytest.raises(ConfigError, match=r"(takes .*, found )"):
        AmqpValue(kind, value)


def test_a_float_is_rounded_to_32_bits() -> None:
    assert AmqpValue(AmqpType.FLOAT, 0.1).value == 0.10000000149011612
    assert AmqpValue(AmqpType.DOUBLE, 0.1).value == 0.1


def test_equal_means_same_type_and_same_encoding() -> None:
    nan = AmqpValue(AmqpType.DOUBLE, float("nan"))
    assert nan == AmqpValue(AmqpType.DOUBLE, float("nan"))
    assert hash(nan) == hash(AmqpValue(AmqpType.DOUBLE, float("nan")))
    assert AmqpValue(AmqpType.DOUBLE, 0.0) != AmqpValue(AmqpType.DOUBLE, -0.0)
    assert AmqpValue(AmqpType.INT, 5) != LONG_5
    assert AmqpValue(AmqpType.STRING, "a") != AmqpValue(AmqpType.SYMBOL, "a")
    assert AmqpValue(AmqpType.LIST, (nan,)) == AmqpValue(AmqpType.LIST, (AmqpValue(AmqpType.DOUBLE, float("nan")),))
    assert LONG_5 != 5


def test_octets_are_the_bytes_of_strings_symbols_binaries_and_uuids() -> None:
    text = "01234567-89ab-cdef-0123-456789abcdef"
    assert AmqpValue(AmqpType.STRING, "é").octets() == b"\xc3\xa9"
    assert AmqpValue(AmqpType.SYMBOL, "\udcff").octets() == b"\xff"
    assert AmqpValue(AmqpType.BINARY, b"\xff").octets() == b"\xff"
    assert AmqpValue(AmqpType.UUID, uuid.UUID(text)).octets() == bytes.fromhex(text.replace("-", ""))
    assert AmqpValue(AmqpType.DECIMAL32, b"abcd").octets() is None
    assert LONG_5.octets() is None


def test_plain_values_take_their_natural_type() -> None:
    moment = datetime.datetime(2026, 1, 1, 0, 0, 0, 1_999, tzinfo=datetime.UTC)
    identifier = uuid.UUID(int=5)
    expected = {
        AmqpValue(AmqpType.NULL, None): None,
        AmqpValue(AmqpType.BOOLEAN, True): True,
        AmqpValue(AmqpType.LONG, 2**63 - 1): 2**63 - 1,
        AmqpValue(AmqpType.LONG, -(2**63)): -(2**63),
        AmqpValue(AmqpType.ULONG, 2**63): 2**63,
        AmqpValue(AmqpType.DOUBLE, 0.5): 0.5,
        AmqpValue(AmqpType.STRING, "a"): "a",
        AmqpValue(AmqpType.BINARY, b"a"): bytearray(b"a"),
        AmqpValue(AmqpType.UUID, identifier): identifier,
        AmqpValue(AmqpType.TIMESTAMP, 1_767_225_600_001): moment,
        AmqpValue(AmqpType.LIST, (LONG_5,)): [5],
        AmqpValue(AmqpType.MAP, ((AmqpValue(AmqpType.STRING, "k"), LONG_5),)): {"k": 5},
        LONG_5: LONG_5,
    }
    for value, plain in expected.items():
        assert amqp_value(plain) == value


def test_a_time_before_the_epoch_is_rounded_down() -> None:
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=datetime.UTC)
    assert amqp_value(moment) == AmqpValue(AmqpType.TIMESTAMP, -1)


@pytest.mark.parametrize(
    "plain", [object(), {1, 2}, 2**64, -(2**63) - 1, datetime.datetime(2026, 1, 1), datetime.date(2026, 1, 1)]
)
def test_what_has_no_amqp_type_is_refused(plain: object) -> None:
    with pytest.raises(ConfigError):
        amqp_value(plain)


def test_an_array_refuses_elements_of_another_type() -> None:
    with pytest.raises(ConfigError, match="array of int cannot hold a long"):
        AmqpArray(AmqpType.INT, (LONG_5,))
    with pytest.raises(ConfigError, match="descriptor"):
        AmqpArray(AmqpType.DESCRIBED, (AmqpValue(AmqpType.DESCRIBED, Described(LONG_5, LONG_5)),))
