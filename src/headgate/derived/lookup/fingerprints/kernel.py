"""Fingerprints of a field's values in many encoded messages, by the rules of the reference in `__init__`.

For a message of a rare form this gives `ANY`, and the reference the value; otherwise they agree.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    bits_of_float,
    float_of_bits,
    load_be_f32,
    load_be_i32,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i8,
    load_i64,
    load_u8,
    multiply_wrapped,
    store_i32,
)
from headgate.message.arrow.decode.kernel import section_size
from headgate.message.arrow.scalars.kernel import map_end, map_head, map_items
from headgate.message.lookup.elements.kernel import behind_element

NONE = 0
ANY = 1

# `message.FoundKind`s.
INTEGER = 1
DECIMAL = 2
STRING = 3
UNESCAPED = 4
IS_BOOLEAN = 5

FIRST = -0x61C8864680B583EB
SECOND = -0x2917014799A6026D
NUMBER = 0x4E756D626572
BOOLEAN = 0x426F6F6C
MOST = 0x7FFFFFFFFFFFFFFF
WORD = 0xFFFFFFFF


@inlined
def mixed(state: int, word: int) -> int:
    """The state with one more word."""
    state = multiply_wrapped(state ^ word, SECOND)
    return state ^ (state >> 32 & WORD)


@inlined
def finished(state: int) -> int:
    """The fingerprint of a final state: 32 bits, neither `NONE` nor `ANY`."""
    state = multiply_wrapped(state, FIRST)
    found = (state ^ (state >> 29 & 0x7FFFFFFFF)) >> 32 & WORD
    return found if found > ANY else found + 2


@helper
def of_bytes(position: int, length: int) -> int:
    """The fingerprint of some bytes; eight bytes behind them are read."""
    state = length
    while length >= 8:
        state = mixed(state, load_i64(position))
        position += 8
        length -= 8
    if length > 0:
        state = mixed(state, load_i64(position) & ((1 << (8 * length)) - 1))
    return finished(state)


@helper
def of_double(value: float) -> int:
    """The fingerprint of a number; `ANY` for NaN."""
    if value != value:
        return ANY
    bits = 0 if value == 0.0 else bits_of_float(value)
    return finished(mixed(NUMBER, bits))


@inlined
def of_integer(value: int) -> int:
    """The fingerprint of an integer: that of the nearest double."""
    return of_double(value * 1.0)


@helper
def of_value(position: int) -> int:
    """The fingerprint of a value whose size was checked."""
    constructor = load_u8(position)
    if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xA0:
        return of_bytes(position + 2, load_u8(position + 1))
    if constructor == 0x40:
        return NONE
    if constructor == 0x55 or constructor == 0x54 or constructor == 0x51:
        return of_integer(load_i8(position + 1))
    if constructor == 0x81 or constructor == 0x83:
        return of_integer(load_be_i64(position + 1))
    if constructor == 0x71:
        return of_integer(load_be_i32(position + 1))
    if constructor == 0x98:
        return of_bytes(position + 1, 16)
    if constructor == 0x82:
        return of_double(float_of_bits(load_be_i64(position + 1)))
    if constructor == 0x43 or constructor == 0x44:
        return of_integer(0)
    if constructor == 0x50 or constructor == 0x52 or constructor == 0x53:
        return of_integer(load_u8(position + 1))
    if constructor == 0x70 or constructor == 0x73:
        return of_integer(load_be_u32(position + 1))
    if constructor == 0x80:
        number = load_be_i64(position + 1)
        if number >= 0:
            return of_integer(number)
        # The lowest bit stays, so that the halved number rounds as the whole one does.
        return of_double((number >> 1 & MOST | number & 1) * 2.0)
    if constructor == 0xB1 or constructor == 0xB3 or constructor == 0xB0:
        return of_bytes(position + 5, load_be_u32(position + 1))
    if constructor == 0x41 or constructor == 0x42:
        return finished(mixed(BOOLEAN, 0x42 - constructor))
    if constructor == 0x56 and load_u8(position + 1) <= 1:
        return finished(mixed(BOOLEAN, load_u8(position + 1)))
    if constructor == 0x60:
        return of_integer(load_be_u16(position + 1))
    if constructor == 0x61:
        number = load_be_u16(position + 1)
        return of_integer(number - 0x10000 if number >= 0x8000 else number)
    if constructor == 0x72:
        single = load_be_f32(position + 1)
        if -16777216.0 < single < 16777216.0:
            return of_double(single)
    return ANY


@inlined
def both(found: int, more: int) -> int:
    """The fingerprint of a field that may have two values."""
    if found in (NONE, more):
        return more
    return found if more == NONE else ANY


@inlined
def any_size(position: int, end: int, widths: int) -> int:
    """Bytes of the element at `position`; 0 when it does not end before `end`."""
    if position > end - 2:
        # A constructor with nothing behind it.
        return 1 if position < end and load_i64(widths + 8 * load_u8(position)) == 0 else 0
    size = 1 + load_i64(widths + 8 * load_u8(position))
    if size == 0:
        size = 2 + load_u8(position + 1)
    elif size < 0:
        size = behind_element(position, end, widths) - position
    return size if 0 < size <= end - position else 0


@helper
def of_list(position: int, index: int, widths: int) -> int:
    """The fingerprint of an element of a list whose size was checked."""
    constructor = load_u8(position)
    if constructor == 0x45:
        return NONE
    if constructor == 0xC0:
        if load_u8(position + 1) < 1:
            return ANY
        items = load_u8(position + 2)
        end = position + 2 + load_u8(position + 1)
        position += 3
    elif constructor == 0xD0:
        if load_be_u32(position + 1) < 4:
            return ANY
        items = load_be_u32(position + 5)
        end = position + 5 + load_be_u32(position + 1)
        position += 9
    else:
        return ANY
    for item in range(items):
        size = any_size(position, end, widths)
        if size == 0:
            return ANY
        if item == index:
            return of_value(position)
        position += size
    return NONE if position == end else ANY


@inlined
def same_but_case(left: int, right: int, length: int) -> int:
    """1 when two texts of one length differ at most in 0x20 of each byte."""
    for index in range(length):
        if load_u8(left + index) | 0x20 != load_u8(right + index) | 0x20:
            return 0
    return 1


@helper
def of_map(position: int, key: int, key_length: int, widths: int) -> int:
    """The fingerprint of the values of a key, in any spelling, of a map whose size was checked."""
    constructor = load_u8(position)
    if (constructor != 0xC1 and constructor != 0xD1) or map_head(position) == 0:
        return ANY
    items = map_items(position)
    end = map_end(position)
    position = map_head(position)
    if items & 1:
        return ANY
    found = NONE
    for _ in range(items >> 1):
        constructor = load_u8(position) if position < end else 0
        size = any_size(position, end, widths)
        if size == 0:
            return ANY
        value = position + size
        value_bytes = any_size(value, end, widths)
        if value_bytes == 0:
            return ANY
        if constructor == 0xA1 or constructor == 0xA3:
            if size == 2 + key_length and same_but_case(position + 2, key, key_length):
                found = both(found, of_value(value))
        elif (
            (constructor == 0xB1 or constructor == 0xB3)
            and size == 5 + key_length
            and same_but_case(position + 5, key, key_length)
        ):
            found = both(found, of_value(value))
        position = value + value_bytes
    return found if position == end else ANY


@helper
def of_message(position: int, end: int, section: int, index: int, key: int, key_length: int, widths: int) -> int:
    """The fingerprint of a field of a message; `ANY` when it is malformed before its body, or of a rare form."""
    previous = 0
    found = NONE
    while position < end:
        if position > end - 3 or load_u8(position) != 0 or load_u8(position + 1) != 0x53:
            return ANY
        code = load_u8(position + 2)
        if code < 0x70 or code > 0x78:
            return ANY
        if code >= 0x75:
            return found
        if code <= previous:
            return ANY
        previous = code
        position += 3
        size = section_size(position, end) if position < end else 0
        if size == 0:
            return ANY
        if code == section:
            found = of_list(position, index, widths) if index >= 0 else of_map(position, key, key_length, widths)
        position += size
    return found


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def fingerprints(
    data: int,
    starts: int,
    lengths: int,
    rows: int,
    section: int,
    index: int,
    key: int,
    key_length: int,
    widths: int,
    found: int,
) -> None:
    """Write the fingerprint of a field by list `index` or (−1) map `key` of each message, four bytes each, to `found`.

    `widths` is the address of `CONSTRUCTOR_WIDTHS` as int64. Eight bytes behind each message, and behind the key, may
    be read.
    """
    for row in range(rows):
        start = data + load_i64(starts + 8 * row)
        end = start + load_i64(lengths + 8 * row)
        store_i32(found + 4 * row, of_message(start, end, section, index, key, key_length, widths))


@helper
def of_found(kind: int, payload: int, length: int, data: int, texts: int) -> int:
    """The fingerprint of a value that was found in a JSON body; `NONE` where it is nothing or another one."""
    if kind == STRING:
        return of_bytes(data + payload, length)
    if kind == UNESCAPED:
        return of_bytes(texts + payload, length)
    if kind == INTEGER:
        return of_integer(payload)
    if kind == DECIMAL:
        return of_double(float_of_bits(payload))
    if kind == IS_BOOLEAN:
        return finished(mixed(BOOLEAN, payload))
    return NONE


@kernel("void(int64, int64, int64, int64, int64, int64, int64)")
def fingerprints_of_found(
    data: int, texts: int, kinds: int, payloads: int, lengths: int, rows: int, found: int
) -> None:
    """Write the fingerprints of the `message.FieldValues` of some messages, four bytes each, to `found`."""
    for row in range(rows):
        payload, length = load_i64(payloads + 8 * row), load_i64(lengths + 8 * row)
        store_i32(found + 4 * row, of_found(load_u8(kinds + row), payload, length, data, texts))
