"""Sinks of a pipeline that runs through a client of Spark Connect, which has no JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ..conftest import order, write_stream
from ..connect import needs_connect, run_client

pytestmark = [pytest.mark.spark, needs_connect]

CLIENT = """
import json, sys
from headgate.errors import PipelineError
from headgate.spark import session
from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check
spark = session("connect")
assert "connect" in type(spark).__module__, type(spark)
content, times = json.loads(sys.argv[1])
for _ in range(times):
    try:
        report = run(check(content), spark=spark)
    except PipelineError as error:
        print(error)
        report = error.report
    print(json.dumps([each.rows_written for each in report.sinks]))
spark.stop()
"""


def run_pipeline(folder: Path, address: str, output: str, *, times: int) -> list[str]:
    """What a client prints that copies the offsets of 60 messages into `added` and `whole`."""
    write_stream(folder / "root", "in", [order(number) for number in range(60)])
    content: dict[str, Any] = {
        "name": "p",
        "root": str(folder / "root"),
        "source": [{"name": "orders", "stream": "in"}],
        "step": [{"name": "ids", "inputs": ["orders"], "sql": "SELECT offset AS id FROM orders"}],
        "sink": [
            {"name": "added", "input": "ids", "format": output, "path": str(folder / "added")},
            {"name": "whole", "input": "ids", "format": output, "path": str(folder / "whole"), "mode": "complete"},
        ],
    }
    return run_client(CLIENT, json.dumps([content, times]), address=address, folder=folder)


def test_files_that_are_appended_or_replaced_over_spark_connect_hold_the_rows_that_are_reported(
    tmp_path: Path, connect_address: str
) -> None:
    reported = run_pipeline(tmp_path, connect_address, "parquet", times=2)
    assert reported == ["[60, 60]", "[0, 60]"]
    for name in ("added", "whole"):
        files = list((tmp_path / name).glob("*.parquet"))
        assert sorted(value for file in files for value in pq.read_table(file)["id"].to_pylist()) == list(range(60))


def test_a_delta_table_is_replaced_over_spark_connect_and_appending_is_refused(
    tmp_path: Path, connect_address: str
) -> None:
    refused, replaced = run_pipeline(tmp_path, connect_address, "delta", times=1)
    assert refused.startswith("sink 'added': format delta with mode append needs a Spark session in this process")
    assert replaced == "[60]"
    assert sorted(DeltaTable(tmp_path / "whole").to_pyarrow_table()["id"].to_pylist()) == list(range(60))
    assert not (tmp_path / "added").exists()
