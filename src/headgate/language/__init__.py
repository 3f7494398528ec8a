"""The filter languages: a filter's text → a tree that any evaluator can walk.

Hides tokens, grammars and the differences between the languages. `parse` gives the unbound tree of a text, `bind`
resolves its names to fields of a message; only bound trees are evaluated. Property filters and the filter map of an
AMQP receiver (`amqp/`) yield bound trees of the same nodes. Parts of one system alone are in the folder of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.language.amqp import AMQP
from headgate.language.binder import bind as _bind
from headgate.language.dialect import Dialect, Unspellable
from headgate.language.parser import parse as _parse
from headgate.language.printer import print_tree
from headgate.language.registry import dialect_named, dialect_names
from headgate.language.servicebus import Limits, parameter_values
from headgate.language.tree import Node
from headgate.language.warnings import FilterWarning
from headgate.language.warnings import warnings_of as _warnings_of

if TYPE_CHECKING:
    from headgate.language.convert import Assumption, Conversion
    from headgate.language.convert import convert as convert_tree
    from headgate.language.functions import called, concatenated
    from headgate.language.like import LikeRefused, compile_any_like
    from headgate.language.printer import constant_text, field_text
    from headgate.language.values import EvaluationFailed, Value, arithmetic, is_number, is_utf8, signed, value_of
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)


DEFAULT_DIALECT = AMQP.name
"""The language of a filter given without one."""


def parse(text: str, dialect: str | Dialect = DEFAULT_DIALECT, *, limits: Limits | None = None) -> Node:
    """The unbound tree of a filter text. Raises FilterSyntaxError and FilterLimitError, with the span.

    With `limits`, their limit of the text's length replaces the dialect's.
    """
    language = _language(dialect)
    if limits is not None:
        language = replace(language, max_code_points=limits.filter_characters)
    return _parse(text, language)


def bind(tree: Node, dialect: str | Dialect, text: str, *, parameters: Mapping[str, object] | None = None) -> Node:
    """The bound tree of an unbound one, parsed from `text`. Raises FilterTypeError and FilterSyntaxError.

    `parameters` are the values of `@name`, plain Python values or `AmqpValue`, the `@` of the name left out or not.
    Raises ConfigError for parameters that are no values of a language, and for a dialect without parameters.
    """
    language = _language(dialect)
    if parameters and not language.takes_parameters:
        raise ConfigError(f"found parameters, dialect {language.name} has none")
    return _bind(tree, language, text, parameter_values(parameters or {}))


def spelled(tree: Node, dialect: str = DEFAULT_DIALECT) -> str:
    """The text of a tree of that language, in its own spelling; raises Unspellable where it has none."""
    return (dialect_named(dialect).print_tree or print_tree)(tree)


def warnings_of(text: str, tree: Node, dialect: str) -> tuple[FilterWarning, ...]:
    """Warnings about a text that the language accepts; `tree` is its bound tree."""
    return _warnings_of(text, tree, dialect_named(dialect))


def _language(dialect: str | Dialect) -> Dialect:
    return dialect if isinstance(dialect, Dialect) else dialect_named(dialect)


__all__ = [
    "Assumption",
    "Conversion",
    "DEFAULT_DIALECT",
    "Dialect",
    "EvaluationFailed",
    "FilterWarning",
    "LikeRefused",
    "Limits",
    "Unspellable",
    "Value",
    "arithmetic",
    "bind",
    "called",
    "compile_any_like",
    "concatenated",
    "constant_text",
    "convert_tree",
    "dialect_named",
    "dialect_names",
    "field_text",
    "is_number",
    "is_utf8",
    "parse",
    "signed",
    "spelled",
    "value_of",
    "warnings_of",
]
