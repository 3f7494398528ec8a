"""Where a reader starts or ends: offset specifications (rabbitmq_filters.md section 5, osiris_log.md section 9)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from headgate.errors import ConfigError

_INTERVAL = re.compile(r"([0-9]+)([YMDhms])")
_UNIT_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}
_MAX_NUMBER = 2**63 - 1


class OffsetKind(Enum):
    """The kinds of an offset specification."""

    FIRST = "first"
    LAST = "last"
    NEXT = "next"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    INTERVAL = "interval"


_NAMED = (OffsetKind.FIRST, OffsetKind.LAST, OffsetKind.NEXT)
"""The named places, in order."""


@dataclass(frozen=True, slots=True)
class OffsetSpecification:
    """A place in a stream, given without knowing the stream.

    `value` is the offset for OFFSET, milliseconds since 1970 for TIMESTAMP, milliseconds before now for INTERVAL, else
    0. `first`: the oldest message kept. `last`: the last chunk with messages. `next`: the end of the stream.
    """

    kind: OffsetKind
    value: int = 0

    @staticmethod
    def first() -> OffsetSpecification:
        """The oldest message kept."""
        return OffsetSpecification(OffsetKind.FIRST)

    @staticmethod
    def last() -> OffsetSpecification:
        """The beginning of the last chunk that holds messages."""
        return OffsetSpecification(OffsetKind.LAST)

    @staticmethod
    def next() -> OffsetSpecification:
        """The end of the stream."""
        return OffsetSpecification(OffsetKind.NEXT)

    @staticmethod
    def offset(offset: int) -> OffsetSpecification:
        """An offset, 0-based."""
        return OffsetSpecification(OffsetKind.OFFSET, offset)

    @staticmethod
    def timestamp(timestamp_ms: int) -> OffsetSpecification:
        """The first chunk written at a time or later."""
        return OffsetSpecification(OffsetKind.TIMESTAMP, timestamp_ms)

    @staticmethod
    def parse(text: str) -> OffsetSpecification:
        """A place: `first`, `last`, `next`, an offset, an interval like `10m` (units Y M D h m s), or an ISO 8601 time.

        A time without zone is UTC. Raises ConfigError for anything else.
        """
        if text in ("first", "last", "next"):
            return OffsetSpecification(OffsetKind(text))
        if re.fullmatch(r"[0-9]+", text) and int(text) <= _MAX_NUMBER:
            return OffsetSpecification.offset(int(text))
        interval = _INTERVAL.fullmatch(text)
        if interval is not None and int(interval[1]) > 0:
            milliseconds = int(interval[1]) * _UNIT_MS[interval[2]]
            if milliseconds <= _MAX_NUMBER:
                return OffsetSpecification(OffsetKind.INTERVAL, milliseconds)
        elif "-" in text:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                moment = None
            if moment is not None:
                return OffsetSpecification.timestamp(_milliseconds(moment))
        raise ConfigError(
            f"{text!r} is no offset specification; expected first, last, next, an offset, an interval such as 10m "
            "(units Y M D h m s), or an ISO time such as 2026-11-21T08:00:00Z"
        )

    def resolve(self, now_ms: int) -> OffsetSpecification:
        """The same place without reference to now: an interval becomes a timestamp, other kinds stay the same."""
        if self.kind is OffsetKind.INTERVAL:
            return OffsetSpecification.timestamp(now_ms - self.value)
        return self

    def is_after(self, other: OffsetSpecification, *, now_ms: int | None) -> bool:
        """Whether this place is after another one, as far as that is known without a stream.

        Two offsets, two times, two intervals, and `first`, `last` and `next` have a known order; so have an interval
        and a time if `now_ms` is given.
        """
        if self.kind in _NAMED and other.kind in _NAMED:
            return _NAMED.index(self.kind) > _NAMED.index(other.kind)
        if now_ms is None and self.kind is not other.kind:
            return False
        left, right = self.resolve(now_ms or 0), other.resolve(now_ms or 0)
        return left.kind is right.kind and left.value > right.value

    def check_not_behind(self, first: int, behind: int, *, begin: int, now_ms: int) -> None:
        """Raises ConfigError if a read that does not wait would begin after the stream's offsets `first … behind - 1`.

        This is an offset above `behind`, the offset of the next message, or a time in the future; `begin` is the offset
        of the place now. A past time is allowed, even if nothing was written since.
        """
        is_to_come = self.kind is OffsetKind.TIMESTAMP and self.value > now_ms and begin >= behind
        if is_to_come or (self.kind is OffsetKind.OFFSET and self.value > behind):
            there = (
                f"offsets {first} to {behind - 1}" if behind > first else f"no messages, its next offset is {behind}"
            )
            raise ConfigError(f"found {self}, which lies behind the end: the stream has {there}")

    def __str__(self) -> str:
        if self.kind is OffsetKind.OFFSET:
            return str(self.value)
        if self.kind is OffsetKind.TIMESTAMP:
            try:
                moment = datetime.fromtimestamp(self.value / 1000, UTC)
            except (OverflowError, ValueError, OSError):
                return f"time {self.value} ms"
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.kind is OffsetKind.INTERVAL:
            return f"{self.value // 1000}s"
        return str(self.kind.value)


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
