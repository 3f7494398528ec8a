"""What a message is told as in answers to ReceiveMessage, one alone and many at once."""

from __future__ import annotations

import hashlib
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import kernels
from headgate.message import Message
from headgate.protocols.rocketmq import RocketMessage, from_amqp, to_amqp
from headgate.protocols.rocketmq.grpc import (
    DeliveredFrom,
    Delivery,
    GrpcLimits,
    delivered,
    delivered_messages,
    sent_messages,
)
from headgate.protocols.rocketmq.grpc import delivering as delivering_module
from headgate.protocols.rocketmq.grpc import messages as pb
from rocketmq_strategies import rocket_messages
from strategies import binary, compound, damaged_messages, encoded_messages, section, string, symbol

LIMITS = GrpcLimits()
DELIVERY = Delivery("handle", "identity", queue=2, offset=7, stored_ms=6_001, attempt=3)
SOURCE = DeliveredFrom(pb.Resource(resource_namespace="ns", name="t"), "here", invisible_ms=15_500)
KERNEL = "headgate.protocols.rocketmq.grpc.kernel"


def told(message: RocketMessage) -> Any:
    encoded = delivered(message, DELIVERY, SOURCE)
    return pb.ReceiveMessageResponse.FromString(encoded).message


def test_a_message_is_told_with_everything_that_clients_read() -> None:
    system = {"UNIQ_KEY": "id", "TAGS": "A", "KEYS": "k1 k2", "__BORNHOST": "there"}
    found = told(RocketMessage(b"body", {"color": "red"}, system, born_ms=5_250))
    assert (found.topic.resource_namespace, found.topic.name, found.body) == ("ns", "t", b"body")
    assert dict(found.user_properties) == {"color": "red"}
    held = found.system_properties
    assert (held.tag, list(held.keys), held.message_id, held.born_host) == ("A", ["k1", "k2"], "id", "there")
    assert (held.body_digest.type, held.body_digest.checksum) == (
        pb.DigestType.MD5,
        hashlib.md5(b"body").hexdigest().upper(),
    )
    assert (held.body_encoding, held.message_type) == (pb.Encoding.IDENTITY, pb.MessageType.NORMAL)
    assert (held.born_timestamp.seconds, held.born_timestamp.nanos) == (5, 250_000_000)
    assert (held.store_timestamp.seconds, held.store_timestamp.nanos, held.store_host) == (6, 1_000_000, "here")
    assert (held.receipt_handle, held.queue_id, held.queue_offset) == ("handle", 2, 7)
    assert (held.delivery_attempt, held.invisible_duration.seconds, held.invisible_duration.nanos) == (
        3,
        15,
        500_000_000,
    )
    assert not held.HasField("delivery_timestamp") and not held.HasField("message_group")


def test_a_message_without_tag_and_keys_has_none() -> None:
    held = told(RocketMessage(b"", system={"UNIQ_KEY": "id"})).system_properties
    assert not held.HasField("tag") and not held.keys and held.born_timestamp.seconds == 6


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ({"message_group": "g"}, pb.MessageType.FIFO),
        ({"delivery_timestamp": pb.Timestamp(seconds=9, nanos=5_000_000)}, pb.MessageType.DELAY),
        ({}, pb.MessageType.NORMAL),
    ],
)
def test_what_was_sent_is_told_as_it_was(system: dict[str, Any], kind: pb.MessageType) -> None:
    given = pb.Message(
        topic=pb.Resource(name="t"),
        body=b"b",
        user_properties={"a": "1"},
        system_properties=pb.SystemProperties(message_id="id", **system),
    )
    _, [sent] = sent_messages(pb.SendMessageRequest(messages=[given]), LIMITS, now_ms=1, born_host="h")
    found = told(sent.message)
    assert dict(found.user_properties) == {"a": "1"} and found.system_properties.message_type == kind
    for name, value in system.items():
        assert getattr(found.system_properties, name) == value


def test_a_time_that_is_none_is_passed_over() -> None:
    for text in ("", "soon", "1" * 20, "²"):
        held = told(RocketMessage(b"", system={"UNIQ_KEY": "id", "TIMER_DELIVER_MS": text})).system_properties
        assert held.message_type == pb.MessageType.NORMAL


def test_a_dead_letter_says_what_it_was() -> None:
    system = {"UNIQ_KEY": "id", "DLQ_ORIGIN_TOPIC": "t", "DLQ_ORIGIN_MESSAGE_ID": "before"}
    found = told(RocketMessage(b"", system=system)).system_properties.dead_letter_queue
    assert (found.topic, found.message_id) == ("t", "before")


# many at once


def answers_alone(octets: list[bytes], given: list[Delivery], source: DeliveredFrom = SOURCE) -> list[Any]:
    """As Python says each of them."""
    return [
        pb.ReceiveMessageResponse.FromString(
            delivered(from_amqp(data, identity=each.identity, offset=each.offset), each, source)
        )
        for data, each in zip(octets, given, strict=True)
    ]


def check_written(octets: list[bytes], given: list[Delivery], source: DeliveredFrom = SOURCE) -> None:
    """What is written at once must say what is written of each message alone, in Python."""
    found = [pb.ReceiveMessageResponse.FromString(piece) for piece in delivered_messages(octets, given, source)]
    assert found == answers_alone(octets, given, source)


def deliveries(count: int) -> list[Delivery]:
    return [Delivery(f"handle{row % 10}", f"stream{row % 3}", row % 3, row, 6_000 + row, 1) for row in range(count)]


_any_delivery = st.builds(
    Delivery,
    st.sampled_from(["handle-of-31-characters-the-1st", "handle-of-31-characters-the-2nd"]),
    st.sampled_from(["identity", "é"]),
    st.sampled_from([0, 1, 2**31 - 1]),
    st.sampled_from([0, 127, 128, 2**63 - 1]),
    st.integers(-(2**62), 2**62),
    st.sampled_from([1, 300]),
)
_sources = st.sampled_from([SOURCE, DeliveredFrom(pb.Resource(name="é" * 200), "", 0)])


@given(
    st.lists(
        st.tuples(st.one_of(encoded_messages(), damaged_messages(), rocket_messages.map(to_amqp)), _any_delivery),
        max_size=3,
    ),
    _sources,
)
def test_the_kernel_says_what_python_says(pairs: list[tuple[bytes, Delivery]], source: DeliveredFrom) -> None:
    check_written([data for data, _ in pairs], [each for _, each in pairs], source)


def _annotated(*pairs: tuple[str, str]) -> bytes:
    entries = [
        part for name, text in pairs for part in (symbol(b"x-opt-rocketmq-" + name.encode()), string(text.encode()))
    ]
    return section(0x72, compound(0xC1, entries)) + section(0x75, binary(b"body"))


def _grouped(group: bytes, *user: bytes) -> bytes:
    fields = section(0x73, compound(0xC0, [*[b"\x40"] * 10, group, b"\x43"]))
    return fields + section(0x74, compound(0xC1, list(user))) + section(0x75, binary(b"body"))


def _odd_messages() -> list[bytes]:
    sharding = string(b"__SHARDINGKEY")
    due = [
        _annotated(("TIMER_DELIVER_MS", text)) for text in ("0", "5", "1700000000123", "9" * 15, "1" * 16, "-5", "x")
    ]
    keys = [_annotated(("keys", text)) for text in ("a", " a  b ", "\t", "a\x1cb\x0bc", "é f", "a\xa0b", "x" * 300)]
    return [
        *due,
        *keys,
        _annotated(("tag", ""), ("__BORNHOST", "there"), ("born-host", "1.2.3.4:5")),
        _annotated(("born-host", "1.2.3.4:5")),
        _annotated(("DLQ_ORIGIN_TOPIC", "t"), ("DLQ_ORIGIN_MESSAGE_ID", "m" * 200)),
        _annotated(("DLQ_ORIGIN_TOPIC", "t"), ("DLQ_ORIGIN_MESSAGE_ID", "")),
        _annotated(("DLQ_ORIGIN_MESSAGE_ID", "m")),
        _grouped(string(b"g"), sharding, string(b"g"), string(b"a"), string(b"1")),
        _grouped(string(b""), sharding, string(b"g")),
        _grouped(string("é".encode()), sharding, string(b"g")),
        _grouped(string(b"\xff"), sharding, string(b"g")),
        _grouped(string(b"g" * 300, wide=True), sharding, b"\x40", string(b"__SHARDINGKEy"), string(b"h")),
        _grouped(symbol(b"g"), sharding, string(b"g")),
        _grouped(b"\x54\x05"),
        _grouped(b"\xa1\x09g"),
        to_amqp(RocketMessage(b"", born_ms=-1, message_group="g")) + b"",
        to_amqp(RocketMessage(b"x" * 70_000, {"a": "y" * 40_000}, {"TAGS": "z" * 20_000}, born_ms=-(2**63))),
        Message(None, application_properties={str(number): number for number in range(256)}).encode(),
        section(0x73, b"\x45") + section(0x77, string(b"text")),
        b"",
    ]


def test_the_kernel_says_what_python_says_of_odd_messages() -> None:
    octets = _odd_messages()
    check_written(octets, deliveries(len(octets)))
    for data in octets:
        check_written([data], [DELIVERY])


@pytest.mark.skipif(kernels.load(KERNEL) is None, reason="kernels cannot be compiled here")
def test_the_kernel_leaves_few_messages_open() -> None:
    system = {"UNIQ_KEY": "7F", "TAGS": "A", "KEYS": "a b", "__BORNHOST": "there", "TIMER_DELIVER_MS": "5"}
    usual = [
        to_amqp(RocketMessage(b"body" * 100, {"é": "\u6f22", "wide": "x" * 300}, system, born_ms=5, message_group="g")),
        to_amqp(RocketMessage(b"")),
        Message(b"body", application_properties={"a": 1, "b": True}, message_id="id", group_id="g").encode(),
    ]
    with patch.object(delivering_module, "delivered", side_effect=AssertionError("left open")):
        assert all(delivered_messages(usual, deliveries(len(usual)), SOURCE))


def test_without_kernels_python_says_it() -> None:
    octets = [to_amqp(RocketMessage(b"body", {"a": "1"}, {"UNIQ_KEY": "id"}))]
    with patch.object(kernels, "load", return_value=None):
        check_written(octets, [DELIVERY])
    assert delivered_messages([], [], SOURCE) == []
