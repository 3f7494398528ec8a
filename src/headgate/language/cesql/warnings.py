"""The traps of CloudEvents SQL that a check of a filter points at."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.language import tree as t
from headgate.language.cesql.functions import result_type
from headgate.language.cesql.values import ValueType
from headgate.language.warnings import FilterWarning


def warnings(text: str, tree: t.Node) -> Iterator[FilterWarning]:
    """A filter without a truth, and operators that bind otherwise than in SQL."""
    found = result_type(tree)
    if found is not None and found is not ValueType.BOOLEAN:
        yield FilterWarning(tree.span, f"the filter gives a value of type {found.value}, and is never true")
    for node in t.walk(tree):
        if isinstance(node, t.Compare | t.In | t.Like) and _word(text, node) is None:
            first = t.children(node)[0]
            if isinstance(first, t.Not) and not _in_parentheses(text, first.span):
                yield _tight_not(text, node, first)
        yield from _mixed(text, node)


def _tight_not(text: str, node: t.Node, negation: t.Not) -> FilterWarning:
    inner, behind = text[slice(*negation.span)], text[negation.span[1] : node.span[1]].strip()
    return FilterWarning(negation.span, f"NOT binds tighter than what follows: this is ({inner}) {behind}")


def _mixed(text: str, node: t.Node) -> Iterator[FilterWarning]:
    """Operators that bind alike: the specification reads them from left to right, some of its engines do not."""
    first, *others = t.children(node) or (node,)
    word = _word(text, node)
    if not others or word is None or _in_parentheses(text, first.span):
        return
    before = _word(text, first)
    if before not in (None, word):
        yield FilterWarning(
            (first.span[0], others[0].span[1]),
            f"{before} and {word} bind alike, here from left to right, elsewhere from right to left; "
            "put one of them in parentheses",
        )


def _word(text: str, node: t.Node) -> str | None:
    """The logical operator of a node."""
    match node:
        case t.And():
            return "AND"
        case t.Or():
            return "OR"
        case t.Compare(t.CompareOperator.NOT_EQUAL, left, right):
            return "XOR" if text[left.span[1] : right.span[0]].strip().upper() == "XOR" else None
        case _:
            return None


def _in_parentheses(text: str, span: t.Span) -> bool:
    """Whether a part of a text is one expression in parentheses."""
    depth, quote, place = 0, "", span[0]
    if text[span[0] : span[0] + 1] != "(":
        return False
    while place < span[1]:
        character = text[place]
        if quote:
            place += character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character == "(") - (character == ")")
            if depth == 0:
                return place == span[1] - 1
        place += 1
    return False
