"""A Spark driver for the tests of a cluster: the same jobs that `local[2]` runs, on the master that it is given.

Arguments: the master, the root, a folder for signs, the job, and for the query its checkpoint. Tasks leave the process
id of their executor in `executors`; a task of the write waits at the file `gate` for as long as somebody else holds its
lock.
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

SHARES = 260
"""So many outputs are appended by a second job."""

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


def run_query(spark: SparkSession, root: str, signs: str, checkpoint: str) -> None:
    source = {"root": root, "stream": "in", "filter": FILTER, "partitions": "2", "max_messages_per_batch": "800"}
    frame = spark.readStream.format("headgate").options(**source, columns="offset,message").load()
    written = frame.mapInArrow(at_the_gate(signs), frame.schema).writeStream.format("headgate")
    written = written.options(root=root, stream="query", checkpointLocation=checkpoint).trigger(availableNow=True)
    written.start().awaitTermination()


def run_shares(spark: SparkSession, root: str, signs: str) -> None:
    targets = [{"root": root, "stream": f"share-{n}", "filter": f"number % {SHARES} = {n}"} for n in range(SHARES)]
    copy_stream(spark, {"root": root, "stream": "in", "partitions": "2"}, targets)


JOBS = {"job": run, "query": run_query, "shares": run_shares}

if __name__ == "__main__":
    master, root, signs, job, *checkpoint = sys.argv[1:]
    # A query takes one core: two drivers of it fit.
    cores = {"spark.executor.cores": "1", "spark.cores.max": "1" if checkpoint else "2"}
    quiet = {"spark.executor.memory": "512m", "spark.ui.enabled": "false"}
    addresses = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    made = session("cluster", master=master, config={**cores, **quiet, **addresses})
    JOBS[job](made, root, signs, *checkpoint)
