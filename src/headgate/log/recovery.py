"""Recovery: before a writer appends, it makes the last pair of files complete (osiris_log.md section 8).

Only the last pair is examined. Whole chunks behind the last index record get their records again: a crash leaves
unconfirmed chunks there, a damaged index confirmed ones, and the two look alike. Bytes that are no whole chunk are cut
off and logged with their size: they were never confirmed, because a confirm follows the index record, or a power loss
damaged them. Damage that no crash leaves is not cut off but refused (`segment_end.py`): readers would not see chunks
appended after it. The caller holds the stream's lock.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.errors import CorruptChunkError
from headgate.log import format as f
from headgate.log.entries import entries_of
from headgate.log.files import NEW_SUFFIX, read_all, storage_error, write_all
from headgate.log.pairs import delete_pair, find_missing, finish_deletions, ids_among, seal_path
from headgate.log.segment_end import OpenPair, find_ending
from headgate.log.table import ChunkTable

logger = logging.getLogger("headgate.log")

FIRST_EPOCH = 1


@dataclass(slots=True)
class Tail:
    """The end of a stream with a complete last pair: the position of the next chunk.

    `first_chunk_ids` are those of all pairs, oldest first; the other fields describe the last pair.
    """

    first_chunk_ids: list[int]
    segment_size: int
    num_chunks: int
    next_chunk_id: int
    epoch: int

    @property
    def first_chunk_id(self) -> int:
        """The first chunk id of the last pair."""
        return self.first_chunk_ids[-1]


def recover(folder: Path, *, is_durable: bool = False) -> Tail:
    """Make the last pair of a stream folder complete; returns the position of the next chunk.

    If `is_durable`, the rest is flushed to the device: a crash may have come before it was flushed. A folder without
    files gets an empty pair at offset 0. Raises CorruptChunkError for damage that no crash leaves, StorageFullError,
    StreamReadOnlyError, LogError.
    """
    try:
        return _recover(folder, is_durable=is_durable)
    except OSError as error:
        raise storage_error(error, Path(error.filename or folder)) from error


def _recover(folder: Path, *, is_durable: bool) -> Tail:
    finish_deletions(folder, os.listdir(folder))
    names = os.listdir(folder)
    ours = f".{os.getpid()}{NEW_SUFFIX}"
    for name in names:
        # A name of this process was not left by a crash: another thread is replacing a file now.
        if name.startswith(".") and name.endswith(NEW_SUFFIX) and not name.endswith(ours):
            (folder / name).unlink(missing_ok=True)
    indexes, segments = ids_among(names)
    pairs = sorted(indexes & segments)
    missing = find_missing(folder, names)
    if missing is not None:
        raise missing
    for half in sorted(segments ^ indexes):
        delete_pair(folder, half)
    while len(pairs) > 1:
        if (folder / f.segment_name(pairs[-1])).stat().st_size > f.CHUNK_HEADER_BYTES:
            tail = _make_whole(folder, pairs, is_durable=is_durable)
            if tail.num_chunks:
                return tail
        _give_up(folder, pairs.pop(), pairs[-1])
    return _make_whole(folder, pairs or [0], is_durable=is_durable)


def _give_up(folder: Path, chunk_id: int, before: int) -> None:
    """Delete a last pair without a chunk; the segment before it may be appended to again."""
    sizes = [(folder / name).stat().st_size for name in (f.segment_name(chunk_id), f.index_name(chunk_id))]
    if max(sizes) > f.FILE_HEAD_BYTES:
        logger.warning(
            "%s: recovery deleted this pair of files, %d and %d bytes without a whole chunk",
            folder / f.segment_name(chunk_id),
            *sizes,
        )
    seal_path(folder / f.segment_name(before)).unlink(missing_ok=True)
    delete_pair(folder, chunk_id)


def _make_whole(folder: Path, first_chunk_ids: list[int], *, is_durable: bool) -> Tail:
    """Cut the last pair behind its last good chunk; with none, both files are reset to their heads."""
    segment_path = folder / f.segment_name(first_chunk_ids[-1])
    index_path = folder / f.index_name(first_chunk_ids[-1])
    segment_fd = os.open(segment_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        index_fd = os.open(index_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            pair = OpenPair(segment_fd, os.fstat(segment_fd).st_size, segment_path, index_path, first_chunk_ids[-1])
            tail = _cut(pair, index_fd, first_chunk_ids)
            if is_durable:
                for descriptor in (segment_fd, index_fd):
                    os.fdatasync(descriptor)
            return tail
        finally:
            os.close(index_fd)
    finally:
        os.close(segment_fd)


def _cut(pair: OpenPair, index_fd: int, first_chunk_ids: list[int]) -> Tail:
    raw = read_all(index_fd, os.fstat(index_fd).st_size, 0)
    count = max(0, len(raw) - f.FILE_HEAD_BYTES) // f.INDEX_RECORD_BYTES
    records = np.frombuffer(raw, dtype=f.INDEX_DTYPE, offset=min(f.FILE_HEAD_BYTES, len(raw)), count=count)

    def record_at(row: int) -> f.IndexRecord:
        start = f.FILE_HEAD_BYTES + row * f.INDEX_RECORD_BYTES
        return f.IndexRecord.decode(raw[start : start + f.INDEX_RECORD_BYTES])

    ending = find_ending(pair, count, record_at, is_recovery=True)
    table = ChunkTable.of(records[: ending.num_named])
    table.check(0, pair.first_chunk_id, f.FILE_HEAD_BYTES, segment_size=pair.segment_size, path=pair.index_path)
    index_size = f.FILE_HEAD_BYTES + ending.num_named * f.INDEX_RECORD_BYTES
    if ending.header is not None:
        _check_records(pair, ending.stop_position - ending.header.size_bytes, ending.header)
    _check_head(raw, f.INDEX_HEAD, pair.index_path)
    _check_head(os.pread(pair.segment_fd, f.FILE_HEAD_BYTES, 0), f.SEGMENT_HEAD, pair.segment_path)
    if ending.behind:
        logger.warning(
            "%s: recovery gave %d whole chunks behind byte %d of the segment their index records again",
            pair.index_path,
            ending.num_chunks - ending.num_named,
            ending.stop_position,
        )
    cut_bytes = pair.segment_size - ending.stop_position, len(raw) - index_size
    if max(cut_bytes) > 0:
        logger.warning(
            "%s: recovery cut %d bytes behind byte %d of this segment and %d index records; the stream goes on at "
            "offset %d",
            pair.segment_path,
            max(0, cut_bytes[0]),
            ending.stop_position,
            count - ending.num_named,
            ending.next_chunk_id,
        )
    # A correct file is not truncated, because file systems then write it to the device. Files are never cut to 0 bytes:
    # some file systems would write all later data to the device when the file is closed.
    for descriptor, size, stop, head in (
        (index_fd, len(raw), index_size, f.INDEX_HEAD),
        (pair.segment_fd, pair.segment_size, ending.stop_position, f.SEGMENT_HEAD),
    ):
        if size > stop:
            os.ftruncate(descriptor, stop)
        if os.pread(descriptor, len(head), 0) != head:
            os.pwrite(descriptor, head, 0)
    write_all(index_fd, ending.behind, index_size)
    epoch = FIRST_EPOCH if ending.header is None else ending.header.epoch
    return Tail(first_chunk_ids, ending.stop_position, ending.num_chunks, ending.next_chunk_id, epoch)


def _check_records(pair: OpenPair, position: int, header: f.ChunkHeader) -> None:
    """Raise CorruptChunkError unless the last chunk has the records of its header, which give the next offset."""
    start = position + f.CHUNK_HEADER_BYTES + header.bloom_length
    data = os.pread(pair.segment_fd, header.data_length, start)
    entries = entries_of(data, header.num_entries, path=pair.segment_path, position=start)
    found = sum(entry.num_records for entry in entries)
    if found != header.num_records:
        raise CorruptChunkError(
            f"the header of chunk {header.chunk_id} says {header.num_records} records, found {found}",
            path=pair.segment_path,
            position=position,
        )


def _check_head(found: bytes, head: bytes, path: Path) -> None:
    """Raise CorruptChunkError for a file head that is neither correct nor left by a crash (short, or zeros)."""
    found = found[: len(head)]
    if not head.startswith(found.rstrip(b"\0")):
        raise CorruptChunkError(f"file head is {found.hex(' ')}, expected {head.hex(' ')}", path=path, position=0)
