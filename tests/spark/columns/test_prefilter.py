"""What Catalyst decides beforehand holds wherever the filter is true: every type at the edges of its values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from headgate.errors import FilterError
from headgate.evaluate.filter import Filter
from headgate.message import Message
from headgate.spark.columns.layout import layout_of
from headgate.spark.columns.prefilter import prefilter

from ...strategies import FLOATS, INTEGERS, TEXTS, WIDE_INTEGERS, quoted
from .rows import NOW_MS, SCALARS

pytestmark = pytest.mark.spark

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_MILLISECONDS = (-1, 0, 4, 5, 6, 256, 1_767_225_600_000)
_CONSTANTS = (
    *map(str, sorted({*map(abs, INTEGERS), *map(abs, WIDE_INTEGERS), 6, 18446744073709551616, 10**30})),
    *("0.0", "0.1", "0.5", "1.0", "4.5", "5.0", "99.99", "127.5", "9007199254740992.0", "9007199254740994.0"),
    *("9223372036854775807.0", "9223372036854775808.0", "1.0E300", "1.0E30", "1767225600000"),
    *(quoted(text) for text in TEXTS),
    *("TRUE", "FALSE"),
)
_FORMS = ("n = {}", "n <> {}", "n < {}", "n <= {}", "n > {}", "n >= {}")
_OTHER_FORMS = ("{} < n", "{} >= n", "n IN ({}, {})")
"""They mean one of the forms above, so that some constants are enough: each condition takes thirty calls to the JVM."""
_TEXTS = (
    *(form.format(constant) for form in _FORMS for constant in _CONSTANTS),
    *(form.format(constant, constant) for form in _OTHER_FORMS for constant in _CONSTANTS[::5]),
)


def values(kind: str) -> list[Any]:
    """What a column of the type may hold, with null."""
    if kind in _BITS:
        edge = 2 ** (_BITS[kind] - 1)
        return [None, *(value for value in (*INTEGERS, *WIDE_INTEGERS) if -edge <= value < edge)]
    return {
        "boolean": [None, True, False],
        "decimal": [None, *map(Decimal, (0, 5, 2**63 - 1, 2**64 - 1))],
        "float": [None, 0.0, -0.0, 0.5, 5.0, 16777216.0, float("nan"), float("inf"), -(2.0**63), 99.98999786376953],
        "double": [None, *FLOATS, float("nan"), float("inf"), float("-inf"), 9007199254740994.0],
        "string": [None, *TEXTS, "5", "5.0"],
        "binary": [None, *map(str.encode, TEXTS), b"\xff"],
        "timestamp": [None, *(ms * 1000 + micros for ms in _MILLISECONDS for micros in (0, 1, 999))],
    }[kind]


@pytest.mark.parametrize("dialect", ["rabbitmq", "servicebus", "rocketmq"])
@pytest.mark.parametrize("kind", sorted(SCALARS))
def test_the_condition_holds_wherever_the_filter_is_true(spark: SparkSession, kind: str, dialect: str) -> None:
    held, scalar = values(kind), SCALARS[kind]
    column = pa.array(held, pa.int64()).cast(scalar.arrow) if kind == "timestamp" else pa.array(held, scalar.arrow)
    frame = spark.createDataFrame(pa.table({"n": column}))
    messages = [
        Message(None, application_properties={} if value is None else {"n": scalar.amqp(value)}) for value in held
    ]
    conditions = []
    for text in _TEXTS:
        try:
            filter = Filter.parse(text, dialect)
        except FilterError:
            continue
        condition = prefilter(filter.tree, layout_of(filter, frame.schema))
        if condition is not None:
            conditions.append((filter, condition))
    if not conditions:
        assert kind in _LEFT_TO_THE_FUNCTION[dialect]
        return
    found = frame.select(*(condition.alias(f"c{n}") for n, (_, condition) in enumerate(conditions))).collect()
    for number, (filter, _) in enumerate(conditions):
        for value, message, row in zip(held, messages, found, strict=True):
            if filter.matches(message, now_ms=NOW_MS):
                assert row[number] is True, (filter, value)
    kept = sum(row[number] is True for number in range(len(conditions)) for row in found)
    assert kept < len(conditions) * len(found) * 0.7, "conditions that keep most rows are of no use"


_LEFT_TO_THE_FUNCTION = {
    "rabbitmq": {"decimal"},
    "servicebus": {"decimal", "float", "binary", "timestamp"},
    "rocketmq": {"decimal", "tinyint", "smallint", "int", "bigint", "float", "double", "binary", "timestamp"},
}
"""Types of which no comparison of the language is offered to Catalyst."""


def test_texts_of_another_collation_are_left_to_the_function() -> None:
    filter = Filter.parse("n = 'a'", "rabbitmq")
    schema = StructType([StructField("n", StringType("UTF8_LCASE"))])
    assert prefilter(filter.tree, layout_of(filter, schema)) is None
