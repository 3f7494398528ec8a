"""Chunks of any entries, made one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.log import format as f
from headgate.log.bloom import bloom_bytes
from headgate.log.entries import SubBatch, encode_entry


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
