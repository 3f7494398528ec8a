"""Planning without Spark: which streams, where a batch ends, how chunks are shared out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, OffsetOutOfRangeError, StreamNotFoundError
from headgate.log import Stream, StreamArguments
from headgate.scan import OffsetRange
from headgate.spark import stream_schema
from headgate.spark.options import SourceOptions
from headgate.spark.planning import FolderLocation, batch_ranges, chunk_end, find_streams
from headgate.spark.source import BatchReader, StreamReader

from .conftest import NOW_MS, order, subject_values, write_stream


def options(root: Path, stream: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({"root": str(root), "stream": stream, **more})


def partitions_of(chosen: SourceOptions, ranges: dict[str, OffsetRange] | None = None) -> list[list[int]]:
    """First offsets of the chunks of each partition."""
    streams = find_streams(chosen)
    planned = FolderLocation(chosen).partitions(
        streams,
        ranges or batch_ranges(chosen, streams, now_ms=NOW_MS),
        now_ms=NOW_MS,
        label="test",
    )
    found = []
    for partition in planned:
        chunk_ids: list[int] = []
        for chunks, _ in partition.pieces:
            with chunks.segment.open() as reader:
                chunk_ids.extend(reader.chunks().chunk_id[chunks.rows].tolist())
        found.append(chunk_ids)
    return found


def test_streams_are_found_by_name_path_list_and_pattern(root: Path) -> None:
    for name in ("orders-0", "orders-1", "clicks"):
        write_stream(root, name, [order(0)])
    assert list(find_streams(options(root, "orders-*"))) == ["orders-0", "orders-1"]
    assert list(find_streams(options(root, "clicks,orders-1"))) == ["clicks", "orders-1"]
    assert list(find_streams(options(root, "orders-1,orders-*"))) == ["orders-1", "orders-0"]
    folder = str(root / "streams" / "clicks")
    assert find_streams(options(root, folder))[folder].name == "clicks"
    assert [stream.name for stream in find_streams(options(root, f"{root}/streams/ord*")).values()] == [
        "orders-0",
        "orders-1",
    ]
    for missing in ("nothing", "nothing-*", f"{root}/streams/x*"):
        with pytest.raises(StreamNotFoundError, match=r"nothing|x\*"):
            find_streams(options(root, missing))


def test_partitions_hold_all_chunks_in_order_whatever_their_number(root: Path) -> None:
    segments = StreamArguments(max_segment_size_bytes=8_000)
    stream = write_stream(
        root, "orders", [order(number) for number in range(500)], chunk_messages=10, arguments=segments
    )
    assert len(stream.segments()) > 3
    expected = [chunk for part in partitions_of(options(root, "orders", partitions="1")) for chunk in part]
    assert len(expected) == 50
    assert expected == sorted(expected)
    for count in ("2", "3", "7", "100"):
        found = partitions_of(options(root, "orders", partitions=count))
        assert [chunk for part in found for chunk in part] == expected
        assert 1 < len(found) <= int(count)


@pytest.mark.parametrize(("cores", "smallest", "count"), [(2, 40, 2), (2, 21, 4), (3, 8, 12), (8, 20, 5), (1, 30, 4)])
def test_every_core_has_a_partition_in_each_round_of_tasks(
    root: Path, monkeypatch: pytest.MonkeyPatch, cores: int, smallest: int, count: int
) -> None:
    stream = write_stream(root, "orders", [order(number) for number in range(1_000)], chunk_messages=1)
    (segment,) = stream.segments()
    with segment.open() as reader:
        size_bytes = int(reader.stop_positions()[-1])
    monkeypatch.setattr("headgate.spark.planning.os.cpu_count", lambda: cores)
    # A percentage of the stream.
    monkeypatch.setattr("headgate.spark.planning._SMALLEST_PARTITION_BYTES", size_bytes * smallest // 100)
    monkeypatch.setattr("headgate.spark.planning._PARTITIONS_PER_CORE", 1_000)
    monkeypatch.setattr("headgate.spark.planning._RANGE_BYTES", 1)
    sizes = [len(part) for part in partitions_of(options(root, "orders"))]
    assert len(sizes) == count
    assert sum(sizes) == 1_000 and max(sizes) - min(sizes) <= 8


def test_stage_one_rules_out_chunks_while_planning(root: Path) -> None:
    write_stream(root, "orders", [order(number) for number in range(400)], filter_values=subject_values(400))
    (found,) = partitions_of(options(root, "orders", filter_values="order.created"))
    assert found == [100, 150, 300, 350]


def test_an_empty_stream_has_no_partition(root: Path) -> None:
    write_stream(root, "orders", [])
    assert partitions_of(options(root, "orders")) == []


def test_start_and_end_mean_offsets_times_and_intervals(root: Path) -> None:
    write_stream(root, "orders", [order(number) for number in range(200)])  # chunks at 0, 1, 2, 3 s
    streams = find_streams(options(root, "orders"))

    def within(**more: str) -> tuple[int, int]:
        chosen = options(root, "orders", **more)
        found = batch_ranges(chosen, streams, now_ms=NOW_MS + 3_000)["orders"]
        return found.start, found.stop

    assert within() == (0, 200)
    assert within(start="70", end="120") == (70, 120)
    assert within(start="last") == (150, 200)
    assert within(start="next") == (200, 200)
    assert within(start="2s") == (50, 200)
    assert within(start="2025-06-15T15:06:42Z", end="2025-06-15T15:06:43Z") == (100, 150)


def test_an_offset_that_retention_deleted_is_an_error_unless_that_is_allowed(root: Path) -> None:
    limits = StreamArguments(max_segment_size_bytes=4_000, max_length_bytes=10_000)
    messages = [order(number) for number in range(500)]
    stream = write_stream(root, "orders", messages, chunk_messages=10, arguments=limits)
    first = stream.first_offset()
    assert first > 0
    streams = {"orders": stream}
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 3 to {first - 1} .*fail_on_data_loss"):
        batch_ranges(options(root, "orders", start="3"), streams, now_ms=NOW_MS)
    lossy = options(root, "orders", start="3", fail_on_data_loss="false")
    assert batch_ranges(lossy, streams, now_ms=NOW_MS)["orders"] == OffsetRange(first, stream.next_offset())


@pytest.fixture(scope="module")
def many_segments(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """120 messages in chunks of seven, over several segments."""
    return write_stream(
        tmp_path_factory.mktemp("root"),
        "orders",
        [order(number) for number in range(120)],
        chunk_messages=7,
        arguments=StreamArguments(max_segment_size_bytes=5_000),
    )


@given(
    start=st.integers(0, 120),
    length=st.integers(1, 120),
    max_messages=st.one_of(st.none(), st.integers(1, 130)),
    max_bytes=st.one_of(st.none(), st.integers(1, 30_000)),
)
def test_a_batch_ends_at_the_last_chunk_that_keeps_the_limits(
    many_segments: Stream, start: int, length: int, max_messages: int | None, max_bytes: int | None
) -> None:
    end_of_stream = many_segments.next_offset()
    within = OffsetRange(min(start, end_of_stream - 1), min(start + length, end_of_stream))
    chunks: list[tuple[int, int, int]] = []  # end, messages from start, bytes from start
    size = 0
    for segment in many_segments.segments():
        with segment.open() as reader:
            table = reader.chunks()
            ends = [*table.chunk_id[1:].tolist(), reader.next_chunk_id]
            sizes = (reader.stop_positions() - table.position).tolist()
            for chunk_id, end, chunk_size in zip(table.chunk_id.tolist(), ends, sizes, strict=True):
                if end > within.start and chunk_id < within.stop:
                    size += chunk_size
                    chunks.append((end, end - within.start, size))
    expected = chunks[0][0]
    for end, messages, total in chunks[1:]:
        if (max_messages is not None and messages > max_messages) or (max_bytes is not None and total > max_bytes):
            break
        expected = end
    found = chunk_end(many_segments, within, max_messages=max_messages, max_bytes=max_bytes)
    assert found == min(expected, within.stop)


def test_a_batch_read_does_not_begin_behind_the_end_of_all_its_streams(root: Path) -> None:
    write_stream(root, "orders", [order(number) for number in range(30)])
    write_stream(root, "orders-long", [order(number) for number in range(60)])
    schema = stream_schema(("offset",), ())

    def begin(stream: str, start: str) -> None:
        BatchReader(schema, {"root": str(root), "stream": stream, "start": start}).partitions()

    for start in ("31", "2999-01-01"):
        with pytest.raises(ConfigError, match=r"option start: stream 'orders': found .* has offsets 0 to 29"):
            begin("orders", start)
    for stream, start in (("orders", "30"), ("orders", "next"), ("orders", "1s"), ("orders*", "40")):
        begin(stream, start)


def test_a_streaming_read_waits_for_an_offset_to_come_behind_the_last_message(root: Path) -> None:
    write_stream(root, "orders", [order(number) for number in range(30)])
    reader = StreamReader(stream_schema(("offset",), ()), {"root": str(root), "stream": "orders", "start": "31"})
    assert reader.initialOffset()["next"] == {"orders": 30}
