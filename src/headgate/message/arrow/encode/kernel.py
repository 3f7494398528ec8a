"""The kernel that writes messages from the buffers of columns, in the smallest encodings (as `encode_sections` does).

Rows that it cannot write with certainty (a VARIANT with nested values, or one that fails a check) get length -1 and are
left to the reference. All arrays come from `inputs`. The blocks of words are declared in `layout.py`.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    bits_of_float,
    copy_bytes,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    store_be_i64,
    store_be_u16,
    store_be_u32,
    store_i64,
    store_u8,
)
from headgate.message.arrow.encode.layout import LIST, MAP, SECTION, SECTION_BYTES, STRUCT, VALUES, VALUES_BYTES
from headgate.message.arrow.scalars.kernel import is_utf8

F_BOOLEAN = 0
F_UBYTE = 1
F_UINT = 2
F_BYTE = 3
F_SHORT = 4
F_INT = 5
F_LONG = 6
F_FLOAT = 7
F_DOUBLE = 8
F_TIMESTAMP = 9
F_STRING = 10
F_SYMBOL = 11
F_BINARY = 12

VARIANT_SHARE = 2
"""Room for the map of a VARIANT: this many bytes per byte of the VARIANT, and `VARIANT_BASE` more."""

VARIANT_BASE = 64


@inlined
def write_octets(target: int, short: int, source: int, length: int) -> int:
    """A string, symbol or binary (`short` is its one-byte-size constructor); gives the place behind it."""
    if length <= 0xFF:
        store_u8(target, short)
        store_u8(target + 1, length)
        target += 2
    else:
        store_u8(target, short + 0x10)
        store_be_u32(target + 1, length)
        target += 5
    copy_bytes(target, source, length)
    return target + length


@inlined
def write_wide(target: int, constructor: int, value: int) -> int:
    """A constructor and eight bytes."""
    store_u8(target, constructor)
    store_be_i64(target + 1, value)
    return target + 9


@inlined
def write_narrow(target: int, constructor: int, value: int) -> int:
    """A constructor and one byte."""
    store_u8(target, constructor)
    store_u8(target + 1, value)
    return target + 2


@helper
def write_number(target: int, form: int, value: int) -> int:
    """A number in its smallest encoding; gives the place behind it."""
    if form == F_LONG:
        if -128 <= value <= 127:
            return write_narrow(target, 0x55, value)
        return write_wide(target, 0x81, value)
    if form == F_DOUBLE:
        return write_wide(target, 0x82, value)
    if form == F_INT:
        if -128 <= value <= 127:
            return write_narrow(target, 0x54, value)
        store_u8(target, 0x71)
        store_be_u32(target + 1, value)
        return target + 5
    if form == F_BOOLEAN:
        store_u8(target, 0x41 if value else 0x42)
        return target + 1
    if form == F_TIMESTAMP:
        return write_wide(target, 0x83, value)
    if form == F_UBYTE:
        return write_narrow(target, 0x50, value)
    if form == F_UINT:
        if value == 0:
            store_u8(target, 0x43)
            return target + 1
        if value <= 0xFF:
            return write_narrow(target, 0x52, value)
        store_u8(target, 0x70)
        store_be_u32(target + 1, value)
        return target + 5
    if form == F_BYTE:
        return write_narrow(target, 0x51, value)
    if form == F_SHORT:
        store_u8(target, 0x61)
        store_be_u16(target + 1, value)
        return target + 3
    store_u8(target, 0x72)
    store_be_u32(target + 1, value)
    return target + 5


@inlined
def validity(values: int, row: int) -> int:
    """0 = null, 1 = there, 2 = a ulong above 2^63 - 1."""
    address = load_i64(values + VALUES.validity)
    return 1 if address == 0 else load_u8(address + row)


@helper
def write_value(target: int, values: int, row: int, valid: int) -> int:
    """A value that is not null; gives the place behind it."""
    form = load_i64(values + VALUES.form)
    column = load_i64(values + VALUES.values)
    if form >= F_STRING:
        start = load_i32(column + 4 * row)
        short = 0xA1
        if form == F_SYMBOL:
            short = 0xA3
        elif form == F_BINARY:
            short = 0xA0
        return write_octets(
            target, short, load_i64(values + VALUES.octets) + start, load_i32(column + 4 * row + 4) - start
        )
    if valid == 2:
        return write_wide(target, 0x80, load_i64(column + 8 * row))
    return write_number(target, form, load_i64(column + 8 * row))


@helper
def close_compound(start: int, content: int, end: int, count: int, short: int) -> int:
    """Put the head of a list or map before its content, which lies three bytes behind `start`; gives its end."""
    size = end - content
    if size + 1 <= 0xFF and count <= 0xFF:
        store_u8(start, short)
        store_u8(start + 1, size + 1)
        store_u8(start + 2, count)
        return end
    move_up(content, size, 6)
    store_u8(start, short + 0x10)
    store_be_u32(start + 1, size + 4)
    store_be_u32(start + 5, count)
    return end + 6


@helper
def move_up(address: int, length: int, distance: int) -> None:
    """Move bytes to a place a few bytes higher; the places overlap."""
    position = address + length
    while position > address:
        position -= 1
        store_u8(position + distance, load_u8(position))


@helper
def write_list(target: int, section: int, row: int) -> int:
    """The fields up to the last that is not null."""
    values = load_i64(section + SECTION.columns)
    position = target + 3
    end = position
    count = 0
    for field in range(load_i64(section + SECTION.columns_length)):
        valid = 0 if load_i64(values + VALUES.form) < 0 else validity(values, row)
        if valid:
            position = write_value(position, values, row, valid)
            end = position
            count = field + 1
        else:
            store_u8(position, 0x40)
            position += 1
        values += VALUES_BYTES
    if count == 0:
        store_u8(target, 0x45)
        return target + 1
    return close_compound(target, target + 3, end, count, 0xC0)


@helper
def write_struct(target: int, section: int, row: int) -> int:
    """A map of the fields that are not null."""
    values = load_i64(section + SECTION.columns)
    position = target + 3
    count = 0
    for _ in range(load_i64(section + SECTION.columns_length)):
        valid = validity(values, row)
        if valid:
            length = load_i64(values + VALUES.key_length)
            copy_bytes(position, load_i64(values + VALUES.key), length)
            position = write_value(position + length, values, row, valid)
            count += 2
        values += VALUES_BYTES
    return close_compound(target, target + 3, position, count, 0xC1)


@helper
def write_map(target: int, section: int, row: int) -> int:
    """The entries of a MAP; a null item is AMQP's null."""
    keys = load_i64(section + SECTION.columns)
    items = keys + VALUES_BYTES
    offsets = load_i64(section + SECTION.offsets)
    position = target + 3
    start = load_i32(offsets + 4 * row)
    end = load_i32(offsets + 4 * row + 4)
    for entry in range(start, end):
        position = write_value(position, keys, entry, 1)
        valid = validity(items, entry)
        if valid:
            position = write_value(position, items, entry, valid)
        else:
            store_u8(position, 0x40)
            position += 1
    return close_compound(target, target + 3, position, 2 * (end - start), 0xC1)


@inlined
def little(address: int, width: int) -> int:
    """A little-endian unsigned integer of 1 … 4 bytes that were checked to be there."""
    if width == 1:
        return load_u8(address)
    if width == 2:
        return load_u16(address)
    if width == 3:
        return load_u16(address) | load_u8(address + 2) << 16
    return load_u32(address)


@helper
def power_of_ten(exponent: int) -> float:
    """Exact up to 22."""
    result = 1.0
    for _ in range(exponent):
        result *= 10.0
    return result


@helper
def write_decimal(target: int, value: int, scale: int) -> int:
    """A decimal of up to 64 bits: long without scale, else the nearest double; 0 where one division is not exact."""
    if scale == 0:
        return write_number(target, F_LONG, value)
    if scale > 22 or value > 9007199254740992 or value < -9007199254740992:
        return 0
    return write_number(target, F_DOUBLE, bits_of_float(float(value) / power_of_ten(scale)))


@helper
def write_primitive(target: int, kind: int, position: int, end: int, exact: int) -> int:
    """One Variant primitive with its content at `position` as an AMQP value; 0 = left to the reference."""
    size = end - position
    if exact:
        # Decimals of up to 15 digits come back from a double.
        if kind == 9 and size >= 9 and not -(10**15) < load_i64(position + 1) < 10**15:
            return 0
        if (kind == 12 or kind == 13) and size >= 8 and load_i64(position) % 1000 != 0:
            return 0
    if kind == 0:
        store_u8(target, 0x40)
        return target + 1
    if kind == 1 or kind == 2:
        return write_number(target, F_BOOLEAN, 2 - kind)
    if kind == 3:
        return write_number(target, F_BYTE, load_i8(position)) if size >= 1 else 0
    if kind == 4:
        return write_number(target, F_SHORT, load_u16(position)) if size >= 2 else 0
    if kind == 5:
        return write_number(target, F_INT, load_i32(position)) if size >= 4 else 0
    if kind == 14:
        if size < 4 or (load_i32(position) & 0x7FFFFFFF) > 0x7F800000:
            return 0
        return write_number(target, F_FLOAT, load_i32(position))
    if kind == 8:
        return write_decimal(target, load_i32(position + 1), load_u8(position)) if size >= 5 else 0
    if kind == 9:
        return write_decimal(target, load_i64(position + 1), load_u8(position)) if size >= 9 else 0
    if kind == 15 or kind == 16:
        if size < 4:
            return 0
        length = load_u32(position)
        if length > size - 4 or (kind == 16 and is_utf8(position + 4, length) == 0):
            return 0
        return write_octets(target, 0xA0 if kind == 15 else 0xA1, position + 4, length)
    if size < 8:
        return 0
    if kind == 6:
        return write_number(target, F_LONG, load_i64(position))
    if kind == 7:
        return write_number(target, F_DOUBLE, load_i64(position))
    if kind == 12 or kind == 13:
        return write_number(target, F_TIMESTAMP, load_i64(position) // 1000)
    return 0


@helper
def write_variant(target: int, section: int, row: int) -> int:
    """The map of a VARIANT that is a flat object of scalars; 0 = left to the reference."""
    values = load_i64(section + SECTION.columns)
    offsets = load_i64(values + VALUES.values)
    value = load_i64(values + VALUES.octets) + load_i32(offsets + 4 * row)
    value_end = load_i64(values + VALUES.octets) + load_i32(offsets + 4 * row + 4)
    values += VALUES_BYTES
    offsets = load_i64(values + VALUES.values)
    metadata = load_i64(values + VALUES.octets) + load_i32(offsets + 4 * row)
    metadata_end = load_i64(values + VALUES.octets) + load_i32(offsets + 4 * row + 4)
    if value_end - value < 2 or metadata_end - metadata < 2:
        return 0
    limit = target + VARIANT_BASE + VARIANT_SHARE * (value_end - value + metadata_end - metadata)
    head = load_u8(metadata)
    key_width = (head >> 6) + 1
    if head & 0x0F != 1 or metadata_end - metadata < 1 + key_width:
        return 0
    key_count = little(metadata + 1, key_width)
    if key_count > metadata_end - metadata:
        return 0
    key_offsets = metadata + 1 + key_width
    key_data = key_offsets + (key_count + 1) * key_width
    if key_data > metadata_end:
        return 0
    previous = 0
    for index in range(key_count + 1):
        offset = little(key_offsets + index * key_width, key_width)
        if offset < previous:
            return 0
        previous = offset
    if previous > metadata_end - key_data or is_utf8(key_data, previous) == 0:
        return 0
    head = load_u8(value)
    if head & 3 != 2 or head & 0x40:
        return 0
    offset_width = (head >> 2 & 3) + 1
    id_width = (head >> 4 & 3) + 1
    count = load_u8(value + 1)
    ids = value + 2
    value_offsets = ids + count * id_width
    data = value_offsets + (count + 1) * offset_width
    if data > value_end:
        return 0
    short_key = load_i64(section + SECTION.short_key)
    exact = load_i64(section + SECTION.is_exact)
    position = target + 3
    for index in range(count):
        key = little(ids + index * id_width, id_width)
        offset = little(value_offsets + index * offset_width, offset_width)
        if key >= key_count or offset >= value_end - data:
            return 0
        start = little(key_offsets + key * key_width, key_width)
        length = little(key_offsets + (key + 1) * key_width, key_width) - start
        source = data + offset
        if position + length + (value_end - source) + 32 > limit:
            return 0
        position = write_octets(position, short_key, key_data + start, length)
        head = load_u8(source)
        if head & 3 == 0:
            position = write_primitive(position, head >> 2, source + 1, value_end, exact)
        elif head & 3 == 1:
            length = head >> 2
            if length > value_end - source - 1 or is_utf8(source + 1, length) == 0:
                return 0
            position = write_octets(position, 0xA1, source + 1, length)
        else:
            return 0
        if position == 0:
            return 0
    return close_compound(target, target + 3, position, 2 * count, 0xC1)


@inlined
def write_descriptor(target: int, code: int) -> int:
    """The descriptor of a section; gives the place behind it."""
    store_u8(target, 0)
    store_u8(target + 1, 0x53)
    store_u8(target + 2, code)
    return target + 3


@helper
def write_row(target: int, sections: int, count: int, body: int, row: int) -> int:
    """One message; gives the place behind it, 0 = left to the reference."""
    for index in range(count):
        section = sections + SECTION_BYTES * index
        valid = load_i64(section + SECTION.validity)
        if valid == 0 or load_u8(valid + row):
            target = write_descriptor(target, load_i64(section + SECTION.code))
            kind = load_i64(section + SECTION.kind)
            if kind == LIST:
                target = write_list(target, section, row)
            elif kind == STRUCT:
                target = write_struct(target, section, row)
            elif kind == MAP:
                target = write_map(target, section, row)
            else:
                target = write_variant(target, section, row)
            if target == 0:
                return 0
    valid = 0 if load_i64(body + VALUES.form) < 0 else validity(body, row)
    if valid:
        return write_value(write_descriptor(target, 0x75), body, row, valid)
    target = write_descriptor(target, 0x77)
    store_u8(target, 0x40)
    return target + 1


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)")
def encode(
    sections: int, count: int, body: int, message: int, rows: int, target: int, starts: int, lengths: int
) -> int:
    """Write all messages one behind the other; `body` and `message` are columns of values. Gives the bytes written."""
    position = target
    for row in range(rows):
        store_i64(starts + 8 * row, position - target)
        end = 0
        if load_i64(message + VALUES.form) >= 0 and validity(message, row):
            offsets = load_i64(message + VALUES.values)
            start = load_i32(offsets + 4 * row)
            length = load_i32(offsets + 4 * row + 4) - start
            copy_bytes(position, load_i64(message + VALUES.octets) + start, length)
            end = position + length
        else:
            end = write_row(position, sections, count, body, row)
        if end == 0:
            store_i64(lengths + 8 * row, -1)
        else:
            store_i64(lengths + 8 * row, end - position)
            position = end
    return position - target
