"""The identity of filters: which one a kept result belongs to, and which may have kept results at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

from headgate.errors import ConfigError, FilterError, FilterTypeError
from headgate.evaluate import EVALUATOR_REVISION, Filter
from headgate.language import tree as t
from headgate.language.rocketmq import TAGS
from headgate.message import HEADER_FIELDS, FieldReference, Section
from headgate.version import __version__

EVALUATOR = f"{__version__}/{EVALUATOR_REVISION}"
"""The state of the evaluators."""

_OF_THE_MESSAGE = (
    *(t.And, t.Or, t.Not, t.Compare, t.CompareSpecial, t.In, t.Like, t.LikeValue, t.TextTest, t.BooleanCast),
    *(t.IsNull, t.Exists, t.HasSimple, t.Arithmetic, t.Sign, t.Call, t.Concatenate),
    *(t.Constant, t.Field, t.Element, t.AnyElement, t.Attribute, t.Apply, t.PropertyOf, t.MessageSize),
)
"""Nodes whose value follows from their operands and the stored message alone. Others are refused until listed here."""

_OF_THE_DELIVERY = tuple(HEADER_FIELDS.index(name) for name in ("first-acquirer", "delivery-count"))


@dataclass(frozen=True, slots=True)
class FilterKey:
    """The identity of a filter: its language, its text, and the state of the program that decides it.

    `evaluator` is the state of the evaluators and a digest of the bound tree, which is the text as its language binds
    it.
    """

    dialect: str
    text_hash: str
    evaluator: str


def key_of(expression: Filter) -> FilterKey | None:
    """The key of a filter, None for one whose results are never kept.

    A filter that its text alone does not define has no key: with parameters, or given as a map. Cost: parsing it.
    """
    dialect = TAGS if expression.dialect is None else expression.dialect
    try:
        stated = Filter.stated(expression.text, dialect)
    except (FilterError, ConfigError):
        return None
    digest = _digest(stated.tree)
    if digest != _digest(expression.tree) or _volatile_node(expression) is not None:
        return None
    return FilterKey(dialect, text_hash(expression.text), f"{EVALUATOR}/{digest}")


def text_hash(text: str) -> str:
    """SHA-256 of a filter's text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def _digest(tree: t.Node) -> str:
    """A digest of a tree, node by node: trees may be deeper than Python can compare or print."""
    found = hashlib.sha256()
    for node in t.walk(tree):
        operands = {id(operand) for operand in t.children(node)}
        own = [type(node).__name__, len(operands)]
        for each in fields(node):
            value = getattr(node, each.name)
            if id(value[0] if isinstance(value, tuple) and value else value) not in operands:
                own.append((each.name, value))
        found.update(repr(own).encode("utf-8", errors="surrogatepass"))
    return found.hexdigest()[:32]


def check_registrable(expression: Filter) -> None:
    """Refuse a filter whose verdict depends on anything but the stored message: FilterTypeError with the place.

    That is the time (`UTC()`), chance (`newid()`), and fields of the delivery: delivery annotations, `delivery-count`
    and `first-acquirer`, which differ in a redelivered copy. A language with operators of its own is refused as well.
    """
    node = _volatile_node(expression)
    if node is not None:
        reason = "its verdict depends on more than the stored message"
        if expression.has_own_rules:
            reason = "its language has operators of its own, and nothing says when they change"
        elif expression.body_schema is not None:
            reason = "it looks into bodies of a declared schema, which a library decodes that may change"
        raise FilterTypeError(
            f"cannot be registered for the match index: {reason}",
            dialect=expression.dialect or TAGS,
            text=expression.text,
            span=node.span,
        )


def _volatile_node(expression: Filter) -> t.Node | None:
    if expression.has_own_rules:
        # The operators of an external language may change without notice.
        return expression.tree
    for node in t.walk(expression.tree):
        if not isinstance(node, _OF_THE_MESSAGE):
            return node
        if isinstance(node, t.Field) and (node.reference.schema is not None or _is_of_the_delivery(node.reference)):
            return node
    return None


def _is_of_the_delivery(reference: FieldReference) -> bool:
    if reference.section is Section.HEADER:
        return reference.position in _OF_THE_DELIVERY
    return reference.section is Section.DELIVERY_ANNOTATIONS
