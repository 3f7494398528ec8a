"""Running a pipeline: one Spark query per sink and per topic, each to the present end of its input.

Jobs that write streams run in the calling thread, one after the other. Every other sink has a thread, begins as soon as
its input is written, and does not affect the others: one that fails or stalls is named at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from headgate.client import Management
from headgate.errors import ConfigError, HeadgateError, PipelineError, SinkError, StreamNotFoundError
from headgate.log import resolve_stream
from headgate.scan import ScanCounters
from headgate.spark import queries
from headgate.spark.copy import copy_stream
from headgate.spark.counters import OwnCounters
from headgate.spark.derived import build_column_files
from headgate.spark.options import SinkOptions
from headgate.spark.pipeline.configuration import (
    Job,
    Mode,
    Pipeline,
    Sink,
    Source,
    Step,
    Watermark,
    called,
    load,
    writes_streams,
)
from headgate.spark.pipeline.delta import DeltaSink, query_id
from headgate.spark.pipeline.inputs import check_inputs, paths_are_local
from headgate.spark.pipeline.jdbc import JdbcTable
from headgate.spark.pipeline.report import Failure, Report, SinkReport, TopicReport, sum_counters
from headgate.spark.pipeline.reporting import ReportingWatcher
from headgate.spark.pipeline.sinks import (
    DELTA,
    HEADGATE,
    JDBC,
    PARQUET,
    Guarantee,
    guarantee_of,
    local_folder,
    without_dictionaries_of_floats,
)
from headgate.spark.pipeline.topics import RoutedTopic
from headgate.spark.reporting import PipelineReporter
from headgate.spark.route import declare_topic, route_topic, stream_exists
from headgate.spark.running import only_run
from headgate.spark.session import session

_POLL_S = 0.2
_STOP_S = 10.0
_ROWS = "rows"


class Watcher(Protocol):
    """Is told how a run goes: one call at a time, from any thread of the run."""

    def spark_starts(self) -> None:
        """All that can be known before Spark starts is checked."""

    def sink_started(self, name: str, *, continued: bool) -> None:
        """A sink's query begins; `continued` when an earlier run wrote to it."""

    def sink_progressed(self, name: str, rows: int) -> None:
        """The number of rows that the sink has written so far."""

    def sink_finished(self, report: SinkReport) -> None:
        """A sink is done."""

    def topic_finished(self, report: TopicReport) -> None:
        """A topic is routed as far as there are messages; `sink_started` told of its begin."""

    def retried(self, name: str) -> None:
        """A sink or topic is run once more: a Python worker of Spark did not connect in time."""

    def failed(self, failure: Failure) -> None:
        """A sink or topic failed; the others go on."""


class _Telling:
    """Calls the watchers from one thread at a time."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers
        self._lock = threading.Lock()

    def __call__(self, tell: Callable[[Watcher], None]) -> None:
        with self._lock:
            for watcher in self._watchers:
                tell(watcher)


def run(
    pipeline: Pipeline | str | Path,
    *,
    spark: SparkSession | None = None,
    watcher: Watcher | None = None,
    report_to: Management | None = None,
) -> Report:
    """Run every sink and topic of a pipeline (or of a pipeline file) once, to the present end of their inputs.

    `watcher` is told how it goes; with `report_to`, the console of that server shows it.

    Topics and sinks with mode append continue where an earlier run stopped, with the guarantee of their kind (`sinks`).
    Raises ConfigError before Spark starts, also for a missing stream, file or column; QueryRunningError if another
    process runs a pipeline with the same folder of checkpoints. A sink or topic that fails stops no other one; when all
    others are done, PipelineError names the failed ones and has the report of the rest. Finished work stays.
    """
    checked = pipeline if isinstance(pipeline, Pipeline) else load(pipeline)
    _check_inputs(checked, is_new_session=spark is None and SparkSession.getActiveSession() is None)
    watchers: list[Watcher] = [] if watcher is None else [watcher]
    with only_run(checked.state), contextlib.ExitStack() as reporting:
        if report_to is not None:
            watchers.append(ReportingWatcher(reporting.enter_context(PipelineReporter(report_to, checked.name))))
        tell = _Telling(watchers)
        tell(lambda watcher: watcher.spark_starts())
        made = spark or session(f"headgate run {checked.name}", config=checked.spark)
        runner = _Runner(checked, made, tell)
        began = time.monotonic()
        runner.declare_topics()
        done = runner.run_all()
        if checked.build_columns:
            done += runner.build_columns()
    report = Report(checked.name, checked.root, seconds=time.monotonic() - began)
    for each in done:
        if isinstance(each, Failure):
            report.failures.append(each)
        elif isinstance(each, TopicReport):
            report.topics.append(each)
        else:
            report.sinks.append(each)
    if report.failures:
        raise PipelineError("\n".join(failure.reason for failure in report.failures), report=report)
    return report


def _check_inputs(pipeline: Pipeline, *, is_new_session: bool) -> None:
    """Refuse missing inputs, where this process sees the same files as Spark."""
    if is_remote() or os.environ.get("SPARK_REMOTE"):
        return
    try:
        # A session that is there has a working directory and a default file system of its own.
        local_paths = is_new_session and paths_are_local(pipeline)
        check_inputs(pipeline, is_new_session=is_new_session, local_paths=local_paths)
    except ConfigError as error:
        raise ConfigError(str(error) if pipeline.file is None else f"{pipeline.file}: {error}") from error


Outcome = SinkReport | TopicReport | Failure


class _Runner:
    def __init__(self, pipeline: Pipeline, spark: SparkSession, tell: _Telling) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._tell = tell
        self._run = secrets.token_hex(6)
        self._views_lock = threading.Lock()
        self._interrupted = threading.Event()

    def run_all(self) -> list[Outcome]:
        """Run every job; gives how each ended, in the order of the jobs."""
        ends: dict[str, Future[Outcome]] = {}
        with ThreadPoolExecutor(self._pipeline.sinks_at_once, "headgate-sink", self._activate) as beside:
            try:
                for job in self._pipeline.jobs:
                    needed = [ends[called(other)] for other in self._pipeline.needed_by(job)]
                    if writes_streams(job):
                        ends[called(job)] = Future()
                        ends[called(job)].set_result(self._run_job(job, needed))
                    else:
                        ends[called(job)] = beside.submit(self._run_job, job, needed)
                return [end.result() for end in ends.values()]
            except BaseException:
                self._interrupted.set()
                beside.shutdown(wait=False, cancel_futures=True)
                raise

    def build_columns(self) -> list[Failure]:
        """Build column files of all streams in folders that the run wrote; gives the failures of damaged segments."""
        targets: list[Mapping[str, str]] = []
        for job in self._pipeline.jobs:
            if isinstance(job, RoutedTopic):
                targets.extend(job.outputs.values())
            elif job.format == HEADGATE:
                targets.append(self._pipeline.sink_options(job))
        written = [options for options in map(SinkOptions.parse, targets) if options.server is None]
        streams = {}
        for options in written:
            with suppress(StreamNotFoundError):
                found = resolve_stream(options.stream, options.root)
                streams[found.path] = found
        done = build_column_files(self._spark, list(streams.values()))
        return [
            Failure("columns", path.name, f"column file of segment {each.segment} of {path.name}: {each.trouble}")
            for path, reports in done.items()
            for each in reports
            if each.trouble
        ]

    def _activate(self) -> None:
        """Make the session the active one of this thread: Spark looks up data sources and settings in that one."""
        if not is_remote():
            jvm: Any = self._spark._jvm
            jvm.SparkSession.setActiveSession(self._spark._jsparkSession)

    def _run_job(self, job: Job, needed: Sequence[Future[Outcome]]) -> Outcome:
        """Run a job when the jobs that it needs have ended, failed or not; it reads their output so far."""
        for other in needed:
            other.result()
        checkpoint = self._checkpoint(job)
        continued = _appends(job) and (checkpoint / "commits").is_dir()
        self._tell(lambda watcher: watcher.sink_started(job.name, continued=continued))
        begun = _batches(checkpoint)
        try:
            try:
                return self._attempt(job, continued)
            except _LateWorkerError:
                if _appends(job) and _guarantee(job) is not Guarantee.EXACTLY_ONCE and _batches(checkpoint) != begun:
                    raise
                self._tell(lambda watcher: watcher.retried(job.name))
                return self._attempt(job, continued)
        except PipelineError as error:
            failure = Failure("topic" if isinstance(job, RoutedTopic) else "sink", job.name, str(error))
            self._tell(lambda watcher: watcher.failed(failure))
            return failure

    def _attempt(self, job: Job, continued: bool) -> SinkReport | TopicReport:
        if isinstance(job, RoutedTopic):
            topic = self.run_topic(job, continued)
            self._tell(lambda watcher: watcher.topic_finished(topic))
            return topic
        sink = self.run_sink(job, continued)
        self._tell(lambda watcher: watcher.sink_finished(sink))
        return sink

    def _checkpoint(self, job: Job) -> Path:
        name = f"topic-{job.name}" if isinstance(job, RoutedTopic) else job.name
        return self._pipeline.state / "checkpoints" / name

    def declare_topics(self) -> None:
        """Put the rules of the file in force, before anything is written: new messages are decided by them.

        A stream that a sink still has to make becomes a topic when it is routed.
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

    def run_topic(self, routed: RoutedTopic, continued: bool) -> TopicReport:
        began = time.monotonic()
        most = routed.max_messages_per_batch
        self._declare(routed)
        with _naming(routed):
            done = route_topic(
                self._spark,
                self._pipeline.root,
                routed.name,
                routed.outputs,
                start=routed.start,
                checkpoint=self._checkpoint(routed),
                options={} if most is None else {"max_messages_per_batch": str(most)},
                retries=False,
            )
        return TopicReport(
            name=routed.name,
            messages=done.messages,
            copies=done.copies,
            continued=continued,
            seconds=time.monotonic() - began,
            counters=sum_counters([done.counters]) or ScanCounters(),
            written=done.written,
            rules=done.rules,
        )

    def run_sink(self, sink: Sink, continued: bool) -> SinkReport:
        checkpoint = self._checkpoint(sink)
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
            guarantee=guarantee_of(sink.format),
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
            retries=False,
        )
        return result.messages_written, [result.counters]

    def _append(self, sink: Sink, checkpoint: Path) -> tuple[int, list[dict[str, int]]]:
        with OwnCounters(self._pipeline.root) as counted:
            with self._views(sink, counted, streaming=True) as frame:
                query, finish = self._start(sink, frame, checkpoint)
            written = self._wait(sink, query)
            finish()
            return written, counted.sums()

    def _start(self, sink: Sink, frame: DataFrame, checkpoint: Path) -> tuple[StreamingQuery, Callable[[], None]]:
        """The query of a sink, and the work to do after its end."""
        options = self._pipeline.sink_options(sink)
        writer = (
            frame.observe(_ROWS, count(lit(1)).alias(_ROWS))
            .writeStream.option("checkpointLocation", str(checkpoint))
            .queryName(f"{self._pipeline.name}_{sink.name}_{self._run}")
            .outputMode("append")
            .trigger(availableNow=True)
        )
        if sink.format.lower() in (JDBC, DELTA) and is_remote():
            needs = "needs a Spark session in this process; this one is a Spark Connect client"
            raise SinkError(f"format {sink.format} with mode append {needs}")
        if sink.format.lower() == JDBC:
            started: Future[str] = Future()
            table = JdbcTable(self._spark, options, sink.key or (), started.result)
            query = queries.start(writer.foreachBatch(table.write).start)
            started.set_result(query.id)
            return query, table.close
        if sink.format.lower() == DELTA:
            delta = DeltaSink(local_folder(str(sink.path)), partial(query_id, checkpoint), sink.partition_by)
            return queries.start(writer.foreachBatch(delta.write).start), lambda: None
        if sink.format.lower() == PARQUET:
            options = without_dictionaries_of_floats(frame.schema) | options
        writer = writer.format(sink.format).options(**options)
        return queries.start(partial(writer.start, sink.path)), lambda: None

    def _compute(self, sink: Sink) -> tuple[int, list[dict[str, int]]]:
        with OwnCounters(self._pipeline.root) as counted:
            with self._views(sink, counted, streaming=False) as frame:
                replace = self._replacement(sink, frame)
                # A client of Spark Connect has plans analysed anew when they run, and needs the views until then.
                rows = replace() if is_remote() else None
            if rows is None:
                rows = replace()
            return rows, counted.sums()

    def _replacement(self, sink: Sink, frame: DataFrame) -> Callable[[], int]:
        """The function that replaces all rows of a sink's output; it gives the number of new rows."""
        if sink.format.lower() == DELTA:
            owner = f"{self._pipeline.name}.{sink.name}"
            return partial(DeltaSink(local_folder(str(sink.path)), lambda: owner, sink.partition_by).replace, frame)
        observed = Observation(_ROWS)
        counted = frame.observe(observed, count(lit(1)).alias(_ROWS))
        options = self._pipeline.sink_options(sink)
        if sink.format.lower() == PARQUET:
            options = without_dictionaries_of_floats(frame.schema) | options
        writer = counted.write.format(sink.format).options(**options).mode("overwrite")

        def save() -> int:
            writer.save(sink.path) if sink.path is not None else writer.save()
            return int(observed.get[_ROWS])

        return save

    def _wait(self, sink: Sink, query: StreamingQuery) -> int:
        """Follow a query to its end; gives the rows it wrote."""
        written: dict[int, int] = {}
        newest, moved = None, time.monotonic()
        try:
            while query.isActive:
                if self._interrupted.wait(_POLL_S):
                    raise SinkError("the run was interrupted")
                _collect(query, written)
                self._tell(lambda watcher: watcher.sink_progressed(sink.name, sum(written.values())))
                progress = query.lastProgress
                batch = None if progress is None else progress["batchId"]
                if batch != newest:
                    newest, moved = batch, time.monotonic()
                elif sink.stall_timeout_s is not None and time.monotonic() - moved > sink.stall_timeout_s:
                    raise SinkError(f"no batch ended within its stall_timeout of {sink.stall_timeout}; it was stopped")
            query.awaitTermination()
            _collect(query, written)
        except BaseException:
            _stop(query)
            raise
        return sum(written.values())

    @contextmanager
    def _views(self, sink: Sink, counted: OwnCounters, *, streaming: bool) -> Iterator[DataFrame]:
        """The rows that go into a sink, made from views with the names of sources and steps.

        Names belong to the session, so one sink at a time; a plan that is analysed needs its views no longer.
        """
        frames: dict[str, DataFrame] = {}
        with self._views_lock:
            try:
                yield self._frame(sink.input, sink, streaming, frames, counted)
            finally:
                for name in frames:
                    self._spark.catalog.dropTempView(name)

    def _frame(
        self, name: str, sink: Sink, streaming: bool, frames: dict[str, DataFrame], counted: OwnCounters
    ) -> DataFrame:
        if name in frames:
            return frames[name]
        source = self._pipeline.sources.get(name)
        if source is not None:
            frame = self._read(source, sink, streaming, counted)
            watermark = source.watermark
        else:
            step = self._pipeline.steps[name]
            for needed in step.inputs:
                self._frame(needed, sink, streaming, frames, counted)
            with _naming(step):
                frame = self._spark.sql(step.sql)
            watermark = step.watermark
        frames[name] = _with_watermark(frame, watermark) if streaming else frame
        frames[name].createOrReplaceTempView(name)
        return frames[name]

    def _read(self, source: Source, sink: Sink, streaming: bool, counted: OwnCounters) -> DataFrame:
        options = self._pipeline.source_options(source)
        if source.format == HEADGATE:
            token = f"{self._pipeline.name[:40]}.{sink.name[:20]}.{source.name[:20]}.{self._run}"
            counted.claim(token)
            options["counters"] = token
            options.setdefault("start", "first")
        reader = self._spark.read.format(source.format).options(**options)
        if not streaming:
            return reader.load(source.path) if source.path is not None else reader.load()
        stream = self._spark.readStream.format(source.format).options(**options)
        if source.path is None:
            return stream.load()
        return stream.schema(reader.load(source.path).schema).load(_streamable(source.path))


@contextmanager
def _naming(entry: Sink | Step | RoutedTopic) -> Iterator[None]:
    """Turn the errors of a block into PipelineErrors that name the entry."""
    named = f"{type(entry).__name__.lower()} {entry.name!r}"
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        cause = _cause(error)
        if queries.worker_was_late(cause):
            raise _LateWorkerError(f"{named}: {_LATE}") from error
        raise PipelineError(f"{named}: {cause}") from error
    except PipelineError:
        raise
    except HeadgateError as error:
        raise PipelineError(f"{named}: {error}") from error


class _LateWorkerError(PipelineError):
    """A Python worker did not connect in time; the entry may be tried again."""


_LATE = (
    "a Python worker of Spark did not start in time, because this machine is busy; run the pipeline again, it "
    "continues where it stopped"
)


def _appends(job: Job) -> bool:
    return isinstance(job, RoutedTopic) or job.mode is Mode.APPEND


def _guarantee(job: Job) -> Guarantee:
    return Guarantee.EXACTLY_ONCE if isinstance(job, RoutedTopic) else guarantee_of(job.format)


def _batches(checkpoint: Path) -> frozenset[str]:
    """The batches that were begun, as the checkpoint names them."""
    folder = checkpoint / "offsets"
    return frozenset(each.name for each in folder.iterdir()) if folder.is_dir() else frozenset()


def _stop(query: StreamingQuery) -> None:
    """Stop a query; one that hangs in its target is left behind, it ends with the session."""

    def stop() -> None:
        with suppress(PySparkException, Py4JError):
            query.stop()

    stopper = threading.Thread(target=stop, name="headgate-stop", daemon=True)
    stopper.start()
    stopper.join(_STOP_S)


def _cause(error: PySparkException | Py4JJavaError) -> str:
    """The cause of an error, as a paragraph: Headgate's own error where there is one, else the first one of Spark."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    for noise in ("\n=== Streaming Query ===", "\n\nJVM stacktrace", "\nTraceback", "\n SQLSTATE:"):
        text = text.split(noise, 1)[0]
    own = re.search(r"headgate\.errors\.\w+: (.*)", text, re.DOTALL)
    return (own[1] if own else text).strip()


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _collect(query: StreamingQuery, written: dict[int, int]) -> None:
    """Rows per batch, of the batches that are done; Spark remembers the newest hundred."""
    for progress in query.recentProgress:
        observed = progress["observedMetrics"].get(_ROWS)
        if observed is not None:
            # A client of Spark Connect gets the row as it is written in JSON: its values and their schema.
            rows = observed[_ROWS] if _ROWS in observed else observed["values"][0]
            written[int(progress["batchId"])] = int(rows)


def _streamable(path: str) -> str:
    """The same place as a file stream of Spark takes it: a single file only as a pattern."""
    return f"{path[:-1]}[{path[-1]}]" if Path(path).is_file() else path


def _target(sink: Sink) -> str:
    return sink.path or f"stream {sink.stream}"
