"""`headgate stream bloom` gives the sizes of RabbitMQ's documentation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli import main
from headgate.log import BloomSizing, size_for
from headgate.log.bloom import (
    MAX_FILTER_SIZE_BYTES,
    MIN_FILTER_SIZE_BYTES,
    BloomMatcher,
    bloom_bytes,
    false_positive_rate,
)


@pytest.mark.parametrize(("values", "size", "percent"), [(10, 16, 2), (30, 16, 14), (200, 128, 10)])
def test_documented_sizes_have_their_documented_error(values: int, size: int, percent: int) -> None:
    assert round(100 * false_positive_rate(values, size)) == percent


def test_command_prints_the_documented_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "bloom", "--values", "30", "--size", "16"]) == 0
    assert "14 %" in capsys.readouterr().out


@given(values=st.integers(1, 300), rate=st.floats(0.001, 0.9))
def test_size_for_is_the_smallest_that_keeps_the_rate(values: int, rate: float) -> None:
    size = size_for(values, rate)
    if size is None:
        assert false_positive_rate(values, MAX_FILTER_SIZE_BYTES) > rate
    else:
        assert false_positive_rate(values, size) <= rate
        assert size == MIN_FILTER_SIZE_BYTES or false_positive_rate(values, size - 1) > rate


def test_measured_rate_of_the_real_hash_follows_the_formula() -> None:
    values, size, chunks = 30, 16, 300
    passed = 0
    for chunk in range(chunks):
        held = bloom_bytes([f"value-{chunk}-{number}".encode() for number in range(values)], size)
        passed += sum(
            BloomMatcher([f"other-{chunk}-{number}".encode()], match_unfiltered=False).matches(held)
            for number in range(20)
        )
    assert math.isclose(passed / (20 * chunks), false_positive_rate(values, size), rel_tol=0.15)


def test_size_or_error_but_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "bloom", "--values", "10", "--size", "16", "--error", "1%"]) == 2
    assert "--size" in capsys.readouterr().err


def test_error_that_no_size_reaches_fails_and_says_what_the_largest_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "bloom", "--values", "5000", "--error", "1%"]) == 1
    assert "255" in capsys.readouterr().err


@pytest.mark.parametrize(("chunk_bytes", "warned"), [("20", False), ("12", True), ("1MB", False)])
def test_filter_heavier_than_its_chunk_is_warned_of(
    chunk_bytes: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stream", "bloom", "--values", "2", "--size", "16", "--chunk-bytes", chunk_bytes]) == 0
    assert ("outweighs" in capsys.readouterr().err) == warned
    assert BloomSizing(2, 16, 12).outweighs_data


@pytest.mark.parametrize(
    "option", [["--size", "15"], ["--size", "256"], ["--error", "0"], ["--error", "2"], ["--error", "x"]]
)
def test_size_or_error_out_of_range_is_wrong_usage(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "bloom", "--values", "10", *option]) == 2
    assert option[0] in capsys.readouterr().err
