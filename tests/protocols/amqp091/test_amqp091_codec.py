"""Field tables, properties and methods: what is written is what is read, and wrong bytes are errors with a code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091 import ReplyCode
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import decode_method, encode_method
from headgate.protocols.amqp091.fields import MAX_DEPTH, Field, FieldType, decode_table, encode_table, long, long_string
from headgate.protocols.amqp091.methods import METHODS
from headgate.protocols.amqp091.properties import (
    BasicProperties,
    decode_content_header,
    decode_properties,
    encode_content_header,
)
from protocols.amqp091.field_values import methods, properties_with, tables

SYNTAX_CODES = {ReplyCode.SYNTAX_ERROR, ReplyCode.FRAME_ERROR, ReplyCode.NOT_IMPLEMENTED}


def read_or_code(decode, octets):
    try:
        return decode(octets)
    except RemoteProtocolError as error:
        return error.code


@given(tables)
def test_a_table_comes_back_with_its_exact_types(table):
    encoded = encode_table(table)
    assert decode_table(encoded, 0, len(encoded)) == (table, len(encoded))


@given(properties_with(tables), st.integers(0, 2**64 - 1))
def test_properties_come_back(properties, body_size):
    encoded = encode_content_header(properties, body_size)
    assert decode_content_header(encoded)[0] == body_size
    assert decode_properties(encoded) == properties


@given(methods)
def test_a_method_comes_back(method):
    assert decode_method(encode_method(method)) == method


@given(methods, st.data())
def test_a_method_that_is_cut_short_or_goes_on_is_a_syntax_error(method, data):
    encoded = encode_method(method)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for wrong in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(RemoteProtocolError) as refused:
            decode_method(wrong)
        assert refused.value.code in (ReplyCode.SYNTAX_ERROR, ReplyCode.FRAME_ERROR)


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=60))
def test_any_bytes_are_a_method_or_an_error_with_a_code(code, octets):
    payload = b"".join(number.to_bytes(2, "big") for number in code) + octets
    method = read_or_code(decode_method, payload)
    assert method in SYNTAX_CODES or type(decode_method(encode_method(method))) is METHODS[code]


@given(st.binary(max_size=60))
def test_any_bytes_are_properties_or_an_error_with_a_code(octets):
    found = read_or_code(decode_properties, b"\0\x3c\0\0" + bytes(8) + octets)
    assert found in SYNTAX_CODES or isinstance(found, BasicProperties)


def test_a_method_that_does_not_exist_is_not_implemented():
    with pytest.raises(RemoteProtocolError, match="no method 99 of class 60") as refused:
        decode_method(b"\0\x3c\0\x63")
    assert refused.value.code == ReplyCode.NOT_IMPLEMENTED


def test_bits_share_octets_the_first_lowest():
    encoded = encode_method(m.QueueDeclare(queue="q", passive=False, durable=True, nowait=True))
    assert encoded == b"\0\x32\0\x0a\0\0\x01q\x12" + bytes(4)


def test_a_header_of_another_class_is_a_frame_error():
    with pytest.raises(RemoteProtocolError, match="class 50") as refused:
        decode_content_header(b"\0\x32" + bytes(12))
    assert refused.value.code == ReplyCode.FRAME_ERROR


def test_unknown_property_flags_are_a_frame_error():
    with pytest.raises(RemoteProtocolError, match="unknown property flags"):
        decode_properties(b"\0\x3c" + bytes(10) + b"\0\1")


def test_of_equal_names_the_first_counts():
    fields = encode_table({"a": long(1)})[4:] + encode_table({"a": long(2)})[4:]
    encoded = len(fields).to_bytes(4, "big") + fields
    assert decode_table(encoded, 0, len(encoded))[0] == {"a": long(1)}


def test_an_integer_of_64_bits_is_read_by_either_octet_and_written_by_one():
    given = encode_table({"a": long(-5_000_000_000)})
    other = given.replace(b"al", b"aL")
    assert other != given
    assert decode_table(other, 0, len(other)) == ({"a": long(-5_000_000_000)}, len(given))


def test_an_unknown_type_octet_is_a_syntax_error():
    with pytest.raises(RemoteProtocolError, match="unknown field type 0x3f") as refused:
        decode_table(b"\0\0\0\3\1a?", 0, 7)
    assert refused.value.code == ReplyCode.SYNTAX_ERROR


@pytest.mark.parametrize("kind", [FieldType.TABLE, FieldType.ARRAY])
def test_tables_are_nested_so_deep_and_no_deeper(kind):
    def nested(depth: int) -> dict[str, Field]:
        field = long_string("x")
        for _ in range(depth):
            field = Field(kind, {"a": field} if kind is FieldType.TABLE else (field,))
        return {"a": field}

    # The string inside is a size of its own.
    allowed, refused = encode_table(nested(MAX_DEPTH)), encode_table(nested(MAX_DEPTH + 1))
    assert decode_table(allowed, 0, len(allowed))[0] == nested(MAX_DEPTH)
    with pytest.raises(RemoteProtocolError, match="nested deeper"):
        decode_table(refused, 0, len(refused))


def test_an_empty_text_is_no_missing_property():
    properties = BasicProperties(message_id="", headers={})
    assert decode_properties(encode_content_header(properties, 0)) == properties
