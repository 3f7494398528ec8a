"""Deciding the messages of entries that lie apart, which are checked to be as a source of answers noted them.

Single entries out of a chunk are cold memory, and too short for the processor to notice where the next one lies. So
while one is summed, a later one is prefetched, byte for byte; that halves the time.
"""

from __future__ import annotations

from headgate.evaluate.kernel import decide
from headgate.evaluate.layout import TRUE
from headgate.kernels.checksum import crc32_ahead
from headgate.kernels.compiler import kernel
from headgate.kernels.memory import load_be_u32, load_i64, store_u8

HEAD_BYTES = 4
"""The length before a message; `ENTRY_HEAD_BYTES` of the log."""

AHEAD = 3
"""How many entries ahead memory is prefetched."""


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def decide_entries(
    data: int,
    starts: int,
    sizes: int,
    expected: int,
    count: int,
    table: int,
    program: int,
    code_word: int,
    pool: int,
    registers: int,
    verdicts: int,
) -> int:
    """Check `count` entries and decide their messages, one after the other, while each is in the cache.

    `starts`, `sizes` (head included), `expected` are addresses of int64 arrays; starts count from `data`. Without a
    `table` (0) checksums are not looked at; without a `program` (0) every message is true. Writes a byte per message to
    `verdicts`. Ends at the first entry whose length is not that of its head, or whose CRC-32 is not the expected one,
    and gives its number; `count` if all are right.
    """
    code = load_i64(program + code_word) if program != 0 else 0
    for number in range(count):
        at = number << 3
        start = load_i64(starts + at)
        size = load_i64(sizes + at)
        address = data + start
        if load_be_u32(address) + HEAD_BYTES != size:
            return number
        if table != 0:
            ahead = load_i64(starts + at + (AHEAD << 3)) - start if number + AHEAD < count else 0
            if crc32_ahead(address, size, table, ahead) != load_i64(expected + at):
                return number
        verdict = TRUE
        if program != 0:
            verdict = decide(address + HEAD_BYTES, address + size, program, code, registers, pool)
        store_u8(verdicts + number, verdict)
    return count
