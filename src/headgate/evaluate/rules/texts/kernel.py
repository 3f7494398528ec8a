"""Memory of a run: bitmaps, hashes, and tables of values.

Tables use open addressing: the next place if one is taken; where hashes are equal, bytes are compared.
"""

from __future__ import annotations

from headgate.evaluate.hashing import FIRST_FACTOR, SECOND_FACTOR
from headgate.evaluate.rules.layout import BUCKET_WORDS, KINDS_BY_TEXT, TEXT_WORDS
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
    payload = load_i64(register + 8)
    if (KINDS_BY_TEXT >> kind) & 1 != 0:
        return text_hash(payload, load_i64(register + 16)) + kind
    return mixed(mixed(payload, FIRST_FACTOR) + kind, SECOND_FACTOR)


@inlined
def in_field(found: int, field: int) -> int:
    """The hash of a value of an indexed field."""
    return mixed(found + field, FIRST_FACTOR)


@helper
def text_number(table: int, mask: int, address: int, length: int) -> int:
    """The number of a text in a table of texts, -1 if it is not there."""
    found = text_hash(address, length)
    place = found & mask
    while True:
        entry = table + place * (8 * TEXT_WORDS)
        number = load_i64(entry + 24)
        if number == 0:
            return -1
        if (
            load_i64(entry) == found
            and load_i64(entry + 16) == length
            and equal_text(address, load_i64(entry + 8), length)
        ):
            return number - 1
        place = (place + 1) & mask


@kernel("void(int64, int64, int64, int64)")
def fill_texts(table: int, mask: int, texts: int, count: int) -> None:
    """Put texts (address, length: two words each, all different) into an empty table under the numbers 0, 1, 2 …"""
    for number in range(count):
        address = load_i64(texts + 16 * number)
        length = load_i64(texts + 16 * number + 8)
        found = text_hash(address, length)
        place = found & mask
        while load_i64(table + place * (8 * TEXT_WORDS) + 24) != 0:
            place = (place + 1) & mask
        entry = table + place * (8 * TEXT_WORDS)
        store_i64(entry, found)
        store_i64(entry + 8, address)
        store_i64(entry + 16, length)
        store_i64(entry + 24, number + 1)


@kernel("void(int64, int64, int64, int64, int64)")
def fill_buckets(buckets: int, mask: int, keys: int, key_bytes: int, count: int) -> None:
    """Put keys, as the index lays them out, into empty buckets; texts are addresses already."""
    for number in range(count):
        key = keys + number * key_bytes
        found = in_field(value_hash(key + 8), load_i64(key))
        place = found & mask
        while load_i64(buckets + place * (8 * BUCKET_WORDS) + 8) != 0:
            place = (place + 1) & mask
        store_i64(buckets + place * (8 * BUCKET_WORDS), found)
        store_i64(buckets + place * (8 * BUCKET_WORDS) + 8, number + 1)
