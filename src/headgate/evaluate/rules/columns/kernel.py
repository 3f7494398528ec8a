"""The class row of a field's value: what all predicates on it say, calculated once for each class of values.

A class is a number where the predicates only tell apart some texts, and numbers between some bounds; else it is the
value itself, kept in a table. A class row is filled by the interpreter, so nothing here knows what a predicate means.
"""

from __future__ import annotations

from headgate.evaluate.kernel import interpret
from headgate.evaluate.layout import (
    BOOLEAN,
    BYTES,
    FALSE,
    FLOAT,
    INTEGER,
    REGISTER,
    TRUE,
    UNDECIDED,
    UNKNOWN,
    VALUELESS,
)
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.texts.kernel import clear, text_number, value_hash
from headgate.evaluate.values.kernel import equal_text, first_word
from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import copy_bytes, float_of_bits, kept_apart, load_i64, prefetch, store_i64
from headgate.kernels.vectors import BITMAP_BYTES, transpose


@helper
def verdict_at(program: int, entry: int, registers: int, pool: int) -> int:
    """The verdict of a predicate on the message whose slots are filled."""
    kept_apart()
    if entry < 0:
        return UNDECIDED
    return interpret(program, entry, registers, pool, 0, 0, 0)


@inlined
def _integers_below(bounds: int, count: int, value: int) -> int:
    """How many of the ascending bounds are at most `value`."""
    first = 0
    while count > 0:
        half = count >> 1
        if load_i64(bounds + 8 * (first + half)) <= value:
            first += half + 1
            count -= half + 1
        else:
            count = half
    return first


@inlined
def floats_below(bounds: int, count: int, value: float) -> int:
    """How many of the ascending bounds are at most `value`."""
    first = 0
    while count > 0:
        half = count >> 1
        if float_of_bits(load_i64(bounds + 8 * (first + half))) <= value:
            first += half + 1
            count -= half + 1
        else:
            count = half
    return first


@inlined
def _cell(column: int, register: int) -> int:
    """The number of the value's class, -1 if it has none."""
    kind = load_i64(register)
    if kind == BYTES:
        texts = load_i64(column + layout.TEXTS)
        if texts != 0:
            payload = load_i64(register + REGISTER.payload)
            mask = load_i64(column + layout.TEXT_MASK)
            number = text_number(texts, mask, payload, load_i64(register + REGISTER.length))
            return layout.OTHER_TEXT_CELL + 1 + number
        return -1
    if kind == INTEGER:
        bounds = load_i64(column + layout.INTEGER_BOUNDS)
        if bounds != 0:
            count = load_i64(column + layout.INTEGER_COUNT)
            below = _integers_below(bounds, count, load_i64(register + REGISTER.payload))
            return load_i64(column + layout.INTEGER_CELLS) + below
        return -1
    if kind == FLOAT:
        bounds = load_i64(column + layout.FLOAT_BOUNDS)
        if bounds != 0:
            count = load_i64(column + layout.FLOAT_COUNT)
            below = floats_below(bounds, count, float_of_bits(load_i64(register + REGISTER.payload)))
            return load_i64(column + layout.FLOAT_CELLS) + below
        return -1
    if kind == BOOLEAN:
        return layout.FALSE_CELL + (load_i64(register + REGISTER.payload) & 1)
    if kind == VALUELESS:
        # Only predicates that tell apart nothing but kinds do not look at what lies there.
        return kind if load_i64(column + layout.TEXTS) != 0 else -1
    return kind if (layout.KINDS_BY_THEMSELVES >> kind) & 1 != 0 else -1


@helper
def _new_row(column: int, program: int, registers: int, pool: int) -> int:
    """A class row of its own, with the results of all predicates of a column for the current message."""
    kept_apart()
    number = load_i64(column + layout.ROWS_USED)
    store_i64(column + layout.ROWS_USED, number + 1)
    row = load_i64(column + layout.ROWS) + number * (8 + 24 * load_i64(column + layout.ROW_WORDS))
    _fill_row(row, column, program, registers, pool)
    return row


@helper
def _fill_row(row: int, column: int, program: int, registers: int, pool: int) -> None:
    kept_apart()
    words = load_i64(column + layout.ROW_WORDS)
    clear(row, 8 + 24 * words)
    flags = 0
    entries = load_i64(column + layout.ENTRIES)
    for predicate in range(load_i64(column + layout.PREDICATES)):
        verdict = verdict_at(program, load_i64(entries + 8 * predicate), registers, pool)
        if verdict == UNKNOWN:
            continue
        at = row + 8 + ((predicate >> 6) << 3)
        if verdict == FALSE:
            at += 8 * words
        elif verdict != TRUE:
            at += 16 * words
            flags |= layout.HAS_OTHERS | layout.HAS_UNDECIDED if verdict == UNDECIDED else layout.HAS_OTHERS
        store_i64(at, load_i64(at) | (1 << (predicate & 63)))
    store_i64(row, flags)


@inlined
def _is_remembered(kind: int) -> bool:
    return (layout.KINDS_BY_TEXT >> kind) & 1 != 0 or (layout.KINDS_BY_PAYLOAD >> kind) & 1 != 0


@inlined
def expect(column: int, registers: int) -> None:
    """Prefetch the place of a value's class row, in columns that keep a row for each value."""
    if load_i64(column + layout.TEXTS) == 0:
        register = registers + load_i64(column + layout.SLOT)
        if _is_remembered(load_i64(register)):
            found = value_hash(register)
            store_i64(column + layout.HASH, found)
            prefetch(_place(column, found))


@inlined
def _place(column: int, found: int) -> int:
    place = found & load_i64(column + layout.MEMO_MASK)
    return load_i64(column + layout.MEMO) + place * (layout.SEEN_BYTES + 8 + 24 * load_i64(column + layout.ROW_WORDS))


@helper
def _remembered_row(column: int, register: int, program: int, registers: int, pool: int) -> int:
    """The class row of a value whose class is itself."""
    kept_apart()
    kind = load_i64(register)
    if not _is_remembered(kind):
        return _new_row(column, program, registers, pool)
    is_text = (layout.KINDS_BY_TEXT >> kind) & 1 != 0
    payload = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length) if is_text else 0
    # Columns that tell texts apart by a table meet other values here so seldom that nothing was asked for.
    found = load_i64(column + layout.HASH) if load_i64(column + layout.TEXTS) == 0 else value_hash(register)
    if is_text and length <= layout.LONGEST_WORD:
        is_text = False
        payload = first_word(payload, length)
    what = kind | length << layout.MEMO_LENGTH_SHIFT
    place = found
    entry = _place(column, place)
    while load_i64(entry + layout.SEEN.what) != 0:
        if load_i64(entry + layout.SEEN.what) == what and load_i64(entry + layout.SEEN.hash) == found:
            known = load_i64(entry + layout.SEEN.payload)
            if equal_text(payload, known, length) if is_text else payload == known:
                return entry + layout.SEEN_BYTES
        place += 1
        entry = _place(column, place)
    used = load_i64(column + layout.ARENA_USED)
    if is_text:
        if length > layout.LONGEST_MEMO_TEXT or used + length > load_i64(column + layout.ARENA_BYTES):
            return _new_row(column, program, registers, pool)
        copy_bytes(load_i64(column + layout.ARENA) + used, payload, length)
        payload = load_i64(column + layout.ARENA) + used
        store_i64(column + layout.ARENA_USED, used + length)
    store_i64(column + layout.MEMO_USED, load_i64(column + layout.MEMO_USED) + 1)
    store_i64(entry + layout.SEEN.what, what)
    store_i64(entry + layout.SEEN.hash, found)
    store_i64(entry + layout.SEEN.payload, payload)
    _fill_row(entry + layout.SEEN_BYTES, column, program, registers, pool)
    return entry + layout.SEEN_BYTES


@inlined
def class_row(column: int, program: int, registers: int, pool: int) -> int:
    """The class row of the value that a column's field has in the message at hand."""
    register = registers + load_i64(column + layout.SLOT)
    cell = _cell(column, register)
    if cell < 0:
        return _remembered_row(column, register, program, registers, pool)
    at = load_i64(column + layout.CELLS) + 8 * cell
    row = load_i64(at)
    if row == 0:
        row = _new_row(column, program, registers, pool)
        store_i64(at, row)
    return row


@helper
def make_room(column: int) -> None:
    """Forget all classes unless there is room for as many new ones as a block has messages."""
    store_i64(column + layout.BITS_SEEN, 0)
    places = load_i64(column + layout.MEMO_MASK) + 1
    if (
        load_i64(column + layout.ROWS_USED) + layout.BLOCK <= load_i64(column + layout.ROW_CAPACITY)
        and load_i64(column + layout.MEMO_USED) + layout.BLOCK <= places >> 1
        and load_i64(column + layout.ARENA_USED) <= load_i64(column + layout.ARENA_BYTES) >> 1
    ):
        return
    store_i64(column + layout.ROWS_USED, 1)
    store_i64(column + layout.MEMO_USED, 0)
    store_i64(column + layout.ARENA_USED, 0)
    clear(load_i64(column + layout.CELLS), 8 * load_i64(column + layout.CELL_COUNT))
    for place in range(places):
        store_i64(_place(column, place) + layout.SEEN.what, 0)


@helper
def _spread_bits(column: int, which: int, target: int, square: int) -> None:
    """Make bitmaps of the predicates out of the class rows of the block's messages.

    `which` kind of bits (0 true, 1 false, 2 other) go to `target` of each predicate.
    """
    words = load_i64(column + layout.ROW_WORDS)
    count = load_i64(column + layout.PREDICATES)
    rows = load_i64(column + layout.BLOCK_ROWS)
    target += load_i64(column + layout.FIRST_PREDICATE) * layout.TRIPLE_BYTES
    for word in range(words):
        inside = 8 + 8 * (which * words + word)
        first = target + 64 * word * layout.TRIPLE_BYTES
        here = min(count - 64 * word, 64)
        for group in range(layout.BLOCK >> 6):
            of_group = rows + 512 * group
            some = 0
            for row in range(64):
                bits = load_i64(load_i64(of_group + 8 * row) + inside)
                some |= bits
                store_i64(square + 8 * row, bits)
            if some != 0:
                transpose(square)
            for predicate in range(here):
                store_i64(first + predicate * layout.TRIPLE_BYTES + 8 * group, load_i64(square + 8 * predicate))


@helper
def spread(column: int, bits: int, square: int, others: bool) -> None:
    """Make the bitmaps of a column's predicates; `others` says that some class row of the block has other bits."""
    _spread_bits(column, 0, bits + layout.IS_TRUE, square)
    if others or load_i64(column + layout.FALSE_WANTED) != 0:
        _spread_bits(column, 1, bits + layout.IS_FALSE, square)
    if load_i64(column + layout.BITS_SEEN) != 0:
        _spread_bits(column, 2, bits + layout.IS_OTHER, square)
        store_i64(column + layout.OTHERS_DIRTY, 1)
    elif load_i64(column + layout.OTHERS_DIRTY) != 0:
        at = bits + load_i64(column + layout.FIRST_PREDICATE) * layout.TRIPLE_BYTES + layout.IS_OTHER
        for _ in range(load_i64(column + layout.PREDICATES)):
            clear(at, BITMAP_BYTES)
            at += layout.TRIPLE_BYTES
        store_i64(column + layout.OTHERS_DIRTY, 0)
