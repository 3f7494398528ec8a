"""The form in which many filters share work: negations at the leaves, and equal leaves recognised.

A leaf is any part of a tree that is no AND, OR or NOT: a *predicate*, evaluated once for all filters that contain it.
De Morgan's laws hold with unknown, and with errors, too: operands keep their order, and the operand that decides an AND
decides the OR of the negations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from headgate.language.tree import And, Node, Not, Or

DEEPEST = 100
"""Trees with more levels of AND, OR and NOT are one predicate, which the reference evaluator decides."""


P = TypeVar("P")
"""A predicate: a tree, or its number in `Predicates`."""


@dataclass(slots=True, frozen=True)
class Literal(Generic[P]):
    """A predicate, or its negation."""

    predicate: P
    negated: bool


@dataclass(slots=True, frozen=True)
class Junction(Generic[P]):
    """Two or more parts, from left to right; none is a junction of the same kind."""

    all_of: bool
    parts: tuple[Literal[P] | Junction[P], ...]


Normal: TypeAlias = Literal[Node] | Junction[Node]
Numbered: TypeAlias = Literal[int] | Junction[int]


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
    """The parts that must all be true for the whole to be true."""
    return node.parts if isinstance(node, Junction) and node.all_of else (node,)


def tree_of(normal: Normal) -> Node:
    """A tree with the same verdict on every message."""
    if isinstance(normal, Literal):
        return Not(normal.predicate) if normal.negated else normal.predicate
    parts = tuple(tree_of(part) for part in normal.parts)
    return And(parts) if normal.all_of else Or(parts)
