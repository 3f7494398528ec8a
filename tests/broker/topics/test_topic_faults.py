"""kill -9 at any instant while a topic publishes, decides, gives out, settles, moves and changes its rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from log_streams import quick_folder
from nursery import Nursery

from .topic_checker import Told, check_everything
from .topic_child import Life

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("topic_child.py")
LIVES = 3


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(CHILD, CHILD.parent.parent.parent)
    yield nursery
    nursery.close()


def one_round(nursery: Nursery, root: Path, seed: int, *, most_lines: int) -> None:
    """Some lives over one root, each killed, and one that receives what is left."""
    random = Random(seed)
    told = Told()
    life = Life(
        str(root),
        seed,
        now=1_000_000,
        sequences={"p": 0, "q": 0, "nobody": 0},
        in_worker=random.random() < 0.5,
        to_disk=random.random() < 0.3,
    )
    for _ in range(LIVES):
        instant = random.randint(1, random.choice([30, 200, most_lines]))
        by_itself = random.random() < 0.6
        life.last_write = instant // 2 + 1 if by_itself else 0
        for words in nursery.live(life, kill_after=None if by_itself else instant):
            told.take(words)
        told.after_a_death(root)
        life.now = told.now or life.now
        life.change = max(told.changing, default=0) + 1
        for who in life.sequences:
            # What was not confirmed is sent again; the topic knows it by sequences, or by message ids.
            life.sequences[who] = max((stop for _, stop in told.published[who]), default=0)
    life.drain, life.last_write = True, 0
    for words in nursery.live(life):
        if words != ["drained"]:
            told.take(words)
    check_everything(root, told)


@pytest.mark.parametrize("seed", range(10))
def test_kill_9_loses_nothing_and_doubles_nothing(nursery: Nursery, seed: int) -> None:
    with quick_folder() as folder:
        one_round(nursery, Path(folder), seed, most_lines=400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_300))
def test_kill_9_at_many_places(nursery: Nursery, seed: int) -> None:
    with quick_folder() as folder:
        one_round(nursery, Path(folder), seed, most_lines=3_000)
