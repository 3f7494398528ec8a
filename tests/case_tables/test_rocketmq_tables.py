"""Tables of RocketMQ cases: what counts as passed, and what a wrong line says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.case_tables import TableResult, run_tables

MAPS = (
    {"kind": "map", "id": "s0", "props": {"a": "5", "e": ""}},
    {"kind": "map", "id": "s1", "props": {"a": "x"}},
    {"kind": "map", "id": "t0", "typed": {"a": {"t": "float", "v": "Infinity"}, "e": {"t": "bool", "v": "true"}}},
)


def run(folder: Path, *lines: object, engine: Any = "both") -> TableResult:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run_tables([file], now_ms=0, engine=engine)


def expression(text: str, **outcome: str) -> dict[str, str]:
    return {"kind": "expr", "id": "e", "expr": text, **outcome}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("a = 5", {"compile": "ok", "r": "TXF"}),
        ("e = ''", {"compile": "ok", "r": "TNX"}),
        ("e", {"compile": "ok", "r": "FNT"}),
        ("a = NULL", {"compile": "error"}),
        ("a = NULL", {"compile": "error", "error_class": "RuntimeException",
                      "error": "java.lang.RuntimeException: 'NULL' cannot be compared."}),
        ("a =", {"compile": "error", "error_class": "ParseException", "error": "whatever a parser says"}),
    ],
)  # fmt: skip
def test_an_expression_over_all_maps_is_one_case(tmp_path: Path, text: str, outcome: dict[str, str]) -> None:
    assert str(run(tmp_path, *MAPS, expression(text, **outcome))) == "1 passed, 0 failed"


@pytest.mark.parametrize(
    ("line", "expected", "got"),
    [
        (expression("a = 5", compile="ok", r="TXT"), "TXT", "TXF; differing: t0"),
        (expression("a = 5", compile="error"), "refused", "compiles"),
        (expression("a =", compile="ok", r="TTT"), "compiles", "refused: found the end"),
        (
            expression("a > 'x'", compile="error", error_class="RuntimeException", error="RuntimeException: x"),
            "refused: RuntimeException: x",
            "refused: Value ''x'' cannot be compared.",
        ),
        ({"kind": "taghash", "tag": "a", "code": 98}, "code 98", "code 97"),
        ({"kind": "tagexpr", "expr": "||", "sub": "||", "tags": [], "codes": []}, "accepted", "refused: subString"),
        ({"kind": "tagexpr", "expr": "a", "error": "java.lang.Exception: no"}, "refused: java.lang", "accepted"),
        ({"kind": "tagexpr", "expr": "||", "error": "other"}, "other", "refused: subString split error"),
        ({"kind": "tagexpr", "expr": "a", "sub": "a", "tags": ["a"], "codes": [98]}, "[98]", "[97]"),
    ],
)  # fmt: skip
def test_another_outcome_is_a_failure(tmp_path: Path, line: object, expected: str, got: str) -> None:
    result = run(tmp_path, *MAPS, line)
    assert (result.passed, result.failed) == (0, 1)
    assert expected in result.failures[0].expected
    assert got in result.failures[0].got


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"kind": "expr", "compile": "ok"}, "key 'expr': found None, expected str"),
        (expression("a", compile="maybe"), "key 'compile': found 'maybe'"),
        (expression("a", compile="ok", r="TT"), "expected a T, F, N or X for each of 3 maps"),
        (expression("a", compile="ok", r="TTt"), "expected a T, F, N or X for each of 3 maps"),
        ({"kind": "map", "id": "m"}, "key 'props': found None, expected dict"),
        ({"kind": "map", "props": {}}, "key 'id': found None"),
        ({"kind": "map", "id": "m", "props": {"a": 5}}, "property 'a': found 5, expected a text"),
        ({"kind": "map", "id": "m", "typed": {"a": "5"}}, "property 'a': found '5', expected t"),
        ({"kind": "map", "id": "m", "typed": {"a": {"t": "uint", "v": "5"}}}, "expected t (one of byte, short"),
        ({"kind": "map", "id": "m", "typed": {"a": {"t": "int", "v": "x"}}}, "found 'x', expected a int"),
        ({"kind": "map", "id": "m", "typed": {"a": {"t": "bool", "v": "x"}}}, "found 'x', expected a bool"),
        ({"kind": "map", "id": "m", "typed": {"a": {"t": "byte", "v": "128"}}}, "byte takes an int from -128"),
        ({"kind": "map", "id": "m", "props": {"a": "\ud800"}}, "string takes a str"),
        ({"kind": "taghash", "tag": 5}, "key 'tag': found 5"),
        ({"kind": "tagexpr"}, "key 'expr': found None"),
        ({"kind": "tagexpr", "expr": "a"}, "key 'tags': found None"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(tmp_path: Path, line: object, reason: str) -> None:
    result = run(tmp_path, *MAPS, line, engine="reference")
    assert (result.passed, result.failed) == (0, 1)
    assert reason in result.failures[0].got
