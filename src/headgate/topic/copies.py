"""The copies of one batch of messages, and counters per rule: columns, no object per copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from headgate.message import EncodedMessages
from headgate.topic.model import Topic
from headgate.topic.rule import Rule

Int64Array = NDArray[np.int64]

PLAIN = 0
"""The rule number of a plain copy."""

_PLAIN_WORD, _NO_SOURCE = (np.int64(value).tobytes() for value in (PLAIN, -1))


def copy_identity(stream: str, offset: int, subscription: int, rule: int) -> bytes:
    """The identity of a copy, unlike that of any other; a copy that is made again has the same."""
    return b"\0".join((stream.encode(), b"%d" % offset, b"%d" % subscription, b"%d" % rule))


@dataclass(slots=True)
class RuleCounters:
    """Counters of one rule over the messages of a batch.

    `matched`: it selected the message; `copies` of its own, which only an action makes; `failed_actions`: its action
    could not be evaluated; `errors`: its filter could not, or the bytes are not a message; `unknown` verdicts.
    `unknown` is None except in an exact router; `errors` is None in a topic with many rules (`router.ERRORS_COUNTED`)
    unless the subscription wants dead-letter copies. `last_failure`: the last offset that filter or action failed for.
    """

    subscription: str
    rule: str
    matched: int
    copies: int
    failed_actions: int
    errors: int | None
    unknown: int | None
    last_failure: int | None


@dataclass(slots=True)
class Counters(Sequence[RuleCounters]):
    """The counters of all rules, in the order of `Router.rules`; the arrays are `(slots,)`, as `slots` says."""

    rules: Sequence[tuple[str, Rule]]
    slots: Int64Array
    matched: Int64Array
    failed_actions: Int64Array
    errors: Int64Array
    unknown: Int64Array | None
    last_failure: Int64Array
    counts_errors: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rules)

    @overload
    def __getitem__(self, place: int) -> RuleCounters: ...

    @overload
    def __getitem__(self, place: slice) -> list[RuleCounters]: ...

    def __getitem__(self, place: int | slice) -> RuleCounters | list[RuleCounters]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        slot = int(self.slots[place])
        subscription, rule = self.rules[place]
        matched, failed_actions = int(self.matched[slot]), int(self.failed_actions[slot])
        return RuleCounters(
            subscription,
            rule.name,
            matched=matched,
            copies=matched - failed_actions if rule.has_action else 0,
            failed_actions=failed_actions,
            errors=int(self.errors[slot]) if self.counts_errors[slot] else None,
            unknown=None if self.unknown is None else int(self.unknown[slot]),
            last_failure=int(self.last_failure[slot]) if self.last_failure[slot] >= 0 else None,
        )

    def add(self, other: Counters) -> None:
        """Add the counters of the same rules over another batch."""
        self.matched += other.matched
        self.failed_actions += other.failed_actions
        self.errors += other.errors
        self.last_failure = np.maximum(self.last_failure, other.last_failure)
        if self.unknown is not None:
            assert other.unknown is not None
            self.unknown += other.unknown

    def nonzero(self) -> Iterator[RuleCounters]:
        """The counters of rules with any count above zero."""
        total = self.matched + self.failed_actions + self.errors
        if self.unknown is not None:
            total = total + self.unknown
        return (self[place] for place in np.flatnonzero(total[self.slots]).tolist())


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A copy for the dead letters of a subscription (by place in the topic), of the message in `row` of the batch."""

    subscription: int
    row: int
    encoded: bytes


@dataclass(slots=True)
class CopyRun:
    """Copies sorted by subscription, row, rule; `sources` are places among the changed copies, -1 for plain ones."""

    subscriptions: Int64Array
    rows: Int64Array
    rules: Int64Array
    sources: Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def plain(subscriptions: Int64Array, rows: Int64Array) -> CopyRun:
        """Plain copies."""
        return CopyRun(subscriptions, rows, _repeated(_PLAIN_WORD, len(rows)), _repeated(_NO_SOURCE, len(rows)))


def _repeated(word: bytes, count: int) -> Int64Array:
    """One number many times, without room for more than one; `np.broadcast_to` takes ten times as long."""
    return np.ndarray(count, dtype=np.int64, buffer=word, strides=(0,))


_NOTHING = np.empty(0, dtype=np.int64)
NO_COPIES = CopyRun(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


def joined(runs: Sequence[CopyRun]) -> CopyRun:
    """Several runs as one."""
    if len(runs) < 2:
        return runs[0] if runs else NO_COPIES
    subscriptions, rows, rules, sources = (
        np.concatenate([getattr(run, name) for run in runs]) for name in CopyRun.__dataclass_fields__
    )
    order = np.lexsort((rules, rows, subscriptions))
    return CopyRun(subscriptions[order], rows[order], rules[order], sources[order])


class Copies:
    """The copies of one batch: `(copies,)` arrays, sorted by subscription, row of the message in the batch, rule.

    `subscriptions` are places in `topic.subscriptions`, `rules` numbers, 0 for plain copies. Plain copies lie in the
    buffer of the batch: use them before that is reused.
    """

    def __init__(
        self,
        topic: Topic,
        batch: EncodedMessages,
        runs: Sequence[CopyRun],
        changed: EncodedMessages,
        counters: Counters,
        dead_letters: list[DeadLetter],
    ) -> None:
        self.topic = topic
        self.counters = counters
        self.dead_letters = dead_letters
        self._batch = batch
        self._changed = changed
        every = joined([run for run in runs if len(run)])
        self.subscriptions, self.rows, self.rules, self._sources = (
            every.subscriptions,
            every.rows,
            every.rules,
            every.sources,
        )
        self._bounds: list[int] = np.searchsorted(self.subscriptions, np.arange(len(topic.subscriptions) + 1)).tolist()

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, subscription: int) -> slice:
        """Where the copies of a subscription are, by its place in the topic."""
        return slice(self._bounds[subscription], self._bounds[subscription + 1])

    def count(self, subscription: int) -> int:
        """How many copies a subscription has."""
        return self._bounds[subscription + 1] - self._bounds[subscription]

    def messages(self, subscription: int) -> EncodedMessages:
        """The copies of a subscription, in order of offset and rule: the batch's own bytes where none is changed."""
        held, places = self.located(subscription)
        return held.take(places)

    def located(self, subscription: int) -> tuple[EncodedMessages, Int64Array]:
        """The messages that contain the copies of a subscription, and the places of the copies among them.

        All subscriptions without changed copies share one object; so do all subscriptions with changed copies only.
        """
        place = self.of(subscription)
        rows, sources = self.rows[place], self._sources[place]
        if int(sources.max(initial=-1)) < 0:
            return self._batch, rows
        if int(sources.min()) >= 0:
            return self._changed, sources
        return self._joined, np.where(sources < 0, rows + len(self._changed), sources)

    @property
    def room(self) -> NDArray[np.uint8]:
        """The buffer of the changed copies; it may be reused for others when these are no longer used."""
        return self._changed.data

    def plain_counts(self) -> Int64Array:
        """How many plain copies each subscription has, `(subscriptions,)`."""
        if not len(self._changed):
            return np.diff(self._bounds)
        return np.bincount(self.subscriptions[self._sources < 0], minlength=len(self.topic.subscriptions))

    def plain_rows(self, subscription: int) -> Int64Array:
        """The rows of the batch that a subscription gets as they are, ascending."""
        place = self.of(subscription)
        plain: Int64Array = self.rows[place][self.rules[place] == PLAIN]
        return plain

    def changed(self, subscription: int) -> list[tuple[int, int, bytes]]:
        """Row, rule and bytes of the copies of a subscription that an action changed, in order."""
        place = self.of(subscription)
        return [
            (int(row), int(rule), self._changed.message(source))
            for row, rule, source in zip(self.rows[place], self.rules[place], self._sources[place], strict=True)
            if source >= 0
        ]

    @cached_property
    def _joined(self) -> EncodedMessages:
        """The changed copies and, behind them, all messages of the batch, in one buffer."""
        batch, changed = self._batch, self._changed
        stop = changed.stop
        first = int(batch.starts.min(initial=len(batch.data)))
        moved = stop - first
        return EncodedMessages(
            np.concatenate([changed.data[:stop], batch.data[first:]]),
            np.concatenate([changed.starts, batch.starts + moved]),
            np.concatenate([changed.lengths, batch.lengths]),
        )
