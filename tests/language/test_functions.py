"""Functions on texts: edge values, and the laws that tie them together."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.language.functions import MAX_CONCATENATED_BYTES, called, concatenated
from headgate.language.tree import Function
from headgate.language.values import Value

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
counts = st.one_of(st.integers(-5, 25), st.integers())


@pytest.mark.parametrize(
    ("function", "arguments", "value"),
    [
        (Function.LOWER, ["MÜNCHEN"], "münchen"),
        (Function.LOWER, ["ΟΔΟΣ"], "οδος"),
        (Function.UPPER, ["straße ﬁ"], "STRASSE FI"),
        (Function.LEFT, ["a😎b", 2], "a😎"),
        (Function.LEFT, ["abc", 10**30], "abc"),
        (Function.RIGHT, ["a😎b", 2], "😎b"),
        (Function.RIGHT, ["abc", 0], ""),
        (Function.SUBSTRING, ["Ada", 0, 2], "A"),
        (Function.SUBSTRING, ["Ada", 9], ""),
        (Function.SUBSTRING, ["Ada", -(10**30), 10**30 + 2], "A"),
        (Function.SUBSTRING, ["Ada", -5, 3], ""),
        (Function.SUBSTRING, ["Ada", 2, 10**30], "da"),
    ],
)
def test_a_function_gives_this_text(function: Function, arguments: list[str | int], value: str) -> None:
    given_values: list[Value] = [part.encode() if isinstance(part, str) else part for part in arguments]
    assert called(function, given_values) == value.encode()


@pytest.mark.parametrize("first", [None, 5, 2.5, True, b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\xc3"])
@pytest.mark.parametrize("function", list(Function))
def test_what_is_no_text_is_unknown(function: Function, first: Value) -> None:
    assert (
        called(function, [first] if function in (Function.LOWER, Function.UPPER, Function.DATE) else [first, 1]) is None
    )


@pytest.mark.parametrize("count", [None, 2.0, True, b"1", -1])
@pytest.mark.parametrize("function", [Function.LEFT, Function.RIGHT])
def test_a_count_is_an_integer_that_is_not_negative(function: Function, count: Value) -> None:
    assert called(function, [b"abc", count]) is None


@pytest.mark.parametrize(
    "arguments", [[b"abc", 1.0], [b"abc", 1, -1], [b"abc", True], [b"abc", 1, None], [b"abc", b"1"]]
)
def test_positions_are_integers_and_the_window_has_a_size(arguments: list[Value]) -> None:
    assert called(Function.SUBSTRING, arguments) is None


@given(texts, counts, counts)
def test_a_window_holds_the_code_points_at_its_positions_that_exist(text: str, start: int, count: int) -> None:
    window = called(Function.SUBSTRING, [text.encode(), start, count])
    if count < 0:
        assert window is None
        return
    expected = "".join(point for position, point in enumerate(text, 1) if start <= position < start + count)
    assert window == expected.encode()
    assert called(Function.LEFT, [text.encode(), count]) == called(Function.SUBSTRING, [text.encode(), 1, count])
    tail = called(Function.SUBSTRING, [text.encode(), max(len(text) - count, 0) + 1])
    assert called(Function.RIGHT, [text.encode(), count]) == tail


@given(
    st.datetimes(),
    st.one_of(st.none(), st.integers(-1439, 1439)),
)
def test_a_moment_written_with_its_zone_is_its_milliseconds(local: datetime.datetime, ahead: int | None) -> None:
    minutes = ahead or 0
    zone = "Z" if ahead is None else f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    since = local - datetime.datetime(1970, 1, 1) - datetime.timedelta(minutes=minutes)
    text = local.isoformat(timespec="microseconds") + zone
    assert called(Function.DATE, [text.encode()]) == since // datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00", 0),
        ("1969-12-31T23:59:59.0009", -1000),
        ("1970-01-01T00:00:00.0019", 1),
        ("1970-01-01T00:00:00.1", 100),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("0001-01-01T00:00+23:59", -62_135_596_800_000 - (23 * 60 + 59) * 60_000),
        ("9999-12-31T23:59:59.999-23:59", 253_402_300_799_999 + (23 * 60 + 59) * 60_000),
        ("2025-12-31T23:30:00-01:00", 1_767_227_400_000),
    ],
)
def test_a_date_is_these_milliseconds(text: str, milliseconds: int) -> None:
    assert called(Function.DATE, [text.encode()]) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "2026", "2026-01", "20260101", "2026-W01-1", "2026-001", "2026-1-1", "2026-02-30", "1900-02-29",
        "0000-01-01", "2026-13-01", "2026-00-01", "2026-01-00", "2026-01-01Z", "2026-01-01T", "2026-01-01T10",
        "2026-01-01t10:00", "2026-01-01 10:00", "2026-01-01T24:00", "2026-01-01T10:60", "2026-01-01T10:00:60",
        "2026-01-01T10:00:00.", "2026-01-01T10:00:00,5", "2026-01-01T10:00.5", "2026-01-01T10:00:00.1234567890",
        "2026-01-01T10:00z", "2026-01-01T10:00+01", "2026-01-01T10:00+0100", "2026-01-01T10:00+24:00",
        "2026-01-01T10:00+01:60", "2026-01-01T10:00ZZ", " 2026-01-01", "2026-01-01\n", "+2026-01-01", "٢٠٢٦-01-01",
        "10000-01-01",
    ],
)  # fmt: skip
def test_what_is_no_such_date_is_unknown(text: str) -> None:
    assert called(Function.DATE, [text.encode()]) is None


def test_bytes_are_joined_up_to_a_length() -> None:
    assert concatenated(b"a\xff", b"\x00") == b"a\xff\x00"
    assert concatenated(b"a", 5) is concatenated(None, b"a") is concatenated(True, b"a") is None
    longest = bytes(MAX_CONCATENATED_BYTES)
    assert concatenated(longest, b"") == concatenated(longest[1:], b"\0") == longest
    assert concatenated(longest, b"a") is None
