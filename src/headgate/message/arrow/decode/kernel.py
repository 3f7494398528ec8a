"""Kernels from encoded messages to the buffers of Arrow columns.

Each kernel is strict: what it cannot read with certainty (a rare encoding, a nested value, bytes that do not check)
makes the row *undecided* (`undecided[row] = 1`, column value null), and the reference decides it. Nothing outside a
message is used; eight-byte loads may touch `SLACK_BYTES` behind it.

The table of sections has `SECTION_WORDS` int64 per row, written by `walk` and read by the others:

    word 0..3   address of the constructor of the header, message annotations, properties, application properties list or
                map; 0 = the message has none
    word 4      address of the body's bytes; 0 = null body
    word 5      length of the body's bytes
    word 6      end of the message
    word 7      1 = all words hold; 0 = the row is undecided

A field descriptor has `FIELD_WORDS` int64:

    word 0      target (one of the `T_` numbers)
    word 1      address of the values: int64 per row (float64 for T_FLOAT, T_DOUBLE), or of int32 offsets, rows + 1
    word 2      address of one validity byte per row
    word 3      address of the bytes of strings (second pass), 0 in the first pass
    word 4..6   key: address, length, first eight bytes in native order (maps only)
    word 7      bytes used so far (strings), kept by the kernel
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    bits_of_float,
    copy_bytes,
    load_be_f32,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    store_i32,
    store_i64,
    store_u8,
)

SECTION_WORDS = 8
FIELD_WORDS = 8

T_BOOLEAN = 0
T_UBYTE = 1
T_UINT = 2
T_TIMESTAMP = 3
T_ID = 4
T_BINARY = 5
T_STRING = 6
T_SYMBOL = 7
T_TEXT = 8
T_INTEGER = 9
T_FLOAT = 10
T_DOUBLE = 11
T_UNSIGNED = 12

HIGHEST_MILLISECOND = 9223372036854775
"""The largest number of milliseconds whose microseconds fit 64 bits."""

MINIMUM_INTEGER = -9223372036854775808


@inlined
def value_size(position: int, end: int) -> int:
    """Bytes of the scalar at `position` with its constructor; 0 when it is no plain scalar or does not end before `end`."""
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


@helper
def is_ascii(position: int, length: int) -> int:
    """1 when no byte has its highest bit set."""
    while length >= 8:
        if load_i64(position) & -9187201950435737472:
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
        if position <= end - 8 and load_i64(position) & -9187201950435737472 == 0:
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
    """Like `value_size`, and 0 as well when the content is not what its type allows (text, boolean, character)."""
    size = value_size(position, end)
    if size == 0:
        return 0
    constructor = load_u8(position)
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
def section_size(position: int, end: int) -> int:
    """Bytes of the list, map or binary at `position` with its constructor; 0 when it does not end before `end`."""
    constructor = load_u8(position)
    size = 0
    if constructor == 0x45:
        size = 1
    elif constructor == 0xC0 or constructor == 0xC1 or constructor == 0xA0:
        if position <= end - 2:
            size = 2 + load_u8(position + 1)
    elif (constructor == 0xD0 or constructor == 0xD1 or constructor == 0xB0) and position <= end - 5:
        size = 5 + load_be_u32(position + 1)
    if size > end - position:
        return 0
    return size


@helper
def walk_message(start: int, length: int, words: int) -> int:
    """Fill the section words of one message; 0 when undecided."""
    end = start + length
    for word in range(SECTION_WORDS):
        store_i64(words + 8 * word, 0)
    store_i64(words + 48, end)
    position = start
    previous = 0
    while position < end:
        if position > end - 4 or load_u8(position) != 0 or load_u8(position + 1) != 0x53:
            return 0
        code = load_u8(position + 2)
        if code < 0x70 or code > 0x78 or code <= previous:
            return 0
        if (previous == 0x75 or previous == 0x76) and code <= 0x77:
            return 0
        previous = code
        position += 3
        constructor = load_u8(position)
        if code == 0x77:
            size = checked_size(position, end)
            if size == 0:
                return 0
            if constructor >= 0xA0 and constructor != 0xA3 and constructor != 0xB3:
                content = content_of(position)
                store_i64(words + 32, content)
                store_i64(words + 40, position + size - content)
            elif constructor >= 0xA0:
                return 0
        else:
            size = section_size(position, end)
            if size == 0 or code == 0x76:
                return 0
            if code == 0x75:
                if constructor != 0xA0 and constructor != 0xB0:
                    return 0
                content = content_of(position)
                store_i64(words + 32, content)
                store_i64(words + 40, position + size - content)
            elif code == 0x70 or code == 0x73:
                if constructor != 0x45 and constructor != 0xC0 and constructor != 0xD0:
                    return 0
                store_i64(words + (0 if code == 0x70 else 16), position)
            else:
                if constructor != 0xC1 and constructor != 0xD1:
                    return 0
                if code == 0x72:
                    store_i64(words + 8, position)
                elif code == 0x74:
                    store_i64(words + 24, position)
        position += size
    if previous == 0:
        return 0
    store_i64(words + 56, 1)
    return 1


@kernel("void(int64, int64, int64, int64, int64)")
def walk(data: int, starts: int, lengths: int, rows: int, sections: int) -> None:
    """Fill the table of sections of all rows."""
    for row in range(rows):
        start = data + load_i64(starts + 8 * row)
        walk_message(start, load_i64(lengths + 8 * row), sections + 8 * SECTION_WORDS * row)


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def bodies(sections: int, rows: int, offsets: int, valid: int, undecided: int, target: int) -> int:
    """First pass (`target` 0): offsets, validity, undecided rows. Second: the bytes. Gives the bytes used."""
    used = 0
    for row in range(rows):
        words = sections + 8 * SECTION_WORDS * row
        present = 0
        if load_i64(words + 56) == 0:
            store_u8(undecided + row, 1)
        elif load_i64(words + 32) != 0:
            present = 1
            length = load_i64(words + 40)
            if target != 0:
                copy_bytes(target + used, load_i64(words + 32), length)
            used += length
            if used > 0x7FFFFFFF:
                return used
        store_u8(valid + row, present)
        store_i32(offsets + 4 * row + 4, used)
    return used


@helper
def write_uuid(target: int, source: int) -> None:
    """The canonical 36 characters of sixteen bytes."""
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            store_u8(target, 0x2D)
            target += 1
        target = write_hex(target, load_u8(source + index))


@inlined
def write_hex(target: int, byte: int) -> int:
    """Two hexadecimal digits; gives the place behind them."""
    high = byte >> 4
    low = byte & 15
    store_u8(target, high + (0x30 if high < 10 else 0x57))
    store_u8(target + 1, low + (0x30 if low < 10 else 0x57))
    return target + 2


@inlined
def decimal_digits(value: int) -> int:
    """Number of decimal digits of a value that is not negative."""
    digits = 1
    while value >= 10:
        value //= 10
        digits += 1
    return digits


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
def store_text(descriptor: int, row: int, position: int, size: int, constructor: int) -> None:
    """Append the text of an id, string, symbol or binary to its column; in the first pass count only."""
    used = load_i64(descriptor + 56)
    target = load_i64(descriptor + 24)
    length = 0
    if constructor == 0x98:
        length = 36
        if target != 0:
            write_uuid(target + used, position + 1)
    elif constructor == 0x44 or constructor == 0x53 or constructor == 0x80:
        value = unsigned_value(position)
        length = decimal_digits(value)
        if target != 0:
            for index in range(length):
                store_u8(target + used + length - 1 - index, 0x30 + value % 10)
                value //= 10
    elif constructor == 0x73:
        code = load_be_u32(position + 1)
        length = 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
        if target != 0:
            write_character(target + used, code, length)
    else:
        content = content_of(position)
        length = position + size - content
        hexadecimal = load_i64(descriptor) == T_ID and (constructor == 0xA0 or constructor == 0xB0)
        if target != 0:
            if hexadecimal:
                place = target + used
                for index in range(length):
                    place = write_hex(place, load_u8(content + index))
            else:
                copy_bytes(target + used, content, length)
        if hexadecimal:
            length *= 2
    store_i64(descriptor + 56, used + length)
    store_u8(load_i64(descriptor + 16) + row, 1)


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
def store_word(descriptor: int, row: int, value: int, validity: int) -> int:
    """Put a value of fixed width into its column."""
    store_i64(load_i64(descriptor + 8) + 8 * row, value)
    store_u8(load_i64(descriptor + 16) + row, validity)
    return 1


@helper
def store_number(descriptor: int, row: int, position: int, constructor: int, target: int) -> int:
    """Put an AMQP number into a column of numbers when it fits without loss; 0 = it is of another kind (null)."""
    number = 0.0
    value = 0
    whole = 1
    large = 0
    if constructor == 0x72:
        number = load_be_f32(position + 1)
        whole = 0
    elif constructor == 0x82:
        if target == T_DOUBLE:
            return store_word(descriptor, row, load_be_i64(position + 1), 1)
        return 0
    elif constructor == 0x54 or constructor == 0x55 or constructor == 0x51:
        value = load_i8(position + 1)
    elif constructor == 0x61:
        value = load_be_i16(position + 1)
    elif constructor == 0x71:
        value = load_be_i32(position + 1)
    elif constructor == 0x81:
        value = load_be_i64(position + 1)
    elif (
        constructor == 0x50
        or constructor == 0x60
        or constructor == 0x43
        or constructor == 0x52
        or constructor == 0x70
        or constructor == 0x44
        or constructor == 0x53
        or constructor == 0x80
    ):
        value = unsigned_value(position)
        large = 1 if value < 0 else 0
    else:
        return 0
    if target == T_DOUBLE or target == T_FLOAT:
        if whole:
            limit = 9007199254740992 if target == T_DOUBLE else 16777216
            if large or value > limit or value < -limit:
                return 0
            number = float(value)
        return store_word(descriptor, row, bits_of_float(number), 1)
    if whole == 0:
        return 0
    if target == T_INTEGER and large:
        return 0
    return store_word(descriptor, row, value, 2 if large else 1)


@helper
def store_field(descriptor: int, row: int, position: int, size: int) -> int:
    """Put one value of a list section into its column; 0 when the kernel does not know how (the row is undecided)."""
    target = load_i64(descriptor)
    constructor = load_u8(position)
    if constructor == 0x40:
        return 1
    if target == T_BOOLEAN:
        if constructor == 0x41 or constructor == 0x42:
            return store_word(descriptor, row, 1 if constructor == 0x41 else 0, 1)
        if constructor == 0x56:
            return store_word(descriptor, row, load_u8(position + 1), 1)
        return 0
    if target == T_UBYTE:
        if constructor == 0x50:
            return store_word(descriptor, row, load_u8(position + 1), 1)
        return 0
    if target == T_UINT:
        if constructor == 0x43 or constructor == 0x52 or constructor == 0x70:
            return store_word(descriptor, row, unsigned_value(position), 1)
        return 0
    if target == T_TIMESTAMP:
        if constructor != 0x83:
            return 0
        value = load_be_i64(position + 1)
        if value > HIGHEST_MILLISECOND or value < -HIGHEST_MILLISECOND:
            return 0
        return store_word(descriptor, row, value * 1000, 1)
    if target == T_STRING:
        if constructor != 0xA1 and constructor != 0xB1:
            return 0
    elif target == T_SYMBOL:
        if constructor != 0xA3 and constructor != 0xB3:
            return 0
    elif target == T_BINARY:
        if constructor != 0xA0 and constructor != 0xB0:
            return 0
    elif target == T_ID:
        if constructor == 0x80:
            if load_be_i64(position + 1) < 0:
                return 0
        elif constructor != 0x98 and constructor != 0x44 and constructor != 0x53:
            if constructor < 0xA0 or constructor == 0xA3 or constructor == 0xB3:
                return 0
    store_text(descriptor, row, position, size, constructor)
    return 1


@helper
def store_property(descriptor: int, row: int, position: int, size: int) -> int:
    """Put one application property into its declared column; a value of another kind leaves null. 0 = undecided."""
    target = load_i64(descriptor)
    constructor = load_u8(position)
    if constructor == 0x40:
        return 1
    if target == T_TEXT:
        if (
            constructor == 0xA1
            or constructor == 0xB1
            or constructor == 0xA3
            or constructor == 0xB3
            or constructor == 0x73
        ):
            store_text(descriptor, row, position, size, constructor)
    elif target == T_BINARY:
        if constructor == 0xA0 or constructor == 0xB0:
            store_text(descriptor, row, position, size, constructor)
    elif target == T_BOOLEAN:
        if constructor == 0x41 or constructor == 0x42:
            store_word(descriptor, row, 1 if constructor == 0x41 else 0, 1)
        elif constructor == 0x56:
            store_word(descriptor, row, load_u8(position + 1), 1)
    elif target == T_TIMESTAMP:
        if constructor == 0x83:
            return store_field(descriptor, row, position, size)
    else:
        store_number(descriptor, row, position, constructor, target)
    return 1


@inlined
def is_text_target(target: int) -> int:
    """1 for columns of variable width."""
    return 1 if T_ID <= target <= T_TEXT else 0


@helper
def finish_row(fields: int, count: int, row: int, keep: int, sections_row: int) -> None:
    """Write the offsets of a row; when it is not kept, take back what it stored."""
    for field in range(count):
        descriptor = fields + 8 * FIELD_WORDS * field
        text = is_text_target(load_i64(descriptor))
        if keep == 0:
            store_u8(load_i64(descriptor + 16) + row, 0)
            if text:
                store_i64(descriptor + 56, load_i32(load_i64(descriptor + 8) + 4 * row))
        if text:
            store_i32(load_i64(descriptor + 8) + 4 * row + 4, load_i64(descriptor + 56))


@helper
def too_much(fields: int, count: int) -> int:
    """1 when a column of texts has outgrown 32-bit offsets."""
    for field in range(count):
        if load_i64(fields + 8 * FIELD_WORDS * field + 56) > 0x7FFFFFFF:
            return 1
    return 0


@helper
def list_row(position: int, fields: int, count: int, row: int) -> int:
    """Store the fields of one header or properties list; 0 = undecided."""
    constructor = load_u8(position)
    items = 0
    end = position + 1
    if constructor == 0xC0:
        size = load_u8(position + 1)
        if size < 1:
            return 0
        items = load_u8(position + 2)
        end = position + 2 + size
        position += 3
    elif constructor == 0xD0:
        size = load_be_u32(position + 1)
        if size < 4:
            return 0
        items = load_be_u32(position + 5)
        end = position + 5 + size
        position += 9
    else:
        position += 1
    if items > count:
        return 0
    for field in range(items):
        size = checked_size(position, end)
        if size == 0 or store_field(fields + 8 * FIELD_WORDS * field, row, position, size) == 0:
            return 0
        position += size
    return 1 if position == end else 0


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def list_columns(sections: int, rows: int, word: int, fields: int, count: int, valid: int, undecided: int) -> int:
    """Columns of the header (`word` 0) or properties (`word` 2) list; run once to measure, once to copy texts."""
    for row in range(rows):
        words = sections + 8 * SECTION_WORDS * row
        keep = 1
        present = 0
        if load_i64(words + 56) == 0:
            store_u8(undecided + row, 1)
        elif load_i64(words + 8 * word) != 0:
            present = 1
            keep = list_row(load_i64(words + 8 * word), fields, count, row)
            if keep == 0:
                present = 0
                store_u8(undecided + row, 1)
        store_u8(valid + row, present)
        finish_row(fields, count, row, keep, words)
        if too_much(fields, count):
            return 1
    return 0


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


@inlined
def masked(word: int, length: int) -> int:
    """The first `length` bytes of eight in native order, the others zero."""
    if length >= 8:
        return word
    return word & ((1 << (8 * length)) - 1)


@helper
def same_bytes(left: int, right: int, length: int) -> int:
    """1 when two byte strings of one length are equal from their ninth byte on."""
    for index in range(8, length):
        if load_u8(left + index) != load_u8(right + index):
            return 0
    return 1


@helper
def map_row(position: int, fields: int, count: int, row: int, seen: int) -> int:
    """Store the declared properties of one map; 0 = undecided."""
    items = map_items(position)
    end = map_end(position)
    position = map_head(position)
    if position == 0 or items & 1:
        return 0
    for field in range(count):
        store_u8(seen + field, 0)
    expected = 0
    for _ in range(items >> 1):
        if position >= end:
            return 0
        constructor = load_u8(position)
        if constructor != 0xA1 and constructor != 0xB1:
            return 0
        size = checked_size(position, end)
        if size == 0:
            return 0
        key = content_of(position)
        length = position + size - key
        position += size
        size = checked_size(position, end)
        if size == 0:
            return 0
        prefix = masked(load_i64(key), length)
        for step in range(count):
            field = expected + step
            if field >= count:
                field -= count
            descriptor = fields + 8 * FIELD_WORDS * field
            if (
                load_i64(descriptor + 48) == prefix
                and load_i64(descriptor + 40) == length
                and (length <= 8 or same_bytes(load_i64(descriptor + 32), key, length))
            ):
                if load_u8(seen + field):
                    return 0
                store_u8(seen + field, 1)
                if store_property(descriptor, row, position, size) == 0:
                    return 0
                expected = field + 1
                if expected == count:
                    expected = 0
                break
        position += size
    return 1 if position == end else 0


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def map_columns(sections: int, rows: int, fields: int, count: int, valid: int, undecided: int, seen: int) -> int:
    """Columns of declared application properties; run once to measure, once to copy texts. 1 = more than 2 GiB of text."""
    for row in range(rows):
        words = sections + 8 * SECTION_WORDS * row
        keep = 1
        present = 0
        if load_i64(words + 56) == 0:
            store_u8(undecided + row, 1)
        elif load_i64(words + 24) != 0:
            present = 1
            keep = map_row(load_i64(words + 24), fields, count, row, seen)
            if keep == 0:
                present = 0
                store_u8(undecided + row, 1)
        store_u8(valid + row, present)
        finish_row(fields, count, row, keep, words)
        if too_much(fields, count):
            return 1
    return 0


MAX_ENTRIES = 255
ENTRY_WORDS = 5
"""Key address, key length, first eight bytes of the key as a sortable word, address of the value, size as Variant."""


@helper
def sort_word(address: int, length: int) -> int:
    """The first eight bytes, zeros behind the last, as a signed integer that sorts as the bytes do."""
    word = load_be_i64(address)
    if length < 8:
        if length == 0:
            word = 0
        else:
            word = word >> (64 - 8 * length) << (64 - 8 * length)
    return word ^ MINIMUM_INTEGER


@helper
def compare_keys(left: int, right: int) -> int:
    """Sign of the order by bytes of two entries' keys."""
    left_word = load_i64(left + 16)
    right_word = load_i64(right + 16)
    if left_word != right_word:
        return -1 if left_word < right_word else 1
    left_length = load_i64(left + 8)
    right_length = load_i64(right + 8)
    left_key = load_i64(left)
    right_key = load_i64(right)
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


@helper
def store_little(target: int, value: int, width: int) -> int:
    """A little-endian integer of 1, 2, 3, 4 or 8 bytes; gives the place behind it."""
    for _ in range(width):
        store_u8(target, value & 0xFF)
        value >>= 8
        target += 1
    return target


@helper
def write_variant(target: int, position: int, end: int) -> int:
    """Write a scalar whose `variant_size` is known; `end` is that of the scalar. Gives the place behind it."""
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
        entry = entries + 8 * ENTRY_WORDS * index
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
        store_i64(entry, key)
        store_i64(entry + 8, length)
        store_i64(entry + 16, sort_word(key, length))
        position += size
        size = checked_size(position, end)
        if size == 0:
            return -1
        store_i64(entry + 24, position)
        store_i64(entry + 32, variant_size(position, size))
        if load_i64(entry + 32) == 0:
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
            store_i64(order + 8 * index, entries + 8 * ENTRY_WORDS * index)
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

    `output` addresses: value bytes, capacity, used; metadata bytes, capacity, used; value offsets, metadata offsets,
    validity, undecided. `scratch` holds `MAX_ENTRIES` * (`ENTRY_WORDS` + 1) words.
    """
    value_target = load_i64(output)
    value_capacity = load_i64(output + 8)
    value_used = load_i64(output + 16)
    metadata_target = load_i64(output + 24)
    metadata_capacity = load_i64(output + 32)
    metadata_used = load_i64(output + 40)
    value_offsets = load_i64(output + 48)
    metadata_offsets = load_i64(output + 56)
    valid = load_i64(output + 64)
    undecided = load_i64(output + 72)
    order = scratch + 8 * ENTRY_WORDS * MAX_ENTRIES
    previous = -1
    row = first_row
    while row < rows:
        words = sections + 8 * SECTION_WORDS * row
        position = load_i64(words + 8 * word)
        count = -1
        if load_i64(words + 56) != 0 and position != 0:
            count = gather_entries(position, scratch)
            if count >= 0 and sort_entries(scratch, order, count, 1 if count != previous else 0) == 0:
                count = -1
                previous = -1
            elif count >= 0:
                previous = count
        if count < 0:
            store_u8(valid + row, 0)
            store_u8(undecided + row, 0 if load_i64(words + 56) != 0 and position == 0 else 1)
        else:
            data_size = 0
            key_size = 0
            for index in range(count):
                entry = load_i64(order + 8 * index)
                data_size += load_i64(entry + 32)
                key_size += load_i64(entry + 8)
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
                length = load_i64(entry + 8)
                copy_bytes(key_data, load_i64(entry), length)
                key_data += length
                source = load_i64(entry + 24)
                data = write_variant(data, source, source + value_size(source, load_i64(words + 48)))
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
    store_i64(output + 16, value_used)
    store_i64(output + 40, metadata_used)
    return row


@kernel("void(int64, int64, int64, int64, int64)")
def gather(data: int, starts: int, lengths: int, rows: int, target: int) -> None:
    """Copy the messages one behind the other."""
    for row in range(rows):
        length = load_i64(lengths + 8 * row)
        copy_bytes(target, data + load_i64(starts + 8 * row), length)
        target += length
