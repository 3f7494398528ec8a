"""Pruning of chunks: whether an expression can match in a chunk, before any message of it is read: never, or maybe.

A stream may declare the field that its filter values come from. If an expression can be true only for some values of
that field, these are the filter values worth reading, and the Bloom filter of a chunk decides: a chunk with none of
them, and without messages that have no filter value, never matches. All other chunks are maybe.

Sound for every dialect whose `=` compares byte strings bytewise: the three-valued AND is true only if all operands are,
OR only if one is, and negations are pushed to the leaves (De Morgan holds in three-valued logic). Comparisons are not
flipped: a negated leaf says nothing.
"""

from __future__ import annotations

import contextlib
import enum
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from headgate.language import tree as t
from headgate.language.rocketmq import numbers_of
from headgate.language.servicebus import SystemType, system_type
from headgate.message import AmqpType, AmqpValue, FieldReference, without_case


class Truth(enum.Enum):
    """A boolean; unlike Python's it equals no number."""

    FALSE = False
    TRUE = True


KeyValue: TypeAlias = Truth | float | bytes
"""A value that fields are looked up by, the same for all that are equal in a language: numbers are the nearest double,
strings, symbols, binaries and uuids their bytes."""


@dataclass(frozen=True, slots=True)
class FieldAmong:
    """A field has one of some values."""

    field: FieldReference
    values: frozenset[KeyValue]


@dataclass(frozen=True, slots=True)
class Every:
    """All of the conditions hold."""

    conditions: tuple[KeyCondition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of the conditions holds; without conditions it never holds."""

    conditions: tuple[KeyCondition, ...]


KeyCondition: TypeAlias = FieldAmong | Every | Some


def wanted_values(tree: t.Node, source: FieldReference) -> frozenset[bytes] | None:
    """The values of `source` outside which the expression is never true for a message that has a filter value.

    None means that the expression says nothing (maybe for every chunk); an empty set that only messages without a
    filter value can match. Values are the field's bytes. Cost: one walk over the tree.
    """
    return None if t.own_rules(tree) is not None else _wanted(tree, source, True)


def _wanted(node: t.Node, source: FieldReference, truth: bool) -> frozenset[bytes] | None:
    """The values of `source` outside which the truth of `node` is never `truth`."""
    match node:
        case t.And(operands) | t.Or(operands):
            found = [_wanted(operand, source, truth) for operand in operands]
            return _intersection(found) if isinstance(node, t.And) is truth else _union(found)
        case t.Not(operand):
            return _wanted(operand, source, not truth)
        case t.Constant(bool() as value) if value is not truth:
            return frozenset()
        case t.Compare(t.CompareOperator.EQUAL, left, right) if truth and _is_source(left, source):
            return _constants((right,))
        case t.Compare(t.CompareOperator.EQUAL, left, right) if truth and _is_source(right, source):
            return _constants((left,))
        case t.In(subject, members, negated=False) if truth and _is_source(subject, source):
            return _constants(members)
        case _:
            return None


def _is_source(node: t.Node, source: FieldReference) -> bool:
    return (
        isinstance(node, t.Field)
        and node.reference.section == source.section
        and node.reference.position == source.position
        and node.reference.key == source.key
        and node.reference.path == source.path
        and node.reference.schema == source.schema
        and not node.reference.ignore_case
        and not _is_read_as_text(node)
    )


def _is_read_as_text(field: t.Field) -> bool:
    """Whether a language compares another text than the bytes of the field: Service Bus spells ids of any type."""
    return field.rules is t.ValueRules.SERVICE_BUS and system_type(field.reference) is SystemType.IDENTIFIER


def _constants(members: tuple[t.Node, ...]) -> frozenset[bytes] | None:
    values = {member.value if isinstance(member, t.Constant) else None for member in members}
    texts = frozenset(value for value in values if isinstance(value, bytes))
    return texts if len(texts) == len(values) else None


def _union(sets: list[frozenset[bytes] | None]) -> frozenset[bytes] | None:
    known = [values for values in sets if values is not None]
    return frozenset().union(*known) if len(known) == len(sets) else None


def _intersection(sets: list[frozenset[bytes] | None]) -> frozenset[bytes] | None:
    known = [values for values in sets if values is not None]
    return known[0].intersection(*known) if known else None


def needed_keys(tree: t.Node, fields: Sequence[FieldReference]) -> KeyCondition | None:
    """A condition on the values of some fields without which the expression is not true for any message.

    Only `=` and IN under AND and OR give conditions; None if they give none. The fields are by position, keys of maps,
    or paths into the body: a language that ignores case may mean another spelling of the key, if it is ASCII.

    Cost: one walk.
    """
    return None if not fields or t.own_rules(tree) is not None else _needed(tree, fields, True)


def _needed(node: t.Node, fields: Sequence[FieldReference], truth: bool) -> KeyCondition | None:
    """A condition that holds wherever the truth of `node` is `truth`; None if none is known."""
    match node:
        case t.And(operands) | t.Or(operands):
            found = [_needed(operand, fields, truth) for operand in operands]
            known = [condition for condition in found if condition is not None]
            if isinstance(node, t.And) is truth:
                return Every(tuple(known)) if len(known) > 1 else known[0] if known else None
            return some_of(known) if len(known) == len(found) else None
        case t.Not(operand):
            return _needed(operand, fields, not truth)
        case t.Constant(bool() as value) if value is not truth:
            return Some(())
        case t.Compare(t.CompareOperator.EQUAL, t.Field() as field, other) if truth:
            return _among(field, (other,), fields)
        case t.Compare(t.CompareOperator.EQUAL, other, t.Field() as field) if truth:
            return _among(field, (other,), fields)
        case t.In(t.Field() as field, members, negated=False) if truth:
            return _among(field, members, fields)
        case _:
            return None


def some_of(conditions: Sequence[KeyCondition]) -> KeyCondition:
    """The condition that one of some conditions holds; conditions on the same field are joined."""
    values: dict[FieldReference, frozenset[KeyValue]] = {}
    others: list[KeyCondition] = []
    for condition in conditions:
        match condition:
            case FieldAmong(field, some):
                values[field] = values.get(field, frozenset()) | some
            case Some(inner):
                others.extend(inner)
            case _:
                others.append(condition)
    joined = (*(FieldAmong(field, some) for field, some in values.items()), *others)
    return joined[0] if len(joined) == 1 else Some(joined)


def _among(field: t.Field, members: Sequence[t.Node], fields: Sequence[FieldReference]) -> KeyCondition | None:
    source = next((each for each in fields if _is_value_of(field.reference, each)), None)
    if source is None:
        return None
    values: set[KeyValue] = set()
    for member in members:
        more = _key_values(member, field) if isinstance(member, t.Constant) else None
        if more is None:
            return None
        values |= more
    return FieldAmong(source, frozenset(values))


def _is_value_of(reference: FieldReference, field: FieldReference) -> bool:
    """Whether a reference always reads a value of the field, in any spelling of the key."""
    if reference.section != field.section or reference.path != field.path or reference.schema != field.schema:
        return False
    if reference.default is not None:
        return False
    if reference.key is None or field.key is None:
        return reference.key is field.key and reference.position == field.position
    if reference.ignore_case:
        return field.key.isascii() and without_case(reference.key) == without_case(field.key)
    return reference.key == field.key


def _key_values(constant: t.Constant, field: t.Field) -> frozenset[KeyValue] | None:
    """All values that a field of a message may have where the language says that it equals a constant; None: any."""
    value = constant.value
    match field.rules:
        case t.ValueRules.RABBITMQ:
            return None if isinstance(value, AmqpValue) else _plain(value)
        case t.ValueRules.ROCKETMQ | t.ValueRules.ROCKETMQ_MAP:
            # Strings of the message are parsed as what they meet: only a string says which values those are.
            return frozenset({value, *Truth, *numbers_of(value)}) if isinstance(value, bytes) else None
        case t.ValueRules.SERVICE_BUS | t.ValueRules.CORRELATION:
            match system_type(field.reference):
                case SystemType.TIME_SPAN:
                    return None
                case SystemType.IDENTIFIER if isinstance(value, bytes):
                    return _identifiers(value)
                case _:
                    return _typed(value) if isinstance(value, AmqpValue) else _plain(value)
        case _:
            return None


def _plain(value: bool | int | float | Decimal | bytes | None) -> frozenset[KeyValue] | None:
    match value:
        case bool():
            return frozenset({Truth(value)})
        case bytes():
            return frozenset({value})
        case int() | float():
            with contextlib.suppress(OverflowError):
                return None if value != value else frozenset({float(value)})
    return None


def _typed(value: AmqpValue) -> frozenset[KeyValue] | None:
    if value.type in (AmqpType.CHAR, AmqpType.TIMESTAMP):
        return frozenset({float(value.value)})
    octets = value.octets() if value.type in (AmqpType.UUID, AmqpType.BINARY) else None
    return None if octets is None else frozenset({octets})


def _identifiers(text: bytes) -> frozenset[KeyValue]:
    """The values of an id that Service Bus spells as this text: numbers in decimal, uuids, bytes in hexadecimal."""
    values: set[KeyValue] = {text}
    if text.isdigit() and len(text) <= 20:
        values.add(float(int(text)))
    spelled = text.decode("ascii", "replace")
    with contextlib.suppress(ValueError):
        values.add(bytes.fromhex(spelled))
    with contextlib.suppress(ValueError):
        values.add(uuid.UUID(spelled).bytes)
    return frozenset(values)
