"""JSON texts (RFC 8259) in the kernel: one pass checks a whole text, and puts values at several paths into registers.

Nothing is decoded but what a path asks for; there is no recursion. Left to the reference in filters: long texts with
escapes, numbers with very many digits or a large exponent. Every read lies before the end of the text or in the slack
behind its message, also of 32 bytes that are read at once.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import BODY, BRANCH, REGISTER
from headgate.evaluate.values.kernel import (
    character_end,
    equal_after_eight,
    set_bytes,
    set_register,
    set_text,
)
from headgate.kernels.byte_masks import breaks_in_8, breaks_in_32, no_digits_in_8
from headgate.kernels.compiler import helper, inlined, shared
from headgate.kernels.memory import (
    bits_of_float,
    kept_apart,
    load_i64,
    load_u8,
    load_u32,
    store_i64,
    store_u8,
    trailing_zeros,
)

QUOTE = 0x22
COMMA = 0x2C
MINUS = 0x2D
POINT = 0x2E
ZERO = 0x30
NINE = 0x39
COLON = 0x3A
OPEN_ARRAY = 0x5B
BACKSLASH = 0x5C
CLOSE_ARRAY = 0x5D
LETTER_E = 0x65
LETTER_N = 0x6E
LETTER_T = 0x74
LETTER_U = 0x75
OPEN_OBJECT = 0x7B
CLOSE_OBJECT = 0x7D
TRUE_WORD = 0x65757274
FALSE_TAIL = 0x65736C61
FALSE_FIRST = 0x66
NULL_WORD = 0x6C6C756E
SLACK_BYTES = 8
LEVEL_BYTES = layout.LEVEL_REGISTERS * layout.REGISTER_BYTES
SPACE = 0x20
MOST_INTEGER = 2**63 - 1
MOST_EXACT = 2**53
"""Up to it every integer is a double; 10^22 is the greatest power of ten that is."""
FIFTEEN_DIGITS = 10**15
MOST_DIGITS = 400

WRONG = 0
NO_JSON = 0
UNSURE = 1


# -- parts of a text ---------------------------------------------------------------------------------------------------


@helper
def _behind_blanks(position: int, end: int) -> int:
    """The address of the next byte that is no white space, at most `end`."""
    while position < end:
        byte = load_u8(position)
        if byte > SPACE or (byte != SPACE and byte != 0x0A and byte != 0x0D and byte != 0x09):
            break
        position += 1
    return position


@inlined
def _next(position: int, end: int) -> int:
    """As `_behind_blanks`, which most texts have nothing for."""
    return position if load_u8(position) > SPACE else _behind_blanks(position, end)


@helper
def _hexadecimal(position: int) -> int:
    """The number of four hexadecimal digits; below zero for other bytes."""
    number = 0
    for offset in range(4):
        byte = load_u8(position + offset)
        if ZERO <= byte <= NINE:
            digit = byte - ZERO
        else:
            digit = (byte | 0x20) - 0x57
            if digit < 10 or digit > 15:
                return -1
        number = number << 4 | digit
    return number


@helper
def _behind_escape(position: int, end: int) -> int:
    """The address behind the escape at `position`; WRONG."""
    if position + 2 > end:
        return WRONG
    byte = load_u8(position + 1)
    if byte == LETTER_U:
        return position + 6 if position + 6 <= end and _hexadecimal(position + 2) >= 0 else WRONG
    # " \ / b f n r t
    is_itself = byte == 0x22 or byte == 0x5C or byte == 0x2F
    is_escape = byte == 0x62 or byte == 0x66 or byte == 0x6E or byte == 0x72 or byte == 0x74
    return position + 2 if is_itself or is_escape else WRONG


@helper
def _closing_quote(position: int, end: int) -> int:
    """The address of the quote that ends a string, from somewhere in it on; negated if there are escapes before it.

    WRONG if there is none.
    """
    kept_apart()
    has_escapes = False
    last_wide = end + SLACK_BYTES - 32
    while position < end:
        if position <= last_wide:
            breaks = breaks_in_32(position)
            if breaks == 0:
                position += 32
                continue
        else:
            breaks = breaks_in_8(position)
            if breaks == 0:
                position += 8
                continue
        position += trailing_zeros(breaks)
        if position >= end:
            return WRONG
        byte = load_u8(position)
        if byte == QUOTE:
            return -position if has_escapes else position
        if byte == BACKSLASH:
            has_escapes = True
            position = _behind_escape(position, end)
            if position == WRONG:
                return WRONG
        elif byte < SPACE:
            return WRONG
        else:
            while position < end and load_u8(position) >= 0x80:
                position = character_end(position, end)
                if position == 0:
                    return WRONG
    return WRONG


@inlined
def _string_end(position: int, end: int, last_wide: int) -> int:
    """As `_closing_quote`, for the string that begins at `position`; at once if it is short and has nothing special."""
    if position <= last_wide:
        breaks = breaks_in_32(position)
        if breaks != 0:
            stop: int = position + trailing_zeros(breaks)
            if load_u8(stop) == QUOTE:
                return stop
    return _closing_quote(position, end)


@inlined
def _behind_digits(position: int, end: int) -> int:
    """The address behind the digits at `position`, at most `end`."""
    while position < end:
        others = no_digits_in_8(position)
        if others != 0:
            position += trailing_zeros(others)
            break
        position += 8
    return min(position, end)


@helper
def _behind_fraction(position: int, end: int) -> int:
    """The address behind the fraction and the exponent of a number, if it has any; WRONG."""
    kept_apart()
    if load_u8(position) == POINT:
        start = position + 1
        position = _behind_digits(start, end)
        if position == start:
            return WRONG
    if position < end and load_u8(position) | 0x20 == LETTER_E:
        start = position + 1
        if start < end and (load_u8(start) == 0x2B or load_u8(start) == MINUS):
            start += 1
        position = _behind_digits(start, end)
        if position <= start:
            return WRONG
    return position


@inlined
def _number_end(position: int, end: int) -> int:
    """The address behind the number at `position`, below `end`; WRONG if it is none."""
    if load_u8(position) == MINUS:
        position += 1
    behind = _behind_digits(position, end)
    if behind == position or (load_u8(position) == ZERO and behind - position > 1):
        return WRONG
    if behind < end:
        byte = load_u8(behind)
        if byte == POINT or byte | 0x20 == LETTER_E:
            return _behind_fraction(behind, end)
    return behind


# -- values ------------------------------------------------------------------------------------------------------------


@helper
def _unescape(position: int, stop: int, target: int) -> int:
    """Write a checked string without its escapes; gives the address behind it, WRONG for half a surrogate pair."""
    kept_apart()
    while position < stop:
        byte = load_u8(position)
        if byte != BACKSLASH:
            store_u8(target, byte)
            target += 1
            position += 1
            continue
        byte = load_u8(position + 1)
        position += 2
        if byte == LETTER_U:
            code = _hexadecimal(position)
            position += 4
            if code & 0xF800 == 0xD800:
                low = -1
                if code < 0xDC00 and load_u8(position) == BACKSLASH and load_u8(position + 1) == LETTER_U:
                    low = _hexadecimal(position + 2)
                if low & 0xFC00 != 0xDC00 or low < 0:
                    return WRONG
                code = 0x10000 + ((code & 0x3FF) << 10 | low & 0x3FF)
                position += 6
            if code < 0x80:
                store_u8(target, code)
                target += 1
            elif code < 0x800:
                store_u8(target, 0xC0 | code >> 6)
                store_u8(target + 1, 0x80 | code & 0x3F)
                target += 2
            elif code < 0x10000:
                store_u8(target, 0xE0 | code >> 12)
                store_u8(target + 1, 0x80 | (code >> 6) & 0x3F)
                store_u8(target + 2, 0x80 | code & 0x3F)
                target += 3
            else:
                store_u8(target, 0xF0 | code >> 18)
                store_u8(target + 1, 0x80 | (code >> 12) & 0x3F)
                store_u8(target + 2, 0x80 | (code >> 6) & 0x3F)
                store_u8(target + 3, 0x80 | code & 0x3F)
                target += 4
            continue
        if byte == 0x62:
            byte = 0x08
        elif byte == 0x66:
            byte = 0x0C
        elif byte == LETTER_N:
            byte = 0x0A
        elif byte == 0x72:
            byte = 0x0D
        elif byte == LETTER_T:
            byte = 0x09
        store_u8(target, byte)
        target += 1
    return target


@helper
def _keep_number(register: int, position: int, stop: int, scratch: int) -> int:
    """Keep a number as NUMBER_TEXT: TRUE; UNDECIDED in a filter, which has no use for it."""
    if load_i64(scratch) != layout.READS_VALUES:
        return layout.UNDECIDED
    set_text(register, layout.NUMBER_TEXT, position, stop - position)
    return layout.TRUE


@helper
def _set_number(register: int, position: int, stop: int, scratch: int) -> int:
    """Read a checked number into a register: TRUE, or UNDECIDED for very many digits and large exponents.

    A decimal of at most 15 digits is the double nearest to it: no other such decimal is, so comparing the doubles
    compares the decimals. Of longer ones, and of what lies beyond the integers that are doubles, neighbours are known;
    where values are read, these and the undecided ones are kept as texts.
    """
    kept_apart()
    start = position
    if stop - position > MOST_DIGITS:
        return _keep_number(register, start, stop, scratch)
    is_negative = load_u8(position) == MINUS
    if is_negative:
        position += 1
    number = 0
    exponent = 0
    step = 0
    has_more = 0
    is_integer = True
    while position < stop:
        byte = load_u8(position)
        position += 1
        if byte == POINT:
            is_integer = False
            step = -1
        elif byte | 0x20 == LETTER_E:
            is_integer = False
            exponent += _exponent(position, stop)
            break
        elif number <= (MOST_INTEGER - 9) // 10:
            number = 10 * number + byte - ZERO
            exponent += step
        else:
            has_more |= byte ^ ZERO
            exponent += step + 1
    if is_integer and exponent == 0:
        set_register(register, layout.INTEGER, -number if is_negative else number)
        return layout.TRUE
    while number >= FIFTEEN_DIGITS:
        has_more |= number % 10
        number //= 10
        exponent += 1
    if exponent < -22 or exponent > 22:
        return _keep_number(register, start, stop, scratch)
    power = 1.0
    for _ in range(abs(exponent)):
        power *= 10.0
    value = float(number) / power if exponent < 0 else float(number) * power
    if has_more == 0 and value <= MOST_EXACT:
        set_register(register, layout.FLOAT, bits_of_float(-value if is_negative else value))
        return layout.TRUE
    if load_i64(scratch) == layout.READS_VALUES:
        return _keep_number(register, start, stop, scratch)
    number += 1 if has_more != 0 else 0
    above = float(number) / power if exponent < 0 else float(number) * power
    set_register(register, layout.BETWEEN, bits_of_float(-above if is_negative else value))
    store_i64(register + REGISTER.length, bits_of_float(-value if is_negative else above))
    return layout.TRUE


@helper
def _exponent(position: int, stop: int) -> int:
    """The number behind the letter of an exponent, at most a million either way."""
    is_below = load_u8(position) == MINUS
    if is_below or load_u8(position) == 0x2B:
        position += 1
    exponent = 0
    while position < stop:
        exponent = min(10 * exponent + load_u8(position) - ZERO, 1_000_000)
        position += 1
    return -exponent if is_below else exponent


@helper
def _forget(registers: int, below: int) -> None:
    """Nothing was found on the paths of a list of registers."""
    register = load_i64(below)
    while register >= 0:
        store_i64(registers + register, layout.ABSENT)
        below += 8
        register = load_i64(below)


@inlined
def _branch_of_key(branch: int, key: int, length: int, program: int, pool: int) -> int:
    """The branch that a key leads to, 0 if no path goes on with it."""
    keys = program + load_i64(branch + BRANCH.keys)
    candidate = load_u8(pool + load_i64(keys + layout.KEYS_BY_LENGTH) + min(length, 255))
    while candidate != 0:
        entry = keys + layout.KEYS_FIRST - layout.KEY_BYTES + candidate * layout.KEY_BYTES
        if (
            (load_i64(key) ^ load_i64(entry + layout.KEY_WORD)) & load_i64(entry + layout.KEY_MASK) == 0
            and length == load_i64(entry + layout.KEY_LENGTH)
            and (length <= 8 or equal_after_eight(key, pool + load_i64(entry + layout.KEY_TEXT), length))
        ):
            return program + load_i64(entry + layout.KEY_REGISTER)
        candidate = load_i64(entry + layout.KEY_NEXT)
    return 0


@inlined
def _scratch(body: int, registers: int) -> int:
    return registers + load_i64(body + BODY.scratch)


@inlined
def _room(scratch: int) -> int:
    """Where texts without escapes go."""
    given = load_i64(scratch + REGISTER.payload)
    return given if given != 0 else scratch + layout.REGISTER_BYTES + LEVEL_BYTES * layout.MOST_LEVELS


@helper
def _walk(
    position: int, end: int, branch: int, program: int, registers: int, pool: int, scratch: int, free: int
) -> tuple[int, int]:
    """The address behind the value at `position`, and of the scratch that is still free; NO_JSON, or UNSURE.

    Puts the values of all paths from `branch` on into their registers, which are ABSENT before.
    """
    kept_apart()
    stack = scratch + layout.REGISTER_BYTES
    deepest = stack + LEVEL_BYTES * layout.MOST_LEVELS
    full = _room(scratch) + layout.UNESCAPED_BYTES - SLACK_BYTES
    last_wide = end + SLACK_BYTES - 32
    outer = 0
    in_object = 0
    number = 0
    element = 0
    level = stack
    while True:
        # A value, in an object with its key before it.
        if position >= end:
            return NO_JSON, free
        if in_object != 0:
            if load_u8(position) != QUOTE:
                return NO_JSON, free
            start = position + 1
            stop = _string_end(start, end, last_wide)
            if stop <= WRONG:
                if stop == WRONG:
                    return NO_JSON, free
                stop = -stop
                branch = 0
                if outer != 0:
                    if stop - start > full - free:
                        return UNSURE, free
                    behind = _unescape(start, stop, free)
                    if behind != WRONG:
                        branch = _branch_of_key(outer, free, behind - free, program, pool)
            elif outer != 0:
                branch = _branch_of_key(outer, start, stop - start, program, pool)
            position = _next(stop + 1, end)
            if load_u8(position) != COLON:
                return NO_JSON, free
            position = _next(position + 1, end)
            if position >= end:
                return NO_JSON, free
            if branch != 0:
                # Of equal keys the last one counts, with all that is in it.
                _forget(registers, program + load_i64(branch + BRANCH.below))
        elif element != 0:
            branch = 0
            if load_i64(element) == number:
                branch = program + load_i64(element + 8)
                element += 16
            number += 1
        register = -1
        if branch != 0:
            register = load_i64(branch + BRANCH.register)
        byte = load_u8(position)
        if byte == QUOTE:
            start = position + 1
            stop = _string_end(start, end, last_wide)
            if stop > WRONG:
                if register >= 0:
                    set_bytes(registers + register, start, stop - start)
            elif stop == WRONG:
                return NO_JSON, free
            else:
                stop = -stop
                if register >= 0:
                    if stop - start > full - free and load_i64(scratch) != layout.READS_VALUES:
                        return UNSURE, free
                    behind = _unescape(start, stop, free)
                    if behind == WRONG:
                        set_register(registers + register, layout.VALUELESS, position)
                    else:
                        set_bytes(registers + register, free, behind - free)
                        free = behind
            position = stop + 1
        elif ZERO <= byte <= NINE or byte == MINUS:
            stop = _number_end(position, end)
            if stop == WRONG:
                return NO_JSON, free
            if register >= 0 and _set_number(registers + register, position, stop, scratch) != layout.TRUE:
                return UNSURE, free
            position = stop
        elif byte | 0x20 == OPEN_OBJECT:
            if register >= 0:
                set_register(registers + register, layout.VALUELESS, position)
            if level == deepest:
                return NO_JSON, free
            position = _next(position + 1, end)
            if load_u8(position) == byte + 2:
                position += 1
            else:
                store_i64(level, outer << 1 | in_object)
                store_i64(level + 8, number)
                store_i64(level + 16, element)
                level += LEVEL_BYTES
                outer = branch
                in_object = 1 if byte == OPEN_OBJECT else 0
                number = 0
                element = 0
                if in_object == 0 and outer != 0:
                    element = program + load_i64(outer + BRANCH.elements)
                branch = 0
                continue
        elif byte == LETTER_T and load_u32(position) == TRUE_WORD:
            if register >= 0:
                set_register(registers + register, layout.BOOLEAN, 1)
            position += 4
        elif byte == FALSE_FIRST and load_u32(position + 1) == FALSE_TAIL:
            if register >= 0:
                set_register(registers + register, layout.BOOLEAN, 0)
            position += 5
        elif byte == LETTER_N and load_u32(position) == NULL_WORD:
            if register >= 0:
                set_register(registers + register, layout.NULL, 0)
            position += 4
        else:
            return NO_JSON, free
        # What comes after a value, and after the containers that it ends.
        while True:
            if level == stack:
                return position, free
            if position >= end:
                return NO_JSON, free
            position = _next(position, end)
            byte = load_u8(position)
            position += 1
            if byte == COMMA:
                break
            if byte != CLOSE_ARRAY + (in_object << 5):
                return NO_JSON, free
            level -= LEVEL_BYTES
            outer = load_i64(level)
            in_object = outer & 1
            outer >>= 1
            number = load_i64(level + 8)
            element = load_i64(level + 16)
        branch = 0
        position = _next(position, end)


@helper
def _forget_all(body: int, program: int, registers: int) -> None:
    _forget(registers, program + load_i64(body + BODY.registers))


@shared
def find_paths(position: int, end: int, program: int, registers: int, pool: int) -> int:
    """Put the values of all paths into their slots, which are ABSENT before and stay so if the text is no JSON.

    TRUE, or UNDECIDED: only the reference can say.
    """
    kept_apart()
    body = program + load_i64(program + layout.BODY_PATHS)
    scratch = _scratch(body, registers)
    branch = program + load_i64(body + BODY.root)
    free = _room(scratch)
    start = _behind_blanks(position, end)
    behind, free = _walk(start, end, branch, program, registers, pool, scratch, free)
    if behind == UNSURE:
        return layout.UNDECIDED
    if behind == NO_JSON or _behind_blanks(behind, end) != end:
        _forget_all(body, program, registers)
    store_i64(scratch, end)
    store_i64(scratch + REGISTER.length, free)
    return layout.TRUE


# -- elements of arrays, of texts that were checked --------------------------------------------------------------------


@shared
def first_element(at: int, registers: int) -> int:
    """START_ELEMENTS: TRUE if there is an array to be looked at."""
    kept_apart()
    array = registers + load_i64(at + layout.A)
    result = registers + load_i64(at + layout.B)
    cursor = registers + load_i64(at + layout.C)
    outer = registers + load_i64(at + layout.D)
    if load_i64(array) != layout.VALUELESS or load_u8(load_i64(array + REGISTER.payload)) != OPEN_ARRAY:
        set_register(result, layout.VALUELESS, 0)
        return layout.FALSE
    set_register(result, layout.BOOLEAN, 0)
    set_register(cursor, layout.NULL, load_i64(array + REGISTER.payload))
    store_i64(cursor + REGISTER.length, load_i64(outer + REGISTER.length))
    return layout.TRUE


@shared
def next_element(at: int, program: int, registers: int, pool: int) -> int:
    """NEXT_ELEMENT: TRUE if there is one, with what the paths lead to in it; FALSE, or UNDECIDED."""
    kept_apart()
    cursor = registers + load_i64(at + layout.A)
    body = program + load_i64(at + layout.B)
    outer = registers + load_i64(at + layout.D)
    scratch = _scratch(body, registers)
    end = load_i64(scratch)
    position = _behind_blanks(load_i64(cursor + REGISTER.payload), end)
    is_first = load_i64(cursor) == layout.NULL
    if not is_first and load_u8(position) != COMMA:
        return layout.FALSE
    position = _behind_blanks(position + 1, end)
    if is_first and load_u8(position) == CLOSE_ARRAY:
        return layout.FALSE
    _forget_all(body, program, registers)
    branch = program + load_i64(body + BODY.root)
    behind, free = _walk(position, end, branch, program, registers, pool, scratch, load_i64(outer + REGISTER.length))
    if behind <= UNSURE:
        return layout.UNDECIDED
    set_text(cursor, layout.VALUELESS, behind, free)
    return layout.TRUE
