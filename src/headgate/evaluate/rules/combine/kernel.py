"""Filters over bitmaps: 1 024 messages by each instruction.

Negations stand at the predicates, so where no row of the block has anything but true, false and unknown, one bitmap
is enough: where a part is true. Errors and undecided predicates need three, because operands are looked at from left to
right and the first that is no value ends the evaluation.
"""

from __future__ import annotations

from headgate.evaluate.rules.layout import (
    ADDS,
    IS_FALSE,
    IS_OTHER,
    NEGATED,
    OR,
    PLACE_SHIFT,
    SOURCE_SHIFT,
    STOPS_IF_NONE,
    TRIPLE_BYTES,
    WIDENS,
)
from headgate.kernels.compiler import helper
from headgate.kernels.memory import load_i64, store_i64
from headgate.kernels.vectors import BITMAP_BYTES, bits_in, combine_bitmaps, copy_bitmap

PLACE_MASK = (1 << (SOURCE_SHIFT - PLACE_SHIFT)) - 1


@helper
def where_true(code: int, count: int, bits: int, stack: int) -> bool:
    """Put the rows for which a filter is true into the lowest place; False if there are none.

    No predicate of the filter has other bits in this block.
    """
    for position in range(count):
        instruction = load_i64(code + 8 * position)
        target = stack + ((instruction >> PLACE_SHIFT) & PLACE_MASK) * TRIPLE_BYTES
        source = bits + (instruction >> SOURCE_SHIFT)
        combine_bitmaps(target, source, -((instruction & WIDENS) >> 1), -(instruction & ADDS))
        if instruction & STOPS_IF_NONE != 0 and bits_in(target) == 0:
            return False
    return bool(bits_in(stack) != 0)


@helper
def where_what(code: int, count: int, bits: int, stack: int) -> None:
    """Put the rows for which a filter is true, false or anything else but unknown into the lowest place."""
    for position in range(count):
        instruction = load_i64(code + 8 * position)
        target = stack + ((instruction >> PLACE_SHIFT) & PLACE_MASK) * TRIPLE_BYTES
        true = bits + (instruction >> SOURCE_SHIFT)
        false = true + IS_FALSE
        other = true + IS_OTHER
        if instruction & NEGATED != 0:
            false = true - IS_FALSE
            other = false + IS_OTHER
        operation = instruction & OR
        if operation == OR:
            _follow(target, target + IS_FALSE, target + IS_OTHER, true, false, other)
        elif operation == ADDS:
            copy_bitmap(target, true)
            copy_bitmap(target + IS_FALSE, false)
            copy_bitmap(target + IS_OTHER, other)
        else:
            # An AND of what is false is an OR of what is true.
            _follow(target + IS_FALSE, target, target + IS_OTHER, false, true, other)


@helper
def _follow(decided: int, going_on: int, other: int, decides: int, goes_on: int, fails: int) -> None:
    """An operand behind what was found so far: what is decided or failed stays, then the operand counts."""
    for word in range(0, BITMAP_BYTES, 8):
        before = load_i64(decided + word)
        failed = load_i64(other + word)
        store_i64(decided + word, before | (load_i64(decides + word) & ~failed))
        store_i64(going_on + word, load_i64(going_on + word) & load_i64(goes_on + word))
        store_i64(other + word, failed | (load_i64(fails + word) & ~before))
