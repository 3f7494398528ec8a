"""What a message is told as in answers to ReceiveMessage, one alone and many at once."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.message import Message
from headgate.protocols.rocketmq import RocketMessage
from headgate.protocols.rocketmq.grpc import (
    DeliveredFrom,
    Delivery,
    GrpcLimits,
    delivered,
    delivered_messages,
    sent_messages,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from strategies import damaged_messages, encoded_messages

LIMITS = GrpcLimits()
DELIVERY = Delivery("handle", "identity", queue=2, offset=7, stored_ms=6_001, attempt=3)
SOURCE = DeliveredFrom(pb.Resource(resource_namespace="ns", name="t"), "here", invisible_ms=15_500)


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


def test_messages_of_any_protocol_are_told_in_their_order() -> None:
    octets = [Message(b"%d" % number, application_properties={"n": number}).encode() for number in range(3)]
    given = [Delivery("handle", "identity", 0, offset, 6_000, 1) for offset in range(3)]
    found = [pb.ReceiveMessageResponse.FromString(each).message for each in delivered_messages(octets, given, SOURCE)]
    assert [(each.body, dict(each.user_properties), each.system_properties.queue_offset) for each in found] == [
        (b"%d" % number, {"n": str(number)}, number) for number in range(3)
    ]


@given(st.one_of(encoded_messages(), damaged_messages()))
def test_bytes_of_any_kind_are_told(data: bytes) -> None:
    (found,) = delivered_messages([data], [DELIVERY], SOURCE)
    assert pb.ReceiveMessageResponse.FromString(found).message.system_properties.queue_offset == 7
