"""The part of a filter that Catalyst can decide before rows cross into Python, and may push down into files.

The condition is true for every row for which the filter is true; it may pass more rows, never fewer. Only plain
comparisons of one typed cell with constants take part, under AND, and under OR where both sides give a condition.
"""

from __future__ import annotations

import math
import operator as operator_of
from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampType,
)

from headgate.language import tree as t
from headgate.message import FieldReference
from headgate.spark.columns.layout import Cell, Input, names_same, reached, reference_of

_LARGEST_LONG = 2**63 - 1
_EXACT_IN_DOUBLES = 2**53


def prefilter(tree: t.Node, inputs: Sequence[Input]) -> Column | None:
    """A condition that holds wherever the bound tree is true; None where nothing plain can be said."""
    match tree:
        case t.And(operands):
            known = [found for operand in operands if (found := prefilter(operand, inputs)) is not None]
            return reduce(operator_of.and_, known) if known else None
        case t.Or(operands):
            sides = [prefilter(operand, inputs) for operand in operands]
            given = [side for side in sides if side is not None]
            return reduce(operator_of.or_, given) if len(given) == len(sides) else None
        case t.Compare(operator, t.Field() as field, t.Constant(value)):
            return _comparison(operator, field, value, inputs)
        case t.Compare(operator, t.Constant(value), t.Field() as field):
            return _comparison(operator.mirrored, field, value, inputs)
        case t.In(t.Field() as field, members, negated=False) if all(isinstance(each, t.Constant) for each in members):
            values = [each.value for each in members if isinstance(each, t.Constant)]
            equal = [_comparison(t.CompareOperator.EQUAL, field, value, inputs) for value in values]
            given = [each for each in equal if each is not None]
            return reduce(operator_of.or_, given) if given and len(given) == len(values) else None
        case _:
            return None


def _comparison(operator: t.CompareOperator, field: t.Field, value: Any, inputs: Sequence[Input]) -> Column | None:
    """The condition of `field operator value`; an unknown or failing comparison is not true, so null will do."""
    cell = _only_cell(field.reference, inputs)
    if cell is None or operator is t.CompareOperator.NOT_EQUAL:
        return None
    column = reached(cell.path)
    kind = cell.type
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, bool) and isinstance(kind, BooleanType):
        return _ordered(operator, column, F.lit(value)) if operator is t.CompareOperator.EQUAL else None
    if isinstance(value, bytes) and isinstance(kind, StringType | BinaryType):
        return _octets(operator, column, kind, value, field.rules)
    if not is_number or field.rules is t.ValueRules.ROCKETMQ:
        return None
    if isinstance(kind, IntegralType):
        return _integers(operator, column, value, field.rules)
    if isinstance(kind, DoubleType | FloatType):
        return _floats(operator, column, kind, value, field.rules)
    if isinstance(kind, TimestampType) and field.rules is t.ValueRules.RABBITMQ and isinstance(value, int):
        return _times(operator, column, value)
    return None


def _only_cell(reference: FieldReference, inputs: Sequence[Input]) -> Cell | None:
    """The one cell that decides a field: with a default or another spelling of the name a null may be no null."""
    if reference.default is not None or reference.path:
        return None
    found = [each for each in inputs if names_same(reference, reference_of(each))]
    only = found[0] if len(found) == 1 else None
    return only if isinstance(only, Cell) else None


def _octets(
    operator: t.CompareOperator, column: Column, kind: StringType | BinaryType, value: bytes, rules: t.Rules
) -> Column | None:
    """Order is that of bytes in both only for RabbitMQ, and equality alone for all; collated columns are left out."""
    if operator is not t.CompareOperator.EQUAL and rules is not t.ValueRules.RABBITMQ:
        return None
    if isinstance(kind, BinaryType):
        return _ordered(operator, column, F.lit(value)) if rules is t.ValueRules.RABBITMQ else None
    if not kind.isUTF8BinaryCollation():
        return None
    try:
        return _ordered(operator, column, F.lit(value.decode()))
    except UnicodeDecodeError:
        return None


def _integers(operator: t.CompareOperator, column: Column, value: int | float, rules: t.Rules) -> Column | None:
    """Exact bounds: Spark would compare a bigint with a double as doubles. Other languages than RabbitMQ do so too."""
    if isinstance(value, float):
        if rules is not t.ValueRules.RABBITMQ or not math.isfinite(value):
            return None
        if operator is t.CompareOperator.EQUAL and not value.is_integer():
            return None
        up = operator in (t.CompareOperator.LESS, t.CompareOperator.GREATER_OR_EQUAL)
        value = math.ceil(value) if up else math.floor(value)
    if not -_LARGEST_LONG <= value <= _LARGEST_LONG:
        return None
    return _ordered(operator, column, F.lit(value).cast("bigint"))


def _floats(
    operator: t.CompareOperator, column: Column, kind: DoubleType | FloatType, value: int | float, rules: t.Rules
) -> Column | None:
    """Equality with zero is left out: files keep statistics and hashes in which zero and minus zero may differ."""
    if abs(value) > _EXACT_IN_DOUBLES and isinstance(value, int):
        return None
    if isinstance(kind, FloatType) and rules is not t.ValueRules.RABBITMQ:
        return None
    if operator is t.CompareOperator.EQUAL and value == 0:
        return None
    return _ordered(operator, column, F.lit(float(value)))


def _times(operator: t.CompareOperator, column: Column, milliseconds: int) -> Column | None:
    """A message has milliseconds, cut from Spark's microseconds."""
    if abs(milliseconds) >= _LARGEST_LONG // 1000 - 1:
        return None
    this, following = (F.timestamp_micros(F.lit(ms * 1000).cast("bigint")) for ms in (milliseconds, milliseconds + 1))
    match operator:
        case t.CompareOperator.LESS:
            return column < this
        case t.CompareOperator.LESS_OR_EQUAL:
            return column < following
        case t.CompareOperator.GREATER:
            return column >= following
        case t.CompareOperator.GREATER_OR_EQUAL:
            return column >= this
        case _:
            return (column >= this) & (column < following)


def _ordered(operator: t.CompareOperator, column: Column, value: Column) -> Column:
    if operator is t.CompareOperator.EQUAL:
        # An inferred equality would make Spark evaluate the Python function a second time, with the constant.
        return column.eqNullSafe(value)
    compared: Column = operator.apply(column, value)
    return compared
