"""The words of a plan: `plan.py` and `engine.py` write them, the kernels of this folder read them.

All are int64. What stands as "address" is one only while a plan runs; in a plan at rest there are positions.

A block is 1 024 messages. A *row* is a message of the block by number; a *class row* is what all predicates on one
field say about one class of its values:

    flags | true bits, one word per 64 predicates | false bits | other bits (error or undecided)

This module holds numbers and blocks of words only: kernels freeze them when they are compiled.
"""

from __future__ import annotations

from typing import NamedTuple

from headgate.evaluate.layout import (
    ABSENT,
    BINARY,
    BOOLEAN,
    BYTES,
    FLOAT,
    INT32,
    INTEGER,
    LARGE,
    NULL,
    ODD,
    OPEN,
    TIME_SPAN,
    TIMESTAMP,
    UUID,
)
from headgate.kernels import places

BLOCK = 1024
GATHERED = 64
"""Messages whose keys are looked up together."""

# How the value in a register is known again. A kind in none of these is never taken for one seen before.
KINDS_BY_THEMSELVES = 1 << NULL | 1 << ABSENT | 1 << OPEN | 1 << ODD
KINDS_BY_PAYLOAD = 1 << INTEGER | 1 << FLOAT | 1 << BOOLEAN | 1 << LARGE | 1 << INT32 | 1 << TIMESTAMP | 1 << TIME_SPAN
KINDS_BY_TEXT = 1 << BYTES | 1 << UUID | 1 << BINARY

# Bitmaps of a predicate or of a place in the stack, in bytes: true, false, other.
IS_TRUE = 0
IS_FALSE = 128
IS_OTHER = 256
TRIPLE_BYTES = 384

# The head of a run, in bytes from its start.
DATA = 0
DATA_BYTES = 8
STARTS = 16
LENGTHS = 24
MESSAGES = 32
STATES = 40  # address: a byte per message, DECIDED or what it is instead
NEXT = 48  # the first message that was not decided yet
OUT = 56  # address of the found pairs
OUT_CAPACITY = 64
OUT_COUNT = 72
PROGRAM = 80
REGISTERS = 88
POOL = 96
COLUMNS = 104
COLUMN_COUNT = 112
LOOSE = 120  # address: `LooseBlock`s
LOOSE_COUNT = 128
BITS = 136  # address of the bitmaps of the predicates
STACK = 144
UNSURE = 152  # address: bitmap of the rows for which some predicate is undecided
SQUARE = 160  # address of 64 words
CODE = 168
FILTERS = 176
FILTER_COUNT = 184
NUMBERS = 192
FIELDS = 200  # address of the indexed fields
FIELD_COUNT = 208
BUCKETS = 216  # address of a word per bucket: upper half of the hash, 1 + position of the key in words; 0: empty
BUCKET_MASK = 224
KEYS = 232
PROBES = 240  # address: what to look up of a text
BOUNDS = 248  # address: bounds of ranges, doubles
CONDITIONS = 256
PRESENT = 264  # address: a bit for each hash that a key has
PRESENT_MASK = 272
FOUND = 280  # address: `FoundBlock`s of the messages since the last look-up
FOUND_COUNT = 288
SLOTS = 296  # address: the slots of those messages
SLOT_BYTES = 304
IN_SLOTS = 312  # the number in the block of the message whose slots the registers hold, -1 if unknown
WINDOWS_SEEN = 320  # address: for each key that is a window the message that had it last
VERDICTS = 328  # address: for each predicate of several candidates its last message and verdict
RUN_MESSAGES = 336  # messages of earlier calls: a message has a number that no other message of the run has
BODY_TEXTS = 344  # address: room for texts of bodies without their escapes, for each of those messages
CLASSES = 352  # address of the columns of checks
CLASS_COUNT = 360
CLASS_ROWS = 368  # address: for each of those messages its class row in each of these columns
KEPT = 376  # the number in the block of the last message that was kept for a look-up, -1 if none was
HEAD_WORDS = 48

# States of a message.
DECIDED = 0
# layout.MALFORMED = 3 and layout.UNDECIDED = 4 of the filter kernel.

# A found pair is what it is (two bits), the message and the number of the filter.
WHAT_SHIFT = 61
MESSAGE_SHIFT = 31
MATCH = 0
ERROR_PAIR = 1
OPEN_PAIR = 2

# How a run ends, other than with the number of a message that is not within the data.
ALL_DONE = -1
NO_ROOM = -2

# A column: predicates on one field.
SLOT = 0  # register of the field, in bytes
PREDICATES = 8
FIRST_PREDICATE = 16
ROW_WORDS = 24  # of each kind of bits in a class row
ENTRIES = 32  # address: where the code of each predicate begins, -1 for the reference
CELLS = 40  # address: class row of each class that has a number, 0 if not asked yet
CELL_COUNT = 48
TEXTS = 56  # address of the table of texts, 0 if texts are told apart one by one
TEXT_MASK = 64
INTEGER_BOUNDS = 72  # address: where the answers for integers may change, ascending; 0: told apart one by one
INTEGER_COUNT = 80
FLOAT_BOUNDS = 88
FLOAT_COUNT = 96
INTEGER_CELLS = 104
FLOAT_CELLS = 112
MEMO = 120  # address of the table of values seen
MEMO_MASK = 128
ROWS = 136  # address of the class rows; the first is empty
ROW_CAPACITY = 144
ROWS_USED = 152
ARENA = 160  # address of the texts seen
ARENA_BYTES = 168
ARENA_USED = 176
BLOCK_ROWS = 184  # address: class row of each message of the block
BITS_SEEN = 192  # whether the block has class rows with other bits
OTHERS_DIRTY = 200  # whether the bitmaps of other bits hold any
FALSE_WANTED = 208  # whether filters ask for what is false
GROUP = 216  # bit of the column in FILTER_COLUMNS
HASH = 224  # of the value at hand, where values are told apart one by one
MEMO_USED = 232
COLUMN_WORDS = 30

# Numbers of classes: the kinds, then
FALSE_CELL = 16
TRUE_CELL = 17
OTHER_TEXT_CELL = 18
TEXT_CELLS = 19

# Flags of a class row.
HAS_OTHERS = 1
HAS_UNDECIDED = 2

MEMO_LENGTH_SHIFT = 8
LONGEST_WORD = 8
LONGEST_MEMO_TEXT = 256

# A filter: position and number of its instructions, columns it looks at, position and number of its numbers, and
# whether its errors are asked for.
FILTER_CODE = 0
FILTER_LENGTH = 8
FILTER_COLUMNS = 16
FILTER_NUMBERS = 24
FILTER_NUMBER_COUNT = 32
FILTER_EXACT = 40
FILTER_HEAD = 48  # instructions of the first conjuncts: behind them it may be clear that the filter is true nowhere
FILTER_WORDS = 7
LOOSE_GROUP = 62

# An instruction: what to do with what was found so far and a source, which is a predicate (what is false of it, if
# negated) or a place in the stack; that lies behind the bitmaps of the predicates.
ADDS = 1  # the source counts where nothing was found
WIDENS = 2  # what was found counts where the source does not
AND = 0
TAKE = ADDS
OR = ADDS | WIDENS
SAVES = 4  # keeps what was found in the place first; the lowest is where it is found in the end
JOINS = 8  # the source is the place, which stands to the left of what was found
NEGATED = 16
PLACE_SHIFT = 8
SOURCE_SHIFT = 20

# An indexed field: register of the field in bytes, kinds that only the reference can tell, which texts to look up,
# whether numbers and booleans are keys, the bounds of its ranges, and a bit for each level that some range has.
FIELD_SLOT = 0
FIELD_OPEN_KINDS = 8
FIELD_PROBES = 16  # position
FIELD_PROBE_COUNT = 24
FIELD_HAS_NUMBERS = 32
FIELD_BOUNDS = 40  # position
FIELD_BOUND_COUNT = 48
FIELD_LEVELS = 56
FIELD_WORDS = 8

# A probe: which part of a text is looked up, as a kind of key, and its length in bytes; 0 for the whole text.
PROBE_KIND = 0
PROBE_LENGTH = 8
PROBE_WORDS = 2

# Kinds of keys beside those of whole values, which are kinds of registers.
BEGINNING = 32
END = 33
WINDOW = 34  # some bytes anywhere in a text
RANGE = 35  # a block of 2^level places among the bounds of a field: level << LEVEL_SHIFT | place >> level
LEVEL_SHIFT = 40
WINDOW_LENGTHS = (8, 6, 4, 3, 2, 1)

# A key: its label, then the number, or the text in whole words; for a window its number among the windows; then the
# candidates. Behind a range each is preceded by its first and last place.
# The label is kind | field << KEY_FIELD_SHIFT | length << KEY_LENGTH_SHIFT; the number of candidates is above it.
KEY_FIELD_SHIFT = 6
KEY_LENGTH_SHIFT = 18
KEY_COUNT_SHIFT = 40
LONGEST_KEY = (1 << (KEY_COUNT_SHIFT - KEY_LENGTH_SHIFT)) - 1
LAST_PLACE_SHIFT = 32

# A candidate: number of the filter, and position of its conditions in words << CONDITIONS_SHIFT.
# Conditions: the number of checks that are read, that of those that are asked << ASKED_SHIFT, the checks in this order.
# A check that is read is a bit of a class row that must be set; if another bit is, something is undecided there.
# A check that is asked is a predicate that must be true, or false if negated: flags, 1 + its place among the remembered
# verdicts (0: not remembered), its code.
CONDITIONS_SHIFT = 32
ASKED_SHIFT = 32
READ_BITS = 20
READ_OTHER_SHIFT = 20
READ_COLUMN_SHIFT = 40
CHECK_NEGATED = 1
CHECK_PLACE_SHIFT = 1
CHECK_ENTRY_SHIFT = 32
VERDICT_BITS = 3


class LooseBlock(NamedTuple):
    """A predicate that belongs to no column."""

    entry: int
    """Where its code begins, -1 for the reference."""
    predicate: int


class SpanBlock(NamedTuple):
    """A text that a column tells apart."""

    address: int
    length: int


class TextBlock(NamedTuple):
    """A place in a table of texts."""

    hash: int
    address: int
    length: int
    number: int
    """1 + that of the text; 0: empty place."""


class SeenBlock(NamedTuple):
    """A place in a table of values seen; its class row follows."""

    what: int
    """Kind and length; 0: empty place."""
    hash: int
    payload: int
    """Of a text of at most eight bytes the text, of a longer one the address of a copy."""
    unused: int


class FoundBlock(NamedTuple):
    """A part of a message that may be a key."""

    message: int
    """Its number in the block."""
    label: int
    payload: int
    """A number, or the address of the text."""
    length: int
    """Of the text; for a range the place of the number between the bounds."""
    hash: int
    bucket: int
    """Where its key may be; -1: it is no key."""


LOOSE_PREDICATE = places(LooseBlock)
SPAN = places(SpanBlock)
TEXT = places(TextBlock)
SEEN = places(SeenBlock)
FOUND_PART = places(FoundBlock)
LOOSE_PREDICATE_BYTES = 8 * len(LOOSE_PREDICATE)
SPAN_BYTES = 8 * len(SPAN)
TEXT_BYTES = 8 * len(TEXT)
SEEN_BYTES = 8 * len(SEEN)
FOUND_BYTES = 8 * len(FOUND_PART)
MOST_FOUND = 2048
