"""Counts of each rule of a topic over the decided messages: counted by slots of a router, given by rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.topic.decisions.runs import Int64Array
from headgate.topic.router import Placed, last_failures


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """How many messages a rule selected, and for how many it failed.

    `matched` is None for a rule that is not evaluated, because another one of its subscription takes all messages.
    `errors` are errors of its filter, None where they are not counted (`router.ERRORS_COUNTED`); a message whose action
    failed is in `matched`, too. `last_failure` is the offset of the last message that filter or action failed for.
    """

    matched: int | None = 0
    errors: int | None = None
    failed_actions: int = 0
    last_failure: int | None = None

    @property
    def has_failed(self) -> bool:
        """Whether filter or action failed for a message."""
        return self.last_failure is not None

    def with_others(self, other: RuleCounts) -> RuleCounts:
        """These counts and other ones of the same rule."""
        return RuleCounts(
            None if self.matched is None else self.matched + (other.matched or 0),
            None if self.errors is None else self.errors + (other.errors or 0),
            self.failed_actions + other.failed_actions,
            max((each for each in (self.last_failure, other.last_failure) if each is not None), default=None),
        )


NOT_ASKED = RuleCounts(matched=None)


class SlotCounts:
    """The counts of the slots of one router, as numbers; `counts_errors` says of which ones errors are found."""

    def __init__(self, counts_errors: NDArray[np.bool_]) -> None:
        count = len(counts_errors)
        self._counts_errors = counts_errors
        self._matched, self._errors, self._failed = (np.zeros(count, dtype=np.int64) for _ in range(3))
        self._last = np.full(count, -1, dtype=np.int64)

    def add(self, placed: Placed, offsets: Int64Array) -> NDArray[np.intp]:
        """Add a router's results for some messages; gives the slots that failed for the first time."""
        decided = placed.decided
        np.add.at(self._matched, decided.slots, 1)
        if not len(decided.error_slots) and not len(placed.failed_slots):
            return _NO_SLOTS
        np.add.at(self._errors, decided.error_slots, 1)
        np.add.at(self._failed, placed.failed_slots, 1)
        last = last_failures(len(self._last), offsets, decided, placed.failed_rows, placed.failed_slots)
        fresh = np.flatnonzero((self._last < 0) & (last >= 0))
        np.maximum(self._last, last, out=self._last)
        return fresh

    def counted(self) -> NDArray[np.intp]:
        """The slots whose rules selected a message or failed."""
        return np.flatnonzero((self._matched > 0) | (self._last >= 0))

    def of(self, slot: int) -> RuleCounts:
        """The counts of the rule in a slot."""
        last = int(self._last[slot])
        return RuleCounts(
            int(self._matched[slot]),
            int(self._errors[slot]) if self._counts_errors[slot] else None,
            int(self._failed[slot]),
            None if last < 0 else last,
        )


_NO_SLOTS = np.empty(0, dtype=np.intp)
