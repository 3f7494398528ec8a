"""Values at paths into the bodies of many messages, out of the kernel: what a walk finds in each message."""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.body.kernel import look_into_body
from headgate.evaluate.layout import BODY, REGISTER
from headgate.evaluate.values.kernel import set_register
from headgate.evaluate.walk.kernel import check_rest, gather_early, is_outside
from headgate.kernels.compiler import helper, kernel
from headgate.kernels.memory import kept_apart, load_i64, store_i64, store_u8


@helper
def _fill(slots: int, behind: int, kind: int) -> None:
    """Give all slots of a message one kind."""
    while slots < behind:
        set_register(slots, kind, 0)
        slots += layout.REGISTER_BYTES


@helper
def _read(start: int, end: int, program: int, registers: int, behind: int, pool: int) -> int:
    """Fill the slots from one message: TRUE, MALFORMED, or UNDECIDED."""
    kept_apart()
    _fill(registers, behind, layout.ABSENT)
    late = gather_early(start, end, program, registers, pool)
    if late < 0:
        return -late
    checked = check_rest(late, end)
    if checked != layout.TRUE:
        return checked
    return look_into_body(0, start, late, end, program, registers, pool)


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def find_values(
    data: int,
    data_bytes: int,
    starts: int,
    lengths: int,
    messages: int,
    program: int,
    pool: int,
    registers: int,
    paths: int,
    kinds: int,
    payloads: int,
    value_lengths: int,
    texts: int,
) -> int:
    """Write kind, payload and length for each path and message; the bytes written to `texts`, or -1 less a row.

    That is the first whose bytes are not within `data_bytes`. Texts are given by their place, in `data` or in `texts`,
    which is as large as all messages. Kinds are NO_MESSAGE in a message that is not valid, and OPEN where only the
    reference can say.
    """
    behind = registers + paths * layout.REGISTER_BYTES
    scratch = registers + load_i64(program + load_i64(program + layout.BODY_PATHS) + BODY.scratch)
    free = texts
    for row in range(messages):
        start = load_i64(starts + 8 * row)
        length = load_i64(lengths + 8 * row)
        if is_outside(start, length, data_bytes):
            return -1 - row
        start += data
        end = start + length
        set_register(scratch, layout.READS_VALUES, free)
        read = _read(start, end, program, registers, behind, pool)
        if read != layout.TRUE:
            _fill(registers, behind, layout.NO_MESSAGE if read == layout.MALFORMED else layout.OPEN)
        slot = registers
        place = row
        while slot < behind:
            kind = load_i64(slot)
            payload = load_i64(slot + REGISTER.payload)
            length = load_i64(slot + REGISTER.length)
            if kind == layout.NUMBER_TEXT or (kind == layout.BYTES and start <= payload < end):
                payload -= data
            elif kind == layout.BYTES:
                kind = layout.UNESCAPED
                free = max(free, payload + length)
                payload -= texts
            store_u8(kinds + place, kind)
            store_i64(payloads + 8 * place, payload)
            store_i64(value_lengths + 8 * place, length)
            slot += layout.REGISTER_BYTES
            place += messages
    return free - texts
