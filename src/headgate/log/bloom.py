"""The Bloom filter of a chunk: the filter values in it. For writer and reader, without files (osiris_log.md section 5).

A chunk's filter is a bit field of the stream's filter size B (16 to 255 bytes); bit 0 is the most significant bit of
byte 0. Each filter value sets two bits in 1 … 8·B−1. Messages without a value set bit 0, so that a reader with *match
unfiltered* can find their chunks. A chunk with only unfiltered messages has no Bloom bytes at all.

The hash is Erlang's portable term hash (`erlang:phash2` before its range is applied), of the value as a binary and as
a list of one binary: stream folders are exchanged with RabbitMQ, and with another hash it would miss messages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.log.format import windows

MIN_FILTER_SIZE_BYTES = 16
MAX_FILTER_SIZE_BYTES = 255
DEFAULT_FILTER_SIZE_BYTES = 16

_FEW_CHUNKS = 64
"""With fewer chunks than this, and than values, all values are tested at once; else value by value over all chunks."""

_MASK = 0xFFFFFFFF
_GOLDEN_RATIO = 0x9E3779B9
_BINARY_SEED = 0x08D12E65
_LIST_A = 0x3C6EF374
_LIST_B = 0x3C6EF372
_LIST_OF_ZERO_HASH = 3468870702


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    a = ((a - b - c) & _MASK) ^ (c >> 13)
    b = ((b - c - a) ^ (a << 8)) & _MASK
    c = ((c - a - b) & _MASK) ^ (b >> 13)
    a = ((a - b - c) & _MASK) ^ (c >> 12)
    b = ((b - c - a) ^ (a << 16)) & _MASK
    c = ((c - a - b) & _MASK) ^ (b >> 5)
    a = ((a - b - c) & _MASK) ^ (c >> 3)
    b = ((b - c - a) ^ (a << 10)) & _MASK
    c = ((c - a - b) & _MASK) ^ (b >> 15)
    return a, b, c


def phash2(value: bytes) -> int:
    """32-bit term hash of a binary."""
    length = len(value)
    if length == 0:
        return _BINARY_SEED
    a = b = _GOLDEN_RATIO
    c = _BINARY_SEED
    whole = length - length % 12
    for at in range(0, whole, 12):
        a = (a + int.from_bytes(value[at : at + 4], "little")) & _MASK
        b = (b + int.from_bytes(value[at + 4 : at + 8], "little")) & _MASK
        c = (c + int.from_bytes(value[at + 8 : at + 12], "little")) & _MASK
        a, b, c = _mix(a, b, c)
    rest = value[whole:]
    a = (a + int.from_bytes(rest[:4], "little")) & _MASK
    b = (b + int.from_bytes(rest[4:8], "little")) & _MASK
    c = (c + length + (int.from_bytes(rest[8:], "little") << 8)) & _MASK
    return _mix(a, b, c)[2]


def phash2_of_list(value: bytes) -> int:
    """32-bit term hash of a list that holds one binary."""
    inner = phash2(value)
    if inner == 0:
        return _LIST_OF_ZERO_HASH
    return _mix(_LIST_A, _LIST_B, inner)[2]


@functools.lru_cache(maxsize=8192)
def bit_positions(value: bytes, size_bytes: int) -> tuple[int, int]:
    """The two bits that a filter value sets in a filter of `size_bytes`; (0, 0) for the empty value."""
    if not value:
        return 0, 0
    span = 8 * size_bytes - 1
    return phash2(value) % span + 1, phash2_of_list(value) % span + 1


def bloom_bytes(values: Iterable[bytes | None], size_bytes: int) -> bytes:
    """The Bloom bytes of a chunk whose messages have these filter values; None and empty mean unfiltered.

    Empty if all messages are unfiltered, else `size_bytes` long.
    """
    distinct = {value or b"" for value in values}
    if distinct <= {b""}:
        return b""
    field = bytearray(size_bytes)
    for value in distinct:
        for bit in bit_positions(value, size_bytes):
            field[bit >> 3] |= 0x80 >> (bit & 7)
    return bytes(field)


def fill_ratio(bloom: bytes) -> float:
    """Share of the bits that are set, 0 … 1; 0 for no bytes."""
    return int.from_bytes(bloom, "big").bit_count() / (8 * len(bloom)) if bloom else 0.0


def false_positive_rate(num_values: int, size_bytes: int) -> float:
    """Expected share of chunks that pass for a value that they lack, with `num_values` distinct values per chunk."""
    bits = 8 * size_bytes
    return float((1.0 - math.exp(-2.0 * num_values / bits)) ** 2)


def check_filter_size(size_bytes: int, *, option: str) -> int:
    """Return `size_bytes`. Raises ConfigError that names `option` if it is not 16 … 255."""
    if not MIN_FILTER_SIZE_BYTES <= size_bytes <= MAX_FILTER_SIZE_BYTES:
        raise ConfigError(
            f"{option} is {size_bytes}; a filter has {MIN_FILTER_SIZE_BYTES} to {MAX_FILTER_SIZE_BYTES} bytes"
        )
    return size_bytes


class BloomMatcher:
    """Tests which chunks may hold a message with one of the wanted filter values: stage 1.

    A chunk passes if one wanted value has both its bits set, at the positions of the chunk's own filter size; with
    `match_unfiltered` (or the wanted value "") also if bit 0 is set or there are no Bloom bytes. Bytes and text
    (UTF-8) are the same value. Picklable. Raises ConfigError without a wanted value.
    """

    __slots__ = ("_pairs", "_tests", "match_unfiltered", "values")

    def __init__(self, values: Iterable[bytes | str], *, match_unfiltered: bool) -> None:
        distinct = {value.encode() if isinstance(value, str) else bytes(value) for value in values}
        if not distinct:
            raise ConfigError("no filter value is wanted; without one every chunk is read, so leave the filter out")
        self.match_unfiltered = match_unfiltered or b"" in distinct
        self.values = tuple(sorted(distinct - {b""}))
        self._tests: dict[int, tuple[tuple[int, int, int, int], ...]] = {}
        self._pairs: dict[int, NDArray[np.int64]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_matcher, (self.values, self.match_unfiltered)

    def _tests_for(self, size_bytes: int) -> tuple[tuple[int, int, int, int], ...]:
        """Per wanted value: byte and mask of the first bit, byte and mask of the second."""
        tests = self._tests.get(size_bytes)
        if tests is None:
            pairs = sorted({bit_positions(value, size_bytes) for value in self.values})
            tests = tuple((x >> 3, 0x80 >> (x & 7), y >> 3, 0x80 >> (y & 7)) for x, y in pairs)
            self._tests[size_bytes] = tests
            self._pairs[size_bytes] = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return tests

    def matches(self, bloom: bytes | bytearray | memoryview) -> bool:
        """Whether a chunk with these Bloom bytes must be read."""
        if not bloom:
            return self.match_unfiltered
        if self.match_unfiltered and bloom[0] & 0x80:
            return True
        return any(bloom[i] & m and bloom[j] & n for i, m, j, n in self._tests_for(len(bloom)))

    def match_many(
        self, data: NDArray[np.uint8], bloom_positions: NDArray[np.int64], bloom_lengths: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """`matches` for many chunks: `(chunks,)` mask. Bloom bytes of chunk i begin at `bloom_positions[i]` of `data`.

        Lengths may differ. Raises IndexError if Bloom bytes are not inside `data`.
        """
        sizes = np.flatnonzero(np.bincount(bloom_lengths, minlength=1))
        if len(sizes) == 1:
            return self._match_size(data, bloom_positions, int(sizes[0]))
        result = np.zeros(len(bloom_lengths), dtype=np.bool_)
        for size in sizes:
            rows = np.flatnonzero(bloom_lengths == size)
            result[rows] = self._match_size(data, bloom_positions[rows], int(size))
        return result

    def _match_size(self, data: NDArray[np.uint8], positions: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        if size == 0 or len(positions) == 0:
            return np.full(len(positions), self.match_unfiltered, dtype=np.bool_)
        filters = windows(data, np.dtype(f"V{size}"))[positions].view(np.uint8).reshape(-1, size)
        tests = self._tests_for(size)
        unfiltered_mask = 0x80 if self.match_unfiltered else 0
        result: NDArray[np.bool_] = (filters[:, 0] & unfiltered_mask) != 0
        if len(positions) < min(len(tests), _FEW_CHUNKS):
            bits, pairs = np.unpackbits(filters, axis=1).view(np.bool_), self._pairs[size]
            return result | (bits[:, pairs[:, 0]] & bits[:, pairs[:, 1]]).any(axis=1)
        for first, first_mask, second, second_mask in tests:
            result |= ((filters[:, first] & first_mask) != 0) & ((filters[:, second] & second_mask) != 0)
        return result


def _rebuild_matcher(values: tuple[bytes, ...], match_unfiltered: bool) -> BloomMatcher:
    return BloomMatcher(values if values else (b"",), match_unfiltered=match_unfiltered)
