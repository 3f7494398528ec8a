"""The filters of a stream's readers, each once, and rule sets that decide many of them in one walk."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import Filter
from headgate.evaluate.rules import RuleSet, common_filter
from headgate.message import EncodedMessages
from headgate.scan.offset_range import OffsetRange

NO_FILTER = -1
"""The number of readers without a filter."""

NOT_SHARED = -2
"""The number of readers whose filter is decided for them alone: its verdict depends on more than the message, or only
the reference evaluator takes it."""

FEWEST_FILTERS = 4
"""From this many filters on a rule set is faster than one program after the other."""

_FILTERS_PER_READER = 64
"""This many more filters in a rule set cost about as much as one program."""

_MOST_CHANGES = 24
"""Limit: changes to a rule set; with more it is made anew."""

_MOST_NEAR = 16
"""Readers up to this many windows behind may find results decided for them; fewer where results were dropped sooner."""


class FilteredReader(Protocol):
    """A reader as others of its stream see it."""

    @property
    def offset(self) -> int:
        """The offset at which it reads on."""

    @property
    def is_waiting(self) -> bool:
        """Whether it wants more."""

    @property
    def is_delivering(self) -> bool:
        """Whether it has pending messages, to be taken before it reads on."""


@dataclass(frozen=True, slots=True)
class SharedRules:
    """Filters of a stream that are decided together; `places` maps the number of a filter to its place in the set.

    `common` is true wherever one of them is, so only the messages that pass it have to be matched.
    """

    rules: RuleSet
    places: dict[int, int]
    common: Filter | None

    @staticmethod
    def of(filters: dict[int, Filter]) -> SharedRules:
        """A new set."""
        given = list(filters.values())
        places = {number: place for place, number in enumerate(filters)}
        return SharedRules(RuleSet(given), places, common_filter(given))

    def changed(self, filters: dict[int, Filter]) -> SharedRules:
        """The set of these filters, made from this one. Cost: some milliseconds if filters are added."""
        rules, places, common = self.rules, dict(self.places), self.common
        for number in self.places.keys() - filters.keys():
            rules = rules.without(places.pop(number))
        fresh = {number: each for number, each in filters.items() if number not in self.places}
        places.update(zip(fresh, itertools.count(rules.next_number)))
        if fresh:
            rules = rules.with_filters(list(fresh.values()))
            common = None if common is None else common_filter([common, *fresh.values()])
        return SharedRules(rules, places, common)

    def match(self, messages: EncodedMessages) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of a message, by row, and the place of a filter that it matches; sorted by row."""
        found = self.rules.match(messages, now_ms=0)
        return found.rows, found.rules


class SharedFilters:
    """The filters in force on one stream, and the readers that have them. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules_lock = threading.Lock()
        self._numbers: dict[Filter, int] = {}
        self._filters: dict[int, Filter] = {}
        self._readers: dict[FilteredReader, int] = {}
        self._next_number = 0
        self._rules: SharedRules | None = None
        self._near_windows = _MOST_NEAR

    @property
    def reader_count(self) -> int:
        """Number of readers of the stream."""
        return len(self._readers)

    @property
    def are_many(self) -> bool:
        """Whether there are enough filters for deciding them together to pay."""
        return len(self._filters) >= FEWEST_FILTERS

    def hindmost(self, start: int, stop: int) -> int | None:
        """The least offset from `start` to before `stop` from which a reader with a shared filter reads next."""
        with self._lock:
            return min(self._places(start, stop), default=None)

    def is_anyone_at(self, offset: int) -> bool:
        """Whether a reader with a shared filter reads next from an offset."""
        with self._lock:
            return next(self._places(offset, offset + 1), None) is not None

    def _places(self, start: int, stop: int) -> Iterator[int]:
        """The offsets within a range from which readers with a shared filter read next."""
        for reader, number in self._readers.items():
            # Readers may be many, so what costs least is asked first.
            if start <= reader.offset < stop and number >= 0 and reader.is_waiting and not reader.is_delivering:
                yield reader.offset

    def learn(self, times_used: int) -> None:
        """Results were dropped after this many uses: after few uses, only readers less far behind count next time."""
        if times_used < FEWEST_FILTERS:
            self._near_windows = max(1, self._near_windows // 2)
        else:
            self._near_windows = min(_MOST_NEAR, 2 * self._near_windows)

    def sharers(self, span: OffsetRange, numbers: Collection[int] | None = None) -> int:
        """Number of readers that will soon read some offsets, with filters of these numbers or any; at least one."""
        if len(self._readers) < 2:
            return 1
        begin = span.start - self._near_windows * (span.stop - span.start)
        with self._lock:
            found = sum(
                (numbers is None or number in numbers) and begin <= reader.offset < span.stop and reader.is_waiting
                for reader, number in self._readers.items()
            )
        return max(1, found)

    def add(self, reader: FilteredReader, wanted: Filter | None) -> int:
        """Add a reader; gives the number of its filter, which equal filters share."""
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

    def remove(self, reader: FilteredReader) -> None:
        """Remove a reader; calling this twice is harmless."""
        with self._lock:
            number = self._readers.pop(reader, None)
            if number is not None and number >= 0 and number not in self._readers.values():
                del self._numbers[self._filters.pop(number)]

    def rules_for(self, span: OffsetRange, number: int, known: Collection[int]) -> SharedRules | None:
        """All filters as a rule set, if deciding some offsets for all is better than for the filter `number` alone.

        That is so when enough readers will soon read these offsets with filters whose results are not `known` there.
        """
        with self._lock:
            fewest = FEWEST_FILTERS + len(self._filters) // _FILTERS_PER_READER
            if len(self._filters) < fewest:
                return None
            begin = span.start - self._near_windows * (span.stop - span.start)
            asked = {number}
            # Readers may be many, so what costs least is asked first.
            for reader, other in self._readers.items():
                is_new = other >= 0 and other not in asked and other not in known
                if is_new and begin <= reader.offset < span.stop and reader.is_waiting:
                    asked.add(other)
            if len(asked) < fewest:
                return None
            filters = dict(self._filters)
        # Making rules takes a while; readers may come and go meanwhile.
        with self._rules_lock:
            rules = self._rules
            if rules is None or len(rules.places.keys() ^ filters.keys()) > _MOST_CHANGES:
                rules = SharedRules.of(filters)
            elif rules.places.keys() != filters.keys():
                rules = rules.changed(filters)
            self._rules = rules
            return rules
