"""Records of a ledger: what is encoded is decoded, and any other bytes are refused with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import LogError
from headgate.ledger import records as r

PATH = Path("ledger")
NUMBERS = st.integers(0, (1 << 63) - 1) | st.integers(0, 300)


def columns(count: int, *, ascending: bool) -> st.SearchStrategy[Any]:
    if ascending:
        found = st.lists(NUMBERS, min_size=count, max_size=count, unique=True).map(sorted)
    else:
        found = st.lists(NUMBERS, min_size=count, max_size=count) | st.lists(
            st.sampled_from([7, 8]), min_size=count, max_size=count
        )
    return found.map(lambda values: np.array(values, dtype=np.int64))


@st.composite
def records(draw: st.DrawFn) -> r.Record:
    kind = draw(st.sampled_from(r.Record.__subclasses__()))
    count = draw(st.integers(0, 5))
    hints = get_type_hints(kind, include_extras=True)
    values: list[object] = []
    for name in kind.__struct_fields__:
        what = (get_args(hints[name])[-1:] or (hints[name],))[0]
        if what is int:
            values.append(draw(NUMBERS))
        elif what is bytes:
            values.append(draw(st.binary(max_size=12)))
        else:
            values.append(draw(columns(count, ascending=what == "copies")))
    return kind(*values)


def as_values(record: r.Record) -> tuple[object, ...]:
    fields = msgspec.structs.asdict(record).values()
    return (type(record), *(field.tolist() if isinstance(field, np.ndarray) else field for field in fields))


def decoded(data: bytes) -> list[r.Record]:
    return list(r.decode_message(data, path=PATH, position=100))


@given(st.lists(records(), max_size=4))
def test_what_is_encoded_is_decoded(found: list[r.Record]) -> None:
    message = r.encode_message([r.encode_record(each) for each in found])
    assert [as_values(each) for each in decoded(message)] == [as_values(each) for each in found]


@given(st.binary(max_size=80), st.integers(0, 15))
def test_any_bytes_are_records_or_refused(data: bytes, kind: int) -> None:
    places: list[int | None] = []
    for message in (data, bytes((r.FORMAT, kind)) + data):
        try:
            found = decoded(message)
        except LogError as error:
            places.append(error.position)
        else:
            again = r.encode_message([r.encode_record(each) for each in found])
            assert [as_values(each) for each in decoded(again)] == [as_values(each) for each in found]
    assert all(place is not None and 100 <= place <= 102 + len(data) for place in places)


@given(records(), st.data())
def test_a_message_that_was_cut_is_refused(record: r.Record, data: st.DataObject) -> None:
    message = r.encode_message([r.encode_record(record)])
    stop = data.draw(st.integers(2, len(message)))
    if stop < len(message):
        with pytest.raises(LogError, match="damaged ledger"):
            decoded(message[:stop])


def column(count: int, width: int, base: int, rest: bytes = b"") -> bytes:
    return count.to_bytes(4, "little") + bytes((width,)) + base.to_bytes(8, "little", signed=True) + rest


SETTLED = bytes((r.FORMAT, r.Kind.SETTLED)) + (1).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("message", "reason", "position"),
    [
        (b"", "format missing", 100),
        (b"\x02", "format 2, expected 1", 100),
        (b"\x01\xff", "no record of a ledger has kind 255", 101),
        (b"\x01\x02" + (-5).to_bytes(8, "little", signed=True), "negative number, -5", 102),
        (SETTLED + column(1 << 30, 0, 0), "column of 1073741824 rows", 123),
        (SETTLED + column(1, 3, 0, bytes(3)), "column of width 3", 123),
        (SETTLED + column(1, 0, -1), "column from -1", 123),
        (SETTLED + column(3, 0, 5, (-4).to_bytes(8, "little", signed=True)), "in steps of -4", 131),
        (SETTLED + column(1, 8, 2, b"\xff" * 8), "leaves 63 bits", 131),
        (SETTLED + column(1, 0, 2) + column(0, 0, 0), "columns of different lengths", 101),
    ],
)
def test_a_malformed_record_is_refused_with_its_place(message: bytes, reason: str, position: int) -> None:
    with pytest.raises(LogError, match=reason) as caught:
        decoded(message)
    assert caught.value.path == PATH
    assert caught.value.position == position


def test_copies_ascend() -> None:
    copies = np.array([3, 3], dtype=np.int64)
    record = r.encode_record(r.Renewed(1, 5, copies))
    with pytest.raises(LogError, match="do not ascend"):
        decoded(r.encode_message([record]))


def test_runs_and_equal_values_take_no_bytes_per_copy() -> None:
    copies = np.arange(10_000, dtype=np.int64) << 20
    ones = np.ones(10_000, dtype=np.int64)
    assert len(r.encode_record(r.Claimed(1, 1, 1, b"", copies, ones))) < 80


def test_more_copies_than_a_reader_takes_are_refused() -> None:
    copies = np.arange(r.MAX_ROWS + 1, dtype=np.int64)
    with pytest.raises(ValueError, match="at most 1048576"):
        r.encode_record(r.Renewed(1, 1, copies))
