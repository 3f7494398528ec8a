"""Where a column is exact it holds what a filter sees, and the kernel says of each row what the reference says."""

from __future__ import annotations

import itertools
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqp_strategies import amqp_messages
from examples import examples
from headgate.derived.columns import exactness
from headgate.derived.columns.exactness import inexact_bits, inexact_of
from headgate.errors import MessageError
from headgate.message import EncodedMessages, FieldReference, Message
from headgate.message.arrow import HEADER_TYPES, PROPERTIES_TYPES, DeclaredColumn, declared_columns, fields_of
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section
from strategies import compound, damaged_messages, encoded_messages, section, string, symbol

COLUMNS = tuple(
    each
    for each in declared_columns(
        "region string, price double, qty bigint, flag boolean, day timestamp, weight float, raw binary, "
        "small tinyint, big decimal(20,0), `größe` string, s string, p.subject, p.message_id, p.content_type, "
        "p.creation_time, p.user_id, p.group_sequence, h.priority, h.durable, h.ttl, m.x-opt-tag string as tag, "
        "m.s string as note, a.`a-much-longer-key` string as long_key"
    )
    if isinstance(each, DeclaredColumn)
)
INTEGERS = {AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT, AmqpType.LONG}
TYPES = {
    "string": {AmqpType.STRING},
    "double": {AmqpType.DOUBLE},
    "float": {AmqpType.FLOAT},
    "bigint": INTEGERS,
    "tinyint": INTEGERS,
    "boolean": {AmqpType.BOOLEAN},
    "timestamp": {AmqpType.TIMESTAMP},
    "binary": {AmqpType.BINARY},
    "decimal": {AmqpType.ULONG},
}
STANDARD = {"boolean": AmqpType.BOOLEAN, "smallint": AmqpType.UBYTE, "bigint": AmqpType.UINT}


def of_map(*pairs: tuple[bytes, bytes], code: int = 0x74, wide: bool = False) -> bytes:
    return section(code, compound(0xC1, [part for pair in pairs for part in pair], wide=wide))


KEYS = ["region", "REGION", "Price", "price", "qty", "flag", "day", "größe", "GRÖSSE", "GRÖßE", "s", "S", "x-opt-tag"]
KEYS += ["a-much-longer-key", "a-much-longer-KEY", "a-much-longer-kez"]
VALUES = [b"\x40", b"\x41", b"\x56\x00", b"\x56\x02", string(b"AMER"), string(b"\xff"), symbol(b"AMER"), b"\x54\x05"]
VALUES += [b"\x52\x05", b"\x81" + struct.pack(">q", -(2**60)), b"\x80" + struct.pack(">Q", 2**64 - 1), b"\xa0\x01x"]
VALUES += [b"\x82" + struct.pack(">d", each) for each in (1.5, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324)]
VALUES += [b"\x72" + struct.pack(">f", each) for each in (1.5, -0.0, math.nan, -math.inf)]
VALUES += [b"\x83" + struct.pack(">q", each) for each in (0, 2**62, -1)]
VALUES += [compound(0xC0, [b"\x41"]), compound(0xC1, [b"\xff\x41"]), b"\x74\0\0\0\1", b"\x00\x53\x10\x41", b"\xff"]

likely = st.builds(
    lambda pairs, code, wide: of_map(*pairs, code=code, wide=wide),
    st.lists(st.tuples(st.tuples(st.sampled_from(KEYS), st.sampled_from((string, symbol, string, string))).map(
        lambda pair: pair[1](pair[0].encode())), st.sampled_from(VALUES)), max_size=6),
    st.sampled_from((0x72, 0x74, 0x74)),
    st.booleans(),
)  # fmt: skip
messages = st.lists(st.one_of(encoded_messages(), damaged_messages(), amqp_messages(), likely), max_size=8)


def bits_of(encoded: list[bytes]) -> list[int]:
    batch = EncodedMessages.of(encoded)
    return inexact_bits(batch, COLUMNS, list(fields_of(batch, COLUMNS).values())).tolist()


def reference_of(column: DeclaredColumn) -> FieldReference:
    names = {Section.HEADER: tuple(HEADER_TYPES), Section.PROPERTIES: tuple(PROPERTIES_TYPES)}.get(column.section)
    if names is None:
        return FieldReference(column.section, key=column.field.encode())
    return FieldReference(column.section, position=names.index(column.field))


@given(messages)
@example([b"", b"\0", b"\0\x53\x74", b"\0\x53\x74\xc1", b"\0\x53\x70\xc0\x00", b"\0\x53\x77\xff", b"\0\x53\x79"])
@example([b"\0\x53\x74\xd1\0\0\0\x04\0\0\0\0" + b"\0\x53\x74\xc1\x01\0"])
def test_the_kernel_says_what_the_reference_says(encoded: list[bytes]) -> None:
    batch = EncodedMessages.of(encoded)
    values = list(fields_of(batch, COLUMNS).values())
    expected = [
        inexact_of(message, COLUMNS, [value[row].is_valid for value in values]) for row, message in enumerate(encoded)
    ]
    assert bits_of(encoded) == expected


@given(messages)
@examples(0.5)
def test_an_exact_column_holds_what_a_filter_sees(encoded: list[bytes]) -> None:
    batch = EncodedMessages.of(encoded)
    values = fields_of(batch, COLUMNS)
    for row, (message, bits) in enumerate(zip(encoded, bits_of(encoded), strict=True)):
        try:
            decoded = Message.decode(message)
        except MessageError:
            assert bits == (1 << len(COLUMNS)) - 1
            continue
        for bit, column in enumerate(COLUMNS):
            if bits >> bit & 1:
                continue
            seen = decoded.value(reference_of(column))
            cell = values[column.name][row]
            if seen is None or seen.type is AmqpType.NULL:
                assert not cell.is_valid, column
                continue
            standard = column.section in (Section.HEADER, Section.PROPERTIES)
            if column.field == "content_type":
                assert seen.type is AmqpType.SYMBOL
            elif standard and column.kind.value in STANDARD:
                assert seen.type is STANDARD[column.kind.value]
            else:
                assert seen.type in TYPES[column.kind.value], column
            # pyarrow gives times as datetime, which does not reach as far.
            held = cell.cast("int64").as_py() if seen.type is AmqpType.TIMESTAMP else cell.as_py()
            expected = seen.value * 1000 if seen.type is AmqpType.TIMESTAMP else seen.value
            held = held.encode() if isinstance(held, str) else held
            assert held == (seen.octets() if isinstance(held, bytes) else expected), column
            if isinstance(held, float):
                assert math.isfinite(held)
                assert math.copysign(1, held) == 1 or held != 0


@pytest.mark.parametrize(
    ("pairs", "is_exact"),
    [
        ([("region", string(b"AMER"))], True),
        ([("region", b"\x40")], True),
        ([], True),
        ([("other", compound(0xC0, [b"\x41"])), ("region", string(b"AMER"))], True),
        ([("region", symbol(b"AMER"))], False),
        ([("region", b"\x54\x05")], False),
        ([("region", string(b"\xff"))], False),
        ([("region", string(b"AMER")), ("other", string(b"\xff"))], True),
        ([("region", string(b"AMER")), ("region", string(b"AMER"))], False),
        ([("region", b"\x40"), ("region", string(b"AMER"))], False),
        ([("Region", string(b"AMER"))], False),
    ],
)
@pytest.mark.parametrize("compiled", [True, False])
def test_which_values_are_exact(
    pairs: list[tuple[str, bytes]], is_exact: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(exactness, "KERNEL", "headgate.no_such_module")
        monkeypatch.setattr("headgate.kernels.load", lambda module: None)
    message = of_map(*((string(key.encode()), value) for key, value in pairs))
    batch = EncodedMessages.of([message])
    column = COLUMNS[:1]
    assert inexact_bits(batch, column, list(fields_of(batch, column).values())).tolist() == [int(not is_exact)]


@pytest.mark.parametrize(
    ("name", "value", "is_exact"),
    [
        ("price", b"\x82" + struct.pack(">d", 1.5), True),
        ("price", b"\x82" + struct.pack(">d", 0.0), True),
        ("price", b"\x82" + struct.pack(">d", -0.0), False),
        ("price", b"\x82" + struct.pack(">d", math.nan), False),
        ("price", b"\x82" + struct.pack(">d", -math.inf), False),
        ("price", b"\x72" + struct.pack(">f", 1.5), False),
        ("price", b"\x54\x01", False),
        ("weight", b"\x72" + struct.pack(">f", 1.5), True),
        ("weight", b"\x72" + struct.pack(">f", -0.0), False),
        ("weight", b"\x72" + struct.pack(">f", math.inf), False),
        ("qty", b"\x54\xff", True),
        ("qty", b"\x81" + struct.pack(">q", -(2**63)), True),
        ("qty", b"\x52\x01", False),
        ("qty", b"\x50\x01", False),
        ("small", b"\x51\x7f", True),
        ("small", b"\x61\x00\x80", False),
        ("big", b"\x80" + struct.pack(">Q", 2**64 - 1), True),
        ("big", b"\x54\x01", False),
        ("day", b"\x83" + struct.pack(">q", 2**53), True),
        ("day", b"\x83" + struct.pack(">q", 2**62), False),
        ("flag", b"\x56\x01", True),
        ("flag", b"\x56\x02", True),
        ("raw", b"\xa0\x01x", True),
        ("raw", string(b"x"), False),
        ("s", b"\x73\0\0\0A", False),
        ("größe", string(b"x"), True),
    ],
)
def test_which_types_a_column_holds(name: str, value: bytes, is_exact: bool) -> None:
    columns = [each for each in COLUMNS if each.name == name]
    message = of_map((string(name.encode()), value))
    batch = EncodedMessages.of([message])
    values = list(fields_of(batch, columns).values())
    assert inexact_bits(batch, columns, values).tolist() == [int(not is_exact)]
    assert inexact_of(message, columns, [values[0][0].is_valid]) == int(not is_exact)


@pytest.mark.parametrize(
    "order", list(itertools.permutations(("Price bigint as c0", "other string", "price string as c1")))
)
def test_both_spellings_may_be_declared_in_any_order(order: tuple[str, ...]) -> None:
    columns = [each for each in declared_columns(", ".join(order)) if isinstance(each, DeclaredColumn)]
    keys = ("other", "price", "Price", "other")
    encoded = [of_map(*((string(key.encode()), b"\x54\x05") for key in keys[:count])) for count in range(5)]
    batch = EncodedMessages.of(encoded)
    values = list(fields_of(batch, columns).values())
    expected = [
        inexact_of(message, columns, [value[row].is_valid for value in values]) for row, message in enumerate(encoded)
    ]
    assert expected[0] == 0 and expected[2] == 7
    assert inexact_bits(batch, columns, values).tolist() == expected


def test_sixty_three_columns_have_a_bit_each() -> None:
    columns = [DeclaredColumn(f"c{n}", Section.APPLICATION_PROPERTIES, f"c{n}", COLUMNS[0].kind) for n in range(63)]
    batch = EncodedMessages.of([of_map((string(b"c62"), b"\x41")), b"\xff"])
    found = inexact_bits(batch, columns, list(fields_of(batch, columns).values()))
    assert found.dtype == np.int64
    assert found.tolist() == [1 << 62, (1 << 63) - 1]
