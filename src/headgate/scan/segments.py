"""The segments and chunks of a stream that hold some offsets."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from headgate.log import ChunkTable, Segment, SegmentReader, Stream
from headgate.scan.offset_range import OffsetRange


def segments_within(
    segments: Sequence[Segment], within: OffsetRange, *, next_offset: int | None = None
) -> Iterator[Segment]:
    """The segments of a stream, in order, that may hold offsets of a range.

    Without the `next_offset` of the stream the last one may end before it.
    """
    first = bisect.bisect_right(segments, within.start, key=attrgetter("first_chunk_id")) - 1
    for number in range(max(0, first), len(segments)):
        segment = segments[number]
        if segment.first_chunk_id >= within.stop:
            return
        is_last = number + 1 == len(segments)
        if not (is_last and next_offset is not None and next_offset <= within.start):
            yield segment


def rows_within(table: ChunkTable, within: OffsetRange) -> tuple[int, int]:
    """First row and row behind the last of the chunks of a table that hold offsets `within`."""
    first = max(0, int(np.searchsorted(table.chunk_id, within.start, side="right")) - 1)
    return first, max(first, int(np.searchsorted(table.chunk_id, within.stop, side="left")))


def opened_within(stream: Stream, within: OffsetRange) -> Iterator[tuple[SegmentReader, int, int]]:
    """The segments with offsets of a range, one after the other, open until the next one; and their rows within it."""
    for segment in segments_within(stream.segments(), within):
        with segment.open() as reader:
            yield reader, *rows_within(reader.chunks(), within)
