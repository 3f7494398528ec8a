"""Live load by RabbitMQ's own Java clients for `broker_live.py`: perf-test unmodified, and its stream client.

Maven fetches them on first use (`benchmarks/java/pom.xml`).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import ARTIFACTS
from live_load import BODY_BYTES, MAX_UNCONFIRMED, Window
from live_peers import Address, created, declared

PROJECT = Path(__file__).resolve().parent / "java"
OUTPUT = ARTIFACTS / "java"
WARM_UP_S = 6
"""The Java machine compiles what is called often meanwhile."""

JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
SECOND = re.compile(
    r"time ([\d.]+) s, sent: (\d+) msg/s, .*received: (\d+) msg/s, min/median/75th/95th/99th "
    r"consumer latency: \d+/(\d+)/\d+/\d+/(\d+) µs, confirm latency: \d+/(\d+)/\d+/\d+/(\d+) µs"
)


def build() -> str | None:
    """Fetch and compile the clients if that was not done; the reason if it cannot be done on this machine."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return "Java and Maven are not installed"
    sources = [PROJECT / "pom.xml", *PROJECT.glob("src/main/java/*.java")]
    done = OUTPUT / "done"
    if done.exists() and all(source.stat().st_mtime < done.stat().st_mtime for source in sources):
        return None
    goals = ("compile", "dependency:copy-dependencies")
    command = ["mvn", "--quiet", "--batch-mode", "-f", str(PROJECT / "pom.xml"), f"-Doutput={OUTPUT}", *goals]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        return f"Maven cannot fetch the clients: {ended.stdout[-300:]}"
    done.touch()
    return None


@contextlib.contextmanager
def java(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the fetched libraries, ended at the latest with the context."""
    classes = f"{OUTPUT / 'classes'}:{OUTPUT / 'libraries'}/*"
    command = [*JAVA, "-cp", classes, *arguments]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def stream_client(
    addresses: dict[str, Address], server_pid: int, *, pairs: int, rate: int, seconds: int
) -> dict[str, float]:
    """The figures of one round of the stream client."""
    host, port = addresses["stream"]
    with contextlib.ExitStack() as stack:
        prefix = created(stack, addresses["stream"], pairs)[0].removesuffix("0")
        load = (str(value) for value in (host, port, prefix, pairs, rate, WARM_UP_S, seconds))
        process = stack.enter_context(java("StreamLoad", *load))
        window = Window(server_pid, process.pid)
        figures: dict[str, float] = {}
        for line in process.stdout or ():
            if line == "measuring\n":
                window.open()
            elif line == "measured\n":
                figures |= window.close()
            elif line.startswith("{"):
                figures.update(json.loads(line))
                return figures
    raise SystemExit("the Java stream client ended early")


def perf_test(
    addresses: dict[str, Address], server_pid: int, *, pairs: int, rate: int, seconds: int
) -> dict[str, float]:
    """The figures of one round of perf-test, medians of what it says each second."""
    host, port = addresses["amqp"]
    with contextlib.ExitStack() as stack:
        prefix = declared(stack, addresses["amqp"], "perf-test", pairs)[0].removesuffix("0")
        options = {
            "--uri": f"amqp://guest:guest@{host}:{port}",
            "--producers": pairs,
            "--consumers": pairs,
            "--queue-pattern": f"{prefix}%d",
            "--queue-pattern-from": 0,
            "--queue-pattern-to": pairs - 1,
            "--exchange": "",
            "--rate": rate // pairs,
            "--confirm": MAX_UNCONFIRMED,
            "--size": BODY_BYTES,
            "--time": WARM_UP_S + seconds + 1,
        }
        given = [str(word) for option in options.items() for word in option]
        flags = ("--stream-queue", "--predeclared", "--skip-binding-queues")
        process = stack.enter_context(java("com.rabbitmq.perf.PerfTest", *flags, *given))
        window = Window(server_pid, process.pid)
        measured: list[tuple[int, ...]] = []
        is_open = False
        before_s = backlog = 0.0
        for line in process.stdout or ():
            if (found := SECOND.search(line)) is None:
                continue
            now_s, sent, received = float(found[1]), int(found[2]), int(found[3])
            backlog += (now_s - before_s) * (sent - received)
            before_s = now_s
            if is_open:
                measured.append(tuple(map(int, found.groups()[3:])))
            elif now_s > WARM_UP_S - 0.5:
                is_open = True
                window.open()
            if len(measured) == seconds:
                figures = window.close()
                names = ("delivery_p50_ms", "delivery_p99_ms", "confirm_p50_ms", "confirm_p99_ms")
                for name, column in zip(names, zip(*measured, strict=True), strict=True):
                    figures[name] = statistics.median(column) / 1e3
                return figures | {"backlog": max(0.0, backlog)}
    raise SystemExit("perf-test ended early")


LOADS: dict[str, Callable[..., dict[str, float]]] = {"stream": stream_client, "amqp091": perf_test}
"""By protocol."""
