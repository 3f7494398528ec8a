"""The system properties of Service Bus: where a message holds them, their types, and which ones an action may set.

Source: servicebus_filters, section 2.3. Filters and actions see a message before it is stored on a subscription:
properties of the stored copy alone are null (LockToken, LockedUntilUtc, SequenceNumber), and DeliveryCount is 0.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.language import tree as t
from headgate.message import HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, Section


class SystemType(enum.Enum):
    """Types of system properties; a field that holds something else counts as unset."""

    TEXT = "string"
    IDENTIFIER = "string, read from any type of id"
    TIME_SPAN = "time span, in milliseconds"
    DATE_TIME = "date-time"
    INTEGER = "integer"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """One system property, under `names` (the documented one first).

    Without a `reference` it has the constant `value`, and setting it has no effect.
    """

    names: tuple[str, ...]
    type: SystemType
    settable: bool
    reference: FieldReference | None = None
    value: int | None = None
    is_size: bool = False
    is_limited: bool = False
    """Whether the limit of identifiers counts for it (section 7)."""

    def node(self, span: t.Span) -> t.Node:
        """The node for this property in a bound tree."""
        if self.is_size:
            return t.MessageSize(span)
        if self.reference is None:
            return t.Constant(self.value, span)
        return t.Field(self.reference, t.ValueRules.SERVICE_BUS, span)


def _properties(name: str) -> FieldReference:
    return FieldReference(Section.PROPERTIES, position=PROPERTIES_FIELDS.index(name))


def _annotation(name: str) -> FieldReference:
    return FieldReference(Section.MESSAGE_ANNOTATIONS, key=f"x-opt-{name}".encode())


_TEXT, _DATE_TIME, _INTEGER = SystemType.TEXT, SystemType.DATE_TIME, SystemType.INTEGER
_TTL = FieldReference(Section.HEADER, position=HEADER_FIELDS.index("ttl"))

SYSTEM_PROPERTIES: tuple[SystemProperty, ...] = (
    SystemProperty(("MessageId",), SystemType.IDENTIFIER, True, _properties("message-id"), is_limited=True),
    SystemProperty(("CorrelationId",), SystemType.IDENTIFIER, True, _properties("correlation-id")),
    SystemProperty(("Label", "Subject"), _TEXT, True, _properties("subject")),
    SystemProperty(("To",), _TEXT, True, _properties("to")),
    SystemProperty(("ReplyTo",), _TEXT, True, _properties("reply-to")),
    SystemProperty(("ReplyToSessionId",), _TEXT, True, _properties("reply-to-group-id"), is_limited=True),
    SystemProperty(("SessionId",), _TEXT, True, _properties("group-id"), is_limited=True),
    SystemProperty(("ContentType",), _TEXT, True, _properties("content-type")),
    SystemProperty(("PartitionKey",), _TEXT, True, _annotation("partition-key"), is_limited=True),
    SystemProperty(
        ("ViaPartitionKey", "TransactionPartitionKey"), _TEXT, True, _annotation("via-partition-key"), is_limited=True
    ),
    SystemProperty(("TimeToLive",), SystemType.TIME_SPAN, True, _TTL),
    SystemProperty(
        ("ScheduledEnqueueTimeUtc", "ScheduledEnqueueTime"), _DATE_TIME, True, _annotation("scheduled-enqueue-time")
    ),
    SystemProperty(("ForcePersistence",), SystemType.BOOLEAN, True),
    SystemProperty(("EnqueuedTimeUtc",), _DATE_TIME, False, _annotation("enqueued-time")),
    SystemProperty(("ExpiresAtUtc",), _DATE_TIME, False, _properties("absolute-expiry-time")),
    SystemProperty(("LockedUntilUtc",), _DATE_TIME, False),
    SystemProperty(("SequenceNumber",), _INTEGER, False),
    SystemProperty(("EnqueuedSequenceNumber",), _INTEGER, False, _annotation("enqueue-sequence-number")),
    SystemProperty(("DeliveryCount",), _INTEGER, False, value=0),
    SystemProperty(("LockToken",), _TEXT, False),
    SystemProperty(("DeadLetterSource",), _TEXT, False, _annotation("deadletter-source")),
    SystemProperty(("Size",), _INTEGER, False, is_size=True),
    SystemProperty(("State",), _INTEGER, False, _annotation("message-state")),
)
"""All of them, in the order of the documentation."""


CORRELATION_FIELDS: Mapping[str, str] = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "subject": "Subject",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}
"""Names of conditions on system properties → the property; `subject` is the newer name of `label`."""


def _place(reference: FieldReference) -> int | bytes | None:
    return reference.position if reference.key is None else reference.key


_BY_NAME: Mapping[str, SystemProperty] = {name.lower(): found for found in SYSTEM_PROPERTIES for name in found.names}
_TYPES: Mapping[tuple[Section, int | bytes | None], SystemType] = {
    (found.reference.section, _place(found.reference)): found.type
    for found in SYSTEM_PROPERTIES
    if found.reference is not None
}


def system_property(name: str) -> SystemProperty | None:
    """The system property of that name, in any letter case."""
    return _BY_NAME.get(name.lower()) if name.isascii() else None


def missing_system_property(name: str) -> str:
    """The error text for a name that no system property has."""
    names = [known for found in SYSTEM_PROPERTIES for known in found.names]
    near = difflib.get_close_matches(name.lower(), [known.lower() for known in names], n=1, cutoff=0.7)
    hint = f"did you mean sys.{next(known for known in names if known.lower() == near[0])}?" if near else ""
    return f"there is no system property {name!r}; {hint or 'a property of your own is user.' + name}"


def system_type(reference: FieldReference) -> SystemType | None:
    """The type of the system property in a field; None for other fields."""
    return _TYPES.get((reference.section, _place(reference)))


def system_name(reference: FieldReference) -> str | None:
    """The documented name of the system property in a field; None for another field."""
    return next((found.names[0] for found in SYSTEM_PROPERTIES if found.reference == reference), None)
