"""Copies that left their subscription: the notes on a copy that is dead-lettered, deferred or forwarded.

A moved copy is a message of another stream. A dead letter, or a deferred copy, keeps the number that it had, offset ·
2^20 + rule, the time at which its message arrived, and how often it was given out, in three message annotations; why it
is a dead letter stands in application properties (servicebus_wire, section 5).

A forwarded copy begins anew at its target. It keeps the first sequence number of its message, how often it was
forwarded, and, as a dead letter, where it became one (servicebus_wire, section 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.errors import MessageError
from headgate.message import SYSTEM_PROPERTIES, AmqpType, AmqpValue, Body, Change, FieldReference, Message, Section

REASON_PROPERTY = "DeadLetterReason"
DESCRIPTION_PROPERTY = "DeadLetterErrorDescription"

COPY_ANNOTATION = "x-headgate-copy"
ARRIVED_ANNOTATION = "x-headgate-arrived"
ATTEMPTS_ANNOTATION = "x-headgate-attempts"


HOPS_ANNOTATION = "x-headgate-hops"
FIRST_NUMBER_ANNOTATION = "x-opt-enqueue-sequence-number"
SOURCE_ANNOTATION = "x-opt-deadletter-source"

RESUBMISSIONS_ANNOTATION = "x-headgate-resubmissions"
LAST_REASON_ANNOTATION = "x-headgate-last-dead-letter-reason"
LAST_DESCRIPTION_ANNOTATION = "x-headgate-last-dead-letter-description"

MAX_HOPS = 4
"""How often a message may be forwarded, as in Service Bus."""


def with_properties(encoded: bytes, properties: Mapping[str, AmqpValue]) -> bytes:
    """The message with these application properties in place of any of the same names, case ignored; all else stays.

    Bytes that are not a message, or a message to which no application property can be added, become the body of a new
    one.
    """
    changes: list[tuple[FieldReference, AmqpValue | None]] = []
    for name, value in properties.items():
        key = name.encode()
        changes.append((FieldReference(Section.APPLICATION_PROPERTIES, key=key, ignore_case=True), None))
        changes.append((FieldReference(Section.APPLICATION_PROPERTIES, key=key), value))
    try:
        return Message.decode(encoded).with_changes(changes).encode()
    except MessageError:
        described = {name: value.value for name, value in properties.items()}
        return Message(Body.data(encoded), application_properties=described).encode()


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a moved copy: its number, when its message arrived, and how often it was given out."""

    copy: int
    arrived_ms: int
    attempts: int


_ORIGIN = {
    name: FieldReference(Section.MESSAGE_ANNOTATIONS, key=name.encode())
    for name in (COPY_ANNOTATION, ARRIVED_ANNOTATION, ATTEMPTS_ANNOTATION)
}
_COPY_OCTETS = COPY_ANNOTATION.encode()


def with_origin(encoded: bytes, origin: Origin, *, source: str | None = None, also: Sequence[Change] = ()) -> bytes:
    """The message with the annotations of a moved copy, and of the `source` that it became a dead letter of.

    `also` are further changes of annotations.

    Bytes that are not a message become the body of a new one.
    """
    values = (
        AmqpValue(AmqpType.LONG, origin.copy),
        AmqpValue(AmqpType.TIMESTAMP, origin.arrived_ms),
        AmqpValue(AmqpType.UINT, origin.attempts),
    )
    changes: list[Change] = list(zip(_ORIGIN.values(), values, strict=True))
    if source is not None:
        changes.append((_annotation(SOURCE_ANNOTATION), AmqpValue(AmqpType.STRING, source)))
    return _with_changes(_decoded(encoded), [*changes, *also], encoded)


def forwarded(encoded: bytes, *, number: int, source: str | None) -> bytes | None:
    """The message as it lies in the stream that it is forwarded to; None for one that was forwarded often enough.

    `number` is its sequence number where it comes from, `source` names that place if it became a dead letter there.
    Bytes that are not a message become the body of a new one.
    """
    message = _decoded(encoded)
    noted = message.value(_annotation(HOPS_ANNOTATION))
    hops = noted.value if noted is not None and noted.type is AmqpType.UINT else 0
    if hops >= MAX_HOPS:
        return None
    changes: list[Change] = [(_annotation(HOPS_ANNOTATION), AmqpValue(AmqpType.UINT, hops + 1))]
    if message.value(_annotation(FIRST_NUMBER_ANNOTATION)) is None:
        changes.append((_annotation(FIRST_NUMBER_ANNOTATION), AmqpValue(AmqpType.LONG, number)))
    if source is not None:
        changes.append((_annotation(SOURCE_ANNOTATION), AmqpValue(AmqpType.STRING, source)))
    # What marked a dead letter or a deferred copy here says nothing there.
    changes += [(_annotation(name), None) for name in (COPY_ANNOTATION, ARRIVED_ANNOTATION, ATTEMPTS_ANNOTATION)]
    return _with_changes(message, changes, encoded)


_LEFT_BEHIND = (
    COPY_ANNOTATION,
    ARRIVED_ANNOTATION,
    ATTEMPTS_ANNOTATION,
    HOPS_ANNOTATION,
    FIRST_NUMBER_ANNOTATION,
    SOURCE_ANNOTATION,
    *(
        (SYSTEM_PROPERTIES[name].key or b"").decode()
        for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "WAIT", "DELAY", "RECONSUME_TIME", "DLQ_ORIGIN_TOPIC")
    ),
    (SYSTEM_PROPERTIES["DLQ_ORIGIN_MESSAGE_ID"].key or b"").decode(),
)
"""Annotations of a dead letter that say nothing where it is published again."""

_KEPT_AS = ((REASON_PROPERTY, LAST_REASON_ANNOTATION), (DESCRIPTION_PROPERTY, LAST_DESCRIPTION_ANNOTATION))


def resubmitted(encoded: bytes, *, properties: Mapping[str, AmqpValue], removed: Iterable[str] = ()) -> bytes:
    """A dead letter as it is published again: a new message, which may be forwarded as often as any other.

    Its reason and description become annotations, which no rule sees, and its resubmissions are counted. Then the
    application properties `removed` are taken away and `properties` are set, case ignored in both. Bytes that are not a
    message become the body of a new one.
    """
    message = _decoded(encoded)
    counted = message.value(_annotation(RESUBMISSIONS_ANNOTATION))
    before = counted.value if counted is not None and counted.type is AmqpType.UINT else 0
    changes: list[Change] = [(_annotation(RESUBMISSIONS_ANNOTATION), AmqpValue(AmqpType.UINT, before + 1))]
    changes += [(_annotation(name), None) for name in _LEFT_BEHIND]
    for name, kept_as in _KEPT_AS:
        changes.append((_annotation(kept_as), message.value(_property(name))))
        changes.append((_property(name), None))
    changes += [(_property(name, ignore_case=True), None) for name in (*removed, *properties)]
    changes += [(_property(name), value) for name, value in properties.items()]
    return _with_changes(message, changes, encoded)


def _property(name: str, *, ignore_case: bool = False) -> FieldReference:
    return FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode(), ignore_case=ignore_case)


def _annotation(name: str) -> FieldReference:
    return FieldReference(Section.MESSAGE_ANNOTATIONS, key=name.encode())


def _decoded(encoded: bytes) -> Message:
    try:
        return Message.decode(encoded)
    except MessageError:
        return Message(Body.data(encoded))


def _with_changes(message: Message, changes: Sequence[Change], encoded: bytes) -> bytes:
    try:
        return message.with_changes(changes).encode()
    except MessageError:
        return Message(Body.data(encoded)).with_changes(changes).encode()


def source_of(encoded: bytes) -> str | None:
    """The name of the place where a message became a dead letter; None where it does not say."""
    try:
        found = Message.decode(encoded).value(_annotation(SOURCE_ANNOTATION))
    except MessageError:
        return None
    return None if found is None else found.text()


def origin_of(encoded: bytes) -> Origin | None:
    """The note of `with_origin` on a message; None for a message without one, at the cost of a search for bytes."""
    if _COPY_OCTETS not in encoded:
        return None
    try:
        message = Message.decode(encoded)
        found = [message.value(reference) for reference in _ORIGIN.values()]
    except MessageError:
        return None
    copy, arrived_ms, attempts = (0 if each is None else int(each.value) for each in found)
    return None if found[0] is None else Origin(copy, arrived_ms, attempts)
