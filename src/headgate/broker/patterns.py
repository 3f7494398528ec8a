"""Patterns of names: regular expressions that match anywhere in a name; the empty pattern matches nothing.

Python's `re` takes exponential time for some patterns: for `(a+)+$` it doubles with each letter of a name. So a pattern
is parsed by `re` and becomes a graph of states, and one walk from the end of the name to its beginning finds the states
from which a match can go on to the end. That takes at most (characters of the name) × (states of the pattern) steps.
Constructs that this walk cannot decide are refused: references back to groups, look-behind, atomic groups and
possessive repeats.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import PreconditionFailedError

# Parser and compiler of `re` are no public modules; all of Python's versions from 3.11 on have them.
_compiler = importlib.import_module("re._compiler")
_parser = importlib.import_module("re._parser")

MAX_STATES = 5000


def check_pattern(pattern: str) -> None:
    """Raise PreconditionFailedError for a pattern that is no regular expression, or has an unsupported construct."""
    compiled(pattern)


@functools.lru_cache(maxsize=8192)
def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a name. Cost: a look-up if asked before; else name × pattern steps."""
    return pattern != "" and compiled(pattern).search(name)


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern:
    """The graph of a pattern. Raises PreconditionFailedError."""
    try:
        re.compile(pattern)
        return Pattern(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PreconditionFailedError(f"{pattern!r} is no regular expression: {error}") from error


@dataclass(slots=True, eq=False)
class _State:
    """A state: a match goes on from it if it is the last one, or from one of `following` under its condition.

    `test` checks a place of the name, and takes its character if `takes`. With `ahead` the state checks whether a match
    goes on from another state, and fails if the answer is `refused_by`.
    """

    depth: int
    following: Sequence[_State] = ()
    test: re.Pattern[str] | None = None
    takes: bool = False
    ahead: _State | None = None
    refused_by: bool = False
    before: list[_State] = field(default_factory=list)
    goes_on_at: int = -1
    """The newest place from which a match goes on."""


class Pattern:
    """A regular expression as a graph of states."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._parsed = _parser.parse(pattern)
        self._states: list[_State] = []
        self._start = self._sequence(self._parsed, self._state(0), ((0, 0),))
        deepest = max(state.depth for state in self._states)
        self._levels = [[state for state in self._states if state.depth == depth] for depth in range(deepest, -1, -1)]
        for state in self._states:
            for each in state.following if not state.takes else ():
                each.before.append(state)
        self.size = len(self._states)

    def search(self, name: str) -> bool:
        """Whether it matches anywhere in a name."""
        for state in self._states:
            state.goes_on_at = -1
        return any(self._goes_on(name, place) for place in range(len(name), -1, -1))

    def _goes_on(self, name: str, place: int) -> bool:
        """Find the states from which a match goes on at a place; the states at the next place are known."""
        for states in self._levels:
            reached = [state for state in states if _begins(state, name, place)]
            for state in reached:
                state.goes_on_at = place
            while reached:
                for state in reached.pop().before:
                    if state.goes_on_at != place and _holds(state, name, place):
                        state.goes_on_at = place
                        reached.append(state)
        return self._start.goes_on_at == place

    def _state(self, depth: int, *following: _State, **more: Any) -> _State:
        if len(self._states) == MAX_STATES:
            raise PreconditionFailedError(f"{self._pattern!r} is too large: expected at most {MAX_STATES} states")
        self._states.append(_State(depth, following, **more))
        return self._states[-1]

    def _sequence(self, items: Any, behind: _State, flags: tuple[tuple[int, int], ...]) -> _State:
        for item in reversed(list(items)):
            behind = self._item(item, behind, flags)
        return behind

    def _item(self, item: tuple[Any, Any], behind: _State, flags: tuple[tuple[int, int], ...]) -> _State:
        kind, content = str(item[0]), item[1]
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._state(behind.depth, behind, test=self._test(item, flags), takes=True)
            case "AT" | "FAILURE":
                return self._state(behind.depth, behind, test=self._test(item, flags))
            case "BRANCH":
                ways = [self._sequence(each, behind, flags) for each in content[1]]
                return self._state(behind.depth, *ways)
            case "SUBPATTERN":
                _, added, removed, inside = content
                return self._sequence(inside, behind, (*flags, (added, removed)))
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(content, behind, flags)
            case "ASSERT" | "ASSERT_NOT" if content[0] > 0:
                ahead = self._sequence(content[1], self._state(behind.depth + 1), flags)
                return self._state(behind.depth, behind, ahead=ahead, refused_by=kind == "ASSERT_NOT")
        what = {"ASSERT": "look-behind", "ASSERT_NOT": "look-behind", "GROUPREF": "a reference to a group"}
        named = what.get(kind, kind.lower().replace("_", " "))
        raise PreconditionFailedError(f"{self._pattern!r}: found {named}, which patterns of names cannot hold")

    def _repeat(self, content: Any, behind: _State, flags: tuple[tuple[int, int], ...]) -> _State:
        least, most, inside = content
        if str(most) == "MAXREPEAT":
            loop = self._state(behind.depth)
            loop.following = (self._sequence(inside, loop, flags), behind)
            start = loop
        else:
            start = behind
            for _ in range(most - least):
                start = self._state(behind.depth, self._sequence(inside, start, flags), behind)
        for _ in range(least):
            start = self._sequence(inside, start, flags)
        return start

    def _test(self, item: tuple[Any, Any], flags: tuple[tuple[int, int], ...]) -> re.Pattern[str]:
        """The item alone, under the flags of the groups that it is in."""
        alone = _parser.SubPattern(self._parsed.state, [item])
        for added, removed in reversed(flags):
            alone = _parser.SubPattern(self._parsed.state, [(_parser.SUBPATTERN, (None, added, removed, alone))])
        made: re.Pattern[str] = _compiler.compile(alone)
        return made


def _begins(state: _State, name: str, place: int) -> bool:
    """Whether a match goes on from a state without another state at this place: it is last, or takes a character."""
    if not state.following:
        return True
    return state.takes and state.following[0].goes_on_at == place + 1 and _holds(state, name, place)


def _holds(state: _State, name: str, place: int) -> bool:
    if state.ahead is not None:
        return (state.ahead.goes_on_at == place) is not state.refused_by
    return state.test is None or state.test.match(name, place) is not None
