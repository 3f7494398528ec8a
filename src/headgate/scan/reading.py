"""Stage 2: the bytes of the chunks that stage 1 left, their messages, and the ones for which the filter is true.

Works on groups of chunks (a window of some mebibytes, so that its fixed cost vanishes): one gather, one check of
all headers and checksums, one walk over all entries, one run of the filter. No Python object per message or chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.evaluate.verdict import Verdict
from headgate.log import ChunkHeaders, SegmentReader, decode_headers
from headgate.log.checksums import first_mismatch
from headgate.log.entries import SubBatch, entries_of
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.log.walk import StopReason, walk_entries
from headgate.message.batch import EncodedMessages
from headgate.scan.request import OffsetRange, OnCorrupt, ScanCounters, ScanRequest

WINDOW_BYTES = 4 << 20

Int64Array = NDArray[np.int64]


@dataclass(slots=True)
class ScanBatch:
    """Messages that a reader keeps, in stream order: their bytes, offsets and the time of their chunk.

    `offsets` and `timestamps_ms` are `(messages,)` int64. The bytes lie in a buffer that the next batch overwrites:
    copy what you keep.
    """

    messages: EncodedMessages
    offsets: Int64Array
    timestamps_ms: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)


def read_rows(
    reader: SegmentReader, rows: Int64Array, request: ScanRequest, within: OffsetRange, counters: ScanCounters
) -> Iterator[ScanBatch]:
    """The messages of the chunks in `rows` of the reader's table, in order, that lie `within` and pass the filter.

    A batch may be empty (nothing matched in its chunks): the caller sees that the reader moved on. Raises
    CorruptChunkError with file and position, unless the request skips corrupt chunks. Memory: one window, or one chunk
    if that is larger, and the expansion of one chunk's sub-batches.
    """
    table = reader.chunks()
    positions = table.position[rows]
    stops = reader.stop_positions()[rows]
    total = np.cumsum(stops - positions)
    first = 0
    while first < len(rows):
        read_before = int(total[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(total, read_before + WINDOW_BYTES, side="right")))
        window = _Window(reader, table.chunk_id[rows[first:stop]], positions[first:stop], stops[first:stop])
        yield from _read_window(window, request, within, counters)
        first = stop


@dataclass(slots=True)
class _Window:
    """Some chunks of one segment: their ids as the index says, and the bytes of the file they lie in."""

    reader: SegmentReader
    chunk_ids: Int64Array
    positions: Int64Array
    stops: Int64Array

    def one_by_one(self) -> Iterator[_Window]:
        for row in range(len(self.chunk_ids)):
            part = slice(row, row + 1)
            yield _Window(self.reader, self.chunk_ids[part], self.positions[part], self.stops[part])


def _read_window(
    window: _Window, request: ScanRequest, within: OffsetRange, counters: ScanCounters
) -> Iterator[ScanBatch]:
    if request.on_corrupt is OnCorrupt.FAIL:
        yield from _read_chunks(window, request, within, counters)
        return
    # Counted and kept only when the whole window checks; else chunk by chunk, to lose no more than the corrupt one.
    try:
        _check(window, request)
    except CorruptChunkError:
        if len(window.chunk_ids) > 1:
            for chunk in window.one_by_one():
                yield from _read_window(chunk, request, within, counters)
        else:
            counters.chunks_corrupt += 1
        return
    yield from _read_chunks(window, request, within, counters)


def _check(window: _Window, request: ScanRequest) -> None:
    """Raise CorruptChunkError if any chunk of the window cannot be read to its last message."""
    for _ in _messages(window, request):
        pass


def _read_chunks(
    window: _Window, request: ScanRequest, within: OffsetRange, counters: ScanCounters
) -> Iterator[ScanBatch]:
    counters.bytes_read += int((window.stops - window.positions).sum())
    for messages, offsets, chunks in _messages(window, request):
        yield _decide(messages, offsets, chunks, request, within, counters)


def _messages(window: _Window, request: ScanRequest) -> Iterator[tuple[EncodedMessages, Int64Array, NDArray[np.void]]]:
    """Groups of whole chunks: messages, their offsets, and the header records (HEADER_DTYPE) of the group's chunks."""
    path = window.reader.segment.segment_path
    data, starts = window.reader.gather(window.positions, window.stops)
    headers = decode_headers(data, starts)
    headers.check(path=path, positions=window.positions)
    wrong = (headers.size_bytes != window.stops - window.positions) | (headers.chunk_id != window.chunk_ids)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CorruptChunkError(
            f"chunk {window.chunk_ids[row]} and its index record disagree about its id or size",
            path=path,
            position=int(window.positions[row]),
        )
    data_starts = starts + CHUNK_HEADER_BYTES + headers.bloom_length
    if request.verify_checksums:
        bad = first_mismatch(data, data_starts, headers.data_length, headers.crc)
        if bad is not None:
            raise CorruptChunkError(
                f"checksum of chunk {window.chunk_ids[bad]} does not match its data",
                path=path,
                position=int(window.positions[bad]),
            )
    yield from _walk(window, data, data_starts, headers, request)


def _walk(
    window: _Window, data: NDArray[np.uint8], data_starts: Int64Array, headers: ChunkHeaders, request: ScanRequest
) -> Iterator[tuple[EncodedMessages, Int64Array, NDArray[np.void]]]:
    path = window.reader.segment.segment_path
    lengths, counts, chunk_ids = headers.data_length, headers.num_entries, headers.chunk_id
    first = 0
    while first < len(headers):
        walked = walk_entries(
            data,
            data_starts=data_starts,
            data_lengths=lengths,
            entry_counts=counts,
            chunk_ids=chunk_ids,
            first_chunk=first,
        )
        stop = len(headers) if walked.stop is None else walked.stop.chunk
        if stop > first:
            records = headers.num_records[first:stop]
            if int(records.sum()) != len(walked):
                row = first + int(np.argmax(records != counts[first:stop]))
                raise CorruptChunkError(
                    f"chunk {chunk_ids[row]} says {headers.num_records[row]} records in {counts[row]} simple entries",
                    path=path,
                    position=int(window.positions[row]),
                )
            yield EncodedMessages(data, walked.starts, walked.lengths), walked.offsets, headers.records[first:stop]
        if walked.stop is None:
            return
        position = int(window.positions[stop])
        if walked.stop.reason is StopReason.MALFORMED:
            raise CorruptChunkError(
                f"the entries of chunk {chunk_ids[stop]} do not fill its data", path=path, position=position
            )
        bodies = _expand(
            data[int(data_starts[stop]) : int(data_starts[stop] + lengths[stop])].tobytes(),
            headers.records[stop],
            path=path,
            position=position,
            limit_bytes=request.max_expanded_bytes,
        )
        offsets = np.arange(len(bodies), dtype=np.int64) + int(chunk_ids[stop])
        yield EncodedMessages.of(bodies), offsets, headers.records[stop : stop + 1]
        first = stop + 1


def _expand(content: bytes, header: np.void, *, path: Path, position: int, limit_bytes: int) -> list[bytes]:
    """The messages of a chunk with sub-batches, unpacked; at most `limit_bytes` of unpacked content."""
    bodies: list[bytes] = []
    for entry in entries_of(content, int(header["num_entries"]), path=path, position=position):
        if isinstance(entry, SubBatch):
            bodies.extend(entry.messages(limit_bytes=limit_bytes, path=path, position=position))
            limit_bytes -= entry.uncompressed_length
        else:
            bodies.append(entry.body)
    if len(bodies) != header["num_records"]:
        raise CorruptChunkError(
            f"chunk {header['chunk_id']} says {header['num_records']} records and holds {len(bodies)}",
            path=path,
            position=position,
        )
    return bodies


def _decide(
    messages: EncodedMessages,
    offsets: Int64Array,
    chunks: NDArray[np.void],
    request: ScanRequest,
    within: OffsetRange,
    counters: ScanCounters,
) -> ScanBatch:
    records = chunks["num_records"].astype(np.int64)
    timestamps = np.repeat(chunks["timestamp_ms"].astype(np.int64), records)
    boundaries = np.cumsum(records) - records
    if len(offsets) and (offsets[0] < within.start or offsets[-1] >= within.stop):
        rows = slice(*np.searchsorted(offsets, [within.start, within.stop]).tolist())
        boundaries = np.clip(boundaries, rows.start, rows.stop) - rows.start
        messages, offsets, timestamps = messages.take(rows), offsets[rows], timestamps[rows]
    counters.messages_evaluated += len(messages)
    if request.filter is None:
        counters.messages_matched += len(messages)
        return ScanBatch(messages, offsets, timestamps)
    if request.exact:
        verdicts = request.filter.verdicts(messages, now_ms=request.now_ms)
        counters.messages_unknown += int((verdicts == Verdict.UNKNOWN).sum())
        counters.messages_error += int((verdicts == Verdict.ERROR).sum())
        selected = verdicts == Verdict.TRUE
    else:
        selected = request.filter.select(messages, now_ms=request.now_ms)
    kept = np.flatnonzero(selected)
    counters.messages_matched += len(kept)
    hits = np.searchsorted(kept, np.append(boundaries, len(selected)))
    counters.chunks_without_match += int((np.diff(hits) == 0).sum())
    return ScanBatch(messages.take(kept), offsets[kept], timestamps[kept])
