"""Copies that left their subscription: what is noted on a copy that becomes a dead letter, is deferred or forwarded.

A moved copy is a message of another stream. It keeps the number that it had, offset · 2^20 + rule, the time at which
its message arrived, and how often it was given out, in three message annotations; why it is a dead letter stands in
application properties (servicebus_wire, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import MessageError
from headgate.message import AmqpType, AmqpValue, Body, FieldReference, Message, Section

REASON_PROPERTY = "DeadLetterReason"
DESCRIPTION_PROPERTY = "DeadLetterErrorDescription"

COPY_ANNOTATION = "x-headgate-copy"
ARRIVED_ANNOTATION = "x-headgate-arrived"
ATTEMPTS_ANNOTATION = "x-headgate-attempts"


def with_properties(encoded: bytes, properties: Mapping[str, AmqpValue]) -> bytes:
    """The message with application properties in place of those of these names, in any case; else its own bytes.

    Bytes that are not a message, or whose application properties cannot be added to, become the body of a new one.
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


def with_origin(encoded: bytes, *, copy: int, arrived_ms: int, attempts: int) -> bytes:
    """The message with the annotations of a moved copy; bytes that are not a message become the body of a new one."""
    changes = [
        (FieldReference(Section.MESSAGE_ANNOTATIONS, key=name.encode()), AmqpValue(kind, value))
        for name, kind, value in (
            (COPY_ANNOTATION, AmqpType.LONG, copy),
            (ARRIVED_ANNOTATION, AmqpType.TIMESTAMP, arrived_ms),
            (ATTEMPTS_ANNOTATION, AmqpType.UINT, attempts),
        )
    ]
    try:
        message = Message.decode(encoded)
    except MessageError:
        message = Message(Body.data(encoded))
    try:
        return message.with_changes(changes).encode()
    except MessageError:
        return Message(Body.data(encoded)).with_changes(changes).encode()
