"""Kernels from encoded messages to the buffers of Arrow columns.

Each kernel is strict: anything it cannot read with certainty (a rare encoding, a nested value, bytes that fail a check)
makes the row *undecided* (`undecided[row] = 1`, column value null), and the reference decides it. Nothing outside a
message is used; eight-byte loads may touch `SLACK_BYTES` behind it. The blocks of words are declared in `layout.py`.
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
    load_be_u32,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    prefetch,
    store_i32,
    store_i64,
    store_u8,
)
from headgate.message.arrow.decode.layout import ASKED, ASKED_BYTES, FIELD, FIELD_BYTES, SECTIONS, SECTIONS_BYTES
from headgate.message.arrow.scalars.kernel import (
    checked_size,
    common_size,
    content_of,
    decimal_digits,
    null_run,
    unsigned_value,
    value_size,
    write_character,
    write_hex,
    write_uuid,
)

ROOM_BYTES = 40
AHEAD_BYTES = 1024
"""How far ahead of a message its memory is prefetched."""

T_NOT_ASKED = -1
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


@inlined
def element_size(position: int, end: int) -> int:
    """Bytes of any value that is not described; 0 when it does not end before `end`. Its inside is not looked at."""
    size = value_size(position, end)
    if size == 0 and position < end:
        constructor = load_u8(position)
        if constructor == 0x45:
            size = 1
        elif constructor == 0x74:
            size = 5
        elif constructor == 0x84:
            size = 9
        elif constructor == 0x94:
            size = 17
        elif constructor == 0xC0 or constructor == 0xC1 or constructor == 0xE0:
            if position <= end - 2:
                size = 2 + load_u8(position + 1)
        elif (constructor == 0xD0 or constructor == 0xD1 or constructor == 0xF0) and position <= end - 5:
            size = 5 + load_be_u32(position + 1)
        if size > end - position:
            return 0
    return size


@helper
def check_elements(position: int, end: int, is_map: int, sizes: int) -> int:
    """1 when the elements of a list or map section end exactly where it does (docs/design/message-validity.md)."""
    constructor = load_u8(position)
    if constructor == 0x45:
        return 1
    if constructor < 0xD0:
        if position > end - 3:
            return 0
        count = load_u8(position + 2)
        position += 3
    else:
        if position > end - 9:
            return 0
        count = load_be_u32(position + 5)
        position += 9
    if is_map and count & 1:
        return 0
    while count > 0:
        if is_map == 0:
            nulls = null_run(position, count)
            position += nulls
            count -= nulls
            if count == 0:
                break
        if position >= end:
            return 0
        size = common_size(position, sizes)
        if size == 0:
            size = element_size(position, end)
            if size == 0:
                return 0
        position += size
        count -= 1
    return 1 if position == end else 0


@helper
def walk_message(start: int, length: int, words: int, sizes: int) -> int:
    """Fill the section words of one message; 0 when undecided."""
    end = start + length
    for word in range(len(SECTIONS)):
        store_i64(words + 8 * word, 0)
    store_i64(words + SECTIONS.end, end)
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
                store_i64(words + SECTIONS.body, content)
                store_i64(words + SECTIONS.body_length, position + size - content)
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
                store_i64(words + SECTIONS.body, content)
                store_i64(words + SECTIONS.body_length, position + size - content)
            elif code == 0x70 or code == 0x73:
                if constructor != 0x45 and constructor != 0xC0 and constructor != 0xD0:
                    return 0
                if check_elements(position, position + size, 0, sizes) == 0:
                    return 0
                store_i64(words + (SECTIONS.header if code == 0x70 else SECTIONS.properties), position)
            else:
                if constructor != 0xC1 and constructor != 0xD1:
                    return 0
                if code == 0x72:
                    store_i64(words + SECTIONS.message_annotations, position)
                elif code == 0x74:
                    if check_elements(position, position + size, 1, sizes) == 0:
                        return 0
                    store_i64(words + SECTIONS.application_properties, position)
        position += size
    if previous == 0:
        return 0
    store_i64(words + SECTIONS.is_decided, 1)
    return 1


@kernel("void(int64, int64, int64, int64, int64, int64)")
def walk(data: int, starts: int, lengths: int, rows: int, sections: int, sizes: int) -> None:
    """Fill the table of sections of all rows; `sizes` is the address of `size_table()`."""
    for row in range(rows):
        start = data + load_i64(starts + 8 * row)
        walk_message(start, load_i64(lengths + 8 * row), sections + SECTIONS_BYTES * row, sizes)


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def bodies(sections: int, rows: int, offsets: int, valid: int, undecided: int, target: int) -> int:
    """First pass (`target` 0): offsets, validity, undecided rows. Second: the bytes. Gives the bytes used."""
    used = 0
    for row in range(rows):
        words = sections + SECTIONS_BYTES * row
        present = 0
        if load_i64(words + SECTIONS.is_decided) == 0:
            store_u8(undecided + row, 1)
        elif load_i64(words + SECTIONS.body) != 0:
            present = 1
            length = load_i64(words + SECTIONS.body_length)
            if target != 0:
                copy_bytes(target + used, load_i64(words + SECTIONS.body), length)
            used += length
            if used > 0x7FFFFFFF:
                return used
        store_u8(valid + row, present)
        store_i32(offsets + 4 * row + 4, used)
    return used


@helper
def write_text(target: int, place: int, position: int) -> int:
    """Write a remembered text for a column of that target; gives the place behind it."""
    constructor = load_u8(position)
    if constructor == 0x98:
        write_uuid(place, position + 1)
        return place + 36
    if constructor == 0x44 or constructor == 0x53 or constructor == 0x80:
        value = unsigned_value(position)
        length = decimal_digits(value)
        for index in range(length):
            store_u8(place + length - 1 - index, 0x30 + value % 10)
            value //= 10
        return place + length
    if constructor == 0x73:
        code = load_be_u32(position + 1)
        length = 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
        write_character(place, code, length)
        return place + length
    length = load_u8(position + 1) if constructor < 0xB0 else load_be_u32(position + 1)
    content = content_of(position)
    if target == T_ID and (constructor == 0xA0 or constructor == 0xB0):
        for index in range(length):
            place = write_hex(place, load_u8(content + index))
        return place
    copy_bytes(place, content, length)
    return place + length


@inlined
def store_text(descriptor: int, row: int, position: int) -> None:
    """Put the text of an id, string, symbol, binary or character into its column; the caller has checked the room."""
    used = load_i64(descriptor + FIELD.used)
    place = load_i64(descriptor + FIELD.text) + used
    constructor = load_u8(position)
    length = load_u8(position + 1)
    if (constructor == 0xA1 or constructor == 0xA3) and length <= 32:
        # Eight bytes at a time, behind its end into the slack: a call for a few bytes costs more.
        for done in range(0, length, 8):
            store_i64(place + done, load_i64(position + 2 + done))
        store_i64(descriptor + FIELD.used, used + length)
    else:
        behind = write_text(load_i64(descriptor + FIELD.target), place, position)
        store_i64(descriptor + FIELD.used, used + behind - place)
    store_u8(load_i64(descriptor + FIELD.validity) + row, 1)


@inlined
def store_word(descriptor: int, row: int, value: int, validity: int) -> int:
    """Put a value of fixed width into its column."""
    store_i64(load_i64(descriptor + FIELD.values) + 8 * row, value)
    store_u8(load_i64(descriptor + FIELD.validity) + row, validity)
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
    if target >= T_FLOAT and target <= T_DOUBLE:
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


@inlined
def is_id(position: int, constructor: int) -> int:
    """1 for the types of an id, but for a ulong above 2^63 - 1."""
    if constructor == 0x80:
        return 1 if load_be_i64(position + 1) >= 0 else 0
    if constructor == 0x98 or constructor == 0x44 or constructor == 0x53:
        return 1
    return 1 if constructor >= 0xA0 and constructor != 0xA3 and constructor != 0xB3 else 0


@helper
def store_field(descriptor: int, row: int, position: int) -> int:
    """Put one value of a list section into its column; 0 when the kernel does not know how (the row is undecided)."""
    target = load_i64(descriptor + FIELD.target)
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
    elif target == T_ID and is_id(position, constructor) == 0:
        return 0
    store_text(descriptor, row, position)
    return 1


@helper
def store_property(descriptor: int, row: int, position: int) -> int:
    """Put one application property into its declared column; a value of another kind leaves null and is noted.

    0 = undecided.
    """
    target = load_i64(descriptor + FIELD.target)
    constructor = load_u8(position)
    fits = 0
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
            store_text(descriptor, row, position)
            fits = 1
    elif target == T_BINARY:
        if constructor == 0xA0 or constructor == 0xB0:
            store_text(descriptor, row, position)
            fits = 1
    elif target == T_BOOLEAN:
        if constructor == 0x41 or constructor == 0x42:
            fits = store_word(descriptor, row, 1 if constructor == 0x41 else 0, 1)
        elif constructor == 0x56:
            fits = store_word(descriptor, row, load_u8(position + 1), 1)
    elif target == T_TIMESTAMP:
        if constructor == 0x83:
            return store_field(descriptor, row, position)
    else:
        fits = store_number(descriptor, row, position, constructor, target)
    if fits == 0:
        store_i64(load_i64(descriptor + FIELD.mismatched) + 8 * row, position)
    return 1


@inlined
def plain_size(position: int, end: int, sizes: int) -> int:
    """Like `value_size`, faster for common encodings."""
    size = common_size(position, sizes)
    if size == 0:
        return value_size(position, end)
    return size if size <= end - position else 0


@inlined
def read_list(position: int, end: int, items: int, fields: int, count: int, row: int, sizes: int) -> int:
    """Store the requested fields of a header or properties list, whose elements are at `position`; 0 = undecided."""
    if items > count:
        return 0
    descriptor = fields
    while items > 0:
        nulls = null_run(position, items)
        position += nulls
        items -= nulls
        descriptor += FIELD_BYTES * nulls
        if items == 0:
            break
        if position >= end:
            return 0
        if load_i64(descriptor + FIELD.target) < 0:
            size = plain_size(position, end, sizes)
        else:
            size = checked_size(position, end)
            if size != 0 and store_field(descriptor, row, position) == 0:
                return 0
        if size == 0:
            return 0
        position += size
        items -= 1
        descriptor += FIELD_BYTES
    return 1 if position == end else 0


@helper
def same_bytes(left: int, right: int, length: int) -> int:
    """1 when two byte strings of one length are equal from their ninth byte on."""
    for index in range(8, length):
        if load_u8(left + index) != load_u8(right + index):
            return 0
    return 1


@inlined
def read_map(
    position: int, end: int, items: int, fields: int, by_length: int, key_kind: int, row: int, sizes: int
) -> int:
    """Store the requested values of a map; all keys must have one short constructor or its long form; 0 = undecided."""
    if items & 1:
        return 0
    while items > 0:
        items -= 2
        if position >= end:
            return 0
        constructor = load_u8(position)
        if constructor == key_kind:
            length = load_u8(position + 1)
            key = position + 2
        elif constructor == key_kind + 0x10:
            length = load_be_u32(position + 1)
            key = position + 5
        else:
            return 0
        position = key + length
        if position >= end:
            return 0
        size = plain_size(position, end, sizes)
        if size == 0:
            return 0
        candidate = load_i32(by_length + 4 * min(length, 255))
        while candidate != 0:
            descriptor = fields + FIELD_BYTES * (candidate - 1)
            if (
                (load_i64(key) ^ load_i64(descriptor + FIELD.key_prefix)) & load_i64(descriptor + FIELD.key_mask) == 0
                and length == load_i64(descriptor + FIELD.key_length)
                and (length <= 8 or same_bytes(load_i64(descriptor + FIELD.key), key, length))
            ):
                # Of equal keys the first counts.
                if load_i64(descriptor + FIELD.last_row) != row:
                    store_i64(descriptor + FIELD.last_row, row)
                    if checked_size(position, end) == 0 or store_property(descriptor, row, position) == 0:
                        return 0
                break
            candidate = load_i64(descriptor + FIELD.next)
        position += size
    return 1 if position == end else 0


@inlined
def read_message(position: int, end: int, asked: int, row: int, sizes: int) -> int:
    """Store the requested fields of one message; 0 = undecided. Sections without requested fields are skipped."""
    previous = 0
    while position < end:
        head = load_u32(position)
        code = (head >> 16) & 0xFF
        if position > end - 4 or head & 0xFFFF != 0x5300 or code <= previous or code < 0x70 or code > 0x78:
            return 0
        if code >= 0x75:
            return 1
        previous = code
        position += 3
        size = section_size(position, end)
        constructor = head >> 24
        is_list = code == 0x70 or code == 0x73
        items = 0
        elements = position + 1
        if constructor == (0xC0 if is_list else 0xC1):
            if size < 3:
                return 0
            items = load_u8(position + 2)
            elements = position + 3
        elif constructor == (0xD0 if is_list else 0xD1):
            if size < 9:
                return 0
            items = load_be_u32(position + 5)
            elements = position + 9
        elif is_list == 0 or constructor != 0x45:
            return 0
        of_section = asked + ASKED_BYTES * (code - 0x70)
        fields = load_i64(of_section + ASKED.fields)
        position += size
        if fields != 0:
            store_u8(load_i64(of_section + ASKED.present) + row, 1)
            if is_list:
                if (
                    read_list(elements, position, items, fields, load_i64(of_section + ASKED.fields_length), row, sizes)
                    == 0
                ):
                    return 0
            else:
                key_kind = 0xA1 if code == 0x74 else 0xA3
                if (
                    read_map(
                        elements, position, items, fields, load_i64(of_section + ASKED.by_length), key_kind, row, sizes
                    )
                    == 0
                ):
                    return 0
    return 1


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def fields(
    data: int,
    starts: int,
    lengths: int,
    row: int,
    rows: int,
    asked: int,
    texts: int,
    text_count: int,
    undecided: int,
    sizes: int,
) -> int:
    """Fields of the messages from `row` on, into the columns of their descriptors.

    `texts` has the addresses of the descriptors of texts, `sizes` is the address of `size_table()`. Gives the first row
    without enough room for its texts (a message needs twice its length and `ROOM_BYTES`), `rows` at the end. Values of
    an undecided row, except texts, are replaced.
    """
    room = -1
    while row < rows:
        start = data + load_i64(starts + 8 * row)
        length = load_i64(lengths + 8 * row)
        if room < 2 * length + ROOM_BYTES:
            room = 0x7FFFFFFFFFFFFFFF
            for number in range(text_count):
                descriptor = load_i64(texts + 8 * number)
                room = min(room, load_i64(descriptor + FIELD.text_capacity) - load_i64(descriptor + FIELD.used))
            if room < 2 * length + ROOM_BYTES:
                return row
        prefetch(start + AHEAD_BYTES)
        prefetch(start + AHEAD_BYTES + 64)
        prefetch(start + AHEAD_BYTES + 128)
        prefetch(start + AHEAD_BYTES + 192)
        decided = read_message(start, start + length, asked, row, sizes)
        if decided == 0:
            store_u8(undecided + row, 1)
        for number in range(text_count):
            descriptor = load_i64(texts + 8 * number)
            offsets = load_i64(descriptor + FIELD.values)
            if decided == 0:
                store_i64(descriptor + FIELD.used, load_i32(offsets + 4 * row))
                store_u8(load_i64(descriptor + FIELD.validity) + row, 0)
            store_i32(offsets + 4 * row + 4, load_i64(descriptor + FIELD.used))
        room -= 2 * length + ROOM_BYTES
        row += 1
    return row


@kernel("void(int64, int64, int64, int64, int64)")
def gather(data: int, starts: int, lengths: int, rows: int, target: int) -> None:
    """Copy the messages in a row."""
    for row in range(rows):
        length = load_i64(lengths + 8 * row)
        copy_bytes(target, data + load_i64(starts + 8 * row), length)
        target += length
