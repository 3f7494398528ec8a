"""Service Bus in the kernel: kinds that do not mix, numbers as in C#, dates and time spans, LIKE, and errors.

Kinds are INTEGER, LARGE and FLOAT (numbers), BYTES (a string), BOOLEAN, TIMESTAMP, TIME_SPAN, UUID, BINARY; ODD and
OPEN are left to the reference. Source: servicebus_filters, sections 3 and 4.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.kernel import (
    NOT_TEXT,
    as_float,
    integer_result,
    like_any,
    like_bytes,
    order_numbers,
    order_of,
    same_text,
    set_bytes,
    set_float,
    set_register,
    text_state,
)
from headgate.kernels.compiler import helper, inlined, shared
from headgate.kernels.memory import (
    copy_bytes,
    kept_apart,
    load_i64,
    load_u8,
    multiply_overflows,
    store_i32,
    store_i64,
    store_u8,
)

SIGN_BIT = -(2**63)
TICKS_PER_MS = 10_000
FIRST_TICK = -621_355_968_000_000_000  # of the year 1, from 1970
LAST_TICK = 2_534_023_007_999_999_999  # of the year 9999
NO_ORDER = 2  # of texts that only the reference orders
SCRATCH_BYTES = layout.SCRATCH_REGISTERS * layout.REGISTER_BYTES - 8
LONGEST_SHORT_TEXT = 36  # of a guid, the longest of what is no string
LETTERS_TRUE = 0x65757254  # four letters, the first in the lowest byte
LETTERS_FALS = 0x736C6146


# -- comparison --------------------------------------------------------------------------------------------------------


@inlined
def _is_number(kind: int) -> bool:
    integer = kind == layout.INTEGER
    return integer or kind in (layout.FLOAT, layout.LARGE)


@helper
def _order_texts(left: int, left_length: int, right: int, right_length: int) -> int:
    """The order of two strings by UTF-16 units; NO_ORDER where bytes that are not UTF-8 may decide."""
    kept_apart()
    shorter = min(left_length, right_length)
    offset = 0
    while offset < shorter and load_u8(left + offset) == load_u8(right + offset):
        offset += 1
    first = load_u8(left + offset) if offset < left_length else -1
    second = load_u8(right + offset) if offset < right_length else -1
    if first < 0x80 and second < 0x80:
        return order_of(first, second)
    if text_state(left, left + left_length) == NOT_TEXT or text_state(right, right + right_length) == NOT_TEXT:
        return NO_ORDER
    # Characters beyond 16 bits come before U+E000 … U+FFFF there.
    if first >= 0xF0 and (second == 0xEE or second == 0xEF):
        return -1
    if second >= 0xF0 and (first == 0xEE or first == 0xEF):
        return 1
    return order_of(first, second)


@helper
def _order_of_numbers(left_kind: int, left: int, right_kind: int, right: int) -> int:
    """An integer beside a double is a double."""
    if left_kind != layout.FLOAT and right_kind != layout.FLOAT:
        return order_numbers(left_kind, left, right_kind, right)
    return order_of(as_float(left_kind, left), as_float(right_kind, right))


@helper
def _compare(
    left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int, accepted: int
) -> int:
    """Truth of a comparison of two values."""
    kept_apart()
    if left_kind < layout.FIRST_KNOWN or right_kind < layout.FIRST_KNOWN:
        return layout.UNKNOWN
    if left_kind <= layout.ODD or right_kind <= layout.ODD:
        return layout.UNDECIDED
    if _is_number(left_kind) and _is_number(right_kind):
        return (accepted >> (_order_of_numbers(left_kind, left, right_kind, right) + 1)) & 1
    if left_kind != right_kind:
        return layout.ERROR
    if left_kind == layout.BYTES:
        if accepted == layout.EQUAL:
            return same_text(left, left_length, right, right_length)
        order = _order_texts(left, left_length, right, right_length)
        return layout.UNDECIDED if order == NO_ORDER else (accepted >> (order + 1)) & 1
    if left_kind in (layout.TIMESTAMP, layout.TIME_SPAN):
        return (accepted >> (order_of(left, right) + 1)) & 1
    if accepted != layout.EQUAL:
        return layout.ERROR
    if left_kind == layout.BOOLEAN:
        return layout.TRUE if left == right else layout.FALSE
    return same_text(left, left_length, right, right_length)


@helper
def _equal_by_value(left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int) -> int:
    """Truth of the equality of correlation filters, which is never unknown and exact between numbers."""
    if left_kind < layout.FIRST_KNOWN or right_kind < layout.FIRST_KNOWN:
        return layout.FALSE
    if left_kind <= layout.ODD or right_kind <= layout.ODD:
        return layout.UNDECIDED
    if _is_number(left_kind) and _is_number(right_kind):
        return layout.TRUE if order_numbers(left_kind, left, right_kind, right) == 0 else layout.FALSE
    if left_kind != right_kind:
        return layout.FALSE
    if left_kind in (layout.BYTES, layout.UUID, layout.BINARY):
        return same_text(left, left_length, right, right_length)
    return layout.TRUE if left == right else layout.FALSE


@helper
def _among(subject: int, others: int, count: int, registers: int) -> int:
    """Truth of IN over registers: the first equal member decides; members before it may be errors."""
    result = layout.FALSE
    while count > 0:
        other = registers + load_i64(others)
        truth = _compare(
            load_i64(subject),
            load_i64(subject + REGISTER.payload),
            load_i64(subject + REGISTER.length),
            load_i64(other),
            load_i64(other + REGISTER.payload),
            load_i64(other + REGISTER.length),
            layout.EQUAL,
        )
        if truth == layout.UNKNOWN:
            result = layout.UNKNOWN
        elif truth != layout.FALSE:
            return truth
        others += 8
        count -= 1
    return result


# -- arithmetic --------------------------------------------------------------------------------------------------------


@helper
def _integer_arithmetic(operation: int, first: int, second: int, result: int) -> int:
    """64-bit arithmetic; ERROR beyond it and on division by zero."""
    if second == 0 and operation in (layout.DIVIDE, layout.MODULO):
        return layout.ERROR
    if operation != layout.DIVIDE:
        fits, value = integer_result(operation, first, second)
    elif second == -1:
        fits, value = integer_result(layout.SUBTRACT, 0, first)
    else:
        fits, remainder = integer_result(layout.MODULO, first, second)
        value = (first - remainder) // second
    if not fits:
        return layout.ERROR
    set_register(result, layout.INTEGER, value)
    return layout.TRUE


@helper
def _double_arithmetic(operation: int, value: float, other: float, result: int) -> int:
    """Arithmetic of doubles; NaN and the infinities are OPEN."""
    if operation == layout.ADD:
        set_float(result, value + other, layout.OPEN)
    elif operation == layout.SUBTRACT:
        set_float(result, value - other, layout.OPEN)
    elif operation == layout.MULTIPLY:
        set_float(result, value * other, layout.OPEN)
    elif other == 0.0:
        store_i64(result, layout.OPEN)
    elif operation == layout.DIVIDE:
        set_float(result, value / other, layout.OPEN)
    else:
        # Of two positive numbers this is exact.
        remainder = abs(value) % abs(other)
        set_float(result, -remainder if value < 0.0 else remainder, layout.OPEN)
    return layout.TRUE


@helper
def _time_arithmetic(operation: int, left_kind: int, first: int, right_kind: int, second: int, result: int) -> int:
    """Sums and differences of date-times and time spans."""
    if operation != layout.ADD and operation != layout.SUBTRACT:
        return layout.ERROR
    if left_kind == layout.TIMESTAMP and right_kind == layout.TIMESTAMP:
        if operation == layout.ADD:
            return layout.ERROR
        fits, milliseconds = integer_result(layout.SUBTRACT, first, second)
        if not fits or multiply_overflows(milliseconds, TICKS_PER_MS) != 0:
            return layout.ERROR
        set_register(result, layout.TIME_SPAN, milliseconds * TICKS_PER_MS)
        return layout.TRUE
    if right_kind != layout.TIME_SPAN:
        return layout.ERROR
    if left_kind == layout.TIMESTAMP:
        if multiply_overflows(first, TICKS_PER_MS) != 0:
            return layout.UNDECIDED
        first *= TICKS_PER_MS
    elif left_kind != layout.TIME_SPAN:
        return layout.ERROR
    fits, ticks = integer_result(operation, first, second)
    if not fits:
        return layout.ERROR
    if left_kind == layout.TIME_SPAN:
        set_register(result, layout.TIME_SPAN, ticks)
        return layout.TRUE
    if ticks < FIRST_TICK or ticks > LAST_TICK:
        return layout.ERROR
    if ticks % TICKS_PER_MS != 0:
        store_i64(result, layout.OPEN)
    else:
        set_register(result, layout.TIMESTAMP, ticks // TICKS_PER_MS)
    return layout.TRUE


# -- text --------------------------------------------------------------------------------------------------------------


@helper
def _write_digits(out: int, number: int) -> int:
    """Write a number from 0 on in decimal; the address behind it."""
    behind = out + 1
    rest = number // 10
    while rest > 0:
        behind += 1
        rest = rest // 10
    place = behind
    while place > out:
        place -= 1
        rest = number // 10
        store_u8(place, 0x30 + number - 10 * rest)
        number = rest
    return behind


@helper
def _write_guid(out: int, octets: int) -> int:
    for place in range(16):
        if place == 4 or place == 6 or place == 8 or place == 10:
            store_u8(out, 0x2D)
            out += 1
        octet = load_u8(octets + place)
        high = octet >> 4
        low = octet & 15
        store_u8(out, high + (0x30 if high < 10 else 0x57))
        store_u8(out + 1, low + (0x30 if low < 10 else 0x57))
        out += 2
    return out


@shared
def write_text(out: int, room: int, value: int) -> int:
    """Write the text that a register becomes beside a string; the address behind it.

    0 where only the reference knows the text, or where it does not fit `room` bytes.
    """
    kept_apart()
    kind = load_i64(value)
    payload = load_i64(value + REGISTER.payload)
    if kind == layout.BYTES:
        length = load_i64(value + REGISTER.length)
        if length > room:
            return 0
        copy_bytes(out, payload, length)
        return out + length
    if room < LONGEST_SHORT_TEXT:
        return 0
    if kind == layout.BOOLEAN:
        store_i32(out, LETTERS_TRUE if payload != 0 else LETTERS_FALS)
        store_u8(out + 4, 0x65)
        return out + 4 if payload != 0 else out + 5
    if kind == layout.UUID:
        return _write_guid(out, payload)
    if kind != layout.INTEGER or payload == SIGN_BIT:
        return 0
    if payload < 0:
        store_u8(out, 0x2D)
        return _write_digits(out + 1, -payload)
    return _write_digits(out, payload)


@helper
def _join(left: int, right: int, result: int, scratch: int) -> int:
    """The texts of two values side by side: TRUE when done, or UNDECIDED."""
    middle = write_text(scratch, SCRATCH_BYTES, left)
    if middle == 0:
        return layout.UNDECIDED
    behind = write_text(middle, scratch + SCRATCH_BYTES - middle, right)
    if behind == 0:
        return layout.UNDECIDED
    set_bytes(result, scratch, behind - scratch)
    return layout.TRUE


# -- what the kernel calls ---------------------------------------------------------------------------------------------


@shared
def servicebus_predicate(operation: int, at: int, register: int, program: int, registers: int, pool: int) -> int:
    """Truth of a predicate by the rules of SQL filters."""
    kept_apart()
    kind = load_i64(register)
    payload = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length)
    b = load_i64(at + layout.B)
    c = load_i64(at + layout.C)
    if operation == layout.COMPARE_INTEGER:
        return _compare(kind, payload, length, layout.INTEGER, b, 0, c)
    if operation == layout.COMPARE_FLOAT:
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
    if kind < layout.FIRST_KNOWN:
        return layout.UNKNOWN
    if kind <= layout.ODD:
        return layout.UNDECIDED
    if operation == layout.AMONG:
        return _among(register, program + b, c, registers)
    if operation == layout.AMONG_BYTES or kind != layout.BYTES:
        return layout.ERROR
    if operation == layout.LIKE_GENERAL:
        return like_any(payload, payload + length, program + b, c, pool)
    return like_bytes(operation, at, payload, length, pool)


@shared
def correlation_predicate(operation: int, at: int, register: int, registers: int, pool: int) -> int:
    """Truth of an equality by the rules of correlation filters."""
    kept_apart()
    kind = load_i64(register)
    payload = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length)
    b = load_i64(at + layout.B)
    if operation == layout.COMPARE_INTEGER:
        return _equal_by_value(kind, payload, length, layout.INTEGER, b, 0)
    if operation == layout.COMPARE_FLOAT:
        return _equal_by_value(kind, payload, length, layout.FLOAT, b, 0)
    if operation == layout.EQUAL_BYTES:
        return _equal_by_value(
            kind, payload, length, layout.BYTES, pool + load_i64(at + layout.E), load_i64(at + layout.C)
        )
    if operation == layout.EQUAL_BOOLEAN:
        return _equal_by_value(kind, payload, length, layout.BOOLEAN, b, 0)
    other = registers + b
    return _equal_by_value(
        kind,
        payload,
        length,
        load_i64(other),
        load_i64(other + REGISTER.payload),
        load_i64(other + REGISTER.length),
    )


@shared
def servicebus_arithmetic(operation: int, left: int, right: int, result: int, scratch: int) -> int:
    """Binary arithmetic of two registers into a third: TRUE when done, ERROR or UNDECIDED.

    `scratch` takes the text of a sum.
    """
    kept_apart()
    left_kind = load_i64(left)
    right_kind = load_i64(right)
    first = load_i64(left + REGISTER.payload)
    second = load_i64(right + REGISTER.payload)
    if left_kind < layout.FIRST_KNOWN or right_kind < layout.FIRST_KNOWN:
        store_i64(result, layout.VALUELESS)
        return layout.TRUE
    if left_kind <= layout.ODD or right_kind <= layout.ODD:
        return layout.UNDECIDED
    if operation == layout.ADD and (left_kind == layout.BYTES or right_kind == layout.BYTES):
        return _join(left, right, result, scratch)
    if not _is_number(left_kind) or not _is_number(right_kind):
        return _time_arithmetic(operation, left_kind, first, right_kind, second, result)
    if left_kind == layout.FLOAT or right_kind == layout.FLOAT:
        return _double_arithmetic(operation, as_float(left_kind, first), as_float(right_kind, second), result)
    if left_kind == layout.LARGE or right_kind == layout.LARGE:
        return layout.UNDECIDED
    return _integer_arithmetic(operation, first, second, result)


@shared
def servicebus_signed(operation: int, operand: int, result: int) -> int:
    """Unary plus or minus: TRUE when done, ERROR or UNDECIDED."""
    kind = load_i64(operand)
    payload = load_i64(operand + REGISTER.payload)
    if kind < layout.FIRST_KNOWN:
        store_i64(result, layout.VALUELESS)
    elif kind == layout.FLOAT:
        set_register(result, layout.FLOAT, payload if operation == layout.KEEP_NUMBER else payload ^ SIGN_BIT)
    elif kind == layout.INTEGER:
        if operation != layout.KEEP_NUMBER and payload == SIGN_BIT:
            return layout.ERROR
        set_register(result, layout.INTEGER, payload if operation == layout.KEEP_NUMBER else -payload)
    elif kind <= layout.ODD or kind == layout.LARGE:
        return layout.UNDECIDED
    else:
        return layout.ERROR
    return layout.TRUE
