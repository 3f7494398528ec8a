"""Ranges of copies against a set."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headgate.ledger.copy_numbers import NO_COPY
from headgate.ledger.ranges import Ranges

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=20)


@given(SPANS, st.integers(0, 50))
def test_ranges_hold_what_was_added_and_nothing_else(spans: list[tuple[int, int]], after: int) -> None:
    ranges, model = Ranges(), set[int]()
    for start, length in spans:
        ranges.add(start, start + length)
        model.update(range(start, start + length))
    found = list(ranges)
    assert [copy for start, stop in found for copy in range(start, stop)] == sorted(model)
    assert all(before[1] < later[0] for before, later in itertools.pairwise(found))
    assert [copy for copy in range(60) if copy in ranges] == sorted(model)
    gaps = list(ranges.gaps(after))
    assert gaps[-1][1] == NO_COPY
    missing = [copy for start, stop in gaps for copy in range(start, min(stop, 60))]
    assert missing == [copy for copy in range(after, 60) if copy not in model]
    assert ranges.first_gap() == min(set(range(60)) - model)
