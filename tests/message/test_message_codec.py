"""Values to bytes and back: every encoding of the standard, and no other exception for any bytes."""

from __future__ import annotations

import tracemalloc
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, MessageError
from headgate.message import AmqpArray, AmqpType, AmqpValue, Described, decode_value, encode_value
from headgate.message.codec import MAX_DEPTH, MAX_ZERO_WIDTH_ELEMENTS
from message_values import typed_values

UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


def ints(*values: int) -> tuple[AmqpValue, ...]:
    return tuple(of("int", value) for value in values)


SMALLEST = [
    ("40", of("null", None)),
    ("41", of("boolean", True)),
    ("42", of("boolean", False)),
    ("43", of("uint", 0)),
    ("44", of("ulong", 0)),
    ("45", of("list", ())),
    ("5000", of("ubyte", 0)),
    ("50ff", of("ubyte", 255)),
    ("5180", of("byte", -128)),
    ("52ff", of("uint", 255)),
    ("53ff", of("ulong", 255)),
    ("5400", of("int", 0)),
    ("5480", of("int", -128)),
    ("557f", of("long", 127)),
    ("60ffff", of("ushort", 65535)),
    ("618000", of("short", -32768)),
    ("7000000100", of("uint", 256)),
    ("7100000080", of("int", 128)),
    ("71ffffff7f", of("int", -129)),
    ("7240a00000", of("float", 5.0)),
    ("72ff800000", of("float", float("-inf"))),
    ("730001f60e", of("char", 0x1F60E)),
    ("7422500005", of("decimal32", bytes.fromhex("22500005"))),
    ("800000000000000100", of("ulong", 256)),
    ("80ffffffffffffffff", of("ulong", 2**64 - 1)),
    ("810000000000000080", of("long", 128)),
    ("824014000000000000", of("double", 5.0)),
    ("828000000000000000", of("double", -0.0)),
    ("830000000000000000", of("timestamp", 0)),
    ("83ffffffffffffffff", of("timestamp", -1)),
    ("842238000000000005", of("decimal64", bytes.fromhex("2238000000000005"))),
    ("94" + "0f" * 16, of("decimal128", b"\x0f" * 16)),
    ("980123456789abcdef0123456789abcdef", of("uuid", UUID)),
    ("a000", of("binary", b"")),
    ("a002ff00", of("binary", b"\xff\x00")),
    ("a102c3a9", of("string", "é")),
    ("a101ff", of("string", "\udcff")),
    ("a30161", of("symbol", "a")),
    ("a0ff" + "00" * 255, of("binary", bytes(255))),
    ("b000000100" + "00" * 256, of("binary", bytes(256))),
    ("b100000100" + "61" * 256, of("string", "a" * 256)),
    ("b300000100" + "61" * 256, of("symbol", "a" * 256)),
    ("c003015405", of("list", ints(5))),
    ("c10100", of("map", ())),
    ("c10602a1016b5405", of("map", ((of("string", "k"), *ints(5)),))),
    ("c0fffe" + "40" * 254, of("list", (of("null", None),) * 254)),
    ("d000000103000000ff" + "40" * 255, of("list", (of("null", None),) * 255)),
    ("d00000010400000100" + "40" * 256, of("list", (of("null", None),) * 256)),
    ("e0020040", of("array", AmqpArray(AmqpType.NULL, ()))),
    ("e0020340", of("array", AmqpArray(AmqpType.NULL, (of("null", None),) * 3))),
    ("e0020056", of("array", AmqpArray(AmqpType.BOOLEAN, ()))),
    ("e00402560100", of("array", AmqpArray(AmqpType.BOOLEAN, (of("boolean", True), of("boolean", False))))),
    ("e004025405fb", of("array", AmqpArray(AmqpType.INT, ints(5, -5)))),
    ("e00a02710000000500000080", of("array", AmqpArray(AmqpType.INT, ints(5, 128)))),
    ("e00502a3016100", of("array", AmqpArray(AmqpType.SYMBOL, (of("symbol", "a"), of("symbol", ""))))),
    ("e00802c0010003015405", of("array", AmqpArray(AmqpType.LIST, (of("list", ()), of("list", ints(5)))))),
    ("e006010053105405", of("array", AmqpArray(AmqpType.INT, ints(5), of("ulong", 16)))),
    ("0053105405", of("described", Described(of("ulong", 16), of("int", 5)))),
    ("00a3016140", of("described", Described(of("symbol", "a"), of("null", None)))),
    (
        "0000434041",
        of("described", Described(of("described", Described(of("uint", 0), of("null", None))), of("boolean", True))),
    ),
]
"""The smallest encoding of a value: what is written, and read."""

LARGER = [
    ("5600", of("boolean", False)),
    ("5601", of("boolean", True)),
    ("5602", of("boolean", True)),
    ("5200", of("uint", 0)),
    ("5300", of("ulong", 0)),
    ("7000000005", of("uint", 5)),
    ("7100000005", of("int", 5)),
    ("800000000000000005", of("ulong", 5)),
    ("810000000000000005", of("long", 5)),
    ("73ffffffff", of("char", 2**32 - 1)),
    ("b00000000161", of("binary", b"a")),
    ("b10000000161", of("string", "a")),
    ("b30000000161", of("symbol", "a")),
    ("c00100", of("list", ())),
    ("d00000000400000000", of("list", ())),
    ("d000000006000000015405", of("list", ints(5))),
    ("d10000000400000000", of("map", ())),
    ("d10000000900000002a1016b5405", of("map", ((of("string", "k"), *ints(5)),))),
    ("f000000009000000017100000005", of("array", AmqpArray(AmqpType.INT, ints(5)))),
    ("e0020343", of("array", AmqpArray(AmqpType.UINT, (of("uint", 0),) * 3))),
    ("e0020241", of("array", AmqpArray(AmqpType.BOOLEAN, (of("boolean", True),) * 2))),
    ("e0020145", of("array", AmqpArray(AmqpType.LIST, (of("list", ()),)))),
    ("00800000000000000010" + "5405", of("described", Described(of("ulong", 16), of("int", 5)))),
]
"""Encodings that are read and never written."""

MALFORMED = [
    ("", 0, "1 bytes expected, 0 left"),
    ("46", 0, "unknown constructor 0x46"),
    ("5a00", 0, "unknown constructor 0x5a"),
    ("7100", 1, "4 bytes expected, 1 left"),
    ("a10261", 2, "2 bytes expected, 1 left"),
    ("b1ffffffff61", 5, "4294967295 bytes expected, 1 left"),
    ("c000", 2, "1 bytes expected, 0 left"),
    ("d00000000300000000", 5, "4 bytes expected, 3 left"),
    ("c003025405", 5, "1 bytes expected, 0 left"),
    ("c00401540540", 5, "1 bytes behind the last of 1 values"),
    ("d000000004ffffffff", 9, "1 bytes expected, 0 left"),
    ("c103015405", 3, "a map of 1 keys and values"),
    ("c10402a1016b", 6, "1 bytes expected, 0 left"),
    ("e00100", 3, "1 bytes expected, 0 left"),
    ("e003015705", 3, "unknown constructor 0x57"),
    ("e0050154050607", 5, "2 bytes behind the last of 1 elements"),
    ("e0030254ff", 5, "1 bytes expected, 0 left"),
    ("e00801005310005311" + "40", 6, "two descriptors"),
    ("f000000005ffffffff40", 9, "an array of 4294967295 elements without bytes"),
    ("f000000005ffffffff54", 10, "1 bytes expected, 0 left"),
    ("00a30161", 4, "1 bytes expected, 0 left"),
    ("00", 1, "1 bytes expected, 0 left"),
    ("4040", 1, "1 bytes behind the value"),
]
"""What is no value, where, and why."""


@pytest.mark.parametrize(("encoded", "value"), SMALLEST, ids=lambda case: str(case)[:40])
def test_the_smallest_encoding_of_each_type_is_written_and_read(encoded: str, value: AmqpValue) -> None:
    assert encode_value(value).hex() == encoded
    assert decode_value(bytes.fromhex(encoded)) == value


@pytest.mark.parametrize(("encoded", "value"), LARGER, ids=lambda case: str(case)[:40])
def test_every_other_encoding_of_the_standard_is_read(encoded: str, value: AmqpValue) -> None:
    assert decode_value(bytes.fromhex(encoded)) == value
    assert len(encode_value(value)) <= len(encoded) // 2 or value.type is AmqpType.ARRAY


@pytest.mark.parametrize(("encoded", "position", "reason"), MALFORMED)
def test_malformed_values_are_refused_with_position_and_reason(encoded: str, position: int, reason: str) -> None:
    with pytest.raises(MessageError) as refusal:
        decode_value(bytes.fromhex(encoded))
    assert reason in refusal.value.reason
    assert refusal.value.position == position


@given(typed_values)
def test_any_value_survives_encoding_and_decoding(value: AmqpValue) -> None:
    assert decode_value(encode_value(value)) == value


@given(typed_values, st.data())
def test_a_cut_or_changed_encoding_decodes_or_is_refused(value: AmqpValue, data: st.DataObject) -> None:
    encoded = bytearray(encode_value(value))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for stop in range(len(encoded) + 1):
        assert_decodes_or_is_refused(bytes(encoded[:stop]))


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_refused(encoded: bytes) -> None:
    assert_decodes_or_is_refused(encoded)


def assert_decodes_or_is_refused(encoded: bytes) -> None:
    """No other exception than `MessageError`, with a position inside the bytes; what decodes survives a round trip."""
    position = 0
    try:
        value = decode_value(encoded)
    except MessageError as refusal:
        position = refusal.position
    else:
        assert decode_value(encode_value(value)) == value
    assert 0 <= position <= len(encoded)


NESTINGS = {
    "lists": lambda inside: bytes([0xD0, *(len(inside) + 4).to_bytes(4, "big"), 0, 0, 0, 1]) + inside,
    "maps": lambda inside: bytes([0xD1, *(len(inside) + 5).to_bytes(4, "big"), 0, 0, 0, 2, 0x40]) + inside,
    "descriptors": lambda inside: b"\0" + inside + b"\x40",
    "described values": lambda inside: b"\0\x40" + inside,
    "arrays": lambda inside: bytes([0xF0, *(len(inside) + 4).to_bytes(4, "big"), 0, 0, 0, 1]) + inside,
}


@pytest.mark.parametrize("nesting", NESTINGS)
def test_values_nested_to_the_limit_survive_and_one_deeper_is_refused(nesting: str) -> None:
    encoded = NESTINGS[nesting](b"\x54\x05")
    for _ in range(MAX_DEPTH - 1):
        encoded = NESTINGS[nesting](encoded)
    value = decode_value(encoded)
    assert decode_value(encode_value(value)) == value
    with pytest.raises(MessageError, match="nested deeper than 32"):
        decode_value(NESTINGS[nesting](encoded))
    with pytest.raises(ConfigError, match="nested deeper than 32"):
        encode_value(of("list", (value,)))


def test_a_hundred_thousand_opened_descriptors_are_refused_not_a_recursion_failure() -> None:
    with pytest.raises(MessageError, match="nested deeper"):
        decode_value(bytes(100_000))


def test_elements_without_bytes_do_not_allocate_beyond_their_limit() -> None:
    most = bytes.fromhex("f000000005") + MAX_ZERO_WIDTH_ELEMENTS.to_bytes(4, "big") + b"\x41"
    assert len(decode_value(most).value.elements) == MAX_ZERO_WIDTH_ELEMENTS
    many = most * 1000
    twice = bytes([0xD0]) + (len(many) + 4).to_bytes(4, "big") + (1000).to_bytes(4, "big") + many
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="elements without bytes"):
            decode_value(twice)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_an_array_of_more_nulls_than_can_be_read_is_not_written() -> None:
    nulls = (of("null", None),) * (MAX_ZERO_WIDTH_ELEMENTS + 1)
    with pytest.raises(ConfigError, match="at most 65536"):
        encode_value(of("array", AmqpArray(AmqpType.NULL, nulls)))


def test_a_compound_that_was_not_looked_into_is_not_written() -> None:
    with pytest.raises(ConfigError, match="not looked into"):
        encode_value(of("map", None))
