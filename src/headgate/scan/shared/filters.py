"""The filters of a stream's readers, each once, and rule sets that decide many of them in one walk."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate.filter import Filter
from headgate.evaluate.rules import RuleSet
from headgate.message.batch import EncodedMessages

if TYPE_CHECKING:
    from headgate.scan.shared.reader import SharedReader
    from headgate.scan.shared.window import SharedWindow

NO_FILTER = -1
"""The number of readers without a filter."""

NOT_SHARED = -2
"""The number of readers whose filter nobody else decides: its verdict depends on more than the message, or only the
reference evaluator takes it."""

FEWEST_FILTERS = 4
"""From so many filters on a rule set is faster than one program after the other."""

_MOST_RULE_SETS = 4
_NEAR_WINDOWS = 4
"""Readers up to so many windows behind will soon be here."""


@dataclass(slots=True)
class RuleMatches:
    """Which messages of a batch match which filters of a rule set: `rows[borders[i]:borders[i + 1]]` filter i."""

    rows: NDArray[np.int64]
    borders: NDArray[np.int64]


class SharedRules:
    """Some filters of a stream, decided together. `places` is number of filter → place in the set."""

    __slots__ = ("_rules", "places")

    def __init__(self, filters: dict[int, Filter]) -> None:
        self.places = {number: place for place, number in enumerate(filters)}
        self._rules = RuleSet(list(filters.values()))

    def match(self, messages: EncodedMessages) -> RuleMatches:
        """Messages by filter."""
        found = self._rules.match(messages, now_ms=0)
        rules = found.rules.astype(np.int16 if len(self.places) < 1 << 15 else np.int64)
        order = np.argsort(rules, kind="stable")
        borders = np.searchsorted(rules[order], np.arange(len(self.places) + 1))
        return RuleMatches(found.rows[order], borders)


class SharedFilters:
    """The filters in force on one stream, and who has them. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Filter, int] = {}
        self._filters: dict[int, Filter] = {}
        self._readers: dict[SharedReader, int] = {}
        self._next_number = 0
        self._rule_sets: list[SharedRules] = []

    @property
    def reader_count(self) -> int:
        """How many readers the stream has."""
        return len(self._readers)

    def add(self, reader: SharedReader, wanted: Filter | None) -> int:
        """A reader comes; gives the number of its filter, the same for equal ones."""
        with self._lock:
            number = NO_FILTER
            if wanted is not None:
                number = NOT_SHARED
                if not (wanted.uses_time or wanted.uses_chance) and wanted.program is not None:
                    found = self._numbers.get(wanted)
                    if found is None:
                        found = self._numbers[wanted] = self._next_number
                        self._filters[found] = wanted
                        self._next_number += 1
                    number = found
            self._readers[reader] = number
            return number

    def remove(self, reader: SharedReader) -> None:
        """A reader leaves; again is harmless."""
        with self._lock:
            number = self._readers.pop(reader, None)
            if number is not None and number >= 0 and number not in self._readers.values():
                del self._numbers[self._filters.pop(number)]
                self._rule_sets = [rules for rules in self._rule_sets if number not in rules.places]

    def rules_for(self, window: SharedWindow, number: int) -> SharedRules | None:
        """The rule set by which a window is decided for the filter `number` and those of other readers that come by.

        None where they are so few that each is better decided alone.
        """
        if number < 0:
            return None
        with self._lock:
            begin = window.first_offset - _NEAR_WINDOWS * (window.next_offset - window.first_offset)
            wanted = {number}
            behind = {number}
            for reader, other in self._readers.items():
                if other >= 0 and reader.is_waiting and reader.offset < window.next_offset:
                    behind.add(other)
                    if reader.offset >= begin:
                        wanted.add(other)
            if len(wanted) < FEWEST_FILTERS:
                return None
            for rules in self._rule_sets:
                if len(rules.places) <= 2 * len(wanted) and wanted <= rules.places.keys():
                    return rules
            filters = {each: self._filters[each] for each in sorted(behind)}
            rules = SharedRules(filters)
            self._rule_sets = [rules, *self._rule_sets[: _MOST_RULE_SETS - 1]]
            return rules
