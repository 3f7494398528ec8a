"""Durations as the answer's sentences have them."""

from __future__ import annotations

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def shown_duration(duration_ms: int) -> str:
    """A duration in the largest unit that divides it: `7d`, `90s`, `1500 ms`."""
    for unit, size in _UNITS:
        if duration_ms and duration_ms % size == 0:
            return f"{duration_ms // size}{unit}"
    return f"{duration_ms} ms"
