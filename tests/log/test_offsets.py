from __future__ import annotations

import pytest

from headgate.errors import ConfigError
from headgate.log import OffsetKind, OffsetSpecification

PARSED = [
    ("first", OffsetSpecification.first()),
    ("last", OffsetSpecification.last()),
    ("next", OffsetSpecification.next()),
    ("0", OffsetSpecification.offset(0)),
    ("9223372036854775807", OffsetSpecification.offset(2**63 - 1)),
    ("10m", OffsetSpecification(OffsetKind.INTERVAL, 600_000)),
    ("1h", OffsetSpecification(OffsetKind.INTERVAL, 3_600_000)),
    ("5s", OffsetSpecification(OffsetKind.INTERVAL, 5_000)),
    ("2D", OffsetSpecification(OffsetKind.INTERVAL, 172_800_000)),
    ("1M", OffsetSpecification(OffsetKind.INTERVAL, 30 * 86_400_000)),
    ("1Y", OffsetSpecification(OffsetKind.INTERVAL, 365 * 86_400_000)),
    ("1970-01-01T00:00:01.500Z", OffsetSpecification.timestamp(1_500)),
    ("1970-01-02", OffsetSpecification.timestamp(86_400_000)),
    ("1970-01-01T01:00:00+01:00", OffsetSpecification.timestamp(0)),
    ("1970-01-01 00:00:02", OffsetSpecification.timestamp(2_000)),
]


@pytest.mark.parametrize(("text", "expected"), PARSED)
def test_an_offset_specification_is_read_from_text(text: str, expected: OffsetSpecification) -> None:
    assert OffsetSpecification.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "First", "-1", "+1", "1.5", "10 m", "0s", "10d", "m", "9223372036854775808", "2026-13-01", "٣", "1_0"]
)
def test_a_wrong_offset_specification_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="expected first, last, next"):
        OffsetSpecification.parse(text)


def test_an_interval_is_counted_back_from_the_time_given() -> None:
    assert OffsetSpecification.parse("10s").resolve(25_000) == OffsetSpecification.timestamp(15_000)
    assert OffsetSpecification.parse("7").resolve(25_000) == OffsetSpecification.offset(7)


def test_a_specification_shows_itself_briefly() -> None:
    shown = [str(OffsetSpecification.parse(text)) for text in ("first", "12", "10m", "1970-01-01")]
    assert shown == ["first", "12", "600s", "time 0 ms"]
