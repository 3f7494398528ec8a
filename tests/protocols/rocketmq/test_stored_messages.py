"""Stored messages in answers to pulls, and messages of batches."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import kernels
from headgate.errors import RemoteProtocolError
from headgate.message import SYSTEM_PROPERTIES, EncodedMessages, Message
from headgate.protocols.rocketmq import (
    BatchedMessage,
    RocketMessage,
    StoredFrom,
    body_crc,
    decode_batch,
    encode_one,
    encode_stored,
    first_place,
    from_amqp,
    host_bytes,
    read_properties,
    stored_messages,
    to_amqp,
)
from rocketmq_client import born_host_text, decode_stored, encode_batch
from rocketmq_strategies import rocket_messages as messages
from strategies import binary, compound, damaged_messages, encoded_messages, section, string, symbol, values

KERNEL = "headgate.protocols.rocketmq.kernel"
HOST = host_bytes("127.0.0.1", 10911)
PLACE = first_place(7, 3)
SOURCE = StoredFrom("topic", 3, PLACE, HOST, "identity", {"CLUSTER": "DefaultCluster", "MIN_OFFSET": "0"})


def stored(*messages: bytes, source: StoredFrom = SOURCE, reconsumed: list[int] | None = None) -> bytes:
    count = len(messages)
    found = encode_stored(
        EncodedMessages.of(messages),
        offsets=np.arange(10, 10 + count, dtype=np.int64),
        timestamps_ms=np.arange(1_000, 1_000 + count, dtype=np.int64),
        reconsume_times=None if reconsumed is None else np.array(reconsumed, dtype=np.int64),
        source=source,
    )
    octets, starts = bytes(found.octets), [0, *found.stops]
    assert found.stops == [start + int.from_bytes(octets[start : start + 4], "big") for start in starts[:-1]]
    assert starts[-1] == len(octets)
    return octets


def test_the_bytes_are_those_of_the_original() -> None:
    # Written by MessageDecoder.encode of rocketmq-common 5.5.0.
    message = RocketMessage(b"hi", system={"UNIQ_KEY": "7F", "TAGS": "A"}, born_ms=5, born_host="10.0.0.1:9", flag=4)
    source = StoredFrom("topic", 3, first_place(0, 3), HOST, "identity", {})
    assert stored(to_amqp(message), source=source).hex() == (
        "00000075" "daa320a7" "58932aac" "00000003" "00000004" "000000000000000a" "000300000000000a" "00000000"
        "0000000000000005" "0a00000100000009" "00000000000003e8" "7f00000100002a9f" "00000000" "0000000000000000"
        "00000002" "6869" "05" "746f706963" "0013" "54414753014102" "554e49515f4b455901374602"
    )  # fmt: skip


def test_a_batch_of_the_original_is_read() -> None:
    # Written by MessageDecoder.encodeMessages of rocketmq-common 5.5.0.
    octets = bytes.fromhex(
        "00000035" "00000000" "00000000" "00000003" "00000003" "6f6e65"
        "001c" "4b455953016b31206b3202" "574149540174727565" "02" "54414753014102"
        "00000023" "00000000" "00000000" "00000000" "00000003" "74776f" "000a" "574149540174727565" "02"
    )  # fmt: skip
    messages = [BatchedMessage(3, b"one", b"KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01A\x02")]
    messages.append(BatchedMessage(0, b"two", b"WAIT\x01true\x02"))
    assert decode_batch(octets) == messages
    assert encode_batch(messages) == octets


def test_a_stored_message_says_all_that_was_sent() -> None:
    message = RocketMessage(
        b"body",
        user={"a": "1", "ä": "ö"},
        system={"TAGS": "T", "UNIQ_KEY": "7F", "CLUSTER": "old"},
        born_ms=77,
        born_host="[::1]:99",
        flag=-5,
    )
    first, second = decode_stored(stored(to_amqp(message), Message(b"").encode(), reconsumed=[2, 0]))
    assert dict(read_properties(first.properties)) == {
        b"TAGS": b"T",
        b"UNIQ_KEY": b"7F",
        b"a": b"1",
        "ä".encode(): "ö".encode(),
        b"CLUSTER": b"DefaultCluster",
        b"MIN_OFFSET": b"0",
    }
    assert (first.topic, first.queue, first.offset, first.commit_offset) == ("topic", 3, 10, PLACE + 10)
    assert (first.body, first.body_crc, first.flag, first.reconsume_times) == (b"body", body_crc(b"body"), -5, 2)
    assert (first.born_ms, first.stored_ms, first.store_host, first.sys_flag) == (77, 1_000, HOST, 1 << 4)
    assert born_host_text(first.born_host) == "[::1]:99"
    assert (second.offset, second.body, second.born_ms, second.sys_flag) == (11, b"", 1_001, 0)
    assert len(dict(read_properties(second.properties))[b"UNIQ_KEY"]) == 32


def test_long_topics_and_hosts_of_sixteen_bytes() -> None:
    source = StoredFrom("%RETRY%" + "x" * 200, 0, 0, host_bytes("::1", 1), "identity", {})
    (message,) = decode_stored(stored(Message(b"body").encode(), source=source))
    assert (message.topic, message.store_host, message.body) == (source.topic, source.store_host, b"body")


def test_properties_beyond_the_format_are_left_out() -> None:
    large = Message(b"body", application_properties={"a": "1", "b": "x" * 40_000, "c": "2"}).encode()
    (message,) = decode_stored(stored(large))
    assert dict(read_properties(message.properties)).keys() == {b"UNIQ_KEY", b"CLUSTER", b"MIN_OFFSET", b"a"}


@pytest.mark.parametrize("text", ["2", "x", "", "9999999999"])
def test_retries_are_what_the_message_says(text: str) -> None:
    message = RocketMessage(b"body", system={"RECONSUME_TIME": text})
    (found,) = decode_stored(stored(to_amqp(message)))
    assert found.reconsume_times == (2 if text == "2" else 0)


def _annotated(entries: list[bytes]) -> bytes:
    return section(0x72, compound(0xC1, entries)) + section(0x75, binary(b"body"))


_keys = st.sampled_from([reference.key for reference in SYSTEM_PROPERTIES.values() if reference.key is not None])
_odd_keys = st.sampled_from(
    [b"x-opt-rocketmq-TAGS", b"x-opt-rocketmq-flag", b"x-opt-rocketmq-born-host", b"x-opt-rocketmq-", b"x-else"]
)
_texts = [b"10.0.0.1:9", b"1.2.3.256:1", b"01.2.3.4:5", b"::1:9", b"1.2.3.4:", "é\u6f22\U0001f600".encode()]
_texts += [b"\x01", b"\xed\xa0\x80", b"\xff" * 9]
_numbers = [b"\x71\xff\xff\xff\xfe", b"\x83\x80" + bytes(7), b"\x80\x80" + bytes(7), b"\x61\x80\x00"]
_texts += [
    b"\xe0\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xc1\x80",
    b"12345678\xe6\xbc",
    "\u6f22".encode() * 9,
    b"1234567\x02",
]
_odd_values = st.one_of(values, st.sampled_from([*map(string, _texts), *_numbers]))
_annotations = st.lists(
    st.tuples(st.one_of(_keys, _keys, _odd_keys).map(symbol), _odd_values).map(list), max_size=6
).map(lambda pairs: _annotated([part for pair in pairs for part in pair]))
_user = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"TAGS", b"", "é".encode()]).map(string), _odd_values).map(list), max_size=6
).map(lambda pairs: section(0x74, compound(0xC1, [part for pair in pairs for part in pair])))


@given(
    st.lists(st.one_of(encoded_messages(), damaged_messages(), messages.map(to_amqp), _annotations, _user), max_size=6),
    st.booleans(),
)
def test_the_kernel_writes_what_python_writes(octets: list[bytes], are_counted: bool) -> None:
    check_written(octets, are_counted)


def _of_user(*entries: bytes) -> bytes:
    return section(0x74, compound(0xC1, list(entries)))


@pytest.mark.parametrize("are_counted", [False, True])
def test_the_kernel_writes_what_python_writes_of_odd_messages(are_counted: bool) -> None:
    annotation = b"x-opt-rocketmq-"
    odd = [_annotated([symbol(annotation + b"born-host"), string(text)]) for text in _texts]
    odd += [_of_user(string(b"a"), string(text)) + section(0x75, binary(b"body")) for text in _texts]
    odd += [_of_user(string(text), string(b"a")) for text in _texts]
    odd += [_of_user(string(b"a"), number) for number in _numbers]
    odd += [
        _annotated([symbol(annotation + b"tag"), string(b"A"), symbol(annotation + b"tag"), string(b"B")]),
        _annotated([symbol(annotation + b"tag"), b"\x54\x05", symbol(annotation + b"tag"), string(b"B")]),
        _annotated([symbol(annotation + b"TAGS"), string(b"A"), symbol(annotation + b"UNIQ_KEY"), string(b"B")]),
        _annotated([string(annotation + b"keys", wide=True), string(b"K", wide=True), b"\x54\x05", b"\x40"]),
        _annotated([symbol(annotation + b"CLUSTER"), string(b"A"), symbol(annotation + b"flag"), string(b"5")]),
        *(_annotated([symbol(annotation + b"RECONSUME_TIME"), string(t)]) for t in (b"7", b"-1", b"9" * 10, b"")),
        _of_user(string(b"a"), string(b"1"), string(b"b"), b"\x40", string(b"a"), string(b"2")),
        _of_user(string(b"a"), b"\x45", string(b"a"), string(b"2")),
        _of_user(string(b"a"), b"\x40", string(b"a"), string(b"2")),
        _of_user(string(b"TAGS"), string(b"1"), string(b""), string(b"2"), symbol(b"c"), string(b"3")),
        _of_user(string(b"a"), string(b"x" * 40_000), string(b"b"), string(b"2")),
        _of_user(string(b"a")) + section(0x75, binary(b"body")),
        section(0x75, binary(b"one")) + section(0x75, binary(b"two")),
        section(0x75, binary(b"one", wide=True)) + b"\x00",
        section(0x73, compound(0xC0, [b"\x40", *[string(b"x")] * 8, string(b"no time")])),
        section(0x73, b"\x45") + section(0x77, string(b"text")),
        section(0x74, compound(0xC1, [])) + section(0x72, compound(0xC1, [])),
        b"",
    ]
    check_written(odd, are_counted)


def check_written(octets: list[bytes], are_counted: bool) -> None:
    """What is written at once must be what is written of each message alone, in Python."""
    rows = range(len(octets))
    reconsumed = [row + 1 for row in rows] if are_counted else None
    expected = [
        encode_one(
            from_amqp(data, identity="identity", offset=10 + row),
            offset=10 + row,
            stored_ms=1_000 + row,
            reconsume_times=None if reconsumed is None else reconsumed[row],
            source=SOURCE,
        )
        for row, data in zip(rows, octets, strict=True)
    ]
    assert stored(*octets, reconsumed=reconsumed) == b"".join(expected)


@pytest.mark.skipif(kernels.load(KERNEL) is None, reason="kernels cannot be compiled here")
def test_the_kernel_leaves_few_messages_open() -> None:
    properties = {"é": "\u6f22", "wide": "x" * 300, "int": -5, "long": 2**62, "yes": True, "no": False, "none": None}
    usual = [
        Message(b"body" * 100, application_properties=properties, message_id="7F", creation_time=7),
        Message(b"", header={"durable": True}, message_annotations={"x-opt-rocketmq-tag": "A"}, message_id=5),
        Message(None, application_properties={str(number): str(number) for number in range(256)}),
    ]
    octets = [message.encode() for message in usual]
    with patch.object(stored_messages, "encode_one", side_effect=AssertionError("left open")):
        found = decode_stored(stored(*octets, to_amqp(RocketMessage(b"x", born_host="1.2.3.4:5", flag=1))))
    assert dict(read_properties(found[0].properties)) == {
        b"UNIQ_KEY": b"7F",
        b"CLUSTER": b"DefaultCluster",
        b"MIN_OFFSET": b"0",
        "é".encode(): "\u6f22".encode(),
        b"wide": b"x" * 300,
        b"int": b"-5",
        b"long": b"4611686018427387904",
        b"yes": b"true",
        b"no": b"false",
    }


@given(
    st.lists(st.builds(BatchedMessage, st.integers(-(2**31), 2**31 - 1), st.binary(), st.binary()), min_size=1),
    st.data(),
)
def test_a_batch_comes_back_and_a_part_of_it_is_none(messages: list[BatchedMessage], data: st.DataObject) -> None:
    encoded = encode_batch(messages)
    assert decode_batch(encoded) == messages
    ends = {len(encode_batch(messages[:count])) for count in range(1, len(messages))}
    stop = data.draw(st.integers(0, len(encoded) - 1).filter(lambda stop: stop not in ends))
    with pytest.raises(RemoteProtocolError):
        decode_batch(encoded[:stop])


@given(st.binary(max_size=60))
def test_other_bytes_are_no_batch(octets: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_batch(octets)
