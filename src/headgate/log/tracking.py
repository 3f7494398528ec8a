"""Tracking data inside a stream: publisher sequences and stored offsets (osiris_log.md sections 3 and 6).

Records are in the trailers of user chunks and in delta chunks; the snapshot at the beginning of a segment repeats the
earlier ones. So the last segment with chunks has the state of a stream.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headgate.errors import CorruptChunkError
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES, ChunkType
from headgate.log.segment import SegmentReader
from headgate.log.stream import Stream, beside_retention
from headgate.log.tracking_records import TrackingKind, TrackingRecord, decode_records, tracking_spans

MAX_SNAPSHOT_PUBLISHERS = 255
_HEADER_ROWS = 8192
_WINDOW_BYTES = 1 << 20
_FEW_ROWS = 16
"""Up to this many chunks, reading them one by one is faster than as columns."""

_DENSE_ROWS = 64
"""From this many trailers in a window on, the window is read as a whole."""

_U64 = struct.Struct(">Q")

_Newest = dict[bytes, tuple[int, bytes]]
"""Kind and reference, as at the beginning of a record → chunk id and value of the newest record."""


@dataclass(slots=True)
class TrackingState:
    """The tracking data of a stream: (chunk id, sequence) per publisher reference, offset per consumer, timestamps."""

    sequences: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    timestamps: dict[bytes, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sequences or self.offsets or self.timestamps)

    def apply(self, record: TrackingRecord, *, chunk_id: int) -> None:
        """Apply one record, found in the chunk `chunk_id`."""
        if record.kind is TrackingKind.SEQUENCE:
            self.sequences[record.reference] = (
                chunk_id if record.chunk_id is None else record.chunk_id,
                record.value,
            )
        elif record.kind is TrackingKind.OFFSET:
            self.offsets[record.reference] = record.value
        else:
            self.timestamps[record.reference] = record.value

    def snapshot(self, *, first_offset: int) -> list[TrackingRecord]:
        """The records of a snapshot: the 255 publishers seen last, offsets not below the stream's first, timestamps.

        Drops from the state what the snapshot leaves out.
        """
        latest = sorted(self.sequences.items(), key=lambda item: item[1])[-MAX_SNAPSHOT_PUBLISHERS:]
        self.sequences = dict(latest)
        self.offsets = {name: offset for name, offset in self.offsets.items() if offset >= first_offset}
        return [
            *(TrackingRecord(TrackingKind.SEQUENCE, name, seq, chunk_id) for name, (chunk_id, seq) in latest),
            *(TrackingRecord(TrackingKind.OFFSET, name, offset) for name, offset in self.offsets.items()),
            *(TrackingRecord(TrackingKind.TIMESTAMP, name, time_ms) for name, time_ms in self.timestamps.items()),
        ]


def read_tracking(stream: Stream) -> TrackingState:
    """The state of a stream from its files, beside a writer or without one.

    Cost: reading the headers and trailers of the last segment's chunks, about a microsecond each.
    """

    def read() -> TrackingState:
        for segment in reversed(stream.segments()):
            with segment.open() as reader:
                if len(reader.chunks()):
                    return tracking_of_segment(reader)
        return TrackingState()

    return beside_retention(read)


def tracking_of_segment(reader: SegmentReader) -> TrackingState:
    """`read_tracking` if the last segment with chunks is known and open. Raises CorruptChunkError for damage."""
    state = TrackingState()
    newest: _Newest = {}
    path = reader.place
    for places in _places(reader):
        trailers = _trailers(reader, [place[3] for place in places], [place[4] for place in places])
        for (chunk_id, chunk_type, data_start, begin, _, crc), trailer in zip(places, trailers, strict=True):
            if chunk_type != ChunkType.USER:
                _settle(state, newest)
                in_snapshot = chunk_type == ChunkType.TRACKING_SNAPSHOT
                data = reader.read(data_start, begin)[: begin - data_start].tobytes()
                if zlib.crc32(data) != crc:
                    raise CorruptChunkError(f"data of chunk {chunk_id} fails its CRC", path=path, position=data_start)
                for record in decode_records(
                    data[ENTRY_HEAD_BYTES:], in_snapshot=in_snapshot, path=path, position=data_start + ENTRY_HEAD_BYTES
                ):
                    state.apply(record, chunk_id=chunk_id)
            for at, value_at, stop in tracking_spans(trailer, in_snapshot=False, path=path, position=begin):
                newest[trailer[at:value_at]] = chunk_id, trailer[value_at:stop]
    _settle(state, newest)
    return state


def _places(reader: SegmentReader) -> Iterator[list[tuple[int, int, int, int, int, int]]]:
    """The chunks with tracking records: chunk id, type, starts of data and trailer, the end, CRC of the data."""
    table = reader.chunks()
    if len(table) <= _FEW_ROWS:
        places = []
        for row, position in enumerate(table.position.tolist()):
            header = reader.header(row)
            if header.chunk_type != ChunkType.USER or header.trailer_length:
                begin = position + header.size_bytes - header.trailer_length
                start, end = begin - header.data_length, begin + header.tracking_length
                places.append((header.chunk_id, header.chunk_type, start, begin, end, header.crc))
        yield places
        return
    for start in range(0, len(table), _HEADER_ROWS):
        headers = reader.headers(start, min(start + _HEADER_ROWS, len(table)))
        types, trailer_lengths = headers.chunk_type, headers.trailer_length
        rows = np.flatnonzero((types != ChunkType.USER) | (trailer_lengths > 0))
        data_starts = table.position[start + rows] + CHUNK_HEADER_BYTES + headers.bloom_length[rows]
        begins = data_starts + headers.data_length[rows]
        # The trailer of a snapshot only fills room.
        has_records = types[rows] != ChunkType.TRACKING_SNAPSHOT
        ends, crcs = begins + has_records * trailer_lengths[rows], headers.crc[rows]
        columns = (table.chunk_id[start + rows], types[rows], data_starts, begins, ends, crcs)
        yield list(zip(*(column.tolist() for column in columns), strict=True))


def _trailers(reader: SegmentReader, begins: list[int], ends: list[int]) -> Iterator[bytes]:
    """The bytes `begins[i] … ends[i]`, ascending; many ranges that lie close together are read at once."""
    row = 0
    while row < len(begins):
        base = begins[row]
        behind = bisect.bisect_right(ends, base + _WINDOW_BYTES, lo=row)
        if behind - row < _DENSE_ROWS:
            behind = row + 1
        window = reader.read(base, ends[behind - 1])[: ends[behind - 1] - base].tobytes()
        for begin, end in zip(begins[row:behind], ends[row:behind], strict=True):
            yield window[begin - base : end - base]
        row = behind


def _settle(state: TrackingState, newest: _Newest) -> None:
    """Apply the newest record of each reference; older ones have no effect."""
    for head, (chunk_id, value) in newest.items():
        state.apply(TrackingRecord(TrackingKind(head[0]), head[2:], _U64.unpack(value)[0]), chunk_id=chunk_id)
    newest.clear()
