"""The words of the edits of a program: `program.py` writes them, `kernel.py` reads them.

    head | groups: the edits of one section each, sections in order | edits, those of a list in order of position

Each edit has two registers of state in the register file of its run: (type, payload, length) of the value to write,
and (whether it is written, address of the key to replace, its length or -1).

This module holds plain integers only: kernels freeze them when they are compiled.
"""

from __future__ import annotations

# The addresses of a program's parts, as a run gives them to the kernel.
PROGRAM_BYTES = 32
WORDS = 0  # of the program that computes values
POOL = 8
REGISTERS = 16
EDIT_TABLE = 24  # the words below

# Words of the head, in bytes from its start. Positions are in the pool.
HEAD_WORDS = 10
COUNT = 0  # of edits
EDITS = 8  # where the first is, in bytes from the start
NEW_IDS = 16  # how many guids each message takes
NEW_ID_REGISTER = 24  # the first of as many registers that take them
ROOM = 32  # bytes that a copy may have more than its message and the texts that are written
MOST_PROPERTIES = 40  # bytes; where application properties have more the reference decides
MOST_MESSAGE = 48  # the same of the whole copy
TYPES = 56  # 256 types, by constructor
CONVERSIONS = 64  # TYPE_COUNT × TYPE_COUNT: what a value of the first type becomes in the place of one of the second
TIME_SPAN_HEAD = 72  # what stands before the ticks of a time span

# Words of a group; a section behind all others ends them.
GROUPS = 80
GROUP_BYTES = 24
SECTION = 0
FIRST = 8  # the first of its edits, in bytes from the start
EDIT_COUNT = 16
NO_SECTION = 0x100

# Words of an edit.
EDIT_WORDS = 14
EDIT_BYTES = 112
HOW = 0  # what it does, one of those below
VALUE = 8  # register
TYPE = 16  # of HOW_TYPED
SOURCE_KEY_LENGTH = 24  # of HOW_COPIED
SLOT = 32  # register of the application property that is changed; -1: another field
KEY = 40  # position of its encoded key, or of a key in annotations
KEY_BYTES = 48  # length of the encoded key
KEY_LENGTH = 56  # length of its text, with which it ends
POSITION = 64  # in a list
AT_END = 72  # 1: a new pair at the end, whatever was there
MOST_BYTES = 80  # of the encoded value; more is an error
LONGEST_TEXT = 88  # where a system property has more bytes the reference decides
SCRATCH = 96  # register: room for the text of a system property
STATE = 104  # register

HOW_REMOVED = 0
HOW_COMPUTED = 1  # its type is that of the register's kind
HOW_TYPED = 2
HOW_COPIED = 3  # from an application property, with its type
HOW_SYSTEM_TEXT = 4
HOW_SYSTEM_SYMBOL = 5
HOW_SYSTEM_MILLISECONDS = 6
HOW_SYSTEM_DATE_TIME = 7
FIRST_HOW_SYSTEM = 4

# Types of values.
TYPE_COUNT = 32
UNSET = 0  # the field is taken out; of a key that is not there
TYPE_NULL = 1
TYPE_BOOLEAN = 2
TYPE_UBYTE = 3
TYPE_BYTE = 4
TYPE_USHORT = 5
TYPE_SHORT = 6
TYPE_UINT = 7
TYPE_INT = 8
TYPE_ULONG = 9
TYPE_LONG = 10
TYPE_CHAR = 11
TYPE_FLOAT = 12  # payload: the address of its four bytes
TYPE_DOUBLE = 13
TYPE_TIMESTAMP = 14
TYPE_UUID = 15
TYPE_BINARY = 16
TYPE_STRING = 17
TYPE_SYMBOL = 18
TYPE_TIME_SPAN = 19
TYPE_OTHER = 20
NOT_CONVERTED = 255  # only the reference knows what becomes of it
