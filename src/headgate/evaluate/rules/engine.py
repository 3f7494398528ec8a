"""Running a plan: memory for a run, addresses, and the rows that the kernel leaves open."""

from __future__ import annotations

import functools
import itertools
import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import layout as words_of_programs
from headgate.evaluate.program import Program
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.normal import DEEPEST
from headgate.evaluate.rules.parts import ROW_SHIFT, Found, Member, by_reference
from headgate.evaluate.rules.plan import ColumnPlan, Plan, Words
from headgate.kernels import address_of, load
from headgate.message import SLACK_BYTES, EncodedMessages, outside_of_buffer

KERNEL_MODULE = "headgate.evaluate.rules.kernel"
TEXTS_MODULE = "headgate.evaluate.rules.texts.kernel"
INDEX_MODULE = "headgate.evaluate.rules.index.kernel"

_CLASSES_BYTES = 4 << 20
_MOST_CLASSES = 32_768
_FEWEST_CLASSES = 2 * layout.BLOCK
_FEW_PAIRS = 4096
_LINE_BYTES = 64
_PRESENT_BITS = 8
"""Bits for each bucket, of which a half or less has a key: one in sixteen and more of what is no key is looked up."""


_PACKED_TOGETHER = 512
"""Filters that are packed together: for one of them all are unpacked."""


@dataclass(slots=True, frozen=True)
class _Packed:
    """Filters, pickled and compressed some hundred at a time, their numbers, and those whose errors are wanted."""

    contents: Sequence[bytes]
    numbers: Words
    exact: Words

    @classmethod
    def of(cls, members: Sequence[Member]) -> _Packed:
        """Some filters, packed."""
        groups = (members[first : first + _PACKED_TOGETHER] for first in range(0, len(members), _PACKED_TOGETHER))
        return cls(
            [zlib.compress(pickle.dumps(group), 1) for group in groups],
            np.array([member.number for member in members], dtype=np.int64),
            np.array([member.number for member in members if member.exact_errors], dtype=np.int64),
        )

    def group(self, which: int) -> Sequence[Member]:
        """The filters that are packed together with others, unpacked."""
        members: Sequence[Member] = pickle.loads(zlib.decompress(self.contents[which]))
        return members


class EnginePart:
    """Filters of one language that share an index, predicates and bitmaps; immutable to its users.

    A run needs the plan alone. Where it was unpickled, filters stay packed: those that the reference is to decide are
    unpacked with their neighbours, and all if it is to decide a message for all.
    """

    def __init__(self, members: Sequence[Member] | _Packed, plan: Plan) -> None:
        self._plan = plan
        self._packed = members if isinstance(members, _Packed) else None
        self._members = None if isinstance(members, _Packed) else members
        self._unpacked: dict[int, Member] = {}
        self._free: list[_Run] = []

    def __reduce__(self) -> tuple[object, ...]:
        if self._packed is None:
            self._packed = _Packed.of(self.members)
        return EnginePart, (self._packed, self._plan)

    def __len__(self) -> int:
        return len(self._packed.numbers) if self._packed is not None else len(self.members)

    @property
    def members(self) -> Sequence[Member]:
        """Its filters."""
        if self._members is None:
            assert self._packed is not None
            groups = range(len(self._packed.contents))
            self._members = [member for which in groups for member in self._packed.group(which)]
        return self._members

    @functools.cached_property
    def _exact(self) -> Words:
        if self._packed is not None:
            return self._packed.exact
        return np.array([member.number for member in self.members if member.exact_errors], dtype=np.int64)

    @functools.cached_property
    def _places(self) -> dict[int, int]:
        numbers = self._packed.numbers.tolist() if self._packed is not None else (each.number for each in self.members)
        return {number: place for place, number in enumerate(numbers)}

    def _member(self, number: int) -> Member:
        place = self._places[number]
        if self._members is not None:
            return self._members[place]
        if number not in self._unpacked:
            assert self._packed is not None
            self._unpacked.update((each.number, each) for each in self._packed.group(place // _PACKED_TOGETHER))
        return self._unpacked[number]

    def match(self, batch: EncodedMessages, now_ms: int) -> Found:
        """One walk over the messages; pairs that the kernel leaves open go to the reference evaluator."""
        kernel = load(KERNEL_MODULE)
        if kernel is None or not Program.takes(now_ms):
            return by_reference(((row, self.members) for row in range(len(batch))), batch, now_ms)
        # Lists are changed by one thread at a time: a run is used by one thread only.
        run = self._free.pop() if self._free else _Run(self._plan)
        (matches, errors, open_pairs), states = run.match(batch, now_ms)
        self._free.append(run)
        found = [Found(matches, errors)]
        if states.any():
            malformed = np.flatnonzero(states == words_of_programs.MALFORMED)
            errors = (malformed.astype(np.int64)[:, None] << ROW_SHIFT | self._exact).reshape(-1)
            found.append(Found(np.empty(0, dtype=np.int64), errors))
            undecided = np.flatnonzero(states == words_of_programs.UNDECIDED)
            if len(undecided):
                found.append(by_reference(((row, self.members) for row in undecided.tolist()), batch, now_ms))
        if len(open_pairs):
            found.append(by_reference(self._asked(open_pairs), batch, now_ms))
        return Found.joined(found)

    def _asked(self, pairs: Words) -> Iterator[tuple[int, list[Member]]]:
        for row, of_row in itertools.groupby(pairs.tolist(), key=lambda pair: pair >> ROW_SHIFT):
            yield row, [self._member(pair & ((1 << ROW_SHIFT) - 1)) for pair in of_row]


@dataclass(slots=True)
class _Memory:
    """Keeps arrays alive while their addresses are in use."""

    kept: list[NDArray[Any]] = field(default_factory=list)

    def address(self, array: NDArray[np.int64] | NDArray[np.uint8]) -> int:
        kept = np.ascontiguousarray(array)
        self.kept.append(kept)
        return address_of(kept)

    def words(self, count: int) -> int:
        """Address of this many words of zero, at the beginning of a cache line."""
        array = np.zeros(count + _LINE_BYTES // 8, dtype=np.int64)
        self.kept.append(array)
        return -(-address_of(array) // _LINE_BYTES) * _LINE_BYTES


class _Run:
    """The memory that one thread needs to run a plan; classes of values that were seen stay known in it."""

    def __init__(self, plan: Plan) -> None:
        texts = load(TEXTS_MODULE)
        assert texts is not None
        self._memory = memory = _Memory()
        self._plan = plan
        self._messages = 0
        self._texts = texts
        self._text = memory.address(plan.text)
        self._head = np.zeros(layout.HEAD_WORDS, dtype=np.int64)
        self._out = np.empty(_FEW_PAIRS, dtype=np.int64)
        self._set(layout.COLUMNS, self._columns(plan.columns))
        self._set(layout.COLUMN_COUNT, len(plan.columns))
        self._set(layout.LOOSE, memory.address(plan.loose))
        self._set(layout.LOOSE_COUNT, len(plan.loose))
        bits = memory.words((plan.predicate_count + DEEPEST + 2) * layout.TRIPLE_BYTES // 8)
        self._set(layout.BITS, bits)
        self._set(layout.STACK, bits + plan.predicate_count * layout.TRIPLE_BYTES)
        self._set(layout.UNSURE, memory.words(layout.BLOCK // 64))
        self._set(layout.SQUARE, memory.words(64))
        self._set(layout.CODE, memory.address(plan.code))
        self._set(layout.FILTERS, memory.address(plan.filters))
        self._set(layout.FILTER_COUNT, plan.filter_count)
        self._set(layout.NUMBERS, memory.address(plan.numbers))
        self._set(layout.PROGRAM, plan.program.words_address)
        self._set(layout.POOL, plan.program.pool_address)
        self._prepare_index()

    def _set(self, word: int, value: int) -> None:
        self._head[word // 8] = value

    def _prepare_index(self) -> None:
        index = self._plan.index
        if index is None:
            return
        memory = self._memory
        buckets = _power_of_two(2 * len(index.positions))
        bits = _PRESENT_BITS * buckets
        for word, value in (
            (layout.FIELDS, memory.address(index.fields)),
            (layout.FIELD_COUNT, len(index.fields)),
            (layout.PROBES, memory.address(index.probes)),
            (layout.BOUNDS, memory.address(index.bounds)),
            (layout.KEYS, memory.address(index.keys)),
            (layout.CONDITIONS, memory.address(index.conditions)),
            (layout.CLASSES, self._columns(index.columns)),
            (layout.CLASS_COUNT, len(index.columns)),
            (layout.CLASS_ROWS, memory.words(layout.GATHERED * len(index.columns))),
            (layout.BUCKETS, memory.words(buckets)),
            (layout.BUCKET_MASK, buckets - 1),
            (layout.PRESENT, memory.words(bits // 64 + 1)),
            (layout.PRESENT_MASK, bits - 1),
            (layout.FOUND, memory.words(layout.MOST_FOUND * len(layout.FOUND_PART))),
            (layout.SLOTS, memory.words((index.slot_bytes + words_of_programs.REGISTER_BYTES) // 8 * layout.GATHERED)),
            (layout.SLOT_BYTES, index.slot_bytes),
            (layout.WINDOWS_SEEN, memory.words(index.windows)),
            (layout.VERDICTS, memory.words(index.remembered)),
        ):
            self._set(word, value)
        if self._plan.program.words[words_of_programs.BODY_PATHS // 8]:
            self._set(layout.BODY_TEXTS, memory.words(layout.GATHERED * words_of_programs.UNESCAPED_BYTES // 8))
        index_kernel = load(INDEX_MODULE)
        assert index_kernel is not None
        positions = memory.address(index.positions)
        index_kernel.fill_index(address_of(self._head), positions, len(index.positions))

    def _columns(self, columns: Sequence[ColumnPlan]) -> int:
        """The address of some columns."""
        words = np.array([self._column(column) for column in columns], dtype=np.int64)
        return self._memory.address(words.reshape(-1))

    def _column(self, column: ColumnPlan) -> Words:
        """The words of a column with addresses and with memory for classes."""
        memory = self._memory
        words = column.words.copy()

        def put(word: int, value: int) -> None:
            words[word // 8] = value

        row_bytes = 8 + 24 * int(words[layout.ROW_WORDS // 8])
        most = _FEWEST_CLASSES if column.separable else _MOST_CLASSES
        classes = max(_FEWEST_CLASSES, min(most, _CLASSES_BYTES // row_bytes))
        capacity = 1 + column.cells + _FEWEST_CLASSES
        places = _power_of_two(2 * classes)
        arena_bytes = 64 * classes
        put(layout.ENTRIES, memory.address(column.entries))
        put(layout.CELLS, memory.words(column.cells))
        put(layout.CELL_COUNT, column.cells)
        put(layout.MEMO, memory.words(places * (layout.SEEN_BYTES + row_bytes) // 8))
        put(layout.MEMO_MASK, places - 1)
        put(layout.ROWS, memory.words(capacity * row_bytes // 8))
        put(layout.ROW_CAPACITY, capacity)
        put(layout.ROWS_USED, 1)
        put(layout.ARENA, memory.words(arena_bytes // 8 + 1))
        put(layout.ARENA_BYTES, arena_bytes)
        put(layout.BLOCK_ROWS, memory.words(layout.BLOCK))
        if column.separable:
            places = _power_of_two(2 * len(column.texts) + 1)
            texts = column.texts.copy()
            texts[:, layout.SPAN.address // 8] += self._text
            put(layout.TEXTS, memory.words(places * len(layout.TEXT)))
            put(layout.TEXT_MASK, places - 1)
            self._texts.fill_texts(int(words[layout.TEXTS // 8]), places - 1, memory.address(texts), len(texts))
            if words[layout.INTEGER_COUNT // 8] >= 0:
                put(layout.INTEGER_BOUNDS, memory.address(column.integer_bounds))
                put(layout.FLOAT_BOUNDS, memory.address(column.float_bounds))
        return words

    def match(self, batch: EncodedMessages, now_ms: int) -> tuple[list[Words], NDArray[np.uint8]]:
        """The pairs of a batch that are MATCH, ERROR_PAIR and OPEN_PAIR, sorted, and the state of each message.

        Raises ValueError if a message is not in the buffer.
        """
        kernel = load(KERNEL_MODULE)
        assert kernel is not None
        data = np.ascontiguousarray(batch.data)
        starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
        lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
        messages = len(starts)
        states = np.zeros(messages, dtype=np.uint8)
        registers = self._plan.program.registers_at(now_ms)
        if not len(registers):
            registers = np.zeros((1, 3), dtype=np.int64)
        for word, value in (
            (layout.DATA, address_of(data)),
            (layout.DATA_BYTES, len(data) - SLACK_BYTES),
            (layout.STARTS, address_of(starts)),
            (layout.LENGTHS, address_of(lengths)),
            (layout.MESSAGES, messages),
            (layout.STATES, address_of(states)),
            (layout.NEXT, 0),
            (layout.OUT_COUNT, 0),
            (layout.REGISTERS, address_of(registers)),
        ):
            self._set(word, value)
        while True:
            self._set(layout.OUT, address_of(self._out))
            self._set(layout.OUT_CAPACITY, len(self._out))
            self._set(layout.RUN_MESSAGES, self._messages)
            self._messages += messages
            ended = kernel.match(address_of(self._head))
            count = int(self._head[layout.OUT_COUNT // 8])
            if ended == layout.ALL_DONE:
                return self._sorted(count, messages), states
            if ended >= 0:
                raise outside_of_buffer(batch, ended)
            grown = np.empty(2 * len(self._out), dtype=np.int64)
            grown[:count] = self._out[:count]
            self._out = grown

    def _sorted(self, count: int, messages: int) -> list[Words]:
        kernel = load(KERNEL_MODULE)
        assert kernel is not None
        pairs = np.empty(count, dtype=np.int64)
        places = np.zeros(messages + 1, dtype=np.int64)
        others = kernel.order_pairs(address_of(self._out), count, address_of(places), address_of(pairs))
        if self._plan.index is not None and self._plan.index.repeats and count:
            pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
        if not others:
            return [pairs, pairs[:0], pairs[:0]]
        what = pairs >> layout.WHAT_SHIFT
        pairs &= (1 << layout.WHAT_SHIFT) - 1
        return [pairs[what == each] for each in (layout.MATCH, layout.ERROR_PAIR, layout.OPEN_PAIR)]


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
