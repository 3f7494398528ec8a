"""Match indexes built by Spark: the same sidecars as in one process, and reads that use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.derived.match_index.build import BuildCounters
from headgate.derived.match_index.registry import REGISTRY_NAME, FilterRegistry
from headgate.errors import LogError
from headgate.log import Stream, StreamArguments
from headgate.log.sidecar import sidecar_path
from headgate.spark import copy_stream, counters
from headgate.spark.derived import build_match_index
from match_indexes import build_index

from .conftest import order, write_stream

pytestmark = pytest.mark.spark

COUNT = 600
TEXT = "region = 'AMER'"


@pytest.fixture
def stream(root: Path) -> Stream:
    """Orders over several segments, with one registered filter."""
    limits = StreamArguments(max_segment_size_bytes=40_000)
    made = write_stream(root, "in", [order(n) for n in range(COUNT)], arguments=limits)
    FilterRegistry(made).register("amer#in", TEXT, "amqp", now_ms=1)
    return made


def contents(stream: Stream) -> list[bytes]:
    return [sidecar_path(segment).read_bytes() for segment in stream.segments()]


def test_the_job_makes_the_sidecars_that_one_process_makes_and_only_what_is_new(
    spark: SparkSession, root: Path, stream: Stream
) -> None:
    done = build_match_index(spark, [stream])[stream.path.absolute()]
    assert (done.chunks_decided, done.messages_decided) == (12, COUNT)
    assert done.segments == done.segments_written == len(stream.segments()) > 1
    built = contents(stream)
    build_index(stream, now_ms=1, full=True)
    assert contents(stream) == built
    grown = write_stream(root, "in", [order(n) for n in range(COUNT, COUNT + 30)])
    again = build_match_index(spark, [grown])[stream.path.absolute()]
    assert (again.chunks_decided, again.messages_decided) == (1, 30)


def test_batch_streaming_and_copy_read_by_the_index_what_they_read_without(
    spark: SparkSession, root: Path, stream: Stream, tmp_path: Path
) -> None:
    build_match_index(spark, [stream])
    options = {"root": str(root), "stream": "in", "filter": TEXT, "columns": "offset"}

    def offsets(name: str, **more: str) -> list[int]:
        loaded = spark.read.format("headgate").options(**options, counters=name, **more).load()
        return [row.offset for row in loaded.collect()]

    assert offsets("with") == offsets("without", match_index="false") == list(range(0, COUNT, 3))
    counted = counters("with", root=root)
    assert (counted["messages_evaluated"], counted["messages_decided_by_index"]) == (0, COUNT)
    assert counters("without", root=root)["messages_evaluated"] == COUNT
    target = {"root": str(root), "stream": "out"}
    copied = copy_stream(spark, {"root": str(root), "stream": "in", "filter": TEXT}, target, checkpoint=tmp_path / "c")
    assert copied.messages_written == COUNT // 3
    assert copied.counters["messages_decided_by_index"] == COUNT


def test_a_registered_text_that_is_no_filter_stops_the_build_before_spark_is_asked(stream: Stream) -> None:
    from typing import cast

    path = stream.path / REGISTRY_NAME
    # By hand, as the message about a wrong checksum says.
    content = json.loads(path.read_bytes())
    del content["crc"]
    content["filters"][0]["text"] = "region ="
    path.write_text(json.dumps(content))
    with pytest.raises(LogError, match="found the end of the filter") as caught:
        build_match_index(cast(SparkSession, None), [stream])
    assert caught.value.path == path
    assert build_match_index(cast(SparkSession, None), []) == {}


def test_streams_without_filters_are_passed_over(spark: SparkSession, root: Path) -> None:
    made = write_stream(root, "plain", [order(n) for n in range(3)])
    assert build_match_index(spark, [made]) == {made.path.absolute(): BuildCounters(segments=1, chunks=1)}


def test_a_task_that_cannot_write_fails_the_build(spark: SparkSession, stream: Stream) -> None:
    sidecar_path(stream.segments()[0]).mkdir()
    with pytest.raises(PySparkException, match="writing failed"):
        build_match_index(spark, [stream])
