"""Runs of copies against lists of pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.topic.decisions.runs import CopyRuns, joined_runs

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), unique=True, max_size=30)
OFFSETS = st.lists(st.integers(0, 20), unique=True)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@given(PAIRS, st.integers(-1, 14))
def test_runs_are_the_pairs_that_they_were_made_of(pairs: list[tuple[int, int]], offset: int) -> None:
    pairs = sorted(pairs)
    runs = CopyRuns.of_pairs(*columns(pairs))
    assert runs.pairs() == pairs
    assert runs.count == len(pairs)
    assert runs.from_offset(offset).pairs() == [pair for pair in pairs if pair[0] >= offset]
    assert all(one[2] != other[2] or one[1] != other[0] for one, other in zip(runs, list(runs)[1:], strict=False))


@given(st.lists(OFFSETS, max_size=4))
def test_runs_of_different_rules_are_put_in_order(by_rule: list[list[int]]) -> None:
    parts = []
    for rule, offsets in enumerate(by_rule):
        runs = CopyRuns.of_pairs(np.array(sorted(offsets), np.int64), np.full(len(offsets), rule))
        parts.append((runs.firsts, runs.stops, runs.rules))
    nothing = np.empty(0, dtype=np.int64)
    merged = CopyRuns.ordered(*(np.concatenate([nothing, *(part[side] for part in parts)]) for side in range(3)))
    assert merged.pairs() == sorted((offset, rule) for rule, offsets in enumerate(by_rule) for offset in offsets)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=6))
def test_joined_runs_are_as_few_as_possible(gaps: list[tuple[int, int]]) -> None:
    runs, at = [], 0
    for gap, length in gaps:
        runs.append((np.array([at + gap]), np.array([at + gap + length])))
        at += gap + length
    firsts, stops = joined_runs(runs)
    expected = sorted(offset for first, stop in runs for offset in range(int(first[0]), int(stop[0])))
    found = [offset for first, stop in zip(firsts, stops, strict=True) for offset in range(first, stop)]
    assert found == expected
    assert (firsts[1:] > stops[:-1]).all()
