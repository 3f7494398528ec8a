"""Batches into a table: once each, by the run that took over last, with what does not fit named."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import SinkError
from headgate.spark.pipeline.jdbc import JdbcTable

from ... import jars

pytestmark = pytest.mark.spark


class Database:
    """A file of SQLite with the tables `plain` and `keyed`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows("CREATE TABLE plain (Id BIGINT, name TEXT)")
        self.rows("CREATE TABLE keyed (id BIGINT PRIMARY KEY, name TEXT)")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()

    def table(self, spark: SparkSession, name: str, keys: Sequence[str] = (), query: str = "one") -> JdbcTable:
        url = f"jdbc:sqlite:{self.path}?busy_timeout=60000"
        return JdbcTable(spark, {"url": url, "driver": "org.sqlite.JDBC", "dbTable": name}, keys, lambda: query)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    if not jars.fits(jars.SQLITE):
        pytest.skip(f"the jar of {jars.SQLITE} could not be fetched")
    return Database(tmp_path / "tables.db")


def frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id long, name string").coalesce(1)


def test_a_batch_that_is_in_the_table_is_not_written_again_and_queries_count_for_themselves(
    spark: SparkSession, database: Database
) -> None:
    first = database.table(spark, "plain")
    first.write(frame(spark, (1, "a"), (2, "b")), 0)
    first.write(frame(spark, (3, "c")), 1)
    again = database.table(spark, "plain")
    again.write(frame(spark, (3, "c")), 1)
    again.write(frame(spark, (4, "d")), 2)
    again.close()
    other = database.table(spark, "plain", query="other")
    other.write(frame(spark, (5, "e")), 0)
    other.close()
    assert database.rows("SELECT id FROM plain ORDER BY rowid") == [(1,), (2,), (3,), (4,), (5,)]
    assert database.rows("SELECT query, batch FROM headgate_batches ORDER BY query") == [("one", 2), ("other", 0)]
    assert database.rows("SELECT name FROM sqlite_master WHERE name LIKE 'headgate_staging%'") == []


def test_a_run_that_another_took_over_from_writes_nothing_more(spark: SparkSession, database: Database) -> None:
    orphan = database.table(spark, "plain")
    orphan.write(frame(spark, (1, "a")), 0)
    staged = orphan._staging
    assert staged is not None
    successor = database.table(spark, "plain")
    successor.write(frame(spark, (2, "b")), 1)
    with pytest.raises(SinkError, match="another run writes this sink"):
        orphan._commit(["id", "name"], 2, staged)
    with pytest.raises(SinkError, match="another run writes this sink"):
        orphan.write(frame(spark, (3, "c")), 2)
    assert database.rows("SELECT id FROM plain") == [(1,), (2,)]


def test_a_batch_whose_rows_cannot_be_written_leaves_the_table_and_the_number_as_they_were(
    spark: SparkSession, database: Database
) -> None:
    table = database.table(spark, "keyed")
    table.write(frame(spark, (1, "a")), 0)
    with pytest.raises(SinkError, match=r"the database says: .*keyed\.id"):
        table.write(frame(spark, (2, "b"), (1, "c")), 1)
    assert database.rows("SELECT id, name FROM keyed") == [(1, "a")]
    assert database.rows("SELECT batch FROM headgate_batches") == [(0,)]


def test_with_keys_the_last_row_of_a_key_stays_in_a_batch_and_over_batches(
    spark: SparkSession, database: Database
) -> None:
    table = database.table(spark, "keyed", ["id"])
    table.write(frame(spark, (1, "a"), (2, "b"), (1, "c")), 0)
    table.write(frame(spark, (2, "d"), (3, "e")), 1)
    assert database.rows("SELECT id, name FROM keyed ORDER BY id") == [(1, "c"), (2, "d"), (3, "e")]


def test_a_column_that_the_table_has_not_and_a_table_that_is_not_there_are_named(
    spark: SparkSession, database: Database
) -> None:
    with pytest.raises(SinkError, match="table plain has no column 'colour'; it has Id, name"):
        database.table(spark, "plain").write(spark.sql("SELECT 1L AS id, 'red' AS colour"), 0)
    with pytest.raises(SinkError, match=r"the database says: .*nowhere"):
        database.table(spark, "nowhere").write(frame(spark, (1, "a")), 0)
