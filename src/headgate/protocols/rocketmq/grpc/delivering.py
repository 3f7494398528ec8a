"""The messages of an answer to ReceiveMessage: many at once by a kernel, one alone by Python, which is the reference.

Source: rocketmq_wire, A3; `GrpcConverter` of RocketMQ 5.5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import msgspec
import numpy as np

from headgate import kernels
from headgate.columns import total
from headgate.message import EncodedMessages
from headgate.protocols.rocketmq import (
    SHARDING_KEY,
    Digest,
    RocketMessage,
    digest,
    from_amqp,
    identity_digits,
    system_names,
    widths,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc.fields import duration
from headgate.protocols.rocketmq.grpc.sending import DUE

_DIGITS = 16
"""A time has fewer digits; a message of another protocol may have anything there."""

_KERNEL = "headgate.protocols.rocketmq.grpc.kernel"
_BLOCK_WORDS = 32
_ROOM_OF_MESSAGE = 1024
_DIGEST_BYTES = 32
_NAMED = ("__BORNHOST", DUE, "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID")
"""System properties with a field of their own, in the kernel's order."""


class Delivery(msgspec.Struct, gc=False):
    """The facts of a delivery beside the message itself; `identity` is the identity of its queue's stream."""

    handle: str
    identity: str
    queue: int
    offset: int
    stored_ms: int
    attempt: int


@dataclass(slots=True)
class DeliveredFrom:
    """The fields that are the same in all messages of one answer."""

    topic: pb.Resource
    store_host: str
    invisible_ms: int


def delivered_messages(messages: Sequence[bytes], given: Sequence[Delivery], source: DeliveredFrom) -> list[bytes]:
    """The messages of an answer, each encoded; `messages` are AMQP messages of any protocol. Never raises.

    All handles have the same length. Cost: a few microseconds a message.
    """
    kernel = kernels.load(_KERNEL)
    pieces: list[bytes] = [b""] * len(messages)
    if kernel is not None and messages:
        pieces = _written(kernel, EncodedMessages.of(messages), given, source)
    for row, each in enumerate(given):
        if not pieces[row]:
            message = from_amqp(messages[row], identity=each.identity, offset=each.offset)
            pieces[row] = delivered(message, each, source)
    return pieces


def _written(
    kernel: ModuleType, messages: EncodedMessages, given: Sequence[Delivery], source: DeliveredFrom
) -> list[bytes]:
    """The messages as the kernel encodes them; empty bytes where it leaves one open."""
    count = len(messages)
    names = system_names()
    digits = "".join([identity_digits(each.identity) for each in given]).encode()
    handles = "".join([each.handle for each in given]).encode()
    system = pb.SystemProperties(
        body_encoding=pb.Encoding.IDENTITY,
        store_host=source.store_host,
        invisible_duration=duration(source.invisible_ms),
    ).SerializeToString()
    topic = pb.Message(topic=source.topic).SerializeToString()
    texts = b"".join((digits, handles, system, topic, SHARDING_KEY.encode()))
    room = 2 * total(messages.lengths) + count * (_ROOM_OF_MESSAGE + len(handles) + len(system) + len(topic))
    target = np.empty(room, dtype=np.uint8)
    columns = np.array([(each.queue, each.offset, each.stored_ms, each.attempt) for each in given], dtype=np.int64)
    words = np.empty(_BLOCK_WORDS + 9 * count + kernel.WORDS_BYTES // 8, dtype=np.int64)
    words[_BLOCK_WORDS : _BLOCK_WORDS + 4 * count] = columns.T.reshape(-1)
    answers = words[_BLOCK_WORDS + 4 * count : _BLOCK_WORDS + 9 * count].reshape(5, count)
    sources = [np.ascontiguousarray(column, dtype=np.int64) for column in (messages.starts, messages.lengths)]
    text = kernels.address_of(np.frombuffer(texts, dtype=np.uint8))
    told = text + len(digits) + len(handles)
    begin = kernels.address_of(words)
    column = begin + 8 * _BLOCK_WORDS
    place = kernels.address_of(target)
    words[:_BLOCK_WORDS] = (
        kernels.address_of(messages.data),
        *map(kernels.address_of, sources),
        count,
        kernels.address_of(widths()),
        *names.addresses(),
        text,
        *(column + 8 * count * number for number in range(4)),
        text + len(digits),
        len(given[0].handle),
        told,
        len(system),
        told + len(system),
        len(topic),
        told + len(system) + len(topic),
        place,
        place + room,
        *(column + 8 * count * number for number in range(4, 10)),
        *(names.numbers[name] for name in _NAMED),
    )
    kernel.encode_delivered(begin)
    octets = target.data
    pieces = []
    for start, length, status, checked, body_bytes in answers.T.tolist():
        if status != kernel.DONE:
            pieces.append(b"")
            continue
        stop = start + length
        body = hashlib.md5(octets[stop - body_bytes : stop], usedforsecurity=False).hexdigest()
        octets[checked : checked + _DIGEST_BYTES] = body.upper().encode()
        pieces.append(octets[start:stop].tobytes())
    return pieces


def delivered(message: RocketMessage, given: Delivery, source: DeliveredFrom) -> bytes:
    """One message of an answer, encoded. No property of the system is among the user's."""
    response = pb.ReceiveMessageResponse()
    told = response.message
    told.topic.CopyFrom(source.topic)
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
    system.store_host = source.store_host
    system.invisible_duration.CopyFrom(duration(source.invisible_ms))
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
    system.receipt_handle = given.handle
    system.queue_id = given.queue
    system.queue_offset = given.offset
    system.delivery_attempt = given.attempt
    if "DLQ_ORIGIN_TOPIC" in held:
        system.dead_letter_queue.topic = held["DLQ_ORIGIN_TOPIC"]
        system.dead_letter_queue.message_id = held.get("DLQ_ORIGIN_MESSAGE_ID", "")
    return response.SerializeToString()


def _set_time(field: pb.Timestamp, at_ms: int) -> None:
    field.seconds, rest_ms = divmod(at_ms, 1000)
    field.nanos = rest_ms * 1_000_000
