"""Values that are equal in any language have one fingerprint, and filters ask for all fingerprints that may match."""

from __future__ import annotations

import itertools
import math
import random
import struct
import uuid

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import json_texts
import kernel_strategies
import rocketmq_strategies
from amqp_strategies import amqp_expressions, amqp_messages
from body_strategies import body_expressions, body_messages, rare_messages
from examples import examples
from headgate.derived.lookup import fingerprints as package
from headgate.derived.lookup.fingerprints import ANY, NONE, fingerprints, fingerprints_of
from headgate.derived.lookup.keys import block_keys, matching_blocks
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.language.servicebus.values import DATE_TIME_OFFSET, TIME_SPAN, URI
from headgate.message import EncodedMessages, FieldReference, Message, Section, parse_field
from headgate.message.constructors import AmqpType
from headgate.message.types import AmqpValue
from servicebus_filters import filters as servicebus_texts
from servicebus_filters import messages as servicebus_messages
from strategies import compound, damaged_messages, encoded_messages, expressions, section, string, symbol

FIELDS = (
    "application_properties.s",
    "application_properties.n",
    "application_properties.t",
    "application_properties.a",
    "application_properties.region",
    "application_properties.price",
    "application_properties.größe",
    "properties.message_id",
    "properties.subject",
    "properties.creation_time",
    "header.priority",
    "message_annotations.s",
    *(IN_BODIES := ("body.s", "body.a", "body.b", "body.k[0]", "body.k[1].a", 'body."é"', "body.[0]")),
)
REFERENCES = [parse_field(field) for field in FIELDS]

KEYS = ("s", "S", "n", "region", "Region", "größe", "GRÖSSE")
UUID = uuid.UUID(int=2**100 + 12345)
VALUES = [b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01", b"\x43", b"\x44", b"\xa0\x00", string(b"")]
VALUES += [
    code + bytes([number]) for code in (b"\x50", b"\x51", b"\x52", b"\x53", b"\x54", b"\x55") for number in (5, 7, 255)
]
VALUES += [b"\x60\x00\x05", b"\x61\xff\xff", b"\x70\0\0\0\x07", b"\x71\xff\xff\xff\xff", b"\x73\0\0\0\x07"]
VALUES += [b"\x81" + struct.pack(">q", each) for each in (5, -1, 2**53, 2**53 + 1, 2**24 + 1, -(2**63), 2**63 - 1)]
VALUES += [b"\x80" + struct.pack(">Q", each) for each in (5, 2**53 + 1, 2**63 + 1, 2**64 - 1)]
VALUES += [b"\x83" + struct.pack(">q", each) for each in (5, 1_700_000_000_000)]
VALUES += [b"\x82" + struct.pack(">d", each) for each in (5.0, 0.1, -0.0, 2.0**53, 2.0**64, math.nan, math.inf, 7.5)]
VALUES += [b"\x72" + struct.pack(">f", each) for each in (5.0, 0.1, -0.0, 2.0**24, 7.5, math.nan)]
VALUES += [make(text) for make in (string, symbol) for text in (b"AMER", b"5", b"007", b"0.1", b"true", b"\xff\xfe")]
VALUES += [string(text.encode()) for text in (str(UUID), UUID.bytes.hex(), "16777217", "1.6777216E7", "5d", "Infinity")]
VALUES += [string(b"AMER", wide=True), b"\xa0\x04AMER", b"\x98" + UUID.bytes, b"\xa0\x10" + UUID.bytes]
VALUES += [b"\x74\0\0\0\x05", compound(0xC0, [b"\x41"]), b"\x00" + symbol(URI.encode()) + string(b"AMER")]
VALUES += [b"\x00" + symbol(name.encode()) + b"\x55\x05" for name in (TIME_SPAN, DATE_TIME_OFFSET)]

SOME = ["'AMER'", "'5'", "'007'", "'0.1'", "'true'", "''", f"'{UUID}'", f"'{UUID.bytes.hex()}'", "'16777217'"]
NUMBERS = ["5", "7", "-1", "0", "0.1", "5.0", "7.5", "9007199254740992", "16777217", "9007199254740993"]
CONSTANTS = {
    "rabbitmq": [*SOME, *NUMBERS, "TRUE", "FALSE", "0x414D4552", "18446744073709551615", "1.8446744073709552E19"],
    "amqp": [*SOME, *NUMBERS, "TRUE"],
    "rocketmq": [*SOME, *NUMBERS, "TRUE", "FALSE", "'Infinity'", "'NaN'", "'5d'"],
    "servicebus": [*SOME, *NUMBERS, "TRUE", "FALSE"],
}
PARAMETERS = [AmqpValue(AmqpType.UUID, UUID), AmqpValue(AmqpType.BINARY, b"AMER"), AmqpValue(AmqpType.CHAR, 7)]
PARAMETERS += [AmqpValue(AmqpType.TIMESTAMP, 5), AmqpValue(AmqpType.FLOAT, 0.10000000149011612)]
NAMES = {"rabbitmq": ("s", "p.message_id"), "amqp": ("s", "p.message_id"), "rocketmq": ("s",)}
NAMES |= {"servicebus": ("s", "S", "sys.MessageId", "sys.Label", "property('s')")}
TEMPLATES = ("{name} = {value}", "{value} = {name}", "{name} IN ({value})", "NOT (NOT ({name} = {value}))")


def of_map(*pairs: tuple[bytes, bytes], code: int = 0x74, wide: bool = False) -> bytes:
    return section(code, compound(0xC1, [part for pair in pairs for part in pair], wide=wide))


likely = st.builds(
    lambda pairs, code, wide: of_map(*pairs, code=code, wide=wide),
    st.lists(st.tuples(st.tuples(st.sampled_from(KEYS), st.sampled_from((string, symbol, string, string))).map(
        lambda pair: pair[1](pair[0].encode())), st.sampled_from(VALUES)), max_size=6),
    st.sampled_from((0x72, 0x74, 0x74)),
    st.booleans(),
)  # fmt: skip


messages = st.lists(st.one_of(encoded_messages(), damaged_messages(), amqp_messages(), likely), max_size=8)


def parsed(text: str, dialect: str, **options: object) -> Filter | None:
    try:
        return Filter.parse(text, dialect, **options)  # type: ignore[arg-type]
    except FilterError:
        return None


def may_match(
    found: Filter, encoded: list[bytes] | EncodedMessages, fields: tuple[str, ...] = FIELDS
) -> NDArray[np.bool_] | None:
    """Of each message, as if it were a block of its own, whether it may match; None if nothing is known."""
    keys = block_keys(found, fields)
    if keys is None:
        return None
    batch = encoded if isinstance(encoded, EncodedMessages) else EncodedMessages.of(encoded)

    def blocks_of(field: str, wanted: NDArray[np.uint32]) -> NDArray[np.bool_]:
        return np.isin(fingerprints(batch, [parse_field(field)])[0], [ANY, *wanted.tolist()])

    return matching_blocks(keys, blocks_of, len(batch))


def assert_loses_nothing(found: Filter | None, encoded: list[bytes] | EncodedMessages) -> bool:
    """That no message that matches is ruled out; gives whether any is."""
    may = None if found is None else may_match(found, encoded)
    if found is None or may is None:
        return False
    batch = encoded if isinstance(encoded, EncodedMessages) else EncodedMessages.of(encoded)
    lost = np.flatnonzero(found.mask(batch, now_ms=0) & ~may)
    assert not len(lost), (found, batch.message(int(lost[0])))
    return not may.all()


@examples(0.3)
@given(messages)
@example([b"", b"\0", b"\0\x53\x74", b"\0\x53\x74\xc1", b"\0\x53\x70\xc0\x00", b"\0\x53\x77\xff", b"\0\x53\x79"])
@example([b"\0\x53\x74\xd1\0\0\0\x04\0\0\0\0" + b"\0\x53\x74\xc1\x01\0", b"\0\x53\x73\xd0\0\0\0\x04\0\0\0\0"])
def test_the_kernel_says_what_the_reference_says_or_any_value(encoded: list[bytes]) -> None:
    batch = EncodedMessages.of(encoded)
    for message, found in zip(encoded, fingerprints(batch, REFERENCES).T.tolist(), strict=True):
        for one, expected in zip(found, fingerprints_of(message, REFERENCES), strict=True):
            assert one == expected or ANY in (one, expected)


@pytest.mark.parametrize("value", VALUES)
def test_of_a_plain_message_both_say_the_same(value: bytes) -> None:
    for code, key in ((0x74, string(b"s")), (0x72, symbol(b"s"))):
        message = of_map((string(b"other"), b"\x54\x01"), (key, value), code=code)
        field = FieldReference(Section(code), key=b"s")
        ((found,),) = fingerprints(EncodedMessages.of([message]), [field]).tolist()
        assert [found] == fingerprints_of(message, [field])
        assert (found == NONE) == (value == b"\x40")


@pytest.mark.parametrize("compiled", [True, False])
def test_keys_that_languages_take_for_each_other_are_any_value(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr("headgate.kernels.load", lambda module: None)
    one, other = string(b"a"), string(b"b")
    pairs = [
        [(string(b"s"), one), (string(b"s"), one)],
        [(string(b"s"), one), (string(b"S"), b"\x40")],
        [(symbol(b"s"), one)],
        [(string(b"s"), one), (string(b"S"), other)],
        [(string(b"s"), one), (symbol(b"s"), b"\x54\x01")],
        [(string(b"x"), one)],
    ]
    batch = EncodedMessages.of([of_map(*each) for each in pairs])
    same = package.fingerprint(b"a")
    assert fingerprints(batch, REFERENCES[:1])[0].tolist() == [same, same, same, ANY, ANY, NONE]


@pytest.mark.parametrize("dialect", CONSTANTS)
def test_no_equality_that_is_true_of_a_message_is_lost(dialect: str) -> None:
    bodies = [of_map((string(key), value)) for key in (b"s", b"S") for value in VALUES]
    bodies += [section(0x73, compound(0xC0, [value, b"\x40", b"\x40", value])) for value in VALUES]
    batch, asked = EncodedMessages.of(bodies), 0
    for name, value, template in itertools.product(NAMES[dialect], CONSTANTS[dialect], TEMPLATES):
        found = parsed(template.format(name=name, value=value), dialect)
        asked += assert_loses_nothing(found, batch)
    assert asked > 30


@pytest.mark.parametrize("value", PARAMETERS)
def test_no_equality_with_a_typed_value_is_lost(value: AmqpValue) -> None:
    bodies = [of_map((string(b"s"), each)) for each in VALUES]
    bodies += [section(0x73, compound(0xC0, [each, b"\x40", b"\x40", each])) for each in VALUES]
    for name in NAMES["servicebus"]:
        assert_loses_nothing(parsed(f"{name} = @p", "servicebus", parameters={"p": value}), bodies)
    assert_loses_nothing(Filter.from_correlation(properties={"S": value}), bodies)
    assert_loses_nothing(Filter.from_properties(application_properties={"s": value}), bodies)


JSON_VALUES = ['"AMER"', r'"\u0041MER"', '""', '"5"', '"0.1"', '"\\/"', r'"\ud800"', '"größe"', "true", "false", "null"]
JSON_VALUES += ["5", "5.0", "0.5e1", "50e-1", "-1", "-0", "0.0", "-0e5", "1e-9999", "0.1", "0.10", "7.5", "16777217"]
JSON_VALUES += ["0.1000000000000000055511151231257827", "9007199254740992", "9007199254740993", "9007199254740993.0"]
JSON_VALUES += ["18446744073709551615", "1.8446744073709552E19", "1e400", "9" * 400, "9" * 501, "1e10000", "[5]", "{}"]


def json_bodies(values: list[str]) -> list[bytes]:
    return [Message(f'{{"s":1,"s":{value}}}'.encode()).encode() for value in values]


def test_no_equality_that_is_true_of_a_body_is_lost() -> None:
    batch, asked = EncodedMessages.of(json_bodies(JSON_VALUES)), 0
    constants = [*CONSTANTS["amqp"], "'größe'", "'/'", "FALSE", "1e300 * 1e300", "18446744073709551615", "7.5 * 1"]
    for value, template in itertools.product(constants, TEMPLATES):
        asked += assert_loses_nothing(parsed(template.format(name="body.s", value=value), "amqp"), batch)
    assert asked > 80


def test_equal_values_in_bodies_have_one_fingerprint_and_unknown_ones_have_none() -> None:
    def of(values: list[str]) -> set[int]:
        return set(fingerprints(EncodedMessages.of(json_bodies(values)), [parse_field("body.s")])[0].tolist())

    groups = [
        JSON_VALUES[:2],
        ["5", "5.0", "0.5e1", "50e-1"],
        ["-0", "0.0", "-0e5"],
        ["0.1", "0.10"],
        ["true"],
        ['"5"'],
    ]
    found = [of(group) for group in groups]
    assert all(len(each) == 1 for each in found)
    assert len(set[int]().union(*found, of(['"true"', "1", "false"]))) == len(groups) + 3
    unknown = [r'"\ud800"', "null", "[5]", "{}", "9" * 501, "1e10000", "5}", ""]
    assert of(unknown) == {NONE}


json_scalars = st.sampled_from(JSON_VALUES)
likely_bodies = st.builds(
    lambda a, b, k: Message(f'{{"s":{a},"a":{b},"k":[{k},{{"a":{a}}}],"s":{b}}}'.encode()).encode(),
    json_scalars,
    json_scalars,
    json_scalars,
)
equalities = st.builds(
    lambda template, name, value: template.format(name=name, value=value),
    st.sampled_from(TEMPLATES),
    st.sampled_from(("body.a", "body.s", *IN_BODIES)),
    st.sampled_from(("'AMER'", "'x'", "''", "'größe'", "0.5", "0.1", "7.5", "5", "0", "TRUE", "FALSE", "'5', -1")),
)
joined = st.builds(
    "{} {} {}".format, equalities, st.sampled_from(("AND", "OR")), st.one_of(equalities, body_expressions)
)


@examples(0.5)
@given(
    st.lists(st.one_of(likely_bodies, likely_bodies, body_messages, rare_messages), min_size=4, max_size=12),
    st.randoms(use_true_random=False),
    st.lists(st.one_of(equalities, joined, body_expressions), min_size=2, max_size=8),
)
def test_no_match_over_a_body_is_lost(encoded: list[bytes], chance: random.Random, texts: list[str]) -> None:
    fields = [parse_field(field) for field in IN_BODIES]
    for message, found in zip(encoded, fingerprints(EncodedMessages.of(encoded), fields).T.tolist(), strict=True):
        assert found == fingerprints_of(message, fields)
    damaged = [json_texts.changed(chance, message) for message in encoded]
    for text in texts:
        assert_loses_nothing(parsed(text, "amqp"), encoded + damaged)


@examples(0.5)
@given(messages, st.lists(amqp_expressions, min_size=1, max_size=3))
def test_no_match_of_amqp_is_lost(encoded: list[bytes], texts: list[str]) -> None:
    for text in texts:
        assert_loses_nothing(parsed(text, "amqp"), encoded)


@examples(0.5)
@given(messages, st.lists(expressions, min_size=1, max_size=3))
def test_no_match_of_rabbitmq_is_lost(encoded: list[bytes], texts: list[str]) -> None:
    for text in texts:
        assert_loses_nothing(parsed(text, "rabbitmq"), encoded)


@examples(0.5)
@given(st.lists(st.one_of(kernel_strategies.rocketmq_messages, likely)), rocketmq_strategies.expressions)
def test_no_match_of_rocketmq_is_lost(encoded: list[bytes], text: str) -> None:
    assert_loses_nothing(parsed(text, "rocketmq"), encoded)


@examples(0.5)
@given(st.lists(st.one_of(servicebus_messages().map(Message.encode), likely)), servicebus_texts())
def test_no_match_of_service_bus_is_lost(encoded: list[bytes], text: str) -> None:
    assert_loses_nothing(parsed(text, "servicebus"), encoded)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("s = 'a' AND n > 1", ("application_properties.s",), [True, False, True]),
        ("s = 'a' OR n = 1", FIELDS[:2], [True, True, True]),
        ("s = 'a' OR n > 1", FIELDS[:2], None),
        ("s = 'a' AND n = 1", FIELDS[:2], [False, False, True]),
        ("s = 'a' AND n = 1", FIELDS[:1], [True, False, True]),
        ("s IN ('a', 'x') OR s = 'y'", FIELDS[:1], [True, False, True]),
        ("NOT (s <> 'a')", FIELDS[:1], None),
        ("s = n", FIELDS[:2], None),
        ("s = 'a' AND FALSE", (), None),
        ("s = 'a' AND s = 'b'", FIELDS[:1], [False, False, False]),
    ],
)
def test_what_is_asked_of_which_fields(text: str, fields: tuple[str, ...], expected: list[bool] | None) -> None:
    given_messages = [{"s": "a", "n": 2}, {"s": "b", "n": 1}, {"s": "a", "n": 1.0}]
    encoded = [Message(b"x", application_properties=each).encode() for each in given_messages]
    found = may_match(Filter.parse(text, "rabbitmq"), encoded, fields)
    assert (None if found is None else found.tolist()) == expected
