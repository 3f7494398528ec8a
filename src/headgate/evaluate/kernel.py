"""The kernel: interprets a program (`layout.py`) over encoded messages, one message after the other.

Addresses are plain int64. What a value is stands in `values/kernel.py`, what a message is in `walk/kernel.py`; all
of it is compiled into the one entry point `evaluate`, except what `operations/kernel.py` shares.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.body.kernel import look_into_body
from headgate.evaluate.layout import MEMBER, REGISTER
from headgate.evaluate.operations.kernel import operate
from headgate.evaluate.values.kernel import equal_after_eight, order_of, store_truth, text_hash
from headgate.evaluate.walk.kernel import (
    check_rest,
    gather_early,
    gather_footer,
    gather_late,
    is_outside,
)
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    float_of_bits,
    kept_apart,
    load_i64,
    prefetch,
    store_i64,
    store_u8,
)

NOT_YET = -1
PREFETCH_MESSAGES = 16
"""How many messages ahead are asked for: a miss takes as long as several messages."""


# -- the interpreter ---------------------------------------------------------------------------------------------------


@helper
def _keep(truth: int, wanted: int, at: int, registers: int) -> int:
    """End with the truth of a predicate, store it or collect it; gives the next position."""
    kept_apart()
    if wanted == layout.END:
        return -1 - truth
    if wanted == layout.STORE:
        store_truth(registers + load_i64(at + layout.OTHERWISE), truth)
        return load_i64(at + layout.ON_WANTED)
    register = registers + (wanted >> layout.COLLECT_SHIFT)
    if wanted & layout.COLLECT_NEGATED != 0 and truth != layout.UNKNOWN:
        truth = 1 - truth
    decides = truth == wanted & layout.COLLECT_DECISIVE
    if truth == layout.UNKNOWN or decides or wanted & layout.COLLECT_FIRST != 0:
        store_truth(register, truth)
    return load_i64(at + layout.OTHERWISE) if decides else load_i64(at + layout.ON_WANTED)


@inlined
def interpret(program: int, position: int, registers: int, pool: int, start: int, late: int, end: int) -> int:
    """Run instructions to an end: the verdict.

    The message lies from `start` to `end`, the map of its application properties is at `late`, 0 if it has none. The
    commonest predicates on the kind of value they expect are decided here, everything else in functions of its own.
    """
    while position >= 0:
        at = program + position
        operation = load_i64(at)
        register = registers + load_i64(at + layout.A)
        kind = load_i64(register)
        truth = NOT_YET
        if operation == layout.EQUAL_BYTES:
            if kind == layout.BYTES:
                length = load_i64(at + layout.C)
                text = load_i64(register + REGISTER.payload)
                # No branch on what cannot be predicted: length and first eight bytes in one.
                different = (load_i64(text) ^ load_i64(at + layout.B)) & load_i64(at + layout.D)
                truth = 1 if different | (load_i64(register + REGISTER.length) ^ length) == 0 else 0
                if (
                    length > 8
                    and truth == layout.TRUE
                    and not equal_after_eight(text, pool + load_i64(at + layout.E), length)
                ):
                    truth = layout.FALSE
        elif operation == layout.AMONG_BYTES:
            if kind == layout.BYTES:
                truth = layout.FALSE
                text = load_i64(register + REGISTER.payload)
                length = load_i64(register + REGISTER.length)
                word = load_i64(text)
                member = program + load_i64(at + layout.B)
                count = load_i64(at + layout.C)
                behind = member + layout.MEMBER_BYTES * count
                if count < 0:
                    bucket = member + ((text_hash(text, length) & (-1 - count)) << 3)
                    members = member + 8 - (count << 3)
                    member = members + load_i64(bucket)
                    behind = members + load_i64(bucket + 8)
                while member < behind:
                    if (
                        (word ^ load_i64(member + MEMBER.word)) & load_i64(member + MEMBER.mask) == 0
                        and length == load_i64(member + MEMBER.length)
                        and (length <= 8 or equal_after_eight(text, pool + load_i64(member + MEMBER.text), length))
                    ):
                        truth = layout.TRUE
                        break
                    member += layout.MEMBER_BYTES
        elif operation == layout.COMPARE_INTEGER:
            if kind == layout.INTEGER:
                order = order_of(load_i64(register + REGISTER.payload), load_i64(at + layout.B))
                truth = (load_i64(at + layout.C) >> (order + 1)) & 1
        elif operation == layout.COMPARE_FLOAT:
            if kind == layout.FLOAT:
                value = float_of_bits(load_i64(register + REGISTER.payload))
                order = order_of(value, float_of_bits(load_i64(at + layout.B)))
                truth = (load_i64(at + layout.C) >> (order + 1)) & 1
        elif operation == layout.EQUAL_BOOLEAN:
            if kind == layout.BOOLEAN:
                payload = load_i64(register + REGISTER.payload)
                truth = layout.TRUE if payload == load_i64(at + layout.B) else layout.FALSE
        elif operation == layout.READ_APPLICATION_PROPERTIES:
            if late != 0 and not gather_late(late, end, program, registers, pool):
                return layout.MALFORMED
            position = load_i64(at + layout.ON_WANTED)
            continue
        elif operation == layout.CHECK:
            checked = check_rest(late, end)
            if checked != layout.TRUE:
                return checked
            position = load_i64(at + layout.ON_WANTED)
            continue
        elif layout.READ_BODY <= operation <= layout.NEXT_ELEMENT:
            truth = look_into_body(at, start, late, end, program, registers, pool)
            if truth == layout.UNDECIDED:
                return truth
        if truth == NOT_YET:
            truth = operate(operation, at, register, program, registers, pool)
            if truth >= layout.ERROR:
                return truth
        wanted = load_i64(at + layout.WANTED)
        if truth == wanted:
            position = load_i64(at + layout.ON_WANTED)
        elif wanted >= layout.STORE:
            position = _keep(truth, wanted, at, registers)
        else:
            position = load_i64(at + layout.OTHERWISE)
    return -1 - position


@inlined
def reset(program: int, registers: int) -> None:
    """Slots as they are before a message: absent, or a default."""
    template = program + load_i64(program + layout.SLOT_TEMPLATE)
    kind = load_i64(template)
    while kind >= 0:
        store_i64(registers, kind)
        store_i64(registers + REGISTER.payload, load_i64(template + REGISTER.payload))
        registers += layout.REGISTER_BYTES
        template += layout.REGISTER_BYTES
        kind = load_i64(template)


@inlined
def decide(start: int, end: int, program: int, code: int, registers: int, pool: int) -> int:
    """The verdict on the message from `start` to `end`; `code` is where the instructions begin."""
    reset(program, registers)
    late = gather_early(start, end, program, registers, pool)
    if late < 0:
        return -late
    # Filters of application properties alone begin with this step: it costs them no turn of the interpreter.
    if load_i64(program + code) == layout.READ_APPLICATION_PROPERTIES:
        if late != 0 and not gather_late(late, end, program, registers, pool):
            return layout.MALFORMED
        code = load_i64(program + code + layout.ON_WANTED)
    elif load_i64(program + code) == layout.READ_FOOTER:
        found = gather_footer(start, end, program, registers, pool)
        if found != layout.TRUE:
            return found
        code = load_i64(program + code + layout.ON_WANTED)
    return interpret(program, code, registers, pool, start, late, end)


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def evaluate(
    data: int,
    data_bytes: int,
    starts: int,
    lengths: int,
    messages: int,
    program: int,
    code_word: int,
    pool: int,
    registers: int,
    verdicts: int,
) -> int:
    """Write one verdict byte per message; -1, or the first row whose bytes are not within `data_bytes`.

    All but `data_bytes`, `messages` and `code_word` (CODE_SELECT or CODE_EXACT) are addresses; the slack follows the
    `data_bytes`.
    """
    code = load_i64(program + code_word)
    last_ahead = messages - PREFETCH_MESSAGES
    for row in range(messages):
        start = load_i64(starts + 8 * row)
        length = load_i64(lengths + 8 * row)
        if is_outside(start, length, data_bytes):
            return row
        if row < last_ahead:
            ahead = data + load_i64(starts + 8 * (row + PREFETCH_MESSAGES))
            prefetch(ahead)
            prefetch(ahead + 64)
            prefetch(ahead + 128)
        start += data
        end = start + length
        store_u8(verdicts + row, decide(start, end, program, code, registers, pool))
    return -1
