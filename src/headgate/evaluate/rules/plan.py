"""From filters to the plan that the kernel runs: which are indexed, which predicates there are, and all tables.

A plan holds positions where a run needs addresses, so that it may be pickled; `engine.py` makes them addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import program as programs
from headgate.evaluate.program import Program
from headgate.evaluate.rules import layout
from headgate.evaluate.rules.access import EQUALITIES, Access, Accesses, Key
from headgate.evaluate.rules.normal import DEEPEST, Junction, Literal, Normal, Numbered, conjuncts, normal_form
from headgate.evaluate.rules.parts import Member
from headgate.evaluate.rules.predicates import (
    Column,
    Predicates,
    float_bounds,
    in_columns,
    integer_bounds,
)
from headgate.language.tree import Field, Rules
from headgate.message import SLACK_BYTES, FieldReference

INDEX_FROM = 256
"""A field is indexed if that many different constants are demanded of it: bitmaps serve fewer faster, because one
instruction asks for 1 024 messages and a message has one of the constants."""

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
    """The indexed fields, the keys (text by position), and the candidates behind them."""

    fields: Words
    keys: Words
    postings: Words
    candidates: Words


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
    """A filter found by keys: it needs one of `keys`, all of `checks`, and the rest of its conditions, `residual`."""

    member: Member
    keys: Sequence[Key]
    checks: Sequence[Key]
    residual: Normal | None


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
        constants = Counter(field for field, _, _ in keys)
        for (member, normal), access, others in zip(members, chosen, options, strict=True):
            if access and all(constants[field] >= INDEX_FROM for field, _, _ in access.keys):
                self.indexed.append(_indexed(member, normal, access, others))
            else:
                self.shared.append((member, normal))

    # -- the plan ------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan | frozenset[FieldReference] | None:
        """The plan, or the fields that turned out to have no place in a program."""
        shared = [(member, self.predicates.add(normal)) for member, normal in self.shared]
        residuals = [
            (indexed.member, self.predicates.add(indexed.residual))
            for indexed in self.indexed
            if indexed.residual is not None
        ]
        fields = list(dict.fromkeys(key[0] for indexed in self.indexed for key in (*indexed.keys, *indexed.checks)))
        references = [self.references[field] for field in fields]
        order = in_columns(self.predicates)
        trees = [self.predicates.trees[number] for number in order]
        compiled = programs.compile_predicates([*trees, *(Field(reference, self.rules) for reference in references)])
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
        filter_count = len(filters)
        for member, node in residuals:
            filters.append(self._filter(node, places, groups, (len(numbers), 1, 0)))
            numbers.append(member.number)
        columns: list[ColumnPlan] = []
        first = 0
        for column in self.predicates.columns:
            columns.append(self._column(column, first, compiled, _group(len(columns))))
            first += len(column.predicates)
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
            filter_count,
            _words(numbers, 1),
            self._index(fields, compiled.slots) if self.indexed else None,
            np.frombuffer(bytes(self.text) + bytes(SLACK_BYTES), dtype=np.uint8),
        )

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

    # -- the index -----------------------------------------------------------------------------------------------------

    def _index(self, fields: Sequence[int], slots: Mapping[FieldReference, int]) -> IndexPlan:
        keys: dict[Key, int] = {}
        postings: list[list[int]] = []
        candidates: list[int] = []
        residual = 0
        for indexed in self.indexed:
            numbered = []
            for key in (*indexed.keys, *indexed.checks):
                number = keys.get(key)
                if number is None:
                    number = keys[key] = len(keys)
                    postings.append([])
                numbered.append(number)
            position = 8 * len(candidates)
            for number in numbered[: len(indexed.keys)]:
                postings[number].append(position)
            checks = numbered[len(indexed.keys) :]
            asks_more = indexed.residual is not None
            residual += asks_more
            candidates += (indexed.member.number, residual if asks_more else 0, len(checks), *checks)
        equality = EQUALITIES[self.rules]
        accessed = {key[0] for indexed in self.indexed for key in indexed.keys}
        return IndexPlan(
            _words(
                [
                    (slots[self.references[field]], equality.open_kinds(self.references[field]), int(field in accessed))
                    for field in fields
                ],
                layout.FIELD_WORDS,
            ),
            self._keys(keys, {field: number for number, field in enumerate(fields)}, postings),
            _words([position for positions in postings for position in positions], 1),
            _words(candidates, 1),
        )

    def _keys(self, keys: Iterable[Key], numbers: Mapping[int, int], postings: Sequence[Sequence[int]]) -> Words:
        rows = []
        position = 0
        for (field, kind, content), positions in zip(keys, postings, strict=True):
            if isinstance(content, bytes):
                rows.append((numbers[field], kind, self._text(content), len(content), position, len(positions)))
            else:
                rows.append((numbers[field], kind, content, 0, position, len(positions)))
            position += len(positions)
        return _words(rows, layout.KEY_WORDS)


def _indexed(member: Member, normal: Normal, access: Access, options: Sequence[Access]) -> _Indexed:
    """A filter, split by an access: keys, checks, and the remaining conditions."""
    checks: dict[int, Sequence[Key]] = {
        option.place: option.keys for option in options if option.whole and len(option.keys) == 1
    }
    if access.whole:
        checks[access.place] = ()
    left = [part for place, part in enumerate(conjuncts(normal)) if place not in checks]
    residual = None if not left else left[0] if len(left) == 1 else Junction(True, tuple(left))
    return _Indexed(member, access.keys, [key for keys in checks.values() for key in keys], residual)


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
