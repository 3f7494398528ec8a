"""Patterns of names: regular expressions that match anywhere in a name; the empty pattern matches nothing."""

from __future__ import annotations

import functools
import re

from headgate.errors import PreconditionFailedError


def check_pattern(pattern: str) -> None:
    """Raise PreconditionFailedError for a pattern that is no regular expression."""
    _compiled(pattern)


@functools.lru_cache(maxsize=8192)
def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a name. Cost: a look-up, once it was asked."""
    return pattern != "" and _compiled(pattern).search(name) is not None


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PreconditionFailedError(f"{pattern!r} is no regular expression: {error}") from error
