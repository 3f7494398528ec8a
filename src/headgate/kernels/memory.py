"""Raw unaligned loads and stores for kernels: addresses are plain int64, nothing is checked here.

Big-endian integers are what AMQP 1.0 and the log store; little-endian eight-byte loads serve comparisons of eight bytes
at a time. Whoever calls a load has checked that the address lies inside the message or its slack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as untyped_intrinsic

# numba's own annotations describe the Python side of an intrinsic, not how a kernel calls it.
_intrinsic: Any = untyped_intrinsic


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """numba's decorator: the function is called in kernels, without its first parameter."""
    decorated: Callable[..., Any] = _intrinsic(function)
    return decorated


_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _integer_load(bits: int, *, swap: bool, signed: bool) -> Callable[..., Any]:
    def typing(_context: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], bits), align=1)
            if swap:
                value = builder.bswap(value)
            if bits == 64:
                return value
            return builder.sext(value, _WORD) if signed else builder.zext(value, _WORD)

        return types.int64(types.int64), generate

    return typing


def _integer_store(bits: int, *, swap: bool) -> Callable[..., Any]:
    def typing(_context: Any, _address: Any, _value: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            if swap:
                value = builder.bswap(value)
            builder.store(value, _pointer(builder, arguments[0], bits), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return typing


load_u8: Callable[..., int] = intrinsic(_integer_load(8, swap=False, signed=False))
load_i8: Callable[..., int] = intrinsic(_integer_load(8, swap=False, signed=True))
load_be_u16: Callable[..., int] = intrinsic(_integer_load(16, swap=True, signed=False))
load_be_i16: Callable[..., int] = intrinsic(_integer_load(16, swap=True, signed=True))
load_be_u32: Callable[..., int] = intrinsic(_integer_load(32, swap=True, signed=False))
load_be_i32: Callable[..., int] = intrinsic(_integer_load(32, swap=True, signed=True))
load_be_i64: Callable[..., int] = intrinsic(_integer_load(64, swap=True, signed=True))
load_u16: Callable[..., int] = intrinsic(_integer_load(16, swap=False, signed=False))
load_u32: Callable[..., int] = intrinsic(_integer_load(32, swap=False, signed=False))
load_i32: Callable[..., int] = intrinsic(_integer_load(32, swap=False, signed=True))
load_i64: Callable[..., int] = intrinsic(_integer_load(64, swap=False, signed=True))
"""Native order: words of descriptor blocks, and eight bytes at a time for comparisons."""

store_u8 = intrinsic(_integer_store(8, swap=False))
store_be_u16 = intrinsic(_integer_store(16, swap=True))
store_be_u32 = intrinsic(_integer_store(32, swap=True))
store_be_i64 = intrinsic(_integer_store(64, swap=True))
store_i32 = intrinsic(_integer_store(32, swap=False))
store_i64 = intrinsic(_integer_store(64, swap=False))


@intrinsic
def load_be_f32(_context: Any, _address: Any) -> Any:
    """A big-endian IEEE 754 single at an address, widened."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        raw = builder.bswap(builder.load(_pointer(builder, arguments[0], 32), align=1))
        return builder.fpext(builder.bitcast(raw, ir.FloatType()), ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def float_of_bits(_context: Any, _bits: Any) -> Any:
    """The double whose bit pattern is the integer."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def bits_of_float(_context: Any, _value: Any) -> Any:
    """The bit pattern of a double."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _WORD)

    return types.int64(types.float64), generate


@intrinsic
def copy_bytes(_context: Any, _target: Any, _source: Any, _count: Any) -> Any:
    """Copy `count` bytes between places that do not overlap."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        source = builder.inttoptr(arguments[1], _BYTE.as_pointer())
        pointer = _BYTE.as_pointer()
        function = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, _WORD])
        builder.call(function, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def build_prefetch(builder: Any, address: Any) -> None:
    """Emit the prefetch of an address, for intrinsics of more than one instruction."""
    number = ir.IntType(32)
    pointer = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    name = "llvm.prefetch.p0"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
    builder.call(function, [builder.inttoptr(address, pointer), read, keep, data])


@intrinsic
def prefetch(_context: Any, _address: Any) -> Any:
    """Ask for the cache line of an address before it is read; any address is allowed, nothing is read."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        build_prefetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _overflow(name: str) -> Callable[..., Any]:
    def typing(_context: Any, _left: Any, _right: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            operation = getattr(builder, name)
            pair = operation(arguments[0], arguments[1])
            return builder.zext(builder.extract_value(pair, 1), _WORD)

        return types.int64(types.int64, types.int64), generate

    return typing


add_overflows: Callable[..., int] = intrinsic(_overflow("sadd_with_overflow"))
subtract_overflows: Callable[..., int] = intrinsic(_overflow("ssub_with_overflow"))
multiply_overflows: Callable[..., int] = intrinsic(_overflow("smul_with_overflow"))
"""1 when the signed 64-bit operation overflows, else 0."""


@intrinsic
def multiply_wrapped(_context: Any, _left: Any, _right: Any) -> Any:
    """The lowest 64 bits of a product; `*` may give anything where it overflows."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.mul(arguments[0], arguments[1])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def trailing_zeros(_context: Any, _value: Any) -> Any:
    """Number of zero bits below the lowest one bit; 64 for zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic
def kept_apart(_context: Any) -> Any:
    """In the first line of a helper: it stays a function of its own, which keeps rare work out of the hot code."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate
