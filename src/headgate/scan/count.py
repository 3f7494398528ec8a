"""Counting matches without reading messages."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.log import Stream
from headgate.scan.answers import Answers, Purpose
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange
from headgate.scan.request import ScanRequest
from headgate.scan.rows import read_rows
from headgate.scan.segments import opened_within
from headgate.scan.stage_one import ChunkSelector


@dataclass(frozen=True, slots=True)
class MatchCount:
    """The number of messages that a read gives; `from_index` of the `matches` were counted in derived files."""

    matches: int
    from_index: int
    counters: ScanCounters


def count_matches(stream: Stream, request: ScanRequest, within: OffsetRange) -> MatchCount:
    """Count the messages that a read with this request gives.

    Where the answers are certain only derived files, index files and chunk headers are read; elsewhere the messages.
    Errors: those of `read_rows` and `ChunkSelector.select`.
    """
    request = request.over(stream.body_schema)
    counters = ScanCounters()
    selector, answers = ChunkSelector(stream, request), Answers(request, Purpose.COUNTING)
    from_index = read = 0
    try:
        for reader, first, stop in opened_within(stream, within):
            rows = selector.select(reader, first, stop, counters)
            if not answers.is_asked:
                read += sum(map(len, read_rows(reader, rows, request, within, counters, None)))
                continue
            sizes = reader.stop_positions() - reader.chunks().position
            for answer in answers.answers(reader, rows, within):
                known = answer.decided
                from_index += int(answer.counts[known].sum())
                counters.bytes_skipped += int(sizes[answer.rows[known]].sum())
                chunks, messages = int(known.sum()), int(answer.records[known].sum())
                answer.source.count(counters, chunks=chunks, messages=messages)
                for batch in read_rows(reader, answer.rows[~known], request, within, counters, answers):
                    read += len(batch)
    finally:
        answers.close()
    counters.messages_matched += from_index
    return MatchCount(from_index + read, from_index, counters)
