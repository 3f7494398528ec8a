"""Compiled reading and writing of the sections around the bare message: header, annotations, and what follows it.

Positions are addresses. Nothing is read before its end was checked; what a function is not sure of is a failure.
Layouts: OASIS AMQP 1.0 part 1, section 1.6; part 3, section 3.2.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import (
    load_be_i64,
    load_be_u32,
    load_i64,
    load_u8,
    store_be_u16,
    store_be_u32,
    store_i64,
    store_u8,
)
from headgate.message.lookup.elements.kernel import behind_element
from headgate.protocols.amqp10.layout import FILTER_VALUE, SPANS

FAIL = -1
"""The result for a place, a code or a number that is missing or not understood."""

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
"""Codes of sections."""


@helper
def descriptor(position: int, stop: int) -> int:
    """The code of the descriptor at `position` in its two numeric forms; else a failure."""
    if stop - position < 3 or load_u8(position) != 0x00:
        return FAIL
    if load_u8(position + 1) == 0x53:
        return load_u8(position + 2)
    if load_u8(position + 1) == 0x80 and stop - position >= 10:
        code: int = load_be_i64(position + 2)
        return code if 0 <= code <= 0xFF else FAIL
    return FAIL


@inlined
def behind_descriptor(position: int) -> int:
    """The address behind the descriptor at `position`, which has been read already."""
    return position + 3 if load_u8(position + 1) == 0x53 else position + 10


@helper
def compound_head(position: int, stop: int, short: int, long: int) -> int:
    """Bytes of constructor, size and count of the list or map at `position`, which lies before `stop`; or a failure."""
    if position >= stop:
        return FAIL
    constructor: int = load_u8(position)
    if constructor == short:
        if stop - position >= 3 and 1 <= load_u8(position + 1) <= stop - position - 2:
            return 3
        return FAIL
    if constructor == long and stop - position >= 9 and 4 <= load_be_u32(position + 1) <= stop - position - 5:
        return 9
    return FAIL


@inlined
def compound_stop(position: int, head: int) -> int:
    """The address behind the list or map at `position`; its head has `head` bytes."""
    if head == 3:
        return position + 2 + load_u8(position + 1)
    return position + 5 + load_be_u32(position + 1)


@inlined
def compound_count(position: int, head: int) -> int:
    """How many elements the list or map at `position` has."""
    if head == 3:
        return load_u8(position + 2)
    return load_be_u32(position + 5)


@helper
def _header_fields(position: int, stop: int, widths: int, spans: int) -> int:
    """Store where durable, priority and ttl of a header lie; gives the byte behind it."""
    for index in range(6):
        store_i64(spans + (index << 3), 0)
    if position < stop and load_u8(position) == 0x45:
        return position + 1
    head: int = compound_head(position, stop, 0xC0, 0xD0)
    if head == FAIL:
        return FAIL
    end: int = compound_stop(position, head)
    count: int = compound_count(position, head)
    if count > 5:
        return FAIL
    position += head
    for index in range(count):
        behind: int = behind_element(position, end, widths)
        if behind == FAIL:
            return FAIL
        if index < 3:
            if behind - position > 5:
                return FAIL
            store_i64(spans + SPANS.durable + (index << 3), position)
            store_i64(spans + SPANS.durable_bytes + (index << 3), behind - position)
        position = behind
    return end if position == end else FAIL


@helper
def write_header(target: int, spans: int, absent: int) -> int:
    """Write a header: durable, priority and ttl from where they lie; gives the byte behind it.

    `absent` is what stands for a durable that is missing.
    """
    store_be_u32(target, 0x005370C0)
    store_u8(target + 5, 5)
    position = target + 6
    for index in range(3):
        length: int = load_i64(spans + SPANS.durable_bytes + (index << 3))
        if length == 0:
            store_u8(position, absent if index == 0 else 0x40)
            position += 1
        else:
            source: int = load_i64(spans + SPANS.durable + (index << 3))
            for byte in range(length):
                store_u8(position + byte, load_u8(source + byte))
            if index == 0 and length == 1 and load_u8(source) == 0x40:
                store_u8(position, absent)
            position += length
    store_u8(position, 0x41)
    store_u8(position + 1, 0x43)
    store_u8(target + 4, position + 2 - target - 5)
    return position + 2


@helper
def write_annotations_head(target: int, content: int, count: int) -> int:
    """Write descriptor, constructor, size and count of message annotations; gives where the content goes."""
    store_be_u16(target, 0x0053)
    store_u8(target + 2, ANNOTATIONS)
    if content + 1 <= 0xFF and count <= 0xFF:
        store_u8(target + 3, 0xC1)
        store_u8(target + 4, content + 1)
        store_u8(target + 5, count)
        return target + 6
    store_u8(target + 3, 0xD1)
    store_be_u32(target + 4, content + 4)
    store_be_u32(target + 8, count)
    return target + 12


@helper
def _is_name(position: int, name: int, length: int) -> int:
    for index in range(length):
        if load_u8(position + index) != load_u8(name + index):
            return 0
    return 1


@helper
def _names(position: int, behind: int, names: int, count: int) -> int:
    """Which of `count` names (rows of 32 bytes, the length in front) the symbol of the small form is; or a failure."""
    length: int = load_u8(position + 1)
    for index in range(count):
        row = names + (index << 5)
        if load_u8(row) == length and _is_name(position + 2, row + 1, length):
            return index
    return FAIL


@helper
def skip_map(position: int, stop: int) -> int:
    """The byte behind the map at `position`; or a failure."""
    head: int = compound_head(position, stop, 0xC1, 0xD1)
    return FAIL if head == FAIL else compound_stop(position, head)


@helper
def _annotations_value(position: int, stop: int, widths: int, names: int, count: int, value: int) -> int:
    """Look for names among the keys of the map at `position`; 0 if it is one and nothing stands against it.

    The first of the names may stand there with a string: where it lies goes to `value` (`ValueBlock`). Any of the
    others, a key of another form or a value of another type is a failure.
    """
    head: int = compound_head(position, stop, 0xC1, 0xD1)
    if head == FAIL:
        return FAIL
    end: int = compound_stop(position, head)
    number: int = compound_count(position, head)
    position += head
    if number & 1:
        return FAIL
    for _ in range(number >> 1):
        middle: int = behind_element(position, end, widths)
        if middle == FAIL or load_u8(position) != 0xA3:
            return FAIL
        behind: int = behind_element(middle, end, widths)
        if behind == FAIL:
            return FAIL
        name: int = _names(position, middle, names, count)
        if name > 0:
            return FAIL
        if name == 0:
            if value == 0 or load_i64(value + FILTER_VALUE.length) != FAIL:
                return FAIL
            if load_u8(middle) == 0xA1:
                store_i64(value + FILTER_VALUE.address, middle + 2)
                store_i64(value + FILTER_VALUE.length, behind - middle - 2)
            elif load_u8(middle) == 0xB1:
                store_i64(value + FILTER_VALUE.address, middle + 5)
                store_i64(value + FILTER_VALUE.length, behind - middle - 5)
            else:
                return FAIL
        position = behind
    return 0 if position == end else FAIL


@helper
def user_fits(position: int, stop: int, widths: int, user: int, user_length: int) -> int:
    """1 if the properties at `position` have no user id, or this one."""
    if position < stop and load_u8(position) == 0x45:
        return 1
    head: int = compound_head(position, stop, 0xC0, 0xD0)
    if head == FAIL:
        return 0
    end: int = compound_stop(position, head)
    count: int = compound_count(position, head)
    position += head
    if count > 13:
        return 0
    for index in range(count):
        behind: int = behind_element(position, end, widths)
        if behind == FAIL:
            return 0
        if index == 1 and load_u8(position) != 0x40:
            if load_u8(position) != 0xA0 or load_u8(position + 1) != user_length:
                return 0
            if not _is_name(position + 2, user, user_length):
                return 0
        position = behind
    return 1 if position == end else 0


@helper
def body_fits(position: int, stop: int, widths: int) -> int:
    """1 if a body, and perhaps a footer, fill `position` … `stop`: data or sequences, or one value."""
    previous = 0
    while position < stop:
        code: int = descriptor(position, stop)
        if code < DATA or code > FOOTER or previous == FOOTER or (previous == VALUE and code != FOOTER):
            return 0
        if previous == 0 and code == FOOTER:
            return 0
        if previous != 0 and code != FOOTER and code != previous:
            return 0
        value: int = behind_descriptor(position)
        if value >= stop:
            return 0
        constructor: int = load_u8(value)
        if code == DATA and constructor != 0xA0 and constructor != 0xB0:
            return 0
        if code == SEQUENCE and constructor != 0x45 and constructor != 0xC0 and constructor != 0xD0:
            return 0
        if code == FOOTER and constructor != 0xC1 and constructor != 0xD1:
            return 0
        position = behind_element(value, stop, widths)
        if position == FAIL:
            return 0
        previous = code
    return 1 if previous != 0 else 0


@helper
def before_bare(position: int, stop: int, widths: int, names: int, count: int, spans: int, value: int) -> int:
    """Read the sections before the properties; gives where properties or the body begin, or a failure.

    `spans` is the address of a `SpansBlock`. For `names`, `count` and `value` see `_annotations_value`.
    """
    for index in range(len(SPANS)):
        store_i64(spans + (index << 3), 0)
    store_i64(spans + SPANS.value_bytes, FAIL)
    code: int = descriptor(position, stop)
    if code == HEADER:
        position = _header_fields(behind_descriptor(position), stop, widths, spans)
        if position == FAIL:
            return FAIL
        store_i64(spans + SPANS.has_header, 1)
        code = descriptor(position, stop)
    if code == DELIVERY_ANNOTATIONS:
        position = skip_map(behind_descriptor(position), stop)
        if position == FAIL:
            return FAIL
        code = descriptor(position, stop)
    if code == ANNOTATIONS:
        position = behind_descriptor(position)
        if _annotations_value(position, stop, widths, names, count, value) == FAIL:
            return FAIL
        head: int = compound_head(position, stop, 0xC1, 0xD1)
        end: int = compound_stop(position, head)
        store_i64(spans + SPANS.annotations, position + head)
        store_i64(spans + SPANS.annotations_bytes, end - position - head)
        store_i64(spans + SPANS.annotations_elements, compound_count(position, head))
        position = end
    return position
