"""Values at paths into the bodies of many messages, out of the kernel: a copy of the slots for each message."""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.body.kernel import look_into_body
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.kernel import set_register
from headgate.evaluate.walk.kernel import check_rest, gather_early
from headgate.kernels.compiler import helper, kernel
from headgate.kernels.memory import kept_apart, load_i64, store_i64

NOWHERE = -1
"""The payload of a string that does not stand in the body as it is: it has escapes."""


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


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def read_paths(
    data: int,
    data_bytes: int,
    starts: int,
    lengths: int,
    messages: int,
    program: int,
    pool: int,
    registers: int,
    paths: int,
    found: int,
) -> int:
    """Write a `RegisterBlock` for each message and path; -1, or the first row whose bytes are not within `data_bytes`.

    A string is given by its place in `data`, NOWHERE if it has escapes. Kinds are ABSENT in a message that is not
    valid, and OPEN where only the reference can say.
    """
    behind = registers + paths * layout.REGISTER_BYTES
    for row in range(messages):
        start = load_i64(starts + 8 * row)
        length = load_i64(lengths + 8 * row)
        if start | length < 0 or length > data_bytes - start:
            return row
        start += data
        end = start + length
        read = _read(start, end, program, registers, behind, pool)
        if read != layout.TRUE:
            _fill(registers, behind, layout.ABSENT if read == layout.MALFORMED else layout.OPEN)
        slot = registers
        while slot < behind:
            kind = load_i64(slot)
            payload = load_i64(slot + REGISTER.payload)
            if kind == layout.BYTES:
                payload = payload - data if start <= payload < end else NOWHERE
            set_register(found, kind, payload)
            store_i64(found + REGISTER.length, load_i64(slot + REGISTER.length))
            slot += layout.REGISTER_BYTES
            found += layout.REGISTER_BYTES
    return -1
