"""Consumer groups of RocketMQ's clients: the fate of a message in the ledger of a queue, with the expression."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_lab import INVISIBLE_MS, GroupLab, message
from headgate.broker.consumer_groups import GroupSettings
from headgate.derived.match_index import Announcement
from headgate.evaluate import Filter
from headgate.trace import ConnectedConsumer, ConsumerAnswer, ConsumerKind, Facts, Fate, State
from log_streams import quick_folder
from questions import asked, asked_for

SMALL = Filter.parse("n < 2", "rocketmq")


@pytest.fixture
def lab() -> Iterator[GroupLab]:
    with quick_folder() as folder:
        lab = GroupLab(Path(folder))
        yield lab
        lab.broker.close()


def of(lab: GroupLab, offset: int, group: str = "g", **more: object) -> ConsumerAnswer:
    return asked_for(lab.root, lab.clock, group, name="q0", offset=offset, **more)


def test_a_message_is_claimed_comes_again_and_is_acknowledged(lab: GroupLab) -> None:
    lab.publish([message(number, n=number) for number in range(3)])
    given = lab.receive(2)
    lab.settle(given)
    lab.receive(1)
    assert [of(lab, offset).fate for offset in range(3)] == [Fate.COMPLETED, Fate.COMPLETED, Fate.CLAIMED]
    assert of(lab, 2).kind is ConsumerKind.GROUP
    assert of(lab, 2).steps[2].state is State.UNKNOWN
    lab.turn(after_ms=INVISIBLE_MS)
    again = of(lab, 2)
    assert (again.fate, again.copies[0].attempts) == (Fate.AVAILABLE, 1)
    lab.publish([message(3, n=3)])
    assert of(lab, 3).fate is Fate.AHEAD


def test_what_the_filter_of_a_member_left_out_is_passed_over(lab: GroupLab) -> None:
    lab.publish([message(number, n=number) for number in range(4)])
    lab.settle(lab.receive(only=SMALL))
    lab.view().note_passed()
    lab.turn()
    assert of(lab, 3).fate is Fate.FILTERED_OUT
    reader = ConnectedConsumer("q0", "g", protocol="consumer group", filter=SMALL)
    known = of(lab, 3, facts=Facts(is_known=True, readers=(reader,)))
    assert (known.fate, known.decisions[0].verdict) == (Fate.FILTERED_OUT, "false")


def test_the_registered_expression_of_a_group_is_in_force_since_its_time(lab: GroupLab) -> None:
    lab.publish([message(number, n=number) for number in range(3)])
    lab.clock.now += 1_000
    lab.broker.expressions.announce("g", "c", {"q0": Announcement("n < 2", "rocketmq", 1)})
    lab.turn(after_ms=1_000)
    lab.publish([message(3, n=3)])
    lab.settle(lab.receive(only=SMALL))
    assert of(lab, 0).steps[2].state is State.UNKNOWN
    found = of(lab, 3)
    assert found.steps[2].state is State.YES
    assert (found.fate, found.decisions[0].language) == (Fate.FILTERED_OUT, "rocketmq")


def test_too_many_attempts_make_a_dead_letter_that_is_found(lab: GroupLab) -> None:
    lab.declare("g", GroupSettings(max_attempts=1))
    lab.publish([message(0), message(1)])
    lab.receive(1)
    lab.turn(after_ms=INVISIBLE_MS)
    lab.turn()
    found = of(lab, 0)
    assert (found.fate, found.copies[0].target, found.copies[0].target_offset) == (Fate.DEAD_LETTERED, "%DLQ%g", 0)


def test_dead_letters_of_two_queues_with_the_same_offset_are_told_apart(tmp_path: Path) -> None:
    lab = GroupLab(tmp_path, queues=2)
    lab.declare("g", GroupSettings(max_attempts=1))
    for queue in (0, 1):
        lab.publish([message(0)], queue)
    lab.receive(2)
    for _ in range(3):
        lab.turn(after_ms=INVISIBLE_MS)
    places = [asked_for(lab.root, lab.clock, "g", name=f"q{queue}", offset=0).copies[0] for queue in (0, 1)]
    lab.broker.close()
    assert {each.target_offset for each in places} == {0, 1}, places


def test_a_declared_group_that_never_read_the_queue_has_no_place(lab: GroupLab) -> None:
    lab.declare("idle", GroupSettings())
    lab.publish([message(0)])
    found = of(lab, 0, "idle")
    assert (found.fate, "no place in this queue" in found.summary) == (Fate.BEFORE, True)


def test_a_group_that_begins_behind_the_message_never_gets_it(lab: GroupLab) -> None:
    lab.publish([message(0), message(1)])
    lab.broker.consumer_groups.views.view_from("q0", "late", 1)
    lab.turn()
    assert of(lab, 0, "late").fate is Fate.BEFORE
    assert [each.name for each in asked(lab.root, lab.clock, "q0", offset=0).consumers] == ["late"]


def test_the_queues_of_a_topic_are_searched_together(lab: GroupLab) -> None:
    lab.broker.message_topics.create("shop", queues=3)
    for queue in range(3):
        lab.streams = (f"shop-{queue}",)
        lab.publish([message(queue, n=queue)])
    found = asked(lab.root, lab.clock, "shop", where="n = 2")
    assert (found.stream, found.message.offset if found.message else None) == ("shop-2", 0)
