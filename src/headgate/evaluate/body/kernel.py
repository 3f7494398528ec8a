"""The body of an encoded message in the kernel: where its JSON text is, whether to look into it, and what is there.

The rules of `headgate.evaluate.walk.kernel` hold. What is a text is said in docs/design/body-paths.md.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.body.json.kernel import find_paths, first_element, next_element
from headgate.evaluate.layout import NEEDLE
from headgate.evaluate.values.kernel import equal_text
from headgate.evaluate.walk.kernel import (
    APPLICATION_PROPERTIES_CODE,
    FIRST_BODY_CODE,
    HEADER_CODE,
    LAST_CODE,
    descriptor,
    is_list_code,
    section,
)
from headgate.kernels.byte_masks import equal_in_8, equal_in_64
from headgate.kernels.compiler import helper, shared
from headgate.kernels.memory import kept_apart, load_be_u32, load_i64, load_u8, trailing_zeros

DATA_CODE = 0x75
VALUE_CODE = 0x77
QUOTE = 0x22
BACKSLASH = 0x5C
SLACK_BYTES = 8


@helper
def _body_at(position: int, late: int, end: int) -> tuple[int, int]:
    """Code and value of the first section of the body; code 0 if there is none, or UNDECIDED.

    The map of the application properties is at `late`, 0 for none.
    """
    if late != 0:
        _elements, position, _count = section(late, end, False)
    while position < end:
        code, value = descriptor(position, end)
        if code == layout.UNDECIDED or FIRST_BODY_CODE <= code <= LAST_CODE:
            return code, value
        if code < HEADER_CODE or code > APPLICATION_PROPERTIES_CODE:
            return 0, 0
        _elements, position, _count = section(value, end, is_list_code(code))
    return 0, 0


@helper
def _text(position: int, late: int, end: int) -> tuple[int, int, int]:
    """TRUE and the beginning and end of the JSON text; FALSE if the body is none, or UNDECIDED."""
    kept_apart()
    code, value = _body_at(position, late, end)
    if code == layout.UNDECIDED:
        return layout.UNDECIDED, 0, 0
    if code != DATA_CODE and code != VALUE_CODE:
        return layout.FALSE, 0, 0
    constructor = load_u8(value)
    if constructor == 0xA0 or (constructor == 0xA1 and code == VALUE_CODE):
        start = value + 2
        stop = start + load_u8(value + 1)
    elif constructor == 0xB0 or (constructor == 0xB1 and code == VALUE_CODE):
        start = value + 5
        stop = start + load_be_u32(value + 1)
    else:
        return layout.FALSE, 0, 0
    if stop < end:
        following, _value = descriptor(stop, end)
        if following == layout.UNDECIDED or following == DATA_CODE == code:
            return layout.UNDECIDED, 0, 0
        if following != LAST_CODE:
            return layout.FALSE, 0, 0
    return layout.TRUE if stop <= end else layout.FALSE, start, stop


# -- what the text may hold --------------------------------------------------------------------------------------------


@helper
def _holds_byte(position: int, stop: int, byte: int) -> bool:
    """Whether a text holds a byte."""
    found = 0
    wide = stop + SLACK_BYTES - 64
    if position <= wide:
        while position < stop:
            position = min(position, wide)
            found = equal_in_64(position, byte)
            if found != 0:
                break
            position += 64
    while position < stop and found == 0:
        found = equal_in_8(position, byte)
        if found != 0:
            break
        position += 8
    first: int = position + trailing_zeros(found)
    return first < stop


@helper
def _holds(position: int, stop: int, needle: int, length: int) -> bool:
    """Whether a text holds other bytes, at least two, or a backslash in front of where they end."""
    first = load_u8(needle)
    second = load_u8(needle + 1)
    last = load_u8(needle + length - 1)
    # The last place where it may begin.
    most = stop - length
    wide = stop + SLACK_BYTES - 64 - length
    is_wide = position <= wide
    while position <= most:
        if is_wide:
            # The last 64 bytes may have been looked at in part.
            position = min(position, wide)
            found = (
                equal_in_64(position, first)
                & equal_in_64(position + 1, second)
                & equal_in_64(position + length - 1, last)
            )
            behind = position + 64
        else:
            found = equal_in_8(position, first) & equal_in_8(position + 1, second)
            behind = position + 8
        while found != 0:
            place = position + trailing_zeros(found)
            if place > most:
                break
            if equal_text(place, needle, length):
                return True
            found &= found - 1
        position = behind
    return False


@helper
def _may_hold(position: int, stop: int, needles: int, count: int, pool: int) -> int:
    """TRUE if one of some needles stands in the text, or might be hidden by an escape; else FALSE."""
    kept_apart()
    for _ in range(count):
        if _holds(position, stop, pool + load_i64(needles + NEEDLE.text), load_i64(needles + NEEDLE.length)):
            return layout.TRUE
        needles += layout.NEEDLE_BYTES
    return layout.TRUE if _holds_byte(position, stop, BACKSLASH) else layout.FALSE


# -- steps of a program ------------------------------------------------------------------------------------------------


@shared
def look_into_body(at: int, start: int, late: int, end: int, program: int, registers: int, pool: int) -> int:
    """A step of the body for the message from `start` to `end`: a truth, TRUE for what is done, or UNDECIDED.

    Application properties are at `late`, 0 for none. `at` is the instruction, 0 for READ_BODY.
    """
    kept_apart()
    operation = load_i64(at) if at != 0 else layout.READ_BODY
    if operation == layout.START_ELEMENTS:
        return first_element(at, registers)
    if operation == layout.NEXT_ELEMENT:
        return next_element(at, program, registers, pool)
    found, position, stop = _text(start, late, end)
    if found == layout.UNDECIDED:
        return layout.UNDECIDED
    is_text = found == layout.TRUE and stop - position <= layout.MOST_JSON_BYTES
    if operation == layout.READ_BODY:
        return find_paths(position, stop, program, registers, pool) if is_text else layout.TRUE
    if not is_text:
        return layout.FALSE
    return _may_hold(position, stop, program + load_i64(at + layout.B), load_i64(at + layout.C), pool)
