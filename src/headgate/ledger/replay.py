"""Reading a ledger back: the state that its messages make, beside its writer or before there is one.

A ledger is itself a stream, in the folder `ledger`, or another one, of its stream's folder: a stream may have several
independent ledgers. Lists of streams do not show them; renaming or removing the stream includes them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

from headgate.errors import LogError, OffsetOutOfRangeError
from headgate.ledger.records import Record, SnapshotBegun, SnapshotComplete, decode_message
from headgate.ledger.state import LedgerState
from headgate.log import ChunkType, Segment, Stream

LEDGER_FOLDER = "ledger"
_WINDOW_BYTES = 1 << 20
_ENTRY_LENGTH = struct.Struct(">I")
_CHUNK_HEADER_BYTES = 48
_ATTEMPTS = 3

Watch = Callable[[LedgerState, Record, int], None]
"""Is given the state before each record, the record, and when it was written."""


@dataclass(slots=True)
class Replayed:
    """A state, and where its newest complete snapshot began: `snapshot_at` (ledger offset; 0: the ledger's beginning).

    `bytes_since` bytes of messages were written from there on, `snapshot_bytes` until the snapshot was complete.
    """

    state: LedgerState = field(default_factory=LedgerState)
    snapshot_at: int = 0
    bytes_since: int = 0
    snapshot_bytes: int = 0
    _begun: tuple[int, int] | None = None
    """The beginning of an incomplete snapshot, and `bytes_since` there."""

    def take(
        self, data: memoryview, *, offset: int, timestamp_ms: int, path: Path, position: int, watch: Watch | None
    ) -> None:
        """Apply the message at a ledger offset. Raises LogError for malformed bytes."""
        for record in decode_message(data, path=path, position=position):
            if watch is not None:
                watch(self.state, record, timestamp_ms)
            if isinstance(record, SnapshotBegun):
                self._begun = offset, self.bytes_since
            elif isinstance(record, SnapshotComplete) and self._begun is not None:
                self.snapshot_at, before = self._begun
                self.bytes_since -= before
                self.snapshot_bytes = self.bytes_since + len(data)
                self._begun = None
            self.state.apply(record)
        self.state.place(offset)
        self.bytes_since += len(data)


def ledger_folder(stream: Stream, folder: str = LEDGER_FOLDER) -> Path:
    """The folder of a ledger of a stream; it exists from the first `Ledger.open` on."""
    return stream.path / folder


def read_ledger(
    stream: Stream, *, now_ms: int, folder: str = LEDGER_FOLDER, watch_of: Callable[[], Watch] | None = None
) -> LedgerState:
    """The state of a stream's ledger at this moment; an empty one for a stream without a ledger. Takes no lock.

    Claims that ended by `now_ms` are left out. `watch_of` gives a `Watch` for each try: where the ledger's writer drops
    old files meanwhile, it is read again. Raises LogError for a damaged ledger. Cost as `Ledger.open`.
    """
    ledger = Stream.find(ledger_folder(stream, folder))
    if ledger is None:
        return LedgerState()

    def read() -> LedgerState:
        return replay(ledger, None if watch_of is None else watch_of()).state

    for _ in range(_ATTEMPTS):
        try:
            state = read()
            break
        except OffsetOutOfRangeError:
            continue  # Its writer completed a snapshot meanwhile and dropped what was before.
    else:
        state = read()
    state.due(now_ms)
    return state


def replay(ledger: Stream, watch: Watch | None = None) -> Replayed:
    """The state that the messages of a ledger make; `watch` is called for each record.

    Raises LogError for a ledger that is damaged, CorruptChunkError for its files. Cost: 10 to 20 µs a message.
    """
    replayed = Replayed()
    first_offset = None
    for segment in ledger.segments():
        if first_offset is None:
            first_offset = segment.first_chunk_id
        for data, offset, timestamp_ms, position in _messages(segment):
            replayed.take(
                data,
                offset=offset,
                timestamp_ms=timestamp_ms,
                path=segment.segment_path,
                position=position,
                watch=watch,
            )
    unknown = [number for number, view in replayed.state.views.items() if view.key is None]
    if unknown or (first_offset or 0) > replayed.snapshot_at:
        raise LogError(
            "damaged ledger: no whole snapshot is left, and its beginning is gone"
            if not unknown
            else f"damaged ledger: nothing says which view number {unknown[0]} is",
            path=ledger.path,
        )
    return replayed


def _messages(segment: Segment) -> Iterator[tuple[memoryview, int, int, int]]:
    """The messages of a segment: bytes, ledger offset, when it was written, position in the file."""
    with segment.open() as reader:
        table = reader.chunks()
        stops = reader.stop_positions()
        row = 0
        while row < len(table):
            start = int(table.position[row])
            behind = max(row + 1, int(stops.searchsorted(start + _WINDOW_BYTES)))
            headers = reader.headers(row, behind)
            is_message = headers.chunk_type == ChunkType.USER
            lengths, crcs = headers.data_length.tolist(), headers.crc.tolist()
            window = reader.read(start, int(stops[behind - 1])).tobytes()
            columns = (table.chunk_id, table.timestamp_ms, table.position)
            ids, times, positions = (column[row:behind].tolist() for column in columns)
            for offset, timestamp_ms, position, length, crc in compress(
                zip(ids, times, positions, lengths, crcs, strict=True), is_message
            ):
                begin = position - start + _CHUNK_HEADER_BYTES
                data = memoryview(window)[begin : begin + length]
                body = position + _CHUNK_HEADER_BYTES + _ENTRY_LENGTH.size
                if zlib.crc32(data) != crc or length < _ENTRY_LENGTH.size:
                    raise LogError(
                        "damaged ledger: a message fails its checksum", path=segment.segment_path, position=body
                    )
                if _ENTRY_LENGTH.unpack_from(data)[0] != length - _ENTRY_LENGTH.size:
                    raise LogError(
                        "damaged ledger: not one message in a chunk", path=segment.segment_path, position=body
                    )
                yield data[_ENTRY_LENGTH.size :], offset, timestamp_ms, body
            row = behind
