"""The trace of copies: what a ledger still tells of each, from its claims to its settlement, with times.

The state of a ledger says how a copy stands now. Its messages say how it came there; those before the last snapshot are
deleted, so an old copy may have a state and no trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from headgate.ledger import records as r
from headgate.ledger.copy_numbers import Int64Array
from headgate.ledger.replay import LEDGER_FOLDER, Watch, read_ledger
from headgate.ledger.state import LedgerState, ViewState
from headgate.ledger.table import IN_SESSION
from headgate.log import Stream


class TraceKind(StrEnum):
    """What happened to a copy."""

    FOUND = "found"
    """It was looked at for the first time, and passed over unless a claim follows."""
    CLAIMED = "claimed"
    RENEWED = "renewed"
    RELEASED = "released"
    """It is available again, at once or from `until_ms` on."""
    POSTPONED = "postponed"
    """It became known without being claimed; available at once or from `until_ms` on."""
    SETTLED = "settled"
    """By a receiver if it was claimed; else it expired, was purged, or its message was gone."""
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One change of a copy: its attempt behind it, and whether it was claimed before.

    `until_ms` is the end of a claim or of a wait, None without one and for a claim by the lock of a session. A moved
    copy has the `target` and the caller's `change` of the move.
    """

    kind: TraceKind
    at_ms: int
    attempt: int = 0
    until_ms: int | None = None
    was_claimed: bool = False
    target: str = ""
    change: bytes = b""


@dataclass(frozen=True, slots=True)
class TracedCopies:
    """The state of a ledger, one of its views (None: it has no such view), and the events of each traced copy."""

    state: LedgerState
    view: ViewState | None
    events: Mapping[int, list[TraceEvent]] = field(default_factory=dict)


def trace_copies(
    stream: Stream, copies: Mapping[str, Collection[int]], *, now_ms: int, folder: str = LEDGER_FOLDER
) -> dict[str, TracedCopies]:
    """The traces of some copies of some views, by the views' keys, in the ledger of a stream.

    Takes no lock. The ledger is read once; cost and errors as of `read_ledger`.
    """
    tracer = _Tracer(copies)
    state = read_ledger(stream, now_ms=now_ms, folder=folder, watch_of=tracer.begin)
    return {key: TracedCopies(state, state.by_key.get(key), traced.events) for key, traced in tracer.views.items()}


class _Tracer:
    """Collects the events of some copies while a ledger is replayed."""

    def __init__(self, copies: Mapping[str, Collection[int]]) -> None:
        self.views = {key: _TracedView(np.array(sorted(own), dtype=np.int64)) for key, own in copies.items()}
        self._is_snapshot = False

    def begin(self) -> Watch:
        """Begin anew."""
        self._is_snapshot = False
        for view in self.views.values():
            view.begin()
        return self._watch

    def _watch(self, state: LedgerState, record: r.Record, at_ms: int) -> None:
        if isinstance(record, r.SnapshotBegun | r.SnapshotComplete):
            self._is_snapshot = isinstance(record, r.SnapshotBegun)
            return
        view = state.views.get(getattr(record, "view", -1))
        traced = None if view is None or view.key is None else self.views.get(view.key)
        if view is not None and traced is not None:
            traced.take(view, record, at_ms, is_snapshot=self._is_snapshot)


class _TracedView:
    """Collects the events of some copies of one view."""

    def __init__(self, copies: Int64Array) -> None:
        self._copies = copies
        self.events: dict[int, list[TraceEvent]] = {}
        self._is_snapshot = False

    def begin(self) -> None:
        """Begin anew."""
        self.events = {copy: [] for copy in self._copies.tolist()}

    def take(self, view: ViewState, record: r.Record, at_ms: int, *, is_snapshot: bool) -> None:
        """Note what a record changes, before it does; `is_snapshot`: it may only repeat."""
        self._is_snapshot = is_snapshot
        match record:
            case r.Claimed():
                until_ms = None if record.until_ms == IN_SESSION else record.until_ms
                for copy, attempt in self._of(record.copies, record.attempts):
                    before = _row(view, copy)
                    if before is None or before[0] != record.claim:
                        self._add(copy, TraceKind.CLAIMED, at_ms, attempt, until_ms)
            case r.RowsKept():
                for copy, claim, attempt, until in self._of(
                    record.copies, record.claims, record.attempts, record.untils
                ):
                    self._keep(view, copy, (claim, attempt, until), at_ms)
            case r.Renewed():
                for (copy,) in self._of(record.copies):
                    self._add(copy, TraceKind.RENEWED, at_ms, 0, record.until_ms)
            case r.Moved():
                for copy, attempt in self._of(record.copies, record.attempts):
                    was_claimed = self._was_claimed(view, copy, at_ms)
                    target = record.target.decode("utf-8", "surrogateescape")
                    event = TraceEvent(TraceKind.MOVED, at_ms, attempt, None, was_claimed, target, record.change)
                    self.events[copy].append(event)
            case r.Seen():
                for start, stop in zip(record.starts.tolist(), record.stops.tolist(), strict=True):
                    for copy in self._within(start, stop):
                        if copy not in view.seen and not self._is_snapshot:
                            self._add(copy, TraceKind.FOUND, at_ms, 0)
            case r.Settled():
                for start, stop in zip(record.starts.tolist(), record.stops.tolist(), strict=True):
                    self._settle(view, start, stop, at_ms)
            case _:
                return

    def _of(self, copies: Int64Array, *columns: Int64Array) -> list[tuple[int, ...]]:
        """The traced ones of some copies, which ascend, with their values in other columns."""
        rows = np.flatnonzero(np.isin(copies, self._copies))
        return [(int(copies[row]), *(int(column[row]) for column in columns)) for row in rows.tolist()]

    def _within(self, start: int, stop: int) -> list[int]:
        """The traced copies of a range."""
        first, behind = np.searchsorted(self._copies, (start, stop)).tolist()
        traced: list[int] = self._copies[first:behind].tolist()
        return traced

    def _keep(self, view: ViewState, copy: int, kept: tuple[int, int, int], at_ms: int) -> None:
        claim, attempt, until = kept
        before = _row(view, copy)
        # A snapshot repeats rows, and is the first that a ledger without its beginning says of them.
        if before == kept or (before is None and (claim or self._is_snapshot)):
            return
        kind = TraceKind.POSTPONED if before is None else TraceKind.RELEASED
        self._add(copy, kind, at_ms, attempt, until or None, was_claimed=before is not None and before[0] > 0)

    def _settle(self, view: ViewState, start: int, stop: int, at_ms: int) -> None:
        for copy in self._within(start, stop):
            before = _row(view, copy)
            if before is not None or copy not in view.seen:
                was_claimed = self._was_claimed(view, copy, at_ms)
                self._add(copy, TraceKind.SETTLED, at_ms, 0 if before is None else before[1], was_claimed=was_claimed)

    def _was_claimed(self, view: ViewState, copy: int, at_ms: int) -> bool:
        """Whether a copy was claimed; the end of a claim by its time is not in the ledger."""
        before = _row(view, copy)
        if before is None or not before[0]:
            return False
        return before[2] == IN_SESSION or before[2] >= at_ms

    def _add(
        self,
        copy: int,
        kind: TraceKind,
        at_ms: int,
        attempt: int,
        until_ms: int | None = None,
        *,
        was_claimed: bool = False,
    ) -> None:
        events = self.events[copy]
        if events and events[-1].kind is TraceKind.FOUND and events[-1].at_ms == at_ms:
            # A copy is found and claimed in one commit.
            events.pop()
        events.append(TraceEvent(kind, at_ms, attempt, until_ms, was_claimed))


def _row(view: ViewState, copy: int) -> tuple[int, int, int] | None:
    """Claim, attempt and time of a copy in the table; None for one that is not there."""
    if view.table is None:
        return None
    rows = view.table.rows_between(copy, copy + 1)
    return (int(rows.claims[0]), int(rows.attempts[0]), int(rows.untils[0])) if len(rows) else None
