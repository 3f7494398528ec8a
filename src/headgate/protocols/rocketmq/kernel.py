"""Compiled conversion of stored messages: to messages of RocketMQ's clients, to answers to pulls, and from sends.

What the kernel is not sure of it leaves open, and Python looks at that alone (`messages.py`, `stored_messages.py`):
values of types that are written with more than digits, keys that come twice, texts with control characters or bytes
that are not UTF-8, hosts that are no IPv4 address. Layouts: the heads of those modules.

A message that was read is a block of scratch: a `MessageBlock`, then `EntryBlock`s: system properties first,
those of users from `USER_ENTRIES` on. Texts of numbers are written behind them.
"""

from __future__ import annotations

from headgate.kernels.checksum import crc32
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    copy_bytes,
    load_be_i32,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i8,
    load_i64,
    load_u8,
    store_be_i64,
    store_be_u16,
    store_be_u32,
    store_i64,
    store_u8,
)
from headgate.message.lookup.elements.kernel import behind_element
from headgate.protocols.amqp10.sections.kernel import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    DATA,
    FAIL,
    HEADER,
    PROPERTIES,
    behind_descriptor,
    compound_count,
    compound_head,
    compound_stop,
    descriptor,
)
from headgate.protocols.rocketmq.layout import ENTRY, MESSAGE, STORED, TABLES

DONE, UNDECIDED = 0, 1
"""Status of a row: it is written, or Python has to look at it."""

ENTRIES, USER_ENTRIES, DIGITS, SCRATCH_BYTES = 128, 2176, 10368, 18688
"""Places in scratch: 64 entries of 32 bytes, 256 entries, 320 numbers of at most 26 bytes."""

_MAX_USERS = 256
_MAX_TEXT_BYTES = 32767
_PREFIX_BYTES = 15
_HOST_ROW, _FLAG_ROW = 60, 61
"""Rows, in the table of names, of the two annotations that are no properties."""

TAG_ROW, KEYS_ROW, ID_ROW, RECONSUME_ROW = 0, 1, 2, 3
"""Rows of the table of system names that mean something here; the others follow."""

_MAX_RETRY_DIGITS = 9
_SHARDING_BYTES = 13
_NONE = 0


@helper
def name_hash(position: int, length: int) -> int:
    """The polynomial over the bytes of a name, 31 bits."""
    found = 0
    for index in range(length):
        found = (found * 31 + load_u8(position + index)) & 0x7FFFFFFF
    return found


@helper
def _is_same(position: int, other: int, length: int) -> int:
    for index in range(length):
        if load_u8(position + index) != load_u8(other + index):
            return 0
    return 1


@helper
def _system_row(position: int, length: int, hashed: int, names: int, slots: int) -> int:
    """The row of a system name, rows of 32 bytes with the length in front; or a failure.

    `slots` are a multiplier and 512 numbers of rows.
    """
    row: int = load_i64(slots + 8 + ((((hashed * load_i64(slots)) >> 20) & 511) << 3))
    if row == FAIL or load_u8(names + (row << 5)) != length:
        return FAIL
    return row if _is_same(position, names + (row << 5) + 1, length) == 1 else FAIL


@helper
def _is_clean(position: int, length: int) -> int:
    """1 if bytes are UTF-8 without control characters up to U+0003."""
    stop = position + length
    while position < stop:
        # All eight bytes at once, if each is ASCII and above 3: six bits of each, which added to 63 give 64.
        if stop - position >= 8:
            word: int = load_i64(position)
            bits: int = (word >> 2) & 0x3F3F3F3F3F3F3F3F
            if (
                word & -0x7F7F7F7F7F7F7F80 == 0
                and (bits + 0x3F3F3F3F3F3F3F3F) & 0x4040404040404040 == 0x4040404040404040
            ):
                position += 8
                continue
        first: int = load_u8(position)
        if first < 0x80:
            if first < 4:
                return 0
            position += 1
            continue
        more = 0
        low = 0x80
        high = 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        if more == 0 or stop - position <= more:
            return 0
        if not low <= load_u8(position + 1) <= high:
            return 0
        for index in range(2, more + 1):
            if load_u8(position + index) & 0xC0 != 0x80:
                return 0
        position += more + 1
    return 1


@helper
def _write_number(scratch: int, entry: int, value: int) -> None:
    """The decimal digits of a number above the smallest of 64 bits, as the value of an entry."""
    place: int = load_i64(scratch + MESSAGE.free)
    end = place + 20
    first = end
    rest = value if value >= 0 else -value
    while True:
        quotient = rest // 10
        first -= 1
        store_u8(first, 0x30 + rest - quotient * 10)
        rest = quotient
        if rest == 0:
            break
    if value < 0:
        first -= 1
        store_u8(first, 0x2D)
    store_i64(entry + ENTRY.value, first)
    store_i64(entry + ENTRY.value_length, end - first)
    store_i64(scratch + MESSAGE.free, end)


@helper
def _write_word(scratch: int, entry: int, is_true: int) -> None:
    place: int = load_i64(scratch + MESSAGE.free)
    if is_true == 1:
        store_be_u32(place, 0x74727565)
    else:
        store_be_u32(place, 0x66616C73)
        store_u8(place + 4, 0x65)
    store_i64(entry + ENTRY.value, place)
    store_i64(entry + ENTRY.value_length, 5 - is_true)
    store_i64(scratch + MESSAGE.free, place + 5)


@helper
def _read_value(position: int, behind: int, scratch: int, entry: int) -> int:
    """The text of a value goes to an entry; a failure where Python looks."""
    constructor: int = load_u8(position)
    store_i64(entry + ENTRY.value_length, _NONE)
    if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xB1 or constructor == 0xB3:
        begin = position + 2 if constructor < 0xB0 else position + 5
        if _is_clean(begin, behind - begin) == 0:
            return FAIL
        store_i64(entry + ENTRY.value, begin)
        store_i64(entry + ENTRY.value_length, behind - begin)
        return 0
    if constructor == 0x40 or constructor == 0x45 or constructor == 0x00 or constructor >= 0xC0:
        return 0
    if constructor == 0x41 or constructor == 0x42:
        _write_word(scratch, entry, 0x42 - constructor)
        return 0
    if constructor == 0x56:
        _write_word(scratch, entry, 1 if load_u8(position + 1) != 0 else 0)
        return 0
    number = 0
    if constructor == 0x43 or constructor == 0x44:
        number = 0
    elif constructor == 0x50 or constructor == 0x52 or constructor == 0x53:
        number = load_u8(position + 1)
    elif constructor == 0x51 or constructor == 0x54 or constructor == 0x55:
        number = load_i8(position + 1)
    elif constructor == 0x60:
        number = load_be_u16(position + 1)
    elif constructor == 0x61:
        number = load_be_u16(position + 1)
        if number >= 0x8000:
            number -= 0x10000
    elif constructor == 0x70:
        number = load_be_u32(position + 1)
    elif constructor == 0x71:
        number = load_be_i32(position + 1)
    elif constructor == 0x81 or constructor == 0x83 or (constructor == 0x80 and load_u8(position + 1) < 0x80):
        number = load_be_i64(position + 1)
    else:
        return FAIL
    if number < -0x7FFFFFFFFFFFFFFF:
        return FAIL
    _write_number(scratch, entry, number)
    return 0


@inlined
def _is_text(constructor: int) -> int:
    return 1 if constructor == 0xA1 or constructor == 0xB1 else 0


@helper
def _read_annotation(
    key: int, length: int, value: int, behind: int, scratch: int, names: int, slots: int, seen: int
) -> int:
    """Keep the annotation if it is one of RocketMQ's; gives the bit of its name (0: none), or a failure."""
    row = FAIL
    if length == 3 and load_u8(key) == 0x74 and load_u8(key + 1) == 0x61 and load_u8(key + 2) == 0x67:
        row = TAG_ROW
    elif length == 4 and load_be_u32(key) == 0x6B657973:
        row = KEYS_ROW
    elif length == 4 and load_be_u32(key) == 0x666C6167:
        row = _FLAG_ROW
    elif length == 9 and load_be_i64(key) == 0x626F726E2D686F73 and load_u8(key + 8) == 0x74:
        row = _HOST_ROW
    else:
        row = _system_row(key, length, name_hash(key, length), names, slots)
        if row <= ID_ROW:
            return 0
    bit: int = 1 << row
    if seen & bit != 0:
        return FAIL
    if row == _FLAG_ROW:
        if load_u8(value) == 0x71:
            store_i64(scratch + MESSAGE.flag, load_be_i32(value + 1))
        return bit
    if _is_text(load_u8(value)) == 0:
        return bit
    count: int = load_i64(scratch + MESSAGE.system)
    entry: int = scratch + ENTRIES + (count << 5)
    if _read_value(value, behind, scratch, entry) == FAIL:
        return FAIL
    if row == _HOST_ROW:
        store_i64(scratch + MESSAGE.host, load_i64(entry + ENTRY.value))
        store_i64(scratch + MESSAGE.host_length, load_i64(entry + ENTRY.value_length))
        return bit
    store_i64(entry + ENTRY.name, names + (row << 5) + 1)
    store_i64(entry + ENTRY.name_length, load_u8(names + (row << 5)))
    store_i64(scratch + MESSAGE.system, count + 1)
    return bit


@helper
def _read_annotations(
    position: int, end: int, pairs: int, widths: int, scratch: int, names: int, slots: int, prefix: int
) -> int:
    seen = 0
    for _ in range(pairs):
        middle: int = behind_element(position, end, widths)
        if middle == FAIL:
            return FAIL
        behind: int = behind_element(middle, end, widths)
        if behind == FAIL:
            return FAIL
        constructor: int = load_u8(position)
        begin = position + 2 if constructor < 0xB0 else position + 5
        if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xB1 or constructor == 0xB3:
            length = middle - begin - _PREFIX_BYTES
            if length > 0 and _is_same(begin, prefix, _PREFIX_BYTES) == 1:
                bit: int = _read_annotation(begin + _PREFIX_BYTES, length, middle, behind, scratch, names, slots, seen)
                if bit == FAIL:
                    return FAIL
                seen |= bit
        position = behind
    return 0


@helper
def _read_fields(position: int, end: int, count: int, widths: int, scratch: int) -> int:
    """Message id and creation time of properties."""
    for index in range(count):
        behind: int = behind_element(position, end, widths)
        if behind == FAIL:
            return FAIL
        if index == 0:
            if _read_value(position, behind, scratch, scratch + MESSAGE.id - ENTRY.value) == FAIL:
                return FAIL
        elif index == 9:
            if load_u8(position) == 0x83:
                store_i64(scratch + MESSAGE.born, load_be_i64(position + 1))
                store_i64(scratch + MESSAGE.has_born, 1)
            return 0
        position = behind
    return 0


@helper
def _is_known(scratch: int, count: int, begin: int, length: int) -> int:
    """1 if one of the entries of users has that name."""
    entry = scratch + USER_ENTRIES
    for _ in range(count):
        if load_i64(entry + ENTRY.name_length) == length and _is_same(load_i64(entry + ENTRY.name), begin, length) == 1:
            return 1
        entry += 32
    return 0


@helper
def _read_users(position: int, end: int, pairs: int, widths: int, scratch: int, names: int, slots: int) -> int:
    count = 0
    marks = 0
    if pairs > _MAX_USERS:
        return FAIL
    for _ in range(pairs):
        middle: int = behind_element(position, end, widths)
        if middle == FAIL:
            return FAIL
        behind: int = behind_element(middle, end, widths)
        if behind == FAIL:
            return FAIL
        constructor: int = load_u8(position)
        begin = position + 2 if constructor < 0xB0 else position + 5
        length = middle - begin
        if _is_text(constructor) == 1 and length > 0:
            hashed: int = name_hash(begin, length)
            if _system_row(begin, length, hashed, names, slots) == FAIL:
                mark: int = 1 << (hashed & 63)
                if marks & mark != 0 and _is_known(scratch, count, begin, length) == 1:
                    return FAIL
                marks |= mark
                entry: int = scratch + USER_ENTRIES + (count << 5)
                if _is_clean(begin, length) == 0 or _read_value(middle, behind, scratch, entry) == FAIL:
                    return FAIL
                store_i64(entry + ENTRY.name, begin)
                store_i64(entry + ENTRY.name_length, length)
                count += 1
        position = behind
    store_i64(scratch + MESSAGE.users, count)
    return 0


@helper
def _read_body(position: int, stop: int, scratch: int) -> int:
    """The one data section that is the rest of the message, or nothing."""
    if position == stop:
        store_i64(scratch + MESSAGE.body, position)
        store_i64(scratch + MESSAGE.body_length, 0)
        return 0
    position = behind_descriptor(position)
    length = 0
    if stop - position >= 2 and load_u8(position) == 0xA0:
        length = load_u8(position + 1)
        position += 2
    elif stop - position >= 5 and load_u8(position) == 0xB0:
        length = load_be_u32(position + 1)
        position += 5
    else:
        return FAIL
    if length != stop - position:
        return FAIL
    store_i64(scratch + MESSAGE.body, position)
    store_i64(scratch + MESSAGE.body_length, length)
    return 0


@helper
def read_message(position: int, stop: int, widths: int, scratch: int, names: int, slots: int, prefix: int) -> int:
    """Write the places of the parts of a stored message into scratch; a failure for messages that Python decodes."""
    for index in range(11):
        store_i64(scratch + (index << 3), 0)
    store_i64(scratch + MESSAGE.free, scratch + DIGITS)
    previous = 0
    while position < stop:
        code: int = descriptor(position, stop)
        if code == DATA:
            break
        if code <= previous or code < HEADER or code > APPLICATION_PROPERTIES:
            return FAIL
        previous = code
        position = behind_descriptor(position)
        is_list = code in (HEADER, PROPERTIES)
        if is_list and position < stop and load_u8(position) == 0x45:
            position += 1
            continue
        head: int = compound_head(position, stop, 0xC0 if is_list else 0xC1, 0xD0 if is_list else 0xD1)
        if head == FAIL:
            return FAIL
        end: int = compound_stop(position, head)
        count: int = compound_count(position, head)
        elements = position + head
        done = 0
        if code == ANNOTATIONS:
            done = _read_annotations(elements, end, count >> 1, widths, scratch, names, slots, prefix)
        elif code == PROPERTIES:
            done = _read_fields(elements, end, count, widths, scratch)
        elif code == APPLICATION_PROPERTIES:
            done = _read_users(elements, end, count >> 1, widths, scratch, names, slots)
        if done == FAIL:
            return FAIL
        position = end
    return _read_body(position, stop, scratch)


@helper
def _write_host(place: int, text: int, length: int) -> int:
    """Write `a.b.c.d:port` as four bytes and a port; eight zeros for no text; gives the byte behind, or a failure."""
    store_i64(place, 0)
    if length == 0:
        return place + 8
    number = 0
    digits = 0
    parts = 0
    for index in range(length):
        byte: int = load_u8(text + index)
        if 0x30 <= byte <= 0x39:
            # Python's own reading refuses numbers that begin with 0.
            if digits >= 5 or (digits > 0 and number == 0):
                return FAIL
            number = number * 10 + byte - 0x30
            digits += 1
            continue
        if digits == 0 or number > 255 or byte != (0x2E if parts < 3 else 0x3A) or parts >= 4:
            return FAIL
        store_u8(place + parts, number)
        parts += 1
        number = 0
        digits = 0
    if parts != 4 or digits == 0:
        return FAIL
    store_be_u32(place + 4, number)
    return place + 8


@helper
def _write_entries(place: int, limit: int, entry: int, count: int, names: int, skipped: int) -> int:
    """Write names and values as property text; gives the byte behind, or a failure if that is beyond the limit.

    System properties whose bit is in `skipped` are left out; the bit is that of the row in the table of names.
    """
    for _ in range(count):
        name: int = load_i64(entry + ENTRY.name)
        size: int = load_i64(entry + ENTRY.name_length)
        value: int = load_i64(entry + ENTRY.value)
        length: int = load_i64(entry + ENTRY.value_length)
        entry += 32
        if length == 0:
            continue
        if skipped != 0 and skipped & (1 << ((name - names) >> 5)) != 0:
            continue
        if size + length + 2 > limit - place:
            return FAIL
        copy_bytes(place, name, size)
        place += size
        store_u8(place, 1)
        copy_bytes(place + 1, value, length)
        place += 1 + length
        store_u8(place, 2)
        place += 1
    return place


@helper
def _retries(scratch: int, names: int) -> int:
    """The number in the property RECONSUME_TIME; 0 for another text."""
    name: int = names + (RECONSUME_ROW << 5) + 1
    for index in range(load_i64(scratch + MESSAGE.system)):
        entry = scratch + ENTRIES + (index << 5)
        if load_i64(entry + ENTRY.name) == name:
            length: int = load_i64(entry + ENTRY.value_length)
            if length > _MAX_RETRY_DIGITS:
                return 0
            number = 0
            for digit in range(length):
                byte: int = load_u8(load_i64(entry + ENTRY.value) + digit)
                if byte < 0x30 or byte > 0x39:
                    return 0
                number = number * 10 + byte - 0x30
            return number
    return 0


@inlined
def _write_hexadecimal(place: int, number: int) -> None:
    for index in range(16):
        nibble = (number >> (60 - (index << 2))) & 15
        store_u8(place + index, 0x30 + nibble if nibble < 10 else 0x37 + nibble)


@helper
def add_id(scratch: int, names: int, identity: int, offset: int) -> None:
    """Make the message's id a system property; one that has none is called by the stream's digits and its offset."""
    count: int = load_i64(scratch + MESSAGE.system)
    entry: int = scratch + ENTRIES + (count << 5)
    store_i64(entry + ENTRY.name, names + (ID_ROW << 5) + 1)
    store_i64(entry + ENTRY.name_length, load_u8(names + (ID_ROW << 5)))
    length: int = load_i64(scratch + MESSAGE.id_length)
    if length > 0:
        store_i64(entry + ENTRY.value, load_i64(scratch + MESSAGE.id))
        store_i64(entry + ENTRY.value_length, length)
    else:
        place: int = load_i64(scratch + MESSAGE.free)
        copy_bytes(place, identity, 16)
        _write_hexadecimal(place + 16, offset)
        store_i64(scratch + MESSAGE.free, place + 32)
        store_i64(entry + ENTRY.value, place)
        store_i64(entry + ENTRY.value_length, 32)
    store_i64(scratch + MESSAGE.system, count + 1)


@helper
def _write_stored(place: int, end: int, scratch: int, block: int, offset: int, stored_ms: int, retries: int) -> int:
    """Write the message of scratch; gives the byte behind, or a failure."""
    names: int = load_i64(block + STORED.names)
    queue: int = load_i64(block + STORED.queue)
    topic: int = load_i64(block + STORED.topic)
    topic_length: int = load_i64(block + STORED.topic_length)
    host: int = load_i64(block + STORED.host)
    host_length: int = load_i64(block + STORED.host_length)
    body: int = load_i64(scratch + MESSAGE.body)
    body_length: int = load_i64(scratch + MESSAGE.body_length)
    start = place
    if end - place < 128 + topic_length + body_length + load_i64(block + STORED.added_length):
        return FAIL
    is_long = topic_length > 127
    store_be_u32(start + 4, 0xDAA320AB if is_long else 0xDAA320A7)
    store_be_u32(start + 8, crc32(body, body_length, load_i64(block + STORED.crc_table)) & 0x7FFFFFFF)
    store_be_u32(start + 12, queue)
    store_be_u32(start + 16, load_i64(scratch + MESSAGE.flag))
    store_be_i64(start + 20, offset)
    store_be_i64(start + 28, load_i64(block + STORED.first_place) + offset)
    store_be_u32(start + 36, 32 if host_length > 8 else 0)
    has_born: int = load_i64(scratch + MESSAGE.has_born)
    store_be_i64(start + 40, load_i64(scratch + MESSAGE.born) if has_born == 1 else stored_ms)
    place = _write_host(start + 48, load_i64(scratch + MESSAGE.host), load_i64(scratch + MESSAGE.host_length))
    if place == FAIL:
        return FAIL
    store_be_i64(place, stored_ms)
    copy_bytes(place + 8, host, host_length)
    place += 8 + host_length
    store_be_u32(place, retries)
    store_i64(place + 4, 0)
    store_be_u32(place + 12, body_length)
    copy_bytes(place + 16, body, body_length)
    place += 16 + body_length
    if is_long:
        store_be_u16(place, topic_length)
        place += 2
    else:
        store_u8(place, topic_length)
        place += 1
    copy_bytes(place, topic, topic_length)
    place += topic_length
    text = place + 2
    limit = text + _MAX_TEXT_BYTES
    if limit > end:
        limit = end
    place = _write_entries(
        text, limit, scratch + ENTRIES, load_i64(scratch + MESSAGE.system), names, load_i64(block + STORED.added_names)
    )
    added_length: int = load_i64(block + STORED.added_length)
    if place == FAIL or added_length > limit - place:
        return FAIL
    copy_bytes(place, load_i64(block + STORED.added), added_length)
    users: int = load_i64(scratch + MESSAGE.users)
    place = _write_entries(place + added_length, limit, scratch + USER_ENTRIES, users, names, 0)
    if place == FAIL:
        return FAIL
    store_be_u16(text - 2, place - text)
    store_be_u32(start, place - start)
    return place


@kernel("int64(int64)")
def encode_stored(block: int) -> int:
    """Write messages as answers to pulls carry them, one behind the other; gives the bytes written.

    `block` is the address of a `StoredBlock`.
    """
    data: int = load_i64(block + STORED.data)
    widths: int = load_i64(block + STORED.widths)
    names: int = load_i64(block + STORED.names)
    slots: int = load_i64(block + STORED.slots)
    prefix: int = load_i64(block + STORED.prefix)
    retries: int = load_i64(block + STORED.retries)
    identity: int = load_i64(block + STORED.identity)
    target: int = load_i64(block + STORED.target)
    end: int = load_i64(block + STORED.end)
    scratch: int = load_i64(block + STORED.scratch)
    place = target
    for row in range(load_i64(block + STORED.rows)):
        at = row << 3
        start: int = data + load_i64(load_i64(block + STORED.starts) + at)
        stop = start + load_i64(load_i64(block + STORED.lengths) + at)
        offset: int = load_i64(load_i64(block + STORED.offsets) + at)
        store_i64(load_i64(block + STORED.out_starts) + at, place - target)
        store_i64(load_i64(block + STORED.out_lengths) + at, 0)
        store_i64(load_i64(block + STORED.status) + at, UNDECIDED)
        if read_message(start, stop, widths, scratch, names, slots, prefix) == FAIL:
            continue
        add_id(scratch, names, identity, offset)
        given: int = load_i64(retries + at) if retries != 0 else _retries(scratch, names)
        stored_ms: int = load_i64(load_i64(block + STORED.timestamps_ms) + at)
        behind: int = _write_stored(place, end, scratch, block, offset, stored_ms, given)
        if behind == FAIL:
            continue
        store_i64(load_i64(block + STORED.out_lengths) + at, behind - place)
        store_i64(load_i64(block + STORED.status) + at, DONE)
        place = behind
    return place - target


@helper
def _read_text(text: int, length: int, scratch: int, names: int, slots: int) -> int:
    """Names and values of a property text, into entries; a failure where Python looks."""
    system = 0
    users = 0
    seen = 0
    marks = 0
    position = text
    stop = text + length
    while position < stop:
        begin = position
        middle = 0
        while position < stop and load_u8(position) != 2:
            if middle == 0 and load_u8(position) == 1:
                middle = position
            position += 1
        end = position
        position += 1
        if middle <= begin or end - middle < 2:
            continue
        size = middle - begin
        if _is_clean(begin, size) == 0 or _is_clean(middle + 1, end - middle - 1) == 0:
            return FAIL
        hashed: int = name_hash(begin, size)
        row: int = _system_row(begin, size, hashed, names, slots)
        if row != FAIL:
            bit: int = 1 << row
            if seen & bit != 0:
                return FAIL
            seen |= bit
            if row == ID_ROW:
                store_i64(scratch + MESSAGE.id, middle + 1)
                store_i64(scratch + MESSAGE.id_length, end - middle - 1)
                continue
            entry = scratch + ENTRIES + (system << 5)
            store_i64(entry + ENTRY.name, row)
            system += 1
        else:
            mark: int = 1 << (hashed & 63)
            if users >= _MAX_USERS or (marks & mark != 0 and _is_known(scratch, users, begin, size) == 1):
                return FAIL
            marks |= mark
            entry = scratch + USER_ENTRIES + (users << 5)
            store_i64(entry + ENTRY.name, begin)
            users += 1
        store_i64(entry + ENTRY.name_length, size)
        store_i64(entry + ENTRY.value, middle + 1)
        store_i64(entry + ENTRY.value_length, end - middle - 1)
    store_i64(scratch + MESSAGE.system, system)
    store_i64(scratch + MESSAGE.users, users)
    return 0


@helper
def _write_sized(place: int, constructor: int, octets: int, length: int) -> int:
    """Write a string or symbol by its short constructor, in the smaller of its two forms; gives the byte behind."""
    if length <= 0xFF:
        store_u8(place, constructor)
        store_u8(place + 1, length)
        place += 2
    else:
        store_u8(place, constructor + 0x10)
        store_be_u32(place + 1, length)
        place += 5
    copy_bytes(place, octets, length)
    return place + length


@helper
def _compound_closed(start: int, place: int, code: int, constructor: int, count: int) -> int:
    """Put a head before elements that were written from `start` + 12 on, moved to it; gives the byte behind them."""
    content = place - start - 12
    store_be_u16(start, 0x0053)
    store_u8(start + 2, code)
    if content < 0xFF and count <= 0xFF:
        store_u8(start + 3, constructor)
        store_u8(start + 4, content + 1)
        store_u8(start + 5, count)
        for index in range(content):
            store_u8(start + 6 + index, load_u8(start + 12 + index))
        return start + 6 + content
    store_u8(start + 3, constructor + 0x10)
    store_be_u32(start + 4, content + 4)
    store_be_u32(start + 8, count)
    return place


@helper
def _write_annotations(
    place: int, scratch: int, names: int, prefix: int, host: int, host_length: int, flag: int
) -> int:
    """Write message annotations, if there are any; gives the byte behind."""
    start = place
    place += 12
    count: int = load_i64(scratch + MESSAGE.system)
    for index in range(count):
        entry = scratch + ENTRIES + (index << 5)
        row: int = load_i64(entry + ENTRY.name)
        size: int = load_i64(entry + ENTRY.name_length)
        store_u8(place, 0xA3)
        copy_bytes(place + 2, prefix, _PREFIX_BYTES)
        name = place + 2 + _PREFIX_BYTES
        if row == TAG_ROW:
            store_be_u32(name, 0x74616700)
            size = 3
        elif row == KEYS_ROW:
            store_be_u32(name, 0x6B657973)
        else:
            copy_bytes(name, names + (row << 5) + 1, size)
        store_u8(place + 1, _PREFIX_BYTES + size)
        place = _write_sized(name + size, 0xA1, load_i64(entry + ENTRY.value), load_i64(entry + ENTRY.value_length))
    if host_length > 0:
        store_u8(place, 0xA3)
        store_u8(place + 1, _PREFIX_BYTES + 9)
        copy_bytes(place + 2, prefix, _PREFIX_BYTES)
        store_be_i64(place + 2 + _PREFIX_BYTES, 0x626F726E2D686F73)
        store_u8(place + 10 + _PREFIX_BYTES, 0x74)
        place = _write_sized(place + 11 + _PREFIX_BYTES, 0xA1, host, host_length)
        count += 1
    if flag != 0:
        store_u8(place, 0xA3)
        store_u8(place + 1, _PREFIX_BYTES + 4)
        copy_bytes(place + 2, prefix, _PREFIX_BYTES)
        store_be_u32(place + 2 + _PREFIX_BYTES, 0x666C6167)
        store_u8(place + 6 + _PREFIX_BYTES, 0x71)
        store_be_u32(place + 7 + _PREFIX_BYTES, flag)
        place += 11 + _PREFIX_BYTES
        count += 1
    return start if count == 0 else _compound_closed(start, place, ANNOTATIONS, 0xC1, 2 * count)


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def compose(
    text: int,
    length: int,
    body_length: int,
    born_ms: int,
    host: int,
    host_length: int,
    flag: int,
    tables: int,
    scratch: int,
    target: int,
) -> int:
    """Write the sections before the body of a message of a classic client; gives the bytes, or a failure.

    `text` is its property text, `tables` the address of a `TablesBlock`. There is room for twice the text, 40 bytes for
    each property, and 512.
    """
    names: int = load_i64(tables + TABLES.names)
    sharding: int = load_i64(tables + TABLES.sharding)
    store_i64(scratch + MESSAGE.id_length, 0)
    if _read_text(text, length, scratch, names, load_i64(tables + TABLES.slots)) == FAIL:
        return FAIL
    place: int = _write_annotations(target, scratch, names, load_i64(tables + TABLES.prefix), host, host_length, flag)
    start = place
    place += 12
    if load_i64(scratch + MESSAGE.id_length) > 0:
        place = _write_sized(place, 0xA1, load_i64(scratch + MESSAGE.id), load_i64(scratch + MESSAGE.id_length))
    else:
        store_u8(place, 0x40)
        place += 1
    store_i64(place, 0x4040404040404040)
    store_u8(place + 8, 0x83)
    store_be_i64(place + 9, born_ms)
    place += 17
    fields = 10
    users: int = load_i64(scratch + MESSAGE.users)
    for index in range(users):
        entry = scratch + USER_ENTRIES + (index << 5)
        if (
            load_i64(entry + ENTRY.name_length) == _SHARDING_BYTES
            and _is_same(load_i64(entry + ENTRY.name), sharding, _SHARDING_BYTES) == 1
        ):
            place = _write_sized(place, 0xA1, load_i64(entry + ENTRY.value), load_i64(entry + ENTRY.value_length))
            fields = 11
    place = _compound_closed(start, place, PROPERTIES, 0xC0, fields)
    if users > 0:
        start = place
        place += 12
        for index in range(users):
            entry = scratch + USER_ENTRIES + (index << 5)
            place = _write_sized(place, 0xA1, load_i64(entry + ENTRY.name), load_i64(entry + ENTRY.name_length))
            place = _write_sized(place, 0xA1, load_i64(entry + ENTRY.value), load_i64(entry + ENTRY.value_length))
        place = _compound_closed(start, place, APPLICATION_PROPERTIES, 0xC1, 2 * users)
    store_be_u32(place, 0x005375A0)
    if body_length <= 0xFF:
        store_u8(place + 4, body_length)
        return place + 5 - target
    store_u8(place + 3, 0xB0)
    store_be_u32(place + 4, body_length)
    return place + 8 - target
