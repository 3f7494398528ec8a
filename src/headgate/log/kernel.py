"""Kernels of the log: walking the entries of chunks, and building chunks (entries, Bloom bytes, CRC) from messages.

All arguments are addresses of arrays (int64 unless said otherwise) and counts; starts count from their `data`. Nothing
is allocated here: the callers in `entry_positions.py` and `chunk_builder.py` size the arrays, and hold the same work in
plain Python. Layouts: spec of the log, sections 2 (chunk), 3 (entries) and 5 (Bloom filter); drawn in `format.py`.
"""

from __future__ import annotations

from headgate.kernels.checksum import crc32
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    copy_bytes,
    load_be_u32,
    load_i64,
    load_u8,
    load_u32,
    prefetch,
    store_be_u16,
    store_be_u32,
    store_i64,
    store_u8,
)
from headgate.log.layout import HASHED, HASHED_BYTES, STOP

WALKED, MALFORMED, SUB_BATCH = 0, 1, 2
"""Why `walk_entries` ended: every chunk done, an entry that does not fit its chunk, a sub-batch."""

CACHE_SLOTS = 256
"""Of the cache of hashed filter values: a `HashedBlock` each."""

_HEADER_BYTES = 48
_AHEAD_FROM = 2048
_AHEAD_BYTES = 256
_MESSAGES_AHEAD = 12
_FETCHED_BYTES = 1024
"""Limit: bytes of a message that are prefetched; the processor itself goes on with a longer one."""

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
_BINARY_SEED = 0x08D12E65
_SPREAD = -7046029254386353131


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def walk_entries(
    data: int,
    data_starts: int,
    data_lengths: int,
    entry_counts: int,
    chunk_ids: int,
    first_chunk: int,
    chunk_count: int,
    starts: int,
    lengths: int,
    offsets: int,
    stop: int,
) -> int:
    """Write start, length and offset of every simple entry from chunk `first_chunk` on; gives their number.

    At a chunk with a sub-batch or a malformed entry the walk ends before that chunk; `stop` is the address of
    a `StopBlock`. Nothing outside `data_starts[i] … + data_lengths[i]` is read.
    """
    total = 0
    for chunk in range(first_chunk, chunk_count):
        at = chunk << 3
        position: int = load_i64(data_starts + at)
        end = position + load_i64(data_lengths + at)
        offset = load_i64(chunk_ids + at)
        written = total
        reason = WALKED
        for _ in range(load_i64(entry_counts + at)):
            if end - position < 4:
                reason = MALFORMED
                break
            # Only an entry's head shows where the next one is: without this, the walk waits for memory at every head.
            for line in range(0, _AHEAD_BYTES, 64):
                prefetch(data + position + _AHEAD_FROM + line)
            length = load_be_u32(data + position)
            if length >= 0x80000000:
                reason = SUB_BATCH
                break
            if length > end - position - 4:
                reason = MALFORMED
                break
            row = written << 3
            store_i64(starts + row, position + 4)
            store_i64(lengths + row, length)
            store_i64(offsets + row, offset)
            written += 1
            offset += 1
            position += 4 + length
        if reason == WALKED and position != end:
            reason = MALFORMED
        if reason != WALKED:
            store_i64(stop + STOP.reason, reason)
            store_i64(stop + STOP.chunk, chunk)
            store_i64(stop + STOP.position, position)
            return total
        total = written
    store_i64(stop + STOP.reason, WALKED)
    store_i64(stop + STOP.chunk, chunk_count)
    store_i64(stop + STOP.position, 0)
    return total


@inlined
def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    a = ((a - b - c) ^ (c >> 13)) & _MASK
    b = ((b - c - a) ^ (a << 8)) & _MASK
    c = ((c - a - b) & _MASK) ^ (b >> 13)
    a = ((a - b - c) & _MASK) ^ (c >> 12)
    b = ((b - c - a) ^ (a << 16)) & _MASK
    c = ((c - a - b) & _MASK) ^ (b >> 5)
    a = ((a - b - c) & _MASK) ^ (c >> 3)
    b = ((b - c - a) ^ (a << 10)) & _MASK
    c = ((c - a - b) & _MASK) ^ (b >> 15)
    return a, b, c


@helper
def _hash_of_binary(address: int, length: int) -> int:
    """Erlang's `phash2` of a binary that is not empty, before a range is applied."""
    a = _GOLDEN
    b = _GOLDEN
    c = _BINARY_SEED
    position = address
    rest = length
    while rest >= 12:
        a = (a + load_u32(position)) & _MASK
        b = (b + load_u32(position + 4)) & _MASK
        c = (c + load_u32(position + 8)) & _MASK
        a, b, c = _mix(a, b, c)
        position += 12
        rest -= 12
    c += length
    for index in range(rest):
        byte: int = load_u8(position + index)
        if index < 4:
            a += byte << (8 * index)
        elif index < 8:
            b += byte << (8 * (index - 4))
        else:
            c += byte << (8 * (index - 7))
    a, b, c = _mix(a & _MASK, b & _MASK, c & _MASK)
    return c


@helper
def _hash_of_list(binary_hash: int) -> int:
    """`phash2` of the list that holds only the binary with this hash."""
    if binary_hash == 0:
        return 3468870702
    _a, _b, c = _mix(0x3C6EF374, 0x3C6EF372, binary_hash)
    return c


@helper
def _same_bytes(left: int, right: int, length: int) -> bool:
    if length >= 8:
        position = 0
        while position <= length - 8:
            if load_i64(left + position) != load_i64(right + position):
                return False
            position += 8
        return load_i64(left + length - 8) == load_i64(right + length - 8)
    for position in range(length):  # noqa: SIM110 - kernels have no generators
        if load_u8(left + position) != load_u8(right + position):
            return False
    return True


@helper
def _bits_of(address: int, length: int, bit_count: int, cache: int) -> int:
    """The two bit numbers of a filter value that is not empty: the first in the low, the second in the high half."""
    if length >= 8:
        word = load_i64(address) ^ (load_i64(address + length - 8) * 3)
    else:
        word = 0
        for position in range(length):
            word = (word << 8) | load_u8(address + position)
    slot = cache + (((word * _SPREAD + length) >> 56) & (CACHE_SLOTS - 1)) * HASHED_BYTES
    if load_i64(slot + HASHED.length) == length and _same_bytes(load_i64(slot + HASHED.address), address, length):
        return load_i64(slot + HASHED.bits)
    binary_hash = _hash_of_binary(address, length)
    low = binary_hash % (bit_count - 1) + 1
    high = _hash_of_list(binary_hash) % (bit_count - 1) + 1
    bits = low | (high << 32)
    store_i64(slot + HASHED.address, address)
    store_i64(slot + HASHED.length, length)
    store_i64(slot + HASHED.bits, bits)
    return bits


@inlined
def _set_bit(bloom: int, bit: int) -> None:
    at = bloom + (bit >> 3)
    store_u8(at, load_u8(at) | (128 >> (bit & 7)))


@helper
def _fill_bloom(
    bloom: int, size: int, values: int, starts: int, lengths: int, first: int, end: int, cache: int
) -> None:
    for index in range(size):
        store_u8(bloom + index, 0)
    for message in range(first, end):
        if message + _MESSAGES_AHEAD < end:
            prefetch(values + load_i64(starts + ((message + _MESSAGES_AHEAD) << 3)))
        length: int = load_i64(lengths + (message << 3))
        if length <= 0:
            _set_bit(bloom, 0)
        else:
            bits = _bits_of(values + load_i64(starts + (message << 3)), length, size << 3, cache)
            _set_bit(bloom, bits & _MASK)
            _set_bit(bloom, bits >> 32)


@helper
def _fetch_ahead(data: int, starts: int, lengths: int, message: int, end: int) -> None:
    """Prefetch the bytes of a message a few places behind this one, if it is in the chunk."""
    if message + _MESSAGES_AHEAD < end:
        row = (message + _MESSAGES_AHEAD) << 3
        begin = data + load_i64(starts + row)
        for line in range(0, min(load_i64(lengths + row), _FETCHED_BYTES), 64):
            prefetch(begin + line)


@kernel(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,"
    " int64, int64)"
)
def build_chunks(
    data: int,
    starts: int,
    lengths: int,
    records: int,
    boundaries: int,
    chunk_count: int,
    values: int,
    value_starts: int,
    value_lengths: int,
    value_boundaries: int,
    filter_size: int,
    trailer: int,
    trailer_size: int,
    cache: int,
    crc_table: int,
    target: int,
    positions: int,
) -> int:
    """Write `chunk_count` chunks one after another at `target`; gives the bytes written.

    Chunk i holds the entries `boundaries[i]` … `boundaries[i + 1]`. `records` 0: all entries are messages; else entry i
    is a sub-batch of `records[i]` messages, copied as it is, if that is above 0; no chunk holds both kinds.
    `value_lengths` 0: no message has a filter value; else chunk i has the values `value_boundaries[i]` …
    `value_boundaries[i + 1]`, one per message, where a length ≤ 0 means no value; a sub-batch whose members' values are
    not known has no rows there. `trailer` bytes are copied behind each chunk. Timestamp, epoch and chunk id are zero;
    so is the CRC with a `crc_table` of 0. `positions[i]` gets the start of chunk i.
    """
    position = target
    for chunk in range(chunk_count):
        store_i64(positions + (chunk << 3), position - target)
        first = load_i64(boundaries + (chunk << 3))
        end = load_i64(boundaries + (chunk << 3) + 8)
        header = position
        position += _HEADER_BYTES
        bloom_size = 0
        is_sub_batched = records != 0 and load_i64(records + (first << 3)) > 0
        if value_lengths != 0:
            first_value = load_i64(value_boundaries + (chunk << 3))
            end_value = load_i64(value_boundaries + (chunk << 3) + 8)
            for message in range(first_value, end_value):
                if load_i64(value_lengths + (message << 3)) > 0:
                    bloom_size = filter_size
                    break
            if bloom_size != 0:
                _fill_bloom(position, bloom_size, values, value_starts, value_lengths, first_value, end_value, cache)
                position += bloom_size
        entries = position
        record_count = end - first
        if is_sub_batched:
            record_count = 0
            for entry in range(first, end):
                length = load_i64(lengths + (entry << 3))
                copy_bytes(position, data + load_i64(starts + (entry << 3)), length)
                position += length
                record_count += load_i64(records + (entry << 3))
        else:
            for message in range(first, end):
                # Messages that were picked out lie anywhere: without this, each copy waits for memory.
                _fetch_ahead(data, starts, lengths, message, end)
                length = load_i64(lengths + (message << 3))
                store_be_u32(position, length)
                copy_bytes(position + 4, data + load_i64(starts + (message << 3)), length)
                position += 4 + length
        data_size = position - entries
        store_u8(header, 0x50)
        store_u8(header + 1, 0)
        store_be_u16(header + 2, end - first)
        store_be_u32(header + 4, record_count)
        store_i64(header + 8, 0)
        store_i64(header + 16, 0)
        store_i64(header + 24, 0)
        store_be_u32(header + 32, crc32(entries, data_size, crc_table) if crc_table != 0 else 0)
        store_be_u32(header + 36, data_size)
        store_be_u32(header + 40, trailer_size)
        store_be_u32(header + 44, bloom_size << 24)
        copy_bytes(position, trailer, trailer_size)
        position += trailer_size
    return position - target


@kernel("int64(int64, int64, int64, int64, int64)")
def gather(data: int, starts: int, lengths: int, count: int, target: int) -> int:
    """Copy byte ranges to `target` without gaps; gives the bytes written. Lengths ≤ 0 copy nothing."""
    position = target
    for row in range(count):
        length: int = load_i64(lengths + (row << 3))
        if length > 0:
            copy_bytes(position, data + load_i64(starts + (row << 3)), length)
            position += length
    return position - target
