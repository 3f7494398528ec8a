"""Planning a bounded read: the chunks that stage 1 leaves, cut into ranges for tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.errors import OffsetOutOfRangeError
from headgate.log import OffsetSpecification, Segment, SegmentReader, Stream, check_identity
from headgate.scan.answers import Answers, Purpose
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange
from headgate.scan.reading import ScanBatch
from headgate.scan.request import OnCorrupt, ScanRequest
from headgate.scan.rows import read_rows, rows_left
from headgate.scan.segments import UNREADABLE, opened_within, pass_over
from headgate.scan.stage_one import ChunkSelector

DEFAULT_RANGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """Chunks of one segment for one task: `rows` of its chunk table, `(chunks,)` int64 ascending, `size_bytes` in all.

    Only the messages `within` are read. `body_schema` is the one that the stream declares. Picklable; holds no content.
    """

    segment: Segment
    rows: NDArray[np.int64]
    within: OffsetRange
    size_bytes: int
    body_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of a read in stream order, the offsets they cover, and the counters of stage 1 while planning."""

    ranges: list[ChunkRange]
    within: OffsetRange
    counters: ScanCounters


def resolve_range(
    stream: Stream, *, start: OffsetSpecification, end: OffsetSpecification | None, now_ms: int
) -> OffsetRange:
    """The offsets that `start` (inclusive) and `end` (exclusive; None = all that is committed now) mean now.

    A time means the first chunk written then or later, `last` the first message of the last chunk, for both ends.
    """
    stop = stream.next_offset() if end is None else stream.offset_of(end, now_ms=now_ms)
    return OffsetRange(min(stream.offset_of(start, now_ms=now_ms), stop), stop)


def check_start(stream: Stream, start: OffsetSpecification, *, now_ms: int) -> None:
    """Raises ConfigError, with the stream's offsets, if a read that does not wait would begin behind the end."""
    behind = stream.next_offset()
    begin = stream.offset_of(start, now_ms=now_ms)
    start.check_not_behind(stream.first_offset(), behind, begin=begin, now_ms=now_ms)


def plan(stream: Stream, request: ScanRequest, within: OffsetRange, *, range_bytes: int = DEFAULT_RANGE_BYTES) -> Plan:
    """The chunks that a read of `within` has to look into, in ranges of about `range_bytes` of one segment each.

    Offsets that retention deleted are left out: compare `within.start` with `stream.first_offset()` if that matters.
    Reads index files, and chunk headers where stage 1 has something to test. Errors: those of `ChunkSelector.select`.
    """
    request = request.over(stream.body_schema)
    counters = ScanCounters()
    selector = ChunkSelector(stream, request)
    ranges: list[ChunkRange] = []
    answers = Answers(request, Purpose.PLANNING)
    skipping = counters if request.on_corrupt is OnCorrupt.SKIP else None
    for reader, first, stop in opened_within(stream, within, skipping=skipping):
        rows = selector.select(reader, first, stop, counters)
        rows = rows_left(reader, rows, within, answers, counters)
        sizes = reader.stops_of(rows) - reader.chunks().position[rows]
        ranges.extend(_cut(reader.segment, rows, sizes, within, range_bytes, stream.body_schema))
    answers.close()
    return Plan(ranges, within, counters)


def _cut(
    segment: Segment,
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    within: OffsetRange,
    range_bytes: int,
    body_schema: str | None,
) -> Iterator[ChunkRange]:
    if not len(rows):
        return
    total = int(sizes.sum())
    pieces = max(1, round(total / range_bytes))
    middles = np.cumsum(sizes) - sizes // 2
    cuts = np.searchsorted(middles, total * np.arange(1, pieces) / pieces)
    for part, part_sizes in zip(np.split(rows, cuts), np.split(sizes, cuts), strict=True):
        if len(part):
            yield ChunkRange(segment, part, within, int(part_sizes.sum()), body_schema)


def read_range(chunks: ChunkRange, request: ScanRequest, counters: ScanCounters) -> Iterator[ScanBatch]:
    """The messages of one range that pass the filter, as batches in stream order; see `read_rows`.

    Raises StreamNotFoundError, StreamReplacedError where the stream was deleted since the range was planned.
    """
    request = request.over(chunks.body_schema)
    answers = Answers(request, Purpose.PLANNED)
    try:
        with _opened(chunks.segment) as reader:
            yield from read_rows(reader, chunks.rows, request, chunks.within, counters, answers)
    except UNREADABLE as error:
        if request.on_corrupt is OnCorrupt.FAIL:
            raise
        pass_over(chunks.segment, error)
        counters.chunks_corrupt += len(chunks.rows)
    finally:
        answers.close()


def _opened(segment: Segment) -> SegmentReader:
    """A reader of a segment, which still belongs to the stream in which it was found."""
    if segment.remote is not None:
        # Tasks on other machines have no folder of the stream; the files here are named after its identity.
        return segment.open()
    folder = segment.folder
    try:
        reader = segment.open()
    except OffsetOutOfRangeError:
        check_identity(folder, segment.identity, name=folder.name)
        raise
    try:
        check_identity(folder, segment.identity, name=folder.name)
    except BaseException:
        reader.close()
        raise
    return reader
