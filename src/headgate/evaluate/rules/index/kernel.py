"""The index: from the values of a message's fields to the filters that demand one of them, or a part of it.

Whole values, beginnings and ends of texts, windows (some bytes anywhere in a text) and blocks of numbers are looked up
alike, by their hash. A bit for each hash tells apart what cannot be a key; the rest of 64 messages is kept before it is
looked up, so that the processor can load places in the tables meanwhile. Whatever a hash suggests is compared. Behind a
key stand its candidates, the filters that demand it, each with the place of the other conditions that it has.
"""

from __future__ import annotations

from headgate.evaluate.hashing import FIRST_FACTOR, SECOND_FACTOR
from headgate.evaluate.kernel import interpret
from headgate.evaluate.layout import (
    BODY,
    BODY_PATHS,
    BOOLEAN,
    BYTES,
    FLOAT,
    INTEGER,
    REGISTER,
    REGISTER_BYTES,
    UNDECIDED,
)
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.columns.kernel import class_row, floats_below
from headgate.evaluate.values.kernel import equal_text, first_word, mixed, order_numbers, text_hash
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    copy_bytes,
    float_of_bits,
    kept_apart,
    load_i64,
    prefetch,
    store_i64,
    trailing_zeros,
)

_FIELD_BYTES = 8 * layout.FIELD_WORDS
_PROBE_BYTES = 8 * layout.PROBE_WORDS
_LOW_HALF = (1 << 32) - 1
_NUMBER_BITS = (1 << layout.MESSAGE_SHIFT) - 1
_KIND_BITS = (1 << layout.KEY_FIELD_SHIFT) - 1
_LABEL_BITS = (1 << layout.KEY_COUNT_SHIFT) - 1
_VERDICT_BITS = (1 << layout.VERDICT_BITS) - 1
_READ_BITS = (1 << layout.READ_BITS) - 1
_LINE_BYTES = 64
_FAILS = -1


@inlined
def _part_hash(label: int, value_hash: int) -> int:
    """The hash of a key or of a part of a message that may be one."""
    return mixed(value_hash + label, FIRST_FACTOR)


@inlined
def _number_hash(payload: int) -> int:
    return mixed(payload, SECOND_FACTOR)


@inlined
def _is_key(head: int, found: int) -> bool:
    """Whether a key may have this hash."""
    bit = found & load_i64(head + layout.PRESENT_MASK)
    return (load_i64(load_i64(head + layout.PRESENT) + ((bit >> 6) << 3)) >> (bit & 63)) & 1 != 0


@inlined
def _message(head: int, row: int) -> int:
    """The number of a message of the block in the run."""
    return load_i64(head + layout.RUN_MESSAGES) + load_i64(head + layout.NEXT) + row


@inlined
def _kept_slots(head: int, row: int) -> int:
    """Where the slots of a message are kept, and behind them what the walk over its body left in the scratch."""
    each = load_i64(head + layout.SLOT_BYTES) + REGISTER_BYTES
    return load_i64(head + layout.SLOTS) + (row & (layout.GATHERED - 1)) * each


@inlined
def _body_scratch(head: int, registers: int) -> int:
    """The register that says where the text of a body ends; 0 if no path leads into bodies."""
    program = load_i64(head + layout.PROGRAM)
    body = load_i64(program + BODY_PATHS)
    return 0 if body == 0 else registers + load_i64(program + body + BODY.scratch)


@inlined
def _give_back(head: int, row: int, registers: int) -> None:
    """Fill the registers as they were when the message was walked."""
    slot_bytes = load_i64(head + layout.SLOT_BYTES)
    copy_bytes(registers, _kept_slots(head, row), slot_bytes)
    scratch = _body_scratch(head, registers)
    if scratch != 0:
        copy_bytes(scratch, _kept_slots(head, row) + slot_bytes, REGISTER_BYTES)


@helper
def _interpreted(head: int, row: int, entry: int, registers: int) -> int:
    kept_apart()
    if entry < 0:
        return UNDECIDED
    if load_i64(head + layout.IN_SLOTS) != row:
        _give_back(head, row, registers)
        store_i64(head + layout.IN_SLOTS, row)
    program = load_i64(head + layout.PROGRAM)
    return interpret(program, entry, registers, load_i64(head + layout.POOL), 0, 0, 0)


@inlined
def _class_rows(head: int, row: int) -> int:
    """Where the class rows of a message that was kept are."""
    count = load_i64(head + layout.CLASS_COUNT)
    return load_i64(head + layout.CLASS_ROWS) + 8 * count * (row & (layout.GATHERED - 1))


@inlined
def _has_bit(class_row: int, bit: int) -> bool:
    return (load_i64(class_row + ((bit >> 6) << 3)) >> (bit & 63)) & 1 != 0


@inlined
def _verdict(head: int, row: int, check: int, registers: int) -> int:
    """The verdict of a predicate on a message that was kept."""
    message = _message(head, row)
    place = (check & _LOW_HALF) >> layout.CHECK_PLACE_SHIFT
    remembered = load_i64(head + layout.VERDICTS) + 8 * place - 8
    if place != 0:
        known = load_i64(remembered)
        if known >> layout.VERDICT_BITS == message + 1:
            return known & _VERDICT_BITS
    verdict = _interpreted(head, row, check >> layout.CHECK_ENTRY_SHIFT, registers)
    if place != 0:
        store_i64(remembered, (message + 1) << layout.VERDICT_BITS | verdict)
    return verdict


@inlined
def _fulfilled(head: int, row: int, position: int, registers: int) -> int:
    """Whether a message that was kept fulfils all of some conditions: MATCH, OPEN_PAIR or _FAILS."""
    at = load_i64(head + layout.CONDITIONS) + 8 * position
    rows = _class_rows(head, row)
    counts = load_i64(at)
    what = layout.MATCH
    for _ in range(counts & _LOW_HALF):
        at += 8
        check = load_i64(at)
        found = load_i64(rows + 8 * (check >> layout.READ_COLUMN_SHIFT))
        if not _has_bit(found, check & _READ_BITS):
            # Whatever is undecided, a condition that is surely not true decides.
            if load_i64(found) & layout.HAS_UNDECIDED == 0:
                return _FAILS
            if not _has_bit(found, (check >> layout.READ_OTHER_SHIFT) & _READ_BITS):
                return _FAILS
            what = layout.OPEN_PAIR
    for _ in range(counts >> layout.ASKED_SHIFT):
        at += 8
        check = load_i64(at)
        verdict = _verdict(head, row, check, registers)
        if verdict == UNDECIDED:
            what = layout.OPEN_PAIR
        elif verdict != 1 - (check & layout.CHECK_NEGATED):
            return _FAILS
    return what


@inlined
def _ask(head: int, row: int, candidate: int, registers: int) -> bool:
    """Write a filter out if it is true for a message that has its key; False if there is no room."""
    what = _fulfilled(head, row, candidate >> layout.CONDITIONS_SHIFT, registers)
    if what == _FAILS:
        return True
    count = load_i64(head + layout.OUT_COUNT)
    if count == load_i64(head + layout.OUT_CAPACITY):
        return False
    message = load_i64(head + layout.NEXT) + row
    pair = what << layout.WHAT_SHIFT | message << layout.MESSAGE_SHIFT | candidate & _NUMBER_BITS
    store_i64(load_i64(head + layout.OUT) + 8 * count, pair)
    store_i64(head + layout.OUT_COUNT, count + 1)
    return True


@inlined
def _ask_all(head: int, row: int, posting: int, count: int, registers: int) -> bool:
    for _ in range(count):
        if not _ask(head, row, load_i64(posting), registers):
            return False
        posting += 8
    return True


@inlined
def _ask_inside(head: int, row: int, posting: int, count: int, place: int, registers: int) -> bool:
    """Ask the filters whose range a number lies in."""
    for _ in range(count):
        places = load_i64(posting)
        if (
            place >= places & _LOW_HALF
            and place <= places >> layout.LAST_PLACE_SHIFT
            and not _ask(head, row, load_i64(posting + 8), registers)
        ):
            return False
        posting += 16
    return True


@helper
def _follow(head: int, part: int, bucket: int, registers: int) -> bool:
    """Ask the filters behind the key that a part of a message is, if it is one; False if there is no room."""
    mask = load_i64(head + layout.BUCKET_MASK)
    buckets = load_i64(head + layout.BUCKETS)
    found = load_i64(part + layout.FOUND_PART.hash)
    label = load_i64(part + layout.FOUND_PART.label)
    kind = label & _KIND_BITS
    is_text = kind == BYTES or kind == layout.BEGINNING or kind == layout.END
    length = load_i64(part + layout.FOUND_PART.length)
    payload = load_i64(part + layout.FOUND_PART.payload)
    row = load_i64(part + layout.FOUND_PART.message)
    word = load_i64(buckets + (bucket << 3))
    while word != 0:
        if (word ^ found) >> 32 == 0:
            key = load_i64(head + layout.KEYS) + 8 * ((word & _LOW_HALF) - 1)
            labelled = load_i64(key)
            key += 8
            if labelled & _LABEL_BITS == label and (
                equal_text(payload, key, length) if is_text else load_i64(key) == payload
            ):
                count = labelled >> layout.KEY_COUNT_SHIFT
                if is_text:
                    return _ask_all(head, row, key + ((length + 7) & -8), count, registers)
                if kind == layout.RANGE:
                    return _ask_inside(head, row, key + 8, count, length, registers)
                if kind == layout.WINDOW:
                    message = _message(head, row) + 1
                    seen = load_i64(head + layout.WINDOWS_SEEN) + 8 * load_i64(key + 8)
                    if load_i64(seen) == message:
                        return True
                    store_i64(seen, message)
                    key += 8
                return _ask_all(head, row, key + 8, count, registers)
        bucket = (bucket + 1) & mask
        word = load_i64(buckets + (bucket << 3))
    return True


@helper
def look_up(head: int, registers: int) -> bool:
    """Find the filters that the messages kept so far have keys of, and write them out. False if there is no room."""
    mask = load_i64(head + layout.BUCKET_MASK)
    buckets = load_i64(head + layout.BUCKETS)
    keys = load_i64(head + layout.KEYS)
    first = load_i64(head + layout.FOUND)
    behind = first + load_i64(head + layout.FOUND_COUNT) * layout.FOUND_BYTES
    store_i64(head + layout.FOUND_COUNT, 0)
    at = first
    while at < behind:
        found = load_i64(at + layout.FOUND_PART.hash)
        bucket = found & mask
        word = load_i64(buckets + (bucket << 3))
        while word != 0 and (word ^ found) >> 32 != 0:
            bucket = (bucket + 1) & mask
            word = load_i64(buckets + (bucket << 3))
        if word != 0:
            key = keys + 8 * ((word & _LOW_HALF) - 1)
            prefetch(key)
            prefetch(key + _LINE_BYTES)
        store_i64(at + layout.FOUND_PART.bucket, bucket if word != 0 else -1)
        at += layout.FOUND_BYTES
    store_i64(head + layout.IN_SLOTS, -1)
    at = first
    while at < behind:
        bucket = load_i64(at + layout.FOUND_PART.bucket)
        if bucket >= 0 and not _follow(head, at, bucket, registers):
            return False
        at += layout.FOUND_BYTES
    return True


@inlined
def _keep_message(head: int, row: int, registers: int) -> None:
    """Keep what conditions need of the message at hand."""
    store_i64(head + layout.KEPT, row)
    program = load_i64(head + layout.PROGRAM)
    pool = load_i64(head + layout.POOL)
    column = load_i64(head + layout.CLASSES)
    rows = _class_rows(head, row)
    for number in range(load_i64(head + layout.CLASS_COUNT)):
        store_i64(rows + 8 * number, class_row(column, program, registers, pool))
        column += 8 * layout.COLUMN_WORDS
    slot_bytes = load_i64(head + layout.SLOT_BYTES)
    copy_bytes(_kept_slots(head, row), registers, slot_bytes)
    scratch = _body_scratch(head, registers)
    if scratch != 0:
        copy_bytes(_kept_slots(head, row) + slot_bytes, scratch, REGISTER_BYTES)


@helper
def _keep(head: int, row: int, registers: int, label: int, payload: int, length: int, found: int) -> bool:
    """Keep a part of the message at hand that may be a key; False if there is no room for what was found before."""
    kept_apart()
    if load_i64(head + layout.KEPT) != row:
        _keep_message(head, row, registers)
    count = load_i64(head + layout.FOUND_COUNT)
    if count == layout.MOST_FOUND:
        if not look_up(head, registers):
            return False
        # The registers hold another message now.
        _give_back(head, row, registers)
        count = 0
    at = load_i64(head + layout.FOUND) + count * layout.FOUND_BYTES
    store_i64(at + layout.FOUND_PART.message, row)
    store_i64(at + layout.FOUND_PART.label, label)
    store_i64(at + layout.FOUND_PART.payload, payload)
    store_i64(at + layout.FOUND_PART.length, length)
    store_i64(at + layout.FOUND_PART.hash, found)
    store_i64(head + layout.FOUND_COUNT, count + 1)
    prefetch(load_i64(head + layout.BUCKETS) + ((found & load_i64(head + layout.BUCKET_MASK)) << 3))
    return True


@inlined
def _find_in_text(head: int, row: int, registers: int, field: int, number: int, text: int, length: int) -> bool:
    """Keep what is a key of a text; False if there is no room."""
    label = number << layout.KEY_FIELD_SHIFT
    probe = load_i64(head + layout.PROBES) + load_i64(field + layout.FIELD_PROBES)
    behind = probe + load_i64(field + layout.FIELD_PROBE_COUNT) * _PROBE_BYTES
    while probe < behind:
        kind = load_i64(probe + layout.PROBE_KIND)
        size = load_i64(probe + layout.PROBE_LENGTH)
        probe += _PROBE_BYTES
        if kind == layout.WINDOW:
            whole = label | kind | size << layout.KEY_LENGTH_SHIFT
            for at in range(text, text + length - size + 1):
                word = first_word(at, size)
                found = _part_hash(whole, _number_hash(word))
                if _is_key(head, found) and not _keep(head, row, registers, whole, word, 0, found):
                    return False
            continue
        at = text
        if kind == BYTES:
            size = length
        elif size > length:
            continue
        elif kind == layout.END:
            at = text + length - size
        if size > layout.LONGEST_KEY:
            continue
        whole = label | kind | size << layout.KEY_LENGTH_SHIFT
        found = _part_hash(whole, text_hash(at, size))
        if _is_key(head, found) and not _keep(head, row, registers, whole, at, size, found):
            return False
    return True


@inlined
def _find_number(head: int, row: int, registers: int, label: int, payload: int) -> bool:
    found = _part_hash(label, _number_hash(payload))
    return not _is_key(head, found) or _keep(head, row, registers, label, payload, 0, found)


@inlined
def _find_ranges(head: int, row: int, registers: int, field: int, number: int, kind: int, payload: int) -> bool:
    """Keep the blocks that a number lies in; False if there is no room."""
    count = load_i64(field + layout.FIELD_BOUND_COUNT)
    value = float(payload) if kind == INTEGER else float_of_bits(payload)
    bounds = load_i64(head + layout.BOUNDS) + load_i64(field + layout.FIELD_BOUNDS)
    below = floats_below(bounds, count, value)
    # Bounds have odd places, what lies between them even ones.
    place = 2 * below
    if below > 0:
        bound = load_i64(bounds + 8 * (below - 1))
        if float_of_bits(bound) == value:
            # An integer beyond 2^53 need not equal its nearest double.
            place += order_numbers(kind, payload, FLOAT, bound) - 1
    label = number << layout.KEY_FIELD_SHIFT | layout.RANGE
    levels = load_i64(field + layout.FIELD_LEVELS)
    while levels != 0:
        level = trailing_zeros(levels)
        levels &= levels - 1
        payload = level << layout.LEVEL_SHIFT | place >> level
        found = _part_hash(label, _number_hash(payload))
        if _is_key(head, found) and not _keep(head, row, registers, label, payload, place, found):
            return False
    return True


@inlined
def find_keys(head: int, row: int, registers: int) -> int:
    """Keep what may be a key of the message at hand for `look_up`: DECIDED.

    UNDECIDED if only the reference knows whether it has keys; NO_ROOM if there is none for what was found before.
    """
    fields = load_i64(head + layout.FIELDS)
    count = load_i64(head + layout.FIELD_COUNT)
    for number in range(count):
        field = fields + number * _FIELD_BYTES
        kind = load_i64(registers + load_i64(field + layout.FIELD_SLOT))
        if (load_i64(field + layout.FIELD_OPEN_KINDS) >> kind) & 1 != 0:
            return UNDECIDED
    for number in range(count):
        field = fields + number * _FIELD_BYTES
        register = registers + load_i64(field + layout.FIELD_SLOT)
        kind = load_i64(register)
        payload = load_i64(register + REGISTER.payload)
        if kind == BYTES:
            if not _find_in_text(head, row, registers, field, number, payload, load_i64(register + REGISTER.length)):
                return layout.NO_ROOM
        elif kind in (INTEGER, FLOAT):
            if load_i64(field + layout.FIELD_BOUND_COUNT) != 0 and not _find_ranges(
                head, row, registers, field, number, kind, payload
            ):
                return layout.NO_ROOM
            if load_i64(field + layout.FIELD_HAS_NUMBERS) != 0:
                if kind == FLOAT:
                    value = float_of_bits(payload)
                    if -9223372036854775808.0 <= value < 9223372036854775808.0:
                        integer = int(value)
                        if float(integer) == value:
                            kind = INTEGER
                            payload = integer
                if not _find_number(head, row, registers, number << layout.KEY_FIELD_SHIFT | kind, payload):
                    return layout.NO_ROOM
        elif (
            kind == BOOLEAN
            and load_i64(field + layout.FIELD_HAS_NUMBERS) != 0
            and not _find_number(head, row, registers, number << layout.KEY_FIELD_SHIFT | kind, payload)
        ):
            return layout.NO_ROOM
    return layout.DECIDED


@kernel("void(int64, int64, int64)")
def fill_index(head: int, positions: int, count: int) -> None:
    """Put keys, given by their positions in words, into empty buckets, and mark their hashes as present."""
    mask = load_i64(head + layout.BUCKET_MASK)
    buckets = load_i64(head + layout.BUCKETS)
    present = load_i64(head + layout.PRESENT)
    for number in range(count):
        position = load_i64(positions + 8 * number)
        key = load_i64(head + layout.KEYS) + 8 * position
        label = load_i64(key) & _LABEL_BITS
        kind = label & _KIND_BITS
        if kind == BYTES or kind == layout.BEGINNING or kind == layout.END:
            found = _part_hash(label, text_hash(key + 8, label >> layout.KEY_LENGTH_SHIFT))
        else:
            found = _part_hash(label, _number_hash(load_i64(key + 8)))
        place = found & mask
        while load_i64(buckets + (place << 3)) != 0:
            place = (place + 1) & mask
        store_i64(buckets + (place << 3), (found >> 32) << 32 | (position + 1))
        bit = found & load_i64(head + layout.PRESENT_MASK)
        word = present + ((bit >> 6) << 3)
        store_i64(word, load_i64(word) | (1 << (bit & 63)))
