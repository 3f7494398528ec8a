"""A standalone cluster from the installed Spark: the job of one process, unchanged, also when an executor dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

import headgate
from headgate.log import Stream, stream_folder
from headgate.spark.java import choose_java

from ..log_streams import read_messages
from .conftest import order, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

DRIVER = Path(__file__).with_name("cluster_driver.py")
COUNT = 2000
EXPECTED = [order(n) for n in range(COUNT) if n % 3 == 0 and n / 4 >= 10]
PRICES = sum(n / 4 for n in range(COUNT) if n % 3 == 0 and n / 4 >= 10)


def environment() -> dict[str, str]:
    """What every process of a cluster needs: this Python, this package, a Java that fits, the loopback."""
    java_home = choose_java(os.environ).java_home
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


def spark_class(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A daemon of Spark's, leader of a process group that its executors belong to; its log is `<name>.log`."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    role = "Master" if name == "master" else "Worker"
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(program), f"org.apache.spark.deploy.{role.lower()}.{role}", "--host", "127.0.0.1", *arguments],
            env=environment(),
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    address, log = f"spark://127.0.0.1:{port}", folder / "master.log"
    daemons = [spark_class(folder, "master", "--port", str(port), "--webui-port", str(free_port()))]
    try:
        wait_until(lambda: "I have been elected leader" in log.read_text(), daemons[0], log)
        for name in ("worker-1", "worker-2"):
            limits = ("--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), "--work-dir", str(folder))
            daemons.append(spark_class(folder, name, *limits, address))
        wait_until(lambda: log.read_text().count("Registering worker") == 2, daemons[0], log)
        yield address
    finally:
        for daemon in daemons:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


@contextlib.contextmanager
def driver(master: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job, begun; its log is `driver.log`."""
    write_stream(folder / "root", "in", [order(n) for n in range(COUNT)])
    (folder / "executors").touch()
    (folder / "gate").touch()
    with (folder / "driver.log").open("wb") as log:
        command = [sys.executable, str(DRIVER), master, str(folder / "root"), str(folder)]
        begun = subprocess.Popen(command, env=environment(), cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        yield begun
        assert begun.wait(timeout=900) == 0, (folder / "driver.log").read_text()[-6000:]
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
            begun.wait()


def executors(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "executors").read_text().split()]


def check_output(folder: Path) -> None:
    for name in ("copy", "rows"):
        assert [body for _, body in read_messages(Stream.open(stream_folder(folder / "root", name)))] == EXPECTED
    said = (folder / "driver.log").read_text()
    assert f"copied {len(EXPECTED)}" in said and f"summed {PRICES}" in said
    assert not list((folder / "root" / ".headgate" / "staging").rglob("*.chunks"))


def test_the_job_gives_on_a_cluster_what_it_gives_in_one_process(master: str, tmp_path: Path) -> None:
    for name, where in (("one", "local[2]"), ("many", master)):
        (tmp_path / name).mkdir()
        with driver(where, tmp_path / name):
            pass
        check_output(tmp_path / name)
    assert len(set(executors(tmp_path / "one"))) == 1
    assert len(set(executors(tmp_path / "many"))) == 2


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
