"""A filter as a Column: a condition that Catalyst decides beforehand, then an Arrow function around the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType, StructType

from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.spark.columns.layout import layout_of, reached
from headgate.spark.columns.prefilter import prefilter
from headgate.spark.columns.rows import RowFilter
from headgate.spark.interpreter import this_interpreter


def column(
    filter: Filter | str,
    schema: StructType,
    *,
    dialect: str | None = None,
    columns: Mapping[str, str] | None = None,
    as_of_ms: int | None = None,
) -> Column:
    """A boolean Column: true where the filter is true for the row, else false; never null.

    `schema` is the schema of the DataFrame it is used with; `columns.layout` describes the columns of fields, and
    `columns` names others by field. A null cell is an absent field. `UTC()` is Spark's `current_timestamp()`: one time
    per query, and per batch of a streaming query the one in its checkpoint; or `as_of_ms`. Raises FilterError for the
    text, ConfigError for a missing column or one whose type cannot carry the filter's values.
    """
    parsed = _parsed(filter, dialect)
    inputs = layout_of(parsed, schema, columns)
    row_filter = RowFilter(parsed, inputs)
    with this_interpreter():
        exact = _function(row_filter)(_now(parsed, as_of_ms), *(reached(each.path) for each in inputs))
    # Of operators that a language from outside brings, Catalyst knows nothing.
    beforehand = None if parsed.has_own_rules else prefilter(parsed.tree, inputs)
    # Null and false is false, and the exact one is false wherever the other is null: together they are never null.
    return exact if beforehand is None else beforehand & exact


def boolean_function(function: Callable[..., Any]) -> Callable[..., Column]:
    """A function of Arrow arrays, annotated with `pa.Array` throughout, as a function of Columns that gives a boolean.

    It runs under the Python that the session has at this moment (`spark.interpreter`).
    """
    # PySpark's stubs want a second, deprecated way of saying that it is a scalar function.
    made: Callable[..., Column] = arrow_udf(function, BooleanType())  # type: ignore[call-overload]
    return made


def _parsed(filter: Filter | str, dialect: str | None) -> Filter:
    if isinstance(filter, str):
        return Filter.parse(filter, dialect or DEFAULT_DIALECT)
    if dialect is not None and dialect != filter.dialect:
        raise ConfigError(f"dialect: the filter is parsed already, as {filter.dialect}; leave dialect {dialect!r} out")
    return filter


def _now(filter: Filter, as_of_ms: int | None) -> Column:
    """The first argument, which also says how many rows there are."""
    if as_of_ms is not None or not filter.uses_time:
        return F.lit(as_of_ms or 0).cast("bigint")
    return F.unix_millis(F.current_timestamp())


def _function(row_filter: RowFilter) -> Callable[..., Column]:
    def headgate_filter(*columns: pa.Array) -> pa.Array:
        now = columns[0]
        found = row_filter.matches(columns[1:], len(now), now_ms=now[0].as_py() if len(now) else 0)
        return pa.array(found, type=pa.bool_())

    return boolean_function(headgate_filter)
