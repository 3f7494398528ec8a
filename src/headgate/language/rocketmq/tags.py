"""RocketMQ's tag expressions: `TagA || TagB`, or `*` for every message.

A message has at most one tag. The indexes of RocketMQ hold the hash of the tag; several tags may share one.
Source: rocketmq_filters, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headgate.errors import FilterSyntaxError
from headgate.language.rocketmq.java import string_hash, trimmed
from headgate.language.tree import Constant, Field, In, Node, ValueRules
from headgate.message import TAG

TAGS = "tags"
"""The name that stands for a dialect where the text is a tag expression."""

EVERYTHING = "*"
"""The expression that takes every message, tagged or not."""

_SEPARATOR = "||"


def tag_hash(tag: str | None) -> int:
    """The code of a tag in an index: Java's hash of it, 32 bits with sign; 0 without a tag."""
    return string_hash(tag or "")


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed expression: `tags` without repetition in the order of the text; `text` is `*` if all messages match."""

    text: str
    tags: tuple[str, ...]

    @property
    def takes_everything(self) -> bool:
        """Whether every message matches."""
        return self.text == EVERYTHING

    @property
    def codes(self) -> tuple[int, ...]:
        """The hashes of the tags, each once, ascending."""
        return tuple(sorted(set(map(tag_hash, self.tags))))

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag (None and empty: without one) matches."""
        return self.takes_everything or tag in self.tags

    def tree(self) -> Node:
        """The bound tree that decides as `matches` does; untagged messages are unknown to a list of tags."""
        span = (0, len(self.text))
        if not self.tags:
            return Constant(self.takes_everything, span)
        members = tuple(Constant(tag.encode(), span) for tag in self.tags)
        return In(Field(TAG, ValueRules.ROCKETMQ, span), members, False, ValueRules.ROCKETMQ, span)


def parse_tags(text: str | None) -> TagExpression:
    """The expression of a text; None, empty and exactly `*` take everything, a list without tags takes nothing.

    Raises FilterSyntaxError for a text of separators only, with the original's reason, and for characters that no UTF-8
    can hold.
    """
    if not text or text == EVERYTHING:
        return TagExpression(EVERYTHING, ())
    pieces = text.split(_SEPARATOR)
    if not any(pieces):
        raise FilterSyntaxError("subString split error", dialect=TAGS, text=text, span=(0, len(text)))
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            reason = "found half of a surrogate pair, which is no character"
            raise FilterSyntaxError(reason, dialect=TAGS, text=text, span=(position, position + 1))
    tags = dict.fromkeys(trimmed(piece) for piece in pieces)
    return TagExpression(text, tuple(tag for tag in tags if tag))


LISTS: Mapping[str, Callable[[str | None], TagExpression]] = MappingProxyType({TAGS: parse_tags})
"""The languages whose texts are lists and no expressions, with the functions that read them.

A message is compared with a list by hash, so its results are not worth keeping.
"""
