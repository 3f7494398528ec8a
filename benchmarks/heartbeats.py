"""Heartbeats of consumer groups: what the broker does when members say that they are there, and what they ask for.

Each member announces the same again, in new objects, as a protocol reads them; one that announces a new version of the
same text; and the first one of all. The baseline is a thousand groups with a topic each, as they usually are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import Measurement, report

from headgate.broker.consumer_groups import ExpressionRegistry, Members
from headgate.broker.environment import Environment, Workers
from headgate.derived.match_index import Announcement, IndexSettings
from headgate.scan.fetch import unmeasured

GROUPS = 1_000
TOPICS = 1_000
ROUNDS = 5
INTERVAL_S = 30


def nobody() -> Members:
    """Groups without members; the worker does nothing: what is written into registries is written once."""
    environment = Environment(
        Path("nowhere"),
        now_ms=lambda: 0,
        cpu_ns=unmeasured,
        wake=_nothing,
        workers=Workers(background=lambda _work, _ended: None),
        find=lambda _name: None,
        watch=lambda _stream: None,
        know_ids=lambda _stream: True,
    )
    expressions = ExpressionRegistry(
        environment,
        names=list,
        streams_of=lambda topic: (topic,),
        settings=IndexSettings(),
        registered=lambda _stream: None,
    )
    return Members(expressions)


def heartbeat(group: int, topics: int, version: int) -> Mapping[str, Announcement]:
    """What a member of a group announces, with the expression of the published case."""
    low = group % 100
    text = f"bucket BETWEEN {low} AND {low + 19} AND kind = 'order'"
    return {f"topic {(group + number) % TOPICS}": Announcement(text, "rocketmq", version) for number in range(topics)}


def announce(groups: Members, topics: int, version: int) -> float:
    """One heartbeat of each group; gives the seconds of processor time that the broker takes."""
    seconds = 0.0
    for group in range(GROUPS):
        beat = heartbeat(group, topics, version)
        start = time.process_time()
        groups.heartbeat(f"group {group}", "client", beat, now_ms=0, changed=_nothing)
        seconds += time.process_time() - start
    return seconds


def _nothing() -> None:
    """Nobody is told who comes and goes."""


def measure(topics: int) -> list[Measurement]:
    known = nobody()
    versions = iter(range(1, 100))
    newest = next(versions)
    announce(known, topics, newest)

    def row(what: str, run: Callable[[], float], rounds: int = ROUNDS) -> Measurement:
        return Measurement(f"{what}, topics of a group: {topics:,}", GROUPS, [run() for _ in range(rounds)], "groups")

    return [
        row("nothing is new", lambda: announce(known, topics, newest)),
        row("new versions", lambda: announce(known, topics, next(versions))),
        row("all is new", lambda: announce(nobody(), topics, 1), rounds=1 if topics > 1 else ROUNDS),
    ]


def main() -> None:
    rows = [*measure(1), *measure(TOPICS)]
    for row in rows:
        print(f"{row.name}: {100 * row.median_s / INTERVAL_S:.3g} % of a core, every {INTERVAL_S} s")
    report("heartbeats", f"Heartbeats of {GROUPS:,} consumer groups", rows, baseline=rows[0].name)


if __name__ == "__main__":
    main()
