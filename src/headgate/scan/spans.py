"""The offsets of a segment that are left before a message is read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.log import Segment, Stream
from headgate.scan.answers import Answers, Purpose
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange
from headgate.scan.request import ScanRequest
from headgate.scan.rows import rows_left
from headgate.scan.segments import rows_within
from headgate.scan.stage_one import ChunkSelector


def spans_left(
    stream: Stream, segment: Segment, request: ScanRequest, within: OffsetRange, counters: ScanCounters
) -> NDArray[np.int64]:
    """`(spans, 2)`, start and stop: the offsets `within` that stage 1 and the sources of the request leave.

    Neighbouring chunks are one span. No file is opened where the request has nothing to test. Errors: those of
    `ChunkSelector.select`.
    """
    request = request.over(stream.body_schema)
    selector = ChunkSelector(stream, request)
    answers = Answers(request, Purpose.PLANNING)
    if not selector.tests_headers and not answers.is_asked:
        return np.array([[within.start, within.stop]], dtype=np.int64)
    with segment.open() as reader:
        rows = selector.select(reader, *rows_within(reader.chunks(), within), counters)
        rows = rows_left(reader, rows, within, answers, counters)
        starts, stops = reader.chunks().chunk_id[rows], reader.next_chunk_ids()[rows]
    answers.close()
    begins = np.flatnonzero(np.append(True, starts[1:] != stops[:-1])[: len(rows)])
    ends = np.append(begins[1:], len(rows))[: len(begins)] - 1
    spans = np.stack([starts[begins], stops[ends]], axis=1)
    return spans.clip(within.start, within.stop)
