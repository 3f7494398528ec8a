"""SendMessage: what is made of a message, and what is refused with which status."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import Limits, Status
from headgate.protocols.rocketmq.grpc import GrpcLimits, check_type, sent_messages, sent_response
from headgate.protocols.rocketmq.grpc import messages as pb

LIMITS = GrpcLimits(Limits(body_bytes=100), entries=3)
NOW_MS = 1_700_000_000_000


def message(body: bytes = b"x", properties: dict[str, str] | None = None, topic: str = "orders", **system: Any) -> Any:
    told = {"message_id": "id", "body_encoding": pb.Encoding.IDENTITY} | system
    return pb.Message(
        topic=pb.Resource(name=topic),
        body=body,
        user_properties=properties or {},
        system_properties=pb.SystemProperties(**told),
    )


def sent(*messages: Any) -> Any:
    return sent_messages(pb.SendMessageRequest(messages=messages), LIMITS, now_ms=NOW_MS, born_host="host")


def at(time_ms: int) -> Any:
    return pb.Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)


def test_a_message_has_the_properties_that_the_original_gives_it() -> None:
    given = message(b"body", {"color": "red"}, tag="A", keys=["k1", "k2"], born_timestamp=at(5_250), born_host="there")
    topic, [found] = sent(given)
    assert topic == "orders" and (found.type, found.group, found.due_ms) == (pb.MessageType.NORMAL, None, None)
    held = found.message
    assert (held.body, held.user, held.born_ms) == (b"body", {"color": "red"}, 5_250)
    assert held.system == {
        "UNIQ_KEY": "id",
        "__BORNHOST": "there",
        "BORN_TIMESTAMP": "5250",
        "TAGS": "A",
        "KEYS": "k1 k2",
    }


def test_what_a_client_does_not_say_is_filled_in() -> None:
    _, [found] = sent(message())
    assert found.message.system == {"UNIQ_KEY": "id", "__BORNHOST": "host", "BORN_TIMESTAMP": str(NOW_MS)}


def test_a_namespace_is_part_of_the_name_of_a_topic() -> None:
    given = message()
    given.topic.resource_namespace = "ns"
    assert sent(given)[0] == "ns%orders"


def test_a_compressed_body_is_stored_as_what_it_holds() -> None:
    _, [found] = sent(message(gzip.compress(b"long " * 10), body_encoding=pb.Encoding.GZIP))
    assert found.message.body == b"long " * 10


def test_kinds_of_messages_are_known_by_their_properties() -> None:
    _, [fifo] = sent(message(message_group="g"))
    assert (fifo.type, fifo.group, fifo.message.user) == (pb.MessageType.FIFO, "g", {"__SHARDINGKEY": "g"})
    _, [delayed] = sent(message(delivery_timestamp=at(NOW_MS + 5_000)))
    assert (delayed.type, delayed.due_ms) == (pb.MessageType.DELAY, NOW_MS + 5_000)
    assert delayed.message.system["TIMER_DELIVER_MS"] == str(NOW_MS + 5_000)
    for system, kind in (
        ({"message_type": pb.MessageType.TRANSACTION}, pb.MessageType.TRANSACTION),
        ({"lite_topic": "l"}, pb.MessageType.LITE),
        ({"priority": 3}, pb.MessageType.PRIORITY),
    ):
        _, [found] = sent(message(**system))
        assert found.type == kind
        with pytest.raises(RemoteProtocolError, match=f"the message is {kind.name}") as refusal:
            check_type(found.type, (pb.MessageType.NORMAL, pb.MessageType.FIFO, pb.MessageType.DELAY), "orders")
        assert refusal.value.code == Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([], Status.MESSAGE_CORRUPTED),
        ([message()] * 4, Status.BAD_REQUEST),
        ([message(), message(topic="others")], Status.MESSAGE_CORRUPTED),
        ([message(topic="a b")], Status.ILLEGAL_TOPIC),
        ([message(topic="")], Status.ILLEGAL_TOPIC),
        ([message(message_id=" ")], Status.ILLEGAL_MESSAGE_ID),
        ([message(), message(b"")], Status.MESSAGE_BODY_EMPTY),
        ([message(b"x" * 101)], Status.MESSAGE_BODY_TOO_LARGE),
        ([message(gzip.compress(b"x" * 101), body_encoding=2)], Status.MESSAGE_BODY_TOO_LARGE),
        ([message(b"no gzip", body_encoding=2)], Status.MESSAGE_CORRUPTED),
        ([message(tag=" ")], Status.ILLEGAL_MESSAGE_TAG),
        ([message(tag="a|b")], Status.ILLEGAL_MESSAGE_TAG),
        ([message(keys=["a\x01"])], Status.ILLEGAL_MESSAGE_KEY),
        ([message(properties={"TAGS": "x"})], Status.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ([message(properties={f"p{number}": "v" for number in range(129)})], Status.MESSAGE_PROPERTIES_TOO_LARGE),
        ([message(properties={"p": "v" * 20_000})], Status.MESSAGE_PROPERTIES_TOO_LARGE),
        ([message(message_group=" ")], Status.ILLEGAL_MESSAGE_GROUP),
        ([message(message_group="g" * 65)], Status.ILLEGAL_MESSAGE_GROUP),
        ([message(delivery_timestamp=at(NOW_MS + 90_000_000))], Status.ILLEGAL_DELIVERY_TIME),
        (
            [message(delivery_timestamp=at(NOW_MS + 5_000), message_group="g")],
            Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
    ],
)
def test_refusals(messages: list[Any], status: Status) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        sent(*messages)
    assert refusal.value.code == status


def test_the_answer_has_an_entry_for_each_message() -> None:
    _, found = sent(message(message_id="a"), message(message_id="b", delivery_timestamp=at(NOW_MS + 5_000)))
    found[0].offset, found[1].recall_handle = 7, "handle"
    response = sent_response(found)
    told = [(each.message_id, each.transaction_id, each.offset, each.recall_handle) for each in response.entries]
    assert told == [("a", "a", 7, ""), ("b", "b", 0, "handle")]
    assert {response.status.code, *(each.status.code for each in response.entries)} == {Status.OK}
