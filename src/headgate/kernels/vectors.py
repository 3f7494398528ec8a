"""Bits of 1 024 rows at a time for kernels: whole vectors between addresses, whatever the machine's vector size.

numba's loops over raw addresses are not turned into vector instructions, because nothing says that the addresses are
far apart; here every operand is read before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from headgate.kernels.memory import intrinsic

ROWS = 1024
BITMAP_BYTES = ROWS // 8

_WORD = ir.IntType(64)
BITMAP = ir.VectorType(_WORD, ROWS // 64)
_SQUARE = ir.VectorType(_WORD, 64)


def _at(builder: Any, address: Any, shape: Any) -> Any:
    return builder.inttoptr(address, shape.as_pointer())


def _binary(name: str) -> Callable[..., Any]:
    def typing(_context: Any, _target: Any, _left: Any, _right: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            left = builder.load(_at(builder, arguments[1], BITMAP), align=8)
            right = builder.load(_at(builder, arguments[2], BITMAP), align=8)
            builder.store(getattr(builder, name)(left, right), _at(builder, arguments[0], BITMAP), align=8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return typing


def bitmap_at(builder: Any, address: Any) -> Any:
    """The pointer to a bitmap, for intrinsics that are made of several operations."""
    return _at(builder, address, BITMAP)


def repeated(builder: Any, word: Any) -> Any:
    """Emit a bitmap of one word again and again."""
    number = ir.IntType(32)
    first = builder.insert_element(ir.Constant(BITMAP, ir.Undefined), word, ir.Constant(number, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(number, BITMAP.count), None))


both_bitmaps = intrinsic(_binary("and_"))
"""`(target, left, right)`: addresses of bitmaps, aligned to eight bytes; the target may be one of the operands."""


@intrinsic
def copy_bitmap(_context: Any, _target: Any, _source: Any) -> Any:
    """`(target, source)`: copy one bitmap."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        value = builder.load(_at(builder, arguments[1], BITMAP), align=8)
        builder.store(value, _at(builder, arguments[0], BITMAP), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def words_with_bits(_context: Any, _bitmap: Any) -> Any:
    """Which words of the bitmap have a bit: bit w for word w; zero if no bit is set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        value = builder.load(_at(builder, arguments[0], BITMAP), align=8)
        some = builder.icmp_unsigned("!=", value, ir.Constant(BITMAP, None))
        return builder.zext(builder.bitcast(some, ir.IntType(BITMAP.count)), _WORD)

    return types.int64(types.int64), generate


@intrinsic
def count_bits(_context: Any, _value: Any) -> Any:
    """Number of one bits of a word."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def transpose(_context: Any, _square: Any) -> Any:
    """Mirror 64 words of 64 bits at an address: bit c of word r becomes bit r of word c.

    Six rounds swap ever smaller squares (Hacker's Delight, section 7-3), all 64 words at once.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = _at(builder, arguments[0], _SQUARE)
        value = builder.load(place, align=8)
        for distance in (32, 16, 8, 4, 2, 1):
            low = sum(1 << bit for bit in range(64) if not bit & distance)
            low_bits = ir.Constant(_SQUARE, [low] * 64)
            high_bits = ir.Constant(_SQUARE, [low ^ (2**64 - 1)] * 64)
            by = ir.Constant(_SQUARE, [distance] * 64)
            order = ir.Constant(ir.VectorType(ir.IntType(32), 64), [word ^ distance for word in range(64)])
            partner = builder.shuffle_vector(value, value, order)
            upper = builder.or_(builder.and_(value, low_bits), builder.shl(builder.and_(partner, low_bits), by))
            lower = builder.or_(builder.and_(value, high_bits), builder.lshr(builder.and_(partner, high_bits), by))
            # Shuffles rather than a select: where whole vectors are taken from one side, nothing is left to do.
            picked = [word if not word & distance else 64 + word for word in range(64)]
            value = builder.shuffle_vector(upper, lower, ir.Constant(ir.VectorType(ir.IntType(32), 64), picked))
        builder.store(value, place, align=8)
        return context.get_dummy_value()

    return types.void(types.int64), generate
