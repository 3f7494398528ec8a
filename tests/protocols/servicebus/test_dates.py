from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.protocols.servicebus.dates import format_date, parse_date

AT = 1_767_323_045_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", AT),
        ("2026-01-02T03:04:05", AT),
        (" 2026-01-02T03:04:05.678Z ", AT + 678),
        ("2026-01-02T03:04:05.6789999Z", AT + 678),
        ("2026-01-02T05:04:05+02:00", AT),
        ("2026-01-01T22:34:05-0430", AT),
        ("1969-12-31T23:59:59.5Z", -500),
    ],
)
def test_a_date_is_milliseconds(text: str, expected: int) -> None:
    assert parse_date(text) == expected


@pytest.mark.parametrize(
    "text", ["", "2026-01-02", "2026-13-02T03:04:05Z", "2026-01-02 03:04:05", "0000-01-01T00:00:00Z"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a date"):
        parse_date(text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_what_is_written_is_read(milliseconds: int) -> None:
    assert parse_date(format_date(milliseconds)) == milliseconds


def test_times_that_cannot_be_written_become_the_nearest() -> None:
    assert format_date(2**63) == "9999-12-31T23:59:59.999Z"
    assert format_date(-(2**63)) == "0001-01-01T00:00:00Z"
