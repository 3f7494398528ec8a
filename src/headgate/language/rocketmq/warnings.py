"""The traps of RocketMQ's language that a check of a filter points at.

Source: rocketmq_filters, sections 4.1, 6.3 and 6.6.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.language import tree as t
from headgate.language.rocketmq.printer import print_tree
from headgate.language.warnings import FilterWarning
from headgate.message import AmqpValue, Section
from headgate.message.constructors import AmqpType

_INTEGERS = (AmqpType.INT, AmqpType.LONG)


def warnings(text: str, tree: t.Node) -> Iterator[FilterWarning]:
    """NOT that takes less than it seems to, properties that are never true, integers that no decimal can meet."""
    if isinstance(tree, t.BooleanCast):
        yield _never_true(tree)
    tight_ones: set[int] = set()
    for node in t.walk(tree):
        for operand in t.children(node):
            tight = isinstance(operand, t.Not) and operand is t.children(node)[0] and text[operand.span[0]] != "("
            if isinstance(operand, t.Not) and tight and isinstance(node, t.Compare | t.IsNull | t.TextTest):
                tight_ones.add(id(operand))
                yield _tight_not(text, node, operand)
            elif isinstance(operand, t.BooleanCast) and not isinstance(node, t.Not):
                yield _never_true(operand)
        if isinstance(node, t.Not) and isinstance(node.operand, t.BooleanCast) and id(node) not in tight_ones:
            name = print_tree(node.operand)
            yield FilterWarning(
                node.span,
                f"NOT {name} is true for every message that has {name}, whatever its text; write {name} = FALSE",
            )
        if isinstance(node, t.Compare):
            yield from _integer_literals(text, node)


def _never_true(cast: t.BooleanCast) -> FilterWarning:
    name = print_tree(cast)
    return FilterWarning(
        cast.span,
        f"{name} alone is never true for the text that properties are, not even for 'true'; write {name} = TRUE",
    )


def _tight_not(text: str, node: t.Node, negation: t.Not) -> FilterWarning:
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


def _integer_literals(text: str, node: t.Compare) -> Iterator[FilterWarning]:
    for field, literal in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(field, t.Field) or field.reference.section is not Section.APPLICATION_PROPERTIES:
            continue
        if not isinstance(literal, t.Constant) or not isinstance(literal.value, AmqpValue):
            continue
        if literal.value.type in _INTEGERS:
            number = literal.value.value
            remedy = f"write {number}.0 to take both" if number else "4.9E-324 takes both, there is no literal 0.0"
            yield FilterWarning(
                literal.span,
                f"an integer meets whole numbers only: where {_text(text, field)} is a decimal such as '19.99', the "
                f"comparison is an error; {remedy}",
            )


def _text(text: str, node: t.Node) -> str:
    return " ".join(text[slice(*node.span)].split())
