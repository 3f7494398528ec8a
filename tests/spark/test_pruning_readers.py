"""Spark, DuckDB and polars lose no rows with NaN or −0.0 of files that Headgate and its pipelines write."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from float_questions import PRICES, different_in_duckdb, different_in_polars
from headgate.parquet import ParquetWriter
from headgate.spark.pipeline import run
from headgate.spark.pipeline.configuration import check
from headgate.spark.pipeline.delta import DeltaSink

pytestmark = pytest.mark.spark

GROUPS = [*PRICES, [-0.0, -3.0] * 50]
"""The last has a dictionary in files of Spark."""

SQL = ("isnan({x})", "{x} > 5", "{x} = 0.0", "{x} IN (0.0, 7.0)", "{x} >= double('nan')")


def differences(spark: SparkSession, paths: list[Path]) -> list[str]:
    """What any reader answers otherwise over the files than over their rows in memory."""
    rows = pa.concat_tables([pq.read_table(path, columns=["price"], partitioning=None) for path in paths])
    assert len(rows) == sum(map(len, GROUPS))
    over_files = spark.read.parquet(*map(str, paths))
    return [
        *different_in_duckdb(paths, rows, "price"),
        *different_in_polars(pl.scan_parquet(paths), rows, "price"),
        *different_in_spark(over_files, spark.createDataFrame(rows)),
    ]


def different_in_spark(over_files: DataFrame, in_memory: DataFrame) -> list[str]:
    counts = in_memory.select(*(F.count_if(F.expr(each.format(x="price"))) for each in SQL)).collect()[0]
    wrong = []
    for question, expected in zip(SQL, counts, strict=True):
        for column in ("price", "inside.price") if " = " in question else ("price",):
            found = over_files.where(question.format(x=column)).count()
            wrong += [] if found == expected else [f"spark: {question} of {column}: {found}, in memory {expected}"]
    return wrong


def test_files_of_headgate(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    tables = [pa.table({"price": pa.array(group, pa.float64())}) for group in GROUPS]
    tables = [
        each.append_column("inside", pa.StructArray.from_arrays(each.columns[0].chunks, ["price"])) for each in tables
    ]
    with ParquetWriter(path, tables[0].schema) as writer:
        for each in tables:
            writer.write(each)
    assert differences(spark, [path]) == []


def frames(spark: SparkSession, folder: Path) -> list[DataFrame]:
    """The groups, each in a file of its own."""
    found = []
    for number, group in enumerate(GROUPS):
        frame = spark.createDataFrame([(value,) for value in group], "price double").coalesce(1)
        frame = frame.selectExpr("price", "struct(price) AS inside")
        frame.write.parquet(str(folder / str(number)))
        found.append(frame)
    return found


def test_delta_tables(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "table", lambda: "one", None)
    for number, frame in enumerate(frames(spark, tmp_path / "given")):
        sink.write(frame, number)
    assert differences(spark, sorted((tmp_path / "table" / "headgate").rglob("*.parquet"))) == []


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_parquet_sinks(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    frames(spark, tmp_path / "given")
    pipeline = {
        "name": "p",
        "root": str(tmp_path / "root"),
        "state": str(tmp_path / "state"),
        "source": [
            {
                "name": "rows",
                "format": "parquet",
                "path": str(tmp_path / "given" / "*"),
                "options": {"maxFilesPerTrigger": 1} if mode == "append" else {},
            }
        ],
        "sink": [{"name": "out", "input": "rows", "format": "parquet", "path": str(tmp_path / "out"), "mode": mode}],
    }
    run(check(pipeline), spark=spark)
    written = sorted((tmp_path / "out").glob("*.parquet"))
    assert differences(spark, written) == []
    assert not any(
        pq.ParquetFile(path).metadata.row_group(0).column(0).has_dictionary_page for path in written
    ) and sum(pq.ParquetFile(path).metadata.num_rows for path in written)
