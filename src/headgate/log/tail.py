"""The two ends of a stream in a few small reads, for watching a stream that another process writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import OffsetOutOfRangeError, StreamNotFoundError
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES, ChunkHeader, IndexRecord
from headgate.log.segment import Segment
from headgate.log.segment_end import OpenPair, find_ending
from headgate.log.stream import Stream

NO_CHUNK = -1
"""The chunk id where there is no chunk."""

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StreamTail:
    """The ends of a stream: its first chunk id, the offset after its last record, the id of its last chunk.

    `last_chunk_id` is `NO_CHUNK` for a stream without chunks. `index_size_bytes` is that of the newest index file: as
    long as neither it nor the set of segments changes, nothing was written.
    """

    first_offset: int
    next_offset: int
    last_chunk_id: int
    newest_index: Path
    index_size_bytes: int


def read_tail(stream: Stream) -> StreamTail:
    """The ends of a stream as its files are now. Cost: two small reads, for any length of the index.

    Raises StreamNotFoundError if no pair of files is left, CorruptChunkError for an invalid last chunk.
    """
    for _ in range(_ATTEMPTS):
        segments = stream.segments()
        if not segments:
            break
        try:
            return _tail_of(segments)
        except (FileNotFoundError, OffsetOutOfRangeError):
            continue  # retention, or a recovery, took a segment away since the folder was listed
    raise StreamNotFoundError("no pair of log files is left here", path=stream.path)


def _tail_of(segments: Sequence[Segment]) -> StreamTail:
    newest = segments[-1]
    newest.fetch()
    size = newest.index_path.stat().st_size
    first = segments[0].first_chunk_id
    for segment in reversed(segments):
        header = _last_header(segment)
        if header is not None:
            return StreamTail(first, header.next_chunk_id, header.chunk_id, newest.index_path, size)
    return StreamTail(first, newest.first_chunk_id, NO_CHUNK, newest.index_path, size)


def _last_header(segment: Segment) -> ChunkHeader | None:
    """The header of the last chunk that exists, None for a segment without one."""
    segment.fetch()
    with open(segment.index_path, "rb", buffering=0) as index, open(segment.segment_path, "rb", buffering=0) as chunks:
        count = max(0, os.fstat(index.fileno()).st_size - FILE_HEAD_BYTES) // INDEX_RECORD_BYTES
        pair = OpenPair(
            chunks.fileno(),
            os.fstat(chunks.fileno()).st_size,
            segment.segment_path,
            segment.index_path,
            segment.first_chunk_id,
            segment.is_open_end,
        )

        def record_at(row: int) -> IndexRecord:
            place = FILE_HEAD_BYTES + row * INDEX_RECORD_BYTES
            return IndexRecord.decode(os.pread(index.fileno(), INDEX_RECORD_BYTES, place))

        return find_ending(pair, count, record_at).header
