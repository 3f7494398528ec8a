"""Starting: Python alone, with `headgate` imported, the command line's help; and a server in memory until it is ready.

The server is measured with its kernels in the cache: until `ready`, with nothing and with a hundred entities; its
resident memory (VmRSS, and the anonymous part: the rest are pages of files, which the system may take back); and with a
thousand AMQP connections that are open and idle.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import Measurement, measure, milliseconds, report, report_table

from headgate import kernels

ROUNDS = 5
CONNECTIONS = 1_000
QUEUES = TOPICS = 50
RED = """{ name = "red", rule = [{ name = "Red", sql = "color = 'red'" }] }"""
ENTITIES = "".join(f'[[queue]]\nname = "queue-{number}"\n' for number in range(QUEUES)) + "".join(
    f'[[topic]]\nname = "topic-{number}"\nsubscription = [{{ name = "all" }}, {RED}]\n' for number in range(TOPICS)
)


def main() -> None:
    def process(name: str, *arguments: str) -> Measurement:
        command = [sys.executable, *arguments]
        run = lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: E731
        return measure(name, run, 1, rounds=11, unit="processes")

    results = [
        process("python alone", "-c", "pass"),
        process("import headgate", "-c", "import headgate"),
        process("headgate --help", "-m", "headgate.cli", "--help"),
    ]
    report("starting", "Start and end of a process", results, baseline=results[0].name)
    kernels.compile_missing(kernels.served_modules())
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder, "entities.toml")
        configuration.write_text(ENTITIES, encoding="utf-8")
        hundred = f"{QUEUES + TOPICS} entities"
        thousand = f"{hundred}, {CONNECTIONS} connections"
        servers = [
            Started.several("nothing in it"),
            Started.several(hundred, "--config", configuration),
            Started.several(thousand, "--config", configuration, connections=CONNECTIONS),
        ]
    cells = [
        ("headgate serve --in-memory", each.name, milliseconds(each.median_s), each.resident, each.anonymous)
        for each in servers
    ]
    report_table(
        "serving_in_memory",
        "A server for tests",
        ("server", "with", "ready after", "resident", "of it anonymous"),
        cells,
        [asdict(each) for each in servers],
    )


@dataclass(slots=True)
class Started:
    """A server that was started several times; memory of the last one."""

    name: str
    seconds: list[float]
    resident_bytes: int
    anonymous_bytes: int

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def resident(self) -> str:
        return f"{self.resident_bytes / 1e6:.0f} MB"

    @property
    def anonymous(self) -> str:
        return f"{self.anonymous_bytes / 1e6:.0f} MB"

    @classmethod
    def several(cls, name: str, *arguments: object, connections: int = 0) -> Started:
        """Start a server, and again; the first time warms the system's caches up."""
        seconds = []
        for _ in range(ROUNDS + 1):
            with served(*arguments) as (pid, port, ready_s), contextlib.ExitStack() as clients:
                seconds.append(ready_s)
                for _ in range(connections):
                    clients.enter_context(connected(port))
                status = Path(f"/proc/{pid}/status").read_text()
        resident, anonymous = (int(re.search(rf"{key}:\s+(\d+) kB", status)[1]) * 1024 for key in ("VmRSS", "RssAnon"))
        return cls(name, seconds[1:], resident, anonymous)


@contextlib.contextmanager
def served(*arguments: object) -> Iterator[tuple[int, int, float]]:
    """A server in memory: its process, its port of AMQP, and after how many seconds it was ready."""
    listeners = ("AMQP", "STREAM", "STOMP", "HTTP", "SERVICEBUS", "ROCKETMQ", "ROCKETMQ_NAMES", "ROCKETMQ_CLASSIC")
    environment = {f"HEADGATE_SERVER__LISTENERS__{name}": "0" for name in listeners}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "serve", "--in-memory", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **environment,
            "HEADGATE_SERVER__LISTENERS__HOST": "127.0.0.1",
            "HEADGATE_SERVER__LOG__LEVEL": "warning",
        },
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        ready_s = time.perf_counter() - start
        yield process.pid, int(re.search(r"amqp=(\d+)", ready)[1]), ready_s
        process.send_signal(signal.SIGTERM)


def framed(body: bytes, *, of_sasl: bool = False) -> bytes:
    """A frame of AMQP 1.0 on channel 0."""
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, of_sasl, 0, 0)) + body


def connected(port: int) -> socket.socket:
    """A connection of AMQP 1.0 that is open, as ANONYMOUS."""
    client = socket.create_connection(("127.0.0.1", port), 30)
    anonymous = b"\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS"
    client.sendall(b"AMQP\x03\x01\x00\x00" + framed(anonymous, of_sasl=True))
    until(client, b"\x00\x53\x44")
    client.sendall(b"AMQP\x00\x01\x00\x00" + framed(b"\x00\x53\x10\xc0\x04\x01\xa1\x01c"))
    until(client, b"\x00\x53\x10")
    return client


def until(client: socket.socket, descriptor: bytes) -> None:
    """Read up to the frame with this descriptor."""
    data = b""
    while descriptor not in data:
        piece = client.recv(4096)
        assert piece, "the server ended the connection"
        data += piece


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    main()
