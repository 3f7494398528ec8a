"""Stage 1 on a warm file: how many chunk headers a second are tested for a filter value.

The baseline reads each header with a call of its own, as a reader without index would have to.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from harness import measure, report
from streams import event_stream

from headgate.log import BloomMatcher, Segment, Stream
from headgate.log.format import CHUNK_HEADER_BYTES, FILE_HEAD_BYTES, ChunkHeader
from headgate.scan import ScanCounters, ScanRequest
from headgate.scan.stage_one import ChunkSelector

MESSAGES = 2_000_000
PER_CHUNK = 4
BASELINE_CHUNKS = 50_000


def one_by_one(path: Path, matcher: BloomMatcher) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        position, found = FILE_HEAD_BYTES, 0
        for _ in range(BASELINE_CHUNKS):
            raw = os.pread(descriptor, CHUNK_HEADER_BYTES + 16, position)
            header = ChunkHeader.decode(raw, path=path, position=position)
            found += matcher.matches(raw[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + header.bloom_length])
            position += header.size_bytes
        return found
    finally:
        os.close(descriptor)


def select(stream: Stream, segment: Segment, request: ScanRequest) -> int:
    counters = ScanCounters()
    with segment.open() as reader:
        ChunkSelector(stream, request).select(reader, 0, len(reader.chunks()), counters)
    return counters.chunks_skipped


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        stream = event_stream(Path(folder) / "s", messages=MESSAGES, per_chunk=PER_CHUNK)
        segment = stream.segments()[0]
        with segment.open() as reader:
            chunks = len(reader.chunks())
        one = ScanRequest(filter_values=(b"order.created",))
        ten = ScanRequest(filter_values=(b"order.created", *(b"other.%d" % number for number in range(9))))
        matcher = BloomMatcher(one.filter_values, match_unfiltered=False)
        baseline = "header by header, no index"
        results = [
            measure(
                baseline, lambda: one_by_one(segment.segment_path, matcher), BASELINE_CHUNKS, unit="chunks", rounds=3
            ),
            measure("sealed segment, 1 value", lambda: select(stream, segment, one), chunks, unit="chunks"),
            measure("sealed segment, 10 values", lambda: select(stream, segment, ten), chunks, unit="chunks"),
            measure(
                "newest or foreign segment, 1 value",
                lambda: select(stream, replace(segment, is_own=False), one),
                chunks,
                unit="chunks",
            ),
        ]
        report("stage_one", f"Stage 1: {chunks:,} chunks of {PER_CHUNK} messages, one core", results, baseline=baseline)


if __name__ == "__main__":
    main()
