"""The size that the Bloom filter of a chunk needs, its cost, and what the filters of a stream achieve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.log.bloom import MAX_FILTER_SIZE_BYTES, MIN_FILTER_SIZE_BYTES, false_positive_rate
from headgate.log.format import ChunkType
from headgate.log.stream import Stream

CHUNKS_LOOKED_AT = 20_000
_TOO_MANY = 0.05
_GOOD = 0.02
_MUCH_UNFILTERED = 0.1
_SMALLEST_BYTES = 256

_UNFILTERED_BIT = 0x80
"""In the first byte of a filter: the chunk has messages without a filter value."""


def size_for(distinct_values: int, rate: float) -> int | None:
    """The smallest filter size in bytes with at most `rate` false positives; None if the largest has more."""
    for size_bytes in range(MIN_FILTER_SIZE_BYTES, MAX_FILTER_SIZE_BYTES + 1):
        if false_positive_rate(distinct_values, size_bytes) <= rate:
            return size_bytes
    return None


@dataclass(frozen=True, slots=True)
class BloomSizing:
    """One filter size for chunks of `distinct_values` filter values; `chunk_bytes` is the data of an average chunk."""

    distinct_values: int
    size_bytes: int
    chunk_bytes: int | None = None

    @property
    def rate(self) -> float:
        """Share of the chunks without a wanted value that are read all the same."""
        return false_positive_rate(self.distinct_values, self.size_bytes)

    @property
    def weight(self) -> float | None:
        """Filter bytes per byte of data, None while nothing is known of the chunks."""
        return None if self.chunk_bytes is None else self.size_bytes / max(1, self.chunk_bytes)

    @property
    def outweighs_data(self) -> bool:
        """Whether reading the filter costs more than reading the messages that it may save."""
        return self.weight is not None and self.weight > 1


@dataclass(frozen=True, slots=True)
class FilterStatistics:
    """The Bloom filters of the newest chunks of a stream, at most `CHUNKS_LOOKED_AT`, and of what size their data is.

    `values_per_chunk` is estimated from the bits that are set, `fill` is their share. `false_positives` is the share of
    these chunks that pass for a value that they lack, by their bits. `unfiltered` is the share of chunks with messages
    that have no filter value. All three are None where no chunk has Bloom bytes. `chunk_sizes` are the numbers of
    chunks by the size of their data: `(up to bytes, chunks)`, each limit twice the one before.
    """

    chunks: int
    filter_size_bytes: int
    values_per_chunk: float | None
    fill: float | None
    false_positives: float | None
    unfiltered: float | None
    chunk_bytes: int | None
    chunk_sizes: tuple[tuple[int, int], ...]

    def advice(self) -> list[str]:
        """What would serve readers with filter values better, in sentences; empty where nothing would."""
        if not self.chunks:
            return []
        if not self.values_per_chunk:
            return [
                "No chunk has filter values, so no reader can skip one: declare a filter source, or give filter values "
                "when publishing."
            ]
        found = []
        values = max(1, round(self.values_per_chunk))
        if self.false_positives is not None and self.false_positives > _TOO_MANY:
            size_bytes = size_for(values, _GOOD)
            share = f"{100 * self.false_positives:.0f} % of the chunks without a wanted value are read in vain"
            if size_bytes is None:
                found.append(
                    f"{share}, and with some {values} values in a chunk no filter is large enough: take a coarser "
                    "filter value, or publish in runs of one value."
                )
            elif size_bytes > self.filter_size_bytes:
                found.append(
                    f"{share}: a new stream with filters of {size_bytes} bytes would read at most {100 * _GOOD:.0f} %."
                )
        sizing = BloomSizing(values, self.filter_size_bytes, self.chunk_bytes)
        if sizing.outweighs_data:
            found.append(
                f"The filter of {self.filter_size_bytes} bytes outweighs the {self.chunk_bytes} bytes of data in a "
                "chunk: publish larger batches, or no filter value."
            )
        if self.unfiltered is not None and self.unfiltered > _MUCH_UNFILTERED:
            found.append(
                f"{100 * self.unfiltered:.0f} % of the chunks have messages without a filter value, which readers that "
                "want these, too, always read."
            )
        return found


def filter_statistics(stream: Stream) -> FilterStatistics:
    """The statistics of a stream, from the headers of its newest chunks in the folder; of object storage one segment.

    Reads some megabytes at most. Raises LogError for damage.
    """
    looked = 0
    sizes: list[NDArray[np.int64]] = []
    fills: list[NDArray[np.float64]] = []
    lengths: list[NDArray[np.int64]] = []
    unfiltered = 0
    listed = stream.segments()
    here = listed[len(listed.remote_rows) :]
    for segment in reversed(here or listed[-1:]):
        if looked >= CHUNKS_LOOKED_AT:
            break
        with segment.open() as reader:
            rows = len(reader.chunks())
            headers = reader.headers(max(0, rows - (CHUNKS_LOOKED_AT - looked)), rows)
            user = np.flatnonzero(headers.chunk_type == ChunkType.USER)
            looked += len(user)
            sizes.append(headers.data_length[user].astype(np.int64))
            with_bytes = user[headers.bloom_length[user] > 0]
            for length in np.unique(headers.bloom_length[with_bytes]).tolist():
                rows_of = with_bytes[headers.bloom_length[with_bytes] == length]
                bits = headers.data[headers.bloom_positions[rows_of][:, None] + np.arange(length)]
                has_unfiltered = (bits[:, 0] & _UNFILTERED_BIT) != 0
                unfiltered += int(has_unfiltered.sum())
                count = np.bitwise_count(bits).sum(axis=1, dtype=np.int64) - has_unfiltered
                fills.append(count / (8.0 * length))
                lengths.append(np.full(len(rows_of), length, dtype=np.int64))
    fill, length, size = (np.concatenate(each) if each else np.empty(0) for each in (fills, lengths, sizes))
    has_filters = bool(len(fill))
    # Each value sets two bits: https://en.wikipedia.org/wiki/Bloom_filter, "Approximating the number of items".
    values = -4.0 * length * np.log1p(-np.minimum(fill, 1.0 - 1.0 / (8.0 * length))) if has_filters else fill
    return FilterStatistics(
        looked,
        stream.filter_size_bytes,
        float(values.mean()) if has_filters else None,
        float(fill.mean()) if has_filters else None,
        float((fill**2).mean()) if has_filters else None,
        unfiltered / len(fill) if has_filters else None,
        int(size.mean()) if looked else None,
        tuple(_histogram(size.astype(np.int64))),
    )


def _histogram(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    limit = _SMALLEST_BYTES
    left = np.sort(sizes)
    while len(left):
        within = int(np.searchsorted(left, limit, side="right"))
        yield limit, within
        left = left[within:]
        limit *= 2
