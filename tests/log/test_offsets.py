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
    assert shown == ["first", "12", "600s", "1970-01-01T00:00:00.000Z"]


@pytest.mark.parametrize(
    ("start", "end", "is_after"),
    [
        ("8", "5", True),
        ("5", "5", False),
        ("5", "8", False),
        ("2026-01-02", "2026-01-01", True),
        ("2026-01-01", "2026-01-02", False),
        ("10m", "1h", True),
        ("1h", "10m", False),
        ("10m", "1970-01-01", True),
        ("2100-01-01", "10m", True),
        ("next", "first", True),
        ("next", "last", True),
        ("last", "first", True),
        ("first", "next", False),
        ("next", "next", False),
        # What these are, only the stream says.
        ("8", "1970-01-01", False),
        ("next", "5", False),
        ("8", "first", False),
        ("2100-01-01", "first", False),
    ],
)
def test_that_a_place_lies_behind_another_is_known_where_they_are_of_a_kind(
    start: str, end: str, is_after: bool
) -> None:
    places = OffsetSpecification.parse(start), OffsetSpecification.parse(end)
    assert places[0].is_after(places[1], now_ms=1_800_000_000_000) is is_after
    is_mixed = OffsetKind.INTERVAL in {place.kind for place in places} and places[0].kind is not places[1].kind
    assert places[0].is_after(places[1], now_ms=None) is (is_after and not is_mixed)


@pytest.mark.parametrize(
    ("start", "begin", "stream", "refused"),
    [
        ("31", 30, (0, 30), "found 31, which lies behind the end: the stream has offsets 0 to 29"),
        ("31", 30, (30, 30), "found 31, .* the stream has no messages, its next offset is 30"),
        ("30", 30, (0, 30), None),
        ("0", 0, (0, 0), None),
        ("next", 30, (0, 30), None),
        ("1s", 30, (0, 30), None),
        ("2001-01-01", 30, (0, 30), None),
        ("2100-01-01", 30, (0, 30), "found 2100-01-01T00:00:00.000Z, which lies behind the end"),
        # A chunk written by a clock that is ahead.
        ("2100-01-01", 20, (0, 30), None),
    ],
)
def test_a_read_that_does_not_wait_cannot_begin_behind_the_end(
    start: str, begin: int, stream: tuple[int, int], refused: str | None
) -> None:
    place = OffsetSpecification.parse(start)
    if refused is None:
        place.check_not_behind(*stream, begin=begin, now_ms=1_800_000_000_000)
        return
    with pytest.raises(ConfigError, match=refused):
        place.check_not_behind(*stream, begin=begin, now_ms=1_800_000_000_000)
