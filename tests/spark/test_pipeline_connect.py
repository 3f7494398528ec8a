"""Sinks of a pipeline that runs through a client of Spark Connect, which has no JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from .conftest import order, write_stream
from .connect import needs_connect, run_client

pytestmark = [pytest.mark.spark, needs_connect]

CLIENT = """
import json, sys
from headgate.spark import session
from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check
spark = session("connect")
assert "connect" in type(spark).__module__, type(spark)
print(json.dumps([each.rows_written for each in run(check(json.loads(sys.argv[1])), spark=spark).sinks]))
spark.stop()
"""


def test_files_that_are_appended_or_replaced_over_spark_connect_hold_the_rows_that_are_reported(
    tmp_path: Path, connect_address: str
) -> None:
    write_stream(tmp_path / "root", "in", [order(number) for number in range(60)])
    content = {
        "name": "p",
        "root": str(tmp_path / "root"),
        "source": [{"name": "orders", "stream": "in"}],
        "step": [{"name": "ids", "inputs": ["orders"], "sql": "SELECT offset AS id FROM orders"}],
        "sink": [
            {"name": "added", "input": "ids", "format": "parquet", "path": str(tmp_path / "added")},
            {"name": "whole", "input": "ids", "format": "parquet", "path": str(tmp_path / "whole"), "mode": "complete"},
        ],
    }
    reported = []
    for _ in range(2):
        printed = run_client(CLIENT, json.dumps(content), address=connect_address, folder=tmp_path)
        reported.append(json.loads(printed[-1]))
    assert reported == [[60, 60], [0, 60]]
    for name in ("added", "whole"):
        files = list((tmp_path / name).glob("*.parquet"))
        assert sorted(value for file in files for value in pq.read_table(file)["id"].to_pylist()) == list(range(60))
