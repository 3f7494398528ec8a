"""Columns that hold one field each: what a declaration says, and kernels that equal the reference on any bytes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message, Section
from headgate.message.arrow import DeclaredColumn, SparkType, declared_columns, fields_of
from headgate.message.arrow import decode as decode_package
from headgate.message.arrow.decode.reference import field_value
from strategies import damaged_messages, encoded_messages

COLUMNS = (
    "n bigint, s string, t boolean as truth, m binary, region smallint, price double, schlüssel decimal(20,0), "
    "p.subject, properties.creation_time, p.message-id, h.priority, h.ttl, m.n int as annotated, m.s string as tag, "
    "a.n double as again"
)


def declared(text: str = COLUMNS) -> list[DeclaredColumn]:
    found = declared_columns(text)
    assert not any(isinstance(each, str) for each in found)
    return [each for each in found if not isinstance(each, str)]


def cells(array: pa.Array) -> list[object]:
    return array.view(pa.int64()).to_pylist() if pa.types.is_timestamp(array.type) else array.to_pylist()


def assert_kernel_equals_reference(messages: Sequence[bytes]) -> None:
    columns = declared()
    arrays = fields_of(EncodedMessages.of(list(messages)), columns)
    assert list(arrays) == [each.name for each in columns]
    for each in columns:
        arrays[each.name].validate(full=True)
        expected = pa.array([field_value(message, each) for message in messages], type=each.type)
        # By their texts: a NaN is not equal to itself.
        assert repr(cells(arrays[each.name])) == repr(cells(expected)), each.name


@given(st.lists(encoded_messages(), min_size=1, max_size=4))
def test_the_kernel_equals_the_reference_on_every_encoding(messages: list[bytes]) -> None:
    assert_kernel_equals_reference(messages)


@given(st.lists(damaged_messages(), min_size=1, max_size=4))
def test_the_kernel_equals_the_reference_on_damaged_messages(messages: list[bytes]) -> None:
    assert_kernel_equals_reference(messages)


def test_a_column_holds_one_field_of_any_section() -> None:
    message = Message(
        b"body",
        header={"priority": 7},
        properties={"subject": "order.created"},
        message_annotations={"x-opt-tag": AmqpValue(AmqpType.STRING, "A")},
        application_properties={"region": "EMEA", "price": 12.5},
    ).encode()
    columns = declared("region string, price double, p.subject as title, h.priority, m.x-opt-tag string as tag, x int")
    found = fields_of(EncodedMessages.of([message, b"no message"]), columns)
    assert {name: cells(array) for name, array in found.items()} == {
        "region": ["EMEA", None],
        "price": [12.5, None],
        "title": ["order.created", None],
        "priority": [7, None],
        "tag": ["A", None],
        "x": [None, None],
    }


def test_common_messages_are_decided_by_the_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("the reference was asked")

    monkeypatch.setattr(decode_package, "field_value", refuse)
    messages = [
        Message(b"x", properties={"subject": "s"}, application_properties={"n": number, "s": "text" * number}).encode()
        for number in range(300)
    ]
    found = fields_of(EncodedMessages.of(messages), declared("s string, n bigint, p.subject"))
    assert cells(found["s"]) == ["text" * number for number in range(300)]
    assert cells(found["n"]) == list(range(300))


def test_without_kernels_the_columns_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = EncodedMessages.of([Message(b"", application_properties={"n": 4, "s": "t"}).encode()])
    with_kernel = fields_of(batch, declared())
    monkeypatch.setattr(decode_package, "load", lambda _name: None)
    assert fields_of(batch, declared()) == with_kernel


def test_declarations_are_read_in_order_with_names_of_their_own() -> None:
    assert declared_columns("offset, region string, p.subject, `a b` decimal(5,0) as `c d`, body") == (
        "offset",
        DeclaredColumn("region", Section.APPLICATION_PROPERTIES, "region", SparkType.STRING),
        DeclaredColumn("subject", Section.PROPERTIES, "subject", SparkType.STRING),
        DeclaredColumn("c d", Section.APPLICATION_PROPERTIES, "a b", SparkType.DECIMAL, 5),
        "body",
    )


def test_paths_into_bodies_are_columns_named_by_their_last_step() -> None:
    text = "b.order.region string, body.\"a, b\"[0]['it''s'] decimal(12,2), b.tags[1] boolean as `second tag`"
    assert declared(text) == [
        DeclaredColumn("region", Section.DATA, "body.order.region", SparkType.STRING),
        DeclaredColumn("it's", Section.DATA, 'body."a, b"[0]."it\'s"', SparkType.DECIMAL, 12, 2),
        DeclaredColumn("second tag", Section.DATA, "body.tags[1]", SparkType.BOOLEAN),
    ]
    assert declared("body string, b int") == [
        DeclaredColumn("body", Section.APPLICATION_PROPERTIES, "body", SparkType.STRING),
        DeclaredColumn("b", Section.APPLICATION_PROPERTIES, "b", SparkType.INT),
    ]


BODY_COLUMNS = (
    "b.x string as s, b.x boolean as t, b.x tinyint as y, b.x bigint as n, b.x decimal(5,2) as c, b.x double as d, "
    "b.x float as f"
)


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ('"é"', {"s": "é"}),
        (r'"\u0061\ud83d\ude00"', {"s": "a\U0001f600"}),
        (r'"\ud800"', {}),
        ("true", {"t": True}),
        ("null", {}),
        ("[1]", {}),
        ("7", {"y": 7, "n": 7, "c": Decimal(7), "d": 7.0, "f": 7.0}),
        ("-0", {"y": 0, "n": 0, "c": Decimal(0), "d": 0.0, "f": 0.0}),
        ("1e2", {"c": Decimal(100), "d": 100.0, "f": 100.0}),
        ("-0.0", {"c": Decimal(0), "d": 0.0, "f": 0.0}),
        ("1.250", {"c": Decimal("1.25"), "d": 1.25, "f": 1.25}),
        ("0.125", {"d": 0.125, "f": 0.125}),
        ("999.99", {"c": Decimal("999.99"), "d": 999.99, "f": 999.989990234375}),
        ("1000", {"n": 1000, "d": 1000.0, "f": 1000.0}),
        ("9007199254740993", {"n": 2**53 + 1, "d": 2.0**53, "f": 2.0**53}),
        ("9223372036854775808", {"d": 2.0**63, "f": 2.0**63}),
        ("1e300", {"d": 1e300}),
        ("1e400", {}),
        ("1" * 400, {}),
    ],
)
def test_a_column_of_a_body_holds_the_values_of_its_type(value: str, held: dict[str, object]) -> None:
    message = Message(f'{{"x":{value}}}'.encode()).encode()
    for each in declared(BODY_COLUMNS):
        (found,) = cells(fields_of(EncodedMessages.of([message]), [each])[each.name])
        # By their texts: 0.0 equals -0.0, and True equals 1.
        assert repr(found) == repr(pa.scalar(held.get(each.name), each.type).as_py()), each.name


def test_columns_of_bodies_stand_beside_others_in_their_order() -> None:
    messages = [
        Message(b'{"x":{"y":"a"}}', application_properties={"n": 1}).encode(),
        b"no message",
        Message(b"x").encode(),
    ]
    found = fields_of(EncodedMessages.of(messages), declared("b.x.y string, n bigint, b.x.y bigint as z"))
    assert {name: cells(array) for name, array in found.items()} == {
        "y": ["a", None, None],
        "n": [1, None, None],
        "z": [None, None, None],
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("b.x", "body.x has no type; expected one of boolean"),
        ("b.x timestamp", "body.x is declared 'timestamp'; expected one of boolean"),
        ("b.x int(5)", "body.x: the type int takes no precision"),
        ("b.x decimal(5,6)", "body.x is declared decimal(5,6)"),
        ("b.x[0] int", "body.x[0] ends with no name"),
        ("b.x[*] int", "cannot read '[*]'"),
        ("b.`x` int", "stand in double quotes"),
        ('b."\ud800".x int', "half of a surrogate pair"),
        ("b.x int, x int", "two columns 'x'"),
        ("q.x int", "there is no section 'q'"),
        ("region text", "'region' is declared 'text'"),
        ("p.subjekt", "p.subjekt: expected one of message_id"),
        ("p.subject int", "p.subject is string"),
        ("a.x", "'x' has no type"),
        ("", "cannot read ''"),
        ("region string price", "cannot read 'region string price'"),
        ("n int, p.subject as N", "two columns 'N'"),
    ],
)
def test_a_declaration_that_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=r"columns|properties") as refused:
        declared_columns(text)
    assert named in str(refused.value)
