"""Pairs of messages and filters as the kernel finds them, in any order within a message, come out sorted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headgate.evaluate.rules import layout
from headgate.evaluate.rules.engine import KERNEL_MODULE
from headgate.kernels import address_of, load

Int64Array = NDArray[np.int64]

MESSAGES = 50
NUMBERS = 1 << layout.MESSAGE_SHIFT

kinds = st.sampled_from((layout.MATCH, layout.ERROR_PAIR, layout.OPEN_PAIR))


def ordered(pairs: Int64Array) -> tuple[Int64Array, int]:
    """The pairs by message and number, and how many are no matches."""
    kernel = load(KERNEL_MODULE)
    assert kernel is not None
    result = np.zeros(len(pairs), dtype=np.int64)
    places = np.zeros(MESSAGES + 1, dtype=np.int64)
    others = kernel.order_pairs(address_of(pairs), len(pairs), address_of(places), address_of(result))
    return result, others


def as_pairs(found: list[tuple[int, int, int]]) -> Int64Array:
    return np.array(
        [kind << layout.WHAT_SHIFT | row << layout.MESSAGE_SHIFT | number for kind, row, number in found],
        dtype=np.int64,
    )


@given(st.lists(st.tuples(kinds, st.integers(0, MESSAGES - 1), st.integers(0, NUMBERS - 1)), max_size=300))
def test_pairs_come_by_message_and_number(found: list[tuple[int, int, int]]) -> None:
    result, others = ordered(as_pairs(found))
    by_place = sorted(found, key=lambda pair: pair[1:])
    places = result & (1 << layout.WHAT_SHIFT) - 1
    assert [pair[1:] for pair in by_place] == [divmod(place, NUMBERS) for place in places.tolist()]
    assert sorted(result.tolist()) == sorted(as_pairs(found).tolist())
    assert others == sum(kind != layout.MATCH for kind, _, _ in found)


def test_thousands_of_filters_of_one_message_are_sorted() -> None:
    numbers = np.random.default_rng(7).permutation(5000)
    result, others = ordered(as_pairs([(layout.MATCH, 3, number) for number in numbers.tolist()]))
    assert others == 0
    assert (result % NUMBERS).tolist() == list(range(5000))
