"""The names of system properties as the kernel looks them up: rows, and slots by the hash of a name."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.message import CONSTRUCTOR_WIDTHS, SYSTEM_PROPERTIES

_FIRST = ("TAGS", "KEYS", "UNIQ_KEY", "RECONSUME_TIME")
"""The names that the kernel knows by their row."""

_SLOTS = 512
_PREFIX = b"x-opt-rocketmq-"


@dataclass(frozen=True, slots=True, eq=False)
class SystemNames:
    """`rows` are `(names, 32)` uint8, the length in front; `slots` a multiplier and `(512,)` rows, −1 for none."""

    rows: NDArray[np.uint8]
    slots: NDArray[np.int64]
    prefix: NDArray[np.uint8]
    numbers: dict[str, int]

    def addresses(self) -> tuple[int, int, int]:
        """Where the kernel finds rows, slots and the prefix of annotations."""
        return kernels.address_of(self.rows), kernels.address_of(self.slots), kernels.address_of(self.prefix)

    def bits(self, names: Iterable[str]) -> int:
        """The bits of names, by their rows; other names have none."""
        return sum({1 << self.numbers[name] for name in names if name in self.numbers})


@functools.cache
def system_names() -> SystemNames:
    """The table of all system names."""
    names = [*_FIRST, *sorted(SYSTEM_PROPERTIES.keys() - set(_FIRST))]
    rows = np.zeros((len(names), 32), dtype=np.uint8)
    for row, name in zip(rows, names, strict=True):
        row[0] = len(name)
        row[1 : 1 + len(name)] = np.frombuffer(name.encode(), dtype=np.uint8)
    hashes = [_hash(name.encode()) for name in names]
    slots = np.full(1 + _SLOTS, -1, dtype=np.int64)
    slots[0] = next(
        multiplier
        for multiplier in itertools.count(1, 2)
        if len({hashed * multiplier >> 20 & (_SLOTS - 1) for hashed in hashes}) == len(names)
    )
    for number, hashed in enumerate(hashes):
        slots[1 + (hashed * int(slots[0]) >> 20 & (_SLOTS - 1))] = number
    prefix = np.frombuffer(_PREFIX, dtype=np.uint8)
    return SystemNames(rows, slots, prefix, {name: number for number, name in enumerate(names)})


def _hash(name: bytes) -> int:
    """As `name_hash` of the kernel."""
    return functools.reduce(lambda found, byte: found * 31 + byte & 0x7FFFFFFF, name, 0)


@functools.cache
def widths() -> NDArray[np.int64]:
    """The table of constructor widths, for kernels."""
    return np.array(CONSTRUCTOR_WIDTHS, dtype=np.int64)
