"""The postings of the block that is being decided, in memory until it is full."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import order_of
from headgate.topic.decisions.block import (
    BlockContent,
    Shared,
    SubscriptionPostings,
    base_of,
    chunks_of,
    end_of,
)
from headgate.topic.decisions.entries import Entries
from headgate.topic.decisions.pairs import NO_PAIRS, Pairs
from headgate.topic.decisions.rule_states import RuleState
from headgate.topic.decisions.runs import CopyRuns, Int64Array, Runs, joined_runs, run_starts, run_stops
from headgate.topic.decisions.selection import Selected
from headgate.topic.decisions.session_ids import NO_SESSION_IDS, SessionIds, find_places

_LARGE = 4096
"""Parts of this size are no longer joined."""

SessionPart = tuple[int, SessionIds]
"""The offset behind the last one of some copies, and their session ids."""
Part = TypeVar("Part")


class OpenBlock:
    """The postings of a block that is not full yet: the offsets `start … next_offset`."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.next_offset = start
        self.base = base_of(start)
        self.stop = end_of(start)
        self._copies = _Growing()
        self._failures = _Growing()
        self._sound = _GrowingShared()
        self._malformed = _GrowingShared()
        self._sessions = _GrowingSessions()
        self._headers = bytearray()
        self._last_chunk_id = -1
        self._entries: list[Entries] = []

    @property
    def is_full(self) -> bool:
        """Whether everything up to its end was decided."""
        return self.next_offset >= self.stop

    def add_chunks(self, headers: NDArray[np.void]) -> None:
        """Note chunks, by their headers, whose messages come next; messages of the first chunk may be added already."""
        if int(headers["chunk_id"][0]) <= self._last_chunk_id:
            headers = headers[1:]
        if len(headers):
            self._headers += headers.tobytes()
            self._last_chunk_id = int(headers["chunk_id"][-1])

    def add(self, selected: Selected, stop: int, entries: Entries) -> None:
        """Add the copies of the messages up to the offset `stop`, and the places of messages with any copy."""
        self._copies.add(selected.copies)
        self._failures.add(selected.failures)
        self._sound.add(selected.taking_all, selected.sound)
        self._malformed.add(selected.failing_on_malformed, selected.malformed)
        self._sessions.add(selected.sessions, stop)
        if len(entries.offsets):
            _add(self._entries, entries, size=len, join=Entries.joined)

    def count(self, subscription: int) -> int:
        """How many copies a subscription has so far."""
        shared = sum(int((stops - firsts).sum()) for firsts, stops in self._sound.of(subscription))
        return shared + self._copies.count(subscription)

    def add_counts(self, counts: Int64Array) -> None:
        """Add how many copies each subscription has so far to `counts`, `(numbers,)`."""
        self._copies.add_counts(counts)
        for numbers, firsts, stops in self._sound.groups():
            counts[numbers] += int((stops - firsts).sum())

    @property
    def largest_number(self) -> int:
        """The largest number of a subscription that has anything here."""
        numbers = [*self._copies.subscriptions(), *(each for each, _, _ in self._sound.groups())]
        return max((int(each[-1]) for each in numbers), default=0)

    def postings(self, subscription: int) -> SubscriptionPostings:
        """The postings of a subscription so far."""
        return SubscriptionPostings(
            _copy_runs(self._copies.of(subscription), self._sound.of(subscription)),
            _copy_runs(self._failures.of(subscription), self._malformed.of(subscription)),
        )

    def session_ids(self, subscription: int, offsets: Int64Array, rules: Int64Array) -> list[bytes | None]:
        """The session ids of copies of a subscription, `(copies,)` by offset and rule, ascending."""
        return self._sessions.of(subscription, offsets, rules)

    def entries(self, offsets: Int64Array) -> NDArray[np.void]:
        """Where the messages of some offsets, ascending, lie in their segments, `(offsets,)` of ENTRY_DTYPE."""
        return Entries.joined(self._entries).of(offsets)

    def chunks(self) -> NDArray[np.void]:
        """The chunks that were decided, `(chunks,)` of CHUNK_DTYPE."""
        return chunks_of(self._headers)

    def content(self, *, identity: str, rules: tuple[RuleState, ...]) -> BlockContent:
        """The content of the full block to write, for the stream with this identity, decided by these rules."""
        return BlockContent(
            identity=identity,
            start=self.start,
            stop=self.stop,
            rules=rules,
            chunks=self.chunks(),
            entries=Entries.joined(self._entries),
            copies=self._copies.joined(),
            failures=self._failures.joined(),
            sound=self._sound.groups(),
            malformed=self._malformed.groups(),
            sessions=self._sessions.joined(),
        )


class _Growing:
    """Pairs to which later ones are added."""

    def __init__(self) -> None:
        self._parts: list[Pairs] = []

    def add(self, pairs: Pairs) -> None:
        if not len(pairs.offsets):
            return
        _add(self._parts, pairs, size=len, join=_joined)

    def joined(self) -> Pairs:
        """All of them. Each pair gets its place by counting: sorting costs five times as much."""
        parts = self._parts
        if len(parts) < 2:
            return parts[0] if parts else NO_PAIRS
        size = 1 + max(int(part.subscriptions[-1]) for part in parts)
        counts = np.array([part.counts(size) for part in parts])
        totals = counts.sum(axis=0)
        # Where the pairs of a subscription out of a part go, less where they are in that part.
        shifts = np.cumsum(totals) - totals + np.cumsum(counts, axis=0) - counts
        shifts -= np.cumsum(counts, axis=1) - counts
        offsets, rules = (np.zeros(int(totals.sum()), dtype=np.int64) for _ in range(2))
        for part, shift, count in zip(parts, shifts, counts, strict=True):
            places = np.arange(len(part))
            places += np.repeat(shift, count)
            offsets[places] = part.offsets
            if part.rules.any():
                rules[places] = part.rules
        return Pairs(np.repeat(np.arange(size), totals), offsets, rules)

    def of(self, subscription: int) -> Pairs:
        """The pairs of a subscription, by offset and rule."""
        found = [part.of(subscription) for part in self._parts]
        return _joined(found) if found else NO_PAIRS

    def count(self, subscription: int) -> int:
        return sum(len(part.of(subscription)) for part in self._parts)

    def add_counts(self, counts: Int64Array) -> None:
        for part in self._parts:
            counts += part.counts(len(counts))

    def subscriptions(self) -> list[Int64Array]:
        return [part.subscriptions for part in self._parts]


def _joined(parts: list[Pairs]) -> Pairs:
    """Pairs of parts with ascending offsets."""
    if len(parts) == 1:
        return parts[0]
    together = Pairs.concatenated(parts)
    return together.take(_order(together))


def _order(pairs: Pairs) -> NDArray[np.intp]:
    """The order of pairs of parts with ascending offsets."""
    return order_of(pairs.subscriptions, below=int(pairs.subscriptions.max(initial=0)) + 1)


class _GrowingSessions:
    """Session ids that grow with later copies."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._place_of: dict[bytes, int] = {}
        self._parts: list[SessionPart] = []

    def add(self, sessions: SessionIds, stop: int) -> None:
        """Add the session ids of copies below an offset."""
        if not len(sessions.copies.offsets):
            return
        places = []
        for name in sessions.names:
            place = self._place_of.setdefault(name, len(self._names))
            if place == len(self._names):
                self._names.append(name)
            places.append(place)
        added = SessionIds(sessions.copies, np.array(places, dtype=np.int64)[sessions.places], self._names)
        _add(self._parts, (stop, added), size=lambda part: len(part[1].copies), join=_joined_sessions)

    def of(self, subscription: int, offsets: Int64Array, rules: Int64Array) -> list[bytes | None]:
        """The session ids of copies of a subscription, `(copies,)` by offset and rule, ascending."""
        found = np.full(len(offsets), -1, dtype=np.int64)
        first = int(offsets[0])
        for stop, part in reversed(self._parts):
            if stop <= first:
                break
            np.maximum(found, find_places(part.copies, part.places, subscription, offsets, rules), out=found)
        return [self._names[place] if place >= 0 else None for place in found.tolist()]

    def joined(self) -> SessionIds:
        """All of them."""
        return _joined_sessions(self._parts)[1] if self._parts else NO_SESSION_IDS


def _joined_sessions(parts: list[SessionPart]) -> SessionPart:
    """Session ids of parts with ascending offsets and the same names."""
    copies = Pairs.concatenated([sessions.copies for _, sessions in parts])
    places = np.concatenate([sessions.places for _, sessions in parts])
    order = _order(copies)
    stop, last = parts[-1]
    return stop, SessionIds(copies.take(order), places[order], last.names)


class _GrowingShared:
    """Runs that some subscriptions have in common, to which later ones are added."""

    def __init__(self) -> None:
        self._groups: list[tuple[Int64Array, list[Runs]]] = []

    def add(self, numbers: Int64Array, offsets: Int64Array) -> None:
        """Add offsets, ascending, that all subscriptions of these numbers have."""
        if not len(numbers) or not len(offsets):
            return
        if not self._groups or not np.array_equal(self._groups[-1][0], numbers):
            self._groups.append((numbers, []))
        parts = self._groups[-1][1]
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if parts and parts[-1][1][-1] == first and stop - first == len(offsets):
            # The last run goes on.
            firsts, stops = parts[-1]
            parts[-1] = firsts, np.append(stops[:-1], stop)
            return
        starts = run_starts(offsets)
        _add(parts, (offsets[starts], run_stops(offsets, starts)), size=_run_count, join=joined_runs)

    def groups(self) -> list[Shared]:
        """Subscriptions and the runs that they share, each run once."""
        return [(numbers, *joined_runs(parts)) for numbers, parts in self._groups]

    def of(self, subscription: int) -> list[Runs]:
        """The runs of a subscription."""
        found = []
        for numbers, parts in self._groups:
            place = int(np.searchsorted(numbers, subscription))
            if place < len(numbers) and numbers[place] == subscription:
                found += parts
        return found


def _add(parts: list[Part], part: Part, *, size: Callable[[Part], int], join: Callable[[list[Part]], Part]) -> None:
    """Add a part behind others; small ones are joined, so that there are few parts and little is copied."""
    parts.append(part)
    while len(parts) > 1 and size(parts[-2]) < min(2 * size(parts[-1]), _LARGE):
        later = parts.pop()
        parts[-1] = join([parts[-1], later])


def _run_count(runs: Runs) -> int:
    return len(runs[0])


def _copy_runs(pairs: Pairs, shared: list[Runs]) -> CopyRuns:
    own = CopyRuns.of_pairs(pairs.offsets, pairs.rules)
    if not shared:
        return own
    firsts, stops = joined_runs(shared)
    return CopyRuns.ordered(
        np.append(own.firsts, firsts),
        np.append(own.stops, stops),
        np.append(own.rules, np.zeros(len(firsts), dtype=np.int64)),
    )
