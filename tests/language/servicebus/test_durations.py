"""Durations in ISO 8601, as Service Bus writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.language.servicebus import UNLIMITED, duration_ms, duration_text, duration_ticks, ticks_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1M", 60_000),
        ("PT1H30M", 5_400_000),
        ("P14D", 1_209_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
        ("PT0.0001S", 0),
        (UNLIMITED, None),
        ("P10675200D", None),
    ],
)
def test_a_duration_has_milliseconds(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1M", "P1Y", "P1M", "PT1", "PT-1S", "-PT1S", "PT1.S", "00:01:00", "PT١S"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a duration"):
        duration_ms(text)


@given(st.none() | st.integers(0, 922_337_203_685_476))
def test_what_is_written_is_read(ms: int | None) -> None:
    assert duration_ms(duration_text(ms)) == ms


def test_a_time_span_has_ticks_and_may_be_negative() -> None:
    assert duration_ticks("-P1DT0.0000005S") == -(86_400 * 10_000_000 + 5)


@given(st.integers(-(2**63), 2**63 - 1))
def test_ticks_that_are_written_are_read(ticks: int) -> None:
    assert duration_ticks(ticks_text(ticks)) == ticks
