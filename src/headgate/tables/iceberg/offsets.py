"""Which offsets of its stream a table has been given, as a text in its snapshots: `0-1000 2000-3000`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate.errors import SinkError

_RANGE = re.compile("([0-9]+)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """Ranges `start … stop` of offsets, ascending; `stop` is exclusive. None is empty and none touches another."""

    ranges: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def parse(text: str) -> OffsetRanges:
        """The ranges from a text of `str()`. Raises SinkError for any other text."""
        found = OffsetRanges()
        for part in text.split():
            match = _RANGE.fullmatch(part)
            if match is None:
                raise SinkError(f"found {text!r} as the offsets of a table, expected ranges such as '0-1000'")
            found = found.joined(int(match[1]), int(match[2]))
        return found

    def __str__(self) -> str:
        return " ".join(f"{start}-{stop}" for start, stop in self.ranges)

    def joined(self, start: int, stop: int) -> OffsetRanges:
        """These offsets and `start … stop`; an empty range adds nothing."""
        if start >= stop:
            return self
        apart = [each for each in self.ranges if each[1] < start or each[0] > stop]
        near = [each for each in self.ranges if each not in apart]
        both = (min([start, *(first for first, _ in near)]), max([stop, *(last for _, last in near)]))
        return OffsetRanges(tuple(sorted([*apart, both])))

    def has(self, start: int, stop: int) -> bool:
        """Whether all of `start … stop` is in them."""
        return any(first <= start and stop <= last for first, last in self.ranges)

    def meets(self, start: int, stop: int) -> bool:
        """Whether some of `start … stop` is in them."""
        return any(first < stop and start < last for first, last in self.ranges)
