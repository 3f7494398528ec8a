"""A Python worker of Spark that does not connect: its sink is tried once more, and the error says what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import PipelineError
from headgate.spark import copy_stream, register
from headgate.spark.pipeline import Report, run
from headgate.spark.pipeline.configuration import check
from headgate.spark.queries import HANDSHAKE

from ..conftest import order, write_stream
from .test_run import Watching

pytestmark = [pytest.mark.spark, pytest.mark.faults]

# A late worker connects and leaves at once, so that Spark does not wait its ten seconds.
_PYTHON = """#!{python}
import os, socket, sys

if "pyspark.sql.streaming.python_streaming_source_runner" in sys.argv:
    with open({starts!r}, "a+") as starts:
        starts.write("x")
        starts.flush()
        if os.stat({starts!r}).st_size in {late!r}:
            socket.create_connection(("127.0.0.1", int(os.environ["PYTHON_WORKER_FACTORY_PORT"]))).close()
            sys.exit()
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def test_a_sink_whose_worker_is_late_is_tried_once_more_and_the_next_run_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(_PYTHON.format(python=sys.executable, starts=str(tmp_path / "starts"), late=(1, 3, 5, 6)))
    python.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", str(python))
        register(spark)
    write_stream(tmp_path / "root", "in", [order(number) for number in range(100)])
    pipeline = check(
        {
            "name": "late",
            "root": str(tmp_path / "root"),
            "source": [{"name": "all", "stream": "in"}, {"name": "copied", "stream": "out", "columns": ["offset"]}],
            "sink": [
                {"name": "copy", "input": "all", "stream": "out"},
                {"name": "rows", "input": "copied", "format": "parquet", "path": str(tmp_path / "rows")},
            ],
        }
    )
    watching = Watching()
    place = {"root": str(tmp_path / "root")}
    try:
        done = copy_stream(
            spark, {**place, "stream": "in"}, {**place, "stream": "direct"}, checkpoint=tmp_path / "direct"
        )
        assert done.messages_written == 100
        with pytest.raises(
            PipelineError, match=r"^sink 'rows': .*busy; run the pipeline again, it continues"
        ) as failed:
            run(pipeline, spark=spark, watcher=watching)
        again = run(pipeline, spark=spark)
    finally:
        register(spark)
    copied = [("started", "copy"), ("retried", "copy"), ("finished", "copy")]
    assert watching.told == [*copied, ("started", "rows"), ("retried", "rows"), ("failed", "rows")]
    assert isinstance(failed.value.report, Report)
    assert [sink.rows_written for sink in failed.value.report.sinks] == [100]
    assert [sink.rows_written for sink in again.sinks] == [0, 100]
    assert os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] + "s" == HANDSHAKE[1]
