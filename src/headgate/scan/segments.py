"""The segments and chunks of a stream that hold some offsets."""

from __future__ import annotations

import bisect
import functools
import logging
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from headgate.errors import CorruptChunkError, CorruptSidecarError, LogError, OffsetOutOfRangeError
from headgate.log import ChunkTable, Segment, SegmentReader, Stream
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange

UNREADABLE = (CorruptChunkError, CorruptSidecarError, OffsetOutOfRangeError)
"""What a segment raises that is damaged as a whole, or whose object in storage is gone or of another length."""

logger = logging.getLogger("headgate.scan")


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


def opened_within(
    stream: Stream, within: OffsetRange, *, skipping: ScanCounters | None = None
) -> Iterator[tuple[SegmentReader, int, int]]:
    """The segments with offsets of a range, one after the other, open until the next one; and their rows within it.

    With `skipping` those that cannot be opened are passed over, and counted there.
    """
    for segment in segments_within(stream.segments(), within):
        try:
            with segment.open() as reader:
                yield reader, *rows_within(reader.chunks(), within)
        except UNREADABLE as error:
            if skipping is None:
                raise
            pass_over(segment, error)
            skipping.chunks_corrupt += 1


def pass_over(segment: Segment, error: LogError) -> None:
    """Warn that what cannot be read of a segment is passed over; once in a process.

    Raises the error of a segment that may still grow, and of one that retention deleted from its folder.
    """
    is_deleted = isinstance(error, OffsetOutOfRangeError) and segment.remote is None
    if segment.stop_offset is None or is_deleted:
        raise error
    _warn(error.place, segment.first_chunk_id, segment.stop_offset)


@functools.lru_cache(maxsize=1024)
def _warn(place: str, first: int, stop: int) -> None:
    logger.warning("%s; what cannot be read of the offsets %d to %d is passed over", place, first, stop - 1)
