"""A staged file that becomes a segment: only its head and 40 bytes per chunk are written, then it is renamed.

    staged:   | free room                                            | chunk | chunk | …
    adopted:  | file head | snapshot: header, entry, a long trailer  | chunk | chunk | …

Time, epoch, chunk id and publisher sequence replace the zeros that a task left; no checksum covers them. The trailer of
the snapshot (osiris_log.md section 6) reaches to the first chunk that the stream does not have yet: readers go on
behind it, and none reads it. After a crash all of it is done again, with the same values or for another position.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.log import format as f
from headgate.log.chunk_builder import Bytes, Int64Array
from headgate.log.entries import encode_entry
from headgate.log.files import OpenFile
from headgate.log.staging import StagedChunks

_LENGTHS, _LENGTHS_AT = struct.Struct(">IIB"), 36
"""Bytes of data, trailer and Bloom filter in a chunk header."""
_SEQUENCE_BYTES = 8
_STAMP_BYTES = 32
"""The part of a header up to its chunk id. The sequence of the chunk before ends where a header begins."""


class StagedSegment(msgspec.Struct, eq=False):
    """A staged file that may become a segment: the places and headers of its chunks.

    `positions` are int64, `headers` HEADER_DTYPE, both `(chunks,)`.
    """

    path: Path
    positions: Int64Array
    headers: NDArray[np.void]
    head_bytes: int
    size_bytes: int

    def __len__(self) -> int:
        return len(self.positions)

    @staticmethod
    def of(root: Path, part: StagedChunks) -> StagedSegment:
        """Read the headers of a separate file, one by one. Raises LogError if it is missing, CorruptChunkError."""
        path = part.file(root)
        headers = np.empty(part.chunks, dtype=f.HEADER_DTYPE)
        raw = headers.view(np.uint8).data
        positions = []
        position, size = part.head_bytes, part.head_bytes + part.size_bytes
        with part.open(root) as descriptor:
            for at in range(0, len(raw), f.CHUNK_HEADER_BYTES):
                found = os.preadv(descriptor, [raw[at : at + f.CHUNK_HEADER_BYTES]], position)
                if found < f.CHUNK_HEADER_BYTES:
                    break
                positions.append(position)
                position += f.CHUNK_HEADER_BYTES + sum(_LENGTHS.unpack_from(raw, at + _LENGTHS_AT))
        if position != size or len(positions) < part.chunks:
            raise CorruptChunkError(
                f"a staged file of {size} bytes has no {part.chunks} whole chunks", path=path, position=position
            )
        places = np.array(positions, dtype=np.int64)
        f.ChunkHeaders(headers, headers.view(np.uint8), places).check(path=path, positions=places)
        if (headers["chunk_type"] != f.ChunkType.USER).any() or not headers["num_records"].all():
            raise CorruptChunkError("a staged chunk is no chunk of messages", path=path)
        return StagedSegment(Path(path), places, headers, part.head_bytes, size)

    def num_records(self, first_chunk: int) -> int:
        """The records of the chunks from a number on."""
        return int(self.headers["num_records"][first_chunk:].sum())

    def read(self, chunk: int) -> Bytes:
        """The bytes of one chunk."""
        start = int(self.positions[chunk])
        stop = int(self.positions[chunk + 1]) if chunk + 1 < len(self) else self.size_bytes
        data = np.fromfile(self.path, dtype=np.uint8, count=stop - start, offset=start)
        if len(data) < stop - start:
            raise CorruptChunkError("a staged file ends too early", path=self.path, position=start)
        return data

    def last_trailer(self) -> bytes:
        """The trailer of the last chunk, as it is in the file now."""
        length = int(self.headers["trailer_length"][-1])
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), length, self.size_bytes - length)

    def snapshot(
        self, records: bytes, *, first_chunk: int, chunk_id: int, timestamp_ms: int, epoch: int
    ) -> bytes | None:
        """The bytes before the chunks, with a snapshot of these records; None where the free room is too small."""
        entry = encode_entry(records)
        start = f.FILE_HEAD_BYTES + f.CHUNK_HEADER_BYTES + len(entry)
        if start > self.head_bytes:
            return None
        header, _ = f.assemble_chunk(
            entry,
            num_entries=1,
            num_records=1,
            chunk_type=f.ChunkType.TRACKING_SNAPSHOT,
            timestamp_ms=timestamp_ms,
            epoch=epoch,
            chunk_id=chunk_id,
        )
        header.trailer_length = int(self.positions[first_chunk]) - start
        return f.SEGMENT_HEAD + header.encode() + entry

    def stamp(
        self,
        open_file: OpenFile,
        head: bytes,
        *,
        first_chunk: int,
        snapshot_id: int,
        timestamp_ms: int,
        epoch: int,
        first_sequence: int,
        flushed: bool,
    ) -> bytes:
        """Write the head, and id, time, epoch and sequence of each chunk from a number on; gives the index records.

        Raises OSError, possibly after a part of it.
        """
        headers, positions = self.headers[first_chunk:], self.positions[first_chunk:].tolist()
        count = len(headers)
        index = np.empty(count + 1, dtype=f.INDEX_DTYPE)
        index["chunk_id"] = snapshot_id + np.cumsum([0, 1, *headers["num_records"][:-1].tolist()])
        index["timestamp_ms"], index["epoch"] = timestamp_ms, epoch
        index["position"] = [f.FILE_HEAD_BYTES, *positions]
        index["type"] = [f.ChunkType.TRACKING_SNAPSHOT, *headers["chunk_type"].tolist()]
        for name in ("chunk_id", "timestamp_ms", "epoch"):
            headers[name] = index[name][1:]
        stamps = np.empty((count + 1, _SEQUENCE_BYTES + _STAMP_BYTES), dtype=np.uint8)
        stamps[:-1, _SEQUENCE_BYTES:] = headers.view(np.uint8).reshape(count, -1)[:, :_STAMP_BYTES]
        sequences = np.arange(first_sequence, first_sequence + count, dtype=">u8")
        stamps[1:, :_SEQUENCE_BYTES] = sequences.view(np.uint8).reshape(count, -1)
        file = open_file(self.path)
        try:
            file.write(head, 0)
            # The sequence before the first one belongs to a chunk that the stream has already.
            file.write(stamps[0, _SEQUENCE_BYTES:].data, positions[0])
            for row, position in enumerate(positions[1:], start=1):
                file.write(stamps[row].data, position - _SEQUENCE_BYTES)
            file.write(stamps[count, :_SEQUENCE_BYTES].data, self.size_bytes - _SEQUENCE_BYTES)
            if flushed:
                file.sync()
        finally:
            file.close()
        return index.tobytes()
