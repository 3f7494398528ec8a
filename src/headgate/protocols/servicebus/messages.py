"""The two forms of a message for clients of Service Bus: as it is stored, and as a receiver gets it.

Stored: as a publisher's message, without exchange and routing key, and with a message id, which clients need to settle
messages. A message without a body is stored with an empty body, because RabbitMQ ends the connection of a consumer that
meets one without, and with the annotation `x-headgate-no-body`; it is delivered without both. Delivered: annotations
and header describe this delivery; annotations for the broker itself and for other protocols stay inside.
Source: servicebus_wire, section 6.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import rows_of, smallest, total
from headgate.errors import HeadgateError, MessageError, PreconditionFailedError
from headgate.language.servicebus import Limits
from headgate.message import (
    EMPTY_BODY,
    NO_BODY,
    SLACK_BYTES,
    AmqpType,
    AmqpValue,
    Change,
    EncodedMessages,
    FieldReference,
    Message,
    Section,
    section_spans,
    skip_value,
)
from headgate.message.lookup import locate_each
from headgate.protocols.amqp10 import BROKER_ANNOTATIONS, StoredMessages, annotated_message, store_messages
from headgate.protocols.amqp10.layout import SPANS
from headgate.protocols.servicebus.batches import ID_BYTES, KERNEL, widths
from headgate.protocols.servicebus.layout import DeliveryBlock, IdsBlock

SEQUENCE_NUMBER = "x-opt-sequence-number"
ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
ENQUEUED_TIME = "x-opt-enqueued-time"
LOCKED_UNTIL = "x-opt-locked-until"
STATE = "x-opt-message-state"
DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
LOCK_TOKEN = "x-opt-lock-token"
"""A delivery annotation: the lock token of a message received by its number; the response has it, too."""
SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"

_TOLD = (SEQUENCE_NUMBER, ENQUEUED_SEQUENCE_NUMBER, ENQUEUED_TIME, STATE)
"""Annotations of each delivery, in the order of the kernel; `LOCKED_UNTIL` comes after them."""

_OF_THE_BROKER = (SEQUENCE_NUMBER, ENQUEUED_SEQUENCE_NUMBER, ENQUEUED_TIME, LOCKED_UNTIL, STATE, DEAD_LETTER_SOURCE)
_ID = FieldReference(Section.PROPERTIES, position=0)
_EXPIRY_TIME = FieldReference(Section.PROPERTIES, position=8)
_CREATION_TIME = FieldReference(Section.PROPERTIES, position=9)
_SESSION = FieldReference(Section.PROPERTIES, position=10)
_PARTITION_KEY = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt-partition-key")
_IDENTIFIERS = (("a message id", _ID), ("a session id", _SESSION), ("a partition key", _PARTITION_KEY))
_LOCK_TOKEN = FieldReference(Section.DELIVERY_ANNOTATIONS, key=LOCK_TOKEN.encode())
_NO_BODY_OCTETS = NO_BODY.encode()
_NO_BODY = FieldReference(Section.MESSAGE_ANNOTATIONS, key=_NO_BODY_OCTETS)
_TRUE = AmqpValue(AmqpType.BOOLEAN, True)
_TIME_TO_LIVE = FieldReference(Section.HEADER, position=2)
_MAX_UINT = (1 << 32) - 1
_MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: some clients cannot show a later time."""

_ROOM_OF_ID = 96
_ROOM_OF_DELIVERY = 384
_BLOCK_WORDS, _SCRATCH_WORDS = len(DeliveryBlock._fields), len(SPANS) + 5
_ID_WORD = len(SPANS)
"""Where the scratch has room for an id, and a time to live."""


class Identifiers(NamedTuple):
    """The bytes of the identifiers of messages, `(messages,)` each; −1 where a message has none."""

    message_ids: NDArray[np.int64]
    session_ids: NDArray[np.int64]
    partition_keys: NDArray[np.int64]

    @staticmethod
    def of(messages: EncodedMessages) -> Identifiers:
        """Cost: a look for three fields in each message."""
        found = locate_each(messages, [reference for _, reference in _IDENTIFIERS])
        return Identifiers(*found[:, 1])


def stored(
    messages: EncodedMessages, found: Identifiers, *, left_out: Sequence[str], new_ids: Callable[[int], bytes]
) -> StoredMessages:
    """The stored form of messages, in a separate buffer; messages without an id get one from `new_ids`.

    `found` are their identifiers; `new_ids` gives an id of 32 letters or digits for each message. Annotations that only
    the broker sets, or that are `left_out`, are dropped.
    """
    dropped = (*_OF_THE_BROKER, NO_BODY, *left_out)
    kept = store_messages(messages, routing=None, user=None, left_out=dropped, no_body=NO_BODY)
    lengths = found.message_ids
    if smallest(lengths) >= 0:
        return kept
    refused = dict(kept.refused)
    messages = _with_ids(kept.messages, new_ids(len(lengths)), lengths < 0, refused)
    return StoredMessages(messages, kept.filter_values, refused)


def _with_ids(
    messages: EncodedMessages, ids: bytes, asked: NDArray[np.bool_], refused: dict[int, HeadgateError]
) -> EncodedMessages:
    """Stored messages, in a separate buffer, each with an id; empty messages stay empty.

    `asked` marks the messages that may have no id; those of them with malformed properties are added to `refused`.
    """
    block = _Block(messages, _ROOM_OF_ID)
    kernel = kernels.load(KERNEL)
    if kernel is not None:
        octets = np.frombuffer(ids, dtype=np.uint8)
        tables = kernels.address_of(widths()), kernels.address_of(octets)
        block.run(kernel.with_ids, IdsBlock(*block.inputs, *tables, *block.outputs))

    def alone(row: int) -> bytes:
        data = messages.message(row)
        if not data:
            return data
        try:
            message = Message.decode(data)
            if not asked[row] or not _is_missing(message, _ID):
                return data
            identity = ids[row * ID_BYTES : (row + 1) * ID_BYTES].decode()
            return message.with_changes([(_ID, AmqpValue(AmqpType.STRING, identity))]).encode()
        except MessageError as error:
            refused[row] = error
            return b""

    return block.written(alone)


def beyond_limits(
    messages: EncodedMessages, identifiers: Identifiers, limits: Limits
) -> dict[int, PreconditionFailedError]:
    """The messages, by row, with ids, partition key or application properties larger than allowed, and why.

    Cost: a look at each long message.
    """
    found: dict[int, PreconditionFailedError] = {}
    for (name, reference), lengths in zip(_IDENTIFIERS, identifiers, strict=True):
        for row in np.flatnonzero(lengths > limits.identifier_characters).tolist():
            value = Message.decode(messages.message(row)).value(reference)
            text = None if value is None else value.text()
            if text is not None and len(text) > limits.identifier_characters:
                found[row] = _beyond(f"{name} of {len(text)} characters", limits.identifier_characters)
    for row in np.flatnonzero(messages.lengths > limits.property_bytes).tolist():
        try:
            reason = _properties_beyond(messages.message(row), limits)
        except MessageError:
            # Bytes that are no message are refused when they are stored.
            continue
        if reason is not None:
            found[row] = reason
    return found


def _properties_beyond(data: bytes, limits: Limits) -> PreconditionFailedError | None:
    span = section_spans(data)[0].get(Section.APPLICATION_PROPERTIES)
    if span is None:
        return None
    if span.stop - span.elements > limits.properties_bytes:
        return _beyond(f"application properties of {span.stop - span.elements} bytes", limits.properties_bytes)
    position = span.elements
    for _ in range(span.count // 2):
        behind = skip_value(data, skip_value(data, position, span.stop), span.stop)
        if behind - position > limits.property_bytes:
            return _beyond(f"an application property of {behind - position} bytes", limits.property_bytes)
        position = behind
    return None


def _beyond(what: str, limit: int) -> PreconditionFailedError:
    return PreconditionFailedError(f"{what}; at most {limit} are allowed")


@dataclass(frozen=True, slots=True)
class Given:
    """The broker's facts about one delivery of a copy; `locked_until_ms` is None if it is not locked.

    `enqueued_sequence_number` is the first number of the message, `delivery_count` its number of earlier deliveries,
    `time_to_live_ms` the default of its entity, `state` 0 (active), 1 (deferred) or 2 (scheduled). `lock_token` is
    None on a link, where the delivery tag is the token.
    """

    sequence_number: int
    enqueued_sequence_number: int
    enqueued_ms: int
    delivery_count: int
    locked_until_ms: int | None = None
    time_to_live_ms: int | None = None
    state: int = 0
    lock_token: uuid.UUID | None = None


def delivered(data: bytes, given: Given, *, left_out: Sequence[str]) -> bytes:
    """A stored message, or any bytes, as a receiver gets it; annotations that are `left_out` stay inside."""
    annotations = {
        SEQUENCE_NUMBER: AmqpValue(AmqpType.LONG, given.sequence_number),
        ENQUEUED_SEQUENCE_NUMBER: AmqpValue(AmqpType.LONG, given.enqueued_sequence_number),
        ENQUEUED_TIME: AmqpValue(AmqpType.TIMESTAMP, given.enqueued_ms),
        STATE: AmqpValue(AmqpType.INT, given.state),
    }
    if given.locked_until_ms is not None:
        annotations[LOCKED_UNTIL] = AmqpValue(AmqpType.TIMESTAMP, given.locked_until_ms)
    dropped = (*BROKER_ANNOTATIONS, NO_BODY, *left_out)
    data = _without_body(data)
    message = annotated_message(data, annotations, delivery_count=given.delivery_count, left_out=dropped)
    decoded = Message.decode(message)
    if given.lock_token is not None:
        decoded = decoded.with_changes([(_LOCK_TOKEN, AmqpValue(AmqpType.UUID, given.lock_token))])
        message = decoded.encode()
    try:
        changes = _expiry(decoded, given)
        if _is_missing(decoded, _ID):
            changes.append((_ID, AmqpValue(AmqpType.STRING, f"{given.enqueued_sequence_number:032x}")))
        return decoded.with_changes(changes).encode() if changes else message
    except MessageError:
        # Another protocol stored it: its properties hold something else than they announce, and stay as they are.
        return message


def _without_body(data: bytes) -> bytes:
    """A stored message as it came: without the empty body that was added to a message without one."""
    if _NO_BODY_OCTETS not in data:
        return data
    try:
        body = section_spans(data)[1]
        is_noted = Message.decode(data).value(_NO_BODY) == _TRUE
    except MessageError:
        return data
    is_empty = data.startswith(EMPTY_BODY, body)
    return data[:body] + data[body + len(EMPTY_BODY) :] if is_noted and is_empty else data


@dataclass(slots=True)
class GivenMessages:
    """The broker's facts about copies delivered together, columns `(copies,)` int64; see `Given`."""

    sequence_numbers: NDArray[np.int64]
    enqueued_ms: NDArray[np.int64]
    delivery_counts: NDArray[np.int64]
    locked_until_ms: int | None
    time_to_live_ms: int | None


def delivered_messages(
    messages: EncodedMessages,
    given: GivenMessages,
    *,
    left_out: Sequence[str],
    moved_by: str,
    alone: Callable[[int], bytes],
) -> EncodedMessages:
    """Many stored messages as a receiver gets them, in a separate buffer: one kernel call.

    `alone` gives the form of a row that the kernel leaves open: bytes that are no message, a message that came without
    a body, or one with the annotation `moved_by` or the annotation of its first number, as it comes from elsewhere.
    """
    columns = given.sequence_numbers, given.enqueued_ms, given.delivery_counts
    block = _Block(messages, _ROOM_OF_DELIVERY, columns)
    kernel = kernels.load(KERNEL)
    if kernel is not None:
        told = _TOLD if given.locked_until_ms is None else (*_TOLD, LOCKED_UNTIL)
        _, names = _names(moved_by, NO_BODY, *told, *BROKER_ANNOTATIONS, *left_out)
        sequences, arrivals, counts = block.columns
        times = given.locked_until_ms or 0, given.time_to_live_ms or 0, _MAX_TIME_MS
        numbers = sequences, arrivals, counts, *times
        identity = block.outputs[-1] + 8 * _ID_WORD
        block.run(kernel.deliver, DeliveryBlock(*block.inputs, *names, *numbers, *block.outputs, identity))
    return block.written(alone)


@functools.lru_cache(maxsize=64)
def _names(*listed: str) -> tuple[NDArray[np.uint8], tuple[int, int, int]]:
    """Names for kernels, as rows of 32 bytes that begin with the length; and the kernel's description of the table."""
    rows = np.zeros((len(listed), 32), dtype=np.uint8)
    for row, name in zip(rows, listed, strict=True):
        row[0] = len(name)
        row[1 : 1 + len(name)] = np.frombuffer(name.encode(), dtype=np.uint8)
    return rows, (kernels.address_of(widths()), kernels.address_of(rows), len(rows))


class _Block:
    """The kernel's inputs, and room for the messages that it writes: one array, as each costs as much as a message.

    `inputs`: where the messages are: data, starts, lengths, and their number. `columns`: where further columns are.
    `outputs`: where target, starts, lengths, status and scratch are. The block keeps all of them alive.
    """

    __slots__ = ("_lengths", "_messages", "_starts", "_status", "_target", "_words", "columns", "inputs", "outputs")

    def __init__(self, messages: EncodedMessages, room: int, columns: Sequence[NDArray[np.int64]] = ()) -> None:
        """`room`: bytes that a message may grow."""
        count, given = len(messages.starts), 2 + len(columns)
        begin = _BLOCK_WORDS + _SCRATCH_WORDS
        target = begin + (given + 3) * count
        capacity = total(messages.lengths) + count * room + SLACK_BYTES
        self._messages = messages
        self._words = words = np.empty(target + (capacity + 7) // 8, dtype=np.int64)
        rows = words[begin:target].reshape(given + 3, count)
        rows[0], rows[1] = messages.starts, messages.lengths
        for row, column in enumerate(columns, 2):
            rows[row] = column
        self._starts, self._lengths, self._status = rows[given:]
        self._starts[:] = self._lengths[:] = 0
        self._status[:] = 1
        self._target = words[target:].view(np.uint8)
        address, step = kernels.address_of(words), 8 * count
        first = address + 8 * begin
        out = first + given * step
        self.inputs = kernels.address_of(messages.data), first, first + step, count
        self.columns = [first + row * step for row in range(2, given)]
        self.outputs = out + 3 * step, out, out + step, out + 2 * step, address + 8 * _BLOCK_WORDS

    def run(self, kernel: Callable[[int], object], told: IdsBlock | DeliveryBlock) -> None:
        """Let a kernel write the messages and the status of each."""
        self._words[: len(told)] = told
        kernel(self.outputs[-1] - 8 * _BLOCK_WORDS)

    def written(self, alone: Callable[[int], bytes]) -> EncodedMessages:
        """The messages; `alone` gives the rows that the kernel left open."""
        messages = EncodedMessages(self._target, self._starts, self._lengths)
        open_rows = rows_of(self._status)
        if not open_rows:
            return messages
        parts = messages.all_bytes()
        for row in open_rows:
            parts[row] = alone(row)
        return EncodedMessages.of(parts)


def _expiry(message: Message, given: Given) -> list[Change]:
    """Time to live, expiry and creation time, which clients calculate with; nothing for a message without expiry."""
    said = message.value(_TIME_TO_LIVE)
    lifetimes = [given.time_to_live_ms, said.value if said is not None and said.type is AmqpType.UINT else None]
    found = [each for each in lifetimes if each]
    if not found:
        return []
    lives_ms = min(found)
    expires_ms = min(given.enqueued_ms + lives_ms, _MAX_TIME_MS)
    fits = lives_ms <= _MAX_UINT
    return [
        *([(_TIME_TO_LIVE, AmqpValue(AmqpType.UINT, lives_ms))] if fits else []),
        (_EXPIRY_TIME, AmqpValue(AmqpType.TIMESTAMP, expires_ms)),
        (_CREATION_TIME, AmqpValue(AmqpType.TIMESTAMP, given.enqueued_ms)),
    ]


def _is_missing(message: Message, reference: FieldReference) -> bool:
    value = message.value(reference)
    return value is None or value.type is AmqpType.NULL
