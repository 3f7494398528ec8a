"""The kernel of edits: changes fields of encoded messages, one copy of each message after the other.

A program computes the new values into registers, with the walk and the operators of filters. Then each section with
edits is written anew, and everything between is copied. What is written equals `headgate.message.edits` byte for byte:
elements keep their encoding, new values and the sizes of sections take their smallest.

Functions that write return the address behind what they wrote, or less than 0: minus the status of the row.
"""

from __future__ import annotations

from headgate.evaluate.edits import layout
from headgate.evaluate.kernel import decide
from headgate.evaluate.layout import (
    BINARY,
    BOOLEAN,
    BYTES,
    CODE_EXACT,
    ERROR,
    FIRST_KNOWN,
    FLOAT,
    INTEGER,
    KINDS,
    LARGE,
    NO_KEY,
    ODD,
    OPEN,
    REGISTER,
    REGISTER_BYTES,
    SCRATCH_REGISTERS,
    TIME_SPAN,
    TIMESTAMP,
    TRUE,
    UNDECIDED,
    UUID,
)
from headgate.evaluate.values.kernel import as_float, equal_text, set_register, set_text
from headgate.evaluate.values.servicebus.kernel import write_text
from headgate.evaluate.walk.kernel import (
    APPLICATION_PROPERTIES_CODE,
    FIRST_BODY_CODE,
    descriptor,
    is_list_code,
    is_outside,
    section,
)
from headgate.evaluate.walk.values.kernel import skip, skip_rare
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    bits_of_float,
    copy_bytes,
    kept_apart,
    load_be_u16,
    load_be_u32,
    load_i64,
    load_u8,
    load_u32,
    prefetch,
    store_be_i64,
    store_be_u16,
    store_be_u32,
    store_i32,
    store_i64,
    store_u8,
)

PREFETCH_MESSAGES = 8
TICKS_PER_MS = 10_000
MOST_MILLISECONDS = 0xFFFF_FFFF
TIME_SPAN_HEAD_BYTES = 25
NULL_CONSTRUCTOR = 0x40
EMPTY_LIST = 0x45
SHORT_LIST = 0xC0
SHORT_MAP = 0xC1
WIDE = 0x10
LONGEST_HEAD = 9
SCRATCH_BYTES = SCRATCH_REGISTERS * REGISTER_BYTES - 8
KEY_STATE = REGISTER_BYTES


# -- what is written ---------------------------------------------------------------------------------------------------


@inlined
def _type_of_kind(kind: int) -> int:
    """The type of the result of an expression."""
    if kind == INTEGER:
        return layout.TYPE_LONG
    if kind == BYTES:
        return layout.TYPE_STRING
    if kind == FLOAT:
        return layout.TYPE_DOUBLE
    if kind == BOOLEAN:
        return layout.TYPE_BOOLEAN
    if kind == TIMESTAMP:
        return layout.TYPE_TIMESTAMP
    if kind == UUID:
        return layout.TYPE_UUID
    if kind == BINARY:
        return layout.TYPE_BINARY
    if kind == TIME_SPAN:
        return layout.TYPE_TIME_SPAN
    return layout.TYPE_ULONG if kind == LARGE else layout.TYPE_OTHER


@helper
def _encoded_value(slot: int, key_length: int, pool: int) -> int:
    """The address of an application property's value, whose key was found; 0 where equal keys leave it open.

    The slot tells where the first of equal keys lies; it may hold the value of a later one that filters can use.
    """
    address = load_i64(slot + REGISTER_BYTES + REGISTER.payload) + key_length
    if load_i64(slot) == OPEN:
        return address
    constructor = load_u8(address)
    if load_u8(pool + KINDS + constructor) == OPEN:
        return 0
    if constructor == 0x82 and load_be_u16(address + 1) & 0x7FF0 == 0x7FF0:
        return 0
    if constructor == 0x72 and load_be_u16(address + 1) & 0x7F80 == 0x7F80:
        return 0
    return address


@helper
def _prepare_system(edit: int, state: int, value: int, registers: int) -> int:
    """As `_prepare`, for the value of a system property."""
    kept_apart()
    how = load_i64(edit + layout.HOW)
    kind = load_i64(value)
    payload = load_i64(value + REGISTER.payload)
    if kind < FIRST_KNOWN:
        store_i64(state, layout.UNSET)
        return 0
    if how == layout.HOW_SYSTEM_MILLISECONDS:
        if kind != TIME_SPAN or payload <= 0:
            return -UNDECIDED
        set_register(state, layout.TYPE_UINT, min(max(payload // TICKS_PER_MS, 1), MOST_MILLISECONDS))
        return 0
    if how == layout.HOW_SYSTEM_DATE_TIME:
        if kind != TIMESTAMP:
            return -UNDECIDED
        set_register(state, layout.TYPE_TIMESTAMP, payload)
        return 0
    length = load_i64(value + REGISTER.length)
    if kind != BYTES:
        payload = registers + load_i64(edit + layout.SCRATCH)
        length = write_text(payload, SCRATCH_BYTES, value) - payload
    if length < 0 or length > load_i64(edit + layout.LONGEST_TEXT):
        return -UNDECIDED
    kind = layout.TYPE_STRING
    if how == layout.HOW_SYSTEM_SYMBOL:
        kind = layout.TYPE_SYMBOL
        for place in range(length):
            if load_u8(payload + place) >= 0x80:
                return -UNDECIDED
    set_text(state, kind, payload, length)
    return length


@helper
def _prepare(edit: int, edits: int, registers: int, pool: int) -> int:
    """Find the key that an edit changes and the value that it writes, into its state: the bytes of its text, or < 0."""
    state = registers + load_i64(edit + layout.STATE)
    slot = load_i64(edit + layout.SLOT)
    key_length = load_i64(edit + layout.KEY_LENGTH)
    existing = layout.UNSET
    if slot < 0:
        key = pool + load_i64(edit + layout.KEY) + load_i64(edit + layout.KEY_BYTES) - key_length
        set_text(state + KEY_STATE, 0, key, key_length)
    else:
        slot += registers
        found = load_i64(slot + REGISTER_BYTES) != NO_KEY
        set_text(state + KEY_STATE, 0, load_i64(slot + REGISTER_BYTES + REGISTER.payload), key_length if found else -1)
        if found:
            address = _encoded_value(slot, key_length, pool)
            existing = layout.TYPE_OTHER
            if address != 0:
                existing = load_u8(pool + load_i64(edits + layout.TYPES) + load_u8(address))
    how = load_i64(edit + layout.HOW)
    if how == layout.HOW_REMOVED:
        store_i64(state, layout.UNSET)
        return 0
    value = registers + load_i64(edit + layout.VALUE)
    if how >= layout.FIRST_HOW_SYSTEM:
        return _prepare_system(edit, state, value, registers)
    kind = load_i64(value)
    payload = load_i64(value + REGISTER.payload)
    if kind < FIRST_KNOWN:
        store_i64(state, layout.TYPE_NULL)
        return 0
    if kind <= ODD:
        return -UNDECIDED
    given = _type_of_kind(kind)
    if how == layout.HOW_TYPED:
        given = load_i64(edit + layout.TYPE)
    source = 0
    if how == layout.HOW_COPIED:
        source = _encoded_value(value, load_i64(edit + layout.SOURCE_KEY_LENGTH), pool)
        if source == 0:
            return -UNDECIDED
        given = load_u8(pool + load_i64(edits + layout.TYPES) + load_u8(source))
    becomes = load_u8(pool + load_i64(edits + layout.CONVERSIONS) + given * layout.TYPE_COUNT + existing)
    if becomes == layout.NOT_CONVERTED:
        return -UNDECIDED
    if becomes == layout.TYPE_DOUBLE and kind != FLOAT:
        payload = bits_of_float(as_float(kind, payload))
    elif becomes == layout.TYPE_FLOAT:
        payload = source + 1
    length = load_i64(value + REGISTER.length)
    set_text(state, becomes, payload, length)
    return length if becomes >= layout.TYPE_BINARY and becomes <= layout.TYPE_SYMBOL else 0


@helper
def _write_integer(out: int, small: int, large: int, width: int, value: int, fits: bool) -> int:
    """An integer with the constructor of the form of one byte, or the one of four or eight."""
    if fits:
        store_u8(out, small)
        store_u8(out + 1, value)
        return out + 2
    store_u8(out, large)
    if width == 4:
        store_be_u32(out + 1, value)
    else:
        store_be_i64(out + 1, value)
    return out + 1 + width


@helper
def _write_value(out: int, state: int, edits: int, pool: int) -> int:
    """The smallest encoding of a value."""
    kept_apart()
    kind = load_i64(state)
    payload = load_i64(state + REGISTER.payload)
    if kind >= layout.TYPE_BINARY and kind <= layout.TYPE_SYMBOL:
        length = load_i64(state + REGISTER.length)
        constructor = 0xA0 if kind == layout.TYPE_BINARY else 0xA1 if kind == layout.TYPE_STRING else 0xA3
        if length <= 0xFF:
            store_u8(out, constructor)
            store_u8(out + 1, length)
            out += 2
        else:
            store_u8(out, constructor + WIDE)
            store_be_u32(out + 1, length)
            out += 5
        copy_bytes(out, payload, length)
        return out + length
    if kind == layout.TYPE_TIME_SPAN:
        copy_bytes(out, pool + load_i64(edits + layout.TIME_SPAN_HEAD), TIME_SPAN_HEAD_BYTES)
        out += TIME_SPAN_HEAD_BYTES
        kind = layout.TYPE_LONG
    if kind == layout.TYPE_LONG:
        return _write_integer(out, 0x55, 0x81, 8, payload, -128 <= payload <= 127)
    if kind == layout.TYPE_INT:
        return _write_integer(out, 0x54, 0x71, 4, payload, -128 <= payload <= 127)
    if kind == layout.TYPE_UINT or kind == layout.TYPE_ULONG:
        is_long = kind == layout.TYPE_ULONG
        if payload == 0:
            store_u8(out, 0x44 if is_long else 0x43)
            return out + 1
        fits = 0 <= payload <= 255
        return _write_integer(
            out, 0x53 if is_long else 0x52, 0x80 if is_long else 0x70, 8 if is_long else 4, payload, fits
        )
    if kind == layout.TYPE_DOUBLE or kind == layout.TYPE_TIMESTAMP:
        store_u8(out, 0x82 if kind == layout.TYPE_DOUBLE else 0x83)
        store_be_i64(out + 1, payload)
        return out + 9
    if kind == layout.TYPE_UBYTE or kind == layout.TYPE_BYTE:
        store_u8(out, 0x50 if kind == layout.TYPE_UBYTE else 0x51)
        store_u8(out + 1, payload)
        return out + 2
    if kind == layout.TYPE_USHORT or kind == layout.TYPE_SHORT:
        store_u8(out, 0x60 if kind == layout.TYPE_USHORT else 0x61)
        store_be_u16(out + 1, payload)
        return out + 3
    if kind == layout.TYPE_FLOAT:
        store_u8(out, 0x72)
        store_i32(out + 1, load_u32(payload))
        return out + 5
    if kind == layout.TYPE_UUID:
        store_u8(out, 0x98)
        copy_bytes(out + 1, payload, 16)
        return out + 17
    if kind == layout.TYPE_BOOLEAN:
        store_u8(out, 0x41 if payload != 0 else 0x42)
        return out + 1
    store_u8(out, NULL_CONSTRUCTOR)
    return out + 1 if kind == layout.TYPE_NULL else -UNDECIDED


@inlined
def _write_edit(out: int, edit: int, state: int, edits: int, pool: int) -> int:
    """The value of an edit; an error where it is too large."""
    behind = _write_value(out, state, edits, pool)
    if behind - out > load_i64(edit + layout.MOST_BYTES):
        return -ERROR
    return behind


@helper
def _write_head(out: int, end: int, count: int, short: int) -> int:
    """Put constructor, size and count before elements that were written `LONGEST_HEAD` behind `out` up to `end`."""
    elements = out + LONGEST_HEAD
    size = end - elements
    if count == 0 and short == SHORT_LIST:
        store_u8(out, EMPTY_LIST)
        return out + 1
    if size > 0xFE or count > 0xFF:
        store_u8(out, short + WIDE)
        store_be_u32(out + 1, size + 4)
        store_be_u32(out + 5, count)
        return end
    store_u8(out, short)
    store_u8(out + 1, size + 1)
    store_u8(out + 2, count)
    out += 3
    moved = 0
    while moved < size:
        store_i64(out + moved, load_i64(elements + moved))
        moved += 8
    return out + size


# -- sections ----------------------------------------------------------------------------------------------------------


@helper
def _write_list(
    out: int, position: int, stop: int, count: int, edit: int, left: int, edits: int, registers: int, pool: int
) -> int:
    """A list with other elements in it, without nulls at its end."""
    begin = out
    out += LONGEST_HEAD
    kept = out
    kept_count = 0
    number = 0
    while number < count or left > 0:
        written = out
        following = position
        if number < count:
            if position >= stop:
                return -UNDECIDED
            following = skip(position, stop, pool)
            if following > stop:
                return -UNDECIDED
        if left > 0 and load_i64(edit + layout.POSITION) == number:
            state = registers + load_i64(edit + layout.STATE)
            if load_i64(state) == layout.UNSET:
                store_u8(out, NULL_CONSTRUCTOR)
                out += 1
            else:
                out = _write_edit(out, edit, state, edits, pool)
                if out < 0:
                    return out
            edit += layout.EDIT_BYTES
            left -= 1
        elif number < count:
            copy_bytes(out, position, following - position)
            out += following - position
        else:
            store_u8(out, NULL_CONSTRUCTOR)
            out += 1
        number += 1
        position = following
        if load_u8(written) != NULL_CONSTRUCTOR:
            kept = out
            kept_count = number
    if position != stop:
        return -UNDECIDED
    return _write_head(begin, kept, kept_count, SHORT_LIST)


@inlined
def _edit_of(key: int, length: int, edit: int, left: int, registers: int) -> int:
    """The edit that changes a key; 0 if none does."""
    while left > 0:
        state = registers + load_i64(edit + layout.STATE) + KEY_STATE
        if length == load_i64(state + REGISTER.length) and equal_text(key, load_i64(state + REGISTER.payload), length):
            return edit
        edit += layout.EDIT_BYTES
        left -= 1
    return 0


@helper
def _write_map(
    out: int,
    position: int,
    stop: int,
    count: int,
    first: int,
    changes: int,
    takes_symbols: bool,
    edits: int,
    registers: int,
    pool: int,
) -> int:
    """A map with other values of keys, without keys that are taken out, and with new ones at its end."""
    begin = out
    out += LONGEST_HEAD
    if count & 1 != 0:
        return -UNDECIDED
    copied = position
    for _ in range(count >> 1):
        if position >= stop:
            return -UNDECIDED
        constructor = load_u8(position)
        length = load_u8(position + 1)
        key = position + 2
        if constructor == 0xA1 or constructor == 0xA3:
            value = key + length
        elif constructor == 0xB1 or constructor == 0xB3:
            length = load_be_u32(position + 1)
            key = position + 5
            value = key + length
        else:
            length = -2
            value = skip_rare(position, stop, pool)
        # Symbols are no keys of application properties for those that read them, but for those that change them.
        if value >= stop or (not takes_symbols and (constructor == 0xA3 or constructor == 0xB3)):
            return -UNDECIDED
        behind = skip(value, stop, pool)
        if behind > stop:
            return -UNDECIDED
        edit = _edit_of(key, length, first, changes, registers)
        if edit != 0:
            state = registers + load_i64(edit + layout.STATE)
            is_first = load_i64(state + KEY_STATE) == 0
            until = position
            if is_first and load_i64(state) != layout.UNSET and load_i64(edit + layout.AT_END) == 0:
                until = value
            copy_bytes(out, copied, until - copied)
            out += until - copied
            copied = behind
            if until == value:
                store_i64(state + KEY_STATE, 1)
                out = _write_edit(out, edit, state, edits, pool)
                if out < 0:
                    return out
            else:
                count -= 2
        position = behind
    if position != stop:
        return -UNDECIDED
    copy_bytes(out, copied, stop - copied)
    out += stop - copied
    for number in range(changes):
        edit = first + number * layout.EDIT_BYTES
        state = registers + load_i64(edit + layout.STATE)
        if load_i64(state) != layout.UNSET and load_i64(state + KEY_STATE) == 0:
            size = load_i64(edit + layout.KEY_BYTES)
            copy_bytes(out, pool + load_i64(edit + layout.KEY), size)
            out = _write_edit(out + size, edit, state, edits, pool)
            if out < 0:
                return out
            count += 2
    return _write_head(begin, out, count, SHORT_MAP)


@helper
def _write_section(
    out: int, elements: int, stop: int, count: int, group: int, edits: int, registers: int, pool: int
) -> int:
    """The value of a section with its changes."""
    kept_apart()
    code = load_i64(group + layout.SECTION)
    edit = edits + load_i64(group + layout.FIRST)
    changes = load_i64(group + layout.EDIT_COUNT)
    if is_list_code(code):
        return _write_list(out, elements, stop, count, edit, changes, edits, registers, pool)
    own = code == APPLICATION_PROPERTIES_CODE
    behind = _write_map(out, elements, stop, count, edit, changes, not own, edits, registers, pool)
    if own and behind - out > load_i64(edits + layout.MOST_PROPERTIES):
        return -UNDECIDED
    return behind


@helper
def _add_section(out: int, group: int, edits: int, registers: int, pool: int) -> int:
    """A section that the message has not; nothing if there is nothing in it."""
    store_u8(out, 0x00)
    store_u8(out + 1, 0x53)
    store_u8(out + 2, load_i64(group + layout.SECTION))
    behind = _write_section(out + 3, out, out, 0, group, edits, registers, pool)
    if behind < 0:
        return behind
    # An empty map has a count, an empty list a constructor only.
    is_list = is_list_code(load_i64(group + layout.SECTION))
    if behind - out == (4 if is_list else 6):
        return out
    return behind


@helper
def _write_message(start: int, end: int, edits: int, registers: int, pool: int, out: int) -> int:
    """The copy of a message with its changes; the framing of its sections was checked."""
    position = start
    copied = start
    group = edits + layout.GROUPS
    while True:
        code = FIRST_BODY_CODE
        value = position
        if position < end:
            code, value = descriptor(position, end)
        while load_i64(group + layout.SECTION) < min(code, FIRST_BODY_CODE):
            copy_bytes(out, copied, position - copied)
            out = _add_section(out + position - copied, group, edits, registers, pool)
            if out < 0:
                return out
            copied = position
            group += layout.GROUP_BYTES
        if code >= FIRST_BODY_CODE:
            copy_bytes(out, copied, end - copied)
            return out + end - copied
        elements, position, count = section(value, end, is_list_code(code))
        if load_i64(group + layout.SECTION) == code:
            copy_bytes(out, copied, value - copied)
            out = _write_section(out + value - copied, elements, position, count, group, edits, registers, pool)
            if out < 0:
                return out
            copied = position
            group += layout.GROUP_BYTES


@helper
def _prepare_all(edits: int, registers: int, pool: int) -> int:
    """Prepare all edits: the bytes of the texts that they write, or less than 0."""
    kept_apart()
    edit = edits + load_i64(edits + layout.EDITS)
    texts = 0
    for _ in range(load_i64(edits + layout.COUNT)):
        length = _prepare(edit, edits, registers, pool)
        if length < 0:
            return length
        texts += length
        edit += layout.EDIT_BYTES
    return texts


@kernel(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, "
    "int64)"
)
def change(
    data: int,
    data_bytes: int,
    starts: int,
    lengths: int,
    row: int,
    messages: int,
    which: int,
    programs: int,
    new_ids: int,
    first_new_ids: int,
    out: int,
    used: int,
    capacity: int,
    out_starts: int,
    out_lengths: int,
    statuses: int,
) -> int:
    """Write the changed copies of messages from `row` on behind the `used` bytes at `out`, and a status byte for each.

    `which` has the number of a program for each message, -1 for none; `programs` the addresses of their parts. Statuses
    are TRUE, ERROR or UNDECIDED; only TRUE has a copy. Gives `messages`; less, the first row for which `capacity` is
    too small; or -1 less the first row whose bytes are not within `data_bytes`. All but those, `row`, `messages` and
    `used` are addresses.
    """
    while row < messages:
        start = load_i64(starts + 8 * row)
        length = load_i64(lengths + 8 * row)
        if is_outside(start, length, data_bytes):
            return -1 - row
        if row < messages - PREFETCH_MESSAGES:
            ahead = data + load_i64(starts + 8 * (row + PREFETCH_MESSAGES))
            prefetch(ahead)
            prefetch(ahead + 64)
            prefetch(ahead + 128)
        written = 0
        status = UNDECIDED
        number = load_i64(which + 8 * row)
        if number >= 0:
            parts = programs + number * layout.PROGRAM_BYTES
            program = load_i64(parts + layout.WORDS)
            pool = load_i64(parts + layout.POOL)
            registers = load_i64(parts + layout.REGISTERS)
            edits = load_i64(parts + layout.EDIT_TABLE)
            ids = new_ids + 16 * load_i64(first_new_ids + 8 * row)
            register = registers + load_i64(edits + layout.NEW_ID_REGISTER)
            for _ in range(load_i64(edits + layout.NEW_IDS)):
                set_text(register, UUID, ids, 16)
                register += REGISTER_BYTES
                ids += 16
            start += data
            status = decide(start, start + length, program, load_i64(program + CODE_EXACT), registers, pool)
            if status == TRUE:
                texts = _prepare_all(edits, registers, pool)
                if texts < 0:
                    status = -texts
                elif length + texts + load_i64(edits + layout.ROOM) > capacity - used:
                    return row
                else:
                    behind = _write_message(start, start + length, edits, registers, pool, out + used)
                    written = behind - out - used
                    if behind < 0:
                        status = -behind
                        written = 0
                    elif written > load_i64(edits + layout.MOST_MESSAGE):
                        status = UNDECIDED
                        written = 0
        store_u8(statuses + row, status)
        store_i64(out_starts + 8 * row, used)
        store_i64(out_lengths + 8 * row, written)
        used += written
        row += 1
    return messages
