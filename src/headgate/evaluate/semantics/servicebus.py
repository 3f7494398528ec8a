"""Service Bus: the kinds of values of `headgate.language.servicebus.values`; unlike kinds are an error.

Source: servicebus_filters, sections 2.3 and 3; its open points: docs/reference/servicebus-open-points.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.evaluate.semantics.operators import wildcard_match
from headgate.language import EvaluationFailed, LikeRefused, Value, compile_any_like
from headgate.language.servicebus import (
    INTEGER_LIMIT,
    INTEGER_MIN,
    INTEGERS,
    TICKS_PER_MS,
    SystemType,
    arithmetic,
    compare,
    kind_of,
    signed,
    system_type,
    time_span,
    value_of,
)
from headgate.language.tree import CompareOperator, LikePattern, LikeShape
from headgate.message import AmqpType, AmqpValue, FieldReference, Message, Section

__all__ = ["among", "arithmetic", "compare", "field", "like", "like_value", "property_of", "signed"]


def field(message: Message, reference: FieldReference) -> Value:
    """An application property, or the field of a system property as its type."""
    typed = message.whole_value(reference)
    if typed is None or typed.type is AmqpType.NULL:
        return None
    of = system_type(reference)
    return value_of(typed) if of is None else _system_value(of, typed)


def _system_value(of: SystemType, typed: AmqpValue) -> Value:
    """A field as a system property; unknown if it holds another type, or too many milliseconds for a time span."""
    value = value_of(typed)
    match of:
        case SystemType.TEXT:
            return value if isinstance(value, bytes) else None
        case SystemType.IDENTIFIER:
            return _identifier(typed)
        case SystemType.TIME_SPAN:
            ticks = typed.value * TICKS_PER_MS if typed.type in INTEGERS else INTEGER_LIMIT
            return time_span(ticks) if INTEGER_MIN <= ticks < INTEGER_LIMIT else None
        case SystemType.DATE_TIME:
            return value if typed.type is AmqpType.TIMESTAMP else None
        case SystemType.INTEGER:
            return value if typed.type in INTEGERS else None
        case SystemType.BOOLEAN:
            return value if isinstance(value, bool) else None


def _identifier(typed: AmqpValue) -> bytes | None:
    """An id as text: a number in decimal, a uuid with hyphens, bytes in hexadecimal."""
    match typed.type:
        case AmqpType.STRING | AmqpType.SYMBOL:
            return typed.octets()
        case AmqpType.ULONG | AmqpType.UUID:
            return str(typed.value).encode()
        case AmqpType.BINARY:
            return bytes(typed.value).hex().encode()
        case _:
            return None


def property_of(message: Message, name: Value) -> Value:
    """`property(name)`; section 3.7. Raises EvaluationFailed."""
    if name is None:
        return None
    if not isinstance(name, bytes):
        raise EvaluationFailed(f"property() takes a string, found a {kind_of(name).value}")
    return field(message, FieldReference(Section.APPLICATION_PROPERTIES, key=name, ignore_case=True))


def among(subject: Value, members: Iterator[Value]) -> bool | None:
    """IN: unknown if the subject is; else true at the first equal member, unknown if one without value was passed."""
    if subject is None:
        return None
    result: bool | None = False
    for member in members:
        equal = compare(CompareOperator.EQUAL, subject, member)
        if equal:
            return True
        if equal is None:
            result = None
    return result


def like(pattern: LikePattern, subject: Value) -> bool | None:
    """Whether the whole subject matches; anything but a string is an error. Cost: at most value × pattern steps.

    Raises EvaluationFailed.
    """
    if subject is None:
        return None
    if not isinstance(subject, bytes):
        raise EvaluationFailed(f"LIKE takes strings, found a {kind_of(subject).value}")
    match pattern.shape:
        case LikeShape.EXACT:
            return subject == pattern.prefix
        case LikeShape.GENERAL:
            return wildcard_match(pattern, subject.decode("utf-8", "surrogateescape"))
        case _:
            long_enough = len(subject) >= len(pattern.prefix) + len(pattern.suffix)
            return long_enough and subject.startswith(pattern.prefix) and subject.endswith(pattern.suffix)


def like_value(subject: Value, pattern: Value, escape: Value, *, has_escape: bool) -> bool | None:
    """LIKE with a pattern and an escape that were evaluated: section 3.5. Raises EvaluationFailed."""
    operands = (subject, pattern, escape) if has_escape else (subject, pattern)
    if None in operands:
        return None
    texts = []
    for operand in operands:
        if not isinstance(operand, bytes):
            raise EvaluationFailed(f"LIKE takes strings, found a {kind_of(operand).value}")
        texts.append(operand.decode("utf-8", "surrogateescape"))
    try:
        compiled = compile_any_like(texts[1], texts[2] if has_escape else None)
    except LikeRefused as refused:
        raise EvaluationFailed(str(refused)) from None
    return like(compiled, subject)
