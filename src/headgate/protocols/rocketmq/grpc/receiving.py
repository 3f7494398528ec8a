"""What ReceiveMessage asks for, checked, and the messages of its answer.

Source: rocketmq_wire, A3; `ReceiveMessageActivity` and `GrpcConverter` of RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.protocols.rocketmq import (
    SHARDING_KEY,
    Digest,
    RocketMessage,
    Status,
    check_group,
    check_invisible_time,
    check_topic,
    digest,
    refused,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc.fields import full_name, milliseconds
from headgate.protocols.rocketmq.grpc.limits import GrpcLimits
from headgate.protocols.rocketmq.grpc.sending import DUE

_DIGITS = 16
"""A time has fewer digits; a message of another protocol may have anything there."""


@dataclass(frozen=True, slots=True)
class Receive:
    """One receive; `is_renewed` asks the server to renew what is given.

    `polling_ms` None: as long as the call may last. Which queue is named does not matter, nor which attempt it is: what
    a call that was given up had claimed is free again.
    """

    group: str
    topic: str
    filter_type: int
    filter_text: str
    count: int
    invisible_ms: int
    is_renewed: bool
    polling_ms: int | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is told of a message beside what it holds."""

    handle: str
    queue: int
    offset: int
    stored_ms: int
    attempt: int
    invisible_ms: int


def receive_request(request: pb.ReceiveMessageRequest, limits: GrpcLimits) -> Receive:
    """What is asked for. Raises RemoteProtocolError with the status of what is refused."""
    group, topic = full_name(request.group), full_name(request.message_queue.topic)
    check_group(group)
    check_topic(topic)
    if request.batch_size < 1:
        raise refused(Status.BAD_REQUEST, f"a batch of {request.batch_size} messages; expected 1 at least")
    invisible_ms = limits.renewed_ms
    if not request.auto_renew:
        invisible_ms = milliseconds(request.invisible_duration)
        check_invisible_time(invisible_ms, limits.messages, is_changed=False)
    polling_ms = None
    if request.HasField("long_polling_timeout"):
        polling_ms = milliseconds(request.long_polling_timeout)
        if polling_ms < 0:
            raise refused(Status.ILLEGAL_POLLING_TIME, "the time of long polling is less than none")
    return Receive(
        group,
        topic,
        request.filter_expression.type,
        request.filter_expression.expression,
        min(request.batch_size, limits.batch),
        invisible_ms,
        request.auto_renew,
        polling_ms,
    )


def delivered(topic: pb.Resource, message: RocketMessage, given: Delivery, *, store_host: str) -> bytes:
    """One message of an answer, encoded. No property of the system is among the user's."""
    response = pb.ReceiveMessageResponse()
    told = response.message
    told.topic.CopyFrom(topic)
    told.body = message.body
    told.user_properties.update(message.user)
    if message.message_group:
        told.user_properties.pop(SHARDING_KEY, None)
    system = told.system_properties
    held = message.system
    tag, keys = message.tag, message.keys
    if tag:
        system.tag = tag
    if keys:
        system.keys.extend(keys)
    system.message_id = message.message_id
    system.body_digest.type = pb.DigestType.MD5
    system.body_digest.checksum = digest(message.body, Digest.MD5)
    system.body_encoding = pb.Encoding.IDENTITY
    system.message_type = pb.MessageType.NORMAL
    if message.message_group:
        system.message_type = pb.MessageType.FIFO
        system.message_group = message.message_group
    due = held.get(DUE, "")
    if due.isascii() and due.isdigit() and len(due) < _DIGITS:
        system.message_type = pb.MessageType.DELAY
        _set_time(system.delivery_timestamp, int(due))
    _set_time(system.born_timestamp, given.stored_ms if message.born_ms is None else message.born_ms)
    system.born_host = held.get("__BORNHOST") or message.born_host
    _set_time(system.store_timestamp, given.stored_ms)
    system.store_host = store_host
    system.receipt_handle = given.handle
    system.queue_id = given.queue
    system.queue_offset = given.offset
    system.invisible_duration.seconds = given.invisible_ms // 1000
    system.invisible_duration.nanos = given.invisible_ms % 1000 * 1_000_000
    system.delivery_attempt = given.attempt
    if "DLQ_ORIGIN_TOPIC" in held:
        system.dead_letter_queue.topic = held["DLQ_ORIGIN_TOPIC"]
        system.dead_letter_queue.message_id = held.get("DLQ_ORIGIN_MESSAGE_ID", "")
    return response.SerializeToString()


def _set_time(field: pb.Timestamp, at_ms: int) -> None:
    field.seconds, rest_ms = divmod(at_ms, 1000)
    field.nanos = rest_ms * 1_000_000
