"""Arrow columns as encoded messages: the types of every column, one encoding, errors before the first row."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import ConfigError
from headgate.message import AmqpType, AmqpValue, Body, EncodedMessages, Message, Section
from headgate.message.arrow import check_types, columns_of, encode, messages_of, variant_type
from headgate.message.arrow.encode.inputs import inputs_of
from headgate.message.arrow.encode.reference import encoded_row
from headgate.message.variant import encode_variant
from message_values import bodies, sections

UTC = datetime.UTC
MICROSECONDS = pa.timestamp("us", tz="UTC")


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


def batch(**columns: Any) -> pa.RecordBatch:
    arrays = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    return pa.record_batch(arrays)


def encoded(record_batch: pa.RecordBatch) -> list[bytes]:
    """All messages, after the kernel and the reference agreed on their bytes."""
    messages = messages_of(record_batch)
    inputs = inputs_of(record_batch)
    written = [messages.message(row) for row in range(len(messages))]
    assert written == [encoded_row(inputs, row) for row in range(inputs.rows)]
    return written


def only(record_batch: pa.RecordBatch) -> Message:
    (data,) = encoded(record_batch)
    return Message.decode(data)


def variants(*entries: list[tuple[AmqpValue, AmqpValue]] | None) -> pa.Array:
    cells = [
        None if held is None else dict(zip(("value", "metadata"), encode_variant(held), strict=True))
        for held in entries
    ]
    return pa.array(cells, type=variant_type())


def test_the_columns_of_a_message_make_the_bytes_of_the_same_message() -> None:
    record_batch = batch(
        header=[{"durable": True, "priority": 5, "ttl": 60_000, "delivery_count": 0}],
        properties=[
            {
                "message_id": "m-1",
                "user_id": b"guest",
                "subject": "order.created",
                "content_type": "application/json",
                "creation_time": datetime.datetime(2026, 6, 1, 8, tzinfo=UTC),
                "group_sequence": 300,
            }
        ],
        application_properties=pa.array(
            [{"region": "EMEA", "customer": 10**12, "premium": True, "price": 9.5, "quantity": 3, "missing": None}],
            pa.struct(
                [
                    ("region", pa.string()),
                    ("customer", pa.int64()),
                    ("premium", pa.bool_()),
                    ("price", pa.float64()),
                    ("quantity", pa.int32()),
                    ("missing", pa.string()),
                ]
            ),
        ),
        message_annotations=pa.array([[("x-stream-filter-value", "EMEA")]], pa.map_(pa.string(), pa.string())),
        body=[b'{"a": 1}'],
    )
    wanted = Message(
        b'{"a": 1}',
        header={"durable": True, "priority": 5, "ttl": 60_000, "delivery_count": 0},
        message_id="m-1",
        user_id=b"guest",
        subject="order.created",
        content_type="application/json",
        creation_time=datetime.datetime(2026, 6, 1, 8, tzinfo=UTC),
        group_sequence=300,
        application_properties={
            "region": "EMEA",
            "customer": 10**12,
            "premium": True,
            "price": 9.5,
            "quantity": of("int", 3),
        },
        message_annotations={"x-stream-filter-value": "EMEA"},
    )
    assert encoded(record_batch) == [wanted.encode()]


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        (pa.int8(), -128, of("byte", -128)),
        (pa.int16(), -5, of("short", -5)),
        (pa.int32(), 128, of("int", 128)),
        (pa.int32(), -128, of("int", -128)),
        (pa.int64(), 127, of("long", 127)),
        (pa.int64(), -(2**63), of("long", -(2**63))),
        (pa.float32(), 0.5, of("float", 0.5)),
        (pa.float64(), -0.0, of("double", -0.0)),
        (pa.float64(), math.nan, of("double", math.nan)),
        (pa.bool_(), False, of("boolean", False)),
        (pa.string(), "é" * 200, of("string", "é" * 200)),
        (pa.large_string(), "s", of("string", "s")),
        (pa.string_view(), "s", of("string", "s")),
        (pa.dictionary(pa.int32(), pa.string()), "s", of("string", "s")),
        (pa.binary(), b"\x00", of("binary", b"\x00")),
        (pa.binary(2), b"ab", of("binary", b"ab")),
        (MICROSECONDS, 1_767_225_600_123_999, of("timestamp", 1_767_225_600_123)),
        (MICROSECONDS, -1, of("timestamp", -1)),
        (pa.timestamp("us"), 5_000, of("timestamp", 5)),
        (pa.timestamp("s", tz="UTC"), -7, of("timestamp", -7_000)),
        (pa.timestamp("ns", tz="UTC"), 1_999_999, of("timestamp", 1)),
        (pa.decimal128(20, 0), decimal.Decimal(2**64 - 1), of("ulong", 2**64 - 1)),
        (pa.decimal128(20, 0), decimal.Decimal(2**63 - 1), of("long", 2**63 - 1)),
        (pa.decimal128(38, 0), decimal.Decimal(-(2**63)), of("long", -(2**63))),
    ],
)
@pytest.mark.parametrize("shape", ["struct", "map"])
def test_a_spark_type_has_one_amqp_type(kind: pa.DataType, cell: object, value: AmqpValue, shape: str) -> None:
    cells = pa.array([cell, None], kind)
    if shape == "struct":
        column: pa.Array = pa.StructArray.from_arrays([cells], ["x"])
        missing: list[tuple[AmqpValue, AmqpValue]] = []
    else:
        column = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["x", "x"]), cells)
        missing = [(of("string", "x"), of("null", None))]
    first, second = (Message.decode(data) for data in encoded(batch(application_properties=column)))
    assert first.section(Section.APPLICATION_PROPERTIES) == of("map", ((of("string", "x"), value),))
    assert second.section(Section.APPLICATION_PROPERTIES) == of("map", tuple(missing))


def test_a_null_section_is_left_out_and_an_empty_one_is_written() -> None:
    properties = pa.array([None, {"subject": None}], pa.struct([("subject", pa.string())]))
    annotations = pa.array([None, []], pa.map_(pa.string(), pa.string()))
    first, second = (
        Message.decode(data)
        for data in encoded(batch(properties=properties, message_annotations=annotations, body=[b"x"] * 2))
    )
    assert (first.section(Section.PROPERTIES), first.section(Section.MESSAGE_ANNOTATIONS)) == (None, None)
    assert second.section(Section.PROPERTIES) == of("list", ())
    assert second.section(Section.MESSAGE_ANNOTATIONS) == of("map", ())


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (pa.array([b"x"]), Body.data(b"x")),
        (pa.array(["ö"]), Body.data("ö".encode())),
        (pa.array([b"x" * 300]), Body.data(b"x" * 300)),
        (pa.array([b""]), Body.data(b"")),
        (pa.array([None], pa.binary()), Body.value(None)),
        (pa.array([None]), Body.value(None)),
    ],
)
def test_a_body_is_one_data_section_and_a_null_body_the_value_null(body: pa.Array, wanted: Body) -> None:
    assert only(batch(body=body)).body == wanted


def test_a_missing_body_column_is_a_null_body() -> None:
    assert only(batch(properties=[{"subject": "s"}])).body == Body.value(None)


def test_a_raw_message_wins_over_the_other_columns_where_it_is_not_null() -> None:
    raw = Message(b"raw", subject="raw").encode()
    written = encoded(batch(message=pa.array([raw, None, b"anything"]), body=[b"a", b"b", b"c"]))
    assert written == [raw, Message(b"b").encode(), b"anything"]


def test_the_columns_of_a_stream_beside_the_message_are_not_part_of_it() -> None:
    written = encoded(batch(offset=[1], timestamp=pa.array([0], MICROSECONDS), filter_value=["a"], body=[b"x"]))
    assert written == [Message(b"x").encode()]


def test_a_variant_makes_the_map_it_holds_nested_values_included() -> None:
    entries = [
        (of("string", "z"), of("int", 5)),
        (of("string", "a"), of("string", "é" * 40)),
        (of("string", "schlüssel"), of("timestamp", 5)),
        (of("string", "deep"), of("map", ((of("string", "inner"), of("list", (of("double", 0.5),))),))),
    ]
    message = only(batch(application_properties=variants(entries)))
    by_key = sorted(entries, key=lambda entry: str(entry[0].value).encode())
    assert message.section(Section.APPLICATION_PROPERTIES) == of("map", tuple(by_key))


def test_annotations_have_symbols_for_keys_whatever_the_column() -> None:
    columns = (
        variants([(of("string", "x-a"), of("long", 1))]),
        pa.array([[("x-a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([{"x-a": 1}]),
    )
    for column in columns:
        message = only(batch(message_annotations=column))
        assert message.section(Section.MESSAGE_ANNOTATIONS) == of("map", ((of("symbol", "x-a"), of("long", 1)),))


def test_sections_of_more_than_255_bytes_or_fields_take_the_wide_form() -> None:
    many = pa.array([{f"field{number}": number for number in range(200)}])
    long = pa.array([{"text": "x" * 250, "other": "y" * 10}])
    exact = pa.array([{"k": "x" * 249}, {"k": "x" * 250}, {"k": "x" * 251}])
    properties = pa.array([{"subject": "s" * 300, "to": "t" * 300}])
    for column in (many, long, exact):
        encoded(batch(application_properties=column))
    encoded(batch(properties=properties))


def test_slices_of_columns_are_read_at_their_place() -> None:
    whole = batch(
        header=[{"priority": number, "durable": number % 2 == 0} for number in range(9)],
        properties=[None if number == 4 else {"subject": f"s{number}"} for number in range(9)],
        application_properties=pa.array(
            [[(f"k{entry}", "v") for entry in range(number)] for number in range(9)], pa.map_(pa.string(), pa.string())
        ),
        message_annotations=variants(*([(of("string", f"a{number}"), of("long", number))] for number in range(9))),
        body=[None if number == 5 else b"b" * number for number in range(9)],
    )
    assert encoded(whole.slice(3, 5)) == encoded(whole)[3:8]


@given(st.lists(st.builds(lambda held, body: Message.of_sections(held, body).encode(), sections, bodies), max_size=4))
@examples(0.5)
def test_columns_of_any_messages_encode_the_same_in_kernel_and_reference_and_read_back(messages: list[bytes]) -> None:
    names = ("header", "properties", "application_properties", "message_annotations", "body")
    columns = columns_of(EncodedMessages.of(messages), names)
    written = encoded(pa.record_batch(columns))
    again = columns_of(EncodedMessages.of(written), names)
    for name in ("application_properties", "message_annotations", "body"):
        assert again[name].equals(columns[name]), name


_CELLS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "s": (
        pa.string(),
        st.text(st.characters(codec="utf-8"), max_size=8) | st.integers(250, 260).map(lambda n: "x" * n),
    ),
    "b": (pa.binary(), st.binary(max_size=8)),
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 130)),
    "i": (pa.int32(), st.integers(-(2**31), 2**31 - 1) | st.integers(-130, 130)),
    "h": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "y": (pa.int8(), st.integers(-128, 127)),
    "t": (pa.bool_(), st.booleans()),
    "d": (pa.float64(), st.floats(allow_nan=False)),
    "f": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "w": (MICROSECONDS, st.integers(-(2**63), 2**63 - 1)),
    "q": (pa.decimal128(20, 0), st.integers(-(2**63), 2**64 - 1).map(decimal.Decimal)),
}
_ROWS = st.lists(
    st.none() | st.fixed_dictionaries({name: st.none() | cells for name, (_, cells) in _CELLS.items()}), max_size=5
)


@given(_ROWS, st.data())
def test_typed_structs_encode_the_same_in_kernel_and_reference(rows: list[object], data: st.DataObject) -> None:
    column = pa.array(rows, pa.struct([(name, kind) for name, (kind, _) in _CELLS.items()]))
    sections_of = data.draw(st.sampled_from(("application_properties", "message_annotations")))
    encoded(batch(**{sections_of: column, "body": pa.array([b"x"] * len(rows), pa.binary())}))


def _changed(cell: dict[str, bytes], part: str, place: int, flip: int) -> dict[str, bytes]:
    held = bytearray(cell[part])
    held[place % len(held)] ^= flip
    return {**cell, part: bytes(held)}


@pytest.mark.parametrize("exact", [(), ("application_properties",)])
def test_damaged_variants_are_refused_or_read_alike_and_never_outside_their_bytes(exact: tuple[str, ...]) -> None:
    entries = [
        (of("string", "a"), of("string", "text")),
        (of("string", "bb"), of("long", 5)),
        (of("string", "c"), of("binary", b"12")),
    ]
    cell = dict(zip(("value", "metadata"), encode_variant(entries), strict=True))
    cells = [
        _changed(cell, part, place, flip)
        for part in ("value", "metadata")
        for place in range(len(cell[part]))
        for flip in (0x01, 0x04, 0x40, 0x80, 0xFF)
    ]
    cells += [{**cell, "value": cell["value"][:length]} for length in range(len(cell["value"]))]
    cells += [{**cell, "metadata": cell["metadata"][:length]} for length in range(len(cell["metadata"]))]
    refused = 0
    for damaged in cells:
        record_batch = batch(application_properties=pa.array([damaged], variant_type()))
        inputs = inputs_of(record_batch, exact)
        try:
            wanted = encoded_row(inputs, 0)
        except ConfigError:
            refused += 1
            with pytest.raises(ConfigError, match="application_properties, row 0"):
                messages_of(record_batch, exact=exact)
        else:
            assert messages_of(record_batch, exact=exact).message(0) == wanted
    assert 100 < refused < len(cells)


@pytest.mark.parametrize(
    "decimal_text", ["1.5", "-0.01", "12345678901234.56789", "1e-30", "9007199254740993.1", "99.99"]
)
def test_decimals_with_a_fraction_in_a_variant_become_the_nearest_double(decimal_text: str) -> None:
    number = decimal.Decimal(decimal_text)
    scale = -int(number.as_tuple().exponent)
    unscaled = int(number.scaleb(scale))
    kind, width = (8, 4) if abs(unscaled) < 2**31 else (9, 8) if abs(unscaled) < 2**63 else (10, 16)
    value = bytes([2, 1, 0, 0, 2 + width, kind << 2, scale]) + unscaled.to_bytes(width, "little", signed=True)
    column = pa.array([{"value": value, "metadata": b"\x11\x01\x00\x01p"}], variant_type())
    entries = only(batch(application_properties=column)).section(Section.APPLICATION_PROPERTIES)
    assert entries == of("map", ((of("string", "p"), of("double", float(number))),))


@pytest.mark.parametrize(
    ("columns", "name", "found"),
    [
        ({"bodies": [b"x"]}, "bodies", "binary"),
        ({"body": [5]}, "body", "int64"),
        ({"message": ["text"]}, "message", "string"),
        ({"header": [5]}, "header", "int64"),
        ({"header": [{"prio": 5}]}, "prio", "header"),
        ({"header": [{"priority": "5"}]}, "header.priority", "string"),
        ({"header": [{"durable": 1}]}, "header.durable", "int64"),
        ({"properties": [{"subject": 5}]}, "properties.subject", "int64"),
        ({"properties": [{"creation_time": 5}]}, "properties.creation_time", "int64"),
        ({"properties": [{"message_id": 1.5}]}, "properties.message_id", "double"),
        ({"application_properties": ["x"]}, "application_properties", "string"),
        ({"application_properties": [{"when": datetime.date(2026, 1, 1)}]}, "application_properties.when", "date32"),
        ({"application_properties": [{"list": [1]}]}, "application_properties.list", "list"),
        ({"application_properties": [{"deep": {"a": 1}}]}, "application_properties.deep", "struct"),
        (
            {"application_properties": [{"p": decimal.Decimal("1.5")}]},
            "application_properties.p",
            r"decimal128\(2, 1\)",
        ),
        ({"application_properties": pa.array([[(1, "a")]], pa.map_(pa.int64(), pa.string()))}, "keys", "int64"),
        ({"offset": [1]}, "no column", "body"),
    ],
)
def test_a_wrong_column_is_named_with_what_was_found_before_any_row(
    columns: dict[str, Any], name: str, found: str
) -> None:
    record_batch = batch(**columns)
    for check in (lambda: messages_of(record_batch), lambda: check_types(record_batch.schema)):
        with pytest.raises(ConfigError, match=name) as error:
            check()
        assert error.match(found)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"header": [{"priority": 5}, {"priority": 256}]}, "header.priority, row 1"),
        ({"header": [{"ttl": -1}, {"ttl": 5}]}, "header.ttl, row 0"),
        ({"properties": [{"group_sequence": 0}, {"group_sequence": 2**32}]}, "properties.group_sequence, row 1"),
        ({"message": [b"x", None]}, "message: row 1"),
        (
            {
                "application_properties": pa.array(
                    [{"n": None}, {"n": decimal.Decimal(2**64)}], pa.struct([("n", pa.decimal128(20, 0))])
                )
            },
            "application_properties.n, row 1",
        ),
    ],
)
def test_a_value_outside_its_field_is_named_with_its_row(columns: dict[str, Any], name: str) -> None:
    record_batch = batch(**columns)
    with pytest.raises(ConfigError, match=name):
        messages_of(record_batch)


def test_null_values_are_not_checked_against_the_range() -> None:
    first, second = (Message.decode(data) for data in encoded(batch(header=[{"priority": None}, {"priority": 255}])))
    assert first.section(Section.HEADER) == of("list", ())
    assert second.section(Section.HEADER) == of("list", (of("null", None), of("ubyte", 255)))


def test_a_variant_that_is_no_object_is_named_with_its_row() -> None:
    column = pa.array([None, {"value": b"\x0c\x05", "metadata": b"\x11\x00\x00"}], variant_type())
    with pytest.raises(ConfigError, match=r"application_properties, row 1.*byte.*object"):
        messages_of(batch(application_properties=column))


def test_common_columns_are_encoded_by_the_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> bytes:
        raise AssertionError("a common row was left to the reference")

    monkeypatch.setattr(encode, "encoded_row", refuse)
    rows = 300
    entries = [
        [(of("string", "Käufer"), of("string", "Jörg")), (of("string", "n"), of("long", row))] for row in range(rows)
    ]
    messages = messages_of(
        batch(
            properties=[{"subject": f"s{row}"} for row in range(rows)],
            application_properties=variants(*entries),
            body=[b"x" * 100] * rows,
        )
    )
    assert Message.decode(messages.message(299)).application_properties == {
        "Käufer": of("string", "Jörg"),
        "n": of("long", 299),
    }


def test_without_kernels_the_bytes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    record_batch = batch(properties=[{"subject": "a"}, None], body=[b"x", None])
    with_kernel = encoded(record_batch)
    load: Callable[[str], None] = lambda _module: None  # noqa: E731
    monkeypatch.setattr(encode, "load", load)
    assert encoded(record_batch) == with_kernel


def test_the_buffer_has_readable_slack_behind_every_message() -> None:
    nested = [(of("string", "l"), of("list", ()))]
    messages = messages_of(batch(application_properties=variants([], nested, []), body=[b"x"] * 3))
    assert int(np.max(messages.starts + messages.lengths)) + 8 <= len(messages.data)


def test_no_rows_make_no_messages() -> None:
    assert len(messages_of(batch(body=pa.array([], pa.binary())))) == 0


@pytest.mark.parametrize(("microseconds", "milliseconds"), [(1_999, 1), (-1, -1), (-1_000, -1), (-1_001, -2), (0, 0)])
def test_microseconds_of_a_variant_are_cut_to_milliseconds(microseconds: int, milliseconds: int) -> None:
    value = bytes([2, 1, 0, 0, 9, 12 << 2]) + microseconds.to_bytes(8, "little", signed=True)
    column = pa.array([{"value": value, "metadata": b"\x11\x01\x00\x01t"}], variant_type())
    entries = only(batch(application_properties=column)).section(Section.APPLICATION_PROPERTIES)
    assert entries == of("map", ((of("string", "t"), of("timestamp", milliseconds)),))


@pytest.mark.parametrize("kind", [12, 13], ids=["with a zone", "without a zone"])
@pytest.mark.parametrize("microseconds", [1_999, -1, -1_001, -1_000, 2_000])
def test_microseconds_of_a_variant_that_are_no_whole_milliseconds_are_refused_where_it_is_exact(
    microseconds: int, kind: int
) -> None:
    value = bytes([2, 1, 0, 0, 9, kind << 2]) + microseconds.to_bytes(8, "little", signed=True)
    record_batch = batch(
        application_properties=pa.array([{"value": value, "metadata": b"\x11\x01\x00\x01t"}], variant_type())
    )
    exact = ("application_properties",)
    if microseconds % 1000:
        with pytest.raises(ConfigError, match="application_properties, row 0"):
            messages_of(record_batch, exact=exact)
        with pytest.raises(ConfigError, match="application_properties, row 0"):
            encoded_row(inputs_of(record_batch, exact), 0)
    else:
        assert messages_of(record_batch, exact=exact).message(0) == messages_of(record_batch).message(0)
