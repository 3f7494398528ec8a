"""Streams of a server in Spark: the rows of the file source, the exactly-once of the file sink.

Where HEADGATE_INTEROP_ORIGINAL names a running RabbitMQ, all of it runs against that but what looks into files.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.streaming import StreamingQuery

from headgate.client import Client, Retry, ServerAddress
from headgate.errors import ConfigError, OffsetOutOfRangeError, ResourceNotFoundError, StreamReplacedError
from headgate.log import OffsetSpecification, Stream, Writer, resolve_stream
from headgate.log.chunk_builder import FilterValues
from headgate.message import EncodedMessages
from headgate.scan import OffsetRange
from headgate.server.stream import StreamHandler
from headgate.spark import counters, stream_schema
from headgate.spark.options import SinkOptions, SourceOptions
from headgate.spark.planning import StreamReplacedWarning
from headgate.spark.reader import record_batches
from headgate.spark.server_planning import ServerLocation, ServerPartition, ServerStream
from headgate.spark.server_staging import Decision, MessageFile, decide
from headgate.spark.sink import sink_for
from headgate.spark.source import BatchReader, HeadgateSource, PushdownReader, StreamReader
from server.running import RunningServer, running_server
from waiting import LIMIT_S

from ..client.fake_server import HEADGATE, fake_server
from ..interop.servers import original
from .conftest import order, subject_values


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if original() is not None:
        pytest.skip("looks into the server's files, and the server is RabbitMQ")
    with running_server(tmp_path_factory.mktemp("served"), handlers={"stream": StreamHandler}) as running:
        yield running


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    other = original()
    ports = request.getfixturevalue("served").ports if other is None else other.ports
    return f"127.0.0.1:{ports['stream']}"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client.connect(address, retry=Retry(give_up_after_s=LIMIT_S)) as made:
        yield made


@pytest.fixture
def stream(client: Client) -> str:
    """A stream of 1000 orders with the filter values of their subjects."""
    name = f"orders-{secrets.token_hex(4)}"
    client.create_stream(name)
    publish(client, name, range(1000))
    return name


def publish(client: Client, stream: str, numbers: range) -> None:
    """Orders, fifty to a chunk."""
    values = subject_values(numbers.stop)
    with client.publisher(stream) as publisher:
        for first in range(numbers.start, numbers.stop, 50):
            part = range(first, min(first + 50, numbers.stop))
            publisher.send_encoded(
                EncodedMessages.of(order(number) for number in part),
                FilterValues.of(values[part.start : part.stop]),
            )
            publisher.flush()


def folder_of(served: RunningServer, stream: str) -> Stream:
    return resolve_stream(stream, Path(served.context.settings.root))


def read(spark: SparkSession, address: str, stream: str, **options: Any) -> DataFrame:
    chosen = {name: str(value) for name, value in options.items()}
    return spark.read.format("headgate").options(server=address, stream=stream, **chosen).load()


def offsets(frame: DataFrame) -> list[int]:
    return [row.offset for row in frame.collect()]


@pytest.mark.spark
def test_a_server_gives_the_rows_of_its_files(
    spark: SparkSession, served: RunningServer, address: str, stream: str
) -> None:
    files = spark.read.format("headgate").options(stream=str(folder_of(served, stream).path)).load()
    through = read(spark, address, stream, partitions=3)
    assert through.schema == files.schema
    assert through.count() == 1000
    assert list(map(str, through.collect())) == list(map(str, files.collect()))


@pytest.mark.spark
@pytest.mark.parametrize(
    "options",
    [
        {"filter": "region = 'EMEA' AND price > 100"},
        {"filter": "TRUE AND region = 'EMEA' AND price > 100", "match_index": "false"},
        {"property_filter": '{"application_properties": {"region": "APJ"}}'},
        {"filter": "p.creation_time < UTC()", "as_of": "1750000000500"},
        {"filter_values": "order.created"},
        {"filter_values": "order.created", "match_unfiltered": "true", "filter": "number % 7 = 0"},
        {"start": "150", "end": "333"},
        {"start": "last"},
        {"start": "next"},
        {"end": "last", "start": "900"},
        {"start": "2001-01-01"},
        {"end": "2001-01-01"},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_mean_what_they_mean_on_files(
    spark: SparkSession, served: RunningServer, address: str, stream: str, options: dict[str, str]
) -> None:
    chosen = {"columns": "offset,body", **options}
    files = spark.read.format("headgate").options(stream=str(folder_of(served, stream).path), **chosen).load()
    assert read(spark, address, stream, **chosen).collect() == files.collect()


@pytest.mark.spark
def test_filters_of_the_server_save_what_crosses(
    spark: SparkSession, served: RunningServer, address: str, stream: str, tmp_path: Path
) -> None:
    taken = {}
    for name, options in {
        "all": {},
        "served": {"filter": "number = 77"},
        "here": {"filter": "number = 77", "match_index": "false"},
    }.items():
        read(spark, address, stream, columns="offset", counters=name, counters_root=tmp_path, **options).collect()
        taken[name] = counters(name, root=tmp_path)
    assert taken["served"]["bytes_read"] < taken["all"]["bytes_read"] / 100
    assert taken["served"]["messages_matched"] == taken["here"]["messages_matched"] == 1
    assert taken["here"]["messages_evaluated"] == 1000


@pytest.mark.spark
def test_a_super_stream_is_its_partitions(spark: SparkSession, client: Client, address: str) -> None:
    name = f"invoices-{secrets.token_hex(4)}"
    for partition in client.create_super_stream(name, ["amer", "emea"]):
        publish(client, partition, range(100))
    assert read(spark, address, name, columns="offset").count() == 200


@pytest.mark.spark
def test_what_spark_pushes_down_narrows_offsets(spark: SparkSession, address: str, stream: str) -> None:
    frame = read(spark, address, stream, columns="offset,timestamp,filter_value")
    chosen = frame.where("offset >= 140 AND offset < 160 AND filter_value = 'order.created'")
    assert offsets(chosen) == list(range(140, 160))
    assert frame.where("timestamp < '2001-01-01'").count() == 0


def test_only_offsets_are_taken_over_from_spark(address: str, stream: str) -> None:
    reader = PushdownReader(stream_schema(("offset",), ()), {"server": address, "stream": stream})
    left = [EqualTo(("filter_value",), "x"), EqualTo(("timestamp",), 1)]
    assert list(reader.pushFilters([GreaterThan(("offset",), 989), *left])) == left
    (partition,) = reader.partitions()
    assert isinstance(partition, ServerPartition)
    assert [part.within for part in partition.ranges] == [OffsetRange(990, 1000)]


def options_of(address: str, **options: str) -> SourceOptions:
    return SourceOptions.parse({"server": address, "stream": "orders", **options})


class _Whole(ServerStream):
    """A stream of which nothing was deleted."""

    def __init__(self) -> None:
        pass

    def first_offset(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("ranges", "partitions", "expected"),
    [
        ({"a": (0, 10)}, 3, [[("a", 0, 4)], [("a", 4, 8)], [("a", 8, 10)]]),
        ({"a": (0, 3), "b": (7, 7), "c": (5, 8)}, 2, [[("a", 0, 3)], [("c", 5, 8)]]),
        ({"a": (0, 1), "b": (0, 5)}, 2, [[("a", 0, 1), ("b", 0, 2)], [("b", 2, 5)]]),
        ({"a": (0, 99_000), "b": (0, 2_000)}, None, [[("a", 0, 99_000), ("b", 0, 1_000)], [("b", 1_000, 2_000)]]),
        ({"a": (4, 4)}, 5, []),
    ],
)
def test_offsets_are_shared_out_among_tasks(
    ranges: dict[str, tuple[int, int]], partitions: int | None, expected: list[list[tuple[str, int, int]]]
) -> None:
    given = {} if partitions is None else {"partitions": str(partitions)}
    planned = ServerLocation(options_of("here", **given)).partitions(
        dict.fromkeys(ranges, _Whole()),
        {name: OffsetRange(*within) for name, within in ranges.items()},
        now_ms=0,
        label="x",
    )
    assert [
        [(part.stream, part.within.start, part.within.stop) for part in partition.ranges] for partition in planned
    ] == expected
    assert [str(partition.value) for partition in planned] == [f"x-{number}" for number in range(len(expected))]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"root": "/data"}, "root and server"),
        ({"max_bytes_per_batch": "5"}, "server and max_bytes_per_batch"),
        ({"server": "host:x"}, "server: server: found 'host:x'"),
    ],
)
def test_options_that_a_server_cannot_follow_are_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SourceOptions.parse({"server": "here", "stream": "orders", **options})


def test_a_user_is_for_a_server() -> None:
    parsed = SourceOptions.parse({"server": "here:1", "user": "me", "password": "secret", "stream": "s"})
    assert parsed.server is not None and (parsed.server.user, parsed.server.port) == ("me", 1)
    with pytest.raises(ConfigError, match="password and server"):
        SourceOptions.parse({"password": "secret", "stream": "s"})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"staging": "/x"}, "staging and server"),
        ({"server": "here", "durability": "disk"}, "durability and server"),
        ({"server": "here", "root": "/x"}, "root and server"),
    ],
)
def test_options_of_the_sink_that_contradict_are_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SinkOptions.parse({"stream": "orders", **options})


def test_a_name_that_is_no_stream_is_refused(address: str) -> None:
    reader = BatchReader(stream_schema(("offset",), ()), {"server": address, "stream": "nowhere"})
    with pytest.raises(ResourceNotFoundError, match="nowhere"):
        reader.partitions()
    reader = BatchReader(stream_schema(("offset",), ()), {"server": address, "stream": "or*"})
    with pytest.raises(ConfigError, match="pattern"):
        reader.partitions()


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("properties", [None, HEADGATE], ids=["rabbitmq", "headgate"])
def test_what_was_deleted_before_it_was_read_is_an_error(properties: dict[str, str] | None, filtered: bool) -> None:
    schema = stream_schema(("offset",), ())
    with fake_server(properties) as server:
        for number in range(4):
            server.append("orders", [order(number)], [b"EMEA"])
        given = {"server": server.address, "stream": "orders"} | ({"filter_values": "EMEA"} if filtered else {})
        (partition,) = BatchReader(schema, given).partitions()
        assert isinstance(partition, ServerPartition)
        with server.lock:
            stream = server.streams["orders"]
            del stream.chunks[:2], stream.headers[:2]
        with pytest.raises(OffsetOutOfRangeError, match="fail_on_data_loss"):
            list(record_batches(partition, schema, (), skip_lost=False))
        (batch,) = record_batches(partition, schema, (), skip_lost=True)
        assert batch.column(0).to_pylist() == [2, 3]
        with pytest.raises(OffsetOutOfRangeError, match="fail_on_data_loss"):
            BatchReader(schema, {**given, "start": "1"}).partitions()


@pytest.mark.parametrize("properties", [None, HEADGATE], ids=["rabbitmq", "headgate"])
def test_planning_reading_and_writing_in_one_process_log_in_once(
    properties: dict[str, str] | None, tmp_path: Path
) -> None:
    schema = stream_schema(("offset",), ())
    with fake_server(properties) as server:
        for number in range(4):
            server.append("orders", [order(number)], [b"EMEA"])
        given = {"server": server.address, "stream": "orders", "partitions": "2"}
        for _ in range(2):
            HeadgateSource(given).schema()
            reader = BatchReader(schema, given)
            partitions = reader.partitions()
            batches = [batch for partition in partitions for batch in reader.read(partition)]
            assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == [0, 1, 2, 3]
        assert len(partitions) == 2
        assert server.connections == 1


@pytest.mark.spark
def test_logins_do_not_grow_with_the_batches_of_a_query(
    spark: SparkSession, served: RunningServer, address: str, stream: str, tmp_path: Path
) -> None:
    def opened() -> int:
        return served.call(lambda: served.context.connections.totals.opened)

    before = opened()
    given = {"server": address, "stream": stream}
    source = spark.readStream.format("headgate").options(**given, max_messages_per_batch="50", columns="body")
    query = (
        source.load()
        .writeStream.format("headgate")
        .options(server=address, stream=f"{stream}-out", staging=str(tmp_path))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with Client.connect(address) as client:
        assert client.resolve_offset(f"{stream}-out", OffsetSpecification.next()) == 1000
    assert len(query.recentProgress) >= 20
    assert opened() - before < 20


def test_offsets_of_what_is_no_message_are_not_missing(client: Client, served: RunningServer, address: str) -> None:
    name = f"tracked-{secrets.token_hex(4)}"
    client.create_stream(name)
    with Writer.open(folder_of(served, name), now_ms=0) as writer:
        for number in range(3):
            writer.append([(order(number), None)] * 2, now_ms=number)
            writer.store_offset("reader", number)
            writer.flush_offsets(now_ms=number)
    (partition,) = BatchReader(stream_schema(("offset",), ()), {"server": address, "stream": name}).partitions()
    assert isinstance(partition, ServerPartition)
    found = record_batches(partition, stream_schema(("offset",), ()), (), skip_lost=False)
    assert [offset for batch in found for offset in batch.column(0).to_pylist()] == [0, 1, 3, 4, 6, 7]


def stream_reader(address: str, stream: str, **options: str) -> StreamReader:
    return StreamReader(stream_schema(("offset",), ()), {"server": address, "stream": stream, **options})


def test_limits_are_shared_by_streams_and_ends_are_offsets(client: Client, address: str, stream: str) -> None:
    other = f"{stream}-2"
    client.create_stream(other)
    publish(client, other, range(30))
    reader = stream_reader(address, f"{stream},{other}", max_messages_per_batch="100", as_of="5")
    begin = reader.initialOffset()
    identities = {name: client.statistics(name).identity for name in (stream, other)}
    assert begin == {"now_ms": 5, "next": {stream: 0, other: 0}, "identity": identities}
    first = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert first["next"] == {stream: 50, other: 30}
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert second["next"] == {stream: 150, other: 30}
    (partition,) = reader.partitions(first, second)
    assert isinstance(partition, ServerPartition)
    assert [(part.stream, part.within) for part in partition.ranges] == [(stream, OffsetRange(50, 150))]
    assert reader.reportLatestOffset()["next"] == {stream: 1000, other: 30}
    done = {"now_ms": 5, "next": {stream: 1000, other: 30}, "identity": identities}
    assert reader.latestOffset(done, reader.getDefaultReadLimit()) is done


def test_a_stream_that_was_cut_back_is_an_error(client: Client, address: str, stream: str) -> None:
    """A server that is no Headgate says no identity: then its end is all that tells."""
    reader = stream_reader(address, stream)
    begin: dict[str, Any] = {"now_ms": 5, "next": {stream: 2000}, "identity": {}}
    with pytest.raises(OffsetOutOfRangeError, match="made again"):
        reader.latestOffset(begin, reader.getDefaultReadLimit())
    forgiving = stream_reader(address, stream, fail_on_data_loss="false")
    end = forgiving.latestOffset(begin, forgiving.getDefaultReadLimit())
    assert end["next"] == {stream: 1000}
    (partition,) = forgiving.partitions(begin, end)
    assert isinstance(partition, ServerPartition)
    assert [part.within for part in partition.ranges] == [OffsetRange(0, 1000)]


@pytest.mark.usefixtures("served")
def test_a_stream_that_was_made_again_is_an_error(client: Client, address: str) -> None:
    name = f"again-{secrets.token_hex(4)}"
    client.create_stream(name)
    publish(client, name, range(5))
    reader = stream_reader(address, name)
    begin = reader.reportLatestOffset()
    (planned,) = reader.partitions({"now_ms": 5, "next": {}, "identity": {}}, begin)
    before = client.statistics(name).identity
    client.delete_stream(name)
    client.create_stream(name)
    publish(client, name, range(8))
    after = client.statistics(name).identity
    assert before is not None and after is not None
    with pytest.raises(StreamReplacedError, match=f"{before}.*{after}; .*fail_on_data_loss to false"):
        reader.latestOffset(begin, reader.getDefaultReadLimit())
    with pytest.raises(StreamReplacedError, match=before):
        list(reader.read(planned))
    forgiving = stream_reader(address, name, fail_on_data_loss="false")
    with pytest.warns(StreamReplacedWarning, match=f"{before}.*{after}"):
        end = forgiving.latestOffset(begin, forgiving.getDefaultReadLimit())
    assert (end["next"], end["identity"]) == ({name: 8}, {name: after})
    (partition,) = forgiving.partitions(begin, end)
    assert isinstance(partition, ServerPartition)
    assert [part.within for part in partition.ranges] == [OffsetRange(0, 8)]


@pytest.mark.usefixtures("served")
def test_a_batch_read_of_a_stream_that_was_made_again_is_an_error(client: Client, address: str) -> None:
    name = f"again-{secrets.token_hex(4)}"
    client.create_stream(name)
    publish(client, name, range(5))
    reader = BatchReader(stream_schema(("offset",), ()), {"server": address, "stream": name})
    (planned,) = reader.partitions()
    before = client.statistics(name).identity
    assert sum(batch.num_rows for batch in reader.read(planned)) == 5
    client.delete_stream(name)
    client.create_stream(name)
    publish(client, name, range(8))
    with pytest.raises(StreamReplacedError, match=str(before)):
        list(reader.read(planned))
    forgiving = {"server": address, "stream": name, "fail_on_data_loss": "false"}
    assert list(BatchReader(stream_schema(("offset",), ()), forgiving).read(planned))


def test_a_streaming_read_has_no_end(address: str, stream: str) -> None:
    with pytest.raises(ConfigError, match="has no end"):
        stream_reader(address, stream, end="5")


def messages(client: Client, stream: str) -> list[bytes]:
    """All messages of a stream, in order."""
    count = client.resolve_offset(stream, OffsetSpecification.next())
    with client.consumer(stream, start="first") as consumer:
        return [message.encode() for _, message in itertools.islice(consumer, count)]


@pytest.mark.spark
def test_rows_are_written_to_a_server_once(
    spark: SparkSession, client: Client, address: str, stream: str, tmp_path: Path
) -> None:
    target = f"{stream}-copy"
    frame = read(spark, address, stream, columns="message,filter_value", partitions=2)
    for _ in range(2):
        frame.write.format("headgate").options(
            server=address, stream=target, write_id="copy", staging=str(tmp_path), filter_size_bytes="32"
        ).mode("append").save()
    assert messages(client, target) == [order(number) for number in range(1000)]
    assert client.last_sequence(target, "write-copy") == 1000
    frame.limit(10).write.format("headgate").options(server=address, stream=target, staging=str(tmp_path)).mode(
        "append"
    ).save()
    assert client.resolve_offset(target, OffsetSpecification.next()) == 1010
    with client.consumer(target, start="first", filter_values=["order.created"]) as consumer:
        assert next(consumer)[0] % 1000 <= 100
        assert consumer.counters.chunks_examined


@pytest.mark.spark
def test_arguments_of_the_sink_are_those_of_the_stream_it_makes(
    spark: SparkSession, served: RunningServer, address: str, stream: str, tmp_path: Path
) -> None:
    frame = read(spark, address, stream, columns="message", end="9")
    frame.write.format("headgate").options(
        server=address, stream=f"{stream}-sized", staging=str(tmp_path), filter_size_bytes="32"
    ).mode("append").save()
    assert folder_of(served, f"{stream}-sized").filter_size_bytes == 32


@pytest.mark.spark
def test_a_query_over_a_server_is_exactly_once_over_restarts(
    spark: SparkSession, client: Client, address: str, stream: str, tmp_path: Path
) -> None:
    target = f"{stream}-out"

    def run() -> StreamingQuery:
        query: StreamingQuery = (
            spark.readStream.format("headgate")
            .options(server=address, stream=stream, columns="message", max_messages_per_batch="300")
            .load()
            .writeStream.format("headgate")
            .options(server=address, stream=target, staging=str(tmp_path / "staging"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    query = run()
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [
        300,
        300,
        300,
        100,
    ]
    assert messages(client, target) == [order(number) for number in range(1000)]
    publish(client, stream, range(1000, 1100))
    # A crash between the sink's commit and Spark's own note of it: the last batch is made again.
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run()
    assert messages(client, target) == [order(number) for number in range(1100)]


@pytest.mark.spark
def test_an_option_that_contradicts_the_stream_is_refused(spark: SparkSession, address: str, stream: str) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) as body").selectExpr("cast(body as binary) as body")
    writing = frame.write.format("headgate").options(server=address, stream=stream, max_age="7D")
    with pytest.raises(PySparkException, match="is there already with other"):
        writing.mode("append").save()


def test_a_filter_source_needs_a_server_that_knows_it(stream: str) -> None:
    schema = stream_schema(("body",), ())
    with fake_server() as server, pytest.raises(ConfigError, match="filter_source"):
        sink_for(
            schema,
            {"server": server.address, "stream": "x", "filter_source": "properties.subject"},
            overwrite=False,
        )


@pytest.mark.spark
def test_a_server_that_evaluates_nothing_gives_the_same_rows(
    spark: SparkSession, served: RunningServer, address: str, stream: str
) -> None:
    with fake_server() as server:
        for first in range(0, 300, 50):
            part = [order(number) for number in range(first, first + 50)]
            server.append("orders", list(part), subject_values(300)[first : first + 50])
        options = {"filter": "region = 'EMEA'", "filter_values": "order.created", "columns": "offset,body"}
        other = read(spark, server.address, "orders", **options).collect()
    assert other == read(spark, address, stream, end="300", **options).collect()
    assert len(other) == 34


def test_a_read_that_does_not_wait_does_not_begin_behind_the_end() -> None:
    schema = stream_schema(("offset",), ())
    with fake_server(HEADGATE) as server:
        server.append("orders", [order(number) for number in range(4)], [None] * 4)
        given = {"server": server.address, "stream": "orders"}
        for start in ("5", "2999-01-01"):
            with pytest.raises(ConfigError, match=r"option start: stream 'orders': found .* has offsets 0 to 3"):
                BatchReader(schema, {**given, "start": start}).partitions()
        assert BatchReader(schema, {**given, "start": "4"}).partitions() == []
        with pytest.raises(ResourceNotFoundError, match="did you mean 'orders'"):
            BatchReader(schema, {**given, "stream": "ordesr"}).partitions()


@pytest.mark.spark
def test_compressed_rows_are_written_to_a_server_once_with_the_values_it_finds(
    spark: SparkSession, served: RunningServer, client: Client, address: str, stream: str, tmp_path: Path
) -> None:
    target = f"{stream}-packed"
    frame = read(spark, address, stream, columns="message", partitions=2)
    options = {"server": address, "stream": target, "write_id": "copy", "staging": str(tmp_path)}
    refused = frame.write.format("headgate").options(**options, compression="zstd").mode("append")
    with pytest.raises(PySparkException, match="no room for the filter values of compressed messages"):
        refused.save()
    client.delete_stream(target)
    # What an earlier attempt had published when it died: the rest follows, packed otherwise.
    source = "message_annotations.x-stream-filter-value"
    client.create_stream(target, {"headgate-filter-source": source})
    with client.publisher(target, name="write-copy", compression="gzip") as publisher:
        publisher.send_many(order(number) for number in range(130))
    decided = Decision("write-copy", 0, ServerAddress.parse(address).place, target, ())
    for _ in range(2):
        staged = MessageFile(tmp_path, query="write-copy", partition=0)
        staged.add(EncodedMessages.of(order(number) for number in range(1000)), FilterValues.of(subject_values(1000)))
        part = staged.finish()
        assert part is not None
        decide(tmp_path, replace(decided, parts=(part,)))
        frame.write.format("headgate").options(**options, compression="zstd", filter_source=source).mode(
            "append"
        ).save()
    assert messages(client, target) == [order(number) for number in range(1000)]
    found = folder_of(served, target)
    with found.segments()[0].open() as reader:
        headers = reader.headers(0, len(reader.chunks()))
    assert headers.num_entries.tolist() == [1] * len(headers) and int(headers.num_records.sum()) == 1000
    with client.consumer(target, start="first", filter_values=["nothing"]) as consumer:
        assert consumer.next(0.1) is None
