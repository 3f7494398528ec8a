"""Copies, or failures of rules, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.topic.decisions.runs import NOTHING, Int64Array


@dataclass(frozen=True, slots=True)
class Pairs:
    """Copies, or failures of rules: `(pairs,)` int64 each, sorted by subscription, offset, rule.

    `subscriptions` and `rules` are the numbers that the history gave them.
    """

    subscriptions: Int64Array
    offsets: Int64Array
    rules: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)

    def counts(self, size: int) -> Int64Array:
        """How many each of the subscriptions below a number has, `(size,)`."""
        return np.diff(np.searchsorted(self.subscriptions, np.arange(size + 1)))

    def per_subscription(self) -> dict[int, int]:
        """How many each subscription has that has any, by its number."""
        numbers, counts = np.unique(self.subscriptions, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def rows_of(self, subscription: int) -> slice:
        """The rows of one subscription."""
        return slice(*self.subscriptions.searchsorted((subscription, subscription + 1)).tolist())

    def of(self, subscription: int) -> Pairs:
        """The pairs of one subscription."""
        return self.take(self.rows_of(subscription))

    def take(self, rows: slice | NDArray[np.intp]) -> Pairs:
        """Some of them, in the order of `rows`."""
        return Pairs(self.subscriptions[rows], self.offsets[rows], self.rules[rows])

    @staticmethod
    def concatenated(parts: Sequence[Pairs]) -> Pairs:
        """The pairs of several parts, one part behind the other."""
        subscriptions, offsets, rules = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("subscriptions", "offsets", "rules")
        )
        return Pairs(subscriptions, offsets, rules)


NO_PAIRS = Pairs(NOTHING, NOTHING, NOTHING)
