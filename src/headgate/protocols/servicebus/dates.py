"""Dates as Service Bus's XML writes them, `2026-01-01T00:00:00Z`; one without a zone is UTC."""

from __future__ import annotations

import datetime
import re

from headgate.errors import ConfigError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_MINUTE_MS = 60_000
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
_DATE = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d))?",
    re.ASCII,
)


def parse_date(text: str) -> int:
    """A date in milliseconds since 1970. Raises ConfigError for another text."""
    found = _DATE.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        moment = datetime.datetime.fromisoformat(f"{found['date']}T{found['time']}+00:00")
    except ValueError:
        raise ConfigError(f"not a date: {text!r}; expected one of ISO 8601, such as 2026-01-01T00:00:00Z") from None
    milliseconds = (moment - _EPOCH) // _MILLISECOND + int((found["fraction"] or "")[:3].ljust(3, "0"))
    if found["sign"]:
        ahead_ms = (int(found["hours"]) * 60 + int(found["minutes"])) * _MINUTE_MS
        milliseconds += -ahead_ms if found["sign"] == "+" else ahead_ms
    return milliseconds


def format_date(milliseconds: int) -> str:
    """A date in UTC; dates before the year 1 and after the year 9999 become the nearest that can be written."""
    moment = _EPOCH + min(max(milliseconds, _FIRST_MS), _LAST_MS) * _MILLISECOND
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")
