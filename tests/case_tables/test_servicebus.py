"""Tables of Service Bus cases: a case that comes out otherwise is a failure that says what came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.case_tables import run_tables

RED = {"color": {"t": "string", "v": "red"}, "n": {"t": "long", "v": 2}}


def failure(folder: Path, line: dict[str, Any]) -> str:
    """What the one failing case of a table expected and got."""
    file = folder / "mine.jsonl"
    file.write_text(json.dumps(line) + "\n")
    result = run_tables([file], now_ms=0, engine="reference")
    assert (result.passed, result.failed) == (0, 1)
    return f"{result.failures[0].expected} / {result.failures[0].got}"


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ({"expression": "color = 'red'", "expect": "false"}, "false / true"),
        ({"expression": "color = 'red'", "expect": "nomatch"}, "nomatch / true"),
        ({"expression": "color = 'red'", "expect": "error", "error_at": "create"}, "refused / accepted"),
        ({"expression": "color = 'red'", "expect": "error", "error_at": "either"}, "error of the evaluation / true"),
        ({"expression": "color =", "expect": "true"}, "true / refused: found the end"),
        ({"expression": "color =", "expect": "error", "error_at": "evaluate"}, "an error of the evaluation / refused"),
        ({"expression": "color = 'red'", "expect": "maybe"}, "expected one of true, false, unknown, nomatch, error"),
        ({"filter": {"label": "x"}, "expect": "true"}, "true / false"),
        ({"filter": {"label": "x"}, "expect": "error"}, "refused / accepted"),
        ({"filter": {"lable": "x"}, "expect": "true"}, "accepted / refused: a correlation filter has no condition"),
        ({"action": "SET a = 1", "expect": "error", "error_at": "create"}, "refused / accepted"),
        ({"action": "SET a = 1", "expect": "error", "error_at": "evaluate"}, "an error / a copy"),
        ({"action": "SET a = 1 / 0", "expect": "ok"}, "a copy / error: division by zero"),
        ({"action": "SET a =", "expect": "ok"}, "ok / refused: found the end"),
        ({"action": "SET a = 1", "expect": "ok", "expect_props": {"a": {"t": "long", "v": 2}}}, "/ long 1"),
        ({"action": "SET a = 1", "expect": "ok", "expect_props": {"a": {"t": "int", "v": 1}}}, "/ long 1"),
        ({"action": "SET a = 1", "expect": "ok", "expect_props": {"b": {"t": "number", "v": 1}}}, "/ absent"),
        ({"action": "SET a = '1'", "expect": "ok", "expect_props": {"a": {"t": "number", "v": 1}}}, "/ string 1"),
        ({"action": "SET a = 1", "expect": "ok", "expect_props": {"a": {"t": "guid"}}}, "/ long 1"),
        ({"action": "SET a = 1", "expect": "ok", "absent_props": ["A"]}, "no A / A is there"),
        ({"action": "SET sys.To = 'x'", "expect": "ok", "expect_sys": {"To": "y"}}, "sys.To is y / x"),
        ({"action": "SET sys.To = 'x'", "expect": "ok", "unset_sys": ["To"]}, "sys.To is unset / it is set"),
        ({"rules": [{"name": "a", "sql": "1=1"}], "expect_copies": []}, "0 copies / 1: None"),
        ({"rules": [{"name": "a", "sql": "1=1"}], "expect_copies": [{"rule": "a"}]}, "a copy of rule a / copies of"),
        ({"rules": [{"name": "a", "sql": "1="}], "expect_copies": []}, "rules that are accepted / refused"),
        (
            {"rules": [{"name": "a", "sql": "1=1"}], "expect_copies": [{"rule": None, "absent_props": ["n"]}]},
            "copy of rule None: no n / n is there",
        ),
    ],
)
def test_a_case_that_comes_out_otherwise_says_what_came(tmp_path: Path, case: dict[str, Any], shown: str) -> None:
    assert shown in failure(tmp_path, {"props": RED, "sys": {}, **case})


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ({"expression": "a = 1", "expect": "true", "sys": {}}, "key 'props'"),
        ({"expression": "a = 1", "expect": "true", "props": {"a": 1}, "sys": {}}, 'expected {"t": type'),
        (
            {"expression": "a = 1", "expect": "true", "props": {"a": {"t": "int128", "v": 1}}, "sys": {}},
            "type 'int128'",
        ),
        ({"expression": "a = 1", "expect": "true", "props": {"a": {"t": "guid", "v": "x"}}, "sys": {}}, "'a': found"),
        ({"expression": "a = 1", "expect": "true", "props": {}, "sys": {"Nope": "x"}}, "system property 'Nope'"),
        ({"expression": "a =", "expect": "error", "error_at": "never", "props": {}, "sys": {}}, "key 'error_at'"),
    ],
)
def test_a_line_that_is_no_case_names_the_key(tmp_path: Path, case: dict[str, Any], shown: str) -> None:
    assert shown in failure(tmp_path, case)
