"""Errors of Headgate that Spark passes on begin with their sentence; those of other code keep their tracebacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from .conftest import order, write_stream

pytestmark = pytest.mark.spark


def read(spark: SparkSession, root: Path, **options: str) -> Any:
    return spark.read.format("headgate").options(root=str(root), stream="in", **options).load()


def write(spark: SparkSession, root: Path, **options: str) -> Any:
    rows = spark.sql("SELECT 'text' AS body").write.format("headgate")
    return rows.options(root=str(root), stream="out", **options).mode("append").save()


def stream(spark: SparkSession, root: Path, **options: str) -> Any:
    rows = spark.readStream.format("headgate").options(root=str(root), stream="in", columns="offset,body").load()
    writer = rows.writeStream.format("headgate").options(root=str(root), stream="out", **options)
    query = writer.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True).start()
    return query.awaitTermination()


def match(spark: SparkSession, root: Path, **options: str) -> Any:
    return spark.sql("SELECT headgate_match('price >>> 2', named_struct('price', 3))").collect()


def table(spark: SparkSession, root: Path, **options: str) -> Any:
    return spark.sql(f"CREATE TEMPORARY VIEW wrong USING headgate OPTIONS (root '{root}', stream 'in', start 'soon')")


@pytest.mark.parametrize(
    ("ask", "options", "sentence"),
    [
        (read, {"filterr": "x"}, "headgate source option filterr is unknown"),
        (read, {"filter": "price >>> 1"}, "amqp filter refused: found '>'"),
        (write, {"compression": "brotli"}, "headgate sink option compression: found 'brotli'"),
        (stream, {"compression": "brotli"}, "headgate sink option compression: found 'brotli'"),
        (match, {}, "amqp filter refused: found '>'"),
        (table, {}, "headgate source option start: 'soon'"),
    ],
)
def test_the_sentence_of_an_error_comes_first(
    ask: Callable[..., Any], options: dict[str, str], sentence: str, spark: SparkSession, root: Path
) -> None:
    write_stream(root, "in", [order(number) for number in range(3)])
    with pytest.raises(PySparkException) as caught:
        ask(spark, root, **options)
    before, _, told = str(caught.value).partition("headgate.errors.")
    assert told.partition(": ")[2].startswith(sentence)
    assert "Traceback" not in before and 'File "' not in told


def test_an_error_of_another_function_keeps_its_traceback(spark: SparkSession) -> None:
    @udf("int")
    def failing(number):  # type: ignore[no-untyped-def]
        raise ValueError("mine")

    with pytest.raises(PySparkException, match=r"(?s)Traceback.*in failing.*ValueError: mine"):
        spark.range(1).select(failing("id")).collect()
