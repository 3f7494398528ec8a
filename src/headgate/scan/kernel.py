"""The kernel of a filtered read: checksum, entries and verdicts of one chunk after the other, while it is in the cache.

Three passes over a window of chunks would fetch it from memory three times, which costs more than the work. So each
chunk is summed, walked and decided before the next one is touched, and only kept messages leave the kernel. The same in
Python stands in `stage_two.py`.
"""

from __future__ import annotations

from headgate.evaluate.kernel import decide
from headgate.evaluate.layout import ERROR, FALSE, TRUE, UNKNOWN
from headgate.kernels.checksum import crc32
from headgate.kernels.compiler import kernel
from headgate.kernels.memory import load_be_u32, load_i64, prefetch, store_i64, store_u8

CHUNK_WORDS = 6
"""Words per chunk: start of the data part, its bytes, its entries, its records, the chunk id, the CRC."""

AHEAD_BYTES = 1024
"""Distance behind a message at which memory is prefetched into the first level of the cache."""

DONE, MALFORMED, SUB_BATCH, WRONG_CHECKSUM = 0, 1, 2, 3
"""Why `decide_chunks` ended."""


@kernel(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,"
    " int64, int64, int64)"
)
def decide_chunks(
    data: int,
    chunks: int,
    first_chunk: int,
    chunk_count: int,
    crc_table: int,
    program: int,
    code_word: int,
    pool: int,
    registers: int,
    within_start: int,
    within_stop: int,
    starts: int,
    lengths: int,
    offsets: int,
    rows: int,
    verdicts: int,
    tally: int,
    stop: int,
) -> int:
    """Keep the messages of chunks `first_chunk` … `chunk_count` whose verdict is true, an error or undecided.

    Writes start, length, offset, number of the chunk (int64) and verdict (byte) of each; gives how many. Without a
    `program` (0) all are kept, without a `crc_table` (0) no checksum is looked at. `tally` (5 words) counts verdicts
    of the messages with offsets from `within_start` to before `within_stop`; others are passed over. It ends before a
    sub-batch or a damaged chunk: `stop` gets reason and chunk. The chunks' data lies inside `data`.
    """
    code = load_i64(program + code_word) if program != 0 else 0
    kept = 0
    for chunk in range(first_chunk, chunk_count):
        at = chunks + chunk * (8 * CHUNK_WORDS)
        position = load_i64(at)
        size = load_i64(at + 8)
        entries = load_i64(at + 16)
        records = load_i64(at + 24)
        offset = load_i64(at + 32)
        position += data
        end = position + size
        reason = DONE
        if crc_table != 0 and crc32(position, size, crc_table) != load_i64(at + 40):
            reason = WRONG_CHECKSUM
            entries = 0
        written = kept
        false = 0
        true = 0
        unknown = 0
        error = 0
        undecided = 0
        for _ in range(entries):
            if end - position < 4:
                reason = MALFORMED
                break
            length = load_be_u32(position)
            if length >= 0x80000000:
                reason = SUB_BATCH
                break
            if length > end - position - 4:
                reason = MALFORMED
                break
            message = position + 4
            position = message + length
            prefetch(position + AHEAD_BYTES)
            prefetch(position + AHEAD_BYTES + 64)
            prefetch(position + AHEAD_BYTES + 128)
            prefetch(position + AHEAD_BYTES + 192)
            if within_start <= offset < within_stop:
                verdict = decide(message, position, program, code, registers, pool) if program != 0 else TRUE
                if verdict == FALSE:
                    false += 1
                elif verdict == UNKNOWN:
                    unknown += 1
                else:
                    row = written << 3
                    store_i64(starts + row, message - data)
                    store_i64(lengths + row, length)
                    store_i64(offsets + row, offset)
                    store_i64(rows + row, chunk)
                    store_u8(verdicts + written, verdict)
                    written += 1
                    if verdict == TRUE:
                        true += 1
                    elif verdict == ERROR:
                        error += 1
                    else:
                        undecided += 1
            offset += 1
        if reason == DONE and (position != end or entries != records):
            reason = MALFORMED
        if reason != DONE:
            store_i64(stop, reason)
            store_i64(stop + 8, chunk)
            return kept
        kept = written
        store_i64(tally, load_i64(tally) + false)
        store_i64(tally + 8, load_i64(tally + 8) + true)
        store_i64(tally + 16, load_i64(tally + 16) + unknown)
        store_i64(tally + 24, load_i64(tally + 24) + error)
        store_i64(tally + 32, load_i64(tally + 32) + undecided)
    store_i64(stop, DONE)
    store_i64(stop + 8, chunk_count)
    return kept
