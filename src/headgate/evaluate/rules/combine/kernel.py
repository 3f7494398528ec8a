"""Filters over bitmaps: 1 024 messages by each instruction.

Negations stand at the predicates, so where no row of the block has anything but true, false and unknown, one bitmap
is enough: where a part is true. Errors and undecided predicates need three, because operands are looked at from left to
right and the first that is no value ends the evaluation.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from headgate.evaluate.rules import layout
from headgate.kernels.compiler import helper
from headgate.kernels.memory import intrinsic, load_i64, store_i64
from headgate.kernels.vectors import BITMAP, BITMAP_BYTES, bitmap_at, copy_bitmap, repeated, words_with_bits

PLACE_MASK = (1 << (layout.SOURCE_SHIFT - layout.PLACE_SHIFT)) - 1


@intrinsic
def _fold(_context: Any, _code: Any, _count: Any, _bits: Any, _stack: Any) -> Any:
    """`(code, count, bits, stack)`: run instructions on the lowest place of the stack, which takes the result.

    found = found & (source | widens) | source & adds. What is found stays in registers of the machine; it is stored by
    every instruction, in a place that nobody reads unless the instruction saves: there is no branch in the loop.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code, count, bits, stack = arguments
        word = ir.IntType(64)

        def constant(value: int) -> Any:
            return ir.Constant(word, value)

        lowest = bitmap_at(builder, stack)
        before = builder.load(lowest, align=8)
        entry = builder.block
        loop = builder.append_basic_block("fold")
        done = builder.append_basic_block("folded")
        builder.cbranch(builder.icmp_signed(">", count, constant(0)), loop, done)
        builder.position_at_end(loop)
        index = builder.phi(word)
        found = builder.phi(BITMAP)
        index.add_incoming(constant(0), entry)
        found.add_incoming(before, entry)
        position = builder.add(code, builder.shl(index, constant(3)))
        instruction = builder.load(builder.inttoptr(position, word.as_pointer()), align=8)
        number = builder.and_(builder.lshr(instruction, constant(layout.PLACE_SHIFT)), constant(PLACE_MASK))
        place = builder.add(stack, builder.mul(number, constant(layout.TRIPLE_BYTES)))
        at = builder.add(bits, builder.lshr(instruction, constant(layout.SOURCE_SHIFT)))
        source = builder.load(bitmap_at(builder, at), align=8)
        builder.store(found, bitmap_at(builder, place), align=8)
        zero = constant(0)
        widens = repeated(
            builder, builder.sub(zero, builder.lshr(builder.and_(instruction, constant(layout.WIDENS)), constant(1)))
        )
        adds = repeated(builder, builder.sub(zero, builder.and_(instruction, constant(layout.ADDS))))
        kept = builder.and_(found, builder.or_(source, widens))
        following = builder.or_(kept, builder.and_(source, adds))
        after = builder.add(index, constant(1))
        index.add_incoming(after, loop)
        found.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", after, count), loop, done)
        builder.position_at_end(done)
        result = builder.phi(BITMAP)
        result.add_incoming(before, entry)
        result.add_incoming(following, loop)
        builder.store(result, lowest, align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


@helper
def where_true(code: int, head: int, count: int, bits: int, stack: int) -> bool:
    """Put the rows for which a filter is true into the lowest place; False if there are none.

    No predicate of the filter has other bits in this block. Behind the first `head` of its `count` instructions it may
    be clear that there are none.
    """
    _fold(code, head, bits, stack)
    if head < count:
        if words_with_bits(stack) == 0:
            return False
        _fold(code + 8 * head, count - head, bits, stack)
    return bool(words_with_bits(stack) != 0)


@helper
def where_what(code: int, count: int, bits: int, stack: int) -> None:
    """Put the rows for which a filter is true, false or anything else but unknown into the lowest place."""
    for position in range(count):
        instruction = load_i64(code + 8 * position)
        place = stack + ((instruction >> layout.PLACE_SHIFT) & PLACE_MASK) * layout.TRIPLE_BYTES
        if instruction & layout.SAVES != 0:
            _copy_triple(place, stack)
        joins = instruction & layout.JOINS != 0
        left = place if joins else stack
        true = stack if joins else bits + (instruction >> layout.SOURCE_SHIFT)
        false = true + layout.IS_FALSE
        other = true + layout.IS_OTHER
        if instruction & layout.NEGATED != 0:
            false = true - layout.IS_FALSE
            other = false + layout.IS_OTHER
        operation = instruction & layout.OR
        if operation == layout.OR:
            _follow(left, left + layout.IS_FALSE, left + layout.IS_OTHER, true, false, other)
        elif operation == layout.ADDS:
            copy_bitmap(left, true)
            copy_bitmap(left + layout.IS_FALSE, false)
            copy_bitmap(left + layout.IS_OTHER, other)
        else:
            # An AND of what is false is an OR of what is true.
            _follow(left + layout.IS_FALSE, left, left + layout.IS_OTHER, false, true, other)
        if joins:
            _copy_triple(stack, place)


@helper
def _copy_triple(target: int, source: int) -> None:
    copy_bitmap(target, source)
    copy_bitmap(target + layout.IS_FALSE, source + layout.IS_FALSE)
    copy_bitmap(target + layout.IS_OTHER, source + layout.IS_OTHER)


@helper
def _follow(decided: int, going_on: int, other: int, decides: int, goes_on: int, fails: int) -> None:
    """Combine the result so far with the next operand: rows that are decided or failed stay as they are."""
    for word in range(0, BITMAP_BYTES, 8):
        before = load_i64(decided + word)
        failed = load_i64(other + word)
        store_i64(decided + word, before | (load_i64(decides + word) & ~failed))
        store_i64(going_on + word, load_i64(going_on + word) & load_i64(goes_on + word))
        store_i64(other + word, failed | (load_i64(fails + word) & ~before))
