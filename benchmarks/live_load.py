"""Live load for `broker_live.py`: lone messages at a steady rate, one thread, lean peers over plain sockets.

Messages leave when they are due, whether earlier ones were answered or not. The body is the time of sending, so a
delivery tells its own latency. Every peer parses only what it must.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

BODY_BYTES = 20
"""Decimal digits: the nanoseconds of the monotonic clock at sending."""

MAX_UNCONFIRMED = 150
"""Of one publisher; what is due beyond it is not sent and counts as backlog. RabbitMQ grants AMQP 1.0 170 credits."""

DRAIN_S = 20.0
"""After it has stopped sending the client waits at most so long for what is still missing."""

SEED = 1


class Publisher(Protocol):
    """One connection that publishes to one stream."""

    socket: socket.socket

    def message(self, number: int, body: bytes) -> bytes:
        """The bytes of the message with this number, from 0, which ask for a confirm."""

    def confirmed(self, data: bytes) -> Sequence[int]:
        """The numbers of the messages that the bytes received confirm."""


class Consumer(Protocol):
    """One connection that consumes one stream."""

    socket: socket.socket

    def delivered(self, data: bytes) -> tuple[Sequence[bytes], bytes]:
        """The bodies of the messages received, and what is to be sent for them: acknowledgements or credit."""


@dataclass(slots=True)
class Round:
    """What one round measured; times in seconds."""

    confirm_s: list[float] = field(default_factory=list)
    delivery_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    """How much later than due the client sent."""
    backlog: int = 0
    """Messages that were due by the end of sending and not delivered then."""
    shares: dict[str, float] = field(default_factory=dict)
    """What `Window.close` gave."""


class Window:
    """What server and client do with the processors while a round is measured, in cores."""

    def __init__(self, server_pid: int, client_pid: int) -> None:
        self._server_pid = server_pid
        self._client_pid = client_pid
        self._opened: dict[str, float] = {}

    def _look(self) -> dict[str, float]:
        return {
            "cpu": process_cpu_s(self._server_pid),
            "waited": process_waited_s(self._server_pid),
            "client_cpu": process_cpu_s(self._client_pid, descendants=False),
            "seconds": time.monotonic(),
        }

    def open(self) -> None:
        self._opened = self._look()

    def close(self) -> dict[str, float]:
        """The shares since `open`: `cpu`, `client_cpu`, and `waited` of the server for a processor that others had."""
        spent = {name: now - self._opened[name] for name, now in self._look().items()}
        seconds = spent.pop("seconds")
        return {name: value / seconds for name, value in spent.items()}


class _Load:
    def __init__(self, publishers: Sequence[Publisher], consumers: Sequence[Consumer]) -> None:
        self.publishers = publishers
        self.poll = select.epoll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self.sent_ns: list[deque[int]] = [deque() for _ in publishers]
        """Of each publisher: when its unconfirmed messages were sent, in order."""
        self.confirmed = [0] * len(publishers)
        self.early: list[set[int]] = [set() for _ in publishers]
        self.confirm_ns: list[tuple[int, int]] = []
        self.delivery_ns: list[tuple[int, int]] = []
        """When sent, and how long it took."""
        for row, publisher in enumerate(publishers):
            self._register(publisher.socket, self._confirms(row, publisher))
        for consumer in consumers:
            self._register(consumer.socket, self._deliveries(consumer))

    def _register(self, peer: socket.socket, handle: Callable[[], None]) -> None:
        self.handlers[peer.fileno()] = handle
        self.poll.register(peer, select.EPOLLIN)

    def _confirms(self, row: int, publisher: Publisher) -> Callable[[], None]:
        receive, confirmed, sent_ns, early = (
            publisher.socket.recv,
            publisher.confirmed,
            self.sent_ns[row],
            self.early[row],
        )
        times = self.confirm_ns

        def handle() -> None:
            data = receive(1 << 16)
            now = time.monotonic_ns()
            if not data:
                raise SystemExit("the server closed a publisher's connection")
            numbers = confirmed(data)
            first = self.confirmed[row]
            for number in numbers:
                sent = sent_ns[number - first]
                times.append((sent, now - sent))
                early.add(number)
            while first in early:
                early.remove(first)
                sent_ns.popleft()
                first += 1
            self.confirmed[row] = first

        return handle

    def _deliveries(self, consumer: Consumer) -> Callable[[], None]:
        receive, send, delivered, times = (
            consumer.socket.recv,
            consumer.socket.sendall,
            consumer.delivered,
            self.delivery_ns,
        )
        last = 0

        def handle() -> None:
            nonlocal last
            data = receive(1 << 18)
            now = time.monotonic_ns()
            if not data:
                raise SystemExit("the server closed a consumer's connection")
            bodies, answer = delivered(data)
            if answer:
                send(answer)
            for body in bodies:
                sent = int(body)
                if sent <= last:
                    raise SystemExit("a message was delivered twice or out of order")
                last = sent
                times.append((sent, now - sent))

        return handle

    def serve_until(self, due_ns: int) -> None:
        """Handle what comes until this time; `epoll` alone would round up to milliseconds."""
        poll, handlers = self.poll, self.handlers
        while (left := due_ns - time.monotonic_ns()) > 0:
            if select.select([poll], [], [], left / 1e9)[0]:
                for descriptor, _ in poll.poll(0):
                    handlers[descriptor]()
        for descriptor, _ in poll.poll(0):
            handlers[descriptor]()


def run_load(
    publishers: Sequence[Publisher],
    consumers: Sequence[Consumer],
    *,
    rate: int,
    seconds: float,
    warm_up_s: float,
    window: Window,
) -> Round:
    """One round: `rate` messages a second in all, those of each publisher evenly; the warm-up is not measured.

    Raises SystemExit when a connection ends, or a message is not confirmed or not delivered.
    """
    load = _Load(publishers, consumers)
    chance = random.Random(SEED)
    interval_ns = round(1e9 * len(publishers) / rate)
    phases = sorted((chance.randrange(interval_ns), row) for row in range(len(publishers)))
    numbers = [0] * len(publishers)
    messages = [(publisher.message, publisher.socket.sendall) for publisher in publishers]
    result = Round()
    due_messages = sent_messages = 0
    gc.collect()
    gc.disable()
    try:
        at = time.monotonic_ns()
        warm_up_end = at + round(1e9 * warm_up_s)
        end = measured_from = 1 << 63
        while at < end:
            if at >= warm_up_end and end == 1 << 63:
                window.open()
                # Looking at processes takes some time; what became late by it is not measured.
                measured_from = time.monotonic_ns() + 2 * interval_ns
                end = measured_from + round(1e9 * seconds)
            for phase, row in phases:
                due = at + phase
                load.serve_until(due)
                due_messages += 1
                number = numbers[row]
                if number - load.confirmed[row] >= MAX_UNCONFIRMED:
                    continue
                message, send = messages[row]
                now = time.monotonic_ns()
                load.sent_ns[row].append(now)
                send(message(number, b"%020d" % now))
                numbers[row] = number + 1
                sent_messages += 1
                if due >= measured_from:
                    result.late_s.append((now - due) / 1e9)
            at += interval_ns
        result.backlog = due_messages - len(load.delivery_ns)
        result.shares = window.close()
        until = time.monotonic_ns() + round(1e9 * DRAIN_S)
        while time.monotonic_ns() < until and min(len(load.delivery_ns), sum(load.confirmed)) < sent_messages:
            load.serve_until(time.monotonic_ns() + 10_000_000)
    finally:
        gc.enable()
        load.poll.close()
    if not sent_messages == len(load.delivery_ns) == sum(load.confirmed):
        raise SystemExit(
            f"{sent_messages} messages sent, {sum(load.confirmed)} confirmed, {len(load.delivery_ns)} delivered"
        )
    result.confirm_s = [taken / 1e9 for sent, taken in load.confirm_ns if sent >= measured_from]
    result.delivery_s = [taken / 1e9 for sent, taken in load.delivery_ns if sent >= measured_from]
    return result


def process_cpu_s(pid: int, *, descendants: bool = True) -> float:
    """Processor time of a process in seconds, and of its descendants, those that ended included."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
        ticks[int(folder.name)] = sum(map(int, fields[11 : 15 if descendants else 13]))
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        total += ticks.get(one, 0)
        if descendants:
            waiting += children.get(one, [])
    return total / os.sysconf("SC_CLK_TCK")


def process_waited_s(pid: int) -> float:
    """How long the threads of a process were ready to run while others had the processors, in seconds."""
    waited_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


def listening_process(port: int) -> int:
    """The process that listens on a TCP port of this machine. Raises SystemExit when there is none that we may see."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{columns[9]}]")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(opened) in sockets for opened in (folder / "fd").iterdir()):
                return int(folder.name)
        except OSError:  # ended meanwhile, or another user's
            continue
    raise SystemExit(f"no process listens on port {port} that this user may see")
