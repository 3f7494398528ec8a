"""Rebuilding an index from its segment, which holds all data of the index.

Chunks are in a segment without gaps, and each header gives the length of its chunk. Repair cannot restore damaged
bytes of a segment: it reports them and leaves them unchanged, or gives them up on request (`salvage`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import CorruptChunkError, CorruptSidecarError, StreamReadOnlyError
from headgate.log import format as f
from headgate.log.checksums import has_checksum
from headgate.log.files import opened, replace_by_start, replace_file
from headgate.log.inspection import Damage
from headgate.log.lock import StreamLock, Wait, no_wait
from headgate.log.pairs import SETTINGS_NAME, find_missing, finish_deletions, ids_among, seal_path
from headgate.log.salvage import GivenUp, give_up, goes_on, survey
from headgate.log.seal import Seal, load_seal, write_seal
from headgate.log.segment import Segment
from headgate.log.stream import Stream


@dataclass(frozen=True, slots=True)
class Repair:
    """A file that was made again, and the changes in it."""

    path: Path
    change: str

    def __str__(self) -> str:
        return f"{self.path}: {self.change}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A damaged part that `skip_damaged` would give up, so that the chunks behind it can be read again."""

    given_up: GivenUp

    def __str__(self) -> str:
        return str(self.given_up)


Repaired = Repair | Damage | GivenUp | Offer


def repair_stream(
    stream: Stream, *, now_ms: int, cut: bool = False, skip_damaged: bool = False, wait: Wait = no_wait
) -> Iterator[Repaired]:
    """Rebuild missing or wrong indexes and seals of a stream, and of the small streams in its folder.

    Yields a Repair for each file made again, and a Damage for each fault that remains, with an Offer of the part that
    would be given up. Two options give up chunks: `cut` drops everything behind a damaged chunk of the last segment, in
    a new file; `skip_damaged` drops only the damaged parts, in any segment, see `salvage`, and yields a GivenUp for
    each. Holds the locks of all these streams. Reads every chunk. Raises StreamLockedError, StreamReadOnlyError for a
    foreign folder, StorageFullError and LogError.
    """
    if stream.is_foreign:
        raise StreamReadOnlyError("a foreign stream folder; adopt it before it is repaired", path=stream.path)
    stream.check_has_folder()
    with contextlib.ExitStack() as held:
        streams = [stream, *streams_beside(stream)]
        for each in streams:
            held.enter_context(StreamLock.acquire(each.path, now_ms=now_ms, wait=wait))
        for each in streams:
            finish_deletions(each.path, os.listdir(each.path))
            ids = sorted(ids_among(os.listdir(each.path))[1])
            for chunk_id, successor in zip(ids, [*ids[1:], None], strict=True):
                segment = Segment(each.path, each.identity, chunk_id, successor is None, True, successor)
                yield from _repair_or_skip(segment, cut=cut, skip_damaged=skip_damaged)
            missing = find_missing(each.path, os.listdir(each.path))
            if missing is not None:
                yield Damage(missing.path_text, None, missing.reason)


def streams_beside(stream: Stream) -> list[Stream]:
    """The small streams inside the folder of a stream, at any depth: ledgers, dead letters and others."""
    folders = sorted(Path(folder) for folder, _, names in os.walk(stream.path) if SETTINGS_NAME in names)
    return [Stream.open(folder) for folder in folders if folder != stream.path]


def _repair_or_skip(segment: Segment, *, cut: bool, skip_damaged: bool) -> Iterator[Repaired]:
    if skip_damaged:
        found = survey(segment)
        if not found.is_whole:
            give_up(found)
            yield from found.given_up
            yield from (Repair(segment.segment_path, change) for change in found.mended)
    repaired = list(_repair_segment(segment, cut=cut, is_surveyed=skip_damaged))
    is_damaged = any(isinstance(each, Damage) for each in repaired)
    if is_damaged and skip_damaged:
        # All chunks are whole by now: the rest is damage that only the seal shows, of a time or a filter.
        seal_path(segment.segment_path).unlink(missing_ok=True)
        yield Repair(seal_path(segment.segment_path), "given up: it knows a chunk's header that nothing can restore")
        repaired = list(_repair_segment(segment, cut=cut, is_surveyed=True))
    yield from repaired
    if is_damaged and not skip_damaged:
        yield from map(Offer, survey(segment).given_up)


def _repair_segment(segment: Segment, *, cut: bool, is_surveyed: bool) -> Iterator[Repair | Damage]:
    chunks = _Chunks(segment, cut=cut, is_surveyed=is_surveyed)
    yield from chunks.damages
    if chunks.is_cut:
        return
    seal = None
    # A damaged seal is made again.
    with contextlib.suppress(CorruptSidecarError):
        seal = load_seal(segment.segment_path) if segment.is_sealed else None
    if seal is not None and zlib.crc32(chunks.index) != seal.index_crc:
        yield Damage(segment.segment_path, None, "chunk headers are not what they were when the segment was sealed")
        return
    if chunks.cut_offset is not None:
        # Before the index: records of chunks behind the end of the segment are passed over, as a crash leaves them.
        replace_by_start(segment.segment_path, chunks.stop)
        yield Repair(segment.segment_path, f"cut at byte {chunks.stop}, offsets from {chunks.cut_offset} on given up")
    yield from _repair_index(segment, chunks.index)
    if segment.is_sealed and not chunks.damages:
        yield from _repair_seal(segment, seal)


def _repair_index(segment: Segment, index: bytes) -> Iterator[Repair]:
    path = segment.index_path
    found = path.read_bytes() if path.exists() else None
    if found == index:
        return
    replace_file(path, index)
    count = (len(index) - f.FILE_HEAD_BYTES) // f.INDEX_RECORD_BYTES
    yield Repair(path, f"the index was {'missing' if found is None else 'damaged'}, made again with {count} records")


def _repair_seal(segment: Segment, seal: Seal | None) -> Iterator[Repair | Damage]:
    try:
        with segment.open() as reader:
            reader.headers(0, len(reader.chunks()))
            if seal is None:
                write_seal(reader, flushed=True)
                yield Repair(seal_path(segment.segment_path), "the seal was missing or damaged, made again")
    except CorruptChunkError as error:
        yield Damage(error.path_text, error.position, error.reason)


class _Chunks:
    """The index that a segment should have, from its chunks, which end at the byte `stop`.

    `is_cut`: chunks behind some place cannot be found. `cut_offset`: the first offset that `cut` gives up there. After
    a survey nothing is left to be found behind the last chunk, whatever the index says.
    """

    def __init__(self, segment: Segment, *, cut: bool, is_surveyed: bool) -> None:
        self._segment = segment
        self._cuts = cut
        self._is_surveyed = is_surveyed
        self.is_cut = False
        self.cut_offset: int | None = None
        self.stop = f.FILE_HEAD_BYTES
        self._least_place = f.FILE_HEAD_BYTES
        """The next chunk begins here at the earliest: the end of the last one is only what its header says."""
        self.damages: list[Damage] = []
        with opened(segment.segment_path) as descriptor:
            self.index = f.INDEX_HEAD + b"".join(self._records(descriptor))

    def _records(self, descriptor: int) -> Iterator[bytes]:
        segment, path = self._segment, self._segment.segment_path
        size = os.fstat(descriptor).st_size
        found = os.pread(descriptor, f.FILE_HEAD_BYTES, 0)
        if found != f.SEGMENT_HEAD:
            damage = Damage(path, 0, f"file head is {found.hex(' ')}, expected {f.SEGMENT_HEAD.hex(' ')}")
            self._stop(damage, segment.first_chunk_id, 0)
            return
        position, expected = f.FILE_HEAD_BYTES, segment.first_chunk_id
        for count in itertools.count():
            if position == size:
                break
            try:
                raw = os.pread(descriptor, f.CHUNK_HEADER_BYTES, position)
                header = f.ChunkHeader.decode(raw, path=path, position=position)
            except CorruptChunkError as error:
                self._stop(Damage(path, position, error.reason), expected, count)
                return
            stop = position + header.size_bytes
            if header.chunk_id != expected or stop > size:
                reason = f"chunk {header.chunk_id} up to byte {stop}, expected {expected}"
                self._stop(Damage(path, position, reason), expected, count)
                return
            if not has_checksum(descriptor, position, header):
                damage = Damage(path, position, f"data of chunk {header.chunk_id} fails its CRC")
                if segment.is_newest and (self._cuts or stop == size):
                    self._stop(damage, expected, count)
                    return
                self.damages.append(damage)
            yield f.encode_index_record(header.chunk_id, header.timestamp_ms, header.epoch, position, header.chunk_type)
            self._least_place = position + f.CHUNK_HEADER_BYTES
            position, expected = stop, header.next_chunk_id
            self.stop = stop
        if segment.stop_offset is None:
            self._stop(Damage(path, size, f"ends at offset {expected}, and its index goes on"), expected, count)
        elif expected != segment.stop_offset:
            next_name = f.segment_name(segment.stop_offset)
            damage = Damage(path, size, f"ends at offset {expected}, and {next_name} is the next segment")
            self._stop(damage, expected, count)

    def _stop(self, damage: Damage, expected: int, count: int) -> None:
        """Stop at a position after which no chunk can be found; chunk number `count` should be there, with this id.

        In the last segment this is damage only if readers saw a chunk there or behind: a crash leaves bytes, too.
        """
        if self._segment.is_newest:
            if self._is_surveyed or not goes_on(self._segment, self._least_place, expected, count):
                return
            if self._cuts:
                self.cut_offset = expected
                return
            reason = f"{damage.reason}; --cut gives up the offsets from {expected} on"
            damage = Damage(damage.path, damage.position, reason)
        self.is_cut = True
        self.damages.append(damage)
