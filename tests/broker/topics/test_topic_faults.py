"""kill -9 at any instant while a topic publishes, decides, gives out, settles, moves and changes its rules."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from log_streams import quick_folder

from .topic_checker import Told, Words, check_everything
from .topic_child import Life

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("topic_child.py")
LIVES = 3


class Nursery:
    """A process that has imported everything, and is forked for each life."""

    def __init__(self) -> None:
        paths = [str(CHILD.parent), str(CHILD.parent.parent.parent), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def live(self, life: Life, *, kill_after: int | None = None) -> Iterator[Words]:
        """What a life says; it is killed after so many lines, None: when it wants, or not at all."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(dataclasses.asdict(life)).encode() + b"\n")
        self.process.stdin.flush()
        pid = json.loads(self.process.stdout.readline())[1]
        status: int | None = None
        try:
            for number, words in enumerate(self._said()):
                if words[0] == "ended":
                    status = words[1]
                    break
                yield words
                if number == kill_after:
                    os.kill(pid, signal.SIGKILL)
            assert status == (0 if life.drain else signal.SIGKILL)
        finally:
            if status is None:
                os.kill(pid, signal.SIGKILL)
                while next(self._said())[0] != "ended":
                    pass

    def _said(self) -> Iterator[Words]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last one of who is killed may be cut.
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
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
