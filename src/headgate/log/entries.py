"""Entries of a chunk's data part: simple messages and sub-batches (osiris_log.md section 3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigError, CorruptChunkError
from headgate.log import format as f
from headgate.log.compression import compress, decompress
from headgate.log.entry_positions import walk_entries

_SUB_BATCH = 0x80
_U32 = struct.Struct(">I")

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class SimpleEntry:
    """One message as stored; `position` of its body counts from the start of the data part."""

    position: int
    body: bytes

    num_records = 1


@dataclass(slots=True)
class SubBatch:
    """One entry of several messages, `body` as stored (compressed or not); `position` as in SimpleEntry."""

    compression: int
    num_records: int
    uncompressed_length: int
    body: bytes
    position: int = 0

    @staticmethod
    def of(messages: Sequence[bytes], compression: f.Compression) -> SubBatch:
        """Messages packed into one entry. Raises ConfigError unless they are 1 to 65 535."""
        if not 1 <= len(messages) <= f.MAX_CHUNK_ENTRIES:
            raise ConfigError(f"a sub-batch of {len(messages)} messages; expected 1 to {f.MAX_CHUNK_ENTRIES}")
        content = b"".join(encode_entry(message) for message in messages)
        return SubBatch(compression, len(messages), len(content), compress(content, compression))

    def encode(self) -> bytes:
        """The entry's bytes, head included."""
        head = f.encode_sub_batch_head(self.compression, self.num_records, self.uncompressed_length, len(self.body))
        return head + self.body

    def expand(self, *, limit_bytes: int, path: str | Path, position: int) -> bytes:
        """The uncompressed content, with exactly the number of bytes in the sub-batch's head.

        `limit_bytes` is checked before anything is allocated. Raises CorruptChunkError with `path` and `position` (of
        the entry in that file).
        """
        if self.uncompressed_length > limit_bytes:
            raise CorruptChunkError(
                f"sub-batch of {self.uncompressed_length} uncompressed bytes; the limit is {limit_bytes}",
                path=path,
                position=position,
            )
        try:
            content = decompress(self.body, self.compression, self.uncompressed_length)
        except ValueError as error:
            raise CorruptChunkError(f"sub-batch: {error}", path=path, position=position) from error
        return content

    def messages(self, *, limit_bytes: int, path: str | Path, position: int) -> Iterator[bytes]:
        """The messages in the sub-batch, in order; errors as `expand`."""
        content = self.expand(limit_bytes=limit_bytes, path=path, position=position)
        at = 0
        for _ in range(self.num_records):
            body_at = at + f.ENTRY_HEAD_BYTES
            stop = body_at + _U32.unpack_from(content, at)[0] if body_at <= len(content) else len(content) + 1
            if stop > len(content):
                raise CorruptChunkError(
                    f"sub-batch says {self.num_records} messages, its content ends before", path=path, position=position
                )
            yield content[body_at:stop]
            at = stop
        if at != len(content):
            raise CorruptChunkError(
                f"sub-batch has {len(content) - at} bytes behind its {self.num_records} messages",
                path=path,
                position=position,
            )


Entry = SimpleEntry | SubBatch


def encode_entry(message: bytes) -> bytes:
    """A message as a simple entry. Raises ConfigError beyond 2^31 − 1 bytes."""
    if len(message) > f.MAX_ENTRY_BYTES:
        raise ConfigError(f"a message of {len(message)} bytes; the limit is {f.MAX_ENTRY_BYTES}")
    return _U32.pack(len(message)) + message


def entries_of(data: Buffer, num_entries: int, *, path: str | Path, position: int) -> Iterator[Entry]:
    """The entries of a chunk's data part, which is at `position` of `path`, one at a time.

    Raises CorruptChunkError if the data ends inside an entry, before `num_entries`, or continues after them.
    """
    view = memoryview(data)
    at = 0
    for number in range(num_entries):
        if at >= len(view) or at + f.ENTRY_HEAD_BYTES > len(view):
            raise CorruptChunkError(
                f"the chunk says {num_entries} entries, its data ends before entry {number}",
                path=path,
                position=position + at,
            )
        is_sub_batch = view[at] & _SUB_BATCH
        head_bytes = f.SUB_BATCH_HEAD_BYTES if is_sub_batch else f.ENTRY_HEAD_BYTES
        body_at = at + head_bytes
        if body_at > len(view):
            raise CorruptChunkError("the data ends inside a sub-batch's head", path=path, position=position + at)
        length = _U32.unpack_from(view, body_at - 4)[0]
        if body_at + length > len(view):
            raise CorruptChunkError(
                f"entry {number} has {length} bytes, {len(view) - body_at} are left", path=path, position=position + at
            )
        body = bytes(view[body_at : body_at + length])
        if is_sub_batch:
            compression, records, uncompressed, _ = f.decode_sub_batch_head(view, at)
            yield SubBatch(compression, records, uncompressed, body, body_at)
        else:
            yield SimpleEntry(body_at, body)
        at = body_at + length
    if at != len(view):
        raise CorruptChunkError(
            f"{len(view) - at} bytes behind the last of {num_entries} entries", path=path, position=position + at
        )


@dataclass(slots=True)
class UnpackedChunk:
    """The messages of one chunk, sub-batches unpacked: `starts[i] … + lengths[i]` of `data`, then 8 bytes of slack.

    `data` `(bytes,)` uint8, `starts` and `lengths` `(records,)` int64; message i has offset chunk id + i.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def unpack_chunk(
    header: f.ChunkHeader, data: Buffer, *, limit_bytes: int, path: str | Path, position: int
) -> UnpackedChunk:
    """All messages of a chunk, copied into one buffer.

    `data` is the data part, found at `position` of `path`. Limit: its sub-batches together expand to `limit_bytes`.
    Raises CorruptChunkError for a malformed or oversized entry and for a wrong number of records.
    """
    entries = entries_of(data, header.num_entries, path=path, position=position)
    unpacked = unpack_entries(entries, limit_bytes=limit_bytes, path=path, position=position)
    if len(unpacked.starts) != header.num_records:
        raise CorruptChunkError(
            f"the chunk says {header.num_records} records, its entries hold {len(unpacked.starts)}",
            path=path,
            position=position,
        )
    return unpacked


def unpack_entries(entries: Iterable[Entry], *, limit_bytes: int, path: str | Path, position: int) -> UnpackedChunk:
    """The messages of some entries, in the form of `unpack_chunk`.

    Raises CorruptChunkError for a malformed or oversized entry.
    """
    given: list[Entry] = []
    contents: list[bytes] = []
    room = limit_bytes
    for entry in entries:
        given.append(entry)
        if isinstance(entry, SimpleEntry):
            contents.append(encode_entry(entry.body))
        else:
            contents.append(entry.expand(limit_bytes=room, path=path, position=position + entry.position))
            room -= entry.uncompressed_length
    sizes = np.fromiter(map(len, contents), dtype=np.int64, count=len(contents))
    counts = np.fromiter((entry.num_records for entry in given), dtype=np.int64, count=len(given))
    joined = np.frombuffer(b"".join([*contents, bytes(f.SLACK_BYTES)]), dtype=np.uint8)
    walked = walk_entries(
        joined,
        data_starts=np.cumsum(sizes) - sizes,
        data_lengths=sizes,
        entry_counts=counts,
        chunk_ids=np.zeros(len(given), dtype=np.int64),
    )
    if walked.stop is not None:
        broken = given[walked.stop.chunk]
        assert isinstance(broken, SubBatch)
        # Reading one message at a time finds the error and names it.
        found = len(list(broken.messages(limit_bytes=limit_bytes, path=path, position=position + broken.position)))
        raise CorruptChunkError(f"a sub-batch of {found} messages is malformed", path=path, position=position)
    return UnpackedChunk(joined, walked.starts, walked.lengths)
