"""Reading one segment: its index as a table of chunks, chunk headers for stage 1, and the bytes of chunks.

Readers see a chunk when its 29-byte index record is complete; no segment byte after the last such chunk is returned.
Segments that another process may still cut (the newest one, and all of a foreign folder) are read with pread into
buffers; sealed segments of our own folders are mapped, the newest one on demand if a recovery would not cut it
(`map_to`): reading a mapping of a truncated file kills the process. File format: osiris_log.md sections 1 and 2.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, LogError, OffsetOutOfRangeError
from headgate.log import format as f
from headgate.log.checksums import crcs_of_ranges, first_mismatch, has_checksum
from headgate.log.files import file_size, read_all
from headgate.log.mappings import MAPPINGS
from headgate.log.pairs import seal_path
from headgate.log.remote import PartialFile, RemoteSegment
from headgate.log.seal import Seal, read_seal
from headgate.log.segment_end import HELP, Ending, OpenPair, find_ending
from headgate.log.settings import check_identity
from headgate.log.table import ChunkTable, GrowingTable

_WINDOW_BYTES = 1 << 20
_ROWS_AT_ONCE = 16_384
_DENSE_ROWS = 32
"""From this many headers in a window on, one read of the window is cheaper than one read per header."""

_DENSE_CHUNK_BYTES = 16 << 10
"""Headers of larger chunks are copied: a mapping would load pages around each header that no reader uses."""

_FEWEST_KEPT_ROWS = 2048
"""Limit: rows of the smallest table that is kept; smaller tables are read in less than a millisecond."""

_MOST_KEPT_ROWS = 9 << 18
"""Limit: rows of tables that a process keeps; 65 bytes each, with the ends of chunks: some 150 MB."""

_PAGE_BYTES = mmap.PAGESIZE
_STAGE1_BYTES = f.CHUNK_HEADER_BYTES + f.MAX_BLOOM_BYTES
_STAGE1_DTYPE = np.dtype(f"V{_STAGE1_BYTES}")

Allocate = Callable[[int], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Segment:
    """One pair of files of a stream folder, as found when the folder was listed. Picklable.

    `identity` is that of its stream. `first_chunk_id` names it; a segment that `is_newest` may grow; one that `is_own`
    lies in one of our own folders. `stop_offset` is where the next segment begins; None while the next one has no
    chunk: then a recovery may still cut this one. A `remote` one is in object storage: its files are made on this
    machine when it is opened, and may go when it is closed.
    """

    folder: Path
    identity: str
    first_chunk_id: int
    is_newest: bool
    is_own: bool
    stop_offset: int | None
    remote: RemoteSegment | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether it does not change any more."""
        return self.stop_offset is not None

    @property
    def is_open_end(self) -> bool:
        """Whether a recovery may change its end."""
        return self.is_own and not self.is_sealed

    @property
    def mappable(self) -> bool:
        """Whether its file may be mapped, because no other process cuts it."""
        return self.is_own and self.is_sealed

    @property
    def segment_path(self) -> Path:
        """The file with the chunks."""
        return self._pair_folder / f.segment_name(self.first_chunk_id)

    @property
    def index_path(self) -> Path:
        """The file with one record per chunk."""
        return self._pair_folder / f.index_name(self.first_chunk_id)

    @property
    def _pair_folder(self) -> Path:
        return self.folder if self.remote is None else self.remote.folder

    @property
    def place(self) -> str:
        """Where its chunks are, for messages."""
        return self.place_of(self.segment_path)

    def place_of(self, path: Path) -> str:
        """A file of the segment, for messages: of a remote one the object that it is made of."""
        return str(path) if self.remote is None else self.remote.url_of(path.name)

    def segment_bytes(self) -> int:
        """Bytes of the file with the chunks; 0 if it is gone."""
        return file_size(self.segment_path) if self.remote is None else self.remote.segment_bytes

    def size_bytes(self) -> int:
        """Bytes of both files now, of a remote one of the objects; 0 for a file that is gone."""
        beside = file_size(self.index_path) if self.remote is None else self.remote.summary_bytes
        return self.segment_bytes() + beside

    def fetch(self, *, whole: bool = False) -> None:
        """Make the files of a remote segment on this machine, for reading them by path; nothing for other segments.

        With `whole` its content is fetched as well, and files that were there are made anew. Errors: those of `open`.
        """
        if self.remote is None:
            return
        if whole:
            self.remote.forget()
        with contextlib.closing(self.remote.open()) as files:
            if whole:
                files.make_present(0, self.remote.segment_bytes)

    def open(self, *, allocate: Allocate | None = None) -> SegmentReader:
        """A reader of this segment. Raises OffsetOutOfRangeError if retention deleted it since it was listed.

        With `allocate`, which returns a buffer of at least the given size, each read has a separate buffer
        and stays valid; then several threads may read at once, while one refreshes the table.
        """
        return SegmentReader(self, allocate=allocate)


@dataclass(frozen=True, slots=True)
class _KnownTable:
    """The checked index of a sealed segment, and the ends of its chunks."""

    table: ChunkTable
    extent: tuple[int, int, int]
    seal: Seal | None
    behind: tuple[ChunkTable, NDArray[np.int64], NDArray[np.int64]]


class _KnownTables:
    """The tables of sealed segments that were used last, for all readers of a process, up to `_MOST_KEPT_ROWS`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[Hashable, _KnownTable] = OrderedDict()
        self._rows = 0

    def get(self, state: Hashable) -> _KnownTable | None:
        with self._lock:
            found = self._tables.get(state)
            if found is not None:
                self._tables.move_to_end(state)
            return found

    def put(self, state: Hashable, known: _KnownTable) -> None:
        if not _FEWEST_KEPT_ROWS <= len(known.table) <= _MOST_KEPT_ROWS:
            return
        with self._lock:
            if state not in self._tables:
                self._tables[state] = known
                self._rows += len(known.table)
            while self._rows > _MOST_KEPT_ROWS:
                self._rows -= len(self._tables.popitem(last=False)[1].table)


_KEPT = _KnownTables()


class SegmentReader:
    """Reads one segment, beside a writer in any process.

    Without `allocate` `read` reuses its buffer: then it is not for several threads at once. Raises as `Segment.open`.
    """

    def __init__(self, segment: Segment, *, allocate: Allocate | None = None) -> None:
        self.segment = segment
        self.path = segment.segment_path
        self.place = segment.place
        self._index_path = segment.index_path
        self._index_place = segment.place_of(self._index_path)
        self._allocate = allocate
        self._remote: PartialFile | None = None
        try:
            if segment.remote is None:
                self._index_fd, self._fd = _open_pair(self._index_path, self.path)
            else:
                self._remote = segment.remote.open()
                self._index_fd, self._fd = self._remote.beside[0], self._remote.descriptor
        except FileNotFoundError as error:
            raise OffsetOutOfRangeError(
                f"the segment that begins at offset {segment.first_chunk_id} is gone; retention deleted it",
                path=self.place,
            ) from error
        self._mapping: NDArray[np.uint8] | None = None
        self._mapped: mmap.mmap | None = None
        self._buffer = np.empty(0, dtype=np.uint8)
        self._rows = GrowingTable()
        self._loaded = False
        self._extent: tuple[int, int, int] | None = None
        self._seal: Seal | None = None
        self._behind: tuple[ChunkTable, NDArray[np.int64], NDArray[np.int64]] | None = None
        try:
            self._check_heads()
            if segment.mappable:
                self._map()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Views of a mapped segment stay valid as long as they are referenced."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        else:
            for descriptor in (self._index_fd, self._fd):
                if descriptor >= 0:
                    os.close(descriptor)
        self._index_fd = self._fd = -1
        self._mapping = self._mapped = None

    def _check_heads(self) -> None:
        """Raise CorruptChunkError for a wrong file head; in a pair that is being created it may be incomplete."""
        for descriptor, place, head in (
            (self._index_fd, self._index_place, f.INDEX_HEAD),
            (self._fd, self.place, f.SEGMENT_HEAD),
        ):
            found = os.pread(descriptor, f.FILE_HEAD_BYTES, 0)
            if found != head and not (self.segment.is_newest and head.startswith(found)):
                raise CorruptChunkError(
                    f"file head is {found.hex(' ') or 'missing'}, expected {head.hex(' ')}", path=place, position=0
                )

    def _map(self) -> None:
        size = os.fstat(self._fd).st_size
        mapped = MAPPINGS.map(self._fd, size)
        mapping = np.frombuffer(mapped, dtype=np.uint8)
        # In a file that may still be cut, bytes after its last chunk could disappear.
        mapping = mapping if self.segment.mappable else mapping[: self.stop_position]
        before = self._mapping
        if before is None or len(before) < len(mapping):
            self._mapped, self._mapping = mapped, mapping

    def map_to(self, stop: int) -> int:
        """Map the file of one of our segments, if `stop` is not mapped yet; returns the byte up to which it is mapped.

        Reads up to that byte are then views; in the newest segment the last chunk is left out; 0 if nothing may
        be mapped. A recovery cuts the last segment only if its last chunk is damaged, so that is checked first:
        some 0.1 ms.
        """
        mapping = self._mapping
        mapped = 0 if mapping is None else len(mapping)
        if mapped < stop + f.SLACK_BYTES and self.segment.is_own:
            has_grown = self.stop_position > mapped
            if has_grown and (self.segment.mappable or self._ends_well()):
                self._map()
        mapping = self._mapping
        return 0 if mapping is None else max(0, len(mapping) - f.SLACK_BYTES)

    def _use(self, start: int, stop: int, count: int | None = None) -> None:
        """Note that a part of the mapped file is about to be read, or `count` bytes of it."""
        mapped = self._mapped
        if mapped is not None:
            MAPPINGS.use(mapped, start, stop, stop - start if count is None else count)

    def is_mapped(self, stop: int) -> bool:
        """Whether reads up to the byte `stop` are views of the file."""
        mapping = self._mapping
        return mapping is not None and stop + f.SLACK_BYTES <= len(mapping)

    def _ends_well(self) -> bool:
        table = self.chunks()
        if not len(table):
            return False
        return has_checksum(self._fd, int(table.position[-1]), self.header(len(table) - 1))

    def make_present(self, start: int, stop: int) -> None:
        """Load a part of a mapped file into memory now, so that later reads of it do not wait for the disk."""
        if self._remote is not None:
            self._remote.make_present(start, stop)
        mapping = self._mapping
        if mapping is not None and stop > start:
            self._use(start, stop, 0)
            mapping[start:stop:_PAGE_BYTES].max()

    # the index

    def index_bytes(self) -> bytes:
        """The bytes of the index file that is open, which may be gone by its name."""
        return read_all(self._index_fd, os.fstat(self._index_fd).st_size, 0)

    def chunks(self, *, refresh: bool = False) -> ChunkTable:
        """The table of the chunks that exist, read once; with `refresh`, chunks written since are added.

        At the end of a segment that may still grow, records without a chunk are ignored: a crash may leave them
        (`segment_end.py`). Raises CorruptChunkError for an index that contradicts itself, its segment, its seal, or
        where the next segment begins.
        """
        if self._loaded and not (refresh and not self.segment.mappable):
            return self._rows.table
        state = self._sealed_state() if self.segment.mappable else None
        if state is not None and (kept := _KEPT.get(state)) is not None:
            self._rows, self._extent, self._seal, self._loaded = GrowingTable(kept.table), kept.extent, kept.seal, True
            self._behind = kept.behind
            return kept.table
        known = self._load()
        while True:
            try:
                self._take_records(*known)
                if state is not None and self._extent is not None and state == self._sealed_state():
                    table = self._rows.table
                    _KEPT.put(state, _KnownTable(table, self._extent, self._seal, self._behind_rows(table)))
                return self._rows.table
            except CorruptChunkError:
                # A write that was taken back, or a recovery, may have changed the index since it was read.
                found = self._load()
                if found == known:
                    raise
                known = found

    def _sealed_state(self) -> Hashable:
        """The state of a sealed segment's files, which changes when they are replaced."""
        files = [os.fstat(self._index_fd), os.fstat(self._fd)]
        with contextlib.suppress(FileNotFoundError):
            files.append(os.stat(seal_path(self.path)))
        return self.segment, tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in files)

    def _load(self) -> tuple[int, bytes]:
        """The number of rows of the table that stay, and the bytes of the index after their records."""
        found = os.fstat(self._index_fd)
        if not found.st_nlink:
            found = self._follow()
        known = len(self._rows.table)
        if found.st_size < f.FILE_HEAD_BYTES + known * f.INDEX_RECORD_BYTES:
            self._rows = GrowingTable()
            self._loaded = False
            known = 0
        start = f.FILE_HEAD_BYTES + known * f.INDEX_RECORD_BYTES
        return known, read_all(self._index_fd, max(0, found.st_size - start), start)

    def _take_records(self, known: int, raw: bytes) -> None:
        """Add the index records in `raw` to the table, which has `known` rows."""
        count = known + len(raw) // f.INDEX_RECORD_BYTES
        if count == known and self._loaded:
            return
        if not known:
            self._check_heads()

        def record_at(row: int) -> f.IndexRecord:
            start = (row - known) * f.INDEX_RECORD_BYTES
            if start >= 0:
                return f.IndexRecord.decode(raw[start : start + f.INDEX_RECORD_BYTES])
            place = f.FILE_HEAD_BYTES + row * f.INDEX_RECORD_BYTES
            return f.IndexRecord.decode(os.pread(self._index_fd, f.INDEX_RECORD_BYTES, place))

        pair = OpenPair(
            self._fd,
            os.fstat(self._fd).st_size,
            self.path,
            self._index_path,
            self.segment.first_chunk_id,
            self.segment.is_open_end,
        )
        ending = find_ending(pair, count, record_at)
        if ending.num_named < known:
            # A recovery cut chunks that were in the table.
            self._rows = GrowingTable()
            self._take_records(*self._load())
            return
        records = np.frombuffer(
            raw[: (ending.num_named - known) * f.INDEX_RECORD_BYTES] + ending.behind, dtype=f.INDEX_DTYPE
        )
        more = ChunkTable.of(records)
        previous = self._rows.table
        least_id = int(previous.chunk_id[-1]) + 1 if known else self.segment.first_chunk_id
        least_position = int(previous.position[-1]) + f.CHUNK_HEADER_BYTES if known else f.FILE_HEAD_BYTES
        more.check(known, least_id, least_position, segment_size=pair.segment_size, path=self._index_place)
        if self.segment.is_sealed:
            self._check_sealed(pair, ending, known, raw)
        if self._seal is None:
            self._check_types(more, known, pair.segment_size)
        if known:
            self._rows.extend(more)
        else:
            self._rows = GrowingTable(more)
        self._extent = (len(self._rows.table), ending.stop_position, ending.next_chunk_id)
        self._loaded = True

    def _check_sealed(self, pair: OpenPair, ending: Ending, known: int, raw: bytes) -> None:
        """Raise CorruptChunkError unless the index covers the whole segment, up to the beginning of the next one."""
        named = f.FILE_HEAD_BYTES + ending.num_named * f.INDEX_RECORD_BYTES
        index_bytes = f.FILE_HEAD_BYTES + known * f.INDEX_RECORD_BYTES + len(raw)
        if index_bytes != named:
            raise CorruptChunkError(
                f"{index_bytes - named} bytes that name no chunk, and another segment follows; {HELP}",
                path=self._index_place,
                position=named,
            )
        if ending.next_chunk_id != self.segment.stop_offset:
            raise CorruptChunkError(
                f"the index ends at offset {ending.next_chunk_id}, the next segment begins at offset "
                f"{self.segment.stop_offset}: messages between them, or a whole segment, are missing; {HELP}",
                path=self._index_place,
                position=index_bytes,
            )
        if ending.stop_position != pair.segment_size:
            raise CorruptChunkError(
                f"the segment has {pair.segment_size} bytes, and by its index {ending.stop_position}; {HELP}",
                path=self.place,
                position=min(ending.stop_position, pair.segment_size),
            )
        seal = read_seal(self.path) if self.segment.is_own else None
        if seal is None:
            return
        index = raw if not known else read_all(self._index_fd, index_bytes - f.FILE_HEAD_BYTES, f.FILE_HEAD_BYTES)
        if zlib.crc32(index, zlib.crc32(f.INDEX_HEAD)) != seal.index_crc or len(seal.header_crcs) != ending.num_chunks:
            raise CorruptChunkError(
                f"the index is not what it was when the segment was sealed; {HELP}", path=self._index_place
            )
        self._seal = seal

    def _check_types(self, more: ChunkTable, known: int, segment_size: int) -> None:
        """Raise CorruptChunkError for an index record with a wrong chunk type, which could hide messages."""
        rows = np.flatnonzero(more.type != f.ChunkType.USER)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            found = self._copied_headers(more.position[part], segment_size).records["chunk_type"]
            wrong = np.flatnonzero(found != more.type[part])
            if len(wrong):
                row, said = int(part[wrong[0]]), int(found[wrong[0]])
                raise CorruptChunkError(
                    f"index record {known + row} says chunk type {more.type[row]}, its chunk's header {said}; {HELP}",
                    path=self._index_place,
                    position=f.FILE_HEAD_BYTES + (known + row) * f.INDEX_RECORD_BYTES,
                )

    def _follow(self) -> os.stat_result:
        """The index was deleted or replaced: continue with the existing files, if there are any.

        Retention deletes a pair for good. A recovery deletes a newest pair without a chunk, and a writer makes it
        again; a repair replaces an index, and a last segment that it cuts.
        """
        if self._remote is not None:
            # Its files in the cache may be made anew, with the same content; and these descriptors are not ours.
            return os.fstat(self._index_fd)
        try:
            opened = _open_pair(self._index_path, self.path)
        except FileNotFoundError:
            return os.fstat(self._index_fd)
        # Another segment with chunks may belong to a stream that was made again.
        is_same = os.path.sameopenfile(opened[1], self._fd)
        is_followed = is_same or not len(self._rows.table) or self._stream_is_there()
        for descriptor in (self._index_fd, self._fd) if is_followed else opened:
            os.close(descriptor)
        if is_followed:
            self._index_fd, self._fd = opened
            self._rows = GrowingTable()
            self._loaded, self._extent = False, None
            if not is_same:
                self._mapping = self._mapped = None
        return os.fstat(self._index_fd)

    def _stream_is_there(self) -> bool:
        try:
            check_identity(self.segment.folder, self.segment.identity, name=self.segment.folder.name)
        except LogError:
            return False
        return True

    def extent(self, table: ChunkTable) -> tuple[int, int, int]:
        """Rows of a table from `chunks`, the byte after its last chunk, the offset after its last record."""
        extent = self._extent
        if extent is None or extent[0] != len(table):
            if len(table):
                header = self.header(len(table) - 1)
                extent = (len(table), int(table.position[-1]) + header.size_bytes, header.next_chunk_id)
            else:
                extent = (0, f.FILE_HEAD_BYTES, self.segment.first_chunk_id)
            self._extent = extent
        return extent

    @property
    def stop_position(self) -> int:
        """The byte after the last chunk of the table."""
        return self.extent(self.chunks())[1]

    @property
    def next_chunk_id(self) -> int:
        """The offset after the last record of the table; the segment's first chunk id if it is empty."""
        return self.extent(self.chunks())[2]

    def stop_positions(self, start_row: int = 0, stop_row: int | None = None) -> NDArray[np.int64]:
        """For each row of the table, or of a part of it, the byte after its chunk."""
        table = self.chunks()
        if stop_row is not None and stop_row < len(table):
            return table.position[start_row + 1 : stop_row + 1]
        return self._behind_rows(table)[1][start_row:]

    def stops_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bytes after the chunks of some rows of the table; unlike `stop_positions` it does not look at others."""
        table = self.chunks()
        last = len(table) - 1
        if len(rows) == 1 and rows[0] == last:
            # Live traffic.
            return np.array([self.extent(table)[1]])
        stops = table.position[np.minimum(rows + 1, last)]
        stops[rows == last] = self.extent(table)[1]
        return stops

    def next_chunk_ids(self) -> NDArray[np.int64]:
        """For each row of the table the offset after its chunk."""
        return self._behind_rows(self.chunks())[2]

    def _behind_rows(self, table: ChunkTable) -> tuple[ChunkTable, NDArray[np.int64], NDArray[np.int64]]:
        """A table, and for each row the byte and the offset after its chunk; kept, because it is used often."""
        known = self._behind
        if known is None or known[0] is not table:
            stops, next_ids = table.position[1:], table.chunk_id[1:]
            if len(table):
                _, stop, next_id = self.extent(table)
                stops, next_ids = np.append(stops, np.int64(stop)), np.append(next_ids, np.int64(next_id))
            known = self._behind = table, stops, next_ids
        return known

    # the segment

    def header(self, row: int) -> f.ChunkHeader:
        """The header of one row. Raises CorruptChunkError if it contradicts the table or the size of the file."""
        table = self.chunks()
        position = int(table.position[row])
        path = self.place
        raw = os.pread(self._fd, f.CHUNK_HEADER_BYTES, position)
        header = f.ChunkHeader.decode(raw, path=path, position=position)
        is_inner = 0 <= row < len(table) - 1
        stop = int(table.position[row + 1]) if is_inner else os.fstat(self._fd).st_size
        size = header.size_bytes
        if header.chunk_id != table.chunk_id[row]:
            raise CorruptChunkError(
                f"chunk id is {header.chunk_id}, the index says {table.chunk_id[row]}", path=path, position=position
            )
        if position + size > stop or (is_inner and position + size != stop):
            raise CorruptChunkError(
                f"chunk of {size} bytes does not end where the next one begins or the file ends (byte {stop})",
                path=path,
                position=position,
            )
        return header

    def header_bytes(self, row: int) -> bytes:
        """The bytes now at the place of a row's header, unchecked: another chunk may have replaced it."""
        return os.pread(self._fd, f.CHUNK_HEADER_BYTES, int(self.chunks().position[row]))

    def headers(self, start_row: int, stop_row: int) -> f.ChunkHeaders:
        """Headers and Bloom bytes of rows of the table, for stage 1, checked against the table.

        From a mapped segment a view (5 M headers/s and more); else copied, 303 bytes of memory per row: ask for some
        ten thousand rows at a time. Raises CorruptChunkError for an invalid header, or one that contradicts the index.
        """
        table = self.chunks()
        positions = table.position[start_row:stop_row]
        mapping = self._mapping
        is_sealed = mapping is not None and self.segment.mappable
        size = len(mapping) if mapping is not None and is_sealed else os.fstat(self._fd).st_size
        last = int(positions[-1]) if len(positions) else 0
        if is_sealed and len(positions) and last + f.CHUNK_HEADER_BYTES > size:
            raise self._ends_early(last, size)
        first = int(positions[0]) if len(positions) else 0
        is_dense = last - first <= len(positions) * _DENSE_CHUNK_BYTES
        if mapping is not None and is_dense and (is_sealed or last + _STAGE1_BYTES <= len(mapping)):
            self._use(first, last + f.CHUNK_HEADER_BYTES)
            found = f.decode_headers(mapping, positions)
        else:
            # A recovery may cut the file after the last chunk at this moment.
            found = self._copied_headers(positions, min(size, self.extent(table)[1]))
        found.check(path=self.place, positions=positions)
        rows = np.arange(start_row, start_row + len(positions), dtype=np.int64)
        bad = self.contradicted(found, table, rows, self.stop_positions(start_row, stop_row))
        if bad.any():
            number = int(np.argmax(bad))
            raise self.contradiction(found, table, int(rows[number]), number)
        return found

    def contradicted(
        self, headers: f.ChunkHeaders, table: ChunkTable, rows: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """`(chunks,)`: headers that disagree with the index or with the seal.

        `headers` are those of `rows`, ascending, of a table from `chunks`; `stops` are the bytes after the chunks.
        """
        records = headers.records
        bad = np.asarray(headers.size_bytes != stops - table.position[rows])
        bad |= records["chunk_id"] != table.chunk_id[rows]
        bad |= records["timestamp_ms"] != table.timestamp_ms[rows]
        bad |= records["epoch"] != table.epoch[rows]
        bad |= records["chunk_type"] != table.type[rows]
        inner = slice(0, len(rows) - (len(rows) > 0 and int(rows[-1]) + 1 == len(table)))
        bad[inner] |= (table.chunk_id[rows] + headers.num_records)[inner] != table.chunk_id[rows[inner] + 1]
        if self._seal is not None:
            self._check_seal(self._seal, headers, rows, bad)
        return bad

    @staticmethod
    def _check_seal(seal: Seal, headers: f.ChunkHeaders, rows: NDArray[np.int64], bad: NDArray[np.bool_]) -> None:
        """Mark in `bad` the headers that changed since the segment was sealed."""
        # With a bad header the place of its Bloom filter is not known.
        fine = np.flatnonzero(~bad) if bad.any() else slice(None)
        starts, lengths, expected = headers.starts[fine], headers.front_lengths[fine], seal.header_crcs[rows][fine]
        if first_mismatch(headers.data, starts, lengths, expected, only_loaded=True) is not None:
            bad[fine] = crcs_of_ranges(headers.data, starts, lengths) != expected

    def contradiction(self, headers: f.ChunkHeaders, table: ChunkTable, row: int, number: int) -> CorruptChunkError:
        """The error for a header that `contradicted` marked: its number in `headers`, and its row in the table."""
        record, position = headers.records[number], int(table.position[row])
        said = table.record(row)
        names = ("chunk_id", "timestamp_ms", "epoch", "chunk_type")
        chunk_id, timestamp_ms, epoch, chunk_type = (int(record[name]) for name in names)
        found = f.IndexRecord(chunk_id, timestamp_ms, epoch, position, chunk_type)
        if found != said:
            reason = f"the header of a chunk contradicts index record {row}: found {found}, the index says {said}"
        elif self._seal is not None:
            reason = f"header or Bloom filter of chunk {said.chunk_id} is not what it was when the segment was sealed"
        else:
            reason = (
                f"the header of chunk {said.chunk_id} contradicts the index: {headers.size_bytes[number]} bytes with "
                f"{record['num_records']} records do not end where the next chunk begins"
            )
        return CorruptChunkError(f"{reason}; {HELP}", path=self.place, position=position)

    def _copied_headers(self, positions: NDArray[np.int64], size: int) -> f.ChunkHeaders:
        count = len(positions)
        copies = np.zeros(count * _STAGE1_BYTES, dtype=np.uint8)
        rows = copies.view(_STAGE1_DTYPE)
        done = 0
        while done < count:
            base = int(positions[done])
            stop = int(np.searchsorted(positions, base + _WINDOW_BYTES - _STAGE1_BYTES, side="right"))
            if stop - done >= _DENSE_ROWS:
                last = int(positions[stop - 1])
                window = self._fill(base, min(last + _STAGE1_BYTES, size) - base, spare=_STAGE1_BYTES)
                rows[done:stop] = f.windows(window, _STAGE1_DTYPE)[positions[done:stop] - base]
            else:
                for row in range(done, stop):
                    target = copies.data[row * _STAGE1_BYTES : (row + 1) * _STAGE1_BYTES]
                    os.preadv(self._fd, [target], int(positions[row]))
            done = stop
        starts = np.arange(count, dtype=np.int64) * _STAGE1_BYTES
        return f.decode_headers(copies, starts)

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes `start … stop` of the segment file and SLACK_BYTES more readable ones: `(stop - start + 8,)` uint8.

        A view of the mapping, or of a buffer that the next `read` or `headers` overwrites: copy what you keep. Raises
        CorruptChunkError if the file ends before `stop`, RemoteStorageError, ValueError for an invalid range.
        """
        if not 0 <= start <= stop:
            raise ValueError(f"no byte range: {start} … {stop}")
        if self._remote is not None:
            self._remote.make_present(start, stop)
        # Taken once: another thread may map further meanwhile.
        mapping = self._mapping
        if mapping is not None and stop + f.SLACK_BYTES <= len(mapping):
            self._use(start, stop)
            return mapping[start : stop + f.SLACK_BYTES]
        size = os.fstat(self._fd).st_size
        if stop > size:
            raise self._ends_early(stop, size)
        return self._fill(start, stop - start, spare=f.SLACK_BYTES)

    def gather(
        self, positions: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The byte ranges `positions[i] … stops[i]`, ascending: a buffer, and the start of each range in it.

        SLACK_BYTES more bytes after the last range are readable. The buffer is the mapping, or a buffer that the next
        call of any method overwrites; adjacent ranges are read at once. Raises as `read`.
        """
        if self._remote is not None:
            self._remote.make_ranges_present(positions, stops)
        mapping = self._mapping
        if mapping is not None and (not len(stops) or int(stops[-1]) + f.SLACK_BYTES <= len(mapping)):
            if len(stops):
                self._use(int(positions[0]), int(stops[-1]), int((stops - positions).sum()))
            return mapping, positions
        if not len(stops):
            return self._reserve(f.SLACK_BYTES)[: f.SLACK_BYTES], positions
        if len(stops) == 1:
            # Live traffic: the columns below cost more than the read.
            return self.read(int(positions[0]), int(stops[0])), np.zeros(1, dtype=np.int64)
        sizes = stops - positions
        targets = np.cumsum(sizes) - sizes
        total = int(sizes.sum())
        file_size = os.fstat(self._fd).st_size
        if int(stops[-1]) > file_size:
            raise self._ends_early(int(stops[-1]), file_size)
        buffer = self._reserve(total + f.SLACK_BYTES)
        begins = np.flatnonzero(np.append(True, positions[1:] != stops[:-1]))
        ends = np.append(begins[1:], len(stops)) - 1
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            start, stop, target = int(positions[begin]), int(stops[end]), int(targets[begin])
            self._read_into(buffer, target, start, stop - start)
        return buffer[: total + f.SLACK_BYTES], targets

    def _reserve(self, count: int) -> NDArray[np.uint8]:
        """A buffer of at least `count` bytes: the reusable one, or a new one."""
        if self._allocate is not None:
            return self._allocate(count)
        if len(self._buffer) < count:
            self._buffer = np.empty(max(count, min(2 * len(self._buffer), 1 << 26)), dtype=np.uint8)
        return self._buffer

    def _read_into(self, buffer: NDArray[np.uint8], target: int, start: int, count: int) -> None:
        """Read `count` bytes of the file from byte `start` into a buffer at `target`."""
        view = buffer.data[target : target + count]
        done = 0
        while done < count:
            read = os.preadv(self._fd, [view[done:]], start + done)
            if read == 0:
                raise self._ends_early(start + count, start + done)
            done += read

    def _fill(self, start: int, count: int, *, spare: int) -> NDArray[np.uint8]:
        """Bytes of the file in a buffer, followed by `spare` arbitrary bytes."""
        buffer = self._reserve(count + spare)
        self._read_into(buffer, 0, start, count)
        return buffer[: count + spare]

    def _ends_early(self, wanted: int, size: int) -> CorruptChunkError:
        return CorruptChunkError(
            f"the file ends at byte {size}, inside a chunk that reaches to byte {wanted} or further",
            path=self.place,
            position=size,
        )


def _open_pair(index_path: Path, segment_path: Path) -> tuple[int, int]:
    """Descriptors of the index and the segment file. Raises FileNotFoundError if one of them is missing."""
    index_fd = os.open(index_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return index_fd, os.open(segment_path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        os.close(index_fd)
        raise


def memory_of(array: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """The array that owns the memory of a view; None for a mapped segment, which needs no memory of the process."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    source = array.base.obj if isinstance(array.base, memoryview) else array.base
    return None if isinstance(source, mmap.mmap) else array
