"""The kernel of a filtered read: checksum, entries and verdicts of one chunk after the other, while it is in the cache.

Three passes over a window of chunks would fetch it from memory three times, which costs more than the work. So each
chunk is summed, walked and decided before the next one is touched, and only kept messages leave the kernel. The same in
Python stands in `stage_two.py`.
"""

from __future__ import annotations

from headgate.evaluate.kernel import decide
from headgate.evaluate.layout import ERROR, FALSE, TRUE, UNDECIDED, UNKNOWN
from headgate.kernels.checksum import crc32
from headgate.kernels.compiler import kernel
from headgate.kernels.memory import load_be_u32, load_i64, prefetch, store_i64, store_u8
from headgate.scan.layout import CHUNK, CHUNK_BYTES, STOP

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
    `program` (0) all are kept, without a `crc_table` (0) no checksum is looked at. `tally` counts messages with offsets
    from `within_start` to before `within_stop` in a word for each verdict; others are passed over. It ends before a
    sub-batch or a damaged chunk: where is in `stop`, a `StopBlock`. The data of `chunks`, each a `ChunkBlock`, lies
    inside `data`.
    """
    code = load_i64(program + code_word) if program != 0 else 0
    kept = 0
    for chunk in range(first_chunk, chunk_count):
        at = chunks + chunk * CHUNK_BYTES
        position = load_i64(at + CHUNK.data_start)
        size = load_i64(at + CHUNK.data_length)
        entries = load_i64(at + CHUNK.num_entries)
        records = load_i64(at + CHUNK.num_records)
        offset = load_i64(at + CHUNK.chunk_id)
        position += data
        end = position + size
        reason = DONE
        if crc_table != 0 and crc32(position, size, crc_table) != load_i64(at + CHUNK.crc):
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
            store_i64(stop + STOP.reason, reason)
            store_i64(stop + STOP.chunk, chunk)
            return kept
        kept = written
        store_i64(tally + 8 * FALSE, load_i64(tally + 8 * FALSE) + false)
        store_i64(tally + 8 * TRUE, load_i64(tally + 8 * TRUE) + true)
        store_i64(tally + 8 * UNKNOWN, load_i64(tally + 8 * UNKNOWN) + unknown)
        store_i64(tally + 8 * ERROR, load_i64(tally + 8 * ERROR) + error)
        store_i64(tally + 8 * UNDECIDED, load_i64(tally + 8 * UNDECIDED) + undecided)
    store_i64(stop + STOP.reason, DONE)
    store_i64(stop + STOP.chunk, chunk_count)
    return kept
