"""The blocks of words that the kernels of decoding take."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class SectionsBlock(NamedTuple):
    """Where the sections of a message are: addresses of their constructors; 0: the message has none.

    There is one block per row, written by `walk` and read by the others.
    """

    header: int
    message_annotations: int
    properties: int
    application_properties: int
    body: int
    """Address of the body's bytes; 0: the body is null."""
    body_length: int
    end: int
    """Of the message."""
    is_decided: int
    """1: all words hold; 0: the row is undecided."""


class AskedBlock(NamedTuple):
    """The request of `fields` to a section before the body; there is one block per code of a section."""

    fields: int
    """Address of its `FieldBlock`s: by position of header and properties, by key of maps; 0: nothing is asked."""
    fields_length: int
    """Their number."""
    present: int
    """Address of one byte per row, zero before: 1: the message has the section."""
    by_length: int
    """Address of one int32 for each length of a key (maps only): one more than the number of the first descriptor.

    0: there is none. The last of the 256 stands for all lengths from 255 on.
    """


class FieldBlock(NamedTuple):
    """The descriptor of a field."""

    target: int
    """One of the `T_` numbers."""
    values: int
    """Address of one int64 per row, zero before: the number (the bits of a double for T_FLOAT, T_DOUBLE).

    Of texts it is one int32 per row and one, the offsets, the first zero.
    """
    validity: int
    """Address of one byte per row, zero before."""
    used: int = 0
    """Of texts: how many bytes are used."""
    key: int = 0
    """Address (maps only, as all words up to `mismatched`)."""
    key_length: int = 0
    key_prefix: int = 0
    """Its first eight bytes in native order."""
    key_mask: int = 0
    """The bytes of the prefix that the key has."""
    next: int = 0
    """One more than the number of the next descriptor with a key of that length; 0: there is none."""
    last_row: int = 0
    """The last row that has the key; -1 before."""
    mismatched: int = 0
    """Address of one int64 per row, zero before: address of a value that the column does not take."""
    text: int = 0
    """Address of the bytes of texts."""
    text_capacity: int = 0


SECTIONS = places(SectionsBlock)
ASKED = places(AskedBlock)
FIELD = places(FieldBlock)
SECTIONS_BYTES = 8 * len(SECTIONS)
ASKED_BYTES = 8 * len(ASKED)
FIELD_BYTES = 8 * len(FIELD)
