"""From fingerprints to the blocks that hold them: the content of a lookup file, and of the tail of an open segment.

A *block* is a range of offsets. Each distinct pair of a fingerprint and a block is an entry of 16 bits. A fingerprint,
as a fraction of 2^32, times the number of buckets is the number of its bucket; the part behind the point, times the
number of remainders, is its remainder; and the entry is the remainder x blocks + the block. Entries are sorted by
bucket, within a bucket by value; `starts` says where each bucket begins. Buckets hold 16 entries on average, so a value
is looked up in two reads, of some bytes each.

With B blocks there are 65 536 / B remainders. Of n messages in blocks of 4 096 that makes n / 16 x 65 536 / (n / 4 096)
= 2^24 places for fingerprints, for any n: a block seems to hold a value that it does not hold in 4 096 / 2^24 = 0.02 %
of all cases. Size: two bytes a message for entries, and a quarter of a byte for the starts of buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.derived.lookup.fingerprints import ANY

BLOCK_MESSAGES = 4096
"""Offsets of a block; more in a segment that would have more than `MOST_BLOCKS` blocks."""

MOST_BLOCKS = 4096
_ENTRY_VALUES = 1 << 16
_BUCKET_ENTRIES = 16
_KEYS_ONE_BY_ONE = 32
"""Up to this many fingerprints are looked up by reading their buckets, more by reading everything."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How fingerprints and blocks become entries; see above. `block_messages` is a power of two."""

    block_messages: int
    blocks: int
    buckets: int
    entries: int

    @property
    def remainders(self) -> int:
        """The number of fingerprints of one bucket that can be told apart."""
        return _ENTRY_VALUES // self.blocks

    @property
    def is_possible(self) -> bool:
        """Whether there are blocks and buckets, and not more than fit."""
        return 1 <= self.blocks <= MOST_BLOCKS and 1 <= self.buckets < 1 << 31 and self.block_messages >= 1

    def places(self, fingerprints: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each fingerprint its bucket, and its entry for block 0 there."""
        scaled = fingerprints.astype(np.int64)
        scaled *= self.buckets
        least = scaled & 0xFFFFFFFF
        least *= self.remainders
        least >>= 32
        least *= self.blocks
        scaled >>= 32
        return scaled, least


class TableArrays(Protocol):
    """Where the arrays of a table are read from. Raises CorruptSidecarError for bytes that fail their check."""

    @property
    def shape(self) -> Shape:
        """How values become entries."""

    def starts(self, start: int, stop: int) -> NDArray[np.uint32]:
        """The places `start … stop` of the `buckets` + 1 places where buckets begin."""

    def entries(self, start: int, stop: int) -> NDArray[np.uint16]:
        """Some of the entries."""

    def open_blocks(self) -> NDArray[np.int64]:
        """The blocks that may hold any value."""


@dataclass(frozen=True, slots=True)
class Table:
    """The arrays in memory: `all_starts` `(buckets + 1,)`, `all_entries` `(entries,)`, `any_blocks` ascending."""

    shape: Shape
    all_starts: NDArray[np.uint32]
    all_entries: NDArray[np.uint16]
    any_blocks: NDArray[np.int64]

    def starts(self, start: int, stop: int) -> NDArray[np.uint32]:
        """See `TableArrays`."""
        return self.all_starts[start:stop]

    def entries(self, start: int, stop: int) -> NDArray[np.uint16]:
        """See `TableArrays`."""
        return self.all_entries[start:stop]

    def open_blocks(self) -> NDArray[np.int64]:
        """See `TableArrays`."""
        return self.any_blocks


def block_messages_of(offsets: int) -> int:
    """The number of offsets of a block in a segment of `offsets` offsets."""
    size = BLOCK_MESSAGES
    while offsets > size * MOST_BLOCKS:
        size *= 2
    return size


def make_table(
    fingerprints: NDArray[np.uint32], blocks: NDArray[np.signedinteger[Any]], *, count: int, block_messages: int
) -> Table:
    """The table of some messages: `fingerprints` and `blocks` are `(messages,)`, the blocks below `count`.

    Cost: some 60 ns a message, most of it for sorting; memory: 24 bytes a message.
    """
    any_blocks = np.unique(blocks[fingerprints == ANY]).astype(np.int64)
    known = fingerprints > ANY
    if not known.all():
        fingerprints, blocks = fingerprints[known], blocks[known]
    buckets = max(1, -(-len(fingerprints) // _BUCKET_ENTRIES))
    shape = Shape(block_messages, max(1, count), buckets, 0)
    pairs, least = shape.places(fingerprints)
    pairs <<= 16
    pairs += least
    pairs += blocks
    pairs.sort()
    is_new = np.ones(len(pairs), dtype=np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=is_new[1:])
    if not is_new.all():
        pairs = pairs[is_new]
    starts = np.searchsorted(pairs, np.arange(buckets + 1) << 16).astype(np.uint32)
    return Table(replace(shape, entries=len(pairs)), starts, pairs.astype(np.uint16), any_blocks)


def blocks_of(table: TableArrays, fingerprints: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """`(blocks,)`: which may hold a value with one of the fingerprints.

    Cost: two reads for each fingerprint; for more than some of them, reading everything. Errors: those of the source.
    """
    shape = table.shape
    found = np.zeros(shape.blocks, dtype=np.bool_)
    found[table.open_blocks()] = True
    buckets, least = shape.places(fingerprints)
    if len(fingerprints) <= _KEYS_ONE_BY_ONE:
        for bucket, first in zip(buckets.tolist(), least.tolist(), strict=True):
            start, stop = table.starts(bucket, bucket + 2).tolist()
            _mark(found, table.entries(start, stop).astype(np.int64) - first)
        return found
    if not len(fingerprints):
        return found
    starts, entries = table.starts(0, shape.buckets + 1).astype(np.int64), table.entries(0, shape.entries)
    counts = starts[buckets + 1] - starts[buckets]
    stops = np.cumsum(counts)
    places = np.arange(int(stops[-1])) + np.repeat(starts[buckets] - (stops - counts), counts)
    _mark(found, entries[places].astype(np.int64) - np.repeat(least, counts))
    return found


def _mark(found: NDArray[np.bool_], blocks: NDArray[np.int64]) -> None:
    found[blocks[(blocks >= 0) & (blocks < len(found))]] = True
