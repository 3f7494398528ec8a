"""The blocks of words that the kernel of encoding takes."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places

LIST, STRUCT, MAP, VARIANT = 0, 1, 2, 3
"""Kinds of sections."""


class SectionBlock(NamedTuple):
    """A section to encode."""

    kind: int
    code: int
    validity: int
    """Address of one byte per row; 0: all are valid."""
    columns: int
    """Address of its `ValuesBlock`s: one per field of the standard (LIST) or of the struct; of a MAP keys and items.

    Of a VARIANT value and metadata.
    """
    columns_length: int
    """Their number."""
    offsets: int = 0
    """Address of the int32 offsets of a MAP."""
    short_key: int = 0
    """Constructor of short keys (VARIANT only): 0xa1 string, 0xa3 symbol."""
    is_exact: int = 0
    """1: values that would be rounded are left to the reference, which refuses them (VARIANT only)."""


class ValuesBlock(NamedTuple):
    """A column of values."""

    form: int
    """One of the `F_` numbers (`inputs.Form`); -1: the column has no such field."""
    validity: int = 0
    """Address of one byte per row; 0: all are valid."""
    values: int = 0
    """Address of the int64 numbers, or of the int32 offsets of bytes."""
    octets: int = 0
    """Address of the bytes."""
    key: int = 0
    """Address of the encoded key (STRUCT only)."""
    key_length: int = 0


SECTION = places(SectionBlock)
VALUES = places(ValuesBlock)
SECTION_BYTES = 8 * len(SECTION)
VALUES_BYTES = 8 * len(VALUES)
