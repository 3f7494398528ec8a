"""Operators that several languages share: LIKE over characters, and the stand-in for one that a language lacks."""

from __future__ import annotations

from typing import NoReturn

from headgate.language.tree import LikePattern, LikeWildcard


def wildcard_match(pattern: LikePattern, text: str) -> bool:
    """Whether the whole text matches; wildcards take any character. Cost: at most text × pattern steps."""
    steps: list[str | LikeWildcard] = []
    for element in pattern.parts:
        steps.extend([element] if isinstance(element, LikeWildcard) else element.decode("utf-8", "surrogateescape"))
    return _matches(steps, text)


def _matches(steps: list[str | LikeWildcard], text: str) -> bool:
    """Two pointers and one place to return to: the last `%` takes one more character whenever the rest does not fit."""
    at = step = 0
    any_step, any_at = -1, 0
    while at < len(text):
        current = steps[step] if step < len(steps) else None
        if current is LikeWildcard.ANY:
            any_step, any_at = step, at
            step += 1
        elif current is LikeWildcard.ONE or current == text[at]:
            step += 1
            at += 1
        elif any_step >= 0:
            any_at += 1
            step, at = any_step + 1, any_at
        else:
            return False
    return all(rest is LikeWildcard.ANY for rest in steps[step:])


def lacking(*_operands: object) -> NoReturn:
    """No tree of the language has the operator."""
    raise TypeError("the language has no such operator")
