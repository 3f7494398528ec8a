"""Scalars of AMQP 1.0 as kernels read them: sizes, checks and texts; nothing here allocates or decides for a row.

A size of 0 means: no plain scalar, or not within its bounds; the caller leaves the row to the reference. The other
functions take checked addresses only.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import (
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    store_u8,
    trailing_zeros,
)

NULLS = 0x4040404040404040
"""Eight nulls."""

HIGHEST_BITS = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes."""


@inlined
def value_size(position: int, end: int) -> int:
    """Bytes of the scalar at `position` with its constructor; 0 when it is none, or does not end before `end`."""
    if position >= end:
        return 0
    constructor = load_u8(position)
    width = constructor >> 4
    size = 0
    if width == 0xA:
        if position + 1 < end and (constructor == 0xA0 or constructor == 0xA1 or constructor == 0xA3):
            size = 2 + load_u8(position + 1)
    elif width == 0x4:
        if constructor <= 0x44:
            size = 1
    elif width == 0x5:
        if constructor <= 0x56:
            size = 2
    elif width == 0x6:
        if constructor <= 0x61:
            size = 3
    elif width == 0x7:
        if constructor <= 0x73:
            size = 5
    elif width == 0x8:
        if constructor <= 0x83:
            size = 9
    elif width == 0x9:
        if constructor == 0x98:
            size = 17
    elif width == 0xB and position + 4 < end and (constructor == 0xB0 or constructor == 0xB1 or constructor == 0xB3):
        size = 5 + load_be_u32(position + 1)
    if size > end - position:
        return 0
    return size


@inlined
def common_size(position: int, sizes: int) -> int:
    """Bytes of the scalar at `position` by `sizes`, the address of `size_table()`; 0 for a rare encoding.

    It may end behind its bounds, or begin there: its first two bytes are read.
    """
    entry = load_i32(sizes + 4 * load_u8(position))
    return (entry & 0xFF) + (load_u8(position + 1) & entry >> 8)


@inlined
def null_run(position: int, most: int) -> int:
    """How many of the next `most` values are null, at most eight."""
    count: int = trailing_zeros(load_i64(position) ^ NULLS) >> 3
    return count if count < most else most


@inlined
def first_bytes(count: int) -> int:
    """The mask of the first `count` of eight bytes in native order."""
    return -1 if count >= 8 else (1 << 8 * count) - 1


@helper
def is_ascii(position: int, length: int) -> int:
    """1 when no byte has its highest bit set."""
    while length >= 8:
        if load_i64(position) & HIGHEST_BITS:
            return 0
        position += 8
        length -= 8
    while length > 0:
        if load_u8(position) >= 0x80:
            return 0
        position += 1
        length -= 1
    return 1


@helper
def is_utf8(position: int, length: int) -> int:
    """1 for well-formed UTF-8 (The Unicode Standard, table 3-7)."""
    end = position + length
    while position < end:
        if position <= end - 8 and load_i64(position) & HIGHEST_BITS == 0:
            position += 8
            continue
        first = load_u8(position)
        position += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return 0
        follow = 1
        if first >= 0xF0:
            follow = 3
        elif first >= 0xE0:
            follow = 2
        if follow > end - position:
            return 0
        second = load_u8(position)
        lowest = 0x80
        highest = 0xBF
        if first == 0xE0:
            lowest = 0xA0
        elif first == 0xED:
            highest = 0x9F
        elif first == 0xF0:
            lowest = 0x90
        elif first == 0xF4:
            highest = 0x8F
        if second < lowest or second > highest:
            return 0
        for step in range(1, follow):
            if load_u8(position + step) & 0xC0 != 0x80:
                return 0
        position += follow
    return 1


@inlined
def content_of(position: int) -> int:
    """Address of the bytes of a string, symbol or binary whose size was checked."""
    if load_u8(position) >= 0xB0:
        return position + 5
    return position + 2


@helper
def checked_size(position: int, end: int) -> int:
    """Like `value_size`, and 0 as well when its type does not allow the content (text, boolean, character)."""
    size = value_size(position, end)
    if size == 0:
        return 0
    constructor = load_u8(position)
    if constructor == 0xA1 and size <= 10 and load_i64(position + 2) & HIGHEST_BITS & first_bytes(size - 2) == 0:
        return size
    if constructor == 0xA1 or constructor == 0xB1:
        content = content_of(position)
        if is_utf8(content, position + size - content) == 0:
            return 0
    elif constructor == 0xA3 or constructor == 0xB3:
        content = content_of(position)
        if is_ascii(content, position + size - content) == 0:
            return 0
    elif constructor == 0x56:
        if load_u8(position + 1) > 1:
            return 0
    elif constructor == 0x73:
        code = load_be_u32(position + 1)
        if code > 0x10FFFF or (0xD800 <= code <= 0xDFFF):
            return 0
    return size


@inlined
def unsigned_value(position: int) -> int:
    """Value of a ubyte, ushort, uint or ulong; a negative result is a ulong above 2^63 - 1."""
    constructor = load_u8(position)
    if constructor == 0x50 or constructor == 0x52 or constructor == 0x53:
        return load_u8(position + 1)
    if constructor == 0x60:
        return load_be_u16(position + 1)
    if constructor == 0x70:
        return load_be_u32(position + 1)
    if constructor == 0x80:
        return load_be_i64(position + 1)
    return 0


@helper
def integer_value(position: int, constructor: int) -> int:
    """Value of any AMQP integer; a ulong above 2^63 - 1 comes out negative."""
    if constructor == 0x51 or constructor == 0x54 or constructor == 0x55:
        return load_i8(position + 1)
    if constructor == 0x61:
        return load_be_i16(position + 1)
    if constructor == 0x71:
        return load_be_i32(position + 1)
    if constructor == 0x81:
        return load_be_i64(position + 1)
    return unsigned_value(position)


@inlined
def write_hex(target: int, byte: int) -> int:
    """Two hexadecimal digits; gives the place behind them."""
    high = byte >> 4
    low = byte & 15
    store_u8(target, high + (0x30 if high < 10 else 0x57))
    store_u8(target + 1, low + (0x30 if low < 10 else 0x57))
    return target + 2


@helper
def write_uuid(target: int, source: int) -> None:
    """The canonical 36 characters of sixteen bytes."""
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            store_u8(target, 0x2D)
            target += 1
        target = write_hex(target, load_u8(source + index))


@helper
def write_character(target: int, code: int, length: int) -> None:
    """UTF-8 of one character that takes `length` bytes."""
    if length == 1:
        store_u8(target, code)
        return
    for index in range(length - 1):
        store_u8(target + length - 1 - index, 0x80 | (code & 0x3F))
        code >>= 6
    if length == 2:
        store_u8(target, 0xC0 | code)
    elif length == 3:
        store_u8(target, 0xE0 | code)
    else:
        store_u8(target, 0xF0 | code)


@inlined
def decimal_digits(value: int) -> int:
    """Number of decimal digits of a value that is not negative."""
    digits = 1
    while value >= 10:
        value //= 10
        digits += 1
    return digits


@inlined
def map_head(position: int) -> int:
    """Address of the first key of a map whose size was checked; 0 when the size cannot hold the count."""
    if load_u8(position) == 0xC1:
        return position + 3 if load_u8(position + 1) >= 1 else 0
    return position + 9 if load_be_u32(position + 1) >= 4 else 0


@inlined
def map_end(position: int) -> int:
    """End of a map whose size was checked."""
    if load_u8(position) == 0xC1:
        return position + 2 + load_u8(position + 1)
    return position + 5 + load_be_u32(position + 1)


@inlined
def map_items(position: int) -> int:
    """Number of keys and values of a map whose size was checked."""
    if load_u8(position) == 0xC1:
        return load_u8(position + 2)
    return load_be_u32(position + 5)
