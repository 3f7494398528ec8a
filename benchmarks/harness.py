"""What every benchmark shares: measuring, one table on the terminal, JSON in `artifacts/` with the machine named.

A benchmark is a script: it measures its baseline in the same run, because rates of two machines or two days say little
beside each other.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ARTIFACTS = Path(__file__).resolve().parent.parent / "artifacts"


@dataclass(slots=True)
class Measurement:
    """Rounds of one thing: `work_items` done in each of `seconds`; `work_bytes` where bytes a second say something."""

    name: str
    work_items: int
    seconds: list[float]
    unit: str = "messages"
    work_bytes: int | None = None

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Items per second, by the median round."""
        return self.work_items / self.median_s

    @property
    def spread(self) -> float:
        """Slowest round less fastest, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s


def measure(
    name: str,
    run: Callable[[], object],
    work_items: int,
    *,
    rounds: int = 7,
    unit: str = "messages",
    work_bytes: int | None = None,
    prepare: Callable[[], object] | None = None,
) -> Measurement:
    """Run once to warm up, then `rounds` times; `prepare` runs before each, outside the time."""
    seconds = []
    for number in range(rounds + 1):
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        run()
        if number:
            seconds.append(time.perf_counter() - start)
    return Measurement(name, work_items, seconds, unit, work_bytes)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def report(subject: str, title: str, measurements: Sequence[Measurement], *, baseline: str) -> Path:
    """Print the table and write `artifacts/<subject>.json`; ratios are to the rate of the one named `baseline`."""
    base = next(measurement for measurement in measurements if measurement.name == baseline)
    table = Table(title=title, caption=", ".join(f"{key} {value}" for key, value in machine().items()))
    table.add_column("what")
    for column in ("median", "spread", "rate", "bytes/s", "ratio"):
        table.add_column(column, justify="right")
    rows = []
    for measurement in measurements:
        ratio = measurement.rate / base.rate
        per_second = None if measurement.work_bytes is None else measurement.work_bytes / measurement.median_s
        table.add_row(
            measurement.name,
            milliseconds(measurement.median_s),
            f"{100 * measurement.spread:.0f} %",
            f"{short(measurement.rate)} {measurement.unit}/s",
            "" if per_second is None else f"{short(per_second)}B/s",
            f"{ratio:.3g}",
        )
        row = asdict(measurement)
        row.update(median_s=measurement.median_s, spread=measurement.spread, rate=measurement.rate, ratio=ratio)
        rows.append(row)
    Console().print(table)
    ARTIFACTS.mkdir(exist_ok=True)
    path = ARTIFACTS / f"{subject}.json"
    content = {"title": title, "machine": machine(), "baseline": baseline, "measurements": rows}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def report_table(
    subject: str, title: str, header: Sequence[str], cells: Sequence[Sequence[str]], measurements: Sequence[object]
) -> Path:
    """Print a table whose figures have no common unit, and write it to `artifacts/<subject>.json`.

    The first two columns are names. `measurements` is what the cells were made of, any JSON.
    """
    table = Table(title=title, caption=", ".join(f"{key} {value}" for key, value in machine().items()))
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=number < 2)
    for line in cells:
        table.add_row(*line)
    console = Console()
    console.width = max(console.width, 180)
    console.print(table)
    ARTIFACTS.mkdir(exist_ok=True)
    path = ARTIFACTS / f"{subject}.json"
    content = {"title": title, "machine": machine(), "header": header, "cells": cells, "measurements": measurements}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def milliseconds(seconds: float) -> str:
    """A time as tables show it: three digits of what is short."""
    return f"{1e3 * seconds:.{1 if seconds >= 0.01 else 3}f} ms"


def short(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {suffix}"
    return f"{value:.3g} "
