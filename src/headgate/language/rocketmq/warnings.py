"""The traps of RocketMQ's language that a check of a filter points at.

Source: rocketmq_filters, sections 4.1, 6.3 and 6.6.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.language.rocketmq.printer import print_tree
from headgate.language.tree import (
    BooleanCast,
    Compare,
    Constant,
    Field,
    IsNull,
    Node,
    Not,
    TextTest,
    children,
    walk,
)
from headgate.language.warnings import FilterWarning
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section
from headgate.message.types import AmqpValue

_INTEGERS = (AmqpType.INT, AmqpType.LONG)


def warnings(text: str, tree: Node) -> Iterator[FilterWarning]:
    """NOT that takes less than it seems to, properties that are never true, integers that no decimal can meet."""
    if isinstance(tree, BooleanCast):
        yield _never_true(tree)
    tight_ones: set[int] = set()
    for node in walk(tree):
        for operand in children(node):
            tight = isinstance(operand, Not) and operand is children(node)[0] and text[operand.span[0]] != "("
            if isinstance(operand, Not) and tight and isinstance(node, Compare | IsNull | TextTest):
                tight_ones.add(id(operand))
                yield _tight_not(text, node, operand)
            elif isinstance(operand, BooleanCast) and not isinstance(node, Not):
                yield _never_true(operand)
        if isinstance(node, Not) and isinstance(node.operand, BooleanCast) and id(node) not in tight_ones:
            name = print_tree(node.operand)
            yield FilterWarning(
                node.span,
                f"NOT {name} is true for every message that has {name}, whatever its text; write {name} = FALSE",
            )
        if isinstance(node, Compare):
            yield from _integer_literals(text, node)


def _never_true(cast: BooleanCast) -> FilterWarning:
    name = print_tree(cast)
    return FilterWarning(
        cast.span,
        f"{name} alone is never true for the text that properties are, not even for 'true'; write {name} = TRUE",
    )


def _tight_not(text: str, node: Node, negation: Not) -> FilterWarning:
    inner = _text(text, negation)
    end = negation.span[1] + _balanced(text[negation.span[1] : node.span[1]])
    behind = text[negation.span[1] : end].strip()
    meant = f"{_text(text, negation.operand)} {behind}"
    return FilterWarning(
        (negation.span[0], end),
        f"NOT binds tighter than what follows: this is ({inner}) {behind}; to negate all of it write NOT ({meant})",
    )


def _balanced(text: str) -> int:
    """How much of a text stands before a parenthesis that closes one in front of it."""
    depth, quote = 0, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                return len(text[:place].rstrip())
    return len(text)


def _integer_literals(text: str, node: Compare) -> Iterator[FilterWarning]:
    for field, literal in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(field, Field) or field.reference.section is not Section.APPLICATION_PROPERTIES:
            continue
        if not isinstance(literal, Constant) or not isinstance(literal.value, AmqpValue):
            continue
        if literal.value.type in _INTEGERS:
            number = literal.value.value
            remedy = f"write {number}.0 to take both" if number else "4.9E-324 takes both, there is no literal 0.0"
            yield FilterWarning(
                literal.span,
                f"an integer meets whole numbers only: where {_text(text, field)} is a decimal such as '19.99', the "
                f"comparison is an error; {remedy}",
            )


def _text(text: str, node: Node) -> str:
    return " ".join(text[slice(*node.span)].split())
