"""Messages: made of Python values, decoded when looked at, fields as a filter sees them."""

from __future__ import annotations

import datetime
import json
import math
import pickle
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import ConfigError, MessageError
from headgate.message import AmqpType, AmqpValue, Body, FieldReference, Message, Section
from headgate.message.fields import HEADER_FIELDS, PROPERTIES_FIELDS
from headgate.message.typed_json import from_json
from message_values import bodies, sections
from strategies import damaged_messages, encoded_messages

VECTORS = Path(__file__).parent.parent / "vectors" / "rabbitmq_messages.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
PRIORITY = FieldReference(Section.HEADER, position=1)
SUBJECT = FieldReference(Section.PROPERTIES, position=3)


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


def application_property(key: str) -> FieldReference:
    return FieldReference(Section.APPLICATION_PROPERTIES, key=key.encode())


def annotation(key: str) -> FieldReference:
    return FieldReference(Section.MESSAGE_ANNOTATIONS, key=key.encode())


def exact_sections(message: Message) -> dict[Section, AmqpValue]:
    held = {section: message.section(section) for section in Section}
    return {section: value for section, value in held.items() if value is not None}


def test_all_recorded_messages_are_there() -> None:
    assert [row["idx"] for row in ROWS] == list(range(227))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["idx"]))
def test_a_recorded_message_decodes_to_its_recorded_fields(row: dict[str, Any]) -> None:
    message = Message.decode(bytes.fromhex(row["encoded_hex"]))
    for name in ("header", "properties", "application_properties", "message_annotations"):
        recorded = row.get(name)
        expected = None if recorded is None else {key: from_json(value) for key, value in recorded.items()}
        assert getattr(message, name) == expected
    assert message.body == Body.data(str(row["idx"]).encode())
    assert message.footer is None and message.delivery_annotations is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["idx"]))
def test_a_recorded_message_encodes_again_to_an_equal_one(row: dict[str, Any]) -> None:
    message = Message.decode(bytes.fromhex(row["encoded_hex"]))
    again = Message.of_sections(exact_sections(message), message.body)
    assert len(again.encode()) <= len(message.encode())
    for section in Section:
        mine, other = message.section(section), again.section(section)
        if mine is not None and mine.type is AmqpType.LIST:
            assert getattr(message, section.name.lower()) == getattr(again, section.name.lower())
        else:
            assert mine == other
    assert again.body == message.body
    made = Message(
        message.body,
        header=message.header,
        message_annotations=message.message_annotations,
        properties=message.properties,
        application_properties=message.application_properties,
    )
    assert made == again


@given(sections, bodies)
@examples(0.5)
def test_any_sections_and_body_survive_encoding_and_decoding(held: dict[Section, AmqpValue], body: Body | None) -> None:
    message = Message.of_sections(held, body)
    message.decode_all()
    assert exact_sections(message) == held
    assert message.body == body
    assert Message.of_sections(exact_sections(message), message.body) == message


@given(damaged_messages() | st.binary(max_size=40))
def test_any_bytes_decode_in_every_section_or_are_refused(data: bytes) -> None:
    assert_decodes_or_is_refused(data)


@given(sections, bodies)
@examples(0.5)
def test_every_truncation_decodes_or_is_refused(held: dict[Section, AmqpValue], body: Body | None) -> None:
    data = Message.of_sections(held, body).encode()
    for stop in range(len(data)):
        assert_decodes_or_is_refused(data[:stop])


def assert_decodes_or_is_refused(data: bytes) -> None:
    """No exception but `MessageError`, with a position in the bytes; after `decode_all` no access raises."""
    position = 0
    try:
        message = Message.decode(data)
        message.decode_all()
    except MessageError as refusal:
        position = refusal.position
    else:
        again = Message.of_sections(exact_sections(message), message.body)
        again.decode_all()
        assert again.body == message.body
        json.dumps([message.describe(), message.describe(typed=True)], allow_nan=False).encode()
    assert 0 <= position <= len(data)


def test_plain_values_take_the_types_of_their_fields() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    message = Message(
        b"{}",
        durable=True,
        priority=7,
        ttl=1000,
        first_acquirer=False,
        delivery_count=2,
        message_id=5,
        user_id="guest",
        to="t",
        subject="order.created",
        reply_to="r",
        correlation_id=uuid.UUID(int=1),
        content_type="application/json",
        content_encoding="gzip",
        absolute_expiry_time=0,
        creation_time=moment,
        group_id="g",
        group_sequence=9,
        reply_to_group_id="rg",
        application_properties={"region": "AMER", "price": 99.99, "n": 5, "premium": True, "none": None},
        message_annotations={"x-stream-filter-value": "order.created"},
        delivery_annotations={"d": 1},
        footer={"f": b"x"},
    )
    assert message.header == {
        "durable": of("boolean", True),
        "priority": of("ubyte", 7),
        "ttl": of("uint", 1000),
        "first-acquirer": of("boolean", False),
        "delivery-count": of("uint", 2),
    }
    assert message.properties == {
        "message-id": of("ulong", 5),
        "user-id": of("binary", b"guest"),
        "to": of("string", "t"),
        "subject": of("string", "order.created"),
        "reply-to": of("string", "r"),
        "correlation-id": of("uuid", uuid.UUID(int=1)),
        "content-type": of("symbol", "application/json"),
        "content-encoding": of("symbol", "gzip"),
        "absolute-expiry-time": of("timestamp", 0),
        "creation-time": of("timestamp", 1_767_225_600_000),
        "group-id": of("string", "g"),
        "group-sequence": of("uint", 9),
        "reply-to-group-id": of("string", "rg"),
    }
    assert message.application_properties == {
        "region": of("string", "AMER"),
        "price": of("double", 99.99),
        "n": of("long", 5),
        "premium": of("boolean", True),
        "none": of("null", None),
    }
    assert message.message_annotations == {"x-stream-filter-value": of("string", "order.created")}
    assert message.delivery_annotations == {"d": of("long", 1)}
    assert message.footer == {"f": of("binary", b"x")}
    assert list(message.header) == list(HEADER_FIELDS)
    assert list(message.properties) == list(PROPERTIES_FIELDS)


def test_fields_come_hyphenated_or_not_by_keyword_or_mapping() -> None:
    one = Message(b"x", subject="a", priority=1, creation_time=0)
    assert one == Message(b"x", header={"priority": 1}, properties={"creation-time": 0, "subject": "a"})
    assert one == Message(b"x", header={"priority": 1}, properties={"creation_time": 0}, subject="a")


def test_the_bytes_of_a_message_are_the_smallest_ones() -> None:
    message = Message(b"x", subject="a", priority=3, application_properties={"n": 5})
    assert message.encode().hex() == ("005370c00402405003005373c00704404040a10161005374c10602a1016e5505005375a00178")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"colour": "red"}, "no field 'colour' in properties; it has message-id, user-id"),
        ({"header": {"subject": "a"}}, "no field 'subject' in header; it has durable"),
        ({"properties": {"subject": "a"}, "subject": "b"}, "subject is given twice"),
        ({"properties": {"reply-to": "a", "reply_to": "b"}}, "reply-to is given twice"),
        ({"priority": 256}, "priority: ubyte takes an int from 0 to 255, found 256"),
        ({"creation_time": "2026"}, "creation-time: timestamp takes an int"),
        ({"message_id": 1.5}, "message-id takes an int, str, bytes or UUID, found a float"),
        ({"application_properties": {"n": object()}}, "no AMQP type for a object"),
        ({"body": "text"}, "a body is bytes, a Body or None, found a str"),
    ],
)
def test_wrong_names_and_values_are_refused_by_name(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Message(**arguments)
    assert reason in str(refusal.value)


def test_exact_types_go_into_a_field_whatever_its_type() -> None:
    assert Message(subject=of("int", 5)).value(SUBJECT) == of("int", 5)
    assert Message(application_properties={of("symbol", "k"): 1}).application_properties == {}


def test_a_field_by_position_is_absent_null_or_its_value() -> None:
    assert Message(b"").value(PRIORITY) is None
    assert Message(b"", durable=True).value(PRIORITY) is None
    assert Message(b"", ttl=1).value(PRIORITY) == of("null", None)
    assert Message(b"", priority=0).value(PRIORITY) == of("ubyte", 0)
    assert Message(b"", subject="a").value(SUBJECT) == of("string", "a")
    assert Message(b"", subject="a").value(FieldReference(Section.PROPERTIES, position=13)) is None


def test_a_field_by_key_is_absent_null_or_its_value() -> None:
    message = Message(application_properties={"n": None, "": 1, "é": 2, "region": "AMER"})
    assert message.value(application_property("n")) == of("null", None)
    assert message.value(application_property("")) == of("long", 1)
    assert message.value(application_property("é")) == of("long", 2)
    assert message.value(application_property("region")) == of("string", "AMER")
    assert message.value(application_property("regio")) is None
    assert message.value(annotation("n")) is None


def test_of_equal_keys_the_first_counts() -> None:
    message = Message(application_properties=[("n", 1), ("n", 2)], message_annotations=[("n", 3), ("n", 4)])
    assert message.value(application_property("n")) == of("long", 1)
    assert message.value(annotation("n")) == of("long", 3)
    assert message.application_properties == {"n": of("long", 1)}
    assert message.message_annotations == {"n": of("long", 3)}
    assert len(message.section(Section.APPLICATION_PROPERTIES).value) == 2


@pytest.mark.parametrize(
    "useless",
    [
        "45",
        "c00100",
        "c10100",
        "e00200a1",
        "00a301615401",
        "7400000000",
        "827ff8000000000000",
        "727f800000",
        "72ff800000",
    ],
)
def test_of_equal_keys_one_without_a_value_gives_way(useless: str) -> None:
    first = bytes.fromhex("a1016e" + useless)
    for second, counts in (("a1016e5405", of("int", 5)), ("a1016e40", of("null", None))):
        elements = first + first + bytes.fromhex(second) + bytes.fromhex("a1016e5407")
        data = b"\0\x53\x74\xc1" + bytes([len(elements) + 1, 8]) + elements
        assert Message.decode(data).value(application_property("n")) == counts


def test_keys_are_strings_in_application_properties_and_strings_or_symbols_in_annotations() -> None:
    pairs = [(of("symbol", "n"), 1), (of("binary", b"n"), 2), (of("string", "n"), 3)]
    message = Message(application_properties=pairs, message_annotations=list(reversed(pairs)))
    assert message.value(application_property("n")) == of("long", 3)
    assert message.value(annotation("n")) == of("long", 3)


def test_compounds_and_described_values_have_a_type_and_no_value() -> None:
    encoded = {"list": "c002ffff", "map": "c1020140", "array": "e000", "described": "00a3016140"}
    for kind, value in encoded.items():
        element = bytes.fromhex("a1016e" + value)
        data = b"\0\x53\x74\xc1" + bytes([len(element) + 1, 2]) + element
        assert Message.decode(data).value(application_property("n")) == of(kind, None)


def test_a_value_that_does_not_decode_is_seen_when_the_section_is_looked_at() -> None:
    message = Message.decode(bytes.fromhex("005370c00501" + "c002ffff" + "005375a00178"))
    assert message.value(FieldReference(Section.HEADER, position=0)) == of("list", None)
    assert message.body == Body.data(b"x")
    with pytest.raises(MessageError) as refusal:
        message.section(Section.HEADER)
    assert refusal.value.position == 9
    with pytest.raises(MessageError):
        message.decode_all()


def test_annotations_are_read_up_to_where_their_framing_breaks() -> None:
    message = Message.decode(bytes.fromhex("005372c10d06" + "a30161" + "5401" + "a30162" + "5402" + "a3ff"))
    assert message.value(annotation("a")) == of("int", 1)
    assert message.value(annotation("b")) == of("int", 2)
    assert message.value(annotation("c")) is None
    with pytest.raises(MessageError):
        message.section(Section.MESSAGE_ANNOTATIONS)


def test_more_fields_than_the_standard_has_are_refused_when_looked_at() -> None:
    message = Message.decode(bytes.fromhex("005370c00706404040404041"))
    assert message.value(PRIORITY) == of("null", None)
    with pytest.raises(MessageError, match="header has 5 fields, found 6"):
        message.section(Section.HEADER)


def _filters_can_use(value: AmqpValue) -> bool:
    if value.type in (AmqpType.FLOAT, AmqpType.DOUBLE):
        return math.isfinite(value.value)
    compounds = {AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY, AmqpType.DESCRIBED}
    return value.type not in compounds | {AmqpType.DECIMAL32, AmqpType.DECIMAL64, AmqpType.DECIMAL128}


@given(encoded_messages())
def test_a_field_is_the_same_seen_alone_and_in_its_section(data: bytes) -> None:
    message = Message.decode(data)
    opaque = {AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY, AmqpType.DESCRIBED}
    for section in (Section.HEADER, Section.PROPERTIES):
        fields = message.section(section)
        for position, value in enumerate(() if fields is None else fields.value):
            seen = message.value(FieldReference(section, position=position))
            assert seen == (of(value.type.value, None) if value.type in opaque else value)
    for section in (Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES):
        pairs = message.section(section)
        by_use = section is Section.APPLICATION_PROPERTIES
        key_types = {AmqpType.STRING} if by_use else {AmqpType.STRING, AmqpType.SYMBOL}
        by_key: dict[bytes | None, list[AmqpValue]] = {}
        for key, value in () if pairs is None else pairs.value:
            if key.type in key_types:
                by_key.setdefault(key.octets(), []).append(value)
        for octets, values in by_key.items():
            expected = next(filter(_filters_can_use, values), values[0]) if by_use else values[0]
            seen = message.value(FieldReference(section, key=octets))
            assert seen == (of(expected.type.value, None) if expected.type in opaque else expected)


@given(damaged_messages())
def test_on_bytes_that_pass_no_field_ever_raises(data: bytes) -> None:
    try:
        message = Message.decode(data)
    except MessageError:
        return
    for position in range(14):
        for section in (Section.HEADER, Section.PROPERTIES):
            message.value(FieldReference(section, position=position))
    for section in (Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES):
        assert message.value(FieldReference(section, key=b"no such key in any message")) is None
        message.value(FieldReference(section, key=b"region"))


def test_bodies_of_every_kind_are_kept() -> None:
    for body in (
        None,
        Body.data(b""),
        Body.data(b"a", b"b"),
        Body.sequence([1, "a"], []),
        Body.value({"k": [None]}),
    ):
        assert Message(body).body == body
        assert Message(body, footer={"f": 1}).body == body
        assert Message(body, footer={"f": 1}).footer == {"f": of("long", 1)}


def test_the_octets_of_a_body_are_data_or_a_string_like_value() -> None:
    assert Body.data(b"a", b"b").octets() == b"ab"
    assert Body.value("é").octets() == b"\xc3\xa9"
    assert Body.value(b"\xff").octets() == b"\xff"
    assert Body.value(uuid.UUID(int=1)).octets() is None
    assert Body.value(5).octets() is None
    assert Body.sequence(["a"]).octets() is None


@pytest.mark.parametrize(
    ("section", "parts"),
    [
        (Section.HEADER, (b"",)),
        (Section.DATA, ()),
        (Section.DATA, ("text",)),
        (Section.AMQP_SEQUENCE, (b"",)),
        (Section.AMQP_SEQUENCE, (AmqpValue(AmqpType.LONG, 5),)),
        (Section.AMQP_VALUE, (AmqpValue(AmqpType.LONG, 5), AmqpValue(AmqpType.LONG, 5))),
    ],
)
def test_a_body_that_cannot_be_is_refused(section: Section, parts: Any) -> None:
    with pytest.raises(ConfigError):
        Body(section, parts)


@pytest.mark.parametrize(
    ("rest", "position", "reason"),
    [
        ("005375a1" + "0178", 3, "section 0x75 is a binary, found a string"),
        ("00537640", 3, "section 0x76 is a list, found a null"),
        ("00537745", None, ""),
        ("00537840", 3, "section 0x78 is a map, found a null"),
        ("00537740" + "00537740", 4, "does not belong here"),
        ("005375a000" + "00537740", 5, "does not belong here"),
        ("005375a000" + "00537645", 5, "does not belong here"),
        ("005375a000" + "00537045", 5, "does not belong here"),
        ("005378c10100" + "005378c10100", 6, "behind the footer"),
        ("005378c10100" + "005375a000", 6, "behind the footer"),
        ("005375a0", 4, "1 bytes expected"),
        ("005375a000" + "ff", 5, "begins with 0x00"),
        ("005375", 3, "1 bytes expected"),
    ],
)
def test_a_malformed_body_is_refused_when_looked_at(rest: str, position: int | None, reason: str) -> None:
    message = Message.decode(bytes.fromhex("00537045" + rest))
    assert message.header == {}
    if position is None:
        assert message.body == Body.value([])
        return
    for look in (lambda: message.body, lambda: message.footer, message.decode_all):
        with pytest.raises(MessageError) as refusal:
            look()
        assert reason in refusal.value.reason
        assert refusal.value.position == 4 + position


def test_symbolic_descriptors_are_read_in_every_section() -> None:
    def symbolic(name: str) -> bytes:
        return b"\0\xa3" + bytes([len(name)]) + name.encode()

    data = b"".join(
        (
            symbolic("amqp:header:list") + b"\xc0\x04\x02\x40\x50\x07",
            symbolic("amqp:delivery-annotations:map") + b"\xc1\x01\x00",
            symbolic("amqp:message-annotations:map") + b"\xc1\x01\x00",
            symbolic("amqp:properties:list") + b"\x45",
            symbolic("amqp:application-properties:map") + b"\xc1\x06\x02\xa1\x01n\x54\x05",
            symbolic("amqp:data:binary") + b"\xa0\x01x",
            symbolic("amqp:footer:map") + b"\xc1\x01\x00",
        )
    )
    message = Message.decode(data)
    message.decode_all()
    assert message.value(PRIORITY) == of("ubyte", 7)
    assert message.value(application_property("n")) == of("int", 5)
    assert message.body == Body.data(b"x") and message.footer == {}
    assert Message.of_sections(exact_sections(message), message.body).encode().startswith(b"\0\x53\x70")


def test_messages_are_equal_by_their_bytes_and_survive_pickling() -> None:
    one, other = Message(b"a", subject="s"), Message(b"a", subject="s")
    assert one == other and hash(one) == hash(other)
    assert one != Message(b"b", subject="s")
    assert one != one.encode()
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one) == f"<Message of {len(one.encode())} bytes: properties>"


def test_a_decoded_message_keeps_its_bytes_and_not_the_buffer() -> None:
    buffer = bytearray(Message(b"abc").encode())
    message = Message.decode(memoryview(buffer))
    buffer[-1] = 0
    assert message.body == Body.data(b"abc")
    wide = b"\0\x53\x75\xb0" + struct.pack(">I", 1) + b"x"
    assert Message.decode(wide).encode() == wide


@pytest.mark.parametrize("footer", [None, {"x": 1}])
def test_a_message_without_a_body_is_stored_with_an_empty_one_that_is_noted(footer: dict[str, Any] | None) -> None:
    stored = Message(None, message_annotations={"x-opt-tag": 1}, footer=footer, subject="ping").with_body()
    assert stored == Message(
        b"", message_annotations={"x-opt-tag": 1, "x-headgate-no-body": True}, footer=footer, subject="ping"
    )
    assert stored.with_body() is stored
    assert Message(Body.value(None)).with_body() == Message(Body.value(None))
