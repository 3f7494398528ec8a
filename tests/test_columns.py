"""Columns: sums of parts are those of each part alone, and an order is that of Python's sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.columns import order_of, totals


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
