"""Sizes, durations and shares on the command line."""

from __future__ import annotations

import pytest

from headgate.cli.units import duration_ms, share, shown_count, shown_share, shown_size, size_bytes
from headgate.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16", 16), ("8_000_000", 8_000_000), ("8MB", 8_000_000), ("1 GiB", 2**30), ("1.5kb", 1500), ("7 B", 7)],
)
def test_size_is_read_in_decimal_and_binary_units(text: str, expected: int) -> None:
    assert size_bytes(text, option="--size") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30_000), ("10m", 600_000), ("12h", 43_200_000), ("7D", 604_800_000), ("90", None), ("1M", None)],
)
def test_duration_needs_its_unit(text: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match=rf"--max-age.*{text!r}"):
            duration_ms(text, option="--max-age")
    else:
        assert duration_ms(text, option="--max-age") == expected


@pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "1e9", "٣x"])
def test_size_that_is_none_names_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-length"):
        size_bytes(text, option="--max-length")


def test_share_is_read_as_number_or_percentage() -> None:
    assert share("2%", option="--error") == share("0.02", option="--error") == 0.02


@pytest.mark.parametrize("text", ["0", "1", "100%", "nan", "-0.1", "two"])
def test_share_outside_zero_to_one_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--error"):
        share(text, option="--error")


def test_figures_are_shown_short() -> None:
    assert [shown_size(size) for size in (0, 999, 1000, 8_000_000, 12_340_000_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "8.0 MB",
        "12.3 GB",
    ]
    assert shown_count(1_234_567) == "1 234 567"
    assert [shown_share(value) for value in (0.0214, 0.1427, 0.00032, 0)] == ["2.1 %", "14 %", "0.032 %", "0 %"]
