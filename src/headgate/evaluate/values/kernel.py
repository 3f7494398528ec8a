"""Values in kernels: registers, text, numbers, arithmetic, three-valued logic, and LIKE.

A value is a register, the address of (kind, payload, length) as `layout.py` says. Text is read eight bytes at a time:
at least eight readable bytes follow every text.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.hashing import FIRST_FACTOR, SECOND_FACTOR, SPREAD
from headgate.evaluate.layout import ELEMENT, REGISTER
from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import (
    add_overflows,
    bits_of_float,
    float_of_bits,
    kept_apart,
    load_be_i64,
    load_i64,
    load_u8,
    multiply_overflows,
    store_i64,
    subtract_overflows,
)

LINE_FEED = 0x0A
SIGN_BIT = -(2**63)
HIGH_BITS = -0x7F7F7F7F7F7F7F80
LOW_BITS = 0x0101010101010101
LINE_FEEDS = 0x0A0A0A0A0A0A0A0A
MOST_INTEGER = 2**63 - 1
NOT_TEXT = 0
HAS_LINE_FEED = 1
ONE_LINE = 2


# -- bytes -------------------------------------------------------------------------------------------------------------


@inlined
def equal_after_eight(left: int, right: int, length: int) -> bool:
    """Whether texts of the same length above eight are equal, their first eight bytes being so."""
    last = length - 8
    offset = 8
    while offset < last:
        if load_i64(left + offset) != load_i64(right + offset):
            return False
        offset += 8
    return load_i64(left + last) == load_i64(right + last)


@inlined
def mixed(value: int, factor: int) -> int:
    """A hash of 64 bits; its low bits are as good as any."""
    value = value * factor
    return value ^ (value >> SPREAD)


@inlined
def first_word(address: int, length: int) -> int:
    """A text of at most eight bytes, behind which there are eight readable bytes, as an integer."""
    word = load_i64(address)
    return word if length == 8 else word & ((1 << (length << 3)) - 1)


@inlined
def text_hash(address: int, length: int) -> int:
    """The hash of a text, behind which there are eight readable bytes."""
    if length >= 8:
        found = mixed(load_i64(address) ^ length, FIRST_FACTOR)
        offset = 8
        while offset <= length - 8:
            found = mixed(found ^ load_i64(address + offset), FIRST_FACTOR)
            offset += 8
        return mixed(found ^ load_i64(address + length - 8), SECOND_FACTOR)
    return mixed(mixed(first_word(address, length) ^ length, FIRST_FACTOR), SECOND_FACTOR)


@helper
def equal_text(left: int, right: int, length: int) -> bool:
    """Whether two texts of one length are equal."""
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
    """-1, 0 or 1 as `left` sorts before, with or after `right`, bytewise."""
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
    return order_of(left_length, right_length)


@inlined
def order_of(first: float, second: float) -> int:
    """-1, 0 or 1 as the first integer or double is less than, equal to or greater than the second."""
    return (1 if first > second else 0) - (1 if first < second else 0)


@inlined
def same_text(left: int, left_length: int, right: int, right_length: int) -> int:
    """TRUE if two texts are equal, else FALSE."""
    return layout.TRUE if left_length == right_length and equal_text(left, right, left_length) else layout.FALSE


# -- registers ---------------------------------------------------------------------------------------------------------


@inlined
def set_register(register: int, kind: int, payload: int) -> None:
    """Write kind and payload."""
    store_i64(register, kind)
    store_i64(register + REGISTER.payload, payload)


@inlined
def set_float(register: int, value: float, otherwise: int) -> None:
    """Write a double, or, if it is not finite, the kind `otherwise`."""
    if value - value == 0.0:
        set_register(register, layout.FLOAT, bits_of_float(value))
    else:
        store_i64(register, otherwise)


@inlined
def set_text(register: int, kind: int, address: int, length: int) -> None:
    """Write a value of bytes, which stay where they are."""
    set_register(register, kind, address)
    store_i64(register + REGISTER.length, length)


@inlined
def set_bytes(register: int, address: int, length: int) -> None:
    """Write a string, which stays where it is."""
    set_text(register, layout.BYTES, address, length)


# -- values ------------------------------------------------------------------------------------------------------------


@inlined
def _is_number(kind: int) -> bool:
    integer = kind == layout.INTEGER
    return integer or kind == layout.FLOAT or kind >= layout.LARGE


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
    return order_of(bits ^ SIGN_BIT, int(value - 9223372036854775808.0))


@helper
def order_numbers(left_kind: int, left: int, right_kind: int, right: int) -> int:
    """-1, 0 or 1; numbers are kind and payload, none BEYOND."""
    if left_kind == layout.INTEGER:
        if right_kind == layout.INTEGER:
            return order_of(left, right)
        if right_kind == layout.FLOAT:
            return _order_integer_float(left, float_of_bits(right))
        return -1
    if left_kind == layout.FLOAT:
        value = float_of_bits(left)
        if right_kind == layout.FLOAT:
            return order_of(value, float_of_bits(right))
        if right_kind == layout.INTEGER:
            return -_order_integer_float(right, value)
        return -_order_large_float(right, value)
    if right_kind == layout.INTEGER:
        return 1
    if right_kind == layout.FLOAT:
        return _order_large_float(left, float_of_bits(right))
    return order_of(left ^ SIGN_BIT, right ^ SIGN_BIT)


@inlined
def _order_beyond(kind: int, payload: int, below: int, exact: int) -> int:
    """The exact order of a number that 64 bits hold and a constant that none do, given as its register says."""
    limit = float_of_bits(below)
    if kind != layout.FLOAT:
        return -1 if limit > 0.0 else 1
    value = float_of_bits(payload)
    if value == limit and exact != 0:
        return 0
    return 1 if value > limit else -1


@inlined
def as_float(kind: int, payload: int) -> float:
    """The double nearest to a number that is not BEYOND."""
    if kind == layout.FLOAT:
        value: float = float_of_bits(payload)
        return value
    if kind == layout.INTEGER:
        return float(payload)
    # Halved with the lowest bit kept as a sticky one, so that rounding once gives the nearest.
    return 2.0 * float((payload >> 1) & MOST_INTEGER | payload & 1)


@helper
def _order_between(kind: int, payload: int, below: int, above: int) -> int:
    """The order of a number and a decimal of many digits, given as its register says; 2 if it may be either.

    What is less when rounded to a double is less.
    """
    if kind == layout.BETWEEN:
        return 2
    value = as_float(kind, payload)
    if value < float_of_bits(below):
        return -1
    return 1 if value > float_of_bits(above) else 2


@helper
def compare(left: int, right_kind: int, right_payload: int, right_length: int, accepted: int) -> int:
    """Truth of a comparison: a register against a value; kinds as RabbitMQ compares them."""
    kept_apart()
    kind = load_i64(left)
    if kind < layout.FIRST_KNOWN or right_kind < layout.FIRST_KNOWN:
        return layout.UNKNOWN
    payload = load_i64(left + REGISTER.payload)
    if _is_number(kind):
        if not _is_number(right_kind):
            return layout.FALSE
        if kind == layout.BEYOND or right_kind == layout.BEYOND:
            if kind == right_kind or kind == layout.BETWEEN or right_kind == layout.BETWEEN:
                return layout.UNDECIDED
            if kind == layout.BEYOND:
                order = -_order_beyond(right_kind, right_payload, payload, load_i64(left + REGISTER.length))
            else:
                order = _order_beyond(kind, payload, right_payload, right_length)
            return (accepted >> (order + 1)) & 1
        if kind == layout.BETWEEN or right_kind == layout.BETWEEN:
            if kind == layout.BETWEEN:
                order = -_order_between(right_kind, right_payload, payload, load_i64(left + REGISTER.length))
            else:
                order = _order_between(kind, payload, right_payload, right_length)
            return layout.UNDECIDED if abs(order) > 1 else (accepted >> (order + 1)) & 1
        return (accepted >> (order_numbers(kind, payload, right_kind, right_payload) + 1)) & 1
    if kind != right_kind:
        return layout.FALSE
    if kind == layout.BYTES:
        length = load_i64(left + REGISTER.length)
        if accepted == layout.EQUAL:
            return same_text(payload, length, right_payload, right_length)
        return (accepted >> (_text_order(payload, length, right_payload, right_length) + 1)) & 1
    return layout.TRUE if accepted == layout.EQUAL and payload == right_payload else layout.FALSE


@helper
def among(subject: int, others: int, count: int, registers: int) -> int:
    """Truth of IN over registers: members of unknown value equal nothing."""
    if load_i64(subject) < layout.FIRST_KNOWN:
        return layout.UNKNOWN
    result = layout.FALSE
    while count > 0:
        other = registers + load_i64(others)
        truth = compare(
            subject,
            load_i64(other),
            load_i64(other + REGISTER.payload),
            load_i64(other + REGISTER.length),
            layout.EQUAL,
        )
        if truth == layout.TRUE:
            return layout.TRUE
        if truth == layout.UNDECIDED:
            result = layout.UNDECIDED
        others += 8
        count -= 1
    return result


@helper
def integer_result(operation: int, first: int, second: int) -> tuple[bool, int]:
    """Whether 64 bits hold a sum, difference, product or remainder, and that number; no remainder by zero."""
    if operation == layout.ADD:
        return add_overflows(first, second) == 0, first + second
    if operation == layout.SUBTRACT:
        return subtract_overflows(first, second) == 0, first - second
    if operation == layout.MULTIPLY:
        return multiply_overflows(first, second) == 0, first * second
    if second == -1:
        # The machine traps on the least integer modulo -1.
        return True, 0
    remainder = first % second
    if remainder != 0 and (first < 0) != (second < 0):
        remainder -= second
    return True, remainder


@helper
def arithmetic(operation: int, left: int, right: int, result: int) -> bool:
    """Binary arithmetic of two registers into a third; False if only unbounded integers can say."""
    left_kind = load_i64(left)
    right_kind = load_i64(right)
    store_i64(result, layout.VALUELESS)
    if not _is_number(left_kind) or not _is_number(right_kind):
        return True
    if operation == layout.MODULO and (left_kind == layout.FLOAT or right_kind == layout.FLOAT):
        return True
    if left_kind == layout.BEYOND or right_kind == layout.BEYOND:
        return False
    if left_kind == layout.BETWEEN or right_kind == layout.BETWEEN:
        return False
    first = load_i64(left + REGISTER.payload)
    second = load_i64(right + REGISTER.payload)
    if left_kind != layout.FLOAT and right_kind != layout.FLOAT and operation != layout.DIVIDE:
        if left_kind == layout.LARGE or right_kind == layout.LARGE:
            return False
        if operation == layout.MODULO and second == 0:
            return True
        fits, number = integer_result(operation, first, second)
        if fits:
            set_register(result, layout.INTEGER, number)
        return fits
    value = as_float(left_kind, first)
    other = as_float(right_kind, second)
    if operation == layout.ADD:
        set_float(result, value + other, layout.VALUELESS)
    elif operation == layout.SUBTRACT:
        set_float(result, value - other, layout.VALUELESS)
    elif operation == layout.MULTIPLY:
        set_float(result, value * other, layout.VALUELESS)
    elif other != 0.0:
        set_float(result, value / other, layout.VALUELESS)
    return True


@helper
def signed(operation: int, operand: int, result: int) -> bool:
    """Unary plus or minus; False if only unbounded integers can say."""
    kind = load_i64(operand)
    payload = load_i64(operand + REGISTER.payload)
    if kind == layout.FLOAT:
        set_register(result, layout.FLOAT, payload ^ SIGN_BIT if operation == layout.NEGATE else payload)
    elif kind == layout.INTEGER and (operation == layout.KEEP_NUMBER or payload != SIGN_BIT):
        set_register(result, layout.INTEGER, -payload if operation == layout.NEGATE else payload)
    elif _is_number(kind):
        return False
    else:
        store_i64(result, layout.VALUELESS)
    return True


@inlined
def truth_of(register: int) -> int:
    """Truth of a value: anything but a boolean is unknown."""
    return load_i64(register + REGISTER.payload) if load_i64(register) == layout.BOOLEAN else layout.UNKNOWN


@inlined
def store_truth(register: int, truth: int) -> None:
    """Write a truth as a value."""
    set_register(register, layout.VALUELESS if truth == layout.UNKNOWN else layout.BOOLEAN, truth)


@helper
def logic(operation: int, left: int, right: int, result: int) -> None:
    """Three-valued conjunction, disjunction or negation of values."""
    first = truth_of(left)
    if operation == layout.OPPOSITE:
        store_truth(result, layout.UNKNOWN if first == layout.UNKNOWN else 1 - first)
        return
    second = truth_of(right)
    decisive = layout.FALSE if operation == layout.BOTH else layout.TRUE
    if first == decisive or second == decisive:
        store_truth(result, decisive)
    elif first == layout.UNKNOWN or second == layout.UNKNOWN:
        store_truth(result, layout.UNKNOWN)
    else:
        store_truth(result, 1 - decisive)


# -- LIKE --------------------------------------------------------------------------------------------------------------


@helper
def like_bytes(operation: int, at: int, text: int, length: int, pool: int) -> int:
    """Truth of a pattern that compares bytes (LIKE_EXACT, LIKE_AFFIXES), as the instruction `at` states it."""
    prefix = pool + load_i64(at + layout.B)
    size = load_i64(at + layout.C)
    if operation == layout.LIKE_EXACT:
        return same_text(text, length, prefix, size)
    suffix = load_i64(at + layout.E)
    if (
        length >= size + suffix
        and equal_text(text, prefix, size)
        and equal_text(text + length - suffix, pool + load_i64(at + layout.D), suffix)
    ):
        return layout.TRUE
    return layout.FALSE


@helper
def character_end(position: int, end: int) -> int:
    """The address after the UTF-8 character at `position`; 0 if there is none (Unicode, table 3-7)."""
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
def text_state(position: int, end: int) -> int:
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
        position = character_end(position, end)
        if position == 0:
            return NOT_TEXT
    return state


@inlined
def _behind_character(position: int, end: int) -> int:
    """The address after a character; a byte that is not UTF-8 counts as one."""
    behind = character_end(position, end)
    return behind if behind != 0 else position + 1


@helper
def like_any(subject: int, end: int, elements: int, count: int, pool: int) -> int:
    """Truth of a pattern whose wildcards match every character, over the text from `subject` to `end`.

    At most length x pattern steps: on a mismatch only the last `%` gives way.
    """
    kept_apart()
    position = subject
    element = 0
    resume_element = -1
    resume = position
    while True:
        if element < count:
            at = elements + layout.ELEMENT_BYTES * element
            size = load_i64(at + ELEMENT.length)
            if size == layout.ANY_TEXT:
                element += 1
                if element == count:
                    return layout.TRUE
                resume_element = element
                resume = position
                continue
            if size == layout.ONE_CHARACTER:
                if position < end:
                    position = _behind_character(position, end)
                    element += 1
                    continue
            elif position + size <= end and equal_text(position, pool + load_i64(at + ELEMENT.text), size):
                position += size
                element += 1
                continue
        elif position == end:
            return layout.TRUE
        if resume_element < 0 or resume >= end:
            return layout.FALSE
        resume = _behind_character(resume, end)
        position = resume
        element = resume_element


@helper
def like_general(subject: int, length: int, elements: int, count: int, pool: int) -> int:
    """Truth of a pattern with wildcards over code points, as RabbitMQ's regular expressions decide it.

    Wildcards do not match a line feed and patterns cannot hold one, so a subject with a line feed anywhere but at its
    end, where one is tolerated, matches nothing.
    """
    end = subject + length
    trimmed = end - 1 if length > 0 and load_u8(end - 1) == LINE_FEED else end
    state = text_state(subject, trimmed)
    if state == NOT_TEXT:
        return layout.UNKNOWN
    if state == HAS_LINE_FEED:
        return layout.FALSE
    return like_any(subject, trimmed, elements, count, pool)
