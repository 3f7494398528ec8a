"""Drivers that die in the middle of a commit: after a restart the output is that of a run that nobody disturbed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headgate.log import OffsetSpecification, Stream, stream_folder
from headgate.log.crash_points import VARIABLE
from headgate.scan import Cursor, ScanRequest
from headgate.spark.route import declare_topic
from headgate.topic import Rule, Subscription, Topic
from headgate.topic.history import RuleHistory
from headgate.topic.router import Router

from ..log_streams import read_messages
from .conftest import order, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.faults]

COUNT = 600
DRIVER = Path(__file__).with_name("fault_driver.py")
EXPECTED = {
    "rows": {"out": [order(n) for n in range(0, COUNT, 3)]},
    "copy": {
        "out": [order(n) for n in range(0, COUNT, 3)],
        "high": [order(n) for n in range(0, COUNT, 3) if n % 10 > 4],
    },
}


def start(kind: str, folder: Path, crash_at: str) -> subprocess.Popen[bytes]:
    """A driver over `folder/root` and `folder/checkpoint`, leader of a process group that the JVM belongs to."""
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), kind, str(folder / "root"), str(folder / "checkpoint")],
            env={**os.environ, VARIABLE: crash_at},
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )


def drive(kind: str, folder: Path, crash_at: str = "") -> int:
    """Run a driver to its end, or its death; gives its exit status."""
    with start(kind, folder, crash_at) as driver:
        status = driver.wait(timeout=300)
    if not crash_at:
        died_of = folder / "root" / "died-of"
        assert status == 0, (died_of if died_of.exists() else folder / "errors").read_text()
    return status


OUTPUTS = 24


def topic(*, share: int) -> Topic:
    """Many subscriptions: shares of the numbers, one that asks for the time, and two whose copies are changed."""
    shares = [
        Subscription(f"share-{n}", (Rule("share", f"number % {share} = {n}", dialect="amqp"),))
        for n in range(OUTPUTS - 3)
    ]
    recent = Rule("recent", "p.creation_time > UTC() - 2500", dialect="amqp")
    named = Rule("named", "region = 'AMER'", "SET sys.MessageId = newid()")
    halved = Rule("halved", "number > 100 AND region = 'APJ'", f"SET number = number * {share}")
    return Topic(
        "in",
        (
            *shares,
            Subscription("recent", (recent,)),
            Subscription("named", (named, Rule("all", "region = 'AMER'"))),
            Subscription("halved", (halved,)),
        ),
    )


def routed(root: Path) -> dict[str, list[bytes]]:
    """What the rules make of the messages of the topic, without Spark."""
    stream = Stream.open(stream_folder(root, "in"))
    found: dict[str, list[bytes]] = {}
    with Cursor(stream, ScanRequest(), start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            if not len(batch):
                continue
            history = RuleHistory.load(stream)
            for piece in history.ranges(int(batch.offsets[0]), int(batch.offsets[-1]) + 1):
                part = np.flatnonzero((batch.offsets >= piece.start) & (batch.offsets < piece.stop))
                topic = history.at(piece.start)
                router = Router(topic, stream="in")
                copies = router.route(batch.messages.take(part), batch.offsets[part], batch.timestamps_ms[part])
                for place, subscription in enumerate(topic.subscriptions):
                    own = copies.messages(place)
                    found.setdefault(subscription.name, []).extend(own.message(row) for row in range(len(own)))
    return found


def expected(root: Path, kind: str) -> dict[str, list[bytes]]:
    return routed(root) if kind == "route" else EXPECTED[kind]


def content(root: Path, kind: str) -> dict[str, list[bytes]]:
    found = {}
    for name in expected(root, kind):
        folder = stream_folder(root, name)
        found[name] = [body for _, body in read_messages(Stream.open(folder))] if folder.exists() else []
    return found


POINTS = [
    ("copy", "staged"),
    ("copy", "published"),
    ("copy", "recorded"),  # between the two outputs of the batch
    ("route", "recorded:7"),  # between some of many outputs, behind a change of the rules
    ("rows", "appending"),  # abort is called after this commit, as after any that fails
]
MORE_POINTS = [
    ("copy", "appending:2"),
    ("copy", "appended:2"),
    ("copy", "finished"),
    ("copy", "completed"),
    ("route", "staged"),
    ("route", "published"),
    ("route", "appending:5"),
    ("route", "completed"),
    ("rows", "staged"),
    ("rows", "published"),
    ("rows", "appended"),
    ("rows", "recorded"),
    ("rows", "finished"),
    ("rows", "completed"),
]


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    """Copies a root and its checkpoint, as they are when the first half of the input is through, into a folder."""
    made: dict[str, Path] = {}

    def give(kind: str, folder: Path) -> None:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            write_stream(made[kind] / "root", "in", [order(n) for n in range(COUNT // 2)])
            if kind == "route":
                declare_topic(made[kind] / "root", topic(share=30))
            drive(kind, made[kind])
        shutil.copytree(made[kind], folder, dirs_exist_ok=True)
        if kind == "route":
            declare_topic(folder / "root", topic(share=40))
        write_stream(folder / "root", "in", [order(n) for n in range(COUNT // 2, COUNT)])

    return give


def check_restart(kind: str, folder: Path) -> None:
    root = folder / "root"
    for name, messages in content(root, kind).items():
        assert messages == expected(root, kind)[name][: len(messages)]
    drive(kind, folder)
    assert content(root, kind) == expected(root, kind)
    pending = [path for path in (root / ".headgate" / "commits").rglob("*.json") if path.name != "completed.json"]
    assert pending == []


def check_death_at(kind: str, step: str, folder: Path) -> None:
    assert drive(kind, folder, crash_at=step) == -signal.SIGKILL
    late = ("finished", "completed", "appended", "recorded")
    assert content(folder / "root", kind) != expected(folder / "root", kind) or step in late
    check_restart(kind, folder)


@pytest.mark.parametrize(("kind", "step"), POINTS)
def test_a_commit_that_dies_is_made_up_for_by_the_next_run(
    kind: str, step: str, tmp_path: Path, half_done: Callable[[str, Path], None]
) -> None:
    half_done(kind, tmp_path)
    check_death_at(kind, step, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "step"), MORE_POINTS)
def test_a_commit_that_dies_at_any_other_step_is_made_up_for(
    kind: str, step: str, tmp_path: Path, half_done: Callable[[str, Path], None]
) -> None:
    half_done(kind, tmp_path)
    check_death_at(kind, step, tmp_path)


def kill_when(kind: str, folder: Path, happened: Callable[[], bool]) -> None:
    """Kill driver and JVM together once something has happened; a commit that runs beside them is orphaned."""
    with start(kind, folder, crash_at="") as driver:
        deadline = time.monotonic() + 300
        while not happened() and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=0.002)
                break
        assert driver.poll() is None, "the driver ended before it could be killed"
        os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["copy", pytest.param("rows", marks=pytest.mark.long)])
def test_a_driver_killed_with_its_jvm_in_the_middle_of_a_batch_loses_and_repeats_nothing(
    kind: str, tmp_path: Path, half_done: Callable[[str, Path], None]
) -> None:
    half_done(kind, tmp_path)
    staging = tmp_path / "root" / ".headgate" / "staging"
    kill_when(kind, tmp_path, lambda: any(staging.rglob("*.chunks")))
    check_restart(kind, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("round_number", range(8))
def test_a_driver_killed_at_any_moment_loses_and_repeats_nothing(
    round_number: int, tmp_path: Path, half_done: Callable[[str, Path], None]
) -> None:
    half_done("copy", tmp_path)
    checkpoint = tmp_path / "checkpoint"
    batches = len(list((checkpoint / "offsets").iterdir()))
    wait = time.monotonic

    def happened() -> bool:
        begun = len(list((checkpoint / "offsets").iterdir())) > batches
        if begun and not marks:
            marks.append(wait() + round_number * 0.05)
        return bool(marks) and wait() > marks[0]

    marks: list[float] = []
    kill_when("copy", tmp_path, happened)
    check_restart("copy", tmp_path)
