"""What a ledger promises, one promise a test; files as they are on disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from headgate.errors import LogError, StreamLockedError, StreamNotFoundError, StreamReadOnlyError, StreamReplacedError
from headgate.ledger import (
    NEVER,
    Elsewhere,
    Ledger,
    Move,
    Standing,
    Tokens,
    append_moves,
    copy_number,
    ledger_folder,
    offset_of,
    read_ledger,
    rule_of,
)
from headgate.ledger import ledger as ledger_module
from headgate.log import Stream, Writer, list_streams, set_aside, stream_folder, stream_names
from ledgers import UNTIL, claim, floors, message_of, messages, new_stream, plain
from log_streams import read_messages

# copies


def test_copies_sort_as_offset_and_rule() -> None:
    pairs = [(0, 0), (0, 1), (0, (1 << 20) - 1), (1, 0), ((1 << 43) - 1, (1 << 20) - 1)]
    copies = [copy_number(*pair) for pair in pairs]
    assert copies == sorted(copies)
    assert [(offset_of(copy), rule_of(copy)) for copy in copies] == pairs
    for wrong in ((-1, 0), (1 << 43, 0), (0, 1 << 20)):
        with pytest.raises(ValueError):
            copy_number(*wrong)


def test_tokens_are_sixteen_bytes() -> None:
    tokens = Tokens.of([(copy_number(7, 3), 12), (copy_number(8), 12)])
    packed = tokens.pack()
    assert [len(each) for each in packed] == [16, 16]
    again = Tokens.unpack(packed)
    assert again.copies.tolist() == tokens.copies.tolist()
    assert again.claims.tolist() == tokens.claims.tolist()
    with pytest.raises(ValueError, match="16 bytes"):
        Tokens.unpack([b"short"])


# taking and settling


def test_a_view_gets_what_follows_from_its_first_copy(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", copy_number(10))
        assert view.available() == [(copy_number(10), NEVER)]
        assert floors(ledger) == {"red": 10}
        tokens = claim(view, 10, 13)
        assert view.available() == [(copy_number(13), NEVER)]
        assert view.complete(tokens.take(np.array([True, False, True]))).tolist() == [True, True]
        assert floors(ledger) == {"red": 11}
        view.release(tokens, counts=True)
        assert view.available() == [(copy_number(11), copy_number(11) + 1), (copy_number(13), NEVER)]
        again = view.claim(plain(11), UNTIL)
        assert again.attempts.tolist() == [2]
        assert view.complete(tokens).tolist() == [False, False, False]
        assert view.complete(again.tokens).all()
        assert floors(ledger) == {"red": 13}


def test_a_release_that_does_not_count_takes_the_attempt_back(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", 0)
        for _ in range(3):
            taken = view.claim(plain(0), UNTIL)
            assert taken.attempts.tolist() == [1]
            view.release(taken.tokens, counts=False)


def test_completed_copies_do_not_settle_what_nobody_looked_at_between_them(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", 0)
        taken = view.claim(plain(1, 9), UNTIL)
        view.complete(taken.tokens)
        starts = [start for start, _ in view.available()]
        assert starts == [0, copy_number(1) + 1, copy_number(9) + 1]
        assert floors(ledger) == {"red": 0}


def test_one_in_a_hundred_stays_one_range(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", 0)
        for start in range(0, 100_000, 10_000):
            copies = plain(*range(start + 50, start + 10_000, 100))
            view.complete(view.claim(copies, UNTIL, covered=[messages(start, start + 10_000)]).tokens)
        assert len(view._state.seen) == 1
        assert floors(ledger) == {"red": 100_000}


@pytest.mark.parametrize("wrong", [[3, 3], [4, 2], [-1], [NEVER]])
def test_copies_that_are_none_are_refused(tmp_path: Path, wrong: list[int]) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger, pytest.raises(ValueError, match="ascending"):
        ledger.view("red", 0).claim(wrong, UNTIL)


def test_a_dropped_view_is_used_by_nobody_and_its_tokens_fit_no_other(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", copy_number(5))
        tokens = claim(view, 5, 6)
        assert ledger.drop("red")
        assert not ledger.drop("red")
        with pytest.raises(LogError, match="'red' was dropped"):
            view.complete(tokens)
        lower = ledger.view("red", 0)
        assert lower.number != view.number
        claim(lower, 0, 6)
        assert lower.complete(tokens).tolist() == [False]
        assert ledger.pin == 0


def test_a_forged_token_settles_nothing(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", 0)
        claim(view, 0, 1)
        view.postpone(plain(1), 0)
        forged = Tokens.of([(copy_number(0), 0), (copy_number(1), 0), (copy_number(0), 99), (-1, -1), (NEVER, 1)])
        for settle in (view.complete, view.holds):
            assert not settle(forged).any()
        assert not view.move(forged, "dead", b"").any()
        assert view.counts().claimed == view.counts().available == 1


# time


def test_a_lock_holds_until_its_time_over_restarts(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        tokens = claim(ledger.view("red", 0), 0, 4, until_ms=500)
        ledger.commit(0)
    with Ledger.open(stream, now_ms=499) as ledger:
        view = ledger.view("red", 0)
        assert view.holds(tokens).all()
        assert ledger.due(499) == []
        assert ledger.next_due_ms == 500
        assert view.complete(tokens.take(np.array([True, False, False, False]))).all()
        ledger.commit(499)
    with Ledger.open(stream, now_ms=500) as ledger:
        view = ledger.view("red", 0)
        # Who opened it is told, as of any other claim that ends.
        assert view.holds(tokens).tolist() == [False, True, True, True]
        (expired,) = ledger.due(500)
        assert expired.attempts.tolist() == [1, 1, 1]
        assert not view.holds(tokens).any()
        assert [offset_of(start) for start, _ in view.available()] == [1, 2, 3, 4]
        assert view.claim(plain(1), UNTIL).attempts.tolist() == [2]


def test_due_says_whose_claims_ended_and_how_often_they_were_tried(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", 0)
        claim(view, 0, 2, until_ms=100)
        view.postpone(plain(7), 100)
        (expired,) = ledger.due(100)
        assert (expired.view, expired.copies.tolist(), expired.attempts.tolist()) == (view.number, plain(0, 1), [1, 1])
        assert ledger.due(100) == []
        assert ledger.next_due_ms == NEVER
        assert (copy_number(7), copy_number(7) + 1) in view.available()


def test_a_clock_that_goes_back_ends_nothing_and_one_that_jumps_ends_once(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=10_000) as ledger:
        view = ledger.view("red", 0)
        tokens = claim(view, 0, 1, until_ms=10_500)
        ledger.commit(10_000)
        assert ledger.due(10) == []
        assert view.holds(tokens).all()
        assert len(ledger.due(10**12)) == 1
        assert ledger.due(10_100) == []
        assert not view.holds(tokens).any()
        second = view.claim(plain(0), 10_600)
        assert second.attempts.tolist() == [2]
        ledger.commit(10_100)
    with Ledger.open(stream, now_ms=1) as ledger:
        view = ledger.view("red", 0)
        assert view.complete(tokens).tolist() == [False]
        assert view.complete(second.tokens).tolist() == [True]
        ledger.commit(1)


def test_an_end_that_nobody_took_up_may_be_undone_by_a_clock_that_went_back(tmp_path: Path) -> None:
    """Time alone is not written down: the copy has one holder all the same."""
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        tokens = claim(ledger.view("red", 0), 0, 1, until_ms=500)
        ledger.commit(0)
        assert len(ledger.due(600)) == 1
    with Ledger.open(stream, now_ms=100) as ledger:
        assert ledger.view("red", 0).holds(tokens).all()


# sessions


def test_a_view_says_how_copies_stand_and_who_has_those_of_a_session(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        view = ledger.view("red", 0)
        lock = view.lock_session("x", UNTIL)
        assert lock is not None
        view.postpone(plain(0, 1, 2, 3, 4), 0, covered=[(0, copy_number(5))])
        view.claim(plain(1, 3), 1, session="x")
        view.postpone(plain(2), 500)
        view.complete_ranges([(copy_number(4), copy_number(5))])
        stands = [Standing(each) for each in view.standings(np.array(plain(0, 1, 2, 3, 4, 9)[::-1])).tolist()]
        claimed, settled = Standing.CLAIMED, Standing.SETTLED
        assert stands[::-1] == [Standing.AVAILABLE, claimed, Standing.WAITING, claimed, settled, settled]
        tokens = view.session_claims("x")
        assert tokens.copies.tolist() == plain(1, 3) and view.holds(tokens).all()
        assert view.holds_session("x", lock) and not view.holds_session("x", lock + 1)
        assert len(view.session_claims("y")) == 0


def test_copies_of_a_session_go_back_with_its_lock(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        with pytest.raises(ValueError, match="'x' is not locked"):
            view.claim(plain(3), UNTIL, session="x")
        lock = view.lock_session("x", 500)
        assert lock is not None
        assert view.lock_session("x", 500) is None
        tokens = view.claim(plain(3), 1, session="x").tokens
        assert view.set_session_state("x", lock, b"half", 7)
        ledger.commit(0)
        assert ledger.due(400) == []
        assert view.renew_session("x", lock, 900)
        ledger.commit(400)
    with Ledger.open(stream, now_ms=600) as ledger:
        view = ledger.view("red", 0)
        assert view.holds(tokens).all()
        (expired,) = ledger.due(900)
        assert expired.copies.tolist() == plain(3)
        assert not view.set_session_state("x", lock, b"late", 900)
        assert view.session_state("x") == b"half" and view.sessions()["x"].set_ms == 7
        assert view.lock_session("x", 1500) not in (None, lock)
        assert not view.unlock_session("x", lock)


# moves


def test_a_move_is_listed_when_it_is_committed_and_pins_its_message(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        tokens = claim(view, 0, 3)
        view.move(tokens.take(np.array([False, True, False])), "dead", b"why")
        view.complete(tokens)
        assert ledger.moves() == {}
        assert ledger.pin == 1
        ledger.commit(0)
    with Ledger.open(stream, now_ms=0) as ledger:
        (move,) = ledger.moves()["dead"]
        assert (move.copy, move.change, move.attempt) == (copy_number(1), b"why", 1)
        assert ledger.pin == 1
        ledger.moved("dead", move.sequence)
        assert ledger.pin == 3
        ledger.commit(0)
        assert ledger.moves() == {}


def test_what_is_moved_while_a_commit_is_written_is_in_the_next_one(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        tokens = claim(view, 0, 3)
        view.move(tokens.take(np.array([True, False, False])), "dead", b"first")
        write = ledger.begin(0)
        assert write is not None
        write.run()
        view.move(tokens.take(np.array([False, True, False])), "dead", b"second")
        ledger.finish(write)
        assert [move.change for move in ledger.moves()["dead"]] == [b"first"]
        ledger.commit(0)
        listed = ledger.moves()["dead"]
        assert [move.change for move in listed] == [b"first", b"second"]
    with Ledger.open(stream, now_ms=0) as ledger:
        assert ledger.moves()["dead"] == listed


def test_moves_are_appended_once_whatever_was_known_of_them(tmp_path: Path) -> None:
    stream, target = new_stream(tmp_path), new_stream(tmp_path, "dead")
    with Ledger.open(stream, now_ms=0) as ledger, Writer.open(target, now_ms=0) as writer:
        for key in ("red", "blue", "red"):
            view = ledger.view(key, 0)
            offset = offset_of(view.available()[0][0])
            view.move(claim(view, offset, offset + 2), "dead", b"why")
            ledger.commit(0)
        sequences = [move.sequence for move in ledger.moves()["dead"]]
        assert sequences == sorted(sequences)
        assert append_moves(ledger, "dead", writer, made=message_of, now_ms=0) == 6
    # The process died before it committed that they were moved.
    once = read_messages(target)
    assert len(once) == 6
    with Ledger.open(stream, now_ms=0) as ledger, Writer.open(target, now_ms=0) as writer:
        assert len(ledger.moves()["dead"]) == 6
        assert append_moves(ledger, "dead", writer, made=message_of, now_ms=0) == 6
        ledger.commit(0)
        assert append_moves(ledger, "dead", writer, made=message_of, now_ms=0) == 0
    assert read_messages(target) == once


def test_moves_that_go_elsewhere_are_not_lost_between_those_that_were_appended(tmp_path: Path) -> None:
    stream, target = new_stream(tmp_path), new_stream(tmp_path, "dead")

    def made(move: Move) -> tuple[bytes, bytes | None] | Elsewhere:
        return Elsewhere("refused", move.change) if offset_of(move.copy) % 2 else message_of(move)

    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        view.move(claim(view, 0, 6), "dead", b"why")
        ledger.commit(0)
    # Each process dies before it commits what it did; only every second time it gets to that.
    for is_committed in (False, True) * 4:
        with Ledger.open(stream, now_ms=0) as ledger, Writer.open(target, now_ms=0) as writer:
            append_moves(ledger, "dead", writer, made=made, now_ms=0)
            if is_committed:
                ledger.commit(0)
    with Ledger.open(stream, now_ms=0) as ledger:
        assert "dead" not in ledger.moves()
        assert [offset_of(move.copy) for move in ledger.moves()["refused"]] == [1, 3, 5]
    assert len(read_messages(target)) == 3


def test_a_move_that_fails_holds_back_those_behind_it(tmp_path: Path) -> None:
    stream, target = new_stream(tmp_path), new_stream(tmp_path, "dead")
    with Ledger.open(stream, now_ms=0) as ledger, Writer.open(target, now_ms=0) as writer:
        for key in ("red", "blue", "green"):
            view = ledger.view(key, 0)
            view.move(claim(view, 0, 1), "dead", key.encode())
        ledger.commit(0)

        def fails(move: object) -> tuple[bytes, bytes | None]:
            if b"blue" in message_of(move)[0]:  # type: ignore[arg-type]
                raise LogError("unreadable", path=tmp_path)
            return message_of(move)  # type: ignore[arg-type]

        with pytest.raises(LogError, match="unreadable"):
            append_moves(ledger, "dead", writer, made=fails, now_ms=0)
        assert [move.change for move in ledger.moves()["dead"]] == [b"blue", b"green"]
        append_moves(ledger, "dead", writer, made=message_of, now_ms=0)
    assert [body.split()[-1] for _, body in read_messages(target)] == [b"red", b"blue", b"green"]


# files


def test_the_ledger_is_no_stream_of_users_and_goes_with_its_stream(tmp_path: Path) -> None:
    stream = Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=0)
    with Ledger.open(stream, now_ms=0) as ledger, Writer.open(stream, now_ms=0) as writer:
        ledger.view("red", 0)
        ledger.commit(0)
        writer.append([(b"m", None)], now_ms=0)
    assert stream_names(tmp_path) == ["orders"]
    assert [each.name for each in list_streams(tmp_path)] == ["orders"]
    assert read_messages(stream) == [(0, b"m")]
    aside = set_aside(tmp_path, stream.path)
    assert aside is not None and (aside / "ledger").is_dir()
    with pytest.raises(StreamNotFoundError):
        Ledger.open(stream, now_ms=0)
    again = Stream.create(stream.path, name="orders", now_ms=0)
    with pytest.raises(StreamReplacedError):
        Ledger.open(stream, now_ms=0)
    with Ledger.open(again, now_ms=0) as ledger:
        assert ledger.views() == []


def test_a_ledger_of_another_stream_and_a_foreign_stream_are_refused(tmp_path: Path) -> None:
    first, second = new_stream(tmp_path), new_stream(tmp_path, "other")
    Ledger.open(first, now_ms=0).close()
    shutil.copytree(ledger_folder(first), ledger_folder(second))
    with pytest.raises(LogError, match="that of the stream with the identity"):
        Ledger.open(second, now_ms=0)
    (first.path / "stream.json").unlink()
    with pytest.raises(StreamReadOnlyError, match="adopt"):
        Ledger.open(Stream.open(first.path), now_ms=0)


HOLDER = """
import sys
from headgate.ledger import Ledger
from headgate.log import Stream
with Ledger.open(Stream.open(sys.argv[1]), now_ms=0) as ledger:
    ledger.view("red", 7 << 20)
    ledger.commit(0)
    print("open", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_told_who_has_the_ledger_open_and_may_read_it(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, stream.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StreamLockedError, match=f"process {holder.pid} on "):
            Ledger.open(stream, now_ms=0)
        # The stream has its own lock, and the ledger can be read without one.
        Writer.open(stream, now_ms=0).close()
        state = read_ledger(stream, now_ms=0)
        assert {key: offset_of(view.floor()) for key, view in state.by_key.items()} == {"red": 7}
        holder.communicate("")
    with Ledger.open(stream, now_ms=0) as ledger:
        assert floors(ledger) == {"red": 7}


def test_reading_makes_no_ledger(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    assert read_ledger(stream, now_ms=0).views == {}
    assert not ledger_folder(stream).exists()


def test_what_is_settled_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LEAST_BYTES_BETWEEN_SNAPSHOTS", 5_000)
    monkeypatch.setattr(ledger_module, "SEGMENT_BYTES", 5_000)
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        kept = claim(view, 0, 1)
        sizes = []
        for offset in range(1, 1500):
            view.complete(claim(view, offset, offset + 1))
            ledger.commit(offset)
            if offset % 100 == 0:
                sizes.append(sum(file.stat().st_size for file in ledger_folder(stream).iterdir()))
        assert max(sizes) < 40_000
        assert ledger._writer.first_offset > 500
    with Ledger.open(stream, now_ms=0) as ledger:
        assert floors(ledger) == {"red": 0}
        assert ledger.view("red", 0).complete(kept).all()
        assert floors(ledger) == {"red": 1500}


def test_a_damaged_ledger_is_refused_with_its_place(tmp_path: Path) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        ledger.view("red", 0)
        for now in range(3):
            claim(ledger.view("red", 0), now, now + 1)
            ledger.commit(now)
    path = ledger_folder(stream) / f"{0:020d}.segment"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogError) as caught:
        Ledger.open(stream, now_ms=0)
    assert caught.value.path == path
    assert caught.value.position is not None


def test_an_idle_view_takes_at_most_two_kilobytes(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path), now_ms=0) as ledger:
        ledger.view("warm", 0)
        ledger.commit(0)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for number in range(500):
                view = ledger.view(f"subscription {number}", copy_number(number))
                view.complete(claim(view, number, number + 2))
            ledger.commit(0)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (after - before) / 500 < 2048


def test_tokens_do_not_fit_the_ledger_of_a_stream_that_was_made_again(tmp_path: Path) -> None:
    with Ledger.open(new_stream(tmp_path / "first"), now_ms=1_000) as ledger:
        of_first = claim(ledger.view("view", 0), 0, 3)
    with Ledger.open(new_stream(tmp_path / "second"), now_ms=1_001) as ledger:
        view = ledger.view("view", 0)
        of_second = claim(view, 0, 3)
        assert view.holds(of_second).all()
        assert not view.holds(of_first).any()
