"""Deciding a filter by the columns of a row group: which rows may match, and which match for certain.

Each node of the filter has four bit maps over the rows, one per possible outcome: true, false, unknown, error. For an
exact row of a decidable test only one of them holds; where a column is inexact, or only the bytes tell, all four. AND,
OR and NOT combine them as the three-valued logic does, left to right; an error ends the evaluation. So a row that
cannot be true is ruled out, whatever its undecided parts are; a row that can only be true matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.derived.columns.files import ColumnFile
from headgate.derived.columns.filter import (
    ColumnAnd,
    ColumnComparison,
    ColumnFilter,
    ColumnMembership,
    ColumnNode,
    ColumnNot,
    ColumnNull,
    ColumnOr,
    ColumnTest,
    ColumnValue,
    FromBytes,
)
from headgate.evaluate import Filter
from headgate.language import tree as t
from headgate.log import ENTRY_DTYPE
from headgate.message import EncodedMessages

Rows: TypeAlias = "pa.BooleanArray | bool"
"""`(rows,)` without null, or the same for all rows. Arrow's bit maps: other threads run while they are combined."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The possible outcomes of a node, row by row."""

    true: Rows
    false: Rows
    unknown: Rows
    error: Rows

    @property
    def certainly_true(self) -> Rows:
        """The rows for which it can only be true."""
        return _and(self.true, _not(_or(_or(self.false, self.unknown), self.error)))


ANYTHING = Outcomes(True, True, True, True)


def decided(node: ColumnNode, test: Callable[[ColumnTest], Outcomes]) -> Outcomes:
    """The possible outcomes of a tree, from the outcomes of its tests."""
    match node:
        case ColumnAnd(operands):
            found = Outcomes(True, False, False, False)
            for operand in operands:
                found = _conjunction(found, decided(operand, test))
            return found
        case ColumnOr(operands):
            found = Outcomes(True, False, False, False)
            for operand in operands:
                found = _conjunction(found, _negated(decided(operand, test)))
            return _negated(found)
        case ColumnNot(operand):
            return _negated(decided(operand, test))
        case FromBytes():
            return ANYTHING
        case _:
            return test(node)


def decide_rows(
    filter: ColumnFilter, columns: Mapping[str, pa.Array], bits: Mapping[str, int], inexact: pa.Array | None
) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Which rows may match and which match for certain, both `(rows,)` without null.

    `columns` are those of the filter, texts as they are or as dictionary arrays; `bits` are their places in `inexact`,
    which is the column of that name, None where every row is exact.
    """
    rows = len(columns[filter.columns[0]])
    doubts = None
    if inexact is not None and inexact.null_count < rows:
        doubts = inexact.fill_null(0)

    def outcomes(test: ColumnTest) -> Outcomes:
        doubt: Rows = False
        if doubts is not None:
            doubt = pc.not_equal(pc.bit_wise_and(doubts, pa.scalar(1 << bits[test.column], pa.int64())), 0)
        return _test(test, columns[test.column], doubt)

    found = decided(filter.tree, outcomes)
    may, certain = (_as_rows(each, rows) for each in (found.true, found.certainly_true))
    return may, certain


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a column in a row group, from the file's footer; None where it has none.

    Values have the form of the constants in tests.
    """

    least: ColumnValue | None
    greatest: ColumnValue | None
    null_count: int | None
    rows: int


def decide_group(filter: ColumnFilter, statistics: Mapping[str, Statistics], *, is_exact: bool) -> Outcomes:
    """The possible outcomes of a filter in a row group, by statistics alone; `is_exact`: no row is inexact."""

    def outcomes(test: ColumnTest) -> Outcomes:
        return _by_statistics(test, statistics[test.column]) if is_exact else ANYTHING

    return decided(filter.tree, outcomes)


@dataclass(frozen=True, slots=True)
class DecidedRows:
    """The messages of a row group that may match: `offsets`, ascending, and which are `certain`, both `(kept,)`."""

    offsets: NDArray[np.int64]
    certain: NDArray[np.bool_]


def group_outcome(file: ColumnFile, number: int, filter: ColumnFilter) -> Outcomes:
    """The possible outcomes of a filter in a row group, by the file's footer alone."""
    group = file.metadata.row_group(number)
    rows, names = file.row_groups[number].rows, file.schema.names
    known: dict[str, Statistics] = {}
    for name in filter.columns:
        found = group.column(names.index(name)).statistics
        if found is None:
            known[name] = Statistics(None, None, None, rows)
            continue
        has_limits = found.has_min_max
        known[name] = Statistics(
            found.min_raw if has_limits else None,
            found.max_raw if has_limits else None,
            found.null_count if found.has_null_count else None,
            rows,
        )
    return decide_group(filter, known, is_exact=file.inexact_rows(number) == 0)


def decide_row_group(
    file: ColumnFile, number: int, filter: ColumnFilter, whole: Filter, now_ms: int
) -> tuple[DecidedRows, int]:
    """The messages of a row group that may match, and how many bytes of the file were read for that.

    Inexact rows are decided by their messages, which the file keeps. Raises CorruptSidecarError.
    """
    group = file.row_groups[number]
    is_dense = group.rows == group.stop_offset - group.first_offset
    bits = {field.name: bit for bit, field in enumerate(file.declaration.fields)}
    is_exact = file.inexact_rows(number) == 0
    names = [*filter.columns, *(() if is_dense else ("offset",)), *(() if is_exact else ("inexact", "message"))]
    columns = file.read_group(number, names)
    may, certain = decide_rows(filter, columns, bits, None if is_exact else columns["inexact"])
    if not is_exact:
        may, certain = _settled(may, certain, columns["message"], whole, now_ms)
    kept = np.flatnonzero(may.to_numpy(zero_copy_only=False))
    offsets = kept + group.first_offset if is_dense else columns["offset"].to_numpy()[kept]
    read_bytes = sum(file.group_bytes(name, number) for name in names)
    return DecidedRows(offsets, certain.filter(may).to_numpy(zero_copy_only=False)), read_bytes


def _settled(
    may: pa.BooleanArray, certain: pa.BooleanArray, messages: pa.Array, whole: Filter, now_ms: int
) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Decide open rows by their messages, where the file has them."""
    is_open = pc.and_(pc.and_not(may, certain), messages.is_valid())
    if not is_open.true_count:
        return may, certain
    found = pa.array(whole.mask(EncodedMessages.of(messages.filter(is_open).to_pylist()), now_ms=now_ms))
    return pc.replace_with_mask(may, is_open, found), pc.replace_with_mask(certain, is_open, found)


def entries_of(file: ColumnFile, number: int) -> tuple[tuple[NDArray[np.int64] | None, NDArray[np.void]], int]:
    """Offsets and entries (ENTRY_DTYPE) of a row group, both `(rows,)`, and how many bytes were read.

    Offsets are None where they have no gap. Raises CorruptSidecarError.
    """
    group = file.row_groups[number]
    names = ["entry"] if group.rows == group.stop_offset - group.first_offset else ["entry", "offset"]
    found = file.read_group(number, names)
    entries = found["entry"].to_numpy().astype(">u8").view(ENTRY_DTYPE)
    offsets = found["offset"].to_numpy() if "offset" in names else None
    return (offsets, entries), sum(file.group_bytes(name, number) for name in names)


def _test(test: ColumnTest, column: pa.Array, doubt: Rows) -> Outcomes:
    there: Rows = True
    if column.null_count:
        there = column.is_valid()
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
    if test.empty_is_absent:
        there = _and(there, _of_rows(pc.not_equal(pc.binary_length(values), 0), column))
    comparable = _comparable(values)
    match test:
        case ColumnNull():
            holds: Rows = False
        case ColumnMembership(values=wanted):
            members = pa.array(wanted, comparable.type)
            holds = bool(wanted) and _of_rows(pc.is_in(comparable, value_set=members), column)
        case ColumnComparison(operator=operator, value=value):
            holds = _of_rows(_OPERATORS[operator](comparable, pa.scalar(value, comparable.type)), column)
    absent = _not(there)
    return Outcomes(
        _or(_or(_and(there, holds), doubt), _and(absent, test.absent is True)),
        _or(_or(_and(there, _not(holds)), doubt), _and(absent, test.absent is False)),
        _or(_and(absent, test.absent is None), doubt),
        doubt,
    )


_OPERATORS: Mapping[t.CompareOperator, Callable[..., pa.Array]] = {
    t.CompareOperator.EQUAL: pc.equal,
    t.CompareOperator.NOT_EQUAL: pc.not_equal,
    t.CompareOperator.LESS: pc.less,
    t.CompareOperator.LESS_OR_EQUAL: pc.less_equal,
    t.CompareOperator.GREATER: pc.greater,
    t.CompareOperator.GREATER_OR_EQUAL: pc.greater_equal,
}


def _comparable(column: pa.Array) -> pa.Array:
    """The values in the type in which constants are compared: no copy, but for float."""
    kind = column.type
    if pa.types.is_string(kind):
        return column.view(pa.binary())
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    return column.cast(pa.float64()) if pa.types.is_float32(kind) else column


def _of_rows(found: pa.BooleanArray, column: pa.Array) -> pa.BooleanArray:
    """Results for the values of a column, or of its dictionary, as results row by row; null for null."""
    if not isinstance(column, pa.DictionaryArray):
        return found
    indices = column.indices
    bits = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(bits)
    if len(places) == 1:
        # The most common question, whether it is one text.
        return pc.equal(indices, pa.scalar(places[0], indices.type))
    if not len(bits):
        return pa.nulls(len(column), pa.bool_())
    return pa.array(bits.take(pc.fill_null(indices, 0).to_numpy()))


def _by_statistics(test: ColumnTest, known: Statistics) -> Outcomes:
    nulls = known.null_count
    has_values, has_nulls = nulls is None or nulls < known.rows, nulls is None or nulls > 0
    # An empty text may be among the values; looking whether it is the least one does not pay.
    has_nulls |= test.empty_is_absent
    can_hold, can_fail = has_values, has_values
    match test:
        case ColumnNull():
            can_hold = False
        case ColumnMembership(values=values):
            can_hold &= any(_within(value, known) for value in values)
        case ColumnComparison(operator=operator, value=value):
            can_hold &= _can_hold(operator, value, known)
            can_fail &= _can_hold(_OPPOSITES[operator], value, known)
    return Outcomes(
        can_hold or (has_nulls and test.absent is True),
        can_fail or (has_nulls and test.absent is False),
        has_nulls and test.absent is None,
        False,
    )


_OPPOSITES = {
    t.CompareOperator.EQUAL: t.CompareOperator.NOT_EQUAL,
    t.CompareOperator.NOT_EQUAL: t.CompareOperator.EQUAL,
    t.CompareOperator.LESS: t.CompareOperator.GREATER_OR_EQUAL,
    t.CompareOperator.LESS_OR_EQUAL: t.CompareOperator.GREATER,
    t.CompareOperator.GREATER: t.CompareOperator.LESS_OR_EQUAL,
    t.CompareOperator.GREATER_OR_EQUAL: t.CompareOperator.LESS,
}


def _within(value: ColumnValue, known: Statistics) -> bool:
    least, greatest = known.least, known.greatest
    return least is None or greatest is None or bool(least <= value <= greatest)  # type: ignore[operator]


def _can_hold(operator: t.CompareOperator, value: ColumnValue, known: Statistics) -> bool:
    """Whether a value between the least and the greatest can fulfil a comparison."""
    least, greatest = known.least, known.greatest
    if least is None or greatest is None:
        return True
    match operator:
        case t.CompareOperator.EQUAL:
            return _within(value, known)
        case t.CompareOperator.NOT_EQUAL:
            return not least == greatest == value
        case t.CompareOperator.LESS | t.CompareOperator.LESS_OR_EQUAL:
            return bool(operator.apply(least, value))
        case _:
            return bool(operator.apply(greatest, value))


def _conjunction(left: Outcomes, right: Outcomes) -> Outcomes:
    goes_on = _or(left.true, left.unknown)
    return Outcomes(
        _and(left.true, right.true),
        _or(left.false, _and(goes_on, right.false)),
        _or(_and(left.unknown, _or(right.true, right.unknown)), _and(left.true, right.unknown)),
        _or(left.error, _and(goes_on, right.error)),
    )


def _negated(found: Outcomes) -> Outcomes:
    return Outcomes(found.false, found.true, found.unknown, found.error)


def _and(left: Rows, right: Rows) -> Rows:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return pc.and_kleene(left, right)


def _or(left: Rows, right: Rows) -> Rows:
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return pc.or_kleene(left, right)


def _not(rows: Rows) -> Rows:
    return not rows if isinstance(rows, bool) else pc.invert(rows)


def _as_rows(found: Rows, rows: int) -> pa.BooleanArray:
    return pa.array(np.full(rows, found)) if isinstance(found, bool) else found
