"""Sinks of a pipeline that runs through a client of Spark Connect, which has no JVM."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from .conftest import order, write_stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        importlib.util.find_spec("grpc_status") is None,
        reason="Spark Connect needs packages that are not installed: pip install 'pyspark[connect]'",
    ),
]

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


def test_files_that_are_appended_or_replaced_over_spark_connect_hold_the_rows_that_are_reported(tmp_path: Path) -> None:
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
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, json.dumps(content)],
            env={**os.environ, "SPARK_REMOTE": "local[2]", "PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        reported.append(json.loads(done.stdout.splitlines()[-1]))
    assert reported == [[60, 60], [0, 60]]
    for name in ("added", "whole"):
        files = list((tmp_path / name).glob("*.parquet"))
        assert sorted(value for file in files for value in pq.read_table(file)["id"].to_pylist()) == list(range(60))
