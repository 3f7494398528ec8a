"""Reports of Spark jobs that a server keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.client import Management, PipelinePart, PipelineReport, PipelineState, RuleProgress
from headgate.errors import AccessRefusedError, PreconditionFailedError
from headgate.server.pipelines import (
    BYTES_PER_USER,
    KEPT_BYTES,
    MOST_PARTS,
    MOST_PIPELINES,
    MOST_RULES,
    PIPELINES_PER_USER,
    Pipelines,
)
from server.running import running_server


def _report(rows: int = 0, rules: int = 0) -> PipelineReport:
    each = RuleProgress("red", "r", 1, 1, 0, 0)
    part = PipelinePart("orders", "topic", PipelineState.RUNNING, rows, rules=(each,) * rules)
    return PipelineReport(PipelineState.RUNNING, (part,))


def _parts(row: dict[str, object]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(row["parts"]))
    return parts


def test_users_see_their_own_pipelines_and_monitors_see_all() -> None:
    pipelines = Pipelines()
    pipelines.put("a", _report(), "anna", 1000)
    pipelines.put("b", _report(), "ben", 2000)
    assert [row["name"] for row in pipelines.rows("anna", sees_all=False)] == ["a"]
    assert [row["name"] for row in pipelines.rows("anna", sees_all=True)] == ["b", "a"]


def test_a_name_belongs_to_the_user_who_reported_it_first() -> None:
    pipelines = Pipelines()
    pipelines.put("a", _report(rows=7), "anna", 1000)
    with pytest.raises(AccessRefusedError, match="another user"):
        pipelines.put("a", _report(rows=9), "ben", 2000)
    (row,) = pipelines.rows("anna", sees_all=False)
    assert _parts(row)[0]["rows"] == 7


def test_rows_over_time_have_a_point_every_five_seconds() -> None:
    pipelines = Pipelines()
    for second in range(21):
        pipelines.put("a", _report(rows=second), "anna", second * 1000)
    (row,) = pipelines.rows("anna", sees_all=False)
    assert row["points"] == [{"timestamp_ms": at * 1000, "rows": at} for at in range(0, 21, 5)]
    assert (row["first_reported_ms"], row["reported_ms"]) == (0, 20_000)


def test_beyond_the_limits_a_report_is_refused_and_the_longest_silent_pipeline_goes() -> None:
    pipelines = Pipelines()
    with pytest.raises(PreconditionFailedError, match="at most"):
        pipelines.put("a", _report(rules=MOST_RULES + 1), "anna", 0)
    parts = _report().parts * (MOST_PARTS + 1)
    with pytest.raises(PreconditionFailedError, match="at most"):
        pipelines.put("a", PipelineReport(PipelineState.RUNNING, parts), "anna", 0)
    for number in range(MOST_PIPELINES):
        pipelines.put(f"p{number}", _report(), f"u{number % 4}", number)
    pipelines.put("p0", _report(), "u0", 500)
    pipelines.put("last", _report(), "anna", 501)
    names = [row["name"] for row in pipelines.rows("anna", sees_all=True)]
    assert len(names) == MOST_PIPELINES
    assert "p0" in names
    assert "p1" not in names


def test_the_reports_of_one_user_push_out_none_of_others_and_have_bounded_memory() -> None:
    pipelines = Pipelines()
    pipelines.put("of ben", _report(), "ben", 0)
    for number in range(MOST_PIPELINES + 1):
        pipelines.put(f"p{number}", _report(), "anna", number)
    own = [row["name"] for row in pipelines.rows("anna", sees_all=False)]
    assert len(own) == PIPELINES_PER_USER and own[0] == f"p{MOST_PIPELINES}"
    large = msgspec.structs.replace(_report().parts[0], error="x" * (BYTES_PER_USER // 4))
    for user in range(10):
        for number in range(8):
            pipelines.put(f"{user} {number}", PipelineReport(PipelineState.FAILED, (large,)), f"user {user}", number)
    for user in range(10):
        rows = list(pipelines.rows(f"user {user}", sees_all=False))
        assert sum(len(msgspec.json.encode(row["parts"])) for row in rows) <= BYTES_PER_USER
    kept = list(pipelines.rows("", sees_all=True))
    assert sum(len(msgspec.json.encode(row["parts"])) for row in kept) <= KEPT_BYTES and kept[0]["name"] == "9 7"


def test_a_report_arrives_over_http_as_the_client_sent_it(tmp_path: Path) -> None:
    users = [{"name": "anna", "password": "secret"}, {"name": "ben", "password": "secret"}]
    with running_server(tmp_path, handlers={}, user=users) as running:
        anna, ben = (
            Management.of(f"http://127.0.0.1:{running.ports['http']}", user=name, password="secret")
            for name in ("anna", "ben")
        )
        anna.report_pipeline("nightly/1", _report(rows=7, rules=2))
        with pytest.raises(AccessRefusedError, match="another user"):
            ben.report_pipeline("nightly/1", _report())
        (row,) = anna.pipelines()
        assert (row["name"], row["user"], ben.pipelines()) == ("nightly/1", "anna", [])
        assert msgspec.convert({key: row[key] for key in ("state", "parts")}, PipelineReport) == _report(7, 2)
