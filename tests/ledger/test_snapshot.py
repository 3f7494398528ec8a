"""A snapshot that is cut while everything changes: who reads it alone, with what follows, knows all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headgate.ledger import records as r
from headgate.ledger.snapshot import cut_snapshot
from headgate.ledger.state import LedgerState
from headgate.ledger.table import IN_SESSION

LATE = 10**6


def column(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def seeded() -> LedgerState:
    """Copies 3 and 4 with the lock of a session, 5 claimed, 6 to be moved, 7 released."""
    state = LedgerState()
    for record in (
        r.ViewOpened(1, 2, b"red"),
        r.SessionLocked(1, b"x", 1, 500),
        r.SessionState(1, b"x", 1, 7, b"half"),
        r.Claimed(1, 2, IN_SESSION, b"x", column(3, 4), column(1, 1)),
        r.Claimed(1, 3, LATE, b"", column(5), column(2)),
        r.RowsKept(1, column(7), column(0), column(4), column(0)),
        r.Noted(1, 7, b"first"),
        r.Noted(1, 5, b"red"),
        r.Moved(1, b"dead", b"why", column(6), column(1)),
        r.ViewOpened(2, 0, b"blue"),
    ):
        state.apply(record)
    state.place(0)
    return state


def shape(state: LedgerState) -> object:
    views = []
    for view in state.views.values():
        rows = view.rows().rows_between(0, LATE)
        sessions = {
            name: (held.lock, held.state, held.set_ms, sorted(held.copies))
            for name, held in (view.sessions or {}).items()
        }
        columns = [each.tolist() for each in (rows.copies, rows.claims, rows.attempts, rows.untils)]
        views.append((view.number, view.key, list(view.seen), columns, sessions, dict(view.notes or {})))
    return sorted(views), state.moves, state.next_claim, state.next_view


def relock(state: LedgerState) -> list[r.Record]:
    """The lock ends, which nothing writes down, and the next one comes."""
    state.due(600)
    return [r.SessionLocked(1, b"x", 9, LATE)]


def lock_ends(state: LedgerState) -> list[r.Record]:
    """The lock ends, and nothing writes it down."""
    state.due(600)
    return []


CHANGES: dict[str, Callable[[LedgerState], list[r.Record]]] = {
    "nothing": lambda state: [],
    "lock changes hands": relock,
    "lock ends": lock_ends,
    "lock given back": lambda state: [r.SessionLocked(1, b"x", 0, 0)],
    "settled": lambda state: [r.Settled(1, column(3), column(6))],
    "claimed again": lambda state: [r.Claimed(1, 9, LATE, b"", column(7), column(5))],
    "noted": lambda state: [r.Noted(1, 7, b"second")],
    "moved": lambda state: [r.Moved(1, b"dead", b"why", column(5), column(2))],
    "move done": lambda state: [r.MoveDone(b"dead", 0)],
    "dropped": lambda state: [r.ViewDropped(1)],
    "dropped and opened": lambda state: [r.ViewDropped(1), r.ViewOpened(3, 0, b"red")],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_of_a_snapshot_knows_all_wherever_a_change_falls(change: str) -> None:
    place = 0
    while True:
        live, reader = seeded(), LedgerState()
        is_changed = False
        for number, record in enumerate(cut_snapshot(live), start=1):
            reader.apply(record)
            if number == place:
                is_changed = True
                for made in CHANGES[change](live):
                    live.apply(made)
                    reader.apply(made)
                for each in (live, reader):
                    each.place(5)
        for state in (live, reader):
            state.due(600 if "ends" in change else 400)
        assert shape(reader) == shape(live), f"a change after record {place}"
        if place and not is_changed:
            return
        place += 1
