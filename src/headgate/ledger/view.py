"""A view of a ledger: the operations of one subscription or consumer group on its copies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from headgate.ledger import records as r
from headgate.ledger.copy_numbers import NO_COPY, Int64Array, Tokens
from headgate.ledger.state import MOVES_AT_ONCE, LedgerState, Session, ViewState
from headgate.ledger.table import IN_SESSION, RowCounts, Rows

CopyRanges = Iterable[tuple[int, int]]
"""Ranges `start … stop` of copies."""


_NO_NOTES: Mapping[int, bytes] = MappingProxyType({})


@dataclass(slots=True)
class Claim:
    """Copies that were claimed together: `copies`, and `attempts`, how often each was claimed, `(copies,)` int64."""

    number: int
    copies: Int64Array
    attempts: Int64Array

    @property
    def tokens(self) -> Tokens:
        """The tokens that settle these copies."""
        return Tokens.of_claim(self.copies, self.number)


class Standing(IntEnum):
    """The state of a copy that was looked at."""

    SETTLED = 0
    AVAILABLE = 1
    WAITING = 2
    CLAIMED = 3


class View:
    """One view of an open ledger; made by `Ledger.view`.

    Changes are valid at once for later calls, and on disk after the next `Ledger.commit`: send nothing that depends on
    them before. Copies and ranges are given ascending. Calls raise LogError after the view was dropped, and the error
    of a failed `Ledger.commit` until a later one succeeds; then they change nothing. ValueError for mistakes of the
    caller: copies that are not available, not ascending, or more than 2^20.
    """

    __slots__ = ("_do", "_ledger", "_state")

    def __init__(self, ledger: LedgerState, state: ViewState, change: Callable[[ViewState, r.Record], None]) -> None:
        self._ledger = ledger
        self._state = state
        self._do: Callable[[r.Record], None] = functools.partial(change, state)

    # what it knows

    @property
    def number(self) -> int:
        """The number of the view in its ledger; never given twice."""
        return self._state.number

    @property
    def key(self) -> str:
        """The name that it was opened with."""
        return self._state.key or ""

    @property
    def floor(self) -> int:
        """The lowest copy that the view needs: unsettled, or on its way to a target. Cost: a step per pending move."""
        return self._ledger.floor(self._state)

    def counts(self) -> RowCounts:
        """Known copies by state: claimed, waiting, or available again. Copies never looked at do not count."""
        return self._state.counts()

    def available(self, after: int = 0, *, limit: int = 256) -> list[tuple[int, int]]:
        """At most `limit` runs of copies, from copy `after` on, that are not settled, claimed or waiting.

        A run of one copy, `(copy, copy + 1)`, was released: that copy exists. A longer one was never looked at, and the
        caller has to find which of its copies the view gets; the last one ends at NO_COPY.
        """
        return self._state.available(after, limit)

    def returned(self, limit: int) -> Int64Array:
        """The lowest known copies that are available, at most `limit`: released, postponed, or with an ended claim."""
        return self._state.rows().available(0, limit)

    def holds(self, tokens: Tokens) -> NDArray[np.bool_]:
        """`(tokens,)`: which claims are still valid."""
        return self._find(tokens)[1]

    def attempts(self, tokens: Tokens) -> Int64Array:
        """`(tokens,)`: how often each copy was claimed so far; 0 where the claim is not valid any more."""
        places, held = self._find(tokens)
        attempts = np.zeros(len(tokens), dtype=np.int64)
        attempts[held] = self._state.rows().rows_at(places[held]).attempts
        return attempts

    def attempts_of(self, copies: Int64Array) -> Int64Array:
        """`(copies,)`: how often each copy was claimed so far, in any state; 0 for an unknown copy."""
        attempts = np.zeros(len(copies), dtype=np.int64)
        places, known = self._state.rows().find(copies)
        attempts[known] = self._state.rows().rows_at(places[known]).attempts
        return attempts

    @property
    def notes(self) -> Mapping[int, bytes]:
        """Copy → its note, for copies with a note."""
        return self._state.notes or _NO_NOTES

    def unseen(self, copies: Int64Array) -> NDArray[np.bool_]:
        """`(copies,)`: which copies were never looked at. Cost: some 0.2 µs each."""
        return np.array([copy not in self._state.seen for copy in copies.tolist()], dtype=np.bool_)

    def standings(self, copies: Int64Array) -> NDArray[np.int8]:
        """`(copies,)`: the `Standing` of copies in any order; a copy never looked at counts as settled."""
        found = np.zeros(len(copies), dtype=np.int8)
        table = self._state.rows()
        places, known = table.find(copies)
        rows = table.rows_at(places[known])
        found[known] = np.where(
            rows.claims > 0, Standing.CLAIMED, np.where(rows.untils > 0, Standing.WAITING, Standing.AVAILABLE)
        )
        return found

    def unsettled(self, from_copy: int, limit: int) -> Int64Array:
        """At most `limit` known, unsettled copies from `from_copy` on, ascending, in any state."""
        return self._state.rows().rows_from(from_copy, limit)[0].copies

    @property
    def floor_of_rows(self) -> int:
        """The lowest known copy that is not settled; NO_COPY without one."""
        return self._state.rows().first

    @property
    def next_copy(self) -> int:
        """The lowest copy that was never looked at."""
        return self._state.seen.first_gap()

    @property
    def seen_until(self) -> int:
        """The copy behind all copies that were looked at."""
        return self._state.seen.stop

    # taking copies

    def claim(
        self,
        copies: Sequence[int] | Int64Array,
        until_ms: int,
        *,
        session: str | None = None,
        covered: CopyRanges = (),
    ) -> Claim:
        """Claim available copies until `until_ms`; each attempt is one higher than before.

        `covered` are ranges that were searched: they hold no other copies of the view than these and known ones, so the
        rest of them counts as settled. With `session`, which must be locked, the copies stay claimed as long as its
        lock lasts, and `until_ms` does not count.
        """
        column = _ascending(copies)
        attempts = self._attempts_of_available(column) + 1
        name = b""
        if session is not None:
            name, until_ms = _encoded(session), IN_SESSION
            held = (self._state.sessions or {}).get(name)
            if held is None or not held.lock:
                raise ValueError(f"session {session!r} is not locked")
        else:
            _check_time(until_ms)
        self._cover(covered)
        number = self._ledger.next_claim
        if len(column):
            self._do(r.Claimed(self._state.number, number, until_ms, name, column, attempts))
        return Claim(number, column, attempts)

    def postpone(self, copies: Sequence[int] | Int64Array, not_before_ms: int, *, covered: CopyRanges = ()) -> None:
        """Make available copies known without claiming them: available from `not_before_ms` on, 0: at once.

        `covered` as for `claim`. It delays a message, and makes copies of many sessions known before any is claimed.
        """
        column = _ascending(copies)
        attempts = self._attempts_of_available(column)
        self._cover(covered)
        if len(column):
            self._keep(column, attempts, not_before_ms)

    def uncount(self, copies: Int64Array) -> None:
        """Take back the last attempt of copies that are not claimed any more: their receiver was not given them.

        Copies that are claimed, settled or unknown stay as they are.
        """
        table = self._state.rows()
        places, known = table.find(copies)
        rows = table.rows_at(places[known])
        rows = rows.take((rows.claims == 0) & (rows.attempts > 0))
        if len(rows):
            self._do(r.RowsKept(self.number, rows.copies, rows.claims, rows.attempts - 1, rows.untils))

    # settling, releasing and moving copies

    def complete(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Settle claimed copies. Gives `(tokens,)`: which claims were still valid; the others change nothing."""
        places, held = self._find(tokens)
        places = places[held]
        if len(places):
            runs = self._state.rows().runs(places)
            ranges = [part for first, last in runs for part in self._seen_parts(first, last)]
            self._do(r.Settled(self._state.number, *_columns(ranges)))
        return held

    def complete_ranges(self, ranges: CopyRanges) -> None:
        """Settle every copy of the view in these ranges, claimed or not: filtered out, purged, expired."""
        columns = _columns(list(ranges))
        if len(columns[0]):
            self._do(r.Settled(self.number, *columns))

    def release(self, tokens: Tokens, *, counts: bool, not_before_ms: int = 0) -> NDArray[np.bool_]:
        """Release claimed copies: available from `not_before_ms` on, 0: at once. Gives as `complete`.

        Unless it `counts`, the attempt is taken back as well.
        """
        rows, held = self._held(tokens)
        if len(rows):
            self._keep(rows.copies, rows.attempts if counts else rows.attempts - 1, not_before_ms)
        return held

    def renew(self, tokens: Tokens, until_ms: int) -> NDArray[np.bool_]:
        """Let claims end at `until_ms`, earlier or later than before. Gives as `complete`.

        Copies that are claimed with the lock of a session do not change: renew the session.
        """
        _check_time(until_ms)
        rows, held = self._held(tokens)
        alone = rows.copies[rows.untils != IN_SESSION]
        if len(alone):
            self._do(r.Renewed(self.number, until_ms, alone))
        return held

    def claim_again(self, tokens: Tokens, until_ms: int) -> tuple[NDArray[np.bool_], Tokens]:
        """Claim claimed copies again until `until_ms`, with a new number; that does not count as an attempt.

        Gives as `complete`, and new tokens; the old ones are invalid then. Copies that are claimed with the lock of a
        session keep their tokens: renew the session.
        """
        _check_time(until_ms)
        places, held = self._find(tokens)
        rows = self._state.rows().rows_at(np.unique(places[held]))
        alone = rows.take(rows.untils != IN_SESSION)
        number = self._ledger.next_claim
        if len(alone):
            self._do(r.Claimed(self.number, number, until_ms, b"", alone.copies, alone.attempts))
        claims = np.where(np.isin(tokens.copies, alone.copies) & held, number, tokens.claims)
        return held, Tokens(tokens.copies, claims)

    def note(self, copy: int, note: bytes) -> None:
        """Keep a note with a known, unsettled copy, in place of its last note, until it is settled.

        Raises ValueError for any other copy.
        """
        if not self._state.rows().find(np.array([copy], dtype=np.int64))[1][0]:
            raise ValueError(f"copy {copy} of view {self.key!r} is not known, or settled")
        self._do(r.Noted(self.number, copy, note))

    def move(self, tokens: Tokens, target: str, change: bytes) -> NDArray[np.bool_]:
        """Settle claimed copies, to be appended to `target` exactly once. Gives as `complete`.

        `change` is the caller's description of how the copy is changed on its way. The commit writes the intent down;
        then `Ledger.moves` lists it until `Ledger.moved`.
        """
        rows, held = self._held(tokens)
        self._move(rows.copies, rows.attempts, target, change)
        return held

    def move_available(self, copies: Sequence[int] | Int64Array, target: str, change: bytes) -> None:
        """As `move`, for copies that are not claimed: too old, or claimed too often."""
        column = _ascending(copies)
        attempts = self._attempts_of_available(column)
        self._move(column, attempts, target, change)

    # sessions

    def lock_session(self, session: str, until_ms: int) -> int | None:
        """Lock a session until `until_ms`; gives the number of the lock, None if the session is locked already."""
        _check_time(until_ms)
        held = (self._state.sessions or {}).get(_encoded(session))
        if held is not None and held.lock:
            return None
        lock = self._ledger.next_claim
        self._do(r.SessionLocked(self.number, _encoded(session), lock, until_ms))
        return lock

    def renew_session(self, session: str, lock: int, until_ms: int) -> bool:
        """Let the lock end at `until_ms`; false if it ended before."""
        _check_time(until_ms)
        if not self._has_lock(session, lock):
            return False
        self._do(r.SessionLocked(self.number, _encoded(session), lock, until_ms))
        return True

    def unlock_session(self, session: str, lock: int) -> bool:
        """Release a lock, and all copies claimed with it; false if it ended before."""
        if not self._has_lock(session, lock):
            return False
        self._do(r.SessionLocked(self.number, _encoded(session), 0, 0))
        return True

    def session_claims(self, session: str) -> Tokens:
        """The tokens of the copies that are claimed with the lock of a session, ascending."""
        held = (self._state.sessions or {}).get(_encoded(session))
        copies = np.array(sorted(held.copies) if held is not None else [], dtype=np.int64)
        places, known = self._state.rows().find(copies)
        return Tokens(copies[known], self._state.rows().rows_at(places[known]).claims)

    def holds_session(self, session: str, lock: int) -> bool:
        """Whether a lock is still valid."""
        return self._has_lock(session, lock)

    def is_locked(self, session: str) -> bool:
        """Whether a session is locked."""
        held = (self._state.sessions or {}).get(_encoded(session))
        return held is not None and held.lock > 0

    def session_state(self, session: str) -> bytes | None:
        """The state that was set for a session; None without one."""
        held = (self._state.sessions or {}).get(_encoded(session))
        return None if held is None else held.state

    def set_session_state(self, session: str, lock: int, state: bytes | None, set_ms: int) -> bool:
        """Set the state of a session, None removes it; false, and nothing is set, if the lock ended before."""
        if not self._has_lock(session, lock):
            return False
        self._do(r.SessionState(self.number, _encoded(session), int(state is not None), set_ms, state or b""))
        return True

    def sessions(self) -> dict[str, Session]:
        """The sessions that are locked or have a state, by name."""
        return {name.decode("utf-8", "surrogateescape"): held for name, held in (self._state.sessions or {}).items()}

    # inside

    def _has_lock(self, session: str, lock: int) -> bool:
        held = (self._state.sessions or {}).get(_encoded(session))
        return held is not None and lock > 0 and held.lock == lock

    def _find(self, tokens: Tokens) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The place of each token's copy, and whether its claim is valid."""
        return self._state.rows().find_claimed(tokens.copies, tokens.claims)

    def _held(self, tokens: Tokens) -> tuple[Rows, NDArray[np.bool_]]:
        """The rows of the tokens with valid claims, ascending, each once; and which tokens these are."""
        places, held = self._find(tokens)
        return self._state.rows().rows_at(np.unique(places[held])), held

    def _attempts_of_available(self, copies: Int64Array) -> Int64Array:
        """How often each copy was claimed. Raises ValueError unless all are available."""
        attempts = np.zeros(len(copies), dtype=np.int64)
        if not len(copies) or int(copies[0]) >= self._state.seen.stop:
            return attempts
        table = self._state.rows()
        places, known = table.find(copies)
        rows = table.rows_at(places[known])
        taken = rows.copies[(rows.claims != 0) | (rows.untils != 0)]
        settled = [copy for copy in copies[~known].tolist() if copy in self._state.seen]
        if len(taken) or settled:
            copy = int(taken[0]) if len(taken) else settled[0]
            raise ValueError(f"copy {copy} of view {self.key!r} is {'claimed or waiting' if len(taken) else 'settled'}")
        attempts[known] = rows.attempts
        return attempts

    def _cover(self, covered: CopyRanges) -> None:
        starts, stops = _columns(list(covered))
        if len(starts):
            self._do(r.Seen(self._state.number, starts, stops))

    def _keep(self, copies: Int64Array, attempts: Int64Array, not_before_ms: int) -> None:
        if not 0 <= not_before_ms < IN_SESSION:
            raise ValueError(f"a time of {not_before_ms} ms; expected 0 or more")
        untils = np.full(len(copies), not_before_ms, dtype=np.int64)
        self._do(r.RowsKept(self.number, copies, np.zeros(len(copies), dtype=np.int64), attempts, untils))

    def _move(self, copies: Int64Array, attempts: Int64Array, target: str, change: bytes) -> None:
        if len(self._ledger.unplaced) + len(copies) > MOVES_AT_ONCE:
            raise ValueError(f"more than {MOVES_AT_ONCE} moves between two commits")
        if len(copies):
            self._do(r.Moved(self.number, _encoded(target), change, copies, attempts))

    def _seen_parts(self, first: int, last: int) -> list[tuple[int, int]]:
        """A run of known copies, cut where copies that were not looked at lie in between."""
        seen = self._state.seen
        if first == last:
            return [(first, last + 1)]
        rows = range(seen.row_of(first), seen.row_of(last) + 1)
        return [(max(first, seen.starts[row]), min(last + 1, seen.stops[row])) for row in rows]


def _ascending(copies: Sequence[int] | Int64Array) -> Int64Array:
    column = np.asarray(copies, dtype=np.int64)
    if len(column) and (
        int(column[0]) < 0 or int(column[-1]) >= NO_COPY or (len(column) > 1 and bool((np.diff(column) <= 0).any()))
    ):
        raise ValueError("copies are given ascending, each once")
    return column


def _columns(ranges: list[tuple[int, int]]) -> tuple[Int64Array, Int64Array]:
    for start, stop in ranges:
        if not 0 <= start < stop:
            raise ValueError("a range of copies is given as start below stop")
    columns = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _check_time(until_ms: int) -> None:
    if not 0 < until_ms < IN_SESSION:
        raise ValueError(f"a time of {until_ms} ms; expected above 0")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
