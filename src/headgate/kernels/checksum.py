"""CRC-32 (the zlib polynomial, reflected 0xEDB88320) for kernels: carry-less multiplication where the processor has it.

Reading a stream checks every chunk that is not skipped, so this runs over all bytes that stage 2 sees. Folding four
128-bit lanes takes the checksum from the speed of the standard library's to near that of memory. Source of the method:
Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009; the constants are
x^n mod P for the folding distances 512, 128 and 64 bits, P itself and its inverse for the last step, bit-reflected.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from headgate.kernels.compiler import helper, kernel
from headgate.kernels.memory import build_prefetch, intrinsic, load_i64, load_u8, store_i64

_FOLD_512 = (0x0154442BD4, 0x01C6E41596)
_FOLD_128 = (0x01751997D0, 0x00CCAA009E)
_FOLD_64 = 0x0163CD6124
_BARRETT = (0x01DB710641, 0x01F7011641)
_BLOCK_BYTES = 64
_PIECE_BYTES = 16
_AHEAD_BYTES = 2048
"""How far ahead data is asked for: the processor's own prefetching ends at each page of 4 KiB."""

_LANE = ir.VectorType(ir.IntType(64), 2)
_WHOLE = ir.IntType(128)
_EVEN_WORDS = (1 << 96) - (1 << 64) + (1 << 32) - 1
"""Of four 32-bit words the first and the third."""

HAS_CARRYLESS_MULTIPLY = platform.machine() in ("x86_64", "AMD64") and bool(
    llvmlite.binding.get_host_cpu_features().get("pclmul", False)
)
"""Whether `crc32` is fast here; elsewhere the standard library's is faster than the byte-wise loop below."""


@intrinsic
def _crc_of_blocks(_context: Any, _address: Any, _blocks: Any, _pieces: Any, _crc: Any, _ahead: Any) -> Any:
    """CRC of `blocks` × 64 bytes (at least one) and `pieces` × 16 behind them; asks for memory `ahead` of them."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, blocks, pieces, crc, ahead = arguments
        word = ir.IntType(64)
        multiply = builder.module.globals.get("llvm.x86.pclmulqdq") or ir.Function(
            builder.module, ir.FunctionType(_LANE, [_LANE, _LANE, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )

        def load(offset: Any) -> Any:
            pointer = builder.inttoptr(builder.add(address, offset), _LANE.as_pointer())
            return builder.load(pointer, align=1)

        def times(lane: Any, constants: Any, halves: int) -> Any:
            return builder.call(multiply, [lane, constants, ir.Constant(ir.IntType(8), halves)])

        def fold(lane: Any, constants: Any, other: Any) -> Any:
            return builder.xor(builder.xor(times(lane, constants, 0x00), times(lane, constants, 0x11)), other)

        def shifted(lane: Any, bits: int) -> Any:
            return builder.bitcast(builder.lshr(builder.bitcast(lane, _WHOLE), ir.Constant(_WHOLE, bits)), _LANE)

        def even_words(lane: Any) -> Any:
            return builder.bitcast(builder.and_(builder.bitcast(lane, _WHOLE), ir.Constant(_WHOLE, _EVEN_WORDS)), _LANE)

        def constant(pair: tuple[int, int]) -> Any:
            return ir.Constant(_LANE, [ir.Constant(word, pair[0]), ir.Constant(word, pair[1])])

        lanes = [cgutils.alloca_once(builder, _LANE) for _ in range(4)]
        for number, lane in enumerate(lanes):
            first = load(ir.Constant(word, 16 * number))
            if number == 0:
                seed = builder.insert_element(ir.Constant(_LANE, None), crc, ir.Constant(ir.IntType(32), 0))
                first = builder.xor(first, seed)
            builder.store(first, lane)
        one = ir.Constant(word, 1)
        with cgutils.for_range(builder, blocks, start=one) as loop:
            base = builder.mul(loop.index, ir.Constant(word, _BLOCK_BYTES))
            build_prefetch(builder, builder.add(builder.add(address, base), ahead))
            for number, lane in enumerate(lanes):
                data = load(builder.add(base, ir.Constant(word, 16 * number)))
                builder.store(fold(builder.load(lane), constant(_FOLD_512), data), lane)
        result = builder.load(lanes[0])
        for lane in lanes[1:]:
            result = fold(result, constant(_FOLD_128), builder.load(lane))
        builder.store(result, lanes[0])
        behind = builder.mul(blocks, ir.Constant(word, _BLOCK_BYTES))
        with cgutils.for_range(builder, pieces) as loop:
            at = builder.add(behind, builder.mul(loop.index, ir.Constant(word, _PIECE_BYTES)))
            builder.store(fold(builder.load(lanes[0]), constant(_FOLD_128), load(at)), lanes[0])
        result = builder.load(lanes[0])
        result = builder.xor(shifted(result, 64), times(result, constant(_FOLD_128), 0x10))
        result = builder.xor(shifted(result, 32), times(even_words(result), constant((_FOLD_64, 0)), 0x00))
        quotient = even_words(times(even_words(result), constant(_BARRETT), 0x10))
        result = builder.xor(result, times(quotient, constant(_BARRETT), 0x00))
        low = builder.extract_element(result, ir.Constant(ir.IntType(32), 0))
        return builder.lshr(low, ir.Constant(word, 32))

    return types.int64(types.int64, types.int64, types.int64, types.int64, types.int64), generate


if HAS_CARRYLESS_MULTIPLY:

    @helper
    def crc32_ahead(address: int, size_bytes: int, table: int, ahead: int) -> int:
        """CRC-32 of the bytes at `address`; loads the bytes `ahead` of them into the cache, for the next call."""
        crc = 0xFFFFFFFF
        position = address
        end = address + size_bytes
        if size_bytes >= _BLOCK_BYTES:
            blocks = size_bytes // _BLOCK_BYTES
            pieces = (size_bytes - blocks * _BLOCK_BYTES) // _PIECE_BYTES
            crc = _crc_of_blocks(address, blocks, pieces, crc, ahead)
            position += blocks * _BLOCK_BYTES + pieces * _PIECE_BYTES
        while position < end:
            crc = (crc >> 8) ^ load_i64(table + (((crc ^ load_u8(position)) & 255) << 3))
            position += 1
        return crc ^ 0xFFFFFFFF

else:

    @helper
    def crc32_ahead(address: int, size_bytes: int, table: int, ahead: int) -> int:
        """CRC-32 of the bytes at `address`; `ahead` is of use only where the processor multiplies without carries."""
        crc = 0xFFFFFFFF
        for position in range(address, address + size_bytes):
            crc = (crc >> 8) ^ load_i64(table + (((crc ^ load_u8(position)) & 255) << 3))
        return crc ^ 0xFFFFFFFF


@helper
def crc32(address: int, size_bytes: int, table: int) -> int:
    """CRC-32 of the bytes at `address`; `table` is the address of `byte_table()`."""
    return crc32_ahead(address, size_bytes, table, _AHEAD_BYTES)


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def first_mismatch(data: int, starts: int, sizes: int, expected: int, count: int, table: int) -> int:
    """Number of the first of `count` byte ranges whose CRC-32 is not the expected one; `count` if all are right.

    `starts`, `sizes`, `expected` are addresses of int64 arrays; starts count from `data`.
    """
    for number in range(count):
        at = number << 3
        if crc32(data + load_i64(starts + at), load_i64(sizes + at), table) != load_i64(expected + at):
            return number
    return count


@kernel("void(int64, int64, int64, int64, int64, int64)")
def checksums(data: int, starts: int, sizes: int, found: int, count: int, table: int) -> None:
    """Write the CRC-32 of each of `count` byte ranges to `found`; all as in `first_mismatch`."""
    for number in range(count):
        at = number << 3
        store_i64(found + at, crc32(data + load_i64(starts + at), load_i64(sizes + at), table))
