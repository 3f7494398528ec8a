"""The offsets that stage 1 leaves of a segment: for readers who have the messages' columns from somewhere else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.log import Segment, Stream
from headgate.scan.plan import rows_within
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.stage_one import ChunkSelector


def spans_left(
    stream: Stream, segment: Segment, request: ScanRequest, within: OffsetRange, counters: ScanCounters
) -> NDArray[np.int64]:
    """`(spans, 2)`, start and stop: the chunks of a segment that stage 1 leaves, `within`; neighbours are one span.

    Nothing is opened where stage 1 has nothing to test. Errors: those of `ChunkSelector.select`.
    """
    selector = ChunkSelector(stream, request)
    if not selector.tests_headers:
        return np.array([[within.start, within.stop]], dtype=np.int64)
    with segment.open() as reader:
        rows = selector.select(reader, *rows_within(reader.chunks(), within), counters)
        starts, stops = reader.chunks().chunk_id[rows], reader.next_chunk_ids()[rows]
    begins = np.flatnonzero(np.append(True, starts[1:] != stops[:-1])[: len(rows)])
    ends = np.append(begins[1:], len(rows))[: len(begins)] - 1
    spans = np.stack([starts[begins], stops[ends]], axis=1)
    return spans.clip(within.start, within.stop)
