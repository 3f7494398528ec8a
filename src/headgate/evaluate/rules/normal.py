"""The form in which many filters share work: negations at the leaves, and leaves that know each other again.

A leaf is any part of a tree that is no AND, OR or NOT: a *predicate*, whose verdict is found once for all filters that
hold it. De Morgan's laws hold with unknown, and with errors, too: operands keep their order, and what decides an AND
decides the OR of the negations.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Hashable
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeAlias, cast

from headgate.language.tree import And, Node, Not, Or
from headgate.message import AmqpValue

DEEPEST = 100
"""Trees with more levels of AND, OR and NOT are one predicate, which the reference evaluator decides."""

_PLACES = frozenset({"span", "pattern_span", "escape_span"})


@dataclass(slots=True, frozen=True)
class Literal:
    """A predicate, or its negation."""

    predicate: Node
    negated: bool


@dataclass(slots=True, frozen=True)
class Junction:
    """Two or more parts, from left to right; none is a junction of the same kind."""

    all_of: bool
    parts: tuple[Normal, ...]


Normal: TypeAlias = Literal | Junction


def normal_form(tree: Node) -> Normal:
    """The tree without NOT above a predicate and without an AND in an AND or an OR in an OR."""
    return Literal(tree, False) if _too_deep(tree) else _normal(tree, False)


def _too_deep(tree: Node) -> bool:
    level: list[Node] = [tree]
    for _ in range(DEEPEST):
        level = [
            operand
            for node in level
            if isinstance(node, And | Or | Not)
            for operand in (node.operands if isinstance(node, And | Or) else (node.operand,))
        ]
        if not level:
            return False
    return True


def _normal(node: Node, negated: bool) -> Normal:
    while isinstance(node, Not):
        node, negated = node.operand, not negated
    if not isinstance(node, And | Or):
        return Literal(node, negated)
    all_of = isinstance(node, And) is not negated
    parts: list[Normal] = []
    for operand in node.operands:
        part = _normal(operand, negated)
        if isinstance(part, Junction) and part.all_of is all_of:
            parts += part.parts
        else:
            parts.append(part)
    return Junction(all_of, tuple(parts))


def conjuncts(node: Normal) -> tuple[Normal, ...]:
    """What must all be true for the whole to be true."""
    return node.parts if isinstance(node, Junction) and node.all_of else (node,)


def identity(node: object) -> Hashable:
    """Equal for trees that differ in nothing but the places of their nodes in a text.

    TRUE, 1 and 1.0 differ, and so do the two zeros: a predicate tells them apart.
    """
    if isinstance(node, bool | int | str | bytes) or node is None:
        return type(node), node
    if isinstance(node, float):
        return float, struct.pack("<d", node)
    if isinstance(node, tuple):
        return tuple(map(identity, node))
    if isinstance(node, AmqpValue):
        return repr(node)
    kind = cast(Hashable, type(node))
    names = _parts_of(kind)
    return (kind, *(identity(getattr(node, name)) for name in names)) if names else (kind, node)


@functools.cache
def _parts_of(kind: Hashable) -> tuple[str, ...]:
    """Names of what a node is made of; none for what is compared as it is: enumerations, references to fields."""
    if not isinstance(kind, type) or kind.__module__ != And.__module__ or not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind) if field.name not in _PLACES)


def nodes_of(node: Normal) -> list[Node]:
    """The predicates of a normal form, from left to right, repeated as they stand there."""
    if isinstance(node, Literal):
        return [node.predicate]
    return [predicate for part in node.parts for predicate in nodes_of(part)]
