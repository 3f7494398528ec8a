"""Running a pipeline: one Spark query per sink and per topic, in order, each to the end of what there is."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming.query import StreamingQuery

from headgate.errors import HeadgateError, PipelineError
from headgate.scan import ScanCounters
from headgate.spark.copy import copy_stream
from headgate.spark.counters import counters, forget_counters
from headgate.spark.pipeline.configuration import HEADGATE, Mode, Pipeline, Sink, Source, Watermark, load
from headgate.spark.pipeline.report import Report, RuleReport, SinkReport, TopicReport, sum_counters
from headgate.spark.pipeline.topics import RoutedTopic
from headgate.spark.route import declare_topic, route_topic, stream_exists
from headgate.spark.session import session

_POLL_S = 0.2
_ROWS = "rows"


class Watcher(Protocol):
    """Is told how a run goes; called from the thread that called `run`."""

    def sink_started(self, name: str, *, continued: bool) -> None:
        """A sink's query begins; `continued` when an earlier run wrote to it."""

    def sink_progressed(self, name: str, rows: int) -> None:
        """So many rows were written by the sink so far."""

    def sink_finished(self, report: SinkReport) -> None:
        """A sink is done."""

    def topic_finished(self, report: TopicReport) -> None:
        """A topic is routed as far as there are messages; `sink_started` told of its begin."""


class _Silent:
    def sink_started(self, name: str, *, continued: bool) -> None:
        return None

    def sink_progressed(self, name: str, rows: int) -> None:
        return None

    def sink_finished(self, report: SinkReport) -> None:
        return None

    def topic_finished(self, report: TopicReport) -> None:
        return None


def run(
    pipeline: Pipeline | str | Path, *, spark: SparkSession | None = None, watcher: Watcher | None = None
) -> Report:
    """Run every sink and topic of a pipeline (or of a pipeline file) once, to the end of what their inputs hold now.

    Topics and sinks with mode append continue where an earlier run stopped, exactly once. Raises ConfigError before
    Spark starts, PipelineError with the sink's name when a query fails; what was finished stays so.
    """
    checked = pipeline if isinstance(pipeline, Pipeline) else load(pipeline)
    watching = watcher or _Silent()
    runner = _Runner(checked, spark or session(f"headgate run {checked.name}"), watching)
    report = Report(checked.name, checked.root)
    began = time.monotonic()
    runner.declare_topics()
    for job in checked.jobs:
        if isinstance(job, RoutedTopic):
            report.topics.append(runner.run_topic(job))
            watching.topic_finished(report.topics[-1])
        else:
            report.sinks.append(runner.run_sink(job))
            watching.sink_finished(report.sinks[-1])
    report.seconds = time.monotonic() - began
    return report


class _Runner:
    def __init__(self, pipeline: Pipeline, spark: SparkSession, watcher: Watcher) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._watcher = watcher
        self._run = secrets.token_hex(6)

    def declare_topics(self) -> None:
        """Put the rules of the file in force, before anything is written: what comes now is decided by them.

        A stream that a sink has yet to make becomes a topic when it is routed.
        """
        for routed in self._pipeline.topics:
            if stream_exists(self._pipeline.root, routed.name):
                self._declare(routed)

    def _declare(self, routed: RoutedTopic) -> None:
        topics = self._pipeline.topics
        planned = {each.name: each.topic for each in topics if each.topic is not None}
        if routed.topic is not None:
            with _naming(routed):
                declare_topic(self._pipeline.root, routed.topic, start=routed.start, planned=planned)

    def run_topic(self, routed: RoutedTopic) -> TopicReport:
        checkpoint = self._pipeline.state / "checkpoints" / f"topic-{routed.name}"
        continued = (checkpoint / "commits").is_dir()
        self._watcher.sink_started(routed.name, continued=continued)
        began = time.monotonic()
        limits = (
            {} if routed.max_messages_per_batch is None else {"max_messages_per_batch": routed.max_messages_per_batch}
        )
        self._declare(routed)
        with _naming(routed):
            done = route_topic(
                self._spark,
                self._pipeline.root,
                routed.name,
                routed.outputs,
                start=routed.start,
                checkpoint=checkpoint,
                options={name: str(value) for name, value in limits.items()},
            )
        return TopicReport(
            name=routed.name,
            messages=done.messages,
            copies=done.copies,
            continued=continued,
            seconds=time.monotonic() - began,
            counters=sum_counters([done.counters]) or ScanCounters(),
            written=done.written,
            rules=[
                RuleReport(each.subscription, each.rule, each.matched, each.copies, each.errors) for each in done.rules
            ],
        )

    def run_sink(self, sink: Sink) -> SinkReport:
        checkpoint = self._pipeline.state / "checkpoints" / sink.name
        continued = sink.mode is Mode.APPEND and (checkpoint / "commits").is_dir()
        self._watcher.sink_started(sink.name, continued=continued)
        began = time.monotonic()
        with _naming(sink):
            if sink.mode is Mode.COMPLETE:
                rows, counted = self._compute(sink)
            elif self._is_copy(sink):
                rows, counted = self._copy(sink, checkpoint)
            else:
                rows, counted = self._append(sink, checkpoint)
        return SinkReport(
            name=sink.name,
            input=sink.input,
            target=_target(sink),
            rows_written=rows,
            continued=continued,
            recomputed=sink.mode is Mode.COMPLETE,
            seconds=time.monotonic() - began,
            counters=sum_counters(counted),
        )

    def _is_copy(self, sink: Sink) -> bool:
        """Whether messages go from stream to stream as they are: then only descriptors have to cross into the JVM."""
        source = self._pipeline.sources.get(sink.input)
        return sink.format == HEADGATE and source is not None and source.format == HEADGATE

    def _copy(self, sink: Sink, checkpoint: Path) -> tuple[int, list[dict[str, int]]]:
        source = self._pipeline.sources[sink.input]
        result = copy_stream(
            self._spark,
            self._pipeline.source_options(source),
            self._pipeline.sink_options(sink),
            checkpoint=checkpoint,
        )
        return result.messages_written, [result.counters]

    def _append(self, sink: Sink, checkpoint: Path) -> tuple[int, list[dict[str, int]]]:
        with self._views(sink, streaming=True) as (frame, tokens):
            writer = (
                frame.observe(_ROWS, count(lit(1)).alias(_ROWS))
                .writeStream.format(sink.format)
                .options(**self._pipeline.sink_options(sink))
                .option("checkpointLocation", str(checkpoint))
                .queryName(f"{self._pipeline.name}_{sink.name}_{self._run}")
                .outputMode("append")
                .trigger(availableNow=True)
            )
            query = writer.start(sink.path) if sink.path is not None else writer.start()
            written = self._wait(sink, query)
            return written, [counters(token, root=self._pipeline.root) for token in tokens]

    def _compute(self, sink: Sink) -> tuple[int, list[dict[str, int]]]:
        with self._views(sink, streaming=False) as (frame, tokens):
            observed = Observation(_ROWS)
            counted = frame.observe(observed, count(lit(1)).alias(_ROWS))
            writer = counted.write.format(sink.format).options(**self._pipeline.sink_options(sink)).mode("overwrite")
            writer.save(sink.path) if sink.path is not None else writer.save()
            return int(observed.get[_ROWS]), [counters(token, root=self._pipeline.root) for token in tokens]

    def _wait(self, sink: Sink, query: StreamingQuery) -> int:
        """Follow a query to its end; gives the rows it wrote."""
        written: dict[int, int] = {}
        try:
            while query.isActive:
                time.sleep(_POLL_S)
                _collect(query, written)
                self._watcher.sink_progressed(sink.name, sum(written.values()))
            query.awaitTermination()
            _collect(query, written)
        except BaseException:
            query.stop()
            raise
        return sum(written.values())

    @contextmanager
    def _views(self, sink: Sink, *, streaming: bool) -> Iterator[tuple[DataFrame, list[str]]]:
        """The rows that go into a sink, and the counter tokens of the streams they come from."""
        tokens: list[str] = []
        frames: dict[str, DataFrame] = {}
        try:
            frame = self._frame(sink.input, sink, streaming, frames, tokens)
            yield frame, tokens
        finally:
            for name in frames:
                self._spark.catalog.dropTempView(name)
            for token in tokens:
                forget_counters(token, root=self._pipeline.root)

    def _frame(
        self, name: str, sink: Sink, streaming: bool, frames: dict[str, DataFrame], tokens: list[str]
    ) -> DataFrame:
        if name in frames:
            return frames[name]
        source = self._pipeline.sources.get(name)
        if source is not None:
            frame = self._read(source, sink, streaming, tokens)
            watermark = source.watermark
        else:
            step = self._pipeline.steps[name]
            for needed in step.inputs:
                self._frame(needed, sink, streaming, frames, tokens)
            with _naming(step):
                frame = self._spark.sql(step.sql)
            watermark = step.watermark
        frames[name] = _with_watermark(frame, watermark) if streaming else frame
        frames[name].createOrReplaceTempView(name)
        return frames[name]

    def _read(self, source: Source, sink: Sink, streaming: bool, tokens: list[str]) -> DataFrame:
        options = self._pipeline.source_options(source)
        if source.format == HEADGATE:
            token = f"{self._pipeline.name[:40]}.{sink.name[:20]}.{source.name[:20]}.{self._run}"
            tokens.append(token)
            options["counters"] = token
            options.setdefault("start", "first")
        reader = self._spark.read.format(source.format).options(**options)
        if not streaming:
            return reader.load(source.path) if source.path is not None else reader.load()
        stream = self._spark.readStream.format(source.format).options(**options)
        if source.path is None:
            return stream.load()
        return stream.schema(reader.load(source.path).schema).load(_streamable(source.path))


class _naming:  # noqa: N801 - reads as the statement it is
    """Turn what Spark raises in a block into a PipelineError that names the entry."""

    def __init__(self, entry: object) -> None:
        self._entry = f"{type(entry).__name__.lower()} {getattr(entry, 'name')!r}"  # noqa: B009 - any kind of entry

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, PySparkException):
            raise PipelineError(f"{self._entry}: {_cause(error)}") from error
        if isinstance(error, HeadgateError) and not isinstance(error, PipelineError):
            raise PipelineError(f"{self._entry}: {error}") from error


def _cause(error: PySparkException) -> str:
    """What went wrong, in a paragraph: Headgate's own error where one is at the bottom, else what Spark says first."""
    text = str(error)
    own = [line for line in text.splitlines() if line.strip().startswith("headgate.errors.")]
    if own:
        return own[-1].strip().partition(": ")[2]
    for noise in ("\n=== Streaming Query ===", "\n\nJVM stacktrace", "\nTraceback"):
        text = text.split(noise, 1)[0]
    return text.strip()


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _collect(query: StreamingQuery, written: dict[int, int]) -> None:
    """Rows per batch, of the batches that are done; Spark remembers the newest hundred."""
    for progress in query.recentProgress:
        observed = progress["observedMetrics"].get(_ROWS)
        if observed is not None:
            written[int(progress["batchId"])] = int(observed[_ROWS])


def _streamable(path: str) -> str:
    """The same place as a file stream of Spark takes it: a single file only as a pattern."""
    return f"{path[:-1]}[{path[-1]}]" if Path(path).is_file() else path


def _target(sink: Sink) -> str:
    return sink.path or f"stream {sink.stream}"
