"""Reading a subscription gives the copies that routing writes, whether the topic was decided or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo

from body_schemas import order_body, order_schema
from headgate.errors import ConfigError, CorruptChunkError, RuleNotFoundError
from headgate.log import Stream, StreamArguments, Writer, list_streams
from headgate.log.format import Compression
from headgate.message import EncodedMessages, Message
from headgate.spark import copy_stream, stream_schema
from headgate.spark.source import BatchReader, PushdownReader, StreamReader
from headgate.topic import RoutersInForce, Rule, Subscription, Topic, TopicEditor, create_topic
from headgate.topic.decisions import Decider, Postings, block
from log_streams import quick_folder, read_messages

from .conftest import NOW_MS, order, write_stream

NAME = "shop/orders"
EMEA = Rule("emea", "region = 'EMEA'")
CHANGED = Rule("cheap", "price < 20 AND region <> 'AMER'", "SET price = price * 2; SET tag = newid(); REMOVE number")
COLUMNS = ("offset", "timestamp", "message")

Row = tuple[int, int, bytes]


@pytest.fixture(params=["decided", "half decided", "not decided"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A topic of twelve chunks in several segments, whose rules change, and whose subscription is made again."""
    with quick_folder() as folder:
        arguments = StreamArguments(max_segment_size_bytes=6_000)
        stream = create_topic(Path(folder), NAME, now_ms=0, arguments=arguments)
        made = Subscription("Red", (EMEA, CHANGED), dead_letter_on_errors=True)
        with Writer.open(stream, now_ms=0) as writer:
            editor = TopicEditor(writer)
            editor.create_subscription(made, now_ms=0)
            editor.create_subscription(Subscription("rest", fall_through=True), now_ms=0)
            for chunk in range(12):
                if chunk == 4:
                    editor.replace_rule("red", Rule("cheap", "price < 50", "SET price = 1"), now_ms=0)
                elif chunk == 7:
                    editor.remove_subscription("red", now_ms=0)
                elif chunk == 9:
                    editor.create_subscription(made, now_ms=0)
                messages = [order(10 * chunk + number) for number in range(10)]
                messages[chunk % 10] = b"no message"
                compression = Compression.GZIP if chunk % 5 == 3 else Compression.NONE
                bodies = [(each, None) for each in messages]
                writer.append(bodies, now_ms=NOW_MS + 1000 * chunk, compression=compression)
        monkeypatch.setattr(block, "BLOCK_OFFSETS", 16)
        if request.param != "not decided":
            with Decider.open(stream, now_ms=0) as decider:
                decider.step(120 if request.param == "decided" else 50, now_ms=0)
        yield Path(folder)


def rows_of(partitions: object, reader: BatchReader | StreamReader) -> list[Row]:
    found: list[Row] = []
    for partition in partitions:  # type: ignore[attr-defined]
        for batch in reader.read(partition):
            offsets, times, messages = (batch.column(name) for name in COLUMNS)
            stamps = times.cast("timestamp[ms]").cast("int64").to_pylist()
            found += zip(offsets.to_pylist(), stamps, messages.to_pylist(), strict=True)
    return found


def options(root: Path, subscription: str = "red", **more: str) -> dict[str, str]:
    return {"root": str(root), "topic": NAME, "subscription": subscription, **more}


def read(root: Path, subscription: str = "red", **more: str) -> list[Row]:
    reader = BatchReader(stream_schema(COLUMNS, ()), options(root, subscription, **more))
    return rows_of(reader.partitions(), reader)


def routed(root: Path, subscription: str) -> list[Row]:
    """Offset, time of arrival and bytes of the copies, by routing each message with all rules of the topic."""
    stream = topic_in(root)
    routers = RoutersInForce.of(stream.path)
    found = []
    for offset, data in read_messages(stream):
        ((_, router),) = routers.within(offset, offset + 1)
        arrived_ms = NOW_MS + offset // 10 * 1000
        copies = router.route(EncodedMessages.of([data]), np.array([offset]), np.array([arrived_ms]))
        for place, each in enumerate(copies.topic.subscriptions):
            if each.name.lower() == subscription:
                messages = copies.messages(place)
                found += [(offset, arrived_ms, messages.message(row)) for row in range(len(messages))]
    return found


def topic_in(root: Path) -> Stream:
    (stream,) = list_streams(root)
    return stream


@pytest.mark.parametrize("subscription", ["red", "rest"])
def test_a_subscription_is_read_as_it_is_routed(root: Path, subscription: str) -> None:
    expected = routed(root, subscription)
    assert len(expected) > 30
    assert read(root, subscription.upper()) == expected
    for more in ({"match_index": "false"}, {"partitions": "5"}, {"on_corrupt": "skip"}):
        assert read(root, subscription, **more) == expected
    assert read(root, subscription, start="17", end="63") == [row for row in expected if 17 <= row[0] < 63]


def test_postings_are_used_where_the_topic_was_decided(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Postings.open(topic_in(root)) as postings:
        decided = postings.decided_until(0)
    asked: list[tuple[int, int]] = []
    within = RoutersInForce.within

    def counted(self: RoutersInForce, first: int, stop: int) -> Iterator[object]:
        asked.append((first, stop))
        return within(self, first, stop)

    monkeypatch.setattr(RoutersInForce, "within", counted)
    read(root)
    assert min(first for first, _ in asked) == decided
    assert decided in (0, 48, 112)


def test_as_of_a_time_copies_are_those_that_had_arrived(root: Path) -> None:
    expected = routed(root, "red")
    for as_of_ms in (NOW_MS - 1, NOW_MS + 5_000, NOW_MS + 5_999, NOW_MS + 60_000):
        assert read(root, as_of=str(as_of_ms)) == [row for row in expected if row[1] <= as_of_ms]
    assert read(root, as_of=str(NOW_MS + 5_000), end="20") == [row for row in expected if row[0] < 20]


def test_a_filter_is_asked_about_the_copies(root: Path) -> None:
    def price(data: bytes) -> float:
        return float((Message.decode(data).application_properties or {})["price"].value)  # type: ignore[arg-type]

    kept = [row for row in routed(root, "red") if price(row[2]) == 1]
    assert kept
    assert read(root, filter="price = 1") == kept


def test_chunks_are_not_chosen_by_what_an_action_changes(tmp_path: Path) -> None:
    """The values of chunks are those of messages; a filter, and a comparison that Spark pushes down, are of copies."""
    source = "application_properties.region"
    stream = write_stream(tmp_path, "orders", [order(1)] * 4, filter_values=[b"EMEA"] * 4, filter_source=source)
    create_topic(tmp_path, "orders", now_ms=0)
    rule = Rule("moved", "region = 'EMEA'", "SET region = 'ASIA'")
    with TopicEditor.open(stream, now_ms=0) as editor:
        editor.declare(Topic("orders", (Subscription("s", (rule,)),)), now_ms=0, in_force_from=0)
    more = {"root": str(tmp_path), "topic": "orders", "subscription": "s"}
    for region, count in (("EMEA", 0), ("ASIA", 4)):
        pushed = PushdownReader(stream_schema(COLUMNS, ()), {**more, "filter": f"region = '{region}'"})
        assert len(rows_of(pushed.partitions(), pushed)) == count
    pushed = PushdownReader(stream_schema(COLUMNS, ()), more)
    left = list(pushed.pushFilters([EqualTo(("application_properties", "region"), "ASIA")]))
    assert len(left) == 1 and len(rows_of(pushed.partitions(), pushed)) == 4


def test_batches_of_a_streaming_read_are_the_batch_read(root: Path) -> None:
    more = {"max_messages_per_batch": "25"}
    reader = StreamReader(stream_schema(COLUMNS, ()), options(root, **more))
    start, found, sizes = reader.initialOffset(), [], []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        planned = reader.partitions(start, end)
        rows = rows_of(planned, reader)
        assert rows_of(planned, reader) == rows
        found += rows
        sizes.append(end["next"][NAME] - start["next"][NAME])
        start = end
    assert found == routed(root, "red")
    assert sizes == [20] * 6


def test_damage_is_named_and_may_be_skipped(root: Path) -> None:
    expected = routed(root, "red")
    segment = topic_in(root).segments()[0]
    content = bytearray(segment.segment_path.read_bytes())
    place = content.index(expected[0][2])
    content[place + 5] ^= 1
    segment.segment_path.write_bytes(content)
    with pytest.raises(CorruptChunkError, match="checksum of chunk 0"):
        read(root)
    assert read(root, on_corrupt="skip") == [row for row in expected if row[0] >= 10]


def test_what_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(RuleNotFoundError, match=r"no such subscription; did you mean 'Red'"):
        read(root, "reds")
    with pytest.raises(RuleNotFoundError, match="no such topic"):
        BatchReader(stream_schema(COLUMNS, ()), {**options(root), "topic": "orders"}).partitions()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topic": "t"}, "topic and subscription: copies are those of a subscription; name it"),
        ({"subscription": "s"}, "subscription and topic: .* give both"),
        ({"topic": "t", "subscription": "s", "stream": "t"}, "topic and stream: both name what to read"),
        ({"topic": "t", "subscription": "s", "path": "t"}, "topic and path: both name what to read"),
        ({"topic": "t", "subscription": "s", "server": "broker"}, "topic and server: .* from files"),
    ],
)
def test_options_that_cannot_stand_together_are_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        BatchReader(stream_schema(COLUMNS, ()), given)


@pytest.mark.spark
def test_spark_reads_and_copies_a_subscription(spark: SparkSession, root: Path) -> None:
    expected = routed(root, "red")
    frame = spark.read.format("headgate").options(**options(root, columns="offset,message")).load()
    assert [(row.offset, bytes(row.message)) for row in frame.collect()] == [(row[0], row[2]) for row in expected]
    copy_stream(spark, options(root), {"root": str(root), "stream": "out"})
    (out,) = [stream for stream in list_streams(root) if stream.name == "out"]
    assert [data for _, data in read_messages(out)] == [row[2] for row in expected]


@pytest.mark.parametrize("decided", [0, 60, 100])
def test_filters_and_rules_over_a_subscription_decode_bodies_of_a_declared_schema(tmp_path: Path, decided: int) -> None:
    arguments = StreamArguments(body_schema=order_schema().text)
    stream = create_topic(tmp_path, NAME, now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        rule = Rule("paid", "body.state = 'PAID'", "SET region = 'APJ'", dialect="amqp")
        TopicEditor(writer).create_subscription(Subscription("red", (rule,)), now_ms=0)
        bodies = [order_body(total=n, state="PAID" if n % 2 else "NEW") for n in range(100)]
        writer.append([(Message(body).encode(), None) for body in bodies], now_ms=NOW_MS)
    with Decider.open(stream, now_ms=0) as decider:
        decider.step(decided, now_ms=0)
    found = read(tmp_path, filter="body.total > 90 AND region = 'APJ'")
    assert [offset for offset, _, _ in found] == [91, 93, 95, 97, 99]
