"""Whatever dies on the way to object storage and back: each segment is in a place, and nothing is left over."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
import pytest

from commits import DIED
from headgate.errors import LogError
from headgate.log import Stream
from headgate.log.crash_points import MoveStep
from headgate.log.remote import ObjectStorage, mover
from headgate.log.remote.derived_mover import DerivedMover
from log_streams import quick_folder, read_messages
from remote_streams import (
    LATER_MS,
    SEGMENT_BYTES,
    Movers,
    add_derived,
    add_parts,
    check_objects,
    check_places,
    move,
    new_stream,
    objects_of,
    state_of,
)

pytestmark = pytest.mark.faults

PARTS = 8
KEPT_BYTES = 2 * SEGMENT_BYTES


@pytest.fixture(scope="module")
def movers() -> Iterator[Movers]:
    started = Movers()
    yield started
    started.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as name:
        yield Path(name)


def location(folder: Path) -> str:
    return f"file://{folder}/remote"


def undisturbed(folder: Path, movers: Movers) -> tuple[object, dict[str, bytes]]:
    """What a stream and its objects are after a move without a kill."""
    with new_stream(folder / "s", location(folder), parts=PARTS) as writer:
        add_derived(writer.stream)
    movers.start(folder / "s", max_length_bytes=KEPT_BYTES)
    assert movers.status() == 0
    return state_of(Stream.open(folder / "s")), objects_of(location(folder))


def killed_and_finished(folder: Path, movers: Movers, *, crash_at: str = "", die_in: int = 0) -> int:
    """Move in a process that dies, check that all is readable, and finish; gives the status of the first."""
    with new_stream(folder / "s", location(folder), parts=PARTS) as writer:
        add_derived(writer.stream)
        before = read_messages(writer.stream)
    movers.start(folder / "s", crash_at=crash_at, die_in=die_in, max_length_bytes=KEPT_BYTES)
    status = movers.status()
    stream = Stream.open(folder / "s")
    check_places(stream)
    found = read_messages(stream)
    assert found == before[-len(found) :]
    movers.start(folder / "s", max_length_bytes=KEPT_BYTES)
    assert movers.status() == 0
    check_objects(stream)
    return status


@pytest.mark.parametrize("step", [f"{step}:{times}" for step in MoveStep for times in (1, 3)])
def test_a_mover_that_dies_at_a_step_is_finished_by_the_next(folder: Path, movers: Movers, step: str) -> None:
    expected = undisturbed(folder / "undisturbed", movers)
    status = killed_and_finished(folder / "killed", movers, crash_at=step)
    # There is one release, and one deletion; derived files change twice.
    is_seldom = step.startswith((MoveStep.RELEASED, MoveStep.DROPPED, MoveStep.DERIVED_SENT, MoveStep.DERIVED_LISTED))
    assert status == (0 if is_seldom and step.endswith(":3") else DIED)
    assert (state_of(Stream.open(folder / "killed" / "s")), objects_of(location(folder / "killed"))) == expected


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_a_mover_that_dies_in_any_object_is_finished_by_the_next(
    folder: Path, movers: Movers, every: int, seed: int
) -> None:
    """In the middle of each object that is written, and after each that is deleted."""
    expected = undisturbed(folder / "undisturbed", movers)
    for number in range(1 + seed % every, 300, every):
        killed = folder / f"killed-{number}"
        status = killed_and_finished(killed, movers, die_in=number)
        assert (state_of(Stream.open(killed / "s")), objects_of(location(killed))) == expected
        shutil.rmtree(killed)
        if status == 0:
            break
        assert status == DIED
    assert 10 < number < 298


def test_a_reader_that_dies_while_it_fills_the_cache_leaves_no_wrong_byte(folder: Path, movers: Movers) -> None:
    environment = {"HEADGATE_REMOTE_CACHE": os.environ["HEADGATE_REMOTE_CACHE"]}
    with new_stream(folder / "s", location(folder), parts=PARTS) as writer:
        before = read_messages(writer.stream)
        move(writer)
        for number in (1, 2, 5):
            movers.start(folder / "s", do="read", die_in=number, environment=environment)
            assert movers.status() == DIED
            assert read_messages(writer.stream) == before
            for segment in writer.stream.segments()[:-1]:
                assert segment.remote is not None
                segment.remote.forget()


def test_two_movers_and_readers_do_not_disturb_each_other(folder: Path, movers: Movers) -> None:
    """The readers share the cache."""
    expected = undisturbed(folder / "undisturbed", movers)
    others = [Movers() for _ in range(3)]
    with new_stream(folder / "s", location(folder), parts=PARTS) as writer:
        add_derived(writer.stream)
        before = read_messages(writer.stream)
    environment = {"HEADGATE_REMOTE_CACHE": os.environ["HEADGATE_REMOTE_CACHE"]}
    for each in (movers, others[0]):
        each.start(folder / "s")
    assert [each.status() for each in (movers, others[0])] == [0, 0]
    check_places(Stream.open(folder / "s"))
    for each in others:
        each.start(folder / "s", do="read", environment=environment)
    assert read_messages(Stream.open(folder / "s")) == before
    assert [each.status() for each in others] == [0, 0, 0]
    assert read_messages(Stream.open(folder / "s")) == before
    movers.start(folder / "s", max_length_bytes=KEPT_BYTES)
    assert movers.status() == 0
    assert (state_of(Stream.open(folder / "s")), objects_of(location(folder))) == expected
    for each in others:
        each.close()


def test_what_retention_overtakes_is_not_left_in_object_storage(folder: Path) -> None:
    """The limit passes segments that were not moved yet, and those in object storage before them."""
    with new_stream(folder / "s", location(folder), parts=PARTS) as writer:
        assert move(writer, now_ms=3000) > 0
        add_parts(writer, range(PARTS, 2 * PARTS))
        limits = msgspec.structs.replace(writer.settings.arguments, max_length_bytes=2 * KEPT_BYTES)
        writer.change(now_ms=LATER_MS, arguments=limits)
        kept = read_messages(writer.stream)
        writer.change(now_ms=LATER_MS, arguments=msgspec.structs.replace(limits, max_length_bytes=None))
        assert move(writer) > 0
        assert read_messages(writer.stream) == kept
        check_objects(writer.stream)


@pytest.mark.parametrize(
    ("owner", "action"), [(ObjectStorage, "write_file"), (mover._Mover, "_publish"), (DerivedMover, "_change")]
)
def test_a_stream_that_is_deleted_while_it_is_moved_leaves_no_object(
    folder: Path, owner: type, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, go_on = threading.Event(), threading.Event()
    do = getattr(owner, action)

    def later(*arguments: object, **more: object) -> object:
        there.set()
        assert go_on.wait(30)
        return do(*arguments, **more)

    with new_stream(folder / "s", location(folder), parts=PARTS) as writer:
        add_derived(writer.stream)
        move(writer, now_ms=3000)
    monkeypatch.setattr(owner, action, later)
    with ThreadPoolExecutor(2) as pool:
        moving = pool.submit(mover.move_segments, writer.stream, now_ms=LATER_MS)
        assert there.wait(30)
        os.rename(folder / "s", folder / "deleted")
        deleting = pool.submit(mover.delete_remote, Stream.open(folder / "deleted"))
        # It has time to go wrong.
        wait([deleting], timeout=0.2)
        go_on.set()
        deleting.result()
        with pytest.raises(LogError):
            moving.result()
    assert not objects_of(location(folder))
