"""Live traffic, lone messages on many streams: processor time and latency of the server, beside RabbitMQ.

20 publishers and 20 consumers on 20 streams at 1 000 and 2 000 messages a second, 30 and 30 on 30 streams at 3 000; one
message a frame, each confirmed, small bodies. Servers take turns, a round of each; figures are medians of rounds.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

from live_load import Round, run_load
from live_peers import RIGS, Address
from serving import Served, served

PAIRS = {1000: 20, 2000: 20, 3000: 30}
"""By messages a second: publishers and consumers, with a stream for each pair."""

WARM_UP_S = 1.5
LISTENERS = ("amqp", "stream", "stomp")


@dataclass(frozen=True, slots=True)
class Server:
    """A server under load: where its listeners are, and the process that is measured."""

    name: str
    addresses: dict[str, Address]
    process: Served


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured of each server: a protocol at a rate."""

    protocol: str
    rate: int

    def __str__(self) -> str:
        return f"{self.protocol}, {self.rate}/s"


def figures(one: Round) -> dict[str, float]:
    """The figures of a round: shares of a core, milliseconds, messages."""

    def percentile_ms(times_s: list[float], share: float) -> float:
        return 1e3 * sorted(times_s)[int(share * len(times_s))]

    return {
        "cpu": one.cpu_share,
        "confirm_p50_ms": percentile_ms(one.confirm_s, 0.5),
        "confirm_p99_ms": percentile_ms(one.confirm_s, 0.99),
        "delivery_p50_ms": percentile_ms(one.delivery_s, 0.5),
        "delivery_p99_ms": percentile_ms(one.delivery_s, 0.99),
        "backlog": one.backlog,
        "client_cpu": one.client_share,
        "client_late_p99_ms": percentile_ms(one.late_s, 0.99),
    }


def measured(row: Row, server: Server, seconds: float) -> dict[str, float]:
    pairs = PAIRS[row.rate]
    with RIGS[row.protocol](server.addresses, pairs) as rig:
        one = run_load(
            rig.publishers,
            rig.consumers,
            rate=row.rate,
            seconds=seconds,
            warm_up_s=WARM_UP_S,
            server_cpu_s=server.process.cpu_s,
        )
    return figures(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=RIGS, action="append", help="default: all")
    parser.add_argument("--rate", type=int, choices=PAIRS, action="append", help="messages a second; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of a round, after its warm-up")
    parser.add_argument("--alone", action="store_true", help="leave RabbitMQ out")
    options = parser.parse_args()
    rows = [Row(protocol, rate) for protocol in options.protocol or RIGS for rate in options.rate or PAIRS]
    with served(*LISTENERS) as process:
        ours = Server("Headgate", {name: ("127.0.0.1", port) for name, port in process.ports.items()}, process)
        process.wait_for_children()
        print(f"Headgate is process {process.pid}", flush=True)
        for row in rows:
            rounds = [measured(row, ours, options.seconds) for _ in range(options.rounds)]
            print(
                row, {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}, flush=True
            )


if __name__ == "__main__":
    main()
