"""What a writer does to a stream folder before it appends: make the last pair of files whole (osiris_log.md section 8).

Only the last pair is examined. Whatever lies behind the last index record whose chunk checks is cut away; all of it was
never confirmed, because a confirm follows the index record. The caller holds the stream's lock.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.errors import CorruptChunkError
from headgate.log.checksums import crc_of_range
from headgate.log.files import NEW_SUFFIX, storage_error
from headgate.log.format import (
    CHUNK_HEADER_BYTES,
    FILE_HEAD_BYTES,
    INDEX_DTYPE,
    INDEX_HEAD,
    INDEX_RECORD_BYTES,
    SEGMENT_HEAD,
    ChunkHeader,
    index_name,
    segment_name,
)
from headgate.log.pairs import delete_pair, ids_among

FIRST_EPOCH = 1


@dataclass(slots=True)
class Tail:
    """The end of a stream whose last pair is whole: where the next chunk goes.

    `first_chunk_ids` are those of all pairs, oldest first; the other fields are of the last one.
    """

    first_chunk_ids: list[int]
    segment_size: int
    num_chunks: int
    next_chunk_id: int
    epoch: int

    @property
    def first_chunk_id(self) -> int:
        """That of the last pair."""
        return self.first_chunk_ids[-1]


def recover(folder: Path) -> Tail:
    """Make the last pair of a stream folder whole and say where the next chunk goes.

    A folder without any pair gets an empty one at offset 0. Raises StorageFullError, StreamReadOnlyError, LogError.
    """
    try:
        return _recover(folder)
    except OSError as error:
        raise storage_error(error, Path(error.filename or folder)) from error


def _recover(folder: Path) -> Tail:
    names = os.listdir(folder)
    for name in names:
        if name.startswith(".") and name.endswith(NEW_SUFFIX):
            (folder / name).unlink(missing_ok=True)
    indexes, segments = ids_among(names)
    for orphan in sorted(segments - indexes):
        delete_pair(folder, orphan)
    while indexes and max(indexes) not in segments:
        delete_pair(folder, max(indexes))
        indexes.discard(max(indexes))
    pairs = sorted(indexes & segments)
    while len(pairs) > 1:
        if (folder / segment_name(pairs[-1])).stat().st_size > CHUNK_HEADER_BYTES:
            tail = _make_whole(folder, pairs)
            if tail.num_chunks:
                return tail
        delete_pair(folder, pairs.pop())
    return _make_whole(folder, pairs or [0])


def _make_whole(folder: Path, first_chunk_ids: list[int]) -> Tail:
    """Cut the last pair behind its last good chunk; with none, both files are reset to their heads."""
    segment_path = f"{folder}/{segment_name(first_chunk_ids[-1])}"
    segment_fd = os.open(segment_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        index_fd = os.open(f"{folder}/{index_name(first_chunk_ids[-1])}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            return _cut(segment_fd, index_fd, segment_path, first_chunk_ids)
        finally:
            os.close(index_fd)
    finally:
        os.close(segment_fd)


def _cut(segment_fd: int, index_fd: int, segment_path: str, first_chunk_ids: list[int]) -> Tail:
    segment_size, index_size = os.fstat(segment_fd).st_size, os.fstat(index_fd).st_size
    raw = _read(index_fd, index_size)
    complete = max(0, len(raw) - FILE_HEAD_BYTES) // INDEX_RECORD_BYTES
    records = np.frombuffer(raw, dtype=INDEX_DTYPE, offset=min(FILE_HEAD_BYTES, len(raw)), count=complete)
    for row in range(complete - 1, -1, -1):
        position = int(records["position"][row])
        header = _good_chunk(segment_fd, segment_size, segment_path, position)
        if header is not None:
            stop = position + header.size_bytes
            # A file that is as it should be is left alone: file systems write it to the device when it is truncated.
            if index_size != FILE_HEAD_BYTES + (row + 1) * INDEX_RECORD_BYTES:
                os.ftruncate(index_fd, FILE_HEAD_BYTES + (row + 1) * INDEX_RECORD_BYTES)
            if segment_size != stop:
                os.ftruncate(segment_fd, stop)
            return Tail(first_chunk_ids, stop, row + 1, header.next_chunk_id, header.epoch)
    for descriptor, size, head in ((index_fd, index_size, INDEX_HEAD), (segment_fd, segment_size, SEGMENT_HEAD)):
        # Never cut to nothing: some file systems would write all that follows to the device when the file is closed.
        if size > len(head):
            os.ftruncate(descriptor, len(head))
        if os.pread(descriptor, len(head), 0) != head:
            os.pwrite(descriptor, head, 0)
    return Tail(first_chunk_ids, FILE_HEAD_BYTES, 0, first_chunk_ids[-1], FIRST_EPOCH)


def _good_chunk(segment_fd: int, segment_size: int, path: str, position: int) -> ChunkHeader | None:
    """The header of the chunk at a position if the chunk is there in full and its data checks; None if not."""
    if position < FILE_HEAD_BYTES:
        return None
    try:
        header = ChunkHeader.decode(os.pread(segment_fd, CHUNK_HEADER_BYTES, position), path=path, position=position)
    except CorruptChunkError:
        return None
    if position + header.size_bytes > segment_size:
        return None
    data_position = position + CHUNK_HEADER_BYTES + header.bloom_length
    return header if crc_of_range(segment_fd, data_position, header.data_length) == header.crc else None


def _read(descriptor: int, size: int) -> bytes:
    parts, done = [], 0
    while done < size:
        part = os.pread(descriptor, size - done, done)
        if not part:
            break
        parts.append(part)
        done += len(part)
    return b"".join(parts)
