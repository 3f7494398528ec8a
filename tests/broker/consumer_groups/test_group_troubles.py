"""Consumer groups where something is wrong or in the way: damage, deleted messages and streams, full disks, locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import stored
from failing_disk import Disk
from group_lab import INVISIBLE_MS, GroupLab, message, number_of
from headgate.broker.consumer_groups import GroupSettings, GroupStart
from headgate.errors import (
    CorruptChunkError,
    EntityDisabledError,
    LogError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
)
from headgate.ledger import Ledger
from headgate.log import Stream, Writer, read_pin, stream_folder
from log_streams import quick_folder


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def lab(disk: Disk) -> Iterator[GroupLab]:
    with quick_folder() as folder:
        lab = GroupLab(Path(folder), open_file=disk, queues=2)
        yield lab
        disk.full = ""
        lab.broker.close()


def numbers(first: int, count: int) -> list[bytes]:
    return [message(number) for number in range(first, first + count)]


def test_nothing_is_given_or_settled_before_it_is_on_disk(lab: GroupLab, disk: Disk) -> None:
    lab.publish(numbers(0, 3))
    first = lab.ask(1)
    disk.full = "/groups/"
    waits = lab.ask(1)
    answers: list[object] = []
    lab.view().complete(first.tokens, answers.append)
    lab.turn()
    assert isinstance(answers[0], StorageFullError)
    assert not waits.answers
    waits.receiving.end()
    assert isinstance(waits.error, StorageFullError)
    disk.full = ""
    lab.turn()
    lab.turn()
    # What was claimed for who was refused went back, as if it had not been claimed.
    again = lab.ask(10)
    assert (again.offsets, again.attempts) == ([1, 2], [1, 1])


def test_a_worker_commits_and_who_went_meanwhile_is_given_nothing(lab: GroupLab) -> None:
    lab.publish(numbers(0, 4))
    worker = lab.restart_to_disk()

    def work() -> None:
        while worker.jobs:
            worker.run_one()
            lab.turn()

    gone = lab.ask(1)
    work()
    assert gone.offsets == [0], "not before"
    gone = lab.ask(1)
    gone.receiving.close()
    work()
    assert not gone.answers
    late = lab.ask(1, invisible_ms=100)
    lab.turn(100)
    assert not late.answers
    work()
    assert late.offsets == [], "its claim had ended"
    rest = lab.ask(10)
    work()
    assert (rest.offsets, rest.attempts) == ([1, 2, 3], [1, 1, 1])


def test_a_damaged_queue_is_passed_over_where_there_is_another_one(lab: GroupLab) -> None:
    for number in range(3):
        lab.publish(numbers(number, 1))
    lab.publish(numbers(7, 1), queue=1)
    lab.broker.close()
    segment = Stream.open(stream_folder(lab.root, "q0")).segments()[0]
    with segment.open() as reader:
        position = int(reader.chunks().position[1])
    content = bytearray(segment.segment_path.read_bytes())
    content[position + 60] ^= 1
    segment.segment_path.write_bytes(content)
    lab.opened()
    first = lab.ask(10, streams=["q0"])
    assert first.offsets == [0]
    assert isinstance(lab.ask(10, streams=["q0"]).error, CorruptChunkError)
    assert lab.ask(10).places == [(1, 0)]
    waits = lab.ask(10)
    assert not waits.answers
    waits.receiving.end()
    assert "headgate stream repair q0" in str(waits.error), "nothing is in the other one: who waits is told"
    assert lab.settle(first) == [True]


def test_a_group_goes_on_at_what_retention_left(lab: GroupLab) -> None:
    lab.session.declare_stream("small", {"stream-max-segment-size-bytes": 1})
    lab.streams = (*lab.streams, "small")
    for number in range(6):
        lab.publish(numbers(number, 1), queue=2)
    assert lab.ask(2, streams=["small"]).offsets == [0]
    assert lab.ask(1, streams=["small"]).offsets == [1]
    writer = lab.broker.catalogue.get("small").open_writer(now_ms=lab.clock.now)
    while writer.drop_first_below(4):
        pass
    lab.broker.catalogue.get("small").refresh()
    lab.turn(INVISIBLE_MS)
    given = [offset for _ in range(3) for offset in lab.receive(10, streams=["small"]).offsets]
    assert given == [4, 5]
    counts = lab.broker.consumer_groups.view("small", "g").counts()
    assert (counts.available, counts.claimed, counts.unseen) == (0, 2, 0)
    assert lab.view(queue=2).counters.lost == 2
    assert lab.view(queue=2).counters.filtered == 0


def test_a_deleted_queue_ends_those_that_wait_there_alone(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    given = lab.ask(1)
    alone, both = lab.ask(1, streams=["q0"]), lab.ask(1)
    lab.session.delete_stream("q0")
    assert isinstance(alone.error, ResourceNotFoundError)
    assert not both.answers
    with pytest.raises(ResourceNotFoundError):
        lab.settle(given)
    lab.publish(numbers(0, 1), queue=1)
    assert both.places == [(1, 0)]
    with pytest.raises(ResourceNotFoundError):
        lab.ask(1, streams=["q0"])


def test_a_ledger_of_another_process_is_named(lab: GroupLab) -> None:
    other = Ledger.open(Stream.open(stream_folder(lab.root, "q0")), now_ms=lab.clock.now, folder="groups")
    with pytest.raises(StreamLockedError):
        lab.ask(1, streams=["q0"])
    lab.publish(numbers(0, 1), queue=1)
    assert lab.ask(1).places == [(1, 0)]
    other.close()
    lab.publish(numbers(0, 1))
    assert lab.ask(1).places == [(0, 0)]


def test_dead_letters_wait_for_their_stream_and_retention_for_them(lab: GroupLab) -> None:
    lab.publish(numbers(0, 3))
    lab.settle(lab.ask(1, streams=["q0"]))
    given = lab.ask(1, streams=["q0"])
    folder = stream_folder(lab.root, "%DLQ%g")
    letters = Writer.open(Stream.create(folder, name="%DLQ%g", now_ms=lab.clock.now), now_ms=lab.clock.now)
    lab.view().dead_letter(given.tokens)
    lab.turn()
    assert lab.view().counts().moving == 1
    pin = read_pin(stream_folder(lab.root, "q0"))
    assert pin is not None and pin.offset == 1
    lab.restart()
    lab.turn()
    assert lab.view().counts().moving == 1
    letters.close()
    lab.turn(1_000)
    lab.turn(1_000)
    assert lab.view().counts().moving == 0
    assert read_pin(stream_folder(lab.root, "q0")) is None
    assert [number_of(each) for each in stored(lab.root, "%DLQ%g")] == [1]


def test_a_ledger_is_closed_when_nobody_used_it_for_ten_seconds(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    used = lab.ask(1, streams=["q0"], invisible_ms=5_000)
    waits = lab.ask(1, streams=["q1"])
    views = {view.stream.name: view for view in lab.broker.consumer_groups.views.known()}
    assert list(views) == ["q0", "q1"]
    answers: list[object] = []
    views["q0"].complete(used.tokens, answers.append)
    for _ in range(9):
        lab.turn(1_000)
    assert not views["q0"].is_closed
    lab.turn(1_000)
    assert views["q0"].is_closed and not views["q1"].is_closed
    waits.receiving.close()
    for _ in range(10):
        lab.turn(1_000)
    assert views["q1"].is_closed and answers == [[True]]
    assert lab.broker.consumer_groups.view("q0", "g").counts().lag == 0


def test_what_is_due_comes_again_with_the_next_tick(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    first = lab.ask(1, invisible_ms=1_020)
    waits = lab.ask(1)
    for _ in range(20):
        lab.turn(50)
    assert first.offsets == [0] and not waits.answers
    lab.turn(50)
    assert waits.offsets == [0]


def test_a_ledger_that_cannot_be_written_any_more_is_opened_again(lab: GroupLab, disk: Disk) -> None:
    lab.publish(numbers(0, 2))
    first = lab.ask(1, streams=["q0"])
    waits = lab.ask(1, streams=["q1"])
    disk.broken = "/q0/groups/"
    answers: list[object] = []
    lab.view().complete(first.tokens, answers.append)
    lab.turn()
    disk.broken = ""
    assert isinstance(answers[0], LogError)
    lab.turn()
    assert not waits.answers
    lab.turn(INVISIBLE_MS)
    # What was answered with an error may have been written down, or not.
    assert lab.ask(5, streams=["q0"]).offsets in ([0, 1], [1])


def test_a_member_that_never_acknowledges_has_a_bounded_number(lab: GroupLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.broker.consumer_groups.group_view.MAX_UNSETTLED", 3)
    lab.publish(numbers(0, 6))
    first = lab.ask(32)
    assert first.offsets == [0, 1, 2]
    waits = lab.ask(32)
    assert not waits.answers
    lab.view().complete(first.tokens[:1])
    lab.turn()
    assert waits.offsets == [3]
    assert lab.ask(1, group="other").offsets == [0]
    lab.turn(INVISIBLE_MS)
    again = lab.ask(32)
    assert again.offsets == [1, 2, 3], "what came back first, and no more"


def test_a_disabled_group_is_refused_and_a_removed_one_begins_anew(lab: GroupLab) -> None:
    lab.publish(numbers(0, 1))
    lab.settle(lab.ask(1))
    waits = lab.ask(1)
    lab.declare("g", GroupSettings(enabled=False))
    assert isinstance(waits.error, EntityDisabledError)
    with pytest.raises(EntityDisabledError):
        lab.ask(1)
    lab.broker.consumer_groups.remove("g")
    lab.turn()
    assert lab.ask(1).offsets == [0]


def test_a_new_group_begins_where_it_is_to(lab: GroupLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.publish(numbers(0, 2))
    lab.declare("last", GroupSettings(start=GroupStart.LAST))
    lab.declare("first", GroupSettings(start=GroupStart.FIRST))
    assert lab.receive(5, group="young").offsets == [0, 1]
    monkeypatch.setattr("headgate.broker.consumer_groups.group_views.YOUNG_BYTES", 10)
    assert lab.receive(5, group="old").offsets == []
    assert lab.receive(5, group="last").offsets == []
    assert lab.receive(5, group="first").offsets == [0, 1]
    lab.publish(numbers(2, 1))
    assert lab.receive(5, group="old").offsets == lab.receive(5, group="last").offsets == [2]
