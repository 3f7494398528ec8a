"""Service Bus in the kernel: kinds that do not mix, numbers as in C#, dates and time spans, LIKE, and errors.

Kinds are INTEGER, LARGE and FLOAT (numbers), BYTES (a string), BOOLEAN, TIMESTAMP, TIME_SPAN, UUID, BINARY; ODD and
OPEN are left to the reference, and so is joining strings. Source: servicebus_filters, sections 3 and 4.
"""

from __future__ import annotations

from headgate.evaluate.layout import (
    ADD,
    AMONG,
    AMONG_BYTES,
    BINARY,
    BOOLEAN,
    BYTES,
    COMPARE,
    COMPARE_FLOAT,
    COMPARE_INTEGER,
    DIVIDE,
    EQUAL,
    EQUAL_BOOLEAN,
    EQUAL_BYTES,
    ERROR,
    FALSE,
    FIRST_KNOWN,
    FLOAT,
    INTEGER,
    KEEP_NUMBER,
    LARGE,
    LIKE_GENERAL,
    MULTIPLY,
    ODD,
    OPEN,
    SUBTRACT,
    TIME_SPAN,
    TIMESTAMP,
    TRUE,
    UNDECIDED,
    UNKNOWN,
    UUID,
    VALUELESS,
    B,
    C,
    E,
)
from headgate.evaluate.values.kernel import (
    NOT_TEXT,
    as_float,
    equal_text,
    like_any,
    like_bytes,
    order_numbers,
    order_of,
    set_float,
    set_register,
    text_state,
)
from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import (
    add_overflows,
    kept_apart,
    load_i64,
    load_u8,
    multiply_overflows,
    store_i64,
    subtract_overflows,
)

SIGN_BIT = -(2**63)
TICKS_PER_MS = 10_000
FIRST_TICK = -621_355_968_000_000_000  # of the year 1, from 1970
LAST_TICK = 2_534_023_007_999_999_999  # of the year 9999
NO_ORDER = 2  # of texts that only the reference orders


# -- comparison --------------------------------------------------------------------------------------------------------


@inlined
def _is_number(kind: int) -> bool:
    integer = kind == INTEGER
    return integer or kind in (FLOAT, LARGE)


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
    if left_kind != FLOAT and right_kind != FLOAT:
        return order_numbers(left_kind, left, right_kind, right)
    value = as_float(left_kind, left)
    other = as_float(right_kind, right)
    return (1 if value > other else 0) - (1 if value < other else 0)


@helper
def _compare(
    left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int, accepted: int
) -> int:
    """Truth of a comparison of two values."""
    kept_apart()
    if left_kind < FIRST_KNOWN or right_kind < FIRST_KNOWN:
        return UNKNOWN
    if left_kind <= ODD or right_kind <= ODD:
        return UNDECIDED
    if _is_number(left_kind) and _is_number(right_kind):
        return (accepted >> (_order_of_numbers(left_kind, left, right_kind, right) + 1)) & 1
    if left_kind != right_kind:
        return ERROR
    if left_kind == BYTES:
        if accepted == EQUAL:
            return TRUE if left_length == right_length and equal_text(left, right, left_length) else FALSE
        order = _order_texts(left, left_length, right, right_length)
        return UNDECIDED if order == NO_ORDER else (accepted >> (order + 1)) & 1
    if left_kind in (TIMESTAMP, TIME_SPAN):
        return (accepted >> (order_of(left, right) + 1)) & 1
    if accepted != EQUAL:
        return ERROR
    if left_kind == BOOLEAN:
        return TRUE if left == right else FALSE
    return TRUE if left_length == right_length and equal_text(left, right, left_length) else FALSE


@helper
def _equal_by_value(left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int) -> int:
    """Truth of the equality of correlation filters, which is never unknown and exact between numbers."""
    if left_kind < FIRST_KNOWN or right_kind < FIRST_KNOWN:
        return FALSE
    if left_kind <= ODD or right_kind <= ODD:
        return UNDECIDED
    if _is_number(left_kind) and _is_number(right_kind):
        return TRUE if order_numbers(left_kind, left, right_kind, right) == 0 else FALSE
    if left_kind != right_kind:
        return FALSE
    if left_kind in (BYTES, UUID, BINARY):
        return TRUE if left_length == right_length and equal_text(left, right, left_length) else FALSE
    return TRUE if left == right else FALSE


@helper
def _among(subject: int, others: int, count: int, registers: int) -> int:
    """Truth of IN over registers: the first equal member decides; those before it may be errors."""
    result = FALSE
    while count > 0:
        other = registers + load_i64(others)
        truth = _compare(
            load_i64(subject),
            load_i64(subject + 8),
            load_i64(subject + 16),
            load_i64(other),
            load_i64(other + 8),
            load_i64(other + 16),
            EQUAL,
        )
        if truth == UNKNOWN:
            result = UNKNOWN
        elif truth != FALSE:
            return truth
        others += 8
        count -= 1
    return result


# -- arithmetic --------------------------------------------------------------------------------------------------------


@helper
def _integer_arithmetic(operation: int, first: int, second: int, result: int) -> int:
    """64-bit arithmetic; ERROR beyond it and on division by zero."""
    if operation == ADD:
        if add_overflows(first, second) != 0:
            return ERROR
        value = first + second
    elif operation == SUBTRACT:
        if subtract_overflows(first, second) != 0:
            return ERROR
        value = first - second
    elif operation == MULTIPLY:
        if multiply_overflows(first, second) != 0:
            return ERROR
        value = first * second
    elif second == 0:
        return ERROR
    elif second == -1:
        # The machine traps on the least integer.
        if operation == DIVIDE and first == SIGN_BIT:
            return ERROR
        value = -first if operation == DIVIDE else 0
    else:
        remainder = first % second
        if remainder != 0 and (first < 0) != (second < 0):
            remainder -= second
        value = (first - remainder) // second if operation == DIVIDE else remainder
    set_register(result, INTEGER, value)
    return TRUE


@helper
def _double_arithmetic(operation: int, value: float, other: float, result: int) -> int:
    """Arithmetic of doubles; NaN and the infinities are OPEN."""
    if operation == ADD:
        set_float(result, value + other, OPEN)
    elif operation == SUBTRACT:
        set_float(result, value - other, OPEN)
    elif operation == MULTIPLY:
        set_float(result, value * other, OPEN)
    elif other == 0.0:
        store_i64(result, OPEN)
    elif operation == DIVIDE:
        set_float(result, value / other, OPEN)
    else:
        # Of two positive numbers this is exact.
        remainder = abs(value) % abs(other)
        set_float(result, -remainder if value < 0.0 else remainder, OPEN)
    return TRUE


@helper
def _time_arithmetic(operation: int, left_kind: int, first: int, right_kind: int, second: int, result: int) -> int:
    """Sums and differences of date-times and time spans."""
    if operation != ADD and operation != SUBTRACT:
        return ERROR
    if left_kind == TIMESTAMP and right_kind == TIMESTAMP:
        if operation == ADD:
            return ERROR
        if subtract_overflows(first, second) != 0 or multiply_overflows(first - second, TICKS_PER_MS) != 0:
            return ERROR
        set_register(result, TIME_SPAN, (first - second) * TICKS_PER_MS)
        return TRUE
    if right_kind != TIME_SPAN:
        return ERROR
    if left_kind == TIMESTAMP:
        if multiply_overflows(first, TICKS_PER_MS) != 0:
            return UNDECIDED
        first *= TICKS_PER_MS
    elif left_kind != TIME_SPAN:
        return ERROR
    if operation == ADD:
        if add_overflows(first, second) != 0:
            return ERROR
        ticks = first + second
    else:
        if subtract_overflows(first, second) != 0:
            return ERROR
        ticks = first - second
    if left_kind == TIME_SPAN:
        set_register(result, TIME_SPAN, ticks)
        return TRUE
    if ticks < FIRST_TICK or ticks > LAST_TICK:
        return ERROR
    if ticks % TICKS_PER_MS != 0:
        store_i64(result, OPEN)
    else:
        set_register(result, TIMESTAMP, ticks // TICKS_PER_MS)
    return TRUE


# -- what the kernel calls ---------------------------------------------------------------------------------------------


@helper
def servicebus_predicate(operation: int, at: int, register: int, program: int, registers: int, pool: int) -> int:
    """Truth of a predicate by the rules of SQL filters."""
    kept_apart()
    kind = load_i64(register)
    payload = load_i64(register + 8)
    length = load_i64(register + 16)
    b = load_i64(at + B)
    c = load_i64(at + C)
    if operation == COMPARE_INTEGER:
        return _compare(kind, payload, length, INTEGER, b, 0, c)
    if operation == COMPARE_FLOAT:
        return _compare(kind, payload, length, FLOAT, b, 0, c)
    if operation == EQUAL_BYTES:
        return _compare(kind, payload, length, BYTES, pool + load_i64(at + E), c, EQUAL)
    if operation == EQUAL_BOOLEAN:
        return _compare(kind, payload, length, BOOLEAN, b, 0, EQUAL)
    if operation == COMPARE:
        other = registers + b
        return _compare(kind, payload, length, load_i64(other), load_i64(other + 8), load_i64(other + 16), c)
    if kind < FIRST_KNOWN:
        return UNKNOWN
    if kind <= ODD:
        return UNDECIDED
    if operation == AMONG:
        return _among(register, program + b, c, registers)
    if operation == AMONG_BYTES or kind != BYTES:
        return ERROR
    if operation == LIKE_GENERAL:
        return like_any(payload, payload + length, program + b, c, pool)
    return like_bytes(operation, at, payload, length, pool)


@helper
def correlation_predicate(operation: int, at: int, register: int, registers: int, pool: int) -> int:
    """Truth of an equality by the rules of correlation filters."""
    kept_apart()
    kind = load_i64(register)
    payload = load_i64(register + 8)
    length = load_i64(register + 16)
    b = load_i64(at + B)
    if operation == COMPARE_INTEGER:
        return _equal_by_value(kind, payload, length, INTEGER, b, 0)
    if operation == COMPARE_FLOAT:
        return _equal_by_value(kind, payload, length, FLOAT, b, 0)
    if operation == EQUAL_BYTES:
        return _equal_by_value(kind, payload, length, BYTES, pool + load_i64(at + E), load_i64(at + C))
    if operation == EQUAL_BOOLEAN:
        return _equal_by_value(kind, payload, length, BOOLEAN, b, 0)
    other = registers + b
    return _equal_by_value(kind, payload, length, load_i64(other), load_i64(other + 8), load_i64(other + 16))


@helper
def servicebus_arithmetic(operation: int, left: int, right: int, result: int) -> int:
    """Binary arithmetic of two registers into a third: TRUE when done, ERROR or UNDECIDED."""
    kept_apart()
    left_kind = load_i64(left)
    right_kind = load_i64(right)
    first = load_i64(left + 8)
    second = load_i64(right + 8)
    if left_kind < FIRST_KNOWN or right_kind < FIRST_KNOWN:
        store_i64(result, VALUELESS)
        return TRUE
    if left_kind <= ODD or right_kind <= ODD:
        return UNDECIDED
    if operation == ADD and (left_kind == BYTES or right_kind == BYTES):
        return UNDECIDED
    if not _is_number(left_kind) or not _is_number(right_kind):
        return _time_arithmetic(operation, left_kind, first, right_kind, second, result)
    if left_kind == FLOAT or right_kind == FLOAT:
        return _double_arithmetic(operation, as_float(left_kind, first), as_float(right_kind, second), result)
    if left_kind == LARGE or right_kind == LARGE:
        return UNDECIDED
    return _integer_arithmetic(operation, first, second, result)


@helper
def servicebus_signed(operation: int, operand: int, result: int) -> int:
    """Unary plus or minus: TRUE when done, ERROR or UNDECIDED."""
    kind = load_i64(operand)
    payload = load_i64(operand + 8)
    if kind < FIRST_KNOWN:
        store_i64(result, VALUELESS)
    elif kind == FLOAT:
        set_register(result, FLOAT, payload if operation == KEEP_NUMBER else payload ^ SIGN_BIT)
    elif kind == INTEGER:
        if operation != KEEP_NUMBER and payload == SIGN_BIT:
            return ERROR
        set_register(result, INTEGER, payload if operation == KEEP_NUMBER else -payload)
    elif kind <= ODD or kind == LARGE:
        return UNDECIDED
    else:
        return ERROR
    return TRUE
