"""A topic of RocketMQ in Spark: published by its unmodified clients, filtered by their expression."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ..interop.programs import JAVA_ROCKETMQ_CLASSIC, PYTHON_ROCKETMQ
from ..interop.rocketmq import of_server
from ..interop.servers import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SQL = "TAGS = 'a' AND n BETWEEN 3 AND 5"


def test_spark_reads_what_clients_of_rocketmq_published(spark: SparkSession, tmp_path: Path) -> None:
    process = ServerProcess(tmp_path)
    try:
        place = of_server(process.start())
        place.topic("orders", queues=2)
        for client, how in (PYTHON_ROCKETMQ, {}), (JAVA_ROCKETMQ_CLASSIC, {"how": "batch"}):
            program = place.connected(client)
            messages = [
                {"body": f"{client} {n}", "tag": "ab"[n % 2], "properties": {"n": str(n), "größe": "ü"}}
                for n in range(10)
            ]
            program.ask("send", topic="orders", messages=messages, **how)
            program.stop()
        options = {"root": str(process.root), "stream": "orders-*", "properties": "n string, größe string"}
        rows = spark.read.format("headgate").options(**options, filter=SQL, dialect="rocketmq")
        found = rows.load().select("body", "application_properties").collect()
        expected = sorted(f"{client} 4" for client in (PYTHON_ROCKETMQ, JAVA_ROCKETMQ_CLASSIC))
        assert sorted(bytes(row.body).decode() for row in found) == expected
        assert {tuple(row.application_properties) for row in found} == {("4", "ü")}
    finally:
        process.close()
