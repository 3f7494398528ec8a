"""Batch writes from Spark: messages as asked, filter values in the Bloom filters, all or nothing, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from headgate.derived.columns import declaration_of
from headgate.errors import ConfigError
from headgate.log import BloomMatcher, Stream, stream_folder
from headgate.log.inspection import Damage, verify_stream
from headgate.message import Message
from headgate.spark import SinkOptions, copy_stream, counters
from headgate.spark.sink import sink_for
from headgate.spark.target import open_target

from ..log_streams import read_messages
from .conftest import order, write_stream

pytestmark = pytest.mark.spark


def orders(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    """Rows with regions in turn and the row's number."""
    return spark.range(0, count, 1, partitions).selectExpr(
        "named_struct('subject', if(id % 2 = 0, 'order.created', 'order.paid')) AS properties",
        "named_struct('region', elt(1 + id % 3, 'AMER', 'EMEA', 'APJ'), 'number', id) AS application_properties",
        "CAST(concat('body ', id) AS binary) AS body",
    )


def write(frame: DataFrame, root: Path, stream: str = "out", **options: Any) -> None:
    chosen = {name: str(value) for name, value in options.items()}
    frame.write.format("headgate").options(root=str(root), stream=stream, **chosen).mode("append").save()


def stream_of(root: Path, name: str = "out") -> Stream:
    return Stream.open(stream_folder(root, name))


def messages_in(root: Path, name: str = "out") -> list[Message]:
    return [Message.decode(body) for _, body in read_messages(stream_of(root, name))]


def bloom_matches(stream: Stream, value: bytes) -> list[bool]:
    """Per chunk of the first segment whether stage 1 would keep it for that value."""
    with stream.segments()[0].open() as reader:
        headers = reader.headers(0, len(reader.chunks()))
    matcher = BloomMatcher([value], match_unfiltered=False)
    return list(matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length))


def leftovers(root: Path) -> list[str]:
    """Files that staging and unfinished commits have left."""
    private = root / ".headgate"
    files = [path for name in ("staging", "commits") for path in (private / name).rglob("*") if path.is_file()]
    return [path.name for path in files if path.name not in (".lock", "completed.json")]


def test_rows_become_messages_in_their_order(spark: SparkSession, root: Path) -> None:
    write(orders(spark, 1000), root, filter_size_bytes=32)
    found = messages_in(root)
    assert len(found) == 1000
    for number in (0, 1, 500, 999):
        expected = Message(
            b"body %d" % number,
            subject="order.created" if number % 2 == 0 else "order.paid",
            application_properties={"region": ("AMER", "EMEA", "APJ")[number % 3], "number": number},
        )
        assert found[number] == expected
    assert [offset for offset, _ in read_messages(stream_of(root))] == list(range(1000))
    assert stream_of(root).filter_size_bytes == 32
    assert leftovers(root) == []


def test_a_second_write_goes_behind_the_first(spark: SparkSession, root: Path) -> None:
    for _ in range(2):
        write(orders(spark, 10), root)
    assert len(messages_in(root)) == 20


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"filter_value": "application_properties.region"}, b"APJ"),
        ({"filter_source": "application_properties.region"}, b"APJ"),
        ({"filter_value": "kind"}, b"kind-2"),
        ({}, b"value-2"),
    ],
    ids=["field", "declaration", "column", "filter_value column"],
)
def test_filter_values_come_from_field_declaration_or_column(
    spark: SparkSession, root: Path, options: dict[str, str], value: bytes
) -> None:
    frame = orders(spark, 300, partitions=1).selectExpr("*", "application_properties.number % 3 AS third")
    one_region = frame.where("third = 2").selectExpr(
        "properties",
        "application_properties",
        *(["concat('kind-', third) AS kind"] if options.get("filter_value") == "kind" else []),
        *(["concat('value-', third) AS filter_value"] if not options else []),
    )
    write(one_region, root, **options)
    stream = stream_of(root)
    assert bloom_matches(stream, value) == [True]
    assert bloom_matches(stream, b"elsewhere") == [False]
    settings = stream.settings
    assert settings is not None
    if "filter_source" in options:
        assert settings.filter_source == "application_properties.region"
        assert [(each.start, each.stop) for each in settings.declared] == [(0, 100)]


def test_the_annotation_of_a_copied_message_is_its_filter_value(spark: SparkSession, root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(100, 200)])
    source = spark.read.format("headgate").options(root=str(root), stream="in", columns="message").load()
    write(source, root)
    assert [bytes_ for _, bytes_ in read_messages(stream_of(root))] == [order(n) for n in range(100, 200)]
    assert bloom_matches(stream_of(root), b"order.created") == [True]
    assert bloom_matches(stream_of(root), b"product.view") == [False]


def test_all_columns_of_a_stream_can_be_written_to_another(spark: SparkSession, root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(50)])
    source = spark.read.format("headgate").options(root=str(root), stream="in").load()
    write(source, root)
    found = messages_in(root)
    assert [m.application_properties for m in found] == [
        Message.decode(order(n)).application_properties for n in range(50)
    ]
    assert [m.body for m in found] == [Message.decode(order(n)).body for n in range(50)]


def test_messages_without_filter_value_are_counted_and_said(spark: SparkSession, root: Path) -> None:
    for batch in range(3):
        write(orders(spark, 10), root, write_id="nightly", batch_id=batch, counters="unfiltered")
    assert counters("unfiltered", root=root) == {"messages_written": 30, "messages_without_filter_value": 30}
    # The line itself goes to the standard error that the JVM was started with.
    assert [path.name for path in (root / ".headgate" / "warned").iterdir()] == ["write-nightly"]
    write(orders(spark, 10), root, "valued", filter_value="application_properties.region", write_id="valued")
    assert [path.name for path in (root / ".headgate" / "warned").iterdir()] == ["write-nightly"]


def test_the_line_about_missing_filter_values_comes_once_per_query(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = open_target(SinkOptions.parse({"root": str(root), "stream": "out"}))
    for query in ("first", "first", "second"):
        target.warn_without_value(query, 10)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert "10 messages written to stream out have no filter value" in said[0]
    assert "filter_value" in said[0]


def test_the_same_write_id_and_batch_id_add_nothing_the_second_time(spark: SparkSession, root: Path) -> None:
    for count, batch in ((10, 0), (99, 0), (5, 1), (5, 1)):
        write(orders(spark, count), root, write_id="load", batch_id=batch)
    write(orders(spark, 3), root, write_id="other")
    assert len(messages_in(root)) == 18
    assert leftovers(root) == []


def test_a_write_whose_task_fails_leaves_nothing(spark: SparkSession, root: Path) -> None:
    # One task: Spark kills one that is still at work beside it, and what that staged goes with a later commit.
    frame = orders(spark, 300).coalesce(1).withColumn("body", _failing_body())
    with pytest.raises(PySparkException):
        write(frame, root)
    assert messages_in(root) == []
    assert leftovers(root) == []


def _failing_body() -> Any:
    from pyspark.sql.functions import expr

    return expr("CAST(if(application_properties.number = 299, raise_error('stop here'), 'x') AS binary)")


def test_an_empty_frame_makes_the_stream_and_writes_nothing(spark: SparkSession, root: Path) -> None:
    write(orders(spark, 0), root)
    assert messages_in(root) == []


@pytest.mark.parametrize(
    ("expression", "options", "named"),
    [
        ("named_struct('colour', 'red') AS properties", {}, "properties.*colour"),
        ("'x' AS key", {}, "a message has no column 'key'"),
        ("date'2025-01-01' AS body", {}, "body"),
        ("CAST('x' AS binary) AS body", {"filter_value": "kind"}, "filter_value: there is no column 'kind'"),
        ("id AS offset", {}, "no column to make messages of"),
        ("CAST('x' AS binary) AS body", {"colour": "red"}, "option colour is unknown"),
    ],
)
def test_what_cannot_be_written_is_named_and_makes_no_stream(
    spark: SparkSession, root: Path, expression: str, options: dict[str, str], named: str
) -> None:
    with pytest.raises(PySparkException, match=named):
        write(spark.range(3).selectExpr(expression), root, **options)
    assert not stream_folder(root, "out").exists()


def test_a_column_that_is_there_twice_is_named(root: Path) -> None:
    schema = StructType([StructField("body", StringType()), StructField("body", StringType())])
    with pytest.raises(ConfigError, match="column 'body' is there twice"):
        sink_for(schema, {"root": str(root), "stream": "out"}, overwrite=False)
    assert not root.exists()


def test_a_column_of_filter_values_must_be_text(spark: SparkSession, root: Path) -> None:
    frame = spark.range(3).selectExpr("CAST('x' AS binary) AS body", "id AS kind")
    with pytest.raises(PySparkException, match="column 'kind' holds filter values and is bigint"):
        write(frame, root, filter_value="kind")


def test_columns_are_declared_with_the_stream_and_looked_after_later(spark: SparkSession, root: Path) -> None:
    write(orders(spark, 1), root, columns="region string, p.subject, body")
    write(orders(spark, 1), root, columns="region string")
    declaration = declaration_of(stream_of(root))
    assert declaration is not None and declaration.body
    assert [each.name for each in declaration.declared] == ["region", "subject"]
    for text, named in (
        ("price double", "is there already with region string, p.subject"),
        ("region double", "'region' is declared as region string"),
        ("region text", "'region' is declared 'text'"),
    ):
        with pytest.raises(PySparkException, match=f"option columns: .*{named}"):
            write(orders(spark, 1), root, columns=text)


def test_options_that_contradict_the_stream_that_is_there_are_refused(spark: SparkSession, root: Path) -> None:
    write(orders(spark, 1), root, filter_source="application_properties.region")
    for option, value in (("filter_size_bytes", "64"), ("max_age", "7D"), ("filter_source", "properties.subject")):
        with pytest.raises(PySparkException, match=f"option {option}: .*is there already with"):
            write(orders(spark, 1), root, **{option: value})
    with pytest.raises(PySparkException, match=r"filter_value: found 'properties\.subject', but the stream declares"):
        write(orders(spark, 1), root, filter_value="properties.subject")
    assert len(messages_in(root)) == 1


def test_a_stream_is_never_overwritten(spark: SparkSession, root: Path) -> None:
    write(orders(spark, 1), root)
    with pytest.raises(PySparkException, match="only appended to"):
        orders(spark, 1).write.format("headgate").options(root=str(root), stream="out").mode("overwrite").save()
    assert len(messages_in(root)) == 1


def test_the_streams_of_rabbitmq_are_not_written_to(spark: SparkSession, rabbitmq_streams: Path) -> None:
    folder = next(rabbitmq_streams.glob("__regional-events_*"))
    before = sorted((path.name, path.stat().st_size) for path in folder.iterdir())
    with pytest.raises(PySparkException, match="headgate stream adopt"):
        write(orders(spark, 1), rabbitmq_streams, str(folder))
    assert sorted((path.name, path.stat().st_size) for path in folder.iterdir()) == before


def test_a_variant_of_any_keys_is_written_with_its_types(spark: SparkSession, root: Path) -> None:
    text = json.dumps({"region": "AMER", "count": 3, "ratio": 0.5, "vip": True})
    write(spark.range(1).selectExpr(f"parse_json('{text}') AS application_properties"), root)
    (found,) = messages_in(root)
    assert found.application_properties is not None
    assert found.application_properties["region"].value == "AMER"
    assert found.application_properties["vip"].value is True


def test_compressed_streams_give_the_rows_of_plain_ones_in_a_fraction_of_the_bytes(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    source = {"filter_source": "application_properties.region"}
    frame = orders(spark, 12_000).orderBy("application_properties.region", "application_properties.number").coalesce(2)
    write(frame, root, "plain", **source)
    write(frame, root, "packed", compression="zstd", **source)
    query = (
        spark.readStream.format("headgate")
        .options(root=str(root), stream="packed", columns="message")
        .load()
        .writeStream.format("headgate")
        .options(root=str(root), stream="streamed", compression="lz4", **source)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copy_stream(
        spark,
        {"root": str(root), "stream": "packed", "filter": "region = 'AMER'"},
        {"root": str(root), "stream": "copied-packed", "compression": "gzip"} | source,
    )
    plain = read_messages(stream_of(root, "plain"))
    assert read_messages(stream_of(root, "packed")) == read_messages(stream_of(root, "streamed")) == plain
    assert len(messages_in(root, "copied-packed")) == 4000
    sizes = {
        name: sum(file.stat().st_size for file in stream_of(root, name).path.glob("*.segment"))
        for name in ("plain", "packed", "streamed")
    }
    assert sizes["packed"] < sizes["plain"] / 5 and sizes["streamed"] < sizes["plain"] / 3

    def read(name: str, **options: str) -> list[Any]:
        given = {"root": str(root), "stream": name, "columns": "offset,properties,body", **options}
        return sorted(spark.read.format("headgate").options(**given).load().collect(), key=lambda row: row.offset)

    for options in ({}, {"filter": "region = 'EMEA' AND number % 2 = 0"}, {"filter_values": "APJ"}, {"start": "8001"}):
        expected = read("plain", **options)
        assert read("packed", **options) == expected
        assert len(expected) > 1000
    read("packed", filter="region = 'EMEA'", counters="pruned")
    assert counters("pruned", root=root)["chunks_skipped"] > 0
    assert [place for place in verify_stream(stream_of(root, "packed")) if isinstance(place, Damage)] == []
