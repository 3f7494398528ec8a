"""The ledger: copies claimed and completed a second, views opened, unsettled copies read back.

A turn claims, commits, completes, commits, as a driver does that answers its peers after each. The baseline appends
messages to a stream, one a chunk and two a turn: less a durable ledger cannot do. Files are in memory where there is a
folder for that, so that what is measured is processor time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Measurement, measure, report

from headgate.ledger import Ledger, Tokens, View, copy_number
from headgate.log import Entries, Run, Stream, Writer

COPIES = 200_000
SINGLES = 10_000
UNSETTLED = 1_000_000
VIEWS = 2_000
ROUNDS = 5
UNTIL_MS = 1 << 50
RULE_STEP = copy_number(1)


def main() -> None:
    memory = "/dev/shm"
    root = Path(tempfile.mkdtemp(prefix="headgate-benchmark-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        rows = [
            *measure_turns(root),
            *measure_opening(root),
        ]
    finally:
        shutil.rmtree(root)
    report("ledger", "The ledger: claims, settlement, opening", rows, baseline="append one message a chunk, two a turn")
    print(f"an idle view: {idle_view_bytes()} bytes")


def measure_turns(root: Path) -> list[Measurement]:
    stream = Stream.create(root / "appended", name="appended", now_ms=0)
    found = []
    with Writer.open(stream, now_ms=0) as writer:

        def append() -> None:
            for _ in range(2 * SINGLES):
                run = Run([Entries.of([b"x" * 120])])
                writer.append_runs([run], max_messages=1, max_bytes=200, now_ms=0, filter_source=None)

        name = "append one message a chunk, two a turn"
        found.append(measure(name, append, SINGLES, rounds=ROUNDS, unit="turns"))
    for name, number, batch, step in (
        ("claim and complete, 100 a turn, every message", COPIES, 100, 1),
        ("claim and complete, 100 a turn, 1 % of messages", COPIES, 100, 100),
        ("claim and complete, 100 a turn, beside 1 M unsettled", COPIES, 100, 1),
        ("claim and complete, one a turn", SINGLES, 1, 1),
    ):
        stream = Stream.create(root / name.replace(" ", "-"), name=name, now_ms=0)
        with Ledger.open(stream, now_ms=0) as ledger:
            view = ledger.view("view", 0)
            if "unsettled" in name:
                claim(view, 0, UNSETTLED, 1)
                ledger.commit(0)
            found.append(measure(name, turns(ledger, view, number, batch, step), number, rounds=ROUNDS, unit="copies"))
    return found


def turns(ledger: Ledger, view: View, number: int, batch: int, step: int) -> Callable[[], None]:
    """`number` copies of every `step`-th message, `batch` a turn."""

    def run() -> None:
        offset = view.available()[-1][0] >> 20
        for _ in range(number // batch):
            tokens = claim(view, offset, batch, step)
            ledger.commit(0)
            view.complete(tokens)
            ledger.commit(0)
            offset += batch * step

    return run


def claim(view: View, offset: int, count: int, step: int) -> Tokens:
    copies = (offset + step * np.arange(count, dtype=np.int64)) * RULE_STEP
    covered = [(copy_number(offset), copy_number(offset + count * step))]
    return view.claim(copies, UNTIL_MS, covered=covered).tokens


def measure_opening(root: Path) -> list[Measurement]:
    found = []
    stream = Stream.create(root / "many", name="many", now_ms=0)
    with Ledger.open(stream, now_ms=0) as ledger:
        for number in range(VIEWS):
            view = ledger.view(f"subscription {number}", 0)
            for start in range(0, UNSETTLED // VIEWS, 100):
                tokens = claim(view, 100 * start, 100, 100)
                if start % 200:
                    view.release(tokens, counts=True)
                ledger.commit(0)

        def count() -> None:
            for view in ledger.views():
                view.counts()

        def pin() -> None:
            assert ledger.pin == 0

        found.append(measure("counts of 2 000 views", count, VIEWS, rounds=ROUNDS, unit="views"))
        found.append(measure("the pin of 2 000 views", pin, VIEWS, rounds=ROUNDS, unit="views"))

    def open_it() -> None:
        Ledger.open(stream, now_ms=1).close()

    name = "open with 2 000 views and 1 M unsettled copies"
    found.append(measure(name, open_it, UNSETTLED, rounds=ROUNDS, unit="copies"))
    return found


def idle_view_bytes() -> int:
    """Memory of a view of which everything is settled."""
    with tempfile.TemporaryDirectory() as folder:
        stream = Stream.create(Path(folder) / "idle", name="idle", now_ms=0)
        with Ledger.open(stream, now_ms=0) as ledger:
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            for number in range(VIEWS):
                view = ledger.view(f"subscription {number}", 0)
                view.complete(claim(view, 0, 10, 1))
            ledger.commit(0)
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    return (after - before) // VIEWS


if __name__ == "__main__":
    main()
