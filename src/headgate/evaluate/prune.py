"""What an expression says about a chunk before any message of it is read: never, or maybe.

A stream may declare the field that its filter values come from. Then an expression that can only be true for some
values of that field names the filter values worth reading, and the Bloom filter of a chunk decides: a chunk that holds
none of them, and no message without a filter value, never matches. Everything else is maybe.

Sound for every dialect whose `=` compares byte strings bytewise: the three-valued AND is true only if all operands are,
OR only if one is, and negations are pushed to the leaves (De Morgan holds in three-valued logic). Comparisons are not
flipped: a negated leaf says nothing.
"""

from __future__ import annotations

from headgate.language import tree as t
from headgate.language.servicebus import SystemType, system_type
from headgate.message import FieldReference


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
