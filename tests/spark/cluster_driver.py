"""A Spark driver for the tests of a cluster: the same job that `local[2]` runs, on the master that it is given.

Arguments: the master, the root, and a folder for signs. Tasks leave the process id of their executor in `executors`; a
task of the write waits at the file `gate` for as long as somebody else holds its lock.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.spark import copy_stream, session

FILTER = "region = 'AMER' AND price >= 10"


def executor_id() -> int:
    """The JVM that the daemon of this worker belongs to."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def at_the_gate(signs: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(f"{signs}/executors", "a") as arrived:
                arrived.write(f"{executor_id()}\n")
            with open(f"{signs}/gate", "a") as gate:
                fcntl.flock(gate, fcntl.LOCK_SH)
            yield batch

    return passing


def run(spark: SparkSession, root: str, signs: str) -> None:
    source = {"root": root, "stream": "in", "filter": FILTER, "partitions": "8"}
    copied = copy_stream(spark, source, {"root": root, "stream": "copy"})
    print("copied", copied.messages_written)
    frame = spark.read.format("headgate").options(**source, columns="offset,message").load()
    checked = frame.mapInArrow(at_the_gate(signs), frame.schema)
    checked.write.format("headgate").options(root=root, stream="rows").mode("append").save()
    summed = spark.read.format("headgate").options(root=root, stream="rows", properties="price double").load()
    print("summed", summed.selectExpr("sum(application_properties.price)").first()[0])


if __name__ == "__main__":
    master, root, signs = sys.argv[1:]
    executors = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    addresses = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    run(session("cluster", master=master, config={**executors, **addresses, "spark.ui.enabled": "false"}), root, signs)
