"""The bytes of a stream on disk: file heads, index records, chunk headers. Pure: bytes in, values out, no files.

Source: osiris_log.md sections 1 to 3 (the log of RabbitMQ 4.3). All integers are big endian.

A stream is a folder of pairs of files named by the first chunk id in 20 decimal digits:

    00000000000000000000.segment   00000000000000000000.index
    00000000000000027428.segment   00000000000000027428.index

Segment = head `OSIL` 00 00 00 01, then chunks without gaps. Index = head `OSII` 00 00 00 01, then one record per chunk.

    Index record, 29 bytes
     0       8       16      24   28
    +-------+-------+-------+----+-+
    | chunk | time  | epoch | po |t|      chunk u64, time s64 ms, epoch u64, position of the header in the segment u32,
    +-------+-------+-------+----+-+      chunk type u8

    Chunk header, 48 bytes
     0  1  2    4      8         16        24        32    36    40    44 45  48
    +--+--+----+------+---------+---------+---------+-----+-----+-----+--+---+ . . . . +- - - -+ . . . . . +
    |50| t| n  | r    | time    | epoch   | chunk   | crc | D   | T   | B|000| Bloom B | data D | trailer T |
    +--+--+----+------+---------+---------+---------+-----+-----+-----+--+---+ . . . . +- - - -+ . . . . . +
    50     magic 5, version 0
    t      chunk type: 0 user, 1 tracking delta, 2 tracking snapshot
    n      u16 entries; a sub-batch is one entry
    r      u32 records = offsets used
    time   s64 ms, the writer's clock
    epoch  u64 term of the writer
    chunk  u64 chunk id = offset of the first record
    crc    u32 CRC-32 (zlib) of the data part only
    D T    u32 lengths of data and trailer
    B      u8 length of the Bloom bytes: 0, or the stream's filter size

    Entries in the data part
    +----+ . . . . +                    u32 with top bit 0 = length, then the body
    +-+--+----+----+ . . . . +          sub-batch: 1ccc0000, u16 records, u32 uncompressed length, u32 length, body;
                                        ccc: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd

    Tracking record (trailer, and body of the one entry of a delta)
    +-+-+ . . +--------+                u8 kind, u8 id length, id, u64 value; kinds: 0 publisher sequence, 1 consumer
                                        offset, 2 timestamp. In a snapshot kind 0 has two: u64 chunk id, u64 sequence
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError

SEGMENT_HEAD = b"OSIL\x00\x00\x00\x01"
INDEX_HEAD = b"OSII\x00\x00\x00\x01"
FILE_HEAD_BYTES = 8
INDEX_RECORD_BYTES = 29
CHUNK_HEADER_BYTES = 48
CHUNK_MAGIC = 0x50
"""First byte of a chunk: magic 5 in the high nibble, version 0 in the low one."""

SUB_BATCH_HEAD_BYTES = 11
ENTRY_HEAD_BYTES = 4
MAX_ENTRY_BYTES = 2**31 - 1
MAX_CHUNK_ENTRIES = 2**16 - 1
MAX_BLOOM_BYTES = 255
SLACK_BYTES = 8
"""Readable bytes after the last requested byte in every buffer that a reader of this package returns."""

_HEADER = struct.Struct(">BBHIqQQIIIB3x")
_STAMP, _STAMP_AT = struct.Struct(">qQQ"), 8
"""The part of a header that a writer decides: time, epoch and chunk id."""
_SUB_BATCH_HEAD = struct.Struct(">BHII")
_SUB_BATCH_BIT = 0x80
_INDEX_RECORD = struct.Struct(">QqQIB")

HEADER_DTYPE = np.dtype(
    [
        ("magic", "u1"),
        ("chunk_type", "u1"),
        ("num_entries", ">u2"),
        ("num_records", ">u4"),
        ("timestamp_ms", ">i8"),
        ("epoch", ">i8"),
        ("chunk_id", ">i8"),
        ("crc", ">u4"),
        ("data_length", ">u4"),
        ("trailer_length", ">u4"),
        ("bloom_length", "u1"),
        ("reserved", "V3"),
    ]
)
"""A chunk header as a numpy record; epoch and chunk id are read signed, a negative one is refused as corrupt."""

_OPAQUE_HEADER = np.dtype(f"V{CHUNK_HEADER_BYTES}")

INDEX_DTYPE = np.dtype(
    [("chunk_id", ">i8"), ("timestamp_ms", ">i8"), ("epoch", ">i8"), ("position", ">u4"), ("type", "u1")]
)
"""An index record as a numpy record."""


class ChunkType(IntEnum):
    """The content of a chunk; offset readers read only `USER` chunks."""

    USER = 0
    TRACKING_DELTA = 1
    TRACKING_SNAPSHOT = 2


class Compression(IntEnum):
    """Codec of a sub-batch; snappy and lz4 in their framed formats."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def encode_sub_batch_head(compression: int, num_records: int, uncompressed_length: int, length: int) -> bytes:
    """The 11 bytes before the body of a sub-batch; lengths in bytes."""
    return _SUB_BATCH_HEAD.pack(_SUB_BATCH_BIT | compression << 4, num_records, uncompressed_length, length)


def decode_sub_batch_head(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int, int, int]:
    """The arguments of `encode_sub_batch_head` that made the 11 bytes at `position` of `data`."""
    first, num_records, uncompressed_length, length = _SUB_BATCH_HEAD.unpack_from(data, position)
    return first >> 4 & 7, num_records, uncompressed_length, length


class ChunkHeader(msgspec.Struct):
    """The 48 bytes before a chunk's Bloom bytes; lengths in bytes, `timestamp_ms` since 1970."""

    chunk_type: int
    num_entries: int
    num_records: int
    timestamp_ms: int
    epoch: int
    chunk_id: int
    crc: int
    data_length: int
    trailer_length: int
    bloom_length: int

    @property
    def size_bytes(self) -> int:
        """Header, Bloom bytes, data and trailer together: the distance from this chunk to the next."""
        return CHUNK_HEADER_BYTES + self.bloom_length + self.data_length + self.trailer_length

    @property
    def tracking_length(self) -> int:
        """Bytes of the trailer that are tracking records; the trailer of a snapshot only fills room (`adoption.py`)."""
        return 0 if self.chunk_type == ChunkType.TRACKING_SNAPSHOT else self.trailer_length

    @property
    def next_chunk_id(self) -> int:
        """Offset after the last record."""
        return self.chunk_id + self.num_records

    def encode(self) -> bytes:
        """The 48 bytes."""
        return _HEADER.pack(
            CHUNK_MAGIC,
            self.chunk_type,
            self.num_entries,
            self.num_records,
            self.timestamp_ms,
            self.epoch,
            self.chunk_id,
            self.crc,
            self.data_length,
            self.trailer_length,
            self.bloom_length,
        )

    def stamp(self, data: memoryview, position: int, *, chunk_id: int, timestamp_ms: int, epoch: int) -> None:
        """Set id, time and epoch, here and in the encoded header at `position` of `data`."""
        self.chunk_id, self.timestamp_ms, self.epoch = chunk_id, timestamp_ms, epoch
        _STAMP.pack_into(data, position + _STAMP_AT, timestamp_ms, epoch, chunk_id)

    @staticmethod
    def decode(data: bytes | bytearray | memoryview, *, path: str | Path, position: int) -> ChunkHeader:
        """The header in the first 48 bytes of `data`; `path` and `position` name the place in errors.

        Raises CorruptChunkError for fewer bytes, another magic or version, an unknown type, or numbers beyond 63 bits.
        """
        if len(data) < CHUNK_HEADER_BYTES:
            raise CorruptChunkError(
                f"the file ends inside a chunk header ({len(data)} of {CHUNK_HEADER_BYTES} bytes)",
                path=path,
                position=position,
            )
        magic, *fields = _HEADER.unpack_from(data, 0)
        header = ChunkHeader(*fields)
        problem = _header_problem(magic, header.chunk_type, header.epoch >= 2**63 or header.chunk_id >= 2**63)
        if problem is not None:
            raise CorruptChunkError(problem, path=path, position=position)
        return header


def assemble_chunk(
    data: bytes,
    *,
    num_entries: int,
    num_records: int,
    bloom: bytes = b"",
    trailer: bytes = b"",
    chunk_type: ChunkType = ChunkType.USER,
    timestamp_ms: int = 0,
    epoch: int = 0,
    chunk_id: int = 0,
) -> tuple[ChunkHeader, bytes]:
    """The header of a chunk with these parts, and the bytes of the whole chunk; `data` are its encoded entries.

    The writer fills in time, epoch and chunk id where they are 0.
    """
    header = ChunkHeader(
        chunk_type=chunk_type,
        num_entries=num_entries,
        num_records=num_records,
        timestamp_ms=timestamp_ms,
        epoch=epoch,
        chunk_id=chunk_id,
        crc=zlib.crc32(data),
        data_length=len(data),
        trailer_length=len(trailer),
        bloom_length=len(bloom),
    )
    return header, b"".join((header.encode(), bloom, data, trailer))


def _header_problem(magic: int, chunk_type: int, beyond_63_bits: bool) -> str | None:
    if magic != CHUNK_MAGIC:
        return f"no chunk here: first byte is 0x{magic:02x}, expected 0x{CHUNK_MAGIC:02x} (magic 5, version 0)"
    if chunk_type > ChunkType.TRACKING_SNAPSHOT:
        return f"unknown chunk type {chunk_type}"
    if beyond_63_bits:
        return "chunk id or epoch beyond 63 bits"
    return None


class _Column:
    """A field of all headers `(chunks,)`, in native byte order."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, headers: ChunkHeaders, owner: type) -> NDArray[np.int64]:
        return headers.records[self._name].astype(np.int64)


@dataclass(slots=True)
class ChunkHeaders:
    """Many chunk headers as columns, with the positions of the Bloom bytes.

    `records` is `(chunks,)` of HEADER_DTYPE; `data` is the uint8 buffer that holds the Bloom bytes, those of chunk i at
    `bloom_positions[i] … + bloom_length[i]`. The columns below are computed when asked for, in native byte order.
    """

    records: NDArray[np.void]
    data: NDArray[np.uint8]
    bloom_positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Positions of the headers in `data`."""
        return self.bloom_positions - CHUNK_HEADER_BYTES

    @property
    def front_lengths(self) -> NDArray[np.int64]:
        """Bytes of header and Bloom filter together."""
        return CHUNK_HEADER_BYTES + self.bloom_length

    chunk_type = _Column("ChunkType of each chunk.")
    num_entries = _Column("Entries per chunk, a sub-batch counted as one.")
    num_records = _Column("Records per chunk = offsets it uses.")
    timestamp_ms = _Column("The writer's clock, milliseconds since 1970.")
    epoch = _Column("Term of the writer.")
    chunk_id = _Column("Offset of the first record.")
    crc = _Column("CRC-32 of the data part.")
    data_length = _Column("Bytes of the data part.")
    trailer_length = _Column("Bytes of the trailer.")
    bloom_length = _Column("Bytes of the Bloom filter, 0 for none.")

    @property
    def size_bytes(self) -> NDArray[np.int64]:
        """Whole chunks, header included."""
        return self.front_lengths + self.data_length + self.trailer_length

    def sound(self) -> NDArray[np.bool_]:
        """`(chunks,)`: which of the records are chunk headers at all."""
        records = self.records
        return np.asarray(
            (records["magic"] == CHUNK_MAGIC)
            & (records["chunk_type"] <= ChunkType.TRACKING_SNAPSHOT)
            & (records["epoch"] >= 0)
            & (records["chunk_id"] >= 0)
        )

    def check(self, *, path: str | Path, positions: NDArray[np.int64]) -> None:
        """Raises CorruptChunkError for the first bytes that are not a header; `positions` are their places."""
        sound = self.sound()
        if not sound.all():
            row = int(np.argmin(sound))
            record = self.records[row]
            problem = _header_problem(int(record["magic"]), int(record["chunk_type"]), beyond_63_bits=True)
            raise CorruptChunkError(problem or "", path=path, position=int(positions[row]))


def windows(data: NDArray[np.uint8], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """`data` seen as one record of `dtype` at every byte position, overlapping: index it with positions to gather.

    One copy of a whole record per position instead of one per byte. The result is a view; length is
    `len(data) - itemsize + 1`, so that numpy's own bounds check keeps every gather inside the buffer.
    """
    count = max(0, len(data) - dtype.itemsize + 1)
    return np.ndarray(shape=(count,), dtype=dtype, buffer=data, strides=(1,))


def decode_headers(data: NDArray[np.uint8], positions: NDArray[np.int64]) -> ChunkHeaders:
    """The chunk headers at `positions` of a contiguous buffer, gathered at once; only the bounds are checked.

    Raises IndexError for a header that is not inside `data`. Call `check` before using them.
    """
    if len(positions) == 1:
        # Live traffic: a gather of one row takes six times as long.
        start = int(positions[0])
        if not 0 <= start <= len(data) - CHUNK_HEADER_BYTES:
            raise IndexError(f"a chunk header at byte {start} of {len(data)}")
        records = data[start : start + CHUNK_HEADER_BYTES].copy().view(HEADER_DTYPE)
    else:
        # As opaque bytes first: numpy copies records with fields one field at a time, ten times slower.
        records = windows(data, _OPAQUE_HEADER)[positions].view(HEADER_DTYPE)
    return ChunkHeaders(records, data, positions + CHUNK_HEADER_BYTES)


def encode_index_record(chunk_id: int, timestamp_ms: int, epoch: int, position: int, chunk_type: int) -> bytes:
    """One index record, 29 bytes."""
    return _INDEX_RECORD.pack(chunk_id, timestamp_ms, epoch, position, chunk_type)


class IndexRecord(NamedTuple):
    """One chunk in the index: `position` is the byte in the segment file where its header begins."""

    chunk_id: int
    timestamp_ms: int
    epoch: int
    position: int
    chunk_type: int

    @staticmethod
    def decode(raw: bytes) -> IndexRecord:
        """The record in 29 bytes; for fewer bytes, as at the end of a file, a record of zeros."""
        return IndexRecord(*(_INDEX_RECORD.unpack(raw) if len(raw) == INDEX_RECORD_BYTES else (0, 0, 0, 0, 0)))

    def __str__(self) -> str:
        return (
            f"chunk id {self.chunk_id}, time {self.timestamp_ms}, epoch {self.epoch}, position {self.position}, "
            f"type {self.chunk_type}"
        )


def segment_name(chunk_id: int) -> str:
    """The name of the segment file whose first chunk has this id."""
    return f"{chunk_id:020d}.segment"


def index_name(chunk_id: int) -> str:
    """The name of the index file whose first chunk has this id."""
    return f"{chunk_id:020d}.index"
