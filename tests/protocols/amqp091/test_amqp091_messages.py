"""Messages of AMQP 0.9.1 to the stored form and back: the rows of both tables, round trips, and foreign messages."""

from __future__ import annotations

import math
import uuid
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MessageError, PreconditionFailedError
from headgate.evaluate.filter import Filter
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Described, Message
from headgate.protocols.amqp091.delivery import OFFSET_HEADER, read_delivery
from headgate.protocols.amqp091.fields import (
    Field,
    FieldType,
    boolean,
    decode_table,
    encode_table,
    long,
    long_string,
    table,
)
from headgate.protocols.amqp091.properties import (
    BasicProperties,
    decode_content_header,
    decode_properties,
    encode_content_header,
)
from headgate.protocols.amqp091.publication import publication, read_publication
from message_values import bodies, sections
from protocols.amqp091.field_values import properties_with, storable_tables

URN = "urn:uuid:58b867b0-8151-1f56-1bd4-73229807fd60"


def stored(body: bytes = b"body", *, exchange: str = "", routing_key: str = "orders", **properties: object) -> Message:
    message = Message.decode(publication(exchange, routing_key, BasicProperties(**properties)).stored(body))
    message.decode_all()
    return message


def plain(values: dict[str, AmqpValue] | None) -> dict[str, object] | None:
    return None if values is None else {name: value.value for name, value in values.items()}


# to the stored form


@pytest.mark.parametrize(
    ("properties", "section", "name", "expected"),
    [
        ({"delivery_mode": 2}, "header", "durable", (AmqpType.BOOLEAN, True)),
        ({"delivery_mode": 1}, "header", "durable", (AmqpType.BOOLEAN, False)),
        ({}, "header", "durable", (AmqpType.BOOLEAN, False)),
        ({"priority": 7}, "header", "priority", (AmqpType.UBYTE, 7)),
        ({"expiration": "60000"}, "header", "ttl", (AmqpType.UINT, 60000)),
        ({"expiration": "0"}, "header", "ttl", (AmqpType.UINT, 0)),
        ({"expiration": "4294967295"}, "header", "ttl", (AmqpType.UINT, 2**32 - 1)),
        ({"expiration": "7776000000"}, "header", "ttl", (AmqpType.UINT, 2**32 - 1)),
        ({"expiration": "315360000000"}, "header", "ttl", (AmqpType.UINT, 2**32 - 1)),
        ({"message_id": "m1"}, "properties", "message-id", (AmqpType.STRING, "m1")),
        ({"message_id": URN}, "properties", "message-id", (AmqpType.UUID, uuid.UUID(URN))),
        ({"correlation_id": "c1"}, "properties", "correlation-id", (AmqpType.STRING, "c1")),
        ({"correlation_id": URN.upper()}, "properties", "correlation-id", (AmqpType.STRING, URN.upper())),
        ({"user_id": "guest"}, "properties", "user-id", (AmqpType.BINARY, b"guest")),
        ({"reply_to": "a/b c"}, "properties", "reply-to", (AmqpType.STRING, "/queues/a%2Fb%20c")),
        ({"content_type": "text/plain"}, "properties", "content-type", (AmqpType.SYMBOL, "text/plain")),
        ({"content_encoding": "gzip"}, "properties", "content-encoding", (AmqpType.SYMBOL, "gzip")),
        ({"timestamp": 1700000000}, "properties", "creation-time", (AmqpType.TIMESTAMP, 1700000000000)),
        ({"timestamp": -1}, "properties", "creation-time", (AmqpType.TIMESTAMP, -1000)),
        ({"app_id": "shop"}, "properties", "group-id", (AmqpType.STRING, "shop")),
        ({"type": "order"}, "message_annotations", "x-basic-type", (AmqpType.STRING, "order")),
        ({}, "message_annotations", "x-exchange", (AmqpType.STRING, "")),
        ({}, "message_annotations", "x-routing-key", (AmqpType.STRING, "orders")),
    ],
)
def test_each_property_has_its_place(properties, section, name, expected):
    values = getattr(stored(**properties), section)
    assert values[name] == AmqpValue(*expected)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (long_string("emea"), (AmqpType.STRING, "emea")),
        (long_string(b"\xff"), (AmqpType.BINARY, b"\xff")),
        (long_string(b"a\0b"), (AmqpType.BINARY, b"a\0b")),
        (long_string("x" * 4096), (AmqpType.STRING, "x" * 4096)),
        (long_string("x" * 4097), (AmqpType.BINARY, b"x" * 4097)),
        (long(5), (AmqpType.LONG, 5)),
        (long(-(2**63)), (AmqpType.LONG, -(2**63))),
        (Field(FieldType.INT, -129), (AmqpType.INT, -129)),
        (Field(FieldType.SHORT, -5), (AmqpType.SHORT, -5)),
        (Field(FieldType.BYTE, -5), (AmqpType.BYTE, -5)),
        (Field(FieldType.UNSIGNED_BYTE, 200), (AmqpType.UBYTE, 200)),
        (Field(FieldType.UNSIGNED_SHORT, 60000), (AmqpType.USHORT, 60000)),
        (Field(FieldType.UNSIGNED_INT, 2**32 - 1), (AmqpType.UINT, 2**32 - 1)),
        (Field(FieldType.UNSIGNED_INT, 0), (AmqpType.UINT, 0)),
        (boolean(True), (AmqpType.BOOLEAN, True)),
        (Field(FieldType.FLOAT, 0.5), (AmqpType.FLOAT, 0.5)),
        (Field(FieldType.DOUBLE, 0.1), (AmqpType.DOUBLE, 0.1)),
        (Field(FieldType.TIMESTAMP, 7), (AmqpType.TIMESTAMP, 7000)),
        (Field(FieldType.TIMESTAMP, -1), (AmqpType.TIMESTAMP, -1000)),
        (Field(FieldType.VOID, None), (AmqpType.NULL, None)),
        (Field(FieldType.BINARY, b"ab"), (AmqpType.BINARY, b"ab")),
    ],
)
def test_a_header_becomes_an_application_property_of_its_type(field, expected):
    message = stored(headers={"key": field, "x-key": field})
    assert message.application_properties == {"key": AmqpValue(*expected)}
    assert message.message_annotations["x-key"] == AmqpValue(*expected)


def test_compound_headers_are_annotations_or_nothing():
    array = Field(FieldType.ARRAY, (long(1), long_string("a")))
    nested = table({"k": array, "empty": Field(FieldType.ARRAY, ())})
    message = stored(headers={"array": array, "table": nested, "x-array": array, "x-table": nested})
    assert message.application_properties is None
    elements = AmqpValue(AmqpType.LIST, (AmqpValue(AmqpType.LONG, 1), AmqpValue(AmqpType.STRING, "a")))
    assert message.message_annotations["x-array"] == elements
    assert message.message_annotations["x-table"] == AmqpValue(
        AmqpType.MAP,
        (
            (AmqpValue(AmqpType.SYMBOL, "k"), elements),
            (AmqpValue(AmqpType.SYMBOL, "empty"), AmqpValue(AmqpType.LIST, ())),
        ),
    )


def test_further_recipients_are_routed_to_and_only_the_open_ones_are_kept():
    headers = {
        "CC": Field(FieldType.ARRAY, (long_string("a"),)),
        "BCC": Field(FieldType.ARRAY, (long_string("b"),)),
    }
    found = publication("", "orders", BasicProperties(headers=headers))
    assert found.routing_keys == ("a", "b")
    annotations = Message.decode(found.stored(b"")).message_annotations
    assert annotations["x-cc"] == AmqpValue(AmqpType.LIST, (AmqpValue(AmqpType.STRING, "a"),))
    assert not any("bcc" in name.lower() for name in annotations)


def test_a_filter_value_is_taken_from_its_header_and_kept():
    found = publication("", "orders", BasicProperties(headers={"x-stream-filter-value": long_string("AMER")}))
    assert found.filter_value == b"AMER"
    assert plain(Message.decode(found.stored(b"")).message_annotations)["x-stream-filter-value"] == "AMER"


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"headers": {"x-stream-filter-value": long(5)}}, "a filter value is a long string"),
        ({"headers": {"price": Field(FieldType.DECIMAL, (2, 995))}}, "'price' is a decimal"),
        ({"headers": {"CC": long_string("a")}}, "header CC"),
        ({"headers": {"BCC": Field(FieldType.ARRAY, (long(1),))}}, "header BCC"),
        ({"expiration": "soon"}, "invalid expiration 'soon'"),
        ({"expiration": "-1"}, "invalid expiration '-1'"),
        ({"expiration": "315360000001"}, "invalid expiration"),
        ({"expiration": "0" * 19 + "315360000001"}, "invalid expiration"),
        ({"timestamp": 2**63 - 1}, "beyond all timestamps"),
        ({"headers": {"at": Field(FieldType.TIMESTAMP, -(2**63))}}, "at -9223372036854775808 is beyond"),
    ],
)
def test_what_cannot_be_stored_is_refused(properties, reason):
    with pytest.raises(PreconditionFailedError, match=reason):
        publication("", "orders", BasicProperties(**properties))


def test_a_body_is_one_data_section_whatever_its_size():
    for body in (b"", b"x", b"x" * 255, b"x" * 256, b"x" * 70_000):
        assert stored(body).body == Body.data(body)


def test_a_body_of_amqp_sections_is_stored_as_them():
    sections_of_value = Message(Body.value({"a": 1})).encode()
    assert stored(sections_of_value, type="amqp-1.0").body == Body.value({"a": 1})
    for no_sections in (b"no sections", b"", Message(b"x", subject="s").encode()):
        assert stored(no_sections, type="amqp-1.0").body == Body.data(no_sections)


@pytest.mark.parametrize(
    "expression",
    [
        "region = 'emea' AND quantity > 5",
        "properties.message_id = 'm1' AND p.content_type = 'text/plain'",
        "p.group_id = 'shop' AND p.user_id = 0x6775657374 AND h.priority = 3",
        "p.creation_time = 1700000000000 AND p.subject IS NULL AND p.to IS NULL",
        "p.reply_to = '/queues/answers'",
    ],
)
def test_filters_see_what_was_published(expression):
    message = stored(
        headers={"region": long_string("emea"), "quantity": Field(FieldType.INT, 9)},
        message_id="m1",
        content_type="text/plain",
        app_id="shop",
        user_id="guest",
        priority=3,
        timestamp=1700000000,
        reply_to="answers",
    )
    assert Filter.parse(expression, "rabbitmq").matches(message, now_ms=0)


def test_headers_seen_before_give_the_same():
    header = encode_content_header(BasicProperties(message_id="m", headers={"a": long(1)}), 3)
    assert read_publication("e", "k", header) == publication("e", "k", decode_properties(header))
    assert read_publication("e", "k", header) is read_publication("e", "k", header)
    long_one = encode_content_header(BasicProperties(message_id="m", headers={"a": long_string("x" * 500)}), 3)
    assert read_publication("e", "k", long_one) is not read_publication("e", "k", long_one)


# and back


def delivered(message: Message) -> tuple[BasicProperties, bytes]:
    found, body = read_delivery(message.encode())
    return found.properties, body


@given(
    properties_with(storable_tables), st.binary(max_size=300), st.sampled_from(("", "shop", "é")), st.text(max_size=20)
)
def test_what_is_published_is_what_is_delivered(properties, body, exchange, routing_key):
    if properties.type == "amqp-1.0":
        properties.type = None
    found, delivered_body = read_delivery(publication(exchange, routing_key, properties).stored(body))
    assert (found.exchange, found.routing_key, delivered_body) == (exchange, routing_key, body)
    assert found.properties == as_delivered(properties)


def as_delivered(published: BasicProperties) -> BasicProperties:
    """What the tables say is left of published properties."""
    headers: dict[str, Field] = {}
    lost = {"x-exchange", "x-routing-key", "x-death", OFFSET_HEADER}
    for name, field in (published.headers or {}).items():
        is_annotation = name.startswith("x-")
        if is_annotation and (name in lost or name.startswith("x-basic-")):
            continue
        if name == OFFSET_HEADER or (not is_annotation and field.type in (FieldType.ARRAY, FieldType.TABLE)):
            continue
        headers["CC" if name == "x-cc" else name] = _binary_as_long_string(field)
    user_id = published.user_id
    is_user_id = user_id is not None and "\0" not in user_id and _is_utf8(user_id)
    if published.type is None and "x-basic-type" in (published.headers or {}):
        kind = published.headers["x-basic-type"]
        is_text = kind.type is FieldType.LONG_STRING and len(kind.value) <= 255 and _is_string(kind.value)
        published_type = kind.value.decode("utf-8", "surrogateescape") if is_text else None
    else:
        published_type = published.type
    return BasicProperties(
        content_type=published.content_type,
        content_encoding=published.content_encoding,
        headers=headers,
        delivery_mode=2 if published.delivery_mode == 2 else 1,
        priority=published.priority,
        correlation_id=published.correlation_id,
        reply_to=_reply_to(published.reply_to),
        expiration=published.expiration,
        message_id=published.message_id,
        timestamp=published.timestamp,
        type=published_type,
        user_id=user_id if is_user_id else None,
        app_id=published.app_id,
    )


def _is_string(value: bytes) -> bool:
    return b"\0" not in value and _is_utf8(value.decode("utf-8", "surrogateescape"))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reply_to(text: str | None) -> str | None:
    """Quoted, it may be longer than a short string, and then has no place."""
    if text is None:
        return None
    octets = text.encode("utf-8", "surrogateescape")
    plain_octets = sum((chr(octet).isalnum() and octet < 128) or octet in b"_.-~" for octet in octets)
    return text if len("/queues/") + plain_octets + 3 * (len(octets) - plain_octets) <= 255 else None


def _binary_as_long_string(field: Field) -> Field:
    if field.type is FieldType.BINARY:
        return Field(FieldType.LONG_STRING, field.value)
    if field.type is FieldType.ARRAY:
        return Field(FieldType.ARRAY, tuple(map(_binary_as_long_string, field.value)))
    if field.type is FieldType.TABLE:
        return Field(FieldType.TABLE, {name: _binary_as_long_string(value) for name, value in field.value.items()})
    return field


@pytest.mark.parametrize(
    ("properties", "name", "expected"),
    [
        ({"durable": True}, "delivery_mode", 2),
        ({"durable": False}, "delivery_mode", 1),
        ({"priority": 7}, "priority", 7),
        ({"ttl": 60000}, "expiration", "60000"),
        ({"message_id": "m1"}, "message_id", "m1"),
        ({"message_id": uuid.UUID(URN)}, "message_id", URN),
        ({"message_id": 2**64 - 1}, "message_id", "18446744073709551615"),
        ({"correlation_id": 0}, "correlation_id", "0"),
        ({"user_id": b"guest"}, "user_id", "guest"),
        ({"user_id": b"\xff"}, "user_id", None),
        ({"user_id": b"a\0"}, "user_id", None),
        ({"reply_to": "/queues/a%2Fb"}, "reply_to", "a/b"),
        ({"reply_to": "/exchanges/e"}, "reply_to", "/exchanges/e"),
        ({"reply_to": "x" * 256}, "reply_to", None),
        # What counts is the name, not how long it is when it is encoded.
        ({"reply_to": "/queues/" + "x" * 255}, "reply_to", "x" * 255),
        ({"reply_to": "/queues/" + "%C3%BC" * 127}, "reply_to", "ü" * 127),
        ({"reply_to": "/queues/" + "x" * 256}, "reply_to", None),
        ({"content_type": "text/plain"}, "content_type", "text/plain"),
        ({"content_encoding": "gzip"}, "content_encoding", "gzip"),
        ({"creation_time": 1700000000999}, "timestamp", 1700000000),
        ({"creation_time": -1500}, "timestamp", -1),
        ({"group_id": "shop"}, "app_id", "shop"),
        ({"message_annotations": {"x-basic-type": "order"}}, "type", "order"),
    ],
)
def test_each_field_comes_back_to_its_property(properties, name, expected):
    assert getattr(delivered(Message(b"", **properties))[0], name) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", long_string("text")),
        (AmqpValue(AmqpType.SYMBOL, "s"), long_string("s")),
        (b"\xff", long_string(b"\xff")),
        (5, long(5)),
        (AmqpValue(AmqpType.ULONG, 7), long(7)),
        (AmqpValue(AmqpType.ULONG, 2**63 - 1), long(2**63 - 1)),
        (AmqpValue(AmqpType.ULONG, 2**63), long(-(2**63))),
        (AmqpValue(AmqpType.ULONG, 2**64 - 1), long(-1)),
        (AmqpValue(AmqpType.UINT, 2**32 - 1), Field(FieldType.UNSIGNED_INT, 2**32 - 1)),
        (AmqpValue(AmqpType.USHORT, 2**16 - 1), Field(FieldType.UNSIGNED_SHORT, 2**16 - 1)),
        (AmqpValue(AmqpType.UBYTE, 255), Field(FieldType.UNSIGNED_BYTE, 255)),
        (AmqpValue(AmqpType.BYTE, -128), Field(FieldType.BYTE, -128)),
        (AmqpValue(AmqpType.SHORT, -(2**15)), Field(FieldType.SHORT, -(2**15))),
        (AmqpValue(AmqpType.UINT, 0), Field(FieldType.UNSIGNED_INT, 0)),
        (AmqpValue(AmqpType.INT, -1), Field(FieldType.INT, -1)),
        (AmqpValue(AmqpType.TIMESTAMP, 7999), Field(FieldType.TIMESTAMP, 7)),
        (AmqpValue(AmqpType.TIMESTAMP, -1), Field(FieldType.TIMESTAMP, 0)),
        (AmqpValue(AmqpType.TIMESTAMP, -1500), Field(FieldType.TIMESTAMP, -1)),
        (None, Field(FieldType.VOID, None)),
        (True, boolean(True)),
        (uuid.UUID(URN), long_string(URN)),
        (AmqpValue(AmqpType.CHAR, 233), Field(FieldType.UNSIGNED_INT, 233)),
        ([1, "a"], Field(FieldType.ARRAY, (long(1), long_string("a")))),
        ({"k": 1}, table({"k": long(1)})),
    ],
)
def test_application_properties_and_annotations_become_headers(value, expected):
    message = Message(b"", application_properties={"key": value}, message_annotations={"x-key": value, "other": value})
    assert delivered(message)[0].headers == {"x-key": expected, "key": expected}


@pytest.mark.parametrize(
    "value",
    [
        AmqpValue(AmqpType.DECIMAL32, bytes(4)),
        AmqpValue(AmqpType.DESCRIBED, Described(AmqpValue(AmqpType.ULONG, 1), AmqpValue(AmqpType.ULONG, 1))),
    ],
)
def test_values_without_a_place_in_a_table_are_left_out(value):
    message = Message(b"", application_properties={"key": value, "a": 1}, message_annotations={"x-l": [value, 1]})
    headers = delivered(message)[0].headers
    assert headers == {"a": long(1), "x-l": Field(FieldType.ARRAY, (long(1),))}


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_ids_that_are_no_short_strings_are_headers(name):
    header = f"x-{name.replace('_', '-')}"
    for value, expected in (
        (b"ab", Field(FieldType.BINARY, b"ab")),
        ("x" * 256, long_string("x" * 256)),
    ):
        found = delivered(Message(b"", **{name: value}))[0]
        assert (getattr(found, name), found.headers) == (None, {header: expected})


def test_of_equal_names_the_annotation_counts_and_the_first():
    message = Message(
        b"",
        message_annotations={"x-a": 1},
        application_properties=[("x-a", 2), ("b", 3), ("b", 4), (OFFSET_HEADER, 5), ("y" * 256, 6)],
    )
    assert delivered(message)[0].headers == {"x-a": long(1), "b": long(3)}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (Body.data(b"a", b"", b"bc"), b"abc"),
        (b"x" * 300, b"x" * 300),
        (None, b""),
    ],
)
def test_bytes_are_the_body(body, expected):
    found, octets = delivered(Message(body, footer={"f": 1}))
    assert (octets, found.type) == (expected, None)
    assert delivered(Message(body))[1] == expected


@pytest.mark.parametrize("body", [Body.value("text"), Body.value({"a": 1}), Body.sequence([1], [2])])
def test_other_bodies_are_handed_out_as_sections(body):
    found, octets = delivered(Message(body, subject="s", message_annotations={"x-basic-type": "order"}))
    assert (found.type, octets) == ("amqp-1.0", Message(body).encode())
    # Published again, it is the message that it was.
    assert stored(octets, type="amqp-1.0").body == body


@given(sections, bodies, st.integers(0, 2**63 - 1))
def test_any_message_has_a_header_that_decodes(message_sections, body, offset):
    message = Message.of_sections(message_sections, body)
    found, octets = read_delivery(message.encode())
    header = found.content_header(offset, len(octets))
    assert decode_content_header(header)[0] == len(octets)
    headers = decode_properties(header).headers
    assert next(iter(headers)) == OFFSET_HEADER
    assert headers[OFFSET_HEADER] == long(offset)
    assert encode_table(headers) == encode_table(decode_table(encode_table(headers), 0, len(encode_table(headers)))[0])


@given(sections, bodies)
def test_headers_are_those_of_the_decoded_message(message_sections, body):
    message = Message.of_sections(message_sections, body)
    found, octets = read_delivery(message.encode())
    annotations = message.message_annotations or {}
    expected = {name for name in annotations if name.startswith("x-") and _is_short(name)}
    expected |= {name for name in message.application_properties or {} if _is_short(name)}
    headers = set(found.properties.headers or {}) - {"x-message-id", "x-correlation-id"}
    assert headers <= expected
    kind = message.body.section.name if message.body else "DATA"
    if kind == "DATA":
        assert octets == (message.body.octets() if message.body else b"")
    else:
        assert found.properties.type == "amqp-1.0"
    created = (message.properties or {}).get("creation-time")
    is_time = created is not None and created.type is AmqpType.TIMESTAMP
    assert found.properties.timestamp == (math.trunc(Fraction(created.value, 1000)) if is_time else None)


def _is_short(name: str) -> bool:
    return len(name.encode("utf-8", "surrogateescape")) <= 255


@given(st.binary(max_size=80) | st.binary(max_size=40).map(lambda octets: b"\0Sr\xc1" + octets))
def test_bytes_that_are_no_message_are_the_body(octets):
    try:
        Message.decode(octets).decode_all()
    except MessageError:
        pass
    else:
        octets = b"\xff" + octets
    found, body = read_delivery(octets)
    # A section that is framed well and holds nonsense is a message for filters, too.
    assert body == octets or octets.endswith(body)
    assert decode_properties(found.content_header(3, len(body))).headers[OFFSET_HEADER] == long(3)


def test_sections_in_unusual_encodings_are_read():
    symbolic = b"\0\xa3\x14amqp:properties:list\xc0\x05\x01\xa1\x02m1"
    wide = b"\0\x80\0\0\0\0\0\0\0\x75\xb0\0\0\0\x02hi"
    found, body = read_delivery(symbolic + wide)
    assert (found.properties.message_id, body) == ("m1", b"hi")


def test_an_id_that_is_no_text_does_not_take_the_place_of_a_header():
    properties = {"message_id": b"\1", "correlation_id": b"\2"}
    message = Message(b"", properties=properties, application_properties={"x-message-id": "mine"})
    found, _ = read_delivery(message.encode())
    assert found.properties.headers == {
        "x-message-id": long_string("mine"),
        "x-correlation-id": Field(FieldType.BINARY, b"\2"),
    }
    assert found.header_end.count(b"x-message-id") == 1


def test_messages_that_differ_in_their_properties_only_keep_what_they_share():
    def message(number: int) -> bytes:
        properties = {"message_id": f"m{number}", "creation_time": AmqpValue(AmqpType.TIMESTAMP, 1000 * number)}
        annotations = {"x-exchange": "e", "x-routing-key": "k", "x-opt": 5}
        return Message(
            b"", properties=properties, application_properties={"color": "red"}, message_annotations=annotations
        ).encode()

    for number in range(3):
        found, _ = read_delivery(message(number))
        properties = found.properties
        assert (found.exchange, found.routing_key) == ("e", "k")
        assert (properties.message_id, properties.timestamp) == (f"m{number}", number)
        assert {name: field.value for name, field in properties.headers.items()} == {"x-opt": 5, "color": b"red"}


def test_arrays_are_arrays():
    array = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.INT, (AmqpValue(AmqpType.INT, 1),)))
    headers = delivered(Message(b"", message_annotations={"x-a": array}))[0].headers
    assert headers == {"x-a": Field(FieldType.ARRAY, (Field(FieldType.INT, 1),))}
