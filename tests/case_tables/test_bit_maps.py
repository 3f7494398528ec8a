"""RocketMQ's filter bit map: every recorded case, and what becomes of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.case_tables import run_tables
from headgate.case_tables.bit_maps import KINDS

VECTORS = Path(__file__).parent.parent / "vectors"


def test_every_recorded_case_of_bit_maps_passes(tmp_path: Path) -> None:
    lines = (VECTORS / "rocketmq_bloom.jsonl").read_text(encoding="utf-8").splitlines()
    kept = tmp_path / "bit_maps.jsonl"
    kept.write_text("\n".join(line for line in lines if json.loads(line)["kind"] in KINDS) + "\n", encoding="utf-8")
    result = run_tables([kept], now_ms=0)
    assert result.failures == ()
    assert result.passed == 660


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ({"kind": "params", "f": 20, "n": 32, "k": 3, "m": 120}, "{'k': 3, 'm': 112}"),
        ({"kind": "params_error", "f": 20, "n": 1, "error": "x: n must be greater than 0"}, "BitMapParameters("),
        ({"kind": "params_error", "f": 0, "n": 1, "error": "x: n must be greater than 0"}, "f must be greater"),
        ({"kind": "params", "f": 20, "n": 10**400, "k": 3, "m": 8}, "n must be at most"),
        ({"kind": "hash", "s": "#", "murmur3_128_low64_hex": "00"}, "d9315065d3a909a7"),
        ({"kind": "pos", "f": 20, "n": 32, "s": "#", "pos": [3, 62]}, "[3, 62, 22]"),
        ({"kind": "bits", "f": 20, "n": 32, "members": ["#"], "bytes_hex": "00", "hits": []}, "one of 14"),
        ({"kind": "bits", "f": 20, "n": 32, "members": [5], "bytes_hex": "00", "hits": []}, "a list of strings"),
        ({"kind": "bitsarray", "bit_length": 9, "byte_length": 2, "set": [8], "bytes_hex": "0002"}, "0001"),
        ({"kind": "bitsarray", "bit_length": 9, "byte_length": 2, "set": [9], "bytes_hex": "0002"}, "below 9"),
        ({"kind": "bitsarray", "bit_length": 2**60, "byte_length": 2, "set": [], "bytes_hex": ""}, "'bit_length'"),
    ],
)
def test_a_bit_map_case_that_comes_out_otherwise_is_a_failure(
    tmp_path: Path, line: dict[str, object], got: str
) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text(json.dumps(line) + "\n")
    result = run_tables([file], now_ms=0)
    assert result.passed == 0
    assert got in result.failures[0].got


def test_an_array_is_asked_for_the_strings_of_the_positions_before_it(tmp_path: Path) -> None:
    lines = [
        {"kind": "pos", "f": 20, "n": 32, "s": "#", "pos": [3, 62, 22]},
        {"kind": "bits", "f": 20, "n": 32, "members": ["#"], "bytes_hex": "08004000" + "00000040" + "00" * 6},
    ]
    file = tmp_path / "bits.jsonl"
    file.write_text("\n".join(json.dumps({**line, "hits": ["#"]}) for line in lines) + "\n")
    result = run_tables([file], now_ms=0)
    assert (result.passed, result.failures) == (2, ())
