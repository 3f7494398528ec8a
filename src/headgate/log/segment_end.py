"""The end, for readers, of a segment that may still grow: distinguishes the traces of a crash from damage.

The writer puts chunks into the segment before their records into the index. So a crash of the process leaves
bytes without a record, or a part of a record. A damaged index that became shorter looks the same. So whole chunks
behind the last record count where no writer is at work: a recovery gives them their records again. A power loss may
remove the end of either file, or replace it by zero bytes: then records at the end of the index have no chunk, and are
ignored. Anything else is damage, and an error: a record that is wrong although its chunk is at its position, a chunk
whose header contradicts its record, and bytes without a record that are neither zeros nor the beginning of the next
chunk, or have a whole chunk behind them.
Recovery: osiris_log.md section 8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headgate.errors import CorruptChunkError
from headgate.log.checksums import has_checksum
from headgate.log.format import (
    CHUNK_HEADER_BYTES,
    CHUNK_MAGIC,
    FILE_HEAD_BYTES,
    INDEX_RECORD_BYTES,
    ChunkHeader,
    ChunkType,
    IndexRecord,
    encode_index_record,
)
from headgate.log.lock import is_held
from headgate.log.tracking_records import decode_records

HELP = "headgate stream verify FOLDER looks at the whole stream, headgate stream repair FOLDER makes an index again"
_PIECE_BYTES = 1 << 16
_SCAN_BYTES = 1 << 20
_MOST_OFFSETS_A_BYTE = 64
_MOST_OFFSETS = 1 << 16


@dataclass(frozen=True, slots=True)
class OpenPair:
    """An open pair of files that may still grow; the segment's size was read after the index.

    `is_open_end`: it is the end of an own stream, which a recovery would roll forward.
    """

    segment_fd: int
    segment_size: int
    segment_path: Path
    index_path: Path
    first_chunk_id: int
    is_open_end: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a segment: its first `num_named` index records name chunks.

    `behind` are the encoded index records of whole chunks behind these, which lack a record. The other fields are those
    of the last of all these chunks.
    """

    num_named: int
    stop_position: int
    next_chunk_id: int
    header: ChunkHeader | None
    behind: bytes = b""

    @property
    def num_chunks(self) -> int:
        """All chunks, with and without a record."""
        return self.num_named + len(self.behind) // INDEX_RECORD_BYTES


class _Zeros:
    """The zero bytes at the end of a segment, examined from the end backwards, each byte once."""

    def __init__(self, pair: OpenPair) -> None:
        self._pair = pair
        self._start = pair.segment_size

    def reach(self, position: int) -> bool:
        """Whether all bytes from a position to the end are zero."""
        while self._start > position:
            start = max(position, self._start - _PIECE_BYTES)
            piece = os.pread(self._pair.segment_fd, self._start - start, start)
            kept = len(piece.rstrip(b"\0"))
            if kept:
                return False
            self._start = start
        return True


def find_ending(
    pair: OpenPair, count: int, record_at: Callable[[int], IndexRecord], *, is_recovery: bool = False
) -> Ending:
    """The end of a segment whose index has `count` complete records.

    A recovery also drops one last chunk with a damaged header or data (osiris_log.md section 8); a reader raises an
    error when it reads that chunk. Cost: two small reads, and the chunks behind the last record; a recovery reads the
    data of the last chunk. Raises CorruptChunkError for damage that no crash leaves.
    """
    ending = Ending(0, FILE_HEAD_BYTES, pair.first_chunk_id, None)
    zeros = _Zeros(pair)
    faults: list[CorruptChunkError] = []
    num_begun = 0
    """Chunks that begin here and reach beyond the end: a crash cuts one at most, and damages none before it."""
    for row in range(count - 1, -1, -1):
        record = record_at(row)
        try:
            header = _chunk_of(pair, row, record, zeros, is_recovery=is_recovery)
            num_begun += header is None and header_at(pair.segment_fd, record.position) is not None
        except CorruptChunkError as error:
            faults.append(error)
            header = None
        if header is not None:
            if row:
                _check_follows(pair, row, record, record_at(row - 1))
            ending = Ending(row + 1, record.position + header.size_bytes, header.next_chunk_id, header)
            break
    if ending.num_named < count:
        # If the chunk of an ignored record is at another position, the index is wrong.
        _check_lost(pair, ending)
    if num_begun > 1 and not faults:
        raise CorruptChunkError(
            f"{num_begun} chunks reach beyond the end, the first is chunk {ending.next_chunk_id}; headgate stream "
            "repair FOLDER --cut gives up what lies behind it",
            path=pair.segment_path,
            position=ending.stop_position,
        )
    is_last_chunk_bad = is_recovery and len(faults) == 1 and not num_begun and faults[0].path == pair.segment_path
    if faults and not is_last_chunk_bad:
        raise faults[0]
    if is_recovery:
        return rolled_forward(pair, ending)
    _check_next(pair, ending)
    folder = pair.segment_path.parent
    if pair.is_open_end and pair.segment_size > ending.stop_position and not is_held(folder):
        try:
            rolled = rolled_forward(pair, ending)
        except CorruptChunkError:
            if not is_held(folder):
                raise
            return ending
        # A writer that came meanwhile may be writing there.
        return ending if is_held(folder) else rolled
    return ending


def _check_next(pair: OpenPair, ending: Ending) -> None:
    """Raise CorruptChunkError unless a chunk begins behind an ending, or zeros, or nothing. Cost: a small read.

    Else the header of the last chunk says too few bytes. Of a Bloom filter that would be an empty one, and readers by
    filter value would pass over the chunk without a look at its data.
    """
    raw = os.pread(pair.segment_fd, CHUNK_HEADER_BYTES, ending.stop_position)
    if not raw.strip(b"\0"):
        return
    is_start = raw[0] == CHUNK_MAGIC and raw[1:2] <= bytes([ChunkType.TRACKING_SNAPSHOT])
    header = header_at(pair.segment_fd, ending.stop_position) if len(raw) == CHUNK_HEADER_BYTES else None
    # The end of a header may be zeros yet.
    if not is_start or (header is not None and header.chunk_id not in (0, ending.next_chunk_id)):
        raise CorruptChunkError(
            f"the last chunk ends here by its header, and chunk {ending.next_chunk_id} does not begin here; {HELP}",
            path=pair.segment_path,
            position=ending.stop_position,
        )


def rolled_forward(pair: OpenPair, ending: Ending) -> Ending:
    """The end of a segment behind all whole chunks that follow an ending without a gap. Cost: reading their data.

    Raises CorruptChunkError where a damaged chunk follows, and a whole one behind it.
    """
    records = bytearray()
    while (header := _whole_chunk_behind(pair, ending)) is not None:
        start = ending.stop_position
        records += encode_index_record(header.chunk_id, header.timestamp_ms, header.epoch, start, header.chunk_type)
        ending = Ending(ending.num_named, start + header.size_bytes, header.next_chunk_id, header)
    if pair.segment_size > ending.stop_position:
        _check_beyond(pair, ending)
    return replace(ending, behind=bytes(records))


def _whole_chunk_behind(pair: OpenPair, ending: Ending) -> ChunkHeader | None:
    """The header of the next chunk of a stream, if it lies whole behind an ending; None for anything else."""
    start = ending.stop_position
    header = header_at(pair.segment_fd, start)
    if header is None:
        return None
    is_next = header.chunk_id == ending.next_chunk_id and header.num_records > 0
    is_next &= ending.header is None or header.epoch >= ending.header.epoch
    stop = start + header.size_bytes
    if not is_next or stop > pair.segment_size or not has_checksum(pair.segment_fd, start, header):
        return None
    # Parts without a checksum may be missing as well: a power loss leaves zeros in their place.
    bloom = os.pread(pair.segment_fd, header.bloom_length, start + CHUNK_HEADER_BYTES)
    trailer = os.pread(pair.segment_fd, header.tracking_length, stop - header.trailer_length)
    if (bloom and not any(bloom)) or not _are_tracking_records(trailer):
        return None
    return header


def _check_beyond(pair: OpenPair, ending: Ending) -> None:
    """Raise CorruptChunkError if a whole chunk lies behind an ending, but not next to it: no crash leaves that.

    Cost: reading the bytes behind the ending, up to that chunk.
    """
    for place in header_places(pair.segment_fd, ending.stop_position + 1, pair.segment_size):
        header = header_at(pair.segment_fd, place)
        if header is None or not is_plausible(header.chunk_id - ending.next_chunk_id, place - ending.stop_position):
            continue
        is_later = header.chunk_id > ending.next_chunk_id and header.num_records > 0
        if is_later and place + header.size_bytes <= pair.segment_size and has_checksum(pair.segment_fd, place, header):
            raise CorruptChunkError(
                f"expected chunk {ending.next_chunk_id} here, behind the index, and it is damaged: chunk "
                f"{header.chunk_id} at byte {place} is whole; headgate stream repair FOLDER --skip-damaged gives up "
                "only what is damaged",
                path=pair.segment_path,
                position=ending.stop_position,
            )


def header_at(segment_fd: int, position: int) -> ChunkHeader | None:
    """The header at a byte of a segment; None where there is none."""
    raw = os.pread(segment_fd, CHUNK_HEADER_BYTES, position)
    try:
        return ChunkHeader.decode(raw, path="", position=position)
    except CorruptChunkError:
        return None


def is_plausible(offsets: int, size_bytes: int) -> bool:
    """Whether a number of bytes can have held a number of offsets: an id that says more is damaged itself."""
    return offsets <= _MOST_OFFSETS_A_BYTE * size_bytes + _MOST_OFFSETS


def header_places(segment_fd: int, start: int, stop: int) -> Iterator[int]:
    """The places of a file between two of its bytes where the header of a chunk may begin, by its first two bytes."""
    for piece_start in range(start, stop, _SCAN_BYTES):
        piece = np.frombuffer(os.pread(segment_fd, _SCAN_BYTES + 1, piece_start), dtype=np.uint8)
        heads = np.flatnonzero((piece[:-1] == CHUNK_MAGIC) & (piece[1:] <= ChunkType.TRACKING_SNAPSHOT))
        yield from (heads + piece_start).tolist()


def _are_tracking_records(trailer: bytes) -> bool:
    try:
        records = list(decode_records(trailer, in_snapshot=False, path="", position=0))
    except CorruptChunkError:
        return False
    return all(record.reference for record in records)


def _chunk_of(pair: OpenPair, row: int, record: IndexRecord, zeros: _Zeros, *, is_recovery: bool) -> ChunkHeader | None:
    """The header of the chunk that an index record names; None if a crash may have removed the chunk."""
    position = record.position
    if position < FILE_HEAD_BYTES or position + CHUNK_HEADER_BYTES > pair.segment_size:
        return None
    raw = os.pread(pair.segment_fd, CHUNK_HEADER_BYTES, position)
    try:
        header = ChunkHeader.decode(raw, path=pair.segment_path, position=position)
    except CorruptChunkError:
        if zeros.reach(position):
            return None
        raise
    found = IndexRecord(header.chunk_id, header.timestamp_ms, header.epoch, position, header.chunk_type)
    if found != record:
        raise CorruptChunkError(
            f"index record {row} contradicts the header of its chunk at byte {position} of the segment: {record} "
            f"and {found}; {HELP}",
            path=pair.index_path,
            position=FILE_HEAD_BYTES + row * INDEX_RECORD_BYTES,
        )
    if position + header.size_bytes > pair.segment_size:
        return None
    if _lacks_records(header):
        # With no records it would lie behind the end of the stream, where no reader looks.
        raise CorruptChunkError(
            f"the header of chunk {header.chunk_id} says no records in {header.num_entries} entries; {HELP}",
            path=pair.segment_path,
            position=position,
        )
    if is_recovery and not has_checksum(pair.segment_fd, position, header):
        raise CorruptChunkError(
            f"data of chunk {header.chunk_id} fails its CRC, and so do others; headgate stream repair FOLDER --cut "
            "gives up what lies behind it",
            path=pair.segment_path,
            position=position,
        )
    return header


def _lacks_records(header: ChunkHeader) -> bool:
    return header.num_entries > 0 and header.num_records == 0


def _check_follows(pair: OpenPair, row: int, record: IndexRecord, before: IndexRecord) -> None:
    if before.chunk_id >= record.chunk_id or before.position + CHUNK_HEADER_BYTES > record.position:
        raise CorruptChunkError(
            f"index record {row} is out of order: {record} behind {before}; {HELP}",
            path=pair.index_path,
            position=FILE_HEAD_BYTES + row * INDEX_RECORD_BYTES,
        )


def _check_lost(pair: OpenPair, ending: Ending) -> None:
    """Raise CorruptChunkError if the chunk of the first ignored record exists, complete and correct."""
    header = header_at(pair.segment_fd, ending.stop_position)
    if header is None:
        return
    is_next = header.chunk_id == ending.next_chunk_id and not _lacks_records(header)
    is_whole = ending.stop_position + header.size_bytes <= pair.segment_size
    if is_next and is_whole and has_checksum(pair.segment_fd, ending.stop_position, header):
        raise CorruptChunkError(
            f"index record {ending.num_named} does not name chunk {header.chunk_id}, which lies at byte "
            f"{ending.stop_position} of the segment; {HELP}",
            path=pair.index_path,
            position=FILE_HEAD_BYTES + ending.num_named * INDEX_RECORD_BYTES,
        )
