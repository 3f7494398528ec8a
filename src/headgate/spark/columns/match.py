"""The function `headgate_match` of SQL.

    headgate_match(filter STRING, row STRUCT [, dialect STRING [, now TIMESTAMP]]) → BOOLEAN

    SELECT * FROM orders WHERE headgate_match('region = ''AMER'' AND price > 5', struct(region, price))
    SELECT * FROM orders WHERE headgate_match(filter => '…', row => struct(*), dialect => 'servicebus')

`row` is a struct of the columns that the filter may read, found as `columns.layout` says; only its columns cross into
Python. `now` is the value of UTC(), for example `current_timestamp()`; required by a filter with UTC(). The filter may
come from a column: a table of filters can be joined with the rows they are for.

True where the filter is true, else false; null where filter or row is null. A refused filter, or a column that is
missing or cannot carry the filter's values, ends the query with the reason when the first row arrives.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.errors import PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.spark.columns.column import boolean_function
from headgate.spark.columns.layout import layout_of
from headgate.spark.columns.rows import RowFilter
from headgate.spark.interpreter import this_interpreter
from headgate.spark.worker_errors import briefly

NAME = "headgate_match"
_FILTERS_KEPT = 10_000


def register_match(spark: SparkSession) -> None:
    """Make `headgate_match` known to the SQL of a session."""
    with this_interpreter(spark):
        spark.udf.register(NAME, boolean_function(headgate_match))


@briefly
def headgate_match(filter: pa.Array, row: pa.Array, dialect: pa.Array = None, now: pa.Array = None) -> pa.Array:
    """The function over one batch of rows; see the head of this module. Spark takes plain annotations only.

    Raises ConfigError.
    """
    rows = len(filter)
    if not pa.types.is_struct(row.type):
        raise ConfigError(f"{NAME}: row is {row.type}, expected a struct of columns, such as struct(*)")
    given = pc.and_(filter.is_valid(), row.is_valid()).to_numpy(zero_copy_only=False)
    dialects = (pa.nulls(rows) if dialect is None else dialect).cast(pa.string()).fill_null(DEFAULT_DIALECT)
    matched = np.zeros(rows, dtype=np.bool_)
    for text, name, chosen in _distinct(filter, dialects, given):
        found = _row_filter(text, name, row.type)
        now_ms = _now_ms(found.filter, now, chosen)
        of_these = row if len(chosen) == rows else row.take(pa.array(chosen))
        cells = [pc.struct_field(of_these, list(each.path)) for each in found.inputs]
        matched[chosen] = found.matches(cells, len(chosen), now_ms=now_ms)
    return pa.array(matched, mask=~given)


def _distinct(filter: pa.Array, dialect: pa.Array, given: NDArray[np.bool_]) -> list[tuple[str, str, NDArray[np.intp]]]:
    """Each filter there is with its dialect and its rows."""
    texts, dialects = filter.dictionary_encode(), dialect.dictionary_encode()
    numbers = texts.indices.fill_null(0).to_numpy().astype(np.int64) * len(dialects.dictionary)
    numbers += dialects.indices.to_numpy()
    found = []
    for number in np.unique(numbers[given]):
        text, name = divmod(int(number), len(dialects.dictionary))
        rows = np.flatnonzero(given & (numbers == number))
        found.append((texts.dictionary[text].as_py(), dialects.dictionary[name].as_py(), rows))
    return found


def _now_ms(filter: Filter, now: pa.Array | None, chosen: NDArray[np.intp]) -> int:
    if not filter.uses_time:
        return 0
    if now is None or not now[int(chosen[0])].is_valid:
        raise ConfigError(f"{NAME}: the filter asks for UTC(); give the time as now => current_timestamp()")
    return int(now[int(chosen[0])].value) // 1000


@functools.lru_cache(_FILTERS_KEPT)
def _row_filter(text: str, dialect: str, row_type: pa.StructType) -> RowFilter:
    filter = Filter.parse(text, dialect)
    schema = StructType([_field(field) for field in row_type])
    return RowFilter(filter, layout_of(filter, schema))


def _field(field: pa.Field) -> StructField:
    """The column as Spark knows it; one of a type that this version of PySpark cannot name is only never read."""
    try:
        return StructField(field.name, from_arrow_type(field.type))
    except PySparkTypeError:
        return StructField(field.name, _Unreadable(str(field.type)))


class _Unreadable(DataType):
    def __init__(self, shown: str) -> None:
        self._shown = shown

    def simpleString(self) -> str:  # noqa: N802 - Spark's name
        return self._shown
