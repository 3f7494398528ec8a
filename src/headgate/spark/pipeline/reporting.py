"""A watcher of a run that tells a server's console of each sink and topic (`headgate run --report SERVER`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.client import PipelinePart, PipelineState, RuleProgress
from headgate.spark.pipeline.report import Failure, SinkReport, TopicReport
from headgate.spark.reporting import PipelineReporter
from headgate.spark.route import RuleResult

_SHOWN_CHARACTERS = 4000


class ReportingWatcher:
    """Makes parts of a report; `clock` gives seconds."""

    def __init__(self, reporter: PipelineReporter, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reporter = reporter
        self._clock = clock
        self._begun: dict[str, float] = {}

    def spark_starts(self) -> None:
        """Nothing to tell yet."""

    def sink_started(self, name: str, *, continued: bool) -> None:
        """A sink or a topic begins."""
        self._begun[name] = self._clock()
        self._reporter.update(PipelinePart(name, "sink", PipelineState.RUNNING))

    def sink_progressed(self, name: str, rows: int) -> None:
        """Rows that a sink has written so far."""
        spent_s = self._clock() - self._begun[name]
        rate = rows / spent_s if spent_s > 0 else None
        self._reporter.update(PipelinePart(name, "sink", PipelineState.RUNNING, rows, rate))

    def sink_finished(self, report: SinkReport) -> None:
        """A sink is done: with the counters of its sources."""
        counters = {} if report.counters is None else report.counters.as_dict()
        part = PipelinePart(
            report.name,
            "sink",
            PipelineState.FINISHED,
            report.rows_written,
            _rate(report.rows_written, report.seconds),
            counters=counters,
        )
        self._reporter.update(part)

    def topic_finished(self, report: TopicReport) -> None:
        """A topic is routed: with the counts of its rules."""
        part = PipelinePart(
            report.name,
            "topic",
            PipelineState.FINISHED,
            report.messages,
            _rate(report.messages, report.seconds),
            counters=report.counters.as_dict(),
            rules=tuple(map(_rule, report.rules)),
        )
        self._reporter.update(part)

    def retried(self, name: str) -> None:
        """It stays running."""

    def failed(self, failure: Failure) -> None:
        """A sink or topic failed."""
        part = PipelinePart(failure.name, failure.kind, PipelineState.FAILED, error=failure.reason[:_SHOWN_CHARACTERS])
        self._reporter.update(part)


def _rate(rows: int, seconds: float) -> float | None:
    return rows / seconds if seconds > 0 else None


def _rule(result: RuleResult) -> RuleProgress:
    failure = None
    if result.last_failure_offset is not None:
        failure = f"offset {result.last_failure_offset}: {result.last_failure_reason}"[:_SHOWN_CHARACTERS]
    return RuleProgress(
        result.subscription,
        result.rule,
        result.matched,
        result.copies,
        result.errors,
        result.failed_actions,
        failure,
    )
