"""The oracle: the verdict of a bound tree over one decoded message, straight from the specification.

Slow and obvious; every other evaluator is tested against it and falls back to it. Values are Python's: unbounded ints,
finite floats, bytes, booleans, and None for unknown. Source: rabbitmq_filters, sections 2.4 and 2.5.
"""

from __future__ import annotations

import math

from headgate.errors import MessageError
from headgate.evaluate.verdict import Verdict
from headgate.language.like import elements_of
from headgate.language.tree import (
    And,
    Arithmetic,
    Compare,
    CompareOperator,
    Constant,
    Exists,
    Field,
    HasSimple,
    In,
    IsNull,
    Like,
    LikePattern,
    LikeShape,
    LikeText,
    LikeWildcard,
    Name,
    Node,
    Not,
    Now,
    Or,
    Sign,
)
from headgate.language.values import Value, arithmetic, is_number, signed
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.fields import FieldReference

_INTEGERS = frozenset(
    {AmqpType.UBYTE, AmqpType.USHORT, AmqpType.UINT, AmqpType.ULONG, AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT}
    | {AmqpType.LONG, AmqpType.TIMESTAMP, AmqpType.CHAR}
)
_FLOATS = frozenset({AmqpType.FLOAT, AmqpType.DOUBLE})
_BYTES = frozenset({AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY, AmqpType.UUID})


def verdict(tree: Node, message: Message, now_ms: int) -> Verdict:
    """The verdict of a bound tree; `now_ms` is what UTC() gives. Never raises."""
    result = evaluate(tree, message, now_ms)
    if isinstance(result, bool):
        return Verdict.TRUE if result else Verdict.FALSE
    return Verdict.UNKNOWN


def verdict_of_bytes(tree: Node, data: bytes | memoryview, now_ms: int) -> Verdict:
    """The verdict for stored bytes: ERROR if they are no message (docs/design/message-validity.md). Never raises."""
    try:
        message = Message.decode(data)
    except MessageError:
        return Verdict.ERROR
    return verdict(tree, message, now_ms)


def evaluate(node: Node, message: Message, now_ms: int) -> Value:
    """The value of any node of a bound tree for a message."""
    match node:
        case Constant():
            return node.value
        case Field():
            return field_value(message, node.reference)
        case Now():
            return now_ms
        case And():
            return _junction(node, False, message, now_ms)
        case Or():
            return _junction(node, True, message, now_ms)
        case Not():
            return _negated(evaluate(node.operand, message, now_ms))
        case Compare():
            left = evaluate(node.left, message, now_ms)
            return compare(node.operator, left, evaluate(node.right, message, now_ms))
        case In():
            return _in(node, message, now_ms)
        case Like():
            matched = like(node.pattern, evaluate(node.subject, message, now_ms))
            return _negated(matched) if node.negated else matched
        case IsNull():
            return (evaluate(node.operand, message, now_ms) is None) is not node.negated
        case Exists():
            return isinstance(node.operand, Field) and message.value(node.operand.reference) is not None
        case HasSimple():
            return isinstance(node.operand, Field) and _has_simple(message, node.operand.reference)
        case Arithmetic():
            left = evaluate(node.left, message, now_ms)
            return arithmetic(node.operator, left, evaluate(node.right, message, now_ms))
        case Sign():
            return signed(node.negative, evaluate(node.operand, message, now_ms))
        case Name() | LikeText():
            raise TypeError(f"only bound trees can be evaluated, found {node}")


def field_value(message: Message, reference: FieldReference) -> Value:
    """A field as filters see it: a number, bytes, a boolean, or unknown; the default where it is as good as absent."""
    typed = message.value(reference)
    if typed is None or typed.type is AmqpType.NULL or reference.only not in (None, typed.type):
        return reference.default
    return _value_of(typed)


def _has_simple(message: Message, reference: FieldReference) -> bool:
    typed = message.value(reference)
    return typed is not None and (typed.type is AmqpType.NULL or _value_of(typed) is not None)


def _value_of(typed: AmqpValue) -> Value:
    if typed.type is AmqpType.BOOLEAN or typed.type in _INTEGERS:
        number: bool | int = typed.value
        return number
    if typed.type in _FLOATS:
        double: float = typed.value
        return double if math.isfinite(double) else None
    return typed.octets() if typed.type in _BYTES else None


def _junction(node: And | Or, decisive: bool, message: Message, now_ms: int) -> bool | None:
    """AND (`decisive` is false) and OR (true): the first decisive operand decides; non-booleans are unknown."""
    result: bool | None = not decisive
    for operand in node.operands:
        value = evaluate(operand, message, now_ms)
        if value is decisive:
            return decisive
        if not isinstance(value, bool):
            result = None
    return result


def _negated(value: Value) -> bool | None:
    return not value if isinstance(value, bool) else None


def compare(operator: CompareOperator, left: Value, right: Value) -> bool | None:
    """A comparison by `ComparisonRules.UNLIKE_IS_FALSE`; Python compares ints and floats exactly."""
    if left is None or right is None:
        return None
    if operator is CompareOperator.EQUAL:
        return _equal(left, right)
    if operator is CompareOperator.NOT_EQUAL:
        return not _equal(left, right)
    if is_number(left) and is_number(right):
        return _ordered(operator, (left > right) - (left < right))  # type: ignore[operator]
    if isinstance(left, bytes) and isinstance(right, bytes):
        return _ordered(operator, (left > right) - (left < right))
    return False


def _ordered(operator: CompareOperator, order: int) -> bool:
    match operator:
        case CompareOperator.LESS:
            return order < 0
        case CompareOperator.LESS_OR_EQUAL:
            return order <= 0
        case CompareOperator.GREATER:
            return order > 0
        case _:
            return order >= 0


def _equal(left: Value, right: Value) -> bool:
    """Equality of known values; unlike kinds are never equal (in Python TRUE would equal 1)."""
    return isinstance(left, bool) is isinstance(right, bool) and left == right


def _in(node: In, message: Message, now_ms: int) -> bool | None:
    subject = evaluate(node.subject, message, now_ms)
    if subject is None:
        return None
    members = (evaluate(member, message, now_ms) for member in node.members)
    return any(_equal(subject, member) for member in members) is not node.negated


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
    try:
        text = subject.decode()
    except UnicodeDecodeError:
        return None
    text = text.removesuffix("\n")
    # No pattern holds a line feed as text and no wildcard matches one, so a line feed anywhere else is no match.
    if "\n" in text:
        return False
    steps: list[str | LikeWildcard] = []
    for element in elements_of(pattern):
        steps.extend([element] if isinstance(element, LikeWildcard) else element.decode())
    return _wildcard_match(steps, text)


def _wildcard_match(steps: list[str | LikeWildcard], text: str) -> bool:
    """Two pointers and one place to return to: the last `%` takes one more character whenever the rest does not fit."""
    at = step = 0
    any_step, any_at = -1, 0
    while at < len(text):
        current = steps[step] if step < len(steps) else None
        if current is LikeWildcard.ANY:
            any_step, any_at = step, at
            step += 1
        elif current is LikeWildcard.ONE or current == text[at]:
            step += 1
            at += 1
        elif any_step >= 0:
            any_at += 1
            step, at = any_step + 1, any_at
        else:
            return False
    return all(rest is LikeWildcard.ANY for rest in steps[step:])
