"""Which of the next 8, 32 or 64 bytes have a property, for kernels: bit n of the result stands for byte n.

LLVM makes of each what the processor has: one comparison of a vector, or several. Whoever calls one has checked that
all these bytes may be read. Sums of bytes in a word would do as well, if numba's integers could overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from headgate.kernels.memory import intrinsic

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_QUOTE, _BACKSLASH, _SPACE, _ZERO, _TEN = 0x22, 0x5C, 0x20, 0x30, 10


def _load(builder: Any, address: Any, width: int) -> Any:
    return builder.load(builder.inttoptr(address, ir.VectorType(_BYTE, width).as_pointer()), align=1)


def _all(width: int, byte: int) -> Any:
    return ir.Constant(ir.VectorType(_BYTE, width), [byte] * width)


def _every(builder: Any, width: int, word: Any) -> Any:
    """A vector of one byte, the lowest of a word, again and again."""
    number = ir.IntType(32)
    kind = ir.VectorType(_BYTE, width)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(word, _BYTE), ir.Constant(number, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(number, width), None))


def _bits(builder: Any, truths: Any, width: int) -> Any:
    bits = builder.bitcast(truths, ir.IntType(width))
    return bits if width == 64 else builder.zext(bits, _WORD)


def _breaks(width: int) -> Callable[..., Any]:
    def typing(_context: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            found = _load(builder, arguments[0], width)
            # As signed bytes, those outside ASCII are below zero.
            odd = builder.icmp_signed("<", found, _all(width, _SPACE))
            for byte in (_QUOTE, _BACKSLASH):
                odd = builder.or_(odd, builder.icmp_unsigned("==", found, _all(width, byte)))
            return _bits(builder, odd, width)

        return types.int64(types.int64), generate

    return typing


breaks_in_8: Callable[..., int] = intrinsic(_breaks(8))
breaks_in_32: Callable[..., int] = intrinsic(_breaks(32))
"""`(address)`: quotes, backslashes, control characters and bytes outside ASCII, where a look at a JSON string stops."""


@intrinsic
def no_digits_in_8(_context: Any, _address: Any) -> Any:
    """`(address)`: bytes that are no ASCII digits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        distance = builder.sub(_load(builder, arguments[0], 8), _all(8, _ZERO))
        return _bits(builder, builder.icmp_unsigned(">=", distance, _all(8, _TEN)), 8)

    return types.int64(types.int64), generate


def _equal(width: int) -> Callable[..., Any]:
    def typing(_context: Any, _address: Any, _byte: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            found = _load(builder, arguments[0], width)
            equal = builder.icmp_unsigned("==", found, _every(builder, width, arguments[1]))
            return _bits(builder, equal, width)

        return types.int64(types.int64, types.int64), generate

    return typing


equal_in_8: Callable[..., int] = intrinsic(_equal(8))
equal_in_64: Callable[..., int] = intrinsic(_equal(64))
"""`(address, byte)`: bytes that are equal to one."""
