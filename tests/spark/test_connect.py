"""Spark Connect: source, sink, columns and the SQL function through a client that has no JVM."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.log import stream_folder

from .conftest import order, write_stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        importlib.util.find_spec("grpc_status") is None,
        reason="Spark Connect needs packages that are not installed: pip install 'pyspark[connect]'",
    ),
]

CLIENT = """
import sys
from headgate.spark import column, session
root = sys.argv[1]
spark = session("connect")
assert "connect" in type(spark).__module__, type(spark)
read = spark.read.format("headgate").options(root=root, stream="in", filter="region = 'AMER'").load()
print("read", read.where("offset >= 30").count())
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
spark.stop()
"""


def test_a_client_of_spark_connect_reads_filters_and_writes(root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(99)])
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(root)],
        env={**os.environ, "SPARK_REMOTE": "local[2]", "PYSPARK_PYTHON": sys.executable},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n")[:4] == ["read 23", "column 1", "match 2", "copied 99"]
    assert stream_folder(root, "out").exists()
