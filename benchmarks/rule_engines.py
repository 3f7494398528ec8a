"""Many rules with patterns beside other rule engines: the same rules and events, in turn, each on one core.

Event Ruler (Maven Central, `benchmarks/java/rules`) runs where Java and Maven are; any other engine is given as a
program that takes the same arguments and prints the same JSON: `--rival "Quamina=/path/to/program"`. They read event
patterns and flat JSON objects; Headgate reads encoded messages, once with application properties and once with the same
JSON objects as bodies.

Rates are events a second of processor time, so that what else runs on the machine counts little. Memory of Headgate is
what a process that received the set needs for it, with the memory of one run; the others state their heap. All must
find as many matches as Headgate, and Headgate the same as each filter alone on a sample.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import ARTIFACTS, report_table, short
from rule_workloads import WORKLOADS, Workload, document_of, events_of, filter_of, message_of, pattern_of, rules_of

from headgate.evaluate import Verdict
from headgate.evaluate.rules import RuleSet
from headgate.message.batch import EncodedMessages

RULES = 100_000
EVENTS = 50_000
CHECKED = 100
ROUNDS = 5
ROUND_S = 1.0
SAMPLED_RULES = 500
PROJECT = Path(__file__).resolve().parent / "java" / "rules"
OUTPUT = ARTIFACTS / "java-rules"
HEADER = ("rules", "engine", "rules taken", "seconds to build", "bytes a rule", "events/s", "of Headgate's")


def event_ruler() -> list[str] | None:
    """The program that measures Event Ruler, fetched and compiled; None where that cannot be."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return None
    goals = ("compile", "dependency:copy-dependencies")
    command = ["mvn", "--quiet", "--batch-mode", "-f", str(PROJECT / "pom.xml"), f"-Doutput={OUTPUT}", *goals]
    if subprocess.run(command, check=False).returncode != 0:
        return None
    classes = f"{OUTPUT / 'classes'}:{OUTPUT / 'libraries'}/*"
    return ["java", "-XX:+UseSerialGC", "-Xmx8g", "-cp", classes, "EventRulerRate"]


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def received(folder: Path) -> None:
    """In a process of its own: the memory of a set that was sent, and its rate, as JSON."""
    batch: EncodedMessages = pickle.loads((folder / "batch").read_bytes())
    content = (folder / "set").read_bytes()
    # What the process needs for any set is there before.
    RuleSet([filter_of(rule) for rule in rules_of(WORKLOADS[2], 400)]).match(batch, now_ms=0)
    gc.collect()
    before = resident_bytes()
    rules: RuleSet = pickle.loads(content)
    rules.match(batch.take(slice(0, 5000)), now_ms=0)
    gc.collect()
    held = resident_bytes() - before
    rates = []
    for _ in range(ROUNDS):
        events = 0
        start = time.process_time()
        while time.process_time() - start < ROUND_S:
            rules.match(batch, now_ms=0)
            events += len(batch)
        rates.append(events / (time.process_time() - start))
    print(json.dumps({"bytes": held, "rates": rates}))


def headgate(
    workload: Workload, count: int, folder: Path, *, in_body: bool
) -> tuple[dict[str, Any], RuleSet, EncodedMessages]:
    """Headgate's figures, the set, and the events; `in_body`: these are JSON bodies."""
    filters = [filter_of(rule, within="body." if in_body else "") for rule in rules_of(workload, count)]
    batch = EncodedMessages.of([message_of(event, in_body=in_body) for event in events_of(workload, EVENTS, count)])
    start = time.process_time()
    rules = RuleSet(filters)
    built = time.process_time() - start
    (folder / "batch").write_bytes(pickle.dumps(batch))
    (folder / "set").write_bytes(pickle.dumps(rules))
    command = [sys.executable, __file__, "--received", str(folder)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    sample = batch.take(slice(0, CHECKED))
    matches = rules.match(sample, now_ms=0)
    together = set(zip(matches.rows.tolist(), matches.rules.tolist(), strict=True))
    for number in range(0, count, max(1, count // SAMPLED_RULES)):
        rows = {row for row, rule in together if rule == number}
        alone = {
            row for row in range(CHECKED) if filters[number].verdict(sample.message(row), now_ms=0) is Verdict.TRUE
        }
        assert rows == alone, filters[number].text
    return {"rules": count, "build_s": built, "bytes_per_rule": found["bytes"] / count, **found}, rules, batch


def rival(
    name: str,
    command: Sequence[str],
    workload: Workload,
    rules: int,
    folder: Path,
    build_s: float,
    *,
    without: Collection[str],
) -> tuple[dict[str, Any], list[int]]:
    """Another engine's figures, and the numbers of the rules that it was given, `without` some kinds."""
    given = rules_of(workload, rules)
    numbers = [number for number, rule in enumerate(given) if not any(condition.kind in without for condition in rule)]
    (folder / "rules").write_text("".join(pattern_of(given[number]) + "\n" for number in numbers))
    (folder / "events").write_text("".join(document_of(event) + "\n" for event in events_of(workload, EVENTS, rules)))
    arguments = (folder / "rules", folder / "events", CHECKED, ROUND_S, ROUNDS, build_s)
    ended = subprocess.run([*command, *map(str, arguments)], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, f"{name}: {ended.stderr[-500:]}"
    found: dict[str, Any] = json.loads(ended.stdout)
    return found, numbers[: found["rules"]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--received", type=Path)
    options.add_argument("--workload", action="append", choices=[workload.name for workload in WORKLOADS])
    options.add_argument("--rules", type=int, default=RULES)
    options.add_argument("--build-seconds", type=float, default=300, help="rules that take longer are left out")
    options.add_argument("--rival", action="append", default=[], metavar="NAME=COMMAND")
    options.add_argument(
        "--without", action="append", default=[], metavar="NAME=KIND,…", help="kinds of conditions that a rival lacks"
    )
    given = options.parse_args()
    if given.received is not None:
        received(given.received)
        return
    rivals = {"Event Ruler": event_ruler()}
    rivals |= {name: shlex.split(command) for name, _, command in (each.partition("=") for each in given.rival)}
    lacking = {name: kinds.split(",") for name, _, kinds in (each.partition("=") for each in given.without)}
    cells = []
    measurements: list[dict[str, Any]] = []
    for workload in (each for each in WORKLOADS if not given.workload or each.name in given.workload):
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            own, rules, batch = headgate(workload, given.rules, folder, in_body=False)
            sample = rules.match(batch.take(slice(0, CHECKED)), now_ms=0)
            rate = statistics.median(own["rates"])
            of_bodies, rules, batch = headgate(workload, given.rules, folder, in_body=True)
            again = rules.match(batch.take(slice(0, CHECKED)), now_ms=0)
            assert np.array_equal(sample.rows, again.rows) and np.array_equal(sample.rules, again.rules)
            found = [("Headgate, properties", own), ("Headgate, JSON bodies", of_bodies)]
            for name, command in rivals.items():
                if command is None:
                    continue
                other, numbers = rival(
                    name, command, workload, given.rules, folder, given.build_seconds, without=lacking.get(name, [])
                )
                taken = set(numbers)
                expected = sum(number in taken for number in sample.rules.tolist())
                assert other["matches"] == expected, f"{name} finds {other['matches']} matches, Headgate {expected}"
                found.append((name, other))
        for name, figures in found:
            median = statistics.median(figures["rates"])
            cells.append(
                (
                    workload.name,
                    name,
                    f"{figures['rules']:,}",
                    f"{figures['build_s']:.1f}",
                    f"{figures['bytes_per_rule']:,.0f}",
                    short(median).strip(),
                    f"{median / rate:.2g}",
                )
            )
            measurements.append({"workload": workload.name, "engine": name, **figures})
            print(cells[-1], flush=True)
    title = f"{given.rules:,} rules beside other engines, events a second of one core"
    report_table("rule_engines", title, HEADER, cells, measurements)


if __name__ == "__main__":
    main()
