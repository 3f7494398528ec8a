"""RabbitMQ: numbers (ints of any size, finite doubles), bytes, booleans, unknown. Nothing is an error.

Source: rabbitmq_filters, sections 2.4 and 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from headgate.evaluate.semantics.operators import wildcard_match
from headgate.language import Value, arithmetic, is_number, is_utf8, signed, value_of
from headgate.language.tree import CompareOperator, LikePattern, LikeShape, SpecialNumber
from headgate.message import AmqpType, FieldReference, Message, Section

__all__ = ["among", "arithmetic", "compare", "field", "like", "signed"]


def field(message: Message, reference: FieldReference) -> Value:
    """A field as filters see it: a number, bytes, a boolean, or unknown; the default where it is as good as absent."""
    if reference.section is Section.DATA:
        return message.json_scalar(reference.path, reference.schema)
    typed = message.value(reference)
    if typed is None or typed.type is AmqpType.NULL or reference.only not in (None, typed.type):
        return reference.default
    return value_of(typed)


def compare(operator: CompareOperator, left: Value, right: Value) -> bool | None:
    """A comparison by kind; Python compares ints, floats and decimals exactly.

    Beside a decimal, a float counts as the shortest decimal text that is read as this float: 0.1 is 0.1.
    """
    if left is None or right is None:
        return None
    if operator is CompareOperator.EQUAL:
        return _equal(left, right)
    if operator is CompareOperator.NOT_EQUAL:
        return not _equal(left, right)
    are_numbers = is_number(left) and is_number(right)
    are_texts = isinstance(left, bytes) and isinstance(right, bytes)
    return (are_numbers or are_texts) and bool(operator.apply(*_side_by_side(left, right)))


def compare_special(operator: CompareOperator, value: Value, number: SpecialNumber) -> bool | None:
    """A comparison with an infinity or NaN; unlike elsewhere, `value` may be an infinity or NaN itself."""
    if value is None:
        return None
    if not is_number(value):
        return operator is CompareOperator.NOT_EQUAL
    is_nan = value != value
    if number is SpecialNumber.NAN and operator in (CompareOperator.EQUAL, CompareOperator.NOT_EQUAL):
        return is_nan is (operator is CompareOperator.EQUAL)
    if is_nan or number is SpecialNumber.NAN:
        return operator is CompareOperator.NOT_EQUAL
    return compare(operator, value, float(number.value))


def _equal(left: Value, right: Value) -> bool:
    """Equality of known values; unlike kinds are never equal (in Python TRUE would equal 1)."""
    left, right = _side_by_side(left, right)
    return isinstance(left, bool) is isinstance(right, bool) and left == right


def _side_by_side(left: Value, right: Value) -> tuple[Value, Value]:
    if isinstance(left, Decimal) and isinstance(right, float):
        return left, Decimal(repr(right))
    if isinstance(left, float) and isinstance(right, Decimal):
        return Decimal(repr(left)), right
    return left, right


def among(subject: Value, members: Iterator[Value]) -> bool | None:
    """IN: unknown if the subject is; members of unknown value equal nothing."""
    return None if subject is None else any(_equal(subject, member) for member in members)


def like(pattern: LikePattern, subject: Value) -> bool | None:
    """Whether the subject matches; unknown unless it is bytes, and in the general regime unless it is UTF-8.

    Cost: at most value × pattern steps.
    """
    if not isinstance(subject, bytes):
        return None
    match pattern.shape:
        case LikeShape.EXACT:
            return subject == pattern.prefix
        case LikeShape.GENERAL:
            return _general_like(pattern, subject)
        case _:
            long_enough = len(subject) >= len(pattern.prefix) + len(pattern.suffix)
            return long_enough and subject.startswith(pattern.prefix) and subject.endswith(pattern.suffix)


def _general_like(pattern: LikePattern, subject: bytes) -> bool | None:
    if not is_utf8(subject):
        return None
    text = subject.decode().removesuffix("\n")
    # No pattern holds a line feed as text and no wildcard matches one, so a line feed anywhere else is no match.
    if "\n" in text:
        return False
    return wildcard_match(pattern, text)
