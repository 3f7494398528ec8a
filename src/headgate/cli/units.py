"""Sizes, durations and shares as people write them: `16`, `8MB`, `1GiB`, `30s`, `12h`, `7d`, `2%`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headgate.errors import ConfigError

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_DURATION_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "D": 86_400_000}
_NUMBER_AND_UNIT = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)")


def size_bytes(text: str, *, option: str) -> int:
    """Bytes in `8000000`, `8MB` (10^6) or `8MiB` (2^20); ConfigError that names `option` for anything else."""
    found = _NUMBER_AND_UNIT.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ConfigError(f"{option}: found {text!r}, expected a size such as 8000000, 8MB or 8MiB")
    return int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def duration_ms(text: str, *, option: str) -> int:
    """Milliseconds in `30s`, `10m`, `12h` or `7d` (also `7D`); ConfigError that names `option` for anything else."""
    found = _NUMBER_AND_UNIT.fullmatch(text.strip())
    unit = _DURATION_UNITS_MS.get(found[2]) if found else None
    if found is None or unit is None:
        raise ConfigError(f"{option}: found {text!r}, expected a duration such as 30s, 10m, 12h or 7d")
    return int(float(found[1]) * unit)


def share(text: str, *, option: str) -> float:
    """A share above 0 and below 1, written `0.02` or `2%`; ConfigError that names `option` for anything else."""
    number, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        value = float(number) / percent
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ConfigError(f"{option}: found {text!r}, expected a share between 0 and 1 such as 0.02 or 2%")
    return value


def shown_size(size: int) -> str:
    """`size` bytes in the largest unit that leaves at least one before the point: `512 B`, `8.0 MB`."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def shown_count(count: int) -> str:
    """`count` with a thin group separator: `120 000`."""
    return f"{count:,}".replace(",", " ")


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 message`, `2 messages`."""
    return f"{shown_count(count)} {noun}{'' if count == 1 else 's'}"


def shown_share(value: float) -> str:
    """A share as a percentage with two significant digits: `2.1 %`, `14 %`, `0.032 %`."""
    percent = value * 100
    if percent >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %"


def shown_reading(counters: Mapping[str, int]) -> dict[str, str]:
    """The cost of reading, from the counters of a row, for people."""
    decided = (
        "messages_evaluated",
        "messages_decided_by_index",
        "messages_decided_by_columns",
        "messages_decided_by_lookup",
    )
    return {
        "examined": shown_count(sum(counters[name] for name in decided)),
        "matched": shown_count(counters["messages_matched"]),
        "cpu": f"{counters['cpu_ns'] / 1e6:.1f} ms",
    }
