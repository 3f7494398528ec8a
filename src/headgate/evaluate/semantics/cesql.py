"""CloudEvents SQL: the attributes of an event in a message, and operators that cast. What fails is an error.

Operators are in `headgate.language.cesql.values`. Source: CloudEvents SQL 1.0.0, section 3; CloudEvents AMQP protocol
binding 1.0, section 3; JSON event format 1.0, section 2.2. Messages that are no events are read the same way: what they
do not have is missing.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator

from headgate.evaluate.semantics.servicebus import like as like_text
from headgate.language import Value
from headgate.language import tree as t
from headgate.language.cesql import (
    INTEGER_MAX,
    INTEGER_MIN,
    ErrorKind,
    Failure,
    ValueType,
    arithmetic,
    cast,
    compare,
    signed,
    type_of,
)
from headgate.language.servicebus import INTEGERS
from headgate.message import AmqpType, FieldReference, JsonKind, JsonScalar, Message, Section

__all__ = ["among", "arithmetic", "attribute", "compare", "field", "has_attribute", "like", "signed"]

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_EVENT_FORMATS = b"application/cloudevents"
_JSON = b"application/cloudevents+json"


def attribute(node: t.Attribute, message: Message) -> Value:
    """The value of an attribute. Raises Failure where the event has none, or is in a form that is not read."""
    value = _found(node, message)
    if value is None:
        raise Failure(ErrorKind.MISSING_ATTRIBUTE, f"the event has no attribute {node.name}", False)
    return value


def has_attribute(node: t.Attribute, message: Message) -> bool:
    """Whether the event has an attribute, the required ones included. Raises Failure as `attribute`."""
    return _found(node, message) is not None


def _found(node: t.Attribute, message: Message) -> Value:
    media_type = _field(message, node.content_type)
    if not (isinstance(media_type, bytes) and media_type.lower().startswith(_EVENT_FORMATS)):
        return next((value for value in (_field(message, each) for each in node.fields) if value is not None), None)
    if media_type.split(b";")[0].strip().lower() != _JSON:
        raise _unreadable(f"events in the format {media_type[:80].decode(errors='replace')} are not read")
    if message.json is None or message.json.kind is not JsonKind.OBJECT:
        raise _unreadable("the body with the event is no object of JSON")
    return _field(message, node.member)


def _field(message: Message, node: t.Node) -> Value:
    assert isinstance(node, t.Field)
    return field(message, node.reference)


def field(message: Message, reference: FieldReference) -> Value:
    """A field as the value of an attribute; None if it is absent, null, or of a type that no attribute has."""
    if reference.section is Section.DATA:
        return _member(message.json_scalar(reference.path))
    typed = message.value(reference)
    if typed is None:
        return None
    match typed.type:
        case AmqpType.BOOLEAN:
            truth: bool = typed.value
            return truth
        case AmqpType.STRING | AmqpType.SYMBOL:
            return typed.octets()
        case AmqpType.BINARY:
            return base64.b64encode(typed.value)
        case AmqpType.UUID:
            return str(typed.value).encode()
        case AmqpType.TIMESTAMP:
            return _time(typed.value)
        case kind if kind in INTEGERS:
            return _number(typed.value)
        case _:
            return None


def _number(number: int) -> Value:
    """An integer; its digits where it has more than 32 bits, since then it has none of the language's types."""
    return number if INTEGER_MIN <= number <= INTEGER_MAX else str(number).encode()


def _time(milliseconds: int) -> bytes | None:
    """A time as RFC 3339 writes it, in UTC; None outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    text = moment.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds")
    return text.replace("+00:00", "Z").encode()


def _unreadable(reason: str) -> Failure:
    return Failure(ErrorKind.GENERIC, reason, False)


def _member(scalar: JsonScalar) -> Value:
    """A value of JSON as the value of an attribute; None for null, and for values that no attribute has."""
    match scalar:
        case bool() | bytes() as value:
            return value
        case int() as number:
            return _number(number)
        case _:
            return None


def among(subject: Value, members: Iterator[Value]) -> bool:
    """IN: whether a member equals the subject, as a value of its type; all members are evaluated. Raises Failure."""
    wanted = type_of(subject)
    return subject in [cast(member, wanted, False) for member in members]


def like(pattern: t.LikePattern, subject: Value) -> bool | None:
    """Whether the subject matches, as a string. Cost: at most value × pattern steps."""
    return like_text(pattern, cast(subject, ValueType.STRING))
