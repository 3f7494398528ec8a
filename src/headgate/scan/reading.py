"""Stage 2: reads the chunks that stage 1 left, and gives the messages for which the filter is true.

Works on groups of chunks (a window of some mebibytes, so that its fixed cost vanishes): one gather, one check of all
headers, one run of the kernel that does the rest chunk by chunk. No Python object per message or chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.log import ChunkHeader, ChunkHeaders, ChunkTable, SegmentReader, decode_headers, unpack_chunk
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.message import EncodedMessages
from headgate.scan.counters import ScanCounters
from headgate.scan.request import OnCorrupt
from headgate.scan.segments import UNREADABLE, pass_over
from headgate.scan.stage_two import ChunksInMemory, Decider, Obstacle, Tally, select

WINDOW_BYTES = 4 << 20
_MAPPED_WINDOW_BYTES = 16 << 20
"""Limit of a window of mapped chunks: larger, because they are not copied."""

_MAPPED_WINDOW_OFFSETS = 131_072
"""Limit of messages in a window of mapped chunks: the columns kept of each take some 64 bytes."""

_REASONS = {
    Obstacle.MALFORMED: "the entries of chunk {} do not fill its data, or are not as many as its records",
    Obstacle.WRONG_CHECKSUM: "checksum of chunk {} does not match its data",
}

Int64Array = NDArray[np.int64]

_NOTHING = np.empty(0, dtype=np.int64)


class ScanBatch(msgspec.Struct, eq=False):
    """Messages that a reader keeps, in stream order: their bytes, offsets and the time of their chunk.

    `offsets` and `timestamps_ms` are `(messages,)` int64. `malformed` are the offsets, ascending, at which evaluation
    found no AMQP message. The bytes lie in a buffer that the next batch overwrites: copy what you keep.
    """

    messages: EncodedMessages
    offsets: Int64Array
    timestamps_ms: Int64Array
    malformed: Int64Array = _NOTHING

    def __len__(self) -> int:
        return len(self.offsets)


def read_in_full(
    reader: SegmentReader, rows: Int64Array, decider: Decider, counters: ScanCounters
) -> Iterator[ScanBatch]:
    """The messages of the chunks in `rows` of the reader's table, in order, that the decider keeps.

    A batch may be empty (nothing matched in its chunks): the caller sees that the reader moved on. Raises
    CorruptChunkError with file and position, unless the request skips corrupt chunks. Memory: one window, or one chunk
    if that is larger, and the expansion of one chunk's sub-batches.
    """
    request = decider.request
    table = reader.chunks()
    stops = reader.stops_of(rows)
    total = np.cumsum(stops - table.position[rows])
    skipping = counters if request.on_corrupt is OnCorrupt.SKIP else None
    chunk_ids = table.chunk_id[rows]
    is_mapped = len(rows) > 0 and reader.is_mapped(int(stops[-1]))
    first = 0
    while first < len(rows):
        read_before = int(total[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(total, read_before + WINDOW_BYTES, side="right")))
        if is_mapped:
            by_bytes = np.searchsorted(total, read_before + _MAPPED_WINDOW_BYTES, side="right")
            by_offsets = np.searchsorted(chunk_ids, chunk_ids[first] + _MAPPED_WINDOW_OFFSETS, side="right")
            stop = max(stop, int(min(by_bytes, by_offsets)))
        try:
            window = open_window(reader, table, rows[first:stop], stops[first:stop], skipping)
        except UNREADABLE as error:
            if skipping is None or reader.segment.remote is None:
                raise
            pass_over(reader.segment, error)
            counters.chunks_corrupt += stop - first
        else:
            counters.bytes_read += int(total[stop - 1]) - read_before
            yield from read_window(window, decider, counters)
        first = stop


@dataclass(slots=True)
class Window:
    """Some chunks of one segment in memory, with their places in its file and their headers.

    `positions` and `sizes` are those in the file; `headers` and `data_starts`, where the data parts lie, those in
    memory. All `(chunks,)` int64, in bytes.
    """

    path: str | Path
    positions: Int64Array
    sizes: Int64Array
    headers: ChunkHeaders
    data_starts: Int64Array
    _chunks: ChunksInMemory | None = None

    @property
    def chunks(self) -> ChunksInMemory:
        """The chunks as `Decider` takes them, computed at the first use."""
        if self._chunks is None:
            self._chunks = ChunksInMemory.of(self.headers, self.data_starts)
        return self._chunks

    def corrupt(self, row: int, reason: str) -> CorruptChunkError:
        """The error for one chunk, whose id is put into `reason`."""
        reason = reason.format(self.chunks.chunk_ids[row])
        return CorruptChunkError(reason, path=self.path, position=int(self.positions[row]))


def open_window(
    reader: SegmentReader, table: ChunkTable, rows: Int64Array, stops: Int64Array, counters: ScanCounters | None
) -> Window:
    """Bring chunks into memory and check their headers; with `counters` corrupt chunks are counted and left out.

    `rows`, ascending, are rows of a table of the reader, `stops` the bytes behind them. Raises CorruptChunkError.
    """
    positions = table.position[rows]
    data, starts = reader.gather(positions, stops)
    headers = decode_headers(data, starts)
    if counters is None:
        headers.check(path=reader.place, positions=positions)
    bad = reader.contradicted(headers, table, rows, stops)
    if bad.any() and counters is None:
        number = int(np.argmax(bad))
        raise reader.contradiction(headers, table, int(rows[number]), number)
    if counters is not None:
        sound = ~bad & headers.sound()
        counters.chunks_corrupt += int((~sound).sum())
        headers = ChunkHeaders(headers.records[sound], data, headers.bloom_positions[sound])
        positions, stops = positions[sound], stops[sound]
    return Window(reader.place, positions, stops - positions, headers, headers.bloom_positions + headers.bloom_length)


def open_windows(
    reader: SegmentReader, rows: Int64Array, window_bytes: int, counters: ScanCounters | None = None
) -> Iterator[tuple[slice, Window]]:
    """Chunks in parts of about `window_bytes`, each at least one chunk, with its place in `rows`; see `open_window`."""
    table, stops = reader.chunks(), reader.stops_of(rows)
    total = np.cumsum(stops - table.position[rows])
    first = 0
    while first < len(rows):
        before = int(total[first - 1]) if first else 0
        part = slice(first, max(first + 1, int(np.searchsorted(total, before + window_bytes, side="right"))))
        yield part, open_window(reader, table, rows[part], stops[part], counters)
        first = part.stop


def read_window(window: Window, decider: Decider, counters: ScanCounters) -> Iterator[ScanBatch]:
    """The kept messages of a window's chunks. Raises as `read_in_full`."""
    request = decider.request
    chunks, timestamps_ms = window.chunks, window.headers.timestamp_ms
    first, count = 0, len(chunks)
    while first < count:
        decided = decider.decide(chunks, first)
        if decided.stop_chunk > first:
            _count(decided.tally, len(decided.offsets), len(decided.malformed), counters)
            if request.filter is not None:
                hits = np.bincount(decided.chunk_rows, minlength=decided.stop_chunk)[first : decided.stop_chunk]
                counters.chunks_without_match += int((hits == 0).sum())
            yield ScanBatch(decided.messages, decided.offsets, timestamps_ms[decided.chunk_rows], decided.malformed)
        first = decided.stop_chunk
        if decided.obstacle is None:
            return
        try:
            if decided.obstacle is not Obstacle.SUB_BATCH:
                raise window.corrupt(first, _REASONS[decided.obstacle])
            yield _unpacked(window, first, decider, counters)
        except CorruptChunkError:
            if request.on_corrupt is OnCorrupt.FAIL:
                raise
            counters.chunks_corrupt += 1
        first += 1


def _unpacked(window: Window, row: int, decider: Decider, counters: ScanCounters) -> ScanBatch:
    """The kept messages of one chunk with sub-batches."""
    chunks, position = window.chunks, int(window.positions[row])
    header = ChunkHeader.decode(window.headers.records[row].tobytes(), path=window.path, position=position)
    start = int(chunks.data_starts[row])
    unpacked = unpack_chunk(
        header,
        chunks.data[start : start + header.data_length].data,
        limit_bytes=decider.request.max_expanded_bytes,
        path=window.path,
        position=position + CHUNK_HEADER_BYTES + header.bloom_length,
    )
    offsets = np.arange(header.num_records, dtype=np.int64) + header.chunk_id
    within = slice(*np.searchsorted(offsets, [decider.within.start, decider.within.stop]).tolist())
    messages, offsets = EncodedMessages(unpacked.data, unpacked.starts, unpacked.lengths).take(within), offsets[within]
    kept, malformed, tally = select(messages, decider.request)
    _count(tally, len(kept), len(malformed), counters)
    if decider.request.filter is not None and not len(kept):
        counters.chunks_without_match += 1
    timestamps_ms = np.full(len(kept), header.timestamp_ms)
    return ScanBatch(messages.take(kept), offsets[kept], timestamps_ms, offsets[malformed])


def _count(tally: Tally, kept: int, malformed: int, counters: ScanCounters) -> None:
    counters.messages_evaluated += tally.evaluated
    counters.messages_matched += kept
    counters.messages_unknown += tally.unknown
    counters.messages_error += tally.error
    counters.messages_malformed += malformed
    counters.bodies_sampled += tally.bodies.sampled
    counters.bodies_unreadable += tally.bodies.unreadable
