"""The hash index: from the values of a message's fields to the filters that demand one of them.

The fields of 64 messages are kept before they are looked up, so that the processor can load their places in the table
meanwhile. Whatever a hash suggests is compared byte for byte.
"""

from __future__ import annotations

from headgate.evaluate.layout import BOOLEAN, BYTES, FLOAT, INTEGER, REGISTER, REGISTER_BYTES, UNDECIDED
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.texts.kernel import in_field, mark, value_hash
from headgate.evaluate.values.kernel import equal_text
from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import float_of_bits, load_i64, load_u8, prefetch, store_i64
from headgate.kernels.vectors import BITMAP_BYTES, words_with_bits

KEYED_KINDS = 1 << BYTES | 1 << INTEGER | 1 << FLOAT | 1 << BOOLEAN
GROUP = 64


@inlined
def keep(head: int, row: int, registers: int) -> int:
    """Keep the indexed fields of the message at hand for `look_up`; UNDECIDED if only the reference can."""
    fields = load_i64(head + layout.FIELDS)
    count = load_i64(head + layout.FIELD_COUNT)
    mask = load_i64(head + layout.BUCKET_MASK)
    buckets = load_i64(head + layout.BUCKETS)
    stored = load_i64(head + layout.STORED) + (row & (GROUP - 1)) * count * REGISTER_BYTES
    hashes = load_i64(head + layout.HASHES) + (row & (GROUP - 1)) * count * 8
    for number in range(count):
        field = fields + number * (8 * layout.FIELD_WORDS)
        register = registers + load_i64(field + layout.FIELD_SLOT)
        kind = load_i64(register)
        if (load_i64(field + layout.FIELD_OPEN_KINDS) >> kind) & 1 != 0:
            return UNDECIDED
        payload = load_i64(register + REGISTER.payload)
        if kind == FLOAT:
            value = float_of_bits(payload)
            if -9223372036854775808.0 <= value < 9223372036854775808.0:
                whole = int(value)
                if float(whole) == value:
                    kind = INTEGER
                    payload = whole
        store_i64(stored, kind)
        store_i64(stored + REGISTER.payload, payload)
        store_i64(stored + REGISTER.length, load_i64(register + REGISTER.length))
        if load_i64(field + layout.FIELD_IS_ACCESS) != 0 and (KEYED_KINDS >> kind) & 1 != 0:
            found = in_field(value_hash(stored), number)
            store_i64(hashes, found)
            prefetch(buckets + (found & mask) * layout.BUCKET_BYTES)
        stored += REGISTER_BYTES
        hashes += 8
    return layout.DECIDED


@inlined
def _has_key(stored: int, key: int) -> bool:
    kind = load_i64(key + layout.KEY_KIND)
    if load_i64(stored) != kind:
        return False
    payload = load_i64(key + layout.KEY_PAYLOAD)
    if kind != BYTES:
        return load_i64(stored + REGISTER.payload) == payload
    length = load_i64(key + layout.KEY_LENGTH)
    return load_i64(stored + REGISTER.length) == length and equal_text(
        load_i64(stored + REGISTER.payload), payload, length
    )


@helper
def look_up(head: int, first: int, row: int, behind: int) -> bool:
    """Find the filters that rows `row` … `behind` - 1 of the block have keys of; the block begins with message `first`.

    What is matched is written out, filters that ask for more are noted. False if there is no room to write.
    """
    fields = load_i64(head + layout.FIELDS)
    count = load_i64(head + layout.FIELD_COUNT)
    mask = load_i64(head + layout.BUCKET_MASK)
    buckets = load_i64(head + layout.BUCKETS)
    states = load_i64(head + layout.STATES) + first
    while row < behind:
        if load_u8(states + row) == layout.DECIDED:
            stored = load_i64(head + layout.STORED) + (row & (GROUP - 1)) * count * REGISTER_BYTES
            hashes = load_i64(head + layout.HASHES) + (row & (GROUP - 1)) * count * 8
            for number in range(count):
                value = stored + REGISTER_BYTES * number
                if (
                    load_i64(fields + number * (8 * layout.FIELD_WORDS) + layout.FIELD_IS_ACCESS) != 0
                    and (KEYED_KINDS >> load_i64(value)) & 1 != 0
                ):
                    found = load_i64(hashes + 8 * number)
                    place = found & mask
                    entry = load_i64(buckets + place * layout.BUCKET_BYTES + layout.BUCKET.key)
                    while entry != 0:
                        if load_i64(buckets + place * layout.BUCKET_BYTES + layout.BUCKET.hash) == found:
                            key = load_i64(head + layout.KEYS) + (entry - 1) * (8 * layout.KEY_WORDS)
                            if load_i64(key + layout.KEY_FIELD) == number and _has_key(value, key):
                                if not _follow_postings(head, key, stored, first, row):
                                    return False
                                break
                        place = (place + 1) & mask
                        entry = load_i64(buckets + place * layout.BUCKET_BYTES + layout.BUCKET.key)
        row += 1
    return True


@inlined
def _checked(candidate: int, keys: int, stored: int) -> bool:
    for check in range(load_i64(candidate + layout.CANDIDATE_CHECKS)):
        key = keys + load_i64(candidate + layout.CANDIDATE_FIRST + 8 * check) * (8 * layout.KEY_WORDS)
        if not _has_key(stored + REGISTER_BYTES * load_i64(key + layout.KEY_FIELD), key):
            return False
    return True


@helper
def _follow_postings(head: int, key: int, stored: int, first: int, row: int) -> bool:
    """Ask the filters behind a key for their other equalities."""
    keys = load_i64(head + layout.KEYS)
    candidates = load_i64(head + layout.CANDIDATES)
    posting = load_i64(head + layout.POSTINGS) + 8 * load_i64(key + layout.KEY_POSTINGS)
    for _ in range(load_i64(key + layout.KEY_POSTING_COUNT)):
        candidate = candidates + load_i64(posting)
        posting += 8
        if _checked(candidate, keys, stored):
            residual = load_i64(candidate + layout.CANDIDATE_RESIDUAL)
            if residual == 0:
                count = load_i64(head + layout.OUT_COUNT)
                if count == load_i64(head + layout.OUT_CAPACITY):
                    return False
                pair = (
                    (first + row) << layout.MESSAGE_SHIFT
                    | load_i64(candidate + layout.CANDIDATE_NUMBER)
                    | layout.MATCH << layout.WHAT_SHIFT
                )
                store_i64(load_i64(head + layout.OUT) + 8 * count, pair)
                store_i64(head + layout.OUT_COUNT, count + 1)
            else:
                _note(head, residual - 1, row)
    return True


@helper
def _note(head: int, residual: int, row: int) -> None:
    """Note that a filter is to be asked for a row."""
    hits = load_i64(head + layout.HITS) + residual * BITMAP_BYTES
    if words_with_bits(hits) == 0:
        count = load_i64(head + layout.HIT_COUNT)
        store_i64(load_i64(head + layout.HIT_FILTERS) + 8 * count, residual)
        store_i64(head + layout.HIT_COUNT, count + 1)
    mark(hits, row)
