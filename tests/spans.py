"""Trees compared without the places of their nodes."""

from __future__ import annotations

import dataclasses

from headgate.language.tree import Node

_PLACES = ("span", "pattern_span", "escape_span")


def without_spans(node: Node) -> Node:
    """The same tree with all spans at (0, 0)."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name in _PLACES:
            changes[field.name] = (0, 0)
        elif isinstance(value, Node):
            changes[field.name] = without_spans(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            changes[field.name] = tuple(without_spans(operand) for operand in value)
    return dataclasses.replace(node, **changes)
