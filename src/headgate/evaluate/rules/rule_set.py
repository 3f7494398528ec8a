"""The set of filters: numbers, changes, and the answer for a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate.filter import Filter
from headgate.evaluate.rules.engine import EnginePart
from headgate.evaluate.rules.parts import ROW_SHIFT, AlonePart, Found, Member, Part, ReferencePart
from headgate.evaluate.rules.plan import plan_of
from headgate.language.tree import Field, Rules, ValueRules, walk
from headgate.message import EncodedMessages, Section

MOST_FILTERS = 1 << ROW_SHIFT
_SMALLEST_LEVEL = 24
_LEVEL_FACTOR = 32
"""Factor from one level to the next of the most filters of a part. A larger part is joined with the next level's."""

_MOST_ALONE = 3
"""Limit: filters that are evaluated one after the other."""

_MOST_DEAD = 64
"""Removed filters stay in their part until they are more than this, and more than half of the part."""


@dataclass(slots=True, frozen=True)
class Matches:
    """The matches and errors of some filters in a batch.

    `rows[i]` matches filter `rules[i]`; `error_rows[i]` is an error to filter `error_rules[i]`, or no message at all,
    for filters whose errors are wanted. All `(n,)` int64, sorted by row, then by filter.
    """

    rows: NDArray[np.int64]
    rules: NDArray[np.int64]
    error_rows: NDArray[np.int64]
    error_rules: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


class RuleSet:
    """Filters under the numbers 0, 1, 2 …, of any languages; immutable, may be pickled and used by several threads.

    Errors are reported for the filters whose numbers are in `exact_errors`; for others an error is just no match. Cost
    of making a set: microseconds for each equality, tens of microseconds for each new predicate.
    """

    __slots__ = ("_count", "_parts", "_removed")

    def __init__(self, filters: Sequence[Filter], *, exact_errors: Collection[int] = ()) -> None:
        asked = frozenset(exact_errors)
        members = [Member(number, given, number in asked) for number, given in enumerate(filters)]
        self._assign(len(members), _parts_of(members), frozenset())

    def _assign(self, count: int, parts: tuple[Part, ...], removed: frozenset[int]) -> None:
        if count > MOST_FILTERS:
            raise ValueError(f"a rule set numbers at most {MOST_FILTERS} filters, found {count}")
        self._count = count
        self._parts = parts
        self._removed = removed

    def __len__(self) -> int:
        """How many filters are in force."""
        return self._count - len(self._removed)

    @property
    def next_number(self) -> int:
        """The number that the next filter will get; numbers are never given twice."""
        return self._count

    def __getstate__(self) -> tuple[int, tuple[Part, ...], frozenset[int]]:
        return self._count, self._parts, self._removed

    def __setstate__(self, state: tuple[int, tuple[Part, ...], frozenset[int]]) -> None:
        self._assign(*state)

    def with_filter(self, given: Filter, *, exact_errors: bool = False) -> RuleSet:
        """The set with one more filter, whose number is `next_number`; all others keep theirs.

        Cost: a millisecond or two, for any size of the set; about once in 24 times, as much as making a set of some
        hundred filters, once in 768 times, of some thousand, and so on.
        """
        return self._with([Member(self._count, given, exact_errors)])

    def with_filters(self, given: Sequence[Filter]) -> RuleSet:
        """The set with some filters more, numbered from `next_number` on; cheaper than one after the other."""
        return self._with([Member(number, each, False) for number, each in enumerate(given, self._count)])

    def _with(self, members: Sequence[Member]) -> RuleSet:
        waiting = list(members)
        parts = list(self._parts)
        level = _SMALLEST_LEVEL
        while True:
            small = [part for part in parts if len(part) <= level]
            parts = [part for part in parts if len(part) > level]
            waiting = [*(member for part in small for member in part.members), *waiting]
            if len(waiting) <= level:
                break
            level *= _LEVEL_FACTOR
        return self._changed(self._count + len(members), parts, waiting, self._removed)

    def without(self, number: int) -> RuleSet:
        """The set without one filter; all others keep their numbers. Raises KeyError for a number not in force."""
        if not 0 <= number < self._count or number in self._removed:
            raise KeyError(f"no filter has the number {number}")
        removed = self._removed | {number}
        held = sum(len(part) for part in self._parts)
        if held > _MOST_DEAD + 2 * (len(self) - 1):
            return self._changed(self._count, [], [member for part in self._parts for member in part.members], removed)
        return self._changed(self._count, list(self._parts), [], removed)

    def _changed(
        self, count: int, parts: Sequence[Part], waiting: Sequence[Member], removed: frozenset[int]
    ) -> RuleSet:
        kept = [member for member in waiting if member.number not in removed]
        changed = RuleSet.__new__(RuleSet)
        changed._assign(count, (*parts, *_parts_of(kept)), removed)
        return changed

    def match(self, batch: EncodedMessages, *, now_ms: int) -> Matches:
        """Which messages match which filters; UTC() is `now_ms`. No message makes it raise."""
        found = Found.joined(part.match(batch, now_ms) for part in self._parts)
        rows, rules = self._sorted(found.matches)
        return Matches(rows, rules, *self._sorted(found.errors))

    def _sorted(self, pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not len(pairs):
            return pairs, pairs
        # Sorted pieces are merged by the stable sort; others would be slow with it.
        pairs.sort(kind="stable")
        rows, rules = pairs >> ROW_SHIFT, pairs & (MOST_FILTERS - 1)
        if self._removed:
            in_force = np.ones(self._count, dtype=np.bool_)
            in_force[list(self._removed)] = False
            kept = in_force[rules]
            rows, rules = rows[kept], rules[kept]
        return rows, rules


def _parts_of(members: Sequence[Member]) -> tuple[Part, ...]:
    """Parts that have each filter once: one for each language, more where fields are too many for one program.

    Filters that look into the body are in a part of their own: a body that the kernel leaves open is decided by the
    reference for all filters of a part, and these are then no others.
    """
    if len(members) <= _MOST_ALONE:
        return (AlonePart(members),) if members else ()
    by_rules: defaultdict[tuple[Rules, bool], list[Member]] = defaultdict(list)
    anywhere: list[Member] = []
    mixed: list[Member] = []
    for member in members:
        fields = [node for node in walk(member.filter.tree) if isinstance(node, Field)]
        rules = {id(field.rules): field.rules for field in fields}
        if member.filter.has_own_rules or member.filter.body_schema is not None:
            mixed.append(member)
        elif len(rules) == 1:
            in_body = any(field.reference.section is Section.DATA for field in fields)
            by_rules[fields[0].rules, in_body].append(member)
        else:
            (mixed if rules else anywhere).append(member)
    if anywhere:
        by_rules[next(iter(by_rules), (ValueRules.RABBITMQ, False))] += anywhere
    parts = [part for (rules_, _), of_rules in by_rules.items() for part in _parts_of_language(of_rules, rules_)]
    return (*parts, ReferencePart(mixed)) if mixed else tuple(parts)


def _parts_of_language(members: Sequence[Member], rules: Rules) -> list[Part]:
    if len(members) <= _MOST_ALONE:
        return [AlonePart(members)]
    plan = plan_of(members, rules)
    if plan is not None:
        return [EnginePart(members, plan)]
    half = len(members) // 2
    return [*_parts_of_language(members[:half], rules), *_parts_of_language(members[half:], rules)]
