"""Arrow functions of Spark: called with one array per argument and batch, in the Python workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType


def boolean_function(function: Callable[..., Any]) -> Callable[..., Column]:
    """A function of Arrow arrays, annotated with `pa.Array` throughout, as a function of Columns that gives a boolean.

    The session's Python at this moment is the one it will run under (`spark.interpreter`).
    """
    # PySpark's stubs want a second, deprecated way of saying that it is a scalar function.
    made: Callable[..., Column] = arrow_udf(function, BooleanType())  # type: ignore[call-overload]
    return made
