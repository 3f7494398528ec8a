"""The oracle: the verdict of a bound tree over one decoded message, straight from the specification.

Slow and obvious; every other evaluator is tested against it and falls back to it. This module walks the tree; the
values of each language and its operators are in `semantics/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from headgate.errors import MessageError
from headgate.evaluate.semantics import cesql, rabbitmq, semantics_of, servicebus
from headgate.evaluate.verdict import EvaluationFailed, Verdict
from headgate.language import Value, called, concatenated, value_of
from headgate.language import tree as t
from headgate.language.cesql import applied
from headgate.language.servicebus import new_id
from headgate.message import AmqpType, FieldReference, JsonValue, Message, Section


def verdict(tree: t.Node, message: Message, now_ms: int) -> Verdict:
    """The verdict of a bound tree; `now_ms` is the time for UTC(). Never raises."""
    try:
        return Verdict.of(evaluate(tree, message, now_ms))
    except EvaluationFailed:
        return Verdict.ERROR


def verdict_of_bytes(tree: t.Node, data: bytes | memoryview, now_ms: int) -> Verdict:
    """The verdict for stored bytes: ERROR if they are no message (docs/design/message-validity.md). Never raises."""
    try:
        message = Message.decode(data)
    except MessageError:
        return Verdict.ERROR
    return verdict(tree, message, now_ms)


def evaluate(node: t.Node, message: Message, now_ms: int) -> Value:
    """The value of any node of a bound tree for a message. Raises EvaluationFailed for an error of the language."""
    match node:
        case t.Constant():
            return node.value
        case t.Field():
            return semantics_of(node.rules).field(message, node.reference)
        case t.Now():
            return now_ms
        case t.And():
            return _junction(node, False, message, now_ms)
        case t.Or():
            return _junction(node, True, message, now_ms)
        case t.Not():
            return _negated(evaluate(node.operand, message, now_ms))
        case t.Compare():
            left = evaluate(node.left, message, now_ms)
            if left is None and node.rules is t.ValueRules.ROCKETMQ and not node.operator.is_equality:
                return None
            return semantics_of(node.rules).compare(node.operator, left, evaluate(node.right, message, now_ms))
        case t.CompareSpecial():
            if isinstance(node.operand, t.Field):
                return _compare_special(node, message, node.operand.reference)
            return rabbitmq.compare_special(node.operator, evaluate(node.operand, message, now_ms), node.number)
        case t.AnyElement():
            assert isinstance(node.array, t.Field)
            array = message.json_value(node.array.reference.path, node.array.reference.schema)
            return _any_element(_element_test(node.condition, message, now_ms), array)
        case t.In():
            subject = evaluate(node.subject, message, now_ms)
            found = semantics_of(node.rules).among(subject, _values(node.members, message, now_ms))
            return _negated(found) if node.negated else found
        case t.Like():
            matched = semantics_of(node.rules).like(node.pattern, evaluate(node.subject, message, now_ms))
            return _negated(matched) if node.negated else matched
        case t.LikeValue():
            return _like_value(node, message, now_ms)
        case t.TextTest():
            return bool(node.text) and _text_test(node, evaluate(node.subject, message, now_ms))
        case t.BooleanCast():
            value = evaluate(node.operand, message, now_ms)
            return None if value is None else value is True
        case t.IsNull():
            return (evaluate(node.operand, message, now_ms) is None) is not node.negated
        case t.Exists(t.Attribute() as attribute):
            return cesql.has_attribute(attribute, message)
        case t.Exists():
            return isinstance(node.operand, t.Field) and _exists(message, node.operand.reference)
        case t.HasSimple():
            return isinstance(node.operand, t.Field) and _has_simple(message, node.operand.reference)
        case t.Arithmetic():
            left = evaluate(node.left, message, now_ms)
            return semantics_of(node.rules).arithmetic(node.operator, left, evaluate(node.right, message, now_ms))
        case t.Sign():
            return semantics_of(node.rules).signed(node.negative, evaluate(node.operand, message, now_ms))
        case t.Call():
            return called(node.function, [evaluate(argument, message, now_ms) for argument in node.arguments])
        case t.Concatenate():
            left = evaluate(node.left, message, now_ms)
            return concatenated(left, evaluate(node.right, message, now_ms))
        case t.Attribute():
            return cesql.attribute(node, message)
        case t.Apply():
            return applied(node.function, [evaluate(argument, message, now_ms) for argument in node.arguments])
        case t.PropertyOf():
            return servicebus.property_of(message, evaluate(node.name, message, now_ms))
        case t.NewId():
            return new_id(b"", node.occurrence)
        case t.MessageSize():
            return len(message.encode())
        case t.Name() | t.BodyPath() | t.Parameter() | t.LikeText() | t.Special():
            raise TypeError(f"only bound trees can be evaluated, found {node}")
        case t.Element():
            raise TypeError(f"an element is evaluated in the condition of its AnyElement only, found {node}")


def _values(nodes: tuple[t.Node, ...], message: Message, now_ms: int) -> Iterator[Value]:
    return (evaluate(node, message, now_ms) for node in nodes)


def _like_value(node: t.LikeValue, message: Message, now_ms: int) -> bool | None:
    subject, pattern = evaluate(node.subject, message, now_ms), evaluate(node.pattern, message, now_ms)
    escape = None if node.escape is None else evaluate(node.escape, message, now_ms)
    matched = servicebus.like_value(subject, pattern, escape, has_escape=node.escape is not None)
    return _negated(matched) if node.negated else matched


_ElementTest: TypeAlias = Callable[[JsonValue], Value]


def _any_element(test: _ElementTest, array: JsonValue | None) -> bool | None:
    elements = None if array is None else array.elements()
    if elements is None:
        return None
    result: bool | None = False
    for element in elements:
        found = test(element)
        if found is True:
            return True
        if found is None:
            result = None
    return result


def _element_test(condition: t.Node, message: Message, now_ms: int) -> _ElementTest:
    """What a condition is for an element. All else in it is evaluated here: an array may have a million elements."""

    def operand(node: t.Node) -> _ElementTest:
        if isinstance(node, t.Element):
            path = node.path
            return lambda element: None if (value := element.at(path)) is None else value.scalar()
        constant = evaluate(node, message, now_ms)
        return lambda element: constant

    match condition:
        case t.AnyElement(t.Element() as array):
            inner = _element_test(condition.condition, message, now_ms)
            return lambda element: _any_element(inner, element.at(array.path))
        case t.Exists(t.Element() as place):
            return lambda element: element.at(place.path) is not None
        case t.IsNull():
            value = operand(condition.operand)
            return lambda element: (value(element) is None) is not condition.negated
        case t.Compare():
            left, right, compare = (
                operand(condition.left),
                operand(condition.right),
                semantics_of(condition.rules).compare,
            )
            return lambda element: compare(condition.operator, left(element), right(element))
        case t.CompareSpecial():
            value = operand(condition.operand)
            return lambda element: rabbitmq.compare_special(condition.operator, value(element), condition.number)
        case t.Like():
            subject, like = operand(condition.subject), semantics_of(condition.rules).like
            return lambda element: _negated_if(condition.negated, like(condition.pattern, subject(element)))
        case t.In():
            subject, among = operand(condition.subject), semantics_of(condition.rules).among
            members = [evaluate(member, message, now_ms) for member in condition.members]
            return lambda element: _negated_if(condition.negated, among(subject(element), iter(members)))
    raise TypeError(f"no condition of an AnyElement: {condition}")


def _negated_if(negated: bool, value: Value) -> Value:
    return _negated(value) if negated else value


def _exists(message: Message, reference: FieldReference) -> bool:
    if reference.section is Section.DATA:
        return message.json_value(reference.path, reference.schema) is not None
    typed = message.value(reference)
    if reference.position is None or reference.path:
        return typed is not None
    return typed is not None and typed.type is not AmqpType.NULL and reference.only in (None, typed.type)


def _compare_special(node: t.CompareSpecial, message: Message, reference: FieldReference) -> bool | None:
    """`field operator INF`, or -INF, or NAN: on the number as it is in the message."""
    typed = message.value(reference)
    if typed is not None and typed.type in (AmqpType.FLOAT, AmqpType.DOUBLE) and reference.only is None:
        return rabbitmq.compare_special(node.operator, typed.value, node.number)
    return rabbitmq.compare_special(node.operator, rabbitmq.field(message, reference), node.number)


def _has_simple(message: Message, reference: FieldReference) -> bool:
    typed = message.value(reference)
    return typed is not None and (typed.type is AmqpType.NULL or value_of(typed) is not None)


def _text_test(node: t.TextTest, subject: Value) -> bool:
    if not isinstance(subject, bytes):
        return False
    match node.kind:
        case t.TextTestKind.CONTAINS:
            found = node.text in subject
        case t.TextTestKind.STARTS_WITH:
            found = subject.startswith(node.text)
        case t.TextTestKind.ENDS_WITH:
            found = subject.endswith(node.text)
    return found is not node.negated


def _junction(node: t.And | t.Or, decisive: bool, message: Message, now_ms: int) -> bool | None:
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
