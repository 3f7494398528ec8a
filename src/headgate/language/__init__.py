"""What a filter says: text in one of the filter languages → a tree that any evaluator can walk.

Hides tokens, grammars and the differences between the languages. `parse` gives the unbound tree of a text, `bind`
resolves its names to fields of a message; only bound trees are evaluated. Property filters and the filter map of an
AMQP receiver (`amqp/`) yield bound trees of the same nodes. What one system alone has is in the folder of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.errors import ConfigError
from headgate.language.amqp.dialect import AMQP
from headgate.language.bind import bind as _bind
from headgate.language.dialect import Dialect, Unspellable
from headgate.language.parser import parse as _parse
from headgate.language.printer import print_tree
from headgate.language.registry import dialect_named, dialect_names
from headgate.language.servicebus.dialect import parameter_values
from headgate.language.servicebus.limits import Limits
from headgate.language.tree import Node
from headgate.language.warnings import FilterWarning
from headgate.language.warnings import warnings_of as _warnings_of

DEFAULT_DIALECT = AMQP.name
"""The language of a filter whose giver names none."""


def parse(text: str, dialect: str = DEFAULT_DIALECT, *, limits: Limits | None = None) -> Node:
    """The unbound tree of a filter text. Raises FilterSyntaxError and FilterLimitError, with the span.

    With `limits`, theirs is the length of the text that is allowed, whatever the dialect's.
    """
    language = dialect_named(dialect)
    if limits is not None:
        language = replace(language, max_code_points=limits.filter_characters)
    return _parse(text, language)


def bind(tree: Node, dialect: str, text: str, *, parameters: Mapping[str, object] | None = None) -> Node:
    """The bound tree of an unbound one, parsed from `text`. Raises FilterTypeError and FilterSyntaxError.

    `parameters` are the values of `@name`, plain Python values or `AmqpValue`, the `@` of the name left out or not.
    Raises ConfigError for parameters that a value cannot be, and for a dialect that has none.
    """
    language = dialect_named(dialect)
    if parameters and not language.takes_parameters:
        raise ConfigError(f"found parameters, dialect {language.name} has none")
    return _bind(tree, language, text, parameter_values(parameters or {}))


def spelled(tree: Node, dialect: str = DEFAULT_DIALECT) -> str:
    """The text of a tree of that language, in its own spelling; raises Unspellable where it has none."""
    return (dialect_named(dialect).print_tree or print_tree)(tree)


def warnings_of(text: str, tree: Node, dialect: str) -> tuple[FilterWarning, ...]:
    """What is odd about a text that the language accepts; `tree` is its bound tree."""
    return _warnings_of(text, tree, dialect_named(dialect))


__all__ = [
    "DEFAULT_DIALECT",
    "Dialect",
    "FilterWarning",
    "Limits",
    "Unspellable",
    "bind",
    "dialect_named",
    "dialect_names",
    "parse",
    "spelled",
    "warnings_of",
]
