"""The main job on few events: what it writes is what the reference evaluator says, and a second run continues."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.derived.columns import column_files, declare_columns
from headgate.errors import PipelineError
from headgate.evaluate.filter import Engine, Filter
from headgate.generate import write_events
from headgate.log import OffsetSpecification, Stream, StreamArguments, resolve_stream
from headgate.message import EncodedMessages, Message
from headgate.message.fields import parse_field
from headgate.scan import Cursor, ScanRequest
from headgate.spark.pipeline import Failure, Report, SinkReport, TopicReport, run
from headgate.spark.pipeline.configuration import check

from ..conftest import order, write_stream

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders" / "pipeline.toml"
EVENTS = 15_000
LATER = 1_800_000_000_000
CREATION_TIME = parse_field("properties.creation_time")

pytestmark = pytest.mark.spark


def main_job(folder: Path, rabbitmq_streams: Path, *, events: str) -> dict[str, Any]:
    """The example's pipeline with its places moved into `folder`."""
    text = EXAMPLE.read_text().replace("headgate-data/rabbitmq", str(rabbitmq_streams))
    text = text.replace("headgate-data/orders/events.parquet", events).replace("headgate-data", str(folder))
    return tomllib.loads(text)


def messages_of(stream: Stream) -> list[bytes]:
    """All messages of a stream, in order."""
    found: list[bytes] = []
    with Cursor(stream, ScanRequest(), start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            found.extend(batch.messages.message(row) for row in range(len(batch)))
    return found


def sink(report: Report, name: str) -> SinkReport:
    return next(each for each in report.sinks if each.name == name)


class Watching:
    """What a run told its watcher."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def spark_starts(self) -> None:
        pass

    def sink_started(self, name: str, *, continued: bool) -> None:
        self.told.append(("continued" if continued else "started", name))

    def sink_progressed(self, name: str, rows: int) -> None:
        assert rows >= 0

    def sink_finished(self, report: SinkReport) -> None:
        self.told.append(("finished", report.name))

    def topic_finished(self, report: TopicReport) -> None:
        self.told.append(("finished", report.name))

    def retried(self, name: str) -> None:
        self.told.append(("retried", name))

    def failed(self, failure: Failure) -> None:
        self.told.append(("failed", failure.name))


def test_the_main_job_gives_what_the_reference_says_and_continues(
    spark: SparkSession, tmp_path: Path, rabbitmq_streams: Path
) -> None:
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    write_events(arrived / "1.parquet", events=EVENTS, seed=1, run_length=3000)
    content = main_job(tmp_path / "data", rabbitmq_streams, events=str(arrived))
    pipeline = check(content)
    watching = Watching()
    report = run(pipeline, spark=spark, watcher=watching)

    stream = resolve_stream("customer-events", pipeline.root)
    messages = messages_of(stream)
    assert len(messages) == EVENTS == sink(report, "ingest").rows_written
    orders = Filter.parse(content["source"][1]["filter"], "rabbitmq")
    wanted = orders.mask(EncodedMessages.of(messages), now_ms=0, engine=Engine.REFERENCE)
    expected = [message for message, keep in zip(messages, wanted, strict=True) if keep]
    assert expected
    assert messages_of(resolve_stream("orders", pipeline.root)) == expected
    counters = sink(report, "orders_stream").counters
    assert counters is not None
    assert counters.chunks_skipped > 0
    assert counters.messages_matched == len(expected)

    lines = spark.read.parquet(str(tmp_path / "data/orders/lines"))
    assert lines.count() == sink(report, "lines").rows_written > 0
    per_hour = spark.read.parquet(str(tmp_path / "data/orders/per-hour")).collect()
    assert sum(row.orders for row in per_hour) == len(expected)
    assert {row.region for row in per_hour} == {"AMER", "EMEA", "APJ"}
    assert spark.read.parquet(str(tmp_path / "data/orders/rabbitmq-orders")).count() == 6358
    assert sorted(what for what, _ in watching.told) == ["finished"] * 5 + ["started"] * 5

    write_events(arrived / "2.parquet", events=1000, seed=2)
    watching.told.clear()
    report = run(check(content), spark=spark, watcher=watching)
    assert sink(report, "ingest").rows_written == 1000
    assert sink(report, "rabbitmq_orders").rows_written == 0
    assert messages_of(stream)[:EVENTS] == messages
    assert len(messages_of(stream)) == EVENTS + 1000
    assert ("continued", "ingest") in watching.told
    assert sink(report, "per_hour").recomputed
    assert not (pipeline.root / ".headgate" / "counters").exists() or not any(
        (pipeline.root / ".headgate" / "counters").iterdir()
    )


def test_the_filter_of_the_main_job_may_ask_for_the_last_hour(
    spark: SparkSession, tmp_path: Path, rabbitmq_streams: Path
) -> None:
    events = tmp_path / "events.parquet"
    write_events(events, events=5000, seed=3, run_length=500)
    content = main_job(tmp_path / "data", rabbitmq_streams, events=str(events))
    source = content["source"][1]
    source["filter"] = source["filter"].replace("1700000000000", "UTC() - 3600000")
    content["sink"] = [each for each in content["sink"] if each["name"] in ("ingest", "orders_stream")]
    report = run(check(content), spark=spark)
    stream = resolve_stream("customer-events", tmp_path / "data")
    created = [Message.decode(message).value(CREATION_TIME) for message in messages_of(stream)]
    newest_ms = max(int(str(each.value)) for each in created if each is not None)
    assert newest_ms < LATER
    assert sink(report, "orders_stream").rows_written == 0

    source["options"] = {"as_of": str(newest_ms)}
    content["state"] = str(tmp_path / "again")
    content["sink"] = [content["sink"][1] | {"stream": "recent-orders"}]
    report = run(check(content), spark=spark)
    recent = Filter.parse(source["filter"], "rabbitmq")
    expected = [message for message in messages_of(stream) if recent.matches(message, now_ms=newest_ms)]
    assert expected
    assert messages_of(resolve_stream("recent-orders", tmp_path / "data")) == expected


def test_column_files_are_built_at_the_end_and_a_damaged_segment_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_stream(tmp_path, "in", [order(1)])
    small = StreamArguments(max_segment_size_bytes=1)
    made = write_stream(tmp_path, "out", [order(n) for n in range(150)], chunk_messages=50, arguments=small)
    declare_columns(made, "region string")
    path = made.segments()[0].segment_path
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    content = {
        "name": "columns",
        "root": str(tmp_path),
        "build_columns": True,
        "source": [{"name": "all", "stream": "in"}],
        "sink": [{"name": "out", "input": "all", "stream": "out", "columns": "region string"}],
    }
    with pytest.raises(PipelineError, match=r"column file of segment 0 of out: .*checksum"):
        run(check(content), spark=spark)
    sealed = [each.first_chunk_id for each in made.segments() if each.is_sealed]
    assert [file.segment for file in column_files(made)] == sealed[1:] == [50, 100]


def test_a_step_that_spark_refuses_is_named(spark: SparkSession, tmp_path: Path) -> None:
    events = tmp_path / "events.parquet"
    write_events(events, events=10, seed=1)
    content = {
        "name": "broken",
        "root": str(tmp_path / "data"),
        "source": [{"name": "events", "format": "parquet", "path": str(events)}],
        "step": [{"name": "wrong", "inputs": ["events"], "sql": "SELECT colour FROM events"}],
        "sink": [{"name": "out", "input": "wrong", "format": "parquet", "path": str(tmp_path / "out")}],
    }
    with pytest.raises(PipelineError, match=r"step 'wrong': .*colour"):
        run(check(content), spark=spark)


def test_a_query_that_fails_names_its_sink_and_the_cause(spark: SparkSession, tmp_path: Path) -> None:
    write_stream(tmp_path / "data", "events", [order(number) for number in range(3)])
    content = {
        "name": "gone",
        "root": str(tmp_path / "data"),
        "source": [{"name": "events", "stream": "events"}],
        "step": [{"name": "wrong", "inputs": ["events"], "sql": "SELECT raise_error('nowhere') AS x FROM events"}],
        "sink": [{"name": "out", "input": "wrong", "format": "parquet", "path": str(tmp_path / "out")}],
    }
    with pytest.raises(PipelineError, match=r"sink 'out': .*nowhere"):
        run(check(content), spark=spark)
