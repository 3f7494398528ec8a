"""A filter in another language, where that delivers the same messages.

The promise is about delivery: the converted filter is true for exactly the AMQP messages that the given filter is true
for. For other messages a filter is false, unknown or an error, and the conversion may change which of them;
`Conversion.is_exact` says that nothing changes. A filter without this promise is refused, with the place in the text
and the difference.

There are two ways. The first needs no assumption: the new text has the tree of the given filter (property maps and
`amqp` in `rabbitmq`, tags in `rocketmq`), or a tree that delivers the same messages (a correlation filter in
`servicebus`). Every printed text is parsed again and compared before it is returned.

Between languages with other values (`rabbitmq` and `amqp`, `rocketmq`, `servicebus`) no comparison of a field is the
same for every message: one sees a symbol as a text and another does not, one finds a name in any letter case. The
second way is for callers who know more about their messages; see `Assumption`, and `translation.py` for the rules.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass, replace

from headgate.errors import FilterConversionError, FilterError
from headgate.language import tree as t
from headgate.language.binder import bind
from headgate.language.dialect import Dialect, Unspellable
from headgate.language.parser import parse
from headgate.language.printer import print_tree
from headgate.language.translation import Refused, Translation, is_safe_number, translated
from headgate.language.values import is_number
from headgate.message import Section


class Assumption(enum.Enum):
    """Facts that the caller knows about the messages, besides that they are AMQP messages."""

    KINDS = "kinds"
    """Each field that the filter names holds the kind of value that the filter compares it with, or nothing."""
    SPELLING = "spelling"
    """No application property has a name of the filter in another letter case."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A filter text in `dialect`; `assumed` lists, in sentences, the facts about the messages that it relies on.

    `is_exact`: false, unknown and error stay what they were, too.
    """

    text: str
    dialect: str
    assumed: tuple[str, ...] = ()
    is_exact: bool = False


def convert(
    tree: t.Node, text: str, source: str | None, target: Dialect, *, assume: Collection[Assumption] = ()
) -> Conversion:
    """The filter that `text` displays and whose bound tree is `tree`, in the language `target`.

    `source` is the language of the text, None for property maps, correlation filters and tags. Raises
    FilterConversionError with place and reason where one filter could deliver a message that the other does not, or
    the language cannot express the filter. Cost: some parses.
    """
    try:
        _check_bodies(tree, text, target)
        found = _same_tree(tree, text if source is not None else None, target)
        return found or _translated(tree, target, frozenset(assume))
    except Refused as refused:
        what = f"conversion from {source} to {target.name}" if source is not None else f"conversion to {target.name}"
        raise FilterConversionError(refused.reason, dialect=what, text=text, span=refused.span) from None


def _check_bodies(tree: t.Node, text: str, target: Dialect) -> None:
    for node in () if target.steps else t.walk(tree):
        if isinstance(node, t.Field) and node.reference.section is Section.DATA:
            raise Refused(f"{target.name} does not look into bodies, as {text[slice(*node.span)]} does", node.span)


def _same_tree(tree: t.Node, text: str | None, target: Dialect) -> Conversion | None:
    """The filter where it has the same tree in the target, or one that is true for the same messages."""
    if text is not None and _has_tree(text, tree, target):
        return Conversion(text, target.name, is_exact=True)
    if isinstance(tree, t.Constant):
        # What is neither true nor false is never true, and so is FALSE, which every language can write.
        given = _spelled(t.Constant(tree.value is True, tree.span), target)
        return Conversion(given, target.name, is_exact=isinstance(tree.value, bool))
    is_correlation = any(
        isinstance(node, t.Compare) and node.rules is t.ValueRules.CORRELATION for node in t.walk(tree)
    )
    if is_correlation and target.rules is t.ValueRules.SERVICE_BUS:
        return Conversion(_spelled(_as_expression(tree), target), target.name)
    if _rules_of(tree) == {target.rules}:
        return Conversion(_spelled(tree, target), target.name, is_exact=True)
    return None


def _rules_of(tree: t.Node) -> set[object]:
    return {node.rules for node in t.walk(tree) if isinstance(node, t.Field)}


def _as_expression(tree: t.Node) -> t.Node:
    """The equalities of a correlation filter by the rules of SQL: true together with them, where numbers are exact."""
    if isinstance(tree, t.And):
        return replace(tree, operands=tuple(map(_as_expression, tree.operands)))
    assert isinstance(tree, t.Compare) and isinstance(tree.right, t.Constant)
    if is_number(tree.right.value) and not is_safe_number(tree.right.value):
        raise Refused(
            "a correlation filter compares numbers by their exact value; SQL rounds an integer beside a double, which "
            "can tell from 2^53 on",
            tree.span,
        )
    return replace(tree, rules=t.ValueRules.SERVICE_BUS)


def _translated(tree: t.Node, target: Dialect, assume: frozenset[Assumption]) -> Conversion:
    rules = _rules_of(tree)
    if len(rules) != 1:
        raise Refused(f"{target.name} has no filter that is true for the same messages", tree.span)
    found = translated(tree, next(iter(rules)), target)
    missing = [assumption for assumption in _needed(found) if assumption not in assume]
    if missing:
        names = " and ".join(assumption.value for assumption in _needed(found))
        differences = {Assumption.KINDS: found.kinds_differ, Assumption.SPELLING: found.spelling_differs}
        reason = "; ".join(differences[assumption] for assumption in missing)
        raise Refused(f"{reason}. For messages that are known to give no cause for that, assume {names}", found.span)
    return Conversion(_spelled(found.tree, target), target.name, found.sentences())


def _needed(found: Translation) -> tuple[Assumption, ...]:
    return (Assumption.KINDS, Assumption.SPELLING) if found.spelling_differs else (Assumption.KINDS,)


def _spelled(tree: t.Node, target: Dialect) -> str:
    """The text of a tree of the target's own; raises Refused where the text would not have that tree."""
    try:
        text = (target.print_tree or print_tree)(tree)
    except Unspellable as unspellable:
        raise Refused(str(unspellable), _unspellable_part(tree, target)) from None
    if not _has_tree(text, tree, target):
        span = _unspellable_part(tree, target)
        raise Refused(f"{target.name} has no words for this{_reason_of(text, target)}", span)
    return text


def _reason_of(text: str, target: Dialect) -> str:
    try:
        bind(parse(text, target), target, text)
    except FilterError as error:
        return f": {error.reason}"
    return ""


def _unspellable_part(tree: t.Node, target: Dialect) -> t.Span:
    """The place of the first of the smallest parts that the target has no words for."""
    part = tree
    while True:
        # Where a value alone is no filter, only the operands of AND, OR and NOT can be tried one by one.
        can_be_tried = target.rules is t.ValueRules.RABBITMQ or isinstance(part, t.And | t.Or | t.Not)
        parts = t.children(part) if can_be_tried else ()
        inner = next((child for child in parts if not _is_spellable(child, target)), None)
        if inner is None:
            return part.span
        part = inner


def _is_spellable(node: t.Node, target: Dialect) -> bool:
    """Whether a part alone has words."""
    try:
        text = (target.print_tree or print_tree)(node)
        return _has_tree(text, node, target)
    except Unspellable:
        return False


def _has_tree(text: str, tree: t.Node, target: Dialect) -> bool:
    """Whether the target takes the text for a filter of that tree."""
    try:
        return t.identity(bind(parse(text, target), target, text)) == t.identity(tree)
    except FilterError:
        return False
