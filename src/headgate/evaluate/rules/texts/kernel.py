"""Memory of a run: bitmaps, hashes, and tables of values.

Tables use open addressing: the next place if one is taken; where hashes are equal, bytes are compared.
"""

from __future__ import annotations

from headgate.evaluate.hashing import FIRST_FACTOR, SECOND_FACTOR
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.rules.layout import (
    KINDS_BY_TEXT,
    SPAN,
    SPAN_BYTES,
    TEXT,
    TEXT_BYTES,
)
from headgate.evaluate.values.kernel import equal_text, mixed, text_hash
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import load_i64, store_i64


@helper
def clear(address: int, size_bytes: int) -> None:
    """Set bytes to zero; their number is a multiple of eight."""
    for offset in range(0, size_bytes, 8):
        store_i64(address + offset, 0)


@helper
def mark(bitmap: int, row: int) -> None:
    """Set the bit of a row."""
    word = bitmap + ((row >> 6) << 3)
    store_i64(word, load_i64(word) | (1 << (row & 63)))


@inlined
def value_hash(register: int) -> int:
    """The hash of a value that is known by its text or by its payload."""
    kind = load_i64(register)
    payload = load_i64(register + REGISTER.payload)
    if (KINDS_BY_TEXT >> kind) & 1 != 0:
        return text_hash(payload, load_i64(register + REGISTER.length)) + kind
    return mixed(mixed(payload, FIRST_FACTOR) + kind, SECOND_FACTOR)


@helper
def text_number(table: int, mask: int, address: int, length: int) -> int:
    """The number of a text in a table of texts, -1 if it is not there."""
    found = text_hash(address, length)
    place = found & mask
    while True:
        entry = table + place * TEXT_BYTES
        number = load_i64(entry + TEXT.number)
        if number == 0:
            return -1
        if (
            load_i64(entry + TEXT.hash) == found
            and load_i64(entry + TEXT.length) == length
            and equal_text(address, load_i64(entry + TEXT.address), length)
        ):
            return number - 1
        place = (place + 1) & mask


@kernel("void(int64, int64, int64, int64)")
def fill_texts(table: int, mask: int, texts: int, count: int) -> None:
    """Put texts (`SpanBlock`s, all different) into an empty table under the numbers 0, 1, 2 …"""
    for number in range(count):
        span = texts + number * SPAN_BYTES
        address = load_i64(span + SPAN.address)
        length = load_i64(span + SPAN.length)
        found = text_hash(address, length)
        place = found & mask
        while load_i64(table + place * TEXT_BYTES + TEXT.number) != 0:
            place = (place + 1) & mask
        entry = table + place * TEXT_BYTES
        store_i64(entry + TEXT.hash, found)
        store_i64(entry + TEXT.address, address)
        store_i64(entry + TEXT.length, length)
        store_i64(entry + TEXT.number, number + 1)
