"""Spark, two cores: GROUP BY and the order filter over a stream, with column files and without, beside plain Parquet.

Plain Parquet is what Spark writes of the same declared columns, in order of arrival. Making it, and building the column
files, is not in the times; nor is the check of the files, once in a process. HEADGATE_BENCH_MESSAGES sets the number.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import Measurement, report
from pyspark.sql import DataFrame
from streams import ORDER_FILTER, event_stream

from headgate.derived.columns import column_files, declare_columns
from headgate.spark import build_column_files, read, session

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "20000000"))
SEGMENT_BYTES = 500_000_000
ROUNDS = 5
WARM_UP = 5
"""Rounds until the JVM has compiled what it runs."""
DECLARED = (
    "region string, price double, quantity int, customer_id bigint, channel string, premium_customer boolean, "
    "p.subject, p.creation_time, p.message_id, h.priority"
)
GROUPED = "region string, price double"
SEALED = "headgate.spark.read, sealed segments alone"
ORDERS = """
subject = 'order.created' AND creation_time > timestamp_millis(1700000000000) AND region IN ('AMER','EMEA','APJ')
AND (coalesce(priority, 4) > 4 OR price >= 99.99 OR premium_customer)
"""


def in_turn(runs: dict[str, Callable[[], object]], messages: dict[str, int]) -> list[Measurement]:
    """Rounds of all in turn, so that what else the machine does hits each.

    `messages`: how many there are where not all are read.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(WARM_UP + ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if number >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
    return [Measurement(name, messages.get(name, MESSAGES), taken) for name, taken in seconds.items()]


def sums(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((row[0], round(row[1], 2)) for row in frame.groupBy("region").sum("price").collect())


def main() -> None:
    spark = session("benchmark", master="local[2]", config={"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        place = Path(folder)
        stream = event_stream(place / "events", messages=MESSAGES, segment_bytes=SEGMENT_BYTES)
        declare_columns(stream, DECLARED)
        source = spark.read.format("headgate").option("stream", str(stream.path))
        source.option("columns", DECLARED).load().write.parquet(str(place / "plain"))
        plain = spark.read.parquet(str(place / "plain"))
        without = source.option("columns", GROUPED).load()
        orders = source.options(columns="offset", filter=ORDER_FILTER, column_files="false").load()
        decided = source.options(columns="offset", filter=ORDER_FILTER, column_files="true").load()
        build_column_files(spark, [stream])
        with_files = read(spark, stream.path, columns=GROUPED)
        of_files = read(spark, stream.path, columns="offset", filter=ORDER_FILTER)
        behind = column_files(stream)[-1].next_offset
        sealed = read(spark, stream.path, columns=GROUPED, stop=behind)
        of_sealed = read(spark, stream.path, columns="offset", filter=ORDER_FILTER, stop=behind)
        assert sums(with_files) == sums(without) == sums(plain)
        assert of_files.count() == orders.count() == plain.where(ORDERS).count()
        baseline = "Parquet written by Spark: GROUP BY region, sum(price)"
        grouping = {
            baseline: lambda: sums(plain),
            "headgate.spark.read with column files": lambda: sums(with_files),
            SEALED: lambda: sums(sealed),
            'format("headgate"), two columns': lambda: sums(without),
        }
        report(
            "spark_columns",
            f"Spark, local[2]: GROUP BY over {MESSAGES:,} messages",
            in_turn(grouping, {SEALED: behind}),
            baseline=baseline,
        )
        baseline = "Parquet written by Spark: order filter, count"
        filtering: dict[str, Callable[[], object]] = {
            baseline: lambda: plain.where(ORDERS).count(),
            "headgate.spark.read with column files": of_files.count,
            SEALED: of_sealed.count,
            'format("headgate") with column files': decided.count,
            'format("headgate") without column files': orders.count,
        }
        report(
            "spark_columns_filter",
            f"Spark, local[2]: order filter over {MESSAGES:,} messages, count",
            in_turn(filtering, {SEALED: behind}),
            baseline=baseline,
        )
    spark.stop()


if __name__ == "__main__":
    main()
