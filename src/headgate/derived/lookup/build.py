"""Making the lookup files of a sealed segment; see `SealedKind` for when and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.derived.kind import LOOKUP_SUFFIX, BuildReport, publish
from headgate.derived.lookup.files import Origin, encode_file, lookup_file_of
from headgate.derived.lookup.fingerprints import fingerprints
from headgate.derived.lookup.table import Table, block_messages_of, make_table
from headgate.errors import CorruptSidecarError
from headgate.log import (
    BuildStep,
    ChunkType,
    Segment,
    SegmentReader,
    reached,
)
from headgate.message import FieldReference, parse_field
from headgate.scan import EVERYWHERE, Decider, OffsetRange, ScanCounters, ScanRequest, read_in_full


def make_files(segment: Segment, fields: Sequence[str], folder: Path, *, distrust: bool) -> BuildReport:
    """Make the missing files of a sealed segment, in one pass over its messages.

    With `distrust` existing files are read in full. Errors: those of `SealedKind.make`.
    """
    missing = [field for field in fields if not _is_there(segment, field, check=distrust)]
    if not missing:
        return BuildReport(segment.first_chunk_id)
    origins = [Origin.of(segment, field) for field in missing]
    tables, messages = _tables_of(segment, missing)
    if origins != [Origin.of(segment, field) for field in missing]:
        # Other files replaced these meanwhile, for instance a backup: they are for the next pass.
        return BuildReport(segment.first_chunk_id)
    size = 0
    for origin, table in zip(origins, tables, strict=True):
        encoded = encode_file(origin, table, messages)

        def write(temporary: Path, encoded: bytes = encoded, name: str = origin.name) -> str:
            temporary.write_bytes(encoded)
            reached(BuildStep.WRITTEN)
            return name

        publish(segment, folder, LOOKUP_SUFFIX, write)
        size += len(encoded)
    return BuildReport(segment.first_chunk_id, len(missing), messages, size_bytes=size)


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
        for offsets, values in values_of(reader, references, EVERYWHERE):
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
            yield batch.offsets, list(fingerprints(batch.messages, fields))
