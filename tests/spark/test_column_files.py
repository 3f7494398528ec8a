"""Column files built by Spark: the same files as in one process, once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headgate.derived.columns import COLUMN_FILES, column_files, declare_columns
from headgate.log import Stream, StreamArguments
from headgate.spark import build_column_files

from .conftest import order, write_stream

pytestmark = pytest.mark.spark

COUNT = 600


@pytest.fixture
def stream(root: Path) -> Stream:
    """Orders over several segments, with declared columns."""
    made = write_stream(
        root, "in", [order(n) for n in range(COUNT)], arguments=StreamArguments(max_segment_size_bytes=40_000)
    )
    declare_columns(made, "region string, price double")
    assert len(made.segments()) > 2
    return made


def test_the_job_makes_the_files_that_one_process_makes_and_only_what_is_new(
    spark: SparkSession, root: Path, stream: Stream
) -> None:
    expected = list(COLUMN_FILES.build(stream, now_ms=1))
    tables = [file.read() for file in column_files(stream)]
    names = [file.path.name for file in column_files(stream)]
    COLUMN_FILES.drop_files(stream)
    other = write_stream(root, "other", [order(1)])
    done = build_column_files(spark, [stream, other])
    reports = done[stream.path.absolute()]
    assert [(each.segment, each.built, each.messages) for each in reports] == [
        (each.segment, True, each.messages) for each in expected
    ]
    assert done[other.path.absolute()] == []
    assert [file.path.name for file in column_files(stream)] == names
    assert [file.read() for file in column_files(stream)] == tables
    again = build_column_files(spark, [stream])[stream.path.absolute()]
    assert not any(each.built for each in again)


def test_a_damaged_segment_is_named_and_keeps_no_other_from_its_file(spark: SparkSession, stream: Stream) -> None:
    path = stream.segments()[0].segment_path
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    first, *others = build_column_files(spark, [stream])[stream.path.absolute()]
    assert "checksum" in first.trouble
    assert all(each.built for each in others)


def test_without_a_stream_spark_is_not_asked() -> None:
    assert build_column_files(cast(SparkSession, None), []) == {}
