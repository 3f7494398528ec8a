"""The words that a program is made of: what `program.py` writes and `kernel.py` reads.

A program is two blocks of memory and a register file.

    words (int64)     head | instructions | tables
    pool (bytes)      constructor widths (256 x 2 bytes) | 256-byte tables by key length | constant text | slack
    registers         (kind, payload, length) as three int64 each: first the slots (fields of the message), then
                      constants, the time, and temporary values

An instruction is `INSTRUCTION_WORDS` words. A *predicate* finds a truth and goes on at `ON_WANTED` if it is the wanted
one, else at `OTHERWISE`; so code answers one question, "is the filter true?" or "is it false?", and needs no truth
registers: whatever is neither is unknown. Where a language uses a truth as a value, the predicate stores it instead.
*Steps* say when the rest of a message is read or checked.

This module holds plain integers only: kernels freeze them when they are compiled.
"""

from __future__ import annotations

# Kinds of a register. Below FIRST_KNOWN: unknown.
ABSENT = 0
NULL = 1
VALUELESS = 2  # compound, described, decimal, NaN, infinite; or computed and unknown
FIRST_KNOWN = 3
INTEGER = 3  # payload: the value
FLOAT = 4  # payload: bits of the finite double
BYTES = 5  # payload: address, length
BOOLEAN = 6  # payload: 0 or 1
LARGE = 7  # an integer from 2^63 to 2^64 - 1; payload: its bits
BEYOND = 8  # a constant integer outside 64 bits; payload: bits of the greatest double not above it; length: 1 if equal

REGISTER_BYTES = 24

# Truths, also the verdicts of the kernel.
FALSE = 0
TRUE = 1
UNKNOWN = 2
MALFORMED = 3
UNDECIDED = 4

# Wanted truths are FALSE and TRUE; instead of waiting for one, a predicate may keep what it finds.
STORE = 8

# Words of an instruction, in bytes from its start.
INSTRUCTION_WORDS = 10
OPERATION = 0
WANTED = 8
ON_WANTED = 16  # position of the next instruction, or or an END; for steps and value operations: the next
OTHERWISE = 24  # the same; for STORE and value operations: the register that takes the result
A = 32
B = 40
C = 48
D = 56
E = 64

# Where the program ends: -1 less the verdict.
END_FALSE = -1
END_TRUE = -2
END_UNKNOWN = -3

# Predicates. Registers are given as byte offsets in the register file.
EQUAL_BYTES = 1  # A register, B first eight bytes, C length, D mask of B, E text in the pool
AMONG_BYTES = 2  # A register, B table of members (first eight bytes, mask, length, text), C their number
COMPARE_INTEGER = 3  # A register, B value, C accepted orders
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
LIKE_GENERAL = 13  # A register, B table of elements (length, text), C their number

# Value operations: A, B registers, result in the register OTHERWISE, next instruction ON_WANTED.
FIRST_VALUE_OPERATION = 20
ADD = 20
SUBTRACT = 21
MULTIPLY = 22
DIVIDE = 23
MODULO = 24
NEGATE = 25  # A only
KEEP_NUMBER = 26  # A only: unary plus
BOTH = 27  # three-valued conjunction of two values
EITHER = 28  # three-valued disjunction
OPPOSITE = 29  # A only: three-valued negation

# Steps through the message: the next instruction is ON_WANTED; they end the program on bytes that are no message.
READ_APPLICATION_PROPERTIES = 15  # fill the slots of application properties
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
SLOT_TEMPLATE = 16  # position of the first (kind, payload, unused) of each slot, then -1
WANTED_SECTIONS = 24  # four words for header, delivery annotations, message annotations, properties; 0: not wanted,
# else the position of its table: fields for the lists, keys for the maps
APPLICATION_KEYS = 56  # position of the keys of application properties; 0: none wanted

# A table of fields: number, then per list position a register, -1 = not wanted, or, where only a ubyte counts, the
# register with the flag UBYTE_ONLY.
FIELDS_COUNT = 0
FIELDS_FIRST = 8
UBYTE_ONLY = 1

# A table of keys: number, position in the pool of 256 bytes by key length (0 or 1 + the first candidate), then per key:
KEYS_COUNT = 0
KEYS_BY_LENGTH = 8
KEYS_FIRST = 16
KEY_WORDS = 6
KEY_BYTES = 48
KEY_WORD = 0  # first eight bytes
KEY_MASK = 8
KEY_LENGTH = 16
KEY_TEXT = 24  # position in the pool
KEY_REGISTER = 32
KEY_NEXT = 40  # 0 or 1 + the next candidate of the same length

# Constructor widths in the pool: constructor byte included.
WIDTHS_BYTES = 512
WIDTH_SIZE8 = 32  # below: so many bytes in all
WIDTH_RARE = 64  # four-byte sizes, described values, bytes that are no constructor
WIDTH_SIZE32 = 64
WIDTH_DESCRIBED = 65
WIDTH_INVALID = 66
