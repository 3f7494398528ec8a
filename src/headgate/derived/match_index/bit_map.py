"""The bit map of layout `bloom`: parameters, positions of a consumer's string, bit arrays (rocketmq_filters, 8.1-8.3).

It equals RocketMQ's byte for byte, and is tested by RocketMQ's own cases (`rocketmq_bloom.jsonl`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigError

DEFAULT_EXPECTED_CONSUMERS = 32
DEFAULT_MAX_ERROR_RATE_PERCENT = 20
MOST_EXPECTED_CONSUMERS = 2**31 - 1

_MASK = 2**64 - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class BitMapParameters:
    """The parameters of a bit map: an id sets `positions_per_id` bits among `bit_length`, a multiple of 8."""

    positions_per_id: int
    bit_length: int

    @staticmethod
    def of(*, expected_consumers: int, max_error_rate_percent: int) -> BitMapParameters:
        """The parameters for a number of consumers and a rate of false positives (rocketmq_filters, section 8.1).

        Raises ConfigError, with the original's words, for a rate outside 1 … 99 or fewer than one consumer.
        """
        if not 1 <= max_error_rate_percent < 100:
            raise ConfigError("f must be greater or equal than 1 and less than 100")
        if expected_consumers <= 0:
            raise ConfigError("n must be greater than 0")
        if expected_consumers > MOST_EXPECTED_CONSUMERS:
            raise ConfigError(f"n must be at most {MOST_EXPECTED_CONSUMERS}")
        error = max_error_rate_percent / 100.0
        positions = math.ceil(math.log(error) / math.log(0.5))
        bits = math.ceil(expected_consumers * (math.log(1.0 / error) / math.log(2.0)) * (1.0 / math.log(2.0)))
        return BitMapParameters(positions, 8 * math.ceil(bits / 8))

    @property
    def byte_length(self) -> int:
        """Bytes of one message's bit array."""
        return self.bit_length // 8

    def positions(self, consumer_id: str) -> tuple[int, ...]:
        """The bits of a consumer's string, `<group>#<topic>`, as the original orders them; they may repeat (8.2)."""
        found = low_hash(consumer_id)
        first, step = found & 0xFFFFFFFF, found >> 32
        positions = []
        for number in range(1, self.positions_per_id + 1):
            combined = (first + number * step) & 0xFFFFFFFF
            # As a signed number: a negative one is replaced by its complement.
            positions.append((combined if combined < 0x80000000 else combined ^ 0xFFFFFFFF) % self.bit_length)
        return tuple(positions)


def low_hash(text: str) -> int:
    """The first 64 bits of MurmurHash3 x64 128, seed 0, of the text in UTF-8; a lone surrogate counts as `?`."""
    data = text.encode("utf-8", errors="replace")
    first = second = 0
    whole = len(data) // 16 * 16
    for low, high in _BLOCK.iter_unpack(data[:whole]):
        first = (_rotated(first ^ _mixed_low(low), 27) + second) * 5 + 0x52DCE729 & _MASK
        second = (_rotated(second ^ _mixed_high(high), 31) + first) * 5 + 0x38495AB5 & _MASK
    low, high = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
    first ^= _mixed_low(low) ^ len(data)
    second ^= _mixed_high(high) ^ len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finished(first) + _finished(second) & _MASK


def _mixed_low(word: int) -> int:
    return _rotated(word * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_high(word: int) -> int:
    return _rotated(word * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33


def bits_of(count: int) -> NDArray[np.uint8]:
    """A numpy array of `count` bits, all clear."""
    return np.zeros(-(-count // 8), dtype=np.uint8)


def put_bits(array: NDArray[np.uint8], places: NDArray[np.int64], values: NDArray[np.bool_]) -> None:
    """Set the bits at `places`, ascending, to `values`. Cost: by the span from the first to the last."""
    if len(places):
        first, stop = int(places[0]) // 8, int(places[-1]) // 8 + 1
        bits = np.unpackbits(array[first:stop], bitorder="little")
        bits[places - 8 * first] = values
        array[first:stop] = np.packbits(bits, bitorder="little")


def set_positions(arrays: NDArray[np.uint8], rows: NDArray[np.intp], positions: Iterable[int]) -> None:
    """Set bits in some of many bit arrays: `arrays` is `(messages, bytes)`, `rows` names the arrays."""
    for position in positions:
        arrays[rows, position // 8] |= np.uint8(1 << position % 8)


def has_positions(arrays: NDArray[np.uint8], positions: Iterable[int]) -> NDArray[np.bool_]:
    """Which of many bit arrays, `(messages, bytes)`, have all of some bits set: `(messages,)`."""
    found = np.ones(len(arrays), dtype=np.bool_)
    for position in set(positions):
        found &= arrays[:, position // 8] & np.uint8(1 << position % 8) != 0
    return found
