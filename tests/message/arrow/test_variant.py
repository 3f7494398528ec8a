"""Variants: the bytes of the specification, what Spark reads in them, and every value back."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from headgate.errors import ConfigError
from headgate.message import AmqpArray, AmqpType, AmqpValue, Described
from headgate.message.variant import decode_variant, encode_variant, key_text
from message_values import scalars, typed_values


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


def entries_of(**values: AmqpValue) -> list[tuple[AmqpValue, AmqpValue]]:
    return [(of("string", key), value) for key, value in values.items()]


def test_the_bytes_are_those_of_the_specification() -> None:
    value, metadata = encode_variant(entries_of(b=of("int", 258), a=of("string", "xy")))
    assert metadata == bytes([0x11, 2, 0, 1, 2]) + b"ab"
    assert value == bytes([0x02, 2, 0, 1, 0, 3, 8]) + b"\x09xy" + b"\x14\x02\x01\x00\x00"


def test_an_empty_map_is_an_empty_object() -> None:
    assert encode_variant([]) == (bytes([0x02, 0, 0]), bytes([0x11, 0, 0]))


def test_spark_reads_every_type_that_is_written() -> None:
    entries = entries_of(
        null=of("null", None),
        yes=of("boolean", True),
        byte=of("byte", -5),
        ushort=of("ushort", 65_535),
        uint=of("uint", 2**32 - 1),
        long=of("long", -(2**63)),
        ulong=of("ulong", 2**64 - 1),
        float=of("float", 0.5),
        double=of("double", 1e300),
        text=of("string", "é" * 40),
        short=of("symbol", ""),
        octets=of("binary", b"\x00\xff"),
        time=of("timestamp", 1_767_225_600_123),
        list=of("list", (of("int", 1), of("map", ((of("string", "deep"), of("string", "x")),)))),
    )
    assert VariantVal(*encode_variant(entries)).toPython() == {
        "null": None,
        "yes": True,
        "byte": -5,
        "ushort": 65_535,
        "uint": 2**32 - 1,
        "long": -(2**63),
        "ulong": Decimal(2**64 - 1),
        "float": 0.5,
        "double": 1e300,
        "text": "é" * 40,
        "short": "",
        "octets": b"\x00\xff",
        "time": datetime.datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=datetime.UTC),
        "list": [1, {"deep": "x"}],
    }


@pytest.mark.parametrize(
    "text",
    ['{"a": 1, "b": [true, null, "x"], "c": {"d": 1.5e0}}', "{}", '{"long": 5000000000, "deep": {"a": {"a": -129}}}'],
)
def test_what_spark_writes_is_read(text: str) -> None:
    written = VariantVal.parseJson(text)
    decoded = decode_variant(written.value, written.metadata)
    entries = decoded.value if decoded.type is AmqpType.MAP else None
    assert entries is not None
    assert VariantVal(*encode_variant(entries)).toPython() == written.toPython()


def kept(value: AmqpValue) -> AmqpValue:
    """The value that comes back, by the table of the module."""
    match value.type:
        case AmqpType.UBYTE:
            return of("short", value.value)
        case AmqpType.USHORT:
            return of("int", value.value)
        case AmqpType.UINT:
            return of("long", value.value)
        case AmqpType.ULONG:
            return of("long" if value.value < 2**63 else "ulong", value.value)
        case AmqpType.TIMESTAMP if abs(value.value) > 9_223_372_036_854_775:
            return of("long", value.value)
        case AmqpType.CHAR:
            is_character = value.value <= 0x10FFFF and not 0xD800 <= value.value <= 0xDFFF
            return of("string", chr(value.value)) if is_character else of("long", value.value)
        case AmqpType.UUID:
            return of("string", str(value.value))
        case AmqpType.STRING | AmqpType.SYMBOL:
            octets = value.octets() or b""
            try:
                return of("string", octets.decode())
            except UnicodeDecodeError:
                return of("binary", octets)
        case AmqpType.DECIMAL32 | AmqpType.DECIMAL64 | AmqpType.DECIMAL128:
            return of("binary", value.value)
        case AmqpType.LIST:
            return of("list", tuple(kept(member) for member in value.value))
        case AmqpType.ARRAY:
            return of("list", tuple(kept(member) for member in value.value.elements))
        case AmqpType.DESCRIBED:
            return kept(value.value.value)
        case AmqpType.MAP:
            found: dict[str, AmqpValue] = {}
            for key, member in value.value:
                found.setdefault(key_text(key), kept(member))
            ordered = sorted(found.items(), key=lambda entry: entry[0].encode())
            return of("map", tuple((of("string", key), member) for key, member in ordered))
    return value


@given(st.lists(st.tuples(scalars, typed_values), max_size=5))
def test_every_map_comes_back_as_the_table_says(entries: list[tuple[AmqpValue, AmqpValue]]) -> None:
    assert decode_variant(*encode_variant(entries)) == kept(of("map", tuple(entries)))


def test_nan_and_infinities_keep_their_bits() -> None:
    entries = entries_of(a=of("double", math.nan), b=of("float", -math.inf), c=of("double", -0.0))
    assert decode_variant(*encode_variant(entries)).value == tuple(entries)


def test_keys_that_are_no_strings_are_their_text_and_of_equal_texts_the_first_counts() -> None:
    entries = [
        (of("int", 5), of("int", 1)),
        (of("string", "5"), of("int", 2)),
        (of("boolean", True), of("int", 3)),
        (of("binary", b"\xab"), of("int", 4)),
        (of("null", None), of("int", 5)),
    ]
    assert decode_variant(*encode_variant(entries)).value == (
        (of("string", "5"), of("int", 1)),
        (of("string", "ab"), of("int", 4)),
        (of("string", "null"), of("int", 5)),
        (of("string", "true"), of("int", 3)),
    )


def test_an_array_is_a_list_and_a_descriptor_is_dropped() -> None:
    array = of("array", AmqpArray(AmqpType.INT, (of("int", 1), of("int", 2))))
    described = of("described", Described(of("symbol", "d"), of("string", "x")))
    decoded = decode_variant(*encode_variant(entries_of(a=array, b=described)))
    assert dict(decoded.value) == {
        of("string", "a"): of("list", (of("int", 1), of("int", 2))),
        of("string", "b"): of("string", "x"),
    }


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b"\x20\x00\x05\x00\x00\x00", of("long", 5)),
        (b"\x20\x01\x0f\x00\x00\x00", of("double", 1.5)),
        (b"\x28\x00" + (2**64).to_bytes(16, "little"), of("double", 2.0**64)),
        (b"\x2c\x01\x00\x00\x00", of("timestamp", 86_400_000)),
        (b"\x34" + (1_500).to_bytes(8, "little"), of("timestamp", 1)),
        (b"\x48" + (1_999_999).to_bytes(8, "little"), of("timestamp", 1)),
        (b"\x4c" + (-1).to_bytes(8, "little", signed=True), of("timestamp", -1)),
    ],
)
def test_types_that_only_others_write_have_an_amqp_type(value: bytes, decoded: AmqpValue) -> None:
    assert decode_variant(value, b"\x11\x00\x00") == decoded


@pytest.mark.parametrize(
    ("value", "metadata", "reason"),
    [
        (b"\x00", b"", "version"),
        (b"\x00", b"\x12\x00\x00", "version"),
        (b"\x00", b"\x11\xff\x00", "dictionary"),
        (b"", b"\x11\x00\x00", "bytes expected"),
        (b"\x44" + bytes(8), b"\x11\x00\x00", "primitive type 17"),
        (b"\x09x", b"\x11\x00\x00", "no Variant"),
        (b"\x02\x01\x05\x00\x01\x00", b"\x11\x00\x00", "no Variant"),
        (b"\x05\xff", b"\x11\x00\x00", "no Variant"),
        (b"\x03\x01\x00\x00" * 200, b"\x11\x00\x00", "nested deeper"),
    ],
)
def test_bytes_that_are_no_variant_are_refused_with_a_reason(value: bytes, metadata: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        decode_variant(value, metadata)


@given(st.binary(max_size=40), st.binary(max_size=20))
def test_any_bytes_are_a_variant_or_refused(value: bytes, metadata: bytes) -> None:
    try:
        decode_variant(value, b"\x11" + metadata)
    except ConfigError:
        return
