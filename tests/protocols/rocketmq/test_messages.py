"""Messages of RocketMQ as they are stored, and stored messages of any protocol as RocketMQ's clients see them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import kernels
from headgate.errors import MessageError
from headgate.message import (
    SYSTEM_PROPERTIES,
    AmqpType,
    AmqpValue,
    Body,
    FieldReference,
    Message,
    Section,
    stored_message,
)
from headgate.protocols.rocketmq import (
    RocketMessage,
    amqp_of_sent,
    from_amqp,
    read_properties,
    stable_id,
    to_amqp,
    write_properties,
)
from headgate.protocols.rocketmq import messages as messages_module
from headgate.protocols.rocketmq.messages import KERNEL
from headgate.protocols.rocketmq.values import value_text
from rocketmq_strategies import rocket_messages as messages
from strategies import damaged_messages, encoded_messages

VECTORS = Path(__file__).parents[2] / "vectors"
PLACE = {"identity": "a stream", "offset": 7}


@given(messages)
def test_a_message_comes_back_as_it_was_sent(message: RocketMessage) -> None:
    assert from_amqp(to_amqp(message), **PLACE) == message


@given(messages)
def test_a_property_text_is_stored_as_the_map_that_it_is(message: RocketMessage) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in {**message.system, **message.user}.items()]
    text = write_properties(pairs)
    assert list(read_properties(text)) == pairs
    stored = amqp_of_sent(text, message.body, born_ms=5, born_host=message.born_host, flag=message.flag)
    message.born_ms, message.message_group = 5, None
    assert stored == to_amqp(message)


@given(st.one_of(encoded_messages(), damaged_messages()))
def test_clients_are_told_what_filters_see_as_texts(data: bytes) -> None:
    message = from_amqp(data, **PLACE)
    try:
        stored = Message.decode(data)
    except MessageError:
        assert message == RocketMessage(data, system={"UNIQ_KEY": stable_id(**PLACE)})
        return
    for name, reference in SYSTEM_PROPERTIES.items():
        value = stored.value(reference)
        if value is not None and value.type is AmqpType.STRING and value.value:
            assert message.system[name] == value_text(value)
        else:
            assert name == "UNIQ_KEY" or name not in message.system
    for name in message.user:
        if "\ufffd" not in name:
            value = stored.value(FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode()))
            assert value is not None and message.user[name] == value_text(value)


_entries = st.tuples(
    st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"a", b"b", b"__SHARDINGKEY", b"", "é".encode(), b"\xff"]),
    st.sampled_from([b"\x01", b"\x01", b"\x01", b"\x01\x01", b""]),
    st.sampled_from([b"1", b"value", b"x" * 300, b"", "\u6f22".encode(), b"\xed\xa0\x80", b"\x03", b"two words"]),
).map(b"".join)


@pytest.mark.skipif(kernels.load(KERNEL) is None, reason="kernels cannot be compiled here")
@given(st.lists(_entries, max_size=6), st.sampled_from([0, 3, 300]), st.sampled_from(["", "10.0.0.1:9"]))
def test_the_kernel_stores_what_python_stores(entries: list[bytes], size: int, host: str) -> None:
    def stored(text: bytes) -> bytes:
        return amqp_of_sent(text, bytes(size), born_ms=-5, born_host=host, flag=-size)

    for text in (b"\x02".join(entries), b"".join(entry + b"\x02" for entry in entries)):
        found = stored(text)
        with patch.object(kernels, "load", return_value=None):
            assert found == stored(text)


@pytest.mark.skipif(kernels.load(KERNEL) is None, reason="kernels cannot be compiled here")
def test_the_kernel_stores_the_usual() -> None:
    pairs = [*((f"name{number}".encode(), b"x" * 250) for number in range(100)), (b"__SHARDINGKEY", b"a group")]
    text = write_properties([(b"TAGS", b"A"), (b"KEYS", b"one two"), (b"UNIQ_KEY", b"7F"), (b"WAIT", b"true"), *pairs])
    with patch.object(messages_module, "_composed", side_effect=AssertionError("left open")):
        found = from_amqp(amqp_of_sent(text, b"body", born_ms=5, born_host="::1:9", flag=1), **PLACE)
    assert found.system == {"TAGS": "A", "KEYS": "one two", "UNIQ_KEY": "7F", "WAIT": "true"}
    assert found.user == {name.decode(): value.decode() for name, value in pairs}
    assert (found.message_group, found.born_ms, found.flag, found.born_host) == ("a group", 5, 1, "::1:9")


def test_the_maps_of_the_recorded_expressions_are_stored_as_filters_expect_them() -> None:
    with (VECTORS / "rocketmq_sql.jsonl").open() as lines:
        maps = [row["props"] for row in map(json.loads, lines) if row["kind"] == "map" and "props" in row]
    assert len(maps) > 40
    for properties in maps:
        text = write_properties((name.encode(), value.encode()) for name, value in properties.items())
        found = Message.decode(amqp_of_sent(text, b"", born_ms=1, born_host="", flag=0))
        expected = stored_message({name: value for name, value in properties.items() if value})
        assert found.message_annotations == expected.message_annotations
        assert found.application_properties == expected.application_properties
        assert (found.properties or {}).get("message-id") == (expected.properties or {}).get("message-id")


def test_values_of_other_protocols_become_texts() -> None:
    given_values = {
        "symbol": (AmqpType.SYMBOL, "Grün", "Grün"),
        "yes": (AmqpType.BOOLEAN, True, "true"),
        "no": (AmqpType.BOOLEAN, False, "false"),
        "byte": (AmqpType.BYTE, -5, "-5"),
        "ulong": (AmqpType.ULONG, 2**64 - 1, "18446744073709551615"),
        "timestamp": (AmqpType.TIMESTAMP, 1_700_000_000_123, "1700000000123"),
        "float": (AmqpType.FLOAT, 0.1, "0.1"),
        "double": (AmqpType.DOUBLE, 1e10, "1.0E10"),
        "nan": (AmqpType.DOUBLE, float("nan"), "NaN"),
        "infinity": (AmqpType.FLOAT, float("-inf"), "-Infinity"),
        "decimal": (AmqpType.DECIMAL32, bytes.fromhex("3200000f"), "1.5"),
        "large": (AmqpType.DECIMAL64, bytes.fromhex("3440000000000001"), "1E+20"),
        "endless": (AmqpType.DECIMAL32, bytes.fromhex("78000000"), "Infinity"),
        "char": (AmqpType.CHAR, 0x1F600, "\U0001f600"),
        "surrogate": (AmqpType.CHAR, 0xD800, None),
        "uuid": (AmqpType.UUID, uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        "binary": (AmqpType.BINARY, b"\x00\xff", "00ff"),
        "broken": (AmqpType.STRING, "\udcff", "\ufffd"),
        "null": (AmqpType.NULL, None, None),
        "empty": (AmqpType.STRING, "", None),
        "list": (AmqpType.LIST, (), None),
        "TAGS": (AmqpType.STRING, "no tag", None),
    }
    stored = Message(
        b"body",
        application_properties={name: AmqpValue(kind, value) for name, (kind, value, _) in given_values.items()},
        message_annotations={"x-opt-rocketmq-KEYS": "no key", "x-opt-rocketmq-tag": AmqpValue(AmqpType.INT, 5)},
        group_id="a group",
        creation_time=AmqpValue(AmqpType.TIMESTAMP, 9),
    )
    assert from_amqp(stored.encode(), **PLACE) == RocketMessage(
        b"body",
        user={name: text for name, (_, _, text) in given_values.items() if text is not None},
        system={"UNIQ_KEY": stable_id(**PLACE)},
        born_ms=9,
        message_group="a group",
    )


@pytest.mark.parametrize(
    ("body", "octets"),
    [
        (None, b""),
        (Body.data(b"one", b"", b"two"), b"onetwo"),
        (Body.value("text"), b"text"),
        (Body.value(b"\xff"), b"\xff"),
        (Body.value({"a": [1, None, "\xe9"], "b": 2.5}), '{"a":[1,null,"\xe9"],"b":2.5}'.encode()),
        (Body.value(uuid.UUID(int=1)), b'"00000000-0000-0000-0000-000000000001"'),
        (Body.sequence([1, "a"], [True]), b'[1,"a",true]'),
    ],
)
def test_every_body_is_bytes(body: Body | None, octets: bytes) -> None:
    assert from_amqp(Message(body).encode(), **PLACE).body == octets


@pytest.mark.parametrize(
    ("message_id", "text"), [(5, "5"), (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"), (b"\x0a", "0a")]
)
def test_ids_of_every_type_are_told(message_id: object, text: str) -> None:
    assert from_amqp(Message(b"", message_id=message_id).encode(), **PLACE).message_id == text


def test_a_message_without_id_has_the_same_at_every_delivery() -> None:
    ids = {stable_id(identity, offset) for identity in ("a", "b") for offset in (0, 1)}
    assert len(ids) == 4 and all(len(text) == 32 and set(text) <= set("0123456789ABCDEF") for text in ids)
    assert stable_id("a", 1) == stable_id("a", 1)


def test_where_the_framing_of_properties_breaks_the_message_goes_on() -> None:
    stored = Message(b"body", application_properties={"a": "1", "b": "2"}).encode()
    broken = stored.replace(b"\xa1\x012", b"\xa1\x772")
    assert from_amqp(broken, **PLACE).user == {"a": "1"}
    assert from_amqp(broken, **PLACE).body == b"body"
    cut = Message(b"body", application_properties={"a": "1"}).encode()[:-1]
    assert from_amqp(cut, **PLACE).user == {"a": "1"}
    assert from_amqp(cut, **PLACE).body == cut[cut.index(b"\x00\x53\x75") :]


def test_keys_are_told_apart_and_empty_properties_are_none() -> None:
    message = RocketMessage(b"", user={"": "x", "a": ""}, system={"KEYS": "one  two", "TAGS": ""})
    stored = from_amqp(to_amqp(message), **PLACE)
    assert (stored.user, stored.keys, stored.tag) == ({}, ["one", "two"], None)


def test_retries_are_counted() -> None:
    stored = amqp_of_sent(b"", b"", born_ms=1, born_host="", flag=0, reconsume_times=3)
    assert from_amqp(stored, **PLACE).system["RECONSUME_TIME"] == "3"


@pytest.mark.parametrize("entry", [b"", b"a", b"ab", b"\x01x", b"a\x01", b"ab\x01", b"\x01\x01x", b"name"])
def test_entries_that_are_none_are_dropped(entry: bytes) -> None:
    text = b"a\x011\x02" + entry + b"\x02c\x013\x014\x02"
    assert list(read_properties(text)) == [(b"a", b"1"), (b"c", b"3\x014")]


def test_a_property_text_that_does_not_end_is_read_and_other_bytes_are_replaced() -> None:
    assert dict(read_properties(b"a\x011\x02b\x01\xff")) == {b"a": b"1", b"b": "\ufffd".encode()}


def test_what_a_property_text_cannot_hold_is_left_out() -> None:
    pairs = [(b"a", b"1"), (b"b\x01", b"2"), (b"c", b"3\x02"), (b"d\x02", b"4"), (b"e", b""), (b"f", b"5\x01")]
    assert write_properties(pairs) == b"a\x011\x02f\x015\x01\x02"
    assert write_properties([(b"a", b"1"), (b"b", b"x" * 9), (b"c", b"3")], room=12) == b"a\x011\x02"
