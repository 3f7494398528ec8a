"""Bookkeeping inside a stream: publisher sequences and stored offsets (osiris_log.md sections 3 and 6).

Records ride in the trailers of user chunks, in delta chunks, and whole in the snapshot that begins a segment; so the
state of a stream is that of its last segment with chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from headgate.errors import ConfigError, CorruptChunkError
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES, ChunkType
from headgate.log.segment import SegmentReader
from headgate.log.stream import Stream

MAX_SNAPSHOT_PUBLISHERS = 255
MAX_REFERENCE_BYTES = 255
_HEADER_ROWS = 8192
_U64 = struct.Struct(">Q")
_TWO_U64 = struct.Struct(">QQ")


class TrackingKind(IntEnum):
    """First byte of a tracking record."""

    SEQUENCE = 0
    OFFSET = 1
    TIMESTAMP = 2


@dataclass(slots=True)
class TrackingRecord:
    """One record: `value` is a sequence, an offset or milliseconds; `chunk_id` only of a sequence in a snapshot."""

    kind: TrackingKind
    reference: bytes
    value: int
    chunk_id: int | None = None

    def encode(self) -> bytes:
        """The bytes of the record."""
        head = bytes((self.kind, len(self.reference))) + self.reference
        if self.chunk_id is not None:
            return head + _TWO_U64.pack(self.chunk_id, self.value)
        return head + _U64.pack(self.value)


def encode_records(records: Iterable[TrackingRecord]) -> bytes:
    """Records one behind the other: a trailer, or the body of a delta's or snapshot's one entry."""
    return b"".join(record.encode() for record in records)


def encode_offsets(offsets: Mapping[bytes, int]) -> bytes:
    """Stored offsets as the records of a trailer."""
    return encode_records(TrackingRecord(TrackingKind.OFFSET, name, offset) for name, offset in offsets.items())


def decode_records(data: bytes, *, in_snapshot: bool, path: str | Path, position: int) -> Iterator[TrackingRecord]:
    """The records in `data`, which lies at `position` of `path`; CorruptChunkError for bytes that are none."""
    at = 0
    while at < len(data):
        if at + 2 > len(data) or data[at] > TrackingKind.TIMESTAMP:
            raise CorruptChunkError(
                f"no tracking record: kind {data[at]}, {len(data) - at} bytes left", path=path, position=position + at
            )
        kind = TrackingKind(data[at])
        value_at = at + 2 + data[at + 1]
        with_chunk_id = in_snapshot and kind is TrackingKind.SEQUENCE
        stop = value_at + (16 if with_chunk_id else 8)
        if stop > len(data):
            raise CorruptChunkError("a tracking record is cut off", path=path, position=position + at)
        reference = bytes(data[at + 2 : value_at])
        if with_chunk_id:
            chunk_id, value = _TWO_U64.unpack_from(data, value_at)
            yield TrackingRecord(kind, reference, value, chunk_id)
        else:
            yield TrackingRecord(kind, reference, _U64.unpack_from(data, value_at)[0])
        at = stop


def check_reference(reference: bytes, *, what: str) -> bytes:
    """`reference`, or ConfigError if it does not fit a record."""
    if not 1 <= len(reference) <= MAX_REFERENCE_BYTES:
        raise ConfigError(f"{what} has {len(reference)} bytes; expected 1 to {MAX_REFERENCE_BYTES}")
    return reference


@dataclass(slots=True)
class TrackingState:
    """What a stream remembers: per publisher reference (chunk id, sequence), per consumer its offset, timestamps."""

    sequences: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    timestamps: dict[bytes, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sequences or self.offsets or self.timestamps)

    def apply(self, record: TrackingRecord, *, chunk_id: int) -> None:
        """Take one record in, found in the chunk of that id."""
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
    """The state of a stream as its files say, beside a writer or without one."""
    for segment in reversed(stream.segments()):
        with segment.open() as reader:
            if len(reader.chunks()):
                return _state_of(reader)
    return TrackingState()


def _state_of(reader: SegmentReader) -> TrackingState:
    state = TrackingState()
    table = reader.chunks()
    for start in range(0, len(table), _HEADER_ROWS):
        headers = reader.headers(start, min(start + _HEADER_ROWS, len(table)))
        types, trailers = headers.chunk_type, headers.trailer_length
        blooms, lengths = headers.bloom_length, headers.data_length
        for row in ((types != ChunkType.USER) | (trailers > 0)).nonzero()[0].tolist():
            chunk_id = int(table.chunk_id[start + row])
            data_position = int(table.position[start + row]) + CHUNK_HEADER_BYTES + int(blooms[row])
            data_stop = data_position + int(lengths[row])
            in_snapshot = types[row] == ChunkType.TRACKING_SNAPSHOT
            if types[row] != ChunkType.USER:
                _apply(state, reader, data_position + ENTRY_HEAD_BYTES, data_stop, chunk_id, in_snapshot)
            _apply(state, reader, data_stop, data_stop + int(trailers[row]), chunk_id, False)
    return state


def _apply(
    state: TrackingState, reader: SegmentReader, start: int, stop: int, chunk_id: int, in_snapshot: bool
) -> None:
    data = reader.read(start, max(start, stop))[: max(0, stop - start)].tobytes()
    path = reader.segment.segment_path
    for record in decode_records(data, in_snapshot=in_snapshot, path=path, position=start):
        state.apply(record, chunk_id=chunk_id)
