"""Every Spark row at 1, 2, 4 … cores: how reading and writing grow with the machine, Parquet beside it.

    python benchmarks/scaling.py [CORES …]
    python benchmarks/scaling.py --workers [WORKERS …]

Without arguments: powers of two up to the cores of this machine. Each number of cores is measured by a process of its
own (`local[CORES]`), over the same files in the page cache. Streams, Parquet and column files are made once, outside
the times. HEADGATE_BENCH_MESSAGES sets the number of messages of the reads, of 205 bytes; a quarter of them is written.

With `--workers`: count, copy and route on standalone clusters of 1 and 2 workers, or as many as given, each a process
with one core. From 1 to 2 at least 1.8 times is wanted, where driver and master have cores of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
from harness import report_table, short
from pyspark.sql import SparkSession
from spark_columns import DECLARED, GROUPED, sums
from spark_count import TYPED, typed_rows
from spark_route import SUBSCRIPTIONS, topic_of
from streams import RARE_FILTER, event_stream

from headgate.derived.columns import declare_columns
from headgate.log import Stream, stream_folder
from headgate.spark import build_column_files, copy_stream, read, session
from headgate.spark.java import choose_java
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
    on_clusters: bool = False
    """Whether it is in the table of clusters, too."""


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
        Row("filter and count", MESSAGES, counted.count, on_clusters=True),
        Row("filter and count, Parquet", MESSAGES, typed.where(TYPED).count),
        Row("GROUP BY, message bytes", MESSAGES, lambda: sums(by_bytes)),
        Row("GROUP BY, column files", MESSAGES, lambda: sums(by_columns)),
        Row("GROUP BY, Parquet", MESSAGES, lambda: sums(typed)),
        Row("filtered copy", MESSAGES, lambda: copy_stream(spark, filtered, target), clear),
        Row(
            "copy of all",
            WRITTEN,
            lambda: copy_stream(spark, {"stream": str(small.path)}, target),
            clear,
            on_clusters=True,
        ),
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
            on_clusters=True,
        ),
    ]


@contextlib.contextmanager
def cluster(workers: int, folder: str) -> Iterator[str]:
    """The address of a master with workers of one core each."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    java_home = choose_java().java_home
    environment = os.environ if java_home is None else {**os.environ, "JAVA_HOME": str(java_home)}
    wanted: list[tuple[str, ...]] = [("master.Master", "--port", str(port))]
    wanted += [("worker.Worker", "--cores", "1", "--memory", "4g", "--work-dir", folder, master)] * workers
    daemons = []
    try:
        for name, *arguments in wanted:
            program = [f"{pyspark.__path__[0]}/bin/spark-class", f"org.apache.spark.deploy.{name}"]
            command = [*program, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
            with tempfile.TemporaryFile() as log:
                daemons.append(subprocess.Popen(command, env=environment, stderr=log, start_new_session=True))
        yield master
    finally:
        for daemon in daemons:
            os.killpg(daemon.pid, signal.SIGTERM)
            daemon.wait()


def measure_rows(place: Path, master: str, cores: int) -> dict[str, float]:
    """Messages a second by row, the median round; of a cluster, only the rows of its table."""
    registered = {"spark.cores.max": str(cores), "spark.scheduler.minRegisteredResourcesRatio": "1"}
    spark = session("scaling", master=master, config={"spark.driver.memory": MEMORY, **registered})
    rates = {}
    for row in rows_of(spark, place):
        if not master.startswith("local") and not row.on_clusters:
            continue
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
    parser.add_argument("numbers", nargs="*", type=int, help="numbers of cores or workers (default: powers of two)")
    parser.add_argument("--workers", action="store_true", help="on standalone clusters")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure_rows(options.measure, options.master, options.numbers[0])))
        return
    numbers = options.numbers or ([1, 2] if options.workers else powers_of_two(os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        make_files(Path(folder))
        rates = []
        for number in numbers:
            with cluster(number, folder) if options.workers else contextlib.nullcontext(f"local[{number}]") as master:
                command = [sys.executable, __file__, str(number), "--measure", folder, "--master", master]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rates.append(json.loads(done.stdout.splitlines()[-1]))
    cells = [
        [name, "messages/s", *(short(found[name]) for found in rates), f"{rates[-1][name] / rate:.2f}"]
        for name, rate in rates[0].items()
    ]
    what = "workers" if options.workers else "cores"
    title = f"Spark by {what}: {MESSAGES:,} messages read, {WRITTEN:,} written"
    head = ("what", "unit", *map(str, numbers), "last : first")
    report_table(f"scaling_{what}" if options.workers else "scaling", title, head, cells, rates)


if __name__ == "__main__":
    main()
