"""The blocks of words that the kernel of exactness takes."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class SectionBlock(NamedTuple):
    """A section and the columns to look up in it."""

    columns: int
    """Address of its `ColumnBlock`s."""
    columns_length: int
    """Their number."""
    bits: int
    """The bits of all these columns."""
    bits_not_ascii: int
    """The bits of the columns whose key is not ASCII."""
    is_unique: int
    """1: no two keys are equal but for 0x20."""


class ColumnBlock(NamedTuple):
    """A column to look up."""

    kind: int
    """One of the `K_` numbers."""
    bit: int
    """As a number with this bit set."""
    position: int
    """In the list (header and properties)."""
    key: int
    """Address (maps)."""
    key_length: int
    key_prefix: int
    """Its first eight bytes, with 0x20 set in each."""
    validity: int
    """Address of the validity bits of its values; 0: all are valid."""


class FoundBlock(NamedTuple):
    """The result for a message: one bit a column."""

    present: int
    """They have a value."""
    inexact: int
    seen: int
    """Their key was seen in the map."""


SECTION = places(SectionBlock)
COLUMN = places(ColumnBlock)
FOUND = places(FoundBlock)
SECTION_BYTES = 8 * len(SECTION)
COLUMN_BYTES = 8 * len(COLUMN)
