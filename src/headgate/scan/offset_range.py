"""A range of offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (inclusive) to `stop` (exclusive)."""

    start: int
    stop: int


NO_END = 2**63 - 1
"""The stop of a range that has no end."""

EVERYWHERE = OffsetRange(0, NO_END)
