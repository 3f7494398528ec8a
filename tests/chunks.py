"""Chunks of any entries, messages and sub-batches side by side, made one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.log import Appended, Writer
from headgate.log import format as f
from headgate.log.bloom import bloom_bytes
from headgate.log.entries import SubBatch, encode_entry
from headgate.log.tracking_records import TrackingKind, TrackingRecord


def encode_chunk(
    entries: Sequence[bytes | SubBatch],
    filter_values: Sequence[bytes | None],
    *,
    filter_size_bytes: int,
    trailer: bytes = b"",
    chunk_type: f.ChunkType = f.ChunkType.USER,
) -> bytes:
    """The bytes of a whole chunk; chunk id, time and epoch are 0, the writer fills them in.

    `filter_values` are those of the entries that are messages, in order; sub-batches have none.
    """
    data = b"".join([entry.encode() if isinstance(entry, SubBatch) else encode_entry(entry) for entry in entries])
    _, chunk = f.assemble_chunk(
        data,
        num_entries=len(entries),
        num_records=sum([entry.num_records if isinstance(entry, SubBatch) else 1 for entry in entries]),
        bloom=bloom_bytes(filter_values, filter_size_bytes),
        trailer=trailer,
        chunk_type=chunk_type,
    )
    return chunk


def append_chunk(
    writer: Writer,
    entries: Sequence[tuple[bytes, bytes | None] | SubBatch],
    *,
    now_ms: int,
    publisher: str | None = None,
    sequence: int = 0,
) -> Appended:
    """Append one chunk of messages, each (body, filter value or None), and sub-batches; `sequence` is its last one."""
    trailer = b"" if publisher is None else TrackingRecord(TrackingKind.SEQUENCE, publisher.encode(), sequence).encode()
    chunk = encode_chunk(
        [entry if isinstance(entry, SubBatch) else entry[0] for entry in entries],
        [entry[1] for entry in entries if not isinstance(entry, SubBatch)],
        filter_size_bytes=writer.settings.arguments.filter_size_bytes,
        trailer=trailer,
    )
    return writer.append_chunks(np.frombuffer(bytearray(chunk), np.uint8), np.zeros(1, np.int64), now_ms=now_ms)


def headers_of(data: NDArray[np.uint8]) -> list[f.ChunkHeader]:
    """The headers of chunks that lie one behind the other."""
    headers: list[f.ChunkHeader] = []
    position = 0
    while position < len(data):
        headers.append(f.ChunkHeader.decode(data[position:].data, path="", position=position))
        position += headers[-1].size_bytes
    return headers
