"""Columns of files in the types of fields: which types a field takes, so that a value stays the same.

The one rule: a field takes a value that its type holds exactly, and nothing else, unless the map says `rounded`. A
decimal number, as text or in a decimal column, is taken by a float type that gives its digits back: 0.1 by `float` and
`double`, 16777217 by `double` only. The numbers of a float column are exact by themselves, so a double column with 0.1
is not taken by `float`.

| field             | takes                                                                                     |
| ----------------- | ----------------------------------------------------------------------------------------- |
| string            | text, bytes that are UTF-8; numbers, booleans, times, dates and uuids in their notation    |
| binary            | bytes; text as UTF-8; the sixteen bytes of a uuid                                          |
| boolean           | booleans; the texts `true` and `false`                                                     |
| integers, decimal | numbers; text of one                                                                       |
| float, double     | numbers; text of one, `NaN`, `Infinity`                                                    |
| timestamp         | times, without a zone in UTC; dates; whole numbers as ms since 1970; text of one, ISO 8601 |

`TAKEN` has it by type; every other type is refused before the first row. Rounding gives the nearest number, the even
one if two are equally near, and the millisecond in which a time lies. It never makes a number infinite.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import re
import uuid
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.message import holds_decimal
from headgate.message.arrow import SparkType

_UTC_TIME = pa.timestamp("us", tz="UTC")
_PLAIN_INTEGER = r"^-?[0-9]{1,18}$"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FLOAT = r"(?i)^[+-]?(nan|inf|infinity|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)$"
_MILLISECONDS = re.compile(r"-?\d+", re.ASCII)
_TIME = re.compile(r"([^.,]*:\d\d)(?:[.,](\d+))?([^.,]*)", re.ASCII)
_LATE_TIME = re.compile(r"-?\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
_MOST_DIGITS = 40
_SHOWN = 60


class ValueKind(enum.Enum):
    """The kind of values in a column of a file, as far as fields distinguish them."""

    NOTHING = "nulls"
    TEXT = "text"
    OCTETS = "bytes"
    FIXED_OCTETS = "bytes of a fixed length"
    UUID = "uuids"
    BOOLEAN = "booleans"
    INTEGER = "integers"
    FLOAT = "floats"
    DECIMAL = "decimals"
    TIME = "times"
    DATE = "dates"
    TIME_OF_DAY = "times of day"
    OTHER = "something else"


_NUMBERS = frozenset({ValueKind.TEXT, ValueKind.OCTETS, ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL})
TAKEN: Mapping[SparkType, frozenset[ValueKind]] = {
    SparkType.STRING: _NUMBERS
    | {ValueKind.BOOLEAN, ValueKind.UUID, ValueKind.TIME, ValueKind.DATE, ValueKind.TIME_OF_DAY},
    SparkType.BINARY: frozenset({ValueKind.TEXT, ValueKind.OCTETS, ValueKind.FIXED_OCTETS, ValueKind.UUID}),
    SparkType.BOOLEAN: frozenset({ValueKind.TEXT, ValueKind.OCTETS, ValueKind.BOOLEAN}),
    SparkType.TIMESTAMP: frozenset(
        {ValueKind.TEXT, ValueKind.OCTETS, ValueKind.INTEGER, ValueKind.TIME, ValueKind.DATE}
    ),
    **dict.fromkeys(
        (SparkType.TINYINT, SparkType.SMALLINT, SparkType.INT, SparkType.BIGINT, SparkType.DECIMAL), _NUMBERS
    ),
    **dict.fromkeys((SparkType.FLOAT, SparkType.DOUBLE), _NUMBERS),
}
"""The columns that a field takes, by its type. Nulls are taken by all."""


def source_of(kind: pa.DataType) -> ValueKind:
    """The kind of values in a column of this type."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if isinstance(kind, pa.UuidType):
        return ValueKind.UUID
    if isinstance(kind, pa.JsonType):
        return ValueKind.TEXT
    if isinstance(kind, pa.Bool8Type):
        return ValueKind.BOOLEAN
    return next((source for is_one, source in _TESTS if is_one(kind)), ValueKind.OTHER)


_TESTS: tuple[tuple[Callable[[pa.DataType], bool], ValueKind], ...] = (
    (pa.types.is_null, ValueKind.NOTHING),
    (pa.types.is_string, ValueKind.TEXT),
    (pa.types.is_large_string, ValueKind.TEXT),
    (pa.types.is_string_view, ValueKind.TEXT),
    (pa.types.is_binary, ValueKind.OCTETS),
    (pa.types.is_large_binary, ValueKind.OCTETS),
    (pa.types.is_binary_view, ValueKind.OCTETS),
    (pa.types.is_fixed_size_binary, ValueKind.FIXED_OCTETS),
    (pa.types.is_boolean, ValueKind.BOOLEAN),
    (pa.types.is_integer, ValueKind.INTEGER),
    (pa.types.is_floating, ValueKind.FLOAT),
    (pa.types.is_decimal, ValueKind.DECIMAL),
    (pa.types.is_timestamp, ValueKind.TIME),
    (pa.types.is_date, ValueKind.DATE),
    (pa.types.is_time, ValueKind.TIME_OF_DAY),
)


class _InexactError(ValueError):
    """The type of the field does not hold a value."""


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError)


def converted(array: pa.Array, kind: pa.DataType, field: SparkType, column: str, *, rounded: bool = False) -> pa.Array:
    """The values in the Arrow type `kind` of a field. Raises ConfigError, of one row with its value."""
    source = source_of(array.type)
    spoken = "timestamp" if field is SparkType.TIMESTAMP else str(kind)
    if source is ValueKind.NOTHING:
        return pa.nulls(len(array), kind)
    if source not in TAKEN[field]:
        raise ConfigError(f"column {column!r}: found {array.type}, expected {spoken}")
    try:
        plain = _plain(array, source)
        if source in (ValueKind.OCTETS, ValueKind.DECIMAL) and field is not SparkType.BINARY:
            # What a number or a time is written as, in bytes as in text; a decimal is one.
            plain, source = plain.cast(pa.string()), ValueKind.TEXT
        if field is SparkType.STRING:
            return _texts(plain, source)
        if field is SparkType.BINARY:
            return plain.cast(kind)
        if field is SparkType.BOOLEAN:
            return _truths(plain)
        if field is SparkType.TIMESTAMP:
            return _times(plain, source, rounded)
        if field in (SparkType.FLOAT, SparkType.DOUBLE):
            return _floats(plain, source, kind, rounded)
        return _whole_numbers(plain, source, kind, rounded)
    except _InexactError as error:
        hint = f" ({error}; the word 'rounded' behind it in the map takes the nearest)"
        raise ConfigError(f"column {column!r}: found {_found(array)}, expected {spoken}{hint}") from None
    except _REFUSALS:
        raise ConfigError(f"column {column!r}: found {_found(array)}, expected {spoken}") from None


def _found(array: pa.Array) -> str:
    """The value, where there is one row."""
    if len(array) != 1:
        return str(array.type)
    # Not the Python object of a time: that has microseconds at most.
    value = str(array[0]) if source_of(array.type) is ValueKind.TIME else array[0].as_py()
    with contextlib.suppress(UnicodeDecodeError):
        value = value.decode() if isinstance(value, bytes) else value
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _plain(array: pa.Array, source: ValueKind) -> pa.Array:
    """The same values in one of few types."""
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary, source).take(array.indices)
    if pa.types.is_run_end_encoded(array.type):
        rows = np.arange(array.offset, array.offset + len(array))
        return _plain(array.values, source).take(pa.array(np.searchsorted(array.run_ends.to_numpy(), rows, "right")))
    if isinstance(array.type, pa.Bool8Type):
        return pc.not_equal(array.storage, pa.scalar(0, pa.int8()))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if source is ValueKind.TEXT:
        return array.cast(pa.string())
    if source is ValueKind.OCTETS:
        return array.cast(pa.binary())
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _texts(array: pa.Array, source: ValueKind) -> pa.Array:
    if source is ValueKind.UUID:
        held = (value if value is None else str(uuid.UUID(bytes=value)) for value in array.to_pylist())
        return pa.array(held, type=pa.string())
    return array.cast(pa.string())


def _truths(array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        return array
    lower = pc.ascii_lower(array)
    if not _all(pc.is_in(lower, value_set=pa.array(["true", "false"])), lower):
        raise ValueError
    return pc.equal(lower, "true")


def _all(tests: pa.Array, values: pa.Array) -> bool:
    """Whether a test holds for each value that is not null."""
    return bool(pc.all(pc.or_kleene(tests, pc.is_null(values)), min_count=0).as_py())


def _whole_numbers(array: pa.Array, source: ValueKind, kind: pa.DataType, rounded: bool) -> pa.Array:
    if source is ValueKind.TEXT:
        if not _all(pc.match_substring_regex(array, _PLAIN_INTEGER), array):
            held = [None if text is None else _whole(text, rounded) for text in array.to_pylist()]
            return pa.array(held, type=kind)
    elif source is ValueKind.INTEGER:
        # Arrow asks for as many digits of a decimal as the widest integer has, whatever the values.
        array = array.cast(pa.string()) if pa.types.is_decimal(kind) else array
    else:
        whole = pc.round(array, ndigits=0, round_mode="half_to_even")
        if not rounded and not _all(pc.equal(whole, array), array):
            raise _InexactError("it holds whole numbers") if _all(pc.is_finite(array), array) else ValueError
        if pa.types.is_decimal(kind):
            return pa.array([None if value is None else Decimal(value) for value in whole.to_pylist()], type=kind)
        array = whole
    return array.cast(kind)


def _whole(text: str, rounded: bool) -> Decimal | int:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    number = Decimal(text)
    if number.adjusted() > _MOST_DIGITS:
        raise OverflowError
    whole = int(number.to_integral_value(ROUND_HALF_EVEN))
    if whole != number and not rounded:
        raise _InexactError("it holds whole numbers")
    return whole


def _floats(array: pa.Array, source: ValueKind, kind: pa.DataType, rounded: bool) -> pa.Array:
    if source is ValueKind.TEXT and not _all(pc.match_substring_regex(array, _FLOAT), array):
        raise ValueError
    found = array.cast(kind, safe=False)
    numbers = found.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    is_double = pa.types.is_float64(kind)
    for row in np.flatnonzero(_doubtful(array, source, numbers, is_double=is_double)):
        _check_float(array[int(row)].as_py(), float(numbers[row]), rounded, is_double=is_double)
    return found


def _doubtful(
    array: pa.Array, source: ValueKind, numbers: NDArray[np.float64], *, is_double: bool
) -> NDArray[np.bool_]:
    """Rows whose value may change, or may not exist, as a float."""
    digits, smallest, highest = (15, 2.3e-308, 2.0**53) if is_double else (6, 1.2e-38, 2.0**24)
    held: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    if source is ValueKind.INTEGER:
        held &= np.abs(numbers) >= highest
    elif source is ValueKind.FLOAT:
        given = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        held &= (given != numbers) & ~(np.isnan(given) & np.isnan(numbers))
    else:
        lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        sizes = np.abs(numbers)
        # Decimal numbers of so few digits come back from a float, unless it is too small or too large for them.
        held &= (lengths > digits) | ~((sizes >= smallest) & np.isfinite(sizes))
    return held


def _check_float(given: int | float | str, number: float, rounded: bool, *, is_double: bool) -> None:
    """Raise unless `number`, which Arrow made of the given one, stands for it."""
    exact = Decimal(given)
    if not exact.is_finite():
        return
    if not np.isfinite(number):
        raise OverflowError
    is_held = holds_decimal(exact, number, is_double=is_double) if isinstance(given, str) else exact == Decimal(number)
    if not is_held and not rounded:
        raise _InexactError(f"it holds {number!r}")


def _times(array: pa.Array, source: ValueKind, rounded: bool) -> pa.Array:
    found = array.type
    if source is ValueKind.INTEGER:
        return array.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_UTC_TIME)
    if source is ValueKind.DATE:
        return array.cast(pa.timestamp("ms")).cast(_UTC_TIME)
    if source is ValueKind.TEXT:
        return _times_of_texts(array, rounded)
    if found.unit in ("s", "ms"):
        return array.view(pa.int64()).cast(pa.timestamp(found.unit)).cast(_UTC_TIME)
    held = array.view(pa.int64())
    counts = held.fill_null(0).to_numpy(zero_copy_only=False)
    milliseconds, rest = np.divmod(counts, {"us": 1000, "ns": 1_000_000}[found.unit])
    if rest.any() and not rounded:
        raise _InexactError("it holds milliseconds")
    return pa.array(milliseconds * 1000, mask=held.is_null().to_numpy(zero_copy_only=False)).cast(_UTC_TIME)


def _times_of_texts(texts: pa.Array, rounded: bool) -> pa.Array:
    for kind in (_UTC_TIME, pa.timestamp("us")):
        try:
            found = texts.cast(kind)
        except pa.ArrowInvalid:
            continue
        return _times(found, ValueKind.TIME, rounded)
    # Numbers, years of more than four digits, more than six digits of a second, zones in some rows only.
    moments = [None if text is None else 1000 * _milliseconds(text, rounded) for text in texts.to_pylist()]
    return pa.array(moments, type=pa.int64()).cast(_UTC_TIME)


def _milliseconds(text: str, rounded: bool) -> int:
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    whole, behind = text, ""
    if (parts := _TIME.fullmatch(text)) and parts[2]:
        # Neither Python nor numpy looks at more than six digits.
        whole, behind = f"{parts[1]}.{parts[2][:3]:0<3}{parts[3]}", parts[2][3:]
    if behind.strip("0") and not rounded:
        raise _InexactError("it holds milliseconds")
    try:
        moment = datetime.datetime.fromisoformat(whole)
    except ValueError:
        if not _LATE_TIME.fullmatch(whole):
            raise
        return int(np.datetime64(whole[:-1], "ms").astype(np.int64))
    in_utc = moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment
    return (in_utc - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)
