"""Telling a server how jobs of Spark go, so that its console shows them: `report_to(spark, "http://…")`.

Reports are sent from a thread of their own, at most one a second. A server that is slow or away delays and fails
nothing: there is one warning, and the next report says everything.
"""

from __future__ import annotations

import logging
import math
import threading
from types import TracebackType

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

from headgate.client import Management, PipelinePart, PipelineReport, PipelineState
from headgate.errors import HeadgateError

log = logging.getLogger(__name__)

_APART_S = 1.0
_LAST_REPORT_S = 5.0
_MOST_PARTS = 1000


class PipelineReporter:
    """The state of one pipeline, sent to a server whenever it changed; `close` sends the last one."""

    def __init__(self, server: Management, name: str) -> None:
        self._server = server
        self._name = name
        self._parts: dict[str, PipelinePart] = {}
        self._changed = threading.Condition()
        self._is_new = True
        self._ended: PipelineState | None = None
        self._has_warned = False
        self._thread = threading.Thread(target=self._send_all, name="headgate-report", daemon=True)
        self._thread.start()

    def __enter__(self) -> PipelineReporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close(PipelineState.FINISHED if kind is None else PipelineState.FAILED)

    def update(self, part: PipelinePart) -> None:
        """The state of one part; returns at once."""
        with self._changed:
            self._parts.pop(part.name, None)
            self._parts[part.name] = part
            if len(self._parts) > _MOST_PARTS:
                del self._parts[next(iter(self._parts))]
            self._is_new = True
            self._changed.notify()

    def close(self, state: PipelineState = PipelineState.FINISHED) -> None:
        """The pipeline has ended, failed if one of its parts has. Returns after at most some seconds."""
        with self._changed:
            has_failed = any(part.state is PipelineState.FAILED for part in self._parts.values())
            self._ended, self._is_new = PipelineState.FAILED if has_failed else state, True
            self._changed.notify()
        self._thread.join(_LAST_REPORT_S)

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_new)
                self._is_new = False
                ended = self._ended
                report = PipelineReport(ended or PipelineState.RUNNING, tuple(self._parts.values()))
            try:
                self._server.report_pipeline(self._name, report)
            except HeadgateError as error:
                if not self._has_warned:
                    log.warning("the server of the reports did not take one of pipeline %s: %s", self._name, error)
                self._has_warned = True
            if ended is not None:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._ended is not None, _APART_S)


def report_to(
    spark: SparkSession, server: str, *, name: str | None = None, user: str | None = None, password: str | None = None
) -> PipelineReporter:
    """Report the streaming queries of a session to a Headgate server, under the session's name or `name`.

    Queries that start from now on are parts of the report, each by its name, or by its id without one. `server` is
    what `Management.of` takes, and its errors are raised; later troubles of the server are only logged. Close the
    reporter when no more queries are started; Spark's own end closes nothing.
    """
    management = Management.of(server, user=user, password=password)
    reporter = PipelineReporter(management, name or spark.conf.get("spark.app.name", "spark") or "spark")
    spark.streams.addListener(QueryListener(reporter))
    return reporter


class QueryListener(StreamingQueryListener):
    """Makes parts of a report of what Spark says of its streaming queries."""

    def __init__(self, reporter: PipelineReporter) -> None:
        self._reporter = reporter
        self._parts: dict[str, PipelinePart] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """A query began."""
        self._tell(str(event.runId), PipelinePart(event.name or str(event.id), "query", PipelineState.RUNNING))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done."""
        progress = event.progress
        run = str(progress.runId)
        name = progress.name or str(progress.id)
        before = self._parts.get(run, PipelinePart(name, "query", PipelineState.RUNNING))
        part = PipelinePart(
            name,
            "query",
            PipelineState.RUNNING,
            rows=before.rows + progress.numInputRows,
            rows_per_s=_number(progress.processedRowsPerSecond),
            batches=progress.batchId + 1,
            batch_ms=progress.durationMs.get("triggerExecution"),
        )
        self._tell(run, part)

    def onQueryIdle(self, event: object) -> None:  # noqa: N802
        """A query waits for messages: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query ended, with or without an error."""
        run = str(event.runId)
        before = self._parts.pop(run, None) or PipelinePart(str(event.id), "query", PipelineState.RUNNING)
        state = PipelineState.FINISHED if event.exception is None else PipelineState.FAILED
        ended = PipelinePart(
            before.name,
            before.kind,
            state,
            rows=before.rows,
            batches=before.batches,
            batch_ms=before.batch_ms,
            error=event.exception,
        )
        self._reporter.update(ended)

    def _tell(self, run: str, part: PipelinePart) -> None:
        self._parts[run] = part
        self._reporter.update(part)


def _number(rate: float) -> float | None:
    # Spark has no rate (NaN) for a batch that took no time.
    return None if math.isnan(rate) else rate
