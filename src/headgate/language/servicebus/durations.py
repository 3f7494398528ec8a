"""Durations as Service Bus writes them: ISO 8601 in days, hours, minutes and seconds (servicebus_wire, section 8)."""

from __future__ import annotations

import re

from headgate.errors import ConfigError

UNLIMITED = "P10675199DT2H48M5.4775807S"
"""The longest duration that .NET has, which stands for: never."""

_UNLIMITED_MS = 922_337_203_685_477
_TICKS_PER_MS = 10_000
_TICKS_PER_S = 1_000 * _TICKS_PER_MS
_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def duration_ticks(text: str) -> int:
    """The ticks of 100 ns of a duration, for example `PT1M` or `-P14DT2H0.5S`; parts of a tick are cut off.

    Raises ConfigError for other texts, also with years or months, which have no fixed length.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:]) or text.strip().endswith("T"):
        raise ConfigError(f"found {text!r}, expected a duration such as PT1M, PT1H30M or P14D")
    whole, _, fraction = (found["seconds"] or "0").partition(".")
    seconds = (
        int(found["days"] or 0) * 86_400
        + int(found["hours"] or 0) * 3_600
        + int(found["minutes"] or 0) * 60
        + int(whole)
    )
    ticks = seconds * _TICKS_PER_S + int(fraction[:7].ljust(7, "0"))
    return -ticks if found["sign"] else ticks


def duration_ms(text: str) -> int | None:
    """The milliseconds of a duration that is not negative, parts of one cut off; None for never.

    Never is `UNLIMITED`, and all that is as long. Raises ConfigError for other texts.
    """
    total = duration_ticks(text) // _TICKS_PER_MS
    if total < 0:
        raise ConfigError(f"found {text!r}, expected a duration that is not negative")
    return None if total >= _UNLIMITED_MS else total


def ticks_text(ticks: int) -> str:
    """A number of ticks as a duration."""
    seconds, part = divmod(abs(ticks), _TICKS_PER_S)
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M")) if value]
    if rest or part or not (days or parts):
        parts.append(f"{rest}{f'.{part:07d}'.rstrip('0') if part else ''}S")
    sign = "-" if ticks < 0 else ""
    return f"{sign}P" + (f"{days}D" if days else "") + ("T" + "".join(parts) if parts else "")


def duration_text(ms: int | None) -> str:
    """A number of milliseconds as a duration; None: without end."""
    return UNLIMITED if ms is None or ms >= _UNLIMITED_MS else ticks_text(ms * _TICKS_PER_MS)
