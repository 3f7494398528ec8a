"""What a ledger still tells of copies: each change once, with its time, and nothing that a snapshot only repeats."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.ledger import Ledger, TraceKind, trace_copies
from headgate.ledger import ledger as ledger_module
from headgate.ledger.replay import ledger_folder, replay
from headgate.log import Stream
from ledgers import claim, new_stream, plain


def kinds(stream: Stream, *offsets: int) -> list[list[TraceKind]]:
    copies = plain(*offsets)
    traced = trace_copies(stream, {"red": copies}, now_ms=100)["red"]
    return [[event.kind for event in traced.events[copy]] for copy in copies]


def test_each_change_of_a_copy_is_told_with_its_time(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        tokens = claim(view, 0, 3, until_ms=50)
        ledger.commit(1)
        view.release(tokens.take(tokens.copies == plain(1)[0]), counts=True, not_before_ms=9)
        view.complete(tokens.take(tokens.copies == plain(0)[0]))
        ledger.commit(2)
        view.move(tokens.take(tokens.copies == plain(2)[0]), "elsewhere", b"why")
        ledger.commit(3)
        view.complete_ranges([(plain(4)[0], plain(6)[0])])
        ledger.commit(4)
    traced = trace_copies(stream, {"red": plain(0, 1, 2, 4)}, now_ms=5)["red"]
    shown = [
        [(each.kind, each.at_ms, each.attempt, each.until_ms, each.was_claimed) for each in events]
        for events in traced.events.values()
    ]
    claimed = (TraceKind.CLAIMED, 1, 1, 50, False)
    assert shown == [
        [claimed, (TraceKind.SETTLED, 2, 1, None, True)],
        [claimed, (TraceKind.RELEASED, 2, 1, 9, True)],
        [claimed, (TraceKind.MOVED, 3, 1, None, True)],
        [(TraceKind.SETTLED, 4, 0, None, False)],
    ]
    moved = traced.events[plain(2)[0]][-1]
    assert (moved.target, moved.change) == ("elsewhere", b"why")
    assert [move.target for move in traced.state.pending_moves()] == ["elsewhere"]


def test_a_claim_that_ended_by_its_time_did_not_complete_the_copy(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        claim(view, 0, 1, until_ms=50)
        ledger.commit(1)
        ledger.due(60)
        view.complete_ranges([(plain(0)[0], plain(1)[0])])
        ledger.commit(60)
    (events,) = trace_copies(stream, {"red": plain(0)}, now_ms=70)["red"].events.values()
    assert [(each.kind, each.was_claimed) for each in events] == [
        (TraceKind.CLAIMED, False),
        (TraceKind.SETTLED, False),
    ]


def test_a_snapshot_repeats_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = new_stream(tmp_path)
    monkeypatch.setattr(ledger_module, "LEAST_BYTES_BETWEEN_SNAPSHOTS", 100)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        tokens = claim(view, 0, 4)
        ledger.commit(1)
        for number in range(20):
            view.complete_ranges([(plain(10 + number)[0], plain(11 + number)[0])])
            ledger.commit(2 + number)
        view.complete(tokens.take(tokens.copies == plain(0)[0]))
        ledger.commit(30)
    assert replay(Stream.open(ledger_folder(stream))).snapshot_at > 0
    assert kinds(stream, 0, 1, 12) == [
        [TraceKind.CLAIMED, TraceKind.SETTLED],
        [TraceKind.CLAIMED],
        [TraceKind.SETTLED],
    ]


def test_a_view_that_is_not_there_has_no_trace(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    traced = trace_copies(stream, {"red": plain(0)}, now_ms=0)["red"]
    assert (traced.view, dict(traced.events)) == (None, {})
