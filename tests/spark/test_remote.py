"""Streams whose segments lie in object storage: Spark reads what it read before they moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from headgate.clock import now_ms
from headgate.derived.columns import column_files, declare_columns
from headgate.errors import StreamReadOnlyError
from headgate.log import GRACE_MS, Stream, StreamArguments, Writer, stream_folder
from headgate.log.remote.cache import cache_folder
from headgate.log.remote.mover import move_segments
from headgate.spark import build_column_files, copy_stream, read

from ..log_streams import read_messages
from .conftest import order, subject_values, write_stream

pytestmark = pytest.mark.spark

COUNT = 600


@pytest.fixture
def location(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place for segments; a stream of orders over several segments has it as its remote."""
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    location = f"file://{tmp_path}/remote"
    limits = StreamArguments(max_segment_size_bytes=15_000, remote=location)
    write_stream(root, "in", [order(n) for n in range(COUNT)], filter_values=subject_values(COUNT), arguments=limits)
    yield location
    cache_folder.cache_clear()


def counted(spark: SparkSession, root: Path | str, **options: str) -> int:
    return spark.read.format("headgate").options(root=str(root), stream="in", **options).load().count()


def summed(spark: SparkSession, stream: Stream) -> list[Row]:
    rows = read(spark, stream.path, columns="region string, price double", filter="region <> 'EMEA'")
    return sorted(rows.groupBy("region").sum("price").collect())


def copied(spark: SparkSession, source: Path | str, root: Path, name: str) -> list[bytes]:
    wanted = {"filter": "region = 'AMER'", "filter_values": "order.created"}
    copy_stream(spark, {"root": str(source), "stream": "in", **wanted}, {"root": str(root), "stream": name})
    return [body for _, body in read_messages(Stream.open(stream_folder(root, name)))]


def test_counts_and_copies_are_the_same_before_and_after_a_move_and_without_the_folder(
    spark: SparkSession, root: Path, location: str
) -> None:
    before = copied(spark, root, root, "before")
    assert len(before) == 100 and counted(spark, root) == COUNT
    stream = Stream.open(stream_folder(root, "in"))
    declare_columns(stream, "price double, region string")
    sums = summed(spark, stream)
    with Writer.open(Stream.open(stream_folder(root, "in")), now_ms=now_ms()) as writer:
        assert move_segments(writer.stream, now_ms=now_ms()) is not None
        writer.release_local()
        segments = writer.stream.segments()
        assert segments.num_remote == len(segments) - 1 > 2
        sealed = segments[-1].first_chunk_id
    # The files here are not needed any more some time later.
    built = build_column_files(spark, [stream])[stream.path.absolute()]
    assert sum(report.built for report in built) == len(segments) - 1
    for later_ms in (0, GRACE_MS):
        move_segments(stream, now_ms=now_ms() + later_ms)
    assert len(column_files(stream)) == len(segments) - 1 and all(file.is_remote for file in column_files(stream))
    assert summed(spark, stream) == sums
    assert counted(spark, root) == counted(spark, root, partitions="3") == COUNT
    assert copied(spark, root, root, "after") == before
    assert counted(spark, location) == sealed
    elsewhere = copied(spark, location, root, "elsewhere")
    assert elsewhere == [body for body in before if body in {order(n) for n in range(sealed)}] != []
    with pytest.raises(StreamReadOnlyError):
        copy_stream(spark, {"root": str(root), "stream": "in"}, {"root": location, "stream": "out"})
