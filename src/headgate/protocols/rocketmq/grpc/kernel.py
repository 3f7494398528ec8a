"""Compiled writing of stored messages as answers to ReceiveMessage carry them.

Reading them is the classic protocol's (`headgate.protocols.rocketmq.kernel`), and what is left open there is left open
here: Python looks at that message alone (`receiving.py`). So are keys and message groups that are not ASCII.

The properties of the system come first, then what all messages have alike, the properties of the user, and the body:
the lengths in front are written last, backwards. The digest of the body is left to Python: 32 bytes.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import copy_bytes, load_i64, load_u8, store_i64, store_u8
from headgate.message.lookup.elements.kernel import behind_element
from headgate.protocols.amqp10.sections.kernel import (
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
from headgate.protocols.rocketmq.kernel import (
    BODY,
    BODY_LENGTH,
    BORN,
    DONE,
    ENTRIES,
    HAS_BORN,
    HOST,
    HOST_LENGTH,
    SCRATCH_BYTES,
    SYSTEM,
    UNDECIDED,
    USER_ENTRIES,
    USERS,
    add_id,
    read_message,
)

GROUP, GROUP_LENGTH = SCRATCH_BYTES, SCRATCH_BYTES + 8
"""Places behind the scratch of reading: the message group."""

WORDS_BYTES = SCRATCH_BYTES + 16
"""The scratch of a message."""

_HEAD_BYTES = 16
"""Room for the heads of the answer, the message and the properties of the system, before them."""

_FIXED_BYTES = 256
"""More than what is written beside texts: numbers, times, the digest, and the heads of fields."""

_GROUP_ID = 10
_DUE_DIGITS = 15
_SHARDING_BYTES = 13


@inlined
def _varint_bytes(number: int) -> int:
    count = 1
    while number > 0x7F:
        number >>= 7
        count += 1
    return count


@helper
def _write_varint(place: int, number: int) -> int:
    """Write a number as protobuf does, negative ones in ten bytes; gives the byte behind."""
    if number < 0:
        for _ in range(9):
            store_u8(place, (number & 0x7F) | 0x80)
            number >>= 7
            place += 1
        store_u8(place, 1)
        return place + 1
    while number > 0x7F:
        store_u8(place, (number & 0x7F) | 0x80)
        number >>= 7
        place += 1
    store_u8(place, number)
    return place + 1


@helper
def _write_text(place: int, tag: int, text: int, length: int) -> int:
    """Write a field of bytes with a tag of one byte; gives the byte behind."""
    store_u8(place, tag)
    place = _write_varint(place + 1, length)
    copy_bytes(place, text, length)
    return place + length


@helper
def _write_head(place: int, tag: int, length: int) -> int:
    """Write tag and length so that they end at `place`; gives where they begin."""
    begin: int = place - 1 - _varint_bytes(length)
    store_u8(begin, tag)
    _write_varint(begin + 1, length)
    return begin


@helper
def _write_time(place: int, tag: int, at_ms: int) -> int:
    """Write a timestamp; gives the byte behind."""
    seconds = at_ms // 1000
    nanos = (at_ms - seconds * 1000) * 1_000_000
    store_u8(place, tag)
    behind: int = place + 2
    if seconds != 0:
        store_u8(behind, 0x08)
        behind = _write_varint(behind + 1, seconds)
    if nanos != 0:
        store_u8(behind, 0x10)
        behind = _write_varint(behind + 1, nanos)
    store_u8(place + 1, behind - place - 2)
    return behind


@helper
def _read_group(position: int, stop: int, widths: int, scratch: int) -> int:
    """Where the message group of a message that was read is, into scratch; a failure where Python looks."""
    store_i64(scratch + GROUP_LENGTH, 0)
    while position < stop:
        code: int = descriptor(position, stop)
        if code == DATA or code > PROPERTIES:
            return 0
        position = behind_descriptor(position)
        is_list = code in (HEADER, PROPERTIES)
        if is_list and load_u8(position) == 0x45:
            position += 1
            continue
        head: int = compound_head(position, stop, 0xC0 if is_list else 0xC1, 0xD0 if is_list else 0xD1)
        end: int = compound_stop(position, head)
        if code == PROPERTIES and compound_count(position, head) > _GROUP_ID:
            position += head
            for _ in range(_GROUP_ID):
                position = behind_element(position, end, widths)
            behind: int = behind_element(position, end, widths)
            if behind == FAIL:
                return FAIL
            constructor: int = load_u8(position)
            if constructor == 0xA1 or constructor == 0xB1:
                begin = position + 2 if constructor == 0xA1 else position + 5
                for index in range(begin, behind):
                    if load_u8(index) > 0x7F:
                        return FAIL
                store_i64(scratch + GROUP, begin)
                store_i64(scratch + GROUP_LENGTH, behind - begin)
        position = end
    return 0


@helper
def _system_entry(scratch: int, name: int) -> int:
    """The entry of a system property, by the place of its name; 0 if it is not there, or has no value."""
    entry: int = scratch + ENTRIES
    for _ in range(load_i64(scratch + SYSTEM)):
        if load_i64(entry) == name:
            return entry if load_i64(entry + 24) > 0 else 0
        entry += 32
    return 0


@helper
def _write_keys(place: int, text: int, length: int) -> int:
    """Write keys that blanks part; gives the byte behind, or a failure for texts that are not ASCII."""
    begin = text
    stop = text + length
    for position in range(text, stop + 1):
        byte: int = load_u8(position) if position < stop else 0x20
        if byte > 0x7F:
            return FAIL
        if byte == 0x20 or 0x09 <= byte <= 0x0D or 0x1C <= byte <= 0x1F:
            if position > begin:
                place = _write_text(place, 0x12, begin, position - begin)
            begin = position + 1
    return place


@helper
def _due_ms(entry: int) -> int:
    """The time in the value of an entry; or a failure."""
    text: int = load_i64(entry + 16)
    length: int = load_i64(entry + 24)
    if length > _DUE_DIGITS:
        return FAIL
    number = 0
    for index in range(length):
        byte: int = load_u8(text + index)
        if byte < 0x30 or byte > 0x39:
            return FAIL
        number = number * 10 + byte - 0x30
    return number


@helper
def _needed(scratch: int, block: int) -> int:
    """At least as many bytes as the message of scratch takes."""
    needed: int = _HEAD_BYTES + _FIXED_BYTES + load_i64(block + 128) + load_i64(block + 144) + load_i64(block + 112)
    needed += load_i64(scratch + BODY_LENGTH) + load_i64(scratch + HOST_LENGTH) + load_i64(scratch + GROUP_LENGTH)
    entry = scratch + ENTRIES
    for _ in range(load_i64(scratch + SYSTEM)):
        # A key of one byte is written in three, and had a blank.
        needed += 2 * load_i64(entry + 24) + 16
        entry += 32
    entry = scratch + USER_ENTRIES
    for _ in range(load_i64(scratch + USERS)):
        needed += load_i64(entry + 8) + load_i64(entry + 24) + 24
        entry += 32
    return needed


@helper
def _write_system(place: int, scratch: int, block: int, row: int) -> int:
    """Write the properties of the system; gives the byte behind, or a failure."""
    at = row << 3
    names: int = load_i64(block + 40) + 1
    stored_ms: int = load_i64(load_i64(block + 88) + at)
    entry: int = _system_entry(scratch, names)
    if entry != 0:
        place = _write_text(place, 0x0A, load_i64(entry + 16), load_i64(entry + 24))
    entry = _system_entry(scratch, names + (1 << 5))
    if entry != 0:
        place = _write_keys(place, load_i64(entry + 16), load_i64(entry + 24))
        if place == FAIL:
            return FAIL
    entry = _system_entry(scratch, names + (2 << 5))
    place = _write_text(place, 0x1A, load_i64(entry + 16), load_i64(entry + 24))
    # The digest: its type is 2 (MD5), and 32 characters.
    store_u8(place, 0x22)
    store_u8(place + 1, 36)
    store_u8(place + 2, 0x08)
    store_u8(place + 3, 2)
    store_u8(place + 4, 0x12)
    store_u8(place + 5, 32)
    store_i64(load_i64(block + 200) + at, place + 6 - load_i64(block + 160))
    place += 38
    kind = 1
    if load_i64(scratch + GROUP_LENGTH) > 0:
        kind = 2
        store_u8(place, 0x8A)
        place = _write_text(place + 1, 0x01, load_i64(scratch + GROUP), load_i64(scratch + GROUP_LENGTH))
    entry = _system_entry(scratch, names + (load_i64(block + 232) << 5))
    if entry != 0:
        due_ms: int = _due_ms(entry)
        if due_ms != FAIL:
            kind = 3
            place = _write_time(place, 0x5A, due_ms)
    store_u8(place, 0x30)
    store_u8(place + 1, kind)
    born_ms: int = load_i64(scratch + BORN) if load_i64(scratch + HAS_BORN) == 1 else stored_ms
    place = _write_time(place + 2, 0x3A, born_ms)
    host: int = load_i64(scratch + HOST)
    host_length: int = load_i64(scratch + HOST_LENGTH)
    entry = _system_entry(scratch, names + (load_i64(block + 224) << 5))
    if entry != 0:
        host = load_i64(entry + 16)
        host_length = load_i64(entry + 24)
    if host_length > 0:
        place = _write_text(place, 0x42, host, host_length)
    place = _write_time(place, 0x4A, stored_ms)
    handle_bytes: int = load_i64(block + 112)
    place = _write_text(place, 0x62, load_i64(block + 104) + row * handle_bytes, handle_bytes)
    store_u8(place, 0x68)
    place = _write_varint(place + 1, load_i64(load_i64(block + 72) + at))
    store_u8(place, 0x70)
    place = _write_varint(place + 1, load_i64(load_i64(block + 80) + at))
    store_u8(place, 0x80)
    store_u8(place + 1, 0x01)
    place = _write_varint(place + 2, load_i64(load_i64(block + 96) + at))
    entry = _system_entry(scratch, names + (load_i64(block + 240) << 5))
    if entry != 0:
        before: int = _system_entry(scratch, names + (load_i64(block + 248) << 5))
        size: int = 1 + _varint_bytes(load_i64(entry + 24)) + load_i64(entry + 24)
        if before != 0:
            size += 1 + _varint_bytes(load_i64(before + 24)) + load_i64(before + 24)
        store_u8(place, 0xA2)
        store_u8(place + 1, 0x01)
        place = _write_varint(place + 2, size)
        place = _write_text(place, 0x0A, load_i64(entry + 16), load_i64(entry + 24))
        if before != 0:
            place = _write_text(place, 0x12, load_i64(before + 16), load_i64(before + 24))
    copy_bytes(place, load_i64(block + 120), load_i64(block + 128))
    return place + load_i64(block + 128)


@inlined
def _is_sharding_key(name: int, sharding: int) -> int:
    """1 if 13 bytes are the same."""
    return 1 if load_i64(name) == load_i64(sharding) and load_i64(name + 5) == load_i64(sharding + 5) else 0


@helper
def _write_users(place: int, scratch: int, sharding: int) -> int:
    """Write the properties of the user; gives the byte behind."""
    is_grouped = load_i64(scratch + GROUP_LENGTH) > 0
    entry = scratch + USER_ENTRIES - 32
    for _ in range(load_i64(scratch + USERS)):
        entry += 32
        name: int = load_i64(entry)
        size: int = load_i64(entry + 8)
        length: int = load_i64(entry + 24)
        if length == 0:
            continue
        if is_grouped and size == _SHARDING_BYTES and _is_sharding_key(name, sharding) == 1:
            continue
        store_u8(place, 0x12)
        place = _write_varint(place + 1, 2 + _varint_bytes(size) + size + _varint_bytes(length) + length)
        place = _write_text(place, 0x0A, name, size)
        place = _write_text(place, 0x12, load_i64(entry + 16), length)
    return place


@helper
def _write_message(place: int, end: int, scratch: int, block: int, row: int) -> int:
    """Write the message of scratch; gives the byte behind, or a failure."""
    if end - place < _needed(scratch, block):
        return FAIL
    at = row << 3
    begin = place + _HEAD_BYTES
    behind: int = _write_system(begin, scratch, block, row)
    if behind == FAIL:
        return FAIL
    begin = _write_head(begin, 0x1A, behind - begin)
    copy_bytes(behind, load_i64(block + 136), load_i64(block + 144))
    behind += load_i64(block + 144)
    behind = _write_users(behind, scratch, load_i64(block + 152))
    length: int = load_i64(scratch + BODY_LENGTH)
    if length > 0:
        behind = _write_text(behind, 0x22, load_i64(scratch + BODY), length)
    store_i64(load_i64(block + 208) + at, length)
    begin = _write_head(begin, 0x12, behind - begin)
    store_i64(load_i64(block + 176) + at, begin - load_i64(block + 160))
    store_i64(load_i64(block + 184) + at, behind - begin)
    return behind


@kernel("int64(int64)")
def encode_delivered(block: int) -> int:
    """Write messages as answers carry them; gives how many are left open.

    Words of `block`: 0 data, starts, lengths, count, widths, names, slots, prefix of annotations; 8 the digits of the
    streams, 16 for each message; queues, offsets, times, attempts; 13 handles, the length of each; 15 what all say of
    the system and its length, what all say beside and its length, `__SHARDINGKEY`; 20 target, its end; of each message
    start, length, status, place of the digest, length of the body; 27 scratch; 28 the numbers of the names of born
    host, due time, topic and message id of a dead letter.
    """
    widths: int = load_i64(block + 32)
    names: int = load_i64(block + 40)
    scratch: int = load_i64(block + 216)
    place: int = load_i64(block + 160)
    left_open = 0
    for row in range(load_i64(block + 24)):
        at = row << 3
        start: int = load_i64(block) + load_i64(load_i64(block + 8) + at)
        stop = start + load_i64(load_i64(block + 16) + at)
        store_i64(load_i64(block + 192) + at, UNDECIDED)
        left_open += 1
        if read_message(start, stop, widths, scratch, names, load_i64(block + 48), load_i64(block + 56)) == FAIL:
            continue
        if _read_group(start, stop, widths, scratch) == FAIL:
            continue
        add_id(scratch, names, load_i64(block + 64) + (row << 4), load_i64(load_i64(block + 80) + at))
        behind: int = _write_message(place, load_i64(block + 168), scratch, block, row)
        if behind == FAIL:
            continue
        store_i64(load_i64(block + 192) + at, DONE)
        left_open -= 1
        place = behind
    return left_open
