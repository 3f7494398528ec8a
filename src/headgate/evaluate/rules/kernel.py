"""Many filters over encoded messages, block by block: fields, classes, bitmaps, filters, pairs.

Everything is in the head (`layout.py`). A message is walked once, by the walk of the filter kernel.
"""

from __future__ import annotations

from headgate.evaluate.body.kernel import look_into_body
from headgate.evaluate.kernel import reset
from headgate.evaluate.layout import (
    APPLICATION_KEYS,
    BODY,
    BODY_PATHS,
    FALSE,
    MALFORMED,
    REGISTER,
    TRUE,
    UNDECIDED,
    UNESCAPED_BYTES,
    UNKNOWN,
)
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.columns.kernel import class_row, expect, make_room, spread, verdict_at
from headgate.evaluate.rules.combine.kernel import where_true, where_what
from headgate.evaluate.rules.index.kernel import find_keys, look_up
from headgate.evaluate.rules.texts.kernel import clear, mark
from headgate.evaluate.walk.kernel import check_rest, gather_early, gather_late, is_outside
from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import load_i64, prefetch, store_i64, store_u8, trailing_zeros
from headgate.kernels.vectors import BITMAP_BYTES, both_bitmaps, count_bits, words_with_bits

PREFETCH_MESSAGES = 8
_NUMBER_BITS = (1 << layout.MESSAGE_SHIFT) - 1
_MESSAGE_BITS = ((1 << layout.WHAT_SHIFT) - 1) ^ _NUMBER_BITS


@inlined
def _fill_slots(start: int, end: int, program: int, registers: int, pool: int, room: int) -> int:
    """Read the wanted fields of a message; DECIDED, MALFORMED or UNDECIDED. Texts from its body may go to `room`."""
    reset(program, registers)
    late = gather_early(start, end, program, registers, pool)
    if late < 0:
        return -late
    checked = check_rest(late, end)
    if checked != TRUE:
        return checked
    wanted = late != 0 and load_i64(program + APPLICATION_KEYS) != 0
    if wanted and not gather_late(late, end, program, registers, pool):
        return MALFORMED
    body = load_i64(program + BODY_PATHS)
    if body != 0:
        store_i64(registers + load_i64(program + body + BODY.scratch) + REGISTER.payload, room)
        if look_into_body(0, start, late, end, program, registers, pool) != TRUE:
            return UNDECIDED
    return layout.DECIDED


@helper
def _ask_loose(head: int, row: int, program: int, registers: int, pool: int) -> int:
    """Ask the predicates that belong to no column; gives flags of columns that have other bits."""
    at = load_i64(head + layout.LOOSE)
    bits = load_i64(head + layout.BITS)
    others = 0
    for _ in range(load_i64(head + layout.LOOSE_COUNT)):
        verdict = verdict_at(program, load_i64(at + layout.LOOSE_PREDICATE.entry), registers, pool)
        triple = bits + load_i64(at + layout.LOOSE_PREDICATE.predicate) * layout.TRIPLE_BYTES
        at += layout.LOOSE_PREDICATE_BYTES
        if verdict == UNKNOWN:
            continue
        if verdict == TRUE:
            mark(triple, row)
        elif verdict == FALSE:
            mark(triple + layout.IS_FALSE, row)
        else:
            mark(triple + layout.IS_OTHER, row)
            others = 1 << layout.LOOSE_GROUP
            if verdict == UNDECIDED:
                mark(load_i64(head + layout.UNSURE), row)
    return others


@helper
def _begin_block(head: int) -> None:
    columns = load_i64(head + layout.COLUMNS)
    for number in range(load_i64(head + layout.COLUMN_COUNT)):
        make_room(columns + number * (8 * layout.COLUMN_WORDS))
    clear(load_i64(head + layout.UNSURE), BITMAP_BYTES)
    at = load_i64(head + layout.LOOSE)
    for _ in range(load_i64(head + layout.LOOSE_COUNT)):
        clear(
            load_i64(head + layout.BITS) + load_i64(at + layout.LOOSE_PREDICATE.predicate) * layout.TRIPLE_BYTES,
            layout.TRIPLE_BYTES,
        )
        at += layout.LOOSE_PREDICATE_BYTES
    classes = load_i64(head + layout.CLASSES)
    for number in range(load_i64(head + layout.CLASS_COUNT)):
        make_room(classes + number * (8 * layout.COLUMN_WORDS))
    store_i64(head + layout.FOUND_COUNT, 0)
    store_i64(head + layout.KEPT, -1)


@helper
def _no_classes(head: int, row: int) -> None:
    """A row for which no predicate says anything."""
    columns = load_i64(head + layout.COLUMNS)
    for number in range(load_i64(head + layout.COLUMN_COUNT)):
        column = columns + number * (8 * layout.COLUMN_WORDS)
        store_i64(load_i64(column + layout.BLOCK_ROWS) + 8 * row, load_i64(column + layout.ROWS))


@inlined
def _classify(head: int, row: int, program: int, registers: int, pool: int) -> None:
    """Find the class rows of a message."""
    columns = load_i64(head + layout.COLUMNS)
    for number in range(load_i64(head + layout.COLUMN_COUNT)):
        expect(columns + number * (8 * layout.COLUMN_WORDS), registers)
    for number in range(load_i64(head + layout.COLUMN_COUNT)):
        column = columns + number * (8 * layout.COLUMN_WORDS)
        found = class_row(column, program, registers, pool)
        store_i64(load_i64(column + layout.BLOCK_ROWS) + 8 * row, found)
        flags = load_i64(found)
        if flags != 0:
            store_i64(column + layout.BITS_SEEN, 1)
            if flags & layout.HAS_UNDECIDED != 0:
                mark(load_i64(head + layout.UNSURE), row)


@helper
def _write(head: int, first: int, bitmap: int, record: int, what: int) -> bool:
    """Write the pairs of a bitmap's rows and a filter's numbers; False if there is no room."""
    words = words_with_bits(bitmap)
    count = load_i64(head + layout.OUT_COUNT)
    room = load_i64(head + layout.OUT_CAPACITY) - count
    numbers = load_i64(head + layout.NUMBERS) + 8 * load_i64(record + layout.FILTER_NUMBERS)
    for which in range(load_i64(record + layout.FILTER_NUMBER_COUNT)):
        label = what << layout.WHAT_SHIFT | load_i64(numbers + 8 * which)
        if room < count_bits(words) << 6:
            return False
        out = load_i64(head + layout.OUT) + 8 * count
        behind = out
        left = words
        while left != 0:
            word = trailing_zeros(left)
            left &= left - 1
            bits = load_i64(bitmap + 8 * word)
            base = first + 64 * word
            while bits != 0:
                store_i64(behind, (base + trailing_zeros(bits)) << layout.MESSAGE_SHIFT | label)
                behind += 8
                bits &= bits - 1
        written = (behind - out) >> 3
        room -= written
        count += written
    store_i64(head + layout.OUT_COUNT, count)
    return True


@helper
def _ask_filter(head: int, first: int, record: int, others: int) -> bool:
    """Find and write the rows that a filter matches; False if there is no room."""
    code = load_i64(head + layout.CODE) + 8 * load_i64(record + layout.FILTER_CODE)
    length = load_i64(record + layout.FILTER_LENGTH)
    bits = load_i64(head + layout.BITS)
    stack = load_i64(head + layout.STACK)
    if others & load_i64(record + layout.FILTER_COLUMNS) == 0:
        if not where_true(code, load_i64(record + layout.FILTER_HEAD), length, bits, stack):
            return True
        return _write(head, first, stack, record, layout.MATCH)
    where_what(code, length, bits, stack)
    if not _write(head, first, stack, record, layout.MATCH):
        return False
    if words_with_bits(stack + layout.IS_OTHER) == 0:
        return True
    unsure = load_i64(head + layout.UNSURE)
    both_bitmaps(stack + layout.IS_FALSE, stack + layout.IS_OTHER, unsure)
    if not _write(head, first, stack + layout.IS_FALSE, record, layout.OPEN_PAIR):
        return False
    if load_i64(record + layout.FILTER_EXACT) == 0:
        return True
    for word in range(0, BITMAP_BYTES, 8):
        failed = load_i64(stack + layout.IS_OTHER + word) & ~load_i64(unsure + word)
        store_i64(stack + layout.IS_OTHER + word, failed)
    return _write(head, first, stack + layout.IS_OTHER, record, layout.ERROR_PAIR)


@helper
def _ask_filters(head: int, first: int, others: int) -> bool:
    """Evaluate the filters that every block needs; False if there is no room."""
    filters = load_i64(head + layout.FILTERS)
    for number in range(load_i64(head + layout.FILTER_COUNT)):
        if not _ask_filter(head, first, filters + number * (8 * layout.FILTER_WORDS), others):
            return False
    return True


@kernel("int64(int64)")
def match(head: int) -> int:
    """Decide messages from NEXT on: ALL_DONE, or NO_ROOM for the pairs of the block that begins at NEXT.

    Otherwise the number of the first message whose bytes are not within the data.
    """
    data = load_i64(head + layout.DATA)
    data_bytes = load_i64(head + layout.DATA_BYTES)
    starts = load_i64(head + layout.STARTS)
    lengths = load_i64(head + layout.LENGTHS)
    messages = load_i64(head + layout.MESSAGES)
    states = load_i64(head + layout.STATES)
    program = load_i64(head + layout.PROGRAM)
    registers = load_i64(head + layout.REGISTERS)
    pool = load_i64(head + layout.POOL)
    columns = load_i64(head + layout.COLUMNS)
    column_count = load_i64(head + layout.COLUMN_COUNT)
    texts = load_i64(head + layout.BODY_TEXTS)
    indexed = load_i64(head + layout.FIELD_COUNT) != 0
    loose = load_i64(head + layout.LOOSE_COUNT) != 0
    last_ahead = messages - PREFETCH_MESSAGES
    first = load_i64(head + layout.NEXT)
    while first < messages:
        rows = min(messages - first, layout.BLOCK)
        written = load_i64(head + layout.OUT_COUNT)
        _begin_block(head)
        others = 0
        for row in range(rows):
            start = load_i64(starts + 8 * (first + row))
            length = load_i64(lengths + 8 * (first + row))
            if is_outside(start, length, data_bytes):
                return first + row
            if first + row < last_ahead:
                ahead = data + load_i64(starts + 8 * (first + row + PREFETCH_MESSAGES))
                prefetch(ahead)
                prefetch(ahead + 64)
                prefetch(ahead + 128)
            start += data
            room = texts + UNESCAPED_BYTES * (row & (layout.GATHERED - 1)) if indexed else 0
            state = _fill_slots(start, start + length, program, registers, pool, room)
            if state == layout.DECIDED and indexed:
                state = find_keys(head, row, registers)
                if state == layout.NO_ROOM:
                    store_i64(head + layout.OUT_COUNT, written)
                    return layout.NO_ROOM
            store_u8(states + first + row, state)
            if state == layout.DECIDED:
                _classify(head, row, program, registers, pool)
                if loose:
                    others |= _ask_loose(head, row, program, registers, pool)
            else:
                _no_classes(head, row)
            if indexed and (row + 1) & (layout.GATHERED - 1) == 0 and not look_up(head, registers):
                store_i64(head + layout.OUT_COUNT, written)
                return layout.NO_ROOM
        if indexed and not look_up(head, registers):
            store_i64(head + layout.OUT_COUNT, written)
            return layout.NO_ROOM
        for row in range(rows, layout.BLOCK):
            _no_classes(head, row)
        for number in range(column_count):
            column = columns + number * (8 * layout.COLUMN_WORDS)
            if load_i64(column + layout.BITS_SEEN) != 0:
                others |= 1 << load_i64(column + layout.GROUP)
        for number in range(column_count):
            spread(
                columns + number * (8 * layout.COLUMN_WORDS),
                load_i64(head + layout.BITS),
                load_i64(head + layout.SQUARE),
                others != 0,
            )
        if not _ask_filters(head, first, others):
            store_i64(head + layout.OUT_COUNT, written)
            return layout.NO_ROOM
        first += rows
        store_i64(head + layout.NEXT, first)
    return layout.ALL_DONE


@helper
def _order_numbers(pairs: int, count: int) -> None:
    """Sort the pairs of one message by their numbers, in place: few, or thousands that are mostly in order."""
    gap = count
    while gap > 1:
        gap = max(gap * 5 // 11, 1)
        for number in range(gap, count):
            pair = load_i64(pairs + 8 * number)
            at = number - gap
            while at >= 0 and (load_i64(pairs + 8 * at) & _NUMBER_BITS) > (pair & _NUMBER_BITS):
                store_i64(pairs + 8 * (at + gap), load_i64(pairs + 8 * at))
                at -= gap
            store_i64(pairs + 8 * (at + gap), pair)


@kernel("int64(int64, int64, int64, int64)")
def order_pairs(pairs: int, count: int, places: int, ordered: int) -> int:
    """Write pairs to `ordered` by message and number, whatever they are; gives how many are no matches.

    `places`: for each message and one more a word of zero. Pairs of a block lie together, so all stays in the cache.
    """
    others = 0
    last = 0
    for number in range(count):
        pair = load_i64(pairs + 8 * number)
        others += pair >> layout.WHAT_SHIFT != layout.MATCH
        row = (pair & _MESSAGE_BITS) >> layout.MESSAGE_SHIFT
        last = max(last, row)
        store_i64(places + 8 * row + 8, load_i64(places + 8 * row + 8) + 1)
    for row in range(last):
        store_i64(places + 8 * row + 8, load_i64(places + 8 * row + 8) + load_i64(places + 8 * row))
    for number in range(count):
        pair = load_i64(pairs + 8 * number)
        place = places + 8 * ((pair & _MESSAGE_BITS) >> layout.MESSAGE_SHIFT)
        at = load_i64(place)
        store_i64(place, at + 1)
        store_i64(ordered + 8 * at, pair)
    start = 0
    for row in range(last + 1):
        stop = load_i64(places + 8 * row)
        if stop - start > 1:
            _order_numbers(ordered + 8 * start, stop - start)
        start = stop
    return others
