"""Batch reads in Spark: the rows are those of the reference, the columns exact, and what is not asked is not read."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from body_schemas import order_body, order_schema
from cesql_events import binary_event, structured_event
from headgate.errors import OffsetOutOfRangeError
from headgate.evaluate.filter import Filter
from headgate.log import Stream, StreamArguments
from headgate.message import Message
from headgate.spark import counters

from .conftest import NOW_MS, order, subject_values, write_stream

pytestmark = pytest.mark.spark

COUNT = 400
DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def orders(root: Path) -> Stream:
    """`COUNT` orders in chunks of fifty with filter values."""
    return write_stream(root, "orders", [order(n) for n in range(COUNT)], filter_values=subject_values(COUNT))


def read(spark: SparkSession, root: Path, stream: str = "orders", **options: Any) -> DataFrame:
    chosen = {name: str(value) for name, value in options.items()}
    return spark.read.format("headgate").options(root=str(root), stream=stream, **chosen).load()


def offsets(frame: DataFrame) -> list[int]:
    return [row.offset for row in frame.select("offset").collect()]


def test_every_column_holds_what_the_message_says(spark: SparkSession, root: Path, orders: Stream) -> None:
    columns = "offset,timestamp,filter_value,header,properties,application_properties,message_annotations,body,message"
    frame = read(spark, root, columns=columns)
    assert ",".join(frame.columns) == columns
    rows = frame.collect()
    assert [row.offset for row in rows] == list(range(COUNT))
    row = rows[149]
    assert row.timestamp == datetime.datetime.fromtimestamp(NOW_MS // 1000 + 2)
    assert row.filter_value == "order.created"
    assert row.header.priority == 9 and row.header.durable is None
    assert row.properties.subject == "order.created" and row.properties.message_id is None
    assert row.properties.creation_time == datetime.datetime.fromtimestamp((NOW_MS + 149) / 1000)
    assert row.application_properties.toPython() == {"region": "APJ", "price": 37.25, "number": 149}
    assert row.message_annotations.toPython() == {"x-stream-filter-value": "order.created"}
    assert bytes(row.body) == b'{"order": 149}'
    assert bytes(row.message) == order(149)
    assert "message" not in read(spark, root).columns


def test_declared_properties_make_a_typed_struct(spark: SparkSession, root: Path, orders: Stream) -> None:
    frame = read(spark, root, columns="offset,application_properties", properties="region string, price double")
    assert frame.schema["application_properties"].dataType.simpleString() == "struct<region:string,price:double>"
    found = frame.where("application_properties.region = 'AMER' and application_properties.price > 90").collect()
    assert [(row.offset, row.application_properties.price) for row in found] == [
        (n, n / 4) for n in range(COUNT) if n % 3 == 0 and n / 4 > 90
    ]


FILTERS = [
    "region = 'AMER'",
    "p.subject = 'order.created' AND (h.priority > 4 OR price >= 80)",
    "region LIKE '%P%' AND number % 2 = 0",
    "missing IS NULL AND NOT region = 'APJ'",
    "p.creation_time > UTC() - 200",
    "body.order >= 50 AND body.order % 7 = 1 OR body.order = price",
    "FALSE",
]


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_gives_the_messages_for_which_the_reference_says_true(
    spark: SparkSession, root: Path, orders: Stream, text: str
) -> None:
    now_ms = NOW_MS + 350
    expected = [n for n in range(COUNT) if Filter.parse(text).matches(Message.decode(order(n)), now_ms=now_ms)]
    assert offsets(read(spark, root, filter=text, as_of=now_ms)) == expected


def test_filter_values_keep_whole_chunks_and_the_filter_single_messages(
    spark: SparkSession, root: Path, orders: Stream
) -> None:
    kept = [n for n in range(COUNT) if n // 100 % 2]
    assert offsets(read(spark, root, filter_values="order.created")) == kept
    frame = read(spark, root, filter_values="order.created", filter="region = 'EMEA'", counters="both")
    assert offsets(frame) == [n for n in kept if n % 3 == 1]
    counted = counters("both", root=root)
    assert counted["chunks_examined"] == 8
    assert counted["chunks_skipped"] == 4
    assert counted["messages_evaluated"] == 200
    assert counted["messages_matched"] == len([n for n in kept if n % 3 == 1])
    assert counted["bytes_skipped"] > 0 < counted["bytes_read"]


def test_counting_twice_counts_once(spark: SparkSession, root: Path, orders: Stream) -> None:
    frame = read(spark, root, counters="twice", partitions=3)
    first = frame.count(), counters("twice", root=root)
    assert (frame.count(), counters("twice", root=root)) == first
    assert first[1]["messages_matched"] == COUNT


def test_a_property_filter_works_as_a_filter(spark: SparkSession, root: Path, orders: Stream) -> None:
    maps = {"properties": {"subject": "&p:order."}, "application_properties": {"region": "APJ"}}
    found = offsets(read(spark, root, property_filter=json.dumps(maps)))
    assert found == [n for n in range(COUNT) if n // 100 % 2 and n % 3 == 2]


def test_a_stream_that_declares_its_source_is_skipped_by_the_expression_alone(spark: SparkSession, root: Path) -> None:
    messages = [Message(b"", subject="s", application_properties={"region": "AMER"}).encode()] * 50
    others = [Message(b"", subject="s", application_properties={"region": "APJ"}).encode()] * 150
    values: list[bytes | None] = [b"AMER"] * 50 + [b"APJ"] * 150
    write_stream(
        root, "declared", messages + others, filter_values=values, filter_source="application_properties.region"
    )
    frame = read(spark, root, "declared", filter="region IN ('AMER', 'EMEA')", counters="declared")
    assert [row.filter_value for row in frame.collect()] == ["AMER"] * 50
    assert counters("declared", root=root)["chunks_skipped"] == 3


def test_start_end_and_several_streams(spark: SparkSession, root: Path, orders: Stream) -> None:
    write_stream(root, "orders-more", [order(n) for n in range(1000, 1010)])
    assert offsets(read(spark, root, start=75, end=130)) == list(range(75, 130))
    assert offsets(read(spark, root, start="next")) == []
    assert offsets(read(spark, root, "orders*")) == [*range(COUNT), *range(10)]


def test_rows_keep_the_order_of_the_stream_over_many_partitions_and_segments(spark: SparkSession, root: Path) -> None:
    limits = StreamArguments(max_segment_size_bytes=20_000)
    write_stream(root, "long", [order(n) for n in range(3000)], chunk_messages=17, arguments=limits)
    frame = read(spark, root, "long", partitions=7)
    assert frame.rdd.getNumPartitions() == 7
    numbers = [row.application_properties.toPython()["number"] for row in frame.collect()]
    assert numbers == list(range(3000))


def test_spark_pushes_offsets_and_times_down(spark: SparkSession, root: Path, orders: Stream) -> None:
    frame = read(spark, root, counters="pushed").where("offset >= 120 and offset < 180")
    assert offsets(frame) == list(range(120, 180))
    assert counters("pushed", root=root)["messages_evaluated"] == 60
    late = read(spark, root, counters="late").where(f"timestamp >= timestamp_millis({NOW_MS + 6000})")
    assert offsets(late) == list(range(300, COUNT))
    assert counters("late", root=root)["messages_evaluated"] == 100
    assert offsets(read(spark, root).where("offset in (3, 5) or offset = 7")) == [3, 5, 7]


def test_a_schema_of_the_users_own_chooses_the_columns(spark: SparkSession, root: Path, orders: Stream) -> None:
    reader = spark.read.format("headgate").options(root=str(root), stream="orders")
    frame = reader.schema("offset long, application_properties struct<region:string>, body binary").load()
    assert frame.columns == ["offset", "application_properties", "body"]
    assert frame.where("application_properties.region = 'APJ'").count() == COUNT // 3
    with pytest.raises(PySparkException, match="schema: a stream has no column 'key'"):
        reader.schema("key string").load().count()
    with pytest.raises(PySparkException, match="schema: column body is declared string, expected binary"):
        reader.schema("body string").load().count()


def test_a_table_in_sql(spark: SparkSession, root: Path, orders: Stream) -> None:
    spark.sql(f"CREATE TABLE shop USING headgate OPTIONS (root '{root}', stream 'orders', filter \"region = 'AMER'\")")
    try:
        assert spark.sql("SELECT count(*) AS n FROM shop WHERE offset < 30").collect()[0].n == 10
        assert spark.table("shop").count() == len([n for n in range(COUNT) if n % 3 == 0])
    finally:
        spark.sql("DROP TABLE shop")


def test_a_view_in_sql(spark: SparkSession, root: Path, orders: Stream) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW shop_view USING headgate OPTIONS (root '{root}', stream 'orders', start '390')")
    try:
        assert spark.sql("SELECT min(offset) AS first FROM shop_view").collect()[0].first == 390
    finally:
        spark.catalog.dropTempView("shop_view")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"filter": "region ="}, "FilterSyntaxError"),
        ({"colour": "red"}, "option colour is unknown"),
        ({"max_messages_per_batch": "5"}, "max_messages_per_batch: a batch read has no batches"),
    ],
)
def test_wrong_options_are_named_in_what_spark_raises(
    spark: SparkSession, root: Path, orders: Stream, options: dict[str, str], named: str
) -> None:
    with pytest.raises(PySparkException, match=named):
        read(spark, root, **options).collect()


def test_a_stream_that_is_not_there_is_named(spark: SparkSession, root: Path) -> None:
    with pytest.raises(PySparkException, match="no stream 'nothing'"):
        read(spark, root, "nothing")


def corrupt(stream: Stream, offset: int) -> tuple[Path, int]:
    """Flip a byte in the data of the chunk that holds `offset`; gives the file and where the chunk starts."""
    segment = stream.segments()[0]
    with segment.open() as reader:
        table = reader.chunks()
        row = int((table.chunk_id <= offset).sum()) - 1
        position, end = int(table.position[row]), int(reader.stop_positions()[row])
    with segment.segment_path.open("r+b") as file:
        file.seek(end - 30)
        byte = file.read(1)
        file.seek(end - 30)
        file.write(bytes([byte[0] ^ 1]))
    return segment.segment_path, position


def test_a_corrupt_chunk_is_an_error_with_file_and_position_or_is_skipped_and_counted(
    spark: SparkSession, root: Path, orders: Stream
) -> None:
    path, position = corrupt(orders, 120)
    with pytest.raises(PySparkException, match=rf"{path}, byte {position}: checksum of chunk 100"):
        offsets(read(spark, root))
    frame = read(spark, root, on_corrupt="skip", counters="corrupt")
    assert offsets(frame) == [n for n in range(COUNT) if not 100 <= n < 150]
    assert counters("corrupt", root=root)["chunks_corrupt"] == 1


def test_bytes_that_are_no_message_are_kept_without_a_filter_and_never_match_one(
    spark: SparkSession, root: Path
) -> None:
    write_stream(root, "mixed", [b"\xff\xfe", order(1), b""])
    rows = read(spark, root, "mixed", columns="offset,properties,body,message").collect()
    assert [bytes(row.message) for row in rows] == [b"\xff\xfe", order(1), b""]
    assert rows[0].properties is None and rows[0].body is None
    assert offsets(read(spark, root, "mixed", filter="missing IS NULL")) == [1, 2]


def test_what_rabbitmq_delivered_is_what_spark_reads(spark: SparkSession, rabbitmq_streams: Path) -> None:
    """Number, ends and digest of the offsets for each filter recorded from the broker."""
    for case in json.loads((DATA / "delivered.json").read_text()):
        options = {"columns": "offset"}
        if case["filter_values"] is not None:
            options["filter_values"] = json.dumps(case["filter_values"])
        if case.get("match_unfiltered"):
            options["match_unfiltered"] = "true"
        if case["sql"] is not None:
            options["filter"] = case["sql"]
        (folder,) = rabbitmq_streams.glob(f"__{case['stream']}_*")
        found = offsets(read(spark, rabbitmq_streams, str(folder), **options))
        assert len(found) == case["delivered"], case
        assert found[:5] == case["first"][: len(found)]
        assert hashlib.sha256(",".join(map(str, found)).encode()).hexdigest() == case["sha256_of_offsets"], case


def test_a_segment_that_retention_deletes_while_it_is_read_is_an_error_or_is_passed_over(root: Path) -> None:
    from headgate.spark.schema import stream_schema
    from headgate.spark.source import BatchReader

    limits = StreamArguments(max_segment_size_bytes=5_000)
    stream = write_stream(root, "short", [order(n) for n in range(200)], chunk_messages=10, arguments=limits)
    schema = stream_schema(("offset",), ())
    readers = [
        BatchReader(schema, {"root": str(root), "stream": "short", "fail_on_data_loss": lossy})
        for lossy in ("true", "false")
    ]
    planned = [reader.partitions() for reader in readers]
    oldest, second = stream.segments()[:2]
    oldest.segment_path.unlink()
    oldest.index_path.unlink()
    with pytest.raises(OffsetOutOfRangeError):
        [batch for part in planned[0] for batch in readers[0].read(part)]
    rest = [batch for part in planned[1] for batch in readers[1].read(part)]
    assert [n for batch in rest for n in batch.column("offset").to_pylist()] == list(range(second.first_chunk_id, 200))


def test_events_are_filtered_in_cloudevents_sql(spark: SparkSession, root: Path) -> None:
    attributes = [{"specversion": "1.0", "id": str(n), "type": "order.paid" if n % 3 else "bill"} for n in range(20)]
    modes = (binary_event, functools.partial(binary_event, prefix="cloudEvents:"), structured_event)
    messages = [modes[n % 4 % 3](each).encode() for n, each in enumerate(attributes)]
    write_stream(root, "events", [*messages, order(20)])
    text = "type LIKE 'order.%' AND INT(id) % 2 = 0"
    expected = [n for n in range(20) if n % 3 and n % 2 == 0]
    assert offsets(read(spark, root, "events", filter=text, dialect="cesql")) == expected


def test_bodies_of_a_declared_schema_are_decoded(spark: SparkSession, root: Path) -> None:
    bodies = [order_body(total=n) for n in range(20)]
    schema = StreamArguments(body_schema=order_schema().text)
    write_stream(root, "shop", [Message(body).encode() for body in bodies], arguments=schema)
    assert offsets(read(spark, root, "shop", filter="body.total > 16")) == [17, 18, 19]
