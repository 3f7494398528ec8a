"""`headgate run`: a pipeline on Spark, with progress while it runs and a table at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headgate.cli.options import AsJson
from headgate.cli.output import write_json, write_line, write_note, write_table
from headgate.cli.units import counted

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table

    from headgate.spark.pipeline import Failure, Pipeline, Report, SinkReport, TopicReport


def run(
    pipeline: Annotated[Path, Parameter(help="The pipeline, a TOML file.")],
    /,
    *,
    report_to: Annotated[
        str | None,
        Parameter(name="--report", help="A Headgate server whose console shows the run: http://USER@HOST:15672."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run a pipeline: progress while it runs, at the end the messages that each stage examined, skipped and kept.

    A second run continues where the first stopped. A sink that fails stops no other one; it is named at the end, and
    the exit status is 1.
    """
    from headgate.client import Management
    from headgate.errors import PipelineError
    from headgate.spark.pipeline import Report, load
    from headgate.spark.pipeline import run as run_pipeline

    checked = load(pipeline)
    server = None if report_to is None else Management.of(report_to)
    with _Progress(checked) as progress:
        try:
            report = run_pipeline(checked, watcher=progress, report_to=server)
        except PipelineError as error:
            if isinstance(error.report, Report):
                _show(error.report, as_json=as_json)
                write_note("what is written stays; run it again, and each sink continues where it stopped")
            raise
    _show(report, as_json=as_json)
    return 0


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        write_json(report.as_dict())
        return
    for topic in report.topics:
        _write_table(topic.table())
    if report.sinks:
        _write_table(report.table())
    write_line(f"{report.seconds:.1f} s in all; streams are in {report.root}")
    if any(sink.continued for sink in report.sinks) or any(topic.continued for topic in report.topics):
        write_line("continued where the last run stopped; rows of earlier runs are not counted again")


def _write_table(table: Table) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table)
        return
    write_line(str(table.title))
    cells = zip(*(column.cells for column in table.columns), strict=True)
    write_table([str(column.header) for column in table.columns], cells)


class _Progress:
    """Lines on standard error: on a terminal one that moves, elsewhere one when a sink begins and one when it ends."""

    def __init__(self, pipeline: Pipeline) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
        self._tasks: dict[str, TaskID] = {}
        self._pipeline = pipeline

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def spark_starts(self) -> None:
        sinks, topics = len(self._pipeline.sinks), len(self._pipeline.topics)
        routed = f", {counted(topics, 'topic')}" if topics else ""
        write_note(f"pipeline {self._pipeline.name}: {counted(sinks, 'sink')}{routed}; Spark starts …")

    def sink_started(self, name: str, *, continued: bool) -> None:
        line = f"{name}: {'continues where the last run stopped' if continued else 'begins'}"
        self._tasks[name] = self._bar.add_task(line, total=None)
        if self._bar.disable:
            write_note(line)

    def sink_progressed(self, name: str, rows: int) -> None:
        if rows:
            self._bar.update(self._tasks[name], description=f"{name}: {rows:,} rows")

    def topic_finished(self, report: TopicReport) -> None:
        self._finished(report.name, f"{report.messages:,} messages routed, {report.seconds:.1f} s")

    def sink_finished(self, report: SinkReport) -> None:
        self._finished(report.name, f"{report.rows_written:,} rows written, {report.seconds:.1f} s")

    def retried(self, name: str) -> None:
        write_note(f"{name}: a Python worker of Spark did not start in time; it is tried once more")

    def failed(self, failure: Failure) -> None:
        self._finished(failure.name, "failed; the others go on")

    def _finished(self, name: str, line: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            self._bar.remove_task(task)
        self._bar.console.print(f"{name}: {line}", highlight=False)
