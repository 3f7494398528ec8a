"""Answers from column files for the filter of one request: a source of answers, as the match index is.

A segment's file is asked where it is believed, has columns that decide something of the filter, and is cheaper to read
than the messages. Row groups whose statistics rule the filter out are not read; of the others only the columns that the
filter names, and the places of the messages that are kept. Recent decisions are cached.

Importing this imports no pyarrow; the first file does.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.derived.kind import COLUMN_SUFFIX
from headgate.errors import CorruptChunkError, CorruptSidecarError
from headgate.evaluate import Filter
from headgate.log import ENTRY_DTYPE, KEPT_FOLDER, ChunkType, Segment, SegmentReader, derived_folder_of
from headgate.log.format import HEADER_DTYPE
from headgate.scan import OffsetRange, ScanCounters
from headgate.scan.answers import Answer, AnswerSource, Purpose, SegmentFiles, asked_offsets, in_a_row, pieces

if TYPE_CHECKING:
    from headgate.derived.columns.evaluation import DecidedRows
    from headgate.derived.columns.files import ColumnFile
    from headgate.derived.columns.filter import ColumnFilter

Int64Array = NDArray[np.int64]

_CACHE_BYTES = 64 << 20
"""Limit: bytes of cached decisions in a process."""

_MESSAGE_NS = 10.0
_BYTE_NS = 0.09
"""Time to read and evaluate a message in memory, and for each of its bytes."""

_COLUMN_NS = 10.0
_ENTRY_NS = 4.0
"""Time per row for each column of the decision, and for finding the places of messages."""

_SPAN_SHARE = 4
"""A row group is decided only if a reader asks for one message in this many between its first and its last one."""

_DENSE_SHARE = 4
"""Where more than one message in this many matches, all are read anyway; evaluating them is cheaper than columns."""

_EXACT_SHARE = 4
"""A row group is decided only if at most one row in this many is inexact."""

_OFFSET_BYTES = 9


class SegmentColumns:
    """The column files of a segment, shared by all its readers. Safe for several threads."""

    __slots__ = ("_files", "_folders", "_lock", "_looked", "_names", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._lock = threading.Lock()
        self._folders: tuple[str, ...] = ()
        self._looked: tuple[int, ...] = ()
        self._names: list[str] = []
        self._files: list[ColumnFile] | None = None

    def look(self) -> bool:
        """Look whether the segment has files; only a sealed one does. Cost: two `stat` where nothing changed."""
        if not self.segment.is_sealed:
            return False
        with self._lock:
            if not self._folders:
                folder = derived_folder_of(self.segment)
                self._folders = str(folder), str(folder / KEPT_FOLDER)
            looked = tuple(_changed_ns(folder) for folder in self._folders)
            if looked != self._looked:
                self._looked, self._files = looked, None
                found = [name for folder in self._folders for name in self._of_segment(folder)]
                self._names = list(dict.fromkeys([*found, *self._in_object_storage()]))
            return bool(self._names)

    def _of_segment(self, folder: str) -> Iterator[str]:
        start = f"{self.segment.first_chunk_id:020d}-"
        try:
            names = os.listdir(folder)
        except OSError:
            return
        yield from (f"{folder}/{name}" for name in names if name.startswith(start) and name.endswith(COLUMN_SUFFIX))

    def _in_object_storage(self) -> Iterator[str]:
        remote = self.segment.remote
        for each in () if remote is None else remote.derived:
            if each.name.endswith(COLUMN_SUFFIX):
                yield f"{self._folders[0]}/{each.name}"

    def files(self) -> list[ColumnFile]:
        """The believed files of the last look, the newest declaration first; warns of the others once."""
        from headgate.derived.columns.files import believed_files

        with self._lock:
            if self._files is None:
                self._files = believed_files(self.segment, self._names)
            return self._files

    def drop(self, file: ColumnFile) -> None:
        """Stop using a damaged file."""
        with self._lock:
            self._files = [each for each in self._files or [] if each is not file]


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The file that is asked for a filter, and the part of the filter that it decides."""

    file: ColumnFile
    filter: ColumnFilter


@dataclass(slots=True)
class _ColumnAnswer(Answer):
    """An answer of a column file."""

    file: ColumnFile | None


class ColumnAnswers(AnswerSource):
    """The column files as one reader sees them, for the filter of a request. Warns at most once of each file.

    For planning only the footers of files count. It holds no file open between questions.
    """

    name = "column files"

    def __init__(self, filter_: Filter, now_ms: int = 0, purpose: Purpose = Purpose.READING) -> None:
        self._filter = filter_
        self._now_ms = now_ms
        self._purpose = purpose
        self._columns: SegmentColumns | None = None
        self._chosen: _Chosen | None = None
        self._chosen_of: list[ColumnFile] | None = None
        self._bytes_read = 0

    def use(self, files: SegmentFiles) -> None:
        """See `AnswerSource`."""
        assert isinstance(files, SegmentColumns)
        self._columns = files

    def count(self, counters: ScanCounters, *, chunks: int, messages: int) -> None:
        """Count the chunks and messages that an answer spared, and the bytes read for answers since the last count."""
        counters.chunks_skipped_by_columns += chunks
        counters.messages_decided_by_columns += messages
        counters.column_bytes_read += self._bytes_read
        self._bytes_read = 0

    def reach(self, reader: SegmentReader, row: int) -> tuple[int, int]:
        """All rows of a segment from `row` on, if its file rules something out, or is cheaper than the messages."""
        chosen = self._choose(reader)
        return row, len(reader.chunks()) if chosen is not None and self._helps(chosen) else row

    def answers(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Iterator[Answer]:
        """See `AnswerSource`."""
        for piece in pieces(reader, rows):
            yield self._answer(reader, piece, within)

    def left(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Int64Array | None:
        """See `AnswerSource`: all but the chunks of row groups that the footer rules out."""
        chosen = self._choose(reader)
        ruled_out = frozenset() if chosen is None else self._ruled_out(chosen)
        if chosen is None or not ruled_out:
            return None
        table, place = reader.chunks(), in_a_row(rows)
        chunk_ids = table.chunk_id[place]
        left = np.ones(len(rows), dtype=np.bool_)
        for group in map(chosen.file.row_groups.__getitem__, ruled_out):
            first, stop = np.searchsorted(chunk_ids, [group.first_offset, group.stop_offset]).tolist()
            left[first:stop] = table.type[rows[first:stop]] != ChunkType.USER
        found: Int64Array = rows[left]
        return found

    def entries(self, reader: SegmentReader, answer: Answer, start: int, stop: int) -> NDArray[np.void] | None:
        """The column `entry` for the offsets `start … stop`, as far as an answer has offsets in its row group."""
        found = np.zeros(stop - start, dtype=ENTRY_DTYPE)
        file = answer.file if isinstance(answer, _ColumnAnswer) else None
        if file is None:
            return found
        for number, group in enumerate(file.row_groups):
            first, last = max(start, group.first_offset), min(stop, group.stop_offset)
            wanted = np.searchsorted(answer.offsets, [first, last])
            if first >= last or wanted[0] == wanted[1]:
                continue
            try:
                offsets, entries = self._entries_of(file, number)
            except CorruptSidecarError as error:
                self._drop(file, str(error))
                return None
            if offsets is None:
                found[first - start : last - start] = entries[first - group.first_offset : last - group.first_offset]
            else:
                begin, end = np.searchsorted(offsets, [first, last]).tolist()
                found[offsets[begin:end] - start] = entries[begin:end]
        return found

    def distrust(self, answer: Answer, reason: str) -> None:
        """Stop using the file of an answer: its entries do not agree with the segment."""
        if isinstance(answer, _ColumnAnswer) and answer.file is not None:
            self._drop(answer.file, f"{answer.file.path}: {reason}")

    def _answer(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Answer:
        table = reader.chunks()
        chunk_ids = table.chunk_id[rows]
        begins, ends = asked_offsets(reader, rows, within)
        chosen = self._choose(reader)
        trusted = np.zeros(len(rows), dtype=np.bool_)
        found: list[DecidedRows] = []
        if chosen is not None:
            sizes = reader.stop_positions()[rows] - table.position[rows]
            try:
                for number, group in enumerate(chosen.file.row_groups):
                    first, stop = np.searchsorted(chunk_ids, [group.first_offset, group.stop_offset]).tolist()
                    asked = _Asked(int((ends - begins)[first:stop].sum()), int(sizes[first:stop].sum()))
                    if not asked.messages:
                        continue
                    span = int(ends[stop - 1] - begins[first])
                    decided = self._decided(chosen, number, asked, span)
                    if decided is not None:
                        trusted[first:stop] = table.type[rows[first:stop]] == ChunkType.USER
                        found.append(decided)
            except CorruptSidecarError as error:
                self._drop(chosen.file, str(error))
                trusted[:], found = False, []
        return self._of(reader, rows, begins, ends, trusted, found, None if chosen is None else chosen.file)

    def _of(
        self,
        reader: SegmentReader,
        rows: Int64Array,
        begins: Int64Array,
        ends: Int64Array,
        trusted: NDArray[np.bool_],
        found: list[DecidedRows],
        file: ColumnFile | None,
    ) -> Answer:
        offsets = np.concatenate([np.empty(0, dtype=np.int64), *(each.offsets for each in found)])
        certain = np.concatenate([np.empty(0, dtype=np.bool_), *(each.certain for each in found)])
        first, stop = np.searchsorted(offsets, begins), np.searchsorted(offsets, ends)
        counts = np.where(trusted, stop - first, 0)
        chunks = np.repeat(np.arange(len(rows)), counts)
        taken = np.arange(len(chunks)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        headers = np.zeros(len(rows), dtype=HEADER_DTYPE)
        kept = np.flatnonzero(counts)
        if len(kept):
            start, behind = int(rows[kept[0]]), int(rows[kept[-1]]) + 1
            try:
                headers[kept] = reader.headers(start, behind).records[rows[kept] - start]
            except CorruptChunkError:
                # The reader that reads these chunks in full finds the damaged one, and reports it.
                return self._of(reader, rows, begins, ends, np.zeros_like(trusted), [], file)
        return _ColumnAnswer(
            rows, trusted, ends - begins, counts, offsets[taken], chunks, certain[taken], headers, self, file
        )

    def _decided(self, chosen: _Chosen, number: int, asked: _Asked, span: int) -> DecidedRows | None:
        """The rows of a row group that match the filter; None where deciding costs more than reading the messages."""
        from headgate.derived.columns.evaluation import DecidedRows, decide_row_group

        key = (chosen.file, number, *self._asked_for)
        known = _CACHE.get(key)
        if isinstance(known, DecidedRows):
            return known
        if number in self._ruled_out(chosen):
            nothing = np.empty(0, dtype=np.int64)
            return DecidedRows(nothing, nothing.astype(np.bool_))
        if self._purpose is Purpose.PLANNING or not self._is_cheaper(chosen, number, asked, span):
            return None
        decided, read_bytes = decide_row_group(chosen.file, number, chosen.filter, self._filter, self._now_ms)
        self._bytes_read += read_bytes
        if len(decided.offsets) * _DENSE_SHARE > chosen.file.row_groups[number].rows:
            _CACHE.put((chosen.file, self._filter), True, 0)
        _CACHE.put(key, decided, _OFFSET_BYTES * len(decided.offsets))
        return decided

    @property
    def _asked_for(self) -> tuple[Filter, int]:
        """The filter and the time (0 if it does not count): with the file, all that a decision depends on."""
        return self._filter, self._now_ms if self._filter.uses_time else 0

    def _ruled_out(self, chosen: _Chosen) -> frozenset[int]:
        """The row groups of a file without a match by its footer alone, which is asked once for each filter."""
        from headgate.derived.columns.evaluation import group_outcome

        key = (chosen.file, *self._asked_for)
        known = _CACHE.get(key)
        if not isinstance(known, frozenset):
            groups = range(len(chosen.file.row_groups))
            known = frozenset(each for each in groups if group_outcome(chosen.file, each, chosen.filter).true is False)
            _CACHE.put(key, known, 64 * len(known))
        return known

    def _helps(self, chosen: _Chosen) -> bool:
        """Whether asking may spare something; it is judged by a read of all messages, which spares the most."""
        if self._ruled_out(chosen):
            return True
        file, is_counted = chosen.file, self._purpose is Purpose.COUNTING
        if self._purpose is Purpose.PLANNING or (not is_counted and _CACHE.get((file, self._filter))):
            return False
        return self._column_ns(chosen) <= _MESSAGE_NS + file.origin.size / max(file.rows, 1) * _BYTE_NS

    def _column_ns(self, chosen: _Chosen, more_columns: int = 0) -> float:
        """Nanoseconds to decide a row by columns."""
        columns = len(chosen.filter.columns) + more_columns
        return columns * _COLUMN_NS + (0.0 if self._purpose is Purpose.COUNTING else _ENTRY_NS)

    def _is_cheaper(self, chosen: _Chosen, number: int, asked: _Asked, span: int) -> bool:
        """Whether deciding a row group and reading its matches takes less time than reading the requested messages."""
        rows, inexact = chosen.file.row_groups[number].rows, chosen.file.inexact_rows(number)
        if asked.messages * _SPAN_SHARE < span or inexact * _EXACT_SHARE > rows:
            return False
        if self._purpose is not Purpose.COUNTING and _CACHE.get((chosen.file, self._filter)):
            return False
        # A reader that asks for a part of a row group, and all of that part, is likely to ask for the rest next.
        by_bytes = (asked.messages * _MESSAGE_NS + asked.size_bytes * _BYTE_NS) / max(span, 1)
        return self._column_ns(chosen, 2 if inexact else 0) <= by_bytes

    def _entries_of(self, file: ColumnFile, number: int) -> tuple[Int64Array | None, NDArray[np.void]]:
        from headgate.derived.columns.evaluation import entries_of

        key = (file, number, None, 0)
        known = _CACHE.get(key)
        if not isinstance(known, tuple):
            known, read_bytes = entries_of(file, number)
            self._bytes_read += read_bytes
            _CACHE.put(key, known, known[1].nbytes)
        return known

    def _choose(self, reader: SegmentReader) -> _Chosen | None:
        """The newest file of a segment that decides something of the filter."""
        if self._columns is None or self._columns.segment is not reader.segment:
            self._columns = SegmentColumns(reader.segment)
            self._chosen_of = None
        if not self._columns.look():
            return None
        files = self._columns.files()
        if files is not self._chosen_of:
            self._chosen_of, self._chosen = files, self._best(files, self._filter)
        return self._chosen

    def _best(self, files: list[ColumnFile], wanted: Filter) -> _Chosen | None:
        from headgate.derived.columns.filter import column_filter

        for file in files:
            found = column_filter(wanted, file.declaration.declared, now_ms=self._now_ms)
            if found is not None:
                return _Chosen(file, found)
        return None

    def _drop(self, file: ColumnFile, reason: str) -> None:
        from headgate.derived.columns.files import ColumnFileWarning

        warnings.warn(ColumnFileWarning(f"{reason}; read without it"), stacklevel=2)
        if self._columns is not None:
            self._columns.drop(file)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Messages and bytes of chunks that a reader asks for."""

    messages: int
    size_bytes: int


class _Cache:
    """The results that were used last, up to a limit in bytes; for any number of threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[object, tuple[object, int]] = OrderedDict()
        self._size_bytes = 0

    def get(self, key: object) -> object:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._size_bytes = 0

    def put(self, key: object, value: object, size_bytes: int) -> None:
        size_bytes += 512
        with self._lock:
            if key not in self._held:
                self._held[key] = value, size_bytes
                self._size_bytes += size_bytes
            while self._size_bytes > self._limit_bytes and len(self._held) > 1:
                _, (_, size) = self._held.popitem(last=False)
                self._size_bytes -= size


_CACHE = _Cache(_CACHE_BYTES)
