"""Spark Connect: source, sink, columns and the SQL function through a client that has no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.derived.columns import COLUMN_FILES, declare_columns
from headgate.log import StreamArguments, stream_folder

from .conftest import order, write_stream
from .connect import needs_connect, run_client

pytestmark = [pytest.mark.spark, needs_connect]

SMALL = StreamArguments(max_segment_size_bytes=3_000)
CLIENT = """
import sys
from headgate.spark import column, last_scan, session
from headgate.spark import read as read_table
root = sys.argv[1]
spark = session("connect")
assert "connect" in type(spark).__module__, type(spark)
read = spark.read.format("headgate").options(root=root, stream="in", filter="region = 'AMER'").load()
print("read", read.where("offset >= 30").count())
found = last_scan(spark)
print("scan", found.ranges, found.partitions_read, found.counters["messages_matched"])
frame = spark.sql("SELECT * FROM VALUES ('AMER', 5.0D), ('EMEA', 7.0D), ('AMER', 1.0D) AS t(region, price)")
print("column", frame.where(column("region = 'AMER' AND price > 2", frame.schema)).count())
frame.createOrReplaceTempView("orders")
print("match", spark.sql("SELECT count(*) FROM orders WHERE headgate_match('price > 2', struct(*))").first()[0])
query = (
    spark.readStream.format("headgate").options(root=root, stream="in").load()
    .writeStream.format("headgate").options(root=root, stream="out")
    .option("checkpointLocation", root + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
print("copied", spark.read.format("headgate").options(root=root, stream="out").load().count())
table = read_table(spark, "filed", root=root, columns="offset, region string", filter="region = 'AMER'", start=30)
print("table", len(table.inputFiles()) > 1, sorted(row.offset for row in table.collect()) == list(range(30, 99, 3)))
spark.stop()
"""


def test_a_client_of_spark_connect_reads_filters_and_writes(root: Path, connect_address: str) -> None:
    write_stream(root, "in", [order(n) for n in range(99)])
    filed = write_stream(root, "filed", [order(n) for n in range(99)], chunk_messages=6, arguments=SMALL)
    declare_columns(filed, "region string")
    assert all(report.built for report in COLUMN_FILES.build(filed, now_ms=1))
    printed = run_client(CLIENT, str(root), address=connect_address, folder=root)
    assert printed[:5] == ["read 23", "scan {'in': (30, 99)} 1 23", "column 1", "match 2", "copied 99"]
    assert printed[5] == "table True True"
    assert stream_folder(root, "out").exists()
