"""Warnings about filter texts that a language accepts, but that are hardly meant.

Each language has its own (`Dialect.warnings`); the warning for all languages that ignore trailing input is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import caret_display
from headgate.language.lexer import Lexer
from headgate.language.tree import Node, Span

if TYPE_CHECKING:
    from headgate.language.dialect import Dialect


@dataclass(frozen=True, slots=True, order=True)
class FilterWarning:
    """A warning about a place of a filter text, in code points, with the reason."""

    span: Span
    reason: str

    def display(self, text: str) -> str:
        """The reason, and the text with a caret under the place."""
        return f"{self.reason}\n{caret_display(text, self.span)}"


def warnings_of(text: str, tree: Node, dialect: Dialect) -> tuple[FilterWarning, ...]:
    """The warnings about a text that `dialect` accepts, in the order of their places; `tree` is its bound tree."""
    return tuple(sorted({*dialect.warnings(text, tree), *_ignored_text(text, tree, dialect)}))


def _ignored_text(text: str, tree: Node, dialect: Dialect) -> Iterator[FilterWarning]:
    if not dialect.ignores_trailing_input:
        return
    complete = tree.span[1]
    following = Lexer(text[complete:], dialect).next()
    if following.text:
        yield FilterWarning(
            (complete + following.span[0], len(text.rstrip())),
            "the expression is complete before this, which is ignored",
        )
