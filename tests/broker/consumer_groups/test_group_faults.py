"""kill -9 at any instant while consumer groups receive, settle, fail, and give up messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from brokers import stored
from group_lab import number_of
from headgate.log import stream_folder
from headgate.message import Message
from log_streams import quick_folder
from nursery import Nursery, Words

from .group_child import FILTERS, MAX_ATTEMPTS, QUEUES, GroupLife, kind_of

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("group_child.py")
LIVES = 3


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(CHILD, CHILD.parent.parent.parent)
    yield nursery
    nursery.close()


@dataclass
class Known:
    """What is known of one message of one group."""

    attempt: int = 0
    until: int = 0
    asked: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def is_over(self, now: int) -> bool:
        """Whether it may be settled, or a dead letter."""
        ended = self.until <= now or "release" in self.asked or "change" in self.asked
        return bool(self.asked & {"settle", "dead letter"}) or (self.attempt >= MAX_ATTEMPTS and ended)


class Told:
    """What lives said, checked as it comes."""

    def __init__(self) -> None:
        self.now = 0
        self.confirmed = [0, 0]
        self.over_below: dict[tuple[int, str], int] = {}
        """Of each queue and message group: all below was over when it was looked at."""
        self.must_be_dead: set[tuple[int, int]] = set()
        self.known: dict[tuple[str, int], dict[int, Known]] = {
            (group, queue): {} for group in FILTERS for queue in range(len(QUEUES))
        }

    def take(self, words: Words) -> None:
        match words:
            case ["now", now]:
                assert now >= self.now, "the clock went back"
                self.now = now
            case ["published", queue, first, stop]:
                assert first <= self.confirmed[queue], "confirmed, and not what comes before it"
                self.confirmed[queue] = max(self.confirmed[queue], stop)
            case ["given", group, queue, until, numbers]:
                self.given(group, queue, until, numbers)
            case ["asked", group, queue, what, numbers]:
                for number in numbers:
                    self.known[group, queue][number].asked.add(what)
            case ["done", group, queue, what, numbers]:
                for number in numbers:
                    self.known[group, queue][number].done.add(what)
            case _:
                assert words == ["drained"], words

    def given(self, group: str, queue: int, until: int, numbers: list[tuple[int, int]]) -> None:
        known = self.known[group, queue]
        for number, attempt in numbers:
            each = known.setdefault(number, Known())
            assert not each.done & {"settle", "dead letter"}, "an acknowledged settlement holds"
            assert attempt > each.attempt and attempt <= MAX_ATTEMPTS, "attempts are never fewer than deliveries"
            may_be_back = each.until <= self.now or each.asked & {"release", "change"}
            assert may_be_back, "a claim holds until its time"
            assert FILTERS[group] is None or kind_of(queue, number)[0] == "red", "its filter does not take it"
        if group == "ordered":
            self.check_order(queue, [number for number, _ in numbers])
        for number, attempt in numbers:
            known[number] = Known(attempt, until)

    def check_order(self, queue: int, numbers: list[int]) -> None:
        """All that lies before a message in its message group is settled, or given with it."""
        known, together = self.known["ordered", queue], set(numbers)
        assert numbers == sorted(numbers), "given out of order"
        for group in {kind_of(queue, number)[1] for number in numbers}:
            last = max(number for number in numbers if kind_of(queue, number)[1] == group)
            start = self.over_below.get((queue, group), 0)
            for before in range(start, last):
                if kind_of(queue, before)[1] != group or before in together:
                    continue
                if before not in known or not known[before].is_over(self.now):
                    # It was claimed for who died before it was given, and that too often.
                    self.must_be_dead.add((queue, before))
            # A settlement that was asked for and not confirmed may not count: these may come again together.
            self.over_below[queue, group] = min(
                (n for n in range(start, last) if kind_of(queue, n)[1] == group and n in together), default=last
            )

    def check_everything(self, root: Path) -> None:
        """Nothing is lost, and what became a dead letter did so once."""
        for group in FILTERS:
            letters: Counter[tuple[int, int]] = Counter()
            name = f"%DLQ%{group}"
            if stream_folder(root, name).exists():
                for letter in stored(root, name):
                    letters[queue_of(letter), number_of(letter)] += 1
            assert all(count == 1 for count in letters.values()), "a dead letter came twice"
            if group == "ordered":
                assert self.must_be_dead <= set(letters), "out of the order of a message group"
            for queue in range(len(QUEUES)):
                known = self.known[group, queue]
                for number in range(self.confirmed[queue]):
                    if FILTERS[group] is not None and kind_of(queue, number)[0] != "red":
                        continue
                    each, is_dead = known.get(number), (queue, number) in letters
                    if each is None:
                        assert is_dead, "claimed for nobody but those who died, or never given"
                        continue
                    assert not (is_dead and "settle" in each.done), "settled, and a dead letter"
                    assert is_dead or "settle" in each.asked, "it is lost"
                    assert is_dead or "dead letter" not in each.done, "the dead letter is lost"


def queue_of(letter: bytes) -> int:
    annotations = Message.decode(letter).message_annotations
    assert annotations is not None
    return QUEUES.index(str(annotations["x-opt-deadletter-source"].value))


def one_round(nursery: Nursery, root: Path, seed: int, *, most_lines: int) -> None:
    """Some lives over one root, each killed, and one that receives what is left."""
    random = Random(seed)
    told = Told()
    life = GroupLife(str(root), seed, now=1_000_000, in_worker=random.random() < 0.5, to_disk=random.random() < 0.4)
    for _ in range(LIVES):
        instant = random.randint(1, random.choice([30, 200, most_lines]))
        by_itself = random.random() < 0.6
        life.last_write = instant // 2 + 1 if by_itself else 0
        for words in nursery.live(life, kill_after=None if by_itself else instant):
            told.take(words)
        life.now = told.now or life.now
        # What was not confirmed is published again, and known by its sequence.
        life.numbers = list(told.confirmed)
    life.drain, life.last_write = True, 0
    for words in nursery.live(life):
        told.take(words)
    told.check_everything(root)


@pytest.mark.parametrize("seed", range(8))
def test_kill_9_loses_nothing_and_doubles_nothing(nursery: Nursery, seed: int) -> None:
    with quick_folder() as folder:
        one_round(nursery, Path(folder), seed, most_lines=400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_300))
def test_kill_9_at_many_places(nursery: Nursery, seed: int) -> None:
    with quick_folder() as folder:
        one_round(nursery, Path(folder), seed, most_lines=3_000)
