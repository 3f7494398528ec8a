"""Sums of parts of columns are those of each part alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.columns import totals


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
