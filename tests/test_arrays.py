"""Columns: sums of parts, strings side by side, and an order are those of plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.arrays import order_of, side_by_side, totals


@pytest.mark.parametrize("kind", [np.int64, np.bool_])
@given(
    before=st.integers(0, 3),
    parts=st.lists(st.lists(st.integers(0, 1 << 40), max_size=4), max_size=6),
    behind=st.integers(0, 3),
)
def test_each_part_is_summed_also_an_empty_one(kind: type, before: int, parts: list[list[int]], behind: int) -> None:
    values = [7] * before + [value for part in parts for value in part] + [7] * behind
    bounds = before + np.cumsum([0, *map(len, parts)])
    column = np.array(values, dtype=kind)
    found = totals(column, bounds)
    assert found.dtype == np.int64
    assert found.tolist() == [sum(np.array(part, dtype=kind).tolist()) for part in parts]


@given(
    st.sampled_from((1 << 16, (1 << 16) + 1)).flatmap(
        lambda below: st.tuples(
            st.just(below), st.lists(st.integers(0, below - 1) | st.just(below - 1) | st.integers(0, 2), max_size=40)
        )
    )
)
def test_an_order_is_stable_also_for_the_largest_number(case: tuple[int, list[int]]) -> None:
    below, numbers = case
    found = order_of(np.array(numbers, dtype=np.int64), below=below)
    assert found.tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


@given(st.lists(st.none() | st.binary(max_size=3), max_size=20))
def test_strings_that_are_joined_lie_where_their_starts_say(parts: list[bytes | None]) -> None:
    joined = b"".join(part for part in parts if part is not None)
    starts, lengths = side_by_side(parts)
    assert starts.dtype == lengths.dtype == np.int64
    ranges = zip(starts.tolist(), lengths.tolist(), strict=True)
    assert [None if size < 0 else joined[start : start + size] for start, size in ranges] == parts
