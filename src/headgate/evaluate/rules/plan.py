"""From filters to the plan that the kernel runs: which are indexed, which predicates there are, and all tables.

A plan holds positions where a run needs addresses, so that it may be pickled; `engine.py` makes them addresses.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import program as programs
from headgate.evaluate.layout import BYTES, LARGE, REGISTER_BYTES
from headgate.evaluate.program import Program
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.access import ANYWHERE, EQUALITIES, Accesses, Key, RangeAccess
from headgate.evaluate.rules.normal import (
    DEEPEST,
    Junction,
    Literal,
    Normal,
    Numbered,
    conjuncts,
    normal_form,
    tree_of,
)
from headgate.evaluate.rules.parts import Member
from headgate.evaluate.rules.predicates import (
    Column,
    Predicates,
    field_of_classes,
    float_bounds,
    in_columns,
    integer_bounds,
)
from headgate.language.tree import Field, Node, Rules, identity
from headgate.message import SLACK_BYTES, FieldReference

INDEX_FROM = 256
"""A field is indexed if that many different constants are demanded of it: bitmaps serve fewer faster, because one
instruction asks for 1 024 messages and a message has one of the constants. An eighth of as many parts of texts: each
pattern is asked for each new value."""

_NARROW = 1 / 64
"""The greatest share of the places between the bounds of a field that the range of an indexed filter covers."""

_NO_PLACE = DEEPEST + 1
"""A place that is never read; lower places hold the conditions before an operand."""

_LOOKED_AT = 2
"""After this many conjuncts a filter checks whether any message is left."""

Words: TypeAlias = NDArray[np.int64]


@dataclass(slots=True, frozen=True)
class ColumnPlan:
    """One column: its words, and the arrays they use. `texts` are `SpanBlock`s, addresses from the plan's text."""

    words: Words
    entries: Words
    texts: Words
    integer_bounds: Words
    float_bounds: Words
    cells: int
    separable: bool


@dataclass(slots=True, frozen=True)
class IndexPlan:
    """The indexed fields, what to look up of their texts, the bounds of their ranges, the keys with their candidates,
    the conditions of these, and the columns that conditions look at.

    `positions` says where the keys begin; `bounds` are the bits of doubles.
    """

    fields: Words
    probes: Words
    bounds: Words
    keys: Words
    positions: Words
    conditions: Words
    columns: Sequence[ColumnPlan]
    slot_bytes: int
    windows: int
    remembered: int
    repeats: bool
    """Whether a message may find a filter by several keys."""


@dataclass(slots=True, frozen=True)
class Plan:
    """Everything a run needs; all arrays int64 but `text`, which has `SLACK_BYTES` behind it."""

    program: Program
    columns: Sequence[ColumnPlan]
    loose: Words
    predicate_count: int
    code: Words
    filters: Words
    filter_count: int
    numbers: Words
    index: IndexPlan | None
    text: NDArray[np.uint8]


@dataclass(slots=True)
class _Indexed:
    """A filter found by one of `keys`, or by its `range`, that needs all of `checks` as well."""

    number: int
    keys: Sequence[Key]
    range: RangeAccess | None
    checks: Sequence[Normal]


def plan_of(members: Sequence[Member], rules: Rules) -> Plan | None:
    """The plan of filters whose fields follow `rules`; None if one program has no room for all their fields."""
    refused: frozenset[FieldReference] = frozenset()
    while True:
        plan = _Planner(members, rules, refused).plan()
        if not isinstance(plan, frozenset):
            return plan
        refused |= plan


class _Planner:
    """Collects the tables of one plan. Fields that are `refused` have no place in a program."""

    def __init__(self, members: Sequence[Member], rules: Rules, refused: frozenset[FieldReference]) -> None:
        self.rules = rules
        self.text = bytearray()
        self.texts: dict[bytes, int] = {}
        self.code: list[int] = []
        self.indexed: list[_Indexed] = []
        self.shared: list[tuple[Member, Normal]] = []
        self.predicates = Predicates()
        self._divide([(member, normal_form(member.filter.tree)) for member in members], refused)

    # -- which filters are indexed -------------------------------------------------------------------------------------

    def _divide(self, members: Sequence[tuple[Member, Normal]], refused: frozenset[FieldReference]) -> None:
        """Filters with a selective access go to the index, all others to the bitmaps."""
        found = Accesses(refused)
        options = [() if member.exact_errors else found.of(normal) for member, normal in members]
        self.references = found.references
        demanded = Counter(key for accesses_ in options for access in accesses_ for key in access.keys)
        chosen = [
            min(accesses_, key=lambda access: sum(map(demanded.__getitem__, access.keys)), default=None)
            for accesses_ in options
        ]
        keys = {key for access in chosen if access for key in access.keys}
        constants = Counter((field, kind in _PARTS_OF_TEXTS) for field, kind, _ in keys)
        enough = {
            group
            for group, count in constants.items()
            if count >= (max(INDEX_FROM // 8, 1) if group[1] else INDEX_FROM)
        }
        others = []
        for (member, normal), access in zip(members, chosen, strict=True):
            if access and all((field, kind in _PARTS_OF_TEXTS) in enough for field, kind, _ in access.keys):
                left = [
                    part for place, part in enumerate(conjuncts(normal)) if not access.whole or place != access.place
                ]
                self.indexed.append(_Indexed(member.number, access.keys, None, left))
            else:
                others.append((member, normal))
        self._divide_by_ranges(others, found)

    def _divide_by_ranges(self, members: Sequence[tuple[Member, Normal]], found: Accesses) -> None:
        """Filters with narrow bounds of a number go to the index, too."""
        ranges = [None if member.exact_errors else found.range_of(normal) for member, normal in members]
        by_field: defaultdict[int, list[RangeAccess]] = defaultdict(list)
        for access in ranges:
            if access is not None:
                by_field[access.field].append(access)
        bounds = {field: _bounds_of(accesses_) for field, accesses_ in by_field.items()}

        def is_narrow(access: RangeAccess) -> bool:
            places = bounds[access.field]
            covered = places.searchsorted(access.high) - places.searchsorted(access.low) + 1
            return bool(covered <= max(_NARROW * len(places), 1))

        narrow = [access is not None and is_narrow(access) for access in ranges]
        counts = Counter(access.field for access, is_one in zip(ranges, narrow, strict=True) if access and is_one)
        for (member, normal), access, is_one in zip(members, ranges, narrow, strict=True):
            if access is not None and is_one and counts[access.field] >= INDEX_FROM:
                left = [part for place, part in enumerate(conjuncts(normal)) if place not in access.whole]
                self.indexed.append(_Indexed(member.number, (), access, left))
            else:
                self.shared.append((member, normal))

    # -- the plan ------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan | frozenset[FieldReference] | None:
        """The plan, or the fields that turned out to have no place in a program."""
        shared = [(member, self.predicates.add(normal)) for member, normal in self.shared]
        index = _Index(self.indexed) if self.indexed else None
        references = [self.references[field] for field in index.fields] if index else []
        order = in_columns(self.predicates)
        trees = [self.predicates.trees[number] for number in order]
        asked = index.predicates if index else []
        compiled = programs.compile_predicates(
            [*trees, *asked, *(Field(reference, self.rules) for reference in references)]
        )
        if compiled is None:
            return None
        missing = frozenset(reference for reference in references if reference not in compiled.slots)
        if missing:
            return missing
        places = {number: place for place, number in enumerate(order)}
        groups = [_group(home) for home in self.predicates.homes]
        filters: list[Sequence[int]] = []
        numbers: list[int] = []
        for node, exact, given in _merged(shared):
            filters.append(self._filter(node, places, groups, (len(numbers), len(given), int(exact))))
            numbers += given
        columns = self._columns(self.predicates, 0, compiled)
        first = len(order) - len(self.predicates.loose)
        loose = [
            layout.LooseBlock(entry, first + place) for place, entry in enumerate(compiled.entries[first : len(order)])
        ]
        return Plan(
            compiled.program,
            columns,
            _words(loose, len(layout.LOOSE_PREDICATE)),
            len(order),
            _words(self.code, 1),
            _words(filters, layout.FILTER_WORDS),
            len(filters),
            _words(numbers, 1),
            None if index is None else self._index(index, references, compiled, len(order)),
            np.frombuffer(bytes(self.text) + bytes(SLACK_BYTES), dtype=np.uint8),
        )

    def _index(
        self, index: _Index, references: Sequence[FieldReference], compiled: programs.Predicates, first: int
    ) -> IndexPlan:
        columns = self._columns(index.classed, first, compiled)
        return index.plan(self.rules, references, compiled, columns, compiled.entries[first:])

    def _columns(self, predicates: Predicates, first: int, compiled: programs.Predicates) -> list[ColumnPlan]:
        """The columns of predicates that stand in the program from `first` on."""
        columns: list[ColumnPlan] = []
        for column in predicates.columns:
            columns.append(self._column(column, first, compiled, _group(len(columns))))
            first += len(column.predicates)
        return columns

    def _text(self, text: bytes) -> int:
        position = self.texts.get(text)
        if position is None:
            position = self.texts[text] = len(self.text)
            self.text += text
        return position

    def _filter(
        self, node: Numbered, places: Mapping[int, int], groups: Sequence[int], rest: tuple[int, int, int]
    ) -> Sequence[int]:
        code: list[int] = []
        if isinstance(node, Junction) and node.all_of and len(node.parts) > _LOOKED_AT:
            columns = _lower(Junction(True, node.parts[:_LOOKED_AT]), 0, places, groups, code)
            head = len(code)
            columns |= _followed(node.parts[_LOOKED_AT:], layout.AND, 0, places, groups, code)
        else:
            columns = _lower(node, 0, places, groups, code)
            head = len(code)
        position = len(self.code)
        self.code += code
        return (position, len(code), columns, *rest, head)

    def _column(self, column: Column, first: int, compiled: programs.Predicates, group: int) -> ColumnPlan:
        count = len(column.predicates)
        entries = compiled.entries[first : first + count]
        texts = [layout.SpanBlock(self._text(text), len(text)) for text in column.texts] if column.separable else []
        ordered = column.separable and column.orders_numbers
        integers = integer_bounds(column.numbers) if ordered else []
        floats = float_bounds(column.numbers) if ordered else []
        words = np.zeros(layout.COLUMN_WORDS, dtype=np.int64)
        integer_cells = layout.TEXT_CELLS + len(texts)
        float_cells = integer_cells + len(integers) + 1
        for word, value in (
            # Without a slot the predicates have no code: they are open whatever the class.
            (layout.SLOT, compiled.slots.get(column.reference, 0)),
            (layout.PREDICATES, count),
            (layout.FIRST_PREDICATE, first),
            (layout.ROW_WORDS, -(-count // 64)),
            (layout.INTEGER_COUNT, len(integers) if ordered else -1),
            (layout.FLOAT_COUNT, len(floats) if ordered else -1),
            (layout.INTEGER_CELLS, integer_cells),
            (layout.FLOAT_CELLS, float_cells),
            (layout.FALSE_WANTED, int(column.asks_for_false)),
            (layout.GROUP, group),
        ):
            words[word // 8] = value
        return ColumnPlan(
            words,
            _words(entries, 1),
            _words(texts, len(layout.SPAN)),
            _words(integers, 1),
            np.array(floats, dtype=np.float64).view(np.int64),
            float_cells + len(floats) + 1,
            column.separable,
        )


_PARTS_OF_TEXTS = (layout.BEGINNING, layout.END, ANYWHERE)


_MOST_COLUMNS = 8
_MOST_CLASSED = 256
"""Limits: fields whose classes are found for each message that has a key, and predicates on each of them; other
predicates are asked when needed."""

_Check: TypeAlias = tuple[int, bool]
"""A predicate by number, and whether it must be false."""


class _Index:
    """The tables of the index. `predicates` are the checks of all filters, each once, `fields` those with keys.

    Predicates that several filters ask for are `classed`, those come first: they are bits of class rows.
    """

    def __init__(self, indexed: Sequence[_Indexed]) -> None:
        self.indexed = indexed
        keys = {key for each in indexed for key in each.keys}
        ranged = (each.range.field for each in indexed if each.range)
        self.fields = list(dict.fromkeys([*(field for each in indexed for field, _, _ in each.keys), *ranged]))
        self.classed = Predicates()
        self._windows = _windows_of([key for key in keys if key[1] == ANYWHERE])
        self._numbers: dict[Hashable, int] = {}
        self._trees: list[Node] = []
        self._uses: list[int] = []
        self._checks = [tuple(sorted({self._check(part) for part in each.checks})) for each in indexed]
        self._read = self._classify()
        self._asked = sorted(set(range(len(self._trees))).difference(self._read))

    @property
    def predicates(self) -> list[Node]:
        """The predicates as they stand in the program."""
        return [self._trees[number] for number in (*self._read, *self._asked)]

    def _check(self, part: Normal) -> _Check:
        negated = isinstance(part, Literal) and part.negated
        tree = part.predicate if isinstance(part, Literal) else tree_of(part)
        key = identity(tree)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._trees)
            self._trees.append(tree)
            self._uses.append(0)
        self._uses[number] += 1
        return number, negated

    def _classify(self) -> Sequence[int]:
        """Fill `classed`; gives its predicates as they stand there."""
        found = []
        counts: dict[FieldReference, int] = {}
        for number in sorted(range(len(self._trees)), key=self._uses.__getitem__, reverse=True):
            if self._uses[number] == 1:
                break
            reference = field_of_classes(self._trees[number])
            if reference is None or (reference not in counts and len(counts) == _MOST_COLUMNS):
                continue
            counts[reference] = counts.get(reference, 0) + 1
            if counts[reference] <= _MOST_CLASSED:
                found.append(number)
                self.classed.add(Literal(self._trees[number], False))
        return [found[place] for place in in_columns(self.classed)]

    def plan(
        self,
        rules: Rules,
        references: Sequence[FieldReference],
        compiled: programs.Predicates,
        columns: Sequence[ColumnPlan],
        entries: Sequence[int],
    ) -> IndexPlan:
        """The tables; `columns` are those of `classed`, and `entries` begins with the code of `predicates`."""
        conditions, candidates = self._candidates(entries[len(self._read) :])
        bounds = {
            field: _bounds_of([each.range for each in self.indexed if each.range and each.range.field == field])
            for field in {each.range.field for each in self.indexed if each.range}
        }
        levels = dict.fromkeys(bounds, 0)
        postings: dict[Key, list[int]] = {}
        for each, candidate in zip(self.indexed, candidates, strict=True):
            for key in each.keys:
                postings.setdefault(self._windows.get(key, key), []).append(candidate)
            if each.range is not None:
                places = bounds[each.range.field]
                # Bounds have odd places, what lies between them even ones.
                low = 2 * int(places.searchsorted(each.range.low)) + 1 + each.range.low_excluded
                high = 2 * int(places.searchsorted(each.range.high)) + 1 - each.range.high_excluded
                # Blocks that are longer than the range: it lies in one or two.
                level = (high - low).bit_length()
                levels[each.range.field] |= 1 << level
                for block in {low >> level, high >> level}:
                    key = (each.range.field, layout.RANGE, level << layout.LEVEL_SHIFT | block)
                    postings.setdefault(key, []).extend((low | high << layout.LAST_PLACE_SHIFT, candidate))
        words, key_positions, windows = self._keys(postings)
        slot_bytes = REGISTER_BYTES * compiled.slot_registers if self._asked else 0
        fields, probes, all_bounds = self._fields(rules, references, compiled.slots, postings, bounds, levels)
        remembered = sum(self._uses[number] > 1 for number in self._asked)
        repeats = any(_may_repeat(each.keys) for each in self.indexed)
        return IndexPlan(
            fields,
            probes,
            all_bounds,
            words,
            key_positions,
            conditions,
            columns,
            slot_bytes,
            windows,
            remembered,
            repeats,
        )

    def _candidates(self, entries: Sequence[int]) -> tuple[Words, list[int]]:
        """The words of all conditions, each list of them once, and the word of each candidate.

        Of the checks that are asked those come first that several candidates share: they are remembered.
        """
        words: dict[_Check, int] = {}
        order = iter(self._read)
        for which, column in enumerate(self.classed.columns):
            # What is true, false and other stands in a class row behind its flags.
            kind_bits = 64 * -(-len(column.predicates) // 64)
            for bit, number in enumerate(itertools.islice(order, len(column.predicates)), 64):
                rest = which << layout.READ_COLUMN_SHIFT | (bit + 2 * kind_bits) << layout.READ_OTHER_SHIFT
                words[number, False] = rest | bit
                words[number, True] = rest | (bit + kind_bits)
        places = itertools.count(1)
        for number, entry in zip(self._asked, entries, strict=False):
            place = next(places) if self._uses[number] > 1 else 0
            word = entry << layout.CHECK_ENTRY_SHIFT | place << layout.CHECK_PLACE_SHIFT
            words[number, False] = word
            words[number, True] = word | layout.CHECK_NEGATED
        read = frozenset(self._read)
        conditions = [0]
        positions: dict[tuple[_Check, ...], int] = {(): 0}
        candidates = []
        for each, checks in zip(self.indexed, self._checks, strict=True):
            position = positions.get(checks)
            if position is None:
                position = positions[checks] = len(conditions)
                first = [check for check in checks if check[0] in read]
                then = sorted(
                    (check for check in checks if check[0] not in read), key=lambda check: -self._uses[check[0]]
                )
                conditions.append(len(first) | len(then) << layout.ASKED_SHIFT)
                conditions += (words[check] for check in (*first, *then))
            candidates.append(each.number | position << layout.CONDITIONS_SHIFT)
        return _words(conditions, 1), candidates

    def _keys(self, postings: Mapping[Key, Sequence[int]]) -> tuple[Words, Words, int]:
        """The words of all keys, where each begins, and how many are windows."""
        numbers = {field: number for number, field in enumerate(self.fields)}
        words = array("q")
        positions = []
        windows = 0
        for (field, kind, content), found in postings.items():
            positions.append(len(words))
            count = len(found) // 2 if kind == layout.RANGE else len(found)
            length = len(content) if isinstance(content, bytes) else 0
            label = kind | numbers[field] << layout.KEY_FIELD_SHIFT | length << layout.KEY_LENGTH_SHIFT
            words.append(label | count << layout.KEY_COUNT_SHIFT)
            if isinstance(content, bytes):
                words.frombytes(content + bytes(-length % 8))
            else:
                words.append(content)
            if kind == layout.WINDOW:
                words.append(windows)
                windows += 1
            words.extend(found)
        # A text is hashed eight bytes at a time, as if there were something behind it.
        words.append(0)
        return np.array(words, dtype=np.int64), _words(positions, 1), windows

    def _fields(
        self,
        rules: Rules,
        references: Sequence[FieldReference],
        slots: Mapping[FieldReference, int],
        keys: Iterable[Key],
        bounds: Mapping[int, NDArray[np.float64]],
        levels: Mapping[int, int],
    ) -> tuple[Words, Words, Words]:
        """The fields, the probes of all, and the bounds of all."""
        equality = EQUALITIES[rules]
        probes: dict[int, set[tuple[int, int]]] = {field: set() for field in self.fields}
        numeric = set()
        for field, kind, content in keys:
            if isinstance(content, bytes):
                probes[field].add((kind, 0 if kind == BYTES else len(content)))
            elif kind != layout.RANGE:
                numeric.add(field)
        rows = []
        every_probe: list[tuple[int, int]] = []
        every_bound: list[NDArray[np.float64]] = [np.empty(0)]
        for field, reference in zip(self.fields, references, strict=True):
            own = bounds.get(field, every_bound[0])
            # The numbers above all integers of 64 bits have bounds, too.
            open_kinds = equality.open_kinds(reference) | (1 << LARGE if len(own) else 0)
            rows.append(
                (
                    slots[reference],
                    open_kinds,
                    8 * layout.PROBE_WORDS * len(every_probe),
                    len(probes[field]),
                    int(field in numeric),
                    8 * sum(map(len, every_bound)),
                    len(own),
                    levels.get(field, 0),
                )
            )
            every_probe += sorted(probes[field])
            every_bound.append(own)
        return (
            _words(rows, layout.FIELD_WORDS),
            _words(every_probe, layout.PROBE_WORDS),
            np.concatenate(every_bound).view(np.int64),
        )


def _may_repeat(keys: Sequence[Key]) -> bool:
    """Whether a message may have more than one of the keys."""
    places = {(field, kind in _PARTS_OF_TEXTS) for field, kind, _ in keys}
    return len(places) > 1 or (len(keys) > 1 and any(in_part for _, in_part in places))


def _bounds_of(ranges: Iterable[RangeAccess]) -> NDArray[np.float64]:
    """The different ends of ranges, ascending."""
    return np.unique(np.array([(access.low, access.high) for access in ranges]))


def _windows_of(keys: Sequence[Key]) -> dict[Key, Key]:
    """For each text that may be anywhere the window by which it is looked up: the one that the fewest texts have."""
    windows = {}
    for key in keys:
        field, _, text = key
        assert isinstance(text, bytes)
        length = next(length for length in layout.WINDOW_LENGTHS if length <= len(text))
        windows[key] = [
            (field, layout.WINDOW, text[at : at + length]) for at in range(min(len(text) - length, _MOST_WINDOWS) + 1)
        ]
    counts = Counter(window for of_key in windows.values() for window in of_key)
    return {key: min(of_key, key=counts.__getitem__) for key, of_key in windows.items()}


_MOST_WINDOWS = 64
"""Limit: windows of a text from which one is chosen."""


def _merged(shared: Iterable[tuple[Member, Numbered]]) -> list[tuple[Numbered, bool, list[int]]]:
    """Filters that are the same, with all their numbers."""
    merged: dict[tuple[Numbered, bool], list[int]] = {}
    for member, node in shared:
        merged.setdefault((node, member.exact_errors), []).append(member.number)
    return [(node, exact, numbers) for (node, exact), numbers in merged.items()]


def _group(column: int) -> int:
    """The bit that stands for a column, or for predicates in none (-1)."""
    return layout.LOOSE_GROUP if column < 0 else column % layout.LOOSE_GROUP


def _lower(node: Numbered, depth: int, places: Mapping[int, int], groups: Sequence[int], code: list[int]) -> int:
    """Append the instructions that find the truth of `node` behind `depth` places; gives the columns it examines."""
    if isinstance(node, Literal):
        code.append(_instruction(layout.TAKE, node, places))
        return 1 << groups[node.predicate]
    operation = layout.AND if node.all_of else layout.OR
    columns = _lower(node.parts[0], depth, places, groups, code)
    return columns | _followed(node.parts[1:], operation, depth, places, groups, code)


def _followed(
    parts: Sequence[Numbered],
    operation: int,
    depth: int,
    places: Mapping[int, int],
    groups: Sequence[int],
    code: list[int],
) -> int:
    """Append the instructions that join further operands of an AND or OR; gives the columns they look at."""
    columns = 0
    for part in parts:
        if isinstance(part, Junction):
            place = depth + 1
            first = len(code)
            columns |= _lower(part, place, places, groups, code)
            # It begins with a predicate; the result so far is saved before it.
            code[first] += layout.SAVES + ((place - _NO_PLACE) << layout.PLACE_SHIFT)
            source = (len(places) + place) * layout.TRIPLE_BYTES
            code.append(
                operation | layout.JOINS | place << layout.PLACE_SHIFT | source << layout.SOURCE_SHIFT,
            )
        else:
            columns |= 1 << groups[part.predicate]
            code.append(_instruction(operation, part, places))
    return columns


def _instruction(operation: int, literal: Literal[int], places: Mapping[int, int]) -> int:
    source = places[literal.predicate] * layout.TRIPLE_BYTES
    if literal.negated:
        operation |= layout.NEGATED
        source += layout.IS_FALSE
    return operation | _NO_PLACE << layout.PLACE_SHIFT | source << layout.SOURCE_SHIFT


def _words(rows: Sequence[Sequence[int]] | Sequence[int], width: int) -> Words:
    found = np.array(rows, dtype=np.int64)
    return found.reshape(-1, width) if width > 1 else found.reshape(-1)
