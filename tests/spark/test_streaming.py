"""Streaming reads and writes: exactly once over restarts, with the time and the limits of each batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.errors import OffsetOutOfRangeError, StreamReplacedError
from headgate.log import Stream, StreamArguments, stream_folder
from headgate.message import Message
from headgate.spark import counters, stream_schema
from headgate.spark.planning import StreamReplacedWarning
from headgate.spark.source import StreamReader

from ..log_streams import read_messages
from .conftest import order, subject_values, write_stream

pytestmark = pytest.mark.spark


def run(spark: SparkSession, root: Path, checkpoint: Path, *, target: str = "out", **options: Any) -> StreamingQuery:
    """Copy stream `in` through rows to `target`, to the end of what there is."""
    chosen = {"root": str(root), "stream": "in", "columns": "message"} | {n: str(v) for n, v in options.items()}
    query: StreamingQuery = (
        spark.readStream.format("headgate")
        .options(**chosen)
        .load()
        .writeStream.format("headgate")
        .options(root=str(root), stream=target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def numbers(root: Path, name: str = "out") -> list[int]:
    """The property `number` of all messages of a stream."""
    found = []
    for _, body in read_messages(Stream.open(stream_folder(root, name))):
        properties = Message.decode(body).application_properties
        assert properties is not None
        found.append(properties["number"].value)
    return found


def batches(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def reader(root: Path, **options: str) -> StreamReader:
    return StreamReader(stream_schema(("offset",), ()), {"root": str(root), "stream": "in", **options})


def at_offset(root: Path, offset: int, *, now_ms: int = 0) -> dict[str, Any]:
    identity = Stream.open(stream_folder(root, "in")).identity
    return {"now_ms": now_ms, "next": {"in": offset}, "identity": {"in": identity}}


def test_a_query_goes_on_where_it_stopped_and_reads_nothing_twice(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    write_stream(root, "in", [order(n) for n in range(120)])
    run(spark, root, tmp_path / "checkpoint", counters="stages")
    assert numbers(root) == list(range(120))
    run(spark, root, tmp_path / "checkpoint", counters="stages")
    assert numbers(root) == list(range(120))
    write_stream(root, "in", [order(n) for n in range(120, 150)])
    run(spark, root, tmp_path / "checkpoint", counters="stages")
    assert numbers(root) == list(range(150))
    assert counters("stages", root=root)["messages_evaluated"] == 150


def test_batches_keep_the_limit_at_chunk_ends_and_filters_skip(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(400)], filter_values=subject_values(400))
    query = run(spark, root, tmp_path / "one", max_messages_per_batch=120)
    assert batches(query) == [100, 100, 100, 100]
    assert numbers(root) == list(range(400))
    query = run(
        spark,
        root,
        tmp_path / "two",
        target="some",
        filter_values="order.created",
        filter="region = 'AMER'",
        max_bytes_per_batch=1,
    )
    assert numbers(root, "some") == [n for n in range(400) if n // 100 % 2 and n % 3 == 0]
    assert len(query.recentProgress) >= 8


def test_two_queries_into_one_stream_are_both_kept(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(60)])
    run(spark, root, tmp_path / "first", filter="number < 30")
    run(spark, root, tmp_path / "second", filter="number >= 30")
    assert numbers(root) == list(range(60))


def test_a_batch_that_is_repeated_after_its_commit_adds_nothing_and_keeps_its_time(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    """The checkpoint loses its note of the last batch, as when the driver dies right after the sink's commit."""
    write_stream(root, "in", [order(n) for n in range(100)])
    checkpoint = tmp_path / "checkpoint"
    filtered = {"filter": "p.creation_time > UTC() - 100000000000"}
    run(spark, root, checkpoint, **filtered)
    assert numbers(root) == list(range(100))
    planned = (checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    shutil.rmtree(checkpoint / "commits")
    run(spark, root, checkpoint, **filtered)
    assert numbers(root) == list(range(100))
    assert (checkpoint / "offsets" / "0").read_text().splitlines()[-1] == planned
    assert json.loads(planned)["next"] == {"in": 100}


def test_the_time_in_the_offsets_decides_what_utc_gives(root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(100)])
    source = reader(root, filter="p.creation_time > UTC()")
    at = 1_750_000_000_000
    for now_ms, expected in ((at + 49, 50), (at + 98, 1), (at + 99, 0), (at - 1, 100)):
        parts = source.partitions(at_offset(root, 0), at_offset(root, 100, now_ms=now_ms))
        assert sum(len(batch) for part in parts for batch in source.read(part)) == expected


def test_new_streams_of_a_pattern_are_read_from_their_first_message(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    write_stream(root, "in-0", [order(n) for n in range(10)])
    run(spark, root, tmp_path / "checkpoint", stream="in-*")
    write_stream(root, "in-1", [order(n) for n in range(10, 20)])
    write_stream(root, "in-0", [order(n) for n in range(20, 30)])
    run(spark, root, tmp_path / "checkpoint", stream="in-*")
    assert sorted(numbers(root)) == list(range(30))


def test_nothing_new_gives_the_same_offset_and_new_messages_a_later_one(root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(10)])
    source = reader(root, start="next")
    start = source.initialOffset()
    assert start["next"] == {"in": 10}
    assert source.latestOffset(start, ReadAllAvailable()) is start
    write_stream(root, "in", [order(n) for n in range(5)])
    assert source.latestOffset(start, ReadAllAvailable())["next"] == {"in": 15}
    assert source.reportLatestOffset()["next"] == {"in": 15}
    source.prepareForTriggerAvailableNow()
    write_stream(root, "in", [order(n) for n in range(5)])
    assert source.latestOffset(start, ReadAllAvailable())["next"] == {"in": 15}


def test_offsets_that_retention_took_are_an_error_or_are_passed_over(root: Path) -> None:
    limits = StreamArguments(max_segment_size_bytes=4_000, max_length_bytes=10_000)
    stream = write_stream(root, "in", [order(n) for n in range(500)], chunk_messages=10, arguments=limits)
    first, end = stream.first_offset(), stream.next_offset()
    start, stop = at_offset(root, 0), at_offset(root, end)
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 0 to {first - 1}"):
        reader(root).partitions(start, stop)
    lossy = reader(root, fail_on_data_loss="false")
    rows = sum(len(batch) for part in lossy.partitions(start, stop) for batch in lossy.read(part))
    assert rows == sum(1 for _ in read_messages(stream))


def offsets_read(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    parts = source.partitions(start, end)
    return [n for part in parts for batch in source.read(part) for n in batch.column("offset").to_pylist()]


def test_a_stream_that_was_cut_back_is_an_error_or_is_read_from_its_first_message(root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(20)])
    start = at_offset(root, 100)
    with pytest.raises(OffsetOutOfRangeError, match="up to offset 100, but it ends at 20 now"):
        reader(root).latestOffset(start, ReadAllAvailable())
    lossy = reader(root, fail_on_data_loss="false", max_messages_per_batch="10")
    for limit in (ReadAllAvailable(), ReadMaxRows(10)):
        assert offsets_read(lossy, start, lossy.latestOffset(start, limit)) == list(range(20))


@pytest.mark.parametrize("count", [0, 3, 5, 8])
def test_a_stream_that_was_made_again_is_an_error_or_is_read_from_its_first_message(root: Path, count: int) -> None:
    before = write_stream(root, "in", [order(n) for n in range(5)])
    start = at_offset(root, 5)
    shutil.rmtree(before.path)
    again = write_stream(root, "in", [order(n) for n in range(count)])
    expected = f"'in' with the identity {before.identity}, .* with the identity {again.identity}"
    with pytest.raises(StreamReplacedError, match=f"{expected}; .*fail_on_data_loss to false"):
        reader(root).latestOffset(start, ReadAllAvailable())
    lossy = reader(root, fail_on_data_loss="false", max_messages_per_batch="100")
    for limit in (ReadAllAvailable(), ReadMaxRows(100)):
        with pytest.warns(StreamReplacedWarning, match=expected):
            end = lossy.latestOffset(start, limit)
        assert end == {**at_offset(root, count), "now_ms": end["now_ms"]}
        assert offsets_read(lossy, start, end) == list(range(count))
    assert lossy.latestOffset(end, ReadAllAvailable()) is end


def test_a_batch_planned_for_a_deleted_stream_reads_nothing_of_its_successor(root: Path) -> None:
    before = write_stream(root, "in", [order(n) for n in range(8)])
    start, end = at_offset(root, 5), at_offset(root, 8)
    (planned,) = reader(root).partitions(start, end)
    shutil.rmtree(before.path)
    write_stream(root, "in", [order(n) for n in range(8)])
    with pytest.raises(StreamReplacedError, match=before.identity):
        reader(root).partitions(start, end)
    with pytest.raises(StreamReplacedError, match=before.identity):
        list(reader(root).read(planned))
    lossy = reader(root, fail_on_data_loss="false")
    assert list(lossy.read(planned)) == []
    with pytest.warns(StreamReplacedWarning, match=before.identity):
        assert offsets_read(lossy, start, end) == []


def test_a_query_does_not_go_on_in_another_stream_of_the_name(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    before = write_stream(root, "in", [order(n) for n in range(5)])
    run(spark, root, tmp_path / "checkpoint")
    shutil.rmtree(before.path)
    again = write_stream(root, "in", [order(n) for n in range(10, 18)])
    with pytest.raises(PySparkException, match=f"{before.identity}.*{again.identity}"):
        run(spark, root, tmp_path / "checkpoint")
    run(spark, root, tmp_path / "checkpoint", fail_on_data_loss="false")
    assert numbers(root) == [*range(5), *range(10, 18)]


def test_a_stream_that_is_gone_is_named(root: Path) -> None:
    write_stream(root, "in-0", [order(0)])
    write_stream(root, "in-1", [order(0)])
    source = reader(root, stream="in-*")
    end = source.reportLatestOffset()
    shutil.rmtree(stream_folder(root, "in-1"))
    with pytest.raises(OffsetOutOfRangeError, match="stream 'in-1' is gone"):
        source.partitions({"now_ms": 0, "next": {}, "identity": {}}, end)


def test_streaming_options_that_make_no_sense_are_refused(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    write_stream(root, "in", [order(0)])
    with pytest.raises(PySparkException, match="option end: a streaming read has no end"):
        run(spark, root, tmp_path / "a", end=5)
    frame = spark.readStream.format("headgate").options(root=str(root), stream="in", columns="message").load()
    writer = frame.writeStream.format("headgate").options(root=str(root), stream="out", write_id="x")
    with pytest.raises(PySparkException, match="option write_id: a streaming query is known by the id"):
        writer.option("checkpointLocation", str(tmp_path / "b")).trigger(availableNow=True).start().awaitTermination()
