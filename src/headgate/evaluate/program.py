"""Filters compiled for the kernel, and running them over encoded messages.

`compile_program` takes a fraction of a millisecond and generates no machine code: one kernel interprets all programs
(docs/design/kernels.md). `compiler.py` turns a tree into words, `layout.py` defines the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout
from headgate.evaluate.assembler import MOST_FIELDS, NotCompiledError, Words
from headgate.evaluate.compiler import Compiler
from headgate.kernels import address_of, load
from headgate.language.tree import And, Node
from headgate.message import SLACK_BYTES, EncodedMessages, FieldReference, outside_of_buffer

__all__ = [
    "KERNEL_MODULE",
    "MOST_FIELDS",
    "Predicates",
    "Program",
    "compile_predicates",
    "compile_program",
    "program_of",
]

KERNEL_MODULE = "headgate.evaluate.kernel"


@dataclass(slots=True, frozen=True)
class Program:
    """A compiled filter: may be pickled, kept, and run by several threads at once.

    `words` is `(n,)` int64 and `pool` `(m,)` uint8, laid out as `layout.py` says; `registers` is `(r, 3)` int64, their
    first values: text constants, which are in the rows `in_pool`, hold their position in the pool until a run makes it
    an address. `now_register` is the row that takes the time, -1 if the filter does not use it.
    """

    words: NDArray[np.int64]
    pool: NDArray[np.uint8]
    registers: NDArray[np.int64]
    now_register: int
    in_pool: NDArray[np.intp]
    words_address: int = field(init=False, repr=False)
    pool_address: int = field(init=False, repr=False)
    _placed: NDArray[np.int64] = field(init=False, repr=False)
    """The registers with addresses instead of positions in the pool."""

    def __post_init__(self) -> None:
        placed = self.registers.copy()
        object.__setattr__(self, "words_address", address_of(self.words))
        object.__setattr__(self, "pool_address", address_of(self.pool))
        placed[self.in_pool, layout.REGISTER.payload // 8] += self.pool_address
        object.__setattr__(self, "_placed", placed)

    def __reduce__(self) -> tuple[object, ...]:
        # Addresses do not travel.
        return Program, (self.words, self.pool, self.registers, self.now_register, self.in_pool)

    def verdicts(self, batch: EncodedMessages, now_ms: int, *, exact: bool = True) -> NDArray[np.uint8]:
        """The `Verdict` of each message, `(messages,)`; 4 where the kernel leaves it open. UTC() is `now_ms`.

        Without `exact` only TRUE and 4 are reliable: reading stops as soon as a message cannot match.
        """
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
            self.words_address,
            layout.CODE_EXACT if exact else layout.CODE_SELECT,
            self.pool_address,
            address_of(registers),
            address_of(verdicts),
        )
        if bad_row >= 0:
            raise outside_of_buffer(batch, bad_row)
        return verdicts

    @staticmethod
    def takes(now_ms: int) -> bool:
        """Whether the time fits a register; the reference takes any."""
        return -(2**63) <= now_ms < 2**63

    def registers_at(self, now_ms: int) -> NDArray[np.int64]:
        """The registers that one run begins with and writes to; they point into `pool`."""
        registers = self._placed.copy()
        if self.now_register >= 0:
            registers[self.now_register, layout.REGISTER.payload // 8] = now_ms
        return registers


def compile_program(tree: Node) -> Program | None:
    """The program of a bound tree; None for a tree that only the reference evaluator can decide."""
    try:
        return program_of(Compiler(tree).program())
    except NotCompiledError:
        return None


@dataclass(slots=True, frozen=True)
class Predicates:
    """Many trees in one program with shared slots, to be evaluated one by one on the same message.

    `entries` has the beginning of each tree's code in `program.words`, in bytes; with filled slots, the code ends with
    the exact verdict. -1: only the reference evaluator can decide the tree. `slots` has the register of each field, in
    bytes from the first; the first `slot_registers` registers are what a message fills.
    """

    program: Program
    entries: tuple[int, ...]
    slots: Mapping[FieldReference, int]
    slot_registers: int


def compile_predicates(trees: Sequence[Node]) -> Predicates | None:
    """The trees, whose fields follow the same `ValueRules`, in one program; None if it has no room for their fields."""
    try:
        compiler = Compiler(And(tuple(trees)))
        words, entries, slot_registers = compiler.predicates(trees)
    except NotCompiledError:
        return None
    return Predicates(program_of(words), entries, dict(compiler.slots), slot_registers)


def program_of(words: Words) -> Program:
    """The words as a program that can be run."""
    registers = np.array(words.registers, dtype=np.int64).reshape(-1, len(layout.REGISTER))
    return Program(
        np.array(words.words, dtype=np.int64),
        np.frombuffer(words.pool + bytes(SLACK_BYTES), dtype=np.uint8),
        registers,
        words.now_register,
        np.flatnonzero(np.isin(registers[:, layout.REGISTER.kind // 8], (layout.BYTES, layout.UUID, layout.BINARY))),
    )
