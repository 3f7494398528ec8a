"""Encoded messages in kernels: walking them, checking them, and filling slots from them.

Two rules keep every read inside a message and the slack behind it (`SLACK_BYTES`, 8): a constructor, a size of up to
four bytes or a first word of eight may be read at any address up to the end of what is walked, since it lies within the
slack; anything longer is read only after its end was checked. The walk follows docs/design/message-validity.md.

Functions that walk return an address to go on at; an address above the given `stop` means that the bytes do not fit.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.kernel import (
    equal_after_eight,
    equal_text,
    set_register,
)
from headgate.evaluate.walk.values.kernel import (
    decode_as,
    decode_text_first,
    null_run,
    read_as,
    skip,
    skip_rare,
)
from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import (
    kept_apart,
    load_be_i64,
    load_be_u32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    store_i64,
)

HEADER_CODE = 0x70
PROPERTIES_CODE = 0x73
APPLICATION_PROPERTIES_CODE = 0x74
FIRST_BODY_CODE = 0x75
LAST_CODE = 0x78
SHORT_HEADER = 0xC0705300
SHORT_PROPERTIES = 0xC0735300
APPLICATION_PROPERTIES_HEAD = 0x745300


@inlined
def is_outside(start: int, length: int, data_bytes: int) -> bool:
    """Whether a message does not lie within the `data_bytes` of its buffer."""
    return start | length < 0 or length > data_bytes - start


# -- lists and maps ----------------------------------------------------------------------------------------------------


@inlined
def _settle(value: int, register: int, pool: int, by_use: bool) -> int:
    """Decode the value of a wanted key into its slot: 1 if it counts, 0 if a later equal key may still replace it.

    With `by_use` the first value that filters can use counts, or the first if there is none; otherwise the first.
    """
    known = load_i64(register)
    address = load_i64(register + REGISTER.payload)
    decode_text_first(value, register, pool)
    if by_use:
        found = load_i64(register)
        if found in (layout.VALUELESS, layout.OPEN):
            if known != layout.ABSENT:
                set_register(register, known, address)
            return 0
    return 1


@inlined
def _is_settled(register: int, by_use: bool) -> bool:
    known = load_i64(register)
    return not layout.ABSENT <= known <= layout.OPEN if by_use else known != layout.ABSENT


@inlined
def _read_list(position: int, stop: int, count: int, fields: int, registers: int, pool: int) -> None:
    """Decode the wanted elements of a header or properties list, up to where its framing breaks.

    An element that is null is as good as none: its slot stays as it is.
    """
    wanted = load_i64(fields + layout.FIELDS_COUNT)
    if count > wanted:
        count = wanted
    slots = fields + layout.FIELDS_FIRST
    while count > 0:
        nulls = null_run(position, count)
        position += nulls
        slots += 8 * nulls
        count -= nulls
        if position >= stop or count == 0:
            return
        following = skip(position, stop, pool)
        if following > stop:
            return
        slot = load_i64(slots)
        if slot >= 0:
            reading = slot & layout.READING
            if reading == layout.AS_IT_IS:
                decode_text_first(position, registers + slot, pool)
            else:
                decode_as(reading, position, registers + slot - reading, pool)
        slots += 8
        position = following
        count -= 1


@inlined
def _read_map(position: int, stop: int, pairs: int, keys: int, by_use: bool, registers: int, pool: int) -> None:
    """Decode the values of the wanted keys until all are found or the map's framing breaks.

    With `by_use` keys are strings, and of equal ones the first counts that filters can use, null being one; otherwise
    they are strings and symbols, and the first counts.
    """
    missing = load_i64(keys + layout.KEYS_COUNT)
    by_length = pool + load_i64(keys + layout.KEYS_BY_LENGTH)
    first_key = keys + layout.KEYS_FIRST - layout.KEY_BYTES
    while pairs > 0:
        constructor = load_u8(position)
        length = load_u8(position + 1)
        candidate = 0
        if constructor == 0xA1 or (constructor == 0xA3 and not by_use):
            key = position + 2
            value = key + length
            candidate = load_u8(by_length + length)
        elif constructor == 0xB1 or (constructor == 0xB3 and not by_use):
            length = load_be_u32(position + 1)
            key = position + 5
            value = key + length
            candidate = load_u8(by_length + min(length, 255))
        else:
            key = position
            value = skip_rare(position, stop, pool)
        if value >= stop:
            return
        position = skip(value, stop, pool)
        if position > stop:
            return
        pairs -= 1
        while candidate != 0:
            entry = first_key + candidate * layout.KEY_BYTES
            if (
                (load_i64(key) ^ load_i64(entry + layout.KEY_WORD)) & load_i64(entry + layout.KEY_MASK) == 0
                and length == load_i64(entry + layout.KEY_LENGTH)
                and (length <= 8 or equal_after_eight(key, pool + load_i64(entry + layout.KEY_TEXT), length))
            ):
                register = registers + load_i64(entry + layout.KEY_REGISTER)
                reading = layout.AS_IT_IS
                if not by_use:
                    reading = load_i64(entry + layout.KEY_REGISTER) & layout.READING
                    register -= reading
                if not _is_settled(register, by_use):
                    missing -= _settle(value, register, pool, by_use)
                    if reading != layout.AS_IT_IS:
                        read_as(reading, value, register)
                    if missing == 0:
                        return
                break
            candidate = load_i64(entry + layout.KEY_NEXT)


@inlined
def _equal_in_any_case(left: int, right: int, masks: int, length: int) -> bool:
    """As `equal_after_eight` for two keys of one length above eight, looking at the bits of `masks` only."""
    last = length - 8
    offset = 8
    while offset < last:
        if (load_i64(left + offset) ^ load_i64(right + offset)) & load_i64(masks + offset) != 0:
            return False
        offset += 8
    return (load_i64(left + last) ^ load_i64(right + last)) & load_i64(masks + last) == 0


@helper
def _read_map_in_any_case(position: int, stop: int, pairs: int, keys: int, registers: int, pool: int) -> None:
    """As `_read_map` for keys that are found in any letter case.

    A key in the wanted spelling counts before others, else the first; of equal ones as ever.
    """
    kept_apart()
    missing = load_i64(keys + layout.KEYS_COUNT)
    by_length = pool + load_i64(keys + layout.KEYS_BY_LENGTH)
    first_key = keys + layout.KEYS_FIRST - layout.CASE_KEY_BYTES
    while pairs > 0:
        constructor = load_u8(position)
        length = load_u8(position + 1)
        candidate = 0
        if constructor == 0xA1:
            key = position + 2
            value = key + length
            candidate = load_u8(by_length + length)
        elif constructor == 0xB1:
            length = load_be_u32(position + 1)
            key = position + 5
            value = key + length
            candidate = load_u8(by_length + min(length, 255))
        else:
            key = position
            value = skip_rare(position, stop, pool)
        if value >= stop:
            return
        position = skip(value, stop, pool)
        if position > stop:
            return
        pairs -= 1
        while candidate != 0:
            entry = first_key + candidate * layout.CASE_KEY_BYTES
            candidate = load_i64(entry + layout.KEY_NEXT)
            different = load_i64(key) ^ load_i64(entry + layout.KEY_WORD)
            text = pool + load_i64(entry + layout.KEY_TEXT)
            if (
                different & load_i64(entry + layout.KEY_CASE_MASK) == 0
                and length == load_i64(entry + layout.KEY_LENGTH)
                and (
                    length <= 8 or _equal_in_any_case(key, text, pool + load_i64(entry + layout.KEY_CASE_MASKS), length)
                )
            ):
                register = registers + load_i64(entry + layout.KEY_REGISTER)
                spelling = registers + load_i64(entry + layout.KEY_SPELLING)
                taken = load_i64(spelling)
                if different & load_i64(entry + layout.KEY_MASK) == 0 and (
                    length <= 8 or equal_after_eight(key, text, length)
                ):
                    if taken != layout.SAME_CASE:
                        set_register(spelling, layout.SAME_CASE, key)
                        store_i64(register, layout.ABSENT)
                elif taken == layout.NO_KEY:
                    set_register(spelling, layout.OTHER_CASE, key)
                elif taken == layout.SAME_CASE or not equal_text(key, load_i64(spelling + REGISTER.payload), length):
                    continue
                if not _is_settled(register, True):
                    settled = _settle(value, register, pool, True)
                    if load_i64(spelling) == layout.SAME_CASE:
                        missing -= settled
                        if missing == 0:
                            return


@helper
def _read_annotations(position: int, stop: int, pairs: int, keys: int, registers: int, pool: int) -> None:
    """The values of the wanted keys of annotations, or of a footer."""
    kept_apart()
    _read_map(position, stop, pairs, keys, False, registers, pool)


# -- walking a message -------------------------------------------------------------------------------------------------


@inlined
def is_list_code(code: int) -> bool:
    """Whether a section before the body is a list; the others are maps."""
    header = code == HEADER_CODE
    return header or code == PROPERTIES_CODE


@inlined
def descriptor(position: int, end: int) -> tuple[int, int]:
    """The section code whose descriptor begins at `position` (below `end`), and the address of its value.

    Code 0 for what is no section, UNDECIDED for symbols, which the reference knows.
    """
    head = load_u16(position)
    if head == 0x5300 and position + 3 <= end:
        return load_u8(position + 2), position + 3
    if head == 0x8000 and position + 10 <= end:
        code = load_be_i64(position + 2)
        return (code if HEADER_CODE <= code <= LAST_CODE else 0), position + 10
    if (head == 0xA300 or head == 0xB300) and position + 2 <= end:
        return layout.UNDECIDED, position
    return 0, position


@inlined
def section(position: int, end: int, is_list: bool) -> tuple[int, int, int]:
    """Elements, stop and count of the section whose value begins at `position`, at most `end`.

    Stop is above `end` if the section does not fit.
    """
    constructor = load_u8(position)
    if constructor == (0xC0 if is_list else 0xC1):
        size = load_u8(position + 1)
        return position + 3, position + 2 + size if size > 0 else end + 1, load_u8(position + 2)
    return _section_rare(position, end, is_list)


@helper
def _section_rare(position: int, end: int, is_list: bool) -> tuple[int, int, int]:
    """As `section`, for lists and maps of any form but the short one."""
    kept_apart()
    constructor = load_u8(position)
    if constructor == (0xD0 if is_list else 0xD1):
        size = load_be_u32(position + 1)
        stop = position + 5 + size
        if size >= 4 and stop <= end:
            return position + 9, stop, load_be_u32(position + 5)
    elif is_list and constructor == 0x45:
        return position + 1, position + 1, 0
    return position, end + 1, 0


@inlined
def check_rest(late: int, end: int) -> int:
    """Check the rest of message-validity.md, behind the part that `gather_early` checked: TRUE, MALFORMED, UNDECIDED.

    The rest is the map of the application properties at `late` (0 for none, then nothing is left) and what follows it.
    """
    if late == 0:
        return layout.TRUE
    _elements, stop, _count = section(late, end, False)
    if stop > end:
        return layout.MALFORMED
    if stop == end:
        return layout.TRUE
    code, _value = descriptor(stop, end)
    if code == layout.UNDECIDED:
        return layout.UNDECIDED
    return layout.TRUE if FIRST_BODY_CODE <= code <= LAST_CODE else layout.MALFORMED


@inlined
def gather_early(position: int, end: int, program: int, registers: int, pool: int) -> int:
    """Fill the slots of all sections before the application properties.

    Gives the address of the application properties' map, 0 if there are none, -MALFORMED or -UNDECIDED.
    """
    previous = 0
    while position < end:
        head = load_u32(position)
        short_header = head == SHORT_HEADER
        if short_header or head == SHORT_PROPERTIES:
            code = (head >> 16) & 0xFF
            is_list = True
            elements = position + 6
            size = load_u8(position + 4)
            stop = position + 5 + size
            count = load_u8(position + 5)
            if size == 0:
                return -layout.MALFORMED
        elif head & 0xFFFFFF == APPLICATION_PROPERTIES_HEAD:
            return position + 3 if position + 3 <= end else -layout.MALFORMED
        else:
            code, value = descriptor(position, end)
            if code >= APPLICATION_PROPERTIES_CODE:
                if code == APPLICATION_PROPERTIES_CODE:
                    return value
                return 0 if code <= LAST_CODE else -layout.MALFORMED
            if code < HEADER_CODE:
                return -layout.UNDECIDED if code == layout.UNDECIDED else -layout.MALFORMED
            is_list = is_list_code(code)
            elements, stop, count = section(value, end, is_list)
        if code <= previous or stop > end:
            return -layout.MALFORMED
        previous = code
        wanted = load_i64(program + layout.WANTED_SECTIONS + 8 * (code - HEADER_CODE))
        if wanted != 0:
            if is_list:
                _read_list(elements, stop, count, program + wanted, registers, pool)
            else:
                _read_annotations(elements, stop, count >> 1, program + wanted, registers, pool)
        position = stop
    return 0


@inlined
def gather_late(value: int, end: int, program: int, registers: int, pool: int) -> bool:
    """Fill the slots of the application properties, whose map is at `value`; False if it does not fit the message."""
    elements, stop, count = section(value, end, False)
    if stop > end:
        return False
    keys = program + load_i64(program + layout.APPLICATION_KEYS)
    if load_i64(keys + layout.KEYS_IGNORE_CASE) != 0:
        _read_map_in_any_case(elements, stop, count >> 1, keys, registers, pool)
    else:
        _read_map(elements, stop, count >> 1, keys, True, registers, pool)
    return True


@helper
def gather_footer(position: int, end: int, program: int, registers: int, pool: int) -> int:
    """Fill the slots of the footer behind the body: TRUE, or UNDECIDED where sections have symbols for descriptors.

    Where the framing breaks, or another section follows the body, there is no footer.
    """
    in_body = False
    while position < end:
        code, value = descriptor(position, end)
        if code == layout.UNDECIDED:
            return layout.UNDECIDED
        if code == LAST_CODE:
            elements, stop, count = section(value, end, False)
            if stop <= end:
                keys = program + load_i64(program + layout.FOOTER_KEYS)
                _read_annotations(elements, stop, count >> 1, keys, registers, pool)
            return layout.TRUE
        if code >= FIRST_BODY_CODE:
            in_body = True
            position = skip_rare(value, end, pool)
        elif code < HEADER_CODE or in_body:
            return layout.TRUE
        else:
            _elements, position, _count = section(value, end, is_list_code(code))
    return layout.TRUE
