"""From a bound tree to a flat program, and running it over encoded messages with the kernel.

`compile_program` takes a fraction of a millisecond and generates no machine code: one kernel interprets all programs
(docs/design/kernels.md). Instructions are laid down backwards, each after its successors, so that every jump knows its
target. The words are described in `layout.py`.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout
from headgate.evaluate.kinds import FAMILIES, KINDS
from headgate.kernels import address_of, load
from headgate.language.tree import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Compare,
    CompareOperator,
    Constant,
    Exists,
    Field,
    HasSimple,
    In,
    IsNull,
    Like,
    LikePattern,
    LikeShape,
    LikeWildcard,
    Node,
    Not,
    Now,
    Or,
    Sign,
    ValueRules,
    walk,
)
from headgate.language.values import Value
from headgate.message import AmqpValue
from headgate.message.batch import SLACK_BYTES, EncodedMessages
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, WIDTH_DESCRIBED, WIDTH_INVALID, WIDTH_SIZE8, AmqpType
from headgate.message.fields import FieldReference, Section

KERNEL_MODULE = "headgate.evaluate.kernel"
MOST_FIELDS = 1024
"""A filter that reads more fields is left to the reference evaluator."""

_DEEPEST = 250
_BYTE_VALUES = 256
_LETTER_MASK = 0xDF
_INTEGER_MIN, _INTEGER_LIMIT, _LARGE_LIMIT = -(2**63), 2**63, 2**64

_ORDERS = {
    CompareOperator.EQUAL: layout.EQUAL,
    CompareOperator.LESS: layout.LESS,
    CompareOperator.LESS_OR_EQUAL: layout.LESS | layout.EQUAL,
    CompareOperator.GREATER: layout.GREATER,
    CompareOperator.GREATER_OR_EQUAL: layout.GREATER | layout.EQUAL,
}
_MIRRORED = {
    layout.EQUAL: layout.EQUAL,
    layout.LESS: layout.GREATER,
    layout.GREATER: layout.LESS,
    layout.LESS | layout.EQUAL: layout.GREATER | layout.EQUAL,
    layout.GREATER | layout.EQUAL: layout.LESS | layout.EQUAL,
}
_ARITHMETIC = {
    ArithmeticOperator.ADD: layout.ADD,
    ArithmeticOperator.SUBTRACT: layout.SUBTRACT,
    ArithmeticOperator.MULTIPLY: layout.MULTIPLY,
    ArithmeticOperator.DIVIDE: layout.DIVIDE,
    ArithmeticOperator.MODULO: layout.MODULO,
}
_KEYED_SECTIONS = (Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES)
_LIST_SECTIONS = (Section.HEADER, Section.PROPERTIES)


def _constructor_width(width: int) -> int:
    if width >= 0:
        return 1 + width
    if width == WIDTH_SIZE8:
        return layout.WIDTH_SIZE8
    if width == WIDTH_DESCRIBED:
        return layout.WIDTH_DESCRIBED
    if width == WIDTH_INVALID:
        return layout.WIDTH_INVALID
    return layout.WIDTH_SIZE32


_WIDTHS = struct.pack(f"={_BYTE_VALUES}H", *(_constructor_width(width) for width in CONSTRUCTOR_WIDTHS))


@dataclass(slots=True, frozen=True)
class Program:
    """A compiled filter: may be pickled, kept, and run by several threads at once.

    `words` is `(n,)` int64 and `pool` `(m,)` uint8, laid out as `layout.py` says; `registers` is `(r, 3)` int64, their
    first values: text constants hold their position in the pool until a run makes it an address. `now_register` is the
    row that takes the time, -1 if the filter does not use it.
    """

    words: NDArray[np.int64]
    pool: NDArray[np.uint8]
    registers: NDArray[np.int64]
    now_register: int

    def select(self, batch: EncodedMessages, now_ms: int) -> NDArray[np.uint8]:
        """1 for each message of which the filter is true, 4 where the kernel leaves it open, else any of 0, 2 and 3.

        Stops reading a message as soon as it cannot match. `(messages,)`; UTC() is `now_ms` for all of them.
        """
        return self._run(batch, now_ms, exact=False)

    def verdicts(self, batch: EncodedMessages, now_ms: int) -> NDArray[np.uint8]:
        """The `Verdict` of each message: 0 false, 1 true, 2 unknown, 3 no AMQP message; 4: the kernel leaves it open.

        `(messages,)`; UTC() is `now_ms` for all of them.
        """
        return self._run(batch, now_ms, exact=True)

    @staticmethod
    def takes(now_ms: int) -> bool:
        """Whether the time fits a register; the reference takes any."""
        return _INTEGER_MIN <= now_ms < _INTEGER_LIMIT

    def registers_at(self, now_ms: int) -> NDArray[np.int64]:
        """The registers that one run begins with and writes to; they point into `pool`."""
        registers = self.registers.copy()
        registers[registers[:, 0] == layout.BYTES, 1] += address_of(self.pool)
        if self.now_register >= 0:
            registers[self.now_register, 1] = now_ms
        return registers

    def _run(self, batch: EncodedMessages, now_ms: int, *, exact: bool) -> NDArray[np.uint8]:
        kernel = load(KERNEL_MODULE)
        messages = len(batch.starts)
        if kernel is None or not self.takes(now_ms):
            return np.full(messages, layout.UNDECIDED, dtype=np.uint8)
        data = np.ascontiguousarray(batch.data)
        starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
        lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
        if len(lengths) != messages:
            raise ValueError(f"{messages} starts, {len(lengths)} lengths")
        registers = self.registers_at(now_ms)
        verdicts = np.empty(messages, dtype=np.uint8)
        bad_row = kernel.evaluate(
            address_of(data),
            len(data) - SLACK_BYTES,
            address_of(starts),
            address_of(lengths),
            messages,
            address_of(self.words),
            layout.CODE_EXACT if exact else layout.CODE_SELECT,
            address_of(self.pool),
            address_of(registers),
            address_of(verdicts),
        )
        if bad_row >= 0:
            start, length = int(starts[bad_row]), int(lengths[bad_row])
            raise ValueError(
                f"message {bad_row} is bytes {start} to {start + length}, "
                f"the buffer has {len(data)} with {SLACK_BYTES} of slack"
            )
        return verdicts


class _NotCompiledError(Exception):
    """The tree holds something that the kernel has no operation for."""


def compile_program(tree: Node) -> Program | None:
    """The program of a bound tree; None for a tree that only the reference evaluator can decide."""
    try:
        return _Compiler(tree).program()
    except _NotCompiledError:
        return None


@dataclass(slots=True, frozen=True)
class Predicates:
    """Many trees in one program with shared slots, for whoever evaluates them one by one on the same message.

    `entries` has for each tree where its code begins in `program.words`, in bytes: it ends with the exact verdict, once
    the slots are filled; -1 for a tree that only the reference evaluator can decide. `slots` has the register of each
    field, in bytes from the first.
    """

    program: Program
    entries: tuple[int, ...]
    slots: Mapping[FieldReference, int]


def compile_predicates(trees: Sequence[Node]) -> Predicates | None:
    """The trees, whose fields follow the same `ValueRules`, in one program; None if it has no room for their fields."""
    try:
        return _Compiler(And(tuple(trees))).predicates(trees)
    except _NotCompiledError:
        return None


class _Compiler:
    """Collects registers, pool and instructions of one tree."""

    def __init__(self, tree: Node) -> None:
        self.tree = tree
        self.registers: list[tuple[int, int, int]] = []
        self.slots: dict[FieldReference, int] = {}
        self.constants: dict[tuple[type, bytes | int | float], int] = {}
        self.code: list[list[int]] = []
        self.tables: list[int] = []
        self.table_positions: list[tuple[int, int]] = []
        rules = {node.rules for node in walk(tree) if isinstance(node, Field)} or {ValueRules.RABBITMQ}
        if len(rules) > 1 or not rules <= KINDS.keys():
            raise _NotCompiledError
        self.rules = rules.pop()
        self.pool = bytearray(_WIDTHS + KINDS[self.rules])
        self.texts: dict[bytes, int] = {}
        self.now_register = -1
        self.depth = 0

    def program(self) -> Program:
        for node in walk(self.tree):
            if isinstance(node, Field):
                self._slot(node.reference)
        slots = len(self.registers)
        reads_late = any(_needs_application_properties(field) for field in self.slots)
        return self._assemble(self._select_code(), self._exact_code(reads_late), slots)

    def predicates(self, trees: Sequence[Node]) -> Predicates:
        """One entry for each tree; see `compile_predicates`."""
        compiled = [self._has_slots(tree) for tree in trees]
        slots = len(self.registers)
        entries = tuple(self._entry(tree) if has_slots else -1 for tree, has_slots in zip(trees, compiled, strict=True))
        return Predicates(self._assemble(0, 0, slots), entries, dict(self.slots))

    def _has_slots(self, tree: Node) -> bool:
        try:
            for node in walk(tree):
                if isinstance(node, Field):
                    self._slot(node.reference)
        except _NotCompiledError:
            return False
        return True

    def _entry(self, tree: Node) -> int:
        self.depth = 0
        try:
            return self.verdict(tree)
        except _NotCompiledError:
            return -1

    def _select_code(self) -> int:
        """Conjuncts that need no application properties come first: any that is not true decides."""
        early: list[Node] = []
        late: list[Node] = []
        for conjunct in _conjuncts(self.tree):
            needs = any(
                isinstance(node, Field) and _needs_application_properties(node.reference) for node in walk(conjunct)
            )
            (late if needs else early).append(conjunct)
        entry = self._emit(layout.CHECK, 0, layout.END_TRUE, 0)
        for conjunct in reversed(late):
            entry = self.condition(conjunct, layout.TRUE, entry, layout.END_FALSE, final=True)
        if late:
            entry = self._emit(layout.READ_APPLICATION_PROPERTIES, 0, entry, 0)
        for conjunct in reversed(early):
            entry = self.condition(conjunct, layout.TRUE, entry, layout.END_FALSE, final=True)
        return entry

    def _exact_code(self, reads_late: bool) -> int:
        """Is it no message? Else, the verdict."""
        entry = self.verdict(self.tree)
        if reads_late:
            entry = self._emit(layout.READ_APPLICATION_PROPERTIES, 0, entry, 0)
        return self._emit(layout.CHECK, 0, entry, 0)

    def verdict(self, node: Node) -> int:
        """Code that ends with the exact verdict of `node`, once the slots are filled; its first instruction."""
        positive, negated = _positive(node)
        if not negated and not isinstance(positive, And | Or):
            return self._predicate(positive, layout.TRUE, layout.END_TRUE, layout.END_AS_FOUND)
        if not _may_fail(positive):
            entry = self.condition(node, layout.FALSE, layout.END_FALSE, layout.END_UNKNOWN)
            return self.condition(node, layout.TRUE, layout.END_TRUE, entry)
        register = self._register(layout.ABSENT, 0)
        entry = self._emit(layout.TRUTH, layout.TRUE, layout.END_TRUE, layout.END_AS_FOUND, register)
        junction = positive if isinstance(positive, And | Or) else Or((positive,))
        return self._collected(junction, register, entry, negated=negated)

    # -- truth: jump to `wanted_at` if the node's truth is `wanted`, else to `otherwise`; gives the entry --------------

    def condition(self, node: Node, wanted: int, wanted_at: int, otherwise: int, *, final: bool = False) -> int:
        """Code that asks whether the truth of `node` is `wanted`; its first instruction.

        `final` says that behind `otherwise` the filter is no longer true and nobody asks what it is instead.
        """
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotCompiledError
        node, negated = _positive(node)
        if negated:
            wanted = 1 - wanted
        if not isinstance(node, And | Or):
            entry = self._predicate(node, wanted, wanted_at, otherwise)
        elif isinstance(node, And) != (wanted == layout.TRUE):
            # The truth that decides is asked for: operands are looked at as far as the language looks at them.
            entry = otherwise
            for operand in reversed(node.operands):
                entry = self.condition(operand, wanted, wanted_at, entry, final=final and entry == otherwise)
        elif final or not any(_may_fail(operand) for operand in node.operands[1:]):
            entry = wanted_at
            for operand in reversed(node.operands):
                entry = self.condition(operand, wanted, entry, otherwise, final=final)
        else:
            register = self._register(layout.ABSENT, 0)
            entry = self._emit(layout.TRUTH, wanted, wanted_at, otherwise, register)
            entry = self._collected(node, register, entry)
        self.depth -= 1
        return entry

    def _collected(self, junction: And | Or, register: int, then: int, *, negated: bool = False) -> int:
        """Code that puts the truth of an AND or OR, or its negation, into a register, operands from left to right.

        An operand behind one that is unknown is evaluated for the sake of its errors.
        """
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotCompiledError
        decisive = isinstance(junction, Or) is not negated
        entry = then
        for number, operand in reversed(list(enumerate(junction.operands))):
            operand, opposite = _positive(operand)
            wanted = layout.COLLECT | register << layout.COLLECT_SHIFT
            wanted |= layout.COLLECT_DECISIVE * decisive
            wanted |= layout.COLLECT_NEGATED * (opposite is not negated)
            wanted |= layout.COLLECT_FIRST * (number == 0)
            if isinstance(operand, And | Or):
                inner = self._register(layout.ABSENT, 0)
                entry = self._emit(layout.TRUTH, wanted, entry, then, inner)
                entry = self._collected(operand, inner, entry)
            else:
                entry = self._predicate(operand, wanted, entry, then)
        self.depth -= 1
        return entry

    def _predicate(self, node: Node, wanted: int, wanted_at: int, otherwise: int) -> int:
        """A leaf of the logic that is not negated. With `wanted` STORE its truth goes into the register `otherwise`."""
        outcome = (wanted, wanted_at, otherwise)
        match node:
            case Compare(operator=operator, left=left, right=right, rules=ValueRules.RABBITMQ):
                return self._comparison(_ORDERS[operator], left, right, outcome)
            case In(subject=subject, members=members, rules=ValueRules.RABBITMQ):
                return self._membership(subject, members, outcome)
            case Like(subject=subject, pattern=pattern, rules=ValueRules.RABBITMQ):
                return self._likeness(subject, pattern, outcome)
            case IsNull(operand=operand):
                return self._unary(layout.IS_UNKNOWN, operand, outcome)
            case Exists(operand=Field(reference=reference)) if reference.key is not None:
                return self._unary(layout.IS_PRESENT, node.operand, outcome)
            case HasSimple(operand=Field(reference=reference)) if reference.key is not None:
                return self._unary(layout.IS_SIMPLE, node.operand, outcome)
            case Constant() | Field() | Now() | Arithmetic() | Sign():
                return self._unary(layout.TRUTH, node, outcome)
            case _:
                raise _NotCompiledError

    def _unary(self, operation: int, operand: Node, outcome: tuple[int, int, int]) -> int:
        register = self.register_for(operand)
        entry = self._emit(operation, *outcome, register)
        return self.value(operand, register, entry)

    def _comparison(self, orders: int, left: Node, right: Node, outcome: tuple[int, int, int]) -> int:
        if isinstance(left, Constant) and not isinstance(right, Constant):
            left, right, orders = right, left, _MIRRORED[orders]
        register = self.register_for(left)
        if isinstance(right, Constant) and (operands := self._constant_operands(right.value, orders)) is not None:
            entry = self._emit(operands[0], *outcome, register, *operands[1:])
        else:
            other = self.register_for(right)
            entry = self._emit(layout.COMPARE, *outcome, register, other, orders)
            entry = self.value(right, other, entry)
        return self.value(left, register, entry)

    def _constant_operands(self, value: Value, orders: int) -> tuple[int, ...] | None:
        """Operation and operands B … of a comparison with a constant; None: it goes through a register."""
        if isinstance(value, bool):
            return (layout.EQUAL_BOOLEAN, int(value)) if orders == layout.EQUAL else None
        if isinstance(value, int):
            fits = _INTEGER_MIN <= value < _INTEGER_LIMIT
            return (layout.COMPARE_INTEGER, value, orders) if fits else None
        if isinstance(value, float):
            return layout.COMPARE_FLOAT, _float_bits(value), orders
        if orders == layout.EQUAL and isinstance(value, bytes):
            return layout.EQUAL_BYTES, _first_word(value), len(value), _first_mask(value), self._text(value)
        return None

    def _membership(self, subject: Node, members: Sequence[Node], outcome: tuple[int, int, int]) -> int:
        register = self.register_for(subject)
        texts = [member.value for member in members if isinstance(member, Constant) and isinstance(member.value, bytes)]
        if len(texts) == len(members):
            rows: list[int] = []
            for text in texts:
                rows += (_first_word(text), _first_mask(text), len(text), self._text(text))
            entry = self._emit(layout.AMONG_BYTES, *outcome, register, self._table(rows), len(texts))
        else:
            others = [self.register_for(member) for member in members]
            entry = self._emit(layout.AMONG, *outcome, register, self._table(others), len(others))
            for member, other in zip(reversed(members), reversed(others), strict=True):
                entry = self.value(member, other, entry)
        return self.value(subject, register, entry)

    def _likeness(self, subject: Node, pattern: LikePattern, outcome: tuple[int, int, int]) -> int:
        register = self.register_for(subject)
        prefix, suffix = pattern.prefix, pattern.suffix
        if pattern.shape is LikeShape.GENERAL:
            rows: list[int] = []
            for element in pattern.elements:
                match element:
                    case LikeWildcard.ANY:
                        rows += (layout.ANY_TEXT, 0)
                    case LikeWildcard.ONE:
                        rows += (layout.ONE_CHARACTER, 0)
                    case _:
                        rows += (len(element), self._text(element))
            operands = (layout.LIKE_GENERAL, self._table(rows), len(pattern.elements))
            entry = self._emit(operands[0], *outcome, register, *operands[1:])
        elif pattern.shape is LikeShape.EXACT:
            entry = self._emit(layout.LIKE_EXACT, *outcome, register, self._text(prefix), len(prefix))
        else:
            affixes = (self._text(prefix), len(prefix), self._text(suffix), len(suffix))
            entry = self._emit(layout.LIKE_AFFIXES, *outcome, register, *affixes)
        return self.value(subject, register, entry)

    # -- values: code that puts a node's value into a register, then goes on at `then` ---------------------------------

    def register_for(self, node: Node) -> int:
        """The register that has, or is to take, the value of `node`."""
        match node:
            case Field(reference=reference, rules=ValueRules.RABBITMQ):
                return self.slots[reference]
            case Constant(value=value):
                return self._constant(value)
            case Now():
                if self.now_register < 0:
                    self.now_register = self._register(layout.INTEGER, 0) // layout.REGISTER_BYTES
                return self.now_register * layout.REGISTER_BYTES
            case _:
                return self._register(layout.ABSENT, 0)

    def value(self, node: Node, register: int, then: int) -> int:
        """Code that computes `node` into `register`; `then` itself for what is in its register already."""
        match node:
            case Field() | Constant() | Now():
                return then
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotCompiledError
        match node:
            case Arithmetic(operator=operator, left=left, right=right, rules=ValueRules.RABBITMQ):
                entry = self._binary(_ARITHMETIC[operator], left, right, register, then)
            case Sign(negative=negative, operand=operand, rules=ValueRules.RABBITMQ):
                source = self.register_for(operand)
                operation = layout.NEGATE if negative else layout.KEEP_NUMBER
                entry = self.value(operand, source, self._emit(operation, 0, then, register, source))
            case And() | Or() if _may_fail(node):
                entry = self._collected(node, register, then)
            case And() | Or():
                entry = self._truth_of_many(node, register, then)
            case _:
                positive, negated = _positive(node)
                if negated:
                    source = self.register_for(positive)
                    then = self._emit(layout.OPPOSITE, 0, then, register, source)
                    entry = self.value(positive, source, then)
                elif isinstance(positive, And | Or):
                    entry = self.value(positive, register, then)
                else:
                    entry = self._predicate(positive, layout.STORE, then, register)
        self.depth -= 1
        return entry

    def _binary(self, operation: int, left: Node, right: Node, register: int, then: int) -> int:
        first, second = self.register_for(left), self.register_for(right)
        entry = self._emit(operation, 0, then, register, first, second)
        return self.value(left, first, self.value(right, second, entry))

    def _truth_of_many(self, node: And | Or, register: int, then: int) -> int:
        """All operands, then combined from left to right; nothing has an effect that a short circuit would spare."""
        operation = layout.BOTH if isinstance(node, And) else layout.EITHER
        sources = [self.register_for(operand) for operand in node.operands]
        entry = then
        for position in range(len(sources) - 1, 0, -1):
            before = sources[0] if position == 1 else register
            entry = self._emit(operation, 0, entry, register, before, sources[position])
        for operand, source in zip(reversed(node.operands), reversed(sources), strict=True):
            entry = self.value(operand, source, entry)
        return entry

    # -- registers, text, tables, assembly -----------------------------------------------------------------------------

    def _register(self, kind: int, payload: int, length: int = 0) -> int:
        self.registers.append((kind, payload, length))
        return (len(self.registers) - 1) * layout.REGISTER_BYTES

    def _slot(self, reference: FieldReference) -> None:
        if reference in self.slots:
            return
        if len(self.slots) == MOST_FIELDS:
            raise _NotCompiledError
        by_key = reference.key is not None
        if reference.path or (reference.ignore_case and not (reference.key or b"").isascii()):
            raise _NotCompiledError
        if by_key and (reference.default is not None or reference.section not in _KEYED_SECTIONS):
            raise _NotCompiledError
        if reference.only is not None and (by_key or reference.only is not AmqpType.UBYTE):
            raise _NotCompiledError
        if not by_key and (reference.position is None or reference.section not in _LIST_SECTIONS):
            raise _NotCompiledError
        default = reference.default
        kind = layout.ABSENT if default is None else layout.BOOLEAN if isinstance(default, bool) else layout.INTEGER
        self.slots[reference] = self._register(kind, int(default or 0))
        if reference.ignore_case:
            # The register behind it says how the key was spelled.
            self._register(layout.NO_KEY, 0)

    def _constant(self, value: Value) -> int:
        if value is None or isinstance(value, AmqpValue):
            raise _NotCompiledError
        # Floats by their bits: 0.0 and -0.0 are equal as keys.
        key = (type(value), _float_bits(value) if isinstance(value, float) else value)
        register = self.constants.get(key)
        if register is None:
            if isinstance(value, bool):
                register = self._register(layout.BOOLEAN, int(value))
            elif isinstance(value, int):
                register = self._register(*_integer_register(value))
            elif isinstance(value, float):
                register = self._register(layout.FLOAT, _float_bits(value))
            else:
                register = self._register(layout.BYTES, self._text(value), len(value))
            self.constants[key] = register
        return register

    def _text(self, text: bytes) -> int:
        position = self.texts.get(text)
        if position is None:
            position = self.texts[text] = len(self.pool)
            self.pool += text
        return position

    def _table(self, rows: Sequence[int]) -> int:
        """Position of the rows among the tables; `_assemble` makes it a position in the words."""
        position = len(self.tables)
        self.tables += rows
        return position

    def _emit(self, operation: int, wanted: int, wanted_at: int, otherwise: int, *operands: int) -> int:
        instruction = [operation, wanted, wanted_at, otherwise, *operands]
        instruction += [0] * (layout.INSTRUCTION_WORDS - len(instruction))
        instruction[layout.RULES // 8] = FAMILIES[self.rules]
        if operation in (layout.AMONG_BYTES, layout.AMONG, layout.LIKE_GENERAL):
            self.table_positions.append((len(self.code), layout.B // 8))
        self.code.append(instruction)
        return (layout.HEAD_WORDS + (len(self.code) - 1) * layout.INSTRUCTION_WORDS) * 8

    def _assemble(self, select: int, exact: int, slots: int) -> Program:
        head = [0] * layout.HEAD_WORDS
        tables_at = layout.HEAD_WORDS + len(self.code) * layout.INSTRUCTION_WORDS
        head[layout.CODE_SELECT // 8] = select
        head[layout.CODE_EXACT // 8] = exact
        for instruction, word in self.table_positions:
            self.code[instruction][word] = (tables_at + self.code[instruction][word]) * 8

        def place(rows: Sequence[int]) -> int:
            return (tables_at + self._table(rows)) * 8

        template = [word for register in self.registers[:slots] for word in register]
        head[layout.SLOT_TEMPLATE // 8] = place([*template, -1])
        for section in {field.section for field in self.slots}:
            wanted = {field: register for field, register in self.slots.items() if field.section is section}
            if section is Section.APPLICATION_PROPERTIES:
                word = layout.APPLICATION_KEYS
            else:
                word = layout.WANTED_SECTIONS + 8 * (section - Section.HEADER)
            table = self._field_table(wanted) if section in _LIST_SECTIONS else self._key_table(wanted)
            head[word // 8] = place(table)
        words = head
        for emitted in self.code:
            words += emitted
        words += self.tables
        return Program(
            np.array(words, dtype=np.int64),
            np.frombuffer(bytes(self.pool) + bytes(SLACK_BYTES), dtype=np.uint8),
            np.array(self.registers, dtype=np.int64).reshape(-1, 3),
            self.now_register,
        )

    def _field_table(self, wanted: Mapping[FieldReference, int]) -> list[int]:
        registers = {
            field.position: register if field.only is None else register | layout.UBYTE_ONLY
            for field, register in wanted.items()
        }
        count = 1 + max(position for position in registers if position is not None)
        return [count, *(registers.get(position, -1) for position in range(count))]

    def _key_table(self, wanted: Mapping[FieldReference, int]) -> list[int]:
        by_length = bytearray(_BYTE_VALUES)
        rows: list[int] = []
        ignore_case = any(field.ignore_case for field in wanted)
        if ignore_case and not all(field.ignore_case for field in wanted):
            raise _NotCompiledError
        for number, (field, register) in enumerate(wanted.items(), start=1):
            key = field.key or b""
            short = min(len(key), _BYTE_VALUES - 1)
            # Candidates are chained by number in one byte; a filter with more keys goes to the reference.
            if number >= _BYTE_VALUES:
                raise _NotCompiledError
            rows += (_first_word(key), _first_mask(key), len(key), self._text(key), register, by_length[short])
            if ignore_case:
                masks = bytes(_LETTER_MASK if chr(byte).isalpha() else 0xFF for byte in key)
                rows += (_first_word(masks), self._text(masks), register + layout.REGISTER_BYTES)
            by_length[short] = number
        position = len(self.pool)
        self.pool += by_length
        return [len(wanted), position, int(ignore_case), *rows]


def _conjuncts(node: Node) -> list[Node]:
    """The operands of the AND at the top, those of ANDs among them included."""
    conjuncts: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, And):
            stack.extend(reversed(current.operands))
        else:
            conjuncts.append(current)
    return conjuncts


def _positive(node: Node) -> tuple[Node, bool]:
    """What `node` negates, and whether it negates it: NOT, `<>`, NOT IN, NOT LIKE and IS NOT NULL, in any number."""
    negated = False
    while True:
        match node:
            case Not(operand=operand):
                node = operand
            case Compare(operator=CompareOperator.NOT_EQUAL):
                node = replace(node, operator=CompareOperator.EQUAL)
            case In(negated=True) | Like(negated=True) | IsNull(negated=True):
                node = replace(node, negated=False)
            case _:
                return node, negated
        negated = not negated


def _may_fail(node: Node) -> bool:
    """Whether evaluating the node may be an error in its language."""
    return any(
        isinstance(part, Compare | In | Like | Arithmetic | Sign) and part.rules is not ValueRules.RABBITMQ
        for part in walk(node)
    )


def _needs_application_properties(field: FieldReference) -> bool:
    return field.section is Section.APPLICATION_PROPERTIES


def _integer_register(value: int) -> tuple[int, int, int]:
    if _INTEGER_MIN <= value < _INTEGER_LIMIT:
        return layout.INTEGER, value, 0
    if _INTEGER_LIMIT <= value < _LARGE_LIMIT:
        return layout.LARGE, value - _LARGE_LIMIT, 0
    try:
        below = float(value)
    except OverflowError:
        below = sys.float_info.max if value > 0 else -math.inf
    if below > value:
        below = math.nextafter(below, -math.inf)
    return layout.BEYOND, _float_bits(below), int(below == value)


def _float_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def _first_word(text: bytes) -> int:
    return int.from_bytes(text[:8].ljust(8, b"\0"), "little", signed=True)


def _first_mask(text: bytes) -> int:
    return -1 if len(text) >= 8 else (1 << 8 * len(text)) - 1
