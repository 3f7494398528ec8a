"""Statements of an action compiled for the kernel of edits, and running them over encoded messages.

The values are computed by a program of the filter kernel, whose slots are the fields that statements read and the
application properties that they change; the edits write the values into the message (`layout.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout as kinds
from headgate.evaluate.assembler import NotCompiledError
from headgate.evaluate.compiler import Compiler
from headgate.evaluate.edits import layout
from headgate.evaluate.program import Program, program_of
from headgate.kernels import address_of, load
from headgate.language import servicebus as v
from headgate.language import tree as t
from headgate.message import (
    DECIMAL_SIZES,
    NULL,
    PROPERTIES_FIELDS,
    SLACK_BYTES,
    AmqpType,
    AmqpValue,
    EncodedMessages,
    FieldReference,
    Section,
    encode_value,
    outside_of_buffer,
    without_case,
)
from headgate.message.constructors import CONSTRUCTORS, DESCRIBED

KERNEL_MODULE = "headgate.evaluate.edits.kernel"

RULE_NAME = FieldReference(Section.APPLICATION_PROPERTIES, key=b"RuleName", ignore_case=True)
"""Where a copy has the name of its rule, in any letter case."""

_CONTENT_TYPE = FieldReference(Section.PROPERTIES, position=PROPERTIES_FIELDS.index("content-type"))
_NO_LIMIT = 2**62
_ROOM_OF_EDIT_BYTES = 64
"""More than a value without text takes, or the nulls before a field of a list."""

_ROOM_OF_SECTION_BYTES = 32
_USUAL_GROWTH_BYTES = 64
"""The usual growth of a copy, at most; copies that grow more move to a larger buffer."""

_TYPES: Mapping[AmqpType, int] = {
    kind: found for kind in AmqpType if (found := getattr(layout, f"TYPE_{kind.name}", None)) is not None
}
_TYPE_TABLE = bytes(
    layout.TYPE_OTHER if code == DESCRIBED else _TYPES.get(CONSTRUCTORS.get(code, AmqpType.LIST), layout.TYPE_OTHER)
    for code in range(256)
)
_NEVER_READ = (layout.TYPE_STRING, layout.TYPE_SYMBOL, layout.TYPE_BINARY)
"""Types of values that a string replaces unconverted; for other types, null excepted, it may be converted."""

_TIME_SPAN_HEAD = encode_value(v.time_span(0))[:-2]


def _conversions() -> bytes:
    """A row for each type of a value, a column for each that it replaces: the type that is written."""
    table = bytearray()
    for given in range(layout.TYPE_COUNT):
        table += bytes([layout.NOT_CONVERTED if given == layout.TYPE_OTHER else given]) * layout.TYPE_COUNT

    def place(given: AmqpType, replaced: int, becomes: int) -> None:
        table[_TYPES[given] * layout.TYPE_COUNT + replaced] = becomes

    for kind, wanted in v.IMPLICIT_CONVERSIONS.items():
        for becomes in wanted - DECIMAL_SIZES.keys():
            # Rounding to 32 bits is left to the reference.
            place(kind, _TYPES[becomes], layout.NOT_CONVERTED if becomes is AmqpType.FLOAT else _TYPES[becomes])
        place(kind, layout.TYPE_OTHER, layout.NOT_CONVERTED)
    place(AmqpType.TIMESTAMP, layout.TYPE_OTHER, layout.NOT_CONVERTED)
    for kind in (AmqpType.STRING, AmqpType.SYMBOL):
        for replaced in range(layout.TYPE_BOOLEAN, layout.TYPE_COUNT):
            # Reading texts is left to the reference.
            if replaced not in _NEVER_READ:
                place(kind, replaced, layout.NOT_CONVERTED)
    return bytes(table)


_CONVERSIONS = _conversions()
_HOW_SYSTEM: Mapping[v.SystemType, int] = {
    v.SystemType.TEXT: layout.HOW_SYSTEM_TEXT,
    v.SystemType.IDENTIFIER: layout.HOW_SYSTEM_TEXT,
    v.SystemType.TIME_SPAN: layout.HOW_SYSTEM_MILLISECONDS,
    v.SystemType.DATE_TIME: layout.HOW_SYSTEM_DATE_TIME,
}


@dataclass(slots=True, frozen=True)
class Changed:
    """The copies of a batch, row by row: `statuses` is `(messages,)` uint8, TRUE, ERROR or UNDECIDED.

    Only a row with TRUE has a copy; the others have no bytes.
    """

    messages: EncodedMessages
    statuses: NDArray[np.uint8]


class EditProgram:
    """Compiled statements; may be run by several threads at once.

    `occurrences` are the numbers of the calls of newid() whose guids a run takes.
    """

    __slots__ = ("_edits", "_program", "addresses", "occurrences", "registers", "room_bytes")

    def __init__(self, program: Program, edits: NDArray[np.int64], occurrences: tuple[int, ...]) -> None:
        self._program = program
        self._edits = edits
        self.occurrences = occurrences
        self.registers = program.registers_at(0)
        """The first values of a run's registers, `(r, 3)`; they point into the program."""
        self.addresses = (program.words_address, program.pool_address, 0, address_of(edits))
        """Addresses of the parts, as `layout.py` says; each run sets the address of its registers."""
        self.room_bytes = int(edits[layout.ROOM // 8])
        """Bytes that a copy may have more than its message and the texts that are written."""


def run_edits(
    programs: Sequence[EditProgram | None],
    which: NDArray[np.int64],
    batch: EncodedMessages,
    new_ids: NDArray[np.uint8],
    first_new_ids: NDArray[np.int64],
    *,
    room: NDArray[np.uint8] | None = None,
) -> Changed | None:
    """The copies that programs make of messages, in one run; None where the kernel cannot be used.

    `which` is `(messages,)`, places in `programs`: None leaves the row undecided. `new_ids` is `(guids, 16)`, and
    `first_new_ids` `(messages,)` has the first guid of each message. Copies are written into `room`, if it is large
    enough. Bytes that are no message are an error. Raises ValueError for a message beyond its buffer.
    """
    kernel = load(KERNEL_MODULE)
    if kernel is None:
        return None
    messages = len(batch)
    data = np.ascontiguousarray(batch.data)
    starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
    lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
    known = [program for program in programs if program is not None]
    is_known = np.array([program is not None for program in programs], dtype=np.bool_)
    numbers = np.where(is_known, np.cumsum(is_known) - 1, -1)
    of_rows = np.ascontiguousarray(numbers[which], dtype=np.int64)
    registers = np.concatenate([_NO_REGISTERS, *(program.registers for program in known)])
    parts = np.array([program.addresses for program in known], dtype=np.int64).reshape(-1, layout.PROGRAM_BYTES // 8)
    sizes = np.array([len(program.registers) for program in known], dtype=np.int64)
    parts[:, layout.REGISTERS // 8] = address_of(registers) + kinds.REGISTER_BYTES * (np.cumsum(sizes) - sizes)
    ids, first_ids = np.ascontiguousarray(new_ids), np.ascontiguousarray(first_new_ids)
    statuses = np.empty(messages, dtype=np.uint8)
    out_starts, out_lengths = np.empty(messages, dtype=np.int64), np.empty(messages, dtype=np.int64)
    room_bytes = max((program.room_bytes for program in known), default=0)
    wanted = int(lengths.sum()) + _USUAL_GROWTH_BYTES * messages + room_bytes + SLACK_BYTES
    out = np.empty(wanted, dtype=np.uint8) if room is None or len(room) < wanted else room
    row = used = 0
    while row < messages:
        row = kernel.change(
            address_of(data),
            len(data) - SLACK_BYTES,
            address_of(starts),
            address_of(lengths),
            row,
            messages,
            address_of(of_rows),
            address_of(parts),
            address_of(ids),
            address_of(first_ids),
            address_of(out),
            used,
            len(out) - SLACK_BYTES,
            address_of(out_starts),
            address_of(out_lengths),
            address_of(statuses),
        )
        if row < 0:
            raise outside_of_buffer(batch, -1 - row)
        used = int(out_starts[row - 1] + out_lengths[row - 1]) if row else 0
        if row < messages:
            larger = np.empty(2 * len(out), dtype=np.uint8)
            larger[:used] = out[:used]
            out = larger
    return Changed(EncodedMessages(out, out_starts, out_lengths), statuses)


_NO_REGISTERS = np.empty((0, len(kinds.REGISTER)), dtype=np.int64)


def compile_edits(
    statements: Sequence[v.Statement], *, rule: str | None, limits: v.Limits, is_whole: bool
) -> EditProgram | None:
    """The program of statements that do not read the others' changes; None where only the reference can run them.

    The name of a `rule` becomes RuleName of the copies. `is_whole`: the copies are finished, so the limits of messages
    count for them.
    """
    try:
        return _EditCompiler(statements, rule).program_within(limits, is_whole=is_whole)
    except NotCompiledError:
        return None


FieldKey: TypeAlias = tuple[Section, int | bytes | None]


def field_key(reference: FieldReference) -> FieldKey:
    """The identity of a field for changes: keys are the same in any letter case."""
    return reference.section, reference.position if reference.key is None else without_case(reference.key)


@dataclass(slots=True)
class _Edit:
    """One edit: the field and the words that are known before registers are."""

    reference: FieldReference
    how: int
    value: t.Node | None = None
    typed: AmqpValue = NULL
    longest_text: int | None = None
    is_limited: bool = True
    at_end: bool = False


class _EditCompiler(Compiler):
    """Makes the program of some statements."""

    def __init__(self, statements: Sequence[v.Statement], rule: str | None) -> None:
        values = [statement.value for statement in statements if isinstance(statement, v.SetProperty)]
        # Whatever is read, Service Bus reads it.
        super().__init__(t.And((t.Field(RULE_NAME, t.ValueRules.SERVICE_BUS), *values)))
        self.statements = statements
        self.rule = rule
        self.values = values
        self.new_ids: dict[int, int] = {}

    def program_within(self, limits: v.Limits, *, is_whole: bool) -> EditProgram:
        """The program. Raises NotCompiledError."""
        edits = [edit for statement in self.statements if (edit := _edit_of(statement, limits)) is not None]
        if self.rule is not None:
            name = AmqpValue(AmqpType.STRING, self.rule)
            edits.append(
                _Edit(RULE_NAME, layout.HOW_TYPED, t.Constant(name.octets()), name, is_limited=False, at_end=True)
            )
        places = {field_key(edit.reference) for edit in edits}
        if len(places) < len(edits):
            # One after the other they give what both together do not.
            raise NotCompiledError
        edits.sort(key=lambda edit: (edit.reference.section, edit.reference.position or 0))
        for value in self.values:
            self._fill_slots(value)
        for edit in edits:
            if edit.reference.section is Section.APPLICATION_PROPERTIES:
                self.slot(edit.reference)
        slots = len(self.registers)
        first_new_id = len(self.registers) * kinds.REGISTER_BYTES
        occurrences = sorted(
            {node.occurrence for tree in self.values for node in t.walk(tree) if isinstance(node, t.NewId)}
        )
        for occurrence in occurrences:
            self.new_ids[occurrence] = self.register(kinds.ABSENT, 0)
        sources = [-1 if edit.value is None else self.register_for(edit.value) for edit in edits]
        entry = kinds.END_TRUE
        for edit, source in reversed(list(zip(edits, sources, strict=True))):
            if edit.value is not None:
                entry = self.value(edit.value, source, entry)
        if any(field.section is Section.APPLICATION_PROPERTIES for field in self.slots):
            entry = self.emit(kinds.READ_APPLICATION_PROPERTIES, 0, entry, 0)
        entry = self.emit(kinds.CHECK, 0, entry, 0)
        if self.now_register >= 0:
            raise NotCompiledError
        rows = [self._words(edit, source, limits) for edit, source in zip(edits, sources, strict=True)]
        sections = sorted({edit.reference.section for edit in edits})
        room = sum(row[layout.KEY_BYTES // 8] + _ROOM_OF_EDIT_BYTES for row in rows)
        first = layout.GROUPS + len(sections) * layout.GROUP_BYTES + 8
        words = [0] * layout.HEAD_WORDS
        for word, value_of_word in (
            (layout.COUNT, len(edits)),
            (layout.EDITS, first),
            (layout.NEW_IDS, len(occurrences)),
            (layout.NEW_ID_REGISTER, first_new_id),
            (layout.ROOM, room + _ROOM_OF_SECTION_BYTES * (1 + len(sections))),
            (layout.MOST_PROPERTIES, limits.properties_bytes if is_whole else _NO_LIMIT),
            (layout.MOST_MESSAGE, limits.message_bytes if is_whole else _NO_LIMIT),
            (layout.TYPES, self.text(_TYPE_TABLE)),
            (layout.CONVERSIONS, self.text(_CONVERSIONS)),
            (layout.TIME_SPAN_HEAD, self.text(_TIME_SPAN_HEAD)),
        ):
            words[word // 8] = value_of_word
        for section in sections:
            of_section = [number for number, edit in enumerate(edits) if edit.reference.section is section]
            words += [section, first + of_section[0] * layout.EDIT_BYTES, len(of_section)]
        words.append(layout.NO_SECTION)
        for row in rows:
            words += row
        program = program_of(self.assemble(0, entry, slots))
        return EditProgram(program, np.array(words, dtype=np.int64), tuple(occurrences))

    def _words(self, edit: _Edit, source: int, limits: v.Limits) -> list[int]:
        reference, key = edit.reference, edit.reference.key or b""
        row = [0] * layout.EDIT_WORDS
        natural = AmqpType.STRING if reference.section is Section.APPLICATION_PROPERTIES else AmqpType.SYMBOL
        encoded = encode_value(AmqpValue(natural, key.decode("utf-8", "surrogateescape")))
        copied = edit.value.reference.key if edit.how == layout.HOW_COPIED and isinstance(edit.value, t.Field) else None
        for word, value in (
            (layout.HOW, edit.how),
            (layout.VALUE, source),
            (layout.TYPE, _register_type(edit.typed) if edit.how == layout.HOW_TYPED else 0),
            (layout.SOURCE_KEY_LENGTH, len(copied or b"")),
            (layout.SLOT, self.slots.get(reference, -1) if reference.ignore_case else -1),
            (layout.KEY, self.text(encoded)),
            (layout.KEY_BYTES, len(encoded)),
            (layout.KEY_LENGTH, len(key)),
            (layout.POSITION, reference.position or 0),
            (layout.AT_END, int(edit.at_end)),
            (layout.MOST_BYTES, limits.property_bytes - len(key) if edit.is_limited else _NO_LIMIT),
            (layout.LONGEST_TEXT, _NO_LIMIT if edit.longest_text is None else edit.longest_text),
            (layout.SCRATCH, self.scratch(kinds.SCRATCH_REGISTERS) if edit.how in _TEXTS else 0),
            (layout.STATE, self.scratch(2)),
        ):
            row[word // 8] = value
        return row

    def register_for(self, node: t.Node) -> int:
        if isinstance(node, t.NewId):
            return self.new_ids[node.occurrence]
        return super().register_for(node)

    def value(self, node: t.Node, register: int, then: int) -> int:
        if isinstance(node, t.NewId):
            return then
        return super().value(node, register, then)


_TEXTS = (layout.HOW_SYSTEM_TEXT, layout.HOW_SYSTEM_SYMBOL)


def _edit_of(statement: v.Statement, limits: v.Limits) -> _Edit | None:
    """The edit of a statement; None for no change. Raises NotCompiledError."""
    target = statement.target
    reference = target.reference if isinstance(target, v.SystemProperty) else target
    if isinstance(statement, v.RemoveProperty):
        return None if reference is None else _Edit(reference, layout.HOW_REMOVED)
    value = statement.value
    if reference is None:
        raise NotCompiledError
    if isinstance(target, v.SystemProperty):
        how = _HOW_SYSTEM.get(target.type)
        if how is None:
            raise NotCompiledError
        if reference == _CONTENT_TYPE:
            how = layout.HOW_SYSTEM_SYMBOL
        return _Edit(reference, how, value, longest_text=limits.identifier_characters if target.is_limited else None)
    if isinstance(value, t.Constant):
        typed = v.typed_value(value.value) if value.typed is None else value.typed
        _register_type(typed)
        return _Edit(reference, layout.HOW_TYPED, value, typed)
    if isinstance(value, t.Field) and value.reference.section is Section.APPLICATION_PROPERTIES:
        return _Edit(reference, layout.HOW_COPIED, value)
    return _Edit(reference, layout.HOW_COMPUTED, value)


def _register_type(typed: AmqpValue) -> int:
    """The type of a constant as a register can hold it. Raises NotCompiledError."""
    if v.described_as(typed) is not None and v.kind_of(typed) is v.ValueKind.TIME_SPAN:
        return layout.TYPE_TIME_SPAN
    found = _TYPES.get(typed.type)
    if found is None or typed.type in (AmqpType.FLOAT, AmqpType.CHAR):
        raise NotCompiledError
    return found
