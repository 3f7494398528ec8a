"""The blocks of words that the kernel of Variant objects takes."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class EntryBlock(NamedTuple):
    """An entry of a map."""

    key: int
    key_length: int
    key_word: int
    """The first eight bytes of the key, as a number that sorts as they do."""
    value: int
    """Address."""
    variant_size: int
    """Bytes of the value as Variant."""


class OutputBlock(NamedTuple):
    """The buffers of a column: addresses, their room in bytes, and how many are used."""

    value: int
    value_capacity: int
    value_used: int
    metadata: int
    metadata_capacity: int
    metadata_used: int
    value_offsets: int
    metadata_offsets: int
    validity: int
    undecided: int


ENTRY = places(EntryBlock)
OUTPUT = places(OutputBlock)
ENTRY_BYTES = 8 * len(ENTRY)
