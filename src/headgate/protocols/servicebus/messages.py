"""The two forms of a message for clients of Service Bus: as it is stored, and as a receiver is given it.

Stored: as a publisher's message is, without where it came from, and with a message id: clients that settle messages
need one. Delivered: with what the broker says of this delivery in annotations and header; what it notes for itself and
for other protocols stays inside. Source: servicebus_wire, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.errors import MessageError, PreconditionFailedError
from headgate.language.servicebus import Limits
from headgate.message import (
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
from headgate.message.lookup import locate_bytes
from headgate.protocols.amqp10 import BROKER_ANNOTATIONS, StoredMessages, annotated_message, store_messages

SEQUENCE_NUMBER = "x-opt-sequence-number"
ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
ENQUEUED_TIME = "x-opt-enqueued-time"
LOCKED_UNTIL = "x-opt-locked-until"
STATE = "x-opt-message-state"
DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"

_OF_THE_BROKER = (SEQUENCE_NUMBER, ENQUEUED_SEQUENCE_NUMBER, ENQUEUED_TIME, LOCKED_UNTIL, STATE, DEAD_LETTER_SOURCE)
_ID = FieldReference(Section.PROPERTIES, position=0)
_EXPIRY_TIME = FieldReference(Section.PROPERTIES, position=8)
_CREATION_TIME = FieldReference(Section.PROPERTIES, position=9)
_SESSION = FieldReference(Section.PROPERTIES, position=10)
_IDENTIFIERS = {
    "a message id": _ID,
    "a session id": _SESSION,
    "a partition key": FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-opt-partition-key"),
}
_TIME_TO_LIVE = FieldReference(Section.HEADER, position=2)
_MAX_UINT = (1 << 32) - 1
_MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: some clients cannot show a later time."""


def stored(messages: EncodedMessages, *, left_out: Sequence[str], new_id: Callable[[], str]) -> StoredMessages:
    """The stored form of messages, in a separate buffer; one without an id gets one by `new_id`.

    A sender may not say what only the broker does, nor give annotations that are `left_out`.
    """
    kept = store_messages(messages, routing=None, user=None, left_out=(*_OF_THE_BROKER, *left_out))
    _, lengths = locate_bytes(kept.messages, _ID)
    changed: dict[int, bytes] = {}
    refused = dict(kept.refused)
    for row in np.flatnonzero(lengths < 0).tolist():
        if row not in refused:
            message = Message.decode(kept.messages.message(row))
            try:
                if _is_missing(message, _ID):
                    changed[row] = message.with_changes([(_ID, AmqpValue(AmqpType.STRING, new_id()))]).encode()
            except MessageError as error:
                refused[row] = error
    if not changed:
        return StoredMessages(kept.messages, kept.filter_values, refused)
    count = len(kept.messages)
    rows = [changed[row] if row in changed else kept.messages.message(row) for row in range(count)]
    return StoredMessages(EncodedMessages.of(rows), kept.filter_values, refused)


def beyond_limits(messages: EncodedMessages, limits: Limits) -> dict[int, PreconditionFailedError]:
    """The messages, by row, whose ids, partition key or application properties are larger than allowed, and why.

    Cost: a look for three fields in each message; more for those that are long.
    """
    found: dict[int, PreconditionFailedError] = {}
    for name, reference in _IDENTIFIERS.items():
        _, lengths = locate_bytes(messages, reference)
        for row in np.flatnonzero(lengths > limits.identifier_characters).tolist():
            value = Message.decode(messages.message(row)).value(reference)
            text = None if value is None else value.text()
            if text is not None and len(text) > limits.identifier_characters:
                found[row] = _beyond(f"{name} of {len(text)} characters", limits.identifier_characters)
    for row in np.flatnonzero(messages.lengths > limits.property_bytes).tolist():
        try:
            reason = _properties_beyond(messages.message(row), limits)
        except MessageError:
            # What is not a message is refused as such when it is stored.
            continue
        if reason is not None:
            found[row] = reason
    return found


def without_session(messages: EncodedMessages) -> list[int]:
    """The messages, by row, that say no session id."""
    _, lengths = locate_bytes(messages, _SESSION)
    return np.flatnonzero(lengths < 0).tolist()


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
    """What the broker says of a copy that it gives out; `locked_until_ms` is None where it is not locked.

    `enqueued_sequence_number` is the number that the message had first, `delivery_count` how often it was given out
    before, `time_to_live_ms` the default of where it is, `state` 0 (active), 1 (deferred) or 2 (scheduled).
    """

    sequence_number: int
    enqueued_sequence_number: int
    enqueued_ms: int
    delivery_count: int
    locked_until_ms: int | None = None
    time_to_live_ms: int | None = None
    state: int = 0


def delivered(data: bytes, given: Given, *, left_out: Sequence[str]) -> bytes:
    """What a receiver gets of a stored message, or of any bytes; annotations that are `left_out` stay inside."""
    annotations = {
        SEQUENCE_NUMBER: AmqpValue(AmqpType.LONG, given.sequence_number),
        ENQUEUED_SEQUENCE_NUMBER: AmqpValue(AmqpType.LONG, given.enqueued_sequence_number),
        ENQUEUED_TIME: AmqpValue(AmqpType.TIMESTAMP, given.enqueued_ms),
        STATE: AmqpValue(AmqpType.INT, given.state),
    }
    if given.locked_until_ms is not None:
        annotations[LOCKED_UNTIL] = AmqpValue(AmqpType.TIMESTAMP, given.locked_until_ms)
    dropped = (*BROKER_ANNOTATIONS, *left_out)
    message = annotated_message(data, annotations, delivery_count=given.delivery_count, left_out=dropped)
    decoded = Message.decode(message)
    try:
        changes = _expiry(decoded, given)
        if _is_missing(decoded, _ID):
            changes.append((_ID, AmqpValue(AmqpType.STRING, f"{given.enqueued_sequence_number:032x}")))
        return decoded.with_changes(changes).encode() if changes else message
    except MessageError:
        # Another protocol stored it: its properties hold something else than they announce, and stay as they are.
        return message


def _expiry(message: Message, given: Given) -> list[Change]:
    """When the message was made, when it expires, if it ever does, and how long it lives: clients count with that."""
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
