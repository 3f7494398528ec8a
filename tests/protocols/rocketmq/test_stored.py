"""Stored messages in answers to pulls, and messages of batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import RemoteProtocolError
from headgate.message import EncodedMessages, Message
from headgate.protocols.rocketmq import (
    BatchedMessage,
    RocketMessage,
    StoredFrom,
    body_crc,
    born_host_text,
    commit_offset,
    decode_batch,
    decode_stored,
    encode_batch,
    encode_stored,
    host_bytes,
    read_properties,
    to_amqp,
)

HOST = host_bytes("127.0.0.1", 10911)
SOURCE = StoredFrom("topic", 3, HOST, "identity", {"CLUSTER": "DefaultCluster", "MIN_OFFSET": "0"})


def stored(*messages: bytes, source: StoredFrom = SOURCE, reconsumed: list[int] | None = None) -> bytes:
    count = len(messages)
    return encode_stored(
        EncodedMessages.of(messages),
        offsets=np.arange(10, 10 + count, dtype=np.int64),
        timestamps_ms=np.arange(1_000, 1_000 + count, dtype=np.int64),
        reconsume_times=None if reconsumed is None else np.array(reconsumed, dtype=np.int64),
        source=source,
    )


def test_the_bytes_are_those_of_the_original() -> None:
    # Written by MessageDecoder.encode of rocketmq-common 5.5.0.
    message = RocketMessage(b"hi", system={"UNIQ_KEY": "7F", "TAGS": "A"}, born_ms=5, born_host="10.0.0.1:9", flag=4)
    source = StoredFrom("topic", 3, HOST, "identity", {})
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
    assert (first.topic, first.queue, first.offset, first.commit_offset) == ("topic", 3, 10, commit_offset(3, 10))
    assert (first.body, first.body_crc, first.flag, first.reconsume_times) == (b"body", body_crc(b"body"), -5, 2)
    assert (first.born_ms, first.stored_ms, first.store_host, first.sys_flag) == (77, 1_000, HOST, 1 << 4)
    assert born_host_text(first.born_host) == "[::1]:99"
    assert (second.offset, second.body, second.born_ms, second.sys_flag) == (11, b"", 1_001, 0)
    assert len(dict(read_properties(second.properties))[b"UNIQ_KEY"]) == 32


def test_long_topics_and_hosts_of_sixteen_bytes() -> None:
    source = StoredFrom("%RETRY%" + "x" * 200, 0, host_bytes("::1", 1), "identity", {})
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
def test_other_bytes_are_no_batch_and_no_stored_messages(octets: bytes) -> None:
    for decode in (decode_batch, decode_stored):
        try:
            decode(octets)
        except RemoteProtocolError:
            pass
        else:
            assert not octets
