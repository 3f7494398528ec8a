"""Delta tables of a pipeline that runs through a client of Spark Connect, which has no JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from .conftest import order, write_stream
from .connect import needs_connect, run_client

pytestmark = [pytest.mark.spark, needs_connect]

CLIENT = """
import json, sys
from headgate.errors import PipelineError
from headgate.spark import session
from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check
spark = session("connect")
assert "connect" in type(spark).__module__, type(spark)
try:
    run(check(json.loads(sys.argv[1])), spark=spark)
except PipelineError as error:
    print(error)
    print([each.rows_written for each in error.report.sinks])
spark.stop()
"""


def test_a_delta_table_is_replaced_over_spark_connect_and_appending_is_refused(
    tmp_path: Path, connect_address: str
) -> None:
    write_stream(tmp_path / "root", "in", [order(number) for number in range(60)])
    content = {
        "name": "p",
        "root": str(tmp_path / "root"),
        "source": [{"name": "orders", "stream": "in"}],
        "step": [{"name": "ids", "inputs": ["orders"], "sql": "SELECT offset AS id FROM orders"}],
        "sink": [
            {"name": "added", "input": "ids", "format": "delta", "path": str(tmp_path / "added")},
            {"name": "whole", "input": "ids", "format": "delta", "path": str(tmp_path / "whole"), "mode": "complete"},
        ],
    }
    printed = run_client(CLIENT, json.dumps(content), address=connect_address, folder=tmp_path)
    refused, replaced = printed
    assert refused.startswith("sink 'added': format delta with mode append needs a Spark session in this process")
    assert replaced == "[60]"
    assert sorted(DeltaTable(tmp_path / "whole").to_pyarrow_table()["id"].to_pylist()) == list(range(60))
    assert not (tmp_path / "added").exists()
