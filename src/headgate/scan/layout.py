"""The blocks of words that the kernel of a filtered read takes."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class ChunkBlock(NamedTuple):
    """A chunk to decide: where its data part starts, and fields of its header by their names there."""

    data_start: int
    data_length: int
    num_entries: int
    num_records: int
    chunk_id: int
    crc: int


class StopBlock(NamedTuple):
    """Where deciding ended."""

    reason: int
    chunk: int


CHUNK = places(ChunkBlock)
STOP = places(StopBlock)
CHUNK_BYTES = 8 * len(CHUNK)
