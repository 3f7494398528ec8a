"""Copies from stream to streams: the bytes as they are, the right ones, in order, once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from body_schemas import TYPE, descriptor_set, order_body, order_schema
from headgate.errors import ConfigError, FilterSyntaxError, StreamNotFoundError
from headgate.evaluate import Filter
from headgate.log import BloomMatcher, ChunkType, Damage, Stream, StreamArguments, stream_folder, verify_stream
from headgate.message import Message
from headgate.scan import OffsetRange, ScanRequest, count_matches
from headgate.spark import copy_stream

from ..log_streams import read_messages
from .conftest import order, subject_values, write_stream

pytestmark = pytest.mark.spark

COUNT = 600


@pytest.fixture
def source(root: Path) -> dict[str, str]:
    """Options of a stream of orders over several segments."""
    limits = StreamArguments(max_segment_size_bytes=40_000)
    write_stream(root, "in", [order(n) for n in range(COUNT)], filter_values=subject_values(COUNT), arguments=limits)
    return {"root": str(root), "stream": "in"}


def target(root: Path, name: str, **options: str) -> dict[str, str]:
    return {"root": str(root), "stream": name, **options}


def bodies(root: Path, name: str) -> list[bytes]:
    return [body for _, body in read_messages(Stream.open(stream_folder(root, name)))]


def test_a_copy_holds_the_bytes_of_the_messages_that_match_in_order(
    spark: SparkSession, root: Path, source: dict[str, str]
) -> None:
    wanted = {"filter": "region = 'AMER'", "filter_values": "order.created", "partitions": "3"}
    result = copy_stream(spark, {**source, **wanted}, target(root, "out"))
    expected = [order(n) for n in range(COUNT) if n // 100 % 2 and n % 3 == 0]
    assert bodies(root, "out") == expected
    assert result.messages_written == len(expected) == result.counters["messages_matched"]
    assert result.counters["chunks_examined"] == 12 and result.counters["chunks_skipped"] == 6
    assert result.counters["messages_evaluated"] == 300
    assert not (root / ".headgate" / "counters").exists() or not any((root / ".headgate" / "counters").iterdir())


def test_the_copy_can_be_skipped_by_the_annotation_or_by_what_the_target_says(
    spark: SparkSession, root: Path, source: dict[str, str]
) -> None:
    copy_stream(
        spark,
        {**source, "filter": "p.subject = 'order.created'"},
        [target(root, "annotated"), target(root, "declared", filter_source="application_properties.region")],
    )
    for name, value, other in (
        ("annotated", b"order.created", b"product.view"),
        ("declared", b"APJ", b"order.created"),
    ):
        with Stream.open(stream_folder(root, name)).segments()[0].open() as reader:
            headers = reader.headers(0, len(reader.chunks()))
        for wanted, expected in ((value, True), (other, False)):
            matcher = BloomMatcher([wanted], match_unfiltered=False)
            assert set(matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length)) == {expected}


def test_copies_whose_staged_files_become_segments_hold_the_messages_in_order(spark: SparkSession, root: Path) -> None:
    messages = [number.to_bytes(4, "big") * 512 for number in range(4000)]
    write_stream(root, "large", messages, arguments=StreamArguments(max_segment_size_bytes=1 << 20))
    source = {"root": str(root), "stream": "large", "partitions": "2"}
    for times in (1, 2):
        copy_stream(spark, source, target(root, "out", max_segment_size_bytes="3000000"))
        stream = Stream.open(stream_folder(root, "out"))
        found = read_messages(stream)
        assert [body for _, body in found] == messages * times
        assert np.diff([offset for offset, _ in found]).min() == 1
        assert not [each for each in verify_stream(stream) if isinstance(each, Damage)]
        heads = []
        for segment in stream.segments():
            with segment.open() as reader:
                heads.append(reader.header(0))
        # The free room behind the snapshot is that of a staged file.
        assert sum(head.chunk_type == ChunkType.TRACKING_SNAPSHOT and head.trailer_length > 0 for head in heads) >= (
            2 * times
        )


def test_targets_may_filter_further_and_go_on_from_a_checkpoint_together(
    spark: SparkSession, root: Path, source: dict[str, str], tmp_path: Path
) -> None:
    targets = [
        target(root, "all"),
        target(root, "amer", filter="region = 'AMER'"),
        target(root, "late", property_filter='{"application_properties": {"region": "APJ"}}'),
    ]
    checkpoint = tmp_path / "checkpoint"
    first = copy_stream(spark, source, targets, checkpoint=checkpoint)
    assert first.written == {"all": 600, "amer": 200, "late": 200}
    again = copy_stream(spark, source, targets, checkpoint=checkpoint)
    assert again.messages_written == 0
    write_stream(root, "in", [order(n) for n in range(COUNT, COUNT + 30)])
    third = copy_stream(spark, {**source, "max_messages_per_batch": "10"}, targets, checkpoint=checkpoint)
    assert third.written == {"all": 30, "amer": 10, "late": 10}
    everything = [order(n) for n in range(COUNT + 30)]
    assert bodies(root, "all") == everything
    assert bodies(root, "amer") == everything[::3]
    assert bodies(root, "late") == everything[2::3]


def test_what_is_wrong_is_refused_before_spark_is_asked(root: Path, source: dict[str, str]) -> None:
    from typing import cast

    nobody = cast(SparkSession, None)
    with pytest.raises(FilterSyntaxError):
        copy_stream(nobody, {**source, "filter": "region ="}, target(root, "out"))
    with pytest.raises(ConfigError, match="headgate sink option colour is unknown"):
        copy_stream(nobody, source, target(root, "out", colour="red"))
    with pytest.raises(FilterSyntaxError):
        copy_stream(nobody, source, target(root, "out", filter="=", dialect="rabbitmq"))
    with pytest.raises(ConfigError, match="two targets are the same stream"):
        copy_stream(nobody, source, [target(root, "out"), target(root, "out", filter="TRUE")])
    with pytest.raises(ConfigError, match="no target"):
        copy_stream(nobody, source, [])
    with pytest.raises(ConfigError, match="the same root"):
        copy_stream(nobody, source, [target(root, "out"), target(root / "elsewhere", "out")])
    with pytest.raises(ConfigError, match="max_messages_per_batch"):
        copy_stream(nobody, {**source, "max_messages_per_batch": "1"}, target(root, "out"))
    with pytest.raises(StreamNotFoundError, match="nothing"):
        copy_stream(nobody, {**source, "stream": "nothing"}, target(root, "out2"))
    assert not stream_folder(root, "out2").exists()


def test_a_corrupt_chunk_stops_the_copy_and_leaves_nothing(
    spark: SparkSession, root: Path, source: dict[str, str]
) -> None:
    from .test_source import corrupt

    path, position = corrupt(Stream.open(stream_folder(root, "in")), 120)
    with pytest.raises(PySparkException, match=f"{path}, byte {position}"):
        copy_stream(spark, source, target(root, "out"))
    assert bodies(root, "out") == []
    staging = root / ".headgate" / "staging"
    assert not list(staging.rglob("*.chunks"))
    result = copy_stream(spark, {**source, "on_corrupt": "skip"}, target(root, "out"))
    assert result.counters["chunks_corrupt"] == 1
    assert result.messages_written == COUNT - 50


def test_bytes_that_are_no_message_are_copied_without_a_filter(spark: SparkSession, root: Path) -> None:
    messages = [b"\xff\xfe", Message(b"x").encode(), b""]
    write_stream(root, "mixed", messages)
    copy_stream(spark, {"root": str(root), "stream": "mixed"}, target(root, "out"))
    assert bodies(root, "out") == messages


def test_copies_of_bodies_of_a_declared_schema_keep_it_and_are_filtered_by_it(spark: SparkSession, root: Path) -> None:
    schema = order_schema().text
    bodies = [order_body(total=n, state="PAID" if n % 2 else "NEW") for n in range(20)]
    write_stream(root, "shop", list(map(encoded, bodies)), arguments=StreamArguments(body_schema=schema))
    paid = target(root, "paid", filter="body.state = 'PAID'")
    copy_stream(
        spark, {"root": str(root), "stream": "shop", "filter": "body.total > 14"}, [target(root, "large"), paid]
    )
    assert [body for _, body in read_messages(Stream.open(stream_folder(root, "large")))] == list(
        map(encoded, bodies[15:])
    )
    copied = Stream.open(stream_folder(root, "paid"))
    assert copied.body_schema == schema
    request = ScanRequest(filter=Filter.parse("body.total < 18"))
    assert count_matches(copied, request, OffsetRange(0, 20)).matches == 2


def encoded(body: bytes) -> bytes:
    return Message(body).encode()


@pytest.mark.parametrize(
    ("streams", "options", "named"),
    [
        ("shop,plain", {}, "bodies of different schemas.*or make 'out' first"),
        ("shop", {"filter_source": "body.id"}, "filter source leads into JSON bodies"),
        ("shop", {"columns": "body.total double"}, "columns: body.total: .*hold values of JSON only"),
        ("shop", {"body_schema": "missing.desc#shop.Order"}, "option body_schema: missing.desc: cannot be read"),
        ("shop", {"stream": "plain", "body_schema": "FILE"}, "option body_schema: .*without a schema"),
        ("shop", {"server": "127.0.0.1:1", "body_schema": "FILE"}, "stream create --server"),
    ],
)
def test_a_copy_whose_target_could_not_decode_its_bodies_is_refused(
    spark: SparkSession, root: Path, tmp_path: Path, streams: str, options: dict[str, str], named: str
) -> None:
    file = tmp_path / "orders.desc"
    file.write_bytes(descriptor_set())
    options = {name: value.replace("FILE", f"{file}#{TYPE}") for name, value in options.items()}
    write_stream(root, "shop", [], arguments=StreamArguments(body_schema=order_schema().text))
    write_stream(root, "plain", [])
    place = {} if "server" in options else {"root": str(root)}
    with pytest.raises(ConfigError, match=named):
        copy_stream(spark, {"root": str(root), "stream": streams}, {**place, "stream": "out", **options})
    assert not stream_folder(root, "out").exists()


def test_a_write_declares_the_schema_that_its_option_names(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "orders.desc"
    file.write_bytes(descriptor_set())
    frame = spark.createDataFrame([(bytearray(order_body(total=n)),) for n in (1, 200)], "body binary")
    options = target(root, "out", body_schema=f"{file}#{TYPE}")
    for _ in range(2):
        frame.write.format("headgate").mode("append").options(**options).save()
    source = {"root": str(root), "stream": "out", "filter": "body.total > 100"}
    assert spark.read.format("headgate").options(**source).load().count() == 2
