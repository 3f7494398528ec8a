"""Giving up damaged parts of a segment, by an operator's decision, so that the chunks behind can be read again.

A damaged part lies between two whole chunks. It is replaced by empty bookkeeping chunks, one for each of its offsets:
every reader passes them over (osiris_log.md section 2: each takes up one offset), and no message gets another offset.
The damaged bytes are kept in the folder `damaged` of the stream:

    <stream folder>/damaged/<first offset, 20 digits>-<next offset, 20 digits>.bytes

Where only the header of a chunk is wrong, it is written again from the index or the neighbours, and nothing is lost;
likewise a snapshot at the beginning of a segment, from the segment before.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import CorruptChunkError, CorruptSidecarError
from headgate.log import format as f
from headgate.log.checksums import has_checksum
from headgate.log.files import Part, opened, replace_by_parts, replace_file, storage_error
from headgate.log.inspection import check_data
from headgate.log.pairs import DAMAGED_FOLDER, seal_path
from headgate.log.seal import Seal, load_seal
from headgate.log.segment import Segment
from headgate.log.segment_end import header_at, header_places, is_plausible
from headgate.log.stream import Stream
from headgate.log.tracking import tracking_of_segment
from headgate.log.tracking_records import decode_records, encode_records

_LEAST_ENTRY_BYTES = f.ENTRY_HEAD_BYTES
_WHOLE_CHUNK_BYTES = 256 << 20
_RECORD_FIELDS = struct.Struct(">qQ")
"""Time and epoch, at byte 8 of a header."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A damaged part of a segment: `size_bytes` at byte `position`, with the offsets from one up to the next.

    `is_exact`: the offsets are known. Else it is the end of the stream, and their number is assumed: as many as the
    bytes could have held, or as the index knows of. `holds` names the content: messages, or the bookkeeping of
    consumers and publishers.
    """

    path: Path
    position: int
    size_bytes: int
    first_offset: int
    next_offset: int
    reason: str
    holds: str = "messages"
    is_exact: bool = True

    def __str__(self) -> str:
        if self.next_offset == self.first_offset:
            lost = "no offset"
        else:
            about = "" if self.is_exact else "how many of them were used is not known, "
            count = self.next_offset - self.first_offset
            lost = f"offsets {self.first_offset} to {self.next_offset - 1} ({about}{count} {self.holds})"
        return f"{self.path}, byte {self.position}: {lost} in {self.size_bytes} damaged bytes: {self.reason}"

    @property
    def kept_name(self) -> str:
        """The name of the file with the damaged bytes."""
        return f"{self.first_offset:020d}-{self.next_offset:020d}.bytes"


@dataclass(slots=True)
class Survey:
    """The plan of a repair: the `parts` of the new segment file, and which of them are given up or mended."""

    segment: Segment
    parts: list[Part] = field(default_factory=list)
    given_up: list[GivenUp] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the file is as it should be."""
        return not self.given_up and not self.mended

    def keep(self, start: int, stop: int) -> None:
        """Keep bytes of the file."""
        last = self.parts[-1] if self.parts else None
        if isinstance(last, tuple) and last[1] == start:
            self.parts[-1] = (last[0], stop)
        elif stop > start:
            self.parts.append((start, stop))


def survey(segment: Segment) -> Survey:
    """Find the whole and the damaged parts of a segment. Reads all of it. Raises FileNotFoundError if it is gone."""
    with opened(segment.segment_path) as descriptor:
        return _Surveyor(segment, descriptor).look()


def goes_on(segment: Segment, position: int, expected: int, count: int) -> bool:
    """Whether readers saw a chunk at a position of a segment: its index names one, or a whole one lies behind.

    `expected` is the id of that chunk, `count` the number of chunks before it.
    """
    with opened(segment.segment_path) as descriptor:
        return _Surveyor(segment, descriptor).goes_on(position, expected, count)


def give_up(found: Survey, *, flushed: bool = True) -> None:
    """Keep the damaged bytes beside the segment, and write the segment without them; index and seal are made later.

    After a crash the segment is the old or the new one; the same call completes either. Raises StorageFullError and its
    kinds.
    """
    path = found.segment.segment_path
    folder = found.segment.folder / DAMAGED_FOLDER
    if found.given_up:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise storage_error(error, folder) from error
    with opened(path) as descriptor:
        for each in found.given_up:
            kept = os.pread(descriptor, each.size_bytes, each.position)
            replace_file(folder / each.kept_name, kept, flushed=flushed)
    # Before the segment: the seal of other bytes would be damage; without a seal the segment is checked in full.
    seal_path(path).unlink(missing_ok=True)
    replace_by_parts(path, found.parts)


class _Surveyor:
    """Walks one segment from chunk to chunk; at a damaged chunk it looks for the next whole one."""

    def __init__(self, segment: Segment, descriptor: int) -> None:
        self._segment = segment
        self._path = segment.segment_path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._found = Survey(segment)
        self._records = _index_records(segment)
        self._rows = {record.position: row for row, record in enumerate(self._records)}
        self._seal = _seal_of(segment)
        self._last: f.ChunkHeader | None = None
        """The last whole chunk."""

    def look(self) -> Survey:
        """See `survey`."""
        found, segment = self._found, self._segment
        if os.pread(self._descriptor, f.FILE_HEAD_BYTES, 0) == f.SEGMENT_HEAD:
            found.keep(0, f.FILE_HEAD_BYTES)
        else:
            found.parts.append(f.SEGMENT_HEAD)
            found.mended.append("the head of the file was written again")
        position, expected, count = f.FILE_HEAD_BYTES, segment.first_chunk_id, 0
        while position < self._size:
            chunk = self._whole(position, expected)
            if chunk is None:
                if not self.goes_on(position, expected, count):
                    # Bytes that a crash left behind the last record: a recovery cuts them off.
                    found.keep(position, self._size)
                    return found
                behind = self._skip(position, expected, count)
                if behind is None:
                    return found
                position, expected = behind
                continue
            header, front = chunk
            stop = position + header.size_bytes
            trailer = self._damaged_trailer(header, stop)
            if trailer:
                header.trailer_length = 0
                front = header.encode() + (front or b"")[f.CHUNK_HEADER_BYTES :]
                found.mended.append(f"chunk {header.chunk_id} lost the sequences and stored offsets behind its data")
            elif front is not None:
                found.mended.append(f"the header of chunk {header.chunk_id} at byte {position} was written again")
            if front is not None:
                found.parts.append(front)
            found.keep(position + len(front or b""), stop - trailer)
            self._last = header
            if stop - trailer in self._rows:
                # What seemed to be its trailer is the next chunk.
                stop -= trailer
            row = self._rows.get(position, count)
            # Behind a damaged part, the index says how many chunks that had.
            is_own = row < len(self._records) and self._records[row].chunk_id == header.chunk_id
            count = (row if is_own else count) + 1
            position, expected = stop, header.next_chunk_id
        stop_offset, is_exact = segment.stop_offset, True
        if stop_offset is None and self._is_indexed(position, expected, count):
            stop_offset, is_exact = self._bound(position, expected, count)
        if stop_offset is not None and expected < stop_offset:
            reason = "the file ends before the next segment" if is_exact else "the file ends, and its index goes on"
            self._give_up(position, position, expected, stop_offset, reason, is_exact=is_exact)
        return found

    def _damaged_trailer(self, header: f.ChunkHeader, stop: int) -> int:
        """The bytes of a chunk's trailer if they are no records; 0 if the trailer is sound."""
        trailer = os.pread(self._descriptor, header.tracking_length, stop - header.trailer_length)
        try:
            for _ in decode_records(trailer, in_snapshot=False, path=self._path, position=stop):
                pass
        except CorruptChunkError:
            return header.trailer_length
        return 0

    # whole chunks

    def _whole(self, position: int, expected: int) -> tuple[f.ChunkHeader, bytes | None] | None:
        """The header of the whole chunk with an id at a position, and the bytes to write over its first ones, or None.

        None where the chunk is not whole with any possible header.
        """
        raw = os.pread(self._descriptor, f.CHUNK_HEADER_BYTES, position)
        if len(raw) < f.CHUNK_HEADER_BYTES:
            return None
        row = self._rows.get(position)
        found: tuple[f.ChunkHeader, bytes | None] | None = None
        for candidate in self._candidates(raw, position, expected, row):
            header = self._sound(candidate, position, expected)
            if header is None:
                continue
            bloom = os.pread(self._descriptor, header.bloom_length, position + f.CHUNK_HEADER_BYTES)
            if self._seal is None or row is None or zlib.crc32(candidate + bloom) == self._seal.header_crcs[row]:
                return header, None if candidate == raw else candidate
            if bloom:
                # Its Bloom filter changed: one that lets everything pass loses nothing.
                found = header, candidate + b"\xff" * len(bloom)
        return found

    def _candidates(self, raw: bytes, position: int, expected: int, row: int | None) -> Iterator[bytes]:
        """The possible headers of a chunk: as it is, then by its index record, or by its place."""
        yield raw
        if row is None or self._records[row].chunk_id != expected:
            if _is_unstamped(raw):
                fields = _RECORD_FIELDS.pack(self._neighbour.timestamp_ms, self._neighbour.epoch)
                yield raw[:8] + fields + expected.to_bytes(8, "big") + raw[32:]
            return
        record = self._records[row]
        if self._is_of_another(position, record):
            return
        behind = self._records[row + 1] if row + 1 < len(self._records) else None
        next_id = self._segment.stop_offset if behind is None else behind.chunk_id
        stop = self._size if behind is None and self._segment.is_sealed else None if behind is None else behind.position
        made = bytearray(raw)
        made[0], made[1], made[45:48] = f.CHUNK_MAGIC, record.chunk_type, bytes(3)
        made[8:24] = _RECORD_FIELDS.pack(record.timestamp_ms, record.epoch)
        made[24:32] = expected.to_bytes(8, "big")
        if next_id is not None and 0 < next_id - expected < 2**32:
            made[4:8] = (next_id - expected).to_bytes(4, "big")
        yield bytes(made)
        if stop is not None:
            rest = stop - position - f.CHUNK_HEADER_BYTES - made[44] - int.from_bytes(made[40:44], "big")
            if 0 <= rest < 2**32:
                made[36:40] = rest.to_bytes(4, "big")
                yield bytes(made)

    def _is_of_another(self, position: int, record: f.IndexRecord) -> bool:
        """Whether a whole chunk at a position is not that of an index record: the record's position is wrong.

        Its id is another one, and so is its time, epoch or type.
        """
        header = header_at(self._descriptor, position)
        if header is None or header.chunk_id == record.chunk_id or _is_unstamped(header.encode()):
            return False
        is_same = (header.timestamp_ms, header.epoch, header.chunk_type) == (
            record.timestamp_ms,
            record.epoch,
            record.chunk_type,
        )
        stop = position + header.size_bytes
        return not is_same and stop <= self._size and has_checksum(self._descriptor, position, header)

    def _sound(self, raw: bytes, position: int, expected: int) -> f.ChunkHeader | None:
        """The header, if it belongs to a whole chunk with this id at this position; else None."""
        try:
            header = f.ChunkHeader.decode(raw, path=self._path, position=position)
        except CorruptChunkError:
            return None
        stop = position + header.size_bytes
        if header.chunk_id != expected or header.num_records < 1 or stop > self._size or raw[45:48] != bytes(3):
            return None
        row = self._rows.get(position)
        if row is not None and row + 1 < len(self._records) and self._records[row].chunk_id == expected:
            behind = self._records[row + 1]
            if behind.chunk_id == header.next_chunk_id and behind.position != stop and self._has_magic(behind.position):
                return None
        if not has_checksum(self._descriptor, position, header):
            return None
        start = position + f.CHUNK_HEADER_BYTES + header.bloom_length
        if header.data_length <= _WHOLE_CHUNK_BYTES:
            data = os.pread(self._descriptor, header.data_length, start)
            if any(True for _ in check_data(header, data, path=self._path, position=position, data_position=start)):
                return None
        return header

    def _has_magic(self, position: int) -> bool:
        return os.pread(self._descriptor, 1, position) == bytes([f.CHUNK_MAGIC])

    # damaged parts

    def goes_on(self, position: int, expected: int, count: int) -> bool:
        """See `goes_on`."""
        return (
            self._segment.is_sealed
            or self._is_indexed(position, expected, count)
            or self._next_whole(position, expected) is not None
        )

    def _is_indexed(self, position: int, expected: int, count: int) -> bool:
        """Whether a record of the index names a chunk from a place on."""
        return any(True for _ in self._records_from(position, expected, count))

    def _records_from(self, position: int, expected: int, count: int) -> Iterator[f.IndexRecord]:
        """The records that name chunks from a place on: by two of position, id and number, for one may be damaged.

        A record of zeros behind the others, as a power loss leaves it, names no chunk.
        """
        for row, record in enumerate(self._records):
            if (record.position >= position) + (record.chunk_id >= expected) + (row >= count) >= 2:
                yield record

    def _skip(self, position: int, expected: int, count: int) -> tuple[int, int] | None:
        """Give up the damaged part at a position; gives the next whole chunk and its id, None at the file's end."""
        reason = self._reason(position, expected)
        behind = self._next_whole(position, expected)
        if behind is not None:
            stop, next_id = behind
            self._give_up(position, stop, expected, next_id, reason)
            return stop, next_id
        stop_offset, is_exact = self._segment.stop_offset, True
        if stop_offset is None:
            stop_offset, is_exact = self._bound(position, expected, count)
        self._give_up(position, self._size, expected, stop_offset, reason, is_exact=is_exact)
        return None

    def _bound(self, position: int, expected: int, count: int) -> tuple[int, bool]:
        """The offset behind damage at the end of a stream, and whether it is exact. No offset is used twice."""
        last, last_id = position, expected
        for number, record in enumerate(self._records_from(position, expected, count)):
            # One record with a damaged position or id must not hide those behind it.
            last = max(record.position, position)
            if record.chunk_id > last_id and is_plausible(record.chunk_id - expected, last - position):
                last_id = record.chunk_id
            elif number:
                # The chunk before has one offset at least.
                last_id += 1
        if last >= self._size:
            return last_id + 1, False
        header = header_at(self._descriptor, last)
        most = max(1, (self._size - last - f.CHUNK_HEADER_BYTES) // _LEAST_ENTRY_BYTES)
        if header is None:
            return last_id + most, False
        if header.chunk_id == last_id and header.num_records == header.num_entries > 0:
            if last + header.size_bytes == self._size:
                return header.next_chunk_id, True
            # The bytes that are gone held some of its messages.
            most = max(most, header.num_records)
        return last_id + most, False

    def _next_whole(self, position: int, expected: int) -> tuple[int, int] | None:
        """The position and id of the next whole chunk behind a position: by the index, else by a search."""
        limit = self._segment.stop_offset
        indexed = [record.position for record in self._records if record.position > position]
        for place in itertools.chain(indexed, header_places(self._descriptor, position + 1, self._size)):
            ids = [
                each
                for each in self._ids_said(place)
                if each >= expected
                and (limit is None or each < limit)
                and is_plausible(each - expected, place - position)
            ]
            # Reading the data of a chunk costs most, so it comes last.
            chunk_id = self._id_at(place) if ids else None
            if chunk_id in ids:
                return place, chunk_id
        return None

    def _ids_said(self, place: int) -> list[int]:
        """The ids that header and index record say of a chunk at a place; one if they agree.

        A header says an id also where its other bytes are damaged, unless that is zero.
        """
        raw = os.pread(self._descriptor, f.CHUNK_HEADER_BYTES, place)
        header = header_at(self._descriptor, place)
        said = [int.from_bytes(raw[24:32], "big")] if header is None else [header.chunk_id]
        if header is None and not said[0]:
            said.clear()
        row = self._rows.get(place)
        if row is not None:
            said.append(self._records[row].chunk_id)
        return list(dict.fromkeys(said))

    def _id_at(self, place: int) -> int | None:
        """The id of a whole chunk at a place, by its header or its index record; None where there is none.

        If they contradict each other, what lies behind the chunk decides; if that says neither, the chunk counts as
        damaged.
        """
        said = self._ids_said(place)
        found = {each: whole[0] for each in said if (whole := self._whole(place, each)) is not None}
        if len(said) < 2:
            return next(iter(found), None)
        confirmed = [each for each, header in found.items() if self._is_confirmed(place, each, header)]
        return confirmed[0] if len(confirmed) == 1 else None

    def _is_confirmed(self, place: int, chunk_id: int, header: f.ChunkHeader) -> bool:
        """Whether the next chunk, or the end of the segment, has the id that follows on this chunk."""
        stop = place + header.size_bytes
        next_ids = self._ids_said(stop)
        if stop == self._size and self._segment.stop_offset is not None:
            next_ids.append(self._segment.stop_offset)
        return chunk_id + header.num_records in next_ids

    def _reason(self, position: int, expected: int) -> str:
        raw = os.pread(self._descriptor, f.CHUNK_HEADER_BYTES, position)
        try:
            header = f.ChunkHeader.decode(raw, path=self._path, position=position)
        except CorruptChunkError as error:
            return error.reason
        if header.chunk_id != expected:
            return f"chunk {header.chunk_id} is here, expected {expected}"
        if position + header.size_bytes > self._size:
            return "the file ends inside the chunk"
        if not has_checksum(self._descriptor, position, header):
            return f"data of chunk {header.chunk_id} fails its CRC"
        return f"the header of chunk {header.chunk_id} contradicts its data, or what lies behind it"

    def _give_up(self, start: int, stop: int, first: int, next_id: int, reason: str, *, is_exact: bool = True) -> None:
        row = self._rows.get(start)
        kind = f.ChunkType.USER if row is None else self._records[row].chunk_type
        if kind == f.ChunkType.TRACKING_SNAPSHOT and start == f.FILE_HEAD_BYTES and next_id == first + 1:
            snapshot = self._snapshot_before(first)
            if snapshot is not None:
                self._found.parts.append(snapshot)
                self._found.mended.append(
                    "the snapshot at its beginning was made again from the segment before; an offset that was stored "
                    "just then is the one stored before it"
                )
                return
        holds = "messages" if kind == f.ChunkType.USER else "stored offsets and publisher sequences"
        self._found.given_up.append(
            GivenUp(self._path, start, stop - start, first, next_id, reason, holds, is_exact=is_exact)
        )
        self._found.parts.append(b"".join(self._filler(offset) for offset in range(first, next_id)))

    def _filler(self, offset: int) -> bytes:
        return empty_chunk(offset, self._last or self._neighbour)

    @functools.cached_property
    def _neighbour(self) -> f.ChunkHeader:
        """The last chunk before the segment, else the first whole one in it: for time and epoch at its beginning.

        Times and epochs of a stream never decrease. The index record of a damaged chunk may be damaged itself.
        """
        first = self._segment.first_chunk_id
        try:
            before = [each for each in Stream.open(self._segment.folder).segments_left() if each.first_chunk_id < first]
            with before[-1].open() as reader:
                return reader.header(len(reader.chunks()) - 1)
        except (IndexError, CorruptChunkError):
            pass
        for place in header_places(self._descriptor, f.FILE_HEAD_BYTES, self._size):
            header = header_at(self._descriptor, place)
            if header is not None and has_checksum(self._descriptor, place, header):
                return header
        return f.ChunkHeader(0, 0, 0, 0, 1, 0, 0, 0, 0, 0)

    def _snapshot_before(self, chunk_id: int) -> bytes | None:
        """The snapshot chunk made from the segments before; None if that is not possible."""
        try:
            stream = Stream.open(self._segment.folder)
            before = [each for each in stream.segments_left() if each.first_chunk_id < chunk_id]
            with before[-1].open() as reader:
                records = tracking_of_segment(reader).snapshot(first_offset=before[0].first_chunk_id)
        except (IndexError, CorruptChunkError):
            return None
        body = encode_records(records)
        _, chunk = f.assemble_chunk(
            len(body).to_bytes(f.ENTRY_HEAD_BYTES, "big") + body,
            num_entries=1,
            num_records=1,
            chunk_type=f.ChunkType.TRACKING_SNAPSHOT,
            timestamp_ms=self._neighbour.timestamp_ms,
            epoch=self._neighbour.epoch,
            chunk_id=chunk_id,
        )
        return chunk


def _is_unstamped(header: bytes) -> bool:
    """Whether a header has no time, epoch and id: a power loss took what a commit wrote over the staged one."""
    return not any(header[8:32])


def _index_records(segment: Segment) -> list[f.IndexRecord]:
    """The records of the index as far as it can be read; each is a hint, and checked against the segment."""
    try:
        raw = segment.index_path.read_bytes()
    except OSError:
        return []
    starts = range(f.FILE_HEAD_BYTES, len(raw) - f.INDEX_RECORD_BYTES + 1, f.INDEX_RECORD_BYTES)
    return [f.IndexRecord.decode(raw[start : start + f.INDEX_RECORD_BYTES]) for start in starts]


def _seal_of(segment: Segment) -> Seal | None:
    """The seal of a segment, if the index is the one that it was made with; else None."""
    try:
        seal = load_seal(segment.segment_path) if segment.is_sealed else None
        return seal if seal is not None and zlib.crc32(segment.index_path.read_bytes()) == seal.index_crc else None
    except (CorruptSidecarError, OSError):
        return None


def empty_chunk(offset: int, before: f.ChunkHeader) -> bytes:
    """A chunk without messages that takes up one offset, with the time and epoch of the chunk before it."""
    _, chunk = f.assemble_chunk(
        bytes(f.ENTRY_HEAD_BYTES),
        num_entries=1,
        num_records=1,
        chunk_type=f.ChunkType.TRACKING_DELTA,
        timestamp_ms=before.timestamp_ms,
        epoch=before.epoch,
        chunk_id=offset,
    )
    return chunk
