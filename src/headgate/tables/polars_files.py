"""Column files in polars: its own reader reads the rows, and its expressions evaluate the filter.

Only whole files without an inexact row are read this way, so the three values of a filter are polars' own, null for
unknown, and the same rows are kept as by deciding the messages. Importing this module imports polars.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import polars

from headgate.derived.columns import (
    ColumnAnd,
    ColumnComparison,
    ColumnMembership,
    ColumnNode,
    ColumnNot,
    ColumnNull,
    ColumnOr,
    ColumnValue,
    FromBytes,
)
from headgate.message.arrow import SparkType
from headgate.tables.folder import WholeColumnFile

_TYPES: Mapping[SparkType, polars.DataType] = {
    SparkType.BOOLEAN: polars.Boolean(),
    SparkType.TINYINT: polars.Int8(),
    SparkType.SMALLINT: polars.Int16(),
    SparkType.INT: polars.Int32(),
    SparkType.BIGINT: polars.Int64(),
    # A constant is as exact as a double.
    SparkType.FLOAT: polars.Float64(),
    SparkType.DOUBLE: polars.Float64(),
    SparkType.TIMESTAMP: polars.Datetime("us", "UTC"),
    SparkType.STRING: polars.String(),
    SparkType.BINARY: polars.Binary(),
}


def rows_of_files(parts: Sequence[WholeColumnFile]) -> Iterator[polars.LazyFrame]:
    """The rows of parts of a table that are in column files, as the table has them, in their order.

    Files that are alike are one frame: polars reads ahead in one, and takes frames one after the other.
    """
    for _, files in itertools.groupby(parts, _how_to_read):
        yield _rows_of(list(files))


def _how_to_read(part: WholeColumnFile) -> tuple[object, ...]:
    # Bounds of offsets apply to one file.
    return part.columns, part.filter, part.declaration, part.has_no_others or part.path


def _rows_of(parts: Sequence[WholeColumnFile]) -> polars.LazyFrame:
    part = parts[0]
    rows = polars.scan_parquet([each.path for each in parts])
    if not part.has_no_others:
        # Comparing offsets costs as much as two columns.
        rows = rows.filter(polars.col("offset") >= part.start, polars.col("offset") < part.stop)
    if part.filter is not None:
        kinds = {column.name: column.kind for column in part.declaration.declared}
        rows = rows.filter(expression(part.filter.tree, kinds))
    return rows.select(polars.col(column).alias(name) for name, column in part.columns.items())


def expression(node: ColumnNode, kinds: Mapping[str, SparkType]) -> polars.Expr:
    """True, false or null for every row, as the node is true, false or unknown."""
    match node:
        case ColumnAnd(operands):
            return reduce(operator.and_, (expression(each, kinds) for each in operands))
        case ColumnOr(operands):
            return reduce(operator.or_, (expression(each, kinds) for each in operands))
        case ColumnNot(operand):
            return ~expression(operand, kinds)
        case FromBytes():
            raise AssertionError("the filter is not whole")
    column, kind = polars.col(node.column), kinds[node.column]
    absent = polars.lit(node.absent, dtype=polars.Boolean)
    if isinstance(node, ColumnNull):
        found = polars.lit(False)
    elif isinstance(node, ColumnMembership):
        members = [_text(value, kind) for value in node.values]
        # No exact row has a text that is no UTF-8.
        known = polars.Series([each for each in members if each is not None], dtype=_TYPES[kind])
        found = _as(kind, column).is_in(known.implode())
    else:
        found = _compared(node, column, kind)
    if node.empty_is_absent:
        return polars.when(column.is_null() | (column == "")).then(absent).otherwise(found)
    if isinstance(node, ColumnNull):
        return polars.when(column.is_null()).then(absent).otherwise(found)
    # Null for null by itself: in this form polars compares with statistics.
    return found if node.absent is None else found.fill_null(node.absent)


def _compared(node: ColumnComparison, column: polars.Expr, kind: SparkType) -> polars.Expr:
    compare: Callable[[polars.Expr, polars.Expr], polars.Expr] = node.operator.apply
    text = _text(node.value, kind)
    if text is None:
        return compare(column.cast(polars.Binary), polars.lit(node.value))
    if kind is SparkType.TIMESTAMP:
        return compare(column, polars.lit(text, dtype=polars.Int64).cast(_TYPES[kind]))
    return compare(_as(kind, column), polars.lit(text, dtype=_TYPES[kind]))


def _text(value: ColumnValue, kind: SparkType) -> ColumnValue | str | None:
    """A constant as polars has it; None for bytes that are no text."""
    if kind is not SparkType.STRING or not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _as(kind: SparkType, column: polars.Expr) -> polars.Expr:
    """The column in the type in which it is compared."""
    return column.cast(polars.Float64) if kind is SparkType.FLOAT else column
