"""The words of a program: `program.py` writes them, `kernel.py` reads them.

A program is two blocks of memory and a register file.

    words (int64)     head | instructions | tables
    pool (bytes)      constructor widths (256 x 2 bytes) | kinds by constructor (256 bytes)
                      | 256-byte tables by key length | constant text | slack
    registers         `RegisterBlock`s: first the slots (fields of the message), then constants, the time, and
                      temporary values

An instruction is `INSTRUCTION_WORDS` words. A *predicate* finds a truth and goes on at `ON_WANTED` if it is the wanted
one, else at `OTHERWISE`; so code answers one question, "is the filter true?" or "is it false?", and needs no truth
registers: whatever is neither is unknown. Where a language uses a truth as a value, the predicate stores it instead;
where a language knows errors, an operand behind an unknown one may still raise one, so operands are *collected* into a
register. *Steps* say when the rest of a message is read or checked.

Operations are tried on the kinds of values that they are made for, which all languages decide alike; what they do with
anything else is the matter of the family in the word `RULES`.

This module holds numbers and blocks of words only: kernels freeze them when they are compiled.
"""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class RegisterBlock(NamedTuple):
    """A value; the address of a register is that of its kind."""

    kind: int
    payload: int
    length: int
    """Of a text."""


class MemberBlock(NamedTuple):
    """A member of AMONG_BYTES."""

    word: int
    """Its first eight bytes."""
    mask: int
    length: int
    text: int
    """Position in the pool."""


class ElementBlock(NamedTuple):
    """An element of LIKE_GENERAL."""

    length: int
    """Below zero: a wildcard."""
    text: int
    """Position in the pool."""


class StepBlock(NamedTuple):
    """A step of FOLLOW: an index, or the key of a map."""

    number: int
    """-1: the key is a text."""
    length: int
    text: int
    """Position in the pool."""


class BodyBlock(NamedTuple):
    """What is to be found in a JSON body: a tree of the steps of all paths."""

    root: int
    """Position of the `BranchBlock` of the whole text."""
    registers: int
    """Position of the registers of all paths, -1 behind the last."""
    scratch: int
    """`BODY_SCRATCH_REGISTERS` registers."""


class NeedleBlock(NamedTuple):
    """Bytes that SEARCH_BODY looks for: at least two."""

    text: int
    """Position in the pool."""
    length: int


class BranchBlock(NamedTuple):
    """A place in a JSON text that a path leads to or through."""

    register: int
    """The slot of the value here, -1 if no path ends here."""
    below: int
    """Position of the registers of all paths that lead on from here, -1 behind the last."""
    keys: int
    """Position of a table of keys, with the position of a branch in the place of the register."""
    elements: int
    """Position of pairs of an element's number and the position of its branch, ascending; -1 behind the last."""


REGISTER = places(RegisterBlock)
MEMBER = places(MemberBlock)
ELEMENT = places(ElementBlock)
STEP = places(StepBlock)
BODY = places(BodyBlock)
BRANCH = places(BranchBlock)
NEEDLE = places(NeedleBlock)
NEEDLE_BYTES = 8 * len(NEEDLE)
REGISTER_BYTES = 8 * len(REGISTER)
MEMBER_BYTES = 8 * len(MEMBER)
ELEMENT_BYTES = 8 * len(ELEMENT)
STEP_BYTES = 8 * len(STEP)

# Kinds of a register. Below FIRST_KNOWN: unknown. From ABSENT to OPEN: of equal keys a later one may still count.
NULL = 0
ABSENT = 1
VALUELESS = 2  # what a language sees no value in, payload: its address; or computed and unknown
FIRST_KNOWN = 3
OPEN = 3  # a value, but only the reference knows what operators do with it: decimals, described values, NaN, infinities
ODD = 4  # the same for types that a language hardly ever meets
INTEGER = 5  # payload: the value
FLOAT = 6  # payload: bits of the finite double
BYTES = 7  # payload: address, length
BOOLEAN = 8  # payload: 0 or 1
LARGE = 9  # an integer from 2^63 to 2^64 - 1; payload: its bits
BEYOND = 10  # a constant integer outside 64 bits; payload: bits of the greatest double not above it; length: 1 if equal
INT32 = 11  # an integer of 32 bits, where a language tells it from others; payload: the value
TIMESTAMP = 12  # payload: milliseconds since the epoch
UUID = 13  # payload: address; length: 16
BINARY = 14  # payload: address, length
TIME_SPAN = 15  # payload: ticks of 100 ns
BETWEEN = 16  # a decimal of many digits; payload and length: bits of doubles, next to decimals on both sides of it

# Kinds of values that are read without a filter (`body/values`), beside those above.
NUMBER_TEXT = 17  # a number that neither INTEGER nor FLOAT holds; payload: address of its text, length
UNESCAPED = 18  # a string that stands in the body with escapes; payload: place of its text without them, length
NO_MESSAGE = 19  # the message is malformed

# Truths, also the verdicts of the kernel.
FALSE = 0
TRUE = 1
UNKNOWN = 2
MALFORMED = 3
ERROR = 3  # of the language: ends the evaluation, as bytes that are no message do
UNDECIDED = 4

# Wanted truths are FALSE and TRUE; instead of waiting for one, a predicate may keep what it finds.
END = 9  # with what was found
STORE = 8  # into the register OTHERWISE; goes on at ON_WANTED
COLLECT = 16  # and flags, and a register << COLLECT_SHIFT: combine with what the register holds
COLLECT_DECISIVE = 1  # the truth that decides; it goes on at OTHERWISE, with any other at ON_WANTED
COLLECT_NEGATED = 2  # collects the negation of what is found
COLLECT_FIRST = 4  # the register holds nothing yet
COLLECT_SHIFT = 8

# Words of an instruction, in bytes from its start.
INSTRUCTION_WORDS = 10
OPERATION = 0
WANTED = 8
ON_WANTED = 16  # position of the next instruction, or an END; for steps and value operations: the next
OTHERWISE = 24  # the same; for STORE and value operations: the register that takes the result
A = 32
B = 40
C = 48
D = 56
E = 64
RULES = 72  # the family that knows what the short way does not

# Families of operations.
RULES_RABBITMQ = 0
RULES_ROCKETMQ = 1
RULES_SERVICE_BUS = 2
RULES_CORRELATION = 3
RULES_AMQP = 4  # operations that only the dialect amqp has; all else there is RULES_RABBITMQ
RULES_CESQL = 5
FAMILIES = 6  # their number; the kernel has operations for no other

# Where the program ends: -1 less the verdict.
END_FALSE = -1
END_TRUE = -2
END_UNKNOWN = -3

# Predicates. Registers are given as byte offsets in the register file.
EQUAL_BYTES = 1  # A register, B first eight bytes, C length, D mask of B, E text in the pool
AMONG_BYTES = 2  # A register, B table of `MemberBlock`s, C their number
# Of many members C is minus the number of buckets, a power of two, and so many words and one precede the members: where
# the members of each bucket begin, in bytes.
COMPARE_INTEGER = 3  # A register, B value, C accepted orders, D kind of the value
COMPARE_FLOAT = 4  # A register, B bits, C accepted orders
EQUAL_BOOLEAN = 5  # A register, B 0 or 1
TRUTH = 6  # A register: true if it is the boolean TRUE; anything but booleans is unknown
IS_UNKNOWN = 7  # A register
IS_PRESENT = 8  # A register of a slot
IS_SIMPLE = 14  # A register of a slot: null, or a known value
COMPARE = 9  # A, B registers, C accepted orders
AMONG = 10  # A register, B table of registers, C their number
LIKE_AFFIXES = 11  # A register, B prefix in the pool, C its length, D suffix in the pool, E its length
LIKE_EXACT = 12  # A register, B text in the pool, C its length
LIKE_GENERAL = 13  # A register, B table of `ElementBlock`s, C their number
CONTAINS = 32  # A register, B text in the pool, C its length, D 1 if negated
STARTS_WITH = 33
ENDS_WITH = 34
CAST_BOOLEAN = 35  # A register
HAS_ATTRIBUTE = 37  # A register of the content type, B and C of the fields of an attribute; all slots
COMPARE_SPECIAL = 36  # A register of a slot or of FOLLOW, B one of the numbers below, C accepted orders

# Value operations: A, B registers, result in the register OTHERWISE, next instruction ON_WANTED: when done they are
# TRUE, which is what they want.
FIRST_VALUE_OPERATION = 128
ADD = 128  # in the family of Service Bus: D scratch
SUBTRACT = 129
MULTIPLY = 130
DIVIDE = 131
MODULO = 132
NEGATE = 133  # A only
KEEP_NUMBER = 134  # A only: unary plus
BOTH = 135  # three-valued conjunction of two values
EITHER = 136  # three-valued disjunction
OPPOSITE = 137  # A only: three-valued negation
FOLLOW = 138  # A register of a slot, B table of `StepBlock`s, C their number, D scratch
OR_DEFAULT = 139  # A register of a slot, B register of its default
LOWER = 140  # A text, D scratch
UPPER = 141
LEFT = 142  # A text, B count
RIGHT = 143
SUBSTRING = 144  # A text, B start, C count or -1
DATE = 145  # A text
CONCATENATE = 146  # A, B texts, D scratch
ATTRIBUTE = 147  # A, B, C as of HAS_ATTRIBUTE
CAST_INTEGER = 148  # A only

# Numbers of COMPARE_SPECIAL.
INFINITY = 0
NEGATIVE_INFINITY = 1
NAN = 2

# Registers that an operation writes texts of its own to, the slack behind them included; longer ones are undecided.
SCRATCH_REGISTERS = 24
FOLLOW_SCRATCH_REGISTERS = 2

# Scratch of the walk over a JSON text: a register (where the text ends, once it was walked over; where texts without
# their escapes go, 0 for the end of the scratch; where there is room for more of them), a level for each open
# container, and those texts. READS_VALUES in the first place, before the walk: values are read without a filter, a
# number that a register holds only nearly becomes a NUMBER_TEXT, and the room for texts is as large as the message.
READS_VALUES = -1
LEVEL_REGISTERS = 1
MOST_LEVELS = 512  # MAX_NESTING of message/json_body.py
UNESCAPED_BYTES = 8160
BODY_SCRATCH_REGISTERS = 1 + LEVEL_REGISTERS * MOST_LEVELS + UNESCAPED_BYTES // REGISTER_BYTES
MOST_JSON_BYTES = 4 << 20

# Steps through the message: the next instruction is ON_WANTED; they end the program on bytes that are no message.
READ_APPLICATION_PROPERTIES = 15  # fill the slots of application properties
READ_FOOTER = 17  # fill the slots of the footer; only as the first instruction
READ_BODY = 18  # fill the slots of paths into the body
SEARCH_BODY = 19  # B table of `NeedleBlock`s, C their number: whether the body may hold one, escaped ones included
START_ELEMENTS = 20  # A register of an array, B of the result, C of the cursor, D of one around it or of scratch
NEXT_ELEMENT = 21  # A register of the cursor, B `BodyBlock` of the path in an element, D as before
CHECK = 16  # walk all sections before the body to their ends

# Accepted orders of a comparison: bit of (order + 1).
LESS = 1
EQUAL = 2
GREATER = 4

# Elements of a LIKE pattern: lengths below zero are wildcards.
ANY_TEXT = -1
ONE_CHARACTER = -2

# Words of the program head, in bytes from its start.
HEAD_WORDS = 16
CODE_SELECT = 0  # ends with TRUE for messages that match, and with anything else as soon as one cannot
CODE_EXACT = 8  # ends with the exact verdict
SLOT_TEMPLATE = 16  # position of the first `RegisterBlock` of each slot, then -1
WANTED_SECTIONS = 24  # four words for header, delivery annotations, message annotations, properties; 0: not wanted,
# else the position of its table: fields for the lists, keys for the maps
APPLICATION_KEYS = 56  # position of the keys of application properties; 0: none wanted
FOOTER_KEYS = 64  # the same of the footer
BODY_PATHS = 72  # position of a `BodyBlock`; 0: nothing of the body is wanted

# A table of fields: number, then per list position a register and, in its lowest bits, how the value is read; -1: not
# wanted.
FIELDS_COUNT = 0
FIELDS_FIRST = 8

# How a field is read; anything else than what is asked for is NULL.
READING = 7  # mask
AS_IT_IS = 0
UBYTE_ONLY = 1  # anything else is absent
AS_TEXT = 2
AS_IDENTIFIER = 3
AS_TIME_SPAN = 4  # an integer of milliseconds
AS_DATE_TIME = 5
AS_INTEGER = 6
OF_ITS_TYPE = 7  # a boolean if the length of the register is A_BOOLEAN, else a uint; anything else is absent
A_BOOLEAN = 1

# A table of keys: number, position in the pool of 256 bytes by key length (0 or 1 + the first candidate), 1 if keys are
# found in any letter case, then per key:
KEYS_COUNT = 0
KEYS_BY_LENGTH = 8
KEYS_IGNORE_CASE = 16
KEYS_FIRST = 24
KEY_WORDS = 6
KEY_BYTES = 48
KEY_WORD = 0  # first eight bytes
KEY_MASK = 8
KEY_LENGTH = 16
KEY_TEXT = 24  # position in the pool
KEY_REGISTER = 32  # and, in annotations, how the value is read
KEY_NEXT = 40  # 0 or 1 + the next candidate of the same length

# In a table that ignores case each key has three words more; the register behind its own says what was found so far.
CASE_KEY_BYTES = 72
KEY_CASE_MASK = 48  # KEY_MASK without the bit that tells the case of a letter
KEY_CASE_MASKS = 56  # position in the pool of the same for the whole key
KEY_SPELLING = 64  # register: NO_KEY, OTHER_CASE or SAME_CASE, and the address of the key that was taken
NO_KEY = 0
OTHER_CASE = 1
SAME_CASE = 2

# Constructor widths in the pool: constructor byte included.
WIDTH_SIZE8 = 32  # below: so many bytes in all
WIDTH_RARE = 64  # four-byte sizes, described values, bytes that are no constructor
WIDTH_SIZE32 = 64
WIDTH_DESCRIBED = 65
WIDTH_INVALID = 66

# Kinds in the pool, behind the widths: a byte by constructor, and at places that are no constructors:
KINDS = 512
KIND_OF_EMPTY = 1  # of a string without characters
KIND_OF_NOT_FINITE = 2  # of NaN and the infinities
