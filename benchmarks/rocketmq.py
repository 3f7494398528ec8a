"""Groups of RocketMQ that filter by SQL92, through the network, beside RocketMQ itself in the same run.

The case: messages with a body of 1 KB and 1 KB of properties in a topic of four queues, sent one by one from four
threads and in batches, then taken by five groups, each a fifth of them, with `bucket BETWEEN … AND … AND kind =
'order'`. The client is RocketMQ's classic one in Java, unmodified (`benchmarks/java/rocketmq`); Maven fetches it on
first use. *Scanned* counts each message once for each group.

The same messages go through gRPC with a lean client in Python, to a group of all of them. And a thousand groups on a
thousand topics only say that they are there.

The server is `headgate serve` in a process of its own, without and with the match index. RocketMQ is measured beside it
if it is told where that listens: `--original names=PORT,pid=PID,grpc=PORT,proxy=PID` and, with its bit map switched
on, `--original-with-bit-map`. Arguments: the parts to measure (default: all).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import ARTIFACTS, report_table, short
from rocketmq_peers import HEARTBEAT_S, Heartbeats, grpc_rates
from serving import cpu_of, served

PROJECT = Path(__file__).resolve().parent / "java" / "rocketmq"
OUTPUT = ARTIFACTS / "java-rocketmq"
JAVA = ("java", "-XX:+UseSerialGC", "-Xmx768m", f"-Duser.home={OUTPUT}")
MESSAGES, GROUPS, THREADS, BATCH = 80_000, 5, 4, 32
ROUNDS = 3
GRPC_MESSAGES = 8_000
MANY_GROUPS, BEATS = 1_000, 10
LISTENERS = ("rocketmq_names", "rocketmq_classic", "rocketmq")
PARTS = ("classic", "grpc", "heartbeats")


@dataclass(slots=True)
class Target:
    """A server, by its ports and processes: `proxy` is who serves gRPC, if that is another one.

    The clients of one that `is_original` may stand still until their time is over: such a round has no figure.
    """

    name: str
    names_port: int
    pid: int
    grpc_port: int
    proxy: int | None = None
    is_original: bool = False
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figure: str, value: float) -> None:
        """One round of a figure."""
        self.values.setdefault(figure, []).append(value)

    def median(self, figure: str) -> float:
        """The median of all rounds."""
        return statistics.median(self.values[figure])

    def cpu_s(self) -> float:
        """Processor time that its processes have used."""
        return sum(cpu_of(pid) for pid in (self.pid, self.proxy) if pid is not None)


def build() -> None:
    """Fetch and compile the client if that was not done."""
    done = OUTPUT / "done"
    sources = [PROJECT / "pom.xml", *PROJECT.glob("src/main/java/*.java")]
    if done.exists() and all(source.stat().st_mtime < done.stat().st_mtime for source in sources):
        return
    goals = ("compile", "dependency:copy-dependencies")
    command = ["mvn", "--quiet", "--batch-mode", "-f", str(PROJECT / "pom.xml"), f"-Doutput={OUTPUT}", *goals]
    subprocess.run(command, check=True)
    done.touch()


class Load:
    """The Java clients of one server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def cpu_s(self) -> float:
        """Processor time that the clients have used."""
        return cpu_of(self._process.pid)

    def ask(self, *words: object, until: str = "") -> str:
        """What the program answers, or the line that it says before."""
        if words:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def seconds(self, answer: str, expected: int, what: str = "messages") -> float:
        """The time of an answer, which must say that all was done."""
        seconds, count, *_ = answer.split()
        if int(count) != expected:
            raise SystemExit(f"{count} of {expected} {what}")
        return float(seconds)


@contextlib.contextmanager
def load_of(target: Target) -> Iterator[Load]:
    command = [*JAVA, "-cp", f"{OUTPUT / 'classes'}:{OUTPUT / 'libraries'}/*", "RocketMqLoad"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, f"127.0.0.1:{target.names_port}"], text=True, **pipes) as process:
        try:
            yield Load(process)
        finally:
            process.kill()


def one_round(target: Target, load: Load, round_number: int) -> None:
    """Send all messages to a new topic, some in batches to another, and let new groups take the first."""
    unique = f"{os.getpid()}_{round_number}"
    topic, batched, group = f"bench_{unique}", f"bench_batched_{unique}", f"group_{unique}_"
    load.ask("first", topic)
    load.ask("first", batched)
    load.seconds(load.ask("register", topic, group, GROUPS), GROUPS, what="groups")
    cpu = target.cpu_s()
    sent_s = load.seconds(load.ask("produce", topic, MESSAGES, THREADS, 1), MESSAGES)
    target.add("sent", MESSAGES / sent_s)
    target.add("sent µs", 1e6 * (target.cpu_s() - cpu) / MESSAGES)
    batched_s = load.seconds(load.ask("produce", batched, MESSAGES, THREADS, BATCH), MESSAGES)
    target.add("batched", MESSAGES / batched_s)
    # Both servers write behind: indexes that are made meanwhile are no part of reading.
    time.sleep(3)
    load.ask("consume", topic, group, GROUPS, MESSAGES)
    cpu, clients_cpu = target.cpu_s(), load.cpu_s()
    load.ask()
    scanned_cpu_s, clients_cpu_s = target.cpu_s() - cpu, load.cpu_s() - clients_cpu
    answer = load.ask()
    if target.is_original and int(answer.split()[1]) < MESSAGES:
        target.add("not ended", 1)
        return
    paused_s = float(answer.split()[2])
    target.add("paused", paused_s)
    target.add("scanned", GROUPS * MESSAGES / (load.seconds(answer, MESSAGES) - paused_s))
    target.add("scanned µs", 1e6 * scanned_cpu_s / (GROUPS * MESSAGES))
    target.add("clients µs", 1e6 * clients_cpu_s / (GROUPS * MESSAGES))


def grpc_round(target: Target, round_number: int, make_topic: Callable[[str], object]) -> None:
    """The lean client of gRPC, once."""
    topic, group = f"lean_{os.getpid()}_{round_number}", f"lean_group_{os.getpid()}_{round_number}"
    make_topic(topic)
    cpu = target.cpu_s()
    sent, received = grpc_rates(f"127.0.0.1:{target.grpc_port}", topic, group, GRPC_MESSAGES, THREADS)
    target.add("grpc sent", sent)
    target.add("grpc received", received)
    target.add("grpc µs", 1e6 * (target.cpu_s() - cpu) / GRPC_MESSAGES)


def measure_heartbeats(shown: Target, rounds: int) -> None:
    """What it costs of a core, on a server of its own, that every group says twice a minute that it is there."""
    with served(*LISTENERS, settings={"ROCKETMQ__TOPIC_QUEUES": "1"}) as server:
        target = Target("", server.ports["rocketmq_names"], server.pid, server.ports["rocketmq"])
        with load_of(target) as load:
            for number in range(MANY_GROUPS):
                load.ask("first", f"topic{number}")
        beats = Heartbeats(target.names_port, MANY_GROUPS)
        beats.beat()
        # What the first ones register goes on in the background.
        time.sleep(5)
        for _ in range(rounds):
            cpu = target.cpu_s()
            for _ in range(BEATS):
                beats.beat()
            shown.add("heartbeats", 100 * (target.cpu_s() - cpu) / BEATS / HEARTBEAT_S)
        beats.close()


FIGURES = (
    ("sent one by one, 4 threads", "sent", "/s"),
    ("processor of the server", "sent µs", " µs"),
    (f"sent in batches of {BATCH}, 4 threads", "batched", "/s"),
    ("scanned by five groups, without pauses", "scanned", "/s"),
    ("processor of the server", "scanned µs", " µs"),
    ("processor of the clients", "clients µs", " µs"),
    ("pauses of over a second, all clients waiting", "paused", " s"),
    ("rounds whose clients stood still to the end", "not ended", ""),
    ("gRPC: sent one by one, 4 threads", "grpc sent", "/s"),
    ("gRPC: received by SQL92, 32 at a time, acknowledged", "grpc received", "/s"),
    ("gRPC: processor of the server, both", "grpc µs", " µs"),
    ("heartbeats of 1 000 groups on 1 000 topics, of a core", "heartbeats", " %"),
)


def _shown(target: Target, figure: str, unit: str) -> str:
    if figure not in target.values:
        return ""
    if figure == "not ended":
        return str(len(target.values[figure]))
    value = target.median(figure)
    return short(value) + unit if unit == "/s" else f"{value:.2f}{unit}"


def cells(targets: Sequence[Target]) -> list[list[str]]:
    """A row per figure, a column per server."""
    rows = []
    for what, figure, unit in FIGURES:
        if not any(figure in target.values for target in targets):
            continue
        rows.append([what, *(_shown(target, figure, unit) for target in targets)])
    return rows


def _target(name: str, text: str) -> Target:
    said = dict(part.split("=") for part in text.split(","))
    return Target(name, int(said["names"]), int(said["pid"]), int(said["grpc"]), int(said["proxy"]), is_original=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure")
    parser.add_argument("--original", help="names=PORT,pid=PID of a RocketMQ")
    parser.add_argument("--original-with-bit-map", help="the same of one that calculates filters ahead")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    parts = options.parts or PARTS
    build()
    with contextlib.ExitStack() as stack:
        targets = []
        for name, settings in (("Headgate", {}), ("with match index", {"ROCKETMQ__CALCULATE_FILTER_BITMAP": "true"})):
            server = stack.enter_context(served(*LISTENERS, settings=settings))
            server.wait_for_children()
            targets.append(Target(name, server.ports["rocketmq_names"], server.pid, server.ports["rocketmq"]))
        for name, text in (("RocketMQ", options.original), ("with bit map", options.original_with_bit_map)):
            if text:
                targets.append(_target(name, text))
        loads = [(target, stack.enter_context(load_of(target))) for target in targets]
        for number in range(options.rounds + 1):
            for target, load in loads:
                if "classic" in parts:
                    one_round(target, load, number)
                if "grpc" in parts:
                    grpc_round(target, number, functools.partial(load.ask, "first"))
                if number == 0:
                    target.values.clear()
        if "heartbeats" in parts:
            measure_heartbeats(targets[0], options.rounds)
        report_table(
            "rocketmq",
            "Classic clients of RocketMQ",
            ("what", *(target.name for target in targets)),
            cells(targets),
            [{"name": target.name, "values": target.values} for target in targets],
        )


if __name__ == "__main__":
    main()
