"""Functions and concatenation on texts: shared by constant folding and the reference evaluator.

Source: amqp_extensions, sections 5 and 7. A text is bytes that are valid UTF-8; the unit is the code point. None is
unknown, and so is the result for anything that a function does not take.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

from headgate.language.tree import Function
from headgate.language.values import Value

MAX_CONCATENATED_BYTES = 65_535
"""A longer concatenation is unknown."""

_ISO_8601 = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:Z|([+-])([0-9]{2}):([0-9]{2}))?)?"
)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()


def called(function: Function, arguments: Sequence[Value]) -> Value:
    """The value of a function for its arguments."""
    first = arguments[0]
    if function is Function.DATE:
        return _milliseconds(first) if isinstance(first, bytes) else None
    text = _text(first)
    counts = [argument for argument in arguments[1:] if isinstance(argument, int) and not isinstance(argument, bool)]
    if text is None or len(counts) < len(arguments) - 1:
        return None
    match function:
        case Function.LOWER:
            result: str | None = text.lower()
        case Function.UPPER:
            result = text.upper()
        case Function.LEFT:
            result = text[: counts[0]] if counts[0] >= 0 else None
        case Function.RIGHT:
            result = text[max(len(text) - counts[0], 0) :] if counts[0] >= 0 else None
        case Function.SUBSTRING:
            result = _window(text, *counts)
    return None if result is None else result.encode()


def _window(text: str, start: int, count: int | None = None) -> str | None:
    """The code points at positions `start` … `start + count - 1`, from 1, that exist."""
    if count is None:
        return text[max(start - 1, 0) :]
    return None if count < 0 else text[max(start - 1, 0) : max(start - 1 + count, 0)]


def _text(value: Value) -> str | None:
    if not isinstance(value, bytes):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _milliseconds(text: bytes) -> int | None:
    """Milliseconds since the epoch of an ISO 8601 date, with or without a time; without a zone it is UTC."""
    found = _ISO_8601.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.group(4, 5, 6))
    zone_hour, zone_minute = (int(part or 0) for part in found.group(9, 10))
    if hour > 23 or minute > 59 or second > 59 or zone_hour > 23 or zone_minute > 59:
        return None
    try:
        days = datetime.date(*(int(part) for part in found.group(1, 2, 3))).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    minutes = (days * 24 + hour) * 60 + minute
    ahead = zone_hour * 60 + zone_minute
    minutes += ahead if found.group(8) == b"-" else -ahead
    return (minutes * 60 + second) * 1000 + int((found.group(7) or b"")[:3].ljust(3, b"0"))


def concatenated(left: Value, right: Value) -> bytes | None:
    """Both texts, or any bytes, joined; unknown beyond `MAX_CONCATENATED_BYTES`."""
    if not isinstance(left, bytes) or not isinstance(right, bytes):
        return None
    return left + right if len(left) + len(right) <= MAX_CONCATENATED_BYTES else None
