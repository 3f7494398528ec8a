"""Which columns of a message hold all that a filter would see of it, in one walk of the encoded bytes.

The rules are those of the reference in `__init__`; both agree for every byte sequence.

The four `SectionBlock`s that are asked for stand in the order header, message annotations, properties, application
properties.
"""

from __future__ import annotations

from headgate.derived.columns.exactness.layout import COLUMN, COLUMN_BYTES, FOUND, SECTION, SECTION_BYTES
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import load_be_u32, load_i64, load_u8, store_i64
from headgate.message.arrow.decode.kernel import element_size, section_size
from headgate.message.arrow.scalars.kernel import common_size, map_end, map_head, map_items

K_STRING = 0
K_SYMBOL = 1
K_BINARY = 2
K_BOOLEAN = 3
K_SIGNED = 4
K_UBYTE = 5
K_UINT = 6
K_ULONG = 7
K_FLOAT = 8
K_DOUBLE = 9
K_TIMESTAMP = 10

FOLD = 0x2020202020202020


@helper
def is_exact(position: int, kind: int) -> int:
    """1 when a value is exact for its kind: no −0.0, NaN, infinity. It is not null, and its size was checked."""
    constructor = load_u8(position)
    if kind == K_STRING:
        return 1 if constructor == 0xA1 or constructor == 0xB1 else 0
    if kind == K_SIGNED:
        return (
            1
            if constructor == 0x51
            or constructor == 0x54
            or constructor == 0x55
            or constructor == 0x61
            or constructor == 0x71
            or constructor == 0x81
            else 0
        )
    if kind == K_DOUBLE:
        if constructor != 0x82 or (load_u8(position + 1) & 0x7F == 0x7F and load_u8(position + 2) >= 0xF0):
            return 0
        return 0 if load_i64(position + 1) == 0x80 else 1
    if kind == K_BOOLEAN:
        return 1 if constructor == 0x41 or constructor == 0x42 or constructor == 0x56 else 0
    if kind == K_TIMESTAMP:
        return 1 if constructor == 0x83 else 0
    if kind == K_FLOAT:
        if constructor != 0x72 or (load_u8(position + 1) & 0x7F == 0x7F and load_u8(position + 2) >= 0x80):
            return 0
        return 0 if load_be_u32(position + 1) == 0x80000000 else 1
    if kind == K_BINARY:
        return 1 if constructor == 0xA0 or constructor == 0xB0 else 0
    if kind == K_SYMBOL:
        return 1 if constructor == 0xA3 or constructor == 0xB3 else 0
    if kind == K_UBYTE:
        return 1 if constructor == 0x50 else 0
    if kind == K_UINT:
        return 1 if constructor == 0x43 or constructor == 0x52 or constructor == 0x70 else 0
    return 1 if constructor == 0x44 or constructor == 0x53 or constructor == 0x80 else 0


@inlined
def any_size(position: int, end: int, sizes: int) -> int:
    """Bytes of the element at `position`; 0 when it does not end before `end`, or is described."""
    if position >= end:
        return 0
    size = common_size(position, sizes)
    if size == 0:
        return element_size(position, end)
    return size if size <= end - position else 0


@helper
def list_state(position: int, of_section: int, words: int, sizes: int) -> int:
    """Note the values that a header or properties list has for its columns; 0 when its framing breaks."""
    constructor = load_u8(position)
    if constructor == 0x45:
        return 1
    if constructor == 0xC0:
        items = load_u8(position + 2)
        end = position + 2 + load_u8(position + 1)
        position += 3
    else:
        items = load_be_u32(position + 5)
        end = position + 5 + load_be_u32(position + 1)
        position += 9
    columns = load_i64(of_section + SECTION.columns)
    count = load_i64(of_section + SECTION.columns_length)
    for item in range(items):
        size = any_size(position, end, sizes)
        if size == 0:
            return 0
        if load_u8(position) != 0x40:
            for number in range(count):
                column = columns + COLUMN_BYTES * number
                if load_i64(column + COLUMN.position) == item:
                    note_value(column, position, words)
        position += size
    return 1 if position == end else 0


@inlined
def note_value(column: int, position: int, words: int) -> None:
    """Note a value that is not null in `words`, a `FoundBlock`."""
    bit = load_i64(column + COLUMN.bit)
    store_i64(words + FOUND.present, load_i64(words + FOUND.present) | bit)
    if is_exact(position, load_i64(column + COLUMN.kind)) == 0:
        store_i64(words + FOUND.inexact, load_i64(words + FOUND.inexact) | bit)


@inlined
def same_but_case(left: int, right: int, length: int) -> int:
    """1 when two keys of one length differ at most in 0x20 of each byte, from their ninth byte on."""
    for index in range(8, length):
        if load_u8(left + index) | 0x20 != load_u8(right + index) | 0x20:
            return 0
    return 1


@inlined
def same_bytes(left: int, right: int, length: int) -> int:
    """1 when two keys of one length are equal."""
    index = 0
    while index + 8 <= length:
        if load_i64(left + index) != load_i64(right + index):
            return 0
        index += 8
    while index < length:
        if load_u8(left + index) != load_u8(right + index):
            return 0
        index += 1
    return 1


@inlined
def has_high_bit(position: int, length: int) -> int:
    """1 when a byte is not ASCII."""
    for index in range(length):
        if load_u8(position + index) >= 0x80:
            return 1
    return 0


@helper
def map_state(position: int, of_section: int, words: int, sizes: int, key_kind: int) -> int:
    """Note the values that a map has for its columns; 0 when its framing breaks.

    `key_kind`: short constructor of keys.
    """
    items = map_items(position)
    end = map_end(position)
    position = map_head(position)
    columns = load_i64(of_section + SECTION.columns)
    count = load_i64(of_section + SECTION.columns_length)
    others = load_i64(of_section + SECTION.bits_not_ascii)
    is_unique = load_i64(of_section + SECTION.is_unique)
    expected = 0
    if position == 0 or items & 1:
        return 0
    for _ in range(items >> 1):
        constructor = load_u8(position) if position < end else 0
        size = any_size(position, end, sizes)
        if size == 0:
            return 0
        value = position + size
        value_bytes = any_size(value, end, sizes)
        if value_bytes == 0:
            return 0
        if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xB1 or constructor == 0xB3:
            key = position + 2 if constructor < 0xB0 else position + 5
            length = value - key
            prefix = load_i64(key) | FOLD
            if length < 8:
                prefix &= (1 << (8 * length)) - 1
            begin = expected
            for step in range(count):
                number = begin + step
                if number >= count:
                    number -= count
                column = columns + COLUMN_BYTES * number
                if (
                    load_i64(column + COLUMN.key_prefix) == prefix
                    and load_i64(column + COLUMN.key_length) == length
                    and (length <= 8 or same_but_case(load_i64(column + COLUMN.key), key, length))
                ):
                    bit = load_i64(column + COLUMN.bit)
                    is_key = constructor & 0xEF == key_kind and same_bytes(load_i64(column + COLUMN.key), key, length)
                    if is_key and load_i64(words + FOUND.seen) & bit == 0:
                        store_i64(words + FOUND.seen, load_i64(words + FOUND.seen) | bit)
                        if load_u8(value) != 0x40:
                            note_value(column, value, words)
                        expected = number + 1
                        if expected == count:
                            expected = 0
                    else:
                        store_i64(words + FOUND.inexact, load_i64(words + FOUND.inexact) | bit)
                    if is_unique:
                        break
            if others != 0 and has_high_bit(key, length):
                for number in range(count):
                    column = columns + COLUMN_BYTES * number
                    bit = load_i64(column + COLUMN.bit) & others
                    if bit != 0 and (
                        load_i64(column + COLUMN.key_length) != length
                        or same_bytes(load_i64(column + COLUMN.key), key, length) == 0
                    ):
                        store_i64(words + FOUND.inexact, load_i64(words + FOUND.inexact) | bit)
        position = value + value_bytes
    return 1 if position == end else 0


@helper
def message_state(position: int, end: int, asked: int, words: int, sizes: int) -> int:
    """Note the values that a message has for the columns; 0 when it is malformed, or of a rare form."""
    previous = 0
    while position < end:
        if position > end - 3 or load_u8(position) != 0 or load_u8(position + 1) != 0x53:
            return 0
        code = load_u8(position + 2)
        if code < 0x70 or code > 0x78:
            return 0
        if code >= 0x75:
            return 1
        if code <= previous:
            return 0
        previous = code
        position += 3
        size = section_size(position, end) if position < end else 0
        if size == 0:
            return 0
        constructor = load_u8(position)
        section = asked
        if code == 0x70 or code == 0x73:
            if constructor == 0xC0:
                if load_u8(position + 1) < 1:
                    return 0
            elif constructor == 0xD0:
                if load_be_u32(position + 1) < 4:
                    return 0
            elif constructor != 0x45:
                return 0
            section += 0 if code == 0x70 else SECTION_BYTES * 2
            if load_i64(section + SECTION.columns_length) != 0 and list_state(position, section, words, sizes) == 0:
                store_i64(words + FOUND.inexact, load_i64(words + FOUND.inexact) | load_i64(section + SECTION.bits))
        else:
            if (constructor != 0xC1 and constructor != 0xD1) or map_head(position) == 0:
                return 0
            section += SECTION_BYTES if code == 0x72 else SECTION_BYTES * 3
            key_kind = 0xA3 if code == 0x72 else 0xA1
            if (
                code != 0x71
                and load_i64(section + SECTION.columns_length) != 0
                and map_state(position, section, words, sizes, key_kind) == 0
            ):
                store_i64(words + FOUND.inexact, load_i64(words + FOUND.inexact) | load_i64(section + SECTION.bits))
        position += size
    return 1


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def inexact_bits(
    data: int, starts: int, lengths: int, rows: int, asked: int, words: int, found: int, sizes: int
) -> None:
    """Write the bits of inexact columns of each message, one int64 per row, to `found`.

    `words` has room for a `FoundBlock`; `sizes` is the address of `size_table()`. Eight bytes behind each message
    may be read.
    """
    for row in range(rows):
        start = data + load_i64(starts + 8 * row)
        store_i64(words + FOUND.present, 0)
        store_i64(words + FOUND.inexact, 0)
        store_i64(words + FOUND.seen, 0)
        inexact = -1
        if message_state(start, start + load_i64(lengths + 8 * row), asked, words, sizes):
            inexact = load_i64(words + FOUND.inexact)
        present = load_i64(words + FOUND.present)
        all_bits = 0
        for section in range(4):
            of_section = asked + SECTION_BYTES * section
            columns = load_i64(of_section + SECTION.columns)
            all_bits |= load_i64(of_section + SECTION.bits)
            for number in range(load_i64(of_section + SECTION.columns_length)):
                column = columns + COLUMN_BYTES * number
                valid = load_i64(column + COLUMN.validity)
                bit = load_i64(column + COLUMN.bit)
                is_valid = 1
                if valid != 0:
                    is_valid = load_u8(valid + (row >> 3)) >> (row & 7) & 1
                if (present & bit != 0) != (is_valid != 0):
                    inexact |= bit
        store_i64(found + 8 * row, inexact & all_bits)
