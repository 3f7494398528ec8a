"""Values and messages as JSON: typed survives, plain is for reading, wrong JSON is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import ConfigError
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Described, Message, Section
from headgate.message.typed_json import from_json, plain_json, to_json
from message_values import bodies, sections, typed_values


def of(name: str, value: object) -> AmqpValue:
    return AmqpValue(AmqpType(name), value)


FIVE = of("int", 5)

TYPED = [
    (of("null", None), {"t": "null"}, None),
    (of("boolean", True), {"t": "boolean", "v": True}, True),
    (of("ulong", 2**64 - 1), {"t": "ulong", "v": 2**64 - 1}, 2**64 - 1),
    (of("float", 0.5), {"t": "float", "v": 0.5}, 0.5),
    (of("double", float("nan")), {"t": "double", "v": "NaN"}, "NaN"),
    (of("double", float("inf")), {"t": "double", "v": "Infinity"}, "Infinity"),
    (of("float", float("-inf")), {"t": "float", "v": "-Infinity"}, "-Infinity"),
    (of("decimal32", b"\0\1\2\3"), {"t": "decimal32", "hex": "00010203"}, {"hex": "00010203"}),
    (of("char", 0x1F60E), {"t": "char", "v": "😎"}, "😎"),
    (of("char", 0xD800), {"t": "char", "v": 0xD800}, 0xD800),
    (of("char", 0xDFFF), {"t": "char", "v": 0xDFFF}, 0xDFFF),
    (of("char", 0xE000), {"t": "char", "v": "\ue000"}, "\ue000"),
    (of("char", 0x110000), {"t": "char", "v": 0x110000}, 0x110000),
    (of("timestamp", -1), {"t": "timestamp", "v": -1}, -1),
    (of("binary", b"\xff"), {"t": "binary", "hex": "ff"}, {"hex": "ff"}),
    (of("string", "é"), {"t": "string", "v": "é"}, "é"),
    (of("string", "a\udcff"), {"t": "string", "hex": "61ff"}, {"hex": "61ff"}),
    (of("symbol", "a"), {"t": "symbol", "v": "a"}, "a"),
    (of("list", (FIVE,)), {"t": "list", "v": [{"t": "int", "v": 5}]}, [5]),
    (
        of("map", ((of("string", "k"), FIVE),)),
        {"t": "map", "v": [[{"t": "string", "v": "k"}, {"t": "int", "v": 5}]]},
        {"k": 5},
    ),
    (
        of("map", ((FIVE, FIVE),)),
        {"t": "map", "v": [[{"t": "int", "v": 5}, {"t": "int", "v": 5}]]},
        [[5, 5]],
    ),
    (
        of("map", ((of("string", "k"), FIVE), (of("symbol", "k"), FIVE))),
        {"t": "map", "v": [[{"t": kind, "v": "k"}, {"t": "int", "v": 5}] for kind in ("string", "symbol")]},
        [["k", 5], ["k", 5]],
    ),
    (of("array", AmqpArray(AmqpType.INT, (FIVE,))), {"t": "array", "of": "int", "v": [5]}, [5]),
    (
        of("array", AmqpArray(AmqpType.BINARY, (of("binary", b"\1"),))),
        {"t": "array", "of": "binary", "v": [{"hex": "01"}]},
        [{"hex": "01"}],
    ),
    (
        of("array", AmqpArray(AmqpType.NULL, (of("null", None),), FIVE)),
        {"t": "array", "of": "null", "v": [None], "descriptor": {"t": "int", "v": 5}},
        [None],
    ),
    (
        of("described", Described(of("symbol", "d"), FIVE)),
        {"t": "described", "descriptor": {"t": "symbol", "v": "d"}, "v": {"t": "int", "v": 5}},
        5,
    ),
]


@pytest.mark.parametrize(("value", "typed", "plain"), TYPED, ids=lambda case: repr(case)[:40])
def test_typed_and_plain_json_of_each_type(value: AmqpValue, typed: Any, plain: Any) -> None:
    assert to_json(value) == typed
    assert from_json(typed) == value
    assert plain_json(value) == plain


def test_typed_json_takes_what_other_writers_give() -> None:
    assert from_json({"t": "double", "v": 5}) == of("double", 5.0)
    assert from_json({"t": "float", "v": 0.1}) == of("float", 0.10000000149011612)


@given(typed_values)
def test_any_value_survives_typed_json(value: AmqpValue) -> None:
    text = json.dumps(to_json(value), allow_nan=False, ensure_ascii=False)
    assert from_json(json.loads(text.encode())) == value
    json.dumps(plain_json(value), allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (5, 'a typed value is {"t": type, "v": value}, found 5'),
        ({"v": 5}, "a typed value is"),
        ({"t": 5}, "a typed value is"),
        ({"t": "integer", "v": 5}, "no AMQP type 'integer'; types are null, boolean"),
        ({"t": "int"}, 'a typed int has "v" beside "t"'),
        ({"t": "int", "v": 5, "w": 6}, 'a typed int has "v" beside "t"'),
        ({"t": "null", "v": None}, 'a typed null has nothing beside "t"'),
        ({"t": "binary", "v": "abc"}, 'a typed binary has "hex" beside "t"'),
        ({"t": "binary", "hex": "0g"}, "pairs of hex digits expected, found '0g'"),
        ({"t": "binary", "hex": 5}, "pairs of hex digits expected, found 5"),
        ({"t": "decimal64", "hex": "00"}, "decimal64 takes 8 bytes"),
        ({"t": "ubyte", "v": 256}, "ubyte takes an int from 0 to 255, found 256"),
        ({"t": "int", "v": True}, "int takes an int"),
        ({"t": "int", "v": "5"}, "int takes an int"),
        ({"t": "double", "v": "nan"}, "double takes a float"),
        ({"t": "double", "v": True}, "double takes a float"),
        ({"t": "double", "v": 10**400}, "double takes a float"),
        ({"t": "char", "v": "ab"}, "char takes an int"),
        ({"t": "uuid", "v": "5"}, "'5' is no uuid"),
        ({"t": "uuid", "v": 5}, "uuid takes a uuid.UUID"),
        ({"t": "string", "v": "\ud800"}, "string takes a str"),
        ({"t": "list", "v": 5}, '"v" of a typed list is a list, found 5'),
        ({"t": "list", "v": [5]}, "a typed value is"),
        ({"t": "map", "v": [5]}, "a typed map holds [key, value] pairs, found 5"),
        ({"t": "array", "v": [5]}, 'a typed array has "of", "v" beside "t"'),
        ({"t": "array", "of": "x", "v": [5]}, "no AMQP type 'x'"),
        ({"t": "array", "of": "null", "v": [5]}, "an array of nulls holds null"),
        ({"t": "array", "of": "int", "v": [{"t": "long", "v": 5, "w": 1}]}, 'a typed int has "v"'),
        ({"t": "described", "v": {"t": "null"}}, 'a typed described has "descriptor", "v" beside "t"'),
    ],
)
def test_wrong_typed_json_is_refused_with_what_was_found(typed: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_json(typed)
    assert reason in str(refusal.value)


def test_a_message_shows_its_sections() -> None:
    message = Message(
        "né".encode(),
        priority=5,
        subject="order.created",
        creation_time=0,
        application_properties={"region": "AMER", "n": AmqpValue(AmqpType.INT, 5), "b": b"\xff"},
        message_annotations={"x-stream-filter-value": "v"},
    )
    assert message.describe() == {
        "header": {"priority": 5},
        "message_annotations": {"x-stream-filter-value": "v"},
        "properties": {"subject": "order.created", "creation-time": 0},
        "application_properties": {"region": "AMER", "n": 5, "b": {"hex": "ff"}},
        "body": {"data": "né"},
    }
    assert message.describe(typed=True)["application_properties"] == {
        "region": {"t": "string", "v": "AMER"},
        "n": {"t": "int", "v": 5},
        "b": {"t": "binary", "hex": "ff"},
    }
    assert Message.of_description(message.describe(typed=True)) == message


def test_bodies_show_their_kind() -> None:
    assert Message(Body.data(b"a", b"\xff")).describe() == {"body": {"data": {"hex": "61ff"}}}
    assert Message(Body.sequence([1], ["a"])).describe() == {"body": {"sequence": [[1], ["a"]]}}
    assert Message(Body.value(None)).describe() == {"body": {"value": None}}
    assert Message(None).describe() == {}


def test_a_message_is_made_of_plain_json() -> None:
    made = Message.of_description(
        {
            "header": {"priority": 5},
            "properties": {"subject": "a", "creation_time": 0, "user-id": "guest"},
            "application_properties": {"n": 5, "x": 0.5, "l": [1], "h": {"hex": "ff"}, "m": {"k": 1}},
            "message_annotations": None,
            "body": "text",
        }
    )
    assert made == Message(
        b"text",
        priority=5,
        subject="a",
        creation_time=0,
        user_id="guest",
        application_properties={"n": 5, "x": 0.5, "l": [1], "h": b"\xff", "m": {"k": 1}},
    )


@given(sections, bodies)
@examples(0.5)
def test_any_message_survives_its_typed_description(held: dict[Section, AmqpValue], body: Body | None) -> None:
    message = Message.of_sections(held, body)
    text = json.dumps(message.describe(typed=True), allow_nan=False, ensure_ascii=False)
    again = Message.of_description(json.loads(text.encode()))
    if body is not None and body.section is Section.DATA:
        body = Body.data(body.octets() or b"")
    assert again.body == body
    assert {section: value for section in Section if (value := again.section(section)) is not None} == held


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ([], "a message is an object with header, properties"),
        ({"subject": "a"}, "a message has no 'subject'; it has header"),
        ({"properties": {"colour": "a"}}, "no field 'colour' in properties"),
        ({"properties": [["subject", "a"]]}, "properties: an object of names and values expected, found a list"),
        ({"header": 5}, "header: an object of names and values expected, found a int"),
        ({"application_properties": ["a"]}, "application_properties: [key, value] pairs expected"),
        ({"application_properties": {"n": {"t": "int", "v": "x"}}}, "application_properties: int takes an int"),
        ({"application_properties": {"n": {"hex": "x"}}}, "application_properties: pairs of hex digits"),
        ({"body": 5}, 'body: text, {"data": text'),
        ({"body": {"data": 5}}, 'body: text, {"data": text'),
        ({"body": {"data": "a", "value": "b"}}, 'body: text, {"data": text'),
        ({"body": {"sequence": [5]}}, "amqp_sequence cannot hold a AmqpValue"),
    ],
)
def test_a_wrong_description_is_refused_by_name(description: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Message.of_description(description)
    assert reason in str(refusal.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["t", "v", "hex", "of", "descriptor", "header", "body", "data", "footer", "k"]), inner
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_makes_a_message_and_a_value_or_is_refused(description: Any) -> None:
    for make in (from_json, Message.of_description):
        try:
            made = make(description)
        except ConfigError:
            continue
        assert isinstance(made, (AmqpValue, Message))
