"""A standalone cluster from the installed Spark: the commands of docs/howto/cluster.md, and what dies there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import headgate
from headgate.log import Stream, stream_folder
from headgate.log.lock import StreamLock
from headgate.spark.java import choose_java

from ..log_streams import read_messages
from .cluster_driver import SHARES
from .conftest import NOW_MS, order, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.faults]

PROJECT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("cluster_driver.py")
COUNT = 2000
EXPECTED = [order(n) for n in range(COUNT) if n % 3 == 0 and n / 4 >= 10]
PRICES = sum(n / 4 for n in range(COUNT) if n % 3 == 0 and n / 4 >= 10)


def environment() -> dict[str, str]:
    """What every process of a cluster needs: this Python, this package, a Java that fits, the loopback."""
    java_home = choose_java().java_home
    found = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    found["PYTHONPATH"] = str(Path(headgate.__file__).parents[1])
    return found if java_home is None else {**found, "JAVA_HOME": str(java_home)}


def wait_until(happened: Callable[[], bool], beside: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for something that happens beside a process, for as long as the process lives."""
    deadline = time.monotonic() + 900
    while not happened():
        with contextlib.suppress(subprocess.TimeoutExpired):
            beside.wait(timeout=0.05)
        assert beside.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def commands(section: str) -> str:
    """The commands of a section of the page."""
    page = (PROJECT / "docs" / "howto" / "cluster.md").read_text(encoding="utf-8")
    (text,) = (each for each in page.split("\n## ") if each.startswith(section))
    return "\n".join(re.findall("^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master with two workers of one core each, as the page starts them in `folder`, and how a job is submitted."""

    folder: Path
    master: str
    submit: str
    group: int

    def executors(self) -> list[int]:
        """The JVMs of all executors that are alive."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if (
                    b"CoarseGrainedExecutorBackend" in path.read_bytes()
                    and os.getpgid(int(path.parent.name)) == self.group
                ):
                    found.append(int(path.parent.name))
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "examples").symlink_to(PROJECT / "examples")
    text = commands("A standalone cluster").replace("7077", str(port)).replace("/tmp/spark-work", str(folder / "work"))
    for ui in ("8080", "8081", "8082"):
        text = text.replace(ui, str(free_port()))
    start, submit = text.split("# The job\n")
    log = folder / "daemons.log"
    with log.open("wb") as written:
        # Leader of a process group that the daemons and their executors belong to.
        daemons = subprocess.Popen(
            ["bash", "-ec", f"{start}\nwait"],
            env=environment(),
            cwd=folder,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        wait_until(lambda: log.read_text().count("Successfully registered with master") == 2, daemons, log)
        yield Cluster(folder, f"spark://127.0.0.1:{port}", submit, daemons.pid)
    finally:
        os.killpg(daemons.pid, signal.SIGKILL)
        daemons.wait()


@pytest.fixture(scope="module")
def master(cluster: Cluster) -> str:
    return cluster.master


@contextlib.contextmanager
def driver(
    master: str, folder: Path, *, job: str = "job", root: Path | None = None, checkpoint: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A job, or with a checkpoint the query, begun; its log is `driver.log`. It must end well unless it is killed."""
    if root is None:
        root = folder / "root"
        write_stream(root, "in", [order(n) for n in range(COUNT)])
    (folder / "executors").touch()
    (folder / "gate").touch()
    with (folder / "driver.log").open("wb") as log:
        what = [job] if checkpoint is None else ["query", str(checkpoint)]
        command = [sys.executable, str(DRIVER), master, str(root), str(folder), *what]
        begun = subprocess.Popen(command, env=environment(), cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        yield begun
        if begun.returncode is None:
            assert begun.wait(timeout=900) == 0, (folder / "driver.log").read_text()[-6000:]
    finally:
        if begun.poll() is None:
            kill(begun)


def kill(begun: subprocess.Popen[bytes]) -> None:
    """End a driver as its machine would: with its JVM, and the JVM's Python workers, which lead groups of their own."""
    family = [begun.pid]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
        family += [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in children(task)]
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    begun.wait()


def children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def executors(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "executors").read_text().split()]


def check_output(folder: Path) -> None:
    for name in ("copy", "rows"):
        assert messages_of(folder / "root", name) == EXPECTED
    said = (folder / "driver.log").read_text()
    assert f"copied {len(EXPECTED)}" in said and f"summed {PRICES}" in said
    assert not list((folder / "root" / ".headgate" / "staging").rglob("*.chunks"))


def messages_of(root: Path, name: str) -> list[bytes]:
    return [body for _, body in read_messages(Stream.open(stream_folder(root, name)))]


def test_the_commands_of_the_page_run_as_they_stand(cluster: Cluster) -> None:
    done = subprocess.run(
        ["bash", "-ec", cluster.submit],
        env=environment(),
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    events = parquet.read_table(cluster.folder / "shared" / "events.parquet", columns=["region", "price"]).to_pylist()
    wanted = sum(event["region"] == "AMER" and (event["price"] or 0) > 100 for event in events)
    assert f"messages copied: {wanted}\n" in done.stdout
    assert len(messages_of(cluster.folder / "shared" / "streams", "amer")) == wanted > 100


@pytest.mark.long
def test_the_job_gives_on_a_cluster_what_it_gives_in_one_process(master: str, tmp_path: Path) -> None:
    for name, where in (("one", "local[2]"), ("many", master)):
        (tmp_path / name).mkdir()
        with driver(where, tmp_path / name):
            pass
        check_output(tmp_path / name)
    assert len(set(executors(tmp_path / "one"))) == 1
    assert len(set(executors(tmp_path / "many"))) == 2


@pytest.mark.long
def test_an_executor_that_dies_while_it_writes_leaves_the_output_unchanged(master: str, tmp_path: Path) -> None:
    with (tmp_path / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        with driver(master, tmp_path) as begun:
            wait_until(lambda: len(set(executors(tmp_path))) == 2, begun, tmp_path / "driver.log")
            killed = executors(tmp_path)[0]
            os.kill(killed, signal.SIGKILL)
            fcntl.flock(gate, fcntl.LOCK_UN)
    check_output(tmp_path)
    seen = executors(tmp_path)
    assert len(seen) > 8, "no task was done again"
    assert killed not in seen[2:]


@pytest.mark.long
def test_executors_that_die_while_they_append_leave_the_output_unchanged(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "root"
    held = write_stream(root, "share-0", [])
    last = f"share-{SHARES - 1}"
    # One task of the second job waits for this lock, the other goes on to the last stream.
    with StreamLock.acquire(held.path, now_ms=NOW_MS) as lock, driver(cluster.master, tmp_path, job="shares") as begun:
        appended = stream_folder(root, last)
        wait_until(lambda: appended.exists() and messages_of(root, last) != [], begun, tmp_path / "driver.log")
        killed = cluster.executors()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        lock.release()
    assert len(killed) == 2
    for n in range(SHARES):
        assert messages_of(root, f"share-{n}") == [order(number) for number in range(n, COUNT, SHARES)]
    assert not list((root / ".headgate").rglob("*.chunks"))


@pytest.mark.long
def test_a_batch_that_is_decided_when_its_driver_dies_is_there_once(master: str, tmp_path: Path) -> None:
    root, checkpoint, log = tmp_path / "root", tmp_path / "checkpoint", tmp_path / "driver.log"
    out = write_stream(root, "query", [])
    commits = root / ".headgate" / "commits"
    # The commit waits for the stream's lock after it has published what the batch is.
    with StreamLock.acquire(out.path, now_ms=NOW_MS), driver(master, tmp_path, checkpoint=checkpoint) as begun:
        wait_until(lambda: any(commits.glob("*/0.json")), begun, log)
        kill(begun)
    assert messages_of(root, "query") == []
    with driver(master, tmp_path, root=root, checkpoint=checkpoint):
        pass
    assert messages_of(root, "query") == EXPECTED
    assert not list((root / ".headgate" / "staging").rglob("*.chunks"))


@pytest.mark.long
def test_a_driver_that_comes_back_after_another_did_its_work_adds_nothing(master: str, tmp_path: Path) -> None:
    """Nothing refuses the second driver of a query of Spark's own: both run the same batch, and Spark ends one."""
    checkpoint, other = tmp_path / "checkpoint", tmp_path / "other"
    other.mkdir()
    with (tmp_path / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        with driver(master, tmp_path, checkpoint=checkpoint) as begun:
            wait_until(lambda: executors(tmp_path) != [], begun, tmp_path / "driver.log")
            with driver(master, other, root=tmp_path / "root", checkpoint=checkpoint):
                pass
            assert messages_of(tmp_path / "root", "query") == EXPECTED
            fcntl.flock(gate, fcntl.LOCK_UN)
            assert begun.wait(timeout=900) == 1
    assert "CONCURRENT_STREAM_LOG_UPDATE" in (tmp_path / "driver.log").read_text()
    assert messages_of(tmp_path / "root", "query") == EXPECTED
    assert not list((tmp_path / "root" / ".headgate" / "staging").rglob("*.chunks"))
