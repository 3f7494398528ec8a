"""The kernel: reads the wanted fields of encoded messages and interprets a program (`layout.py`) over them.

Addresses are plain int64. Two rules keep every read inside a message and the slack behind it (`SLACK_BYTES`, 8):
a constructor or a size of up to four bytes may be read at any address up to the end of what is walked, since it lies
within the slack; anything longer is read only after its end was checked. The walk follows docs/design/message-validity.md.

Functions that walk return an address to go on at; an address behind the given `stop` means that the bytes do not fit.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    add_overflows,
    bits_of_float,
    float_of_bits,
    kept_apart,
    load_be_f32,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i8,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    multiply_overflows,
    prefetch,
    store_i64,
    store_u8,
    subtract_overflows,
    trailing_zeros,
)

# Frozen into the compiled code.
ABSENT, NULL, VALUELESS, FIRST_KNOWN = layout.ABSENT, layout.NULL, layout.VALUELESS, layout.FIRST_KNOWN
INTEGER, FLOAT, BYTES = layout.INTEGER, layout.FLOAT, layout.BYTES
BOOLEAN, LARGE, BEYOND = layout.BOOLEAN, layout.LARGE, layout.BEYOND
FALSE, TRUE, UNKNOWN = layout.FALSE, layout.TRUE, layout.UNKNOWN
MALFORMED, UNDECIDED, STORE = layout.MALFORMED, layout.UNDECIDED, layout.STORE
WANTED, ON_WANTED, OTHERWISE = layout.WANTED, layout.ON_WANTED, layout.OTHERWISE
A, B, C, D, E = layout.A, layout.B, layout.C, layout.D, layout.E
EQUAL_BYTES, AMONG_BYTES = layout.EQUAL_BYTES, layout.AMONG_BYTES
COMPARE_INTEGER, COMPARE_FLOAT, EQUAL_BOOLEAN = layout.COMPARE_INTEGER, layout.COMPARE_FLOAT, layout.EQUAL_BOOLEAN
TRUTH, IS_UNKNOWN = layout.TRUTH, layout.IS_UNKNOWN
IS_PRESENT, IS_SIMPLE = layout.IS_PRESENT, layout.IS_SIMPLE
COMPARE, AMONG = layout.COMPARE, layout.AMONG
LIKE_AFFIXES, LIKE_EXACT, LIKE_GENERAL = layout.LIKE_AFFIXES, layout.LIKE_EXACT, layout.LIKE_GENERAL
FIRST_VALUE_OPERATION = layout.FIRST_VALUE_OPERATION
ADD, SUBTRACT, MULTIPLY, DIVIDE = layout.ADD, layout.SUBTRACT, layout.MULTIPLY, layout.DIVIDE
MODULO, NEGATE, KEEP_NUMBER = layout.MODULO, layout.NEGATE, layout.KEEP_NUMBER
BOTH, EITHER, OPPOSITE = layout.BOTH, layout.EITHER, layout.OPPOSITE
EQUAL = layout.EQUAL
ANY_TEXT, ONE_CHARACTER = layout.ANY_TEXT, layout.ONE_CHARACTER
READ_APPLICATION_PROPERTIES, CHECK = layout.READ_APPLICATION_PROPERTIES, layout.CHECK
SLOT_TEMPLATE, WANTED_SECTIONS = layout.SLOT_TEMPLATE, layout.WANTED_SECTIONS
APPLICATION_KEYS = layout.APPLICATION_KEYS
FIELDS_COUNT, FIELDS_FIRST = layout.FIELDS_COUNT, layout.FIELDS_FIRST
KEYS_COUNT, KEYS_BY_LENGTH, KEYS_FIRST = layout.KEYS_COUNT, layout.KEYS_BY_LENGTH, layout.KEYS_FIRST
KEY_BYTES, KEY_WORD, KEY_MASK, KEY_LENGTH = layout.KEY_BYTES, layout.KEY_WORD, layout.KEY_MASK, layout.KEY_LENGTH
KEY_TEXT, KEY_REGISTER, KEY_NEXT = layout.KEY_TEXT, layout.KEY_REGISTER, layout.KEY_NEXT
WIDTH_SIZE8, WIDTH_RARE, WIDTH_SIZE32 = layout.WIDTH_SIZE8, layout.WIDTH_RARE, layout.WIDTH_SIZE32
WIDTH_DESCRIBED = layout.WIDTH_DESCRIBED

HEADER_CODE, DELIVERY_ANNOTATIONS_CODE, MESSAGE_ANNOTATIONS_CODE = 0x70, 0x71, 0x72
PROPERTIES_CODE, APPLICATION_PROPERTIES_CODE, FIRST_BODY_CODE, LAST_CODE = 0x73, 0x74, 0x75, 0x78
SHORT_HEADER, SHORT_PROPERTIES = 0xC0705300, 0xC0735300
APPLICATION_PROPERTIES_HEAD = 0x745300
LINE_FEED = 0x0A
SIGN_BIT = -(2**63)
HIGH_BITS = -0x7F7F7F7F7F7F7F80
LOW_BITS = 0x0101010101010101
LINE_FEEDS = 0x0A0A0A0A0A0A0A0A
NULLS = 0x4040404040404040
MOST_INTEGER = 2**63 - 1

NOT_TEXT, HAS_LINE_FEED, ONE_LINE = 0, 1, 2

PREFETCH_MESSAGES = 8
"""How many messages ahead are asked for: a miss takes as long as several messages."""


# -- bytes -------------------------------------------------------------------------------------------------------------


@inlined
def _equal_after_eight(left: int, right: int, length: int) -> bool:
    """Whether texts of the same length above eight are equal, their first eight bytes being so."""
    last = length - 8
    offset = 8
    while offset < last:
        if load_i64(left + offset) != load_i64(right + offset):
            return False
        offset += 8
    return load_i64(left + last) == load_i64(right + last)


@helper
def _equal_text(left: int, right: int, length: int) -> bool:
    offset = 0
    while offset <= length - 8:
        if load_i64(left + offset) != load_i64(right + offset):
            return False
        offset += 8
    while offset < length:
        if load_u8(left + offset) != load_u8(right + offset):
            return False
        offset += 1
    return True


@helper
def _text_order(left: int, left_length: int, right: int, right_length: int) -> int:
    """-1, 0 or 1 as `left` sorts before, with or behind `right`, bytewise."""
    kept_apart()
    shorter = min(left_length, right_length)
    offset = 0
    while offset <= shorter - 8:
        first = load_be_i64(left + offset)
        second = load_be_i64(right + offset)
        if first != second:
            return -1 if (first ^ SIGN_BIT) < (second ^ SIGN_BIT) else 1
        offset += 8
    while offset < shorter:
        difference = load_u8(left + offset) - load_u8(right + offset)
        if difference != 0:
            return -1 if difference < 0 else 1
        offset += 1
    return _order(left_length, right_length)


@inlined
def _order(first: int, second: int) -> int:
    return (1 if first > second else 0) - (1 if first < second else 0)


# -- walking encoded values --------------------------------------------------------------------------------------------


@helper
def _skip_rare(position: int, stop: int, widths: int) -> int:
    """As `_skip`, for any value."""
    kept_apart()
    pending = 1
    while pending > 0:
        if position >= stop:
            return stop + 1
        width = load_u16(widths + 2 * load_u8(position))
        if width < WIDTH_SIZE8:
            position += width
        elif width < WIDTH_RARE:
            position += 2 + load_u8(position + 1)
        elif width == WIDTH_SIZE32:
            position += 5 + load_be_u32(position + 1)
        elif width == WIDTH_DESCRIBED:
            position += 1
            pending += 2
        else:
            return stop + 1
        pending -= 1
    return position


@inlined
def _skip(position: int, stop: int, widths: int) -> int:
    """Behind the value at `position`, which is at most `stop`; more than `stop` if there is no whole value.

    Branches on the common constructors rather than a look-up of the width: the processor predicts them and runs ahead,
    where a look-up makes the address of each value wait for two loads on the one before.
    """
    constructor = load_u8(position)
    if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xA0:
        return position + 2 + load_u8(position + 1)
    if 0x40 <= constructor <= 0x45:
        return position + 1
    if 0x80 <= constructor <= 0x84:
        return position + 9
    if 0x70 <= constructor <= 0x74:
        return position + 5
    if 0x50 <= constructor <= 0x56:
        return position + 2
    return _skip_rare(position, stop, widths)


@inlined
def _nulls(position: int, most: int) -> int:
    """How many of the next `most` values are null, at most eight."""
    count = trailing_zeros(load_i64(position) ^ NULLS) >> 3
    return count if count < most else most


@inlined
def _check_list(position: int, stop: int, count: int, widths: int) -> bool:
    """Whether `count` elements from `position` end exactly at `stop`; quick where many are null."""
    while count > 0:
        nulls = _nulls(position, count)
        position += nulls
        count -= nulls
        if count > 0 and position < stop:
            position = _skip(position, stop, widths)
            count -= 1
        if position > stop or (position == stop and count > 0):
            return False
    return position == stop


@inlined
def _check_map(position: int, stop: int, count: int, widths: int) -> bool:
    """Whether `count` elements from `position`, an even number, end exactly at `stop`; quick where keys are short strings."""
    while count > 0:
        if load_u8(position) == 0xA1:
            position += 2 + load_u8(position + 1)
        else:
            position = _skip_rare(position, stop, widths)
        if position > stop:
            return False
        position = _skip(position, stop, widths)
        if position > stop:
            return False
        count -= 2
    return position == stop


@inlined
def _set(register: int, kind: int, payload: int) -> None:
    store_i64(register, kind)
    store_i64(register + 8, payload)


@inlined
def _set_float(register: int, value: float) -> None:
    if value - value == 0.0:
        _set(register, FLOAT, bits_of_float(value))
    else:
        store_i64(register, VALUELESS)


@inlined
def _set_bytes(register: int, address: int, length: int) -> None:
    store_i64(register, BYTES)
    store_i64(register + 8, address)
    store_i64(register + 16, length)


@helper
def _decode(position: int, register: int) -> None:
    """Put the value at `position`, whose end was checked, into a register."""
    constructor = load_u8(position)
    if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xA0:
        _set_bytes(register, position + 2, load_u8(position + 1))
    elif constructor == 0x40:
        store_i64(register, NULL)
    elif constructor == 0x41:
        _set(register, BOOLEAN, 1)
    elif constructor == 0x42:
        _set(register, BOOLEAN, 0)
    elif constructor == 0x43 or constructor == 0x44:
        _set(register, INTEGER, 0)
    elif constructor == 0x50 or constructor == 0x52 or constructor == 0x53:
        _set(register, INTEGER, load_u8(position + 1))
    elif constructor == 0x51 or constructor == 0x54 or constructor == 0x55:
        _set(register, INTEGER, load_i8(position + 1))
    elif constructor == 0x56:
        _set(register, BOOLEAN, 1 if load_u8(position + 1) != 0 else 0)
    elif constructor == 0x60:
        _set(register, INTEGER, load_be_u16(position + 1))
    elif constructor == 0x61:
        _set(register, INTEGER, load_be_i16(position + 1))
    elif constructor == 0x70 or constructor == 0x73:
        _set(register, INTEGER, load_be_u32(position + 1))
    elif constructor == 0x71:
        _set(register, INTEGER, load_be_i32(position + 1))
    elif constructor == 0x72:
        _set_float(register, load_be_f32(position + 1))
    elif constructor == 0x80:
        value = load_be_i64(position + 1)
        _set(register, INTEGER if value >= 0 else LARGE, value)
    elif constructor == 0x81 or constructor == 0x83:
        _set(register, INTEGER, load_be_i64(position + 1))
    elif constructor == 0x82:
        _set_float(register, float_of_bits(load_be_i64(position + 1)))
    elif constructor == 0x98:
        _set_bytes(register, position + 1, 16)
    elif constructor == 0xB1 or constructor == 0xB3 or constructor == 0xB0:
        _set_bytes(register, position + 5, load_be_u32(position + 1))
    else:
        # decimals, lists, maps, arrays, described values
        store_i64(register, VALUELESS)


@inlined
def _decode_text_first(position: int, register: int) -> None:
    """`_decode` with the most common constructor in line."""
    if load_u8(position) == 0xA1:
        _set_bytes(register, position + 2, load_u8(position + 1))
    else:
        _decode(position, register)


@inlined
def _read_list(position: int, stop: int, count: int, fields: int, registers: int, widths: int) -> bool:
    """Decode the wanted elements of a header or properties list; False if it breaks before the last of them.

    An element that is null is as good as none: its slot stays as it is.
    """
    wanted = load_i64(fields + FIELDS_COUNT)
    if count > wanted:
        count = wanted
    slots = fields + FIELDS_FIRST
    while count > 0:
        nulls = _nulls(position, count)
        position += nulls
        slots += 8 * nulls
        count -= nulls
        if position > stop:
            return False
        if count == 0:
            return True
        following = _skip(position, stop, widths)
        if following > stop:
            return False
        slot = load_i64(slots)
        if slot >= 0:
            _decode_text_first(position, registers + slot)
        slots += 8
        position = following
        count -= 1
    return True


@inlined
def _read_map(
    position: int, stop: int, pairs: int, keys: int, short_key: int, registers: int, pool: int
) -> tuple[int, int]:
    """Decode the values of the wanted keys until all are found; where it stopped and how many pairs are left.

    The place is behind `stop` if the map breaks before that. Keys count with constructor `short_key` or its long form.
    Of equal keys the first counts.
    """
    missing = load_i64(keys + KEYS_COUNT)
    by_length = pool + load_i64(keys + KEYS_BY_LENGTH)
    first_key = keys + KEYS_FIRST - KEY_BYTES
    while pairs > 0:
        constructor = load_u8(position)
        length = load_u8(position + 1)
        candidate = 0
        if constructor == short_key:
            key = position + 2
            value = key + length
            candidate = load_u8(by_length + length)
        elif constructor == short_key + 0x10:
            length = load_be_u32(position + 1)
            key = position + 5
            value = key + length
            candidate = load_u8(by_length + min(length, 255))
        else:
            key = position
            value = _skip_rare(position, stop, pool)
        if value > stop:
            return stop + 1, pairs
        position = _skip(value, stop, pool)
        if position > stop:
            return position, pairs
        pairs -= 1
        while candidate != 0:
            entry = first_key + candidate * KEY_BYTES
            if (
                (load_i64(key) ^ load_i64(entry + KEY_WORD)) & load_i64(entry + KEY_MASK) == 0
                and length == load_i64(entry + KEY_LENGTH)
                and (length <= 8 or _equal_after_eight(key, pool + load_i64(entry + KEY_TEXT), length))
            ):
                register = registers + load_i64(entry + KEY_REGISTER)
                if load_i64(register) == ABSENT:
                    _decode_text_first(value, register)
                    missing -= 1
                    if missing == 0:
                        return position, pairs
                break
            candidate = load_i64(entry + KEY_NEXT)
    return position, pairs


# -- walking a message -------------------------------------------------------------------------------------------------


@inlined
def _is_list(code: int) -> bool:
    return code == HEADER_CODE or code == PROPERTIES_CODE


@inlined
def _descriptor(position: int, end: int) -> tuple[int, int]:
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
        return UNDECIDED, position
    return 0, position


@inlined
def _section(position: int, end: int, is_list: bool) -> tuple[int, int, int]:
    """Elements, stop and count of the section whose value begins at `position` (at most `end`); stop above `end` if broken."""
    constructor = load_u8(position)
    if constructor == (0xC0 if is_list else 0xC1):
        size = load_u8(position + 1)
        return position + 3, position + 2 + size if size > 0 else end + 1, load_u8(position + 2)
    return _section_rare(position, end, is_list)


@helper
def _section_rare(position: int, end: int, is_list: bool) -> tuple[int, int, int]:
    """As `_section`, for lists and maps of any form but the short one."""
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


@helper
def _check(position: int, end: int, widths: int, rest: int, rest_count: int) -> int:
    """The rule of docs/design/message-validity.md: TRUE, MALFORMED or UNDECIDED.

    If `rest` is not 0, the application properties have been walked up to there and `rest_count` elements are left.
    """
    kept_apart()
    previous = 0
    while position < end:
        code, value = _descriptor(position, end)
        if code == UNDECIDED:
            return UNDECIDED
        if code >= FIRST_BODY_CODE:
            return TRUE if code <= LAST_CODE else MALFORMED
        if code < HEADER_CODE or code <= previous:
            return MALFORMED
        previous = code
        is_list = _is_list(code)
        elements, stop, count = _section(value, end, is_list)
        if stop > end:
            return MALFORMED
        if is_list:
            if not _check_list(elements, stop, count, widths):
                return MALFORMED
        elif code == APPLICATION_PROPERTIES_CODE:
            if rest != 0:
                elements = rest
                count = rest_count
            if count & 1 != 0 or not _check_map(elements, stop, count, widths):
                return MALFORMED
        position = stop
    return TRUE


@inlined
def _gather_early(position: int, end: int, program: int, registers: int, pool: int) -> int:
    """Fill the slots of all sections before the application properties.

    Gives the address of the application properties' map, 0 if there are none, -MALFORMED or -UNDECIDED.
    """
    previous = 0
    while position < end:
        head = load_u32(position)
        if head == SHORT_HEADER or head == SHORT_PROPERTIES:
            code = (head >> 16) & 0xFF
            is_list = True
            elements = position + 6
            size = load_u8(position + 4)
            stop = position + 5 + size
            count = load_u8(position + 5)
            if size == 0:
                return -MALFORMED
        elif head & 0xFFFFFF == APPLICATION_PROPERTIES_HEAD:
            return position + 3 if position + 3 <= end else -MALFORMED
        else:
            code, value = _descriptor(position, end)
            if code >= APPLICATION_PROPERTIES_CODE:
                if code == APPLICATION_PROPERTIES_CODE:
                    return value
                return 0 if code <= LAST_CODE else -MALFORMED
            if code < HEADER_CODE:
                return -UNDECIDED if code == UNDECIDED else -MALFORMED
            is_list = _is_list(code)
            elements, stop, count = _section(value, end, is_list)
        if code <= previous or stop > end:
            return -MALFORMED
        previous = code
        wanted = load_i64(program + WANTED_SECTIONS + 8 * (code - HEADER_CODE))
        if wanted != 0:
            if is_list:
                if not _read_list(elements, stop, count, program + wanted, registers, pool):
                    return -MALFORMED
            else:
                # Where the framing of annotations breaks, what was not found is absent: no error.
                _read_map(elements, stop, count >> 1, program + wanted, 0xA3, registers, pool)
        position = stop
    return 0


@inlined
def _gather_late(value: int, end: int, program: int, registers: int, pool: int) -> tuple[int, int]:
    """Fill the slots of the application properties, whose map is at `value`.

    Gives where the walk stopped and how many elements are left; a place behind `end` if the map breaks before that.
    """
    elements, stop, count = _section(value, end, False)
    if stop > end or count & 1 != 0:
        return end + 1, 0
    rest, pairs = _read_map(
        elements, stop, count >> 1, program + load_i64(program + APPLICATION_KEYS), 0xA1, registers, pool
    )
    return rest if rest <= stop else end + 1, 2 * pairs


# -- values ------------------------------------------------------------------------------------------------------------


@inlined
def _is_number(kind: int) -> bool:
    return kind == INTEGER or kind == FLOAT or kind >= LARGE


@helper
def _order_integer_float(integer: int, value: float) -> int:
    """The exact order of an integer and a finite double."""
    if value >= 9223372036854775808.0:
        return -1
    if value < -9223372036854775808.0:
        return 1
    whole = int(value)
    if integer != whole:
        return -1 if integer < whole else 1
    fraction = value - float(whole)
    return (1 if fraction < 0.0 else 0) - (1 if fraction > 0.0 else 0)


@helper
def _order_large_float(bits: int, value: float) -> int:
    """The exact order of an integer from 2^63 to 2^64 - 1, given by its bits, and a finite double."""
    if value >= 18446744073709551616.0:
        return -1
    if value < 9223372036854775808.0:
        return 1
    return _order(bits ^ SIGN_BIT, int(value - 9223372036854775808.0))


@helper
def _order_numbers(left_kind: int, left: int, right_kind: int, right: int) -> int:
    """-1, 0 or 1; numbers are kind and payload, none BEYOND."""
    if left_kind == INTEGER:
        if right_kind == INTEGER:
            return _order(left, right)
        if right_kind == FLOAT:
            return _order_integer_float(left, float_of_bits(right))
        return -1
    if left_kind == FLOAT:
        value = float_of_bits(left)
        if right_kind == FLOAT:
            other = float_of_bits(right)
            return (1 if value > other else 0) - (1 if value < other else 0)
        if right_kind == INTEGER:
            return -_order_integer_float(right, value)
        return -_order_large_float(right, value)
    if right_kind == INTEGER:
        return 1
    if right_kind == FLOAT:
        return _order_large_float(left, float_of_bits(right))
    return _order(left ^ SIGN_BIT, right ^ SIGN_BIT)


@inlined
def _order_beyond(kind: int, payload: int, below: int, exact: int) -> int:
    """The exact order of a number that 64 bits hold and a constant that none do, given as its register says."""
    limit = float_of_bits(below)
    if kind != FLOAT:
        return -1 if limit > 0.0 else 1
    value = float_of_bits(payload)
    if value == limit and exact != 0:
        return 0
    return 1 if value > limit else -1


@helper
def _compare(left: int, right_kind: int, right_payload: int, right_length: int, accepted: int) -> int:
    """Truth of a comparison: a register against a value; kinds as RabbitMQ compares them."""
    kept_apart()
    kind = load_i64(left)
    if kind < FIRST_KNOWN or right_kind < FIRST_KNOWN:
        return UNKNOWN
    payload = load_i64(left + 8)
    if _is_number(kind):
        if not _is_number(right_kind):
            return FALSE
        if kind == BEYOND or right_kind == BEYOND:
            if kind == right_kind:
                return UNDECIDED
            if kind == BEYOND:
                order = -_order_beyond(right_kind, right_payload, payload, load_i64(left + 16))
            else:
                order = _order_beyond(kind, payload, right_payload, right_length)
            return (accepted >> (order + 1)) & 1
        return (accepted >> (_order_numbers(kind, payload, right_kind, right_payload) + 1)) & 1
    if kind != right_kind:
        return FALSE
    if kind == BYTES:
        length = load_i64(left + 16)
        if accepted == EQUAL:
            return TRUE if length == right_length and _equal_text(payload, right_payload, length) else FALSE
        return (accepted >> (_text_order(payload, length, right_payload, right_length) + 1)) & 1
    return TRUE if accepted == EQUAL and payload == right_payload else FALSE


@helper
def _among(subject: int, others: int, count: int, registers: int) -> int:
    """Truth of IN over registers: members of unknown value equal nothing."""
    kept_apart()
    if load_i64(subject) < FIRST_KNOWN:
        return UNKNOWN
    result = FALSE
    while count > 0:
        other = registers + load_i64(others)
        truth = _compare(subject, load_i64(other), load_i64(other + 8), load_i64(other + 16), EQUAL)
        if truth == TRUE:
            return TRUE
        if truth == UNDECIDED:
            result = UNDECIDED
        others += 8
        count -= 1
    return result


@helper
def _integer_arithmetic(operation: int, first: int, second: int, result: int) -> bool:
    """Integer arithmetic but division into a register that is VALUELESS before; False on overflow."""
    if operation == ADD:
        if add_overflows(first, second) != 0:
            return False
        _set(result, INTEGER, first + second)
    elif operation == SUBTRACT:
        if subtract_overflows(first, second) != 0:
            return False
        _set(result, INTEGER, first - second)
    elif operation == MULTIPLY:
        if multiply_overflows(first, second) != 0:
            return False
        _set(result, INTEGER, first * second)
    elif second == 1 or second == -1:
        # The machine traps on the least integer modulo -1.
        _set(result, INTEGER, 0)
    elif second != 0:
        remainder = first % second
        if remainder != 0 and (first < 0) != (second < 0):
            remainder -= second
        _set(result, INTEGER, remainder)
    return True


@inlined
def _as_float(kind: int, payload: int) -> float:
    """The double nearest to a number that is not BEYOND."""
    if kind == FLOAT:
        return float_of_bits(payload)
    if kind == INTEGER:
        return float(payload)
    # Halved with the lowest bit kept as a sticky one, so that rounding once gives the nearest.
    return 2.0 * float((payload >> 1) & MOST_INTEGER | payload & 1)


@helper
def _arithmetic(operation: int, left: int, right: int, result: int) -> bool:
    """Binary arithmetic of two registers into a third; False if only unbounded integers can say."""
    kept_apart()
    left_kind = load_i64(left)
    right_kind = load_i64(right)
    store_i64(result, VALUELESS)
    if not _is_number(left_kind) or not _is_number(right_kind):
        return True
    if operation == MODULO and (left_kind == FLOAT or right_kind == FLOAT):
        return True
    if left_kind == BEYOND or right_kind == BEYOND:
        return False
    first = load_i64(left + 8)
    second = load_i64(right + 8)
    if left_kind != FLOAT and right_kind != FLOAT and operation != DIVIDE:
        if left_kind == LARGE or right_kind == LARGE:
            return False
        return _integer_arithmetic(operation, first, second, result)
    value = _as_float(left_kind, first)
    other = _as_float(right_kind, second)
    if operation == ADD:
        _set_float(result, value + other)
    elif operation == SUBTRACT:
        _set_float(result, value - other)
    elif operation == MULTIPLY:
        _set_float(result, value * other)
    elif other != 0.0:
        _set_float(result, value / other)
    return True


@helper
def _signed(operation: int, operand: int, result: int) -> bool:
    """Unary plus or minus; False if only unbounded integers can say."""
    kept_apart()
    kind = load_i64(operand)
    payload = load_i64(operand + 8)
    if kind == FLOAT:
        _set(result, FLOAT, payload ^ SIGN_BIT if operation == NEGATE else payload)
    elif kind == INTEGER and (operation == KEEP_NUMBER or payload != SIGN_BIT):
        _set(result, INTEGER, -payload if operation == NEGATE else payload)
    elif _is_number(kind):
        return False
    else:
        store_i64(result, VALUELESS)
    return True


@inlined
def _truth_of(register: int) -> int:
    """Truth of a value: anything but a boolean is unknown."""
    return load_i64(register + 8) if load_i64(register) == BOOLEAN else UNKNOWN


@inlined
def _store_truth(register: int, truth: int) -> None:
    _set(register, VALUELESS if truth == UNKNOWN else BOOLEAN, truth)


@helper
def _logic(operation: int, left: int, right: int, result: int) -> None:
    """Three-valued conjunction, disjunction or negation of values."""
    kept_apart()
    first = _truth_of(left)
    if operation == OPPOSITE:
        _store_truth(result, UNKNOWN if first == UNKNOWN else 1 - first)
        return
    second = _truth_of(right)
    decisive = FALSE if operation == BOTH else TRUE
    if first == decisive or second == decisive:
        _store_truth(result, decisive)
    elif first == UNKNOWN or second == UNKNOWN:
        _store_truth(result, UNKNOWN)
    else:
        _store_truth(result, 1 - decisive)


# -- LIKE --------------------------------------------------------------------------------------------------------------


@helper
def _character(position: int, end: int) -> int:
    """Behind the UTF-8 character at `position`; 0 if there is none (Unicode, table 3-7)."""
    lead = load_u8(position)
    if lead < 0x80:
        return position + 1
    if lead < 0xC2 or lead > 0xF4:
        return 0
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if position + size > end:
        return 0
    second = load_u8(position + 1)
    least = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    most = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if second < least or second > most:
        return 0
    if size > 2 and load_u8(position + 2) & 0xC0 != 0x80:
        return 0
    if size > 3 and load_u8(position + 3) & 0xC0 != 0x80:
        return 0
    return position + size


@helper
def _text_state(position: int, end: int) -> int:
    """NOT_TEXT if the bytes are not UTF-8, else whether they hold a line feed."""
    state = ONE_LINE
    while position < end:
        if position <= end - 8:
            word = load_i64(position)
            feeds = word ^ LINE_FEEDS
            if (word | ((feeds - LOW_BITS) & ~feeds)) & HIGH_BITS == 0:
                position += 8
                continue
        if load_u8(position) == LINE_FEED:
            state = HAS_LINE_FEED
        position = _character(position, end)
        if position == 0:
            return NOT_TEXT
    return state


@helper
def _like_general(subject: int, length: int, elements: int, count: int, pool: int) -> int:
    """Truth of a pattern with wildcards over code points, as RabbitMQ's regular expressions decide it.

    Wildcards do not match a line feed and patterns cannot hold one, so a subject with a line feed anywhere but at its
    end, where one is tolerated, matches nothing. At most length x pattern steps: on a mismatch only the last `%` gives way.
    """
    kept_apart()
    end = subject + length
    trimmed = end - 1 if length > 0 and load_u8(end - 1) == LINE_FEED else end
    state = _text_state(subject, trimmed)
    if state == NOT_TEXT:
        return UNKNOWN
    if state == HAS_LINE_FEED:
        return FALSE
    end = trimmed
    position = subject
    element = 0
    resume_element = -1
    resume = position
    while True:
        if element < count:
            size = load_i64(elements + 16 * element)
            if size == ANY_TEXT:
                element += 1
                if element == count:
                    return TRUE
                resume_element = element
                resume = position
                continue
            if size == ONE_CHARACTER:
                if position < end:
                    position = _character(position, end)
                    element += 1
                    continue
            elif position + size <= end and _equal_text(position, pool + load_i64(elements + 16 * element + 8), size):
                position += size
                element += 1
                continue
        elif position == end:
            return TRUE
        if resume_element < 0 or resume >= end:
            return FALSE
        resume = _character(resume, end)
        position = resume
        element = resume_element


# -- the interpreter ---------------------------------------------------------------------------------------------------


@inlined
def _interpret(program: int, position: int, registers: int, pool: int, start: int, late: int, end: int) -> int:
    """Run instructions to an end: the verdict.

    The message is at `start` to `end`, the map of its application properties at `late`, 0 if it has none.
    """
    rest = 0
    rest_count = 0
    while position >= 0:
        at = program + position
        operation = load_i64(at)
        register = registers + load_i64(at + A)
        kind = load_i64(register)
        truth = UNKNOWN
        if operation == EQUAL_BYTES:
            if kind == BYTES:
                length = load_i64(at + C)
                truth = FALSE
                if load_i64(register + 16) == length:
                    text = load_i64(register + 8)
                    if (load_i64(text) ^ load_i64(at + B)) & load_i64(at + D) == 0 and (
                        length <= 8 or _equal_after_eight(text, pool + load_i64(at + E), length)
                    ):
                        truth = TRUE
            elif kind >= FIRST_KNOWN:
                truth = FALSE
        elif operation == AMONG_BYTES:
            if kind == BYTES:
                truth = FALSE
                text = load_i64(register + 8)
                length = load_i64(register + 16)
                word = load_i64(text)
                member = program + load_i64(at + B)
                behind = member + 32 * load_i64(at + C)
                while member < behind:
                    if (
                        (word ^ load_i64(member)) & load_i64(member + 8) == 0
                        and length == load_i64(member + 16)
                        and (length <= 8 or _equal_after_eight(text, pool + load_i64(member + 24), length))
                    ):
                        truth = TRUE
                        break
                    member += 32
            elif kind >= FIRST_KNOWN:
                truth = FALSE
        elif operation == COMPARE_INTEGER:
            if kind == INTEGER:
                truth = (load_i64(at + C) >> (_order(load_i64(register + 8), load_i64(at + B)) + 1)) & 1
            else:
                truth = _compare(register, INTEGER, load_i64(at + B), 0, load_i64(at + C))
        elif operation == COMPARE_FLOAT:
            if kind == FLOAT:
                value = float_of_bits(load_i64(register + 8))
                other = float_of_bits(load_i64(at + B))
                order = (1 if value > other else 0) - (1 if value < other else 0)
                truth = (load_i64(at + C) >> (order + 1)) & 1
            else:
                truth = _compare(register, FLOAT, load_i64(at + B), 0, load_i64(at + C))
        elif operation == EQUAL_BOOLEAN:
            if kind == BOOLEAN:
                truth = TRUE if load_i64(register + 8) == load_i64(at + B) else FALSE
            elif kind >= FIRST_KNOWN:
                truth = FALSE
        elif operation == TRUTH:
            truth = _truth_of(register)
        elif operation == IS_UNKNOWN:
            truth = TRUE if kind < FIRST_KNOWN else FALSE
        elif operation == IS_PRESENT:
            truth = TRUE if kind != ABSENT else FALSE
        elif operation == IS_SIMPLE:
            truth = TRUE if kind == NULL or kind >= FIRST_KNOWN else FALSE
        elif operation == COMPARE:
            other = registers + load_i64(at + B)
            truth = _compare(register, load_i64(other), load_i64(other + 8), load_i64(other + 16), load_i64(at + C))
        elif operation == AMONG:
            truth = _among(register, program + load_i64(at + B), load_i64(at + C), registers)
        elif operation == READ_APPLICATION_PROPERTIES:
            if late != 0:
                rest, rest_count = _gather_late(late, end, program, registers, pool)
                if rest > end:
                    return MALFORMED
            position = load_i64(at + ON_WANTED)
            continue
        elif operation == CHECK:
            checked = _check(start, end, pool, rest, rest_count)
            if checked != TRUE:
                return checked
            position = load_i64(at + ON_WANTED)
            continue
        elif operation < FIRST_VALUE_OPERATION:
            if kind == BYTES:
                text = load_i64(register + 8)
                length = load_i64(register + 16)
                if operation == LIKE_AFFIXES:
                    prefix = load_i64(at + C)
                    suffix = load_i64(at + E)
                    truth = FALSE
                    if (
                        length >= prefix + suffix
                        and _equal_text(text, pool + load_i64(at + B), prefix)
                        and _equal_text(text + length - suffix, pool + load_i64(at + D), suffix)
                    ):
                        truth = TRUE
                elif operation == LIKE_EXACT:
                    truth = FALSE
                    if length == load_i64(at + C) and _equal_text(text, pool + load_i64(at + B), length):
                        truth = TRUE
                else:
                    truth = _like_general(text, length, program + load_i64(at + B), load_i64(at + C), pool)
        else:
            result = registers + load_i64(at + OTHERWISE)
            second = registers + load_i64(at + B)
            if operation < NEGATE:
                if not _arithmetic(operation, register, second, result):
                    return UNDECIDED
            elif operation <= KEEP_NUMBER:
                if not _signed(operation, register, result):
                    return UNDECIDED
            else:
                _logic(operation, register, second, result)
            position = load_i64(at + ON_WANTED)
            continue
        wanted = load_i64(at + WANTED)
        if truth == wanted:
            position = load_i64(at + ON_WANTED)
        elif truth == UNDECIDED:
            return UNDECIDED
        elif wanted == STORE:
            _store_truth(registers + load_i64(at + OTHERWISE), truth)
            position = load_i64(at + ON_WANTED)
        else:
            position = load_i64(at + OTHERWISE)
    return -1 - position


@inlined
def _reset(program: int, registers: int) -> None:
    """Slots as they are before a message: absent, or a default."""
    template = program + load_i64(program + SLOT_TEMPLATE)
    kind = load_i64(template)
    while kind >= 0:
        store_i64(registers, kind)
        store_i64(registers + 8, load_i64(template + 8))
        registers += 24
        template += 24
        kind = load_i64(template)


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def evaluate(
    data: int,
    data_bytes: int,
    starts: int,
    lengths: int,
    messages: int,
    program: int,
    code_word: int,
    pool: int,
    registers: int,
    verdicts: int,
) -> int:
    """Write one verdict byte per message; -1, or the first row whose bytes are not within `data_bytes`.

    All but `data_bytes`, `messages` and `code_word` (CODE_SELECT or CODE_EXACT) are addresses; behind `data_bytes` there
    is the slack.
    """
    code = load_i64(program + code_word)
    last_ahead = messages - PREFETCH_MESSAGES
    for row in range(messages):
        start = load_i64(starts + 8 * row)
        length = load_i64(lengths + 8 * row)
        if start < 0 or length < 0 or start > data_bytes or length > data_bytes - start:
            return row
        if row < last_ahead:
            ahead = data + load_i64(starts + 8 * (row + PREFETCH_MESSAGES))
            prefetch(ahead)
            prefetch(ahead + 64)
            prefetch(ahead + 128)
        start += data
        end = start + length
        _reset(program, registers)
        late = _gather_early(start, end, program, registers, pool)
        verdict = -late if late < 0 else _interpret(program, code, registers, pool, start, late, end)
        store_u8(verdicts + row, verdict)
    return -1
