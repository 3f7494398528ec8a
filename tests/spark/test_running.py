"""Two drivers of one query: the second is refused before Spark begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import QueryRunningError
from headgate.spark import copy_stream
from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check
from headgate.spark.route import declare_topic, output_of_copies, route_topic
from headgate.spark.running import only_run
from headgate.topic import Rule, Subscription, Topic

from .conftest import order, write_stream

pytestmark = pytest.mark.spark

HELD = rf"process {os.getpid()} on .*, since 20\d\d-.* runs the query with checkpoint .*; wait for its end, or end that"


def test_a_copy_a_route_and_a_pipeline_are_refused_while_another_driver_runs_them(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    write_stream(root, "in", [order(n) for n in range(3)])
    declare_topic(root, Topic("in", (Subscription("all", (Rule("all", "1 = 1"),)),)))
    source, target = {"root": str(root), "stream": "in"}, {"root": str(root), "stream": "out"}
    state = tmp_path / "state"
    sources, sinks = [{"name": "in", "stream": "in"}], [{"name": "out", "input": "in", "stream": "out"}]
    pipeline = check({"name": "one", "root": str(root), "state": str(state), "source": sources, "sink": sinks})
    with only_run(tmp_path / "copy"), only_run(tmp_path / "route"), only_run(state):
        with pytest.raises(QueryRunningError, match=HELD):
            copy_stream(spark, source, target, checkpoint=tmp_path / "copy")
        with pytest.raises(QueryRunningError, match=HELD):
            route_topic(spark, root, "in", {output_of_copies("all"): target}, checkpoint=tmp_path / "route")
        with pytest.raises(QueryRunningError, match=HELD):
            run(pipeline, spark=spark)
    assert copy_stream(spark, source, target, checkpoint=tmp_path / "copy").messages_written == 3


@pytest.mark.parametrize("checkpoint", [None, "s3a://bucket/checkpoint", "hdfs://name:9000/checkpoint"])
def test_nothing_is_locked_without_a_checkpoint_in_a_folder(
    checkpoint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with only_run(checkpoint), only_run(checkpoint):
        assert not list(tmp_path.iterdir())
