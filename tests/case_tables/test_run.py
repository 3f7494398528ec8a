"""Tables of cases: all verdicts of the original systems, and what becomes of wrong lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.case_tables import TableResult, run_tables
from headgate.errors import ConfigError, DataError

VECTORS = Path(__file__).parent.parent / "vectors"
NOW_MS = 1_795_200_000_000


@pytest.mark.parametrize("engine", ["kernel", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("table", "cases"),
    [
        ("rabbitmq_sql.jsonl", 722),
        ("rabbitmq_properties.jsonl", 188),
        ("rabbitmq_bloom.jsonl", 55),
        ("own/rabbitmq_sql.jsonl", 1092),
        ("own/rabbitmq_properties.jsonl", 380),
        ("rocketmq_sql.jsonl", 583),
        ("rocketmq_bloom.jsonl", 698),
        ("own/rocketmq_sql.jsonl", 382),
        ("servicebus_sql.jsonl", 179),
        ("servicebus_actions.jsonl", 38),
        ("servicebus_correlation.jsonl", 28),
        ("servicebus_rules.jsonl", 11),
    ],
)
def test_every_recorded_case_passes(table: str, cases: int, engine: Any) -> None:
    result = run_tables([VECTORS / table], now_ms=NOW_MS, engine=engine)
    assert result.failures == ()
    assert (result.passed, result.failed) == (cases, 0)


def test_a_file_of_messages_is_a_table_without_cases() -> None:
    assert str(run_tables([VECTORS / "rabbitmq_messages.jsonl"], now_ms=NOW_MS)) == "0 passed, 0 failed"


def table_of(folder: Path, *lines: object, name: str = "mine.jsonl") -> Path:
    file = folder / name
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts) + "\n")
    return file


def run(file: Path, **options: Any) -> TableResult:
    return run_tables([file], now_ms=NOW_MS, messages=VECTORS / "rabbitmq_messages.jsonl", **options)


@pytest.mark.parametrize(
    ("line", "expected", "got"),
    [
        (
            {"sql": "n = 5", "accepted": True, "matches": [0]},
            "matches [0]",
            "too many: [1, 2, 3, 4, 5, 6, 7, 8, 9, 15]",
        ),
        ({"sql": "n = 999", "accepted": True, "matches": [0]}, "matches [0]", "matches []; missing: [0]"),
        ({"sql": "n = ", "accepted": True, "matches": []}, "accepted", "refused: found the end of the filter"),
        ({"sql": "n = 5", "accepted": False}, "refused", "accepted"),
        ({"filters": [], "accepted": True, "effective": ["x"]}, "in force ['x']", "in force []; no entry is left out"),
        ({"filters": [], "accepted": False, "effective": []}, "an entry left out", "no entry is left out"),
        (
            {"kind": "case", "filters": [], "effective": [], "delivered": [1]},
            "delivered [1]",
            "delivered []; missing: [1]",
        ),
        (
            {"kind": "case", "filters": [], "error": "attach-refused", "condition": "c"},
            "the attach is refused: c",
            "attached",
        ),
        ({"hex": "08", "h": 1, "h_list": 269458579}, "{'h': 1,", "{'h': 3689531684,"),
        (
            {"hex": "08", "h": 3689531684, "h_list": 269458579, "bits16": [1, 2]},
            "'bits16': [1, 2]",
            "'bits16': [75, 13]",
        ),
    ],
)
def test_a_case_that_comes_out_otherwise_is_a_failure(tmp_path: Path, line: object, expected: str, got: str) -> None:
    result = run(table_of(tmp_path, "", {"sql": "TRUE", "accepted": None}, line))
    assert (result.passed, result.failed) == (1, 1)
    failure = result.failures[0]
    assert failure.line == 3
    assert expected in failure.expected
    assert got in failure.got


def test_a_failure_names_file_line_id_text_and_engine(tmp_path: Path) -> None:
    file = table_of(tmp_path, {"id": "mine-1", "sql": "n = 999", "accepted": True, "matches": [3]})
    result = run(file, engine="kernel")
    assert str(result.failures[0]).splitlines() == [
        f"{file}:1 mine-1 [kernel]",
        "  text:     n = 999",
        "  expected: matches [3]",
        "  got:      matches []; missing: [3]",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1]", "found a JSON list, expected an object"),
        ("5", "found a JSON int"),
        ("{}", "no kind of case has the keys (none)"),
        ({"text": "x"}, "no kind of case has the keys text"),
        ({"sql": 5, "accepted": True, "matches": []}, "key 'sql': found 5, expected str"),
        ({"sql": "x", "accepted": "yes"}, "key 'accepted': found 'yes'"),
        ({"sql": "x", "accepted": True}, "key 'matches': found None, expected list"),
        ({"sql": "x", "accepted": True, "matches": ["a"]}, "expected a list of numbers"),
        ({"filters": [5], "accepted": True}, "key 'filters': found 5"),
        ({"filters": [{"name": "a", "descriptor": None, "value": {"t": "nope"}}], "accepted": None}, "nope"),
        ({"kind": "layout", "chunks": [5]}, "key 'chunks': found 5"),
        ({"kind": "message", "idx": 0, "encoded_hex": "0"}, "expected bytes in hexadecimal"),
        ({"kind": "case", "filters": [], "error": "boom"}, "key 'error': found 'boom'"),
        ({"hex": "zz", "h": 1, "h_list": 1}, "expected bytes in hexadecimal"),
        ({"hex": "", "h": 1, "h_list": 1, "bits999": 1}, "key 'bits999'"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_wrong_line_is_a_failure_that_says_what_is_wrong(tmp_path: Path, line: object, reason: str) -> None:
    result = run(table_of(tmp_path, line))
    assert (result.passed, result.failed) == (0, 1)
    assert reason in result.failures[0].got


def test_without_messages_the_cases_that_need_them_fail_and_others_pass(tmp_path: Path) -> None:
    file = table_of(
        tmp_path, {"sql": "TRUE", "accepted": True, "matches": []}, {"sql": "TRUE FALSE", "accepted": False}
    )
    result = run_tables([file], now_ms=NOW_MS)
    assert (result.passed, result.failed) == (1, 1)
    assert f"expected the file {tmp_path / 'rabbitmq_messages.jsonl'}" in result.failures[0].got


def test_a_file_without_messages_is_no_file_of_messages(tmp_path: Path) -> None:
    case = {"id": "x", "sql": "region = 'NOPE'", "accepted": True, "matches": []}
    file, empty = table_of(tmp_path, case), table_of(tmp_path, "", name="empty.jsonl")
    for messages in (empty, file):
        result = run_tables([file], now_ms=NOW_MS, messages=messages)
        assert result.failed == 1 and f"there are no messages in {messages}" in str(result.failures[0])


def test_messages_beside_the_table_are_found(tmp_path: Path) -> None:
    table_of(tmp_path, {"idx": 7, "encoded_hex": ""}, name="rabbitmq_messages.jsonl")
    file = table_of(tmp_path, {"sql": "h.priority = 4", "accepted": True, "matches": [7]})
    assert str(run_tables([file], now_ms=NOW_MS)) == "1 passed, 0 failed"


def test_a_wrong_file_of_messages_fails_the_cases_that_need_it(tmp_path: Path) -> None:
    table_of(tmp_path, {"idx": 7, "encoded_hex": "zz"}, name="rabbitmq_messages.jsonl")
    result = run_tables([table_of(tmp_path, {"sql": "TRUE", "accepted": True, "matches": [7]})], now_ms=NOW_MS)
    assert "line 1 of the messages" in result.failures[0].got


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"engine": "fast"}, "found engine 'fast', expected one of reference, kernel, both"),
        ({"dialect": "nope"}, "found dialect 'nope'"),
        ({"messages": "missing.jsonl"}, "missing.jsonl cannot be read: No such file"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigError, DataError), match=reason):
        run_tables([VECTORS / "rabbitmq_messages.jsonl"], now_ms=NOW_MS, **options)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl cannot be read"):
        run_tables([tmp_path / "nothing.jsonl"], now_ms=NOW_MS)
    with pytest.raises(DataError, match=r"table \. cannot be read: Is a directory"):
        run_tables(["."], now_ms=NOW_MS)


_KEYS = (
    "kind",
    "sql",
    "accepted",
    "matches",
    "filters",
    "effective",
    "delivered",
    "error",
    "hex",
    "h",
    "h_list",
    "bits16",
)
_KEYS += ("chunks", "idx", "encoded_hex", "t", "v", "name", "descriptor", "value", "filter_values", "chunk_id")
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(("case", "layout", "message", "0a", "TRUE", "int", "map", "list", "array", "uuid", "binary")),
)  # fmt: skip
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5)),
    max_leaves=12,
)


@given(st.lists(st.one_of(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=6), _JSON), min_size=1, max_size=4))
def test_no_line_raises(tmp_path_factory: pytest.TempPathFactory, lines: list[object]) -> None:
    file = table_of(tmp_path_factory.getbasetemp(), *[json.dumps(line) for line in lines])
    result = run_tables([file], now_ms=NOW_MS, engine="reference")
    assert result.passed + result.failed <= len(lines)
    assert len(result.failures) == result.failed
