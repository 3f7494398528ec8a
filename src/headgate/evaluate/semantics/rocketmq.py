"""RocketMQ: strings, typed numbers, booleans and NULL; a string is parsed as the type that it meets, or is an error.

Values, comparison and negation are in `headgate.language.rocketmq.values`; the language has neither LIKE nor
arithmetic. Source: rocketmq_filters, sections 6 and 13.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.evaluate.semantics.operators import lacking
from headgate.language import Value
from headgate.language.rocketmq import NUMBERS, signed
from headgate.language.rocketmq import compared as compare
from headgate.message import AmqpType, AmqpValue, FieldReference, Message

__all__ = ["among", "arithmetic", "compare", "field", "like", "property_value", "signed"]


def field(message: Message, reference: FieldReference) -> Value:
    """A property of a stored message: as `property_value`, and NULL for an empty string: RocketMQ stores none."""
    value = property_value(message.value(reference), reference)
    return None if value == b"" else value


def property_value(typed: AmqpValue | None, reference: FieldReference) -> Value:
    """Strings, booleans, and numbers with sign; NULL for every other type and where the field wants another type."""
    if typed is None or reference.only not in (None, typed.type):
        return None
    if typed.type is AmqpType.BOOLEAN:
        truth: bool = typed.value
        return truth
    if typed.type in NUMBERS:
        return typed
    return typed.octets() if typed.type is AmqpType.STRING else None


def among(subject: Value, members: Iterator[Value]) -> bool | None:
    """IN: whether a string is in the list; NULL for a subject that is NULL or no string."""
    return any(subject == member for member in members) if isinstance(subject, bytes) else None


like = arithmetic = lacking
