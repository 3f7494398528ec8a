"""Compiled search for one field in many encoded messages; the rules are in docs/design/message-validity.md.

A message that is not valid has no field. Every load lies before the end of the message.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, kernel
from headgate.kernels.memory import copy_bytes, load_be_u16, load_be_u32, load_i64, load_u8, store_i64
from headgate.message.lookup.elements.kernel import behind_element

NONE = -1
"""Length of a field that is absent, or whose type has no bytes."""

UNDECIDED = -2
"""Length where the reference has to look: a section with a symbolic descriptor."""

_FAIL = -1


@helper
def _text_at(position: int, stop: int, short: int, long: int) -> int:
    """The address of the bytes of the string-like element at `position` if its constructor is one of two; else −1."""
    constructor: int = load_u8(position)
    if constructor == short and stop - position >= 2 and load_u8(position + 1) <= stop - position - 2:
        return position + 2
    if constructor == long and stop - position >= 5 and load_be_u32(position + 1) <= stop - position - 5:
        return position + 5
    return _FAIL


@helper
def _is_key(position: int, stop: int, short: int, long: int, key: int, key_length: int) -> int:
    """1 if the element at `position` is a key of that constructor with exactly the bytes of `key`."""
    begin = _text_at(position, stop, short, long)
    if begin == _FAIL:
        return 0
    length: int = load_u8(position + 1) if begin == position + 2 else load_be_u32(position + 1)
    if length != key_length:
        return 0
    for index in range(length):
        if load_u8(begin + index) != load_u8(key + index):
            return 0
    return 1


@helper
def _is_usable(position: int) -> int:
    """1 if filters can use the element at `position`: `headgate.message.framing.is_usable`."""
    constructor: int = load_u8(position)
    if constructor == 0x72:
        return 1 if load_be_u16(position + 1) & 0x7F80 != 0x7F80 else 0
    if constructor == 0x82:
        return 1 if load_be_u16(position + 1) & 0x7FF0 != 0x7FF0 else 0
    family = constructor >> 4
    if constructor == 0x00 or constructor == 0x45 or family >= 0xC:
        return 0
    return 0 if constructor == 0x74 or constructor == 0x84 or constructor == 0x94 else 1


@helper
def _report(position: int, base: int, out_start: int, out_length: int) -> None:
    """Store where the bytes of the element at `position` are, if its type has any."""
    constructor: int = load_u8(position)
    if constructor == 0xA0 or constructor == 0xA1 or constructor == 0xA3:
        store_i64(out_start, position + 2 - base)
        store_i64(out_length, load_u8(position + 1))
    elif constructor == 0xB0 or constructor == 0xB1 or constructor == 0xB3:
        store_i64(out_start, position + 5 - base)
        store_i64(out_length, load_be_u32(position + 1))
    elif constructor == 0x98:
        store_i64(out_start, position + 1 - base)
        store_i64(out_length, 16)


@helper
def _find_one(
    base: int,
    position: int,
    stop: int,
    widths: int,
    section: int,
    index: int,
    key: int,
    key_length: int,
    out_start: int,
    out_length: int,
) -> int:
    """Walk one message; 1 when it is valid, 0 when it is not, `UNDECIDED` at a symbolic descriptor."""
    previous = 0
    while position < stop:
        if load_u8(position) != 0 or stop - position < 3:
            return 0
        constructor = load_u8(position + 1)
        if constructor == 0xA3 or constructor == 0xB3:
            return UNDECIDED
        if constructor == 0x53:
            code = load_u8(position + 2)
            position += 3
        elif constructor == 0x80 and stop - position >= 10:
            if load_be_u32(position + 2) != 0:
                return 0
            code = load_be_u32(position + 6)
            position += 10
        else:
            return 0
        if code < 0x70 or code > 0x78:
            return 0
        if code >= 0x75:
            return 1
        if code <= previous or position >= stop:
            return 0
        previous = code
        constructor = load_u8(position)
        is_list = code == 0x70 or code == 0x73
        elements = position + 1
        end = elements
        count = 0
        if is_list and constructor == 0x45:
            position = end
        elif constructor == (0xC0 if is_list else 0xC1):
            if stop - position < 3:
                return 0
            end = position + 2 + load_u8(position + 1)
            count = load_u8(position + 2)
            elements = position + 3
        elif constructor == (0xD0 if is_list else 0xD1):
            if stop - position < 9:
                return 0
            end = position + 5 + load_be_u32(position + 1)
            count = load_be_u32(position + 5)
            elements = position + 9
        else:
            return 0
        if end > stop or elements > end:
            return 0
        if code == section:
            at = elements
            number = 0
            matches = 0
            while number < count:
                begin = at
                at = behind_element(begin, end, widths)
                if at == _FAIL:
                    break
                if index >= 0:
                    if number == index:
                        _report(begin, base, out_start, out_length)
                        break
                elif number % 2 == 0:
                    if code == 0x74:
                        matches = _is_key(begin, end, 0xA1, 0xB1, key, key_length)
                    else:
                        matches = _is_key(begin, end, 0xA3, 0xB3, key, key_length)
                        if matches == 0:
                            matches = _is_key(begin, end, 0xA1, 0xB1, key, key_length)
                elif matches == 1 and (code != 0x74 or _is_usable(begin) == 1):
                    _report(begin, base, out_start, out_length)
                    break
                number += 1
        position = end
    return 1


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def find_field(
    data: int,
    starts: int,
    lengths: int,
    count: int,
    widths: int,
    section: int,
    index: int,
    key: int,
    key_length: int,
    out_starts: int,
    out_lengths: int,
) -> int:
    """Fill `out_starts` (from the beginning of `data`) and `out_lengths` for a field by list `index` or (−1) map `key`.

    Gives the number of messages left undecided.
    """
    undecided = 0
    for row in range(count):
        begin = data + load_i64(starts + 8 * row)
        stop = begin + load_i64(lengths + 8 * row)
        out_start = out_starts + 8 * row
        out_length = out_lengths + 8 * row
        store_i64(out_start, 0)
        store_i64(out_length, NONE)
        valid = _find_one(data, begin, stop, widths, section, index, key, key_length, out_start, out_length)
        if valid != 1:
            store_i64(out_length, UNDECIDED if valid == UNDECIDED else NONE)
            if valid == UNDECIDED:
                undecided += 1
    return undecided


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def gather(data: int, starts: int, lengths: int, count: int, target: int, target_starts: int) -> int:
    """Copy messages side by side to `target` and fill `target_starts` from its beginning; gives the bytes copied."""
    end = 0
    for row in range(count):
        length: int = load_i64(lengths + 8 * row)
        copy_bytes(target + end, data + load_i64(starts + 8 * row), length)
        store_i64(target_starts + 8 * row, end)
        end += length
    return end
