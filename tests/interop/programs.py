"""Client programs in other languages: a test tells them what to do by lines of JSON, each is answered by one line."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ENVIRONMENT = Path(sys.prefix)
NODE_MODULES = ENVIRONMENT / ".node-clients" / "node_modules"
JAVA_CLASSES = ENVIRONMENT / ".java-clients"
JAVA_ROCKETMQ_CLASSES = ENVIRONMENT / ".java-rocketmq-clients"
GO_PROGRAMS = ENVIRONMENT / ".go-clients"
LOGS = ENVIRONMENT / ".client-logs"
"""The home of clients that write their logs into the home folder of the user."""

REPLY_SECONDS = 60.0
"""Longer than anything that a program waits for itself."""


class ClientError(Exception):
    """What the client library in the program raised."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client library and how the program that drives it is started; `needs` must be there, or the test is skipped."""

    name: str
    command: tuple[str, ...]
    needs: Path
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name


def _node(name: str, program: str) -> Client:
    modules = (("NODE_PATH", str(NODE_MODULES)),)
    return Client(name, ("node", str(HERE / "node" / program)), NODE_MODULES, modules)


def _python(name: str, program: str, needs: str) -> Client:
    found = importlib.util.find_spec(needs)
    there = Path(found.origin) if found is not None and found.origin else HERE / "python" / needs
    return Client(name, (sys.executable, str(HERE / "python" / program)), there, (("HOME", str(LOGS)),))


def _java(name: str, program: str, installed: Path = JAVA_CLASSES, *settings: str) -> Client:
    # Small and quick to start: these programs live for seconds.
    options = (
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        "-Xmx256m",
        f"-Duser.home={LOGS}",
        *settings,
    )
    classes = f"{installed / 'classes'}:{installed / 'libraries'}/*"
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin") or "java"
    return Client(name, (java, *options, "-cp", classes, f"clients.{program}"), installed / "libraries")


def _go(name: str, program: str) -> Client:
    home = (("HOME", str(LOGS)), ("rocketmq.client.logRoot", str(LOGS)))
    return Client(name, (str(GO_PROGRAMS / program),), GO_PROGRAMS / program, home)


JAVA_STREAM = _java("stream-client (Java)", "StreamClient")
NODE_STREAM = _node("rabbitmq-stream-js-client", "stream.js")
GO_STREAM = _go("rabbitmq-stream-go-client", "stream")
JAVA_AMQP10 = _java("amqp-client 1.0 (Java)", "Amqp10Client")
NODE_AMQP10 = _node("rhea", "amqp10.js")
GO_AMQP10 = _go("rabbitmq-amqp-go-client", "amqp10")
GO_AMQP091 = _go("amqp091-go", "amqp091")
JAVA_AMQP091 = _java("amqp-client 0.9.1 (Java)", "Amqp091Client")
GO_MANAGEMENT = _go("rabbit-hole (management)", "management")
NODE_AMQP091 = _node("amqplib", "amqp091.js")
NODE_STOMP = _node("@stomp/stompjs", "stomp.js")
JAVA_SERVICEBUS = _java("azure-messaging-servicebus (Java)", "ServiceBus")
GO_SERVICEBUS = _go("azservicebus (Go)", "servicebus")
NODE_SERVICEBUS = _node("@azure/service-bus", "servicebus.js")
NODE_SERVICEBUS_ADMINISTRATION = _node("@azure/service-bus (administration)", "servicebus_administration.js")
JAVA_JMS = _java("qpid-jms-client (Java)", "Jms")
JAVA_SERVICEBUS_ADMINISTRATION = _java("azure-messaging-servicebus (administration)", "ServiceBusAdministration")
PYTHON_ROCKETMQ = _python("rocketmq-python-client", "rocketmq_v5.py", "rocketmq")
NODE_ROCKETMQ = _node("rocketmq-client-nodejs", "rocketmq_v5.js")
JAVA_ROCKETMQ = _java("rocketmq-client-java", "RocketMqV5", JAVA_ROCKETMQ_CLASSES)
GO_ROCKETMQ = _go("rocketmq-clients (Go)", "rocketmq")
# It looks at its share of queues every second, not every 20.
JAVA_ROCKETMQ_CLASSIC = _java(
    "rocketmq-client (Java)", "RocketMqClassic", JAVA_ROCKETMQ_CLASSES, "-Drocketmq.client.rebalance.waitInterval=1000"
)
GO_ROCKETMQ_CLASSIC = _go("rocketmq-client-go", "rocketmqclassic")
JAVA_EXAMPLES = _java("examples of the documentation (Java)", "DocumentationExamples")


class Program:
    """One running client program; commands are answered in order, so is `ask`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 — open as long as the program
        self._process = subprocess.Popen(
            client.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | dict(client.environment),
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._pending = b""

    def ask(self, do: str, **fields: Any) -> Any:
        """What the program gives back; ClientError where its library raised."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        reply = json.loads(self._line(do))
        if "error" in reply:
            raise ClientError(f"{self.client}: {do}: {reply['error']}")
        return reply["ok"]

    def _line(self, do: str) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            ready = self._selector.select(REPLY_SECONDS)
            data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                what = "ended" if ready else f"did not answer within {REPLY_SECONDS:.0f} s"
                raise AssertionError(f"{self.client} {what} at {do}:\n{self.errors()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def errors(self) -> str:
        """The end of what the program wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def stop(self) -> None:
        """End the program: its input ends, then it does."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        self._process.stdout.close()
        self._errors.close()

    # What every program with consumers understands.

    def consume(self, *, until: Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """The messages of a consumer from its start, or from `offset`, until those bodies are among them."""
        self.ask("subscribe", id="consumed", **{"offset": "first"} | options)
        try:
            messages: list[dict[str, Any]] = self.ask("take", id="consumed", until=list(until))
            return messages
        finally:
            self.ask("unsubscribe", id="consumed")


def start(client: Client) -> Program:
    """A running program of that client; the test is skipped where it was not installed."""
    if not client.needs.exists() or shutil.which(client.command[0]) is None:
        pytest.skip(f"{client} is not installed: `make clients` needs {client.command[0]} and its package registry")
    return Program(client)


def messages(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """Messages with these bodies, to be published."""
    return [{"body": name, **fields} for name in names]


def bodies(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The bodies of messages, in order."""
    return [message["body"] for message in messages]
