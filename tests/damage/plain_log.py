"""A reader of stream folders that shares nothing with Headgate: osiris_log.md, sections 1 to 5 and 9, over whole bytes.

What it says of undamaged files is the truth that every reader is held against.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

INDEX_RECORD = struct.Struct(">QqQIB")
CHUNK_HEADER = struct.Struct(">BBHIqQQIIIB3x")
FILE_HEAD_BYTES = 8

AMER = b"AMER"
_AMER_HASH, _AMER_LIST_HASH = 2353170298, 3721954965
"""The check values of the format's description for the filter value `AMER`: of the value, and of a list of it."""

Row = tuple[int, int, bytes]
"""A message as readers give it: offset, time in milliseconds, encoded message."""


@dataclass(frozen=True)
class PlainChunk:
    """One chunk and where it lies; `index_time_ms` is the time in its index record."""

    stem: str
    number: int
    position: int
    chunk_type: int
    num_records: int
    time_ms: int
    index_time_ms: int
    chunk_id: int
    bloom: bytes
    data: bytes
    trailer: bytes

    @property
    def bloom_at(self) -> int:
        return self.position + CHUNK_HEADER.size

    @property
    def data_at(self) -> int:
        return self.bloom_at + len(self.bloom)

    @property
    def trailer_at(self) -> int:
        return self.data_at + len(self.data)

    @property
    def end(self) -> int:
        return self.trailer_at + len(self.trailer)

    @property
    def entries(self) -> Iterator[bytes]:
        """Of a user chunk, with their heads."""
        at = 0
        while at < len(self.data):
            is_packed = bool(self.data[at] & 0x80)
            (length,) = struct.unpack_from(">I", self.data, at + 7 if is_packed else at)
            stop = at + length + (11 if is_packed else 4)
            yield self.data[at:stop]
            at = stop

    @property
    def messages(self) -> Iterator[bytes]:
        """Of a user chunk."""
        for entry in self.entries:
            if not entry[0] & 0x80:
                yield entry[4:]
                continue
            content = entry[11:] if entry[0] == 0x80 else zlib.decompress(entry[11:], wbits=31)
            at = 0
            while at < len(content):
                (length,) = struct.unpack_from(">I", content, at)
                yield content[at + 4 : at + 4 + length]
                at += 4 + length

    @property
    def is_packed(self) -> bool:
        """Whether some of its messages lie in sub-batches."""
        return sum(1 for _ in self.entries) < self.num_records

    def may_hold_amer(self) -> bool:
        """Stage 1 for the filter value `AMER`."""
        if not self.bloom:
            return False
        bits = (hashed % (8 * len(self.bloom) - 1) + 1 for hashed in (_AMER_HASH, _AMER_LIST_HASH))
        return all(self.bloom[bit // 8] & 0x80 >> bit % 8 for bit in bits)


def stems(files: Mapping[str, bytes]) -> list[str]:
    """The pairs of a folder, oldest first."""
    return sorted(name[:20] for name in files if name.endswith(".index"))


def read_chunks(files: Mapping[str, bytes]) -> list[PlainChunk]:
    """Every chunk of an undamaged folder, in order."""
    chunks: list[PlainChunk] = []
    for stem in stems(files):
        index, segment = files[f"{stem}.index"], files[f"{stem}.segment"]
        for number, at in enumerate(range(FILE_HEAD_BYTES, len(index), INDEX_RECORD.size)):
            index_id, index_time, _, position, index_type = INDEX_RECORD.unpack_from(index, at)
            header = CHUNK_HEADER.unpack_from(segment, position)
            magic, kind, _, records, time_ms, _, chunk_id, crc, data_length, trailer_length, bloom_length = header
            data_at = position + CHUNK_HEADER.size + bloom_length
            data = segment[data_at : data_at + data_length]
            trailer = segment[data_at + data_length : data_at + data_length + trailer_length]
            assert (magic, chunk_id, kind, zlib.crc32(data)) == (0x50, index_id, index_type, crc)
            bloom = segment[position + CHUNK_HEADER.size : data_at]
            chunks.append(
                PlainChunk(stem, number, position, kind, records, time_ms, index_time, chunk_id, bloom, data, trailer)
            )
    return chunks


@dataclass(frozen=True)
class Request:
    """What a reader is asked: where to begin, and what to leave out."""

    start: str = "first"
    """`first`, `last`, `next`, `offset` or `time`; the last two with a value."""
    value: int = 0
    only_amer_chunks: bool = False
    """Stage 1: the filter value `AMER`."""
    only_amer: bool = False
    """Stage 2: `region = 'AMER'`."""

    def __str__(self) -> str:
        begin = f"{self.start} {self.value}" if self.start in ("offset", "time") else self.start
        return f"from {begin}{', value AMER' * self.only_amer_chunks}{', filter AMER' * self.only_amer}"


def expected(
    chunks: list[PlainChunk],
    request: Request,
    *,
    is_amer: Callable[[bytes], bool],
    is_declared: Callable[[PlainChunk], bool],
) -> list[Row]:
    """What a reader gives for a request; `is_declared`: a filter may leave out the chunk by its filter values."""
    row, offset = _begin(chunks, request)
    found: list[Row] = []
    for chunk in chunks[row:]:
        if chunk.chunk_type != 0:
            continue
        is_tested = request.only_amer_chunks or (request.only_amer and is_declared(chunk))
        if is_tested and not chunk.may_hold_amer():
            continue
        for number, message in enumerate(chunk.messages):
            if chunk.chunk_id + number >= offset and (not request.only_amer or is_amer(message)):
                found.append((chunk.chunk_id + number, chunk.time_ms, message))
    return found


def _begin(chunks: list[PlainChunk], request: Request) -> tuple[int, int]:
    """The row of the chunk that a reader begins with, and the first offset that it wants."""
    behind = len(chunks), 0
    if request.start == "next" or not chunks:
        return behind
    if request.start == "first":
        return 0, 0
    if request.start == "last":
        users = [row for row, chunk in enumerate(chunks) if chunk.chunk_type == 0]
        return (users[-1], 0) if users else behind
    if request.start == "offset":
        if request.value >= chunks[-1].chunk_id + chunks[-1].num_records:
            return behind
        rows = [row for row, chunk in enumerate(chunks) if chunk.chunk_id <= request.value]
        return (rows[-1] if rows else 0), request.value
    firsts = [row for row, chunk in enumerate(chunks) if chunk.number == 0]
    for place in range(len(firsts) - 1, -1, -1):
        stop = firsts[place + 1] if place + 1 < len(firsts) else len(chunks)
        if chunks[firsts[place]].index_time_ms <= request.value:
            late = [row for row in range(firsts[place], stop) if chunks[row].index_time_ms >= request.value]
            return (late[0] if late else stop), 0
    return 0, 0


Tracked = dict[tuple[int, bytes], int]
"""What a stream keeps: by kind (0: sequence of a publisher, 1: offset of a consumer) and name."""


def tracking(chunks: Iterable[PlainChunk]) -> Tracked:
    """The bookkeeping in the last segment."""
    chunks = list(chunks)
    state: Tracked = {}
    for chunk in chunks:
        if chunk.stem != chunks[-1].stem:
            continue
        if chunk.chunk_type == 2:
            state = _records(chunk.data[4:], in_snapshot=True)
        elif chunk.chunk_type == 1:
            state |= _records(chunk.data[4:], in_snapshot=False)
        state |= _records(chunk.trailer, in_snapshot=False)
    return state


def _records(data: bytes, *, in_snapshot: bool) -> Tracked:
    found: Tracked = {}
    at = 0
    while at < len(data):
        kind, length = data[at], data[at + 1]
        name = data[at + 2 : at + 2 + length]
        at += 2 + length + (8 if in_snapshot and kind == 0 else 0)
        found[kind, name] = int.from_bytes(data[at : at + 8], "big")
        at += 8
    return found


def with_unchecked_bytes(
    chunks: list[PlainChunk], damaged: Mapping[str, bytes], is_unchecked: Callable[[PlainChunk], bool]
) -> list[PlainChunk]:
    """The chunks as damaged files say them where nothing could tell: filter, times and trailers of some chunks."""
    changed = []
    for chunk in chunks:
        segment, index = damaged.get(f"{chunk.stem}.segment", b""), damaged.get(f"{chunk.stem}.index", b"")
        record_at = FILE_HEAD_BYTES + chunk.number * INDEX_RECORD.size
        if is_unchecked(chunk) and len(segment) >= chunk.end:
            chunk = replace(
                chunk,
                time_ms=int.from_bytes(segment[chunk.position + 8 : chunk.position + 16], "big", signed=True),
                bloom=segment[chunk.bloom_at : chunk.data_at],
                trailer=segment[chunk.trailer_at : chunk.end],
            )
        if is_unchecked(chunk) and len(index) >= record_at + INDEX_RECORD.size:
            chunk = replace(chunk, index_time_ms=INDEX_RECORD.unpack_from(index, record_at)[1])
        changed.append(chunk)
    return changed
