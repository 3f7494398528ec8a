"""A range of a stream in a folder as rows: from column files with all requested columns, else from the messages.

    offsets   ├ kept files, the log is gone ┤ sealed segments, with a file or without ├ open segment ┤
    parts       row groups                    row groups, or ranges of chunks           ranges of chunks

Threads read the parts, and their rows come in the order of the offsets. A damaged file gives one warning, and its
messages are read instead.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.derived import COLUMN_FILES
from headgate.derived.columns import ColumnDeclaration, ColumnFile, ColumnFileWarning, ColumnFilter, column_files
from headgate.errors import ConfigError, CorruptSidecarError, OffsetOutOfRangeError
from headgate.log import OffsetKind, OffsetSpecification, Segment, SegmentList, Stream
from headgate.message import FieldReference, parse_field
from headgate.message.arrow import check_bodies
from headgate.scan import (
    ChunkRange,
    MessageBuffer,
    OffsetRange,
    ScanBatch,
    ScanCounters,
    ScanRequest,
    plan,
    read_range,
    resolve_range,
    spans_left,
)
from headgate.tables.column_file_rows import FileRows, whole
from headgate.tables.rows import MOST_ROWS, Columns, pieces
from headgate.tables.values import ANNOTATION

_RANGE_BYTES = 12 << 20
"""Less than one step of a read takes of a mapped segment: so a range is one batch."""

_FEW_SHARE = 16
"""Up to one message in this many rows is read from the log: a row group is read as a whole, a message costs as ten
rows."""

_ENOUGH_ROWS = 4_096
_MOST_BYTES = 16 << 20


def kept_files(stream: Stream) -> list[ColumnFile]:
    """The column files of deleted segments, in order, without a gap up to the first offset of the log."""
    behind = stream.first_offset()
    kept: list[ColumnFile] = []
    if behind:
        for file in reversed(column_files(stream, OffsetRange(0, behind))):
            if file.next_offset != behind:
                break
            kept.append(file)
            behind = file.first_offset
    return kept[::-1]


def table_range(
    stream: Stream, start: OffsetSpecification, end: OffsetSpecification | None, *, now_ms: int
) -> OffsetRange:
    """The offsets that `start` and `end` mean now, including kept column files; see `resolve_range`.

    Raises OffsetOutOfRangeError for a `start` that is neither in the log nor in a kept file.
    """
    first = stream.first_offset()
    within = resolve_range(stream, start=start, end=end, now_ms=now_ms)
    kept = kept_files(stream)
    begin = _among_kept(kept, start.resolve(now_ms), within.start, first)
    stop = within.stop if end is None else _among_kept(kept, end.resolve(now_ms), within.stop, first)
    if start.kind is OffsetKind.OFFSET and start.value < begin:
        raise OffsetOutOfRangeError(
            f"offsets {start.value} to {begin - 1} of stream {stream.name!r} were deleted by retention",
            path=stream.place,
        )
    return OffsetRange(min(begin, stop), stop)


def _among_kept(kept: list[ColumnFile], place: OffsetSpecification, found: int, first: int) -> int:
    """The offset of a place that was `found` in a log that begins with `first`, if kept files do not have it."""
    if not kept or found > first:
        return found
    match place.kind:
        case OffsetKind.FIRST:
            return kept[0].first_offset
        case OffsetKind.OFFSET:
            return min(max(place.value, kept[0].first_offset), found)
        case OffsetKind.TIMESTAMP:
            for file in kept:
                rows = file.read(["offset", "timestamp"])
                later = np.flatnonzero(rows["timestamp"].cast(pa.int64()).to_numpy() >= place.value * 1000)
                if len(later):
                    return int(rows["offset"][int(later[0])].as_py())
    return found


@dataclass(frozen=True, slots=True)
class FilePart:
    """Rows of a row group: `spans` `(spans, 2)` of its offsets; `has_messages`: the log has them, too."""

    rows: FileRows
    group: int
    spans: NDArray[np.int64]
    has_messages: bool


@dataclass(frozen=True, slots=True)
class WholeColumnFile:
    """A column file for other readers of Parquet: its rows with `start ≤ offset < stop` are part of a table.

    `columns` are its columns by the names that the table has for them. With a `filter` only the rows for which that is
    true by the columns of the file; none is inexact then. `declaration` says which columns it has; `has_no_others` that
    it has no rows of other offsets.
    """

    path: Path
    start: int
    stop: int
    columns: dict[str, str]
    filter: ColumnFilter | None
    declaration: ColumnDeclaration
    has_no_others: bool


@dataclass(frozen=True, slots=True)
class Folder:
    """A range of a stream in a folder, read by some threads."""

    stream: Stream
    within: OffsetRange
    threads: int

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.stream.name

    @property
    def filter_source(self) -> str | None:
        """The field that filter values are declared to come from, if any."""
        settings = self.stream.settings
        return None if settings is None else settings.filter_source

    def check(self, columns: Columns, request: ScanRequest) -> None:
        """Raise ConfigError where only column files have the offsets, and a file cannot answer the request.

        Also for columns that the stream's bodies do not give.
        """
        check_bodies(columns.asked, self.stream.body_schema)
        first = self.stream.first_offset()
        if self.within.start < first:
            for file in column_files(self.stream, OffsetRange(self.within.start, first)):
                self._rows_of_kept(file, columns, request)

    def _rows_of_kept(self, file: ColumnFile, columns: Columns, request: ScanRequest) -> FileRows:
        found = FileRows.of(file, columns, request, self.filter_source)
        if request.filter_values:
            found = "filter values choose chunks of the log"
        if isinstance(found, str):
            raise ConfigError(
                f"of offsets {file.first_offset} to {file.next_offset - 1} of stream {self.name!r} only column files "
                f"are kept: {found}; ask for what they have, or start at {self.stream.first_offset()}"
            )
        return found

    def batches(self, columns: Columns, request: ScanRequest, counters: ScanCounters) -> Iterator[pa.RecordBatch]:
        """The rows in stream order."""
        reading = _Reading(self, columns, request)
        parts = iter(self.parts(columns, request, counters))
        with ThreadPoolExecutor(self.threads, thread_name_prefix="headgate-table") as pool:
            running: deque[Future[tuple[list[pa.RecordBatch], ScanCounters]]] = deque()
            try:
                while True:
                    # One part more than there are threads, so that none waits while rows are taken.
                    while len(running) <= self.threads and (part := next(parts, None)) is not None:
                        running.append(pool.submit(reading.rows_of, part))
                    if not running:
                        return
                    batches, counted = running.popleft().result()
                    counters.add(counted)
                    yield from batches
            finally:
                for each in running:
                    each.cancel()

    def parts(self, columns: Columns, request: ScanRequest, counters: ScanCounters) -> Iterator[ChunkRange | FilePart]:
        """The parts to read, in stream order. Raises ConfigError as `check` does."""
        segments = self.stream.segments()
        for rows, within in self._files(segments, columns, request):
            if rows is None:
                yield from self.of_messages(request, within, counters)
                continue
            segment = segments.beginning_at(rows.file.segment)
            spans = whole(within)
            if segment is not None:
                counted = ScanCounters()
                spans = self._left(segment, request, within, counted)
                if _are_few(spans, within):
                    yield from self.of_messages(request, within, counters)
                    continue
                counters.add(counted)
            for group, left in rows.groups(spans):
                yield FilePart(rows, group, left, segment is not None)

    def _left(
        self, segment: Segment, request: ScanRequest, within: OffsetRange, counters: ScanCounters
    ) -> NDArray[np.int64]:
        """The spans of offsets that are left without asking column files, which are read themselves."""
        others = tuple(kind for kind in request.sources if kind != COLUMN_FILES)
        return spans_left(self.stream, segment, replace(request, sources=others), within, counters)

    def whole_files(self, columns: Columns, request: ScanRequest) -> Iterator[WholeColumnFile | OffsetRange]:
        """Files that others may read, and the ranges between them, in stream order. Raises ConfigError, LogError.

        With filter values there are none: they choose chunks. Nor with a filter where a file has an inexact row. A file
        in object storage is none: the cache of this machine may lose it while others read it.
        """
        if request.filter_values:
            yield self.within
            return
        segments = self.stream.segments()
        for rows, within in self._files(segments, columns, request):
            if rows is None or rows.file.is_remote or (rows.filter is not None and not rows.file.is_exact):
                yield within
                continue
            segment = segments.beginning_at(rows.file.segment)
            if segment is not None and _are_few(self._left(segment, request, within, ScanCounters()), within):
                yield within
                continue
            try:
                rows.file.check()
            except CorruptSidecarError as error:
                if segments.beginning_at(rows.file.segment) is None:
                    raise
                warn_of(error)
                yield within
                continue
            names = dict(zip(columns.schema.names, rows.names, strict=True))
            has_no_others = within.start <= rows.file.first_offset and rows.file.next_offset <= within.stop
            yield WholeColumnFile(
                rows.file.path, within.start, within.stop, names, rows.filter, rows.file.declaration, has_no_others
            )

    def _files(
        self, segments: SegmentList, columns: Columns, request: ScanRequest
    ) -> Iterator[tuple[FileRows | None, OffsetRange]]:
        """The range in parts: offsets of a file that answers, or (None) of messages; none is empty."""
        place, stop = self.within.start, self.within.stop
        for file in column_files(self.stream, self.within):
            if segments.beginning_at(file.segment) is not None:
                rows = FileRows.of(file, columns, request, self.filter_source)
                if isinstance(rows, str):
                    continue
            else:
                rows = self._rows_of_kept(file, columns, request)
            within = OffsetRange(max(file.first_offset, place), min(file.next_offset, stop))
            if within.start >= within.stop:
                continue
            if place < within.start:
                yield None, OffsetRange(place, within.start)
            yield rows, within
            place = within.stop
        if place < stop:
            yield None, OffsetRange(place, stop)

    def of_messages(self, request: ScanRequest, within: OffsetRange, counters: ScanCounters) -> Iterator[ChunkRange]:
        """The ranges to read from the log."""
        planned = plan(self.stream, request, within, range_bytes=_RANGE_BYTES)
        counters.add(planned.counters)
        yield from planned.ranges


def _are_few(spans: NDArray[np.int64], within: OffsetRange) -> bool:
    """Whether so few messages are left of a range that reading them costs less than columns of all."""
    return int((spans[:, 1] - spans[:, 0]).sum()) * _FEW_SHARE <= within.stop - within.start


@dataclass(slots=True)
class _Reading:
    """One reading of a folder: the state that its threads share."""

    folder: Folder
    columns: Columns
    request: ScanRequest
    _value_field: FieldReference = field(init=False)
    _damaged: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        source = self.folder.filter_source
        self._value_field = ANNOTATION if source is None else parse_field(source)

    def rows_of(self, part: ChunkRange | FilePart) -> tuple[list[pa.RecordBatch], ScanCounters]:
        """The rows of a part."""
        counters = ScanCounters()
        if isinstance(part, ChunkRange):
            return list(self._of_chunks(part, counters)), counters
        try:
            return list(part.rows.of_group(part.group, part.spans, counters)), counters
        except CorruptSidecarError as error:
            if not part.has_messages:
                raise
            self._warn(error, part.rows.file)
        counters = ScanCounters()
        within = OffsetRange(int(part.spans[0, 0]), int(part.spans[-1, 1]))
        ranges = self.folder.of_messages(self.request, within, counters)
        return [batch for chunks in ranges for batch in self._of_chunks(chunks, counters)], counters

    def _of_chunks(self, chunks: ChunkRange, counters: ScanCounters) -> Iterator[pa.RecordBatch]:
        return batches_of(read_range(chunks, self.request, counters), self.columns, self._value_field)

    def _warn(self, error: CorruptSidecarError, file: ColumnFile) -> None:
        with self._lock:
            is_new = str(file.path) not in self._damaged
            self._damaged.add(str(file.path))
        if is_new:
            warn_of(error)


def warn_of(error: CorruptSidecarError) -> None:
    """Warn of a file that is not used."""
    warnings.warn(ColumnFileWarning(f"{error}; its messages are read instead"), stacklevel=3)


def batches_of(scanned: Iterable[ScanBatch], columns: Columns, value_field: FieldReference) -> Iterator[pa.RecordBatch]:
    """Rows of scanned messages; `value_field` is the field of their filter values.

    Small batches are copied until there are enough messages to decode at once: a scan's buffer is overwritten.
    """
    kept = MessageBuffer()
    for batch in scanned:
        if len(batch) >= _ENOUGH_ROWS and not len(kept):
            yield from pieces(columns.batch(batch.messages, batch.offsets.copy(), batch.timestamps_ms, value_field))
            continue
        kept.add(batch, with_bytes=columns.need_messages)
        if kept.reaches(MOST_ROWS, _MOST_BYTES):
            yield from pieces(columns.batch(*kept.take(), value_field))
    if len(kept):
        yield from pieces(columns.batch(*kept.take(), value_field))
