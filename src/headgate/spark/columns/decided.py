"""Filters over column files in Catalyst: decided from columns, or from messages for the rows that are not exact.

Catalyst has the three values of filters, null for unknown. Only whether the whole filter is true counts, so below an
even number of NOTs false and unknown are the same, below an odd number true and unknown: the case of an absent field is
added to a test only where it matters, and most tests stay in a form that Spark can push down.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from headgate.derived.columns import (
    ColumnAnd,
    ColumnComparison,
    ColumnFilter,
    ColumnMembership,
    ColumnNode,
    ColumnNot,
    ColumnNull,
    ColumnOr,
    FromBytes,
)
from headgate.evaluate import Filter
from headgate.message import EncodedMessages
from headgate.message.arrow import DeclaredColumn, SparkType
from headgate.spark.columns.column import boolean_function
from headgate.spark.interpreter import this_interpreter

_Value = bool | int | float | bytes


def decided(found: ColumnFilter, columns: tuple[DeclaredColumn, ...]) -> Column:
    """True for the exact rows that match, else false or null; for a whole filter. `columns` are the columns of a file.

    Constants are literals of the columns' types, so Spark pushes comparisons down to Parquet.
    """
    return _node(found.tree, {column.name: column for column in columns}, True)


def matching(filter: Filter, messages: Column, *, now_ms: int) -> Column:
    """Whether the filter is true for an encoded message; false for null."""

    def headgate_messages(encoded: pa.Array) -> pa.Array:
        batch = EncodedMessages.of([data or b"" for data in encoded.to_pylist()])
        return pa.array(filter.mask(batch, now_ms=now_ms), type=pa.bool_())

    with this_interpreter():
        return messages.isNotNull() & boolean_function(headgate_messages)(messages)


def _node(node: ColumnNode, columns: Mapping[str, DeclaredColumn], wanted: bool) -> Column:
    """Exactly as true as the node where `wanted`, else exactly as false; else null may stand for either."""
    match node:
        case ColumnAnd(operands):
            return reduce(operator.and_, (_node(each, columns, wanted) for each in operands))
        case ColumnOr(operands):
            return reduce(operator.or_, (_node(each, columns, wanted) for each in operands))
        case ColumnNot(operand):
            return ~_node(operand, columns, not wanted)
        case FromBytes():
            raise AssertionError("the filter is not whole")
    declared = columns[node.column]
    column = F.col("`" + declared.name.replace("`", "``") + "`")
    if isinstance(node, ColumnComparison):
        found = node.operator.apply(*_sides(column, node.value, declared))
    elif isinstance(node, ColumnMembership) and (
        # No exact row has a text that is no UTF-8. Spark's IN of nothing is false for null, too.
        literals := [_literal(value, declared) for value in node.values if _is_literal(value, declared)]
    ):
        found = column.isin(literals)
    elif isinstance(node, ColumnNull) and node.absent is True and not node.empty_is_absent:
        return column.isNull()
    else:
        found = F.when(column.isNotNull(), F.lit(False))
    if node.empty_is_absent:
        return F.when(column.isNull() | (column == ""), F.lit(node.absent).cast("boolean")).otherwise(found)
    return F.coalesce(found, F.lit(node.absent)) if node.absent is wanted else found


def _sides(column: Column, value: _Value, declared: DeclaredColumn) -> tuple[Column, Column]:
    if not _is_literal(value, declared):
        return column.cast("binary"), F.lit(value)
    return column, _literal(value, declared)


def _is_literal(value: _Value, declared: DeclaredColumn) -> bool:
    """Whether a column of its type holds the value: all but bytes that are no text."""
    if not isinstance(value, bytes) or declared.kind is not SparkType.STRING:
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _literal(value: _Value, declared: DeclaredColumn) -> Column:
    if isinstance(value, bytes):
        return F.lit(value.decode() if declared.kind is SparkType.STRING else value)
    if declared.kind is SparkType.TIMESTAMP:
        return F.timestamp_micros(F.lit(value))
    if isinstance(value, float):
        # Parquet tells −0.0 from 0.0, the only zero of exact rows.
        return F.lit(value + 0.0)
    return F.lit(value).cast(declared.kind.value)
