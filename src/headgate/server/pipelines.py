"""Jobs of Spark that reported to this server: their last state, and their rows over time. In memory only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from headgate.client import PipelineReport
from headgate.errors import AccessRefusedError, PreconditionFailedError

MOST_PIPELINES = 200
KEPT_BYTES = 32 << 20
"""Limits of all pipelines; beyond them the one that has not reported for the longest time goes."""
PIPELINES_PER_USER = 50
BYTES_PER_USER = 8 << 20
"""Limits of the pipelines of one user, so that nobody's reports push out those of others."""
MOST_PARTS = 1000
MOST_RULES = 10_000
"""Limits: parts of one report, and rules of all its parts."""

_POINTS = 180
_POINT_MS = 5000


@dataclass(slots=True)
class _Pipeline:
    user: str
    first_ms: int
    reported_ms: int = 0
    state: str = ""
    parts: bytes = b""
    """As JSON: a report takes several times as much memory as objects, and a list of many would hold up the loop."""
    points: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_POINTS))
    """Time and rows of all parts, at least five seconds apart."""


class Pipelines:
    """The pipelines by name. A name belongs to the first user that reports it, as long as it is kept."""

    def __init__(self) -> None:
        self._all: dict[str, _Pipeline] = {}

    def put(self, name: str, report: PipelineReport, user: str, now_ms: int) -> None:
        """Take a report. Raises AccessRefusedError for another user's name, PreconditionFailedError beyond a limit."""
        rules = sum(len(part.rules) for part in report.parts)
        if len(report.parts) > MOST_PARTS or rules > MOST_RULES:
            raise PreconditionFailedError(
                f"pipeline {name!r}: found {len(report.parts)} parts with {rules} rules; expected at most "
                f"{MOST_PARTS} with {MOST_RULES}"
            )
        known = self._all.pop(name, None)
        if known is not None and known.user != user:
            self._all[name] = known
            raise AccessRefusedError(f"pipeline {name!r} is reported by another user; report under another name")
        if known is None:
            known = _Pipeline(user, now_ms)
        known.reported_ms, known.state, known.parts = now_ms, report.state.value, msgspec.json.encode(report.parts)
        if not known.points or now_ms - known.points[-1][0] >= _POINT_MS:
            known.points.append((now_ms, sum(part.rows for part in report.parts)))
        self._all[name] = known
        own = [each for each, pipeline in self._all.items() if pipeline.user == user]
        self._make_room(own, PIPELINES_PER_USER, BYTES_PER_USER)
        self._make_room(list(self._all), MOST_PIPELINES, KEPT_BYTES)

    def _make_room(self, names: list[str], most: int, most_bytes: int) -> None:
        """Forget the first of some pipelines until the others are within the limits."""
        size_bytes = sum(len(self._all[name].parts) for name in names)
        for number, name in enumerate(names):
            if len(names) - number <= most and size_bytes <= most_bytes:
                return
            size_bytes -= len(self._all.pop(name).parts)

    def rows(self, user: str, *, sees_all: bool) -> Iterator[dict[str, object]]:
        """The pipelines of a user, or all, the last reported first."""
        for name, pipeline in reversed(self._all.items()):
            if sees_all or pipeline.user == user:
                yield {
                    "name": name,
                    "user": pipeline.user,
                    "first_reported_ms": pipeline.first_ms,
                    "reported_ms": pipeline.reported_ms,
                    "state": pipeline.state,
                    "parts": msgspec.Raw(pipeline.parts),
                    "points": [{"timestamp_ms": at, "rows": rows} for at, rows in pipeline.points],
                }
