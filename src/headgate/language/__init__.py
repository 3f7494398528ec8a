"""What a filter says: text in one of the filter languages → a tree that any evaluator can walk.

Hides tokens, grammars and the differences between the languages. `parse` gives the unbound tree of a text, `bind`
resolves its names to fields of a message; only bound trees are evaluated. Property filters and the filter map of an
AMQP receiver (`properties.py`, `filter_set.py`) yield bound trees of the same nodes.
"""

from __future__ import annotations

from headgate.errors import ConfigError
from headgate.language.amqp import AMQP
from headgate.language.bind import bind as _bind
from headgate.language.dialect import Dialect
from headgate.language.parser import parse as _parse
from headgate.language.rabbitmq import RABBITMQ
from headgate.language.rocketmq import ROCKETMQ
from headgate.language.tree import Node

DIALECTS: dict[str, Dialect] = {RABBITMQ.name: RABBITMQ, AMQP.name: AMQP, ROCKETMQ.name: ROCKETMQ}
"""The filter languages by name."""

DEFAULT_DIALECT = AMQP.name
"""The language of a filter whose giver names none."""


def dialect_named(name: str) -> Dialect:
    """The language of that name; raises ConfigError that lists the names there are."""
    try:
        return DIALECTS[name]
    except KeyError:
        raise ConfigError(f"found dialect {name!r}, expected one of {', '.join(DIALECTS)}") from None


def parse(text: str, dialect: str = DEFAULT_DIALECT) -> Node:
    """The unbound tree of a filter text; raises FilterSyntaxError and FilterLimitError, with the span."""
    return _parse(text, dialect_named(dialect))


def bind(tree: Node, dialect: str, text: str) -> Node:
    """The bound tree of an unbound one, parsed from `text`; raises FilterTypeError and FilterSyntaxError."""
    return _bind(tree, dialect_named(dialect), text)


__all__ = ["DEFAULT_DIALECT", "DIALECTS", "Dialect", "bind", "dialect_named", "parse"]
