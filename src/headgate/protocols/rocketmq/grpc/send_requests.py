"""SendMessage requests, checked, and their answers.

All messages of a call are for one topic. If one message is refused, none of the call is stored, as in the original
(`SendMessageActivity` of RocketMQ 5.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.protocols.rocketmq import (
    SHARDING_KEY,
    Compression,
    RocketMessage,
    Status,
    check_body,
    check_delivery_time,
    check_keys,
    check_message_group,
    check_message_id,
    check_properties,
    check_tag,
    check_topic,
    decompressed,
    refused,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc.fields import OK, full_name, time_ms
from headgate.protocols.rocketmq.grpc.settings import GrpcLimits

DUE = "TIMER_DELIVER_MS"
"""The system property that says when a delayed message is due, milliseconds since 1970."""


@dataclass(slots=True)
class SentMessage:
    """One message: its type, by its properties, its group if it is fifo, its due time if it is delayed.

    `offset` and `recall_handle` are for the answer; the handle is empty where there is none.
    """

    message: RocketMessage
    type: pb.MessageType
    group: str | None
    due_ms: int | None
    offset: int = 0
    recall_handle: str = ""

    @property
    def message_id(self) -> str:
        """The id that the client made."""
        return self.message.message_id


def sent_messages(
    request: pb.SendMessageRequest, limits: GrpcLimits, *, now_ms: int, born_host: str
) -> tuple[str, list[SentMessage]]:
    """The topic and the messages; `born_host` stands in for the host of clients that name none.

    Raises RemoteProtocolError with a status if one is refused.
    """
    given = request.messages
    if not given:
        raise refused(Status.MESSAGE_CORRUPTED, "no message to send")
    if len(given) > limits.entries:
        raise refused(Status.BAD_REQUEST, f"{len(given)} messages in one request, at most {limits.entries}")
    topic = full_name(given[0].topic)
    check_topic(topic)
    if any(full_name(message.topic) != topic for message in given):
        raise refused(Status.MESSAGE_CORRUPTED, "different message topic in one request")
    return topic, [_sent(message, limits, now_ms, born_host) for message in given]


def _sent(given: pb.Message, limits: GrpcLimits, now_ms: int, born_host: str) -> SentMessage:
    system, user = given.system_properties, dict(given.user_properties)
    tag, keys = system.tag, list(system.keys)
    check_message_id(system.message_id)
    check_tag(tag)
    check_keys(keys)
    check_properties(user, tag, keys, limits.messages)
    kind, group = _type(system), system.message_group or None
    due_ms = None
    if system.HasField("delivery_timestamp"):
        due_ms = time_ms(system.delivery_timestamp)
        check_delivery_time(due_ms, now_ms, limits.messages)
    if group is not None:
        check_message_group(group, limits.messages)
    body = given.body
    check_body(body, limits.messages)
    if system.body_encoding == pb.Encoding.GZIP:
        body = decompressed(body, Compression.GZIP, limits.messages.body_bytes)
    born_ms = time_ms(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    held = {"UNIQ_KEY": system.message_id, "__BORNHOST": system.born_host or born_host, "BORN_TIMESTAMP": str(born_ms)}
    if tag:
        held["TAGS"] = tag
    if keys:
        held["KEYS"] = " ".join(keys)
    if due_ms is not None:
        held[DUE] = str(due_ms)
    if group is not None:
        user[SHARDING_KEY] = group
    message = RocketMessage(body, user, held, born_ms=born_ms, message_group=group)
    return SentMessage(message, kind, group, due_ms)


def _type(system: pb.SystemProperties) -> pb.MessageType:
    """The type of a message, by its properties. Raises RemoteProtocolError if they say more than one type."""
    found = [
        kind
        for kind, is_it in (
            (pb.MessageType.FIFO, bool(system.message_group)),
            (pb.MessageType.DELAY, system.HasField("delivery_timestamp")),
            (pb.MessageType.TRANSACTION, system.message_type == pb.MessageType.TRANSACTION),
            (pb.MessageType.LITE, system.HasField("lite_topic") or system.message_type == pb.MessageType.LITE),
            (pb.MessageType.PRIORITY, system.HasField("priority") or system.message_type == pb.MessageType.PRIORITY),
        )
        if is_it
    ]
    if len(found) > 1:
        names = ", ".join(kind.name for kind in found)
        raise refused(Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"a message is of one type, found {names}")
    return found[0] if found else pb.MessageType.NORMAL


def check_type(kind: pb.MessageType, accepted: Sequence[pb.MessageType], topic: str) -> None:
    """Refuse a message of a type that its topic does not take."""
    if kind not in accepted:
        raise refused(
            Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"current message type not match with topic accept message types, topic {topic} takes "
            f"{', '.join(each.name for each in accepted)}, the message is {kind.name}",
        )


def sent_response(messages: Iterable[SentMessage]) -> pb.SendMessageResponse:
    """The answer: the offset of each message, and the handle that recalls it if it is delayed."""
    entries = [
        pb.SendResultEntry(
            status=OK,
            message_id=message.message_id,
            transaction_id=message.message_id,
            offset=message.offset,
            recall_handle=message.recall_handle,
        )
        for message in messages
    ]
    return pb.SendMessageResponse(status=OK, entries=entries)
