"""The offsets written under a declared filter source: the arithmetic of their ranges in `stream.json`."""

from __future__ import annotations

import msgspec

from headgate.log.settings import DeclaredRange, StreamSettings

_AHEAD = 1_000_000
_MAX_RANGES = 1000

Ranges = tuple[DeclaredRange, ...]


def ranges_covering(settings: StreamSettings, filter_source: str | None, *, next_offset: int, stop: int) -> Ranges:
    """The ranges to keep before offsets `next_offset … stop` are written with values from `filter_source`.

    If `filter_source` is the declared one, the last range covers these offsets, and some more, so that not every write
    changes the file. Otherwise no range extends beyond `next_offset`.
    """
    declared = list(settings.declared)
    last = declared[-1] if declared else None
    if filter_source is None or filter_source != settings.filter_source:
        return settings.declared if last is None or last.stop <= next_offset else trimmed(settings, next_offset)
    start = next_offset
    if last is not None and last.field == filter_source and last.stop >= next_offset:
        if last.stop >= stop:
            return settings.declared
        declared.pop()
        start = last.start
    declared.append(DeclaredRange(filter_source, start, stop + _AHEAD))
    # The oldest ranges may be dropped: without one a reader skips less, never too much.
    return tuple(declared[-_MAX_RANGES:])


def trimmed(settings: StreamSettings, next_offset: int) -> Ranges:
    """The ranges, cut to the written offsets."""
    cut = (msgspec.structs.replace(declared, stop=min(declared.stop, next_offset)) for declared in settings.declared)
    return tuple(declared for declared in cut if declared.start < declared.stop)
