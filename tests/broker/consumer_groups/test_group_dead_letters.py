"""Dead letters of consumer groups are resubmitted to the queues that they came from, or elsewhere, each once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import stored
from group_lab import GroupLab, message, number_of
from headgate.broker import Job, JobState, Permissions, Resubmission
from headgate.errors import AccessRefusedError, HeadgateError, PreconditionFailedError, ResourceNotFoundError
from headgate.ledger import copy_number
from headgate.message import Message
from log_streams import FailingFiles, Killed, killed_process, quick_folder

LETTERS = "%DLQ%g"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[GroupLab]:
    lab = GroupLab(tmp_path, queues=2)
    yield lab
    lab.broker.close()


def dead_letters(lab: GroupLab, count: int = 4) -> None:
    """Messages by turns to both queues, which the group gives up."""
    for number in range(count):
        lab.publish([message(number)], queue=number % 2)
    for queue, name in enumerate(lab.streams):
        asked = lab.receive(streams=[name])
        lab.broker.consumer_groups.view(name, "g").dead_letter(asked.tokens)
        lab.turn()
        assert len(asked.tokens) == (count + 1 - queue) // 2


def resubmit(lab: GroupLab, to: str | None = None, **more: object) -> Job:
    job = lab.session.resubmit_of_group("g", Resubmission(to, **more))
    for _ in range(5):
        lab.turn(after_ms=100)
    return job


def left(lab: GroupLab) -> list[int]:
    letters = lab.session.group_dead_letters("g")
    return [] if letters is None else [number_of(each.message) for each in letters.peek(0, 100)[0]]


def numbers(lab: GroupLab, name: str) -> list[int]:
    return [number_of(each) for each in stored(lab.root, name)]


def told(job: Job) -> tuple[JobState, int, int]:
    return job.state, job.done, job.failed


def test_each_goes_back_to_the_queue_that_it_came_from(lab: GroupLab) -> None:
    dead_letters(lab)
    assert left(lab) == [0, 2, 1, 3]
    assert told(resubmit(lab, properties={"fixed": True})) == (JobState.DONE, 4, 0)
    assert (numbers(lab, "q0"), numbers(lab, "q1")) == ([0, 2, 0, 2], [1, 3, 1, 3])
    again = Message.decode(stored(lab.root, "q0")[-1])
    assert again.application_properties["fixed"].value is True
    assert list(again.message_annotations) == ["x-headgate-resubmissions"]
    # The stream of the dead letters keeps them for who consumes it.
    assert (left(lab), numbers(lab, LETTERS)) == ([], [0, 2, 1, 3])
    assert sorted(number_of(each.message) for each in lab.receive().messages) == [0, 1, 2, 3]
    lab.restart()
    assert left(lab) == []
    assert [view.group for view in lab.broker.consumer_groups.views.views(LETTERS)] == []


def test_chosen_ones_go_elsewhere_and_are_deleted(lab: GroupLab) -> None:
    lab.session.declare_stream("plain", {})
    dead_letters(lab)
    chosen = [copy_number(offset) for offset in (1, 2, 9)]
    assert told(resubmit(lab, "plain", copies=chosen)) == (JobState.DONE, 2, 1)
    assert (numbers(lab, "plain"), left(lab)) == ([2, 1], [0, 3])
    answers: list[int | HeadgateError] = []
    lab.session.delete_dead_letters_of_group("g", [0, copy_number(1)], answers.append)
    lab.turn()
    assert (answers, left(lab)) == ([1], [3])
    lab.session.delete_dead_letters_of_group("g", None, answers.append)
    lab.turn()
    assert (answers, left(lab)) == ([1, 1], [])
    with pytest.raises(PreconditionFailedError):
        lab.session.resubmit_of_group("g", Resubmission("%DLQ%other"))


def test_what_its_queue_does_not_take_any_more_stays(lab: GroupLab) -> None:
    dead_letters(lab)
    lab.session.delete_stream("q1")
    lab.turn()
    job = resubmit(lab)
    assert (told(job), left(lab)) == ((JobState.DONE, 2, 2), [1, 3])
    assert job.error is not None
    assert "the queues that they came from take none" in job.error


def test_what_its_queue_refuses_on_the_way_comes_back(lab: GroupLab) -> None:
    dead_letters(lab, 2)
    q0 = lab.broker.catalogue.get("q0")
    q0.is_writing = True
    assert resubmit(lab).state is JobState.RUNNING
    q0.is_writing = False
    lab.session.delete_stream("q0")
    for _ in range(3):
        lab.turn(after_ms=10_000)
    assert (numbers(lab, "q1"), left(lab)) == ([1, 1], [0])
    assert lab.broker.catalogue.find("q0") is None


def test_the_right_to_write_counts_for_each_topic(lab: GroupLab) -> None:
    dead_letters(lab)
    lab.broker.users.add("ann", "secret", permissions=Permissions("", "^q0$", "^g$"))
    lab.broker.users.add("bob", "secret", permissions=Permissions(".*", ".*", "^q"))
    ann, bob = (lab.broker.open_session(user, protocol="test", connection=user) for user in ("ann", "bob"))
    with pytest.raises(AccessRefusedError):
        bob.resubmit_of_group("g", Resubmission(None))
    with pytest.raises(AccessRefusedError):
        ann.resubmit_of_group("g", Resubmission("q1"))
    job = ann.resubmit_of_group("g", Resubmission(None))
    for _ in range(5):
        lab.turn(after_ms=100)
    assert (told(job), left(lab)) == ((JobState.DONE, 2, 2), [1, 3])


def test_a_group_without_dead_letters_has_nothing_to_resubmit(lab: GroupLab) -> None:
    with pytest.raises(ResourceNotFoundError, match="no such consumer group"):
        resubmit(lab)
    lab.receive()
    assert told(resubmit(lab)) == (JobState.DONE, 0, 0)
    assert lab.broker.catalogue.find(LETTERS) is None


def test_a_kill_at_any_write_loses_nothing_and_publishes_nothing_twice() -> None:
    with quick_folder() as name:
        root = Path(name) / "root"
        lab = GroupLab(root)
        lab.publish([message(number) for number in range(3)])
        asked = lab.receive()
        lab.view().dead_letter(asked.tokens)
        lab.turn()
        lab.broker.close()
        budget, is_done, published = 0, False, set()
        while not is_done:
            copy = shutil.copytree(root, Path(name) / "copy")
            with killed_process():
                killed = GroupLab(copy, open_file=FailingFiles(Killed(), budget=budget))
                resubmit(killed)
                is_done = True
            found = GroupLab(shutil.copytree(copy, Path(name) / "found"))
            for _ in range(3):
                found.turn(after_ms=1_000)
            again = numbers(found, "q0")[3:]
            published.add(len(again))
            assert sorted([*again, *left(found)]) == [0, 1, 2]
            resubmit(found)
            assert sorted(numbers(found, "q0")[3:]) == [0, 1, 2]
            found.broker.close()
            for each in ("copy", "found"):
                shutil.rmtree(Path(name) / each)
            budget += 61
        assert published == {0, 3}
