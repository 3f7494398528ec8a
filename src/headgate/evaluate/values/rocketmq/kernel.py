"""RocketMQ in the kernel: strings parsed as the type of the other operand, Java's order of numbers, NULL, errors.

Kinds are BYTES (a string), INT32 and INTEGER (int and long), FLOAT (a finite double), BOOLEAN; ODD and OPEN are left
to the reference. What parsing leaves open as well: Unicode digits, hexadecimal numbers, NaN, Infinity, and long decimal
texts that lie within a hair of what they are compared with. Source: rocketmq_filters, sections 6.1 to 6.8.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.kernel import equal_text, order_of, same_text, set_register
from headgate.kernels.compiler import helper, inlined, shared
from headgate.kernels.memory import (
    add_overflows,
    bits_of_float,
    float_of_bits,
    kept_apart,
    load_i64,
    load_u8,
    multiply_overflows,
    store_i64,
    trailing_zeros,
)

SIGN_BIT = -(2**63)
INT32_MIN = -(2**31)
UNLIKE = -1  # the order of values that have nothing to do with each other
NO_ORDER = 2  # with a status beside it
CLOSE = 5  # status of a double that may be off by a few units in its last place
NAN = 0x4E614E  # the letters, as eight bytes are loaded
INFINITY = 0x7974696E69666E49
EIGHT_ONES = 0x0101010101010101
EIGHT_POINTS = 0x2E2E2E2E2E2E2E2E
EIGHT_ZEROS = 0x3030303030303030
EIGHT_SIXES = 0x4646464646464646  # what is above nine gets its high bit from it
HIGH_BITS = -0x7F7F7F7F7F7F7F80
PAIRS = 0x000000FF000000FF
MOST_DIGITS = 18
EXACT_MANTISSA = 2**53
EXACT_POWER = 22
MOST_POWER = 280
HAIR = 1e-13  # beyond this share of the greater one, two doubles of which one is CLOSE have their order


# -- strings as numbers ------------------------------------------------------------------------------------------------


@helper
def _parse_integer(text: int, length: int, kind: int) -> tuple[int, int]:
    """TRUE and the integer of INT32 or INTEGER that a text is; ERROR, or UNDECIDED for characters beyond ASCII."""
    kept_apart()
    position = text
    end = text + length
    negative = False
    if length > 0:
        first = load_u8(text)
        negative = first == 0x2D
        if negative or first == 0x2B:
            position += 1
    if position == end:
        return layout.ERROR, 0
    value = 0
    while position < end:
        digit = load_u8(position) - 0x30
        if digit > 0x4F:
            return layout.UNDECIDED, 0
        if digit < 0 or digit > 9:
            return layout.ERROR, 0
        # Below zero there is room for one more.
        if multiply_overflows(value, 10) != 0 or add_overflows(value * 10, -digit) != 0:
            return layout.ERROR, 0
        value = value * 10 - digit
        position += 1
    if value < INT32_MIN and kind == layout.INT32:
        return layout.ERROR, 0
    if negative:
        return layout.TRUE, value
    if value == (INT32_MIN if kind == layout.INT32 else SIGN_BIT):
        return layout.ERROR, 0
    return layout.TRUE, -value


@inlined
def _is_digit(position: int, end: int) -> bool:
    return position < end and 0x30 <= load_u8(position) <= 0x39


@helper
def _parse_double(text: int, length: int) -> tuple[int, float]:
    """TRUE or CLOSE and the double that a text is; ERROR, or UNDECIDED."""
    if 0 < length < 8:
        # Digits with at most one point among them, all eight at once: the loop over them is slow where lengths vary.
        word = (load_i64(text) << (64 - 8 * length)) | (EIGHT_ZEROS >> (8 * length))
        points = word ^ EIGHT_POINTS
        points = (points - EIGHT_ONES) & ~points & HIGH_BITS
        behind_point = 0
        if points != 0:
            at = trailing_zeros(points) & ~7
            behind_point = 7 - (at >> 3)
            below = word & ((1 << at) - 1)
            word = (word & (-256 << at)) | (below << 8) | 0x30
        if ((word + EIGHT_SIXES) | (word - EIGHT_ZEROS)) & HIGH_BITS == 0 and (points == 0 or length > 1):
            word -= EIGHT_ZEROS
            word = word * 10 + (word >> 8)
            word = (word & PAIRS) * 0x000F424000000064 + ((word >> 16) & PAIRS) * 0x0000271000000001
            scale = 10.0 if behind_point & 1 != 0 else 1.0
            scale *= 100.0 if behind_point & 2 != 0 else 1.0
            scale *= 10_000.0 if behind_point & 4 != 0 else 1.0
            return layout.TRUE, float((word >> 32) & 0xFFFFFFFF) / scale
    return _parse_any_double(text, length)


@helper
def _parse_any_double(text: int, length: int) -> tuple[int, float]:
    """The same for a text of any length and form."""
    kept_apart()
    position = text
    end = text + length
    while position < end and load_u8(position) <= 0x20:
        position += 1
    while end > position and load_u8(end - 1) <= 0x20:
        end -= 1
    if position == end:
        return layout.ERROR, 0.0
    negative = load_u8(position) == 0x2D
    if negative or load_u8(position) == 0x2B:
        position += 1
    if position + 3 == end and load_i64(position) & 0xFFFFFF == NAN:
        return layout.UNDECIDED, 0.0
    if position + 8 == end and load_i64(position) == INFINITY:
        return layout.UNDECIDED, 0.0
    if position + 1 < end and load_u8(position) == 0x30 and load_u8(position + 1) | 0x20 == 0x78:
        return layout.UNDECIDED, 0.0  # 0x
    mantissa = 0
    significant = 0
    power = 0
    digits = 0
    exact = True
    behind_point = False
    while position < end:
        character = load_u8(position)
        if character == 0x2E and not behind_point:
            behind_point = True
        elif 0x30 <= character <= 0x39:
            digits += 1
            if significant < MOST_DIGITS:
                mantissa = mantissa * 10 + character - 0x30
                if mantissa != 0:
                    significant += 1
                if behind_point:
                    power -= 1
            else:
                exact = exact and character == 0x30
                if not behind_point:
                    power += 1
        else:
            break
        position += 1
    if digits == 0:
        return layout.ERROR, 0.0
    if position < end and load_u8(position) | 0x20 == 0x65:
        position += 1
        below = position < end and load_u8(position) == 0x2D
        if below or (position < end and load_u8(position) == 0x2B):
            position += 1
        if not _is_digit(position, end):
            return layout.ERROR, 0.0
        exponent = 0
        while _is_digit(position, end):
            exponent = min(exponent * 10 + load_u8(position) - 0x30, 1 << 40)
            position += 1
        power += -exponent if below else exponent
    if position < end:
        suffix = load_u8(position) | 0x20
        if suffix == 0x64 or suffix == 0x66:
            position += 1
    if position != end:
        return layout.ERROR, 0.0
    if mantissa == 0:
        return layout.TRUE, -0.0 if negative else 0.0
    if power > MOST_POWER or power < -MOST_POWER:
        return layout.UNDECIDED, 0.0
    value = float(mantissa)
    scale = 1.0
    for _ in range(abs(power)):
        scale *= 10.0
    value = value * scale if power >= 0 else value / scale
    exact = exact and mantissa <= EXACT_MANTISSA and abs(power) <= EXACT_POWER
    return layout.TRUE if exact else CLOSE, -value if negative else value


@inlined
def _double_key(value: float) -> int:
    """An integer that orders doubles as Java does: -0.0 below 0.0."""
    bits: int = bits_of_float(value)
    return bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF


# -- comparison --------------------------------------------------------------------------------------------------------


@helper
def _order_doubles(left_status: int, left: float, right_status: int, right: float) -> tuple[int, int]:
    """A status (TRUE, ERROR, UNDECIDED) and the order of two doubles that were parsed or read."""
    if left_status == layout.ERROR or right_status == layout.ERROR:
        return layout.ERROR, NO_ORDER
    if left_status == layout.UNDECIDED or right_status == layout.UNDECIDED:
        return layout.UNDECIDED, NO_ORDER
    is_close = left_status == CLOSE or right_status == CLOSE
    if is_close and abs(left - right) <= HAIR * max(abs(left), abs(right)):
        return layout.UNDECIDED, NO_ORDER
    return layout.TRUE, order_of(_double_key(left), _double_key(right))


@inlined
def _as_double(kind: int, payload: int) -> float:
    if kind == layout.FLOAT:
        value: float = float_of_bits(payload)
        return value
    return float(payload)


@helper
def _is_true(text: int, length: int) -> int:
    """1 for `true` in any letter case."""
    if length != 4:
        return 0
    word = load_i64(text) & 0xFFFFFFFF | 0x20202020
    return 1 if word == 0x65757274 else 0


@helper
def _order(
    left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int
) -> tuple[int, int]:
    """A status (TRUE, ERROR, UNDECIDED) and the order of two values that are neither NULL nor both strings."""
    if left_kind == layout.BOOLEAN:
        if right_kind == layout.BYTES:
            return layout.ERROR, NO_ORDER
        return layout.TRUE, order_of(left, right) if right_kind == layout.BOOLEAN else UNLIKE
    if right_kind == layout.BOOLEAN:
        return layout.TRUE, order_of(_is_true(left, left_length), right) if left_kind == layout.BYTES else UNLIKE
    if left_kind == layout.FLOAT or right_kind == layout.FLOAT:
        left_status = layout.TRUE
        right_status = layout.TRUE
        if left_kind == layout.BYTES:
            left_status, one = _parse_double(left, left_length)
        else:
            one = _as_double(left_kind, left)
        if right_kind == layout.BYTES:
            right_status, other = _parse_double(right, right_length)
        else:
            other = _as_double(right_kind, right)
        return _order_doubles(left_status, one, right_status, other)
    status = layout.TRUE
    if left_kind == layout.BYTES:
        status, left = _parse_integer(left, left_length, right_kind)
    elif right_kind == layout.BYTES:
        status, right = _parse_integer(right, right_length, left_kind)
    return status, order_of(left, right)


@helper
def _compare(
    left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int, accepted: int
) -> int:
    """Truth of a comparison of two values, NULL included."""
    kept_apart()
    if left_kind < layout.FIRST_KNOWN or right_kind < layout.FIRST_KNOWN:
        if accepted != layout.EQUAL or right_kind >= layout.FIRST_KNOWN:
            return layout.UNKNOWN
        return layout.TRUE if left_kind < layout.FIRST_KNOWN else layout.FALSE
    if left_kind <= layout.ODD or right_kind <= layout.ODD:
        return layout.UNDECIDED
    if left_kind == layout.BYTES and right_kind == layout.BYTES:
        if accepted == layout.EQUAL:
            return same_text(left, left_length, right, right_length)
        left_status, one = _parse_double(left, left_length)
        right_status, other = _parse_double(right, right_length)
        status, order = _order_doubles(left_status, one, right_status, other)
    else:
        status, order = _order(left_kind, left, left_length, right_kind, right, right_length)
    return (accepted >> (order + 1)) & 1 if status == layout.TRUE else status


# -- tests of text -----------------------------------------------------------------------------------------------------


@helper
def _contains(text: int, length: int, wanted: int, size: int) -> bool:
    """Whether a text holds another, which is not empty."""
    first = load_u8(wanted)
    last = text + length - size
    while text <= last:
        if load_u8(text) == first and equal_text(text, wanted, size):
            return True
        text += 1
    return False


@helper
def _text_test(operation: int, register: int, wanted: int, size: int, negated: int) -> int:
    """Truth of CONTAINS, STARTSWITH, ENDSWITH and their negations: FALSE for no text and for nothing to look for."""
    if load_i64(register) != layout.BYTES or size == 0:
        return layout.FALSE
    text = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length)
    if operation == layout.CONTAINS:
        found = _contains(text, length, wanted, size)
    elif operation == layout.STARTS_WITH:
        found = length >= size and equal_text(text, wanted, size)
    else:
        found = length >= size and equal_text(text + length - size, wanted, size)
    return layout.TRUE if found != (negated != 0) else layout.FALSE


# -- what the kernel calls ---------------------------------------------------------------------------------------------


@shared
def rocketmq_predicate(operation: int, at: int, register: int, registers: int, pool: int) -> int:
    """Truth of a predicate by RocketMQ's rules."""
    kept_apart()
    kind = load_i64(register)
    payload = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length)
    b = load_i64(at + layout.B)
    c = load_i64(at + layout.C)
    if operation == layout.COMPARE_INTEGER:
        return _compare(kind, payload, length, load_i64(at + layout.D), b, 0, c)
    if operation == layout.COMPARE_FLOAT:
        if kind == layout.BYTES:
            # The commonest order of all, without the ways of the others.
            status, number = _parse_double(payload, length)
            if status == layout.TRUE:
                return (c >> (order_of(_double_key(number), _double_key(float_of_bits(b))) + 1)) & 1
        return _compare(kind, payload, length, layout.FLOAT, b, 0, c)
    if operation == layout.EQUAL_BYTES:
        return _compare(kind, payload, length, layout.BYTES, pool + load_i64(at + layout.E), c, layout.EQUAL)
    if operation == layout.EQUAL_BOOLEAN:
        return _compare(kind, payload, length, layout.BOOLEAN, b, 0, layout.EQUAL)
    if operation == layout.COMPARE:
        other = registers + b
        return _compare(
            kind,
            payload,
            length,
            load_i64(other),
            load_i64(other + REGISTER.payload),
            load_i64(other + REGISTER.length),
            c,
        )
    if operation == layout.AMONG_BYTES:
        return layout.UNKNOWN
    if operation == layout.CAST_BOOLEAN:
        return layout.UNKNOWN if kind < layout.FIRST_KNOWN else payload if kind == layout.BOOLEAN else layout.FALSE
    return _text_test(operation, register, pool + b, c, load_i64(at + layout.D))


@shared
def rocketmq_negate(operand: int, result: int) -> int:
    """Unary minus in the operand's type; NULL for what is no number. TRUE when done, else UNDECIDED."""
    kind = load_i64(operand)
    payload = load_i64(operand + REGISTER.payload)
    if kind == layout.FLOAT:
        set_register(result, layout.FLOAT, payload ^ SIGN_BIT)
    elif kind == layout.INTEGER:
        set_register(result, layout.INTEGER, payload if payload == SIGN_BIT else -payload)
    elif kind == layout.INT32:
        set_register(result, layout.INT32, payload if payload == INT32_MIN else -payload)
    elif kind in (layout.OPEN, layout.ODD):
        return layout.UNDECIDED
    else:
        store_i64(result, layout.VALUELESS)
    return layout.TRUE
