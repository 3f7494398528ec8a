"""The size that the Bloom filter of a chunk needs, and its cost."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.log import MAX_FILTER_SIZE_BYTES, MIN_FILTER_SIZE_BYTES, false_positive_rate


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
