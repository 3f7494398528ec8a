"""The report of a pipeline run, sink by sink, and the table that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich import box
from rich.table import Table

from headgate.scan import ScanCounters
from headgate.spark.pipeline.sinks import Guarantee
from headgate.spark.route import RuleResult


@dataclass(slots=True)
class SinkReport:
    """One sink of a run.

    `rows_written` in this run; `continued` when an earlier run had written already;
    `recomputed` when the output was replaced; `counters` of all Headgate sources that were read for it, None without
    one; `seconds` of its query; `guarantee` of its kind over restarts.
    """

    name: str
    input: str
    target: str
    rows_written: int
    continued: bool
    recomputed: bool
    seconds: float
    counters: ScanCounters | None
    guarantee: Guarantee

    def as_dict(self) -> dict[str, object]:
        """The report as JSON-able values."""
        return {
            "sink": self.name,
            "input": self.input,
            "target": self.target,
            "rows_written": self.rows_written,
            "continued": self.continued,
            "recomputed": self.recomputed,
            "guarantee": self.guarantee.value,
            "seconds": round(self.seconds, 3),
            "counters": None if self.counters is None else self.counters.as_dict(),
        }


@dataclass(slots=True)
class TopicReport:
    """One topic of a run; `written` per stream, `rules` in the order of subscriptions and rules."""

    name: str
    messages: int
    copies: int
    continued: bool
    seconds: float
    counters: ScanCounters
    written: dict[str, int]
    rules: list[RuleResult]

    def as_dict(self) -> dict[str, object]:
        """The report as JSON-able values."""
        return {
            "topic": self.name,
            "messages": self.messages,
            "copies": self.copies,
            "seconds": round(self.seconds, 3),
            "counters": self.counters.as_dict(),
            "written": self.written,
            "rules": [asdict(rule) for rule in self.rules],
        }

    def table(self) -> Table:
        """One row per rule."""
        rate = f"{self.messages / self.seconds:,.0f} messages/s" if self.messages else "nothing new"
        title = f"topic {self.name}: {self.messages:,} messages, {self.copies:,} copies, {self.seconds:.1f} s, {rate}"
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        table.add_column("subscription")
        table.add_column("rule")
        for heading in ("matched", "copies", "errors", "failed actions"):
            table.add_column(heading, justify="right")
        if any(rule.last_failure_offset is not None for rule in self.rules):
            table.add_column("last failure", overflow="fold")
        for rule in self.rules:
            matched = _share(rule.matched, self.messages)
            name = rule.rule or "(messages as they are)"
            errors = "–" if rule.errors is None else f"{rule.errors:,}"
            failures = (errors, f"{rule.failed_actions:,}", _last_failure(rule))
            table.add_row(rule.subscription, name, matched, f"{rule.copies:,}", *failures[: len(table.columns) - 4])
        return table


@dataclass(frozen=True, slots=True)
class Failure:
    """A sink or a topic that failed; `reason` names it. The next run continues it."""

    kind: str
    name: str
    reason: str


@dataclass(slots=True)
class Report:
    """A whole run; `root` is the folder with the streams."""

    pipeline: str
    root: Path
    seconds: float = 0.0
    sinks: list[SinkReport] = field(default_factory=list)
    topics: list[TopicReport] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """The report as JSON-able values."""
        return {
            "pipeline": self.pipeline,
            "root": str(self.root),
            "seconds": round(self.seconds, 3),
            "sinks": [sink.as_dict() for sink in self.sinks],
            "topics": [topic.as_dict() for topic in self.topics],
            "failed": [asdict(failure) for failure in self.failures],
        }

    def table(self) -> Table:
        """One row per sink: how much each stage examined, skipped and kept, and where the output lies."""
        table = Table(box=box.SIMPLE_HEAD, title=f"pipeline {self.pipeline}", title_justify="left", pad_edge=False)
        table.add_column("sink")
        for heading in ("chunks", "skipped", "bytes not read", "messages", "kept", "written", "seconds", "rows/s"):
            table.add_column(heading, justify="right")
        table.add_column("run")
        table.add_column("output", overflow="fold")
        for sink in self.sinks:
            table.add_row(sink.name, *_stages(sink.counters), *_output(sink))
        return table


def _stages(counters: ScanCounters | None) -> tuple[str, ...]:
    if counters is None:
        return ("", "", "", "", "")
    skipped = counters.chunks_left_out
    total = counters.bytes_read + counters.bytes_skipped
    return (
        f"{counters.chunks_examined:,}",
        _share(skipped, counters.chunks_examined),
        f"{size(counters.bytes_skipped)} of {size(total)}",
        f"{counters.messages_decided:,}",
        _share(counters.messages_matched, counters.messages_decided),
    )


def _output(sink: SinkReport) -> tuple[str, ...]:
    rows = sink.rows_written if sink.counters is None else sink.counters.messages_decided
    how = "continued" if sink.continued else "replaced" if sink.recomputed else "new"
    return (
        f"{sink.rows_written:,}",
        f"{sink.seconds:.1f}",
        f"{rows / sink.seconds:,.0f}" if rows else "",
        how,
        sink.target,
    )


def _last_failure(rule: RuleResult) -> str:
    return "" if rule.last_failure_offset is None else f"offset {rule.last_failure_offset}: {rule.last_failure_reason}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.1f} %)" if whole else f"{part:,}"


def size(size_bytes: int) -> str:
    """Bytes for people: `23.1 MB`."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def sum_counters(parts: Sequence[Mapping[str, int]]) -> ScanCounters | None:
    """The counters of several sources added up; None without any."""
    if not parts:
        return None
    total = ScanCounters()
    known = set(total.as_dict())
    for part in parts:
        total.add(ScanCounters(**{name: value for name, value in part.items() if name in known}))
    return total
