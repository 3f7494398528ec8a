"""Tables in the dialect `amqp`: the extensions' own cases, and RabbitMQ's tables run in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.case_tables import TableResult, run_tables
from headgate.case_tables.run import EngineChoice

VECTORS = Path(__file__).parent.parent / "vectors"
MESSAGES = VECTORS / "own" / "amqp_messages.jsonl"
NOW_MS = 1_795_200_000_000


@pytest.mark.parametrize("dialect", [None, "amqp"])
@pytest.mark.parametrize("engine", ["reference", "kernel"])
def test_every_case_of_the_extensions_passes(engine: EngineChoice, dialect: str | None) -> None:
    table = VECTORS / "own" / "amqp_extensions.jsonl"
    result = run_tables([table], now_ms=NOW_MS, messages=MESSAGES, engine=engine, dialect=dialect)
    assert result.failures == ()
    assert (result.passed, result.failed) == (456, 0)


@pytest.mark.parametrize(
    ("table", "cases", "refused_by_rabbitmq_alone"),
    [
        ("rabbitmq_sql.jsonl", 722, 15),
        ("rabbitmq_properties.jsonl", 188, 0),
        ("rabbitmq_bloom.jsonl", 55, 0),
        ("own/rabbitmq_sql.jsonl", 1092, 5),
        ("own/rabbitmq_properties.jsonl", 380, 0),
    ],
)
def test_what_rabbitmq_accepts_matches_the_same_messages_in_amqp(
    table: str, cases: int, refused_by_rabbitmq_alone: int
) -> None:
    result = run_tables([VECTORS / table], now_ms=NOW_MS, engine="kernel", dialect="amqp")
    assert result.failures == ()
    assert result.passed == cases - refused_by_rabbitmq_alone


def outcome(folder: Path, run_in: str | None, **line: object) -> TableResult:
    table = folder / "mine.jsonl"
    table.write_text(json.dumps({"id": "mine", **line}))
    return run_tables([table], now_ms=NOW_MS, messages=MESSAGES, engine="reference", dialect=run_in)


def test_a_line_runs_in_the_dialect_that_it_names(tmp_path: Path) -> None:
    match = {"sql": "LOWER(first) = 'ada'", "accepted": True, "matches": [0]}
    assert outcome(tmp_path, None, dialect="amqp", **match).passed == 1
    assert outcome(tmp_path, None, **match).failures[0].got.startswith("refused: ")
    assert outcome(tmp_path, None, dialect="klingon", **match).failures[0].got.startswith("found dialect 'klingon'")


def test_what_only_the_dialect_of_a_line_refuses_is_no_case_in_another(tmp_path: Path) -> None:
    refused = {"sql": "LOWER(first) = 'ada'", "accepted": False}
    assert str(outcome(tmp_path, None, **refused)) == "1 passed, 0 failed"
    assert str(outcome(tmp_path, "amqp", **refused)) == "0 passed, 0 failed"
    assert str(outcome(tmp_path, "amqp", dialect="amqp", **refused)) == "0 passed, 1 failed"
    assert str(outcome(tmp_path, "amqp", sql="first = ", accepted=False)) == "1 passed, 0 failed"


def test_an_entry_of_a_filter_map_that_only_rabbitmq_refuses_is_no_case_in_amqp(tmp_path: Path) -> None:
    entry = {
        "name": "sql-filter",
        "descriptor": {"t": "symbol", "v": "amqp:sql-filter"},
        "value": {"t": "string", "v": "EXISTS(first)"},
    }
    line = {"filters": [entry], "accepted": False, "effective": []}
    assert str(outcome(tmp_path, None, **line)) == "1 passed, 0 failed"
    assert str(outcome(tmp_path, "amqp", **line)) == "0 passed, 0 failed"
