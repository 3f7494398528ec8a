"""The dialect `amqp` in the kernel: references into containers, INF and NAN, functions on texts, `||`.

What needs Unicode's tables, and results too long for their scratch, is left to the reference. Results of LOWER, UPPER
and `||` lie in scratch registers behind which there is slack; LEFT, RIGHT and SUBSTRING are parts of their argument.
Source: amqp_extensions, sections 3 and 5 to 7.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER, STEP
from headgate.evaluate.values.kernel import (
    HIGH_BITS,
    NOT_TEXT,
    character_end,
    equal_text,
    set_bytes,
    set_register,
    text_state,
)
from headgate.evaluate.walk.values.kernel import decode, skip_rare
from headgate.kernels.compiler import helper, inlined, shared
from headgate.kernels.memory import (
    copy_bytes,
    float_of_bits,
    kept_apart,
    load_be_f32,
    load_be_i64,
    load_be_u32,
    load_i64,
    load_u8,
    load_u16,
    store_i64,
    store_u8,
)

SCRATCH_BYTES = layout.SCRATCH_REGISTERS * layout.REGISTER_BYTES - 8
MAX_CONCATENATED_BYTES = 65_535
MOST_INTEGER = 0x7FFF_FFFF_FFFF_FFFF
LOW_BITS_OF_FOUR = 0x7F7F7F7F
DAY_MS = 86_400_000
EPOCH_DAY = 719_468
"""Days from 1 March of the year 0 to 1970-01-01: years that begin in March end with the leap day."""


# -- INF and NAN -------------------------------------------------------------------------------------------------------


@shared
def amqp_predicate(at: int, register: int) -> int:
    """Truth of COMPARE_SPECIAL, the only predicate of this family."""
    kept_apart()
    number = load_i64(at + layout.B)
    accepted = load_i64(at + layout.C)
    kind = load_i64(register)
    if kind == layout.VALUELESS:
        return _compare_not_finite(load_i64(register + REGISTER.payload), number, accepted)
    if kind < layout.FIRST_KNOWN:
        return layout.UNKNOWN
    if kind not in (layout.INTEGER, layout.FLOAT, layout.LARGE, layout.BETWEEN) or number == layout.NAN:
        return layout.FALSE
    order = -1 if number == layout.INFINITY else 1
    return (accepted >> (order + 1)) & 1


@helper
def _compare_not_finite(position: int, number: int, accepted: int) -> int:
    """As `amqp_predicate`, for an infinity, NaN or another value at `position`; 0: there is none."""
    if position == 0:
        return layout.UNKNOWN
    constructor = load_u8(position)
    if constructor == 0x72:
        value = load_be_f32(position + 1)
    elif constructor == 0x82:
        value = float_of_bits(load_be_i64(position + 1))
    else:
        return layout.UNKNOWN
    if value != value:
        return layout.TRUE if number == layout.NAN and accepted == layout.EQUAL else layout.FALSE
    if number == layout.NAN:
        return layout.FALSE
    order = (1 if value > 0.0 else 0) - (1 if number == layout.INFINITY else 0)
    return (accepted >> (order + 1)) & 1


# -- references --------------------------------------------------------------------------------------------------------


@helper
def _is_key(position: int, stop: int, steps: int, scratch: int, pool: int) -> bool:
    """Whether the key from `position` to `stop` is the one that a step asks for; decodes into the `scratch`."""
    constructor = load_u8(position)
    number = load_i64(steps + STEP.number)
    if number < 0:
        if constructor == 0xA1 or constructor == 0xA3:
            text = position + 2
        elif constructor == 0xB1 or constructor == 0xB3:
            text = position + 5
        else:
            return False
        length = load_i64(steps + STEP.length)
        return stop - text == length and equal_text(text, pool + load_i64(steps + STEP.text), length)
    if constructor == 0x73 or constructor == 0x83:
        # A char and a timestamp are integers to filters, but no numbers of a step.
        return False
    decode(position, scratch, pool)
    return load_i64(scratch) == layout.INTEGER and load_i64(scratch + REGISTER.payload) == number


@helper
def _entry(position: int, stop: int, pairs: int, step: int, scratch: int, pool: int) -> int:
    """The address of the value of the first entry with the key of a step; 0 if there is none."""
    while pairs > 0:
        value = skip_rare(position, stop, pool)
        if value > stop:
            return 0
        behind = skip_rare(value, stop, pool)
        if behind > stop:
            return 0
        if _is_key(position, value, step, scratch, pool):
            return value
        position = behind
        pairs -= 1
    return 0


@helper
def _array_element(position: int, stop: int, number: int, pool: int) -> tuple[int, int, int]:
    """Constructor, address of the content and its end of an element; constructor 0 if it is described, -1 for none."""
    if position >= stop:
        return -1, 0, 0
    constructor = load_u8(position)
    described = constructor == 0
    if described:
        position = skip_rare(position + 1, stop, pool)
        if position >= stop:
            return -1, 0, 0
        constructor = load_u8(position)
    position += 1
    width = load_u16(pool + 2 * constructor)
    if width < layout.WIDTH_SIZE8:
        position += number * (width - 1)
        behind = position + width - 1
    elif width in (layout.WIDTH_SIZE8, layout.WIDTH_SIZE32):
        size_width = 1 if width == layout.WIDTH_SIZE8 else 4
        behind = position
        while number >= 0:
            position = behind
            if position + size_width > stop:
                return -1, 0, 0
            size = load_u8(position) if size_width == 1 else load_be_u32(position)
            behind = position + size_width + size
            number -= 1
            if behind > stop:
                return -1, 0, 0
    else:
        return -1, 0, 0
    if behind > stop:
        return -1, 0, 0
    return 0 if described else constructor, position, behind


@helper
def _follow(base: int, steps: int, count: int, result: int, scratch: int, pool: int) -> None:
    """Follow the steps of a path from the value in slot `base`, and decode its end into `result`; ABSENT if missing."""
    set_register(result, layout.ABSENT, 0)
    if load_i64(base) != layout.VALUELESS:
        return
    position = load_i64(base + REGISTER.payload)
    constructor = load_u8(position)
    content = position + 1
    behind = 0
    while count > 0:
        if constructor == 0xC0 or constructor == 0xC1 or constructor == 0xE0:
            elements = content + 2
            size = load_u8(content)
            stop = content + 1 + size
            held = load_u8(content + 1)
        elif constructor == 0xD0 or constructor == 0xD1 or constructor == 0xF0:
            elements = content + 8
            size = load_be_u32(content)
            stop = content + 4 + size
            held = load_be_u32(content + 4)
        else:
            return
        if elements > stop:
            return
        number = load_i64(steps + STEP.number)
        behind = 0
        if constructor == 0xC1 or constructor == 0xD1:
            position = _entry(elements, stop, held >> 1, steps, scratch, pool)
            if position == 0:
                return
        elif number < 0 or number >= held:
            return
        elif constructor == 0xC0 or constructor == 0xD0:
            position = elements
            while number > 0:
                position = skip_rare(position, stop, pool)
                if position > stop:
                    return
                number -= 1
            if skip_rare(position, stop, pool) > stop:
                return
        else:
            constructor, content, behind = _array_element(elements, stop, number, pool)
            if constructor < 0:
                return
        if behind == 0:
            constructor = load_u8(position)
            content = position + 1
        steps += layout.STEP_BYTES
        count -= 1
    if behind == 0:
        decode(position, result, pool)
    else:
        _decode_element(constructor, content, behind, result, scratch, pool)


@helper
def _decode_element(constructor: int, content: int, behind: int, result: int, scratch: int, pool: int) -> None:
    """Decode an element of an array, whose constructor stands elsewhere."""
    if constructor == 0xA0 or constructor == 0xA1 or constructor == 0xA3:
        set_bytes(result, content + 1, behind - content - 1)
    elif constructor == 0xB0 or constructor == 0xB1 or constructor == 0xB3:
        set_bytes(result, content + 4, behind - content - 4)
    elif constructor == 0 or constructor >= 0xC0:
        set_register(result, layout.VALUELESS, 0)
    else:
        store_u8(scratch, constructor)
        copy_bytes(scratch + 1, content, behind - content)
        decode(scratch, result, pool)


# -- texts -------------------------------------------------------------------------------------------------------------


@inlined
def _case_bits(four: int, first: int) -> int:
    """0x20 in each of four ASCII bytes that is one of the 26 letters from `first` on; nothing here overflows."""
    ones = 0x01010101
    from_first = four + ones * (0x80 - first)
    behind_last = four + ones * (0x80 - first - 26)
    return ((from_first & ~behind_last) >> 2) & (ones * 0x20)


@helper
def _change_case(operation: int, text: int, length: int, scratch: int, result: int) -> int:
    """LOWER or UPPER of ASCII, eight characters at a time; anything else is undecided."""
    if length > SCRATCH_BYTES:
        return layout.UNDECIDED
    first = 0x41 if operation == layout.LOWER else 0x61
    offset = 0
    while offset < length:
        word = load_i64(text + offset)
        left = length - offset
        seen = word if left >= 8 else word & ((1 << (8 * left)) - 1)
        if seen & HIGH_BITS != 0:
            return layout.UNDECIDED
        changed = _case_bits(word & LOW_BITS_OF_FOUR, first) | _case_bits((word >> 32) & LOW_BITS_OF_FOUR, first) << 32
        store_i64(scratch + offset, word ^ changed)
        offset += 8
    set_bytes(result, scratch, length)
    return layout.TRUE


@helper
def _concatenate(first: int, second: int, scratch: int, result: int) -> int:
    if load_i64(first) != layout.BYTES or load_i64(second) != layout.BYTES:
        return layout.TRUE
    length = load_i64(first + REGISTER.length)
    other = load_i64(second + REGISTER.length)
    if length + other > MAX_CONCATENATED_BYTES:
        return layout.TRUE
    if length + other > SCRATCH_BYTES:
        return layout.UNDECIDED
    copy_bytes(scratch, load_i64(first + REGISTER.payload), length)
    copy_bytes(scratch + length, load_i64(second + REGISTER.payload), other)
    set_bytes(result, scratch, length + other)
    return layout.TRUE


@helper
def _forward(position: int, end: int, characters: int) -> int:
    """The address behind a number of characters of UTF-8, at most `end`."""
    while characters > 0 and position < end:
        position = character_end(position, end)
        characters -= 1
    return position


@helper
def _characters(position: int, end: int) -> int:
    """How many characters of UTF-8 there are."""
    count = 0
    while position < end:
        position = character_end(position, end)
        count += 1
    return count


@helper
def _part(operation: int, text: int, end: int, first: int, has_count: bool, count: int, result: int) -> None:
    """LEFT or RIGHT with `first` characters, SUBSTRING from `first` with `count`, of UTF-8 text."""
    if operation == layout.SUBSTRING:
        if has_count and count < 0:
            return
        start = _forward(text, end, first - 1) if first > 1 else text
        stop = end
        if has_count:
            # Of a window that begins before the text, what lies before it is lost.
            visible = count if first > 0 else count - 1 + first if count > 0 else 0
            stop = _forward(start, end, visible)
    elif first < 0:
        return
    elif operation == layout.LEFT:
        start = text
        stop = _forward(text, end, first)
    else:
        start = _forward(text, end, _characters(text, end) - first)
        stop = end
    set_bytes(result, start, stop - start)


@helper
def _part_of_register(operation: int, at: int, first: int, second: int, registers: int, result: int) -> int:
    count_at = load_i64(at + layout.C)
    has_count = operation == layout.SUBSTRING and count_at >= 0
    kind = load_i64(second)
    count = 0
    count_kind = layout.INTEGER
    if has_count:
        count = load_i64(registers + count_at + REGISTER.payload)
        count_kind = load_i64(registers + count_at)
    # Integers beyond 64 bits.
    large = (layout.LARGE, layout.BEYOND, layout.BETWEEN)
    if kind in large or count_kind in large:
        return layout.UNDECIDED
    if load_i64(first) != layout.BYTES or kind != layout.INTEGER or count_kind != layout.INTEGER:
        return layout.TRUE
    text = load_i64(first + REGISTER.payload)
    end = text + load_i64(first + REGISTER.length)
    if text_state(text, end) != NOT_TEXT:
        _part(operation, text, end, load_i64(second + REGISTER.payload), has_count, count, result)
    return layout.TRUE


# -- dates -------------------------------------------------------------------------------------------------------------


@helper
def _digits(position: int, count: int) -> int:
    """The number that some digits spell; below zero if another character is among them."""
    number = 0
    wrong = 0
    while count > 0:
        digit = load_u8(position) - 0x30
        if digit < 0 or digit > 9:
            wrong = 1
        number = 10 * number + digit
        position += 1
        count -= 1
    return -1 if wrong != 0 else number


@helper
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; `MOST_INTEGER` for a date that does not exist."""
    if year < 1 or month < 1 or month > 12 or day < 1:
        return MOST_INTEGER
    is_leap = year & 3 == 0 and (year % 100 != 0 or year & 15 == 0)
    most = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        most = 29 if is_leap else 28
    if day > most:
        return MOST_INTEGER
    # Counted from March on.
    if month <= 2:
        year -= 1
        month += 12
    century = year // 100
    return 365 * year + (year >> 2) - century + (century >> 2) + (153 * (month - 3) + 2) // 5 + day - 1 - EPOCH_DAY


@helper
def _date(text: int, length: int, result: int) -> None:
    """DATE: an ISO 8601 date, with or without a time and a zone."""
    if length < 10 or load_u8(text + 4) != 0x2D or load_u8(text + 7) != 0x2D:
        return
    days = _days(_digits(text, 4), _digits(text + 5, 2), _digits(text + 8, 2))
    if days == MOST_INTEGER:
        return
    hour = 0
    minute = 0
    milliseconds = 0
    ahead = 0
    if length > 10:
        if length < 16 or load_u8(text + 10) != 0x54 or load_u8(text + 13) != 0x3A:
            return
        hour = _digits(text + 11, 2)
        minute = _digits(text + 14, 2)
        at = 16
        if at < length and load_u8(text + at) == 0x3A:
            if length < 19:
                return
            second = _digits(text + 17, 2)
            if second < 0 or second > 59:
                return
            milliseconds = 1000 * second
            at = 19
            if at < length and load_u8(text + at) == 0x2E:
                at += 1
                weight = 100
                first = at
                while at < length and 0x30 <= load_u8(text + at) <= 0x39:
                    milliseconds += weight * (load_u8(text + at) - 0x30)
                    weight //= 10
                    at += 1
                if at == first or at - first > 9:
                    return
        if at < length:
            sign = load_u8(text + at)
            if sign == 0x5A:
                at += 1
            elif sign == 0x2B or sign == 0x2D:
                if length < at + 6 or load_u8(text + at + 3) != 0x3A:
                    return
                zone_hour = _digits(text + at + 1, 2)
                zone_minute = _digits(text + at + 4, 2)
                if zone_hour < 0 or zone_hour > 23 or zone_minute < 0 or zone_minute > 59:
                    return
                ahead = 60 * zone_hour + zone_minute
                if sign == 0x2D:
                    ahead = -ahead
                at += 6
        if at != length or hour < 0 or hour > 23 or minute < 0 or minute > 59:
            return
    set_register(result, layout.INTEGER, days * DAY_MS + (60 * hour + minute - ahead) * 60_000 + milliseconds)


# -- value operations --------------------------------------------------------------------------------------------------


@shared
def amqp_value(operation: int, at: int, program: int, registers: int, pool: int) -> int:
    """A value operation of this family: TRUE when done, UNDECIDED if only the reference can say."""
    kept_apart()
    first = registers + load_i64(at + layout.A)
    result = registers + load_i64(at + layout.OTHERWISE)
    if operation == layout.FOLLOW:
        scratch = registers + load_i64(at + layout.D)
        _follow(first, program + load_i64(at + layout.B), load_i64(at + layout.C), result, scratch, pool)
        return layout.TRUE
    second = registers + load_i64(at + layout.B)
    if operation == layout.OR_DEFAULT:
        source = second if load_i64(first) == layout.ABSENT else first
        set_register(result, load_i64(source), load_i64(source + REGISTER.payload))
        return layout.TRUE
    set_register(result, layout.VALUELESS, 0)
    if operation == layout.CONCATENATE:
        return _concatenate(first, second, registers + load_i64(at + layout.D), result)
    if operation != layout.DATE and operation != layout.LOWER and operation != layout.UPPER:
        return _part_of_register(operation, at, first, second, registers, result)
    if load_i64(first) != layout.BYTES:
        return layout.TRUE
    text = load_i64(first + REGISTER.payload)
    length = load_i64(first + REGISTER.length)
    if operation == layout.DATE:
        _date(text, length, result)
        return layout.TRUE
    return _change_case(operation, text, length, registers + load_i64(at + layout.D), result)
