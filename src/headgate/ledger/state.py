"""The state of a ledger, without files and without a clock: views, sessions, moves, and how each record changes them.

A call of the ledger and a message read back go through the same `LedgerState.apply`. Records give new states, so they
may be applied to a state that lacks earlier records: a reader that begins in the middle of a ledger has the exact state
as soon as it has read a whole snapshot (`snapshot.py`).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from headgate.ledger import records as r
from headgate.ledger.copy_numbers import NO_COPY, Int64Array, offset_of
from headgate.ledger.ranges import Ranges
from headgate.ledger.table import NEVER, CopyTable, RowCounts, Rows

MOVE_BITS = 20
"""The sequence of a move is the ledger offset of its message · 2^20 + its number in the message."""

MOVES_AT_ONCE = 1 << MOVE_BITS
"""Limit: moves of one message."""

_by_sequence = attrgetter("sequence")


@dataclass(slots=True)
class Session:
    """A session of a view: its lock number (0: not locked) and the lock's end, its state, the copies claimed with it.

    The state was set at `set_ms`.
    """

    lock: int = 0
    until_ms: int = 0
    state: bytes | None = None
    set_ms: int = 0
    copies: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Move:
    """A copy on its way to `target`: settled in its view (by number), not known to be in the target.

    `change` is the caller's; `sequence` rises with every move of a ledger.
    """

    sequence: int
    view: int
    target: str
    change: bytes
    copy: int
    attempt: int


@dataclass(slots=True)
class Expired:
    """Copies of a view, by number, whose claims ended: `copies` and `attempts` `(copies,)`; they are available."""

    view: int
    copies: Int64Array
    attempts: Int64Array


class ViewState:
    """One view: the copies that were seen, rows of the unsettled ones, sessions. `key` None: not known yet."""

    __slots__ = (
        "from_copy",
        "key",
        "notes",
        "number",
        "seen",
        "session_due_ms",
        "session_of",
        "sessions",
        "table",
        "watched_ms",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.key: str | None = None
        self.from_copy = 0
        self.seen = Ranges()
        self.table: CopyTable | None = None
        self.notes: dict[int, bytes] | None = None
        self.sessions: dict[bytes, Session] | None = None
        self.session_of: dict[int, bytes] | None = None
        self.session_due_ms = NEVER
        self.watched_ms = NEVER

    def rows(self) -> CopyTable:
        """The table; made at the first use."""
        if self.table is None:
            self.table = CopyTable()
        return self.table

    def session(self, name: bytes) -> Session:
        """The session with a name; made if there is none."""
        if self.sessions is None:
            self.sessions = {}
        return self.sessions.setdefault(name, Session())

    @property
    def due_ms(self) -> int:
        """The time before which nothing of the view is due."""
        return min(self.session_due_ms, NEVER if self.table is None else self.table.next_due_ms)

    def floor(self) -> int:
        """The lowest copy that is not settled."""
        return min(self.seen.first_gap(), NO_COPY if self.table is None else self.table.first)

    def counts(self) -> RowCounts:
        """The known, unsettled copies by state."""
        return RowCounts() if self.table is None else self.table.counts()

    def available(self, after: int, limit: int) -> list[tuple[int, int]]:
        """At most `limit` runs `start … stop` from `after` on: single known copies, and ranges of unknown ones.

        All runs together hold every copy that is neither settled nor claimed nor waiting; the last one ends at NO_COPY.
        """
        known = [] if self.table is None else self.table.available(after, limit).tolist()
        runs: list[tuple[int, int]] = []
        row = 0
        for start, stop in self.seen.gaps(after):
            while row < len(known) and known[row] < start and len(runs) < limit:
                runs.append((known[row], known[row] + 1))
                row += 1
            if len(runs) == limit:
                break
            runs.append((start, stop))
        return runs

    # changes

    def settle(self, start: int, stop: int) -> None:
        """Settle all copies of a range."""
        self.seen.add(start, stop)
        if self.notes:
            gone = [start] if stop == start + 1 else [copy for copy in self.notes if start <= copy < stop]
            for copy in gone:
                self.notes.pop(copy, None)
        if self.table is not None:
            if self.session_of:
                self.leave_sessions(self.table.rows_between(start, stop).copies)
            self.table.settle(start, stop)

    def put(self, rows: Rows) -> None:
        """Set rows as given; they leave their sessions."""
        if not len(rows.copies):
            return
        if not self.seen.has_run(int(rows.copies[0]), int(rows.copies[-1])):
            self.seen.add_copies(rows.copies)
        self.leave_sessions(rows.copies)
        self.rows().put(rows)

    def note(self, copy: int, note: bytes) -> None:
        """Set the note of a copy, in place of an earlier one."""
        if self.notes is None:
            self.notes = {}
        self.notes[copy] = note

    def leave_sessions(self, copies: Int64Array) -> None:
        """Note that these copies are not claimed with the lock of a session any more."""
        if self.session_of:
            for copy in copies.tolist():
                name = self.session_of.pop(copy, None)
                if name is not None:
                    self.session(name).copies.discard(copy)

    def join_session(self, name: bytes, copies: Int64Array) -> None:
        """Note that these copies are claimed with the lock of a session."""
        session = self.session(name)
        if self.session_of is None:
            self.session_of = {}
        session.copies.update(copies.tolist())
        self.session_of.update(dict.fromkeys(copies.tolist(), name))

    def lock(self, name: bytes, lock: int, until_ms: int) -> Rows:
        """Set the lock of a session. Ends claims with an earlier lock, and gives their rows."""
        session = self.session(name)
        freed = Rows(*np.empty((4, 0), dtype=np.int64))
        # A session that is not known yet has lock 0 here, and its copies stay.
        if lock == 0 or session.lock not in (0, lock):
            freed = self._free(session)
        session.lock, session.until_ms = lock, until_ms
        if lock:
            self.session_due_ms = min(self.session_due_ms, until_ms)
        self._forget(name)
        return freed

    def set_session_state(self, name: bytes, state: bytes | None, set_ms: int) -> None:
        """Set the state of a session."""
        session = self.session(name)
        session.state, session.set_ms = state, set_ms
        self._forget(name)

    def end_sessions(self, now_ms: int) -> list[Rows]:
        """Unlock the sessions whose locks end by `now_ms`; gives the rows of the claims that end with them."""
        if now_ms < self.session_due_ms:
            return []
        sessions = self.sessions or {}
        ended = [name for name, session in sessions.items() if session.lock and session.until_ms <= now_ms]
        freed = [self.lock(name, 0, 0) for name in ended]
        self.session_due_ms = min((each.until_ms for each in sessions.values() if each.lock), default=NEVER)
        return freed

    def _free(self, session: Session) -> Rows:
        copies = np.array(sorted(session.copies), dtype=np.int64)
        places, known = self.rows().find(copies)
        before = self.rows().rows_at(places[known])
        self.rows().set(places[known], claim=0, until_ms=0)
        self.leave_sessions(copies)
        return before

    def _forget(self, name: bytes) -> None:
        assert self.sessions is not None
        session = self.sessions[name]
        if not session.lock and session.state is None and not session.copies:
            del self.sessions[name]


class LedgerState:
    """Views by number, pending moves by target, and the numbers of the next claim and view."""

    def __init__(self) -> None:
        self.views: dict[int, ViewState] = {}
        self.by_key: dict[str, ViewState] = {}
        self.moves: dict[str, list[Move]] = {}
        """Target → its pending moves by sequence, at least one."""
        self.unplaced: list[Move] = []
        """Moves of the message that is being made; its offset will give their sequences."""
        self.next_claim = 1
        self.next_view = 1
        self._due: list[tuple[int, int]] = []
        self.next_due_ms = NEVER
        """The time before which nothing is due; NEVER if nothing will be."""
        self._apply: dict[r.Kind, Callable[[Any], None]] = {
            r.Kind.VIEW: self._open_view,
            r.Kind.DROPPED: self._drop_view,
            r.Kind.SEEN: self._see,
            r.Kind.SETTLED: self._settle,
            r.Kind.CLAIMED: self._claim,
            r.Kind.ROWS: self._keep_rows,
            r.Kind.RENEWED: self._renew,
            r.Kind.MOVED: self._move,
            r.Kind.MOVE_KEPT: self._keep_moves,
            r.Kind.MOVE_DONE: self._finish_moves,
            r.Kind.SESSION_LOCKED: self._lock_session,
            r.Kind.SESSION_STATE: self._set_session_state,
            r.Kind.NOTED: lambda record: self._view(record.view).note(record.copy, record.note),
            r.Kind.SNAPSHOT_BEGUN: self._take_numbers,
            r.Kind.SNAPSHOT_COMPLETE: lambda record: None,
        }

    def apply(self, record: r.Record) -> None:
        """Change the state as a record says."""
        self._apply[record.kind](record)

    def place(self, offset: int, count: int | None = None) -> None:
        """Give the unplaced moves, the first `count` or all, their sequences: their message has this ledger offset."""
        if self.unplaced:
            for number, move in enumerate(self.unplaced[:count]):
                self._add_move(
                    Move(offset << MOVE_BITS | number, move.view, move.target, move.change, move.copy, move.attempt)
                )
            del self.unplaced[:count]

    def due(self, now_ms: int) -> list[Expired]:
        """End the claims, session locks and waits that are due at `now_ms`; their copies become available.

        No record is written for it. See `CopyTable.expire` for how late it may be.
        """
        found = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, number = heapq.heappop(self._due)
            view = self.views.get(number)
            if view is None or view.watched_ms != due_ms:
                continue
            view.watched_ms = NEVER
            ended = view.end_sessions(now_ms)
            if view.table is not None and view.table.next_due_ms <= now_ms:
                rows = view.table.expire(now_ms)
                ended.append(rows.take(rows.claims > 0))
            self._watch(view)
            copies = np.concatenate([each.copies for each in ended]) if ended else np.empty(0, dtype=np.int64)
            if len(copies):
                order = np.argsort(copies)
                attempts = np.concatenate([each.attempts for each in ended])
                found.append(Expired(number, copies[order], attempts[order]))
        self.next_due_ms = self._due[0][0] if self._due else NEVER
        return found

    def floor(self, view: ViewState) -> int:
        """The lowest copy that a view needs: unsettled, or on its way to a target."""
        moving = (move.copy for move in self.pending_moves() if move.view == view.number)
        return min(view.floor(), *moving, NO_COPY)

    def pin(self) -> int | None:
        """The lowest offset that any view, or any pending move, needs; None without either."""
        needed = [view.floor() for view in self.views.values()]
        needed += [move.copy for move in self.pending_moves()]
        return offset_of(min(needed)) if needed else None

    def pending_moves(self) -> list[Move]:
        """All moves that are not known to be in their targets, including uncommitted ones."""
        return [*self.unplaced, *(move for moves in self.moves.values() for move in moves)]

    # what each record does

    def _view(self, number: int) -> ViewState:
        view = self.views.get(number)
        if view is None:
            view = self.views[number] = ViewState(number)
            self.next_view = max(self.next_view, number + 1)
        return view

    def _watch(self, view: ViewState) -> None:
        due_ms = view.due_ms
        if due_ms < view.watched_ms:
            view.watched_ms = due_ms
            heapq.heappush(self._due, (due_ms, view.number))
            self.next_due_ms = self._due[0][0]

    def _open_view(self, record: r.ViewOpened) -> None:
        view = self._view(record.view)
        view.key = record.key.decode("utf-8", "surrogateescape")
        view.from_copy = record.from_copy
        view.seen.add(0, record.from_copy)
        self.by_key[view.key] = view

    def _drop_view(self, record: r.ViewDropped) -> None:
        view = self.views.pop(record.view, None)
        self.next_view = max(self.next_view, record.view + 1)
        if view is not None and view.key is not None and self.by_key.get(view.key) is view:
            del self.by_key[view.key]

    def _see(self, record: r.Seen) -> None:
        seen = self._view(record.view).seen
        for start, stop in zip(record.starts.tolist(), record.stops.tolist(), strict=True):
            seen.add(start, stop)

    def _settle(self, record: r.Settled) -> None:
        view = self._view(record.view)
        for start, stop in zip(record.starts.tolist(), record.stops.tolist(), strict=True):
            view.settle(start, stop)

    def _claim(self, record: r.Claimed) -> None:
        view, count = self._view(record.view), len(record.copies)
        self.next_claim = max(self.next_claim, record.claim + 1)
        rows = np.empty((2, count), dtype=np.int64)
        rows[0], rows[1] = record.claim, record.until_ms
        view.put(Rows(record.copies, rows[0], record.attempts, rows[1]))
        if record.session:
            view.join_session(record.session, record.copies)
        self._watch(view)

    def _keep_rows(self, record: r.RowsKept) -> None:
        view = self._view(record.view)
        view.put(Rows(record.copies, record.claims, record.attempts, record.untils))
        if len(record.claims):
            self.next_claim = max(self.next_claim, int(record.claims.max()) + 1)
        self._watch(view)

    def _renew(self, record: r.Renewed) -> None:
        view = self._view(record.view)
        places, known = view.rows().find(record.copies)
        places = places[known]
        claimed = places[view.rows().rows_at(places).claims > 0]
        view.rows().set(claimed, until_ms=record.until_ms)
        self._watch(view)

    def _move(self, record: r.Moved) -> None:
        view, target = self._view(record.view), record.target.decode("utf-8", "surrogateescape")
        for copy, attempt in zip(record.copies.tolist(), record.attempts.tolist(), strict=True):
            view.settle(copy, copy + 1)
            self.unplaced.append(Move(0, record.view, target, record.change, copy, attempt))

    def _keep_moves(self, record: r.MoveKept) -> None:
        target = record.target.decode("utf-8", "surrogateescape")
        for row in zip(record.sequences.tolist(), record.copies.tolist(), record.attempts.tolist(), strict=True):
            self._add_move(Move(row[0], record.view, target, record.change, row[1], row[2]))

    def _add_move(self, move: Move) -> None:
        """Add a move at its place; a known one is ignored."""
        moves = self.moves.setdefault(move.target, [])
        row = len(moves)
        if moves and moves[-1].sequence >= move.sequence:
            row = bisect_left(moves, move.sequence, key=_by_sequence)
        if row == len(moves) or moves[row].sequence != move.sequence:
            moves.insert(row, move)

    def _finish_moves(self, record: r.MoveDone) -> None:
        target = record.target.decode("utf-8", "surrogateescape")
        left = [move for move in self.moves.pop(target, ()) if move.sequence > record.sequence]
        if left:
            self.moves[target] = left

    def _lock_session(self, record: r.SessionLocked) -> None:
        view = self._view(record.view)
        self.next_claim = max(self.next_claim, record.lock + 1)
        view.lock(record.session, record.lock, record.until_ms)
        self._watch(view)

    def _set_session_state(self, record: r.SessionState) -> None:
        state = record.state if record.is_set else None
        self._view(record.view).set_session_state(record.session, state, record.set_ms)

    def _take_numbers(self, record: r.SnapshotBegun) -> None:
        self.next_claim = max(self.next_claim, record.next_claim)
        self.next_view = max(self.next_view, record.next_view)
