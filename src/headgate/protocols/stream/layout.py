"""The blocks of words that the kernels of the stream protocol write."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class MeasuredBlock(NamedTuple):
    """Result of `measure_publish`: a run of complete Publish frames."""

    entries: int
    """The number that they announce."""
    stop: int
    """The place behind the last one."""
    has_values: int
    """Whether one is of version 2."""


class ParsedBlock(NamedTuple):
    """Result of `parse_publish`."""

    entries: int
    has_sub_batch: int


class FrameBlock(NamedTuple):
    """A Publish frame."""

    publisher: int
    first: int
    """Its first entry."""
    accepted: int
    """Entries before the first that is refused."""
    entries: int


MEASURED = places(MeasuredBlock)
PARSED = places(ParsedBlock)
FRAME = places(FrameBlock)
FRAME_BYTES = 8 * len(FRAME)
