"""Our broker in a process of its own, for benchmarks that reach it over a socket."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LISTENERS = ("amqp", "stream", "stomp", "http", "servicebus", "rocketmq", "rocketmq_names", "rocketmq_classic")
"""All that are on unless told otherwise."""


@dataclass(frozen=True)
class Served:
    """`headgate serve`; `ports` by the listeners that were asked for, `output` is what it writes after it is ready."""

    pid: int
    ports: dict[str, int]
    output: IO[str]

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        return cpu_of(self.pid)

    def wait_for_children(self, limit_s: float = 120.0) -> None:
        """Return when it has no child processes: kernels that were not in the cache are compiled in one."""
        threads = Path(f"/proc/{self.pid}/task")
        until = time.monotonic() + limit_s
        while any(children.read_text() for children in threads.glob("*/children")) and time.monotonic() < until:
            time.sleep(0.2)

    def anonymous_bytes(self) -> int:
        """Its resident memory that no file backs."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return int(re.search(r"Anonymous:\s+(\d+)", rollup)[1]) * 1024


@contextlib.contextmanager
def served(
    *listeners: str,
    root: Path | None = None,
    settings: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "headgate.cli"),
) -> Iterator[Served]:
    """A broker with these listeners (`amqp`, `stream` …) on free ports, over `root` or a temporary folder.

    `settings` are further ones, by their names in the environment without `HEADGATE_`; `program` is what
    the interpreter runs.
    """
    ports = {name: "0" if name in listeners else "off" for name in LISTENERS}
    environment = os.environ | {f"HEADGATE_SERVER__LISTENERS__{name.upper()}": port for name, port in ports.items()}
    environment |= {f"HEADGATE_{name}": value for name, value in (settings or {}).items()}
    environment["HEADGATE_SERVER__LISTENERS__HOST"] = "127.0.0.1"
    with tempfile.TemporaryDirectory() as temporary:
        folder = temporary if root is None else str(root)
        command = [sys.executable, *program, "serve", "--root", folder]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        # Linux shares processors out by session first, and other servers have one of their own.
        with subprocess.Popen(command, env=environment, text=True, start_new_session=True, **quiet) as process:
            try:
                ready = process.stdout.readline()
                ports = {name: int(re.search(rf"\b{name}=(\d+)", ready)[1]) for name in listeners}
                yield Served(process.pid, ports, process.stdout)
            finally:
                process.terminate()


def cpu_of(pid: int) -> float:
    """Processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
