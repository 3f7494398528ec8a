"""Processes that live until they are killed, for tests of what is left: forked of one that has imported everything."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from headgate.log import DiskFile

Words = list[Any]


class Life(Protocol):
    """What a life begins with, a dataclass of JSON: where, and how it ends."""

    seed: int
    last_write: int
    """It dies in the middle of this write to a file; 0: not by itself."""
    drain: bool
    """It ends by itself, when it has received all that is left."""


class DyingFile(DiskFile):
    """A file of a process that dies in the middle of a write: of the first part of it, of all, or of nothing."""

    def __init__(self, path: Path, *, life: Life, writes: Iterator[int]) -> None:
        super().__init__(path)
        self._life = life
        self._writes = writes

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        life = self._life
        if next(self._writes) == life.last_write:
            super().write(memoryview(data)[: len(data) * (life.seed % 3) // 2], position)
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(data, position)


def dying(life: Life) -> Callable[[Path], DyingFile]:
    """Opens the files of a life."""
    writes = itertools.count(1)
    return lambda path: DyingFile(path, life=life, writes=writes)


def say(*words: object) -> None:
    """One line of what a life tells."""
    os.write(1, json.dumps(words).encode() + b"\n")


def serve_lives(live: Callable[[dict[str, Any]], None]) -> None:
    """The child's side: a life for each line of the input, forked, because starting a process takes longer than most.

    It says `pid P` first and `ended STATUS` last.
    """
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            say("pid", os.getpid())
            live(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"\n")
        say("ended", status)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What is said inside is heard by nobody."""
    said = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        yield
    os.dup2(said, 1)
    os.close(said)


class Nursery:
    """A process that has imported everything, and is forked for each life."""

    def __init__(self, child: Path, *paths: Path) -> None:
        python_path = [str(child.parent), *map(str, paths), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, str(child)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, python_path))},
        )

    def live(self, life: Life, *, kill_after: int | None = None) -> Iterator[Words]:
        """What a life says; it is killed after so many lines, None: when it wants, or not at all."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(dataclasses.asdict(life)).encode() + b"\n")  # type: ignore[call-overload]
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
            expected = 0 if life.drain else signal.SIGKILL
            assert status == expected, f"the life ended with status {status}, not {expected}: see its standard error"
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
