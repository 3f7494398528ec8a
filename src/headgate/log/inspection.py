"""Inspecting a stream folder for `stream info`, `dump` and `verify`. Works on any folder, changes nothing.

Segments are walked from chunk to chunk, independently of their index, so that damage of either shows. Memory: at most
one chunk's entries; checksums are computed piece by piece.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, CorruptSidecarError, LogError, OffsetOutOfRangeError
from headgate.log import format as f
from headgate.log.bloom import MIN_FILTER_SIZE_BYTES, bloom_bytes, fill_ratio
from headgate.log.checksums import has_checksum
from headgate.log.compression import EXPANSION_LIMIT_BYTES
from headgate.log.derived import derived_bytes
from headgate.log.entries import SubBatch, entries_of
from headgate.log.files import opened
from headgate.log.lock import is_held
from headgate.log.pairs import given_up_offsets
from headgate.log.pin import Pin, read_pin
from headgate.log.remote.mover import RemoteState, remote_state
from headgate.log.retention import pinned_bytes
from headgate.log.seal import load_seal
from headgate.log.segment import Segment
from headgate.log.segment_end import OpenPair, find_ending, rolled_forward
from headgate.log.stream import Stream
from headgate.log.table import ChunkTable
from headgate.log.tracking import TrackingState, read_tracking
from headgate.log.tracking_records import decode_records

_HEADER_ROWS = 8192
_WHOLE_CHUNK_BYTES = 256 << 20
"""Limit: data of a chunk whose entries are checked; of larger chunks only the checksum is checked."""


DeclaredValues = Callable[[f.ChunkHeader, Sequence[bytes]], Sequence[bytes | None] | None]
"""Gives the filter value (or None) of each message of a chunk by the declared source; None without a declaration."""


class CrcState(Enum):
    """Whether a chunk's data has the CRC-32 of its header."""

    GOOD = "good"
    BAD = "bad"
    UNCHECKED = "unchecked"


@dataclass(slots=True)
class SegmentInfo:
    """One pair of files, by its index; times are None for a segment without chunks of any type."""

    first_chunk_id: int
    next_offset: int
    num_user_chunks: int
    num_messages: int
    data_bytes: int
    size_bytes: int
    """Bytes of both files."""
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None


@dataclass(slots=True)
class StreamInfo:
    """A stream at a glance, by its catalogue of segments in object storage and the other `segments`.

    `pinned_bytes` are the bytes from the pin's offset to the end, which retention must keep.
    `derived_bytes` are the bytes of column files and other files that were made of segments.
    """

    name: str
    identity: str
    path: Path
    is_foreign: bool
    filter_size_bytes: int
    filter_source: str | None
    first_offset: int
    next_offset: int
    segments: list[SegmentInfo]
    """Those in the folder."""
    remote_rows: NDArray[np.void]
    """Rows of the catalogue, for segments that are only in object storage."""
    sampled: list[SegmentInfo]
    """The segments that averages are of: those in the folder; if there is no chunk in them, the newest one before."""
    size_bytes: int
    tracking: TrackingState
    pin: Pin | None
    pinned_bytes: int
    derived_bytes: int
    remote: RemoteState | None
    given_up: int
    """Offsets that `stream repair` gave up and whose bytes are still kept beside the stream."""

    @property
    def num_user_chunks(self) -> int | None:
        """Chunks with messages; None where only the summaries of segments in object storage say that."""
        return None if len(self.remote_rows) else sum(segment.num_user_chunks for segment in self.segments)

    @property
    def num_messages(self) -> int:
        """Records of user chunks."""
        rows = self.remote_rows
        there = int((rows["stop"] - rows["first"] - rows["num_tracking"]).sum())
        return there + sum(segment.num_messages for segment in self.segments)

    def facts(self) -> dict[str, object]:
        """The numbers as shown in a table or JSON; without offsets and sequences."""
        rows, here = self.remote_rows, self.segments
        first_times, last_times = rows["first_ms"][:1].tolist(), rows["last_ms"][-1:].tolist()
        first_times += [time for each in here if (time := each.first_timestamp_ms) is not None]
        last_times += [time for each in here if (time := each.last_timestamp_ms) is not None]
        chunks = sum(each.num_user_chunks for each in self.sampled)
        messages = sum(each.num_messages for each in self.sampled)
        return {
            "identity": self.identity,
            "kind": "foreign" if self.is_foreign else "own",
            "messages": self.num_messages,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "first_timestamp_ms": first_times[0] if first_times else None,
            "last_timestamp_ms": last_times[-1] if last_times else None,
            "segments": len(rows) + len(here),
            "chunks": self.num_user_chunks,
            "size_bytes": self.size_bytes,
            "chunk_bytes": sum(each.data_bytes for each in self.sampled) // chunks if chunks else None,
            "messages_per_chunk": round(messages / chunks, 1) if chunks else None,
            "filter_size_bytes": self.filter_size_bytes,
            "filter_source": self.filter_source,
            "pin_offset": None if self.pin is None else self.pin.offset,
            "pin_quota_bytes": None if self.pin is None else self.pin.quota_bytes,
            "pinned_bytes": self.pinned_bytes,
            "derived_bytes": self.derived_bytes,
            "given_up_offsets": self.given_up,
            **({} if self.remote is None else self.remote.facts()),
        }


@dataclass(slots=True)
class ChunkDump:
    """One chunk as it is in its segment file.

    `bloom_fill` is the share of set bits, 0 … 1. `in_index`: readers see it. `is_torn`: the file ends inside it.
    """

    path: Path
    position: int
    header: f.ChunkHeader
    bloom_fill: float
    crc: CrcState
    in_index: bool
    is_torn: bool


@dataclass(slots=True)
class Damage:
    """Something wrong in a stream: `reason` at byte `position` of `path`, or of an object."""

    path_text: str | Path
    """The path as messages have it: a URL has two slashes in a row, which a path does not keep."""
    position: int | None
    reason: str

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.path_text)

    def __str__(self) -> str:
        at = "" if self.position is None else f", byte {self.position}"
        return f"{self.path_text}{at}: {self.reason}"


def stream_info(stream: Stream) -> StreamInfo:
    """The numbers of a stream, without segments that retention deletes meanwhile.

    Reads index files and chunk headers in the folder; of object storage the newest segment at most, whatever their
    number. Raises LogError for damage.
    """
    listed = stream.segments()
    rows = listed.remote_rows
    segments = [info for each in listed[len(rows) :] if (info := _segment_info(stream, each)) is not None]
    sampled = segments
    if len(rows) and not any(each.num_user_chunks for each in segments):
        newest = _segment_info(stream, listed[len(rows) - 1])
        sampled = [] if newest is None else [newest]
    pin = read_pin(stream.path)
    return StreamInfo(
        name=stream.name,
        identity=stream.identity,
        path=stream.path,
        is_foreign=stream.is_foreign,
        filter_size_bytes=stream.filter_size_bytes,
        filter_source=None if stream.settings is None else stream.settings.filter_source,
        first_offset=listed.first_offset if len(rows) or not segments else segments[0].first_chunk_id,
        next_offset=segments[-1].next_offset if segments else listed.remote_stop,
        segments=segments,
        remote_rows=rows,
        sampled=sampled,
        size_bytes=listed.size_bytes(),
        tracking=read_tracking(stream),
        pin=pin,
        pinned_bytes=0 if pin is None else pinned_bytes(stream, pin),
        derived_bytes=derived_bytes(stream),
        remote=remote_state(stream),
        given_up=sum(behind - first for first, behind in given_up_offsets(stream.path)),
    )


def _segment_info(stream: Stream, segment: Segment) -> SegmentInfo | None:
    """The numbers of a segment; None if retention deleted it since it was listed."""
    try:
        return _info_of(segment)
    except (FileNotFoundError, OffsetOutOfRangeError):
        if stream.has_given_up(segment):
            return None
        raise


def _info_of(segment: Segment) -> SegmentInfo:
    with segment.open() as reader:
        table = reader.chunks()
        chunks = messages = data_bytes = 0
        for start in range(0, len(table), _HEADER_ROWS):
            headers = reader.headers(start, min(start + _HEADER_ROWS, len(table)))
            is_user = headers.chunk_type == f.ChunkType.USER
            chunks += int(is_user.sum())
            messages += int(headers.num_records[is_user].sum())
            data_bytes += int(headers.data_length[is_user].sum())
        return SegmentInfo(
            first_chunk_id=segment.first_chunk_id,
            next_offset=reader.next_chunk_id,
            num_user_chunks=chunks,
            num_messages=messages,
            data_bytes=data_bytes,
            size_bytes=segment.size_bytes(),
            first_timestamp_ms=int(table.timestamp_ms[0]) if len(table) else None,
            last_timestamp_ms=int(table.timestamp_ms[-1]) if len(table) else None,
        )


def dump_chunks(stream: Stream, *, check_crc: bool) -> Iterator[ChunkDump | Damage]:
    """Every chunk of every segment in file order; a Damage for bytes that are not a chunk, then the next index record.

    Chunks without an index record (being written, or left by a crash) are shown with `in_index` false.
    """
    for segment in stream.segments_left():
        yield from _unless_given_up(stream, segment, _walk_segment(segment, check_crc=check_crc))


def verify_stream(stream: Stream, *, filter_values: DeclaredValues | None = None) -> Iterator[ChunkDump | Damage]:
    """Check everything that can be checked: yields each chunk looked at, and a Damage for each fault.

    Index records against headers, chunk ids without gaps, checksums, seals, entries, sub-batches (expanded up to
    its limit per chunk), tracking records, missing files; with `filter_values` also the Bloom filters of chunks
    that were written under a declared source. Behind the last index record whole chunks are damage unless a writer
    may be at work there; other bytes are not, because recovery cuts them off. Segments that retention deletes meanwhile
    are passed over.
    """
    try:
        segments = stream.segments()
    except CorruptChunkError as error:
        yield Damage(error.path_text, error.position, error.reason)
        segments = stream.segments_left()
    left_behind = _left_behind(stream, segments)
    expected: int | None = None
    for segment in segments:
        if expected is not None and segment.first_chunk_id != expected:
            yield Damage(segment.place, None, f"segment begins at offset {segment.first_chunk_id}, expected {expected}")
        expected = segment.first_chunk_id
        is_suspect = is_damaged = False
        for found in _unless_given_up(stream, segment, _verify_segment(segment, filter_values)):
            yield found
            if isinstance(found, Damage):
                is_suspect = is_damaged = True
                continue
            if not found.in_index:
                continue
            if not is_suspect and found.header.chunk_id != expected and expected is not None:
                yield Damage(segment.place, found.position, f"chunk id {found.header.chunk_id}, expected {expected}")
                is_damaged = True
            # A wrong header is reported once, not again in the next chunk or segment.
            expected = None if is_suspect else found.header.next_chunk_id
            is_suspect = False
        if is_suspect:
            expected = None
        if not is_damaged:
            for damage in _unless_given_up(stream, segment, _as_readers_see(segment)):
                yield damage
                expected = None
        if not segment.segment_path.exists():
            expected = None
    for path in left_behind:
        # Segments that retention was about to delete are gone by now.
        if path.exists():
            yield Damage(path, None, "no index: retention stopped halfway, or the index is lost")


Found = TypeVar("Found")


def _unless_given_up(stream: Stream, segment: Segment, looked: Iterator[Found]) -> Iterator[Found | Damage]:
    """The findings in a segment, until its end or its deletion by retention; a Damage if anything else deletes it.

    Damage of a segment in object storage is named by its object.
    """
    try:
        for found in looked:
            if segment.remote is not None and isinstance(found, Damage):
                path = found.path
                found.path_text = segment.place_of(path) if path.parent == segment.remote.folder else found.path_text
            yield found
    except (FileNotFoundError, OffsetOutOfRangeError) as error:
        if stream.has_given_up(segment):
            return
        if segment.remote is not None and isinstance(error, LogError):
            yield Damage(error.path_text, error.position, error.reason)
        else:
            yield Damage(segment.place, None, "the segment was deleted while it was looked at")


def _left_behind(stream: Stream, segments: Sequence[Segment]) -> list[Path]:
    """Segments of a foreign folder without an index that are older than all others: no reader sees them."""
    first = segments[0].first_chunk_id if segments and stream.is_foreign else 0
    return [
        path
        for path in sorted(stream.path.glob("*.segment"))
        if path.stem.isdecimal() and int(path.stem) < first and not path.with_suffix(".index").exists()
    ]


def _verify_segment(segment: Segment, filter_values: DeclaredValues | None) -> Iterator[ChunkDump | Damage]:
    """The chunks of a segment, each followed by its damage."""
    goes_on = False
    for found in _walk_segment(segment, check_crc=True):
        yield found
        if isinstance(found, Damage):
            continue
        if not found.in_index:
            goes_on = True
            continue
        if found.is_torn:
            yield Damage(found.path, found.position, "the file ends inside the chunk")
        elif found.crc is CrcState.BAD:
            yield Damage(found.path, found.position, f"data of chunk {found.header.chunk_id} fails its CRC")
        else:
            yield from _check_content(found, filter_values)
    if goes_on and not segment.is_sealed:
        # Damage that readers refuse is reported by `_as_readers_see`.
        with contextlib.suppress(CorruptChunkError):
            yield from _behind_index(segment)


def _behind_index(segment: Segment) -> Iterator[Damage]:
    """The whole chunks behind the index of a segment that may grow, unless a writer may be at work there."""
    if segment.is_own and is_held(segment.folder):
        return
    path = segment.index_path
    # Read again: a broker may have written records since.
    raw = path.read_bytes()[f.FILE_HEAD_BYTES :]

    def record_at(row: int) -> f.IndexRecord:
        return f.IndexRecord.decode(raw[row * f.INDEX_RECORD_BYTES : (row + 1) * f.INDEX_RECORD_BYTES])

    with opened(segment.segment_path) as descriptor:
        pair = OpenPair(descriptor, os.fstat(descriptor).st_size, segment.segment_path, path, segment.first_chunk_id)
        ending = find_ending(pair, len(raw) // f.INDEX_RECORD_BYTES, record_at)
        behind = rolled_forward(pair, ending)
    if behind.behind:
        remedy = "the next writer gives them their records again, and so does headgate stream repair FOLDER"
        if not segment.is_own:
            remedy = "its broker cuts them off when it opens the folder; headgate stream adopt and repair keep them"
        yield Damage(
            path,
            f.FILE_HEAD_BYTES + ending.num_named * f.INDEX_RECORD_BYTES,
            f"the segment goes on behind its index: {behind.num_chunks - ending.num_named} whole chunks from byte "
            f"{ending.stop_position} on, offsets {ending.next_chunk_id} to {behind.next_chunk_id - 1}, have no index "
            f"record; {remedy}",
        )


def _as_readers_see(segment: Segment) -> Iterator[Damage]:
    """The damage for which readers refuse a segment, and an unusable seal. Errors of a missing file: as for readers."""
    try:
        with segment.open() as reader:
            count = len(reader.chunks())
            for start in range(0, count, _HEADER_ROWS):
                reader.headers(start, min(start + _HEADER_ROWS, count))
        if segment.mappable:
            load_seal(segment.segment_path)
    except OffsetOutOfRangeError:
        raise
    except LogError as error:
        yield Damage(error.path_text, error.position, error.reason)


def _walk_segment(segment: Segment, *, check_crc: bool) -> Iterator[ChunkDump | Damage]:
    """The chunks of a segment, and the damage of its two files. Raises FileNotFoundError."""
    try:
        segment.fetch(whole=True)
    except CorruptChunkError as error:
        yield Damage(error.path_text, error.position, error.reason)
        return
    path, index_path = segment.segment_path, segment.index_path
    raw = index_path.read_bytes()
    with opened(path) as descriptor:
        for found, head, file in (
            (raw[: f.FILE_HEAD_BYTES], f.INDEX_HEAD, index_path),
            (os.pread(descriptor, f.FILE_HEAD_BYTES, 0), f.SEGMENT_HEAD, path),
        ):
            if found != head:
                yield Damage(file, 0, f"file head is {found.hex(' ') or 'missing'}, expected {head.hex(' ')}")
                return
        index, named = _index_of(raw, os.fstat(descriptor).st_size)
        yield from _walk_chunks(descriptor, segment, index, check_crc)
        # The newest index may end in a record that is being written.
        spare = len(raw) - named
        if spare >= (f.INDEX_RECORD_BYTES if segment.is_newest else 1):
            yield Damage(index_path, named, f"{spare} bytes behind the last record that names a chunk")


@dataclass(frozen=True, slots=True)
class _Index:
    """The index records that name a place in the segment, sorted by place, and where they begin in the index."""

    table: ChunkTable
    places: NDArray[np.int64]


def _index_of(raw: bytes, segment_size: int) -> tuple[_Index, int]:
    """The index of a file's bytes, and the byte behind the last record that names a place."""
    count = (len(raw) - f.FILE_HEAD_BYTES) // f.INDEX_RECORD_BYTES
    records = np.frombuffer(raw, dtype=f.INDEX_DTYPE, offset=f.FILE_HEAD_BYTES, count=count)
    positions = records["position"].astype(np.int64)
    rows = np.flatnonzero((positions >= f.FILE_HEAD_BYTES) & (positions + f.CHUNK_HEADER_BYTES <= segment_size))
    named = f.FILE_HEAD_BYTES + f.INDEX_RECORD_BYTES * int(rows.max(initial=-1) + 1)
    rows = rows[np.argsort(positions[rows], kind="stable")]
    return _Index(ChunkTable.of(records[rows]), f.FILE_HEAD_BYTES + f.INDEX_RECORD_BYTES * rows), named


def _walk_chunks(descriptor: int, segment: Segment, index: _Index, check_crc: bool) -> Iterator[ChunkDump | Damage]:
    path, table = segment.segment_path, index.table
    size = os.fstat(descriptor).st_size
    sealed = _sealed_headers(segment)
    position = len(f.SEGMENT_HEAD)
    expected: int | None = segment.first_chunk_id
    record_at = f.FILE_HEAD_BYTES
    last_indexed = int(table.position[-1]) if len(table) else -1
    while position < size:
        row = int(np.searchsorted(table.position, position))
        in_index = row < len(table) and int(table.position[row]) == position
        raw = os.pread(descriptor, f.CHUNK_HEADER_BYTES, position)
        try:
            header = f.ChunkHeader.decode(raw, path=path, position=position)
        except CorruptChunkError as error:
            if row < len(table) and not in_index:
                yield Damage(path, position, f"no index record for this place; {_next_place(table, row)}")
            if position > last_indexed:
                # Not in the index: left by a write in progress or by a crash.
                return
            yield Damage(path, position, error.reason)
            following = int(np.searchsorted(table.position, position, side="right"))
            if following == len(table):
                return
            position = int(table.position[following])
            expected = None
            continue
        stop = position + header.size_bytes
        bloom = os.pread(descriptor, header.bloom_length, position + f.CHUNK_HEADER_BYTES)
        is_wrong = expected is not None and header.chunk_id != expected
        if sealed is not None:
            is_wrong = zlib.crc32(raw + bloom) not in sealed
        if in_index:
            record_at = int(index.places[row])
            reasons = [f"{reason}, at byte {position} of {path.name}" for reason in _differences(table, row, header)]
        elif row < len(table):
            reasons = [f"no index record for chunk {header.chunk_id} at byte {position}; {_next_place(table, row)}"]
        else:
            reasons = []
        for reason in reasons:
            yield Damage(*((path, position) if is_wrong else (segment.index_path, record_at)), reason)
        record_at += f.INDEX_RECORD_BYTES
        expected = header.next_chunk_id
        state = CrcState.UNCHECKED
        if check_crc and stop <= size:
            state = CrcState.GOOD if has_checksum(descriptor, position, header) else CrcState.BAD
        yield ChunkDump(path, position, header, fill_ratio(bloom), state, in_index, stop > size)
        position = stop


def _sealed_headers(segment: Segment) -> set[int] | None:
    """The CRC-32 of header and Bloom bytes of each chunk when the segment was sealed; None if not known."""
    with contextlib.suppress(CorruptSidecarError):
        seal = load_seal(segment.segment_path) if segment.mappable else None
        return None if seal is None else set(seal.header_crcs.tolist())
    return None


def _next_place(table: ChunkTable, row: int) -> str:
    return f"the next one is for byte {table.position[row]}"


def _differences(table: ChunkTable, row: int, header: f.ChunkHeader) -> Iterator[str]:
    """The differences between a header and its index record."""
    said = (int(table.chunk_id[row]), int(table.timestamp_ms[row]), int(table.epoch[row]), int(table.type[row]))
    found = (header.chunk_id, header.timestamp_ms, header.epoch, header.chunk_type)
    for name, index_value, header_value in zip(("chunk id", "time", "epoch", "type"), said, found, strict=True):
        if index_value != header_value:
            yield f"{name} is {header_value} in the header, {index_value} in the index"


def _check_content(chunk: ChunkDump, filter_values: DeclaredValues | None) -> Iterator[Damage]:
    """Check entries, sub-batches, tracking records and Bloom filter of one complete chunk."""
    header, path = chunk.header, chunk.path
    start = chunk.position + f.CHUNK_HEADER_BYTES + header.bloom_length
    with path.open("rb") as file:
        file.seek(start + header.data_length)
        trailer = file.read(header.tracking_length)
        if header.data_length > _WHOLE_CHUNK_BYTES:
            return
        file.seek(start - header.bloom_length)
        bloom = file.read(header.bloom_length)
        data = file.read(header.data_length)
    yield from check_data(header, data, path=path, position=chunk.position, data_position=start)
    if filter_values is not None and header.chunk_type == f.ChunkType.USER:
        yield from _check_filter(chunk, bloom, data, filter_values, data_position=start)
    try:
        for _ in decode_records(trailer, in_snapshot=False, path=path, position=start + header.data_length):
            pass
    except CorruptChunkError as error:
        yield Damage(error.path_text, error.position, error.reason)


def _check_filter(
    chunk: ChunkDump, bloom: bytes, data: bytes, filter_values: DeclaredValues, *, data_position: int
) -> Iterator[Damage]:
    """Check that the Bloom filter passes the chunk for each filter value of its messages."""
    header, path = chunk.header, chunk.path
    try:
        messages = list(_messages(header, data, path=path, data_position=data_position))
    except CorruptChunkError:
        # The check of the entries reports it.
        return
    values = filter_values(header, messages)
    if values is None:
        return
    if bloom_bytes(values, max(len(bloom), MIN_FILTER_SIZE_BYTES)) != bloom:
        reason = f"the Bloom filter of chunk {header.chunk_id} is not that of its messages by their declared source"
        yield Damage(path, chunk.position, reason)


def _messages(header: f.ChunkHeader, data: bytes, *, path: Path, data_position: int) -> Iterator[bytes]:
    """The messages of one chunk; its sub-batches expand to at most EXPANSION_LIMIT_BYTES together."""
    room = EXPANSION_LIMIT_BYTES
    for entry in entries_of(data, header.num_entries, path=path, position=data_position):
        if isinstance(entry, SubBatch):
            yield from entry.messages(limit_bytes=room, path=path, position=data_position + entry.position)
            room -= entry.uncompressed_length
        else:
            yield entry.body


def check_data(
    header: f.ChunkHeader, data: bytes, *, path: Path, position: int, data_position: int
) -> Iterator[Damage]:
    """The damage in the data part of one chunk, which is at `position` of `path`, its data at `data_position`.

    Checks entries, sub-batches (expanded up to EXPANSION_LIMIT_BYTES together), the number of records, and the records
    of tracking chunks.
    """
    try:
        records = sum(1 for _ in _messages(header, data, path=path, data_position=data_position))
        if records != header.num_records:
            yield Damage(path, position, f"header says {header.num_records} records, found {records}")
        if header.chunk_type != f.ChunkType.USER:
            in_snapshot = header.chunk_type == f.ChunkType.TRACKING_SNAPSHOT
            body = data[f.ENTRY_HEAD_BYTES :]
            body_position = data_position + f.ENTRY_HEAD_BYTES
            for _ in decode_records(body, in_snapshot=in_snapshot, path=path, position=body_position):
                pass
    except CorruptChunkError as error:
        yield Damage(error.path_text, error.position, error.reason)
