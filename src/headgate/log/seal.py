"""Seal of a segment, `<segment>.seal`: checksums of parts for which the stream format has none. Integers: big endian.

    +------+------+---------+---------+------+------+-----------+------+
    | HGSL | 0001 | segment | index   | icrc | n    | n x crc   | crc  |
    +------+------+---------+---------+------+------+-----------+------+
    magic, u32 format, u64 bytes of the segment file, u64 bytes of the index file, u32 CRC-32 of the index file,
    u32 number of chunks, per chunk the CRC-32 of its header and Bloom bytes, u32 CRC-32 of all before

The writer seals a segment when it begins the next one. Readers check the bytes that they read of a sealed segment
against the seal; other programs ignore it. A seal also means that another segment follows: without it, files are
missing.
"""

from __future__ import annotations

import logging
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptSidecarError, LogError
from headgate.log.checksums import crcs_of_ranges
from headgate.log.files import replace_file
from headgate.log.pairs import seal_path

if TYPE_CHECKING:
    from headgate.log.segment import Segment, SegmentReader

logger = logging.getLogger("headgate.log")

SEAL_FORMAT = 1
_MAGIC = b"HGSL"
_HEAD = struct.Struct(">4sIQQII")
_CRC = struct.Struct(">I")
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Seal:
    """The state of a segment when it was sealed: sizes of its files, CRC-32 of the index.

    `header_crcs` is `(chunks,)` int64: the CRC-32 of header and Bloom bytes of each chunk.
    """

    segment_bytes: int
    index_bytes: int
    index_crc: int
    header_crcs: NDArray[np.int64]

    def encode(self) -> bytes:
        """The bytes of the file."""
        head = _HEAD.pack(
            _MAGIC, SEAL_FORMAT, self.segment_bytes, self.index_bytes, self.index_crc, len(self.header_crcs)
        )
        content = head + self.header_crcs.astype(">u4").tobytes()
        return content + _CRC.pack(zlib.crc32(content))

    @staticmethod
    def decode(raw: bytes, *, path: Path) -> Seal:
        """The seal in a file's bytes. Raises CorruptSidecarError for damaged bytes."""
        content, crc = raw[: -_CRC.size], raw[-_CRC.size :]
        if len(content) < _HEAD.size or _CRC.pack(zlib.crc32(content)) != crc:
            raise CorruptSidecarError(f"{len(raw)} bytes that do not have their checksum at the end", path=path)
        magic, version, segment_bytes, index_bytes, index_crc, count = _HEAD.unpack_from(content)
        if magic != _MAGIC or version != SEAL_FORMAT or len(content) != _HEAD.size + 4 * count:
            raise CorruptSidecarError(f"not a seal of format {SEAL_FORMAT} with {count} chunks", path=path)
        crcs = np.frombuffer(content, dtype=">u4", offset=_HEAD.size).astype(np.int64)
        return Seal(segment_bytes, index_bytes, index_crc, crcs)


def seal_of(reader: SegmentReader) -> Seal:
    """The seal for a segment as its files are now. Reads the index, and header and Bloom bytes of every chunk.

    Raises CorruptChunkError for a damaged segment.
    """
    count = len(reader.chunks())
    parts = [np.empty(0, dtype=np.int64)]
    for start in range(0, count, _ROWS_AT_ONCE):
        headers = reader.headers(start, min(start + _ROWS_AT_ONCE, count))
        parts.append(crcs_of_ranges(headers.data, headers.starts, headers.front_lengths))
    index = reader.index_bytes()
    return Seal(reader.stop_position, len(index), zlib.crc32(index), np.concatenate(parts))


def write_seal(reader: SegmentReader, *, flushed: bool) -> None:
    """Seal a segment that is complete. Raises CorruptChunkError, StorageFullError and their kinds."""
    replace_file(seal_path(reader.path), seal_of(reader).encode(), flushed=flushed)


def seal_if_missing(segment: Segment, *, flushed: bool) -> None:
    """Seal a segment that has no seal. A failure is logged: the segment is less protected, but no message is lost."""
    if not seal_path(segment.segment_path).exists():
        try:
            with segment.open() as reader:
                write_seal(reader, flushed=flushed)
        except (LogError, OSError) as error:
            logger.warning("segment not sealed: %s", error)


def read_seal(segment_path: Path) -> Seal | None:
    """The seal of a segment; None without a seal, or for a damaged one, which is logged.

    With a damaged seal only the protection is missing, no message; `headgate stream verify` reports it.
    """
    try:
        return load_seal(segment_path)
    except CorruptSidecarError as error:
        logger.warning("seal not used: %s; headgate stream repair makes it again", error)
        return None


def load_seal(segment_path: Path) -> Seal | None:
    """The seal of a segment, None without one. Raises CorruptSidecarError for a damaged seal."""
    path = seal_path(segment_path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorruptSidecarError(f"cannot be read: {error.strerror}", path=path) from error
    return Seal.decode(raw, path=path)
