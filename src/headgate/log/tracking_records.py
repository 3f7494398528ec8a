"""Tracking records as bytes: the trailers of user chunks, and the bodies of deltas and snapshots.

See osiris_log.md sections 3 and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from headgate.errors import ConfigError, CorruptChunkError

MAX_REFERENCE_BYTES = 255

_U64 = struct.Struct(">Q")
_TWO_U64 = struct.Struct(">QQ")


class TrackingKind(IntEnum):
    """First byte of a tracking record."""

    SEQUENCE = 0
    OFFSET = 1
    TIMESTAMP = 2


_LAST_KIND = int(TrackingKind.TIMESTAMP)


@dataclass(slots=True)
class TrackingRecord:
    """One record: `value` is a sequence, an offset or milliseconds; only sequences in a snapshot have a `chunk_id`."""

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
    """Records one after the other: a trailer, or the body of a delta's or snapshot's one entry."""
    return b"".join(record.encode() for record in records)


def encode_offsets(offsets: Mapping[bytes, int]) -> bytes:
    """Stored offsets as the records of a trailer."""
    if not offsets:
        return b""
    return encode_records(TrackingRecord(TrackingKind.OFFSET, name, offset) for name, offset in offsets.items())


def decode_records(data: bytes, *, in_snapshot: bool, path: str | Path, position: int) -> Iterator[TrackingRecord]:
    """The records in `data`, which is at `position` of `path`. Raises CorruptChunkError for invalid bytes."""
    for start, value_at, stop in tracking_spans(data, in_snapshot=in_snapshot, path=path, position=position):
        kind = TrackingKind(data[start])
        reference = bytes(data[start + 2 : value_at])
        if stop - value_at == _TWO_U64.size:
            chunk_id, value = _TWO_U64.unpack_from(data, value_at)
            yield TrackingRecord(kind, reference, value, chunk_id)
        else:
            yield TrackingRecord(kind, reference, _U64.unpack_from(data, value_at)[0])


def tracking_spans(
    data: bytes, *, in_snapshot: bool, path: str | Path, position: int
) -> Iterator[tuple[int, int, int]]:
    """For each record: its start, the start of its value, and its end. Arguments and errors: as of `decode_records`."""
    at, end = 0, len(data)
    while at < end:
        if at + 2 > end or data[at] > _LAST_KIND:
            raise CorruptChunkError(
                f"no tracking record: kind {data[at]}, {end - at} bytes left", path=path, position=position + at
            )
        value_at = at + 2 + data[at + 1]
        stop = value_at + (16 if in_snapshot and data[at] == TrackingKind.SEQUENCE else 8)
        if stop > end:
            raise CorruptChunkError("a tracking record is cut off", path=path, position=position + at)
        yield at, value_at, stop
        at = stop


def check_reference(reference: bytes, *, what: str) -> bytes:
    """Return `reference`. Raises ConfigError if it does not fit a record."""
    if not 1 <= len(reference) <= MAX_REFERENCE_BYTES:
        raise ConfigError(f"{what} has {len(reference)} bytes; expected 1 to {MAX_REFERENCE_BYTES}")
    return reference
