"""What a body must hold, byte for byte, if conditions on paths into it are to be true: found faster than a path is.

Bytes of JSON may be escaped. So a body without the needles and without a backslash decides; others are looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.language import tree as t
from headgate.message import Section

_MOST_NEEDLES = 4
"""Limit: needles of one condition. To look for many takes longer than to look into the body."""


@dataclass(slots=True, frozen=True)
class _Needles:
    """The body holds one of `texts`, of at least two bytes each, if a condition is true; none: nothing is known."""

    texts: tuple[bytes, ...] = ()
    are_constants: bool = False


_NOTHING = _Needles()


def searches(conditions: Iterable[t.Node]) -> Sequence[Sequence[bytes]]:
    """Of conditions that must all be true: sets of needles, of each of which the body must hold one.

    Constants, if there are any: keys stand in all bodies of a kind.
    """
    found = [_needles(condition) for condition in conditions]
    constants = [needles.texts for needles in found if needles.are_constants]
    return constants or [needles.texts for needles in found if needles.texts][:1]


def _needles(node: t.Node) -> _Needles:
    match node:
        case t.Or(operands=operands):
            parts = [_needles(operand) for operand in operands]
            texts = tuple(dict.fromkeys(text for part in parts for text in part.texts))
            is_known = all(part.texts for part in parts) and len(texts) <= _MOST_NEEDLES
            return _Needles(texts, all(part.are_constants for part in parts)) if is_known else _NOTHING
        case t.And(operands=operands):
            parts = [_needles(operand) for operand in operands]
            return max(parts, key=lambda part: (part.are_constants, len(part.texts) > 0))
        case t.AnyElement(array=array, condition=condition):
            inner = _needles(condition)
            return inner if inner.are_constants else max(inner, _of_keys(array), key=lambda part: _length(part.texts))
        case t.Compare(operator=operator, left=left, right=right):
            sides = [(left, right), (right, left)] if operator is t.CompareOperator.EQUAL else []
            for side, other in sides:
                if isinstance(other, t.Constant) and isinstance(other.value, bytes) and _path(side) is not None:
                    return _Needles((_quoted(other.value),), True)
            return max(_of_value(left), _of_value(right), key=lambda part: _length(part.texts))
        case t.In(subject=subject, members=members, negated=False) if _path(subject) is not None:
            values = [member.value for member in members if isinstance(member, t.Constant)]
            texts = tuple(_quoted(value) for value in values if isinstance(value, bytes))
            return _Needles(texts, True) if len(texts) == len(members) <= _MOST_NEEDLES else _of_keys(subject)
        case t.Like(subject=subject, pattern=pattern, negated=False) if _path(subject) is not None:
            text = _of_pattern(pattern)
            return _Needles((text,), True) if text else _of_keys(subject)
        case t.In(subject=subject) | t.Like(subject=subject) | t.IsNull(operand=subject, negated=True):
            return _of_value(subject)
        case t.CompareSpecial(operand=operand) | t.Exists(operand=operand):
            return _of_value(operand)
        case _:
            return _of_keys(node)


def _of_value(node: t.Node) -> _Needles:
    """As `_needles`, if a value must be known."""
    if isinstance(node, t.Arithmetic | t.Concatenate):
        return max(_of_value(node.left), _of_value(node.right), key=lambda part: _length(part.texts))
    return _of_keys(node)


def _of_keys(node: t.Node) -> _Needles:
    """As `_needles`, if there must be a value: the longest key on the way to it."""
    keys = [_quoted(step) for step in _path(node) or () if isinstance(step, bytes)]
    return _Needles((max(keys, key=len),)) if keys else _NOTHING


def _path(node: t.Node) -> tuple[bytes | int, ...] | None:
    """The path of a value in the body."""
    if isinstance(node, t.Element):
        return node.path
    return node.reference.path if isinstance(node, t.Field) and node.reference.section is Section.DATA else None


def _length(texts: Sequence[bytes]) -> int:
    return max(map(len, texts), default=0)


def _quoted(text: bytes) -> bytes:
    return b'"' + text + b'"'


def _of_pattern(pattern: t.LikePattern) -> bytes | None:
    """The longest text in a value that is like a pattern, with a quote where it is at the beginning or the end."""
    match pattern.shape:
        case t.LikeShape.EXACT:
            texts = [_quoted(pattern.prefix)]
        case t.LikeShape.GENERAL:
            texts = [element for element in pattern.elements if isinstance(element, bytes)]
        case _:
            texts = [b'"' + pattern.prefix, pattern.suffix + b'"']
    longest = max(texts, key=len, default=b"")
    return longest if len(longest) > 2 else None
