"""CloudEvents SQL in the kernel: attributes of events in binary mode, casts, and operators that cast; the rest is open.

Values are INTEGER of 32 bits, BYTES (a string) and BOOLEAN. Left to the reference: events in the body, attributes of
other types and integers of more bits, which are strings there, and LIKE of what is no string.
Source: CloudEvents SQL 1.0.0, section 3.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.kernel import (
    integer_result,
    like_any,
    like_bytes,
    order_of,
    same_text,
    set_register,
    set_text,
)
from headgate.kernels.compiler import helper, inlined, shared
from headgate.kernels.memory import kept_apart, load_i64, load_u8

INTEGER_MIN = -(2**31)
INTEGER_MAX = 2**31 - 1
NO_CAST = 2**40  # no integer, and no truth
EVENT_FORMATS = b"application/cloudevents"
FORMATS_BYTES = len(EVENT_FORMATS)
CASE_BITS = 0x2020202020202020  # ones in all small letters; where they are set, no other bytes are of this text
FORMATS_FIRST = int.from_bytes(EVENT_FORMATS[:8], "little") | CASE_BITS
FORMATS_MIDDLE = int.from_bytes(EVENT_FORMATS[8:16], "little") | CASE_BITS
FORMATS_LAST = int.from_bytes(EVENT_FORMATS[-8:], "little") | CASE_BITS
FOUR_BYTES = 0xFFFFFFFF
WORD_TRUE = int.from_bytes(b"true", "little")
WORD_FALS = int.from_bytes(b"fals", "little")
LETTER_E = 0x65
MINUS = 0x2D
PLUS = 0x2B
ZERO = 0x30


# -- attributes --------------------------------------------------------------------------------------------------------


@inlined
def _is_value(kind: int) -> bool:
    return kind >= layout.FIRST_KNOWN


@helper
def _is_binary_mode(content_type: int) -> bool:
    """Whether the event is surely not in the body."""
    kind = load_i64(content_type)
    if kind != layout.BYTES:
        return not _is_value(kind)
    if load_i64(content_type + REGISTER.length) < FORMATS_BYTES:
        return True
    text = load_i64(content_type + REGISTER.payload)
    different = (load_i64(text) | CASE_BITS) ^ FORMATS_FIRST
    different |= (load_i64(text + 8) | CASE_BITS) ^ FORMATS_MIDDLE
    different |= (load_i64(text + FORMATS_BYTES - 8) | CASE_BITS) ^ FORMATS_LAST
    return different != 0


@helper
def _attribute(content_type: int, first: int, second: int, result: int) -> int:
    """The first of two fields with a value: TRUE when done, ERROR without one, UNDECIDED."""
    if not _is_binary_mode(content_type):
        return layout.UNDECIDED
    field = first if _is_value(load_i64(first)) else second
    kind = load_i64(field)
    payload = load_i64(field + REGISTER.payload)
    if not _is_value(kind):
        return layout.ERROR
    if kind == layout.INTEGER:
        if payload < INTEGER_MIN or payload > INTEGER_MAX:
            return layout.UNDECIDED
    elif kind != layout.BYTES and kind != layout.BOOLEAN:
        return layout.UNDECIDED
    set_text(result, kind, payload, load_i64(field + REGISTER.length))
    return layout.TRUE


@helper
def _has_attribute(content_type: int, first: int, second: int) -> int:
    """Whether one of two fields has a value."""
    if not _is_binary_mode(content_type):
        return layout.UNDECIDED
    kind = load_i64(first)
    other = load_i64(second)
    # A time may be beyond the years that have a text.
    if kind == layout.TIMESTAMP or other == layout.TIMESTAMP:
        return layout.UNDECIDED
    return layout.TRUE if _is_value(kind) or _is_value(other) else layout.FALSE


# -- casts -------------------------------------------------------------------------------------------------------------


@helper
def _parsed_integer(text: int, length: int) -> int:
    """The integer that a string spells, NO_CAST if it spells none."""
    kept_apart()
    end = text + length
    is_negative = False
    if length > 0 and (load_u8(text) == MINUS or load_u8(text) == PLUS):
        is_negative = load_u8(text) == MINUS
        text += 1
    if text == end:
        return NO_CAST
    number = 0
    while text < end:
        digit = load_u8(text) - ZERO
        if digit < 0 or digit > 9:
            return NO_CAST
        # Behind 32 bits it stays too great, whatever follows; what follows is digits or no integer either way.
        number = min(number * 10 + digit, NO_CAST)
        text += 1
    if is_negative:
        number = -number
    return number if INTEGER_MIN <= number <= INTEGER_MAX else NO_CAST


@helper
def _integer(kind: int, payload: int, length: int) -> int:
    """A value as an integer, or NO_CAST."""
    return _parsed_integer(payload, length) if kind == layout.BYTES else payload


@helper
def _truth(kind: int, payload: int, length: int) -> int:
    """A value as a truth, or NO_CAST."""
    if kind != layout.BYTES:
        return 1 if payload != 0 else 0
    word = (load_i64(payload) | CASE_BITS) & FOUR_BYTES
    if length == 4 and word == WORD_TRUE:
        return 1
    if length == 5 and word == WORD_FALS and load_u8(payload + 4) | 0x20 == LETTER_E:
        return 0
    return NO_CAST


@helper
def _digits(number: int) -> int:
    """How many characters an integer has in decimal."""
    characters = 1
    if number < 0:
        characters = 2
        number = -number
    while number >= 10:
        characters += 1
        number = number // 10
    return characters


@helper
def _spells(text: int, length: int, kind: int, payload: int) -> int:
    """Whether a string is what an integer or a boolean is as a string."""
    if kind == layout.INTEGER:
        is_it = length == _digits(payload) and _parsed_integer(text, length) == payload
    else:
        word = load_i64(text) & FOUR_BYTES
        is_true = length == 4 and word == WORD_TRUE
        is_false = length == 5 and word == WORD_FALS and load_u8(text + 4) == LETTER_E
        is_it = is_true if payload != 0 else is_false
    return layout.TRUE if is_it else layout.FALSE


# -- operators ---------------------------------------------------------------------------------------------------------


@helper
def _equal(left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int) -> int:
    """Truth of `=`, the left side cast to the type of the right."""
    kept_apart()
    if right_kind == layout.BYTES:
        if left_kind == layout.BYTES:
            return same_text(left, left_length, right, right_length)
        return _spells(right, right_length, left_kind, left)
    if right_kind == layout.INTEGER:
        found = _integer(left_kind, left, left_length)
    else:
        found = _truth(left_kind, left, left_length)
    if found == NO_CAST:
        return layout.ERROR
    return layout.TRUE if found == right else layout.FALSE


@helper
def _compare(
    left_kind: int, left: int, left_length: int, right_kind: int, right: int, right_length: int, accepted: int
) -> int:
    """Truth of a comparison."""
    kept_apart()
    if accepted == layout.EQUAL:
        return _equal(left_kind, left, left_length, right_kind, right, right_length)
    first = _integer(left_kind, left, left_length)
    second = _integer(right_kind, right, right_length)
    if first == NO_CAST or second == NO_CAST:
        return layout.ERROR
    return (accepted >> (order_of(first, second) + 1)) & 1


@helper
def _among(subject: int, others: int, count: int, registers: int) -> int:
    """Truth of IN: all members are cast to the type of the subject."""
    kept_apart()
    kind = load_i64(subject)
    payload = load_i64(subject + REGISTER.payload)
    length = load_i64(subject + REGISTER.length)
    result = layout.FALSE
    while count > 0:
        member = registers + load_i64(others)
        truth = _equal(
            load_i64(member),
            load_i64(member + REGISTER.payload),
            load_i64(member + REGISTER.length),
            kind,
            payload,
            length,
        )
        if truth == layout.ERROR:
            return truth
        if truth == layout.TRUE:
            result = truth
        others += 8
        count -= 1
    return result


@shared
def cesql_predicate(operation: int, at: int, register: int, program: int, registers: int, pool: int) -> int:
    """Truth of a predicate."""
    kept_apart()
    b = load_i64(at + layout.B)
    c = load_i64(at + layout.C)
    if operation == layout.HAS_ATTRIBUTE:
        return _has_attribute(register, registers + b, registers + c)
    kind = load_i64(register)
    payload = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length)
    if operation == layout.COMPARE_INTEGER:
        return _compare(kind, payload, length, layout.INTEGER, b, 0, c)
    if operation == layout.EQUAL_BYTES:
        return _equal(kind, payload, length, layout.BYTES, pool + load_i64(at + layout.E), c)
    if operation == layout.EQUAL_BOOLEAN:
        return _equal(kind, payload, length, layout.BOOLEAN, b, 0)
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
    if operation == layout.AMONG:
        return _among(register, program + b, c, registers)
    if operation == layout.TRUTH:
        found = _truth(kind, payload, length)
        return layout.ERROR if found == NO_CAST else found
    if kind != layout.BYTES:
        # A set of strings, and LIKE.
        return layout.UNDECIDED
    if operation == layout.LIKE_GENERAL:
        return like_any(payload, payload + length, program + b, c, pool)
    return like_bytes(operation, at, payload, length, pool)


@shared
def cesql_value(operation: int, at: int, register: int, registers: int) -> int:
    """An attribute, a cast to an integer, or arithmetic: TRUE when done, ERROR or UNDECIDED."""
    kept_apart()
    result = registers + load_i64(at + layout.OTHERWISE)
    second = registers + load_i64(at + layout.B)
    if operation == layout.ATTRIBUTE:
        return _attribute(register, second, registers + load_i64(at + layout.C), result)
    number = _integer(load_i64(register), load_i64(register + REGISTER.payload), load_i64(register + REGISTER.length))
    if number == NO_CAST:
        return layout.ERROR
    if operation == layout.NEGATE:
        number = -number
    elif operation != layout.CAST_INTEGER:
        other = _integer(load_i64(second), load_i64(second + REGISTER.payload), load_i64(second + REGISTER.length))
        if other == NO_CAST or (other == 0 and operation >= layout.DIVIDE):
            return layout.ERROR
        if operation == layout.DIVIDE:
            quotient = abs(number) // abs(other)
            number = quotient if (number < 0) == (other < 0) else -quotient
        else:
            _, number = integer_result(operation, number, other)
    if number < INTEGER_MIN or number > INTEGER_MAX:
        return layout.ERROR
    set_register(result, layout.INTEGER, number)
    return layout.TRUE
