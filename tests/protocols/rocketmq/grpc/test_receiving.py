"""ReceiveMessage: what is asked for, and what a message is told as."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import RocketMessage, Status
from headgate.protocols.rocketmq.grpc import Delivery, GrpcLimits, delivered, receive_request, sent_messages
from headgate.protocols.rocketmq.grpc import messages as pb

LIMITS = GrpcLimits()
DELIVERY = Delivery("handle", queue=2, offset=7, stored_ms=6_001, attempt=3, invisible_ms=15_500)


def request(**fields: Any) -> Any:
    told = {
        "group": pb.Resource(name="g"),
        "message_queue": pb.MessageQueue(topic=pb.Resource(name="orders"), id=-1),
        "batch_size": 10,
        "invisible_duration": pb.Duration(seconds=15),
    }
    return pb.ReceiveMessageRequest(**(told | fields))


def test_what_a_simple_consumer_asks_for() -> None:
    found = receive_request(
        request(
            filter_expression=pb.FilterExpression(type=pb.FilterType.SQL, expression="a = 1"),
            long_polling_timeout=pb.Duration(seconds=5, nanos=500_000_000),
            attempt_id="attempt",
        ),
        LIMITS,
    )
    assert (found.group, found.topic, found.count) == ("g", "orders", 10)
    assert (found.filter_type, found.filter_text) == (pb.FilterType.SQL, "a = 1")
    assert (found.invisible_ms, found.is_renewed, found.polling_ms) == (15_000, False, 5_500)


def test_a_push_consumer_has_the_servers_invisible_time() -> None:
    given = request(auto_renew=True, batch_size=1_000_000)
    given.ClearField("invisible_duration")
    found = receive_request(given, LIMITS)
    assert (found.is_renewed, found.invisible_ms, found.count, found.polling_ms) == (True, 60_000, 32, None)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"group": pb.Resource(name="")}, Status.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": pb.MessageQueue()}, Status.ILLEGAL_TOPIC),
        ({"batch_size": 0}, Status.BAD_REQUEST),
        ({"invisible_duration": pb.Duration(seconds=9)}, Status.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": None}, Status.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": pb.Duration(seconds=43_201)}, Status.ILLEGAL_INVISIBLE_TIME),
        ({"long_polling_timeout": pb.Duration(seconds=-1)}, Status.ILLEGAL_POLLING_TIME),
    ],
)
def test_refusals(fields: dict[str, Any], status: Status) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        receive_request(request(**fields), LIMITS)
    assert refusal.value.code == status


def told(message: RocketMessage) -> Any:
    encoded = delivered(pb.Resource(resource_namespace="ns", name="t"), message, DELIVERY, store_host="here")
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
