"""Reading one segment: its index as a table of chunks, chunk headers for stage 1, and the bytes of chunks.

A chunk exists for readers when its complete 29-byte index record does; no segment byte behind the last one is handed
out. Segments that another process may still cut (the newest one, and all of a foreign folder) are read with pread into
buffers; sealed segments of our own folders are mapped, the newest one on demand if a recovery would not cut it
(`map_to`): a mapping of a file that is truncated kills.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, OffsetOutOfRangeError
from headgate.log.checksums import crc_of_range
from headgate.log.format import (
    CHUNK_HEADER_BYTES,
    FILE_HEAD_BYTES,
    INDEX_DTYPE,
    INDEX_HEAD,
    INDEX_RECORD_BYTES,
    MAX_BLOOM_BYTES,
    SEGMENT_HEAD,
    SLACK_BYTES,
    ChunkHeader,
    ChunkHeaders,
    ChunkType,
    decode_headers,
    index_name,
    segment_name,
    windows,
)
from headgate.log.table import ChunkTable, GrowingTable

_WINDOW_BYTES = 1 << 20
_DENSE_ROWS = 32
"""From this many headers in a window on, one read of the window is cheaper than a read per header."""

_PAGE_BYTES = mmap.PAGESIZE
_STAGE1_BYTES = CHUNK_HEADER_BYTES + MAX_BLOOM_BYTES
_STAGE1_DTYPE = np.dtype(f"V{_STAGE1_BYTES}")

Allocate = Callable[[int], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Segment:
    """One pair of files of a stream folder, as found when the folder was listed. Picklable.

    `first_chunk_id` names it; `is_newest` segments may grow; `is_own` is of our own folder; `mappable` ones are sealed,
    too.
    """

    folder: Path
    first_chunk_id: int
    is_newest: bool
    is_own: bool
    mappable: bool

    @property
    def segment_path(self) -> Path:
        """The file with the chunks."""
        return self.folder / segment_name(self.first_chunk_id)

    @property
    def index_path(self) -> Path:
        """The file with one record per chunk."""
        return self.folder / index_name(self.first_chunk_id)

    def open(self, *, allocate: Allocate | None = None) -> SegmentReader:
        """A reader of this segment; raises OffsetOutOfRangeError if retention deleted it since it was listed.

        With `allocate`, which gives a buffer of at least so many bytes, what is read lies in a buffer of its own each
        time and stays valid; then several threads may read at once, while one refreshes the table.
        """
        return SegmentReader(self, allocate=allocate)


class SegmentReader:
    """Reads one segment, beside a writer in any process.

    Without `allocate` (`Segment.open`) `read` reuses its buffer: then it is not for several threads at once.
    """

    def __init__(self, segment: Segment, *, allocate: Allocate | None = None) -> None:
        self.segment = segment
        self.path = segment.segment_path
        self._index_path = segment.index_path
        self._allocate = allocate
        try:
            self._index_fd, self._fd = _open_pair(self._index_path, self.path)
        except FileNotFoundError as error:
            raise OffsetOutOfRangeError(
                f"the segment that begins at offset {segment.first_chunk_id} is gone; retention deleted it",
                path=self.path,
            ) from error
        self._mapping: NDArray[np.uint8] | None = None
        self._buffer = np.empty(0, dtype=np.uint8)
        self._rows = GrowingTable(ChunkTable.of(np.empty(0, dtype=INDEX_DTYPE)))
        self._loaded = False
        self._extent: tuple[int, int, int] | None = None
        try:
            self._check_head(self._index_fd, self._index_path, INDEX_HEAD)
            self._check_head(self._fd, self.path, SEGMENT_HEAD)
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
        """Give the files back. Views of a mapped segment stay valid as long as they are referenced."""
        for descriptor in (self._index_fd, self._fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._index_fd = self._fd = -1
        self._mapping = None

    @staticmethod
    def _check_head(descriptor: int, path: Path, expected: bytes) -> None:
        found = os.pread(descriptor, FILE_HEAD_BYTES, 0)
        if found != expected:
            raise CorruptChunkError(
                f"file head is {found.hex(' ') or 'missing'}, expected {expected.hex(' ')}", path=path, position=0
            )

    def _map(self) -> None:
        size = os.fstat(self._fd).st_size
        mapping = np.frombuffer(mmap.mmap(self._fd, size, prot=mmap.PROT_READ), dtype=np.uint8)
        # Of a file that may still be cut, what lies behind its last chunk could go.
        self._mapping = mapping if self.segment.mappable else mapping[: self.stop_position]

    def map_to(self, stop: int) -> int:
        """Map what is there of a segment of our own, if `stop` is not mapped yet; gives the byte up to which it is.

        What is read up to that byte is a view then, in the newest segment all but its last chunk; 0 where nothing may
        be mapped. A recovery cuts the last segment only if its last chunk does not check, so that is looked at first:
        some 0.1 ms.
        """
        mapped = 0 if self._mapping is None else len(self._mapping)
        if mapped < stop + SLACK_BYTES and self.segment.is_own:
            has_grown = self.stop_position > mapped
            if has_grown and (self.segment.mappable or self._ends_well()):
                self._map()
        return 0 if self._mapping is None else max(0, len(self._mapping) - SLACK_BYTES)

    def is_mapped(self, stop: int) -> bool:
        """Whether what is read up to that byte is a view of the file."""
        return self._mapping is not None and stop + SLACK_BYTES <= len(self._mapping)

    def _ends_well(self) -> bool:
        table = self.chunks()
        if not len(table):
            return False
        header = self.header(len(table) - 1)
        start = int(table.position[-1]) + CHUNK_HEADER_BYTES + header.bloom_length
        return crc_of_range(self._fd, start, header.data_length) == header.crc

    def make_present(self, start: int, stop: int) -> None:
        """Bring a part of a mapped file into memory now, so that who takes its bytes later does not wait for a disk."""
        if self._mapping is not None and stop > start:
            self._mapping[start:stop:_PAGE_BYTES].max()

    # the index

    def chunks(self, *, refresh: bool = False) -> ChunkTable:
        """The table of the chunks that exist, read once; with `refresh`, chunks written since are added.

        Left out at the end are an incomplete record, zero records and records that point behind the segment's end: what
        a crash leaves. Raises CorruptChunkError for records out of order.
        """
        if self._loaded and not (refresh and (self.segment.is_newest or not self.segment.mappable)):
            return self._rows.table
        found = os.fstat(self._index_fd)
        if not found.st_nlink and not len(self._rows.table):
            found = self._follow_recovery()
        complete = max(0, found.st_size - FILE_HEAD_BYTES) // INDEX_RECORD_BYTES
        if complete < len(self._rows.table):
            self._rows = GrowingTable(ChunkTable.of(np.empty(0, dtype=INDEX_DTYPE)))
        known = len(self._rows.table)
        if complete > known:
            raw = _pread_all(
                self._index_fd,
                (complete - known) * INDEX_RECORD_BYTES,
                FILE_HEAD_BYTES + known * INDEX_RECORD_BYTES,
            )
            records = np.frombuffer(raw, dtype=INDEX_DTYPE, count=len(raw) // INDEX_RECORD_BYTES)
            segment_size = os.fstat(self._fd).st_size
            leftover = (records["position"] < FILE_HEAD_BYTES) | (
                records["position"].astype(np.int64) + CHUNK_HEADER_BYTES > segment_size
            )
            if leftover.any():
                records = records[: int(np.argmax(leftover))]
            more = ChunkTable.of(records)
            self._check_order(more, known)
            if known:
                self._rows.extend(more)
            else:
                self._rows = GrowingTable(more)
        self._loaded = True
        return self._rows.table

    def _follow_recovery(self) -> os.stat_result:
        """A recovery deletes a newest pair without a chunk, and a writer makes it again: go on with the new files."""
        try:
            opened = _open_pair(self._index_path, self.path)
        except FileNotFoundError:
            return os.fstat(self._index_fd)
        for descriptor in (self._index_fd, self._fd):
            os.close(descriptor)
        self._index_fd, self._fd = opened
        return os.fstat(self._index_fd)

    def _check_order(self, more: ChunkTable, known: int) -> None:
        if not len(more):
            return
        if known:
            previous_id, previous_position = int(self._rows.table.chunk_id[-1]), int(self._rows.table.position[-1])
            first_is_right = more.chunk_id[0] > previous_id and more.position[0] > previous_position
        else:
            first_is_right = more.chunk_id[0] == self.segment.first_chunk_id and more.position[0] == FILE_HEAD_BYTES
        bad = np.zeros(len(more), dtype=np.bool_)
        bad[0] = not first_is_right
        bad[1:] = (np.diff(more.chunk_id) <= 0) | (np.diff(more.position) < CHUNK_HEADER_BYTES)
        bad |= more.type > ChunkType.TRACKING_SNAPSHOT
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptChunkError(
                f"index record {known + row} is out of order: chunk id {more.chunk_id[row]}, "
                f"position {more.position[row]}, type {more.type[row]}",
                path=self._index_path,
                position=FILE_HEAD_BYTES + (known + row) * INDEX_RECORD_BYTES,
            )

    def extent(self, table: ChunkTable) -> tuple[int, int, int]:
        """Rows of a table that `chunks` gave, byte behind its last chunk, offset behind its last record."""
        extent = self._extent
        if extent is None or extent[0] != len(table):
            if len(table):
                header = self.header(len(table) - 1)
                extent = (len(table), int(table.position[-1]) + header.size_bytes, header.next_chunk_id)
            else:
                extent = (0, FILE_HEAD_BYTES, self.segment.first_chunk_id)
            self._extent = extent
        return extent

    @property
    def stop_position(self) -> int:
        """The byte behind the last chunk of the table."""
        return self.extent(self.chunks())[1]

    @property
    def next_chunk_id(self) -> int:
        """The offset behind the last record of the table; the segment's own first chunk id if it is empty."""
        return self.extent(self.chunks())[2]

    def stop_positions(self, start_row: int = 0, stop_row: int | None = None) -> NDArray[np.int64]:
        """Per row of the table, or of a part of it, the byte behind the chunk."""
        table = self.chunks()
        if stop_row is not None and stop_row < len(table):
            return table.position[start_row + 1 : stop_row + 1]
        last = [self.extent(table)[1]] if len(table) > start_row else []
        return np.append(table.position[start_row + 1 :], last)

    def next_chunk_ids(self) -> NDArray[np.int64]:
        """Per row of the table the offset behind the chunk."""
        table = self.chunks()
        return np.append(table.chunk_id[1:], [self.extent(table)[2]] if len(table) else [])

    # the segment

    def header(self, row: int) -> ChunkHeader:
        """The header of one row of the table, checked against the table and the end of the file."""
        table = self.chunks()
        position = int(table.position[row])
        path = self.path
        header = ChunkHeader.decode(
            os.pread(self._fd, CHUNK_HEADER_BYTES, position),
            path=path,
            position=position,
        )
        stop = int(table.position[row + 1]) if 0 <= row < len(table) - 1 else os.fstat(self._fd).st_size
        exact = 0 <= row < len(table) - 1
        size = header.size_bytes
        if header.chunk_id != table.chunk_id[row]:
            raise CorruptChunkError(
                f"chunk id is {header.chunk_id}, the index says {table.chunk_id[row]}", path=path, position=position
            )
        if position + size > stop or (exact and position + size != stop):
            raise CorruptChunkError(
                f"chunk of {size} bytes does not end where the next one begins or the file ends (byte {stop})",
                path=path,
                position=position,
            )
        return header

    def headers(self, start_row: int, stop_row: int) -> ChunkHeaders:
        """Headers and Bloom bytes of rows of the table, for stage 1, checked against the table.

        From a mapped segment a view (5 M headers/s and more); else copied, 303 bytes of memory per row: ask for some
        ten thousand rows at a time. Raises CorruptChunkError for a header that is none or contradicts the index.
        """
        table = self.chunks()
        positions = table.position[start_row:stop_row]
        mapping = self._mapping
        is_sealed = mapping is not None and self.segment.mappable
        size = len(mapping) if mapping is not None and is_sealed else os.fstat(self._fd).st_size
        last = int(positions[-1]) if len(positions) else 0
        if is_sealed and len(positions) and last + CHUNK_HEADER_BYTES > size:
            raise self._ends_early(last, size)
        if mapping is not None and (is_sealed or last + _STAGE1_BYTES <= len(mapping)):
            found = decode_headers(mapping, positions)
        else:
            found = self._copied_headers(positions, size)
        found.check(path=self.path, positions=positions)
        ends = np.empty(len(positions), dtype=np.int64)
        following = table.position[start_row + 1 : stop_row + 1]
        ends[: len(following)] = following
        bad = positions + found.size_bytes != ends
        if len(following) < len(positions):
            bad[-1] = int(positions[-1] + found.size_bytes[-1]) > size
        bad |= found.records["chunk_id"] != table.chunk_id[start_row:stop_row]
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptChunkError(
                f"header of chunk {table.chunk_id[start_row + row]} contradicts the index: chunk id "
                f"{found.records['chunk_id'][row]}, {found.size_bytes[row]} bytes",
                path=self.path,
                position=int(positions[row]),
            )
        return found

    def _copied_headers(self, positions: NDArray[np.int64], size: int) -> ChunkHeaders:
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
                rows[done:stop] = windows(window, _STAGE1_DTYPE)[positions[done:stop] - base]
            else:
                for row in range(done, stop):
                    target = copies.data[row * _STAGE1_BYTES : (row + 1) * _STAGE1_BYTES]
                    os.preadv(self._fd, [target], int(positions[row]))
            done = stop
        starts = np.arange(count, dtype=np.int64) * _STAGE1_BYTES
        return decode_headers(copies, starts)

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes `start … stop` of the segment file and SLACK_BYTES more readable ones: `(stop - start + 8,)` uint8.

        A view of the mapping, or of a buffer that the next `read` or `headers` overwrites: copy what you keep. Raises
        CorruptChunkError if the file ends before `stop`, ValueError for a range that is none.
        """
        if not 0 <= start <= stop:
            raise ValueError(f"no byte range: {start} … {stop}")
        if self._mapping is not None and self.is_mapped(stop):
            return self._mapping[start : stop + SLACK_BYTES]
        size = os.fstat(self._fd).st_size
        if stop > size:
            raise self._ends_early(stop, size)
        return self._fill(start, stop - start, spare=SLACK_BYTES)

    def gather(
        self, positions: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The byte ranges `positions[i] … stops[i]`, ascending: a buffer, and where each range starts in it.

        Behind the last range lie SLACK_BYTES more readable ones. The buffer is the mapping, or one that the next call
        of any method overwrites; ranges that touch are read at once. Errors as in `read`.
        """
        if self._mapping is not None and (not len(stops) or self.is_mapped(int(stops[-1]))):
            return self._mapping, positions
        if not len(stops):
            return self._reserve(SLACK_BYTES)[:SLACK_BYTES], positions
        sizes = stops - positions
        targets = np.cumsum(sizes) - sizes
        total = int(sizes.sum())
        file_size = os.fstat(self._fd).st_size
        if int(stops[-1]) > file_size:
            raise self._ends_early(int(stops[-1]), file_size)
        buffer = self._reserve(total + SLACK_BYTES)
        begins = np.flatnonzero(np.append(True, positions[1:] != stops[:-1]))
        ends = np.append(begins[1:], len(stops)) - 1
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            start, stop, target = int(positions[begin]), int(stops[end]), int(targets[begin])
            self._read_into(buffer, target, start, stop - start)
        return buffer[: total + SLACK_BYTES], targets

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
        """Bytes of the file in a buffer, with `spare` bytes of anything behind them."""
        buffer = self._reserve(count + spare)
        self._read_into(buffer, 0, start, count)
        return buffer[: count + spare]

    def _ends_early(self, wanted: int, size: int) -> CorruptChunkError:
        return CorruptChunkError(
            f"the file ends at byte {size}, inside a chunk that reaches to byte {wanted} or further",
            path=self.path,
            position=size,
        )


def _open_pair(index_path: Path, segment_path: Path) -> tuple[int, int]:
    """Descriptors of the index and the segment file; FileNotFoundError if one of them is not there."""
    index_fd = os.open(index_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return index_fd, os.open(segment_path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        os.close(index_fd)
        raise


def _pread_all(descriptor: int, count: int, position: int) -> bytes:
    parts = []
    while count > 0:
        part = os.pread(descriptor, count, position)
        if not part:
            break
        parts.append(part)
        position += len(part)
        count -= len(part)
    return b"".join(parts)


def memory_of(array: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """The array whose memory another one is a view of; None for bytes of a mapped segment, which hold no memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    source = array.base.obj if isinstance(array.base, memoryview) else array.base
    return None if isinstance(source, mmap.mmap) else array
