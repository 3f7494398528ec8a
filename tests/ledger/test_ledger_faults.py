"""Ledgers that are interrupted: at every byte, by full disks, by kill -9."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headgate.errors import LogError, StorageFullError
from headgate.ledger import Ledger, Tokens, append_moves, copy_number, offset_of
from headgate.ledger import ledger as ledger_module
from headgate.log import Durability, Stream, Writer
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES
from ledgers import UNTIL, claim, message_of, new_stream, plain
from log_streams import FailingFiles, Killed, abandon, quick_folder, read_messages

CHILD = Path(__file__).parent / "settling_child.py"
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
LEAST = 200


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In memory; snapshots follow one another, so that they and new segments are among what is interrupted."""
    monkeypatch.setattr(ledger_module, "LEAST_BYTES_BETWEEN_SNAPSHOTS", LEAST)
    monkeypatch.setattr(ledger_module, "_SNAPSHOT_BYTES_AT_ONCE", 150)
    monkeypatch.setattr(ledger_module, "SEGMENT_BYTES", 300)
    with quick_folder() as name:
        yield Path(name)


def seeded(folder: Path) -> tuple[Stream, Tokens]:
    """A ledger with copies in every state, and the tokens of five claimed ones, 10 to 14."""
    stream = new_stream(folder)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        view.complete(claim(view, 0, 3))
        view.release(claim(view, 3, 6), counts=True, not_before_ms=UNTIL)
        view.move(claim(view, 6, 8), "dead", b"why")
        lock = view.lock_session("x", UNTIL)
        assert lock is not None
        view.claim(plain(8), 1, session="x")
        view.set_session_state("x", lock, b"state", 3)
        ledger.view("blue", copy_number(2))
        ledger.commit(0)
        tokens = claim(view, 10, 15)
        ledger.commit(0)
    return stream, tokens


def shape(ledger: Ledger) -> object:
    """Everything that a ledger shows."""
    views = [
        (
            view.key,
            view.floor,
            view.available(limit=10_000),
            view.counts(),
            {
                name: (held.lock, held.until_ms, held.state, held.set_ms, *held.copies)
                for name, held in view.sessions().items()
            },
        )
        for view in ledger.views()
    ]
    return views, {target: [(move.copy, move.change) for move in moves] for target, moves in ledger.moves().items()}


@pytest.mark.parametrize("size", [0, FILE_HEAD_BYTES, FILE_HEAD_BYTES + INDEX_RECORD_BYTES])
def test_an_index_that_became_shorter_brings_back_nothing_that_was_settled(tmp_path: Path, size: int) -> None:
    stream = new_stream(tmp_path)
    with Ledger.open(stream, now_ms=0) as ledger:
        view = ledger.view("red", 0)
        for number in range(8):
            view.complete(claim(view, number, number + 1))
            ledger.commit(0)
        before = shape(ledger)
    [index] = (stream.path / "ledger").glob("*.index")
    os.truncate(index, size)
    with Ledger.open(stream, now_ms=0) as ledger:
        assert shape(ledger) == before


def turns(ledger: Ledger, tokens: Tokens) -> Iterator[None]:
    """Six turns, one after each of which the ledger is to be committed."""
    view = ledger.view("red", 0)
    view.complete(tokens.take(np.arange(5) < 2))
    yield
    view.move(tokens.take(np.arange(5) == 2), "dead", b"again")
    ledger.view("green", 0)
    yield
    view.release(tokens.take(np.arange(5) == 3), counts=False)
    ledger.drop("blue")
    yield
    view.renew(tokens.take(np.arange(5) == 4), UNTIL + 5)
    yield
    ledger.moved("dead", ledger.moves()["dead"][0].sequence)
    yield
    view.complete_ranges([(0, copy_number(20))])
    yield


def states_after_each_turn(folder: Path, stream: Stream, tokens: Tokens) -> tuple[list[object], int]:
    files = FailingFiles(Killed())
    copy = Stream.open(shutil.copytree(stream.path, folder / "measured"))
    with Ledger.open(copy, now_ms=0, open_file=files) as ledger:
        states = [shape(ledger)]
        files.written = 0
        for _ in turns(ledger, tokens):
            ledger.commit(0)
            states.append(shape(ledger))
        assert ledger._writer.first_offset > 0, "a snapshot was completed, and what was before it dropped"
    shutil.rmtree(copy.path)
    return states, files.written


def turns_until_killed(ledger: Ledger, tokens: Tokens) -> int:
    """How many turns were committed before the one in which the process died."""
    committed = 0
    try:
        for _ in turns(ledger, tokens):
            ledger.commit(0)
            committed += 1
    except Killed:
        return committed
    raise AssertionError("nothing died")


@pytest.mark.slow
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_process_that_dies_at_any_byte_leaves_the_turn_before_or_the_whole_turn(
    folder: Path, every: int, seed: int
) -> None:
    stream, tokens = seeded(folder)
    states, written = states_after_each_turn(folder, stream, tokens)
    assert written > 1000
    for budget in range(seed % every, written, every):
        copy = Stream.open(shutil.copytree(stream.path, folder / "copy"))
        files = FailingFiles(Killed())
        ledger = Ledger.open(copy, now_ms=0, open_file=files)
        files.budget = files.written + budget
        committed = turns_until_killed(ledger, tokens)
        abandon(ledger._writer)
        with Ledger.open(copy, now_ms=0) as ledger:
            assert shape(ledger) in states[committed : committed + 2]
            # It goes on from there.
            ledger.view("late", 0)
            ledger.commit(0)
        shutil.rmtree(copy.path)


@pytest.mark.slow
def test_a_full_disk_refuses_settlement_forgets_nothing_and_goes_on_when_there_is_room(folder: Path) -> None:
    stream, tokens = seeded(folder)
    states, written = states_after_each_turn(folder, stream, tokens)
    for budget in range(0, written, 7):
        copy = Stream.open(shutil.copytree(stream.path, folder / "copy"))
        files = FailingFiles(FULL)
        with Ledger.open(copy, now_ms=0, open_file=files) as ledger:
            files.budget = files.written + budget
            for committed, _ in enumerate(turns(ledger, tokens)):
                try:
                    ledger.commit(0)
                except StorageFullError:
                    # Reading goes on; what would change something is refused, and so is the next try.
                    view = ledger.view("red", 0)
                    before = shape(ledger)
                    with pytest.raises(StorageFullError, match="nothing can be settled now"):
                        view.claim(plain(40), UNTIL)
                    with pytest.raises(StorageFullError):
                        ledger.commit(0)
                    assert shape(ledger) == before
                    with CopiedLedger(copy, folder) as other:
                        assert shape(other) == states[committed]
                    files.budget = None
                    ledger.commit(0)
            assert shape(ledger) == states[-1]
        with Ledger.open(copy, now_ms=0) as ledger:
            assert shape(ledger) == states[-1]
        shutil.rmtree(copy.path)


class CopiedLedger:
    """The ledger that a process would find which opened a copy of these files."""

    def __init__(self, stream: Stream, folder: Path) -> None:
        self.path = shutil.copytree(stream.path, folder / "second")

    def __enter__(self) -> Ledger:
        self.ledger = Ledger.open(Stream.open(self.path), now_ms=0)
        return self.ledger

    def __exit__(self, *_: object) -> None:
        self.ledger.close()
        shutil.rmtree(self.path)


def test_a_ledger_is_created_whole_or_again(folder: Path) -> None:
    stream = new_stream(folder)
    for budget in range(16):
        with pytest.raises(StorageFullError):
            Ledger.open(stream, now_ms=0, open_file=FailingFiles(FULL, budget=budget))
    with Ledger.open(stream, now_ms=0) as ledger:
        assert ledger.views() == []


def test_a_flush_that_fails_ends_the_ledger_and_the_next_one_goes_on(tmp_path: Path) -> None:
    stream, tokens = seeded(tmp_path)
    files = FailingFiles(OSError(errno.EIO, os.strerror(errno.EIO)))
    with Ledger.open(stream, now_ms=0, durability=Durability.DISK, open_file=files) as ledger:
        ledger.view("red", 0).complete(tokens)
        files.fail_sync = True
        with pytest.raises(LogError, match="writing failed"):
            ledger.commit(0)
        files.fail_sync = False
        with pytest.raises(LogError, match="open a new writer"):
            ledger.commit(0)
    with Ledger.open(stream, now_ms=0) as ledger:
        held = ledger.view("red", 0).holds(tokens)
        assert held.all() or not held.any()


@pytest.mark.slow
def test_moves_of_a_process_that_dies_at_any_byte_are_there_once(folder: Path) -> None:
    stream, tokens = seeded(folder)
    target = new_stream(folder, "dead")

    def carry_out(ledger: Ledger, writer: Writer) -> None:
        append_moves(ledger, "dead", writer, made=message_of, now_ms=0)
        ledger.commit(0)
        ledger.view("red", 0).move(tokens, "dead", b"again")
        ledger.commit(0)
        append_moves(ledger, "dead", writer, made=message_of, now_ms=0)
        ledger.commit(0)

    expected: list[bytes] | None = None
    budget = 0
    while True:
        copy, aim = (
            Stream.open(shutil.copytree(each.path, folder / f"copy of {each.name}")) for each in (stream, target)
        )
        files = FailingFiles(Killed())
        with Writer.open(aim, now_ms=0, open_file=files) as writer:
            ledger = Ledger.open(copy, now_ms=0, open_file=files)
            files.budget = files.written + budget
            try:
                carry_out(ledger, writer)
                is_done = True
            except Killed:
                is_done = False
            abandon(ledger._writer)
            abandon(writer)
        with Ledger.open(copy, now_ms=0) as ledger, Writer.open(aim, now_ms=0) as writer:
            carry_out(ledger, writer)
            assert ledger.moves() == {}
        found = [body for _, body in read_messages(aim)]
        expected = expected or found
        assert found == expected
        assert len(found) == len(set(found)) == 7
        for each in (copy, aim):
            shutil.rmtree(each.path)
        if is_done:
            return
        budget += 3


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("turns_said", [1, 2, 5, 40, 300])
def test_kill_9_forgets_no_settlement_and_doubles_no_move(folder: Path, turns_said: int) -> None:
    kill_twice(folder, turns_said)


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.parametrize("seed", range(150))
def test_kill_9_at_many_places(folder: Path, seed: int) -> None:
    kill_twice(folder, Random(seed).randint(1, 500))


def kill_twice(folder: Path, turns_said: int) -> None:
    """Kill a process after so many lines of it, and the next one; then compare what they said with what is there."""
    stream, target = new_stream(folder), new_stream(folder, "dead")
    claimed: dict[int, int] = {}
    settled: set[int] = set()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHILD.parent.parent), *sys.path])}
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, CHILD, stream.path, target.path], stdout=subprocess.PIPE, text=True, env=environment
        ) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(turns_said)]
            child.send_signal(signal.SIGKILL)
            lines += [line for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        for words in map(str.split, lines):
            if words[0] == "claimed":
                claimed[int(words[1])] = int(words[2])
            else:
                settled.add(int(words[1]))
    with Ledger.open(stream, now_ms=0) as ledger, Writer.open(target, now_ms=0) as writer:
        view = ledger.view("red", 0)
        append_moves(ledger, "dead", writer, made=message_of, now_ms=0)
        for offset, number in claimed.items():
            tokens = Tokens.of((copy_number(offset + each), number) for each in range(3))
            held = view.holds(tokens).tolist()
            assert held[2]
            assert held[0] == held[1]
            assert not (held[0] and offset in settled)
        moved = [offset_of(int(body.split()[1])) for _, body in read_messages(target)]
    assert moved == sorted(set(moved))
    assert set(moved) >= {offset + 1 for offset in settled}
