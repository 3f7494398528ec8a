"""Tables of cases: the recorded verdicts of SQL filters, and what becomes of wrong lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.case_tables import TableResult, run_tables
from headgate.errors import ConfigError, DataError
from recordings import VECTORS, lines_of

NOW_MS = 1_795_200_000_000
RABBITMQ = VECTORS / "rabbitmq_messages.jsonl"
AMQP = VECTORS / "own" / "amqp_messages.jsonl"
BODIES = VECTORS / "own" / "body_messages.jsonl"


TABLES = [("rabbitmq_sql", None), ("own/rabbitmq_sql", None), ("own/amqp_extensions", AMQP)]


@pytest.mark.parametrize(
    ("table", "messages", "engine"),
    [
        *((*table, "kernel") for table in TABLES),
        *(pytest.param(*table, "reference", marks=pytest.mark.slow) for table in TABLES),
        # By the reference it is in tests/evaluate/test_body_vectors.py.
        ("own/body_paths", BODIES, "kernel"),
    ],
)
def test_every_recorded_case_passes(table: str, messages: Path | None, engine: Any) -> None:
    result = run_tables([VECTORS / f"{table}.jsonl"], now_ms=NOW_MS, messages=messages, engine=engine)
    assert result == TableResult(len(lines_of(table)), ())


@pytest.mark.parametrize("table", ["rabbitmq_sql", "own/rabbitmq_sql"])
def test_what_rabbitmq_accepts_matches_the_same_messages_in_amqp(table: str) -> None:
    result = run_tables([VECTORS / f"{table}.jsonl"], now_ms=NOW_MS, engine="kernel", dialect="amqp")
    assert result.failures == ()
    assert result.passed >= sum(case["accepted"] is not False for case in lines_of(table))


def table_of(folder: Path, *lines: object, name: str = "mine.jsonl") -> Path:
    file = folder / name
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts) + "\n")
    return file


def run(file: Path, **options: Any) -> TableResult:
    return run_tables([file], **{"now_ms": NOW_MS, "messages": RABBITMQ, **options})


def test_a_line_runs_in_the_dialect_that_it_names(tmp_path: Path) -> None:
    match = {"sql": "LOWER(first) = 'ada'", "accepted": True, "matches": [0]}
    named, unnamed, unknown = ({**match, "dialect": "amqp"}, match, {**match, "dialect": "klingon"})
    starts = ("refused: ", "found dialect 'klingon'")
    result = run(table_of(tmp_path, named, unnamed, unknown), messages=AMQP)
    assert result.passed == 1
    assert [failure.got.startswith(start) for failure, start in zip(result.failures, starts, strict=True)] == [
        True,
        True,
    ]


def test_what_only_the_dialect_of_a_line_refuses_is_no_case_in_another(tmp_path: Path) -> None:
    refused = {"sql": "LOWER(first) = 'ada'", "accepted": False}
    table = table_of(tmp_path, refused)
    assert str(run(table)) == "1 passed, 0 failed"
    assert str(run(table, dialect="amqp")) == "0 passed, 0 failed"
    table = table_of(tmp_path, {**refused, "dialect": "amqp"}, {"sql": "first = ", "accepted": False})
    assert str(run(table, dialect="amqp")) == "1 passed, 1 failed"


@pytest.mark.parametrize(
    ("line", "expected", "got"),
    [
        ({"sql": "n = 5", "accepted": True, "matches": [0]}, "matches [0]", "matches [0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ({"sql": "n = 999", "accepted": True, "matches": [0]}, "matches [0]", "matches []"),
        ({"sql": "n = ", "accepted": True, "matches": []}, "accepted", "refused: found the end of the filter"),
        ({"sql": "n = 5", "accepted": False}, "refused", "accepted"),
        ("{", "case-tables.md", "Expecting property name"),
        ("[1]", "case-tables.md", "found a JSON list, expected an object"),
        ("[" * 100_000, "case-tables.md", "nested too deep"),
        ({"text": "x"}, "case-tables.md", "key 'sql': found None, expected str"),
        ({"sql": "x"}, "case-tables.md", "key 'accepted': found 'nothing'"),
        ({"sql": "x", "accepted": "yes"}, "case-tables.md", "key 'accepted': found 'yes'"),
        ({"sql": "x", "accepted": True}, "case-tables.md", "key 'matches': found None, expected list"),
    ],
)
def test_a_line_that_comes_out_otherwise_is_a_failure(tmp_path: Path, line: object, expected: str, got: str) -> None:
    result = run(table_of(tmp_path, "", {"sql": "TRUE", "accepted": None}, line, {"idx": 0, "encoded_hex": ""}))
    assert str(result) == "1 passed, 1 failed"
    failure = result.failures[0]
    assert failure.line == 3
    assert expected in failure.expected
    assert got in failure.got


def test_a_failure_names_file_line_id_text_and_engine(tmp_path: Path) -> None:
    file = table_of(tmp_path, {"id": "mine-1", "sql": "n = 999", "accepted": True, "matches": [3]})
    assert str(run(file, engine="kernel").failures[0]).splitlines() == [
        f"{file}:1 mine-1 [kernel]",
        "  text:     n = 999",
        "  expected: matches [3]",
        "  got:      matches []",
    ]


def test_a_case_without_messages_is_a_failure_that_says_what_is_missing(tmp_path: Path) -> None:
    file = table_of(tmp_path, {"sql": "TRUE", "accepted": True, "matches": []})
    assert "expected the file" in run(file, messages=None).failures[0].got
    assert "there are no messages in" in run(file, messages=file).failures[0].got
    table_of(tmp_path, {"idx": 7, "encoded_hex": "zz"}, name="rabbitmq_messages.jsonl")
    assert "line 1 of the messages" in run(file, messages=None).failures[0].got


def test_messages_beside_the_table_are_found(tmp_path: Path) -> None:
    table_of(tmp_path, {"idx": 7, "encoded_hex": ""}, name="rabbitmq_messages.jsonl")
    file = table_of(tmp_path, {"sql": "h.priority = 4", "accepted": True, "matches": [7]})
    assert str(run(file, messages=None)) == "1 passed, 0 failed"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = table_of(tmp_path, {"sql": "TRUE", "accepted": None})
    with pytest.raises(DataError, match=r"nothing\.jsonl cannot be read: No such file"):
        run(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match=r"cannot be read: Is a directory"):
        run(file, messages=tmp_path)
    with pytest.raises(ConfigError, match="found dialect 'nope'"):
        run(file, dialect="nope")
