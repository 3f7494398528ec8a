"""What a server is told of a job of Spark that runs elsewhere, for its console: `Management.report_pipeline`.

A report is the whole state of a pipeline at one moment, so a lost one costs nothing: the next says it all.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class PipelineState(Enum):
    """Of a pipeline or one of its parts."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class RuleProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one rule of a routed topic did; `errors` is None where they are not counted."""

    subscription: str
    rule: str
    matched: int
    copies: int
    errors: int | None
    failed_actions: int
    last_failure: str | None = None


class PipelinePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sink, a topic or a streaming query.

    `rows` were written or routed, or read by a query, since it began. `rows_per_s` is the rate now, `batch_ms` the
    time of the last batch. `counters` have the names of `ScanCounters`.
    """

    name: str
    kind: str
    state: PipelineState
    rows: int = 0
    rows_per_s: float | None = None
    batches: int | None = None
    batch_ms: int | None = None
    counters: dict[str, int] = {}
    rules: tuple[RuleProgress, ...] = ()
    error: str | None = None


class PipelineReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pipeline, or a session with streaming queries. At most 1 000 parts of at most 10 000 rules together."""

    state: PipelineState
    parts: tuple[PipelinePart, ...]
