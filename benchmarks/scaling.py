"""Every Spark row at 1, 2, 4 … cores: how reading and writing grow with the machine, Parquet beside it.

    python benchmarks/scaling.py [CORES …]

Without arguments: powers of two up to the cores of this machine. Each number of cores is measured by a process of its
own (`local[CORES]`), over the same files in the page cache. Streams, Parquet and column files are made once, outside
the times. HEADGATE_BENCH_MESSAGES sets the number of messages of the reads, of 205 bytes; a quarter of them is written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import report_table, short
from pyspark.sql import SparkSession
from spark_columns import DECLARED, GROUPED, sums
from spark_count import TYPED, typed_rows
from spark_route import SUBSCRIPTIONS, topic_of
from streams import RARE_FILTER, event_stream

from headgate.derived.columns import declare_columns
from headgate.log import Stream, stream_folder
from headgate.spark import build_column_files, copy_stream, read, session
from headgate.spark.route import declare_topic, output_of_copies, route_topic

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "20000000"))
WRITTEN = MESSAGES // 4
ROUNDS = 3
WARM_UP = 2
MEMORY = "4g"
EVENTS, SMALL, ROWS, TYPED_ROWS = "events", "small", "rows", "typed"
"""Folders of the files: both streams, messages as rows of Parquet, and typed columns as Parquet."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: what is run over how many messages; `prepare` runs before each round, outside the time."""

    name: str
    messages: int
    run: Callable[[], object]
    prepare: Callable[[], object] | None = None


def make_files(place: Path) -> None:
    spark = session("scaling", master="local[*]", config={"spark.driver.memory": MEMORY})
    events = event_stream(place / EVENTS, messages=MESSAGES)
    small = event_stream(place / SMALL, messages=WRITTEN)
    typed_rows(spark, events).write.parquet(str(place / TYPED_ROWS))
    rows = spark.read.format("headgate").option("columns", "properties,application_properties,body")
    rows.load(str(small.path)).write.parquet(str(place / ROWS))
    declare_columns(events, DECLARED)
    build_column_files(spark, [events])
    spark.stop()


def rows_of(spark: SparkSession, place: Path) -> list[Row]:
    events, small = Stream.open(place / EVENTS), Stream.open(place / SMALL)
    source = spark.read.format("headgate").option("column_files", "false")
    counted = source.options(columns="offset", filter=RARE_FILTER).load(str(events.path))
    by_bytes = spark.read.format("headgate").options(column_files="false", columns=GROUPED).load(str(events.path))
    by_columns = read(spark, events.path, columns=GROUPED)
    typed, plain = (spark.read.parquet(str(place / name)) for name in (TYPED_ROWS, ROWS))
    root = place / "root"
    target = {"root": str(root), "stream": "out", "filter_source": "properties.subject"}
    topic = stream_folder(root, EVENTS)
    outputs = {output_of_copies(f"s{n}"): {"root": str(root), "stream": f"s{n}"} for n in range(SUBSCRIPTIONS)}

    def clear() -> None:
        shutil.rmtree(root, ignore_errors=True)

    def clear_for_routes() -> None:
        clear()
        topic.parent.mkdir(parents=True)
        topic.mkdir()
        for file in small.path.iterdir():
            # Links: a copy of the stream would be most of the preparation.
            if file.is_file() and file.suffix != ".json":
                os.link(file, topic / file.name)
            elif file.is_file():
                shutil.copy(file, topic)
        declare_topic(root, topic_of(SUBSCRIPTIONS, None))

    filtered = {"stream": str(events.path), "filter": RARE_FILTER}
    return [
        Row("filter and count", MESSAGES, counted.count),
        Row("filter and count, Parquet", MESSAGES, typed.where(TYPED).count),
        Row("GROUP BY, message bytes", MESSAGES, lambda: sums(by_bytes)),
        Row("GROUP BY, column files", MESSAGES, lambda: sums(by_columns)),
        Row("GROUP BY, Parquet", MESSAGES, lambda: sums(typed)),
        Row("filtered copy", MESSAGES, lambda: copy_stream(spark, filtered, target), clear),
        Row("copy of all", WRITTEN, lambda: copy_stream(spark, {"stream": str(small.path)}, target), clear),
        Row(
            "rows of Parquet into a stream",
            WRITTEN,
            lambda: plain.write.format("headgate").options(**target).mode("append").save(),
            clear,
        ),
        Row(
            f"route to {SUBSCRIPTIONS:,} subscriptions",
            WRITTEN,
            lambda: route_topic(spark, root, EVENTS, outputs),
            clear_for_routes,
        ),
    ]


def measure_rows(place: Path, cores: int) -> dict[str, float]:
    """Messages a second by row, the median round, with this number of cores."""
    spark = session("scaling", master=f"local[{cores}]", config={"spark.driver.memory": MEMORY})
    rates = {}
    for row in rows_of(spark, place):
        seconds = []
        for _ in range(WARM_UP + ROUNDS):
            if row.prepare is not None:
                row.prepare()
            start = time.perf_counter()
            row.run()
            seconds.append(time.perf_counter() - start)
        rates[row.name] = row.messages / statistics.median(seconds[WARM_UP:])
    spark.stop()
    return rates


def powers_of_two(most: int) -> list[int]:
    return [1 << bit for bit in range(most.bit_length())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cores", nargs="*", type=int, help="numbers of cores (default: powers of two)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure_rows(options.measure, options.cores[0])))
        return
    numbers = options.cores or powers_of_two(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        make_files(Path(folder))
        rates = []
        for cores in numbers:
            command = [sys.executable, __file__, str(cores), "--measure", folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rates.append(json.loads(done.stdout.splitlines()[-1]))
    cells = [[name, "messages/s", *(short(found[name]) for found in rates)] for name in rates[0]]
    title = f"Spark by cores: {MESSAGES:,} messages read, {WRITTEN:,} written"
    report_table("scaling", title, ("what", "unit", *map(str, numbers)), cells, rates)


if __name__ == "__main__":
    main()
