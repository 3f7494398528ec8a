"""Live traffic, lone messages on many streams: processor time and latency of the server, beside RabbitMQ.

20 publishers and 20 consumers on 20 streams at 1 000 and 2 000 messages a second, 30 and 30 on 30 streams at 3 000; one
message a frame, each confirmed, small bodies; a consumer acknowledges each message where the protocol has that.
The client is lean, or RabbitMQ's own for Java: its load tool perf-test, and its stream client. Servers take turns, a
round of each. RabbitMQ runs on this machine where HEADGATE_RABBITMQ (host:port, stream listener),
HEADGATE_RABBITMQ_AMQP and HEADGATE_RABBITMQ_STOMP say. While working on the live path:

    python benchmarks/broker_live.py --protocol stream --client lean --rate 1000 --rounds 1 --alone
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import live_java
from harness import report_table
from live_load import Round, Window, listening_process, run_load
from live_peers import RIGS, Address
from serving import served

PAIRS = {1000: 20, 2000: 20, 3000: 30}
"""By messages a second: publishers and consumers, with a stream for each pair."""

WARM_UP_S = 1.5
MAX_SECONDS = 60.0
LISTENERS = {"stream": "HEADGATE_RABBITMQ", "amqp": "HEADGATE_RABBITMQ_AMQP", "stomp": "HEADGATE_RABBITMQ_STOMP"}
NEEDED = {"stream": {"stream"}, "amqp091": {"amqp"}, "amqp10": {"amqp"}, "stomp": {"stomp", "amqp"}}
"""Listeners of a protocol; streams for STOMP are declared with AMQP 0.9.1."""

TITLES = {"stream": "stream", "amqp091": "AMQP 0.9.1", "amqp10": "AMQP 1.0", "stomp": "STOMP"}
FIGURES = {
    "cpu": ("CPU, cores", "{:.2f}"),
    "confirm_p50_ms": ("confirm p50, ms", "{:.2f}"),
    "confirm_p99_ms": ("p99, ms", "{:.1f}"),
    "delivery_p50_ms": ("delivery p50, ms", "{:.2f}"),
    "delivery_p99_ms": ("p99, ms", "{:.1f}"),
    "backlog": ("backlog", "{:.0f}"),
    "waited": ("waited, cores", "{:.2f}"),
    "client_cpu": ("client, cores", "{:.2f}"),
    "client_late_p99_ms": ("late p99, ms", "{:.1f}"),
}
"""Name and form of each. *Waited*: the server was ready to run while others had the processors. *Late*: how much later
than due the client sent. Both say how busy the machine was with other things."""

RATIOS = ("cpu", "confirm_p50_ms", "confirm_p99_ms", "delivery_p50_ms", "delivery_p99_ms")
WANTED = {
    1000: {"cpu": 0.7, "confirm_p50_ms": 1.25, "delivery_p50_ms": 1.25, "confirm_p99_ms": 1.0, "delivery_p99_ms": 1.0},
    2000: {"confirm_p50_ms": 1.5, "delivery_p50_ms": 1.5},
    3000: {},
}
"""At most, times RabbitMQ's."""

MAX_BACKLOG_S = 0.1
"""A backlog of more than so much traffic has piled up."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server under load: its listeners and its process, which is measured with its descendants."""

    name: str
    addresses: dict[str, Address]
    pid: int


@dataclass(slots=True)
class Row:
    """A protocol at a rate: the figures of each round of each server."""

    protocol: str
    client: str
    rate: int
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{TITLES[self.protocol]}, {self.client}, {self.rate}/s"

    def median(self, server: str, name: str) -> float:
        return statistics.median(one[name] for one in self.rounds[server])

    def spread(self, server: str, name: str) -> float:
        """Largest less smallest, as a share of the median."""
        values = [one[name] for one in self.rounds[server]]
        return (max(values) - min(values)) / (statistics.median(values) or 1)

    def cells(self) -> list[list[str]]:
        """A line of medians and spreads for each server, and one of ratios with what is wanted."""
        lines: list[list[str]] = []
        for server in self.rounds:
            cells = ["" if lines else str(self), server]
            for name, (_, form) in FIGURES.items():
                if name not in self.rounds[server][0]:
                    cells.append("")
                    continue
                cell = form.format(self.median(server, name))
                if name in RATIOS and len(self.rounds[server]) > 1:
                    cell += f" ±{50 * self.spread(server, name):.0f} %"
                cells.append(cell)
            lines.append(cells)
        piled_up = self.median("Headgate", "backlog") > MAX_BACKLOG_S * self.rate
        if len(self.rounds) == 2:
            cells = ["", "ratio"]
            for name in FIGURES:
                cell = ""
                if name in RATIOS:
                    cell = f"{self.ratio(name):.2f}"
                    if name in WANTED[self.rate]:
                        cell += f" (≤ {WANTED[self.rate][name]:.3g})"
                elif name == "backlog":
                    cell = "piled up" if piled_up else "none"
                cells.append(cell)
            lines.append(cells)
        return lines

    def ratio(self, name: str) -> float:
        ours, theirs = (self.median(server, name) for server in self.rounds)
        return ours / theirs


def figures(one: Round) -> dict[str, float]:
    """The figures of a round."""

    def percentile_ms(times_s: list[float], share: float) -> float:
        return 1e3 * sorted(times_s)[int(share * len(times_s))]

    return {
        **one.shares,
        "confirm_p50_ms": percentile_ms(one.confirm_s, 0.5),
        "confirm_p99_ms": percentile_ms(one.confirm_s, 0.99),
        "delivery_p50_ms": percentile_ms(one.delivery_s, 0.5),
        "delivery_p99_ms": percentile_ms(one.delivery_s, 0.99),
        "backlog": one.backlog,
        "client_late_p99_ms": percentile_ms(one.late_s, 0.99),
    }


def measured(row: Row, server: Server, seconds: float) -> dict[str, float]:
    if row.client == "java":
        load = live_java.LOADS[row.protocol]
        return load(server.addresses, server.pid, pairs=PAIRS[row.rate], rate=row.rate, seconds=round(seconds))
    with RIGS[row.protocol](server.addresses, PAIRS[row.rate]) as rig:
        one = run_load(
            rig.publishers,
            rig.consumers,
            rate=row.rate,
            seconds=seconds,
            warm_up_s=WARM_UP_S,
            window=Window(server.pid, os.getpid()),
        )
    return figures(one)


def original() -> Server | None:
    """The running RabbitMQ that the environment names."""
    addresses = {}
    for listener, variable in LISTENERS.items():
        if variable in os.environ:
            host, _, port = os.environ[variable].rpartition(":")
            addresses[listener] = (host, int(port))
    if not addresses:
        return None
    return Server("RabbitMQ", addresses, listening_process(next(iter(addresses.values()))[1]))


def measure_all(rows: Sequence[Row], servers: Sequence[Server], *, rounds: int, seconds: float) -> None:
    """Rounds of all rows, the servers in turn."""
    for number in range(rounds):
        for row in rows:
            for server in servers:
                if NEEDED[row.protocol] <= server.addresses.keys():
                    one = measured(row, server, seconds)
                    row.rounds.setdefault(server.name, []).append(one)
                    shown = ", ".join(f"{name} {value:.3g}" for name, value in one.items())
                    print(f"round {number + 1}, {row}, {server.name}: {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", choices=RIGS, action="append", help="default: all")
    parser.add_argument("--client", choices=("lean", "java"), help="default: both")
    parser.add_argument("--rate", type=int, choices=PAIRS, action="append", help="messages a second; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round after its warm-up; at most 60")
    parser.add_argument("--alone", action="store_true", help="leave RabbitMQ out")
    options = parser.parse_args()
    clients = [options.client] if options.client else ["lean", "java"]
    if "java" in clients and (reason := live_java.build()) is not None:
        print(f"without the Java clients: {reason}")
        clients.remove("java")
    rows = [
        Row(protocol, client, rate)
        for protocol in options.protocol or RIGS
        for client in clients
        if client == "lean" or protocol in live_java.LOADS
        for rate in options.rate or PAIRS
    ]
    theirs = None if options.alone else original()
    with served(*LISTENERS) as process:
        process.wait_for_children()
        print(f"Headgate is process {process.pid}", flush=True)
        addresses = {name: ("127.0.0.1", port) for name, port in process.ports.items()}
        servers = [Server("Headgate", addresses, process.pid), *([] if theirs is None else [theirs])]
        measure_all(rows, servers, rounds=options.rounds, seconds=min(options.seconds, MAX_SECONDS))
    header = ["what", "server", *(title for title, _ in FIGURES.values())]
    cells = [line for row in rows for line in row.cells()]
    rounds = [{"protocol": row.protocol, "client": row.client, "rate": row.rate, "rounds": row.rounds} for row in rows]
    is_whole = not (options.protocol or options.client or options.rate or options.alone)
    subject = "broker_live" if is_whole else "broker_live_part"  # the page shows whole runs
    report_table(subject, "Live traffic: lone messages, one a frame, each confirmed", header, cells, rounds)


if __name__ == "__main__":
    main()
