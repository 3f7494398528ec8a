"""Making the column file of a sealed segment; see `SealedKind` for when and where."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate import kernels
from headgate.derived.columns.declaration import ColumnDeclaration
from headgate.derived.columns.files import (
    METADATA_KEY,
    ColumnFile,
    Origin,
    add_checks,
    file_name,
    open_column_file,
)
from headgate.derived.columns.rows import column_rows, column_schema
from headgate.derived.kind import COLUMN_SUFFIX, BuildReport, publish
from headgate.derived.origin import state_of
from headgate.errors import CorruptSidecarError, OffsetOutOfRangeError
from headgate.log import (
    ENTRY_DTYPE,
    KEPT_FOLDER,
    BuildStep,
    ChunkType,
    Segment,
    SegmentReader,
    Stream,
    derived_path,
    noted_entries,
    reached,
    replace_file,
    storage_error,
    sync_folder,
)
from headgate.message import FieldReference, parse_field
from headgate.parquet import ParquetWriter
from headgate.scan import EVERYWHERE, Decider, ScanBatch, ScanCounters, ScanRequest, Window, open_windows, read_window

GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
"""A row group, which readers hold as a whole, ends at the first chunk border after this many rows or bytes."""

_WINDOW_BYTES = 4 << 20
_BLOOM_TYPES = (pa.string(), pa.binary(), pa.int64(), pa.int32())
_SAMPLE_ROWS = 1 << 14
_MANY_DISTINCT = 0.3
"""A column gets a Bloom filter and no dictionary if more than this share of its values is distinct: of the first 16 k
values, for floating-point columns of the first row group."""
_FALSE_POSITIVES = 0.05


def make_file(
    stream: Stream,
    segment: Segment,
    declaration: ColumnDeclaration,
    folder: Path,
    paths: Sequence[Path],
    *,
    distrust: bool,
) -> BuildReport:
    """Make the column file of a sealed segment, unless one of its files, at `paths`, is the wanted one.

    With `distrust` that one is read in full. Errors: those of `SealedKind.make`.
    """
    target = folder / KEPT_FOLDER if declaration.keep == "forever" else folder
    target.mkdir(exist_ok=True)
    origin = _origin_of(stream, segment, declaration)
    there = _there(segment, origin, paths, distrust=distrust)
    if there is not None:
        _keep(there, target)
        return BuildReport(segment.first_chunk_id)
    writer: _FileWriter | None = None

    def write(temporary: Path) -> str | None:
        nonlocal writer
        writer = _FileWriter(temporary, origin)
        with segment.open() as reader:
            for rows, stop in _rows_of(reader, origin):
                writer.add(rows, stop)
        writer.close()
        reached(BuildStep.WRITTEN)
        with contextlib.suppress(FileNotFoundError, OffsetOutOfRangeError):
            if _origin_of(stream, segment, declaration) != origin:
                return None
        return file_name(origin, add_checks(temporary))

    path = publish(segment, target, COLUMN_SUFFIX, write)
    if path is None or writer is None:
        return BuildReport(segment.first_chunk_id)
    built = open_column_file(path)
    return BuildReport(segment.first_chunk_id, 1, built.rows, writer.inexact, built.size_bytes)


def name_of(stream: Stream, segment: Segment, declaration: ColumnDeclaration) -> str:
    """The first part of the name of a sealed segment's column file. Raises as `_origin_of`."""
    return _start_of(_origin_of(stream, segment, declaration))


def _start_of(origin: Origin) -> str:
    return f"{origin.segment:020d}-{origin.digest()}-"


def _origin_of(stream: Stream, segment: Segment, declaration: ColumnDeclaration) -> Origin:
    """The origin that a sealed segment's column file must have now. Raises as `state_of`."""
    source = None if stream.settings is None else stream.settings.filter_source
    return Origin(*state_of(segment), declaration, source)


def _there(segment: Segment, origin: Origin, paths: Sequence[Path], *, distrust: bool) -> ColumnFile | None:
    """The file of this origin, if it exists already; a damaged one is removed."""
    for path in paths:
        if path.name.startswith(_start_of(origin)):
            try:
                file = open_column_file(derived_path(segment, path))
                if distrust:
                    file.check()
                return file
            except CorruptSidecarError:
                path.unlink(missing_ok=True)
    return None


def _keep(file: ColumnFile, target: Path) -> None:
    """Link an existing file into the folder that the declaration asks for; the old name goes with the segment.

    Of a file in object storage it is a copy.
    """
    wanted = target / file.path.name
    if target.name == KEPT_FOLDER and wanted != file.path:
        try:
            if file.is_remote:
                replace_file(wanted, file.content().tobytes())
                return
            os.link(file.path, wanted)
            sync_folder(target)
        except FileExistsError:
            pass
        except OSError as error:
            raise storage_error(error, wanted) from error


class _FileWriter:
    """Writes rows into row groups that end at chunk borders."""

    def __init__(self, path: Path, origin: Origin) -> None:
        self.inexact = 0
        self._path = path
        self._origin = origin
        self._schema = column_schema(origin.declaration)
        self._writer: ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self._size_bytes = 0
        self._stop = origin.segment
        self._groups: list[tuple[int, int, int]] = []

    def add(self, rows: pa.RecordBatch, stop: int) -> None:
        """Add the rows of whole chunks that end at the offset `stop`."""
        self.inexact += len(rows) - rows["inexact"].null_count
        self._waiting.append(rows)
        self._count += len(rows)
        self._size_bytes += rows.nbytes
        if self._count >= GROUP_ROWS or self._size_bytes >= GROUP_BYTES:
            self._write(stop)

    def close(self) -> None:
        """Write the rest and the footer."""
        if self._count or self._writer is None:
            self._write(self._origin.stop)
        assert self._writer is not None
        groups = tuple(self._groups)
        encoded = msgspec.json.encode(msgspec.structs.replace(self._origin, groups=groups))
        self._writer.add_key_value_metadata({METADATA_KEY: encoded})
        self._writer.close()

    def _write(self, stop: int) -> None:
        table = pa.Table.from_batches(self._waiting, self._schema)
        if self._writer is None:
            self._writer = self._open(table)
        if self._count:
            self._writer.write(table)
            self._groups.append((self._stop, stop, self._count))
            reached(BuildStep.WRITING)
        self._waiting, self._count, self._size_bytes, self._stop = [], 0, 0, stop

    def _open(self, first: pa.Table) -> ParquetWriter:
        declared = [column.name for _, column in self._origin.declaration.columns]
        texts = [name for name in ("filter_value", *declared) if not pa.types.is_boolean(first.schema.field(name).type)]
        sample = first.slice(0, _SAMPLE_ROWS)
        shares = {
            # Numbers that repeat are read twice as fast from a dictionary; few of them repeat within the sample.
            name: _share_of_distinct((first if pa.types.is_floating(first.schema.field(name).type) else sample)[name])
            for name in texts
        }
        blooms = {
            name: {"ndv": max(1, int(share * len(first))), "fpp": _FALSE_POSITIVES}
            for name, share in shares.items()
            if share > _MANY_DISTINCT and first.schema.field(name).type in _BLOOM_TYPES
        }
        many = [name for name, share in shares.items() if share > _MANY_DISTINCT]

        def is_whole(name: str) -> bool:
            kind = first.schema.field(name).type
            return bool(pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind))

        return ParquetWriter(
            self._path,
            self._schema,
            version="2.6",
            # Half of an entry is a checksum, which does not become shorter: unpacking it would take four times as long.
            compression={name: "none" if name == "entry" else "zstd" for name in self._schema.names},
            compression_level={name: 1 for name in self._schema.names if name != "entry"},
            use_dictionary=["chunk", *(name for name in texts if name not in many)],
            # For these it is a fifth of the time and half of the size of a dictionary that is given up halfway.
            column_encoding={name: "DELTA_BINARY_PACKED" for name in ("offset", "timestamp", *many) if is_whole(name)},
            write_statistics=["offset", "timestamp", "chunk", *texts, "inexact"],
            write_page_index=True,
            write_page_checksum=True,
            bloom_filter_options=blooms or None,
        )


def _share_of_distinct(column: pa.ChunkedArray) -> float:
    return float(pc.count_distinct(column).as_py()) / max(1, len(column))


def _rows_of(reader: SegmentReader, origin: Origin) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of all messages of a segment with the offset behind their chunks, some windows of chunks at a time."""
    table = reader.chunks()
    rows = np.flatnonzero(table.type == ChunkType.USER)
    if not len(rows):
        return
    kernels.load("headgate.kernels.checksum")
    next_ids = reader.next_chunk_ids()
    decider = Decider(ScanRequest(), EVERYWHERE)
    counters = ScanCounters()
    source = None if origin.filter_source is None else parse_field(origin.filter_source)
    for part, window in open_windows(reader, rows, _WINDOW_BYTES):
        for batch in read_window(window, decider, counters):
            if len(batch):
                numbers = np.searchsorted(window.chunks.chunk_ids, batch.offsets, side="right") - 1
                behind = int(next_ids[rows[part.start + int(numbers[-1])]])
                yield _rows(window, batch, numbers, origin.declaration, source), behind


def _rows(
    window: Window,
    batch: ScanBatch,
    numbers: NDArray[np.int64],
    declaration: ColumnDeclaration,
    source: FieldReference | None,
) -> pa.RecordBatch:
    entries = np.zeros(len(batch), dtype=ENTRY_DTYPE)
    messages = batch.messages
    if messages.data is window.chunks.data:
        shifts = (window.positions - window.headers.starts)[numbers]
        entries = noted_entries(messages.data, messages.starts, messages.lengths, shifts)
    return column_rows(
        messages,
        offsets=batch.offsets,
        timestamps_ms=batch.timestamps_ms,
        chunk_ids=window.chunks.chunk_ids[numbers],
        entries=entries,
        declaration=declaration,
        source=source,
    )
