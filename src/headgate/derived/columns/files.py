"""Column files: their names, their content, and when a file is believed.

    <segment, 20 digits>-<16 digits: stream, size, headers, declaration>-<8 digits: CRC-32 of checks and footer>.parquet

A Parquet file with one area more, between its data and its footer, where Parquet allows any bytes:

    checks      "HGCK", then little endian u32: for each row group and column the CRC-32 of the bytes of that column,
                then the CRC-32 of the bytes behind all columns (Bloom filters, page index)

Parquet has checksums for the data of pages only. A bit that flips in the head of a page, a page index or a Bloom filter
makes readers fail, or leave out rows. So a column that is read is checked as a whole, and the rest before others read
the file. The footer's entry `headgate` names the origin of the file. A file is believed if all checks hold, and if the
segment, as long as it exists, still has the size and the chunk headers of the origin.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headgate import kernels
from headgate.derived.columns.declaration import ColumnDeclaration
from headgate.derived.columns.rows import column_schema
from headgate.derived.kind import COLUMN_SUFFIX, names_of
from headgate.derived.origin import SegmentOrigin
from headgate.errors import ConfigError, CorruptSidecarError, LogError, OffsetOutOfRangeError
from headgate.log import (
    KEPT_FOLDER,
    OpenedFiles,
    Segment,
    Stream,
    crcs_of_ranges,
    derived_path,
    is_cached_derived,
    make_derived_present,
)
from headgate.message.arrow import DeclaredColumn
from headgate.scan import OffsetRange

COLUMN_FORMAT = 1
METADATA_KEY = b"headgate"

_CHECKS = b"HGCK"
_TAIL = struct.Struct("<I4s")
_PARQUET = b"PAR1"


class ColumnFileWarning(RuntimeWarning):
    """Column files are there and cannot be used; the messages are read instead, and a build makes the files again."""


class Origin(SegmentOrigin, frozen=True):
    """The origin of a file, in its footer; `groups` has first offset, offset behind the last chunk and rows of each."""

    declaration: ColumnDeclaration
    filter_source: str | None
    groups: tuple[tuple[int, int, int], ...] = ()
    format: int = COLUMN_FORMAT

    def digest(self) -> str:
        """The 16 digits in the name of the file."""
        declared = self.declaration.digest(self.filter_source)
        content = (self.identity, self.segment, self.size, self.headers, self.format, declared)
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of whole chunks: all messages of the offsets `first_offset … stop_offset`."""

    first_offset: int
    stop_offset: int
    rows: int


@dataclass(slots=True, eq=False)
class ColumnFile:
    """One opened column file. It is checked but for its columns, which are checked when they are read.

    Holds no open file. For any number of threads.
    """

    path: Path
    origin: Origin
    metadata: pq.FileMetaData
    size_bytes: int
    row_groups: tuple[RowGroup, ...]
    checks_start: int
    crcs: NDArray[np.uint32]
    _checked: set[tuple[int, int]] = field(default_factory=set)
    _is_whole: bool = False
    _schema: pa.Schema | None = None

    @property
    def segment(self) -> int:
        """The first offset of its segment, which names it."""
        return self.origin.segment

    @property
    def is_remote(self) -> bool:
        """Whether it is in object storage; `path` is then in the cache of this machine, and may go at any time."""
        return is_cached_derived(self.path)

    @property
    def first_offset(self) -> int:
        """The first offset of its segment, even if no row has it."""
        return self.origin.segment

    @property
    def next_offset(self) -> int:
        """The offset behind its segment."""
        return self.origin.stop

    @property
    def rows(self) -> int:
        """Number of messages."""
        return int(self.metadata.num_rows)

    @property
    def declaration(self) -> ColumnDeclaration:
        """The declaration that it was built by."""
        return self.origin.declaration

    @property
    def columns(self) -> tuple[tuple[int, DeclaredColumn], ...]:
        """Its declared columns with their field ids; bit b of `inexact` is about the b-th of them."""
        return self.origin.declaration.columns

    def column_bytes(self, name: str) -> int:
        """Compressed bytes of a column in the file. Raises ConfigError for a column that it does not have."""
        return sum(self.group_bytes(name, group) for group in range(len(self.row_groups)))

    def group_bytes(self, name: str, row_group: int) -> int:
        """Compressed bytes of a column in one row group."""
        column = self.schema.get_field_index(self.schema_of([name]).names[0])
        return _place_of(self.metadata, row_group, column)[1]

    def has_dictionary(self, name: str, row_group: int) -> bool:
        """Whether a column has a dictionary in a row group."""
        return bool(self.metadata.row_group(row_group).column(self.schema.names.index(name)).has_dictionary_page)

    def inexact_rows(self, row_group: int) -> int:
        """How many rows of a row group have a bit in `inexact`."""
        found = self.metadata.row_group(row_group).column(self.schema.get_field_index("inexact")).statistics
        rows = self.row_groups[row_group].rows
        return rows - found.null_count if found is not None and found.has_null_count else rows

    @property
    def is_exact(self) -> bool:
        """Whether no row has a bit in `inexact`."""
        return not any(map(self.inexact_rows, range(len(self.row_groups))))

    @property
    def schema(self) -> pa.Schema:
        """All its columns."""
        if self._schema is None:
            self._schema = column_schema(self.origin.declaration)
        return self._schema

    def read(self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None) -> pa.Table:
        """Columns of some row groups, each checked once in the life of a process; by default everything.

        In the order of `columns`. Raises CorruptSidecarError for bytes that fail their check, or a file that is gone;
        ConfigError for a column that it does not have.
        """
        return pa.Table.from_batches(self.batches(columns, row_groups), self.schema_of(columns))

    def batches(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `read`, one row group after the other, in pieces of at most 64 k rows."""
        schema = self.schema_of(columns)
        wanted = range(len(self.row_groups)) if row_groups is None else row_groups
        try:
            with pa.memory_map(str(self.path)) as file:
                data = np.frombuffer(file.read_buffer(self.size_bytes), dtype=np.uint8)
                reader = pq.ParquetFile(file, metadata=self.metadata, pre_buffer=False)
                for group in wanted:
                    self.check_columns(data, group, schema.names)
                    for batch in reader.iter_batches(65_536, row_groups=[group], columns=schema.names):
                        yield pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)
        except (OSError, pa.ArrowException) as error:
            raise CorruptSidecarError(f"this column file cannot be read: {error}", path=self.path) from error

    def read_group(self, group: int, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Columns of one row group; see `GroupReader.read`."""
        return GroupReader(self).read(group, columns)

    def check(self) -> None:
        """Check all bytes, once in the life of a process: for callers that read the file by other means.

        Raises CorruptSidecarError. Cost: reading the file once.
        """
        if not self._is_whole:
            self.content()

    def content(self) -> NDArray[np.uint8]:
        """All bytes of the file, checked. Raises CorruptSidecarError."""
        make_derived_present(self.path)
        try:
            data = np.fromfile(self.path, dtype=np.uint8)
        except OSError as error:
            raise CorruptSidecarError(f"this column file cannot be read: {error}", path=self.path) from error
        if len(data) != self.size_bytes:
            raise CorruptSidecarError(f"{len(data)} bytes, expected {self.size_bytes}", path=self.path)
        for group in range(len(self.row_groups)):
            self.check_columns(data, group, self.schema.names)
        start = _behind_columns(self.metadata)
        if bytes(data[:4]) != _PARQUET or zlib.crc32(data[start : self.checks_start].data) != int(self.crcs[-1]):
            raise CorruptSidecarError("the page index or a Bloom filter does not have its checksum", path=self.path)
        self._is_whole = True
        return data

    def schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of some columns, in this order; None: all. Raises ConfigError for a column it does not have."""
        schema = self.schema
        if columns is None:
            return schema
        for name in columns:
            if name not in schema.names:
                raise ConfigError(f"columns: {name!r} is not in {self.path.name}; it has {', '.join(schema.names)}")
        return pa.schema([schema.field(name) for name in columns])

    def check_columns(self, data: NDArray[np.uint8], group: int, names: Sequence[str]) -> None:
        """Check columns of a row group, each once in the life of a process; `data` are the bytes of the file.

        Those of a file in object storage are fetched first, and checked each time: the cache may have made it anew.
        Raises CorruptSidecarError.
        """
        columns = map(self.schema.get_field_index, names)
        missing = [column for column in columns if (group, column) not in self._checked]
        if not missing:
            return
        kernels.load("headgate.kernels.checksum")
        places = [_place_of(self.metadata, group, column) for column in missing]
        for start, size in places:
            make_derived_present(self.path, start, start + size)
        starts, sizes = (np.array(each, dtype=np.int64) for each in zip(*places, strict=True))
        if (starts + sizes).max() > len(data):
            raise CorruptSidecarError("the file became shorter", path=self.path)
        found = crcs_of_ranges(data, starts, sizes)
        expected = self.crcs[[group * len(self.schema) + column for column in missing]]
        for column, is_same in zip(missing, found == expected, strict=True):
            if not is_same:
                name = self.schema.names[column]
                raise CorruptSidecarError(
                    f"column {name!r} does not have its checksum in row group {group}", path=self.path
                )
        if not self.is_remote:
            self._checked.update((group, column) for column in missing)


class GroupReader:
    """Reads row groups of a column file, in one thread. It keeps the file open, which costs more than a small read."""

    def __init__(self, file: ColumnFile) -> None:
        self._file = file
        self._mapped: tuple[pa.MemoryMappedFile, NDArray[np.uint8]] | None = None
        self._readers: dict[frozenset[str], pq.ParquetFile] = {}
        """Key: the columns that come as dictionary arrays."""

    def read(self, group: int, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Columns of one row group, `(rows,)` each; texts with a dictionary in the file come as dictionary arrays.

        On one core. Errors: those of `ColumnFile.read`.
        """
        file = self._file
        schema = file.schema_of(columns)
        texts = frozenset(
            name for name in columns if pa.types.is_string(schema.field(name).type) and file.has_dictionary(name, group)
        )
        try:
            if self._mapped is None:
                source = pa.memory_map(str(file.path))
                self._mapped = source, np.frombuffer(source.read_buffer(file.size_bytes), dtype=np.uint8)
            source, data = self._mapped
            file.check_columns(data, group, columns)
            reader = self._readers.get(texts)
            if reader is None:
                reader = pq.ParquetFile(source, metadata=file.metadata, pre_buffer=False, read_dictionary=list(texts))
                self._readers[texts] = reader
            table = reader.read_row_group(group, columns=list(columns), use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise CorruptSidecarError(f"this column file cannot be read: {error}", path=file.path) from error
        return {name: _joined(table[name]) for name in columns}


def _joined(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.unify_dictionaries().chunks)


_opened: OpenedFiles[ColumnFile] = OpenedFiles()


def open_column_file(path: Path) -> ColumnFile:
    """Open a column file: its name, footer and checks agree. Gives the same object while the file is the same.

    The caller checks whether the segment still is as when the file was made. Raises CorruptSidecarError.
    """
    try:
        return _opened.get(path, _open)
    except OSError as error:
        raise CorruptSidecarError(f"this column file cannot be read: {error}", path=path) from error


def column_files(stream: Stream, within: OffsetRange | None = None) -> list[ColumnFile]:
    """The believed files of sealed segments, and the files kept for ever, in order of offsets.

    At most one of each segment: that of the newest declaration. With `within` only files with some of these offsets.
    Damaged, foreign and stale files are left out, with one ColumnFileWarning. Cost: listing a folder, and for files not
    seen before in this process some 0.2 ms each.
    """
    segments = stream.segments()
    behind = segments[0].first_chunk_id if segments else 0
    found: list[ColumnFile] = []
    reasons: list[LogError] = []
    for first_chunk_id, paths in sorted(names_of(stream, COLUMN_SUFFIX).items()):
        segment = segments.beginning_at(first_chunk_id)
        if within is not None and first_chunk_id >= within.stop:
            continue
        stop = None if segment is None else segment.stop_offset
        if within is not None and stop is not None and stop <= within.start:
            continue
        if segment is None:
            # A file that is not kept is about to go: the log does not have its segment any more.
            paths = [path for path in paths if path.parent.name == KEPT_FOLDER and first_chunk_id < behind]
        elif not segment.is_sealed:
            continue
        best = best_of(stream, segment, paths, reasons)
        if best is not None and (
            within is None or (best.first_offset < within.stop and best.next_offset > within.start)
        ):
            found.append(best)
    _warn(reasons)
    return found


def _warn(reasons: Sequence[LogError]) -> None:
    if reasons:
        more = "" if len(reasons) == 1 else f"; and {len(reasons) - 1} more"
        warnings.warn(ColumnFileWarning(f"{reasons[0]}; read without it{more}"), stacklevel=3)


def believed_files(segment: Segment, paths: Sequence[str]) -> list[ColumnFile]:
    """The believed files of a sealed segment, the newest declaration first.

    One ColumnFileWarning for all others. Cost: some 0.2 ms for each file not seen before in this process.
    """
    found: list[ColumnFile] = []
    reasons: list[LogError] = []
    for path in map(Path, paths):
        file = _believed(segment.identity, segment, path, reasons)
        if file is not None:
            found.append(file)
    _warn(reasons)
    return sorted(found, key=lambda file: file.declaration.revision, reverse=True)


def best_of(
    stream: Stream, segment: Segment | None, paths: Sequence[Path], reasons: list[LogError]
) -> ColumnFile | None:
    """The believed file of one segment (None: it is gone) with the newest declaration; others add to `reasons`."""
    best: ColumnFile | None = None
    for path in paths:
        file = _believed(stream.identity, segment, path, reasons)
        if file is not None and (best is None or file.declaration.revision > best.declaration.revision):
            best = file
    return best


def _believed(identity: str, segment: Segment | None, path: Path, reasons: list[LogError]) -> ColumnFile | None:
    try:
        path = path if segment is None else derived_path(segment, path)
        file = open_column_file(path)
        if file.origin.identity != identity:
            raise CorruptSidecarError("a column file of another stream", path=path)
        if segment is not None and not file.origin.is_of(segment):
            raise CorruptSidecarError("a column file of an earlier state of its segment", path=path)
        return file
    except OffsetOutOfRangeError:
        pass
    except LogError as error:
        if path.exists():
            reasons.append(error)
    return None


def file_name(origin: Origin, crc: int) -> str:
    """The name of a file."""
    return f"{origin.segment:020d}-{origin.digest()}-{crc:08x}{COLUMN_SUFFIX}"


def add_checks(path: Path) -> int:
    """Put the checks into a Parquet file that was just written; gives the CRC-32 of checks and footer."""
    metadata = pq.read_metadata(path)
    with path.open("r+b") as file:
        data = np.fromfile(file, dtype=np.uint8)
        footer_start = len(data) - _TAIL.size - _TAIL.unpack(data[-_TAIL.size :].tobytes())[0]
        places = [
            _place_of(metadata, group, column)
            for group in range(metadata.num_row_groups)
            for column in range(metadata.num_columns)
        ]
        kernels.load("headgate.kernels.checksum")
        starts, sizes = np.array(places, dtype=np.int64).reshape(-1, 2).T
        crcs = crcs_of_ranges(data, starts, sizes).tolist()
        crcs.append(zlib.crc32(data[_behind_columns(metadata) : footer_start].data))
        end = _CHECKS + np.array(crcs, dtype="<u4").tobytes() + data[footer_start:].tobytes()
        file.seek(footer_start)
        file.write(end)
    return zlib.crc32(end)


def _open(path: Path, size: int) -> ColumnFile:
    digits = path.name.removesuffix(COLUMN_SUFFIX).split("-")
    if len(digits) != 3:
        raise CorruptSidecarError("not the name of a column file", path=path)
    try:
        make_derived_present(path, size - _MOST_CHECK_BYTES, size)
        with path.open("rb") as file:
            file.seek(max(0, size - _TAIL.size))
            footer_bytes, magic = _TAIL.unpack(file.read(_TAIL.size))
            if magic != _PARQUET or footer_bytes > size - 12:
                raise CorruptSidecarError("no footer of a Parquet file at its end", path=path)
            footer_start = size - _TAIL.size - footer_bytes
            make_derived_present(path, footer_start - _MOST_CHECK_BYTES, size)
            file.seek(footer_start)
            footer = file.read()
            # Before parsing: damaged bytes might make the parser do anything.
            checks, checks_start = _checks_before(file, footer, footer_start, int(digits[2], 16), path)
        metadata = pq.read_metadata(path)
        origin = msgspec.json.decode((metadata.metadata or {})[METADATA_KEY], type=Origin)
    except (OSError, struct.error, ValueError, KeyError, pa.ArrowException, msgspec.DecodeError) as error:
        raise CorruptSidecarError(f"not a column file: {error}", path=path) from error
    groups = tuple(RowGroup(*each) for each in origin.groups)
    if (
        origin.format != COLUMN_FORMAT
        or f"{origin.segment:020d}-{origin.digest()}" != "-".join(digits[:2])
        or metadata.num_row_groups != len(groups)
        or len(checks) != len(groups) * metadata.num_columns + 1
    ):
        raise CorruptSidecarError("its name, its content and its checks are not of one file", path=path)
    return ColumnFile(path, origin, metadata, size, groups, checks_start, checks)


def _checks_before(
    file: Any, footer: bytes, footer_start: int, expected: int, path: Path
) -> tuple[NDArray[np.uint32], int]:
    """The checks in front of the footer; the checksum of both together shows where they begin.

    Their mark may stand among them by chance, so every place with the mark is tried, from the footer backwards.
    """
    start = max(0, footer_start - _MOST_CHECK_BYTES)
    file.seek(start)
    before = file.read(footer_start - start)
    place = len(before)
    while (place := before.rfind(_CHECKS, 0, place)) >= 0:
        if (len(before) - place) % 4 == 0 and zlib.crc32(before[place:] + footer) == expected:
            return np.frombuffer(before, dtype="<u4", offset=place + len(_CHECKS)), start + place
    raise CorruptSidecarError("its footer does not have the checksum in its name", path=path)


_MOST_CHECK_BYTES = 1 << 20


def _place_of(metadata: pq.FileMetaData, group: int, column: int) -> tuple[int, int]:
    """Start and size of the bytes of a column in a row group."""
    found = metadata.row_group(group).column(column)
    start = found.data_page_offset
    if found.has_dictionary_page and found.dictionary_page_offset:
        start = min(start, found.dictionary_page_offset)
    return start, found.total_compressed_size


def _behind_columns(metadata: pq.FileMetaData) -> int:
    """The first byte behind the last column."""
    groups, columns = metadata.num_row_groups, metadata.num_columns
    return sum(_place_of(metadata, groups - 1, columns - 1)) if groups else len(_PARQUET)
