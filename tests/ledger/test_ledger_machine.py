"""A ledger against a model of a page: any calls, clocks that jump, crashes at any byte, restarts, many snapshots.

The model is kept twice: `live`, as the process knows it, and `written`, without what only time has changed, which is
where a restart begins.
"""

from __future__ import annotations

import copy as copying
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from headgate.ledger import NO_COPY, Ledger, Tokens, View, read_ledger
from headgate.ledger import ledger as ledger_module
from headgate.ledger import snapshot as snapshot_module
from headgate.log import Stream
from log_streams import FailingFiles, Killed, abandon, quick_folder

ALL = range(48)
KEYS = st.sampled_from(["a", "b"])
SESSIONS = st.sampled_from(["x", "y"])
TARGETS = st.sampled_from(["dead", "later"])
SOME = st.sets(st.sampled_from(ALL), min_size=1, max_size=12).map(sorted)
PICKS = st.lists(st.integers(0, 11), min_size=1, max_size=6)
SPANS = st.tuples(st.integers(0, 47), st.integers(1, 4)).map(lambda span: (span[0], min(48, sum(span))))
DELAYS = st.integers(1, 200)
SELDOM = st.integers(0, 5).map(lambda number: number == 5)


@dataclass
class Row:
    claim: int = 0
    attempt: int = 0
    until: int = 0
    session: str | None = None

    @property
    def is_available(self) -> bool:
        return not self.claim and not self.until


@dataclass
class ModelView:
    settled: set[int]
    rows: dict[int, Row] = field(default_factory=dict)
    locks: dict[str, tuple[int, int]] = field(default_factory=dict)
    states: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    notes: dict[int, bytes] = field(default_factory=dict)

    def available(self) -> list[int]:
        return [c for c in ALL if c not in self.settled and (c not in self.rows or self.rows[c].is_available)]

    def settle(self, copies: list[int]) -> None:
        self.settled.update(copies)
        for each in copies:
            self.rows.pop(each, None)
            self.notes.pop(each, None)

    def cover(self, span: tuple[int, int] | None) -> None:
        self.settled.update(c for c in range(*(span or (0, 0))) if c not in self.rows)

    def put(self, copies: list[int], rows: list[Row]) -> None:
        self.settled.difference_update(copies)
        self.rows.update({each: copying.copy(row) for each, row in zip(copies, rows, strict=True)})

    def lock(self, session: str, lock: int, until: int) -> None:
        if self.locks.get(session, (0, 0))[0] != lock:
            for row in self.rows.values():
                if row.session == session:
                    row.claim, row.until, row.session = 0, 0, None
        self.locks[session] = (lock, until)
        if not lock:
            del self.locks[session]

    def due(self, now: int) -> set[int]:
        before = {c for c, row in self.rows.items() if row.claim}
        for session, (_, until) in list(self.locks.items()):
            if until <= now:
                self.lock(session, 0, 0)
        for row in self.rows.values():
            if row.session is None and row.until <= now:
                row.claim, row.until = 0, 0
        return {c for c in before if not self.rows[c].claim}


@dataclass
class Model:
    views: dict[str, ModelView] = field(default_factory=dict)
    moves: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    unplaced: list[tuple[str, int, int, bytes]] = field(default_factory=list)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(ledger_module, "SEGMENT_BYTES", 700)
        self.patch.setattr(ledger_module, "LEAST_BYTES_BETWEEN_SNAPSHOTS", 100)
        self.patch.setattr(ledger_module, "_SNAPSHOT_BYTES_AT_ONCE", 1)
        self.patch.setattr(snapshot_module, "_ROWS_AT_ONCE", 2)
        self.folder = quick_folder()
        self.stream = Stream.create(f"{self.folder.name}/s", name="s", now_ms=0)
        self.now = self.latest = 1000
        self.files = FailingFiles(Killed())
        self.live, self.written, self.safe = Model(), Model(), Model()
        self.tokens: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
        self.locks: list[tuple[str, str, int]] = []
        self.sent: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
        self.sent_locks: list[tuple[str, str, int]] = []

    @initialize(commits=st.booleans())
    def begin(self, commits: bool) -> None:
        self.commits_always = commits
        self.open()

    def open(self) -> None:
        self.files = FailingFiles(Killed())
        # What was due once may have been written by a snapshot, or not: a clock that went back is tested elsewhere.
        self.now = self.latest = max(self.now, self.latest)
        self.ledger = Ledger.open(self.stream, now_ms=self.now, open_file=self.files)
        self.ledger.due(self.now)
        self.written = copying.deepcopy(self.safe)
        self.live = copying.deepcopy(self.safe)
        for view in self.live.views.values():
            view.due(self.now)

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
        self.patch.undo()
        self.folder.cleanup()

    def both(self, change: Callable[[Model], None]) -> None:
        change(self.live)
        change(self.written)

    def view(self, key: str) -> tuple[View, ModelView]:
        if key not in self.live.views:
            self.both(lambda model: model.views.__setitem__(key, ModelView(set(range(3)))))
        return self.ledger.view(key, 3), self.live.views[key]

    def in_views(self, key: str, change: Callable[[ModelView], None]) -> None:
        self.both(lambda model: change(model.views[key]))

    # taking

    @rule(key=KEYS, wanted=SOME, span=st.none() | SPANS, delay=DELAYS, session=st.none() | SESSIONS)
    def claim(self, key: str, wanted: list[int], span: tuple[int, int] | None, delay: int, session: str | None) -> None:
        view, model = self.view(key)
        if session is not None and session not in model.locks:
            return
        copies = [c for c in wanted if c in model.available()]
        # Only copies that are taken, or known, may be in a range that was searched.
        claim = view.claim(copies, self.now + delay, session=session, covered=[span] if span else [])
        assert claim.copies.tolist() == copies
        until = 0 if session is not None else self.now + delay
        attempts = [(model.rows[c].attempt if c in model.rows else 0) + 1 for c in copies]
        assert claim.attempts.tolist() == attempts
        assert all(claim.number > number for _, number in self.tokens[key])
        rows = [Row(claim.number, attempt, until, session) for attempt in attempts]

        def change(each: ModelView) -> None:
            each.cover(span)
            each.put(copies, rows)

        self.in_views(key, change)
        self.tokens[key] += [(c, claim.number) for c in copies]

    @rule(key=KEYS, wanted=SOME)
    def uncount(self, key: str, wanted: list[int]) -> None:
        view, model = self.view(key)
        copies = [c for c in wanted if c in model.rows and not model.rows[c].claim and model.rows[c].attempt > 0]
        view.uncount(np.array(sorted(wanted), dtype=np.int64))
        rows = [replace(model.rows[c], attempt=model.rows[c].attempt - 1) for c in copies]
        self.in_views(key, lambda each: each.put(copies, rows))

    @rule(key=KEYS, wanted=SOME, span=st.none() | SPANS, delay=st.just(0) | DELAYS)
    def postpone(self, key: str, wanted: list[int], span: tuple[int, int] | None, delay: int) -> None:
        view, model = self.view(key)
        copies = [c for c in wanted if c in model.available()]
        until = self.now + delay if delay else 0
        view.postpone(copies, until, covered=[span] if span else [])
        rows = [Row(0, model.rows[c].attempt if c in model.rows else 0, until) for c in copies]

        def change(each: ModelView) -> None:
            each.cover(span)
            each.put(copies, rows)

        self.in_views(key, change)

    @rule(key=KEYS, wanted=SOME)
    def refuse_what_is_not_available(self, key: str, wanted: list[int]) -> None:
        view, model = self.view(key)
        if any(c not in model.available() for c in wanted):
            with pytest.raises(ValueError):
                view.claim(wanted, self.now + 5)

    # settling

    def picked(self, key: str, picks: list[int]) -> tuple[View, Tokens, list[int]]:
        """Some tokens that were ever given, of whatever process, and the copies of those that hold."""
        view, model = self.view(key)
        given = self.tokens[key]
        pairs = [given[-1 - pick % min(len(given), 12)] for pick in picks] if given else []
        held = [c in model.rows and model.rows[c].claim == claim for c, claim in pairs]
        tokens = Tokens.unpack(Tokens.of(pairs).pack())
        assert view.holds(tokens).tolist() == held
        return view, tokens, sorted({pair[0] for pair, holds in zip(pairs, held, strict=True) if holds})

    @rule(key=KEYS, picks=PICKS)
    def complete(self, key: str, picks: list[int]) -> None:
        view, tokens, copies = self.picked(key, picks)
        view.complete(tokens)
        self.in_views(key, lambda model: model.settle(copies))

    @rule(key=KEYS, picks=PICKS, counts=st.booleans(), delay=st.just(0) | DELAYS)
    def release(self, key: str, picks: list[int], counts: bool, delay: int) -> None:
        view, tokens, copies = self.picked(key, picks)
        until = self.now + delay if delay else 0
        view.release(tokens, counts=counts, not_before_ms=until)
        rows = [Row(0, self.live.views[key].rows[c].attempt - (not counts), until) for c in copies]
        self.in_views(key, lambda model: model.put(copies, rows))

    @rule(key=KEYS, picks=PICKS, delay=DELAYS)
    def renew(self, key: str, picks: list[int], delay: int) -> None:
        view, tokens, copies = self.picked(key, picks)
        until = self.now + delay
        view.renew(tokens, until)

        def change(model: ModelView) -> None:
            for each in copies:
                if model.rows[each].session is None:
                    model.rows[each].until = until

        self.in_views(key, change)

    @rule(key=KEYS, picks=PICKS, delay=DELAYS)
    def claim_again(self, key: str, picks: list[int], delay: int) -> None:
        view, tokens, copies = self.picked(key, picks)
        until = self.now + delay
        given = list(zip(tokens.copies.tolist(), tokens.claims.tolist(), strict=True))
        alone = [c for c in copies if self.live.views[key].rows[c].session is None]
        held, again = view.claim_again(tokens, until)
        made = list(zip(again.copies.tolist(), again.claims.tolist(), strict=True))
        rows = {c: self.live.views[key].rows[c] for c in copies}
        assert held.tolist() == [c in rows and rows[c].claim == claim for c, claim in given]
        for (copy, claim), (copy_again, number), stands in zip(given, made, held.tolist(), strict=True):
            is_new = stands and copy in alone
            assert copy == copy_again and (number == claim) == (not is_new)
            assert not is_new or all(number > before for _, before in self.tokens[key])
        new = [pair for pair, before in zip(made, given, strict=True) if pair != before]
        if new:
            number = new[0][1]
            self.in_views(key, lambda model: model.put(alone, [Row(number, rows[c].attempt, until) for c in alone]))
            self.tokens[key] += sorted(set(new))

    @rule(key=KEYS, pick=st.integers(0, 11), note=st.sampled_from([b"", b"one", b"two"]))
    def note(self, key: str, pick: int, note: bytes) -> None:
        view, model = self.view(key)
        for copy in sorted(model.settled)[:1]:
            with pytest.raises(ValueError):
                view.note(copy, note)
        if model.rows:
            copy = sorted(model.rows)[-1 - pick % len(model.rows)]
            view.note(copy, note)
            self.in_views(key, lambda each: each.notes.__setitem__(copy, note))

    @rule(key=KEYS, picks=PICKS, to=TARGETS, reason=st.sampled_from([b"", b"why"]))
    def move(self, key: str, picks: list[int], to: str, reason: bytes) -> None:
        view, tokens, copies = self.picked(key, picks)
        view.move(tokens, to, reason)
        self.note_moves(key, view, copies, to, reason)

    @rule(key=KEYS, wanted=SOME, to=TARGETS)
    def move_available(self, key: str, wanted: list[int], to: str) -> None:
        view, model = self.view(key)
        copies = [c for c in wanted if c in model.available()]
        view.move_available(copies, to, b"old")
        self.note_moves(key, view, copies, to, b"old")

    def note_moves(self, key: str, view: View, copies: list[int], target: str, reason: bytes) -> None:
        self.in_views(key, lambda model: model.settle(copies))
        self.both(lambda model: model.unplaced.extend((target, view.number, c, reason) for c in copies))

    @rule(key=KEYS, span=SPANS)
    def complete_ranges(self, key: str, span: tuple[int, int]) -> None:
        view, _ = self.view(key)
        view.complete_ranges([span])
        self.in_views(key, lambda model: model.settle(list(range(*span))))

    @rule(to=TARGETS, count=st.integers(1, 4))
    def carry_out_moves(self, to: str, count: int) -> None:
        target = to
        moves = self.ledger.moves().get(target, [])[:count]
        if moves:
            self.ledger.moved(target, moves[-1].sequence)
            left = [move for move in self.live.moves if move[0] == target][len(moves) :]

            def change(model: Model) -> None:
                model.moves = [move for move in model.moves if move[0] != target] + left

            self.both(change)

    @rule(to=TARGETS, count=st.integers(1, 4))
    def redirect_moves(self, to: str, count: int) -> None:
        """The first moves to a target go to the other one; those of views that are gone, nowhere."""
        (other,) = {"dead", "later"} - {to}
        moves = self.ledger.moves().get(to, [])[:count]
        views = {view.number for view in self.ledger.views()}
        self.carry_out_moves(to, count)
        for move in moves:
            self.ledger.redirect(move, other, b"refused")
        found = [(other, move.view, move.copy, b"refused") for move in moves if move.view in views]
        self.both(lambda model: model.unplaced.extend(found))

    # sessions

    @rule(key=KEYS, session=SESSIONS, delay=DELAYS)
    def lock_session(self, key: str, session: str, delay: int) -> None:
        view, model = self.view(key)
        lock = view.lock_session(session, self.now + delay)
        assert (lock is None) == (session in model.locks)
        if lock is not None:
            until = self.now + delay
            self.in_views(key, lambda each: each.lock(session, lock, until))
            self.locks.append((key, session, lock))

    @precondition(lambda self: self.locks)
    @rule(pick=st.integers(0, 100), delay=DELAYS, what=st.sampled_from(["renew", "unlock", "state", "no state"]))
    def use_session_lock(self, pick: int, delay: int, what: str) -> None:
        key, session, lock = self.locks[-1 - pick % min(4, len(self.locks))]
        view, model = self.view(key)
        holds = model.locks.get(session, (0, 0))[0] == lock
        until = self.now + delay
        if what == "renew":
            assert view.renew_session(session, lock, until) == holds
        elif what == "unlock":
            assert view.unlock_session(session, lock) == holds
        else:
            state = b"s%d" % delay if what == "state" else None
            assert view.set_session_state(session, lock, state, until) == holds

        def change(each: ModelView) -> None:
            if what == "renew":
                each.lock(session, lock, until)
            elif what == "unlock":
                each.lock(session, 0, 0)
            elif what == "state":
                each.states[session] = b"s%d" % delay, until
            else:
                each.states.pop(session, None)

        if holds:
            self.in_views(key, change)

    # views, time, files

    @rule(key=KEYS, seldom=SELDOM)
    def drop(self, key: str, seldom: bool) -> None:
        if not seldom:
            return
        assert self.ledger.drop(key) == (key in self.live.views)
        self.both(lambda model: model.views.pop(key, None))
        self.tokens[key] = []
        self.locks = [lock for lock in self.locks if lock[0] != key]

    @rule(step=st.integers(-40, 80))
    def time_passes(self, step: int) -> None:
        self.now = max(1, self.now + step)
        self.latest = max(self.now, self.latest)
        found = {expired.view: expired.copies.tolist() for expired in self.ledger.due(self.now)}
        numbers = {view.key: view.number for view in self.ledger.views()}
        ended = {numbers[key]: sorted(view.due(self.now)) for key, view in self.live.views.items()}
        assert found == {number: copies for number, copies in ended.items() if copies}

    @rule()
    def commit(self) -> None:
        self.ledger.commit(self.now)
        self.settled_down()

    def settled_down(self) -> None:
        for model in (self.live, self.written):
            model.moves += model.unplaced
            model.unplaced.clear()
        self.safe = copying.deepcopy(self.written)
        self.sent = {key: list(given) for key, given in self.tokens.items()}
        self.sent_locks = list(self.locks)

    @precondition(lambda self: self.live.views)
    @rule(seldom=SELDOM)
    def die(self, seldom: bool) -> None:
        if not seldom:
            return
        abandon(self.ledger._writer)
        self.forget_the_dead()
        self.open()

    @rule(budget=st.integers(0, 300))
    def die_in_a_commit(self, budget: int) -> None:
        self.files.budget = self.files.written + budget
        try:
            self.ledger.commit(self.now)
        except Killed:
            abandon(self.ledger._writer)
            after = copying.deepcopy(self.written)
            after.moves += after.unplaced
            after.unplaced.clear()
            tokens, locks = self.tokens, self.locks
            self.tokens = dict(tokens)
            self.forget_the_dead()
            self.open()
            if self.difference(self.live) is not None:
                self.safe = after
                self.tokens, self.locks = tokens, locks
                self.live, self.written = copying.deepcopy(after), copying.deepcopy(after)
                for view in self.live.views.values():
                    view.due(self.now)
            assert self.difference(self.live) is None
        else:
            self.files.budget = None
            self.settled_down()

    def forget_the_dead(self) -> None:
        """What was not committed was not sent: its numbers may be given again."""
        for key, given in self.sent.items():
            self.tokens[key] = list(given)
        self.locks = list(self.sent_locks)

    # comparing

    @invariant()
    def is_as_the_model(self) -> None:
        if hasattr(self, "ledger"):
            if self.commits_always:
                self.commit()
            assert self.difference(self.live) is None

    def difference(self, model: Model) -> object:
        views = {view.key: view for view in self.ledger.views()}
        if views.keys() != model.views.keys():
            return views.keys(), model.views.keys()
        for key, view in views.items():
            expected = model.views[key]
            for found, wanted in (
                (available_copies(view), expected.available()),
                (known_rows(view), {c: (row.claim, row.attempt) for c, row in expected.rows.items()}),
                (
                    {name: (each.lock, each.until_ms) for name, each in view.sessions().items() if each.lock},
                    expected.locks,
                ),
                (
                    {n: (each.state, each.set_ms) for n, each in view.sessions().items() if each.state is not None},
                    expected.states,
                ),
                (dict(view.notes), expected.notes),
                (view.counts().claimed, sum(row.claim > 0 for row in expected.rows.values())),
                (view.counts().waiting, sum(not row.claim and row.until > 0 for row in expected.rows.values())),
            ):
                if found != wanted:
                    return key, found, wanted
        moves = [
            (move.target, move.view, move.copy, move.change) for each in self.ledger.moves().values() for move in each
        ]
        sequences = [move.sequence for each in self.ledger.moves().values() for move in each]
        assert len(sequences) == len(set(sequences))
        for target in ("dead", "later"):
            if [m for m in moves if m[0] == target] != [m for m in model.moves if m[0] == target]:
                return target, moves, model.moves
        return None

    @invariant()
    def floors_hold_back_retention(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for view in self.ledger.views():
            model = self.live.views[view.key]
            unsettled = [c for c in ALL if c not in model.settled]
            moving = [move[2] for move in self.live.moves + self.live.unplaced if move[1] == view.number]
            assert view.floor == min([48, *unsettled, *moving])

    @rule()
    def read_beside_the_writer(self) -> None:
        state = read_ledger(self.stream, now_ms=self.now)
        assert set(state.by_key) == self.safe.views.keys()


def available_copies(view: View) -> list[int]:
    runs = view.available(limit=1000)
    assert runs[-1][1] == NO_COPY
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))
    for limit in (1, 2):
        assert view.available(limit=limit) == runs[:limit]
    return [c for start, stop in runs for c in range(start, min(stop, 48))]


def known_rows(view: View) -> dict[int, tuple[int, int]]:
    table = view._state.table
    if table is None:
        return {}
    rows = table.rows_between(0, NO_COPY)
    return {
        c: (claim, attempt)
        for c, claim, attempt in zip(rows.copies.tolist(), rows.claims.tolist(), rows.attempts.tolist(), strict=True)
    }


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = examples(1.5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_long_walk(seed: int) -> None:
    """The same machine, walked at random for long enough that snapshots follow one another."""
    random = Random(seed)
    machine = LedgerMachine()
    machine.begin(commits=bool(seed % 2))

    def some(limit: int) -> list[int]:
        return sorted(random.sample(ALL, random.randint(1, limit)))

    def span() -> tuple[int, int]:
        start = random.randrange(47)
        return start, min(48, start + random.randint(1, 3))

    def delay() -> int:
        return random.randint(1, 400)

    def steps() -> list[Callable[[], None]]:
        key, picks, to = random.choice("ab"), random.sample(range(12), 3), random.choice(["dead", "later"])
        session = random.choice("xy")
        return [
            lambda: machine.claim(key, some(6), None, delay(), random.choice([None, None, session])),
            lambda: machine.claim(key, some(6), None, delay(), session),
            lambda: machine.claim(key, some(2), span(), delay(), None),
            lambda: machine.postpone(key, some(6), None, random.choice([0, delay()])),
            lambda: machine.refuse_what_is_not_available(key, some(3)),
            lambda: machine.uncount(key, some(3)),
            lambda: machine.complete(key, picks[:1]),
            lambda: machine.complete(key, picks),
            lambda: machine.release(key, picks, random.choice([True, False]), random.choice([0, delay()])),
            lambda: machine.renew(key, picks, delay()),
            lambda: machine.note(key, picks[0], random.choice([b"one", b"two"])),
            lambda: machine.move(key, picks[:1], to, b"why"),
            lambda: machine.move_available(key, some(1), to),
            lambda: machine.complete_ranges(key, span()) if random.random() < 0.2 else None,
            lambda: machine.carry_out_moves(to, 2),
            lambda: machine.redirect_moves(to, 2),
            lambda: machine.lock_session(key, session, delay()),
            lambda: (
                machine.use_session_lock(0, delay(), random.choice(["renew", "unlock", "state", "no state"]))
                if machine.locks
                else None
            ),
            lambda: machine.drop(key, random.random() < 0.03),
            lambda: machine.time_passes(random.randint(-100, 150)),
            machine.commit,
            lambda: machine.die(random.random() < 0.1),
            lambda: machine.die_in_a_commit(random.randint(0, 300)) if random.random() < 0.3 else None,
        ]

    try:
        for _ in range(1500):
            random.choice(steps())()
            machine.is_as_the_model()
            machine.floors_hold_back_retention()
        machine.read_beside_the_writer()
    finally:
        machine.teardown()
