"""Counting matches without reading messages, and how far an index reaches."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import CorruptSidecarError
from headgate.log import Sidecar, Stream
from headgate.scan.match_index.lookup import MatchIndex
from headgate.scan.plan import rows_within
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.rows import read_rows
from headgate.scan.stage_one import ChunkSelector


@dataclass(frozen=True, slots=True)
class MatchCount:
    """How many messages a read gives: `from_index` of the `matches` were counted in sidecars."""

    matches: int
    from_index: int
    counters: ScanCounters


def count_matches(stream: Stream, request: ScanRequest, within: OffsetRange) -> MatchCount:
    """How many messages a read with that request gives.

    Where the index has exact results for the filter only sidecars, index files and chunk headers are read; elsewhere
    the messages are. Errors: those of `read_rows` and `ChunkSelector.select`.
    """
    counters = ScanCounters()
    selector, index = ChunkSelector(stream, request), MatchIndex(request)
    from_index = read = 0
    segments = stream.segments()
    try:
        for number, segment in enumerate(segments):
            behind = segments[number + 1].first_chunk_id if number + 1 < len(segments) else None
            if segment.first_chunk_id >= within.stop or (behind is not None and behind <= within.start):
                continue
            with segment.open() as reader:
                rows = selector.select(reader, *rows_within(reader.chunks(), within), counters)
                sizes = reader.stop_positions() - reader.chunks().position
                for answer in index.answers(reader, rows, within):
                    known = answer.trusted if answer.exact else answer.ruled_out
                    from_index += int(answer.counts[known].sum())
                    counters.chunks_skipped_by_index += int(known.sum())
                    counters.bytes_skipped += int(sizes[answer.rows[known]].sum())
                    counters.messages_decided_by_index += int(answer.records[known].sum())
                    for batch in read_rows(reader, answer.rows[~known], request, within, counters, index):
                        read += len(batch)
    finally:
        index.close()
    counters.messages_matched += from_index
    return MatchCount(from_index + read, from_index, counters)


@dataclass(slots=True)
class Coverage:
    """What the sidecars of a stream say they hold, taken at their word.

    `messages` by filter (id, language, text hash), those that were decided twice counted twice; `size_bytes` of all;
    `damaged` says why some cannot be used.
    """

    messages: dict[tuple[str, str, str], int]
    size_bytes: int
    damaged: list[str]


def coverage(stream: Stream) -> Coverage:
    """How far the match index of a stream reaches. Reads the head of each sidecar."""
    found = Coverage({}, 0, [])
    for segment in stream.segments():
        try:
            sidecar = Sidecar.open(segment)
        except CorruptSidecarError as error:
            found.damaged.append(str(error))
            continue
        if sidecar is None:
            continue
        if sidecar.damage is not None:
            found.damaged.append(str(sidecar.damage))
        found.size_bytes += sidecar.size_bytes
        for block in sidecar.blocks:
            for each in block.filters:
                key = (each.id, each.dialect, each.text_hash)
                found.messages[key] = found.messages.get(key, 0) + block.directory.decided
    return found
