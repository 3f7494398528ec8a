"""Reports of streaming queries and pipelines to a server's console."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from headgate.client import Management, PipelinePart, PipelineReport, PipelineState
from headgate.errors import ConnectionLostError
from headgate.spark import PipelineReporter, report_to
from headgate.spark.pipeline import run as run_pipeline
from headgate.spark.pipeline.configuration import check
from headgate.spark.reporting import QueryListener

from ..waiting import eventually
from .conftest import order, write_stream


class RecordingServer:
    """Takes reports in place of a server; refuses them while `is_away`."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, PipelineReport]] = []
        self.asked = threading.Semaphore(0)
        self.is_away = False

    def report_pipeline(self, name: str, report: PipelineReport) -> None:
        self.asked.release()
        if self.is_away:
            raise ConnectionLostError("refused", server="nowhere")
        self.reports.append((name, report))

    @property
    def last(self) -> PipelineReport:
        return self.reports[-1][1]

    def part(self, name: str) -> PipelinePart | None:
        found = [part for part in self.last.parts if part.name == name] if self.reports else []
        return found[0] if found else None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> RecordingServer:
    recording = RecordingServer()
    monkeypatch.setattr(Management, "of", staticmethod(lambda *_args, **_more: recording))
    return recording


def test_a_server_that_is_away_fails_nothing_and_learns_everything_later(caplog: pytest.LogCaptureFixture) -> None:
    server = RecordingServer()
    server.is_away = True
    reporter = PipelineReporter(cast(Management, server), "orders")
    reporter.update(PipelinePart("a", "sink", PipelineState.RUNNING, 5))
    assert server.asked.acquire(timeout=10)
    server.is_away = False
    reporter.update(PipelinePart("b", "sink", PipelineState.FINISHED, 7))
    reporter.close()
    assert {part.name: part.rows for part in server.last.parts} == {"a": 5, "b": 7}
    assert server.last.state is PipelineState.FINISHED
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_pipeline_with_a_failed_part_ends_as_failed() -> None:
    server = RecordingServer()
    with PipelineReporter(cast(Management, server), "orders") as reporter:
        reporter.update(PipelinePart("a", "sink", PipelineState.FAILED, error="no disk"))
    assert server.last.state is PipelineState.FAILED


@pytest.mark.spark
def test_a_streaming_query_reports_its_rows_and_batches(
    spark: SparkSession, tmp_path: Path, server: RecordingServer
) -> None:
    write_stream(tmp_path, "in", [order(number) for number in range(30)])
    reporter = report_to(spark, "http://localhost:15672", name="nightly")
    source = spark.readStream.format("headgate").options(root=str(tmp_path), stream="in", columns="message").load()
    query = source.writeStream.queryName("kept").format("headgate").options(root=str(tmp_path), stream="out")
    query.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start().awaitTermination()
    eventually(lambda: (part := server.part("kept")) is not None and part.state is not PipelineState.RUNNING)
    reporter.close()
    kept = server.part("kept")
    assert kept is not None
    assert (kept.kind, kept.state, kept.rows, kept.batches) == ("query", PipelineState.FINISHED, 30, 1)
    assert {name for name, _ in server.reports} == {"nightly"}


def test_a_query_that_ends_with_an_error_keeps_its_rows_and_says_the_error() -> None:
    server = RecordingServer()
    listener = QueryListener(reporter := PipelineReporter(cast(Management, server), "nightly"))
    progress = SimpleNamespace(
        runId=UUID(int=1),
        id=UUID(int=2),
        name="kept",
        numInputRows=30,
        processedRowsPerSecond=float("nan"),
        batchId=0,
        durationMs={"triggerExecution": 12},
    )
    listener.onQueryProgress(cast(QueryProgressEvent, SimpleNamespace(progress=progress)))
    ended = SimpleNamespace(runId=UUID(int=1), id=UUID(int=2), exception="no disk")
    listener.onQueryTerminated(cast(QueryTerminatedEvent, ended))
    reporter.close()
    assert server.last == PipelineReport(
        PipelineState.FAILED,
        (PipelinePart("kept", "query", PipelineState.FAILED, 30, batches=1, batch_ms=12, error="no disk"),),
    )


@pytest.mark.spark
def test_a_run_of_a_pipeline_reports_sinks_and_the_rules_of_topics(
    spark: SparkSession, tmp_path: Path, server: RecordingServer
) -> None:
    write_stream(tmp_path, "in", [order(number) for number in range(30)])
    pipeline = check(
        {
            "name": "nightly",
            "root": str(tmp_path),
            "source": [{"name": "all", "stream": "in"}],
            "sink": [{"name": "copied", "input": "all", "format": "headgate", "stream": "out"}],
            "topic": [
                {
                    "name": "in",
                    "subscription": [{"name": "few", "rule": [{"name": "first", "sql": "number < 3"}]}],
                }
            ],
        }
    )
    run_pipeline(pipeline, spark=spark, report_to=cast(Management, server))
    copied, routed = server.part("copied"), server.part("in")
    assert copied is not None
    assert routed is not None
    assert (copied.kind, copied.state, copied.rows) == ("sink", PipelineState.FINISHED, 30)
    assert copied.counters["messages_matched"] == 30
    assert (routed.kind, routed.rows) == ("topic", 30)
    assert [(rule.subscription, rule.rule, rule.matched) for rule in routed.rules if rule.rule] == [("few", "first", 3)]
    assert server.last.state is PipelineState.FINISHED
