"""The values of Service Bus and their operators; used by folding, the reference evaluator and actions.

    boolean      bool
    number       int (every integer type), float (float and double), `AmqpValue` of a decimal or a char
    string       bytes: the UTF-8 of a string, a symbol or a described com.microsoft:uri
    date-time    `AmqpValue` of a timestamp, or of a described com.microsoft:datetime-offset
    time span    `AmqpValue` of a described com.microsoft:timespan
    guid         `AmqpValue` of a uuid
    binary       `AmqpValue` of a binary
    other        `AmqpValue` of anything else; no operator takes it

None is unknown. Everything here raises `EvaluationFailed` for an error of the language, and nothing else. Source:
servicebus_filters, sections 3.1, 3.3, 3.4, 3.8; its open points: docs/reference/servicebus-open-points.md.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import math
import uuid
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from headgate.language.tree import ArithmeticOperator, CompareOperator
from headgate.language.values import EvaluationFailed, Value
from headgate.message import DECIMAL_SIZES, INTEGER_RANGES, AmqpValue, Described, decimal_value
from headgate.message.constructors import AmqpType

INTEGER_MIN, INTEGER_LIMIT = -(2**63), 2**63
"""Results of integer arithmetic lie from the first to below the second."""

MAX_TEXT_BYTES = 1024 * 1024
"""Limit: bytes of a result of `+`. Otherwise a few statements of an action could use any amount of memory."""

TICKS_PER_MS = 10_000
EPOCH_TICKS = 621_355_968_000_000_000
"""Ticks (100 ns) from the first of January of the year 1, where a datetime-offset begins, to 1970."""

LAST_TICKS = 3_155_378_975_999_999_999
"""The last tick of the year 9999."""

TIME_SPAN, DATE_TIME_OFFSET, URI = (f"com.microsoft:{name}" for name in ("timespan", "datetime-offset", "uri"))

_SYMBOLS = {name: AmqpValue(AmqpType.SYMBOL, name) for name in (TIME_SPAN, DATE_TIME_OFFSET, URI)}
INTEGERS = frozenset(INTEGER_RANGES) - {AmqpType.CHAR, AmqpType.TIMESTAMP}
"""The types that hold an integer."""


class ValueKind(enum.Enum):
    """The kinds of values, by their names in messages of errors; only values of one kind compare."""

    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    DATE_TIME = "date-time"
    TIME_SPAN = "time span"
    GUID = "guid"
    BINARY = "binary"
    OTHER = "value of another type"


_ORDERED = frozenset({ValueKind.NUMBER, ValueKind.STRING, ValueKind.DATE_TIME, ValueKind.TIME_SPAN})
_KINDS = {
    **dict.fromkeys((*DECIMAL_SIZES, AmqpType.CHAR), ValueKind.NUMBER),
    AmqpType.TIMESTAMP: ValueKind.DATE_TIME,
    AmqpType.UUID: ValueKind.GUID,
    AmqpType.BINARY: ValueKind.BINARY,
}
_DESCRIBED_KINDS = {TIME_SPAN: ValueKind.TIME_SPAN, DATE_TIME_OFFSET: ValueKind.DATE_TIME}

Number: TypeAlias = int | float | Fraction

_REAL = frozenset({AmqpType.FLOAT, AmqpType.DOUBLE, *DECIMAL_SIZES})
_FROM_LONG = _REAL
_FROM_INT = _REAL | {AmqpType.LONG}
_FROM_UINT = _FROM_INT | {AmqpType.ULONG}
_FROM_SHORT = _FROM_INT | {AmqpType.INT}
_FROM_USHORT = _FROM_UINT | {AmqpType.INT, AmqpType.UINT}
IMPLICIT_CONVERSIONS: Mapping[AmqpType, frozenset[AmqpType]] = {
    AmqpType.BYTE: _FROM_SHORT | {AmqpType.SHORT},
    AmqpType.UBYTE: _FROM_USHORT | {AmqpType.SHORT, AmqpType.USHORT},
    AmqpType.SHORT: _FROM_SHORT,
    AmqpType.USHORT: _FROM_USHORT,
    AmqpType.CHAR: _FROM_USHORT | {AmqpType.USHORT},
    AmqpType.INT: _FROM_INT,
    AmqpType.UINT: _FROM_UINT,
    AmqpType.LONG: _FROM_LONG,
    AmqpType.ULONG: _FROM_LONG,
    AmqpType.FLOAT: frozenset({AmqpType.DOUBLE}),
}
"""The implicit numeric conversions of C#: type of a value → types it becomes."""


def value_of(typed: AmqpValue) -> Value:
    """The language's value for a value of a message or a parameter; None for null."""
    if typed.type is AmqpType.NULL:
        return None
    if typed.type is AmqpType.BOOLEAN or typed.type in INTEGERS:
        number: bool | int = typed.value
        return number
    if typed.type in (AmqpType.FLOAT, AmqpType.DOUBLE):
        double: float = typed.value
        return double
    if typed.type in (AmqpType.STRING, AmqpType.SYMBOL):
        return typed.octets()
    if described_as(typed) == URI and typed.value.value.type is AmqpType.STRING:
        octets: bytes | None = typed.value.value.octets()
        return octets
    return typed


def described_as(typed: AmqpValue) -> str | None:
    """The symbol before a described value."""
    if typed.type is not AmqpType.DESCRIBED or typed.value is None:
        return None
    descriptor: AmqpValue = typed.value.descriptor
    return descriptor.value if descriptor.type is AmqpType.SYMBOL else None


def kind_of(value: Value) -> ValueKind:
    """The kind of a value that is not unknown."""
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    if isinstance(value, int | float):
        return ValueKind.NUMBER
    if isinstance(value, bytes):
        return ValueKind.STRING
    assert isinstance(value, AmqpValue)
    if value.type is AmqpType.DESCRIBED:
        kind = _DESCRIBED_KINDS.get(described_as(value) or "")
        return kind if kind is not None and value.value.value.type is AmqpType.LONG else ValueKind.OTHER
    return _KINDS.get(value.type, ValueKind.OTHER)


def typed_value(value: Value) -> AmqpValue:
    """The value as a property holds it: integers are long, floats double, strings string, unknown is null."""
    match value:
        case None:
            return AmqpValue(AmqpType.NULL, None)
        case bool():
            return AmqpValue(AmqpType.BOOLEAN, value)
        case int():
            return AmqpValue(AmqpType.LONG if value < INTEGER_LIMIT else AmqpType.ULONG, value)
        case float():
            return AmqpValue(AmqpType.DOUBLE, value)
        case bytes():
            return AmqpValue(AmqpType.STRING, value.decode("utf-8", "surrogateescape"))
        case _:
            assert isinstance(value, AmqpValue)
            return value


def time_span(ticks: int) -> AmqpValue:
    """A time span of this many ticks of 100 ns. Raises EvaluationFailed."""
    if not INTEGER_MIN <= ticks < INTEGER_LIMIT:
        raise EvaluationFailed(f"a time span of {ticks} ticks is beyond 64 bits")
    return AmqpValue(AmqpType.DESCRIBED, Described(_SYMBOLS[TIME_SPAN], AmqpValue(AmqpType.LONG, ticks)))


def uri(text: str) -> AmqpValue:
    """A URI."""
    return AmqpValue(AmqpType.DESCRIBED, Described(_SYMBOLS[URI], AmqpValue(AmqpType.STRING, text)))


def ticks_of(value: Value) -> int:
    """The ticks of a time span, or the ticks since 1970 of a date-time."""
    assert isinstance(value, AmqpValue)
    if value.type is AmqpType.TIMESTAMP:
        milliseconds: int = value.value
        return milliseconds * TICKS_PER_MS
    ticks: int = value.value.value.value
    return ticks if described_as(value) == TIME_SPAN else ticks - EPOCH_TICKS


def date_time(ticks: int, *, with_offset: bool) -> AmqpValue:
    """The date-time that many ticks after 1970: a timestamp if it is whole milliseconds and need not be an offset.

    Raises EvaluationFailed.
    """
    if not 0 <= ticks + EPOCH_TICKS <= LAST_TICKS:
        raise EvaluationFailed("the date-time is not in the years 1 to 9999")
    if ticks % TICKS_PER_MS or with_offset:
        absolute = AmqpValue(AmqpType.LONG, ticks + EPOCH_TICKS)
        return AmqpValue(AmqpType.DESCRIBED, Described(_SYMBOLS[DATE_TIME_OFFSET], absolute))
    return AmqpValue(AmqpType.TIMESTAMP, ticks // TICKS_PER_MS)


def number_of(value: Value) -> Number:
    """The number that a value of the kind NUMBER is."""
    if isinstance(value, int | float):
        return value
    assert isinstance(value, AmqpValue)
    if value.type is AmqpType.CHAR:
        code_point: int = value.value
        return code_point
    return decimal_value(value)


def compare(operator: CompareOperator, left: Value, right: Value) -> bool | None:
    """A comparison: section 3.3. Raises EvaluationFailed."""
    if left is None or right is None:
        return None
    kind, other = kind_of(left), kind_of(right)
    if kind is not other or kind is ValueKind.OTHER:
        raise EvaluationFailed(f"a {kind.value} does not compare with a {other.value}")
    if kind in _ORDERED:
        return bool(operator.apply(*_sortable(kind, left, right)))
    if operator is CompareOperator.EQUAL:
        return left == right
    if operator is CompareOperator.NOT_EQUAL:
        return left != right
    raise EvaluationFailed(f"a {kind.value} has no order, {operator.value} does not take one")


def equals(left: Value, right: Value) -> bool:
    """The equality of correlation filters: unknown values and unlike kinds are unequal, numbers equal by exact value.

    Source: servicebus_filters, section 4.
    """
    if left is None or right is None:
        return False
    kind = kind_of(left)
    if kind is not kind_of(right) or kind is ValueKind.OTHER:
        return False
    if kind is ValueKind.NUMBER:
        return number_of(left) == number_of(right)
    if kind in _ORDERED:
        sortable, other = _sortable(kind, left, right)
        return sortable == other
    return left == right


def _sortable(kind: ValueKind, left: Value, right: Value) -> tuple[Number, Number] | tuple[bytes, bytes]:
    match kind:
        case ValueKind.NUMBER:
            return _promoted(number_of(left), number_of(right))
        case ValueKind.STRING:
            assert isinstance(left, bytes) and isinstance(right, bytes)
            return _utf16(left), _utf16(right)
        case _:
            return ticks_of(left), ticks_of(right)


def _promoted(left: Number, right: Number) -> tuple[Number, Number]:
    """An integer beside a double is a double; decimals stay exact, as fractions."""
    if isinstance(left, float) and isinstance(right, int):
        return left, float(right)
    if isinstance(right, float) and isinstance(left, int):
        return float(left), right
    return left, right


def _utf16(text: bytes) -> bytes:
    """Bytes in the order of UTF-16 code units; equal if and only if the texts are."""
    return text.decode("utf-8", "surrogateescape").encode("utf-16-be", "surrogatepass")


def arithmetic(operator: ArithmeticOperator, left: Value, right: Value) -> Value:
    """A binary operation: section 3.4. Raises EvaluationFailed."""
    if left is None or right is None:
        return None
    kinds = kind_of(left), kind_of(right)
    if operator is ArithmeticOperator.ADD and ValueKind.STRING in kinds:
        return _joined(left, right)
    if kinds == (ValueKind.NUMBER, ValueKind.NUMBER):
        return _calculated(operator, number_of(left), number_of(right))
    if operator in (ArithmeticOperator.ADD, ArithmeticOperator.SUBTRACT):
        sign = 1 if operator is ArithmeticOperator.ADD else -1
        if kinds == (ValueKind.DATE_TIME, ValueKind.DATE_TIME) and sign < 0:
            return time_span(ticks_of(left) - ticks_of(right))
        if kinds == (ValueKind.TIME_SPAN, ValueKind.TIME_SPAN):
            return time_span(ticks_of(left) + sign * ticks_of(right))
        if kinds == (ValueKind.DATE_TIME, ValueKind.TIME_SPAN):
            assert isinstance(left, AmqpValue)
            with_offset = left.type is AmqpType.DESCRIBED
            return date_time(ticks_of(left) + sign * ticks_of(right), with_offset=with_offset)
    raise EvaluationFailed(f"{operator.value} does not take a {kinds[0].value} and a {kinds[1].value}")


def _calculated(operator: ArithmeticOperator, left: Number, right: Number) -> int | float:
    if isinstance(left, Fraction) or isinstance(right, Fraction):
        raise EvaluationFailed(f"{operator.value} does not take a decimal")
    if isinstance(left, float) or isinstance(right, float):
        return _double(operator, float(left), float(right))
    return _integer(operator, left, right)


def _integer(operator: ArithmeticOperator, left: int, right: int) -> int:
    match operator:
        case ArithmeticOperator.ADD:
            result = left + right
        case ArithmeticOperator.SUBTRACT:
            result = left - right
        case ArithmeticOperator.MULTIPLY:
            result = left * right
        case ArithmeticOperator.DIVIDE | ArithmeticOperator.MODULO:
            if right == 0:
                raise EvaluationFailed("division by zero")
            quotient = abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1)
            result = quotient if operator is ArithmeticOperator.DIVIDE else left - quotient * right
    return _in_range(result)


def _in_range(number: int) -> int:
    if not INTEGER_MIN <= number < INTEGER_LIMIT:
        raise EvaluationFailed("the result of integer arithmetic is beyond 64 bits")
    return number


def _double(operator: ArithmeticOperator, left: float, right: float) -> float:
    match operator:
        case ArithmeticOperator.ADD:
            return left + right
        case ArithmeticOperator.SUBTRACT:
            return left - right
        case ArithmeticOperator.MULTIPLY:
            return left * right
        case ArithmeticOperator.DIVIDE:
            if right == 0:
                if left == 0 or math.isnan(left):
                    return math.nan
                return math.copysign(math.inf, left) * math.copysign(1.0, right)
            return left / right
        case ArithmeticOperator.MODULO:
            if right == 0 or math.isinf(left):
                return math.nan
            return math.fmod(left, right)


def signed(negative: bool, value: Value) -> Value:
    """Unary plus or minus, on numbers. Raises EvaluationFailed."""
    if value is None:
        return None
    kind = kind_of(value)
    number = number_of(value) if kind is ValueKind.NUMBER else None
    if number is None or isinstance(number, Fraction):
        what = "decimal" if kind is ValueKind.NUMBER else kind.value
        raise EvaluationFailed(f"unary {'-' if negative else '+'} does not take a {what}")
    if isinstance(number, float):
        return -number if negative else number
    return _in_range(-number if negative else number)


def _joined(left: Value, right: Value) -> bytes:
    joined = text_of(left) + text_of(right)
    if len(joined) > MAX_TEXT_BYTES:
        raise EvaluationFailed(f"a string of {len(joined)} bytes, {MAX_TEXT_BYTES} are allowed")
    return joined


def text_of(value: Value) -> bytes:
    """The text that a value becomes beside a string: the invariant form of .NET, dates as in ISO 8601.

    Raises EvaluationFailed.
    """
    if isinstance(value, bytes):
        return value
    kind = kind_of(value)
    match kind:
        case ValueKind.BOOLEAN:
            text = "True" if value else "False"
        case ValueKind.NUMBER:
            text = _number_text(value)
        case ValueKind.GUID:
            assert isinstance(value, AmqpValue)
            text = str(value.value)
        case ValueKind.DATE_TIME:
            text = _date_text(ticks_of(value))
        case ValueKind.TIME_SPAN:
            text = _time_span_text(ticks_of(value))
        case _:
            raise EvaluationFailed(f"a {kind.value} has no text")
    return text.encode("utf-8", "surrogatepass")


def _number_text(value: Value) -> str:
    if isinstance(value, AmqpValue) and value.type is AmqpType.CHAR:
        code_point: int = value.value
        if code_point > 0x10FFFF or 0xD800 <= code_point < 0xE000:
            raise EvaluationFailed(f"a char of code {code_point:#x} has no text")
        return chr(code_point)
    number = number_of(value)
    if isinstance(number, float):
        return _float_text(number)
    if isinstance(number, Fraction):
        with decimal.localcontext(prec=40, Emax=10_000, Emin=-10_000):
            return str(decimal.Decimal(number.numerator) / number.denominator)
    return str(number)


def _float_text(number: float) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = decimal.Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    power = len(shown) - 1 + exponent
    minus = "-" if sign else ""
    if -5 < power < 15:
        return minus + format(decimal.Decimal((0, digits, exponent)), "f")
    fraction = "." + shown[1:] if len(shown) > 1 else ""
    return f"{minus}{shown[0]}{fraction}E{'-' if power < 0 else '+'}{abs(power):02}"


def _date_text(ticks: int) -> str:
    if not 0 <= ticks + EPOCH_TICKS <= LAST_TICKS:
        raise EvaluationFailed("a date-time outside the years 1 to 9999 has no text")
    seconds, fraction = divmod(ticks, TICKS_PER_MS * 1000)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    shown = f"{fraction:07}".rstrip("0").ljust(3, "0")
    return f"{moment.isoformat(timespec='seconds')}.{shown}Z"


def _time_span_text(ticks: int) -> str:
    seconds, fraction = divmod(abs(ticks), TICKS_PER_MS * 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    shown = f"{'-' if ticks < 0 else ''}{f'{days}.' if days else ''}{hour:02}:{minute:02}:{second:02}"
    return f"{shown}.{fraction:07}" if fraction else shown


def new_id(identity: bytes, occurrence: int) -> AmqpValue:
    """The guid that a call of newid() gives: a hash in the form of a random uuid (version 4).

    The same for the same `identity` (of a copy: stream, offset, rule) and number of the call in its text, so that a
    copy that is made again is the same copy.
    """
    return AmqpValue(AmqpType.UUID, uuid.UUID(bytes=new_id_octets(identity, occurrence)))


def new_id_octets(identity: bytes, occurrence: int) -> bytes:
    """The sixteen bytes of `new_id`."""
    digest = hashlib.blake2b(identity, digest_size=16, salt=occurrence.to_bytes(16, "big"), person=b"headgate.newid")
    return (int.from_bytes(digest.digest(), "big") & ~_VERSION_BITS | _VERSION_4).to_bytes(16, "big")


_VERSION_BITS = 0xF000 << 64 | 0xC000 << 48
_VERSION_4 = 0x4000 << 64 | 0x8000 << 48
