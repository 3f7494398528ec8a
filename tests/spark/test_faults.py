"""Commits and drivers that die in the middle of a batch: after a restart the output is that of an undisturbed run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headgate.log import OffsetSpecification, PublishedBatch, Stream, Writer, commit, stream_folder
from headgate.log.crash_points import VARIABLE, CommitStep
from headgate.scan import Cursor, ScanRequest
from headgate.spark import register, transfer
from headgate.spark.copy import HeadgateCopy
from headgate.spark.route import HeadgateRoute, declare_topic
from headgate.spark.source import HeadgateSource
from headgate.topic import Rule, Subscription, Topic
from headgate.topic.history import RuleHistory
from headgate.topic.router import Router

from ..log_streams import read_messages
from .conftest import order, write_stream
from .fault_driver import run_job

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


def drive(spark: SparkSession, kind: str, folder: Path) -> None:
    """Run a job over `folder/root` and `folder/checkpoint` to its end."""
    run_job(spark, kind, str(folder / "root"), str(folder / "checkpoint"))


def dying(source: type[DataSource], step: str) -> type[DataSource]:
    """The data source, whose commits end their process at a step as `kill -9` would; it is one of Spark's own."""

    class Dying(source):  # type: ignore[misc, valid-type]
        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            writer: DataSourceStreamWriter = super().streamWriter(schema, overwrite)
            commit = writer.commit

            def commit_or_die(messages: list[WriterCommitMessage | None], batch: int) -> None:
                os.environ[VARIABLE] = step
                commit(messages, batch)
                del os.environ[VARIABLE]

            writer.commit = commit_or_die  # type: ignore[method-assign]
            return writer

    return Dying


@contextlib.contextmanager
def commits_die_at(spark: SparkSession, step: str) -> Iterator[None]:
    for source in (HeadgateSource, HeadgateCopy, HeadgateRoute):
        spark.dataSource.register(dying(source, step))
    try:
        yield
    finally:
        register(spark)


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
def half_done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    """Copies a root and its checkpoint, as they are when the first half of the input is through, into a folder."""
    made: dict[str, Path] = {}

    def give(kind: str, folder: Path) -> None:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            write_stream(made[kind] / "root", "in", [order(n) for n in range(COUNT // 2)])
            if kind == "route":
                declare_topic(made[kind] / "root", topic(share=30))
            drive(spark, kind, made[kind])
        shutil.copytree(made[kind], folder, dirs_exist_ok=True)
        if kind == "route":
            declare_topic(folder / "root", topic(share=40))
        write_stream(folder / "root", "in", [order(n) for n in range(COUNT // 2, COUNT)])

    return give


def check_restart(spark: SparkSession, kind: str, folder: Path) -> None:
    root = folder / "root"
    for name, messages in content(root, kind).items():
        assert messages == expected(root, kind)[name][: len(messages)]
    drive(spark, kind, folder)
    assert content(root, kind) == expected(root, kind)
    pending = [path for path in (root / ".headgate" / "commits").rglob("*.json") if path.name != "completed.json"]
    assert pending == []


@pytest.mark.parametrize(
    ("kind", "step"), [*POINTS, *(pytest.param(*point, marks=pytest.mark.long) for point in MORE_POINTS)]
)
def test_a_commit_that_dies_is_made_up_for_by_the_next_run(
    spark: SparkSession, kind: str, step: str, tmp_path: Path, half_done: Callable[[str, Path], None]
) -> None:
    half_done(kind, tmp_path)
    with commits_die_at(spark, step), pytest.raises(StreamingQueryException, match="exited unexpectedly"):
        drive(spark, kind, tmp_path)
    late = ("finished", "completed", "appended", "recorded")
    assert content(tmp_path / "root", kind) != expected(tmp_path / "root", kind) or step in late
    check_restart(spark, kind, tmp_path)


def route_once(spark: SparkSession, root: Path) -> None:
    run_job(spark, "route once", str(root), "")


@pytest.fixture
def topic_root(tmp_path: Path) -> Path:
    """A topic whose messages are not routed yet, and the streams of its subscriptions."""
    root = tmp_path / "root"
    write_stream(root, "in", [order(n) for n in range(COUNT)])
    declare_topic(root, topic(share=30))
    return root


@pytest.mark.parametrize("step", ["appending:3", pytest.param("recorded:2", marks=pytest.mark.long)])
def test_a_task_that_dies_while_it_appends_its_share_leaves_the_rest_to_the_commit(
    spark: SparkSession, topic_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    begun, seen = tmp_path / "begun", list[int]()

    def dying(batch: PublishedBatch, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.spark.transfer import _append_share

        begun.touch()
        os.environ[VARIABLE] = step
        try:
            yield from _append_share(batch, shares)
        finally:
            del os.environ[VARIABLE]

    def watched(spark: SparkSession, batch: PublishedBatch) -> int:
        seen.append(append_in_tasks(spark, batch))
        return seen[-1]

    append_in_tasks = transfer._append_in_tasks
    monkeypatch.setattr(commit, "_SHARED_FROM", 2)
    monkeypatch.setattr(transfer, "_append_in_tasks", watched)
    with monkeypatch.context() as patched:
        patched.setattr(transfer, "_append_share", dying)
        route_once(spark, topic_root)
    assert begun.exists() and seen == [0]
    assert content(topic_root, "route") == expected(topic_root, "route")
    # Nobody dies: the job alone appends everything.
    route_once(spark, topic_root)
    assert seen[1] == len([name for name, messages in expected(topic_root, "route").items() if messages])
    assert content(topic_root, "route") == {name: 2 * own for name, own in expected(topic_root, "route").items()}
    private = [path for path in (topic_root / ".headgate").rglob("*") if path.suffix in (".json", ".chunks")]
    assert private == []


@pytest.mark.long
def test_what_a_driver_that_died_between_the_jobs_left_is_finished_by_the_next_writers(topic_root: Path) -> None:
    killed = subprocess.run(
        [sys.executable, str(DRIVER), "route once", str(topic_root), ""],
        env={**os.environ, VARIABLE: CommitStep.PUBLISHED},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not any(content(topic_root, "route").values())
    for name in expected(topic_root, "route"):
        Writer.open(Stream.open(stream_folder(topic_root, name)), now_ms=0).close()
    assert content(topic_root, "route") == expected(topic_root, "route")


def kill_when(kind: str, folder: Path, happened: Callable[[], bool], *, may_end: bool = False) -> None:
    """Kill driver and JVM together once something has happened; a commit that runs beside them is orphaned.

    If it `may_end`, the job may be done before.
    """
    errors = folder / "errors"
    with errors.open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(DRIVER), kind, str(folder / "root"), str(folder / "checkpoint")],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with driver:
        deadline = time.monotonic() + 300
        while not happened() and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=0.002)
                break
        assert driver.poll() in ((None, 0) if may_end else (None,)), errors.read_text()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["copy", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("route", "rows"))])
def test_a_driver_killed_with_its_jvm_in_the_middle_of_a_batch_loses_and_repeats_nothing(
    spark: SparkSession, kind: str, tmp_path: Path, half_done: Callable[[str, Path], None]
) -> None:
    half_done(kind, tmp_path)
    staging = tmp_path / "root" / ".headgate" / "staging"
    kill_when(kind, tmp_path, lambda: any(staging.rglob("*.chunks")))
    check_restart(spark, kind, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["copy", "route", "rows"])
@pytest.mark.parametrize("round_number", range(34))
def test_a_driver_killed_at_any_moment_loses_and_repeats_nothing(
    spark: SparkSession,
    kind: str,
    round_number: int,
    tmp_path: Path,
    half_done: Callable[[str, Path], None],
    seed: int,
) -> None:
    half_done(kind, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    batches = len(list((checkpoint / "offsets").iterdir()))
    after_s = Random(f"{seed} {kind} {round_number}").uniform(0, 0.6)
    begun_s: list[float] = []

    def happened() -> bool:
        if not begun_s and len(list((checkpoint / "offsets").iterdir())) > batches:
            begun_s.append(time.monotonic())
        return bool(begun_s) and time.monotonic() > begun_s[0] + after_s

    kill_when(kind, tmp_path, happened, may_end=True)
    check_restart(spark, kind, tmp_path)
