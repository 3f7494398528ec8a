"""Encoded messages as Arrow columns: the rules of every column, and kernels that equal the reference on any bytes."""

from __future__ import annotations

import ctypes
import json
import mmap
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import ConfigError
from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, Message, amqp_value
from headgate.message.arrow import COLUMNS, Mismatches, column_type, columns_of, declared_properties, mismatches_in
from headgate.message.arrow import decode as decode_package
from headgate.message.arrow.decode.reference import column_values
from headgate.message.variant import decode_variant
from message_values import bodies, sections
from strategies import KEYS, damaged_messages, encoded_messages

VECTORS = Path(__file__).parents[2] / "vectors" / "rabbitmq_messages.jsonl"
DECLARED = (
    "n bigint, s string, t boolean, m binary, region smallint, price double, a_long_property_name float, "
    "schlüssel decimal(20,0), `p.subject` timestamp"
)
OTHER_DECLARED = "n double, s decimal(5,0), t tinyint, m int, region float, price string, schlüssel decimal(19,0)"


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


def column(message: Message | bytes, name: str, properties: str | None = None) -> object:
    """The one cell of a column of one message; times as microseconds."""
    data = message if isinstance(message, bytes) else message.encode()
    array = columns_of(EncodedMessages.of([data]), [name], properties)[name]
    array.validate(full=True)
    return _cells(array)[0]


def _cells(array: pa.Array) -> list[object]:
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64()).to_pylist()
    if pa.types.is_struct(array.type):
        children = [_cells(array.field(index)) for index in range(array.type.num_fields)]
        rows = [
            dict(zip([field.name for field in array.type], cells, strict=True)) for cells in zip(*children, strict=True)
        ]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return array.to_pylist()


def expected(
    messages: Sequence[bytes],
    name: str,
    properties: str | None,
    *,
    cast: bool = False,
    mismatches: Mismatches | None = None,
) -> pa.Array:
    declared = None if properties is None else declared_properties(properties)
    cells = column_values(messages, name, declared, cast=cast, mismatches=mismatches)
    return pa.array(cells, type=column_type(name, declared))


def assert_kernels_equal_reference(messages: Sequence[bytes]) -> None:
    for properties, cast in (
        (None, False),
        (DECLARED, False),
        (DECLARED, True),
        (OTHER_DECLARED, False),
        (OTHER_DECLARED, True),
    ):
        asked = COLUMNS if properties is None else ("application_properties",)
        found, wanted_mismatches = Mismatches(), Mismatches()
        columns = columns_of(EncodedMessages.of(messages), asked, properties, cast=cast, mismatches=found)
        for name, array in columns.items():
            array.validate(full=True)
            wanted = expected(messages, name, properties, cast=cast, mismatches=wanted_mismatches)
            assert array.type == wanted.type
            assert repr(_cells(array)) == repr(_cells(wanted)), name
        assert found == wanted_mismatches


@given(st.lists(encoded_messages(), max_size=6))
def test_kernels_equal_the_reference_on_every_encoding(messages: list[bytes]) -> None:
    assert_kernels_equal_reference(messages)


@given(st.lists(damaged_messages() | st.binary(max_size=40), min_size=1, max_size=6))
def test_kernels_equal_the_reference_on_damaged_messages(messages: list[bytes]) -> None:
    assert_kernels_equal_reference(messages)


@given(st.lists(st.builds(lambda held, body: Message.of_sections(held, body).encode(), sections, bodies), max_size=4))
@examples(0.5)
def test_kernels_equal_the_reference_on_every_type_nested_or_not(messages: list[bytes]) -> None:
    assert_kernels_equal_reference(messages)


@pytest.mark.long
@given(st.lists(encoded_messages() | damaged_messages(), min_size=1, max_size=12))
@examples(10)
def test_kernels_equal_the_reference_on_many_messages(messages: list[bytes]) -> None:
    assert_kernels_equal_reference(messages)


def test_kernels_equal_the_reference_on_every_prefix_and_every_changed_byte_of_a_full_message() -> None:
    full = typical_message(1)
    prefixes = [full[:length] for length in range(len(full))]
    changed = [
        full[:place] + bytes([full[place] ^ flip]) + full[place + 1 :]
        for place in range(len(full))
        for flip in (0x01, 0x80, 0xFF)
    ]
    messages = prefixes + changed
    properties = "region string, price double, quantity int, Käufer string, customer_id bigint"
    for name, array in columns_of(EncodedMessages.of(messages), COLUMNS, properties).items():
        array.validate(full=True)
        assert repr(_cells(array)) == repr(_cells(expected(messages, name, properties))), name


def test_mismatches_are_values_that_are_there_and_do_not_fit() -> None:
    values = [1, "two", 3.5, 99_999_999_999, "7", None, True, of("ulong", 2**64 - 1), b"\x07"]
    messages = [Message(application_properties={"v": value, "w": 1}).encode() for value in values]
    messages += [Message(application_properties={"w": 1}).encode(), Message(b"").encode(), b"no message"]
    found = Mismatches()
    columns = columns_of(EncodedMessages.of(messages), ["application_properties"], "w int, v int", mismatches=found)
    cells = columns["application_properties"].to_pylist()
    assert [cell and cell["v"] for cell in cells] == [1, *[None] * 11]
    assert found == Mismatches(count=7, first_row=1)
    declared = declared_properties("w int, v int")
    assert [len(mismatches_in(message, declared)) for message in messages] == [0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0]
    assert mismatches_in(messages[1], declared) == [(declared[1], of("string", "two"))]


def test_mismatches_of_rows_that_the_kernel_leaves_to_the_reference_count_once() -> None:
    listed = AmqpValue(AmqpType.LIST, (of("int", 1),))
    messages = [
        Message(application_properties={"n": 5}).encode(),
        # The kernel marks the first property before it meets the list, which it does not read.
        Message(application_properties={"n": "five", "v": listed}).encode(),
        Message(application_properties={"n": "five", "v": 1}).encode(),
    ]
    found = Mismatches()
    columns_of(EncodedMessages.of(messages), ["application_properties"], "n int, v int", mismatches=found)
    assert found == Mismatches(count=3, first_row=1)


def test_integers_above_63_bits_fit_decimals_of_nineteen_digits() -> None:
    values = [10**19 - 1, 10**19, 2**63, 2**63 - 1]
    messages = [Message(application_properties={"v": of("ulong", value)}).encode() for value in values]
    found = Mismatches()
    columns = columns_of(EncodedMessages.of(messages), ["application_properties"], "v decimal(19,0)", mismatches=found)
    cells = columns["application_properties"].to_pylist()
    assert [cell["v"] for cell in cells] == [Decimal(10**19 - 1), None, Decimal(2**63), Decimal(2**63 - 1)]
    assert found == Mismatches(count=1, first_row=1)


def test_kernels_equal_the_reference_on_the_recorded_messages() -> None:
    with VECTORS.open(encoding="utf-8") as lines:
        assert_kernels_equal_reference([bytes.fromhex(json.loads(line)["encoded_hex"]) for line in lines])


def typical_message(number: int) -> bytes:
    return Message(
        b'{"order": %d}' % number,
        durable=True,
        priority=5,
        message_id=uuid.UUID(int=number),
        correlation_id=number,
        to="/queues/orders",
        subject="order.created",
        content_type="application/json",
        creation_time=1_767_225_600_000 + number,
        group_id="EMEA",
        group_sequence=number,
        message_annotations={"x-stream-filter-value": "order.created", "x-opt-count": number},
        application_properties={
            "region": "EMEA",
            "customer_id": of("ulong", 10_000_000 + number),
            "premium_customer": number % 2 == 0,
            "price": 9.5 * number,
            "quantity": of("int", number),
            "stars": of("ubyte", 3),
            "when": of("timestamp", 1_767_225_600_000),
            "Käufer": "Jörg",
            "nothing": None,
        },
    ).encode()


def test_common_messages_are_decided_by_the_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> pa.Array:
        raise AssertionError("a common message was left to the reference")

    monkeypatch.setattr(decode_package, "_reference_column", refuse)
    batch = EncodedMessages.of(typical_message(number) for number in range(300))
    columns_of(batch)
    columns = columns_of(batch, COLUMNS, "region string, price double, quantity int, Käufer string, customer_id bigint")
    assert columns["application_properties"][299].as_py() == {
        "region": "EMEA",
        "price": 9.5 * 299,
        "quantity": 299,
        "Käufer": "Jörg",
        "customer_id": 10_000_299,
    }


def test_without_kernels_the_columns_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = EncodedMessages.of(typical_message(number) for number in range(20))
    with_kernels = columns_of(batch)
    monkeypatch.setattr(decode_package, "load", lambda _module: None)
    without = columns_of(batch)
    assert {name: _cells(array) for name, array in without.items()} == {
        name: _cells(array) for name, array in with_kernels.items()
    }


def test_rows_left_to_the_reference_keep_their_places_among_the_others() -> None:
    messages = [typical_message(number) for number in range(9)]
    nested = Message(b"x", application_properties={"region": ["AMER"], "deep": {"a": 1}}, subject="nested").encode()
    messages[4] = nested
    messages[7] = b"no message"
    columns = columns_of(EncodedMessages.of(messages), COLUMNS, "region string, quantity int")
    cells = _cells(columns["application_properties"])
    assert cells[4] == {"region": None, "quantity": None}
    assert cells[7] is None
    assert [cells[row]["quantity"] for row in (0, 1, 2, 3, 5, 6, 8)] == [0, 1, 2, 3, 5, 6, 8]
    assert columns["message"].to_pylist() == messages


def test_no_kernel_reads_outside_the_messages_and_their_slack() -> None:
    """The buffer ends at a page that may not be read: one load beyond the slack would kill the process."""
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 4 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    no_access = 0
    assert libc.mprotect(address + 3 * page, page, no_access) == 0
    readable = np.frombuffer(area, dtype=np.uint8, count=3 * page)
    full = typical_message(3)
    for message in (full, b"\x00\x53\x74\xd1\xff\xff\xff\xff\xff\xff\xff\xff", b"\x00\x53\x73\xc0\xff\x0d"):
        for length in range(len(message) + 1):
            start = 3 * page - 8 - length
            readable[start : start + length] = np.frombuffer(message[:length], dtype=np.uint8)
            batch = EncodedMessages(readable, np.array([start]), np.array([length]))
            columns_of(batch)
            columns_of(batch, ["application_properties"], "region string, `Käufer` string, quantity int")


def test_a_message_without_a_section_has_null_in_its_column() -> None:
    only_body = Message(b"x")
    for name in ("header", "properties", "application_properties", "message_annotations"):
        assert column(only_body, name) is None
    assert column(only_body, "application_properties", "region string") is None


def test_header_fields_have_their_types_and_no_defaults() -> None:
    message = Message(b"", durable=True, ttl=2**32 - 1, delivery_count=7)
    assert column(message, "header") == {
        "durable": True,
        "priority": None,
        "ttl": 2**32 - 1,
        "first_acquirer": None,
        "delivery_count": 7,
    }


def test_properties_fields_have_their_types() -> None:
    message = Message(
        b"",
        message_id="m-1",
        user_id=b"guest",
        to="/queues/q",
        subject="résumé",
        content_type="text/plain",
        absolute_expiry_time=-1,
        creation_time=1_767_225_600_123,
        group_sequence=5,
    )
    cell = column(message, "properties")
    assert isinstance(cell, dict)
    assert {name: value for name, value in cell.items() if value is not None} == {
        "message_id": "m-1",
        "user_id": b"guest",
        "to": "/queues/q",
        "subject": "résumé",
        "content_type": "text/plain",
        "absolute_expiry_time": -1_000,
        "creation_time": 1_767_225_600_123_000,
        "group_sequence": 5,
    }


@pytest.mark.parametrize(
    ("identifier", "text"),
    [
        (of("string", "order-ö"), "order-ö"),
        (of("ulong", 0), "0"),
        (of("ulong", 10_000_000_000), "10000000000"),
        (of("ulong", 2**64 - 1), "18446744073709551615"),
        (of("uuid", uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")), "01234567-89ab-cdef-0123-456789abcdef"),
        (of("binary", b"\x00\xab"), "00ab"),
        (of("int", 5), None),
    ],
)
def test_an_identifier_is_its_text(identifier: AmqpValue, text: str | None) -> None:
    cell = column(Message(b"", message_id=identifier, correlation_id=identifier), "properties")
    assert isinstance(cell, dict)
    assert (cell["message_id"], cell["correlation_id"]) == (text, text)


def test_a_field_of_another_type_is_null_and_its_neighbours_stay() -> None:
    cell = column(Message(b"", subject=of("int", 5), to="q", creation_time=of("long", 7)), "properties")
    assert isinstance(cell, dict)
    assert (cell["subject"], cell["to"], cell["creation_time"]) == (None, "q", None)


def test_text_that_is_not_utf8_is_null_in_a_field_and_binary_in_a_variant() -> None:
    broken = of("string", b"a\xffc".decode("utf-8", "surrogateescape"))
    message = Message(b"", subject=broken, application_properties={"s": broken})
    cell = column(message, "properties")
    assert isinstance(cell, dict) and cell["subject"] is None
    assert column(message, "application_properties", "s string") == {"s": None}
    assert variant_of(message) == {"s": of("binary", b"a\xffc")}


def test_times_beyond_64_bits_of_microseconds_are_null_in_a_field_and_a_long_in_a_variant() -> None:
    far = of("timestamp", 2**62)
    message = Message(b"", creation_time=far, application_properties={"t": far})
    cell = column(message, "properties")
    assert isinstance(cell, dict) and cell["creation_time"] is None
    assert column(message, "application_properties", "t timestamp") == {"t": None}
    assert variant_of(message) == {"t": of("long", 2**62)}


def variant_of(message: Message) -> dict[str, AmqpValue]:
    cell = column(message, "application_properties")
    assert isinstance(cell, dict)
    decoded = decode_variant(cell["value"], cell["metadata"])
    return {key.value: value for key, value in decoded.value}


def test_a_variant_keeps_values_in_the_documented_types() -> None:
    identifier = uuid.UUID(int=5)
    message = Message(
        b"",
        application_properties={
            "byte": of("byte", -5),
            "ubyte": of("ubyte", 200),
            "ushort": of("ushort", 65_535),
            "uint": of("uint", 2**32 - 1),
            "small": of("ulong", 7),
            "large": of("ulong", 2**64 - 1),
            "float": of("float", 0.5),
            "time": of("timestamp", 1_767_225_600_123),
            "char": of("char", 0x20AC),
            "symbol": of("symbol", "s"),
            "uuid": of("uuid", identifier),
            "decimal": of("decimal32", b"\x22\x50\x00\x01"),
            "long text": "x" * 300,
            "list": [1, "a"],
            "map": {"b": True, of("int", 5): None},
        },
    )
    assert variant_of(message) == {
        "byte": of("byte", -5),
        "ubyte": of("short", 200),
        "ushort": of("int", 65_535),
        "uint": of("long", 2**32 - 1),
        "small": of("long", 7),
        "large": of("ulong", 2**64 - 1),
        "float": of("float", 0.5),
        "time": of("timestamp", 1_767_225_600_123),
        "char": of("string", "€"),
        "symbol": of("string", "s"),
        "uuid": of("string", str(identifier)),
        "decimal": of("binary", b"\x22\x50\x00\x01"),
        "long text": of("string", "x" * 300),
        "list": amqp_value([1, "a"]),
        "map": amqp_value({"5": None, "b": True}),
    }


def test_of_equal_keys_the_first_counts() -> None:
    # A map with "n" twice: 1, then 2.
    data = bytes.fromhex("005374c10b04a1016e5401a1016e5402")
    assert column(data, "application_properties", "n int") == {"n": 1}
    assert variant_of(Message.decode(data)) == {"n": of("int", 1)}


@pytest.mark.parametrize(
    ("declared", "value", "cell"),
    [
        ("bigint", of("ulong", 2**63 - 1), 2**63 - 1),
        ("bigint", of("ulong", 2**63), None),
        ("int", of("long", 2**31), None),
        ("int", of("ubyte", 5), 5),
        ("tinyint", of("short", -128), -128),
        ("tinyint", of("ubyte", 128), None),
        ("smallint", of("double", 5.0), None),
        ("decimal(20,0)", of("ulong", 2**64 - 1), Decimal(2**64 - 1)),
        ("decimal(20,0)", of("long", -(2**63)), Decimal(-(2**63))),
        ("decimal(19,0)", of("ulong", 2**64 - 1), None),
        ("decimal(19,0)", of("long", -(2**63)), Decimal(-(2**63))),
        ("decimal(3,0)", of("int", 999), Decimal(999)),
        ("decimal(3,0)", of("int", -1000), None),
        ("double", of("float", 0.5), 0.5),
        ("double", of("long", 2**53), 2.0**53),
        ("double", of("long", 2**53 + 1), None),
        ("double", of("string", "5"), None),
        ("float", of("float", 0.5), 0.5),
        ("float", of("double", 0.5), None),
        ("float", of("int", 2**24), 2.0**24),
        ("float", of("int", 2**24 + 1), None),
        ("string", of("symbol", "s"), "s"),
        ("string", of("char", 0x1F600), "😀"),
        ("string", of("char", 0xD800), None),
        ("string", of("binary", b"s"), None),
        ("string", of("int", 5), None),
        ("binary", of("binary", b"s"), b"s"),
        ("binary", of("string", "s"), None),
        ("boolean", of("boolean", True), True),
        ("boolean", of("int", 1), None),
        ("timestamp", of("timestamp", 5), 5_000),
        ("timestamp", of("long", 5), None),
        ("string", of("null", None), None),
    ],
)
def test_a_declared_property_takes_what_it_can_hold_without_loss(declared: str, value: AmqpValue, cell: object) -> None:
    message = Message(b"", application_properties={"other": 1, "x": value, "behind": "y"})
    assert column(message, "application_properties", f"x {declared}, behind string") == {"x": cell, "behind": "y"}


@pytest.mark.parametrize(
    ("body", "octets"),
    [
        (Body.data(b"abc"), b"abc"),
        (Body.data(b"abc", b"", b"def"), b"abcdef"),
        (Body.data(b""), b""),
        (Body.data(b"x" * 300), b"x" * 300),
        (Body.value("text ö"), "text ö".encode()),
        (Body.value(b"octets"), b"octets"),
        (Body.value(of("symbol", "s")), b"s"),
        (Body.value(5), None),
        (Body.value(None), None),
        (Body.value({"a": 1}), None),
        (Body.sequence([1, 2]), None),
        (None, None),
    ],
)
def test_the_body_is_its_bytes_where_it_has_some(body: Body | None, octets: bytes | None) -> None:
    assert column(Message(body, subject="s"), "body") == octets


def test_bytes_that_are_no_message_are_null_in_all_columns_but_the_raw_one() -> None:
    for name in COLUMNS:
        assert column(b"\x00\x53\x74\xc1", name) == (b"\x00\x53\x74\xc1" if name == "message" else None)


def test_a_damaged_section_is_null_and_the_others_stay() -> None:
    whole = Message(b"x", subject="s", message_annotations={"x-a": 1}).encode()
    damaged = whole.replace(b"\xa3\x03x-a", b"\xa3\x7fx-a")
    assert column(damaged, "message_annotations") is None
    cell = column(damaged, "properties")
    assert isinstance(cell, dict) and cell["subject"] == "s"
    assert column(whole + b"\x00\x53\x78\x40", "body") is None


def test_only_the_asked_columns_come_back_in_the_asked_order() -> None:
    columns = columns_of(EncodedMessages.of([typical_message(1)]), ["body", "header"])
    assert list(columns) == ["body", "header"]


def test_no_messages_give_empty_columns_of_the_right_types() -> None:
    for properties in (None, DECLARED):
        declared = None if properties is None else declared_properties(properties)
        for name, array in columns_of(EncodedMessages.of([]), COLUMNS, properties).items():
            assert array.type == column_type(name, declared)
            assert len(array) == 0


def test_messages_may_lie_anywhere_in_the_buffer_in_any_order() -> None:
    batch = EncodedMessages.of(typical_message(number) for number in range(5))
    picked = batch.take(np.array([3, 1, 1]))
    cells = _cells(columns_of(picked, ["application_properties"], "quantity int")["application_properties"])
    assert cells == [{"quantity": 3}, {"quantity": 1}, {"quantity": 1}]
    assert columns_of(picked, ["message"])["message"].to_pylist() == [typical_message(number) for number in (3, 1, 1)]


def test_many_and_long_keys_give_wide_variants() -> None:
    properties = {f"{'k' * (number % 40)}{number}": number for number in range(400)}
    long_values = {"a": "x" * 70_000, "b": b"y" * 200, "c" * 300: 1}
    messages = [Message(b"", application_properties=held).encode() for held in (properties, long_values, {})]
    batch = EncodedMessages.of(messages)
    array = columns_of(batch, ["application_properties"])["application_properties"]
    assert _cells(array) == _cells(expected(messages, "application_properties", None))
    decoded = decode_variant(array[0]["value"].as_py(), array[0]["metadata"].as_py())
    assert {key.value: value.value for key, value in decoded.value} == properties


def test_a_large_batch_outgrows_the_first_buffers() -> None:
    messages = [typical_message(number) for number in range(2_000)]
    array = columns_of(EncodedMessages.of(messages), ["application_properties"])["application_properties"]
    array.validate(full=True)
    assert _cells(array) == _cells(expected(messages, "application_properties", None))


@pytest.mark.parametrize(
    ("columns", "properties", "name"),
    [
        (["body", "bodies"], None, "bodies"),
        (["body", "body"], None, "body"),
        (["body"], "region", "region"),
        (["body"], "region text", "text"),
        (["body"], "region string, Region string", "Region"),
        (["body"], "price decimal(10,2)", "price"),
        (["body"], "price decimal(39)", "price"),
        (["body"], "price double(3)", "price"),
        (["body"], "", "properties"),
        (["body"], "a string,, b string", "b string"),
    ],
)
def test_wrong_columns_and_declarations_are_named(columns: list[str], properties: str | None, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        columns_of(EncodedMessages.of([]), columns, properties)


def test_declarations_take_spark_names_and_quoted_names() -> None:
    declared = declared_properties(" region STRING,`a ``b``, c` long , n: integer,q decimal(20) ")
    assert [(each.name, each.ddl) for each in declared] == [
        ("region", "string"),
        ("a `b`, c", "bigint"),
        ("n", "int"),
        ("q", "decimal(20,0)"),
    ]


def test_every_key_of_the_strategies_can_be_declared() -> None:
    names = [key.decode() for key in KEYS if key]
    text = ", ".join(f"`{name}` string" for name in names)
    assert [each.name for each in declared_properties(text)] == names


def test_the_kernels_tell_text_from_other_bytes_exactly_as_utf8_does() -> None:
    """Every first byte, with second bytes at the edges of the ranges, whole and cut short, first and further on."""
    seconds = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    contents = [
        lead + bytes([first, second]) + tail
        for first in range(0x80, 0x100)
        for second in seconds
        for tail in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf", b"a", b"\x80a", b"\x80\xc0")
        for lead in (b"", b"12345678")
    ]
    values = [of("string", content.decode("utf-8", "surrogateescape")) for content in contents]
    batch = EncodedMessages.of(Message(b"", application_properties={"s": value}).encode() for value in values)
    cells = _cells(columns_of(batch, ["application_properties"], "s string")["application_properties"])
    for content, cell in zip(contents, cells, strict=True):
        try:
            assert cell == {"s": content.decode()}
        except UnicodeDecodeError:
            assert cell == {"s": None}


@pytest.mark.parametrize(
    "keys",
    [
        ["aaaaaaaab", "aaaaaaaa", "aaaaaaaaa", "aaaaaaaaac", "aaaaaaa", "ä", "z", "", "aaaaaaab", "aaaaaaaaab"],
        ["aaaaaaaab", "aaaaaaaaac"],
        ["ä", "z", ""],
    ],
)
def test_variant_keys_are_ordered_by_all_their_bytes(keys: list[str]) -> None:
    message = Message(b"", application_properties={key: position for position, key in enumerate(keys)})
    cell = column(message, "application_properties")
    assert isinstance(cell, dict)
    decoded = decode_variant(cell["value"], cell["metadata"])
    assert [key.value for key, _ in decoded.value] == sorted(keys, key=str.encode)
    assert {key.value: value.value for key, value in decoded.value} == {key: place for place, key in enumerate(keys)}


def test_a_row_may_have_the_keys_of_the_row_before_in_another_order() -> None:
    orders = (("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a"), ("a",), ("x", "y", "w"))
    messages = [Message(b"", application_properties={key: ord(key) for key in order}).encode() for order in orders]
    array = columns_of(EncodedMessages.of(messages), ["application_properties"])["application_properties"]
    assert _cells(array) == _cells(expected(messages, "application_properties", None))
