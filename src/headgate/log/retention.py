"""Retention deletes whole segments, oldest first, by bytes and by age (osiris_log.md section 7), up to the pin."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headgate.errors import LogError
from headgate.log.files import file_size, opened, storage_error
from headgate.log.format import FILE_HEAD_BYTES, INDEX_DTYPE, INDEX_RECORD_BYTES, IndexRecord, index_name, segment_name
from headgate.log.pairs import delete_pair
from headgate.log.pin import Pin
from headgate.log.remote import load_catalogue
from headgate.log.stream import Stream


def count_by_bytes(sizes: list[int], max_length_bytes: int) -> int:
    """The number of oldest segments to delete: counted from the newest, the first beyond the limit and all older ones.

    `sizes` are those of the segment files, oldest first. The newest is never deleted.
    """
    kept = sizes[-1] if sizes else 0
    for row in range(len(sizes) - 2, -1, -1):
        kept += sizes[row]
        if kept > max_length_bytes:
            return row + 1
    return 0


def kept_by_limits(
    folder: Path,
    first_chunk_ids: list[int],
    *,
    max_length_bytes: int | None,
    max_age_ms: int | None,
    now_ms: int,
) -> list[int]:
    """The ids of the pairs that both limits keep, oldest first. Raises LogError and its kinds."""
    kept = list(first_chunk_ids)
    try:
        if max_length_bytes is not None:
            sizes = [file_size(folder / segment_name(chunk_id)) for chunk_id in kept]
            kept = kept[count_by_bytes(sizes, max_length_bytes) :]
        if max_age_ms is not None:
            while len(kept) > 1 and _is_older(folder / index_name(kept[0]), now_ms - max_age_ms):
                kept.pop(0)
    except OSError as error:
        raise storage_error(error, folder) from error
    return kept


def count_below(first_chunk_ids: Sequence[int], offset: int) -> int:
    """The number of oldest pairs that end at or before an offset; the last pair never counts."""
    return max(0, bisect_right(first_chunk_ids, offset) - 1)


def bytes_from(folder: Path, first_chunk_ids: Sequence[int], offset: int, *, next_offset: int) -> int:
    """Bytes of the segment files from the chunk with an offset to the end; 0 for an offset that is not written yet.

    All bytes for an offset that was deleted. Cost: a `stat` per segment from there on, and some 20 small reads.
    Raises LogError and its kinds.
    """
    if offset >= next_offset:
        return 0
    kept = first_chunk_ids[count_below(first_chunk_ids, offset) :]
    try:
        sizes = [file_size(folder / segment_name(chunk_id)) for chunk_id in kept]
        return sum(sizes) - _position_of(folder / index_name(kept[0]), offset)
    except OSError as error:
        raise storage_error(error, folder) from error


def pinned_bytes(stream: Stream, pin: Pin) -> int:
    """The bytes that a pin keeps from retention. Raises LogError."""
    segments = stream.segments()
    ids = [segment.first_chunk_id for segment in segments[segments.num_remote :]]
    if not ids:
        return 0
    here = bytes_from(stream.path, ids, pin.offset, next_offset=stream.next_offset())
    return here + remote_bytes_from(stream.path, ids[0], pin.offset)


def remote_bytes_from(folder: Path, first_local: int, offset: int) -> int:
    """Bytes of the whole segments, only in object storage, with offsets from `offset` on. Raises LogError."""
    catalogue = load_catalogue(folder)
    if catalogue is None or offset >= first_local:
        return 0
    rows = catalogue.before(first_local)
    return int(rows["segment_bytes"][rows["stop"] > offset].sum())


def delete_pairs(folder: Path, chunk_ids: list[int]) -> None:
    """Delete pairs, oldest first. Raises StreamReadOnlyError or LogError, perhaps after deleting some pairs."""
    try:
        for chunk_id in chunk_ids:
            delete_pair(folder, chunk_id)
    except OSError as error:
        raise storage_error(error, folder) from error


def _is_older(index_path: Path, limit_ms: int) -> bool:
    """Whether the last chunk of a segment is older than a time; false without chunks, true for a missing segment."""
    try:
        with opened(index_path) as descriptor:
            count = max(0, os.fstat(descriptor).st_size - FILE_HEAD_BYTES) // INDEX_RECORD_BYTES
            if not count:
                return False
            raw = os.pread(descriptor, INDEX_RECORD_BYTES, FILE_HEAD_BYTES + (count - 1) * INDEX_RECORD_BYTES)
    except FileNotFoundError:
        return True
    if len(raw) < INDEX_RECORD_BYTES:
        raise LogError("the index became shorter while it was read", path=index_path)
    return bool(np.frombuffer(raw, dtype=INDEX_DTYPE)["timestamp_ms"][0] < limit_ms)


def _position_of(index_path: Path, offset: int) -> int:
    """The position of the chunk with an offset in its segment; the first chunk's position for an earlier offset."""
    with opened(index_path) as descriptor:
        low, high = 0, (os.fstat(descriptor).st_size - FILE_HEAD_BYTES) // INDEX_RECORD_BYTES
        position = FILE_HEAD_BYTES
        while low < high:
            row = (low + high) // 2
            record = IndexRecord.decode(
                os.pread(descriptor, INDEX_RECORD_BYTES, FILE_HEAD_BYTES + row * INDEX_RECORD_BYTES)
            )
            if record.chunk_id > offset:
                high = row
            else:
                low, position = row + 1, record.position
        return position
