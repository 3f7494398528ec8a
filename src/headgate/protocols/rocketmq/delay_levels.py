"""The delay levels of the classic protocol: a message names a level, and waits as long as the level says."""

from __future__ import annotations

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
DELAY_LEVELS_MS = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(1 * _HOUR_MS, 2 * _HOUR_MS),
)
"""How long a message of delay level 1, 2 … waits."""


def delay_ms(level: int) -> int:
    """How long a message of a delay level waits: 0 for 0 and less; levels above the last are the last."""
    return 0 if level <= 0 else DELAY_LEVELS_MS[min(level, len(DELAY_LEVELS_MS)) - 1]
