"""A stream as one DataFrame: the rows of the source, from column files wherever there are some."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import headgate
from examples import examples
from headgate.derived.columns import COLUMN_FILES, ColumnFileWarning, column_files, declare_columns, drop_columns
from headgate.errors import ConfigError, FilterError, OffsetOutOfRangeError
from headgate.evaluate import Filter
from headgate.log import Stream, StreamArguments, Writer, pairs
from headgate.message import AmqpType, AmqpValue, Message
from headgate.spark import create_view, read

from .conftest import NOW_MS, order, write_stream

pytestmark = pytest.mark.spark

COUNT = 600
DECLARED = "region string, price double, p.subject, h.priority, p.creation_time, number int as position, body"
COLUMNS = f"offset, timestamp, filter_value, {DECLARED}"
IN_BODIES = "b.a double as amount, b.a bigint as whole, b.a decimal(12,2) as exact, b.k[0] string as first"
SMALL = StreamArguments(max_segment_size_bytes=3_000)


def built(root: Path, name: str = "orders", count: int = COUNT, **declaration: str) -> Stream:
    """Orders over several segments, all sealed ones with a column file."""
    arguments = StreamArguments(max_segment_size_bytes=15_000)
    made = write_stream(
        root, name, [order(n) for n in range(count)], arguments=arguments, filter_source="properties.subject"
    )
    declare_columns(made, DECLARED, **declaration)  # type: ignore[arg-type]
    assert len(list(COLUMN_FILES.build(made, now_ms=1))) > 3
    return made


def source(spark: SparkSession, stream: Stream, columns: str, **options: object) -> DataFrame:
    chosen = {name: str(value) for name, value in options.items()}
    return spark.read.format("headgate").options(columns=columns, **chosen).load(str(stream.path))


def shown(frame: DataFrame) -> list[str]:
    """The rows with −0.0, NaN and bytes told apart, by offset."""
    return [repr(row) for row in sorted(frame.toArrow().to_pylist(), key=lambda row: row["offset"])]


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: int) -> Iterator[None]:
    """How Spark puts pieces of files into partitions."""
    before = spark.conf.get(f"spark.sql.files.{name}")
    spark.conf.set(f"spark.sql.files.{name}", value)
    yield
    spark.conf.set(f"spark.sql.files.{name}", before)


def types_of(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


ODD = [
    {"region": AmqpValue(AmqpType.SYMBOL, "EMEA"), "price": AmqpValue(AmqpType.FLOAT, 0.5)},
    {"region": "", "price": -0.0},
    {"region": "AMER", "price": math.nan},
    {"region": "APJ", "price": 7, "number": 2**40},
    {"region": 5, "price": "7", "number": -1},
    {"price": math.inf},
    {},
]
BODIES = (
    b'{"a":1.5,"k":["x"]}',
    b'{"a":5}',
    b'{"a":0.1000000000000000055,"k":["y"]}',
    b'{"a":"x","k":[null]}',
    b'{"a":5',
)
messages = st.lists(
    st.one_of(
        st.integers(0, 999).map(order),
        st.sampled_from([Message(None, subject="x", application_properties=odd).encode() for odd in ODD]),
        st.sampled_from([Message(body).encode() for body in BODIES]),
        st.sampled_from([b"", b"\x00Sp\xc0", Message(b"-", creation_time=-14_831_769_600_000).encode()]),
        st.binary(max_size=30),
    ),
    min_size=20,
    max_size=70,
)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for each example."""
    made = tmp_path_factory.mktemp("tables")
    return (made / str(number) for number in range(10_000))


FILTERS = [
    "price >= 0 OR region = 'EMEA'",
    "NOT (region = 'EMEA' AND price > 1)",
    "region IS NULL",
    "region IN ('EMEA', '') AND NOT price < 100",
    "h.priority <= 4",
    "p.subject <> 'x' OR number = -1",
    "p.creation_time < 0",
    "region LIKE 'E%'",
    "body.a >= 0.1 AND NOT body.k[0] = 'y'",
    "body.a IS NULL OR body.a = 5",
]


@given(found=messages, filter=st.none() | st.sampled_from(FILTERS), unbuilt=st.integers(0, 3))
@examples(0.01)
def test_the_rows_are_those_of_the_source(
    spark: SparkSession, roots: Iterator[Path], found: list[bytes], filter: str | None, unbuilt: int
) -> None:
    stream = write_stream(
        next(roots), "in", found, chunk_messages=6, arguments=SMALL, filter_source="application_properties.region"
    )
    declare_columns(stream, f"{DECLARED}, {IN_BODIES}")
    list(COLUMN_FILES.build(stream, now_ms=1))
    for file in column_files(stream)[unbuilt : unbuilt + 1]:
        file.path.unlink()
    options = {} if filter is None else {"filter": filter}
    frame = read(spark, stream.path, columns=f"{COLUMNS}, {IN_BODIES}", filter=filter)
    expected = source(spark, stream, f"{COLUMNS}, {IN_BODIES}", **options)
    assert types_of(frame) == types_of(expected)
    assert shown(frame) == shown(expected)


def test_spark_reads_files_of_the_columns_that_are_named_and_keeps_the_order(spark: SparkSession, root: Path) -> None:
    stream = built(root)
    files = [file.size_bytes for file in column_files(stream)]
    frame = read(spark, "orders", root=root)
    assert frame.columns == [
        "offset", "timestamp", "region", "price", "subject", "priority", "creation_time", "position", "body"
    ]  # fmt: skip
    assert len(frame.inputFiles()) == len(files)
    plan = frame.groupBy("region").sum("price")._jdf.queryExecution().sparkPlan().toString()  # type: ignore[operator]
    assert plan.count("ReadSchema: struct<region:string,price:double>") == 1
    with setting(spark, "openCostInBytes", 0):
        frame = read(spark, "orders", root=root)
    partitions = frame.select("offset").rdd.glom().map(lambda rows: [row.offset for row in rows]).collect()
    assert len(partitions) > len(files) > 3 and len(set(files)) > 1
    assert all(offsets == sorted(offsets) for offsets in partitions)
    assert sorted(offset for offsets in partitions for offset in offsets) == list(range(COUNT))


def test_a_large_file_is_read_in_pieces_by_all_cores(spark: SparkSession, root: Path) -> None:
    stream = built(root)
    largest = max(file.size_bytes for file in column_files(stream))
    with setting(spark, "maxPartitionBytes", largest // 3):
        frame = read(spark, stream.path, columns="offset")
    assert frame.rdd.getNumPartitions() > 3 * len(list(column_files(stream)))
    assert sorted(row.offset for row in frame.collect()) == list(range(COUNT))


def test_a_filter_is_decided_by_spark_where_columns_can(spark: SparkSession, root: Path) -> None:
    stream = built(root)
    sealed = sum(segment.is_sealed for segment in stream.segments())
    for text, dialect, files in (
        ("price < 100 AND region = 'EMEA'", "rabbitmq", sealed),
        ("region LIKE 'E%'", "rabbitmq", 0),
        ("p.subject = 'order.created' AND price < UTC()", "amqp", sealed),
    ):
        frame = read(spark, stream.path, columns="offset", filter=text, dialect=dialect)
        assert len(frame.inputFiles()) == files
        expected = [n for n in range(COUNT) if Filter.parse(text, dialect).matches(order(n), now_ms=NOW_MS)]
        assert sorted(row.offset for row in frame.collect()) == expected, text
    plan = str(read(spark, stream.path, filter="number < 50")._jdf.queryExecution().sparkPlan())  # type: ignore[operator]
    assert "LessThan(position,50)" in plan


def test_what_is_written_later_is_not_read_until_it_is_made_again(spark: SparkSession, root: Path) -> None:
    built(root)
    create_view(spark, "shop_areas", "orders", root=root, columns="region string as area", start=40)
    write_stream(root, "orders", [order(1)] * 60, filter_source="properties.subject")
    assert spark.sql("SELECT area FROM shop_areas").count() == COUNT - 40
    create_view(spark, "shop_areas", "orders", root=root, columns="region string as area", start=40)
    assert spark.sql("SELECT area FROM shop_areas").count() == COUNT + 20


@pytest.mark.parametrize(
    ("start", "stop"), [(130, 430), ("2025-06-15T15:06:45Z", "2025-06-15T15:06:48Z"), ("next", None)]
)
def test_a_part_of_a_stream(spark: SparkSession, root: Path, start: int | str, stop: int | str | None) -> None:
    stream = built(root)
    frame = read(spark, stream.path, columns="offset, region string", start=start, stop=stop)
    options = {"start": start} if stop is None else {"start": start, "end": stop}
    rows = shown(source(spark, stream, "offset, region string", **options))
    assert shown(frame) == rows
    assert (len(rows) > 0) == (stop is not None)


def test_a_damaged_file_is_read_from_the_messages(spark: SparkSession, root: Path) -> None:
    stream = built(root)
    path = column_files(stream)[1].path
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 1
    path.write_bytes(raw)
    with pytest.warns(ColumnFileWarning, match="checksum"):
        frame = read(spark, stream.path, columns="offset, region string")
    assert len(frame.inputFiles()) == sum(segment.is_sealed for segment in stream.segments()) - 1
    assert shown(frame) == shown(source(spark, stream, "offset, region string"))


def test_files_without_a_column_are_not_used(spark: SparkSession, root: Path) -> None:
    stream = built(root)
    frame = read(spark, stream.path, columns="offset, region string, quantity int")
    assert not frame.inputFiles()
    assert frame.where("quantity IS NULL AND region IS NOT NULL").count() == COUNT


def test_a_frame_outlives_the_segment_and_a_kept_table_the_log(spark: SparkSession, root: Path) -> None:
    stream = built(root / "odd [name] {1,2} *%20", keep="forever")
    before = shown(read(spark, stream.path))
    frame = read(spark, stream.path)
    first, second = stream.segments()[:2]
    for segment in (first, second):
        pairs.delete_pair(stream.path, segment.first_chunk_id)
    COLUMN_FILES.sweep(stream, now_ms=2)
    assert shown(frame) == before
    left = Stream.open(stream.path)
    assert left.first_offset() == second.stop_offset
    again = read(spark, stream.path)
    assert shown(again) == before
    assert read(spark, stream.path, start=10, stop=20).count() == 10
    assert read(spark, stream.path, start="2025-06-15T15:06:41Z").count() == COUNT - 50
    with pytest.raises(OffsetOutOfRangeError, match="'quantity' was not kept of the offsets 0 to"):
        read(spark, stream.path, columns="region string, quantity int")
    assert (
        read(spark, stream.path, columns="quantity int", start=left.first_offset()).count()
        == COUNT - second.stop_offset
    )
    with pytest.raises(OffsetOutOfRangeError, match="what the filter \"region LIKE 'E%'\" asks for was not kept"):
        read(spark, stream.path, filter="region LIKE 'E%'")
    assert read(spark, stream.path, filter="region = 'EMEA'").count() == COUNT / 3
    drop_columns(left, ["subject"])
    column_files(stream)[0].path.unlink()
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 0 to {first.stop_offset - 1} .* were deleted"):
        read(spark, stream.path, start=0)


def test_times_of_kept_files_mean_the_offsets_that_they_mean_without_spark(spark: SparkSession, root: Path) -> None:
    stream = Stream.create(
        root / "clock", name="clock", now_ms=0, arguments=StreamArguments(max_segment_size_bytes=2_500)
    )
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(60):
            # The clock goes back now and then.
            writer.append([(order(number), None)], now_ms=(number ^ 5) * 1000)
    declare_columns(stream, "region string", keep="forever")
    list(COLUMN_FILES.build(stream, now_ms=1))
    for segment in stream.segments()[:2]:
        pairs.delete_pair(stream.path, segment.first_chunk_id)
    first = Stream.open(stream.path).first_offset()
    assert first > 20
    for start, stop in (("1970-01-01T00:00:06Z", None), ("1970-01-01T00:00:03Z", "1970-01-01T00:00:14Z")):
        offsets = headgate.read(stream.path, columns="offset", start=start, stop=stop).to_arrow()["offset"].to_pylist()
        assert offsets[0] < first
        rows = read(spark, stream.path, columns="offset", start=start, stop=stop).collect()
        assert [row["offset"] for row in rows] == offsets


def test_what_is_wrong_is_refused_when_the_frame_is_made(spark: SparkSession, root: Path) -> None:
    write_stream(root, "orders", [order(1)])
    with pytest.raises(ConfigError, match="columns: found 'region', expected some of offset"):
        read(spark, "orders", root=root, columns="region")
    with pytest.raises(ConfigError, match="'body', expected another name"):
        read(spark, "orders", root=root, columns="body string")
    with pytest.raises(FilterError):
        read(spark, "orders", root=root, filter="price >")
    with pytest.raises(ConfigError, match="behind the end"):
        read(spark, "orders", root=root, start=2)
