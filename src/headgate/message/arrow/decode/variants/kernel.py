"""The kernel that turns map sections into Variant objects (encoding and table of types: `headgate.message.variant`).

It takes maps of up to `MAX_ENTRIES` scalars with distinct keys that are well-formed text; every other map makes its row
undecided.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    copy_bytes,
    load_be_i32,
    load_be_i64,
    load_be_u32,
    load_i64,
    load_u8,
    store_i32,
    store_i64,
    store_u8,
)
from headgate.message.arrow.decode.kernel import HIGHEST_MILLISECOND
from headgate.message.arrow.decode.layout import SECTIONS, SECTIONS_BYTES
from headgate.message.arrow.decode.variants.layout import ENTRY, ENTRY_BYTES, OUTPUT
from headgate.message.arrow.scalars.kernel import (
    checked_size,
    content_of,
    integer_value,
    map_end,
    map_head,
    map_items,
    value_size,
    write_character,
    write_uuid,
)

MAX_ENTRIES = 255
MINIMUM_INTEGER = -9223372036854775808


@helper
def sort_word(address: int, length: int) -> int:
    """The first eight bytes, zeros behind the last, as a signed integer that sorts as the bytes do."""
    word = load_be_i64(address)
    if length < 8:
        word = 0 if length == 0 else word >> (64 - 8 * length) << (64 - 8 * length)
    return word ^ MINIMUM_INTEGER


@helper
def compare_keys(left: int, right: int) -> int:
    """Sign of the order by bytes of two entries' keys."""
    left_word = load_i64(left + ENTRY.key_word)
    right_word = load_i64(right + ENTRY.key_word)
    if left_word != right_word:
        return -1 if left_word < right_word else 1
    left_length = load_i64(left + ENTRY.key_length)
    right_length = load_i64(right + ENTRY.key_length)
    left_key = load_i64(left + ENTRY.key)
    right_key = load_i64(right + ENTRY.key)
    shorter = min(left_length, right_length)
    for index in range(8, shorter):
        difference = load_u8(left_key + index) - load_u8(right_key + index)
        if difference != 0:
            return difference
    return left_length - right_length


@inlined
def integer_variant_size(constructor: int) -> int:
    """Bytes of an integer as Variant: the narrowest type that holds every value of its AMQP type."""
    if constructor == 0x51:
        return 2
    if constructor == 0x50 or constructor == 0x61:
        return 3
    if constructor == 0x60 or constructor == 0x71 or constructor == 0x54:
        return 5
    return 9


@helper
def variant_size(position: int, size: int) -> int:
    """Bytes that a checked scalar takes as Variant; 0 = the kernel does not know (the row is undecided)."""
    constructor = load_u8(position)
    if constructor <= 0x42 or constructor == 0x56:
        return 1
    if constructor == 0x72:
        bits = load_be_u32(position + 1) & 0x7FFFFFFF
        return 5 if bits <= 0x7F800000 else 0
    if constructor == 0x82:
        return 9
    if constructor == 0x83:
        value = load_be_i64(position + 1)
        return 9 if -HIGHEST_MILLISECOND <= value <= HIGHEST_MILLISECOND else 0
    if constructor == 0x73:
        code = load_be_u32(position + 1)
        return 2 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
    if constructor == 0x98:
        return 37
    if constructor == 0xA0 or constructor == 0xB0:
        return 5 + position + size - content_of(position)
    if constructor >= 0xA0:
        length = position + size - content_of(position)
        return 1 + length if length <= 63 else 5 + length
    if constructor == 0x80 and load_be_i64(position + 1) < 0:
        return 18
    return integer_variant_size(constructor)


@inlined
def store_little(target: int, value: int, width: int) -> int:
    """A little-endian integer of 1 … 4 bytes; gives the place behind it."""
    store_u8(target, value & 0xFF)
    if width > 1:
        store_u8(target + 1, value >> 8 & 0xFF)
    if width > 2:
        store_u8(target + 2, value >> 16 & 0xFF)
    if width > 3:
        store_u8(target + 3, value >> 24 & 0xFF)
    return target + width


@helper
def write_variant(target: int, position: int, end: int) -> int:
    """Write a scalar whose `variant_size` is known; `end` is the scalar's end. Gives the place behind it."""
    constructor = load_u8(position)
    if constructor == 0x40:
        store_u8(target, 0)
        return target + 1
    if constructor == 0x41 or (constructor == 0x56 and load_u8(position + 1) == 1):
        store_u8(target, 1 << 2)
        return target + 1
    if constructor == 0x42 or constructor == 0x56:
        store_u8(target, 2 << 2)
        return target + 1
    if constructor == 0x72:
        store_u8(target, 14 << 2)
        return store_little(target + 1, load_be_i32(position + 1), 4)
    if constructor == 0x82:
        store_u8(target, 7 << 2)
        store_i64(target + 1, load_be_i64(position + 1))
        return target + 9
    if constructor == 0x83:
        store_u8(target, 12 << 2)
        store_i64(target + 1, load_be_i64(position + 1) * 1000)
        return target + 9
    if constructor == 0x73:
        code = load_be_u32(position + 1)
        length = 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
        store_u8(target, length << 2 | 1)
        write_character(target + 1, code, length)
        return target + 1 + length
    if constructor == 0x98:
        store_u8(target, 36 << 2 | 1)
        write_uuid(target + 1, position + 1)
        return target + 37
    if constructor >= 0xA0:
        content = content_of(position)
        length = end - content
        if constructor == 0xA0 or constructor == 0xB0:
            store_u8(target, 15 << 2)
            target = store_little(target + 1, length, 4)
        elif length <= 63:
            store_u8(target, length << 2 | 1)
            target += 1
        else:
            store_u8(target, 16 << 2)
            target = store_little(target + 1, length, 4)
        copy_bytes(target, content, length)
        return target + length
    value = integer_value(position, constructor)
    if constructor == 0x80 and value < 0:
        store_u8(target, 10 << 2)
        store_u8(target + 1, 0)
        store_i64(target + 2, value)
        store_i64(target + 10, 0)
        return target + 18
    size = integer_variant_size(constructor)
    if size == 9:
        store_u8(target, 6 << 2)
        store_i64(target + 1, value)
        return target + 9
    store_u8(target, (3 << 2) if size == 2 else ((4 << 2) if size == 3 else (5 << 2)))
    return store_little(target + 1, value, size - 1)


@helper
def offset_width(largest: int) -> int:
    """Bytes per offset of a Variant list of offsets."""
    if largest <= 0xFF:
        return 1
    if largest <= 0xFFFF:
        return 2
    if largest <= 0xFFFFFF:
        return 3
    return 4


@helper
def gather_entries(position: int, entries: int) -> int:
    """Read a map of scalars into the table of entries; gives their number, -1 = undecided."""
    items = map_items(position)
    end = map_end(position)
    position = map_head(position)
    if position == 0 or items & 1 or items > 2 * MAX_ENTRIES:
        return -1
    count = items >> 1
    for index in range(count):
        entry = entries + ENTRY_BYTES * index
        if position >= end:
            return -1
        constructor = load_u8(position)
        if constructor != 0xA1 and constructor != 0xB1 and constructor != 0xA3 and constructor != 0xB3:
            return -1
        size = checked_size(position, end)
        if size == 0:
            return -1
        key = content_of(position)
        length = position + size - key
        store_i64(entry + ENTRY.key, key)
        store_i64(entry + ENTRY.key_length, length)
        store_i64(entry + ENTRY.key_word, sort_word(key, length))
        position += size
        size = checked_size(position, end)
        if size == 0:
            return -1
        store_i64(entry + ENTRY.value, position)
        store_i64(entry + ENTRY.variant_size, variant_size(position, size))
        if load_i64(entry + ENTRY.variant_size) == 0:
            return -1
        position += size
    return count if position == end else -1


@helper
def sort_entries(entries: int, order: int, count: int, fresh: int) -> int:
    """Bring `order` (addresses of entries) into the order of the keys; 0 when two keys are equal.

    Unless `fresh`, it starts from the order of the row before, which is mostly right already.
    """
    if fresh:
        for index in range(count):
            store_i64(order + 8 * index, entries + ENTRY_BYTES * index)
    for index in range(1, count):
        moving = load_i64(order + 8 * index)
        place = index
        while place > 0:
            relation = compare_keys(load_i64(order + 8 * place - 8), moving)
            if relation < 0:
                break
            if relation == 0:
                return 0
            store_i64(order + 8 * place, load_i64(order + 8 * place - 8))
            place -= 1
        store_i64(order + 8 * place, moving)
    return 1


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def variants(sections: int, first_row: int, rows: int, word: int, output: int, scratch: int) -> int:
    """Variant objects of the map at `word` of each row, from `first_row` on; gives the first row that did not fit.

    `output` is the address of an `OutputBlock`, `scratch` has room for `MAX_ENTRIES` `EntryBlock`s and their addresses.
    """
    value_target = load_i64(output + OUTPUT.value)
    value_capacity = load_i64(output + OUTPUT.value_capacity)
    value_used = load_i64(output + OUTPUT.value_used)
    metadata_target = load_i64(output + OUTPUT.metadata)
    metadata_capacity = load_i64(output + OUTPUT.metadata_capacity)
    metadata_used = load_i64(output + OUTPUT.metadata_used)
    value_offsets = load_i64(output + OUTPUT.value_offsets)
    metadata_offsets = load_i64(output + OUTPUT.metadata_offsets)
    valid = load_i64(output + OUTPUT.validity)
    undecided = load_i64(output + OUTPUT.undecided)
    order = scratch + ENTRY_BYTES * MAX_ENTRIES
    previous = -1
    row = first_row
    while row < rows:
        words = sections + SECTIONS_BYTES * row
        position = load_i64(words + 8 * word)
        count = -1
        if load_i64(words + SECTIONS.is_decided) != 0 and position != 0:
            count = gather_entries(position, scratch)
            if count >= 0 and sort_entries(scratch, order, count, 1 if count != previous else 0) == 0:
                count = -1
                previous = -1
            elif count >= 0:
                previous = count
        if count < 0:
            store_u8(valid + row, 0)
            store_u8(undecided + row, 0 if load_i64(words + SECTIONS.is_decided) != 0 and position == 0 else 1)
        else:
            data_size = 0
            key_size = 0
            for index in range(count):
                entry = load_i64(order + 8 * index)
                data_size += load_i64(entry + ENTRY.variant_size)
                key_size += load_i64(entry + ENTRY.key_length)
            data_width = offset_width(data_size)
            key_width = offset_width(max(key_size, count))
            value_size_now = 2 + count + (count + 1) * data_width + data_size
            metadata_size_now = 1 + key_width * (count + 2) + key_size
            if (
                value_size_now > value_capacity - value_used - 8
                or metadata_size_now > metadata_capacity - metadata_used - 8
            ):
                break
            target = value_target + value_used
            store_u8(target, 2 | (data_width - 1) << 2)
            store_u8(target + 1, count)
            target += 2
            for index in range(count):
                store_u8(target + index, index)
            target += count
            data = target + (count + 1) * data_width
            begin = data
            keys = metadata_target + metadata_used
            store_u8(keys, 0x11 | (key_width - 1) << 6)
            key_offsets = store_little(keys + 1, count, key_width)
            key_data = key_offsets + (count + 1) * key_width
            key_begin = key_data
            for index in range(count):
                entry = load_i64(order + 8 * index)
                target = store_little(target, data - begin, data_width)
                key_offsets = store_little(key_offsets, key_data - key_begin, key_width)
                length = load_i64(entry + ENTRY.key_length)
                copy_bytes(key_data, load_i64(entry + ENTRY.key), length)
                key_data += length
                source = load_i64(entry + ENTRY.value)
                data = write_variant(data, source, source + value_size(source, load_i64(words + SECTIONS.end)))
            store_little(target, data - begin, data_width)
            store_little(key_offsets, key_data - key_begin, key_width)
            value_used += value_size_now
            metadata_used += metadata_size_now
            store_u8(valid + row, 1)
            store_u8(undecided + row, 0)
        store_i32(value_offsets + 4 * row + 4, value_used)
        store_i32(metadata_offsets + 4 * row + 4, metadata_used)
        row += 1
        if value_used > 0x7FFFFFFF or metadata_used > 0x7FFFFFFF:
            break
    store_i64(output + OUTPUT.value_used, value_used)
    store_i64(output + OUTPUT.metadata_used, metadata_used)
    return row
