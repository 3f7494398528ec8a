"""Two versions of a topic over the same messages: which rules select something else, which copies become others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.topic.copies import Copies
from headgate.topic.model import Topic, folded
from headgate.topic.router import Decided, Router
from headgate.topic.trial.findings import Findings, SampleKind
from headgate.topic.trial.request import TrialRequest

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Side:
    """One version's answers for a batch."""

    decided: Decided
    copies: Copies


class Comparison:
    """Counts the differences between the version before (`against`) and the one that is tried."""

    def __init__(self, request: TrialRequest, before: Router, after: Router) -> None:
        self._subscriptions = list(request.compared_subscriptions)
        self._rule_count = len(request.compared_rules)
        place_of = {key: place for place, key in enumerate(request.compared_rules)}
        self._rule_places = [_rule_places(router, place_of) for router in (before, after)]
        self._places = [_subscription_places(router.topic) for router in (before, after)]

    def count(
        self, findings: Findings, before: Side, after: Side, rows: int
    ) -> Iterator[tuple[SampleKind, int, Int64Array]]:
        """Count a batch of `rows` messages; gives kind, compared subscription and rows of possible samples."""
        self._count_rules(findings, before.decided, after.decided)
        changed_rows = np.zeros(rows, dtype=np.bool_)
        for at, key in enumerate(self._subscriptions):
            old, new = self._places[0].get(key), self._places[1].get(key)
            old_rows, new_rows = _rows(before.copies, old), _rows(after.copies, new)
            both = np.intersect1d(old_rows, new_rows, assume_unique=True)
            changed = both[:0]
            if len(both) and old is not None and new is not None:
                changed = _changed(before.copies, old, after.copies, new, both)
            only_old = np.setdiff1d(old_rows, new_rows, assume_unique=True)
            only_new = np.setdiff1d(new_rows, old_rows, assume_unique=True)
            counts = findings.subscription_changes[at]
            counts[0] += len(both) - len(changed)
            kinds = (SampleKind.CHANGED, changed), (SampleKind.ONLY_OLD, only_old), (SampleKind.ONLY_NEW, only_new)
            for number, (kind, found) in enumerate(kinds, 1):
                counts[number] += len(found)
                changed_rows[found] = True
                yield kind, at, found
        findings.messages_changed += int(changed_rows.sum())

    def _count_rules(self, findings: Findings, before: Decided, after: Decided) -> None:
        old, new = (
            decided.rows * self._rule_count + places[decided.slots]
            for decided, places in zip((before, after), self._rule_places, strict=True)
        )
        parts = (
            np.intersect1d(old, new, assume_unique=True),
            np.setdiff1d(old, new, assume_unique=True),
            np.setdiff1d(new, old, assume_unique=True),
        )
        for number, part in enumerate(parts):
            counts = np.bincount(part % self._rule_count, minlength=self._rule_count) if len(part) else ()
            for at in np.flatnonzero(counts).tolist():
                findings.rule_changes[at][number] += int(counts[at])


def _rule_places(router: Router, place_of: dict[tuple[str, str], int]) -> Int64Array:
    """Per slot of a router the place among the compared rules."""
    names = [subscription.name for subscription in router.topic.subscriptions]
    keys = ((folded(names[place]), folded(rule.name)) for place, rule in router.slot_rules)
    return np.array([place_of[key] for key in keys], dtype=np.int64)


def _subscription_places(topic: Topic) -> dict[str, int]:
    return {folded(subscription.name): place for place, subscription in enumerate(topic.subscriptions)}


def _rows(copies: Copies, place: int | None) -> Int64Array:
    """The rows of which a subscription has copies, ascending."""
    if place is None:
        return np.empty(0, dtype=np.int64)
    return np.unique(copies.rows[copies.of(place)])


def _changed(before: Copies, old: int, after: Copies, new: int, both: Int64Array) -> Int64Array:
    """The rows of `both` whose copies differ in their bytes between the versions."""
    plain = np.isin(both, before.plain_rows(old)) != np.isin(both, after.plain_rows(new))
    old_changed, new_changed = _changed_by_row(before, old), _changed_by_row(after, new)
    others = [row for row in old_changed.keys() | new_changed.keys() if old_changed.get(row) != new_changed.get(row)]
    changed: Int64Array = both[plain | np.isin(both, np.array(others, dtype=np.int64))]
    return changed


def _changed_by_row(copies: Copies, place: int) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for row, _, encoded in copies.changed(place):
        found.setdefault(row, []).append(encoded)
    for encodings in found.values():
        encodings.sort()
    return found
