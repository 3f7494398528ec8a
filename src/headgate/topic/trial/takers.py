"""The rules of a topic that would take messages if they were published now; nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.message import EncodedMessages
from headgate.topic.history import RuleHistory
from headgate.topic.router import Router

RuleName = tuple[str, str | None]
"""The names of a subscription and its rule; None: the subscription takes what no other one does."""


@dataclass(slots=True)
class Taken:
    """The rules that took some messages, and that failed for some, each with the number of messages.

    `is_taken`, `(messages,)`: which messages some subscription got a copy of.
    """

    is_taken: NDArray[np.bool_]
    by: Counter[RuleName] = field(default_factory=Counter)
    failing: Counter[RuleName] = field(default_factory=Counter)


class Takers:
    """The rules in force now for one stream; without a history the stream keeps every message for its readers."""

    def __init__(self, history: RuleHistory | None, stream: str) -> None:
        self.history = history
        self._router = None if history is None else Router(history.current, stream=stream)

    def take(self, messages: Sequence[bytes], *, offset: int, now_ms: int) -> Taken:
        """What the rules would do with messages that arrive at `now_ms` and get offsets from `offset` on."""
        router = self._router
        if router is None:
            return Taken(np.ones(len(messages), dtype=np.bool_))
        batch = EncodedMessages.of(list(messages))
        offsets = np.arange(offset, offset + len(messages), dtype=np.int64)
        placed = router.place(batch, offsets, np.full(len(messages), now_ms, dtype=np.int64))
        taken = Taken(np.zeros(len(messages), dtype=np.bool_))
        taken.is_taken[placed.copies.rows] = True
        names = [(router.topic.subscriptions[place].name, rule.name) for place, rule in router.slot_rules]
        decided = placed.decided
        taken.by.update(_named(names, decided.slots))
        taken.by.subtract(_named(names, placed.failed_slots))
        for slots in (decided.error_slots, placed.failed_slots):
            taken.failing.update(_named(names, slots))
        for place, subscription in enumerate(router.topic.subscriptions):
            if subscription.fall_through:
                taken.by[subscription.name, None] += int((placed.copies.subscriptions == place).sum())
        taken.by = +taken.by
        return taken


def _named(names: Sequence[RuleName], slots: NDArray[np.int64]) -> Counter[RuleName]:
    found, counts = np.unique(slots, return_counts=True)
    return Counter({names[slot]: count for slot, count in zip(found.tolist(), counts.tolist(), strict=True)})
