"""Servers for interop tests: `headgate serve` in a process of its own, or a broker that runs already."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PORTS = ("amqp", "stream", "stomp", "http", "servicebus", "rocketmq", "rocketmq_names", "rocketmq_classic")
READY_SECONDS = 60.0
ORIGINAL = "HEADGATE_INTEROP_ORIGINAL"
"""Ports of a running RabbitMQ, such as `amqp=5672,stream=5552,stomp=61613,http=15672`: what the client programs expect
of a server is then proved on the original."""

JOHN = {"name": "John", "password": "John's", "permissions": {"configure": ".*", "write": ".*", "read": ".*"}}
"""The user of the documentation's examples: a message's user-id must be the one who publishes it."""


@dataclass(frozen=True, slots=True)
class Served:
    """Where a server listens."""

    ports: Mapping[str, int]
    host: str = "localhost"
    is_original: bool = False
    authority: Path | None = None
    """What clients of Service Bus believe: the authority of the server's own certificate."""

    @property
    def amqp(self) -> int:
        return self.ports["amqp"]

    @property
    def stream(self) -> int:
        return self.ports["stream"]

    @property
    def stomp(self) -> int:
        return self.ports["stomp"]

    @property
    def http(self) -> int:
        return self.ports["http"]

    @property
    def servicebus(self) -> int:
        return self.ports["servicebus"]

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        """An AMQP 0.9.1 channel of pika, for what a test arranges beside the client that it is about."""
        import pika

        with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters(self.host, self.amqp))) as connection:
            yield connection.channel()

    def declare(self, stream: str, **arguments: Any) -> None:
        """Declare a stream; arguments without `x-`, underscores for dashes."""
        given = {"x-queue-type": "stream"} | {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        with self.channel() as channel:
            channel.queue_declare(stream, durable=True, arguments=given)

    def delete(self, stream: str) -> None:
        """Delete a stream; it need not be there."""
        with self.channel() as channel:
            channel.queue_delete(stream)


def original() -> Served | None:
    """The running RabbitMQ that the environment names."""
    text = os.environ.get(ORIGINAL)
    if text is None:
        return None
    ports = dict(entry.split("=") for entry in text.split(","))
    return Served({name: int(port) for name, port in ports.items()}, is_original=True)


def _lasting_ports() -> Iterator[int]:
    """Free ports below those that the system gives to outgoing connections, each at most once.

    A test whose server is down for a moment gets its ports back: nobody's connection has taken them meanwhile, and no
    test beside it tries them, because the processes of one test run share the numbers out.
    """
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(limits.read_text().split()[0]) if limits.exists() else 32_768
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = range(10_000 + worker, end, workers)
    for port in random.SystemRandom().sample(share, len(share)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
    raise AssertionError("no port is left")


_PORTS = _lasting_ports()


def _toml(value: Any) -> str:
    """A value of TOML; tables are written in line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@dataclass
class ServerProcess:
    """`headgate serve` over a folder; `configuration` as tables of its file. Stopped and killed as a test wants it."""

    folder: Path
    configuration: Mapping[str, Any] = field(default_factory=dict)
    prepare: Any = None
    """Called in the new process before it becomes the server: limits of resources."""

    def __post_init__(self) -> None:
        self.root = self.folder / "data"
        self.log = self.folder / "serve.log"
        self._ports: dict[str, int] = {name: next(_PORTS) for name in PORTS}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Served:
        """Start the server and wait until it is ready; a second start listens on the ports of the first."""
        tables = dict(self.configuration)
        tables["listeners"] = {"host": "127.0.0.1"} | dict(tables.get("listeners", {})) | self._ports
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "headgate.toml"
        file.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in tables.items()))
        command = [sys.executable, "-m", "headgate.cli", "serve", "--root", str(self.root), "--config", str(file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, preexec_fn=self.prepare)
        self._ports = self._wait_until_ready()
        return Served(dict(self._ports), authority=self.root / ".headgate" / "tls" / "authority.pem")

    def _wait_until_ready(self) -> dict[str, int]:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + READY_SECONDS
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in line:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                data = os.read(self._process.stdout.fileno(), 4096) if ready else b""
                if not data:
                    raise AssertionError(f"the server was not ready; its log:\n{self.log.read_text()[-4000:]}")
                line += data
        text = line.decode()
        assert "ready" in text, text
        return {name: int(port) for name, port in re.findall(r"\b(\w+)=(\d+)", text)}

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(how)
        try:
            status = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the server did not stop; its log:\n{self.log.read_text()[-4000:]}") from None
        finally:
            self._process.stdout.close()
        self._process = None
        return status

    def close(self) -> None:
        """End the server if it still runs."""
        if self._process is not None:
            self.kill()
