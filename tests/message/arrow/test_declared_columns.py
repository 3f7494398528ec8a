"""Columns that hold one field each: what a declaration says, and kernels that equal the reference on any bytes."""

from __future__ import annotations

from collections.abc import Sequence

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


@pytest.mark.parametrize(
    ("text", "named"),
    [
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
