"""Conversion of a string that replaces a value of another type: it becomes the value that it writes, as .NET reads it.

Source: the answer of the service's team, Azure/azure-service-bus issue 180; which texts convert is Headgate's choice:
docs/reference/servicebus-open-points.md.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid

from headgate.errors import ConfigError
from headgate.language.servicebus.durations import duration_ticks
from headgate.language.servicebus.values import (
    DATE_TIME_OFFSET,
    INTEGERS,
    TICKS_PER_MS,
    TIME_SPAN,
    URI,
    date_time,
    described_as,
    time_span,
    uri,
)
from headgate.language.values import EvaluationFailed
from headgate.message import DECIMAL_SIZES, INTEGER_RANGES, AmqpValue, decimal_of
from headgate.message.constructors import AmqpType

_TICKS_PER_S = 1_000 * TICKS_PER_MS
_MOST_DIGITS = 34
"""Of any decimal."""

_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_GUID = re.compile(
    r"(?P<open>[{(])?(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?P<close>[)}])?", re.IGNORECASE
)
_BRACKETS = {None: None, "{": "}", "(": ")"}
_DATE_TIME_TEXT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<time>\d\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,9}))?"
    r" ?(?P<zone>[Zz]|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?)?)?",
    re.ASCII,
)
_TIME_SPAN_TEXT = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d{1,8})\.)?(?P<hours>[01]?\d|2[0-3]):(?P<minutes>[0-5]?\d)"
    r"(?::(?P<seconds>[0-5]?\d)(?:\.(?P<fraction>\d{1,7}))?)?",
    re.ASCII,
)


def converted(text: str, replaced: AmqpValue) -> AmqpValue | None:
    """The value that a text writes, of the type of the value that it replaces; None where it writes none of that type.

    White space around it does not count, but for a char and a URI.
    """
    kind, shown = replaced.type, text.strip()
    if kind is AmqpType.BOOLEAN:
        found = {"true": True, "false": False}.get(shown.lower())
        return None if found is None else AmqpValue(kind, found)
    if kind in INTEGERS:
        low, high = INTEGER_RANGES[kind]
        is_held = _INTEGER.fullmatch(shown) is not None and low <= int(shown) <= high
        return AmqpValue(kind, int(shown)) if is_held else None
    if kind in (AmqpType.FLOAT, AmqpType.DOUBLE):
        return _float(shown, kind)
    if kind in DECIMAL_SIZES:
        return _decimal(shown, kind)
    if kind is AmqpType.CHAR:
        return AmqpValue(kind, ord(text)) if len(text) == 1 and not "\ud800" <= text < "\ue000" else None
    if kind is AmqpType.UUID:
        guid = _GUID.fullmatch(shown)
        is_guid = guid is not None and _BRACKETS[guid["open"]] == guid["close"]
        return AmqpValue(kind, uuid.UUID(shown.strip("{}()"))) if is_guid else None
    if kind is AmqpType.TIMESTAMP:
        return _date_time(shown)
    match described_as(replaced):
        case name if name == DATE_TIME_OFFSET:
            return _date_time(shown, with_offset=True)
        case name if name == TIME_SPAN:
            return _time_span(shown)
        case name if name == URI:
            return uri(text) if shown else None
    return None


def _date_time(text: str, *, with_offset: bool = False) -> AmqpValue | None:
    """A date and time as ISO 8601 has it: without a time midnight, without a zone UTC; None for another text.

    A timestamp, parts of a millisecond cut off; or a datetime-offset.
    """
    found = _DATE_TIME_TEXT.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(f"{found['date']}T{found['time'] or '00:00'}")
        seconds = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(seconds=1)
        ticks = seconds * _TICKS_PER_S + _fraction_ticks(found["fraction"])
        if found["sign"]:
            hours, minutes = int(found["hours"]), int(found["minutes"] or 0)
            if hours > 14 or minutes > 59:
                return None
            ahead = (hours * 60 + minutes) * 60 * _TICKS_PER_S
            ticks += -ahead if found["sign"] == "+" else ahead
        return date_time(ticks if with_offset else ticks - ticks % TICKS_PER_MS, with_offset=with_offset)
    except (ValueError, EvaluationFailed):
        return None


def _time_span(text: str) -> AmqpValue | None:
    """A time span as .NET writes it, `[-][d.]hh:mm[:ss[.fffffff]]`, or as ISO 8601, `PT1M`; None for another text."""
    found = _TIME_SPAN_TEXT.fullmatch(text)
    try:
        if found is None:
            return time_span(duration_ticks(text))
        minutes = (int(found["days"] or 0) * 24 + int(found["hours"])) * 60 + int(found["minutes"])
        ticks = (minutes * 60 + int(found["seconds"] or 0)) * _TICKS_PER_S + _fraction_ticks(found["fraction"])
        return time_span(-ticks if found["sign"] else ticks)
    except (ConfigError, EvaluationFailed):
        return None


def _fraction_ticks(digits: str | None) -> int:
    return int((digits or "")[:7].ljust(7, "0"))


def _float(text: str, kind: AmqpType) -> AmqpValue | None:
    value = _NOT_FINITE.get(text.lower())
    if value is None:
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if math.isinf(value):
            return None
    try:
        return AmqpValue(kind, value)
    except ConfigError:
        # More than 32 bits can hold.
        return None


def _decimal(text: str, kind: AmqpType) -> AmqpValue | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    sign, digits, exponent = decimal.Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    if len(digits) > _MOST_DIGITS:
        return None
    number = int("".join(map(str, digits)))
    return decimal_of(kind, -number if sign else number, exponent)
