"""Registers, constants, text and instructions of a program, put together into the words that `layout.py` describes.

Instructions are laid down backwards, each after its successors, so that every jump knows its target.
"""

from __future__ import annotations

import itertools
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.evaluate import layout
from headgate.evaluate.body.paths import body_table
from headgate.evaluate.hashing import text_hash
from headgate.evaluate.kinds import KINDS, reading
from headgate.language import Value
from headgate.language.servicebus import ValueKind, kind_of, ticks_of
from headgate.language.tree import ValueRules
from headgate.message import AmqpValue, FieldReference, Section
from headgate.message.constructors import (
    CONSTRUCTOR_WIDTHS,
    WIDTH_DESCRIBED,
    WIDTH_INVALID,
    WIDTH_SIZE8,
    WIDTH_SIZE32,
    AmqpType,
)

MOST_FIELDS = 1024
"""Limit: fields of a filter. With more, the reference evaluator decides it."""

_BYTE_VALUES = 256
_LETTER_MASK = 0xDF
_LARGE_LIMIT = 2**64
_KEYED_SECTIONS = (
    Section.DELIVERY_ANNOTATIONS,
    Section.MESSAGE_ANNOTATIONS,
    Section.APPLICATION_PROPERTIES,
    Section.FOOTER,
)
_LIST_SECTIONS = (Section.HEADER, Section.PROPERTIES)


_OTHER_WIDTHS = {
    WIDTH_SIZE8: layout.WIDTH_SIZE8,
    WIDTH_SIZE32: layout.WIDTH_SIZE32,
    WIDTH_DESCRIBED: layout.WIDTH_DESCRIBED,
    WIDTH_INVALID: layout.WIDTH_INVALID,
}
_WIDTHS = struct.pack(f"={_BYTE_VALUES}H", *(_OTHER_WIDTHS.get(width, 1 + width) for width in CONSTRUCTOR_WIDTHS))


class NotCompiledError(Exception):
    """The tree holds something that the kernel has no operation for."""


@dataclass(slots=True)
class Words:
    """A program as plain values: words, the pool without slack, first values of registers, the row of the time."""

    words: list[int]
    pool: bytes
    registers: list[layout.RegisterBlock]
    now_register: int


class Assembler:
    """Collects registers, pool and instructions of one program; `rules` give the kinds of values."""

    def __init__(self, rules: ValueRules) -> None:
        self.rules = rules
        self.registers: list[layout.RegisterBlock] = []
        self.slots: dict[FieldReference, int] = {}
        self.constants: dict[tuple[object, ...], int] = {}
        self.code: list[list[int]] = []
        self.tables: list[int] = []
        self.table_positions: list[tuple[int, int]] = []
        self.pool = bytearray(_WIDTHS + KINDS[rules])
        self.texts: dict[bytes, int] = {}
        self.now_register = -1
        self.body_scratch = 0
        self.element_paths: list[tuple[list[int], tuple[bytes | int, ...], int]] = []
        """For each NEXT_ELEMENT the path in an element, and its register."""

    # -- registers -----------------------------------------------------------------------------------------------------

    def register(self, kind: int, payload: int, length: int = 0) -> int:
        """A new register with these first values; its place in bytes."""
        self.registers.append(layout.RegisterBlock(kind, payload, length))
        return (len(self.registers) - 1) * layout.REGISTER_BYTES

    def slot(self, reference: FieldReference) -> None:
        """Give a field its register. Raises NotCompiledError for a field that the kernel cannot search for."""
        if reference in self.slots:
            return
        if len(self.slots) == MOST_FIELDS:
            raise NotCompiledError
        if reference.schema is not None:
            raise NotCompiledError
        if reference.section is Section.DATA:
            self.slots[reference] = self.register(layout.ABSENT, 0)
            return
        by_key = reference.key is not None
        if reference.path or (reference.ignore_case and not (reference.key or b"").isascii()):
            raise NotCompiledError
        if by_key and (reference.default is not None or reference.section not in _KEYED_SECTIONS):
            raise NotCompiledError
        if reading(reference, self.rules) is None:
            raise NotCompiledError
        if not by_key and (reference.position is None or reference.section not in _LIST_SECTIONS):
            raise NotCompiledError
        default = reference.default
        kind = layout.ABSENT if default is None else layout.BOOLEAN if isinstance(default, bool) else layout.INTEGER
        is_boolean = layout.A_BOOLEAN if reference.only is AmqpType.BOOLEAN else 0
        self.slots[reference] = self.register(kind, int(default or 0), is_boolean)
        if reference.ignore_case:
            # The register behind it says how the key was spelled.
            self.register(layout.NO_KEY, 0)

    def scratch(self, registers: int) -> int:
        """Room for the output of an operation, in this many registers; its place in bytes."""
        place = len(self.registers) * layout.REGISTER_BYTES
        self.registers += [layout.RegisterBlock(layout.ABSENT, 0, 0)] * registers
        return place

    def constant(self, value: Value) -> int:
        """The register of a constant."""
        # Floats by their bits: 0.0 and -0.0 are equal as keys.
        key = (type(value), float_bits(value) if isinstance(value, float) else value)
        register = self.constants.get(key)
        if register is None:
            register = self.constants[key] = self.register(*self._first_values(value))
        return register

    def _first_values(self, value: Value) -> tuple[int, int, int]:
        match value:
            case None:
                return layout.NULL, 0, 0
            case bool():
                return layout.BOOLEAN, int(value), 0
            case int():
                return _integer_register(value)
            case float():
                return layout.FLOAT, finite_bits(value), 0
            case bytes():
                return layout.BYTES, self.text(value), len(value)
        if not isinstance(value, AmqpValue):
            raise NotCompiledError
        match value.type:
            case AmqpType.INT:
                return layout.INT32, value.value, 0
            case AmqpType.LONG:
                return layout.INTEGER, value.value, 0
            case AmqpType.DOUBLE:
                return layout.FLOAT, finite_bits(value.value), 0
            case AmqpType.TIMESTAMP:
                return layout.TIMESTAMP, value.value, 0
            case AmqpType.UUID | AmqpType.BINARY:
                octets = value.octets() or b""
                return layout.UUID if value.type is AmqpType.UUID else layout.BINARY, self.text(octets), len(octets)
        if kind_of(value) is not ValueKind.TIME_SPAN:
            raise NotCompiledError
        return layout.TIME_SPAN, ticks_of(value), 0

    # -- text, tables, instructions ------------------------------------------------------------------------------------

    def text(self, text: bytes) -> int:
        """Position of a text in the pool."""
        position = self.texts.get(text)
        if position is None:
            position = self.texts[text] = len(self.pool)
            self.pool += text
        return position

    def table(self, rows: Sequence[int]) -> int:
        """Position of the rows among the tables; `_assemble` makes it a position in the words."""
        position = len(self.tables)
        self.tables += rows
        return position

    def emit(
        self,
        operation: int,
        wanted: int,
        wanted_at: int,
        otherwise: int,
        *operands: int,
        family: int = layout.RULES_RABBITMQ,
    ) -> int:
        """A new instruction with operands from A on; its position.

        Raises ValueError for a family that the kernel does not know: it would take it for that of Service Bus.
        """
        if not 0 <= family < layout.FAMILIES:
            raise ValueError(f"found family {family} of operations, expected 0 to {layout.FAMILIES - 1} (layout.py)")
        instruction = [operation, wanted, wanted_at, otherwise, *operands]
        instruction += [0] * (layout.INSTRUCTION_WORDS - len(instruction))
        instruction[layout.RULES // 8] = family
        if operation >= layout.FIRST_VALUE_OPERATION:
            instruction[layout.WANTED // 8] = layout.TRUE
        if operation in (layout.AMONG_BYTES, layout.AMONG, layout.LIKE_GENERAL, layout.FOLLOW, layout.SEARCH_BODY):
            self.table_positions.append((len(self.code), layout.B // 8))
        self.code.append(instruction)
        return (layout.HEAD_WORDS + (len(self.code) - 1) * layout.INSTRUCTION_WORDS) * 8

    def assemble(self, select: int, exact: int, slots: int) -> Words:
        """The whole program; `slots` is how many registers are reset before each message."""
        head = [0] * layout.HEAD_WORDS
        tables_at = layout.HEAD_WORDS + len(self.code) * layout.INSTRUCTION_WORDS
        head[layout.CODE_SELECT // 8] = select
        head[layout.CODE_EXACT // 8] = exact
        for instruction, word in self.table_positions:
            self.code[instruction][word] = (tables_at + self.code[instruction][word]) * 8

        def place(rows: Sequence[int]) -> int:
            return (tables_at + self.table(rows)) * 8

        for advance, path, register in self.element_paths:
            table = body_table({path: register}, self.body_scratch, place, self._plain_key_table)
            advance[layout.B // 8] = place(table)
        template = [word for register in self.registers[:slots] for word in register]
        head[layout.SLOT_TEMPLATE // 8] = place([*template, -1])
        for section in {field.section for field in self.slots}:
            wanted = {field: register for field, register in self.slots.items() if field.section is section}
            if section is Section.APPLICATION_PROPERTIES:
                word = layout.APPLICATION_KEYS
            elif section is Section.FOOTER:
                word = layout.FOOTER_KEYS
            elif section is Section.DATA:
                paths = {field.path: register for field, register in wanted.items()}
                head[layout.BODY_PATHS // 8] = place(body_table(paths, self.body_scratch, place, self._plain_key_table))
                continue
            else:
                word = layout.WANTED_SECTIONS + 8 * (section - Section.HEADER)
            table = self._field_table(wanted) if section in _LIST_SECTIONS else self._key_table(wanted)
            head[word // 8] = place(table)
        words = head
        for emitted in self.code:
            words += emitted
        words += self.tables
        return Words(words, bytes(self.pool), self.registers, self.now_register)

    def _read_into(self, field: FieldReference, register: int) -> int:
        return register | (reading(field, self.rules) or layout.AS_IT_IS)

    def _field_table(self, wanted: Mapping[FieldReference, int]) -> list[int]:
        registers = {field.position: self._read_into(field, register) for field, register in wanted.items()}
        if len(registers) < len(wanted):
            raise NotCompiledError
        count = 1 + max(position for position in registers if position is not None)
        return [count, *(registers.get(position, -1) for position in range(count))]

    def _plain_key_table(self, wanted: Sequence[tuple[bytes, int]]) -> list[int]:
        """Keys and the numbers that they lead to."""
        by_length = bytearray(_BYTE_VALUES)
        rows: list[int] = []
        for number, (key, leads_to) in enumerate(wanted, start=1):
            rows += self._key_row(number, key, leads_to, by_length)
        return [len(wanted), self._by_length(by_length), 0, *rows]

    def _key_row(self, number: int, key: bytes, leads_to: int, by_length: bytearray) -> list[int]:
        # Candidates are chained by number in one byte; a filter with more keys goes to the reference.
        if number >= _BYTE_VALUES:
            raise NotCompiledError
        short = min(len(key), _BYTE_VALUES - 1)
        row = [first_word(key), first_mask(key), len(key), self.text(key), leads_to, by_length[short]]
        by_length[short] = number
        return row

    def _by_length(self, by_length: bytearray) -> int:
        """Position of the first candidates by length of key in the pool."""
        return self.text(bytes(by_length))

    def _key_table(self, wanted: Mapping[FieldReference, int]) -> list[int]:
        by_length = bytearray(_BYTE_VALUES)
        rows: list[int] = []
        ignore_case = any(field.ignore_case for field in wanted)
        if (ignore_case and not all(field.ignore_case for field in wanted)) or len(
            {field.key for field in wanted}
        ) < len(wanted):
            raise NotCompiledError
        for number, (field, register) in enumerate(wanted.items(), start=1):
            key = field.key or b""
            rows += self._key_row(number, key, self._read_into(field, register), by_length)
            if ignore_case:
                masks = bytes(_LETTER_MASK if chr(byte).isalpha() else 0xFF for byte in key)
                rows += (first_word(masks), self.text(masks), register + layout.REGISTER_BYTES)
        return [len(wanted), self._by_length(by_length), int(ignore_case), *rows]


def _integer_register(value: int) -> tuple[int, int, int]:
    if fits_64_bits(value):
        return layout.INTEGER, value, 0
    if 0 < value < _LARGE_LIMIT:
        return layout.LARGE, value - _LARGE_LIMIT, 0
    try:
        below = float(value)
    except OverflowError:
        below = sys.float_info.max if value > 0 else -math.inf
    if below > value:
        below = math.nextafter(below, -math.inf)
    return layout.BEYOND, float_bits(below), int(below == value)


def fits_64_bits(value: int) -> bool:
    """Whether a register holds the integer, with its sign."""
    return -(2**63) <= value < 2**63


def finite_bits(value: float) -> int:
    """The bits of a double. Raises NotCompiledError for NaN and the infinities."""
    if not math.isfinite(value):
        raise NotCompiledError
    return float_bits(value)


def float_bits(value: float) -> int:
    """The bits of a double."""
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def first_word(text: bytes) -> int:
    """The first eight bytes; shorter texts are filled with zeros."""
    return int.from_bytes(text[:8].ljust(8, b"\0"), "little", signed=True)


def first_mask(text: bytes) -> int:
    """Ones for the bytes of `first_word` that are text."""
    return -1 if len(text) >= 8 else (1 << 8 * len(text)) - 1


_FEW_MEMBERS = 32
"""Limit: members that are compared one after the other. More are found faster in a hash table."""


def in_buckets(texts: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """The members of a set by bucket, without repetition, and where buckets begin in a table of them, as `layout` says.

    No buckets for a few.
    """
    if len(texts) <= _FEW_MEMBERS:
        return list(texts), []
    count = 1 << (len(texts) - 1).bit_length()
    buckets: list[list[bytes]] = [[] for _ in range(count)]
    for text in dict.fromkeys(texts):
        buckets[text_hash(text) & (count - 1)].append(text)
    ends = itertools.accumulate(len(bucket) for bucket in buckets)
    return [text for bucket in buckets for text in bucket], [0, *(32 * end for end in ends)]
