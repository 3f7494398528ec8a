"""The blocks of words that the kernels of the log use."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class StopBlock(NamedTuple):
    """Where `walk_entries` ended, and why."""

    reason: int
    chunk: int
    position: int
    """The byte where it was seen."""


class HashedBlock(NamedTuple):
    """A slot of the cache of hashed filter values."""

    address: int
    length: int
    """-1: a free slot."""
    bits: int


STOP = places(StopBlock)
HASHED = places(HashedBlock)
HASHED_BYTES = 8 * len(HASHED)
