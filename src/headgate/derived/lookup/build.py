"""Building the lookup files of a sealed segment, each exactly once: by rename, under a lock of that segment.

All missing files of a segment are made in one pass over its messages.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.derived.lookup.declaration import lookup_fields
from headgate.derived.lookup.files import LOOKUP_SUFFIX, Origin, encode_file, lookup_file_of
from headgate.derived.lookup.fingerprints import fingerprints
from headgate.derived.lookup.table import Table, block_messages_of, make_table
from headgate.errors import CorruptChunkError, CorruptSidecarError, LogError, OffsetOutOfRangeError
from headgate.log import (
    NEW_SUFFIX,
    BuildStep,
    ChunkType,
    Segment,
    SegmentReader,
    Stream,
    building,
    delete_derived,
    derived_folder,
    finish_derived,
    make_derived_folder,
    reached,
    remove_unfinished,
    segment_of_name,
    storage_error,
    sweep_derived,
)
from headgate.message import FieldReference, parse_field
from headgate.scan import Decider, OffsetRange, ScanCounters, ScanRequest, read_in_full

_LOCK_NAME = "lookup-build.lock"
_MOST_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LookupReport:
    """The result of building one segment: `built` files of `messages` messages each, and their bytes.

    `trouble` describes the damage of a segment that got no file; empty otherwise.
    """

    segment: int
    built: int = 0
    messages: int = 0
    size_bytes: int = 0
    trouble: str = ""


def build_segment(stream: Stream, segment: Segment, fields: Sequence[str], *, check: bool = False) -> LookupReport:
    """Make the missing lookup files of a sealed segment; with `check` existing files are read in full.

    Waits while another process builds the same segment. Memory: 30 bytes for each message and field. Raises
    CorruptChunkError for a damaged segment, of which nothing is written; StorageFullError, StreamReadOnlyError,
    LogError.
    """
    if not segment.is_sealed:
        raise LogError("this segment may still grow; only sealed ones get lookup files", path=segment.segment_path)
    folder = make_derived_folder(stream)
    with building(folder, _LOCK_NAME, segment.first_chunk_id):
        remove_unfinished(folder, segment.first_chunk_id, LOOKUP_SUFFIX + NEW_SUFFIX)
        try:
            missing = [field for field in fields if not _is_there(segment, field, check=check)]
            if not missing:
                return LookupReport(segment.first_chunk_id)
            origins = [Origin.of(segment, field) for field in missing]
            tables, messages = _tables_of(segment, missing)
            if origins != [Origin.of(segment, field) for field in missing]:
                # Other files replaced these meanwhile, for instance a backup: they are for the next pass.
                return LookupReport(segment.first_chunk_id)
            size = sum(
                _write(folder, segment, origin, table, messages) for origin, table in zip(origins, tables, strict=True)
            )
            return LookupReport(segment.first_chunk_id, len(missing), messages, size)
        except (OffsetOutOfRangeError, FileNotFoundError):
            # Retention was faster.
            return LookupReport(segment.first_chunk_id)


def build_lookup(stream: Stream, *, now_ms: int, check: bool = False) -> Iterator[LookupReport]:
    """Build the missing lookup files of a stream, oldest segment first, and remove those not needed any more.

    A damaged segment does not stop the others. Otherwise raises as `build_segment`.
    """
    fields = lookup_fields(stream)
    for segment in stream.segments() if fields else []:
        if segment.is_sealed:
            try:
                yield build_segment(stream, segment, fields, check=check)
            except CorruptChunkError as error:
                yield LookupReport(segment.first_chunk_id, trouble=str(error))
    sweep_lookup(stream, now_ms=now_ms)


def missing_segments(stream: Stream, fields: Sequence[str]) -> list[Segment]:
    """The sealed segments that lack a file of one of the fields; the content of files is not looked at."""
    there = names_of(stream)
    found = []
    for segment in stream.segments():
        if segment.is_sealed:
            with contextlib.suppress(OffsetOutOfRangeError, FileNotFoundError):
                try:
                    is_missing = not {Origin.of(segment, field).name for field in fields} <= there
                except CorruptChunkError:
                    # The build finds the damage, and reports it.
                    is_missing = True
                if is_missing:
                    found.append(segment)
    return found


def sweep_lookup(stream: Stream, *, now_ms: int) -> int:
    """Remove files of segments that are gone, of fields that are not declared, and of earlier states of a segment.

    Each is removed after its grace time.
    """
    fields = lookup_fields(stream)
    wanted: set[str] = set()
    sealed: set[int] = set()
    for segment in stream.segments():
        if segment.is_sealed:
            with contextlib.suppress(OffsetOutOfRangeError, FileNotFoundError, CorruptChunkError):
                wanted |= {Origin.of(segment, field).name for field in fields}
                sealed.add(segment.first_chunk_id)
    superseded = {name for name in names_of(stream) - wanted if segment_of_name(name) in sealed}
    return sweep_derived(stream, now_ms=now_ms, suffix=LOOKUP_SUFFIX, superseded=superseded)


def drop_lookup_files(stream: Stream) -> int:
    """Delete all lookup files of a stream; gives how many. Raises StreamReadOnlyError, LogError."""
    return delete_derived(derived_folder(stream) / name for name in names_of(stream))


def names_of(stream: Stream) -> set[str]:
    """The names of all lookup files of a stream."""
    try:
        names = os.listdir(derived_folder(stream))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {name for name in names if name.endswith(LOOKUP_SUFFIX) and segment_of_name(name) is not None}


def _is_there(segment: Segment, field: str, *, check: bool) -> bool:
    """Whether there is a believed file; with `check` all of it is read."""
    try:
        file = lookup_file_of(segment, field)
        if file is not None and check:
            file.check()
    except CorruptSidecarError:
        # The file that is made now takes its name.
        return False
    return file is not None


def _tables_of(segment: Segment, fields: Sequence[str]) -> tuple[list[Table], int]:
    """The tables of some fields, and the number of messages."""
    assert segment.stop_offset is not None
    first = segment.first_chunk_id
    size = block_messages_of(segment.stop_offset - first)
    references = [parse_field(field) for field in fields]
    found: list[list[NDArray[np.uint32]]] = [[np.empty(0, dtype=np.uint32)] for _ in fields]
    blocks = [np.empty(0, dtype=np.int32)]
    with segment.open() as reader:
        for offsets, values in values_of(reader, references, OffsetRange(0, _MOST_OFFSET)):
            blocks.append(((offsets - first) // size).astype(np.int32))
            for column, part in zip(found, values, strict=True):
                column.append(part)
    all_blocks = np.concatenate(blocks)
    count = -(-(segment.stop_offset - first) // size)
    tables = [make_table(np.concatenate(column), all_blocks, count=count, block_messages=size) for column in found]
    return tables, len(all_blocks)


def values_of(
    reader: SegmentReader, fields: Sequence[FieldReference], within: OffsetRange
) -> Iterator[tuple[NDArray[np.int64], list[NDArray[np.uint32]]]]:
    """Offsets of the messages of a segment that lie within a range, and the fingerprints of each field.

    Some windows of chunks at a time. Raises CorruptChunkError.
    """
    table = reader.chunks()
    first = max(0, int(np.searchsorted(table.chunk_id, within.start, side="right")) - 1)
    stop = int(np.searchsorted(table.chunk_id, within.stop))
    rows = first + np.flatnonzero(table.type[first:stop] == ChunkType.USER)
    for batch in read_in_full(reader, rows, Decider(ScanRequest(), within), ScanCounters()):
        if len(batch):
            yield batch.offsets, [fingerprints(batch.messages, field) for field in fields]


def _write(folder: Path, segment: Segment, origin: Origin, table: Table, messages: int) -> int:
    """Write a file; gives its bytes."""
    temporary = folder / f".{segment.first_chunk_id:020d}-{secrets.token_hex(4)}{LOOKUP_SUFFIX}{NEW_SUFFIX}"
    path = folder / origin.name
    encoded = encode_file(origin, table, messages)
    try:
        try:
            temporary.write_bytes(encoded)
            reached(BuildStep.WRITTEN)
            finish_derived(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(error, folder) from error
    if not segment.index_path.exists():
        path.unlink(missing_ok=True)
        raise OffsetOutOfRangeError("retention deleted the segment", path=segment.segment_path)
    return len(encoded)
